//! Where the extents of a file are asked for.
//!
//! [`Sources`] picks the best source that a file system has and remembers the choice: [`Fiemap`] for nearly all,
//! [`Fibmap`] for old ones when the caller is root, [`Unmapped`] for the rest, so that every file has a map and only
//! the order of reading gets worse.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

use onesweep_sys::features::features;
use onesweep_sys::fiemap::{self, FiemapBuffer, RawExtent};
use onesweep_sys::files::{EntryType, Stat};
use onesweep_sys::{fibmap, fiemap::extents};
use thiserror::Error;

use crate::extent::{Extent, ExtentFlags};

/// Extents asked for at once: 14 KiB of memory, and one call for almost every file.
const FIEMAP_BATCH: usize = 256;

/// Blocks of one file that are asked for one by one: 256 MiB at 4 KiB, some 20 ms.
const FIBMAP_BLOCKS_MAX: u64 = 1 << 16;

/// Extents end at the file's size rounded up to this; no device reads less than a divisor of it.
const CLIP_BYTES: u64 = 4096;

/// A source of extents.
pub trait LayoutSource {
    /// Calls `visit` for each extent of the first `size` bytes of `fd`, in file order, without overlaps; holes are
    /// left out.
    ///
    /// After an error, what was visited is to be thrown away.
    fn map(&mut self, fd: BorrowedFd<'_>, size: u64, visit: &mut dyn FnMut(Extent)) -> Result<Mapped, MapError>;
}

/// What a map amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Extents visited.
    pub extents: usize,
    /// Bytes in them, whether they have an address or not.
    pub bytes: u64,
    /// Bytes in them that have an address and must be read from it.
    pub addressed_bytes: u64,
}

/// Why a file has no map.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MapError {
    /// The file system cannot tell; not a failure, the order is unknown.
    #[error("the file system does not tell where its files lie")]
    Unsupported,
    /// The kernel refused or failed.
    #[error("the extents cannot be asked for")]
    Io(#[source] io::Error),
    /// The extents contradict each other, as those of a file that is being changed may.
    #[error("the extent at byte {logical} begins before byte {expected}, where the one before it ends")]
    Overlap {
        /// Where the extent begins.
        logical: u64,
        /// Where it may begin at the earliest.
        expected: u64,
    },
    /// An extent ends beyond the last byte that can be addressed.
    #[error("the extent at byte {logical} with {length} bytes at address {physical} has no end")]
    Endless {
        /// Where the extent begins in the file.
        logical: u64,
        /// Where it begins on the device.
        physical: u64,
        /// Its bytes.
        length: u64,
    },
}

impl From<io::Error> for MapError {
    fn from(error: io::Error) -> MapError {
        match error.raw_os_error() {
            Some(EOPNOTSUPP | ENOTTY) => MapError::Unsupported,
            _ => MapError::Io(error),
        }
    }
}

const ENOTTY: i32 = 25;
const EINVAL: i32 = 22;
const EPERM: i32 = 1;
const EOPNOTSUPP: i32 = 95;

/// Extents by `FS_IOC_FIEMAP`. Needs no privilege.
#[derive(Debug)]
pub struct Fiemap {
    buffer: FiemapBuffer,
}

impl Default for Fiemap {
    fn default() -> Fiemap {
        Fiemap { buffer: FiemapBuffer::new(FIEMAP_BATCH) }
    }
}

impl LayoutSource for Fiemap {
    fn map(&mut self, fd: BorrowedFd<'_>, size: u64, visit: &mut dyn FnMut(Extent)) -> Result<Mapped, MapError> {
        let mut map = Checked::new(size, visit);
        let mut wrong = None;
        extents(fd, &mut self.buffer, &mut |raw| {
            if wrong.is_none() {
                wrong = map.add(raw).err();
            }
        })?;
        wrong.map_or(Ok(map.mapped), Err)
    }
}

