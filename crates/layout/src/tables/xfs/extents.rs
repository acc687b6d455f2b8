//! The extents of a fork: packed records of 128 bits, in the inode or in the leaves of a B+tree (bmbt).
//!
//! Extents must rise over the whole fork, and each block of a tree must begin with the key that its parent has for it. So
//! no block is read twice, whatever the bytes are.

use super::{
    allocation_group::MAX_LEVELS,
    block::Block,
    inode::{Fork, Format},
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

const MAGIC_V4: u32 = 0x424d_4150; // BMAP
const MAGIC_V5: u32 = 0x424d_4133; // BMA3
const RECORD_BYTES: usize = 16;
const ROOT_HEADER_BYTES: usize = 4;
/// Twice what the most attributes that are told take in the smallest blocks, each in an extent of its own; 48 bytes each.
const MAX_LISTED: usize = 1 << 18;

/// One extent of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The first block of the fork.
    pub(super) offset: u64,
    /// The byte of the file system where it lies; `None` on the realtime device.
    pub(super) at: Option<u64>,
    /// The byte of the realtime device where it lies, where that is here.
    pub(super) on_realtime: Option<u64>,
    /// Blocks; never 0.
    pub(super) blocks: u64,
    /// Whether it reads as zeros.
    pub(super) is_unwritten: bool,
    /// The byte of its record.
    pub(super) told_at: u64,
}

