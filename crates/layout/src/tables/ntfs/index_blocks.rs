//! The blocks of indexes: which of them are in use and where they lie, and reading many in the order of the disk.

use std::ops::Range;

use super::{
    INDEX_NAME,
    attributes::{Attribute, Value, kind},
    bytes::u64_at,
    index::{self, ROOT_HEADER, Shape, damaged},
    mft::Mft,
    names::is_ascii,
    record::apply_fixups,
    stream::Stream,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, cast::to_usize},
};

/// Places that are kept until they are read, 32 bytes each: 8 MiB.
const PLACES_MAX: usize = 1 << 18;
/// What lies between two places is read through rather than skipped, up to so many bytes: a track or less.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// Bytes of a read, at most.
const READ_BYTES_MAX: u64 = 2 << 20;
/// What a disk reads while it seeks to the next one.
const SEEK_BYTES: u64 = 1 << 20;
/// A bit for each block: those of an index of 8,388,608 blocks.
const BITMAP_BYTES_MAX: u64 = 1 << 20;
/// Where a block says which one it is, and where the header of its entries begins.
const NUMBER_AT: usize = 16;
const HEADER_AT: usize = 24;
const MAGIC: [u8; 4] = *b"INDX";

/// What an entry is given to, with what turns its offsets into bytes of the volume.
pub(super) type EachEntry<'a> = dyn FnMut(&index::Entry<'_>, &dyn Fn(usize) -> u64) + 'a;

/// The index of the names of a directory, put together from its attributes.
#[derive(Debug, Default)]
pub(super) struct IndexParts {
    /// The value of its root; empty where there is none.
    root: Vec<u8>,
    /// Where the root begins as an attribute, and as a value.
    pub(super) root_at: u64,
    value_at: u64,
    blocks: Stream,
    bitmap: Stream,
}

impl IndexParts {
    /// Begins anew.
    pub(super) fn clear(&mut self) {
        if self.is_there() || self.blocks.present || self.bitmap.present {
            self.root.clear();
            self.blocks.clear();
            self.bitmap.clear();
        }
    }

    /// Adds the attribute, or its next piece, if it is one of the index: its root, and its blocks where they are wanted.
    pub(super) fn take<B>(
        &mut self,
        attribute: &Attribute<'_>,
        with_blocks: bool,
        mft: &Mft<B>,
    ) -> Result<(), TableError> {
        if !is_ascii(attribute.name, INDEX_NAME) {
            return Ok(());
        }
        match (attribute.kind, attribute.value) {
            (kind::INDEX_ROOT, Value::Resident(value)) => {
                self.root.clear();
                self.root.extend_from_slice(value);
                (self.root_at, self.value_at) = (attribute.at, attribute.value_at);
                Ok(())
            }
            (kind::INDEX_ALLOCATION, _) if with_blocks => self.blocks.take(attribute, &mft.geometry),
            (kind::BITMAP, _) if with_blocks => self.bitmap.take(attribute, &mft.geometry),
            _ => Ok(()),
        }
    }

    /// Whether there is an index.
    pub(super) fn is_there(&self) -> bool {
        !self.root.is_empty()
    }

    /// Whether it has blocks of its own, as far as these were wanted.
    pub(super) fn has_blocks(&self) -> bool {
        self.blocks.present
    }

    /// The entries of its root, and whether they are all that is in the tree.
    pub(super) fn root_entries(&self, each: &mut EachEntry<'_>) -> Result<bool, TableError> {
        let header = self.root.get(ROOT_HEADER..).unwrap_or_default();
        let header_at = self.value_at + ROOT_HEADER as u64;
        let is_all = index::entries(header, &mut |entry| each(&entry, &|offset| header_at + offset as u64));
        is_all.ok_or_else(|| damaged(self.root_at, "entries that don't end"))
    }
}

/// Blocks of an index that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: u64,
    directory: u64,
    /// The first of them, by its number in the index.
    number: u64,
    /// How many, of 512 bytes to 2 MiB each; no more than one read has room for.
    count: u16,
    /// The bytes of each, as a power of two.
    block_shift: u8,
    /// That of what blocks count themselves in.
    unit_shift: u8,
}

impl Place {
    fn bytes(&self) -> u64 {
        u64::from(self.count) << self.block_shift
    }
}

/// A block that lies in several pieces: where each begins, and its bytes.
#[derive(Debug)]
struct Divided {
    block: Place,
    pieces: Vec<(u64, u64)>,
}

