//! The partitions of a disk or disk image: GPT, and MBR with its logical ones.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

use std::{fmt, io};

use thiserror::Error;

use crate::{
    block_read::{BlockRead, Part},
    tables::{Beginning, beginning, cast::to_usize},
};

/// Logical partitions that are followed: each names the next, so a damaged chain could be without end.
const LOGICAL_MAX: u32 = 128;

/// Bytes of a GPT that are read at most: 128 entries take 16 KiB.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;

/// Sectors of disks and images.
const SECTORS: [u64; 2] = [512, 4096];

/// Types of MBR partitions that hold others.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// The type of an MBR partition that stands for a whole GPT.
const PROTECTIVE: u8 = 0xee;

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as the kernel has it: logical ones of an MBR begin at 5.
    pub number: u32,
    /// Its first byte.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} of {:.1} MB at byte {}", self.number, self.len as f64 / 1e6, self.start)
    }
}

/// Why there are no partitions to be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// No table begins here.
    #[error("there is no partition table: neither byte 512 has `EFI PART` nor byte 510 0x55 0xaa")]
    None,
    /// A table can't be read.
    #[error("cannot read the partition table at byte {at}: {source}")]
    Io {
        /// Where.
        at: u64,
        /// Why.
        source: io::Error,
    },
    /// A table isn't what it must be, and neither is its copy.
    #[error("the partition table at byte {at} is damaged: expected {expected}, found {found}")]
    Damaged {
        /// Where.
        at: u64,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
}

/// The partitions of a disk, by number. A GPT goes before the MBR that protects it; its copy at the end stands in for a
/// damaged one.
pub fn partitions(disk: &dyn BlockRead) -> Result<Vec<Partition>, PartitionError> {
    let mut damage = None;
    for sector in SECTORS {
        let backup = (disk.len() / sector).saturating_sub(1) * sector;
        for at in [sector, backup] {
            match gpt(disk, at, sector) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) => damage = damage.or(Some(error)),
            }
        }
    }
    match damage {
        Some(error) => Err(error),
        None => mbr_of(disk),
    }
}

/// The partitions of an MBR, which doesn't tell how long the sectors are by which it counts. A device does; an image has 512
/// bytes in each, unless a file system is found only where sectors of 4096 lead.
fn mbr_of(disk: &dyn BlockRead) -> Result<Vec<Partition>, PartitionError> {
    if let Some(sector) = disk.sector_bytes() {
        return mbr(disk, sector);
    }
    let is_known =
        |partition: &Partition| beginning(&Part::new(disk, partition.start, partition.len)) != Beginning::Unknown;
    let usual = mbr(disk, SECTORS[0]);
    if usual.as_ref().is_ok_and(|found| found.iter().any(is_known)) {
        return usual;
    }
    match mbr(disk, SECTORS[1]) {
        Ok(found) if found.iter().any(is_known) => Ok(found),
        _ => usual,
    }
}

fn read(disk: &dyn BlockRead, at: u64, length: u64) -> Result<Vec<u8>, PartitionError> {
    let mut bytes = vec![0; to_usize(length)];
    disk.read_at(&mut bytes, at).map_err(|source| PartitionError::Io { at, source })?;
    Ok(bytes)
}

/// A field; zeros where the bytes end before it.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or([0; N])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// `None` where no GPT begins.
fn gpt(disk: &dyn BlockRead, at: u64, sector: u64) -> Result<Option<Vec<Partition>>, PartitionError> {
    if disk.len() < at + sector {
        return Ok(None);
    }
    let mut header = read(disk, at, sector)?;
    if !header.starts_with(b"EFI PART") {
        return Ok(None);
    }
    let damaged = |at, expected: String, found: String| PartitionError::Damaged { at, expected, found };
    let header_bytes = u32_at(&header, 12) as usize;
    if !(92..=header.len()).contains(&header_bytes) {
        return Err(damaged(at + 12, format!("a header of 92 to {sector} bytes"), header_bytes.to_string()));
    }
    let checksum = u32_at(&header, 16);
    header[16..20].fill(0);
    let right = crc32(&header[..header_bytes]);
    if checksum != right {
        return Err(damaged(at + 16, format!("the checksum {right:#x}"), format!("{checksum:#x}")));
    }
    let (count, size) = (u32_at(&header, 80), u32_at(&header, 84));
    let entries_at = u64_at(&header, 72).checked_mul(sector);
    let length = u64::from(count) * u64::from(size);
    let (true, Some(entries_at)) = (size >= 128 && length <= ENTRIES_BYTES_MAX, entries_at) else {
        let expected = format!("entries of 128 bytes and more, {ENTRIES_BYTES_MAX} in all");
        return Err(damaged(at + 80, expected, format!("{count} of {size} bytes")));
    };
    let entries = read(disk, entries_at, length)?;
    let (checksum, right) = (u32_at(&header, 88), crc32(&entries));
    if checksum != right {
        return Err(damaged(at + 88, format!("the checksum {right:#x} of the entries"), format!("{checksum:#x}")));
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks_exact(size as usize)) {
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        if entry[..16].iter().all(|&byte| byte == 0) || last < first {
            continue;
        }
        let (start, len) = (first.checked_mul(sector), (last - first).saturating_add(1).checked_mul(sector));
        if let (Some(start), Some(len)) = (start, len) {
            found.push(Partition { number, start, len });
        }
    }
    Ok(Some(found))
}