/// Extents by `FIBMAP`, block by block. Needs `CAP_SYS_RAWIO`.
///
/// Beyond the first 65536 blocks of a file the rest is one extent without an address.
#[derive(Debug, Default)]
pub struct Fibmap;

impl LayoutSource for Fibmap {
    fn map(&mut self, fd: BorrowedFd<'_>, size: u64, visit: &mut dyn FnMut(Extent)) -> Result<Mapped, MapError> {
        let block_bytes = fibmap::block_bytes(fd).map_err(|error| match error.raw_os_error() {
            Some(EPERM | EINVAL) => MapError::Unsupported,
            _ => MapError::from(error),
        })?;
        let block_bytes = u64::from(block_bytes.max(1));
        let blocks = size.div_ceil(block_bytes);
        let mut map = Checked::new(size, visit);
        let mut run: Option<RawExtent> = None;
        for number in 0..blocks.min(FIBMAP_BLOCKS_MAX) {
            let address = match fibmap::block_address(fd, number) {
                Ok(address) => address,
                Err(error) if matches!(error.raw_os_error(), Some(EPERM | EINVAL)) => {
                    return Err(MapError::Unsupported);
                }
                Err(error) => return Err(error.into()),
            };
            let physical = address.map(|block| block.saturating_mul(block_bytes));
            match (&mut run, physical) {
                (Some(run), Some(physical)) if run.physical + run.length == physical => run.length += block_bytes,
                (_, physical) => {
                    let next = physical.map(|physical| RawExtent {
                        logical: number * block_bytes,
                        physical,
                        length: block_bytes,
                        flags: fiemap::FIEMAP_EXTENT_MERGED,
                    });
                    if let Some(over) = std::mem::replace(&mut run, next) {
                        map.add(over)?;
                    }
                }
            }
        }
        if let Some(last) = run {
            map.add(last)?;
        }
        if blocks > FIBMAP_BLOCKS_MAX {
            map.add(without_address(FIBMAP_BLOCKS_MAX * block_bytes, size))?;
        }
        Ok(map.mapped)
    }
}

/// No addresses: each file is one extent without one.
#[derive(Debug, Default)]
pub struct Unmapped;

impl LayoutSource for Unmapped {
    fn map(&mut self, _: BorrowedFd<'_>, size: u64, visit: &mut dyn FnMut(Extent)) -> Result<Mapped, MapError> {
        let mut map = Checked::new(size, visit);
        map.add(without_address(0, size))?;
        Ok(map.mapped)
    }
}

/// All of a file from `logical` on, at an unknown place.
fn without_address(logical: u64, size: u64) -> RawExtent {
    RawExtent { logical, physical: 0, length: size.saturating_sub(logical), flags: fiemap::FIEMAP_EXTENT_UNKNOWN }
}

/// The extents of one file on their way out: checked, clipped to the file, and told apart by their flags.
pub(crate) struct Checked<'a> {
    /// Where the file ends, rounded up to [`CLIP_BYTES`].
    end: u64,
    /// Where the next extent may begin at the earliest.
    next: u64,
    pub(crate) mapped: Mapped,
    visit: &'a mut dyn FnMut(Extent),
}