/// A block that was read, fixups applied.
pub(super) struct Block<'a> {
    /// Whose it is.
    pub(super) directory: u64,
    bytes: &'a [u8],
    pieces: &'a [(u64, u64)],
}

impl Block<'_> {
    /// Its entries.
    pub(super) fn entries(&self, each: &mut EachEntry<'_>) -> Result<(), TableError> {
        let header = self.bytes.get(HEADER_AT..).unwrap_or_default();
        let byte = |offset| byte_of(self.pieces, (HEADER_AT + offset) as u64);
        let is_all = index::entries(header, &mut |entry| each(&entry, &byte));
        is_all.map(|_| ()).ok_or_else(|| damaged(byte_of(self.pieces, 0), "entries that don't end"))
    }
}

/// The byte of the volume for one of a block.
fn byte_of(pieces: &[(u64, u64)], offset: u64) -> u64 {
    let mut before = 0;
    for &(at, length) in pieces {
        if offset < before + length {
            return at + (offset - before);
        }
        before += length;
    }
    pieces.first().map_or(0, |(at, _)| *at)
}

/// What a block is given to: it, or the number of its directory and why it can't be read.
pub(super) type Each<'a> = dyn FnMut(Result<Block<'_>, (u64, TableError)>) + 'a;

/// Blocks that are to be read.
#[derive(Debug)]
pub(super) struct IndexBlocks {
    places: Vec<Place>,
    divided: Vec<Divided>,
    /// Pieces of those that are divided.
    pieces: usize,
    /// Bytes that there can still be: no more than the device has, as each block is only one directory's.
    bytes_left: u64,
}

impl IndexBlocks {
    /// None so far, on a device of so many bytes.
    pub(super) fn new(device_bytes: u64) -> IndexBlocks {
        IndexBlocks { places: Vec::new(), divided: Vec::new(), pieces: 0, bytes_left: device_bytes }
    }

    /// What it takes to read them, in bytes that a disk reads in the same time: each read takes as long as 1 MiB more.
    pub(super) fn cost(&mut self) -> u64 {
        self.places.sort_unstable();
        let requests = requests(&self.places);
        let bytes: u64 = requests.iter().map(|request| request.end - request.start).sum();
        let reads = requests.len() + self.pieces;
        bytes + reads as u64 * SEEK_BYTES
    }

    /// The directories of those that are to be read.
    pub(super) fn directories(&self) -> impl Iterator<Item = u64> {
        let divided = self.divided.iter().map(|divided| divided.block.directory);
        self.places.iter().map(|place| place.directory).chain(divided)
    }

    /// Whether they have to be read before more are added.
    pub(super) fn is_full(&self) -> bool {
        self.places.len() + self.pieces >= PLACES_MAX
    }

    /// Adds the blocks of a directory that its bitmap says are in use. A bitmap that lies in clusters of its own, as one of some
    /// thousands of blocks does, is read.
    pub(super) fn add<B: BlockRead>(
        &mut self,
        mft: &Mft<B>,
        directory: u64,
        index: &mut IndexParts,
    ) -> Result<(), TableError> {
        let before = (self.places.len(), self.divided.len());
        let added = self.add_all(mft, directory, index);
        if added.is_err() {
            self.places.truncate(before.0);
            self.divided.truncate(before.1);
            self.pieces = self.divided.iter().map(|block| block.pieces.len()).sum();
        }
        added
    }

    fn add_all<B: BlockRead>(
        &mut self,
        mft: &Mft<B>,
        directory: u64,
        index: &mut IndexParts,
    ) -> Result<(), TableError> {
        let shape = Shape::of(&index.root, index.root_at, mft.geometry.cluster_bytes)?;
        if !index.blocks.present {
            return Err(damaged(index.root_at, "no blocks, where its root leads to some"));
        }
        index.blocks.finish(&mft.geometry)?;
        index.bitmap.finish(&mft.geometry)?;
        if index.bitmap.size > BITMAP_BYTES_MAX {
            let (what, expected) = ("the size of the bitmap of an index", format!("at most {BITMAP_BYTES_MAX}"));
            return Err(TableError::damaged(what, index.bitmap.at, expected, index.bitmap.size));
        }
        let bits = index.bitmap.read(&mft.device, BITMAP_BYTES_MAX)?;
        let bytes = (0_u64..).zip(bits).filter(|(_, byte)| *byte != 0);
        for number in
            bytes.flat_map(|(at, byte)| (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit))
        {
            let Some(left) = self.bytes_left.checked_sub(shape.block_bytes()) else {
                let (expected, found) = ("clusters that no other has", "those of others");
                return Err(TableError::damaged("the index of a directory", index.blocks.at, expected, found));
            };
            self.bytes_left = left;
            let (block_shift, unit_shift) = (shape.block_shift, shape.unit_shift);
            let block = Place { at: 0, directory, number, count: 1, block_shift, unit_shift };
            let start = number << block_shift;
            let pieces = pieces_of(&index.blocks, start..start + shape.block_bytes());
            let Some(&(at, _)) = pieces.first() else {
                let found = format!("no place for its block {number}, which is in use");
                return Err(TableError::damaged("the index of a directory", index.blocks.at, "a sound one", found));
            };
            match pieces.len() {
                1 => self.push(Place { at, ..block }),
                more => {
                    self.pieces += more;
                    self.divided.push(Divided { block: Place { at, ..block }, pieces });
                }
            }
        }
        Ok(())
    }

