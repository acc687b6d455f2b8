//! The log: whether all that it holds has been written to its place.
//!
//! The log is a ring of blocks of 512 bytes. Each begins with the number of the round in which it was written, so the head
//! is where the number falls. A file system that was unmounted has a record there that says so, and nothing behind it.
//!
//! It may lie on another device (`mkfs.xfs -l logdev=`). Nothing in the file system tells then whether it is clean, as
//! needs_recovery does in ext4, so that device has to be named.

use super::{superblock::Superblock, volume::Volume};
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
/// Where the header of a record has the UUID of the file system.
const UUID_AT: usize = 304;
/// The flag of an operation that ends a mount.
const UNMOUNT: u8 = 0x20;

/// The round and the block where the log ends; `None` for a log in which nothing was ever written, and for one on another
/// device.
pub(super) fn head<B: BlockRead>(volume: &Volume<B>) -> Result<Option<[u64; 2]>, TableError> {
    let Some(log) = Log::within(volume) else { return Ok(None) };
    let Some(head) = log.head()? else { return Ok(None) };
    Ok(Some([log.cycle(head - 1)?.into(), head]))
}

/// Fails unless the file system was unmounted after the last write.
pub(super) fn check_clean<B: BlockRead>(volume: &Volume<B>) -> Result<(), TableError> {
    let Some(log) = Log::within(volume) else {
        return Err(TableError::LogElsewhere { sign: Sign::new(48, "the block where the log begins", 0) });
    };
    let advice = "mount and unmount it, or throw the log away by `xfs_repair -L` where that fails";
    log.check_clean("the log of the XFS", advice)
}

/// The same for a file system whose log is this device. Fails, too, unless it is the log of that file system.
pub(super) fn check_clean_elsewhere<L: BlockRead>(superblock: &Superblock, device: &L) -> Result<(), TableError> {
    let log = Log { device, start: 0, length: superblock.log_bytes() / BLOCK_BYTES };
    log.check_owner(superblock)?;
    let advice = "mount it with -o logdev=DEVICE and unmount it, or throw the log away by `xfs_repair -L -l DEVICE` where \
                  that fails";
    log.check_clean("the external log of the XFS", advice)
}

struct Log<'a, B> {
    device: &'a B,
    /// The first byte.
    start: u64,
    /// Blocks of 512 bytes; not 0.
    length: u64,
}

impl<'a, B: BlockRead> Log<'a, B> {
    /// The log of a file system that has it within itself.
    fn within(volume: &'a Volume<B>) -> Option<Self> {
        let superblock = &volume.superblock;
        let start = superblock.log_address()?;
        Some(Log { device: volume.device(), start, length: superblock.log_bytes() / BLOCK_BYTES })
    }

    fn block(&self, number: u64) -> Result<[u8; BLOCK], TableError> {
        let mut block = [0; BLOCK];
        let at = self.start + number % self.length * BLOCK_BYTES;
        self.device.read_at(&mut block, at).map_err(|source| TableError::Io { at, length: BLOCK_BYTES, source })?;
        Ok(block)
    }

    /// Fails unless this is the log of the file system, and no older copy of it.
    fn check_owner(&self, superblock: &Superblock) -> Result<(), TableError> {
        let other =
            |at, expected: String, found: String| Err(TableError::NotTheLog { sign: Sign { at, expected, found } });
        let bytes = self.length * BLOCK_BYTES;
        if self.device.len() < bytes {
            return other(self.device.len(), format!("a log of {bytes} bytes"), "the end of the device".to_owned());
        }
        let Some(head) = self.head()? else {
            return other(0, "a record of a log".to_owned(), "nothing".to_owned());
        };
        let Some(last) = self.record_before(head)? else {
            return other(head * BLOCK_BYTES, "a record of a log before it".to_owned(), "none".to_owned());
        };
        if last.uuid != superblock.own_uuid {
            let at = last.number * BLOCK_BYTES + UUID_AT as u64;
            return other(at, format!("the UUID {}", hyphened(&superblock.own_uuid)), hyphened(&last.uuid));
        }
        // Padding behind a record may have no number of a round.
        let end = self.cycle(head - 1)?.max(last.cycle);
        if let Some([cycle, block]) = superblock.written
            && (cycle, u64::from(block)) > (end, head)
        {
            let expected = format!("round {cycle}, block {block} of the log, since the superblock was written then");
            return other(head * BLOCK_BYTES, expected, format!("the end at round {end}, block {head}"));
        }
        Ok(())
    }

