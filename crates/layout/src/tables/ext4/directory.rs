//! Blocks of directories.

use std::ops::ControlFlow;

use super::{
    checksum::crc32c,
    dirhash::NameHash,
    fields::{le16, le32},
    inode, no_key_name,
    superblock::Superblock,
};
use crate::tables::{Name, TableError, quoted};

/// A name with the kind that its entry tells of the inode, or what is wrong.
type Told<'a> = Result<(Name<'a>, u8), TableError>;

/// What has to be known of a directory when its blocks come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory {
    pub(super) number: u32,
    /// Where the checksums of its blocks begin.
    pub(super) seed: u32,
    /// Flags of the inode.
    pub(super) flags: u32,
    /// The hash that its encrypted names are shown with.
    pub(super) hash: HashKind,
    /// Its index is held against its blocks.
    pub(super) has_index_to_check: bool,
}

/// Where the hash of an encrypted name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashKind {
    /// None is shown.
    None,
    /// From the name, by the algorithm with that number.
    Algorithm(u8),
    /// It stands behind the name.
    Stored,
}

impl Directory {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The hash that the kernel shows names with, before the root of an index says something else.
    pub(super) fn hash_kind(flags: u32, blocks: u64, superblock: &Superblock) -> HashKind {
        let indexes = superblock.compatible.contains(super::superblock::Compatible::DIR_INDEX);
        let walked_by_hash = indexes && (flags & (inode::INDEXED | inode::INLINE_DATA) != 0 || blocks == 1);
        if flags & inode::ENCRYPTED == 0 || !walked_by_hash {
            HashKind::None
        } else if flags & inode::CASEFOLD != 0 {
            HashKind::Stored
        } else {
            HashKind::Algorithm(superblock.hash_version)
        }
    }
}

/// The algorithm of an index, by the first block of its directory.
pub(super) fn index_algorithm(block: &[u8]) -> Option<u8> {
    // The hash version stands in the root behind `.`, `..` and four zeros.
    block.get(24 + 4).copied()
}

/// Compares the checksum of a block. `Err` with both.
pub(super) fn check(directory: &Directory, block: &[u8]) -> Result<(), (u32, u32)> {
    if directory.has(inode::INDEXED)
        && let Some((used, tail)) = index_tail(block)
    {
        let crc = crc32c(directory.seed, &block[..used]);
        let crc = crc32c(crc32c(crc, &block[tail..tail + 4]), &[0; 4]);
        let found = le32(block, tail + 4);
        return if crc == found { Ok(()) } else { Err((crc, found)) };
    }
    let tail = block.len().saturating_sub(12);
    let crc = crc32c(directory.seed, &block[..tail]);
    let found = le32(block, tail + 8);
    let is_tail = le32(block, tail) == 0 && le32(block, tail + 4) == 0xDE00_000C;
    if is_tail && crc == found { Ok(()) } else { Err((crc, found)) }
}

/// Whether a block is one unused entry, as a node of an index is; so is a block whose names were removed.
pub(super) fn is_node(block: &[u8]) -> bool {
    record_bytes(le16(block, 4), block.len()) == block.len() && le32(block, 0) == 0
}

/// Whether the first block of a directory has `.` and `..` alone, behind which there is room for the root of an index.
pub(super) fn has_room_for_a_root(block: &[u8]) -> bool {
    le16(block, 4) == 12 && record_bytes(le16(block, 16), block.len()) + 12 == block.len()
}

/// Of a block of an index: where its used entries end, and where its checksum lies.
fn index_tail(block: &[u8]) -> Option<(usize, usize)> {
    let counts = if is_node(block) {
        8
    } else if has_room_for_a_root(block) && le32(block, 24) == 0 && block.get(29) == Some(&8) {
        32
    } else {
        return None;
    };
    let (limit, count) = (usize::from(le16(block, counts)), usize::from(le16(block, counts + 2)));
    let tail = counts + limit * 8;
    (count <= limit && tail + 8 <= block.len()).then_some((counts + count * 8, tail))
}

/// The length of an entry: where blocks have 64 KiB, their size doesn't fit into the field.
fn record_bytes(field: u16, block_bytes: usize) -> usize {
    match usize::from(field) {
        0 | 65535 if block_bytes >= 65536 => 65536,
        field if block_bytes >= 65536 => field & 0xFFFC | (field & 3) << 16,
        field => field,
    }
}

/// The inodes of `.` and `..`, with which the first block of a directory begins.
pub(super) fn itself_and_above(block: &[u8]) -> Option<(u32, u32)> {
    let first = record_bytes(le16(block, 4), block.len());
    let second = block.get(first..)?;
    let is_there = block.get(6) == Some(&1) && block.get(8..9) == Some(b".");
    (is_there && second.get(6) == Some(&2) && second.get(8..10) == Some(b".."))
        .then(|| (le32(block, 0), le32(second, 0)))
}