impl<'a> Checked<'a> {
    pub(crate) fn new(size: u64, visit: &'a mut dyn FnMut(Extent)) -> Checked<'a> {
        Checked {
            end: size.checked_next_multiple_of(CLIP_BYTES).unwrap_or(size),
            next: 0,
            mapped: Mapped::default(),
            visit,
        }
    }

    pub(crate) fn add(&mut self, raw: RawExtent) -> Result<(), MapError> {
        let RawExtent { logical, physical, length, .. } = raw;
        let flags = ExtentFlags::from_bits_truncate(raw.flags);
        let endless = || MapError::Endless { logical, physical, length };
        let logical_end = logical.checked_add(length).ok_or_else(endless)?;
        let physical = address(physical, flags);
        if physical.is_some_and(|start| start.checked_add(length).is_none()) {
            return Err(endless());
        }
        if logical < self.next {
            let expected = self.next;
            return Err(MapError::Overlap { logical, expected });
        }
        self.next = logical_end;
        // Preallocated blocks behind the end of the file hold none of its bytes.
        let length = logical_end.min(self.end).saturating_sub(logical);
        if length == 0 {
            return Ok(());
        }
        let extent = Extent { logical, physical, length, flags };
        self.mapped.extents += 1;
        self.mapped.bytes += length;
        if physical.is_some() && !extent.is_zeros() {
            self.mapped.addressed_bytes += length;
        }
        (self.visit)(extent);
        Ok(())
    }
}

/// The address of an extent, when its flags leave it one.
fn address(physical: u64, flags: ExtentFlags) -> Option<u64> {
    let nowhere = flags.intersects(ExtentFlags::UNKNOWN | ExtentFlags::DELALLOC);
    // ext4 gives the place of the inode, btrfs 0.
    let somewhere_inline = flags.contains(ExtentFlags::INLINE) && physical == 0;
    (!nowhere && !somewhere_inline).then_some(physical)
}

/// One of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// [`Fiemap`].
    Fiemap,
    /// [`Fibmap`].
    Fibmap,
    /// [`Unmapped`].
    Unmapped,
}

/// The best source for each file system, found out at its first file.
#[derive(Debug, Default)]
pub struct Sources {
    fiemap: Fiemap,
    fibmap: Fibmap,
    unmapped: Unmapped,
    /// By device, and apart for directories, which some file systems do not map.
    known: HashMap<(u64, bool), SourceKind>,
}

impl Sources {
    /// Nothing known yet.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// The source for the file system of an open file, of which `stat` tells the facts.
    ///
    /// FIEMAP where it works (and is not hidden); else FIBMAP where it works, which needs root; else no addresses.
    pub fn choose(&mut self, fd: BorrowedFd<'_>, stat: &Stat) -> SourceKind {
        let key = (stat.dev, stat.file_type() == EntryType::Dir);
        if let Some(kind) = self.known.get(&key) {
            return *kind;
        }
        let kind = if features().fiemap && works(&mut self.fiemap, fd, stat.size) {
            SourceKind::Fiemap
        } else if stat.size > 0 && works(&mut self.fibmap, fd, 1) {
            SourceKind::Fibmap
        } else {
            SourceKind::Unmapped
        };
        // An empty file has no block to try FIBMAP on.
        if kind != SourceKind::Unmapped || stat.size > 0 {
            self.known.insert(key, kind);
        }
        kind
    }

    /// Maps a file by the best source that its file system has. Never fails with `Unsupported`.
    pub fn map(&mut self, fd: BorrowedFd<'_>, stat: &Stat, visit: &mut dyn FnMut(Extent)) -> Result<Mapped, MapError> {
        let kind = self.choose(fd, stat);
        match self.source(kind).map(fd, stat.size, visit) {
            // This one file is special, as those of a file system inside another may be.
            Err(MapError::Unsupported) => Unmapped.map(fd, stat.size, visit),
            mapped => mapped,
        }
    }

    /// A source by its kind.
    pub fn source(&mut self, kind: SourceKind) -> &mut dyn LayoutSource {
        match kind {
            SourceKind::Fiemap => &mut self.fiemap,
            SourceKind::Fibmap => &mut self.fibmap,
            SourceKind::Unmapped => &mut self.unmapped,
        }
    }
}

