//! Directories: in the inode (short form), or in directory blocks. Their index is read only where nothing else tells whether
//! names are right.

use super::{
    block::Block,
    extents::{self, Mapping},
    inode::{Dinode, Fork},
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{
        Name, TableError,
        cast::{to_u32, to_usize},
        quoted,
    },
};

/// The index of names begins at this byte of a directory; data is below.
const DATA_END: u64 = 32 << 30;
/// Behind the index, lists of room for names begin.
const INDEX_END: u64 = 64 << 30;
/// Marks unused space in a directory block.
const UNUSED: u16 = 0xffff;
const BLOCK_V4: u32 = 0x5844_3242; // XD2B
const BLOCK_V5: u32 = 0x5844_4233; // XDB3
const DATA_V4: u32 = 0x5844_3244; // XD2D
const DATA_V5: u32 = 0x5844_4433; // XDD3
/// Leaves of an index in version 4: the only one, and one of several below a tree of hashes.
const LEAVES_V4: [u16; 2] = [0xd2f1, 0xd2ff];
const TREE_V4: u16 = 0xfebe;
const LEAF_HEADER_BYTES: usize = 16;

/// An entry of a directory, `.` and `..` too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: Name<'a>,
    /// The type that it tells of the inode; 0 where entries tell none.
    pub(super) kind: u8,
    /// The byte of its block where it begins.
    pub(super) offset: usize,
}

impl Entry<'_> {
    /// Whether it is `.` or `..`.
    pub(super) fn is_dots(&self) -> bool {
        matches!(self.name.name, b"." | b"..")
    }
}

/// Tells the entries of a directory that lies in its inode; of `.` and `..` there is the latter.
pub(super) fn short_form<B>(
    volume: &Volume<B>,
    inode: &Dinode<'_>,
    each: &mut dyn FnMut(Entry<'_>),
) -> Result<(), TableError> {
    let block = &inode.data.block;
    let size = usize::try_from(inode.size).unwrap_or(usize::MAX);
    let block = Block { bytes: block.slice(0, size)?, what: "a directory in an inode", ..*block };
    let (count, long) = (block.u8(0)?, block.u8(1)?);
    let number_bytes = if long > 0 { 8 } else { 4 };
    let type_bytes = usize::from(volume.superblock.has_ftype);
    let number_of = |at: usize| if long > 0 { block.u64(at) } else { block.u32(at).map(u64::from) };
    let directory = inode.number;
    let above = number_of(2)?;
    check_number(volume, &block, 2, above)?;
    each(Entry { name: Name { directory, inode: above, name: b".." }, kind: 0, offset: 2 });
    let mut offset = 2 + number_bytes;
    // With 8 bytes for each inode, the second byte counts those that need them.
    for _ in 0..count {
        let length = usize::from(block.u8(offset)?);
        let number_at = offset + 3 + length + type_bytes;
        let name = checked_name(&block, offset + 3, length)?;
        // Here the two stand for themselves; as names they would lead out of the directory.
        if matches!(name, b"." | b"..") {
            return Err(block.damaged(offset + 3, "a name", "one other than . and ..", quoted(name)));
        }
        let number = number_of(number_at)?;
        check_number(volume, &block, number_at, number)?;
        let kind = if type_bytes > 0 { block.u8(offset + 3 + length)? } else { 0 };
        each(Entry { name: Name { directory, inode: number, name }, kind, offset });
        offset = number_at + number_bytes;
    }
    block.check(0, "the bytes", offset, size)
}

/// One directory block, to be read later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectoryBlock {
    /// Where it begins, in bytes of the file system.
    pub(super) at: u64,
    /// The inode of the directory.
    pub(super) directory: u64,
    /// The rest where it doesn't lie in one piece: addresses and bytes. Its first piece is at `at`.
    pub(super) pieces: Option<Box<[(u64, usize)]>>,
}