/// The CRC-32 of Ethernet, bit by bit: tables are short.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

/// One of the four slots of a boot record.
struct Slot {
    kind: u8,
    first: u64,
    sectors: u64,
}

fn slots(disk: &dyn BlockRead, at: u64) -> Result<Option<Vec<Slot>>, PartitionError> {
    if disk.len() < at + 512 {
        return Ok(None);
    }
    let record = read(disk, at, 512)?;
    if record[510..] != [0x55, 0xaa] {
        return Ok(None);
    }
    let slot =
        |entry: &[u8]| Slot { kind: entry[4], first: u32_at(entry, 8).into(), sectors: u32_at(entry, 12).into() };
    Ok(Some(record[446..510].chunks_exact(16).map(slot).collect()))
}

fn mbr(disk: &dyn BlockRead, sector: u64) -> Result<Vec<Partition>, PartitionError> {
    let primary = slots(disk, 0)?.ok_or(PartitionError::None)?;
    let mut found = Vec::new();
    let mut extended = None;
    for (number, slot) in (1..).zip(&primary) {
        if EXTENDED.contains(&slot.kind) {
            extended.get_or_insert(slot.first);
        } else if slot.kind != 0 && slot.kind != PROTECTIVE && slot.sectors > 0 {
            found.push(Partition { number, start: slot.first * sector, len: slot.sectors * sector });
        }
    }
    // A boot sector of a file system ends with the same two bytes; what lies behind the end are no partitions.
    found.retain(|partition| partition.start > 0 && partition.start < disk.len());
    let Some(extended) = extended else {
        return if found.is_empty() { Err(PartitionError::None) } else { Ok(found) };
    };
    let mut record = extended;
    for number in 5..5 + LOGICAL_MAX {
        let Some(chain) = slots(disk, record * sector)? else { break };
        let [logical, next, ..] = &chain[..] else { break };
        if logical.kind != 0 && logical.sectors > 0 {
            let start = (record + logical.first) * sector;
            found.push(Partition { number, start, len: logical.sectors * sector });
        }
        if next.kind == 0 || next.first == 0 {
            break;
        }
        record = extended + next.first;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(kind: u8, first: u32, sectors: u32) -> [u8; 16] {
        let mut slot = [0; 16];
        slot[4] = kind;
        slot[8..12].copy_from_slice(&first.to_le_bytes());
        slot[12..].copy_from_slice(&sectors.to_le_bytes());
        slot
    }

    fn boot_record(disk: &mut [u8], sector: usize, slots: &[[u8; 16]]) {
        let record = &mut disk[sector * 512..][..512];
        for (at, slot) in slots.iter().enumerate() {
            record[446 + at * 16..][..16].copy_from_slice(slot);
        }
        record[510..].copy_from_slice(&[0x55, 0xaa]);
    }

    fn partition(number: u32, first: u64, sectors: u64) -> Partition {
        Partition { number, start: first * 512, len: sectors * 512 }
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn logical_partitions_are_followed_and_the_chain_ends() {
        let mut disk = vec![0; 512 * 400];
        boot_record(&mut disk, 0, &[slot(0x83, 8, 90), slot(0x05, 100, 300), slot(0x07, 60, 4)]);
        boot_record(&mut disk, 100, &[slot(0x83, 8, 20), slot(0x05, 50, 100)]);
        boot_record(&mut disk, 150, &[slot(0x83, 2, 30)]);
        let expected = [(1, 8, 90), (3, 60, 4), (5, 108, 20), (6, 152, 30)];
        assert_eq!(partitions(&disk).unwrap(), expected.map(|(number, first, n)| partition(number, first, n)));
        // A chain that bites its tail.
        boot_record(&mut disk, 150, &[slot(0x83, 2, 30), slot(0x05, 50, 1)]);
        assert_eq!(partitions(&disk).unwrap().len(), 2 + LOGICAL_MAX as usize);
    }

    #[test]
    fn sectors_of_4096_bytes_are_those_where_file_systems_begin() {
        let mut disk = vec![0; 4096 * 64];
        boot_record(&mut disk, 0, &[slot(0x83, 8, 10), slot(0x05, 20, 40)]);
        boot_record(&mut disk, 20 * 8, &[slot(0x83, 4, 9)]);
        let counted = |sector: u64| [Partition { number: 1, start: 8 * sector, len: 10 * sector }];
        assert_eq!(partitions(&disk).unwrap()[..1], counted(512), "nothing begins anywhere");
        disk[8 * 4096..][..4].copy_from_slice(b"XFSB");
        let logical = Partition { number: 5, start: 24 * 4096, len: 9 * 4096 };
        assert_eq!(partitions(&disk).unwrap(), [&counted(4096)[..], &[logical]].concat());
        disk[8 * 512..][..4].copy_from_slice(b"XFSB");
        assert_eq!(partitions(&disk).unwrap()[..1], counted(512), "the usual ones go first");
    }

    #[test]
    fn what_has_no_table_says_so() {
        for disk in [vec![], vec![0; 100], vec![0; 100_000]] {
            assert!(matches!(partitions(&disk), Err(PartitionError::None)));
        }
        let mut disk = vec![0; 100_000];
        boot_record(&mut disk, 0, &[]);
        assert!(matches!(partitions(&disk), Err(PartitionError::None)), "a boot sector alone");
    }

    fn gpt_disk(sector: usize) -> Vec<u8> {
        let mut disk = vec![0; sector * 200];
        let mut entries = vec![0; 128 * 128];
        for (at, first, last) in [(0, 40_u64, 49_u64), (2, 60, 99)] {
            let entry = &mut entries[at * 128..][..128];
            entry[0] = 1;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        for (at, entries_at) in [(1_u64, 2_u64), (199, 160)] {
            let mut header = vec![0; sector];
            header[..8].copy_from_slice(b"EFI PART");
            header[12..16].copy_from_slice(&92_u32.to_le_bytes());
            header[72..80].copy_from_slice(&entries_at.to_le_bytes());
            header[80..84].copy_from_slice(&128_u32.to_le_bytes());
            header[84..88].copy_from_slice(&128_u32.to_le_bytes());
            header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
            let checksum = crc32(&header[..92]);
            header[16..20].copy_from_slice(&checksum.to_le_bytes());
            disk[at as usize * sector..][..sector].copy_from_slice(&header);
            disk[entries_at as usize * sector..][..entries.len()].copy_from_slice(&entries);
        }
        boot_record(&mut disk, 0, &[slot(PROTECTIVE, 1, 199)]);
        disk
    }

    #[test]
    fn a_gpt_is_read_from_either_end() {
        for sector in [512, 4096] {
            let mut disk = gpt_disk(sector);
            let at = |number, first: u64, sectors: u64| Partition {
                number,
                start: first * sector as u64,
                len: sectors * sector as u64,
            };
            let expected = [at(1, 40, 10), at(3, 60, 40)];
            assert_eq!(partitions(&disk).unwrap(), expected);
            disk[sector + 20] ^= 1;
            assert_eq!(partitions(&disk).unwrap(), expected, "the copy at the end");
            disk[199 * sector + 90] ^= 1;
            let error = partitions(&disk).unwrap_err();
            assert!(error.to_string().contains(&format!("at byte {}", sector + 16)), "{error}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_run_for_ever() {
        let good = gpt_disk(512);
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..500 {
            let mut disk = good.clone();
            for _ in 0..=random() % 6 {
                let at = [random() % 1024, 199 * 512 + random() % 512, random() % disk.len()][random() % 3];
                disk[at] = random() as u8;
            }
            let _ = partitions(&disk);
        }
    }
}
