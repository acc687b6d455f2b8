//! Blocks of the B+trees of an allocation group, whose pointers are numbers of blocks of the group (`xfs_btree_sblock`).

use super::{
    block::{Block, Number},
    superblock::Superblock,
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

const POINTER_BYTES: usize = 4;

/// A kind of tree.
pub(super) struct GroupTree {
    /// What it is called.
    pub(super) name: &'static str,
    /// What one of its blocks is called.
    pub(super) block: &'static str,
    /// The magic numbers of its blocks in version 4, and in version 5.
    pub(super) magic: [u32; 2],
    pub(super) record_bytes: usize,
    pub(super) key_bytes: usize,
}

/// The entries of a block: records of a leaf, else keys, and pointers behind room for all keys.
pub(super) struct Entries {
    /// Where the first begins.
    pub(super) start: usize,
    pub(super) count: usize,
    /// Where the first pointer is.
    pointers: usize,
}

impl Entries {
    /// The child of an entry.
    pub(super) fn child(&self, block: &Block<'_>, index: usize) -> Result<Number, TableError> {
        Number::of(block, self.pointers + index * POINTER_BYTES)
    }
}

impl GroupTree {
    /// Where a block lies, and its bytes.
    pub(super) fn read<B: BlockRead>(
        &self,
        volume: &Volume<B>,
        group: u32,
        Number { number, told_at }: Number,
    ) -> Result<(u64, Vec<u8>), TableError> {
        let superblock = &volume.superblock;
        let at = superblock.group_block_address(group, number, 1).ok_or_else(|| {
            let what = format!("a block of {} of allocation group {group}", self.name);
            TableError::damaged(what, told_at, format!("one below {}", superblock.group_length(group)), number)
        })?;
        Ok((at, volume.read(at, superblock.block_bytes())?))
    }

    /// Checks the header of the block with that number, which its parent says begins with `key`.
    pub(super) fn entries(
        &self,
        superblock: &Superblock,
        group: u32,
        block: &Block<'_>,
        (number, level, key): (Number, u16, Option<u32>),
    ) -> Result<Entries, TableError> {
        let start = match &superblock.uuid {
            Some(uuid) => {
                block.check_magic(0, self.magic[1])?;
                block.check_crc(52)?;
                block.check_address(16)?;
                block.check_uuid(32, uuid)?;
                block.check(48, "the owner", group, block.u32(48)?)?;
                56
            }
            None => {
                block.check_magic(0, self.magic[0])?;
                16
            }
        };
        block.check(4, "the level", level, block.u16(4)?)?;
        let count = usize::from(block.u16(6)?);
        let entry_bytes = if level == 0 { self.record_bytes } else { self.key_bytes + POINTER_BYTES };
        let most = (block.bytes.len() - start) / entry_bytes;
        // A tree without any entries has a single empty leaf.
        if count > most || count == 0 && key.is_some() {
            return Err(block.damaged(6, "the number of entries", format!("1 to {most}"), count));
        }
        if let Some(key) = key {
            block.check(start, &format!("the first key (child block {})", number.number), key, block.u32(start)?)?;
        }
        Ok(Entries { start, count, pointers: start + most * self.key_bytes })
    }
}