/// Tells where the blocks with the names of a directory lie.
pub(super) fn blocks<B: BlockRead>(
    volume: &Volume<B>,
    inode: &Dinode<'_>,
    each: &mut dyn FnMut(DirectoryBlock),
) -> Result<(), TableError> {
    let superblock = &volume.superblock;
    let (block_bytes, log) = (superblock.block_bytes(), superblock.directory_block_log);
    let (fork, number) = (&inode.data, inode.number);
    let wrong = |at: u64, expected: String, found: String| {
        TableError::damaged(format!("the extents of directory {number}"), at, expected, found)
    };
    if inode.size > DATA_END || !inode.size.is_multiple_of(superblock.directory_block_bytes() as u64) {
        let expected = format!("whole blocks of {}", superblock.directory_block_bytes());
        let what = format!("the size of directory {number}");
        return Err(TableError::damaged(what, inode.size_at, expected, inode.size));
    }
    let end = inode.size / block_bytes as u64;
    let (mut counted, mut last) = (0, 0);
    let mut pieces: Vec<(u64, usize)> = Vec::new();
    let mut filled = 0;
    extents::walk(volume, fork, &mut |Mapping { offset, at, blocks, is_unwritten, told_at, .. }| {
        counted += blocks;
        // Each block is listed once below, so damage mustn't make more of them than there are.
        if counted > inode.blocks || counted > superblock.facts.bytes / block_bytes as u64 || is_unwritten {
            let expected = format!("at most {} blocks, all written", inode.blocks);
            return Err(wrong(told_at, expected, format!("block {offset}, {counted} so far")));
        }
        let Some(mut at) = at else { return Ok(()) };
        let mut offset = offset;
        let behind = (offset + blocks).min(DATA_END / block_bytes as u64);
        if offset < behind && behind > end {
            let found = format!("one for block {}", behind - 1);
            return Err(wrong(told_at, format!("none from block {end} on"), found));
        }
        while offset < behind {
            let within = offset & ((1 << log) - 1);
            if within != filled {
                let expected = format!("block {filled} of a directory block");
                return Err(wrong(told_at, expected, format!("block {within}")));
            }
            let take = ((1 << log) - within).min(behind - offset);
            let bytes = to_usize(take) * block_bytes;
            match pieces.last_mut() {
                Some((from, length)) if *from + *length as u64 == at => *length += bytes,
                _ => pieces.push((at, bytes)),
            }
            (offset, at, filled) = (offset + take, at + bytes as u64, filled + take);
            if filled == 1 << log {
                let first = pieces[0].0;
                let pieces = std::mem::take(&mut pieces);
                let pieces = (pieces.len() > 1).then(|| pieces.into_boxed_slice());
                each(DirectoryBlock { at: first, directory: number, pieces });
                (filled, last) = (0, offset);
            }
        }
        Ok(())
    })?;
    if filled != 0 || last != end {
        return Err(wrong(
            inode.size_at,
            format!("as many as the size says: block {end} as the end"),
            last.to_string(),
        ));
    }
    Ok(())
}

