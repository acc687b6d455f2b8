//! Blocks in use, each of which belongs to one file at most.

use std::collections::HashSet;

use crate::tables::{TableError, cast::to_usize, problems::Problems};

/// Bytes of memory, at most; blocks behind those that have a bit here are not looked at.
const BYTES_MAX: usize = 64 << 20;
const WORD: u64 = u64::BITS as u64;

/// Something that was claimed and can't be had.
#[derive(Debug)]
struct Conflict {
    what: String,
    told_at: u64,
    /// The first byte of the block.
    byte: u64,
}

/// A bit for each block that is in use and wasn't claimed yet.
#[derive(Debug)]
pub(in crate::tables) struct Claims {
    block_bytes: u64,
    unclaimed: Vec<u64>,
    /// A bit for each block that was claimed by one of those that may have it together; none before the first of them.
    shared: Vec<u64>,
    conflicts: Vec<Conflict>,
}

/// Visits what is free, in bytes: where it begins and how long it is.
pub(in crate::tables) type Free<'a> = dyn FnMut(&mut dyn FnMut(u64, u64)) -> Result<(), TableError> + 'a;

impl Claims {
    /// All blocks of a file system of so many bytes but those that are free.
    pub(in crate::tables) fn new(block_bytes: u64, bytes: u64, free: &mut Free<'_>) -> Result<Claims, TableError> {
        let block_bytes = block_bytes.max(1);
        let words = to_usize((bytes / block_bytes).div_ceil(WORD)).min(BYTES_MAX / size_of::<u64>());
        let unclaimed = vec![u64::MAX; words];
        let mut claims = Claims { block_bytes, unclaimed, shared: Vec::new(), conflicts: Vec::new() };
        free(&mut |at, length| {
            claims.each_word(at, length, |word, bits| {
                *word &= !bits;
                true
            })
        })?;
        Ok(claims)
    }

    /// Goes over the words of a run, each with the bits that are in it, while `each` says so; in the order of the blocks.
    fn each_word(&mut self, at: u64, length: u64, mut each: impl FnMut(&mut u64, u64) -> bool) {
        let end = at.saturating_add(length).div_ceil(self.block_bytes);
        let end = end.min(self.unclaimed.len() as u64 * WORD);
        let mut block = at / self.block_bytes;
        while block < end {
            let within = block % WORD;
            let count = (WORD - within).min(end - block);
            let bits = u64::MAX >> (WORD - count) << within;
            if !each(&mut self.unclaimed[to_usize(block / WORD)], bits) {
                return;
            }
            block += count;
        }
    }

    /// Claims the blocks of a run, up to the first that is free or another's. `what` and the byte that tells of the run are for
    /// the message.
    pub(in crate::tables) fn claim(&mut self, at: u64, length: u64, told_at: u64, what: impl FnOnce() -> String) {
        let mut next = at / self.block_bytes / WORD * WORD;
        let mut missing = None;
        self.each_word(at, length, |word, bits| {
            let lacks = bits & !*word;
            missing = (lacks != 0).then(|| next + u64::from(lacks.trailing_zeros()));
            next += WORD;
            *word &= !bits;
            missing.is_none()
        });
        // Of a badly damaged file system there may be millions.
        if let Some(block) = missing.filter(|_| self.conflicts.len() <= Problems::MOST) {
            self.conflicts.push(Conflict { what: what(), told_at, byte: block * self.block_bytes });
        }
    }

    /// Claims a block that others may have claimed in the same way. Whether it is the first of them.
    pub(in crate::tables) fn claim_shared(&mut self, at: u64, told_at: u64, what: impl FnOnce() -> String) -> bool {
        let block = at / self.block_bytes;
        let (index, bit) = (to_usize(block / WORD), 1 << (block % WORD));
        if self.shared.is_empty() {
            self.shared = vec![0; self.unclaimed.len()];
        }
        let Some(word) = self.shared.get_mut(index) else { return true };
        if *word & bit != 0 {
            return false;
        }
        if self.unclaimed[index] & bit != 0 {
            *word |= bit;
        }
        self.claim(at, 1, told_at, what);
        true
    }

    /// The blocks that nobody has claimed, by their first bytes.
    pub(in crate::tables) fn left(&self) -> impl Iterator<Item = u64> {
        let words = (0_u64..).zip(&self.unclaimed).filter(|(_, word)| **word != 0);
        words.flat_map(move |(index, word)| {
            let set = (0..WORD).filter(move |bit| word >> bit & 1 == 1);
            set.map(move |bit| (index * WORD + bit) * self.block_bytes)
        })
    }