/// Tells the names of a block, or of a part of an inode, with the kinds that entries tell of inodes; `at` is where it lies, in bytes. An index block looks like one
/// large unused entry. `Break` where telling ends the scan.
pub(super) fn names(
    directory: &Directory,
    superblock: &Superblock,
    entries: &[u8],
    at: u64,
    shown: &mut Vec<u8>,
    tell: &mut dyn FnMut(Told<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let hash = match directory.hash {
        HashKind::Algorithm(version) => NameHash::new(version, superblock.hash_unsigned, &superblock.hash_seed),
        _ => None,
    };
    let encrypted = directory.has(inode::ENCRYPTED);
    let problem = |offset: usize, what: &str, expected: &dyn ToString, found: &dyn ToString| {
        let what = format!("{what} in directory {}", directory.number);
        TableError::damaged(what, at + offset as u64, expected.to_string(), found.to_string())
    };
    let mut offset = 0;
    while offset + 8 <= entries.len() {
        let entry = &entries[offset..];
        let record = record_bytes(le16(entry, 4), entries.len());
        let inode = le32(entry, 0);
        let name_bytes = usize::from(entry[6]);
        let stored_hash = if directory.hash == HashKind::Stored { 8 } else { 0 };
        let least = (8 + name_bytes).next_multiple_of(4).max(12);
        if record < 12 || !record.is_multiple_of(4) || record > entry.len() || inode != 0 && least > record {
            let expected = format!("{least} to {}, a multiple of 4", entry.len());
            return tell(Err(problem(offset, "the length of an entry", &expected, &record)));
        }
        let name = &entry[8..(8 + name_bytes).min(record)];
        let start = offset;
        offset += record;
        if inode == 0 || matches!(name, b"." | b"..") {
            continue;
        }
        if inode > superblock.inodes {
            let expected = format!("at most {}", superblock.inodes);
            tell(Err(problem(start, "an inode number", &expected, &inode)))?;
            continue;
        }
        let told = if encrypted {
            if name.len() < no_key_name::SHORTEST {
                let expected = format!("at least {}", no_key_name::SHORTEST);
                tell(Err(problem(start, "the length of an encrypted name", &expected, &name.len())))?;
                continue;
            }
            let hash = match directory.hash {
                HashKind::Stored if least + stored_hash <= record => [le32(entry, least), le32(entry, least + 4)],
                _ => hash.map_or([0, 0], |hash| hash.of(name)),
            };
            shown.clear();
            no_key_name::encode(hash, name, shown);
            &shown[..]
        } else {
            if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                tell(Err(problem(start, "a name", &"bytes other than / and 0", &quoted(name))))?;
                continue;
            }
            name
        };
        tell(Ok((Name { directory: directory.number.into(), inode: inode.into(), name: told }, entry[7])))?;
    }
    ControlFlow::Continue(())
}

/// Tells the names of a block as they lie there, without `.` and `..`. Ends where the block is damaged.
pub(super) fn plain_names(block: &[u8], tell: &mut dyn FnMut(&[u8])) {
    let mut rest = block;
    while rest.len() >= 12 {
        let record = record_bytes(le16(rest, 4), block.len());
        if record < 12 || record > rest.len() {
            return;
        }
        let (entry, behind) = rest.split_at(record);
        match entry.get(8..8 + usize::from(entry[6])) {
            Some(name) if le32(entry, 0) != 0 && !matches!(name, b"." | b"..") => tell(name),
            _ => {}
        }
        rest = behind;
    }
}

/// Kinds of inodes, as entries tell them: not at all, or a directory.
pub(super) const UNKNOWN: u8 = 0;
pub(super) const DIRECTORY: u8 = 2;

/// Tells the inodes that a block names, with their kinds. Ends where the block is damaged.
pub(super) fn inodes(block: &[u8], tell: &mut dyn FnMut(u32, u8)) {
    let mut rest = block;
    while rest.len() >= 12 {
        let record = record_bytes(le16(rest, 4), block.len());
        let (number, name_bytes, kind) = (le32(rest, 0), usize::from(rest[6]), rest[7]);
        let is_itself_or_above = matches!(rest.get(8..8 + name_bytes), Some(b"." | b".."));
        if number != 0 && !is_itself_or_above {
            tell(number, kind);
        }
        match rest.get(record..) {
            Some(behind) if record >= 12 => rest = behind,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_blocks_of_64_kib() {
        assert_eq!(record_bytes(0, 65536), 65536);
        assert_eq!(record_bytes(65535, 65536), 65536);
        assert_eq!(record_bytes(12, 65536), 12);
        assert_eq!(record_bytes(4096, 4096), 4096);
    }

    #[test]
    fn an_index_has_its_checksum_behind_its_room() {
        let mut block = vec![0; 1024];
        block[4..6].copy_from_slice(&1024_u16.to_le_bytes());
        block[8..10].copy_from_slice(&126_u16.to_le_bytes());
        block[10] = 3;
        assert_eq!(index_tail(&block), Some((32, 1016)));
        block[8] = 127;
        assert_eq!(index_tail(&block), None);
    }
}
