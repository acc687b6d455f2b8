//! Inodes that no name leads to, but that were in use when the file system was: those with a link count of 0 among them are
//! told apart from deleted ones by these lists alone.

use std::collections::HashSet;

use super::{
    checksum::crc32c,
    fields::le32,
    inode::{self, RawInode},
    source::{Direct, Lack, Source},
    superblock::{self, Compatible},
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

/// More than that are a damage.
const MOST: usize = 1 << 20;

/// What a block of the orphan file has at its end: this number, and a checksum.
const MAGIC: u32 = 0x0b10_ca04;
const TAIL_BYTES: usize = 8;

/// All orphans: those of the list that begins in the superblock, and those of the orphan file. At most a million.
pub(super) fn all<B: BlockRead>(volume: &Volume<B>, mut problem: impl FnMut(TableError)) -> HashSet<u32> {
    let mut orphans = HashSet::new();
    let mut source = Direct::new(volume);
    let (mut next, mut named_at) = (volume.superblock.last_orphan, superblock::LAST_ORPHAN_AT);
    while next != 0 && orphans.len() < MOST && orphans.insert(next) {
        match read(volume, &mut source, (next, named_at), |raw| raw.deletion_time()) {
            Ok((after, at)) => (next, named_at) = (after, at + inode::DELETION_TIME_AT as u64),
            Err(error) => {
                problem(error);
                break;
            }
        };
    }
    let file = volume.superblock.orphan_file;
    if volume.superblock.compatible.contains(Compatible::ORPHAN_FILE) && file != 0 {
        let named = (file, superblock::ORPHAN_FILE_AT);
        let take = |raw: RawInode<'_>| (raw.runs(volume, &mut Direct::new(volume)).runs, raw.seed(&volume.superblock));
        match read(volume, &mut source, named, take) {
            Ok(((runs, seed), _)) => {
                for block in runs.iter().flat_map(|run| run.physical..run.physical + run.count) {
                    match in_block(volume, &mut source, block, seed) {
                        Ok(numbers) => orphans.extend(numbers.into_iter().take(MOST - orphans.len().min(MOST))),
                        Err(error) => problem(error),
                    }
                }
            }
            Err(error) => problem(error),
        }
    }
    orphans
}

/// The orphans in a block of the orphan file.
fn in_block<B: BlockRead>(
    volume: &Volume<B>,
    source: &mut Direct<'_, B>,
    block: u64,
    seed: u32,
) -> Result<Vec<u32>, TableError> {
    let bytes = source.block(block).map_err(|lack| match lack {
        Lack::Damaged(error) => error,
        Lack::Blocks => TableError::damaged("the orphan file", volume.byte_of(block), "a block", "none"),
    })?;
    let room = bytes.len() - TAIL_BYTES;
    let check = |what: &str, at: usize, expected: u32, found: u32| match expected == found {
        true => Ok(()),
        false => {
            let (expected, found) = (format!("{expected:#010x}"), format!("{found:#010x}"));
            let at = volume.byte_of(block) + at as u64;
            Err(TableError::damaged(format!("{what} of the orphan file"), at, expected, found))
        }
    };
    check("the magic number", room, MAGIC, le32(&bytes, room))?;
    if volume.superblock.is_checksummed() {
        let sum = crc32c(crc32c(seed, &block.to_le_bytes()), &bytes[..room]);
        check("the checksum", room + 4, sum, le32(&bytes, room + 4))?;
    }
    Ok(bytes[..room].chunks_exact(4).map(|number| le32(number, 0)).filter(|&number| number != 0).collect())
}

/// What is taken of an inode that is named at this byte, and the byte where it lies.
fn read<B: BlockRead, T>(
    volume: &Volume<B>,
    source: &mut Direct<'_, B>,
    (number, named_at): (u32, u64),
    take: impl FnOnce(RawInode<'_>) -> T,
) -> Result<(T, u64), TableError> {
    let wrong = || TableError::damaged("the list of orphans", named_at, "an inode in use", number);
    let (block, byte) = volume.inode_place(number).ok_or_else(wrong)?;
    let table = source.block(block).map_err(|lack| match lack {
        Lack::Damaged(error) => error,
        Lack::Blocks => wrong(),
    })?;
    let bytes = table.get(byte..byte + volume.superblock.inode_bytes).ok_or_else(wrong)?;
    let raw = RawInode { number, bytes };
    let at = volume.byte_of(block) + byte as u64;
    raw.check(volume, at)?;
    Ok((take(raw), at))
}
