//! Files of ext4: what keeps one from being moved, and how it gets ready.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use onesweep_sys::{
    files::statx_fd,
    folios::make_small,
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
    let was_large = ready(host, &file, stat.size)?;
    let (places, stays) = host.asked.places(file.fd(), path)?;
    match stays {
        Some(stays) => Err(stays.into()),
        None => Ok(Opened { file, places, was_large }),
    }
}

/// Bytes in memory that are also on the disk, in small pages; true when those were large ones before.
fn ready(host: &Ext4, file: &MovableFile, size: u64) -> Result<bool, Trouble> {
    clean_in_memory(file, size, host.uncached)?;
    if !host.has_slow_folios || size <= page_bytes() {
        return Ok(false);
    }
    let failed = |doing| move |error| trouble(doing, file.path(), error);
    let Ok(bytes) = usize::try_from(size) else { return Err(Stays::LargePages.into()) };
    let any_large = || {
        let told = host.folios.as_ref().map(|folios| folios.any_large(file.fd(), bytes)).transpose();
        told.map(Option::flatten).map_err(failed("ask for its pages in memory"))
    };
    if any_large()? == Some(false) {
        return Ok(false);
    }
    make_small(file.fd(), bytes).map_err(failed("make its pages in memory small"))?;
    // Only root learns whether that was possible: those that another program has mapped stay as they are.
    match any_large()? {
        Some(true) => Err(Stays::LargePages.into()),
        _ => Ok(true),
    }
}

pub(super) fn by_flags(flags: u32) -> Option<Stays> {
    stays_by_flags(flags).or((flags & inode::FLAG_EXTENTS == 0).then_some(Stays::NoExtents))
}
