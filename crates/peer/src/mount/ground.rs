//! What is raced over: a device, or a file of a tree as it was found.

use std::{io, ops::Range};

use onesweep_sys::buffer::BufferPart;

use crate::{
    id::Hash,
    index::{Block, Geometry, Learned},
    race::Policy,
};

/// What becomes of a local read: its bytes, from the beginning of the range on.
pub(super) type Answered<'a> = &'a mut dyn FnMut(io::Result<&[u8]>);

/// One row of blocks, on the disk and in the index.
pub(super) trait Ground: Send + Sync {
    /// Its blocks.
    fn geometry(&self) -> Geometry;

    /// The file of a tree, by its number.
    fn inode(&self) -> Option<u64> {
        None
    }

    /// Local reads begin and end at multiples of it.
    fn unit_bytes(&self) -> u64;

    /// Whether local reads can tell the index what it doesn't know.
    fn learns(&self) -> bool;

    /// What the index knows of some blocks.
    fn known(&self, blocks: Range<u64>) -> Vec<Block>;

    /// Who is asked first for these bytes, where it isn't as usual.
    fn policy(&self, bytes: &Range<u64>) -> Option<Policy>;

    /// Reads from the disk, hands over what came, and then has the index learn from it, where it is to.
    fn read_local(&self, range: Range<u64>, learns: bool, answered: Answered<'_>) -> Learned;

    /// A server had what the disk couldn't read. The bytes begin with the first block.
    fn rescued(&self, _first: u64, _hashes: &[Option<Hash>], _bytes: &[u8]) {}

    /// Whether what can't be read is written again.
    fn mends(&self) -> bool {
        false
    }

    /// Reads from the disk once nobody writes a block again.
    fn read_behind_writes(&self, _range: &Range<u64>) -> io::Result<BufferPart> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The part of some bytes that is whole blocks.
pub(super) fn whole_blocks<'a>(geometry: &Geometry, at: u64, bytes: &'a [u8]) -> &'a [u8] {
    let block_bytes = u64::from(geometry.block_bytes);
    let (first, end) = (at.next_multiple_of(block_bytes), at + bytes.len() as u64);
    // The last block may be shorter.
    let end = if end == geometry.device_bytes { end } else { end / block_bytes * block_bytes };
    bytes.get((first - at) as usize..(end.max(first) - at) as usize).unwrap_or_default()
}
