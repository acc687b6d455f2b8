//! Inodes of a mounted XFS, without their names.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::ioctl::{Opcode, opcode};

/// `XFS_IOC_BULKSTAT`; the size in it is that of the header alone.
const XFS_IOC_BULKSTAT: Opcode = opcode::read::<Header>(b'X', 127);
/// Only the inodes of one allocation group.
const XFS_BULK_IREQ_AGNO: u32 = 1;
/// One inode, that is known by what it is for.
const XFS_BULK_IREQ_SPECIAL: u32 = 2;
/// The root directory.
const XFS_BULK_IREQ_SPECIAL_ROOT: u64 = 1;
/// `XFS_FILEID_INO64GEN`: a file handle of XFS with an inode number of 64 bits.
const XFS_FILEID_INO64GEN: i32 = 0x81;

/// Inodes of one call: the kernel reads ahead as far as the call goes.
const BATCH: usize = 4096;

/// `struct xfs_bulk_ireq`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    ino: u64,
    flags: u32,
    icount: u32,
    ocount: u32,
    agno: u32,
    reserved: [u64; 5],
}

/// `struct xfs_bulkstat`, of which only some fields are told.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Answer {
    ino: u64,
    size: u64,
    blocks: u64,
    xflags: u64,
    times: [i64; 4],
    generation: u32,
    owners: [u32; 3],
    nanoseconds: [u32; 4],
    blksize: u32,
    rdev: u32,
    hints: [u32; 2],
    nlink: u32,
    extents: [u32; 2],
    version: u16,
    forkoff: u16,
    health: [u16; 2],
    mode: u16,
    pad2: u16,
    extents64: u64,
    pad: [u64; 6],
}

const _: () = assert!(size_of::<Header>() == 64);
const _: () = assert!(size_of::<Answer>() == 192);

/// Header and answers, as the kernel wants them in a row.
#[repr(C)]
struct Request {
    header: Header,
    answers: [Answer; BATCH],
}

/// An inode that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub ino: u64,
    /// Its generation, which a handle needs.
    pub generation: u32,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Its bytes.
    pub size: u64,
    /// Its names.
    pub nlink: u32,
}

/// Visits the inodes in use of one allocation group, by rising number, which is the order in which they lie on the disk.
/// `visit` returns false to stop.
///
/// `fd` may be any file of the file system. `EINVAL` beyond the last group, `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` on
/// other file systems. The kernel reads the blocks of inodes ahead, and keeps them in memory.
#[doc(alias = "XFS_IOC_BULKSTAT")]
pub fn bulkstat(fd: BorrowedFd<'_>, group: u32, visit: &mut dyn FnMut(Inode) -> bool) -> io::Result<()> {
    let header = Header { flags: XFS_BULK_IREQ_AGNO, icount: BATCH as u32, agno: group, ..Header::default() };
    let mut request = Box::new(Request { header, answers: [Answer::default(); BATCH] });
    loop {
        let found = request.answer(fd)?;
        if found.is_empty() {
            return Ok(());
        }
        for answer in found {
            let Answer { ino, generation, mode, size, nlink, .. } = *answer;
            if !visit(Inode { ino, generation, mode: mode.into(), size, nlink }) {
                return Ok(());
            }
        }
    }
}

/// The inode number of the root directory. Errors as of [`bulkstat`].
pub fn root_inode(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let header =
        Header { ino: XFS_BULK_IREQ_SPECIAL_ROOT, flags: XFS_BULK_IREQ_SPECIAL, icount: 1, ..Header::default() };
    let mut request = Box::new(Request { header, answers: [Answer::default(); BATCH] });
    request.answer(fd)?.first().map(|root| root.ino).ok_or(io::ErrorKind::NotFound.into())
}

impl Request {
    fn answer(&mut self, fd: BorrowedFd<'_>) -> io::Result<&[Answer]> {
        loop {
            // SAFETY: the request is a header that says how many answers there is room for behind it, and that room.
            let status = unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_BULKSTAT as _, &raw mut *self) };
            if status == 0 {
                return Ok(&self.answers[..(self.header.ocount as usize).min(BATCH)]);
            }
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            }
        }
    }
}

/// `struct file_handle` of XFS.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    /// Inode number (two words) and generation.
    id: [u32; 3],
}

/// Opens a directory by its inode number, for listing. `mount` is any open file of the file system.
///
/// `ESTALE` when there is no such inode any more; `EPERM` without `CAP_DAC_READ_SEARCH`. The kernel looks the directory's
/// ancestors up, too, as far as they are not in memory.
#[doc(alias = "open_by_handle_at")]
pub fn open_directory(mount: BorrowedFd<'_>, ino: u64, generation: u32) -> io::Result<OwnedFd> {
    let mut handle = Handle { bytes: 12, kind: XFS_FILEID_INO64GEN, id: [0, 0, generation] };
    let words = ino.to_ne_bytes();
    handle.id[0] = u32::from_ne_bytes([words[0], words[1], words[2], words[3]]);
    handle.id[1] = u32::from_ne_bytes([words[4], words[5], words[6], words[7]]);
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOATIME | libc::O_CLOEXEC;
    // SAFETY: the handle is 12 bytes of identity behind their number and type, as it says.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut handle, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_file_systems_have_none() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let error = bulkstat(file.as_fd(), 0, &mut |_| true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert!(root_inode(file.as_fd()).is_err());
        assert!(open_directory(file.as_fd(), 1, 0).is_err());
    }
}
