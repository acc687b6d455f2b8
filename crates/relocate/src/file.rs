//! Files of mounted file systems: what keeps one from being moved, and how it gets ready.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use onesweep_layout::source::{Fiemap, LayoutSource, MapError};
use onesweep_layout::{Extent, ExtentFlags};
use onesweep_sys::{
    cache::{Residency, prefetch, residency},
    files::{
        CURRENT_DIR, EntryType, Stat, is_encrypted, is_no_file, is_untouched, is_verity, open_file_in_memory,
        open_file_to_write, open_file_untouched, read_at, read_at_if_cached, statx_at, statx_fd,
    },
    inode::{self, flags},
    memory::page_bytes,
};

use crate::errno::{EACCES, EAGAIN, ENODATA, ENOKEY, EOPNOTSUPP, EPERM, ESTALE, ETXTBSY};
use crate::host::{Failure, Looked, Stays, Trouble, Uncached};
use crate::places::{Places, Run};

/// A file that is open for reading and writing.
#[derive(Debug)]
pub struct MovableFile {
    fd: OwnedFd,
    path: PathBuf,
}

impl MovableFile {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same file by another descriptor alone.
    pub(crate) fn opened_as(self, fd: OwnedFd) -> MovableFile {
        MovableFile { fd, path: self.path }
    }
}

/// A file system as its files are asked about.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Its files have this device.
    pub(crate) dev: u64,
    /// Bytes of a block.
    pub(crate) block_bytes: u64,
    pub(crate) fiemap: Fiemap,
}

impl Asked {
    pub(crate) fn new(dev: u64, block_bytes: u64) -> Asked {
        Asked { dev, block_bytes: block_bytes.max(1), fiemap: Fiemap::default() }
    }

    /// Looks at a file; `by_flags` tells from its flags why it stays.
    pub(crate) fn look(&mut self, path: &Path, by_flags: fn(u32) -> Option<Stays>) -> Result<Looked, Trouble> {
        // What may not be read is seen before it is opened, and no fifo or device is opened.
        let stat = statx_at(CURRENT_DIR, path, true).map_err(|error| trouble("look at it", path, error))?;
        if stat.file_type() != EntryType::File {
            return Err(Stays::NoFile.into());
        }
        let fd = open_file_untouched(path).map_err(|error| not_opened_to_read(path, error))?;
        self.look_at_open(fd.as_fd(), path, by_flags)
    }

    /// The same, if nothing has to be read from the disk for it.
    pub(crate) fn look_in_memory(
        &mut self,
        path: &Path,
        by_flags: fn(u32) -> Option<Stays>,
    ) -> Result<Option<Looked>, Trouble> {
        let opened = open_file_in_memory(path).map_err(|error| not_opened_to_read(path, error))?;
        let Some(fd) = opened else { return Ok(None) };
        let stat = statx_fd(fd.as_fd()).map_err(|error| trouble("look at it", path, error))?;
        if stat.file_type() != EntryType::File {
            return Err(Stays::NoFile.into());
        }
        let told = residency(fd.as_fd(), 0, 0).map_err(|error| trouble("ask what of it is in memory", path, error))?;
        refuse_dirty(&told)?;
        let looked = self.look_at_open(fd.as_fd(), path, by_flags)?;
        let is_in_memory = told.cached >= stat.size.div_ceil(page_bytes());
        Ok(Some(Looked { stays: looked.stays.or((!is_in_memory).then_some(Stays::NotCached)), ..looked }))
    }

    fn look_at_open(
        &mut self,
        fd: BorrowedFd<'_>,
        path: &Path,
        by_flags: fn(u32) -> Option<Stays>,
    ) -> Result<Looked, Trouble> {
        let stat = statx_fd(fd).map_err(|error| trouble("look at it", path, error))?;
        self.same_file_system(&stat)?;
        let flagged = flags(fd).map_err(|error| trouble("ask for its flags", path, error))?;
        let (places, mapped) = self.places(fd, path)?;
        Ok(Looked { inode: stat.ino, places, stays: flagged.and_then(by_flags).or(mapped) })
    }

    /// Opens a file that had this inode for reading and writing.
    pub(crate) fn open(
        &self,
        path: &Path,
        inode: u64,
        by_flags: fn(u32) -> Option<Stays>,
    ) -> Result<(MovableFile, Stat), Trouble> {
        self.opened(open_to_write(path, by_flags)?, path, inode)
    }

