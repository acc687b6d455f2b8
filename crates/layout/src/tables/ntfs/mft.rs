//! The $MFT, the table of file records, read by its own runs.

use super::{
    attribute_list::{self, Entry, LIST_BYTES_MAX},
    attributes::{Attribute, Attributes, kind},
    boot::Geometry,
    record::{Header, Record, Reference},
    stream::Stream,
};
use crate::{block_read::BlockRead, extent::Extent, tables::TableError};

/// Records that have a copy in $MFTMirr.
pub(super) const MIRRORED: u64 = 4;

/// A volume whose records can be read.
#[derive(Debug)]
pub(super) struct Mft<B> {
    pub(super) device: B,
    pub(super) geometry: Geometry,
    /// Where its records lie.
    pub(super) extents: Vec<Extent>,
    /// How many of them were ever written.
    pub(super) records: u64,
}

impl<B: BlockRead> Mft<B> {
    /// Finds it, by its first record or the copy of it; what was wrong with the first is put to the notes.
    pub(super) fn open(device: B, geometry: Geometry, notes: &mut Vec<TableError>) -> Result<Mft<B>, TableError> {
        let mut mft = Mft { device, geometry, extents: Vec::new(), records: 0 };
        match mft.map_by(geometry.mft_lcn) {
            Ok(()) => notes.extend(mft.check_mirror(0).err()),
            Err(wrong) => match mft.map_by(geometry.mirror_lcn) {
                Ok(()) => notes.push(wrong),
                Err(_) => return Err(wrong),
            },
        }
        Ok(mft)
    }

    /// Verifies that the copy of one of the first records is the same: of record 0, a wrong size of the $MFT would show nowhere else.
    pub(super) fn check_mirror(&self, number: u64) -> Result<(), TableError> {
        let (mut first, mut copy) = (self.empty_record(), self.empty_record());
        let at = self.geometry.cluster_at(self.geometry.mirror_lcn);
        let at = at.ok_or_else(|| {
            let clusters = self.geometry.clusters();
            let found = self.geometry.mirror_lcn;
            TableError::damaged("the cluster of the $MFTMirr", 56, format!("less than {clusters}"), found)
        })?;
        let at = at + number * u64::from(self.geometry.record_bytes);
        self.read(&mut first, number)?;
        self.read_device(&mut copy, at)?;
        // What lies behind the bytes that are used is whatever was there before.
        let used =
            Header::parse(&first).and_then(|header| usize::try_from(header.bytes_used).ok()).unwrap_or(usize::MAX);
        match first.iter().zip(&copy).take(used).position(|(first, copy)| first != copy) {
            None => Ok(()),
            Some(offset) => {
                let (expected, found) = (format!("{:#04x}", first[offset]), format!("{:#04x}", copy[offset]));
                Err(TableError::damaged("$MFTMirr, the copy of $MFT,", at + offset as u64, expected, found))
            }
        }
    }

    /// Reads the map of the $MFT from its first record, or the copy of that, in this cluster.
    fn map_by(&mut self, lcn: u64) -> Result<(), TableError> {
        let Some(at) = self.geometry.cluster_at(lcn) else {
            let clusters = self.geometry.clusters();
            return Err(TableError::damaged("the cluster of the $MFT", 48, format!("less than {clusters}"), lcn));
        };
        let mut bytes = self.empty_record();
        self.read_device(&mut bytes, at)?;
        let first = Record::open(&mut bytes, 0, at)?;
        let mut stream = Stream::default();
        let mut list = None;
        for attribute in Attributes::of(first) {
            let attribute = attribute?;
            match attribute.kind {
                kind::ATTRIBUTE_LIST => list = Some(self.list_of(&attribute)?),
                kind::DATA if attribute.name.is_empty() => stream.take(&attribute, &self.geometry)?,
                _ => {}
            }
        }
        // Each piece tells where the record lies that has the next one.
        for entry in list.iter().flatten().filter(|entry| entry.kind == kind::DATA && entry.record.number != 0) {
            self.extents.clone_from(&stream.extents);
            self.count_records(stream.size);
            let mut bytes = self.empty_record();
            let record = self.extension(&mut bytes, entry, &first)?;
            stream.take(&piece_of(&record, entry)?, &self.geometry)?;
        }
        stream.finish(&self.geometry)?;
        self.extents = std::mem::take(&mut stream.extents);
        // What was never written reads as zeros, and so has no records.
        self.extents.retain(|extent| !extent.is_zeros());
        self.check_extents(at)?;
        self.count_records(stream.size);
        match self.records {
            0 => Err(TableError::damaged("the $MFT", at, "records", "none")),
            _ => Ok(()),
        }
    }

