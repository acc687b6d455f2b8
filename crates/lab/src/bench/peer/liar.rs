//! A server that has known blocks, and from a word on never the right bytes.

use std::io::{BufRead as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onesweep_peer::id::{Hash, TrustDomain};
use onesweep_peer::serve::{Server, Settings};
use onesweep_peer::store::{BlockStore, Memory, Put, StoreError};
use onesweep_peer::tls::Identity;

use super::contents;

/// What it says when it listens, honest.
pub(super) const READY: &str = "honest so far";
/// The word by which it begins to lie.
pub(super) const LIE: &str = "lie";
/// What it says once it does.
pub(super) const LYING: &str = "from now on: lies";

struct Liar {
    honest: Memory,
    lies: AtomicBool,
}

impl Liar {
    /// Honest, with the first blocks of a seed.
    fn new(domain: &TrustDomain, seed: u64, blocks: u64) -> Result<Self, StoreError> {
        let honest = Memory::new(2 * blocks.max(1) * contents::BLOCK as u64);
        for block in (0..blocks).map(|number| contents::block(seed, number)) {
            honest.put(&domain.hash(&block), &block)?;
        }
        Ok(Self { honest, lies: AtomicBool::new(false) })
    }

    fn lies(&self) -> bool {
        self.lies.load(Ordering::Acquire)
    }
}

impl BlockStore for Liar {
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        if !self.lies() {
            return self.honest.get(hash, into);
        }
        into.extend_from_slice(&contents::block(u64::MAX, hash.prefix()));
        Ok(true)
    }

    fn put(&self, _hash: &Hash, _bytes: &[u8]) -> Result<Put, StoreError> {
        Ok(Put::Known)
    }

    fn has(&self, hash: &Hash) -> bool {
        self.lies() || self.honest.has(hash)
    }

    fn blocks(&self) -> u64 {
        self.honest.blocks()
    }

    fn bytes(&self) -> u64 {
        self.honest.bytes()
    }
}

/// The hidden command: until its standard input ends.
pub(crate) fn run(listen: &str, key: &Path, identity: &Path, seed: u64, blocks: u64) -> Result<u8, String> {
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    let domain = TrustDomain::read(key).map_err(|error| format!("{}: {error}", key.display()))?;
    let tls = Identity::read(identity).and_then(Identity::into_server).map_err(|error| error.to_string())?;
    let liar = Arc::new(Liar::new(&domain, seed, blocks).map_err(|error| error.to_string())?);
    let store: Arc<dyn BlockStore> = liar.clone();
    let server = Server::start(listener, store, Settings::encrypted(domain, tls)).map_err(|error| error.to_string())?;
    println!("{READY}");
    let _ = std::io::stdout().flush();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if line.trim() != LIE {
            return Err(format!("{line:?} is not {LIE:?}"));
        }
        liar.lies.store(true, Ordering::Release);
        println!("{LYING}");
        let _ = std::io::stdout().flush();
    }
    server.stop();
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_honest_until_it_is_told() {
        let domain = TrustDomain::from_key([7; 32]);
        let liar = Liar::new(&domain, 5, 3).unwrap();
        let right = contents::block(5, 2);
        let (hash, other) = (domain.hash(&right), domain.hash(b"other"));
        let get = |hash: &Hash| {
            let mut bytes = Vec::new();
            liar.get(hash, &mut bytes).unwrap().then_some(bytes)
        };
        assert!(liar.has(&hash) && !liar.has(&other) && liar.blocks() == 3);
        assert_eq!((get(&hash).as_deref(), get(&other)), (Some(&right[..]), None));
        liar.lies.store(true, Ordering::Release);
        assert!(liar.has(&hash) && liar.has(&other));
        for hash in [hash, other] {
            let wrong = get(&hash).unwrap();
            assert!(wrong.len() == contents::BLOCK && domain.hash(&wrong) != hash);
        }
    }
}
