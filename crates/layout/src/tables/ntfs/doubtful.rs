//! Directories whose index and files tell other names, looked at name by name.

use std::collections::HashMap;

use super::{
    FIRST_FILE,
    attributes::{Attribute, Attributes},
    index::Entry,
    index_blocks::{IndexBlocks, IndexParts},
    indexes::name_in,
    listed::{Loaded, list_in, read_file},
    mft::Mft,
    names::utf8,
    record::Reference,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, problems::Problems, quoted},
};

/// Bytes of file records that are held against an index at once.
const RECORDS_BYTES: usize = 16 << 20;
/// Names that are looked at, of all directories: of one record after the other, so that it takes as long as a few passes over
/// the $MFT.
const NAMES_MAX: usize = 4 << 20;
/// Files of several records that are looked at, each by reads of its own.
const LISTED_MAX: usize = 1000;

/// A name, and whether it is only for DOS programs.
type Shown = (Vec<u8>, bool);

/// A name in an index.
struct Named {
    file: Reference,
    name: Shown,
    /// The bytes where its entry has the sequence number of the file, and the name.
    sequence_at: u64,
    at: u64,
}

/// What a file says of itself: its sequence number, and the names that it has in a directory.
struct Says {
    sequence: u16,
    names: Vec<Shown>,
}

/// Where an entry has the sequence number of its file.
const SEQUENCE_AT: usize = 6;

/// Looks at one directory after the other.
pub(super) struct Doubtful<'a, B> {
    mft: &'a Mft<B>,
    blocks: Option<IndexBlocks>,
    names_left: usize,
    listed_left: usize,
}

impl<'a, B: BlockRead> Doubtful<'a, B> {
    /// With the blocks of indexes, or those alone that are all in their record.
    pub(super) fn new(mft: &'a Mft<B>, with_blocks: bool) -> Doubtful<'a, B> {
        let blocks = with_blocks.then(|| IndexBlocks::new(mft.device.len()));
        Doubtful { mft, blocks, names_left: NAMES_MAX, listed_left: LISTED_MAX }
    }

    /// What contradicts in a directory. Nothing where its index can't be read any more.
    pub(super) fn look(&mut self, directory: u64) -> Vec<TableError> {
        let mft = self.mft;
        let mut index = IndexParts::default();
        let with_blocks = self.blocks.is_some();
        if read_file(mft, directory, &mut |attribute| index.take(attribute, with_blocks, mft)).is_err() {
            return Vec::new();
        }
        let root_at = index.root_at;
        let Doubtful { blocks, names_left, listed_left, .. } = self;
        let mut look = Look {
            mft,
            directory,
            waiting: Vec::new(),
            told: Problems::default(),
            is_all_known: true,
            names_left,
            listed_left,
        };
        let Ok(is_all) = index.root_entries(&mut |entry, byte| look.take(entry, byte)) else { return Vec::new() };
        if let Some(blocks) = blocks.as_mut().filter(|_| !is_all || index.has_blocks()) {
            if blocks.add(mft, directory, &mut index).is_err() {
                return Vec::new();
            }
            blocks.read(mft, &mut |block| {
                let taken = block.map(|block| block.entries(&mut |entry, byte| look.take(entry, byte)));
                look.is_all_known &= matches!(taken, Ok(Ok(())));
            });
        }
        look.compare();
        if look.told.met() == 0 && look.is_all_known {
            let what = format!("the index of directory {directory}");
            look.told.push(TableError::damaged(what, root_at, "each name that files say to have there", "others"));
        }
        look.told.take()
    }
}

/// A look at one directory.
struct Look<'a, B> {
    mft: &'a Mft<B>,
    directory: u64,
    /// Names whose files weren't read yet.
    waiting: Vec<Named>,
    told: Problems,
    is_all_known: bool,
    names_left: &'a mut usize,
    listed_left: &'a mut usize,
}

