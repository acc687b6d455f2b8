//! Blocks in memory. When there is no room, the least recently used go.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{BlockStore, Put, StoreError};
use crate::id::{BLOCK_BYTES_MAX, Hash};

/// What a block costs beside its bytes: its place here and in the table, and the allocation.
const BLOCK_COST: u64 = 160;
/// Locks of their own, where there is enough memory for that.
const SHARDS: usize = 16;
/// No place.
const NONE: u32 = u32::MAX;

/// Blocks in memory, bounded by bytes.
#[derive(Debug)]
pub struct Memory {
    shards: Vec<Mutex<Shard>>,
}

impl Memory {
    /// Holds blocks until they take about so many bytes of memory, what it takes to find them included.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let is_large = bytes_max / SHARDS as u64 >= 64 * BLOCK_BYTES_MAX as u64;
        let count = if is_large { SHARDS } else { 1 };
        let shard = || Mutex::new(Shard::new(bytes_max / count as u64));
        Self { shards: (0..count).map(|_| shard()).collect() }
    }

    fn shard(&self, hash: &Hash) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[hash.prefix() as usize % self.shards.len()];
        // Whoever panicked did so outside of the few lines below.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sum(&self, of: impl Fn(&Shard) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(&shard.lock().unwrap_or_else(PoisonError::into_inner))).sum()
    }
}

impl BlockStore for Memory {
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        let Some(block) = self.shard(hash).get(hash) else { return Ok(false) };
        into.extend_from_slice(&block);
        Ok(true)
    }

    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, StoreError> {
        Ok(self.shard(hash).put(hash, bytes))
    }

    fn has(&self, hash: &Hash) -> bool {
        self.shard(hash).places.contains_key(hash)
    }

    fn blocks(&self) -> u64 {
        self.sum(|shard| shard.places.len() as u64)
    }

    fn bytes(&self) -> u64 {
        self.sum(|shard| shard.bytes)
    }
}

/// A block, and those used just before and just after it.
#[derive(Debug)]
struct Held {
    hash: Hash,
    block: Arc<[u8]>,
    older: u32,
    newer: u32,
}

/// Blocks under one lock, in a list by when they were used.
#[derive(Debug)]
struct Shard {
    bytes_max: u64,
    bytes: u64,
    places: HashMap<Hash, u32>,
    held: Vec<Held>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl Shard {
    fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            places: HashMap::new(),
            held: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    fn get(&mut self, hash: &Hash) -> Option<Arc<[u8]>> {
        let at = *self.places.get(hash)?;
        self.take_out(at);
        self.make_newest(at);
        Some(Arc::clone(&self.held[at as usize].block))
    }

    fn put(&mut self, hash: &Hash, bytes: &[u8]) -> Put {
        if self.get(hash).is_some() {
            return Put::Known;
        }
        let block: Arc<[u8]> = bytes.into();
        self.bytes += block.len() as u64;
        let held = Held { hash: *hash, block, older: NONE, newer: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.held[at as usize] = held;
                at
            }
            None => {
                self.held.push(held);
                (self.held.len() - 1) as u32
            }
        };
        self.places.insert(*hash, at);
        self.make_newest(at);
        while self.cost() > self.bytes_max && self.oldest != NONE {
            self.drop_oldest();
        }
        Put::New
    }

    fn cost(&self) -> u64 {
        self.bytes + self.places.len() as u64 * BLOCK_COST
    }

    fn drop_oldest(&mut self) {
        let at = self.oldest;
        self.take_out(at);
        let held = &mut self.held[at as usize];
        self.bytes -= held.block.len() as u64;
        held.block = Arc::new([]);
        self.places.remove(&held.hash);
        self.free.push(at);
    }

    fn take_out(&mut self, at: u32) {
        let Held { older, newer, .. } = self.held[at as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.held[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.held[newer as usize].older = older,
        }
    }

    fn make_newest(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let held = &mut self.held[at as usize];
        (held.older, held.newer) = (before, NONE);
        match before {
            NONE => self.oldest = at,
            before => self.held[before as usize].newer = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance;

    #[test]
    fn it_is_a_store() {
        conformance::all(&|| Box::new(Memory::new(256 << 20)));
        conformance::all(&|| Box::new(Memory::new(8 << 20)));
    }

    #[test]
    fn the_least_recently_used_go_and_the_bound_holds() {
        let store = Memory::new(10 * (4096 + BLOCK_COST));
        let hash = |n: u8| Hash::from_bytes([n; 32]);
        for n in 0..10 {
            store.put(&hash(n), &[n; 4096]).unwrap();
        }
        assert_eq!((store.blocks(), store.bytes()), (10, 40_960));
        assert!(store.get(&hash(0), &mut Vec::new()).unwrap());
        for n in 10..15 {
            store.put(&hash(n), &[n; 4096]).unwrap();
        }
        assert_eq!(store.blocks(), 10);
        let there: Vec<u8> = (0..15).filter(|n| store.has(&hash(*n))).collect();
        assert_eq!(there, [0, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn a_store_without_room_keeps_nothing_and_does_no_harm() {
        let store = Memory::new(100);
        assert_eq!(store.put(&Hash::from_bytes([1; 32]), &[1; 4096]).unwrap(), Put::New);
        assert_eq!((store.blocks(), store.bytes()), (0, 0));
        assert!(!store.get(&Hash::from_bytes([1; 32]), &mut Vec::new()).unwrap());
    }

    #[test]
    fn the_list_is_sound_after_anything() {
        // Against a plain list; numbers by a multiplicative generator, so that each run is the same.
        let store = Memory::new(20 * (100 + BLOCK_COST));
        let mut list: Vec<u8> = Vec::new();
        let mut state = 1_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (n, is_put) = ((state >> 24) as u8 % 40, state >> 16 & 1 == 1);
            let hash = Hash::from_bytes([n; 32]);
            let was_there = list.contains(&n);
            if is_put {
                let put = store.put(&hash, &[n; 100]).unwrap();
                assert_eq!(put == Put::Known, was_there);
            } else {
                let mut bytes = Vec::new();
                assert_eq!(store.get(&hash, &mut bytes).unwrap(), was_there);
                assert!(bytes.iter().all(|byte| *byte == n));
            }
            if is_put || was_there {
                list.retain(|other| *other != n);
                list.push(n);
                if list.len() > 20 {
                    list.remove(0);
                }
            }
            assert_eq!(store.blocks(), list.len() as u64);
        }
    }
}
