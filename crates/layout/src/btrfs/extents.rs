//! The extents of a file by its items.

use std::io;
use std::os::fd::BorrowedFd;

use onesweep_sys::btrfs::{self, Key, SearchBuffer};
use onesweep_sys::fiemap::{
    FIEMAP_EXTENT_DATA_INLINE, FIEMAP_EXTENT_ENCODED, FIEMAP_EXTENT_NOT_ALIGNED, FIEMAP_EXTENT_SHARED,
    FIEMAP_EXTENT_UNWRITTEN, RawExtent,
};
use onesweep_sys::files::Stat;

use super::items::{FileExtent, ItemError};
use super::kind;
use crate::extent::Extent;
use crate::source::{Checked, MapError, Mapped};

/// The items of the subvolume that a file lies in.
const OWN_TREE: u64 = 0;

/// Data that is compressed into an item stands for whole blocks.
const BLOCK: u64 = 4096;

/// Extents of one file that are looked at; FIEMAP tells of more.
const EXTENTS_MAX: usize = 1 << 16;

/// Extents by the items of a file, which is what FIEMAP makes its answer from; but it looks in the extent tree for others
/// that share them, too, and that tree must then come from the disk. Needs root.
///
/// Addresses are those of btrfs. Every plain extent counts as shared, since it may be.
#[derive(Debug, Default)]
pub struct ItemExtents {
    buffer: SearchBuffer,
    extents: Vec<RawExtent>,
}

impl ItemExtents {
    /// As [`LayoutSource::map`](crate::LayoutSource::map), of an open file with these facts.
    ///
    /// `Unsupported`, and nothing visited, when not all of it may be told: items come behind the last write to the device.
    /// Until then a hole or an unwritten extent is where bytes will be; but the blocks that the file takes are counted at
    /// once. Such files, and those with extents that are unwritten, are left to FIEMAP.
    pub fn map(&mut self, fd: BorrowedFd<'_>, stat: &Stat, visit: &mut dyn FnMut(Extent)) -> Result<Mapped, MapError> {
        let extents = self.extents(fd, stat.ino)?;
        let allocated = extents.iter().try_fold(0_u64, |bytes, extent| bytes.checked_add(extent.length));
        let is_all = allocated.is_some_and(|bytes| Some(bytes) == stat.blocks.checked_mul(512));
        if !is_all || extents.iter().any(|extent| extent.flags & FIEMAP_EXTENT_UNWRITTEN != 0) {
            return Err(MapError::Unsupported);
        }
        let mut map = Checked::new(stat.size, visit);
        extents.iter().try_for_each(|&extent| map.add(extent))?;
        Ok(map.mapped)
    }

    /// All extents that the items of an inode tell, in the words of FIEMAP, neighbours joined.
    pub fn extents(&mut self, fd: BorrowedFd<'_>, ino: u64) -> Result<&[RawExtent], MapError> {
        let Self { buffer, extents } = self;
        extents.clear();
        let mut wrong = None;
        let key = |offset| Key { objectid: ino, kind: kind::EXTENT_DATA, offset };
        btrfs::search(fd, buffer, OWN_TREE, (key(0), key(u64::MAX)), &mut |item| {
            wrong = keep(extents, item.key.offset, item.data).map_err(damaged).err();
            if wrong.is_none() && extents.len() > EXTENTS_MAX {
                wrong = Some(MapError::Unsupported);
            }
            wrong.is_none()
        })?;
        wrong.map_or(Ok(extents), Err)
    }
}

/// Adds what the item at a byte of the file tells, to the extent before it where it goes on from there.
pub(crate) fn keep(extents: &mut Vec<RawExtent>, logical: u64, item: &[u8]) -> Result<(), ItemError> {
    let Some(next) = raw(logical, &FileExtent::parse(item)?) else { return Ok(()) };
    match extents.last_mut() {
        Some(run) if continues(run, &next) => run.length += next.length,
        _ => extents.push(next),
    }
    Ok(())
}

fn damaged(error: ItemError) -> MapError {
    MapError::Io(io::Error::new(io::ErrorKind::InvalidData, error))
}

/// What FIEMAP would say.
fn raw(logical: u64, extent: &FileExtent) -> Option<RawExtent> {
    match *extent {
        FileExtent::Hole { .. } => None,
        FileExtent::Inline { length, compressed } => {
            let encoded = if compressed { FIEMAP_EXTENT_ENCODED } else { 0 };
            let flags = FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED | encoded;
            let length = length.checked_next_multiple_of(BLOCK)?;
            Some(RawExtent { logical, physical: 0, length, flags })
        }
        FileExtent::Regular { address, length, encoded, unwritten } => {
            let flags = match (encoded, unwritten) {
                (_, true) => FIEMAP_EXTENT_UNWRITTEN,
                (true, false) => FIEMAP_EXTENT_ENCODED,
                (false, false) => FIEMAP_EXTENT_SHARED,
            };
            Some(RawExtent { logical, physical: address, length, flags })
        }
    }
}

/// Whether an extent goes on where the one before it ends, in the file and at its address.
fn continues(run: &RawExtent, next: &RawExtent) -> bool {
    let is_packed = run.flags & (FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_INLINE) != 0;
    run.flags == next.flags
        && !is_packed
        && run.logical.checked_add(run.length) == Some(next.logical)
        && run.physical.checked_add(run.length) == Some(next.physical)
}
