//! The B+tree of the inodes of an allocation group (inobt): which inodes exist, and which of them are in use.
//!
//! Keys must rise over the whole tree, and each block must begin with the key that its parent has for it. So no block is
//! read twice, whatever the bytes are, and a walk ends after as many reads as the group has blocks of the tree.

use std::ops::ControlFlow;

use super::{allocation_group::GroupInodes, block::Block, volume::Volume};
use crate::{block_read::BlockRead, tables::TableError};

/// Inodes of a chunk, which is one record.
pub(super) const CHUNK_INODES: u32 = 64;
const MAGIC_V4: u32 = 0x4941_4254; // IABT
const MAGIC_V5: u32 = 0x4941_4233; // IAB3
const RECORD_BYTES: usize = 16;

/// 64 inodes with numbers and places in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The first inode, counted from the start of the group.
    pub(super) first: u32,
    /// A bit for each that isn't in use, the lowest for the first; those without a place count as free.
    pub(super) free: u64,
    /// A bit for each that has no place on the device.
    pub(super) holes: u64,
}

impl Chunk {
    fn parse(record: &Block<'_>, is_sparse: bool) -> Result<Chunk, TableError> {
        let (first, free) = (record.u32(0)?, record.u64(8)?);
        let mut holes = 0u64;
        if is_sparse {
            let mask = record.u16(4)?;
            // A bit of the mask stands for four inodes.
            for bit in (0..16).filter(|bit| mask >> bit & 1 == 1) {
                holes |= 0xf << (4 * bit);
            }
            record.check(6, "the number of inodes", 64 - holes.count_ones(), u32::from(record.u8(6)?))?;
        }
        if holes & !free != 0 {
            let (expected, found) = (format!("bits {holes:#x}"), format!("{free:#x}"));
            return Err(record.damaged(8, "the mask of free inodes", expected, found));
        }
        let count = if is_sparse { u32::from(record.u8(7)?) } else { record.u32(4)? };
        record.check(4, "the number of free inodes", (free & !holes).count_ones(), count)?;
        Ok(Chunk { first, free, holes })
    }
}

/// Tells every chunk of a group in rising order, and what is damaged.
pub(super) fn walk<B: BlockRead>(
    volume: &Volume<B>,
    group: GroupInodes,
    each: &mut dyn FnMut(Result<Chunk, TableError>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    Walk { volume, group: group.group, next: 0, each }.visit(group.root, group.level, None)
}

struct Walk<'a, B> {
    volume: &'a Volume<B>,
    group: u32,
    /// The lowest number that the next chunk may begin with.
    next: u64,
    each: &'a mut dyn FnMut(Result<Chunk, TableError>) -> ControlFlow<()>,
}