    /// Adds a block, to the place of the one before where it follows that.
    fn push(&mut self, block: Place) {
        match self.places.last_mut() {
            Some(last)
                if last.directory == block.directory
                    && last.number + u64::from(last.count) == block.number
                    && last.at + last.bytes() == block.at
                    && last.bytes() + block.bytes() <= READ_BYTES_MAX =>
            {
                last.count += 1;
            }
            _ => self.places.push(block),
        }
    }

    /// Reads all that were added, by rising address, near ones together, and forgets them.
    pub(super) fn read<B: BlockRead>(&mut self, mft: &Mft<B>, each: &mut Each<'_>) {
        let (mut places, mut divided) = (std::mem::take(&mut self.places), std::mem::take(&mut self.divided));
        self.pieces = 0;
        places.sort_unstable();
        divided.sort_unstable_by_key(|divided| divided.block);
        let mut buffer = Vec::new();
        for Request { start, end, places } in requests(&places) {
            buffer.resize(to_usize(end - start), 0);
            let together = mft.read_device(&mut buffer, start).is_ok();
            for place in places {
                let within = to_usize(place.at - start)..to_usize(place.at - start + place.bytes());
                // Not in place: where two directories have a block, each of them applies the fixups.
                let mut bytes = buffer[within].to_vec();
                blocks_of(mft, place, &mut bytes, together, each);
            }
        }
        for Divided { block, pieces } in &divided {
            buffer.resize(to_usize(block.bytes()), 0);
            let mut left = &mut buffer[..];
            let read = pieces.iter().try_for_each(|&(at, length)| {
                let (piece, behind) = std::mem::take(&mut left).split_at_mut(to_usize(length));
                left = behind;
                mft.read_device(piece, at)
            });
            each(
                read.and_then(|()| opened(block, block.number, pieces, &mut buffer))
                    .map_err(|problem| (block.directory, problem)),
            );
        }
    }
}

/// A read: the places in it, by rising address.
struct Request<'a> {
    start: u64,
    end: u64,
    places: &'a [Place],
}

/// The reads for places with rising addresses.
fn requests(places: &[Place]) -> Vec<Request<'_>> {
    let (mut requests, mut rest) = (Vec::new(), places);
    while let Some(first) = rest.first() {
        let (start, mut end, mut count) = (first.at, first.at + first.bytes(), 1);
        for place in &rest[1..] {
            let next_end = end.max(place.at + place.bytes());
            if place.at > end + GAP_BYTES_MAX || next_end - start > READ_BYTES_MAX {
                break;
            }
            (end, count) = (next_end, count + 1);
        }
        let (places, behind) = rest.split_at(count);
        requests.push(Request { start, end, places });
        rest = behind;
    }
    requests
}

/// Gives the blocks of a place over, which were read together with others, or else are read one by one.
fn blocks_of<B: BlockRead>(mft: &Mft<B>, place: &Place, bytes: &mut [u8], together: bool, each: &mut Each<'_>) {
    let block_bytes = 1_u64 << place.block_shift;
    for (nth, bytes) in (0..).zip(bytes.chunks_exact_mut(to_usize(block_bytes))) {
        let at = place.at + nth * block_bytes;
        let read = if together { Ok(()) } else { mft.read_device(bytes, at) };
        let pieces = [(at, block_bytes)];
        let opened = read.and_then(|()| opened(place, place.number + nth, &pieces, bytes));
        each(opened.map_err(|problem| (place.directory, problem)));
    }
}

