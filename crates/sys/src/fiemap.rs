//! The extents of a file by `FS_IOC_FIEMAP`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, opcode};

/// The last extent of the file.
pub const FIEMAP_EXTENT_LAST: u32 = 0x0001;
/// The address is not known (yet).
pub const FIEMAP_EXTENT_UNKNOWN: u32 = 0x0002;
/// Space is promised but not yet chosen; implies `UNKNOWN`.
pub const FIEMAP_EXTENT_DELALLOC: u32 = 0x0004;
/// The bytes on the device are not those of the file (compressed).
pub const FIEMAP_EXTENT_ENCODED: u32 = 0x0008;
/// The bytes on the device are encrypted; implies `ENCODED`.
pub const FIEMAP_EXTENT_DATA_ENCRYPTED: u32 = 0x0080;
/// The extent does not begin or end at block borders.
pub const FIEMAP_EXTENT_NOT_ALIGNED: u32 = 0x0100;
/// The bytes sit among metadata, such as in the inode; implies `NOT_ALIGNED`.
pub const FIEMAP_EXTENT_DATA_INLINE: u32 = 0x0200;
/// The bytes share a block with those of other files; implies `NOT_ALIGNED`.
pub const FIEMAP_EXTENT_DATA_TAIL: u32 = 0x0400;
/// Allocated, but reads as zeros.
pub const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x0800;
/// The file system has no extents; blocks were joined for this answer.
pub const FIEMAP_EXTENT_MERGED: u32 = 0x1000;
/// Other files have the same bytes at the same place.
pub const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `FS_IOC_FIEMAP`; the size in it is that of the header alone.
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);

/// `struct fiemap` without its array.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(size_of::<Entry>() == 56);
const _: () = assert!(std::mem::offset_of!(Header, mapped_extents) == 20);
const _: () = assert!(std::mem::offset_of!(Entry, flags) == 40);
// A header followed by entries is laid out as in C only when nothing lies between them.
const _: () = assert!(size_of::<Header>().is_multiple_of(align_of::<Entry>()));

/// One extent as the kernel gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawExtent {
    /// Byte of the file.
    pub logical: u64,
    /// Byte of the device; what it means depends on the file system and on `flags`.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
    /// `FIEMAP_EXTENT_*`.
    pub flags: u32,
}

/// Memory for the answers of [`extents`], kept from file to file.
pub struct FiemapBuffer {
    /// The first `size_of::<Header>()` bytes are the header, then come the entries.
    words: Vec<u64>,
    capacity: u32,
}

const HEADER_WORDS: usize = size_of::<Header>() / size_of::<u64>();
const ENTRY_WORDS: usize = size_of::<Entry>() / size_of::<u64>();

impl FiemapBuffer {
    /// Room for `extents` extents for each call (at least 1). 256 are 14 KiB and do for almost every file.
    pub fn new(extents: usize) -> FiemapBuffer {
        let capacity = extents.clamp(1, 1 << 20);
        FiemapBuffer { words: vec![0; HEADER_WORDS + capacity * ENTRY_WORDS], capacity: capacity as u32 }
    }

    /// Asks for the extents that touch the bytes from `start` on; gives how many the kernel wrote.
    fn ask(&mut self, fd: BorrowedFd<'_>, start: u64) -> io::Result<usize> {
        let header = Header { start, length: u64::MAX - start, extent_count: self.capacity, ..Header::default() };
        let memory = self.words.as_mut_ptr();
        // SAFETY: the words are aligned for `Header` and longer than one.
        unsafe { memory.cast::<Header>().write(header) };
        // SAFETY: the kernel writes the header and at most `capacity` entries, for which the words have room.
        let status = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FIEMAP as _, memory) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above; the kernel has filled the header in.
        let header = unsafe { memory.cast::<Header>().read() };
        Ok(header.mapped_extents.min(self.capacity) as usize)
    }

    /// One entry of the last answer.
    fn entry(&self, number: usize) -> RawExtent {
        let words = &self.words[HEADER_WORDS + number * ENTRY_WORDS..][..ENTRY_WORDS];
        // SAFETY: the words are as long as an `Entry`, aligned for it, and any bits are a valid one.
        let entry = unsafe { words.as_ptr().cast::<Entry>().read() };
        RawExtent { logical: entry.logical, physical: entry.physical, length: entry.length, flags: entry.flags }
    }
}