    /// Fails unless the last record says that the file system was unmounted.
    fn check_clean(&self, journal: &'static str, advice: &'static str) -> Result<(), TableError> {
        let Some(head) = self.unclean_head()? else { return Ok(()) };
        let at = self.start + head * BLOCK_BYTES;
        let sign = Sign::new(at, "a record of an unmount before it", "something else");
        Err(TableError::Dirty { journal, sign, advice })
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
        let uuid = header.get(UUID_AT..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        Ok(Record { number, cycle: word(header, 4), ends_at_head: end == back, is_unmount, uuid })
    }
}

/// A record of the log.
struct Record {
    /// The block of its header.
    number: u64,
    /// The round in which it was begun.
    cycle: u32,
    /// Whether it ends where the log does; else the rest of it was never written.
    ends_at_head: bool,
    /// Whether it says that the file system was unmounted.
    is_unmount: bool,
    /// That of the file system.
    uuid: [u8; 16],
}

/// A UUID as blkid(8) shows it.
fn hyphened(uuid: &[u8; 16]) -> String {
    let digits = |from: usize, to: usize| uuid[from..to].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [digits(0, 4), digits(4, 6), digits(6, 8), digits(8, 10), digits(10, 16)].join("-")
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

    /// A file system whose log is elsewhere.
    fn superblock_alone(written: [u32; 2]) -> Superblock {
        let mut bytes = superblocks::bytes(true);
        bytes[48..56].fill(0);
        bytes[240..244].copy_from_slice(&written[0].to_be_bytes());
        bytes[244..248].copy_from_slice(&written[1].to_be_bytes());
        superblocks::seal(&mut bytes);
        superblocks::parse(&bytes).unwrap()
    }

    #[test]
    fn an_external_log_has_to_be_that_of_the_file_system() {
        const LENGTH_BYTES: usize = (LENGTH * BLOCK_BYTES) as usize;
        let log = |flags, uuid: u32| {
            let mut bytes = volume(77, 1);
            record(&mut bytes, 75, 2, 1, flags);
            (0..4).for_each(|part| put(&mut bytes, 75, UUID_AT + 4 * part, uuid));
            bytes[START..][..LENGTH_BYTES].to_vec()
        };
        let told = |written, log: &[u8]| check_clean_elsewhere(&superblock_alone(written), &log);
        // That of the superblock of the tests.
        const UUID: u32 = 0x0707_0707;
        let clean = log(UNMOUNT, UUID);
        for written in [[0, 0], [1, 3999], [2, 77], [u32::MAX; 2]] {
            told(written, &clean).unwrap();
        }
        assert!(matches!(told([0, 0], &log(0, UUID)), Err(TableError::Dirty { .. })));
        let nothing = vec![0; LENGTH_BYTES];
        let ones = vec![1; LENGTH_BYTES];
        for (written, log, expected) in [
            (
                [0, 0],
                &log(UNMOUNT, 0),
                "byte 38704: expected the UUID 07070707-0707-0707-0707-070707070707, found 0000",
            ),
            ([0, 0], &log(0, UUID + 1), "found 07070708-0707-0708-"),
            ([0, 0], &clean[..LENGTH_BYTES - 1].to_vec(), "expected a log of 2048000 bytes"),
            ([0, 0], &nothing, "found nothing"),
            ([0, 0], &ones, "found none"),
            ([2, 78], &clean, "found the end at round 2, block 77"),
            ([3, 1], &clean, "expected round 3, block 1 of the log"),
        ] {
            match told(written, log) {
                Err(error @ TableError::NotTheLog { .. }) => assert!(error.to_string().contains(expected), "{error}"),
                other => panic!("{other:?} for {expected}"),
            }
        }
    }

    #[test]
    fn without_its_device_nobody_can_tell() {
        let mut bytes = volume(77, 1);
        record(&mut bytes, 75, 2, 1, UNMOUNT);
        bytes[48..56].fill(0);
        superblocks::seal(&mut bytes[..512]);
        let volume = Volume::open(bytes).unwrap();
        assert!(matches!(check_clean(&volume), Err(TableError::LogElsewhere { .. })));
        assert_eq!(head(&volume).unwrap(), None);
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