    /// Counts the records that the extents have, of a $MFT of `size` bytes.
    fn count_records(&mut self, size: u64) {
        let bytes = self.extents.last().map_or(0, Extent::logical_end).min(size);
        self.records = bytes / u64::from(self.geometry.record_bytes);
    }

    /// Verifies that no more is to be read than the device has: runs that lie over each other could be endless.
    fn check_extents(&self, at: u64) -> Result<(), TableError> {
        let bytes = self.extents.iter().fold(0_u64, |sum, extent| sum.saturating_add(extent.length));
        let end = self.extents.iter().filter_map(Extent::physical_end).max().unwrap_or(0);
        let device = self.device.len();
        match bytes.max(end) > device {
            true => {
                Err(TableError::damaged("the $MFT's runlist", at, format!("at most {device} bytes"), bytes.max(end)))
            }
            false => Ok(()),
        }
    }

    /// How many records from `number` on have a place without a gap, up to `limit`.
    pub(super) fn covered(&self, number: u64, limit: u64) -> u64 {
        let record_bytes = u64::from(self.geometry.record_bytes);
        let start = number.saturating_mul(record_bytes);
        let wanted = start.saturating_add(limit.min(self.records.saturating_sub(number)) * record_bytes);
        let mut end = start;
        for extent in &self.extents[self.extents.partition_point(|extent| extent.logical_end() <= start)..] {
            if extent.logical > end || extent.physical.is_none() || end >= wanted {
                break;
            }
            end = extent.logical_end();
        }
        (end.min(wanted) - start) / record_bytes
    }

    /// The first record from `number` on that may have a place; always a later one.
    pub(super) fn next_placed(&self, number: u64) -> u64 {
        let record_bytes = u64::from(self.geometry.record_bytes);
        let behind = number.saturating_add(1).saturating_mul(record_bytes);
        let later = &self.extents[self.extents.partition_point(|extent| extent.logical_end() <= behind)..];
        let next = later.iter().find(|extent| extent.physical.is_some());
        next.map_or(self.records, |extent| extent.logical.max(behind).div_ceil(record_bytes))
    }

    /// Bytes for a record.
    pub(super) fn empty_record(&self) -> Vec<u8> {
        vec![0; self.geometry.record_bytes as usize]
    }

    /// Reads from the device.
    pub(super) fn read_device(&self, to: &mut [u8], at: u64) -> Result<(), TableError> {
        self.device.read_at(to, at).map_err(|source| TableError::Io { at, length: to.len() as u64, source })
    }

    /// The byte of the volume where a record begins.
    pub(super) fn at(&self, number: u64) -> Option<u64> {
        let place = number.checked_mul(u64::from(self.geometry.record_bytes))?;
        let extent = self.extents.get(self.extents.partition_point(|extent| extent.logical_end() <= place))?;
        Some(extent.physical? + place.checked_sub(extent.logical)?)
    }

    /// Where its own record lies, which tells where all others do.
    pub(super) fn own_at(&self) -> u64 {
        self.geometry.cluster_at(self.geometry.mft_lcn).unwrap_or_default()
    }

    /// Fills the buffer with the records from `number` on, fixups not applied; one read for each run of the $MFT.
    pub(super) fn read(&self, to: &mut [u8], number: u64) -> Result<(), TableError> {
        let start = number.saturating_mul(u64::from(self.geometry.record_bytes));
        let mut done = 0;
        let mut index = self.extents.partition_point(|extent| extent.logical_end() <= start);
        while done < to.len() {
            let place = start.saturating_add(done as u64);
            let extent = self.extents.get(index).filter(|extent| extent.logical <= place);
            let Some((extent, physical)) = extent.and_then(|extent| Some((extent, extent.physical?))) else {
                return Err(TableError::damaged(
                    "the $MFT",
                    self.own_at(),
                    format!("a place for record {number}"),
                    "none",
                ));
            };
            let within = place - extent.logical;
            let rest = usize::try_from(extent.length - within).unwrap_or(usize::MAX);
            let length = rest.min(to.len() - done);
            self.read_device(&mut to[done..done + length], physical + within)?;
            done += length;
            index += 1;
        }
        Ok(())
    }

