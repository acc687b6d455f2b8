//! Records with fixups: the last two bytes of each 512 are kept apart, to show whether all of a record was written.

use super::bytes::{shown, u16_at, u32_at, u64_at};
use crate::tables::TableError;

/// Fixups stand in every 512 bytes, whatever the sectors are.
const STRIDE: usize = 512;

/// The record is in use.
const IN_USE: u16 = 1;
/// It has an index of names.
const DIRECTORY: u16 = 2;

/// A record's number with the sequence number that it had when it was referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reference {
    /// Which record.
    pub(super) number: u64,
    /// How often the record was given to another file, from 1 on.
    pub(super) sequence: u16,
}

impl Reference {
    /// From the eight bytes on the disk.
    pub(super) fn new(packed: u64) -> Reference {
        Reference { number: packed & 0xffff_ffff_ffff, sequence: (packed >> 48) as u16 }
    }
}

/// Puts the bytes back that the fixups keep, and verifies that every part is of the same write. `at` is the record's byte.
pub(super) fn apply_fixups(bytes: &mut [u8], magic: [u8; 4], at: u64) -> Result<(), TableError> {
    if !bytes.starts_with(&magic) {
        let found = bytes.get(..4).unwrap_or(bytes);
        return Err(TableError::damaged("a record", at, shown(&magic), shown(found)));
    }
    let offset = u16_at(bytes, 4).map_or(0, usize::from);
    let count = u16_at(bytes, 6).map_or(0, usize::from);
    let parts = bytes.len() / STRIDE;
    let end = offset + 2 * (parts + 1);
    // The array itself must not reach into the first place that it repairs.
    if count != parts + 1 || offset < 8 || end > STRIDE - 2 || parts == 0 {
        let found = format!("{count} at byte {offset} of the record");
        return Err(TableError::damaged("a record's fixup array", at + 4, format!("{} fixups", parts + 1), found));
    }
    let expected = u16_at(bytes, offset).unwrap_or(0);
    for part in 0..parts {
        let place = (part + 1) * STRIDE - 2;
        let found = u16_at(bytes, place).unwrap_or(0);
        if found != expected {
            let what = "a record that was written in part: its fixup";
            let (expected, found) = (format!("{expected:#06x}"), format!("{found:#06x}"));
            return Err(TableError::damaged(what, at + place as u64, expected, found));
        }
    }
    for part in 0..parts {
        let (from, place) = (offset + 2 * (part + 1), (part + 1) * STRIDE - 2);
        bytes.copy_within(from..from + 2, place);
    }
    Ok(())
}

/// The fixed part of a file record. All of it lies before the first fixup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) sequence: u16,
    /// Names, those of DOS counted too.
    pub(super) links: u16,
    flags: u16,
    /// The first attribute.
    pub(super) attributes_at: u16,
    /// Bytes of the record that are used.
    pub(super) bytes_used: u32,
    /// The record that this one continues; number and sequence 0 for one that stands alone.
    pub(super) base: Reference,
    /// Its own number, as far as 32 bits go; Windows XP and later write it.
    number: Option<u32>,
}

impl Header {
    /// Reads it; `None` when this isn't a file record.
    pub(super) fn parse(bytes: &[u8]) -> Option<Header> {
        if !bytes.starts_with(b"FILE") {
            return None;
        }
        let has_number = u16_at(bytes, 4)? >= 48;
        Some(Header {
            sequence: u16_at(bytes, 16)?,
            links: u16_at(bytes, 18)?,
            attributes_at: u16_at(bytes, 20)?,
            flags: u16_at(bytes, 22)?,
            bytes_used: u32_at(bytes, 24)?,
            base: Reference::new(u64_at(bytes, 32)?),
            number: if has_number { u32_at(bytes, 44) } else { None },
        })
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.flags & IN_USE != 0
    }

    pub(super) fn is_directory(&self) -> bool {
        self.flags & DIRECTORY != 0
    }

    /// Whether it stands alone, rather than continuing another one.
    pub(super) fn is_base(&self) -> bool {
        self.base == Reference { number: 0, sequence: 0 }
    }

    /// Verifies that the record says itself that it is the one at `number`.
    pub(super) fn check_number(&self, number: u64, at: u64) -> Result<(), TableError> {
        match self.number {
            Some(own) if u64::from(own) != number & u64::from(u32::MAX) => {
                Err(TableError::damaged("a file record's own number", at + 44, number, own))
            }
            _ => Ok(()),
        }
    }
}

