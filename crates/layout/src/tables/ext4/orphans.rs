//! Inodes that no name leads to, but that were in use when the file system was: those with a link count of 0 among them are
//! told apart from deleted ones by these lists alone.

use std::collections::HashSet;

use super::{
    fields::le32,
    inode::RawInode,
    source::{Direct, Source},
    superblock::Compatible,
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

/// More than that are a damage.
const MOST: usize = 1 << 20;

/// All orphans: those of the list that begins in the superblock, and those of the orphan file. At most a million.
pub(super) fn all<B: BlockRead>(volume: &Volume<B>, mut problem: impl FnMut(TableError)) -> HashSet<u32> {
    let mut orphans = HashSet::new();
    let mut source = Direct::new(volume);
    let mut next = volume.superblock.last_orphan;
    while next != 0 && orphans.len() < MOST && orphans.insert(next) {
        next = match read(volume, &mut source, next, |raw| raw.deletion_time()) {
            Ok(after) => after,
            Err(error) => {
                problem(error);
                break;
            }
        };
    }
    let file = volume.superblock.orphan_file;
    if volume.superblock.compatible.contains(Compatible::ORPHAN_FILE) && file != 0 {
        match read(volume, &mut source, file, |raw| raw.runs(volume, &mut Direct::new(volume)).0) {
            Ok(runs) => {
                for block in runs.iter().flat_map(|run| run.physical..run.physical + run.count) {
                    let Ok(bytes) = source.block(block) else { continue };
                    // The last 8 bytes are a magic number and a checksum.
                    let numbers = bytes[..bytes.len() - 8].chunks_exact(4).map(|number| le32(number, 0));
                    let room = MOST - orphans.len().min(MOST);
                    orphans.extend(numbers.filter(|&number| number != 0).take(room));
                }
            }
            Err(error) => problem(error),
        }
    }
    orphans
}

fn read<B: BlockRead, T>(
    volume: &Volume<B>,
    source: &mut Direct<'_, B>,
    number: u32,
    take: impl FnOnce(RawInode<'_>) -> T,
) -> Result<T, TableError> {
    let wrong = || TableError::damaged("the list of orphans", 0, "an inode in use", number);
    let (block, byte) = volume.inode_place(number).ok_or_else(wrong)?;
    let table = source.block(block).map_err(|_| wrong())?;
    let bytes = table.get(byte..byte + volume.superblock.inode_bytes).ok_or_else(wrong)?;
    let raw = RawInode { number, bytes };
    raw.check(volume, volume.byte_of(block) + byte as u64)?;
    Ok(take(raw))
}
