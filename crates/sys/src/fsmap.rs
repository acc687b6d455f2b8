//! What the space of a mounted file system is used for, by `FS_IOC_GETFSMAP`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, opcode};

use crate::{files::dev_numbers, retry::retry};

/// The size in it is that of the header alone.
const FS_IOC_GETFSMAP: Opcode = opcode::read_write::<Header>(b'X', 59);
/// Allocated, but not written yet.
const FMR_OF_PREALLOC: u32 = 0x1;
/// It holds attributes of its owner.
const FMR_OF_ATTR_FORK: u32 = 0x2;
/// It tells where the content of its owner lies.
const FMR_OF_EXTENT_MAP: u32 = 0x4;
/// Other files have a part of it, too.
const FMR_OF_SHARED: u32 = 0x8;
/// The record has no owner among the files, but one of `FMR_OWN_…`.
const FMR_OF_SPECIAL_OWNER: u32 = 0x10;
/// The last record that there is.
const FMR_OF_LAST: u32 = 0x20;
/// Nobody's.
const FMR_OWN_FREE: u64 = 1;

/// Records of one call: 64 KiB.
const RECORDS: usize = 1024;

/// `struct fsmap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

/// `struct fsmap_head` without its array.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    /// From where to where is asked.
    keys: [Record; 2],
}

const _: () = assert!(size_of::<Record>() == 64);
const _: () = assert!(size_of::<Header>() == 192);

/// Header and records, as the kernel wants them in a row.
#[repr(C)]
struct Request {
    header: Header,
    records: [Record; RECORDS],
}

/// Calls `visit` with where each free run of the device `dev` (as in `st_dev`) begins and how long it is, in bytes, by rising
/// address. `visit` returns false to stop. Neighbours may come one by one.
///
/// `fd` may be any file or directory of the file system, opened for reading. ext4 and XFS have it; `ENOTTY` or `EOPNOTSUPP`
/// elsewhere. `EPERM` or `EACCES` where only root is told. What changes meanwhile may be told as it was or as it is.
/// `InvalidData` when an answer goes back.
#[doc(alias = "FS_IOC_GETFSMAP")]
pub fn free_runs(fd: BorrowedFd<'_>, dev: u64, visit: &mut dyn FnMut(u64, u64) -> bool) -> io::Result<()> {
    visit_records(fd, dev, &mut |record| {
        let is_free = record.flags & FMR_OF_SPECIAL_OWNER != 0 && record.owner == FMR_OWN_FREE;
        !is_free || visit(record.physical, record.length)
    })
}

/// A run of blocks that holds content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedRun {
    /// The inode.
    pub owner: u64,
    /// Byte of the file where it begins.
    pub logical: u64,
    /// Byte of the device where it begins.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
    /// Allocated, but reads as zeros.
    pub is_unwritten: bool,
    /// Other files have a part of it, too.
    pub is_shared: bool,
}

/// Calls `visit` with the content of all files on the device `dev` (as in `st_dev`), by rising address, without opening any of
/// them; `visit` returns false to stop. Blocks of directories and of the targets of symbolic links are content, those of attributes and
/// of trees of extents aren't.
///
/// Only XFS with a reverse map tells these, and only root. Else as [`free_runs`].
#[doc(alias = "FS_IOC_GETFSMAP")]
pub fn owned_runs(fd: BorrowedFd<'_>, dev: u64, visit: &mut dyn FnMut(OwnedRun) -> bool) -> io::Result<()> {
    const NO_CONTENT: u32 = FMR_OF_SPECIAL_OWNER | FMR_OF_ATTR_FORK | FMR_OF_EXTENT_MAP;
    visit_records(fd, dev, &mut |record| {
        let &Record { flags, physical, owner, offset: logical, length, .. } = record;
        let (is_unwritten, is_shared) = (flags & FMR_OF_PREALLOC != 0, flags & FMR_OF_SHARED != 0);
        flags & NO_CONTENT != 0 || visit(OwnedRun { owner, logical, physical, length, is_unwritten, is_shared })
    })
}

/// Visits all records of a device, until `visit` returns false.
fn visit_records(fd: BorrowedFd<'_>, dev: u64, visit: &mut dyn FnMut(&Record) -> bool) -> io::Result<()> {
    let all = Record { device: u32::MAX, flags: u32::MAX, physical: u64::MAX, owner: u64::MAX, ..Record::default() };
    let all = Record { offset: u64::MAX, ..all };
    let header = Header { count: RECORDS as u32, keys: [Record::default(), all], ..Header::default() };
    let mut request = Box::new(Request { header, records: [Record::default(); RECORDS] });
    let device = encoded(dev);
    let mut reached = None;
    loop {
        let Some(&last) = request.answer(fd)?.last() else { return Ok(()) };
        let entries = request.header.entries as usize;
        for record in &request.records[..entries.min(RECORDS)] {
            if record.device == device && record.length > 0 && !visit(record) {
                return Ok(());
            }
        }
        if last.flags & FMR_OF_LAST != 0 {
            return Ok(());
        }
        // Files that share a block come with the same place, and rising owners and offsets.
        let place = (last.device, last.physical, last.owner, last.offset);
        if reached.is_some_and(|reached| reached >= place) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        reached = Some(place);
        request.header.keys[0] = last;
    }
}

/// A device number as the kernel packs it into 32 bits (`new_encode_dev`).
fn encoded(dev: u64) -> u32 {
    let (major, minor) = dev_numbers(dev);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

impl Request {
    fn answer(&mut self, fd: BorrowedFd<'_>) -> io::Result<&[Record]> {
        retry(|| {
            self.header.entries = 0;
            // SAFETY: the request is a header that says how many records there is room for behind it, and that room.
            unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_GETFSMAP as _, &raw mut *self) }
        })?;
        Ok(&self.records[..(self.header.entries as usize).min(RECORDS)])
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::makedev;

    #[test]
    fn devices_are_packed_as_the_kernel_does() {
        assert_eq!(encoded(makedev(8, 1)), 0x0801);
        assert_eq!(encoded(makedev(259, 0x1_2345)), 0x1231_0345);
    }

    #[test]
    fn file_systems_without_a_map_say_so() {
        let proc = File::open("/proc/self/status").unwrap();
        let error = free_runs(proc.as_fd(), 0, &mut |_, _| true).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)), "{error}");
    }
}
