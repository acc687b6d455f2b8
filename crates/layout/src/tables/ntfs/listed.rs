//! Files whose attributes lie in several records.

use std::ops::Range;

use super::{
    attribute_list::Entry,
    attributes::{Attribute, Attributes, kind},
    mft::{Mft, check_extension, piece_of},
    record::Record,
};
use crate::{block_read::BlockRead, tables::TableError};

/// Records this near to each other are read as one.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// Bytes of such a read.
const READ_BYTES_MAX: usize = 1 << 20;

/// The first record of a file, fixups applied, and its attribute list.
#[derive(Debug)]
pub(super) struct Listed {
    bytes: Vec<u8>,
    number: u64,
    at: u64,
    list: Vec<Entry>,
    /// The records that it needs beside its first, in rising order.
    needs: Vec<u64>,
}

impl Listed {
    /// Keeps the record of a file with its attribute list, which is read where it lies outside of the record.
    pub(super) fn new<B: BlockRead>(
        mft: &Mft<B>,
        record: &Record<'_>,
        list: &Attribute<'_>,
    ) -> Result<Listed, TableError> {
        let list = mft.list_of(list)?;
        let mut needs: Vec<u64> = list.iter().map(|entry| entry.record.number).collect();
        needs.retain(|number| *number != record.number && *number < mft.records);
        needs.sort_unstable();
        needs.dedup();
        Ok(Listed { bytes: record.bytes.to_vec(), number: record.number, at: record.at, list, needs })
    }

    /// The records that it needs beside its first, in rising order.
    pub(super) fn needs(&self) -> &[u64] {
        &self.needs
    }

    /// Which file it is.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The byte of the volume where it begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that it takes, those of the records that it needs included.
    pub(super) fn memory(&self) -> usize {
        self.list.len() * size_of::<Entry>() + (1 + self.needs.len()) * self.bytes.len()
    }

    /// Its first record.
    pub(super) fn record(&self) -> Result<Record<'_>, TableError> {
        Record::reopen(&self.bytes, self.number, self.at)
    }

    /// Hands every attribute and every piece of one over, in the order of the list. Returns what was wrong first.
    pub(super) fn attributes(
        &self,
        loaded: &Loaded,
        take: &mut dyn FnMut(&Attribute<'_>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let base = self.record()?;
        let mut wrong = Ok(());
        for entry in &self.list {
            let record = match entry.record.number == self.number {
                true => Ok(base),
                false => loaded.record(entry.record.number, &base),
            };
            let taken = record.and_then(|record| {
                check_extension(&record, entry, &base)?;
                take(&piece_of(&record, entry)?)
            });
            wrong = wrong.and(taken);
        }
        wrong
    }
}

/// Records that were read for their files.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// By number: where it is in the bytes, and where it lies on the volume.
    records: Vec<(u64, Range<usize>, u64)>,
    bytes: Vec<u8>,
    /// Why some of them are missing.
    pub(super) problems: Vec<TableError>,
}

impl Loaded {
    /// Reads records of the $MFT in rising order, near ones in one read. Those that are damaged are missing then.
    pub(super) fn read<B: BlockRead>(mft: &Mft<B>, mut numbers: Vec<u64>) -> Loaded {
        numbers.sort_unstable();
        numbers.dedup();
        let record_bytes = mft.geometry.record_bytes as usize;
        let gap_max = GAP_BYTES_MAX / u64::from(mft.geometry.record_bytes);
        let span_max = (READ_BYTES_MAX / record_bytes) as u64;
        let mut loaded = Loaded::default();
        let mut buffer = Vec::new();
        let mut rest = &numbers[..];
        while let Some(&first) = rest.first() {
            let near = |pair: &[u64]| pair[1] - pair[0] <= gap_max && pair[1] - first < span_max;
            let count = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
            let (group, behind) = rest.split_at(count);
            rest = behind;
            let span = usize::try_from(group[count - 1] - first + 1).unwrap_or(0);
            buffer.resize(span * record_bytes, 0);
            let together = mft.read(&mut buffer, first).is_ok();
            for &number in group {
                let start = usize::try_from(number - first).unwrap_or(0) * record_bytes;
                let from = &mut buffer[start..start + record_bytes];
                let at = mft.at(number).unwrap_or(0);
                let read = if together { Ok(()) } else { mft.read(from, number) };
                if let Err(problem) = read.and_then(|()| Record::open(from, number, at).map(|_| ())) {
                    loaded.problems.push(problem);
                    continue;
                }
                let place = loaded.bytes.len();
                loaded.bytes.extend_from_slice(from);
                loaded.records.push((number, place..place + record_bytes, at));
            }
        }
        loaded
    }

    /// The record of this number, if it was read.
    pub(super) fn record_of(&self, number: u64) -> Option<Record<'_>> {
        let index = self.records.binary_search_by_key(&number, |record| record.0).ok()?;
        let (_, place, at) = &self.records[index];
        Record::reopen(&self.bytes[place.clone()], number, *at).ok()
    }

    /// A record of the file that begins with `base`.
    fn record(&self, number: u64, base: &Record<'_>) -> Result<Record<'_>, TableError> {
        let missing = || {
            let what = format!("file {}, which has an attribute list,", base.number);
            TableError::damaged(what, base.at, format!("record {number}"), "none that is sound")
        };
        let index = self.records.binary_search_by_key(&number, |record| record.0).map_err(|_| missing())?;
        let (_, place, at) = &self.records[index];
        Record::reopen(&self.bytes[place.clone()], number, *at)
    }
}

/// Reads one file: all its attributes are handed over.
pub(super) fn read_file<B: BlockRead>(
    mft: &Mft<B>,
    number: u64,
    take: &mut dyn FnMut(&Attribute<'_>) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let mut bytes = Vec::new();
    let record = mft.record(&mut bytes, number)?;
    if let Some(list) = list_in(record)? {
        let listed = Listed::new(mft, &record, &list)?;
        let loaded = Loaded::read(mft, listed.needs().to_vec());
        return listed.attributes(&loaded, take);
    }
    Attributes::of(record).try_for_each(|attribute| take(&attribute?))
}

/// The attribute list of a record, if it has one.
pub(super) fn list_in(record: Record<'_>) -> Result<Option<Attribute<'_>>, TableError> {
    for attribute in Attributes::of(record) {
        let attribute = attribute?;
        // Attributes are in the order of their types.
        if attribute.kind >= kind::ATTRIBUTE_LIST {
            return Ok((attribute.kind == kind::ATTRIBUTE_LIST).then_some(attribute));
        }
    }
    Ok(None)
}
