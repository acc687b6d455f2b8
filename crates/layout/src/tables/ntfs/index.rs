//! The index of a directory: its entries, and looking a name up.

use super::{
    attributes::{Value, kind},
    bytes::{slice_at, u16_at, u32_at, u64_at},
    listed::read_file,
    mft::Mft,
    names::{FileName, is_ascii},
    record::{Reference, apply_fixups},
    stream::Stream,
};
use crate::{block_read::BlockRead, tables::TableError};

/// Deeper than any index: each level has room for several entries.
const DEPTH_MAX: usize = 32;
/// Larger than any block of an index that was ever seen (4096, and 64 KiB where clusters have as much).
const BLOCK_BYTES_MAX: u32 = 2 << 20;

/// Where the root of an index has the header of its entries.
pub(super) const ROOT_HEADER: usize = 16;

/// The sizes in an index, as powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a block: 512 to 2 MiB.
    pub(super) block_shift: u8,
    /// Of what blocks are numbered in: clusters, or parts of 512 bytes where those are larger than a block.
    pub(super) unit_shift: u8,
}

impl Shape {
    /// By the root, which begins at byte `at`.
    pub(super) fn of(root: &[u8], at: u64, cluster_bytes: u32) -> Result<Shape, TableError> {
        let block_bytes = u32_at(root, 8).unwrap_or(0);
        if !block_bytes.is_power_of_two() || !(512..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(damaged(at, &format!("blocks of {block_bytes} bytes")));
        }
        let unit_bytes = if cluster_bytes <= block_bytes { cluster_bytes } else { 512 };
        let shift = |bytes: u32| u8::try_from(bytes.trailing_zeros()).unwrap_or(0);
        Ok(Shape { block_shift: shift(block_bytes), unit_shift: shift(unit_bytes) })
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(self) -> u64 {
        1 << self.block_shift
    }
}

/// An index that isn't a sound one, by its byte and what is there.
pub(super) fn damaged(at: u64, found: &str) -> TableError {
    TableError::damaged("the index of a directory", at, "a sound one", found)
}

/// A name in a node.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) file: Reference,
    pub(super) key: FileName<'a>,
    /// Where it begins, with the number of the file, and where the name itself does, from the header on.
    pub(super) at: usize,
    pub(super) name_at: usize,
}

/// The names of a node, given from its header on, and whether they are all that is in the tree: whether no block lies below.
/// `None` when the entries can't be right. Each takes at least 16 bytes, so their number is bounded.
pub(super) fn entries<'a>(header: &'a [u8], each: &mut dyn FnMut(Entry<'a>)) -> Option<bool> {
    let mut at = usize::try_from(u32_at(header, 0)?).ok()?;
    let mut is_all = true;
    loop {
        let rest = header.get(at..)?;
        let length = usize::from(u16_at(rest, 8)?);
        let entry = rest.get(..length).filter(|entry| entry.len() >= 16)?;
        let flags = u16_at(entry, 12)?;
        is_all &= flags & 1 == 0;
        if flags & 2 != 0 {
            return Some(is_all);
        }
        let key = FileName::parse(slice_at(entry, 16, usize::from(u16_at(entry, 10)?))?)?;
        each(Entry { file: Reference::new(u64_at(entry, 0)?), key, at, name_at: at + 16 + 66 });
        at += length;
    }
}

/// What a node of the tree says of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Found(Reference),
    /// It may be in the block at this cluster of the index.
    Below(u64),
    Missing,
}

/// Looks an upper-case ASCII name up, whatever its case is in the directory.
pub(super) fn look_up<B: BlockRead>(
    mft: &Mft<B>,
    directory: u64,
    name: &[u8],
) -> Result<Option<Reference>, TableError> {
    let mut root = Vec::new();
    let mut root_at = 0;
    let mut blocks = Stream::default();
    read_file(mft, directory, &mut |attribute| {
        if !is_ascii(attribute.name, b"$I30") {
            return Ok(());
        }
        match (attribute.kind, &attribute.value) {
            (kind::INDEX_ROOT, Value::Resident(value)) => {
                root_at = attribute.at;
                root = value.to_vec();
                Ok(())
            }
            (kind::INDEX_ALLOCATION, _) => blocks.take(attribute, &mft.geometry),
            _ => Ok(()),
        }
    })?;
    let shape = Shape::of(&root, root_at, mft.geometry.cluster_bytes)?;
    let mut node = root;
    let (mut header_at, mut at) = (ROOT_HEADER, root_at);
    for _ in 0..DEPTH_MAX {
        let looked = look_in(node.get(header_at..).unwrap_or_default(), name);
        let vcn = match looked.ok_or_else(|| damaged(at, "entries that don't end"))? {
            Looked::Found(reference) => return Ok(Some(reference)),
            Looked::Missing => return Ok(None),
            Looked::Below(vcn) => vcn,
        };
        let start = vcn.checked_mul(1 << shape.unit_shift).ok_or_else(|| damaged(at, "a block beyond all"))?;
        let within = blocks.extents.iter().find(|extent| (extent.logical..extent.logical_end()).contains(&start));
        let place = within.and_then(|extent| Some(extent.physical? + (start - extent.logical)));
        at = place.ok_or_else(|| damaged(at, "a block that isn't there"))?;
        node = block(mft, &blocks, start, shape.block_bytes())?;
        apply_fixups(&mut node, *b"INDX", at)?;
        header_at = 24;
    }
    Err(damaged(at, "more levels than there can be"))
}

