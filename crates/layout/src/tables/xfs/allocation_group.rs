//! The header of an allocation group that tells of its inodes (AGI).

use super::{
    block::{Block, Number},
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

const MAGIC: u32 = 0x5841_4749; // XAGI
/// The kernel builds no B+tree of more levels.
pub(super) const MAX_LEVELS: u16 = 9;

/// Where the tree of the inodes of a group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupInodes {
    /// Which group, from 0.
    pub(super) group: u32,
    /// The block of the root, counted from the start of the group.
    pub(super) root: Number,
    /// The level of the root, 0 for a leaf.
    pub(super) level: u16,
}

impl GroupInodes {
    /// Reads the header of a group; it has the third sector of the group.
    pub(super) fn read<B: BlockRead>(volume: &Volume<B>, group: u32) -> Result<GroupInodes, TableError> {
        let superblock = &volume.superblock;
        let at = superblock.group_start(group) + 2 * u64::from(superblock.sector_bytes);
        let bytes = volume.read(at, superblock.sector_bytes as usize)?;
        let block = Block { what: "the inode header of an allocation group", at, bytes: &bytes };
        block.check_magic(0, MAGIC)?;
        if let Some(uuid) = &superblock.uuid {
            block.check_crc(312)?;
            block.check_uuid(296, uuid)?;
        }
        block.check(4, "the version", 1, block.u32(4)?)?;
        block.check(8, "the number", group, block.u32(8)?)?;
        block.check(12, "the length in blocks", superblock.group_length(group), block.u32(12)?)?;
        let levels = block.u32(24)?;
        let level = u16::try_from(levels).ok().and_then(|levels| levels.checked_sub(1));
        let level = level.filter(|&level| level < MAX_LEVELS);
        let level = level.ok_or_else(|| block.damaged(24, "the levels of the inode tree", "1 to 9", levels))?;
        Ok(GroupInodes { group, root: Number::of(&block, 20)?, level })
    }
}
