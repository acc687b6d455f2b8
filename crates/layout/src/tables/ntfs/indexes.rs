//! Names in the indexes of directories, held against those that files say to have.
//!
//! A directory of few names has its index in its own file record, which is read anyway. The index of a larger one lies in blocks of
//! its own, a seek or more for each directory: those are left alone.

use super::{
    FIRST_FILE, INDEX_NAME,
    attributes::{Attribute, Attributes, Value, kind},
    bitmap::Bitmap,
    index::{self, Entry},
    listed::list_in,
    mft::Mft,
    names::{FileName, is_ascii, utf8},
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, cast::to_usize, checks::mixed, quoted},
};

/// Records that have a sum, at most: 64 MiB of them. Directories behind are not compared.
const SUMS_MAX: u64 = 16 << 20;
/// Directories that are looked at one by one, at most, each with the base records of the files in it: 51 reads of records of 4096
/// bytes.
const DOUBTFUL_MAX: usize = 1000;

/// What both sides tell of the names in directories: 4 bytes for each record up to the last directory, and a bit.
#[derive(Debug)]
pub(super) struct Indexes {
    /// Records of the volume.
    records: u64,
    /// By the number of a directory: the hashes of what files say, less those of what its index says.
    sums: Vec<u32>,
    /// Directories whose index is all in their record.
    compared: Bitmap,
    file: Told,
}

/// What the attributes of one file tell.
#[derive(Debug, Default)]
struct Told {
    /// Directories, and the hashes of its names in them.
    names: Vec<(u64, u64)>,
    /// If it has an index that is all in its record: the files in there, and the hashes of their names.
    index: Option<Vec<(u64, u64)>>,
}

impl Indexes {
    pub(super) fn new(records: u64) -> Indexes {
        let records = records.min(SUMS_MAX);
        Indexes { records, sums: Vec::new(), compared: Bitmap::default(), file: Told::default() }
    }

    /// Begins another file.
    pub(super) fn clear(&mut self) {
        self.file.names.clear();
        self.file.index = None;
    }

    /// An attribute of a file that is all in one record.
    pub(super) fn take(&mut self, attribute: &Attribute<'_>) -> Result<(), TableError> {
        self.take_name(attribute);
        let Some(value) = index_in(attribute) else { return Ok(()) };
        let mut told = Vec::new();
        let is_all = index::entries(value, &mut |entry| told.push((entry.file.number, hash(entry.key.name))));
        match is_all {
            Some(true) => self.file.index = Some(told),
            Some(false) => {}
            None => {
                let what = "the index of a directory";
                return Err(TableError::damaged(what, attribute.at, "a sound one", "entries that don't end"));
            }
        }
        Ok(())
    }

    /// An attribute of a file of several records.
    pub(super) fn take_name(&mut self, attribute: &Attribute<'_>) {
        if let Some(name) = name_in(attribute) {
            self.file.names.push((name.directory.number, hash(name.name)));
        }
    }

    /// Adds what was taken, of the file of this number.
    pub(super) fn add(&mut self, number: u64) {
        // What belongs to the system is told by neither side.
        for &(directory, hash) in self.file.names.iter().filter(|(directory, _)| *directory < self.records) {
            let what = if number < FIRST_FILE { 0 } else { short(mixed(number, hash)) };
            let sum = sum_of(&mut self.sums, directory);
            *sum = sum.wrapping_add(what);
        }
        if let Some(index) = self.file.index.take().filter(|_| number < self.records) {
            self.compared.set(number);
            let sum = sum_of(&mut self.sums, number);
            for (file, hash) in index.into_iter().filter(|(file, _)| *file >= FIRST_FILE) {
                *sum = sum.wrapping_sub(short(mixed(file, hash)));
            }
        }
    }

    /// What contradicts, each name with its byte.
    pub(super) fn contradictions<B: BlockRead>(&self, mft: &Mft<B>) -> Vec<TableError> {
        let is_uneven = |directory: &u64| self.sums.get(to_usize(*directory)).is_some_and(|sum| *sum != 0);
        let none = Bitmap::default();
        let doubtful = self.compared.without(&none).filter(is_uneven).take(DOUBTFUL_MAX);
        doubtful.flat_map(|directory| in_directory(mft, directory)).collect()
    }
}

fn sum_of(sums: &mut Vec<u32>, directory: u64) -> &mut u32 {
    let index = to_usize(directory);
    if sums.len() <= index {
        sums.resize(index + 1, 0);
    }
    &mut sums[index]
}

fn name_in<'a>(attribute: &Attribute<'a>) -> Option<FileName<'a>> {
    match (attribute.kind, attribute.value) {
        (kind::FILE_NAME, Value::Resident(value)) => FileName::parse(value),
        _ => None,
    }
}

/// The header and the entries of the root of an index of names.
fn index_in<'a>(attribute: &Attribute<'a>) -> Option<&'a [u8]> {
    match (attribute.kind, attribute.value) {
        (kind::INDEX_ROOT, Value::Resident(value)) if is_ascii(attribute.name, INDEX_NAME) => {
            Some(value.get(index::ROOT_HEADER..).unwrap_or_default())
        }
        _ => None,
    }
}

/// What contradicts in a directory whose index is in its record. Nothing where that can't be read any more.
fn in_directory<B: BlockRead>(mft: &Mft<B>, directory: u64) -> Vec<TableError> {
    let mut bytes = Vec::new();
    let Ok(record) = mft.record(&mut bytes, directory) else { return Vec::new() };
    let root = Attributes::of(record).flatten().find_map(|attribute| Some((attribute, index_in(&attribute)?)));
    let Some((attribute, entries)) = root else { return Vec::new() };
    let entries_at = attribute.value_at + index::ROOT_HEADER as u64;
    let (mut told, mut is_all_known) = (Vec::new(), true);
    index::entries(entries, &mut |Entry { file, key, name_at }| {
        if file.number < FIRST_FILE {
            return;
        }
        match names_of(mft, file.number, directory) {
            // That it can't be read was told already.
            None => is_all_known = false,
            Some(names) if names.iter().any(|name| name == key.name) => {}
            Some(names) => {
                let what = format!("the name of file {} in the index of directory {directory}", file.number);
                let names: Vec<String> = names.iter().map(|name| quoted(&utf8(name))).collect();
                let expected = if names.is_empty() { "none".to_owned() } else { names.join(" or ") };
                told.push(TableError::damaged(what, entries_at + name_at as u64, expected, quoted(&utf8(key.name))));
            }
        }
    });
    if told.is_empty() && is_all_known {
        let what = format!("the index of directory {directory}");
        told.push(TableError::damaged(what, attribute.at, "each name that files say to have there", "others"));
    }
    told
}

/// The names that a file says to have in a directory; `None` where its record alone doesn't tell.
fn names_of<B: BlockRead>(mft: &Mft<B>, number: u64, directory: u64) -> Option<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    let record = mft.record(&mut bytes, number).ok()?;
    if list_in(record).ok()?.is_some() {
        return None;
    }
    let mut names = Vec::new();
    for attribute in Attributes::of(record) {
        names.extend(name_in(&attribute.ok()?).filter(|name| name.directory.number == directory));
    }
    Some(names.iter().map(|name| name.name.to_vec()).collect())
}

/// Of the bytes of a name.
fn hash(name: &[u8]) -> u64 {
    name.chunks(8).fold(name.len() as u64, |hash, part| {
        let word = part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        mixed(hash, word)
    })
}

fn short(hash: u64) -> u32 {
    u32::try_from(hash >> 32).unwrap_or_default()
}
