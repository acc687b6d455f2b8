//! Blocks of extended attributes, each of which says how many inodes have it.

use std::collections::HashMap;

use super::xattr::Owners;
use crate::tables::{TableError, checks::Claims, problems::Problems};

/// Blocks of several inodes that are counted, at most; 40 bytes each.
const COUNTED_MAX: usize = 1 << 18;

/// A block that several inodes have.
#[derive(Debug)]
struct Counted {
    owners: Owners,
    found: u32,
}

/// What inodes and blocks tell of each other.
#[derive(Debug, Default)]
pub(super) struct AttributeBlocks {
    /// By the byte where they begin.
    counted: HashMap<u64, Counted>,
}

impl AttributeBlocks {
    /// Claims the block at `at` for an inode, which says so at a byte; `owners` is `None` where the block wasn't read.
    pub(super) fn claim(&mut self, space: &mut Claims, at: u64, owners: Option<Owners>, (inode, told_at): (u32, u64)) {
        let what = || format!("where inode {inode} has its extended attributes");
        let is_first = space.claim_shared(at, told_at, what);
        let Some(owners) = owners else { return };
        if owners.count == 1 {
            if !is_first {
                // That nobody else has it was its own word.
                space.claim(at, 1, told_at, what);
            }
            return;
        }
        if self.counted.len() < COUNTED_MAX || self.counted.contains_key(&at) {
            self.counted.entry(at).or_insert(Counted { owners, found: 0 }).found += 1;
        }
    }

    /// Blocks with another number of owners than they say. Only where all inodes were told.
    pub(super) fn contradictions(&self) -> Vec<TableError> {
        let wrong = self.counted.values().filter(|block| block.found != block.owners.count);
        let mut wrong: Vec<&Counted> = wrong.take(Problems::MOST).collect();
        wrong.sort_unstable_by_key(|block| block.owners.told_at);
        let told = |block: &Counted| {
            let expected = format!("{}, as inodes name it", block.found);
            let what = "the number of inodes of a block of extended attributes";
            TableError::damaged(what, block.owners.told_at, expected, block.owners.count)
        };
        wrong.into_iter().map(told).collect()
    }
}