    /// Reads a record and applies its fixups; the copy of one of the first four when it's damaged.
    pub(super) fn record<'a>(&self, bytes: &'a mut Vec<u8>, number: u64) -> Result<Record<'a>, TableError> {
        if number >= self.records {
            let expected = format!("a record {number}");
            return Err(TableError::damaged("the $MFT", self.own_at(), expected, format!("{} records", self.records)));
        }
        bytes.resize(self.geometry.record_bytes as usize, 0);
        let mut at = self.at(number).unwrap_or(0);
        let read = self.read(bytes, number).and_then(|()| Record::open(bytes, number, at).map(|_| ()));
        if let Err(wrong) = read {
            let place = number * u64::from(self.geometry.record_bytes);
            let copy = self.geometry.cluster_at(self.geometry.mirror_lcn).filter(|_| number < MIRRORED);
            at = copy.ok_or(wrong)? + place;
            self.read_device(bytes, at)?;
            Record::open(bytes, number, at)?;
        }
        Record::reopen(bytes, number, at)
    }

    /// Reads a record that continues another one, as an entry of its attribute list says.
    fn extension<'a>(
        &self,
        bytes: &'a mut Vec<u8>,
        entry: &Entry,
        base: &Record<'_>,
    ) -> Result<Record<'a>, TableError> {
        let record = self.record(bytes, entry.record.number)?;
        check_extension(&record, entry, base)?;
        Ok(record)
    }

    /// The entries of an attribute list.
    pub(super) fn list_of(&self, attribute: &Attribute<'_>) -> Result<Vec<Entry>, TableError> {
        let mut list = Stream::default();
        list.take(attribute, &self.geometry)?;
        list.finish(&self.geometry)?;
        if list.size > LIST_BYTES_MAX {
            let expected = format!("at most {LIST_BYTES_MAX}");
            return Err(TableError::damaged("an attribute list's size", attribute.at, expected, list.size));
        }
        let bytes = list.read(&self.device, LIST_BYTES_MAX)?;
        attribute_list::entries(&bytes).map_err(|offset| {
            let within =
                list.extents.iter().find(|extent| (extent.logical..extent.logical_end()).contains(&(offset as u64)));
            let at = within.and_then(|extent| Some(extent.physical? + (offset as u64 - extent.logical)));
            TableError::damaged(
                "an attribute list",
                at.unwrap_or(attribute.at),
                "an entry",
                format!("none at its byte {offset}"),
            )
        })
    }
}

/// Verifies that a record is the one that an entry of the attribute list of `base` means.
pub(super) fn check_extension(record: &Record<'_>, entry: &Entry, base: &Record<'_>) -> Result<(), TableError> {
    let damaged = |what, at, expected, found| Err(TableError::damaged(what, record.at + at, expected, found));
    let told = |reference: Reference| format!("record {}, sequence {}", reference.number, reference.sequence);
    if !record.header.is_in_use() || record.header.sequence != entry.record.sequence {
        let expected = format!("one in use with sequence {}", entry.record.sequence);
        let found = match record.header.is_in_use() {
            true => format!("sequence {}", record.header.sequence),
            false => "one that is free".into(),
        };
        return damaged("a record of an attribute list", 16, expected, found);
    }
    if record.number != base.number && record.header.base != base.reference() {
        return damaged("a record's base", 32, told(base.reference()), told(record.header.base));
    }
    Ok(())
}