impl<B: BlockRead> Walk<'_, B> {
    fn visit(&mut self, number: u32, level: u16, key: Option<u32>) -> ControlFlow<()> {
        let bytes = match self.read(number) {
            Ok((at, bytes)) => (at, bytes),
            Err(error) => return (self.each)(Err(error)),
        };
        let block = Block { what: "an inode tree block", at: bytes.0, bytes: &bytes.1 };
        match self.entries(&block, number, level, key) {
            Err(error) => (self.each)(Err(error)),
            Ok((header, count)) if level == 0 => self.leaf(&block, header, count),
            Ok((header, count)) => self.node(&block, level, header, count),
        }
    }

    fn read(&self, number: u32) -> Result<(u64, Vec<u8>), TableError> {
        let superblock = &self.volume.superblock;
        let at = superblock.group_block_address(self.group, number, 1).ok_or_else(|| {
            let at = superblock.group_start(self.group);
            TableError::damaged(
                format!("the inode tree of allocation group {}", self.group),
                at,
                format!("blocks below {}", superblock.group_length(self.group)),
                number,
            )
        })?;
        Ok((at, self.volume.read(at, superblock.block_bytes())?))
    }

    /// Checks the header; its bytes and the number of entries.
    fn entries(
        &self,
        block: &Block<'_>,
        number: u32,
        level: u16,
        key: Option<u32>,
    ) -> Result<(usize, usize), TableError> {
        let header = match &self.volume.superblock.uuid {
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
        let most = (block.bytes.len() - header) / if level == 0 { RECORD_BYTES } else { 8 };
        // A group without any inodes has a single empty leaf.
        if count > most || count == 0 && key.is_some() {
            return Err(block.damaged(6, "the number of entries", format!("1 to {most}"), count));
        }
        if let Some(key) = key {
            block.check(header, &format!("the first key (child block {number})"), key, block.u32(header)?)?;
        }
        Ok((header, count))
    }

    fn leaf(&mut self, block: &Block<'_>, header: usize, count: usize) -> ControlFlow<()> {
        for index in 0..count {
            let offset = header + index * RECORD_BYTES;
            let chunk = block
                .part("an inode chunk record", offset, RECORD_BYTES)
                .and_then(|record| Chunk::parse(&record, self.volume.superblock.has_sparse_inodes))
                .and_then(|chunk| self.place(block, offset, chunk));
            (self.each)(chunk)?;
        }
        ControlFlow::Continue(())
    }

    /// Passes on a chunk that lies behind all before it.
    fn place(&mut self, block: &Block<'_>, offset: usize, chunk: Chunk) -> Result<Chunk, TableError> {
        if u64::from(chunk.first) < self.next {
            return Err(block.damaged(offset, "the first inode", format!("{} or more", self.next), chunk.first));
        }
        self.next = u64::from(chunk.first) + u64::from(CHUNK_INODES);
        Ok(chunk)
    }

    fn node(&mut self, block: &Block<'_>, level: u16, header: usize, count: usize) -> ControlFlow<()> {
        let most = (block.bytes.len() - header) / 8;
        for index in 0..count {
            let key_at = header + index * 4;
            let entry = || Ok((block.u32(key_at)?, block.u32(header + most * 4 + index * 4)?));
            let (key, child) = match entry() {
                Ok(entry) => entry,
                Err(error) => return (self.each)(Err(error)),
            };
            if u64::from(key) < self.next {
                let expected = format!("{} or more", self.next);
                (self.each)(Err(block.damaged(key_at, "a key", expected, key)))?;
                continue;
            }
            self.visit(child, level - 1, Some(key))?;
            // A child that was damaged has told no chunk, but its key is used up all the same.
            self.next = self.next.max(u64::from(key) + 1);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: [u8; 16], is_sparse: bool) -> Result<Chunk, String> {
        Chunk::parse(&Block { what: "a record", at: 0, bytes: &bytes }, is_sparse).map_err(|error| error.to_string())
    }

    #[test]
    fn holes_stand_for_four_inodes_each() {
        let sparse = [0, 0, 0, 64, 0x00, 0x03, 56, 1, 0x80, 0, 0, 0, 0, 0, 0, 0xff];
        assert_eq!(chunk(sparse, true).unwrap(), Chunk { first: 64, free: 0x8000_0000_0000_00ff, holes: 0xff });
        let full = [0, 0, 0, 64, 0, 0, 0, 9, 0x80, 0, 0, 0, 0, 0, 0, 0xff];
        assert_eq!(chunk(full, false).unwrap(), Chunk { first: 64, free: 0x8000_0000_0000_00ff, holes: 0 });
    }

    #[test]
    fn counts_must_fit() {
        let wrong = [0, 0, 0, 64, 0, 0, 0, 8, 0x80, 0, 0, 0, 0, 0, 0, 0xff];
        assert!(chunk(wrong, false).unwrap_err().contains("the number of free inodes"));
        let used_hole = [0, 0, 0, 64, 0x00, 0x03, 56, 1, 0x80, 0, 0, 0, 0, 0, 0, 0x0f];
        assert!(chunk(used_hole, true).unwrap_err().contains("the mask of free inodes"));
    }
}
