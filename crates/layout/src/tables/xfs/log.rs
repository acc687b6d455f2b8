//! The log: whether all that it holds has been written to its place.
//!
//! The log is a ring of blocks of 512 bytes. Each begins with the number of the round in which it was written, so the head
//! is where the number falls. A file system that was unmounted has a record there that says so, and nothing behind it.

use super::volume::Volume;
use crate::{block_read::BlockRead, tables::TableError};

const BLOCK_BYTES: u64 = 512;
const MAGIC: u32 = 0xfeed_babe;
/// The bytes of a record for which one header block has room.
const BYTES_PER_HEADER: u32 = 32 << 10;
/// A record has at most 256 KiB, the headers of so much, and padding to a stripe unit of 256 KiB.
const LONGEST_RECORD: u64 = 2 * (256 << 10) / BLOCK_BYTES + 16;
/// The flag of an operation that ends a mount.
const UNMOUNT: u8 = 0x20;

/// Fails unless the file system was unmounted after the last write.
pub(super) fn check_clean<B: BlockRead>(volume: &Volume<B>) -> Result<(), TableError> {
    let (first, blocks) = volume.superblock.log;
    let start = volume.superblock.block_address(first, u64::from(blocks)).unwrap_or(0);
    let length = u64::from(blocks) * u64::from(volume.superblock.facts.block_bytes) / BLOCK_BYTES;
    if (Log { volume, start, length }).is_clean()? {
        return Ok(());
    }
    Err(TableError::Dirty {
        journal: "the log of the XFS",
        advice: "mount and unmount it, or throw the log away by `xfs_repair -L` where that fails",
    })
}

struct Log<'a, B> {
    volume: &'a Volume<B>,
    /// The first byte.
    start: u64,
    /// Blocks of 512 bytes; not 0.
    length: u64,
}

impl<B: BlockRead> Log<'_, B> {
    fn block(&self, number: u64) -> Result<[u8; BLOCK_BYTES as usize], TableError> {
        let mut block = [0; BLOCK_BYTES as usize];
        self.volume.read_into(&mut block, self.start + number % self.length * BLOCK_BYTES)?;
        Ok(block)
    }

    /// The round in which a block was written; 0 for one that never was.
    fn cycle(&self, number: u64) -> Result<u32, TableError> {
        let block = self.block(number)?;
        let first = word(&block, 0);
        Ok(if first == MAGIC { word(&block, 4) } else { first })
    }

    /// The block behind the one that was written last, 1 to `length`; `None` when there is none.
    fn head(&self) -> Result<Option<u64>, TableError> {
        let (first, last) = (self.cycle(0)?, self.cycle(self.length - 1)?);
        if first == last {
            return Ok((first != 0).then_some(self.length));
        }
        // The blocks before the head have the number of the first, those behind that of the last.
        let (mut before, mut behind) = (0, self.length - 1);
        while behind - before > 1 {
            let middle = before + (behind - before) / 2;
            if self.cycle(middle)? == last {
                behind = middle;
            } else {
                before = middle;
            }
        }
        Ok(Some(behind))
    }

    fn is_clean(&self) -> Result<bool, TableError> {
        // A log of zeros is one that xfs_repair has thrown away in older versions.
        let Some(head) = self.head()? else { return Ok(true) };
        for back in 1..=LONGEST_RECORD.min(self.length) {
            let number = head + self.length - back;
            let header = self.block(number)?;
            if word(&header, 0) == MAGIC {
                return self.is_unmount(&header, number, back);
            }
        }
        Ok(false)
    }

    /// Whether a record, whose header is `back` blocks before the head, ends there and is the one of an unmount.
    fn is_unmount(&self, header: &[u8], number: u64, back: u64) -> Result<bool, TableError> {
        let (version, bytes, operations, size) =
            (word(header, 8), word(header, 12), word(header, 40), word(header, 320));
        let headers = if version & 2 != 0 && size > BYTES_PER_HEADER { size.div_ceil(BYTES_PER_HEADER) } else { 1 };
        let end = u64::from(headers) + u64::from(bytes).div_ceil(BLOCK_BYTES);
        if end != back || operations != 1 {
            return Ok(false);
        }
        // The first word of the operation gave way to the number of the round.
        let operation = self.block(number + u64::from(headers))?;
        Ok(operation[9] & UNMOUNT != 0)
    }
}

fn word(block: &[u8], offset: usize) -> u32 {
    block.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