/// The bits of a record: first block of the fork, block number of the file system, blocks, unwritten.
fn unpack(record: [u8; RECORD_BYTES]) -> (u64, u64, u64, bool) {
    let [high, low] = [0, 8].map(|at| record[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
    let block = (high & 0x1ff) << 43 | low >> 21;
    (high >> 9 & ((1 << 54) - 1), block, low & ((1 << 21) - 1), high >> 63 == 1)
}

/// Tells every extent of a fork in rising order, and gives the blocks of its tree. What was told before an error is right.
pub(super) fn walk<B: BlockRead>(
    volume: &Volume<B>,
    fork: &Fork<'_>,
    each: &mut dyn FnMut(Mapping) -> Result<(), TableError>,
) -> Result<u64, TableError> {
    let mut walk = Walk { volume, fork, next: 0, told: 0, nodes: 0, each };
    match fork.format {
        Format::Device | Format::Local => return Ok(0),
        Format::Extents => {
            let count = usize::try_from(fork.extents).unwrap_or(usize::MAX);
            walk.records(&fork.block, 0, count)?;
        }
        Format::Tree => walk.root()?,
    }
    let (told, nodes) = (walk.told, walk.nodes);
    if told != fork.extents {
        return Err(wrong_count(fork, told, fork.extents));
    }
    Ok(nodes)
}

/// All extents of a fork, for one that has few: more than these are a damage.
pub(super) fn list<B: BlockRead>(volume: &Volume<B>, fork: &Fork<'_>) -> Result<Vec<Mapping>, TableError> {
    let mut mappings = Vec::new();
    walk(volume, fork, &mut |mapping| {
        if mappings.len() >= MAX_LISTED {
            return Err(wrong_count(fork, format!("at most {MAX_LISTED}"), "more"));
        }
        mappings.push(mapping);
        Ok(())
    })?;
    Ok(mappings)
}

/// The number of extents that an inode tells of a fork isn't what it must be.
fn wrong_count(fork: &Fork<'_>, expected: impl ToString, found: impl ToString) -> TableError {
    let what = format!("the number of extents of {} (inode {})", fork.block.what, fork.owner);
    TableError::damaged(what, fork.extents_at, expected, found)
}

/// Where the first block lies that a fork in an inode refers to; `None` when there is none.
pub(super) fn first_address<B: BlockRead>(volume: &Volume<B>, fork: &Fork<'_>) -> Option<u64> {
    let number = match fork.format {
        Format::Device | Format::Local => return None,
        Format::Extents => unpack(fork.block.array(0).ok()?).1,
        Format::Tree => fork.block.u64(4 + (fork.block.bytes.len().checked_sub(4)? / 16) * 8).ok()?,
    };
    volume.superblock.block_address(number, 1)
}

struct Walk<'a, B> {
    volume: &'a Volume<B>,
    fork: &'a Fork<'a>,
    /// The lowest block of the fork that the next extent may begin with.
    next: u64,
    told: u64,
    /// Blocks of the tree.
    nodes: u64,
    each: &'a mut dyn FnMut(Mapping) -> Result<(), TableError>,
}

impl<B: BlockRead> Walk<'_, B> {
    /// The root has a short header and lies in the inode.
    fn root(&mut self) -> Result<(), TableError> {
        let fork = self.fork;
        let block = &fork.block;
        let level = block.u16(0)?;
        if !(1..MAX_LEVELS).contains(&level) {
            return Err(block.damaged(0, "the level of the tree", "1 to 8", level));
        }
        self.children(block, ROOT_HEADER_BYTES, level)
    }

    fn children(&mut self, block: &Block<'_>, header: usize, level: u16) -> Result<(), TableError> {
        let most = block.bytes.len().saturating_sub(header) / 16;
        // The root has no magic number before its level and count.
        let count_at = if header == ROOT_HEADER_BYTES { 2 } else { 6 };
        let count = usize::from(block.u16(count_at)?);
        if count == 0 || count > most {
            return Err(block.damaged(count_at, "the number of children", format!("1 to {most}"), count));
        }
        for index in 0..count {
            let key = block.u64(header + index * 8)?;
            if key < self.next {
                let expected = format!("{} or more", self.next);
                return Err(block.damaged(header + index * 8, "a key", expected, key));
            }
            let pointer_at = header + (most + index) * 8;
            let number = block.u64(pointer_at)?;
            let at = self.volume.superblock.block_address(number, 1);
            let at = at.ok_or_else(|| block.damaged(pointer_at, "a child", "a block of the file system", number))?;
            self.visit(at, level - 1, key)?;
        }
        Ok(())
    }

    fn visit(&mut self, at: u64, level: u16, key: u64) -> Result<(), TableError> {
        let superblock = &self.volume.superblock;
        let bytes = self.volume.read(at, superblock.block_bytes())?;
        self.nodes += 1;
        let block = Block { what: "an extent tree block", at, bytes: &bytes };
        let header = match &superblock.uuid {
            Some(uuid) => {
                block.check_magic(0, MAGIC_V5)?;
                block.check_crc(64)?;
                block.check_address(24)?;
                block.check_uuid(40, uuid)?;
                block.check(56, "the owner", self.fork.owner, block.u64(56)?)?;
                72
            }
            None => {
                block.check_magic(0, MAGIC_V4)?;
                24
            }
        };
        block.check(4, "the level", level, block.u16(4)?)?;
        if level > 0 {
            block.check(header, "the first key", key, block.u64(header)?)?;
            return self.children(&block, header, level);
        }
        let (count, most) = (usize::from(block.u16(6)?), (bytes.len() - header) / RECORD_BYTES);
        if count == 0 || count > most {
            return Err(block.damaged(6, "the number of records", format!("1 to {most}"), count));
        }
        block.check(header, "the first key", key, unpack(block.array(header)?).0)?;
        self.records(&block, header, count)
    }

    fn records(&mut self, block: &Block<'_>, start: usize, count: usize) -> Result<(), TableError> {
        for index in 0..count {
            let at = start + index * RECORD_BYTES;
            let (offset, number, blocks, is_unwritten) = unpack(block.array(at)?);
            let shown = || format!("{blocks} blocks at block {number} for block {offset}");
            if offset < self.next || blocks == 0 {
                let expected = format!("at least 1 block, for block {} or later", self.next);
                return Err(block.damaged(at, "an extent", expected, shown()));
            }
            let superblock = &self.volume.superblock;
            let or_damaged = |place: Option<u64>, expected| {
                place.map(Some).ok_or_else(|| block.damaged(at, "an extent", expected, shown()))
            };
            let (address, on_realtime) = match (self.fork.is_elsewhere, self.volume.is_realtime_here) {
                (false, _) => {
                    let place = superblock.block_address(number, blocks);
                    (or_damaged(place, "blocks of one allocation group")?, None)
                }
                (true, true) => {
                    let place = superblock.realtime_address(number, blocks);
                    (None, or_damaged(place, "blocks of the realtime device")?)
                }
                (true, false) => (None, None),
            };
            // The fields are too narrow to overflow.
            self.next = offset + blocks;
            if self.next > (i64::MAX as u64 >> self.volume.superblock.block_bytes().ilog2()) + 1 {
                return Err(block.damaged(at, "an extent", "content below 2^63 bytes", shown()));
            }
            self.told += 1;
            let told_at = block.at.saturating_add(at as u64);
            (self.each)(Mapping { offset, at: address, on_realtime, blocks, is_unwritten, told_at })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_unpacked() {
        let record = 1u128 << 127 | 0x2a << 73 | 0x12_3456_789a << 21 | 0x1f_fffe;
        assert_eq!(unpack(record.to_be_bytes()), (0x2a, 0x12_3456_789a, 0x1f_fffe, true));
        assert_eq!(unpack([0xff; 16]), ((1 << 54) - 1, (1 << 52) - 1, (1 << 21) - 1, true));
        assert_eq!(unpack([0; 16]), (0, 0, 0, false));
    }
}