/// Applies the fixups of a block and verifies that it says itself that it is the one with this number.
fn opened<'a>(
    place: &Place,
    number: u64,
    pieces: &'a [(u64, u64)],
    bytes: &'a mut [u8],
) -> Result<Block<'a>, TableError> {
    let directory = place.directory;
    apply_fixups(bytes, MAGIC, 0).map_err(|problem| match problem {
        TableError::Damaged { what, at, expected, found } => {
            let what = format!("{what} (block {number} of the index of directory {directory})");
            TableError::Damaged { what, at: byte_of(pieces, at), expected, found }
        }
        other => other,
    })?;
    let expected = number << (place.block_shift - place.unit_shift);
    let own = u64_at(bytes, NUMBER_AT).unwrap_or(0);
    if own != expected {
        let what = format!("the own number of a block of the index of directory {directory}");
        return Err(TableError::damaged(what, byte_of(pieces, NUMBER_AT as u64), expected, own));
    }
    Ok(Block { directory, bytes, pieces })
}

/// Where a part of an index lies; nothing where not all of it has a place.
fn pieces_of(blocks: &Stream, wanted: Range<u64>) -> Vec<(u64, u64)> {
    let (mut pieces, mut next) = (Vec::new(), wanted.start);
    let first = blocks.extents.partition_point(|extent| extent.logical_end() <= wanted.start);
    for extent in &blocks.extents[first..] {
        let Some(physical) = extent.physical.filter(|_| extent.logical <= next && !extent.is_zeros()) else { break };
        let end = extent.logical_end().min(wanted.end);
        pieces.push((physical + (next - extent.logical), end - next));
        next = end;
        if next == wanted.end {
            return pieces;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            attributes::tests::{non_resident_named, resident},
            index::tests::entry_of,
            mft,
            record::{self, Reference},
        },
        *,
    };
    use crate::tables::ntfs::attributes::Attributes;

    const DIRECTORY: Reference = Reference { number: 30, sequence: 7 };

    /// A block of 4096 bytes with this number and this name, as it lies on the disk.
    fn block(number: u64, name: &str) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(b"INDX");
        bytes[4..8].copy_from_slice(&[40, 0, 9, 0]);
        bytes[16..24].copy_from_slice(&number.to_le_bytes());
        bytes[24] = 40;
        let entry = entry_of(DIRECTORY, Reference { number: 40 + number, sequence: 7 }, name, None);
        let entries = [entry, entry_of(DIRECTORY, Reference { number: 0, sequence: 0 }, "", None)].concat();
        bytes[64..64 + entries.len()].copy_from_slice(&entries);
        bytes[40..42].copy_from_slice(&[7, 9]);
        for part in 1..=8 {
            bytes.copy_within(part * 512 - 2..part * 512, 40 + 2 * part);
            bytes[part * 512 - 2..part * 512].copy_from_slice(&[7, 9]);
        }
        bytes
    }

    /// A volume with an index of four blocks in clusters of 1024 bytes: the first two follow each other at cluster 600, the third
    /// lies in two pieces, at 700 and 650, and the last behind those at 651; the third is free.
    fn volume() -> (Mft<Vec<u8>>, Vec<u8>) {
        let root = [&0x30_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &4096_u32.to_le_bytes(), &[4, 0, 0, 0]].concat();
        let entries = [
            &16_u32.to_le_bytes()[..],
            &[0; 12],
            &entry_of(DIRECTORY, Reference { number: 0, sequence: 0 }, "", Some(0)),
        ];
        let runs = [0x21, 8, 0x58, 2, 0x11, 3, 100, 0x11, 5, 0xce, 0];
        let attributes = [
            resident(kind::INDEX_ROOT, 1, "$I30", &[root, entries.concat()].concat()),
            non_resident_named(kind::INDEX_ALLOCATION, 2, "$I30", &runs, 16, 16384),
            resident(kind::BITMAP, 3, "$I30", &[0b1111, 0, 0, 0, 0, 0, 0, 0]),
        ];
        let record = record::tests::on_disk(30, 3, &attributes.concat());
        let (mut bytes, geometry) = mft::tests::volume(Vec::new());
        let mut put =
            |cluster: usize, part: &[u8]| bytes[cluster * 1024..cluster * 1024 + part.len()].copy_from_slice(part);
        put(600, &block(0, "first"));
        put(604, &block(4, "second"));
        put(700, &block(8, "third")[..3072]);
        put(650, &block(8, "third")[3072..]);
        put(651, &block(12, "fourth"));
        (Mft::open(bytes, geometry, &mut Vec::new()).unwrap(), record)
    }

    fn parts(mft: &Mft<Vec<u8>>, record: &[u8]) -> IndexParts {
        let mut bytes = record.to_vec();
        let record = record::Record::open(&mut bytes, 30, 0).unwrap();
        let mut index = IndexParts::default();
        Attributes::of(record).for_each(|attribute| index.take(&attribute.unwrap(), true, mft).unwrap());
        index
    }

    /// The names that are read, each with its byte and its entry's, and what was wrong.
    fn read(mft: &Mft<Vec<u8>>, record: &[u8]) -> (Vec<(String, u64, u64)>, Vec<String>) {
        let mut index = parts(mft, record);
        let mut blocks = IndexBlocks::new(1 << 20);
        blocks.add(mft, 30, &mut index).unwrap();
        let (mut names, mut problems) = (Vec::new(), Vec::new());
        blocks.read(mft, &mut |block| match block {
            Ok(block) => block
                .entries(&mut |entry, byte| {
                    let name = String::from_utf8(crate::tables::ntfs::names::utf8(entry.key.name)).unwrap();
                    names.push((name, byte(entry.at), byte(entry.name_at)));
                })
                .unwrap(),
            Err((directory, problem)) => {
                assert_eq!(directory, 30);
                problems.push(problem.to_string());
            }
        });
        (names, problems)
    }

    #[test]
    fn blocks_come_with_their_bytes() {
        let (mft, record) = volume();
        let (names, problems) = read(&mft, &record);
        assert!(problems.is_empty(), "{problems:?}");
        let at = |name: &str, cluster: u64| (name.to_owned(), cluster * 1024 + 64, cluster * 1024 + 64 + 82);
        // Those in one piece first, by their place.
        assert_eq!(names, [at("first", 600), at("second", 604), at("fourth", 651), at("third", 700)]);
    }

    #[test]
    fn what_is_wrong_with_a_block_is_told_with_its_byte() {
        let (sound, record) = volume();
        for (at, expected) in [
            (604 * 1024, "(block 1 of the index of directory 30) at byte 618496"),
            (604 * 1024 + 16, "the own number of a block of the index of directory 30 at byte 618512"),
            // The last fixup of the divided one is in its second piece.
            (650 * 1024 + 1022, "(block 2 of the index of directory 30) at byte 666622"),
        ] {
            let mut mft = Mft { device: sound.device.clone(), extents: sound.extents.clone(), ..sound };
            mft.device[at] ^= 1;
            let (names, problems) = read(&mft, &record);
            assert_eq!((names.len(), problems.len()), (3, 1), "{problems:?}");
            assert!(problems[0].contains(expected), "{expected}: {problems:?}");
        }
    }

    #[test]
    fn what_has_no_place_is_told_at_once() {
        let (mft, record) = volume();
        let added = |index: &mut IndexParts, bytes: u64| {
            let mut blocks = IndexBlocks::new(bytes);
            let added = blocks.add(&mft, 30, index).map_err(|problem| problem.to_string());
            assert!(added.is_ok() || blocks.places.is_empty() && blocks.divided.is_empty() && blocks.pieces == 0);
            added
        };
        assert_eq!(added(&mut parts(&mft, &record), 16384), Ok(()));
        let error = added(&mut parts(&mft, &record), 16383).unwrap_err();
        assert!(error.contains("expected clusters that no other has"), "{error}");
        let mut index = parts(&mft, &record);
        index.bitmap.resident = Some(vec![0b1111, 1, 0, 0, 0, 0, 0, 0]);
        let error = added(&mut index, 1 << 20).unwrap_err();
        assert!(error.contains("no place for its block 8"), "{error}");
        let mut index = parts(&mft, &record);
        index.blocks.clear();
        let error = added(&mut index, 1 << 20).unwrap_err();
        assert!(error.contains("no blocks"), "{error}");
    }

    #[test]
    fn places_that_are_near_are_read_together() {
        let (mft, record) = volume();
        let mut blocks = IndexBlocks::new(1 << 20);
        blocks.add(&mft, 30, &mut parts(&mft, &record)).unwrap();
        assert_eq!(
            blocks.places.iter().map(|place| (place.at, place.count)).collect::<Vec<_>>(),
            [(614_400, 2), (666_624, 1)]
        );
        let counted = crate::fuzzing::Counted::new(mft.device, 3);
        let mft = Mft { device: counted, geometry: mft.geometry, extents: mft.extents, records: mft.records };
        // One read for those in one piece, two for the divided block.
        let read = mft.device.bytes_of(|| blocks.read(&mft, &mut |block| assert!(block.is_ok())));
        assert_eq!(read, 55 * 1024 + 4096);
    }
}