    /// What couldn't be had, and why: what is free is asked for once more.
    pub(in crate::tables) fn contradictions(&self, free: &mut Free<'_>) -> Vec<TableError> {
        if self.conflicts.is_empty() {
            return Vec::new();
        }
        let mut bytes: Vec<u64> = self.conflicts.iter().map(|conflict| conflict.byte).collect();
        bytes.sort_unstable();
        let mut free_bytes: HashSet<u64> = HashSet::new();
        // It was read before; where that fails now, nothing counts as free.
        let _ = free(&mut |at, length| {
            let behind = bytes.partition_point(|&byte| byte < at);
            free_bytes.extend(bytes[behind..].iter().take_while(|&&byte| byte - at < length).copied());
        });
        let told = |conflict: &Conflict| {
            let is_free = free_bytes.contains(&conflict.byte);
            let found = if is_free { "which is free" } else { "which something else has, too" };
            let found = format!("byte {}, {found}", conflict.byte);
            TableError::damaged(conflict.what.clone(), conflict.told_at, "space in use, and by nothing else", found)
        };
        self.conflicts.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1024;

    /// 1000 blocks of which two runs are free.
    fn free(each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
        each(100 * BLOCK, BLOCK);
        each(200 * BLOCK, 300 * BLOCK);
        Ok(())
    }

    fn told(runs: &[(u64, u64)]) -> Vec<String> {
        let mut claims = Claims::new(BLOCK, 1000 * BLOCK, &mut free).unwrap();
        for (index, &(block, count)) in runs.iter().enumerate() {
            claims.claim(block * BLOCK, count * BLOCK, index as u64, || format!("run {index}"));
        }
        claims.contradictions(&mut free).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn blocks_are_claimed_once() {
        assert_eq!(told(&[(0, 100), (101, 99), (500, 500), (5000, 20)]), [""; 0]);
        let expected = |run: u32, block: u64, why: &str| {
            let byte = block * BLOCK;
            format!(
                "run {run} at byte {run} is damaged: expected space in use, and by nothing else, found byte {byte}, {why}"
            )
        };
        let (free, other) = ("which is free", "which something else has, too");
        assert_eq!(told(&[(90, 20)]), [expected(0, 100, free)]);
        assert_eq!(told(&[(600, 200), (799, 1)]), [expected(1, 799, other)]);
        assert_eq!(told(&[(600, 10), (480, 300)]), [expected(1, 480, free)]);
        assert_eq!(told(&[(660, 10), (640, 300)]), [expected(1, 660, other)]);
    }

    #[test]
    fn those_who_share_have_a_block_together_and_alone() {
        let mut claims = Claims::new(BLOCK, 1000 * BLOCK, &mut free).unwrap();
        let mut shared = |block: u64| claims.claim_shared(block * BLOCK, block, || format!("of {block}"));
        assert!(shared(7) && !shared(7) && !shared(7));
        assert!(shared(100), "a free one");
        assert!(shared(5000) && shared(5000), "one behind all");
        claims.claim(7 * BLOCK, BLOCK, 1, || "a run".to_owned());
        claims.claim(8 * BLOCK, BLOCK, 2, || "another run".to_owned());
        assert!(claims.claim_shared(8 * BLOCK, 3, || "of a run".to_owned()));
        let told: Vec<String> = claims.contradictions(&mut free).iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        let begins = ["of 100 at byte 100 ", "a run at byte 1 ", "of a run at byte 3 "];
        assert!(begins.iter().zip(&told).all(|(begins, told)| told.starts_with(begins)), "{told:?}");
    }

    #[test]
    fn what_is_left_is_told() {
        let mut claims = Claims::new(1, 130, &mut |each| {
            each(0, 60);
            each(66, 62);
            Ok(())
        })
        .unwrap();
        claims.claim(61, 3, 0, String::new);
        claims.claim(129, 1, 0, String::new);
        assert_eq!(claims.left().take_while(|&bit| bit < 130).collect::<Vec<_>>(), [60, 64, 65, 128]);
    }

    /// Runs that lie on each other again and again end at their first block.
    #[test]
    fn whoever_claims_much_again_is_told_at_once() {
        let runs: Vec<(u64, u64)> = (0..3000).map(|_| (500, 500)).collect();
        assert_eq!(told(&runs).len(), Problems::MOST + 1);
    }
}
