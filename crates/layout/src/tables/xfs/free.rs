//! Which blocks are free: the B+tree of free space by block (bnobt) of each allocation group.
//!
//! As in the tree of inodes, keys must rise over the whole tree and each block begin with the key of its parent, so that no
//! block is read twice, whatever the bytes are. Blocks that a group keeps for its own trees (the AGFL) count as used.

use super::{allocation_group::MAX_LEVELS, block::Block, volume::Volume};
use crate::{block_read::BlockRead, tables::TableError};

const AGF_MAGIC: u32 = 0x5841_4746; // XAGF
const MAGIC_V4: u32 = 0x4142_5442; // ABTB
const MAGIC_V5: u32 = 0x4142_3342; // AB3B
/// Bytes of a record, and of a key.
const RECORD_BYTES: usize = 8;

/// Visits the free runs, in bytes. Ends at the first thing that is damaged.
pub(super) fn runs<B: BlockRead>(volume: &Volume<B>, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
    for group in 0..volume.superblock.groups {
        let (root, level) = root(volume, group)?;
        Walk { volume, group, next: 0, each }.visit(root, level, None)?;
    }
    Ok(())
}

/// The root of the tree of a group and its level, by the header of the group's free space, which has its second sector.
fn root<B: BlockRead>(volume: &Volume<B>, group: u32) -> Result<(u32, u16), TableError> {
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
    Ok((block.u32(16)?, level))
}

struct Walk<'a, B> {
    volume: &'a Volume<B>,
    group: u32,
    /// The lowest block that the next run may begin with.
    next: u64,
    each: &'a mut dyn FnMut(u64, u64),
}

impl<B: BlockRead> Walk<'_, B> {
    fn visit(&mut self, number: u32, level: u16, key: Option<u32>) -> Result<(), TableError> {
        let superblock = &self.volume.superblock;
        let at = superblock.group_block_address(self.group, number, 1).ok_or_else(|| {
            let what = format!("the space tree of allocation group {}", self.group);
            let expected = format!("blocks below {}", superblock.group_length(self.group));
            TableError::damaged(what, superblock.group_start(self.group), expected, number)
        })?;
        let bytes = self.volume.read(at, superblock.block_bytes())?;
        let block = Block { what: "a space tree block", at, bytes: &bytes };
        let header = match &superblock.uuid {
            Some(uuid) => {
                block.check_magic(0, MAGIC_V5)?;
                block.check_crc(52)?;
                block.check_address(16)?;
                block.check_uuid(32, uuid)?;
                block.check(48, "the owner", self.group, block.u32(48)?)?;
                56
            }
            None => {
                block.check_magic(0, MAGIC_V4)?;
                16
            }
        };
        block.check(4, "the level", level, block.u16(4)?)?;
        let count = usize::from(block.u16(6)?);
        let most = (bytes.len() - header) / if level == 0 { RECORD_BYTES } else { RECORD_BYTES + 4 };
        // A group without free space has a single empty leaf.
        if count > most || count == 0 && key.is_some() {
            return Err(block.damaged(6, "the number of entries", format!("1 to {most}"), count));
        }
        if let Some(key) = key {
            block.check(header, &format!("the first key (child block {number})"), key, block.u32(header)?)?;
        }
        for index in 0..count {
            let entry = header + index * RECORD_BYTES;
            let first = block.u32(entry)?;
            if u64::from(first) < self.next {
                return Err(block.damaged(entry, "the first block", format!("{} or more", self.next), first));
            }
            if level == 0 {
                self.run(&block, entry, first)?;
            } else {
                self.visit(block.u32(header + most * RECORD_BYTES + index * 4)?, level - 1, Some(first))?;
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