    /// What was opened, if it is the file that had this inode.
    pub(crate) fn opened(&self, fd: OwnedFd, path: &Path, inode: u64) -> Result<(MovableFile, Stat), Trouble> {
        let stat = statx_fd(fd.as_fd()).map_err(|error| trouble("look at it", path, error))?;
        if stat.ino != inode || stat.file_type() != EntryType::File {
            return Err(Stays::Gone.into());
        }
        self.same_file_system(&stat)?;
        Ok((MovableFile { fd, path: path.to_owned() }, stat))
    }

    fn same_file_system(&self, stat: &Stat) -> Result<(), Stays> {
        if stat.dev == self.dev { Ok(()) } else { Err(Stays::Gone) }
    }

    /// Where the blocks that a reader would read lie, and why they can't be moved.
    pub(crate) fn places(&mut self, fd: BorrowedFd<'_>, path: &Path) -> Result<(Places, Option<Stays>), Trouble> {
        let size = statx_fd(fd).map_err(|error| trouble("look at it", path, error))?.size;
        let block = self.block_bytes;
        let (mut runs, mut stays) = (Vec::new(), None);
        let told = self.fiemap.map(fd, size, &mut |extent| {
            let reason = match run(&extent, block, size) {
                Ok(run) => {
                    runs.push(run);
                    extent.flags.contains(ExtentFlags::SHARED).then_some(Stays::Shared)
                }
                Err(reason) => Some(reason),
            };
            stays = stays.or(reason);
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

    /// Where the blocks of a donor of so many bytes lie.
    pub(crate) fn donor_places(&mut self, fd: BorrowedFd<'_>, bytes: u64) -> io::Result<Places> {
        let (mut runs, block) = (Vec::new(), self.block_bytes);
        let told = self.fiemap.map(fd, bytes, &mut |extent| {
            let place = extent.physical.map(|place| place / block);
            runs.extend(place.map(|place| Run {
                logical: extent.logical / block,
                place,
                blocks: extent.length / block,
            }));
        });
        match told {
            Ok(_) => Places::of(runs).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(MapError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

pub(crate) fn open_to_write(path: &Path, by_flags: fn(u32) -> Option<Stays>) -> Result<OwnedFd, Trouble> {
    open_file_to_write(path).map_err(|error| not_opened(path, by_flags, error))
}

pub(crate) fn not_opened(path: &Path, by_flags: fn(u32) -> Option<Stays>, error: io::Error) -> Trouble {
    match error.raw_os_error() {
        Some(ETXTBSY) => Stays::Running.into(),
        Some(EAGAIN) => Stays::Leased.into(),
        Some(ESTALE) => Stays::Gone.into(),
        Some(EPERM | EACCES) => flagged_or_denied(path, by_flags).into(),
        _ => trouble("open it for writing", path, error),
    }
}

/// Encrypted files are opened by nobody who lacks their key, and kernels without encryption or fs-verity open no such files at all.
fn not_opened_to_read(path: &Path, error: io::Error) -> Trouble {
    match error.raw_os_error() {
        Some(EOPNOTSUPP | ENODATA | ENOKEY) if is_encrypted(path).unwrap_or(false) => Stays::Encrypted.into(),
        Some(EOPNOTSUPP) if is_verity(path).unwrap_or(false) => Stays::Verity.into(),
        _ => trouble("open it", path, error),
    }
}

/// Has a file read that is not in memory.
pub(crate) fn announce(path: &Path) {
    let Ok(fd) = open_file_untouched(path) else { return };
    let Ok(stat) = statx_fd(fd.as_fd()) else { return };
    if residency(fd.as_fd(), 0, 0).is_ok_and(|told| told.cached < stat.size.div_ceil(page_bytes())) {
        let _ = prefetch(fd.as_fd(), 0, stat.size);
    }
}

/// Reads a file, so that it is in memory. Its access time stays, or it isn't read.
pub(crate) fn read_back(path: &Path) -> io::Result<()> {
    let fd = open_file_untouched(path)?;
    let (mut bytes, mut at) = (vec![0; 64 << 10], 0);
    loop {
        match read_at(fd.as_fd(), &mut bytes, at) {
            Ok(0) => return Ok(()),
            Ok(read) => at += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sees to it that the bytes of a file are in memory, and also on the disk.
pub(crate) fn clean_in_memory(file: &MovableFile, size: u64, uncached: Uncached) -> Result<(), Trouble> {
    let failed = |doing| move |error| trouble(doing, file.path(), error);
    let told = residency(file.fd(), 0, 0).map_err(failed("ask what of it is in memory"))?;
    refuse_dirty(&told)?;
    if told.cached < size.div_ceil(page_bytes()) {
        if uncached == Uncached::Stays {
            return Err(Stays::NotCached.into());
        }
        prefetch(file.fd(), 0, size).map_err(failed("read it"))?;
    }
    // A page may be there and hold nothing: it could not be read. Where reading would leave a trace, the exchange finds out.
    if is_untouched(file.fd()) && !has_bytes(file, size, uncached).map_err(failed("read it"))? {
        return Err(Stays::NotCached.into());
    }
    Ok(())
}

/// Reads a file, up to so many bytes; false where the disk would be needed for that, and isn't to be asked.
fn has_bytes(file: &MovableFile, size: u64, uncached: Uncached) -> io::Result<bool> {
    let (mut bytes, mut at) = (vec![0; size.min(64 << 10) as usize], 0);
    while at < size {
        let read = match uncached {
            Uncached::Read => read_at(file.fd(), &mut bytes, at),
            Uncached::Stays => match read_at_if_cached(file.fd(), &mut bytes, at) {
                Ok(None) => return Ok(false),
                told => told.map(Option::unwrap_or_default),
            },
        };
        match read {
            // It was cut: its places are asked for later.
            Ok(0) => break,
            Ok(read) => at += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The kernel says the same to both.
fn flagged_or_denied(path: &Path, by_flags: fn(u32) -> Option<Stays>) -> Stays {
    let told = open_file_untouched(path).and_then(|fd| flags(fd.as_fd()));
    told.ok().flatten().and_then(by_flags).unwrap_or(Stays::Denied)
}

fn refuse_dirty(told: &Residency) -> Result<(), Stays> {
    let is_clean = told.dirty.unwrap_or(0) == 0 && told.writeback.unwrap_or(0) == 0;
    if is_clean { Ok(()) } else { Err(Stays::Busy) }
}

fn run(extent: &Extent, block: u64, size: u64) -> Result<Run, Stays> {
    let flags = extent.flags;
    if flags.contains(ExtentFlags::INLINE) {
        return Err(Stays::Inline);
    }
    if flags.contains(ExtentFlags::ENCRYPTED) {
        return Err(Stays::Encrypted);
    }
    if flags.contains(ExtentFlags::ENCODED) && extent.physical.is_some() {
        return Err(Stays::Compressed);
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
            // Blocks behind the end may be there for what the file grows by.
            let end = extent.logical_end().min(size).div_ceil(block);
            let logical = extent.logical / block;
            Ok(Run { logical, place: place / block, blocks: end.saturating_sub(logical) })
        }
        _ => Err(Stays::Unsupported),
    }
}

/// Of flags that mean the same on all file systems.
pub(crate) fn stays_by_flags(flags: u32) -> Option<Stays> {
    let kinds = [
        (inode::FLAG_IMMUTABLE, Stays::Immutable),
        (inode::FLAG_APPEND, Stays::AppendOnly),
        (inode::FLAG_ENCRYPTED, Stays::Encrypted),
        (inode::FLAG_VERITY, Stays::Verity),
        (inode::FLAG_JOURNALED, Stays::Journaled),
        (inode::FLAG_DAX, Stays::Dax),
        (inode::FLAG_INLINE, Stays::Inline),
    ];
    kinds.into_iter().find(|(flag, _)| flags & flag != 0).map(|(_, stays)| stays)
}

/// What an error of one file means: most are for it alone.
pub(crate) fn trouble(doing: &'static str, path: &Path, error: io::Error) -> Trouble {
    if is_no_file(&error) || error.kind() == io::ErrorKind::NotADirectory {
        return Stays::Gone.into();
    }
    match error.raw_os_error() {
        Some(EPERM | EACCES) => Stays::Denied.into(),
        Some(EAGAIN) => Stays::Leased.into(),
        Some(EOPNOTSUPP) => Stays::Unsupported.into(),
        _ => Failure::new(doing, path, error).into(),
    }
}