/// Tells the entries of a directory block.
pub(super) fn names<B>(
    volume: &Volume<B>,
    at: u64,
    directory: u64,
    bytes: &[u8],
    each: &mut dyn FnMut(Entry<'_>),
) -> Result<(), TableError> {
    let block = Block { what: "a directory block", at, bytes };
    let is_single = matches!(block.u32(0)?, BLOCK_V4 | BLOCK_V5);
    let start = match &volume.superblock.uuid {
        Some(uuid) => {
            block.check_magic(0, if is_single { BLOCK_V5 } else { DATA_V5 })?;
            block.check_crc(4)?;
            block.check_address(8)?;
            block.check_uuid(24, uuid)?;
            block.check(40, "the owner", directory, block.u64(40)?)?;
            64
        }
        None => {
            block.check_magic(0, if is_single { BLOCK_V4 } else { DATA_V4 })?;
            16
        }
    };
    let end = if is_single { single_end(&block, start)? } else { bytes.len() };
    let type_bytes = usize::from(volume.superblock.has_ftype);
    let mut offset = start;
    while offset < end {
        if block.u16(offset)? == UNUSED {
            let length = usize::from(block.u16(offset + 2)?);
            if length < 8 || !length.is_multiple_of(8) || offset + length > end {
                return Err(block.damaged(offset + 2, "the length of unused space", "a multiple of 8", length));
            }
            block.check(offset + length - 2, "the tag", offset, usize::from(block.u16(offset + length - 2)?))?;
            offset += length;
            continue;
        }
        let length = usize::from(block.u8(offset + 8)?);
        let entry = (8 + 1 + length + type_bytes + 2).next_multiple_of(8);
        if offset + entry > end {
            return Err(block.damaged(offset + 8, "the length of a name", "an end within the block", length));
        }
        block.check(offset + entry - 2, "the tag", offset, usize::from(block.u16(offset + entry - 2)?))?;
        let inode = block.u64(offset)?;
        check_number(volume, &block, offset, inode)?;
        let name = checked_name(&block, offset + 9, length)?;
        if name == b"." {
            block.check(offset, "the entry of the directory itself", directory, inode)?;
        }
        let kind = if type_bytes > 0 { block.u8(offset + 9 + length)? } else { 0 };
        each(Entry { name: Name { directory, inode, name }, kind, offset });
        offset += entry;
    }
    Ok(())
}

/// Tells where the blocks with the index of a directory lie.
pub(super) fn index_blocks<B: BlockRead>(
    volume: &Volume<B>,
    inode: &Dinode<'_>,
    each: &mut dyn FnMut(DirectoryBlock),
) -> Result<(), TableError> {
    let superblock = &volume.superblock;
    let block_bytes = superblock.block_bytes();
    let (first, end) = (DATA_END / block_bytes as u64, INDEX_END / block_bytes as u64);
    let length = superblock.directory_block_bytes();
    let mut pieces: Vec<(u64, usize)> = Vec::new();
    let mut filled = 0;
    extents::walk(volume, &inode.data, &mut |Mapping { offset, at, blocks, .. }| {
        let Some(mut at) = at.filter(|_| (first..end).contains(&offset)) else { return Ok(()) };
        let mut left = to_usize(blocks) * block_bytes;
        while left > 0 {
            let take = left.min(length - filled);
            match pieces.last_mut() {
                Some((from, length)) if *from + *length as u64 == at => *length += take,
                _ => pieces.push((at, take)),
            }
            (left, at, filled) = (left - take, at + take as u64, filled + take);
            if filled == length {
                let pieces = std::mem::take(&mut pieces);
                let at = pieces[0].0;
                let pieces = (pieces.len() > 1).then(|| pieces.into_boxed_slice());
                each(DirectoryBlock { at, directory: inode.number, pieces });
                filled = 0;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Tells the entries of an index in version 4, which a block of it has, or a block with names behind these: the hash of a
/// name, and the byte of its block where the entry begins that has it.
pub(super) fn index_v4(at: u64, bytes: &[u8], each: &mut dyn FnMut(u32, usize)) -> Result<(), TableError> {
    let block = Block { what: "a block of the index of a directory", at, bytes };
    let (start, count) = if block.u32(0)? == BLOCK_V4 {
        let end = single_end(&block, 16)?;
        (end, (bytes.len() - 8 - end) / 8)
    } else {
        let magic = block.u16(8)?;
        if magic == TREE_V4 || block.u32(0)? == DATA_V4 {
            return Ok(());
        }
        if !LEAVES_V4.contains(&magic) {
            let expected = format!("{:#x}, {:#x} or {TREE_V4:#x}", LEAVES_V4[0], LEAVES_V4[1]);
            return Err(block.damaged(8, "the magic number", expected, format!("{magic:#x}")));
        }
        let (count, most) = (usize::from(block.u16(12)?), (bytes.len() - LEAF_HEADER_BYTES) / 8);
        if count > most {
            return Err(block.damaged(12, "the number of entries", format!("at most {most}"), count));
        }
        (LEAF_HEADER_BYTES, count)
    };
    for entry in (0..count).map(|index| start + index * 8) {
        let (hash, address) = (block.u32(entry)?, block.u32(entry + 4)?);
        // Addresses count eights, over all blocks with names; 0 stands for an entry that is gone.
        if address != 0 {
            each(hash, to_usize(u64::from(address) * 8) & (bytes.len() - 1));
        }
    }
    Ok(())
}

/// The hash by which a directory finds a name, where case matters in it.
pub(super) fn hash(name: &[u8]) -> u32 {
    let mut words = name.chunks_exact(4);
    let shifted = |hash: u32, bytes: &[u8]| {
        let first = hash.rotate_left(7 * to_u32(bytes.len() as u64));
        bytes.iter().rev().zip([0, 7, 14, 21]).fold(first, |hash, (byte, shift)| hash ^ u32::from(*byte) << shift)
    };
    let hash = words.by_ref().fold(0, shifted);
    shifted(hash, words.remainder())
}

/// Where the names end in a block that has its index behind them.
fn single_end(block: &Block<'_>, start: usize) -> Result<usize, TableError> {
    let tail = block.bytes.len().saturating_sub(8);
    let count = block.u32(tail)?;
    let end = usize::try_from(count).ok().and_then(|count| tail.checked_sub(count.checked_mul(8)?));
    end.filter(|&end| end >= start).ok_or_else(|| {
        let most = tail.saturating_sub(start) / 8;
        block.damaged(tail, "the number of index entries", format!("at most {most}"), count)
    })
}

fn checked_name<'a>(block: &Block<'a>, offset: usize, length: usize) -> Result<&'a [u8], TableError> {
    let name = block.slice(offset, length)?;
    if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(block.damaged(offset, "a name", "bytes other than 0 and /", quoted(name)));
    }
    Ok(name)
}

fn check_number<B>(volume: &Volume<B>, block: &Block<'_>, offset: usize, number: u64) -> Result<(), TableError> {
    match volume.superblock.inode_address(number) {
        Some(_) => Ok(()),
        None => Err(block.damaged(offset, "an inode number", "one of an allocation group", number)),
    }
}

/// Whether a fork is a directory in its inode.
pub(super) fn is_short_form(fork: &Fork<'_>) -> bool {
    fork.format == super::inode::Format::Local
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `xfs_db -c 'hash …'` tells them.
    #[test]
    fn hashes_of_names() {
        for (name, expected) in [
            ("\"a\"", 0x0008_b0a2),
            ("\"ab\"", 0x0458_7122),
            ("\"abc\"", 0x2c38_b1a0),
            ("\"abcd\"", 0x1c58_f334),
            ("\"a-name-of-which-there-are-many-249\"", 0xf892_15f4),
        ] {
            assert_eq!(hash(name.as_bytes()), expected, "{name}");
        }
    }
}
