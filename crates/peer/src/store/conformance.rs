//! What each store has to do. `make` gives an empty one that holds some thousand blocks of 4 KiB at least.

use std::{io, sync::Arc, thread};

use super::{BlockStore, Put, StoreError};
use crate::id::{BLOCK_BYTES_MAX, Hash, TrustDomain};

/// The key of the blocks here; a store that checks what it reads has to have it.
pub(crate) fn domain() -> TrustDomain {
    TrustDomain::from_key([42; 32])
}

/// The n-th block of so many bytes, and its hash.
pub(crate) fn block(n: u32, bytes: usize) -> (Hash, Vec<u8>) {
    let mut block = vec![0; bytes];
    for (at, word) in block.chunks_mut(4).enumerate() {
        let value = (n.wrapping_add(1)).wrapping_mul(2_654_435_761).wrapping_add(at as u32).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
    (domain().hash(&block), block)
}

/// The bytes of a block, where it is there.
pub(crate) fn got(store: &dyn BlockStore, hash: &Hash) -> Option<Vec<u8>> {
    let mut bytes = b"before".to_vec();
    let is_there = store.get(hash, &mut bytes).unwrap();
    assert!(bytes.starts_with(b"before"), "what was there stays");
    assert!(is_there || bytes.len() == 6, "nothing comes of what isn't there");
    is_there.then(|| bytes.split_off(6))
}

type Make<'a> = &'a dyn Fn() -> Box<dyn BlockStore>;

pub(crate) fn all(make: Make<'_>) {
    what_is_put_comes_back(make().as_ref());
    equal_blocks_are_held_once(make().as_ref());
    all_lengths_come_back(make().as_ref());
    many_threads_agree(&Arc::from(make()));
}

fn what_is_put_comes_back(store: &dyn BlockStore) {
    assert_eq!((store.blocks(), store.bytes()), (0, 0));
    let blocks: Vec<_> = (0..300).map(|n| block(n, 4096)).collect();
    for (hash, bytes) in &blocks {
        assert!(!store.has(hash));
        assert_eq!(got(store, hash), None);
        assert_eq!(store.put(hash, bytes).unwrap(), Put::New);
        assert!(store.has(hash));
    }
    for (hash, bytes) in &blocks {
        assert_eq!(got(store, hash).as_ref(), Some(bytes));
    }
    assert_eq!((store.blocks(), store.bytes()), (300, 300 * 4096));
    assert_eq!(got(store, &block(1000, 4096).0), None);
}

fn equal_blocks_are_held_once(store: &dyn BlockStore) {
    let (hash, bytes) = block(1, 4096);
    assert_eq!(store.put(&hash, &bytes).unwrap(), Put::New);
    for _ in 0..3 {
        assert_eq!(store.put(&hash, &bytes).unwrap(), Put::Known);
    }
    assert_eq!((store.blocks(), store.bytes()), (1, 4096));
}

fn all_lengths_come_back(store: &dyn BlockStore) {
    let blocks: Vec<_> = [1, 2, 511, 4095, 4096, 4097, 8192, BLOCK_BYTES_MAX - 1, BLOCK_BYTES_MAX]
        .into_iter()
        .map(|bytes| block(7, bytes))
        .collect();
    for (hash, bytes) in &blocks {
        assert_eq!(store.put(hash, bytes).unwrap(), Put::New);
    }
    for (hash, bytes) in &blocks {
        assert_eq!(got(store, hash).as_ref(), Some(bytes));
    }
}

fn many_threads_agree(store: &Arc<dyn BlockStore>) {
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let store = Arc::clone(store);
            thread::spawn(move || {
                let mut new = 0;
                for n in 0..200 {
                    let (hash, bytes) = block((n * 7 + thread * 50) % 200, 4096);
                    new += u32::from(store.put(&hash, &bytes).unwrap() == Put::New);
                    assert_eq!(got(store.as_ref(), &hash), Some(bytes));
                }
                new
            })
        })
        .collect();
    let new: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!((new, store.blocks(), store.bytes()), (200, 200, 200 * 4096));
}

/// A store that can do nothing.
pub(crate) struct Failing;

fn failure() -> StoreError {
    StoreError::Io { path: "nowhere".into(), step: "do anything", source: io::Error::other("it is broken") }
}

impl BlockStore for Failing {
    fn get(&self, _: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        into.extend_from_slice(b"half of it");
        Err(failure())
    }

    fn put(&self, _: &Hash, _: &[u8]) -> Result<Put, StoreError> {
        Err(failure())
    }

    fn has(&self, _: &Hash) -> bool {
        false
    }

    fn blocks(&self) -> u64 {
        0
    }

    fn bytes(&self) -> u64 {
        0
    }
}