/// Reads a block, which may lie in several runs.
fn block<B: BlockRead>(mft: &Mft<B>, blocks: &Stream, start: u64, length: u64) -> Result<Vec<u8>, TableError> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let end = start.saturating_add(length);
    for extent in blocks.extents.iter().filter(|extent| extent.logical < end && extent.logical_end() > start) {
        let (from, to) = (extent.logical.max(start), extent.logical_end().min(end));
        let place = |at: u64| usize::try_from(at - start).unwrap_or(0);
        if let Some(physical) = extent.physical {
            mft.read_device(&mut bytes[place(from)..place(to)], physical + (from - extent.logical))?;
        }
    }
    Ok(bytes)
}

/// Looks through the entries of a node, given from its header on. `None` when they can't be right. Each entry takes at least
/// 16 bytes, so their number is bounded.
pub(super) fn look_in(header: &[u8], name: &[u8]) -> Option<Looked> {
    let first = usize::try_from(u32_at(header, 0)?).ok()?;
    let mut rest = header.get(first..)?;
    loop {
        let length = usize::from(u16_at(rest, 8)?);
        let entry = rest.get(..length).filter(|entry| entry.len() >= 16)?;
        let flags = u16_at(entry, 12)?;
        let (has_below, is_last) = (flags & 1 != 0, flags & 2 != 0);
        let order = match is_last {
            true => std::cmp::Ordering::Greater,
            false => {
                let key = FileName::parse(slice_at(entry, 16, usize::from(u16_at(entry, 10)?))?)?;
                let units = key.name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
                units.map(upper).cmp(name.iter().map(|byte| u16::from(*byte)))
            }
        };
        match order {
            std::cmp::Ordering::Equal => return Some(Looked::Found(Reference::new(u64_at(entry, 0)?))),
            std::cmp::Ordering::Greater if has_below => {
                return Some(Looked::Below(u64_at(entry, entry.len().checked_sub(8)?)?));
            }
            std::cmp::Ordering::Greater => return Some(Looked::Missing),
            std::cmp::Ordering::Less => rest = rest.get(length..)?,
        }
    }
}

/// The capital letter. Those beyond ASCII are greater than all of ASCII with or without it.
fn upper(unit: u16) -> u16 {
    match unit {
        0x61..=0x7a => unit - 0x20,
        _ => unit,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::names, *};

    /// An entry on the disk; the last one has no name.
    pub(in super::super) fn entry(directory: Reference, number: u64, name: &str, below: Option<u64>) -> Vec<u8> {
        entry_of(directory, Reference { number, sequence: 0 }, name, below)
    }

    /// The same with the sequence number of the file.
    pub(in super::super) fn entry_of(directory: Reference, file: Reference, name: &str, below: Option<u64>) -> Vec<u8> {
        let key = names::tests::on_disk(directory, name, 1);
        let is_last = name.is_empty();
        let key = if is_last { Vec::new() } else { key };
        let mut bytes = vec![0; (16 + key.len()).next_multiple_of(8)];
        bytes[..8].copy_from_slice(&(file.number | u64::from(file.sequence) << 48).to_le_bytes());
        bytes[10..12].copy_from_slice(&(key.len() as u16).to_le_bytes());
        bytes[12] = u8::from(below.is_some()) | if is_last { 2 } else { 0 };
        bytes[16..16 + key.len()].copy_from_slice(&key);
        bytes.extend(below.into_iter().flat_map(u64::to_le_bytes));
        let length = bytes.len() as u16;
        bytes[8..10].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    #[test]
    fn a_name_is_found_or_the_way_to_it() {
        let entry = |number, name: &str, below| entry(Reference { number: 5, sequence: 5 }, number, name, below);
        let found = |number| Some(Looked::Found(Reference { number, sequence: 0 }));
        let below = [16_u32.to_le_bytes().to_vec(), vec![0; 12], entry(30, "beta", Some(3)), entry(31, "Émil", None)];
        let node = [below.concat(), entry(0, "", Some(4))].concat();
        assert_eq!(look_in(&node, b"BETA"), found(30));
        assert_eq!(look_in(&node, b"ALPHA"), Some(Looked::Below(3)));
        assert_eq!(look_in(&node, b"GAMMA"), Some(Looked::Missing));
        let mut told = Vec::new();
        let is_all = entries(&node, &mut |entry| told.push((entry.file.number, entry.key.name, entry.name_at)));
        assert_eq!(is_all, Some(false), "there are blocks below");
        assert_eq!(told.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [30, 31]);
        assert!(told.iter().all(|(_, name, at)| node[*at..].starts_with(name)));
        let alone = [&below[0][..], &below[1], &entry(32, "gamma", None), &entry(0, "", None)].concat();
        assert_eq!(entries(&alone, &mut |entry| assert_eq!(entry.file.number, 32)), Some(true));
        for length in 0..node.len() {
            let _ = look_in(&node[..length], b"ZETA");
            assert_eq!(entries(&node[..length], &mut |_| {}), None);
        }
    }
}
