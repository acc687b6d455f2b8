//! Memory above another store.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{BlockStore, Figure, Memory, Put, StoreError};
use crate::id::Hash;

/// Memory above a store that is larger and slower. What is read from below comes to be in memory, too.
pub struct Tiered {
    upper: Memory,
    lower: Box<dyn BlockStore>,
    upper_hits: AtomicU64,
    lower_hits: AtomicU64,
    lower_failures: AtomicU64,
}

impl Tiered {
    /// The one above the other.
    #[must_use]
    pub fn new(upper: Memory, lower: Box<dyn BlockStore>) -> Self {
        let zero = || AtomicU64::new(0);
        Self { upper, lower, upper_hits: zero(), lower_hits: zero(), lower_failures: zero() }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl BlockStore for Tiered {
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        if self.upper.get(hash, into)? {
            count(&self.upper_hits);
            return Ok(true);
        }
        let start = into.len();
        let is_there = self.lower.get(hash, into).inspect_err(|_| count(&self.lower_failures))?;
        if is_there {
            count(&self.lower_hits);
            self.upper.put(hash, &into[start..])?;
        }
        Ok(is_there)
    }

    /// Fails only where it is in neither.
    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, StoreError> {
        let upper = self.upper.put(hash, bytes)?;
        match self.lower.put(hash, bytes) {
            Err(_) if self.upper.has(hash) => {
                count(&self.lower_failures);
                Ok(upper)
            }
            lower => lower.inspect_err(|_| count(&self.lower_failures)),
        }
    }

    fn has(&self, hash: &Hash) -> bool {
        self.upper.has(hash) || self.lower.has(hash)
    }

    fn has_all(&self, hashes: &[Hash]) -> Vec<bool> {
        let mut are_there: Vec<bool> = hashes.iter().map(|hash| self.upper.has(hash)).collect();
        let absent: Vec<usize> = (0..hashes.len()).filter(|at| !are_there[*at]).collect();
        if !absent.is_empty() {
            let asked: Vec<Hash> = absent.iter().map(|at| hashes[*at]).collect();
            for (at, is_there) in absent.into_iter().zip(self.lower.has_all(&asked)) {
                are_there[at] = is_there;
            }
        }
        are_there
    }

    fn is_far(&self) -> bool {
        self.lower.is_far()
    }

    fn soon(&self, hashes: &[Hash]) {
        let absent: Vec<Hash> = hashes.iter().filter(|hash| !self.upper.has(hash)).copied().collect();
        if !absent.is_empty() {
            self.lower.soon(&absent);
        }
    }

    fn blocks(&self) -> u64 {
        self.lower.blocks().max(self.upper.blocks())
    }

    fn bytes(&self) -> u64 {
        self.lower.bytes().max(self.upper.bytes())
    }

    fn figures(&self) -> Vec<Figure> {
        let figure = |name, help, is_counter, value| Figure { name, help, is_counter, value };
        let told = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut figures = vec![
            figure("memory_bytes", "Bytes of the blocks that are in memory.", false, self.upper.bytes()),
            figure("memory_hits", "Blocks that came from memory.", true, told(&self.upper_hits)),
            figure("lower_hits", "Blocks that came from the store below.", true, told(&self.lower_hits)),
            figure("lower_failures", "What the store below could not do.", true, told(&self.lower_failures)),
        ];
        figures.extend(self.lower.figures());
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::{self, Failing};

    #[test]
    fn it_is_a_store() {
        conformance::all(&|| Box::new(Tiered::new(Memory::new(8 << 20), Box::new(Memory::new(64 << 20)))));
        // All comes from below.
        conformance::all(&|| Box::new(Tiered::new(Memory::new(0), Box::new(Memory::new(64 << 20)))));
    }

    #[test]
    fn what_is_read_from_below_comes_up() {
        let hash = Hash::from_bytes([1; 32]);
        let lower = Memory::new(1 << 20);
        lower.put(&hash, b"block").unwrap();
        let store = Tiered::new(Memory::new(1 << 20), Box::new(lower));
        let mut bytes = b"before".to_vec();
        assert!(store.get(&hash, &mut bytes).unwrap() && store.get(&hash, &mut bytes).unwrap());
        assert_eq!(bytes, b"beforeblockblock");
        assert_eq!(store.upper_hits.load(Ordering::Relaxed), 1);
        assert_eq!(store.lower_hits.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_above_or_below_is_there() {
        let hash = |n: u8| Hash::from_bytes([n; 32]);
        let (upper, lower) = (Memory::new(1 << 20), Memory::new(1 << 20));
        upper.put(&hash(1), b"above").unwrap();
        lower.put(&hash(2), b"below").unwrap();
        let store = Tiered::new(upper, Box::new(lower));
        assert_eq!(store.has_all(&[hash(3), hash(2), hash(1), hash(2)]), [false, true, true, true]);
        assert_eq!(store.has_all(&[]), [false; 0]);
    }

    #[test]
    fn a_store_below_that_fails_is_counted_and_memory_serves_on() {
        let store = Tiered::new(Memory::new(1 << 20), Box::new(Failing));
        let (hash, other) = (Hash::from_bytes([1; 32]), Hash::from_bytes([2; 32]));
        assert_eq!(store.put(&hash, b"block").unwrap(), Put::New);
        assert!(store.get(&hash, &mut Vec::new()).unwrap());
        store.get(&other, &mut Vec::new()).unwrap_err();
        assert_eq!(store.lower_failures.load(Ordering::Relaxed), 2);
        Tiered::new(Memory::new(0), Box::new(Failing)).put(&hash, b"block").unwrap_err();
    }
}