impl<B: BlockRead> Look<'_, B> {
    /// A name in the index.
    fn take(&mut self, entry: &Entry<'_>, byte: &dyn Fn(usize) -> u64) {
        if entry.file.number < FIRST_FILE {
            return;
        }
        let Some(left) = self.names_left.checked_sub(1) else { return };
        *self.names_left = left;
        let name = (entry.key.name.to_vec(), entry.key.is_dos);
        let (sequence_at, at) = (byte(entry.at + SEQUENCE_AT), byte(entry.name_at));
        self.waiting.push(Named { file: entry.file, name, sequence_at, at });
        if self.waiting.len() >= RECORDS_BYTES / self.mft.geometry.record_bytes as usize {
            self.compare();
        }
    }

    /// Holds the names that wait against their files, whose records are read in rising order.
    fn compare(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let numbers = waiting.iter().map(|named| named.file.number).filter(|number| *number < self.mft.records);
        let loaded = Loaded::read(self.mft, numbers.collect());
        let mut of_listed = HashMap::new();
        for named in &waiting {
            let number = named.file.number;
            let says = match self.said(&loaded, number) {
                // It has several records.
                Some((sequence, None)) => {
                    let names = of_listed.entry(number).or_insert_with(|| self.names_of_listed(number)).clone();
                    names.map(|names| Says { sequence, names })
                }
                Some((sequence, Some(names))) => Some(Says { sequence, names }),
                None => None,
            };
            match says {
                // That it can't be read was told already.
                None => self.is_all_known = false,
                Some(says) => {
                    // A reference without a sequence number means whatever is there.
                    self.is_all_known &= named.file.sequence != 0;
                    self.told.extend(self.contradiction(named, &says));
                }
            }
        }
    }

    fn contradiction(&self, named: &Named, says: &Says) -> Option<TableError> {
        let Named { file, name, sequence_at, at } = named;
        let place = format!("of file {} in the index of directory {}", file.number, self.directory);
        if says.names.contains(name) {
            let what = format!("the sequence number {place}");
            let is_other = file.sequence != says.sequence && file.sequence != 0;
            return is_other.then(|| TableError::damaged(what, *sequence_at, says.sequence, file.sequence));
        }
        let shown = |(name, is_dos): &Shown| {
            let only = if *is_dos { " for DOS alone" } else { "" };
            format!("{}{only}", quoted(&utf8(name)))
        };
        let names: Vec<String> = says.names.iter().map(shown).collect();
        let expected = if names.is_empty() { "none".to_owned() } else { names.join(" or ") };
        Some(TableError::damaged(format!("the name {place}"), *at, expected, shown(name)))
    }

    /// The sequence number of a file and its names in the directory, these where it has one record only. `None` where that can't be
    /// read.
    fn said(&self, loaded: &Loaded, number: u64) -> Option<(u16, Option<Vec<Shown>>)> {
        if number >= self.mft.records {
            return Some((0, Some(Vec::new())));
        }
        let record = loaded.record_of(number)?;
        if list_in(record).ok()?.is_some() {
            return Some((record.header.sequence, None));
        }
        let mut names = Vec::new();
        for attribute in Attributes::of(record) {
            names.extend(self.name_in(&attribute.ok()?));
        }
        Some((record.header.sequence, Some(names)))
    }

    /// The names of a file of several records.
    fn names_of_listed(&mut self, number: u64) -> Option<Vec<Shown>> {
        *self.listed_left = self.listed_left.checked_sub(1)?;
        let mut names = Vec::new();
        let read = read_file(self.mft, number, &mut |attribute| {
            names.extend(self.name_in(attribute));
            Ok(())
        });
        read.ok().map(|()| names)
    }

    /// The name that an attribute tells, if it is in the directory.
    fn name_in(&self, attribute: &Attribute<'_>) -> Option<Shown> {
        let name = name_in(attribute).filter(|name| name.directory.number == self.directory);
        name.map(|name| (name.name.to_vec(), name.is_dos))
    }
}
