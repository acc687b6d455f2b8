//! Names in the indexes of directories, held against those that files say to have.
//!
//! A directory of few names has its index in its own file record, which is read anyway. The index of a larger one lies in blocks of
//! its own, a seek or more for each directory: those are read only where they are asked for, many at a time, in the order of
//! the disk.

use super::{
    FIRST_FILE,
    attributes::{Attribute, Value, kind},
    bitmap::Bitmap,
    doubtful::Doubtful,
    index,
    index_blocks::{IndexBlocks, IndexParts},
    mft::Mft,
    names::FileName,
    record::Reference,
};
use crate::{
    block_read::BlockRead,
    tables::{Indexes as Wanted, TableError, cast::to_usize, checks::mixed, problems::Problems},
};

/// Records that have a sum, at most: 64 MiB of them. Directories behind are not compared.
const SUMS_MAX: u64 = 16 << 20;
/// Where blocks are read only if that is cheap, it takes this part of what the content takes, at most.
const CONTENT_SHARE: u64 = 20;
/// Directories that are looked at name by name, at most.
const DOUBTFUL_MAX: usize = 1000;

/// What both sides tell of the names in directories: 4 bytes for each record up to the last directory, and a bit.
#[derive(Debug)]
pub(super) struct Indexes {
    /// Records of the volume.
    records: u64,
    sums: Sums,
    /// Directories whose index is all in their record, or all in blocks that could be read.
    compared: Bitmap,
    /// Names that the file tells which comes, each with its directory, and its index.
    names: Vec<(u64, u64)>,
    index: IndexParts,
    /// Blocks of indexes, where these are asked for.
    blocks: Option<IndexBlocks>,
    is_only_where_cheap: bool,
}

/// By the number of a directory: the hashes of what files say, less those of what its index says.
#[derive(Debug, Default)]
struct Sums(Vec<u32>);

impl Sums {
    fn of(&mut self, directory: u64) -> &mut u32 {
        let index = to_usize(directory);
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        &mut self.0[index]
    }

    /// A name in an index. What belongs to the system is told by neither side.
    fn take(&mut self, directory: u64, entry: &index::Entry<'_>) {
        if entry.file.number >= FIRST_FILE {
            let sum = self.of(directory);
            *sum = sum.wrapping_sub(of_both(entry.file, hash(&entry.key)));
        }
    }
}

impl Indexes {
    /// Of a volume of so many records on a device of so many bytes.
    pub(super) fn new(records: u64, device_bytes: u64, wanted: Wanted) -> Indexes {
        Indexes {
            records: records.min(SUMS_MAX),
            sums: Sums::default(),
            compared: Bitmap::default(),
            names: Vec::new(),
            index: IndexParts::default(),
            blocks: (wanted != Wanted::Left).then(|| IndexBlocks::new(device_bytes)),
            is_only_where_cheap: wanted == Wanted::WhereCheap,
        }
    }

    /// Begins another file.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.index.clear();
    }

    /// An attribute of a file, or a piece of one.
    pub(super) fn take<B>(&mut self, attribute: &Attribute<'_>, mft: &Mft<B>) -> Result<(), TableError> {
        if let Some(name) = name_in(attribute) {
            self.names.push((name.directory.number, hash(&name)));
        }
        self.index.take(attribute, self.blocks.is_some(), mft)
    }

    /// Adds what was taken, of this file.
    pub(super) fn add<B: BlockRead>(&mut self, file: Reference, mft: &Mft<B>) -> Result<(), TableError> {
        let number = file.number;
        for &(directory, hash) in self.names.iter().filter(|(directory, _)| *directory < self.records) {
            let what = if number < FIRST_FILE { 0 } else { of_both(file, hash) };
            let sum = self.sums.of(directory);
            *sum = sum.wrapping_add(what);
        }
        if !self.index.is_there() || number >= self.records {
            return Ok(());
        }
        let sums = &mut self.sums;
        let is_all = self.index.root_entries(&mut |entry, _| sums.take(number, entry))?;
        match &mut self.blocks {
            Some(blocks) if !is_all || self.index.has_blocks() => blocks.add(mft, number, &mut self.index)?,
            None if !is_all => return Ok(()),
            _ => {}
        }
        self.compared.set(number);
        Ok(())
    }

    /// Whether blocks have to be read before another file is added.
    pub(super) fn is_full(&self) -> bool {
        self.blocks.as_ref().is_some_and(IndexBlocks::is_full)
    }

    /// Reads the blocks of the indexes that were added so far, on a volume whose files have so many bytes of content, so far.
    pub(super) fn read_blocks<B: BlockRead>(&mut self, mft: &Mft<B>, content_bytes: u64) -> Vec<TableError> {
        let Indexes { sums, compared, blocks, .. } = self;
        let mut problems = Problems::default();
        let Some(of_indexes) = blocks else { return Vec::new() };
        if self.is_only_where_cheap && of_indexes.cost() > content_bytes / CONTENT_SHARE {
            of_indexes.directories().for_each(|directory| compared.clear(directory));
            *blocks = None;
            return Vec::new();
        }
        let blocks = of_indexes;
        blocks.read(mft, &mut |block| {
            let taken = block.and_then(|block| {
                let directory = block.directory;
                let taken = block.entries(&mut |entry, _| sums.take(directory, entry));
                taken.map_err(|problem| (directory, problem))
            });
            if let Err((directory, problem)) = taken {
                // What is in there can't be known.
                compared.clear(directory);
                problems.push(problem);
            }
        });
        problems.take()
    }

    /// What contradicts, each name with its byte.
    pub(super) fn contradictions<B: BlockRead>(&self, mft: &Mft<B>) -> Vec<TableError> {
        let is_uneven = |directory: &u64| self.sums.0.get(to_usize(*directory)).is_some_and(|sum| *sum != 0);
        let none = Bitmap::default();
        let uneven = self.compared.without(&none).filter(is_uneven).take(DOUBTFUL_MAX);
        let mut doubtful = Doubtful::new(mft, self.blocks.is_some());
        uneven.flat_map(|directory| doubtful.look(directory)).collect()
    }
}

/// A name in an attribute of a file.
pub(super) fn name_in<'a>(attribute: &Attribute<'a>) -> Option<FileName<'a>> {
    match (attribute.kind, attribute.value) {
        (kind::FILE_NAME, Value::Resident(value)) => FileName::parse(value),
        _ => None,
    }
}

/// Of a name, and of whether it is shown.
fn hash(name: &FileName<'_>) -> u64 {
    name.name.chunks(8).fold(name.name.len() as u64 | u64::from(name.is_dos) << 32, |hash, part| {
        let word = part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        mixed(hash, word)
    })
}

/// Of a file and the hash of a name of it.
fn of_both(file: Reference, hash: u64) -> u32 {
    let file = file.number | u64::from(file.sequence) << 48;
    u32::try_from(mixed(file, hash) >> 32).unwrap_or_default()
}
