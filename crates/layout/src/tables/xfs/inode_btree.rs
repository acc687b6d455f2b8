//! The B+tree of the inodes of an allocation group (inobt): which inodes exist, and which of them are in use.
//!
//! Keys must rise over the whole tree, and each block must begin with the key that its parent has for it. So no block is
//! read twice, whatever the bytes are, and a walk ends after as many reads as the group has blocks of the tree.

use std::ops::ControlFlow;

use super::{
    allocation_group::GroupInodes,
    block::{Block, Number},
    group_btree::{Entries, GroupTree},
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

/// Inodes of a chunk, which is one record.
pub(super) const CHUNK_INODES: u32 = 64;
const RECORD_BYTES: usize = 16;
const KEY_BYTES: usize = 4;
const TREE: GroupTree = GroupTree {
    name: "the inode tree",
    block: "an inode tree block",
    magic: [0x4941_4254, 0x4941_4233], // IABT, IAB3
    record_bytes: RECORD_BYTES,
    key_bytes: KEY_BYTES,
};

/// 64 inodes with numbers and places in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The first inode, counted from the start of the group, and the byte that says so.
    pub(super) first: u32,
    pub(super) first_at: u64,
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
        let (count_at, count) = if is_sparse { (7, u32::from(record.u8(7)?)) } else { (4, record.u32(4)?) };
        record.check(count_at, "the number of free inodes", (free & !holes).count_ones(), count)?;
        Ok(Chunk { first, first_at: record.at, free, holes })
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
    fn visit(&mut self, number: Number, level: u16, key: Option<u32>) -> ControlFlow<()> {
        let (at, bytes) = match TREE.read(self.volume, self.group, number) {
            Ok(read) => read,
            Err(error) => return (self.each)(Err(error)),
        };
        let block = Block { what: TREE.block, at, bytes: &bytes };
        match TREE.entries(&self.volume.superblock, self.group, &block, (number, level, key)) {
            Err(error) => (self.each)(Err(error)),
            Ok(entries) if level == 0 => self.leaf(&block, &entries),
            Ok(entries) => self.node(&block, level, &entries),
        }
    }

    fn leaf(&mut self, block: &Block<'_>, entries: &Entries) -> ControlFlow<()> {
        for index in 0..entries.count {
            let offset = entries.start + index * RECORD_BYTES;
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

    fn node(&mut self, block: &Block<'_>, level: u16, entries: &Entries) -> ControlFlow<()> {
        for index in 0..entries.count {
            let key_at = entries.start + index * KEY_BYTES;
            let entry = || Ok((block.u32(key_at)?, entries.child(block, index)?));
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
        assert_eq!(
            chunk(sparse, true).unwrap(),
            Chunk { first: 64, first_at: 0, free: 0x8000_0000_0000_00ff, holes: 0xff }
        );
        let full = [0, 0, 0, 64, 0, 0, 0, 9, 0x80, 0, 0, 0, 0, 0, 0, 0xff];
        assert_eq!(
            chunk(full, false).unwrap(),
            Chunk { first: 64, first_at: 0, free: 0x8000_0000_0000_00ff, holes: 0 }
        );
    }

    #[test]
    fn counts_must_fit() {
        let wrong = [0, 0, 0, 64, 0, 0, 0, 8, 0x80, 0, 0, 0, 0, 0, 0, 0xff];
        assert!(chunk(wrong, false).unwrap_err().contains("the number of free inodes of a record at byte 4 "));
        let wrong_sparse = [0, 0, 0, 64, 0, 0, 64, 8, 0x80, 0, 0, 0, 0, 0, 0, 0xff];
        assert!(chunk(wrong_sparse, true).unwrap_err().contains("the number of free inodes of a record at byte 7 "));
        let used_hole = [0, 0, 0, 64, 0x00, 0x03, 56, 1, 0x80, 0, 0, 0, 0, 0, 0, 0x0f];
        assert!(chunk(used_hole, true).unwrap_err().contains("the mask of free inodes"));
    }
}
