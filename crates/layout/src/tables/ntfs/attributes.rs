//! The attributes of a file record, one behind the other.

use super::{
    bytes::{slice_at, u16_at, u32_at, u64_at},
    record::Record,
};
use crate::tables::TableError;

/// Type codes of attributes.
pub(super) mod kind {
    pub(in super::super) const STANDARD_INFORMATION: u32 = 0x10;
    pub(in super::super) const ATTRIBUTE_LIST: u32 = 0x20;
    pub(in super::super) const FILE_NAME: u32 = 0x30;
    pub(in super::super) const VOLUME_NAME: u32 = 0x60;
    pub(in super::super) const VOLUME_INFORMATION: u32 = 0x70;
    pub(in super::super) const DATA: u32 = 0x80;
    pub(in super::super) const INDEX_ROOT: u32 = 0x90;
    pub(in super::super) const INDEX_ALLOCATION: u32 = 0xa0;
    pub(in super::super) const BITMAP: u32 = 0xb0;
    pub(in super::super) const REPARSE_POINT: u32 = 0xc0;
    pub(in super::super) const EA: u32 = 0xe0;
    pub(in super::super) const LOGGED_UTILITY_STREAM: u32 = 0x100;
    pub(in super::super) const END: u32 = 0xffff_ffff;
}

/// Flags of an attribute: compressed by LZNT1 (other values of the low byte are other methods, none of which exists).
pub(super) const COMPRESSED: u16 = 0x00ff;
/// Encrypted.
pub(super) const ENCRYPTED: u16 = 0x4000;
/// May have holes.
pub(super) const SPARSE: u16 = 0x8000;

/// One attribute, or a piece of one that goes on in other records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute<'a> {
    /// Its type code.
    pub(super) kind: u32,
    /// Tells it from others of the same record.
    pub(super) id: u16,
    pub(super) flags: u16,
    /// Its name as UTF-16LE; empty for the main one of its type.
    pub(super) name: &'a [u8],
    /// The byte of the volume where it begins.
    pub(super) at: u64,
    /// That of a value in the record; else `at`.
    pub(super) value_at: u64,
    pub(super) value: Value<'a>,
}

/// Where the bytes of an attribute are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// In the record.
    Resident(&'a [u8]),
    /// In clusters of their own.
    NonResident(NonResident<'a>),
}

/// A piece of an attribute that lies in clusters of its own. The sizes are only those of the first piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct NonResident<'a> {
    /// The first cluster of the attribute that this piece tells of.
    pub(super) lowest_vcn: u64,
    /// The last one; -1 for an attribute without clusters.
    pub(super) highest_vcn: i64,
    /// The runlist.
    pub(super) runlist: &'a [u8],
    /// Where it begins in the attribute.
    pub(super) runlist_at: usize,
    /// Bytes of all clusters, holes counted.
    pub(super) allocated: u64,
    /// Bytes of content.
    pub(super) size: u64,
    /// Bytes that were written; those behind read as zeros.
    pub(super) initialized: u64,
    /// Bytes of the clusters that are there, of a compressed or sparse attribute.
    pub(super) compressed: Option<u64>,
    /// Clusters of a compression unit, as a power of two; 0 when it isn't compressed.
    pub(super) compression_unit: u8,
}

impl<'a> Attribute<'a> {
    /// The first cluster that this piece tells of.
    pub(super) fn lowest_vcn(&self) -> u64 {
        match &self.value {
            Value::Resident(_) => 0,
            Value::NonResident(piece) => piece.lowest_vcn,
        }
    }

    /// Bytes of content in clusters of its own.
    pub(super) fn clusters_bytes(&self) -> u64 {
        match &self.value {
            Value::Resident(_) => 0,
            Value::NonResident(piece) => piece.size,
        }
    }

    /// The value of an attribute that is always resident.
    pub(super) fn resident(&self) -> Result<&'a [u8], TableError> {
        match self.value {
            Value::Resident(value) => Ok(value),
            Value::NonResident(_) => {
                let what = format!("an attribute of type {:#x}", self.kind);
                Err(TableError::damaged(what, self.at + 8, "a value in the record", "clusters of its own"))
            }
        }
    }

    fn parse(bytes: &'a [u8], kind: u32, at: u64) -> Option<Attribute<'a>> {
        let name_bytes = 2 * usize::from(*bytes.get(9)?);
        let name = match name_bytes {
            0 => &[],
            _ => slice_at(bytes, usize::from(u16_at(bytes, 10)?), name_bytes)?,
        };
        let flags = u16_at(bytes, 12)?;
        let mut value_at = at;
        let value = match *bytes.get(8)? {
            0 => {
                let length = usize::try_from(u32_at(bytes, 16)?).ok()?;
                let offset = u16_at(bytes, 20)?;
                value_at += u64::from(offset);
                Value::Resident(slice_at(bytes, usize::from(offset), length)?)
            }
            1 => {
                let compression_unit = *bytes.get(34)?;
                let runlist_at = usize::from(u16_at(bytes, 32)?);
                let has_compressed = flags & (COMPRESSED | SPARSE) != 0 && compression_unit != 0;
                Value::NonResident(NonResident {
                    lowest_vcn: u64_at(bytes, 16)?,
                    highest_vcn: u64_at(bytes, 24)?.cast_signed(),
                    runlist: bytes.get(runlist_at..)?,
                    runlist_at,
                    allocated: u64_at(bytes, 40)?,
                    size: u64_at(bytes, 48)?,
                    initialized: u64_at(bytes, 56)?,
                    compressed: if has_compressed { u64_at(bytes, 64) } else { None },
                    compression_unit,
                })
            }
            _ => return None,
        };
        Some(Attribute { kind, id: u16_at(bytes, 14)?, flags, name, at, value_at, value })
    }
}