/// The attribute that an entry of an attribute list means.
pub(super) fn piece_of<'a>(record: &Record<'a>, entry: &Entry) -> Result<Attribute<'a>, TableError> {
    for attribute in Attributes::of(*record) {
        let attribute = attribute?;
        if (attribute.kind, attribute.id, attribute.lowest_vcn()) == (entry.kind, entry.id, entry.lowest_vcn) {
            return Ok(attribute);
        }
    }
    let expected = format!("attribute {:#x} with number {} from cluster {} on", entry.kind, entry.id, entry.lowest_vcn);
    Err(TableError::damaged("a record of an attribute list", record.at, expected, "none"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::{
            attribute_list,
            attributes::tests::{non_resident, resident},
            listed::read_file,
            record::tests::{on_disk, on_disk_of},
        },
        *,
    };

    /// A volume with these file records from its cluster 4 on; the $MFT itself is added as the first.
    pub(in super::super) fn volume(records: Vec<Vec<u8>>) -> (Vec<u8>, Geometry) {
        let geometry =
            Geometry { cluster_bytes: 1024, record_bytes: 1024, bytes: 1 << 20, mft_lcn: 4, mirror_lcn: 4, serial: 0 };
        let count = records.len() as u8 + 1;
        let size = u64::from(count) * 1024;
        let mft = on_disk(0, 1, &non_resident(kind::DATA, 1, 0, &[0x11, count, 4, 0], u64::from(count), size));
        let mut bytes = vec![0; 1 << 20];
        for (place, record) in bytes[4096..].chunks_exact_mut(1024).zip([vec![mft], records].concat()) {
            place.copy_from_slice(&record);
        }
        (bytes, geometry)
    }

    fn entry(kind: u32, lowest_vcn: u64, number: u64, sequence: u16, id: u16) -> Vec<u8> {
        attribute_list::tests::on_disk(&Entry { kind, lowest_vcn, record: Reference { number, sequence }, id })
    }

    /// Types and values of attributes.
    type Taken = Vec<(u32, Vec<u8>)>;

    /// What a file of two records has, its second one with this base and its list with this sequence number.
    fn of_two_records(base: Reference, sequence: u16) -> (Taken, Result<(), TableError>) {
        let list = [entry(kind::FILE_NAME, 0, 1, 7, 3), entry(kind::DATA, 0, 2, sequence, 0)].concat();
        let attributes =
            [resident(kind::ATTRIBUTE_LIST, 1, "", &list), resident(kind::FILE_NAME, 3, "", b"name")].concat();
        let first = on_disk(1, 1, &attributes);
        let second = on_disk_of(base, 2, 1, &resident(kind::DATA, 0, "", b"content"));
        let (bytes, geometry) = volume(vec![first, second]);
        let mft = Mft::open(bytes, geometry, &mut Vec::new()).unwrap();
        let mut found = Vec::new();
        let read = read_file(&mft, 1, &mut |attribute| {
            found.push((attribute.kind, attribute.resident()?.to_vec()));
            Ok(())
        });
        (found, read)
    }

    #[test]
    fn a_file_of_two_records() {
        let base = Reference { number: 1, sequence: 7 };
        let (found, read) = of_two_records(base, 7);
        read.unwrap();
        assert_eq!(found, [(kind::FILE_NAME, b"name".to_vec()), (kind::DATA, b"content".to_vec())]);
    }

    #[test]
    fn a_record_of_another_file_is_not_taken() {
        let base = Reference { number: 1, sequence: 7 };
        for (base, sequence, at) in [
            (base, 6, 6144 + 16),
            (Reference { sequence: 8, ..base }, 7, 6144 + 32),
            (Reference { number: 2, ..base }, 7, 6144 + 32),
        ] {
            let (found, read) = of_two_records(base, sequence);
            assert_eq!(found, [(kind::FILE_NAME, b"name".to_vec())]);
            assert!(matches!(read, Err(TableError::Damaged { at: told, .. }) if told == at), "{read:?}");
        }
    }

    #[test]
    fn runs_that_have_more_than_the_device_are_refused() {
        let (mut bytes, geometry) = volume(Vec::new());
        // Twice all of it.
        let runs = [0x22, 0, 4, 0, 0, 0x21, 1, 5, 0, 0];
        let mft = on_disk(0, 1, &non_resident(kind::DATA, 1, 0, &runs, 1025, 1025 * 1024));
        bytes[4096..5120].copy_from_slice(&mft);
        assert!(Mft::open(&bytes, geometry, &mut Vec::new()).is_err());
        let mft = on_disk(0, 1, &non_resident(kind::DATA, 1, 0, &[0x11, 0, 4, 0], 0, 0));
        bytes[4096..5120].copy_from_slice(&mft);
        assert!(Mft::open(&bytes, geometry, &mut Vec::new()).is_err());
    }

    #[test]
    fn what_has_no_place_is_passed_over() {
        // Two records, a hole of four, and one more.
        let runs = [0x11, 2, 4, 0x01, 4, 0x11, 1, 2, 0];
        let (mut bytes, geometry) = volume(Vec::new());
        let mft = on_disk(0, 1, &non_resident(kind::DATA, 1, 0, &runs, 7, 7 * 1024));
        bytes[4096..5120].copy_from_slice(&mft);
        let mft = Mft::open(&bytes, geometry, &mut Vec::new()).unwrap();
        assert_eq!(mft.records, 7);
        assert_eq!((mft.covered(0, 100), mft.covered(1, 100), mft.covered(2, 100)), (2, 1, 0));
        assert_eq!((mft.next_placed(2), mft.covered(6, 100), mft.next_placed(6)), (6, 1, 7));
        assert_eq!((mft.at(1), mft.at(2), mft.at(6)), (Some(5120), None, Some(6144)));
        assert!(mft.read(&mut [0; 2048], 1).is_err() && mft.record(&mut Vec::new(), 7).is_err());
    }
}
