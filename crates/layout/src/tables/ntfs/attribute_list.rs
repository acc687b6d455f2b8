//! Attribute lists: where the attributes of a file are that has outgrown its first record.

use super::{
    bytes::{u16_at, u32_at, u64_at},
    record::Reference,
};

/// NTFS keeps no longer list.
pub(super) const LIST_BYTES_MAX: u64 = 256 << 10;

/// One entry: an attribute, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The attribute's type code.
    pub(super) kind: u32,
    /// The first cluster that the piece tells of.
    pub(super) lowest_vcn: u64,
    /// The record that has it.
    pub(super) record: Reference,
    /// Its number in that record.
    pub(super) id: u16,
}

/// The bytes before an entry's name.
const ENTRY_BYTES: usize = 26;

/// Reads a list; the byte of the list where it goes wrong is the error. Bounded by the bytes: each entry takes 26 or more.
pub(super) fn entries(bytes: &[u8]) -> Result<Vec<Entry>, usize> {
    let mut entries = Vec::with_capacity(bytes.len() / 32);
    let mut start = 0;
    while start < bytes.len() {
        let entry = entry(&bytes[start..]);
        let (entry, length) = entry.ok_or(start)?;
        entries.push(entry);
        start += length;
    }
    Ok(entries)
}

fn entry(bytes: &[u8]) -> Option<(Entry, usize)> {
    let length = usize::from(u16_at(bytes, 4)?);
    let bytes = bytes.get(..length).filter(|bytes| bytes.len() >= ENTRY_BYTES)?;
    let entry = Entry {
        kind: u32_at(bytes, 0)?,
        lowest_vcn: u64_at(bytes, 8)?,
        record: Reference::new(u64_at(bytes, 16)?),
        id: u16_at(bytes, 24)?,
    };
    Some((entry, length))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An entry without a name, as it lies on the disk.
    pub(in super::super) fn on_disk(entry: &Entry) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        bytes[..4].copy_from_slice(&entry.kind.to_le_bytes());
        bytes[4] = 32;
        bytes[7] = 26;
        bytes[8..16].copy_from_slice(&entry.lowest_vcn.to_le_bytes());
        bytes[16..24].copy_from_slice(&entry.record.number.to_le_bytes());
        bytes[22..24].copy_from_slice(&entry.record.sequence.to_le_bytes());
        bytes[24..26].copy_from_slice(&entry.id.to_le_bytes());
        bytes
    }

    #[test]
    fn entries_come_in_order() {
        let entry = |kind, lowest_vcn, number| {
            let record = Reference { number, sequence: 3 };
            Entry { kind, lowest_vcn, record, id: 9 }
        };
        let all = [entry(0x10, 0, 70), entry(0x80, 0, 71), entry(0x80, 5000, 1 << 40)];
        let bytes: Vec<u8> = all.iter().flat_map(on_disk).collect();
        assert_eq!(entries(&bytes).unwrap(), all);
        assert_eq!(entries(&[]), Ok(Vec::new()));
    }

    #[test]
    fn a_list_that_goes_wrong_says_where() {
        let entry = Entry { kind: 0x80, lowest_vcn: 0, record: Reference { number: 5, sequence: 1 }, id: 0 };
        let mut bytes = [on_disk(&entry), on_disk(&entry)].concat();
        assert_eq!(entries(&bytes[..60]), Err(32));
        bytes[4] = 0;
        assert_eq!(entries(&bytes), Err(0));
        bytes[4] = 25;
        assert_eq!(entries(&bytes), Err(0));
        bytes[4] = 255;
        assert_eq!(entries(&bytes), Err(0));
    }
}