/// Whether a source knows this file system, even if the very file that it is tried on has something wrong.
fn works(source: &mut dyn LayoutSource, fd: BorrowedFd<'_>, size: u64) -> bool {
    !matches!(source.map(fd, size, &mut |_| ()), Err(MapError::Unsupported))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn raw(logical: u64, physical: u64, length: u64, flags: u32) -> RawExtent {
        RawExtent { logical, physical, length, flags }
    }

    /// Sends `all` through the checks for a file of `size` bytes.
    fn checked(size: u64, all: &[RawExtent]) -> Result<(Vec<Extent>, Mapped), MapError> {
        let mut extents = Vec::new();
        let mut visit = |extent| extents.push(extent);
        let mut map = Checked::new(size, &mut visit);
        all.iter().try_for_each(|&raw| map.add(raw))?;
        let mapped = map.mapped;
        Ok((extents, mapped))
    }

    #[test]
    fn preallocation_behind_the_end_is_cut_off() {
        let all = [raw(0, 1 << 20, 4096, 0), raw(4096, 9 << 20, 1 << 20, 0x800), raw(2 << 20, 0, 4096, 0x800)];
        let (extents, mapped) = checked(5000, &all).unwrap();
        assert_eq!(extents.len(), 2);
        assert_eq!((extents[1].logical, extents[1].length), (4096, 4096));
        assert!(extents[1].is_zeros() && !extents[0].is_zeros());
        assert_eq!(mapped, Mapped { extents: 2, bytes: 8192, addressed_bytes: 4096 });
    }

    #[test]
    fn flags_take_the_address_away() {
        let of = |physical, flags| checked(4096, &[raw(0, physical, 4096, flags)]).unwrap().0[0];
        assert_eq!(of(7 << 12, fiemap::FIEMAP_EXTENT_UNKNOWN).physical, None);
        assert_eq!(of(7 << 12, fiemap::FIEMAP_EXTENT_UNKNOWN | fiemap::FIEMAP_EXTENT_DELALLOC).physical, None);
        assert_eq!(of(0, fiemap::FIEMAP_EXTENT_DATA_INLINE).physical, None);
        assert_eq!(of(77, fiemap::FIEMAP_EXTENT_DATA_INLINE).physical, Some(77));
        assert_eq!(of(7 << 12, fiemap::FIEMAP_EXTENT_ENCODED).physical, Some(7 << 12));
        assert!(!of(7 << 12, fiemap::FIEMAP_EXTENT_ENCODED).is_plain());
        assert!(of(7 << 12, fiemap::FIEMAP_EXTENT_SHARED | fiemap::FIEMAP_EXTENT_LAST).is_plain());
    }

    #[test]
    fn garbage_is_refused() {
        let overlap = checked(1 << 20, &[raw(0, 0, 8192, 0), raw(4096, 1 << 20, 4096, 0)]);
        assert!(matches!(overlap, Err(MapError::Overlap { logical: 4096, expected: 8192 })));
        let backwards = checked(1 << 20, &[raw(8192, 0, 4096, 0), raw(0, 1 << 20, 4096, 0)]);
        assert!(matches!(backwards, Err(MapError::Overlap { logical: 0, .. })));
        assert!(matches!(checked(1, &[raw(u64::MAX, 0, 4096, 0)]), Err(MapError::Endless { .. })));
        assert!(matches!(checked(1, &[raw(0, u64::MAX, 4096, 0)]), Err(MapError::Endless { .. })));
        assert!(checked(1, &[raw(0, u64::MAX, 4096, fiemap::FIEMAP_EXTENT_UNKNOWN)]).is_ok());
    }

    #[test]
    fn empty_files_and_extents_have_nothing() {
        assert_eq!(checked(0, &[raw(0, 4096, 4096, 0)]).unwrap().1, Mapped::default());
        assert_eq!(checked(100, &[raw(0, 4096, 0, 0)]).unwrap().1, Mapped::default());
    }

    #[test]
    fn unmapped_file_is_one_extent() {
        let file = tempfile::tempfile().unwrap();
        let mut all = Vec::new();
        let mapped = Unmapped.map(file.as_fd(), 10_000, &mut |extent| all.push(extent)).unwrap();
        assert_eq!(mapped, Mapped { extents: 1, bytes: 10_000, addressed_bytes: 0 });
        let flags = ExtentFlags::UNKNOWN;
        assert_eq!(all, [Extent { logical: 0, physical: None, length: 10_000, flags }]);
        assert_eq!(Unmapped.map(file.as_fd(), 0, &mut |_| ()).unwrap(), Mapped::default());
    }
}
