//! The target region (3.2), and whether it is worth a look (3.3).

use super::{Block, Domains};

/// The block allocation bitmap.
pub trait Allocation {
    /// Is this block in use, or not there at all?
    fn is_allocated(&self, block: Block) -> bool;
}

impl<F: Fn(Block) -> bool> Allocation for F {
    fn is_allocated(&self, block: Block) -> bool {
        self(block)
    }
}

/// The blocks that are looked at, from the one that is flushed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Region {
    /// The block that is flushed.
    pub start: Block,
    /// 16 or 24 in the paper.
    pub blocks: u32,
}

impl Region {
    /// The first block behind it.
    #[must_use]
    pub fn end(self) -> Block {
        self.start.saturating_add(u64::from(self.blocks))
    }

    /// Two free blocks, which hold the smallest file that can be fragmented, or a fragmentation bit.
    #[must_use]
    pub fn is_candidate(self, domains: &Domains, allocation: &impl Allocation) -> bool {
        let mut places = self.start..self.end();
        let free = self.start..self.end();
        free.filter(|&block| !allocation.is_allocated(block)).nth(1).is_some()
            || places.any(|block| domains.is_fragmented_at(block))
    }
}
