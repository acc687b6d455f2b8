//! Files: what keeps one from being moved, and how it gets ready.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use onesweep_layout::source::{LayoutSource, MapError};
use onesweep_layout::{Extent, ExtentFlags};
use onesweep_sys::{
    cache::{Residency, drop_cached, prefetch, residency},
    files::{CURRENT_DIR, EntryType, Stat, is_no_file, open_file_to_write, open_file_untouched, statx_at, statx_fd},
    inode::{self, flags},
    memory::page_bytes,
};

use super::{EACCES, EAGAIN, EOPNOTSUPP, EPERM, EROFS, ETXTBSY, Ext4};
use crate::host::{Failure, Looked, Opened, Stays, Trouble};
use crate::places::{Places, Run};

/// A file that is open for reading and writing.
#[derive(Debug)]
pub struct MovableFile {
    fd: OwnedFd,
    path: PathBuf,
}

impl MovableFile {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

pub(super) fn look(host: &mut Ext4, path: &Path) -> Result<Looked, Trouble> {
    // What may not be read is seen before it is opened, and no fifo or device is opened.
    let stat = statx_at(CURRENT_DIR, path, true).map_err(|error| trouble("look at it", path, error))?;
    if stat.file_type() != EntryType::File {
        return Err(Stays::NoFile.into());
    }
    let fd = open_file_untouched(path).map_err(|error| trouble("open it", path, error))?;
    let stat = statx_fd(fd.as_fd()).map_err(|error| trouble("look at it", path, error))?;
    same_file_system(host, &stat)?;
    let flagged = flags(fd.as_fd()).map_err(|error| trouble("ask for its flags", path, error))?;
    let flagged = flagged.and_then(stays_by_flags);
    let (places, mapped) = places(host, fd.as_fd(), path)?;
    Ok(Looked { inode: stat.ino, places, stays: flagged.or(mapped) })
}

pub(super) fn announce(path: &Path) {
    let Ok(fd) = open_file_untouched(path) else { return };
    let Ok(stat) = statx_fd(fd.as_fd()) else { return };
    if residency(fd.as_fd(), 0, 0).is_ok_and(|told| told.cached < stat.size.div_ceil(page_bytes())) {
        let _ = prefetch(fd.as_fd(), 0, stat.size);
    }
}

pub(super) fn open(host: &mut Ext4, path: &Path, inode: u64) -> Result<Opened<MovableFile>, Trouble> {
    let fd = open_file_to_write(path).map_err(|error| match error.raw_os_error() {
        Some(ETXTBSY) => Stays::Running.into(),
        Some(EAGAIN) => Stays::Leased.into(),
        Some(EPERM | EACCES) => flagged_or_denied(path).into(),
        _ => trouble("open it for writing", path, error),
    })?;
    let stat = statx_fd(fd.as_fd()).map_err(|error| trouble("look at it", path, error))?;
    if stat.ino != inode || stat.file_type() != EntryType::File {
        return Err(Stays::Gone.into());
    }
    same_file_system(host, &stat)?;
    let read_back = ready(host, fd.as_fd(), path, stat.size)?;
    let (places, stays) = places(host, fd.as_fd(), path)?;
    match stays {
        Some(stays) => Err(stays.into()),
        None => Ok(Opened { file: MovableFile { fd, path: path.to_owned() }, places, read_back }),
    }
}

fn same_file_system(host: &Ext4, stat: &Stat) -> Result<(), Stays> {
    if stat.dev == host.dev { Ok(()) } else { Err(Stays::Gone) }
}

/// The kernel says the same to both.
fn flagged_or_denied(path: &Path) -> Stays {
    let told = open_file_untouched(path).and_then(|fd| flags(fd.as_fd()));
    told.ok().flatten().and_then(stays_by_flags).unwrap_or(Stays::Denied)
}

/// Bytes in memory that are also on the disk, in small pages; true when they had to be read again.
fn ready(host: &Ext4, fd: BorrowedFd<'_>, path: &Path, size: u64) -> Result<bool, Trouble> {
    let failed = |doing| move |error| trouble(doing, path, error);
    let (page, pages) = (page_bytes(), size.div_ceil(page_bytes()));
    let told = residency(fd, 0, 0).map_err(failed("ask what of it is in memory"))?;
    refuse_dirty(&told)?;
    if told.cached < pages {
        if !host.reading.uncached {
            return Err(Stays::NotCached.into());
        }
        prefetch(fd, 0, size).map_err(failed("read it"))?;
    }
    if !host.has_slow_folios || size <= page {
        return Ok(false);
    }
    let Ok(bytes) = usize::try_from(size) else { return Err(Stays::LargePages.into()) };
    let told = host.folios.as_ref().map(|folios| folios.any_large(fd, bytes)).transpose();
    if told.map_err(failed("ask for its pages in memory"))?.flatten() == Some(false) {
        return Ok(false);
    }
    if !host.reading.large_pages {
        return Err(Stays::LargePages.into());
    }
    drop_cached(fd, 0, 0).map_err(failed("drop it from memory"))?;
    let told = residency(fd, 0, 0).map_err(failed("ask what of it is in memory"))?;
    if told.cached > 0 {
        return Err(Stays::Busy.into());
    }
    // Announced pages are small ones, whatever the size of the file.
    prefetch(fd, 0, size).map_err(failed("read it"))?;
    Ok(true)
}

fn refuse_dirty(told: &Residency) -> Result<(), Stays> {
    let is_clean = told.dirty.unwrap_or(0) == 0 && told.writeback.unwrap_or(0) == 0;
    if is_clean { Ok(()) } else { Err(Stays::Busy) }
}

/// Where the blocks that a reader would read lie, and why they can't be moved.
pub(super) fn places(host: &mut Ext4, fd: BorrowedFd<'_>, path: &Path) -> Result<(Places, Option<Stays>), Trouble> {
    let size = statx_fd(fd).map_err(|error| trouble("look at it", path, error))?.size;
    let block = host.block_bytes;
    let (mut runs, mut stays) = (Vec::new(), None);
    let told = host.fiemap.map(fd, size, &mut |extent| match run(&extent, block) {
        Ok(run) => runs.push(run),
        Err(reason) => stays = stays.or(Some(reason)),
    });
    match told {
        Ok(_) => {}
        Err(MapError::Io(error)) => return Err(trouble("ask where it lies", path, error)),
        // It is being changed.
        Err(MapError::Overlap { .. }) => return Err(Stays::Busy.into()),
        Err(_) => return Err(Stays::Unsupported.into()),
    }
    let places = Places::of(runs).ok_or(Stays::Unsupported)?;
    Ok((places, stays))
}

fn run(extent: &Extent, block: u64) -> Result<Run, Stays> {
    let flags = extent.flags;
    if flags.contains(ExtentFlags::INLINE) {
        return Err(Stays::Inline);
    }
    if flags.contains(ExtentFlags::ENCRYPTED) {
        return Err(Stays::Encrypted);
    }
    if flags.intersects(ExtentFlags::DELALLOC | ExtentFlags::UNKNOWN) {
        return Err(Stays::Busy);
    }
    if flags.contains(ExtentFlags::UNWRITTEN) {
        return Err(Stays::Preallocated);
    }
    // Only blocks that are joined for the answer carry this.
    if flags.contains(ExtentFlags::MERGED) {
        return Err(Stays::NoExtents);
    }
    match extent.physical {
        Some(place) if place.is_multiple_of(block) && extent.logical.is_multiple_of(block) && extent.is_plain() => {
            Ok(Run { logical: extent.logical / block, place: place / block, blocks: extent.length.div_ceil(block) })
        }
        _ => Err(Stays::Unsupported),
    }
}

fn stays_by_flags(flags: u32) -> Option<Stays> {
    let kinds = [
        (inode::FLAG_IMMUTABLE, Stays::Immutable),
        (inode::FLAG_APPEND, Stays::AppendOnly),
        (inode::FLAG_ENCRYPTED, Stays::Encrypted),
        (inode::FLAG_VERITY, Stays::Verity),
        (inode::FLAG_JOURNALED, Stays::Journaled),
        (inode::FLAG_DAX, Stays::Dax),
        (inode::FLAG_INLINE, Stays::Inline),
    ];
    let flagged = kinds.into_iter().find(|(flag, _)| flags & flag != 0).map(|(_, stays)| stays);
    flagged.or((flags & inode::FLAG_EXTENTS == 0).then_some(Stays::NoExtents))
}

/// What an error of one file means: most are for it alone.
fn trouble(doing: &'static str, path: &Path, error: io::Error) -> Trouble {
    if is_no_file(&error) || error.kind() == io::ErrorKind::NotADirectory {
        return Stays::Gone.into();
    }
    match error.raw_os_error() {
        Some(EPERM | EACCES) => Stays::Denied.into(),
        Some(EAGAIN) => Stays::Leased.into(),
        Some(EOPNOTSUPP) => Stays::Unsupported.into(),
        Some(EROFS) | Some(_) | None => Failure::new(doing, path, error).into(),
    }
}
