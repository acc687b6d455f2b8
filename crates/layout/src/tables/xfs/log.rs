//! The log: whether all that it holds has been written to its place.
//!
//! The log is a ring of blocks of 512 bytes. Each begins with the number of the round in which it was written, so the head
//! is where the number falls. A file system that was unmounted has a record there that says so, and nothing behind it.

use super::volume::Volume;
use crate::{
    block_read::BlockRead,
    tables::{Sign, TableError},
};

const BLOCK_BYTES: u64 = BLOCK as u64;
const BLOCK: usize = 512;
pub(super) const MAGIC: u32 = 0xfeed_babe;
/// The bytes of a record for which one header block has room.
const BYTES_PER_HEADER: u32 = 32 << 10;
/// A record has at most 256 KiB, the headers of so much, and padding to a stripe unit of 256 KiB.
const LONGEST_RECORD: u64 = 2 * (256 << 10) / BLOCK_BYTES + 16;
/// The flag of an operation that ends a mount.
const UNMOUNT: u8 = 0x20;

/// The round and the block where the log ends; `None` for a log in which nothing was ever written.
pub(super) fn head<B: BlockRead>(volume: &Volume<B>) -> Result<Option<[u64; 2]>, TableError> {
    let log = Log::of(volume);
    let Some(head) = log.head()? else { return Ok(None) };
    Ok(Some([log.cycle(head - 1)?.into(), head]))
}