impl std::fmt::Debug for FiemapBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FiemapBuffer({})", self.capacity)
    }
}

/// The first extent of a file, if it has one; errors as of [`extents`].
pub fn first_extent(fd: BorrowedFd<'_>, buffer: &mut FiemapBuffer) -> io::Result<Option<RawExtent>> {
    Ok((buffer.ask(fd, 0)? > 0).then(|| buffer.entry(0)))
}

/// Calls `visit` for each extent of the file (or, on ext4, directory) in file order.
///
/// Holes are left out. Nothing is written back first, so bytes that are only in memory come as `DELALLOC` or not at
/// all. Needs no privilege. `EOPNOTSUPP` or `ENOTTY` where the file system cannot (FUSE, NFS, tmpfs).
///
/// The map of a file that changes meanwhile may have gaps and overlaps. An answer that makes no progress ends the
/// list rather than repeat for ever.
#[doc(alias = "FS_IOC_FIEMAP")]
pub fn extents(fd: BorrowedFd<'_>, buffer: &mut FiemapBuffer, visit: &mut dyn FnMut(RawExtent)) -> io::Result<()> {
    let mut start = 0;
    loop {
        let count = match buffer.ask(fd, start) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            answer => answer?,
        };
        let mut next = start;
        for number in 0..count {
            let extent = buffer.entry(number);
            next = next.max(extent.logical.saturating_add(extent.length));
            visit(extent);
            if extent.flags & FIEMAP_EXTENT_LAST != 0 {
                return Ok(());
            }
        }
        if next == start || next == u64::MAX {
            return Ok(());
        }
        start = next;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::testing::skipped;

    fn all(file: &File, buffer: &mut FiemapBuffer) -> io::Result<Vec<RawExtent>> {
        let mut all = Vec::new();
        extents(file.as_fd(), buffer, &mut |extent| all.push(extent))?;
        Ok(all)
    }

    #[test]
    fn small_buffers_give_the_same_list() {
        let file = tempfile::tempfile().unwrap();
        for number in 0..40 {
            file.write_all_at(&[1; 4096], number * 65536).unwrap();
        }
        file.sync_all().unwrap();
        let at_once = match all(&file, &mut FiemapBuffer::new(256)) {
            Ok(extents) => extents,
            Err(error) => return skipped(&format!("no FIEMAP here: {error}")),
        };
        assert_eq!(at_once.len(), 40);
        assert!(at_once.iter().zip(0..).all(|(extent, number)| extent.logical == number * 65536));
        for room in [0, 1, 7, 40] {
            assert_eq!(all(&file, &mut FiemapBuffer::new(room)).unwrap(), at_once);
        }
    }

    #[test]
    fn buffer_keeps_nothing_of_the_last_file() {
        let (full, empty) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        full.write_all_at(&[1; 4096], 0).unwrap();
        full.sync_all().unwrap();
        let mut buffer = FiemapBuffer::new(4);
        match all(&full, &mut buffer) {
            Ok(extents) => assert_eq!(extents.len(), 1),
            Err(error) => return skipped(&format!("no FIEMAP here: {error}")),
        }
        assert_eq!(all(&empty, &mut buffer).unwrap(), []);
    }

    #[test]
    fn file_systems_without_a_map_say_so() {
        let proc = File::open("/proc/self/status").unwrap();
        let error = all(&proc, &mut FiemapBuffer::new(1)).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)), "{error}");
    }
}