/// A file record whose fixups are applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// All its bytes.
    pub(super) bytes: &'a [u8],
    /// Which one it is.
    pub(super) number: u64,
    /// The byte of the volume where it begins.
    pub(super) at: u64,
    pub(super) header: Header,
}

impl<'a> Record<'a> {
    /// Applies the fixups of the record at `number` and verifies its header.
    pub(super) fn open(bytes: &'a mut [u8], number: u64, at: u64) -> Result<Record<'a>, TableError> {
        apply_fixups(bytes, *b"FILE", at)?;
        Record::reopen(bytes, number, at)
    }

    /// The same for bytes whose fixups were applied before.
    pub(super) fn reopen(bytes: &'a [u8], number: u64, at: u64) -> Result<Record<'a>, TableError> {
        let header = Header::parse(bytes)
            .ok_or_else(|| TableError::damaged("a file record", at, "a header", "less than one"))?;
        header.check_number(number, at)?;
        Ok(Record { bytes, number, at, header })
    }

    /// What refers to it.
    pub(super) fn reference(&self) -> Reference {
        Reference { number: self.number, sequence: self.header.sequence }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file record of 1024 bytes with these attributes and sequence number 7, in the form that lies on the disk.
    pub(in super::super) fn on_disk(number: u32, flags: u16, attributes: &[u8]) -> Vec<u8> {
        on_disk_of(Reference { number: 0, sequence: 0 }, number, flags, attributes)
    }

    /// One that continues another.
    pub(in super::super) fn on_disk_of(base: Reference, number: u32, flags: u16, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..4].copy_from_slice(b"FILE");
        bytes[4..6].copy_from_slice(&48_u16.to_le_bytes());
        bytes[6..8].copy_from_slice(&3_u16.to_le_bytes());
        bytes[16..18].copy_from_slice(&7_u16.to_le_bytes());
        bytes[18..20].copy_from_slice(&1_u16.to_le_bytes());
        bytes[20..22].copy_from_slice(&56_u16.to_le_bytes());
        bytes[22..24].copy_from_slice(&flags.to_le_bytes());
        let used = 56 + attributes.len() + 8;
        bytes[24..28].copy_from_slice(&(used as u32).to_le_bytes());
        bytes[28..32].copy_from_slice(&1024_u32.to_le_bytes());
        bytes[32..40].copy_from_slice(&(base.number | u64::from(base.sequence) << 48).to_le_bytes());
        bytes[44..48].copy_from_slice(&number.to_le_bytes());
        bytes[56..56 + attributes.len()].copy_from_slice(attributes);
        bytes[used - 8..used - 4].copy_from_slice(&[0xff; 4]);
        bytes[48..50].copy_from_slice(&0x4711_u16.to_le_bytes());
        for part in [1, 2] {
            bytes.copy_within(part * STRIDE - 2..part * STRIDE, 48 + 2 * part);
            bytes[part * STRIDE - 2..part * STRIDE].copy_from_slice(&0x4711_u16.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn fixups_put_the_bytes_back() {
        let attributes: Vec<u8> = (0..900_u32).map(|i| (i % 251) as u8).collect();
        let mut bytes = on_disk(5, IN_USE, &attributes);
        let record = Record::open(&mut bytes, 5, 0).unwrap();
        assert_eq!(&record.bytes[56..956], &attributes[..]);
        assert!(record.header.is_in_use() && record.header.is_base() && !record.header.is_directory());
        assert_eq!(record.reference(), Reference { number: 5, sequence: 7 });
    }

    #[test]
    fn what_was_written_in_part_is_told_with_its_place() {
        let sound = on_disk(5, IN_USE, &[]);
        for (byte, told_at) in [(510, 1510), (1023, 2022), (4, 1510), (5, 1004), (6, 1004), (0, 1000), (44, 1044)] {
            let mut bytes = sound.clone();
            bytes[byte] ^= 0x40;
            match Record::open(&mut bytes, 5, 1000) {
                Err(TableError::Damaged { at, .. }) => assert_eq!(at, told_at),
                other => panic!("byte {byte}: {other:?}"),
            }
        }
    }

    #[test]
    fn no_length_of_a_record_panics() {
        let sound = on_disk(5, IN_USE, &[1; 100]);
        for length in 0..sound.len() {
            assert!(Record::open(&mut sound[..length].to_vec(), 5, 0).is_err());
        }
    }
}
