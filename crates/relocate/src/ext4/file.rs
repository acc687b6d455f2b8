//! Files of ext4: what keeps one from being moved, and how it gets ready.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use onesweep_sys::{
    cache::{drop_cached, prefetch, residency},
    files::statx_fd,
    handle::{Access, FileHandle, open_by_handle},
    inode::{self, generation as generation_of},
    memory::page_bytes,
};

use super::Ext4;
use crate::errno::EPERM;
use crate::file::{MovableFile, clean_in_memory, not_opened, open_to_write, stays_by_flags, trouble};
use crate::host::{Opened, Stays, Trouble};

pub(super) fn open(host: &mut Ext4, path: &Path, inode: u64) -> Result<Opened<MovableFile>, Trouble> {
    let fd = open_to_write(path, by_flags)?;
    prepare(host, fd, path, inode)
}

/// The file that had this inode, under whatever name it has now where the caller is root, else under its old one.
pub(super) fn open_again(
    host: &mut Ext4,
    path: &Path,
    inode: u64,
    generation: u32,
) -> Result<Opened<MovableFile>, Trouble> {
    let is_it = |fd: BorrowedFd<'_>| {
        statx_fd(fd).is_ok_and(|stat| stat.ino == inode) && generation_of(fd).is_ok_and(|told| told == Some(generation))
    };
    let named = open_to_write(path, by_flags);
    if let Ok(fd) = named
        && is_it(fd.as_fd())
    {
        return prepare(host, fd, path, inode);
    }
    // `FILEID_INO32_GEN`: what ext4 names its inodes by.
    const KIND: i32 = 1;
    let number = u32::try_from(inode).map_err(|_| Stays::Gone)?;
    let identity = [number.to_ne_bytes(), generation.to_ne_bytes()].concat();
    let handle = FileHandle::new(KIND, &identity).ok_or(Stays::Gone)?;
    match open_by_handle(host.root.as_fd(), &handle, Access::Write) {
        Ok(fd) if is_it(fd.as_fd()) => prepare(host, fd, path, inode),
        Err(error) if error.raw_os_error() != Some(EPERM) => Err(not_opened(path, by_flags, error)),
        // As an ordinary user there is its old name alone.
        _ => Err(open_to_write(path, by_flags).err().unwrap_or(Stays::Gone.into())),
    }
}

/// Its bytes in memory and on the disk.
fn prepare(host: &mut Ext4, fd: OwnedFd, path: &Path, inode: u64) -> Result<Opened<MovableFile>, Trouble> {
    let (file, stat) = host.asked.opened(fd, path, inode)?;
    let read_back = ready(host, &file, stat.size)?;
    let (places, stays) = host.asked.places(file.fd(), path)?;
    match stays {
        Some(stays) => Err(stays.into()),
        None => Ok(Opened { file, places, read_back }),
    }
}

/// Bytes in memory that are also on the disk, in small pages; true when they had to be read again.
fn ready(host: &Ext4, file: &MovableFile, size: u64) -> Result<bool, Trouble> {
    clean_in_memory(file, size, host.reading.uncached)?;
    if !host.has_slow_folios || size <= page_bytes() {
        return Ok(false);
    }
    let failed = |doing| move |error| trouble(doing, file.path(), error);
    let Ok(bytes) = usize::try_from(size) else { return Err(Stays::LargePages.into()) };
    let told = host.folios.as_ref().map(|folios| folios.any_large(file.fd(), bytes)).transpose();
    if told.map_err(failed("ask for its pages in memory"))?.flatten() == Some(false) {
        return Ok(false);
    }
    if !host.reading.large_pages {
        return Err(Stays::LargePages.into());
    }
    drop_cached(file.fd(), 0, 0).map_err(failed("drop it from memory"))?;
    let told = residency(file.fd(), 0, 0).map_err(failed("ask what of it is in memory"))?;
    if told.cached > 0 {
        return Err(Stays::Busy.into());
    }
    // Announced pages are small ones, whatever the size of the file.
    prefetch(file.fd(), 0, size).map_err(failed("read it"))?;
    Ok(true)
}

pub(super) fn by_flags(flags: u32) -> Option<Stays> {
    stays_by_flags(flags).or((flags & inode::FLAG_EXTENTS == 0).then_some(Stays::NoExtents))
}
