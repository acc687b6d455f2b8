//! Which blocks are free: the B+tree of free space by block (bnobt) of each allocation group.
//!
//! As in the tree of inodes, keys must rise over the whole tree and each block begin with the key of its parent, so that no
//! block is read twice, whatever the bytes are. Blocks that a group keeps for its own trees (the AGFL) count as used.

use super::{
    allocation_group::MAX_LEVELS,
    block::{Block, Number},
    group_btree::GroupTree,
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

const AGF_MAGIC: u32 = 0x5841_4746; // XAGF
/// Bytes of a record, and of a key.
const RECORD_BYTES: usize = 8;
const TREE: GroupTree = GroupTree {
    name: "the space tree",
    block: "a space tree block",
    magic: [0x4142_5442, 0x4142_3342], // ABTB, AB3B
    record_bytes: RECORD_BYTES,
    key_bytes: RECORD_BYTES,
};

/// Visits the free runs, in bytes. Ends at the first thing that is damaged.
pub(super) fn runs<B: BlockRead>(volume: &Volume<B>, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
    for group in 0..volume.superblock.groups {
        let (root, level) = root(volume, group)?;
        Walk { volume, group, next: 0, each }.visit(root, level, None)?;
    }
    Ok(())
}

/// The root of the tree of a group and its level, by the header of the group's free space, which has its second sector.
fn root<B: BlockRead>(volume: &Volume<B>, group: u32) -> Result<(Number, u16), TableError> {
    let superblock = &volume.superblock;
    let at = superblock.group_start(group) + u64::from(superblock.sector_bytes);
    let bytes = volume.read(at, superblock.sector_bytes as usize)?;
    let block = Block { what: "the space header of an allocation group", at, bytes: &bytes };
    block.check_magic(0, AGF_MAGIC)?;
    if let Some(uuid) = &superblock.uuid {
        block.check_crc(216)?;
        block.check_uuid(64, uuid)?;
    }
    block.check(4, "the version", 1, block.u32(4)?)?;
    block.check(8, "the number", group, block.u32(8)?)?;
    block.check(12, "the length in blocks", superblock.group_length(group), block.u32(12)?)?;
    let levels = block.u32(28)?;
    let level = u16::try_from(levels).ok().and_then(|levels| levels.checked_sub(1));
    let level = level.filter(|&level| level < MAX_LEVELS);
    let level = level.ok_or_else(|| block.damaged(28, "the levels of the space tree", "1 to 9", levels))?;
    Ok((Number::of(&block, 16)?, level))
}

struct Walk<'a, B> {
    volume: &'a Volume<B>,
    group: u32,
    /// The lowest block that the next run may begin with.
    next: u64,
    each: &'a mut dyn FnMut(u64, u64),
}

impl<B: BlockRead> Walk<'_, B> {
    fn visit(&mut self, number: Number, level: u16, key: Option<u32>) -> Result<(), TableError> {
        let (at, bytes) = TREE.read(self.volume, self.group, number)?;
        let block = Block { what: TREE.block, at, bytes: &bytes };
        let entries = TREE.entries(&self.volume.superblock, self.group, &block, (number, level, key))?;
        for index in 0..entries.count {
            let entry = entries.start + index * RECORD_BYTES;
            let first = block.u32(entry)?;
            if u64::from(first) < self.next {
                return Err(block.damaged(entry, "the first block", format!("{} or more", self.next), first));
            }
            if level == 0 {
                self.run(&block, entry, first)?;
            } else {
                self.visit(entries.child(&block, index)?, level - 1, Some(first))?;
            }
        }
        Ok(())
    }

    fn run(&mut self, block: &Block<'_>, entry: usize, first: u32) -> Result<(), TableError> {
        let superblock = &self.volume.superblock;
        let blocks = block.u32(entry + 4)?;
        let at = superblock.group_block_address(self.group, first, blocks.into()).filter(|_| blocks > 0);
        let at = at.ok_or_else(|| {
            block.damaged(
                entry + 4,
                "the blocks of a free run",
                "such as the group has",
                format!("{blocks} from {first}"),
            )
        })?;
        (self.each)(at, u64::from(blocks) * superblock.block_bytes() as u64);
        self.next = u64::from(first) + u64::from(blocks);
        Ok(())
    }
}
