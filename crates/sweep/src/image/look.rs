//! A look into a named file, which leaves the page cache as it was where anybody can tell how that is: nearly all of them are no
//! images.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use onesweep_layout::{BlockRead, ImageFile};
use onesweep_sys::{
    buffer::{Bytes, FileBuffer},
    cache,
    files::{self, CURRENT_DIR},
};

use crate::footprint::Footprint;

/// So much holds the magic of all file systems, in whole blocks.
const START_BYTES: usize = 0x1_1000;
/// Direct reads begin and end on these.
const BLOCK_BYTES: u64 = 4096;

/// Gives `look` the bytes of a file. `None` where it can't be read.
pub(super) fn into_file<T>(path: &Path, look: impl FnOnce(&dyn BlockRead) -> T) -> Option<T> {
    let fd = files::open_file(path).ok()?;
    let size = files::statx_fd(fd.as_fd()).ok()?.size;
    if let Some(file) = PastTheCache::open(path, size) {
        return Some(look(&file));
    }
    let _ = cache::random_access(fd.as_fd());
    let mut footprint = Footprint::of_file(fd.as_fd(), size);
    let found = fd.try_clone().and_then(|fd| ImageFile::new(fd.into())).ok().map(|file| look(&file));
    footprint.wipe(fd.as_fd());
    found
}

/// A file by direct reads, with its start in memory.
struct PastTheCache {
    fd: OwnedFd,
    start: Bytes,
    len: u64,
}

impl PastTheCache {
    /// `None` where the file system has no direct reads.
    fn open(path: &Path, len: u64) -> Option<Self> {
        let fd = files::open_direct_at(CURRENT_DIR, path).ok()?;
        let start = read_blocks(&fd, 0, START_BYTES).ok()?;
        Some(Self { fd, start, len })
    }
}

fn read_blocks(fd: &OwnedFd, at: u64, bytes: usize) -> io::Result<Bytes> {
    let buffer = FileBuffer::zeroed(bytes);
    files::read_at(fd.as_fd(), buffer.lend(0..bytes).as_mut_slice(), at)?;
    buffer.try_into_bytes().map_err(|_| io::Error::other("its memory is still lent"))
}

impl BlockRead for PastTheCache {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buffer.len() as u64).filter(|&end| end <= self.len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let copy = |from: &[u8], at: u64, to: &mut [u8]| {
            let bytes = usize::try_from(at).ok().and_then(|at| from.get(at..at.checked_add(to.len())?));
            to.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        if end <= START_BYTES as u64 {
            return copy(&self.start, at, buffer);
        }
        let from = at - at % BLOCK_BYTES;
        let bytes = usize::try_from(end.next_multiple_of(BLOCK_BYTES) - from).map_err(io::Error::other)?;
        copy(&read_blocks(&self.fd, from, bytes)?, at - from, buffer)
    }

    fn len(&self) -> u64 {
        self.len
    }
}
