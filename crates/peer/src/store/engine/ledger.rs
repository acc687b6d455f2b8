//! What is known to be in an engine: what need not be written again, and in which order blocks go when there are too many.

use std::collections::{HashMap, VecDeque};

use super::Kept;
use crate::id::Hash;

/// Blocks that are remembered where their bytes are not bounded: some 60 MiB.
const REMEMBERED: usize = 1 << 20;

/// A block: its bytes, and whether it was read since it was written.
#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u32,
    was_used: bool,
}

/// Blocks in the order in which they were put.
#[derive(Debug)]
pub(super) struct Ledger {
    bytes_max: Option<u64>,
    bytes: u64,
    /// By the first bytes of their hashes. Two blocks that share them are one here: a block that is not written, and is a miss.
    entries: HashMap<u64, Entry>,
    /// The oldest first. What was forgotten stays here until it comes to the front.
    order: VecDeque<Hash>,
}

impl Ledger {
    pub(super) fn new(bytes_max: Option<u64>) -> Self {
        Self { bytes_max, bytes: 0, entries: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn bytes_max(&self) -> Option<u64> {
        self.bytes_max
    }

    pub(super) fn knows(&self, hash: &Hash) -> bool {
        self.entries.contains_key(&hash.prefix())
    }

    /// It was read.
    pub(super) fn used(&mut self, hash: &Hash) {
        if let Some(entry) = self.entries.get_mut(&hash.prefix()) {
            entry.was_used = true;
        }
    }

    /// It was put, and was not known. Which blocks go for it.
    pub(super) fn put(&mut self, hash: &Hash, bytes: usize) -> Vec<Gone> {
        self.insert(hash, bytes as u32);
        self.order.push_back(*hash);
        self.overflow()
    }

    /// They were there before anything was put, in no order. Which blocks go.
    pub(super) fn found(&mut self, mut found: Vec<Kept>) -> Vec<Gone> {
        found.sort_unstable_by_key(|kept| std::cmp::Reverse(kept.written));
        for kept in found {
            if !self.knows(&kept.hash) {
                self.insert(&kept.hash, kept.bytes);
                self.order.push_front(kept.hash);
            }
        }
        self.overflow()
    }

    /// It isn't there. How many bytes it had, where it was known.
    pub(super) fn forget(&mut self, hash: &Hash) -> Option<u64> {
        let entry = self.entries.remove(&hash.prefix())?;
        self.bytes -= u64::from(entry.bytes);
        Some(entry.bytes.into())
    }

    fn insert(&mut self, hash: &Hash, bytes: u32) {
        self.entries.insert(hash.prefix(), Entry { bytes, was_used: false });
        self.bytes += u64::from(bytes);
    }

    fn is_too_much(&self) -> bool {
        match self.bytes_max {
            Some(most) => self.bytes > most,
            None => self.entries.len() > REMEMBERED,
        }
    }

    fn overflow(&mut self) -> Vec<Gone> {
        let mut gone = Vec::new();
        while self.is_too_much() {
            let Some(hash) = self.order.pop_front() else { break };
            match self.entries.get_mut(&hash.prefix()) {
                None => {}
                Some(entry) if entry.was_used => {
                    entry.was_used = false;
                    self.order.push_back(hash);
                }
                Some(_) => {
                    let bytes = self.forget(&hash).unwrap_or(0);
                    // Where bytes are not bounded it is only forgotten.
                    if self.bytes_max.is_some() {
                        gone.push(Gone { hash, bytes });
                    }
                }
            }
        }
        // A block that was forgotten and put again is there twice.
        if self.order.len() > 2 * self.entries.len() + 64 {
            let mut seen = std::collections::HashSet::new();
            let entries = &self.entries;
            self.order.retain(|hash| entries.contains_key(&hash.prefix()) && seen.insert(hash.prefix()));
        }
        gone
    }
}

/// A block that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) hash: Hash,
    pub(super) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u8) -> Hash {
        Hash::from_bytes([n; 32])
    }

    fn hashes(gone: &[Gone]) -> Vec<Hash> {
        gone.iter().map(|gone| gone.hash).collect()
    }

    #[test]
    fn the_oldest_go_but_not_what_was_read() {
        let mut ledger = Ledger::new(Some(300));
        (1..=3).for_each(|n| assert_eq!(ledger.put(&hash(n), 100), []));
        ledger.used(&hash(1));
        assert_eq!(hashes(&ledger.put(&hash(4), 100)), [hash(2)]);
        assert!(ledger.knows(&hash(1)) && !ledger.knows(&hash(2)));
        // It was read once: the next time it goes in its turn.
        assert_eq!(hashes(&ledger.put(&hash(5), 200)), [hash(3), hash(4)]);
        assert_eq!(hashes(&ledger.put(&hash(6), 100)), [hash(1)]);
        assert_eq!(ledger.bytes, 300);
    }

    #[test]
    fn what_was_there_before_goes_before_what_was_put_and_the_oldest_of_it_first() {
        let mut ledger = Ledger::new(Some(400));
        ledger.put(&hash(1), 100);
        let kept = |n, written| Kept { hash: hash(n), bytes: 100, written };
        let gone = ledger.found(vec![kept(2, 20), kept(3, 10), kept(1, 0), kept(4, 30), kept(5, 5)]);
        assert_eq!(hashes(&gone), [hash(5)]);
        assert_eq!(hashes(&ledger.put(&hash(6), 200)), [hash(3), hash(2)]);
        assert!(ledger.knows(&hash(1)) && ledger.knows(&hash(4)));
    }

    #[test]
    fn what_was_forgotten_can_be_put_again_and_takes_no_room_for_ever() {
        let mut ledger = Ledger::new(Some(1000));
        for _ in 0..10_000 {
            assert_eq!(ledger.put(&hash(1), 100), []);
            assert_eq!(ledger.forget(&hash(1)), Some(100));
        }
        assert_eq!((ledger.forget(&hash(1)), ledger.bytes), (None, 0));
        assert!(ledger.order.len() < 100, "{}", ledger.order.len());
    }

    #[test]
    fn what_is_larger_than_all_the_room_goes_itself() {
        let mut ledger = Ledger::new(Some(50));
        assert_eq!(hashes(&ledger.put(&hash(1), 100)), [hash(1)]);
        assert_eq!(ledger.bytes, 0);
    }

    #[test]
    fn without_a_bound_nothing_goes_and_not_all_is_remembered() {
        let mut ledger = Ledger::new(None);
        for n in 0..REMEMBERED as u64 + 10 {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&n.to_le_bytes());
            assert_eq!(ledger.put(&Hash::from_bytes(bytes), 4096), []);
        }
        assert_eq!(ledger.entries.len(), REMEMBERED);
    }
}
