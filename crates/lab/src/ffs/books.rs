//! Sums of what was done.

use serde::{Deserialize, Serialize};

/// What writing back took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Books {
    /// Dirty blocks of files that came to the disk.
    pub(crate) flushed: u64,
    /// Requests that brought them.
    pub(crate) requests: u64,
    /// Of these, those that wrote a region.
    pub(crate) regions: u64,
    /// Blocks written in regions.
    pub(crate) region_blocks: u64,
    /// Of these, dirty ones.
    pub(crate) region_dirty: u64,
    /// Blocks that got another place.
    pub(crate) moved: u64,
    /// Blocks of inodes that regions changed, those of each region counted once.
    pub(crate) inode_blocks: u64,
    /// Of these, those that nothing had made dirty before.
    pub(crate) inode_blocks_more: u64,
    /// The same of indirect blocks.
    pub(crate) indirect_blocks: u64,
    /// Blocks of metadata that were written.
    pub(crate) metadata: u64,
    /// Milliseconds that the disk took for all of it.
    pub(crate) flush_ms: f64,
}

impl Books {
    /// What came since.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            flushed: self.flushed - before.flushed,
            requests: self.requests - before.requests,
            regions: self.regions - before.regions,
            region_blocks: self.region_blocks - before.region_blocks,
            region_dirty: self.region_dirty - before.region_dirty,
            moved: self.moved - before.moved,
            inode_blocks: self.inode_blocks - before.inode_blocks,
            inode_blocks_more: self.inode_blocks_more - before.inode_blocks_more,
            indirect_blocks: self.indirect_blocks - before.indirect_blocks,
            metadata: self.metadata - before.metadata,
            flush_ms: self.flush_ms - before.flush_ms,
        }
    }
}