/// The attributes of a record. Ends after an error, for what follows can't be found then.
pub(super) struct Attributes<'a> {
    record: Record<'a>,
    /// Where the next one begins in the record; `None` behind the last.
    next: Option<usize>,
    /// The type of the last one.
    kind: u32,
}

impl<'a> Attributes<'a> {
    pub(super) fn of(record: Record<'a>) -> Attributes<'a> {
        Attributes { record, next: Some(usize::from(record.header.attributes_at)), kind: 0 }
    }

    fn step(&mut self, start: usize) -> Result<Option<Attribute<'a>>, TableError> {
        let Record { bytes, at: record_at, header, .. } = self.record;
        let at = record_at + start as u64;
        let damaged = |what: &str, expected: &str, found: String| {
            Err(TableError::damaged(format!("an attribute's {what}"), at, expected, found))
        };
        let used = usize::try_from(header.bytes_used).unwrap_or(usize::MAX);
        if used > bytes.len() {
            let expected = format!("at most {}", bytes.len());
            return Err(TableError::damaged("a file record's used bytes", record_at + 24, expected, used));
        }
        let bytes = bytes.get(start..used).unwrap_or_default();
        let Some(kind) = u32_at(bytes, 0) else {
            return damaged("type", "a type, or the mark of the end", "the end of the record".into());
        };
        if kind == kind::END {
            return Ok(None);
        }
        // They are in the order of their types, which are multiples of 16; a damaged one could hide another.
        if kind % 16 != 0 || kind == 0 || kind < self.kind {
            return damaged(
                "type",
                &format!("a multiple of 16 from {:#x} on", self.kind.max(16)),
                format!("{kind:#x}"),
            );
        }
        self.kind = kind;
        // At least a resident one without a name or value; so that a record has a bounded number of them.
        let length = u32_at(bytes, 4).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let Some(bytes) = bytes.get(..length).filter(|bytes| bytes.len() >= 24 && bytes.len() % 8 == 0) else {
            return damaged("length", "a multiple of 8 within the record", length.to_string());
        };
        match Attribute::parse(bytes, kind, at) {
            Some(attribute) => {
                self.next = Some(start + length);
                Ok(Some(attribute))
            }
            None => damaged("value", "a value within the attribute", format!("one beyond its {length} bytes")),
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.next.take()?;
        self.step(start).transpose()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::record::tests::on_disk, *};

    /// A resident attribute.
    pub(in super::super) fn resident(kind: u32, id: u16, name: &str, value: &[u8]) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let value_at = (24 + name.len()).next_multiple_of(8);
        let length = (value_at + value.len()).next_multiple_of(8);
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[9] = (name.len() / 2) as u8;
        bytes[10] = 24;
        bytes[14..16].copy_from_slice(&id.to_le_bytes());
        bytes[16..20].copy_from_slice(&(value.len() as u32).to_le_bytes());
        bytes[20..22].copy_from_slice(&(value_at as u16).to_le_bytes());
        bytes[24..24 + name.len()].copy_from_slice(&name);
        bytes[value_at..value_at + value.len()].copy_from_slice(value);
        bytes
    }

    /// An attribute without a name in clusters of its own; all of it is initialized.
    pub(in super::super) fn non_resident(
        kind: u32,
        id: u16,
        lowest_vcn: u64,
        runlist: &[u8],
        clusters: u64,
        size: u64,
    ) -> Vec<u8> {
        let length = (64 + runlist.len()).next_multiple_of(8);
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[8] = 1;
        bytes[14..16].copy_from_slice(&id.to_le_bytes());
        bytes[16..24].copy_from_slice(&lowest_vcn.to_le_bytes());
        bytes[24..32].copy_from_slice(&(lowest_vcn + clusters).wrapping_sub(1).to_le_bytes());
        bytes[32] = 64;
        for at in [40, 48, 56] {
            bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
        }
        bytes[64..64 + runlist.len()].copy_from_slice(runlist);
        bytes
    }

    /// The same with a name; it is the first piece.
    pub(in super::super) fn non_resident_named(
        kind: u32,
        id: u16,
        name: &str,
        runlist: &[u8],
        clusters: u64,
        size: u64,
    ) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut bytes = non_resident(kind, id, 0, &[&name, runlist].concat(), clusters, size);
        bytes[9] = (name.len() / 2) as u8;
        bytes[10] = 64;
        bytes[32] = 64 + name.len() as u8;
        bytes
    }

    #[test]
    fn attributes_come_in_order() {
        let mut attributes = resident(kind::DATA, 1, "", b"content");
        attributes.extend(resident(kind::DATA, 2, "side", b"stream"));
        let mut bytes = on_disk(30, 1, &attributes);
        let record = Record::open(&mut bytes, 30, 0).unwrap();
        let found: Vec<_> = Attributes::of(record).map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].resident().unwrap(), b"content");
        assert_eq!((found[1].id, found[1].name), (2, &b"s\0i\0d\0e\0"[..]));
        assert_eq!(found[1].resident().unwrap(), b"stream");
    }

    #[test]
    fn every_changed_byte_leaves_a_bounded_list() {
        let mut attributes = resident(kind::DATA, 1, "", b"content");
        attributes.extend(resident(kind::DATA, 2, "side", b"stream"));
        let sound = on_disk(30, 1, &attributes);
        for byte in 8..200 {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = sound.clone();
                bytes[byte] = value;
                if let Ok(record) = Record::open(&mut bytes, 30, 0) {
                    assert!(Attributes::of(record).count() <= 1024 / 24 + 1);
                }
            }
        }
    }
}
