//! What an inode says of itself besides `statx`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

/// `FS_IOC_GETVERSION`: declared with `long`, but writes an int on every file system.
const FS_IOC_GETVERSION: Opcode = opcode::read::<libc::c_long>(b'v', 1);
/// `FS_IOC_FSGETXATTR`.
const FS_IOC_FSGETXATTR: Opcode = opcode::read::<Fsxattr>(b'X', 31);
/// `FS_IOC_FSSETXATTR`.
const FS_IOC_FSSETXATTR: Opcode = opcode::write::<Fsxattr>(b'X', 32);

/// Attribute of [`flags`]: the bytes are compressed (`FS_COMPR_FL`).
pub const FLAG_COMPRESSED: u32 = 0x0000_0004;
/// Attribute of [`flags`]: nobody may change it (`FS_IMMUTABLE_FL`).
pub const FLAG_IMMUTABLE: u32 = 0x0000_0010;
/// Attribute of [`flags`]: it may only grow (`FS_APPEND_FL`).
pub const FLAG_APPEND: u32 = 0x0000_0020;
/// Attribute of [`flags`]: the bytes are encrypted (`FS_ENCRYPT_FL`).
pub const FLAG_ENCRYPTED: u32 = 0x0000_0800;
/// Attribute of [`flags`]: data and metadata go through the journal (`FS_JOURNAL_DATA_FL`).
pub const FLAG_JOURNALED: u32 = 0x0000_4000;
/// Attribute of [`flags`], ext4: the places are kept as extents (`EXT4_EXTENTS_FL`).
pub const FLAG_EXTENTS: u32 = 0x0008_0000;
/// Attribute of [`flags`]: hashes of the bytes are kept behind them (`FS_VERITY_FL`).
pub const FLAG_VERITY: u32 = 0x0010_0000;
/// Attribute of [`flags`], btrfs: bytes are written where they lie, and have no checksums (`FS_NOCOW_FL`).
pub const FLAG_NO_COW: u32 = 0x0080_0000;
/// Attribute of [`flags`]: the bytes are used where they lie (`FS_DAX_FL`).
pub const FLAG_DAX: u32 = 0x0200_0000;
/// Attribute of [`flags`], ext4: the bytes lie in the inode (`EXT4_INLINE_DATA_FL`).
pub const FLAG_INLINE: u32 = 0x1000_0000;
/// Attribute of [`extended_flags`]: the bytes are on the realtime device of XFS (`FS_XFLAG_REALTIME`).
pub const XFLAG_REALTIME: u32 = 0x0000_0001;
/// It has room for attributes, and may have some (`FS_XFLAG_HASATTR`).
pub const XFLAG_ATTRIBUTES: u32 = 0x8000_0000;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fsxattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<Fsxattr>() == 28);

/// The generation of an inode number: another file that gets the same number gets another generation.
///
/// `None` where the file system keeps none.
#[doc(alias = "FS_IOC_GETVERSION")]
pub fn generation(fd: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    // Most file systems write 32 bits; one that takes the declaration at its word may write 64. Room for both.
    let mut words = [0_u32; 2];
    // SAFETY: FS_IOC_GETVERSION writes at most 64 bits.
    let answer = unsafe { ioctl(fd, Updater::<FS_IOC_GETVERSION, [u32; 2]>::new(&mut words)) };
    Ok(optional(answer)?.map(|()| words[0]))
}

/// Flags of an inode as `lsattr` shows them (`FLAG_*`); `None` where the file system keeps none.
#[doc(alias = "FS_IOC_GETFLAGS")]
pub fn flags(fd: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    optional(rustix::fs::ioctl_getflags(fd)).map(|flags| flags.map(|flags| flags.bits()))
}

/// The project that an inode belongs to; `None` where the file system keeps none.
#[doc(alias = "FS_IOC_FSGETXATTR")]
pub fn project(fd: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    // SAFETY: FS_IOC_FSGETXATTR is a getter that writes a `struct fsxattr`.
    let answer = unsafe { ioctl(fd, Getter::<FS_IOC_FSGETXATTR, Fsxattr>::new()) };
    optional(answer).map(|found| found.map(|found| found.projid))
}

/// Extended flags of an inode (`XFLAG_*`); `None` where the file system keeps none.
#[doc(alias = "FS_IOC_FSGETXATTR")]
pub fn extended_flags(fd: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    // SAFETY: FS_IOC_FSGETXATTR is a getter that writes a `struct fsxattr`.
    let answer = unsafe { ioctl(fd, Getter::<FS_IOC_FSGETXATTR, Fsxattr>::new()) };
    optional(answer).map(|found| found.map(|found| found.xflags))
}

/// Gives an inode to a project. `EPERM` for files of others; `EINVAL` in a user namespace that is not the first.
#[doc(alias = "FS_IOC_FSSETXATTR")]
pub fn set_project(fd: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    // SAFETY: FS_IOC_FSGETXATTR is a getter that writes a `struct fsxattr`.
    let now = unsafe { ioctl(fd, Getter::<FS_IOC_FSGETXATTR, Fsxattr>::new())? };
    // SAFETY: FS_IOC_FSSETXATTR reads a `struct fsxattr`.
    unsafe { ioctl(fd, Setter::<FS_IOC_FSSETXATTR, Fsxattr>::new(Fsxattr { projid: project, ..now }))? };
    Ok(())
}

/// Turns "this file system does not know the call" into `None`.
fn optional<T>(answer: rustix::io::Result<T>) -> io::Result<Option<T>> {
    use rustix::io::Errno;
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::testing::skipped;

    #[test]
    fn file_system_without_facts_gives_none() {
        let proc = File::open("/proc/self/status").unwrap();
        assert_eq!(generation(proc.as_fd()).unwrap(), None);
        assert_eq!(flags(proc.as_fd()).unwrap(), None);
        assert_eq!(extended_flags(proc.as_fd()).unwrap(), None);
    }

    #[test]
    fn generation_stays() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = File::open(file.path()).unwrap();
        let asked = generation(file.as_file().as_fd()).unwrap();
        assert_eq!(asked, generation(other.as_fd()).unwrap());
        if asked.is_none() {
            skipped("no generation here");
        }
    }

    #[test]
    fn both_kinds_of_flags_agree() {
        let file = tempfile::tempfile().unwrap();
        let (Some(flags), Some(extended)) = (flags(file.as_fd()).unwrap(), extended_flags(file.as_fd()).unwrap())
        else {
            return skipped("no flags here");
        };
        assert_eq!(flags & (FLAG_COMPRESSED | FLAG_ENCRYPTED | FLAG_JOURNALED), 0);
        assert_eq!(extended & XFLAG_REALTIME, 0);
    }
}