/// Fails unless the file system was unmounted after the last write.
pub(super) fn check_clean<B: BlockRead>(volume: &Volume<B>) -> Result<(), TableError> {
    let log = Log::of(volume);
    let Some(head) = log.unclean_head()? else { return Ok(()) };
    Err(TableError::Dirty {
        journal: "the log of the XFS",
        sign: Sign::new(log.start + head * BLOCK_BYTES, "a record of an unmount before it", "something else"),
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

impl<'a, B: BlockRead> Log<'a, B> {
    fn of(volume: &'a Volume<B>) -> Self {
        let (first, blocks) = volume.superblock.log;
        let start = volume.superblock.block_address(first, u64::from(blocks)).unwrap_or(0);
        let length = u64::from(blocks) * u64::from(volume.superblock.facts.block_bytes) / BLOCK_BYTES;
        Log { volume, start, length }
    }

    fn block(&self, number: u64) -> Result<[u8; BLOCK], TableError> {
        let mut block = [0; BLOCK];
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

    /// The head, unless what lies before it says that the file system was unmounted.
    fn unclean_head(&self) -> Result<Option<u64>, TableError> {
        // A log of zeros is one that xfs_repair has thrown away in older versions.
        let Some(head) = self.head()? else { return Ok(None) };
        Ok((!self.is_clean_at(head)?).then_some(head))
    }

    fn is_clean_at(&self, head: u64) -> Result<bool, TableError> {
        let Some(last) = self.record_before(head)? else { return Ok(false) };
        if last.ends_at_head {
            return Ok(last.is_unmount);
        }
        // Only a part of it was written, so it doesn't count: the head is where it begins. What it tells of has not been
        // written to its place. So is the log, too, that xfs_admin leaves when it changes the UUID.
        let before = self.record_before(last.number)?;
        Ok(before.is_some_and(|before| before.ends_at_head && before.is_unmount))
    }

    /// The record whose header is the next one before a head.
    fn record_before(&self, head: u64) -> Result<Option<Record>, TableError> {
        for back in 1..=LONGEST_RECORD.min(self.length) {
            let number = (head + self.length - back) % self.length;
            let header = self.block(number)?;
            if word(&header, 0) == MAGIC {
                return self.record(&header, number, back).map(Some);
            }
        }
        Ok(None)
    }

    /// A record whose header is `back` blocks before the head.
    fn record(&self, header: &[u8], number: u64, back: u64) -> Result<Record, TableError> {
        let (version, bytes, operations, size) =
            (word(header, 8), word(header, 12), word(header, 40), word(header, 320));
        let headers = if version & 2 != 0 && size > BYTES_PER_HEADER { size.div_ceil(BYTES_PER_HEADER) } else { 1 };
        let end = u64::from(headers) + u64::from(bytes).div_ceil(BLOCK_BYTES);
        let operation = self.block(number + u64::from(headers))?;
        let is_unmount = operations == 1 && ends_a_mount(&operation);
        Ok(Record { number, ends_at_head: end == back, is_unmount })
    }
}

/// A record of the log.
struct Record {
    /// The block of its header.
    number: u64,
    /// Whether it ends where the log does; else the rest of it was never written.
    ends_at_head: bool,
    /// Whether it says that the file system was unmounted.
    is_unmount: bool,
}

/// Whether the operation that a block begins with ends a mount.
pub(super) fn ends_a_mount(block: &[u8]) -> bool {
    // Its first word gave way to the number of the round; its flags are the tenth byte.
    block.get(9).is_some_and(|flags| flags & UNMOUNT != 0)
}

fn word(block: &[u8], offset: usize) -> u32 {
    block.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::{super::superblock::tests as superblocks, *};

    /// The log of the superblock of the tests: 500 blocks of 4096 bytes.
    const START: usize = 2100 << 12;
    const LENGTH: u64 = 4000;

    /// A file system whose log has blocks of round 2 before `head`, and of `behind` from there on.
    fn volume(head: u64, behind: u32) -> Vec<u8> {
        let mut bytes = superblocks::bytes(true);
        bytes.resize(3900 << 12, 0);
        for number in 0..LENGTH {
            put(&mut bytes, number, 0, if number < head { 2 } else { behind });
        }
        bytes
    }

    fn put(bytes: &mut [u8], number: u64, offset: usize, word: u32) {
        let at = START + (number % LENGTH * BLOCK_BYTES) as usize + offset;
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }

    /// Puts a record of one header and some blocks.
    fn record(bytes: &mut [u8], number: u64, cycle: u32, blocks: u32, flags: u8) {
        let fields = [(0, MAGIC), (4, cycle), (8, 2), (12, blocks * 512), (40, 1), (320, 32 << 10)];
        fields.into_iter().for_each(|(offset, word)| put(bytes, number, offset, word));
        put(bytes, number + 1, 8, u32::from(flags) << 16);
    }

    fn is_clean(bytes: &[u8]) -> bool {
        match check_clean(&Volume::open(bytes).unwrap()) {
            Ok(()) => true,
            Err(TableError::Dirty { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn only_an_unmount_at_the_head_is_clean() {
        for (head, behind) in [(2, 1), (77, 1), (77, 0), (3999, 1), (LENGTH, 2)] {
            let mut bytes = volume(head, behind);
            assert!(!is_clean(&bytes), "no record");
            record(&mut bytes, head - 2, 2, 1, UNMOUNT);
            assert!(is_clean(&bytes), "{head} {behind}");
            record(&mut bytes, head - 2, 2, 1, 0);
            assert!(!is_clean(&bytes), "{head} {behind}");
        }
        assert!(is_clean(&volume(0, 0)), "nothing was ever written");
    }

    #[test]
    fn a_record_of_which_a_part_is_missing_does_not_count() {
        let mut bytes = volume(100, 1);
        record(&mut bytes, 80, 2, 4, UNMOUNT);
        record(&mut bytes, 85, 2, 64, 0);
        assert!(is_clean(&bytes));
        record(&mut bytes, 85, 2, 14, 0);
        assert!(!is_clean(&bytes), "it is whole");
        record(&mut bytes, 80, 2, 3, UNMOUNT);
        record(&mut bytes, 85, 2, 64, 0);
        assert!(!is_clean(&bytes), "the one before is not");
    }

    #[test]
    fn any_length_of_a_record_is_survived() {
        let mut bytes = volume(100, 1);
        for length in [0, 1, u32::MAX >> 9] {
            record(&mut bytes, 98, 2, length, UNMOUNT);
            put(&mut bytes, 98, 320, u32::MAX);
            assert!(!is_clean(&bytes));
        }
    }
}
