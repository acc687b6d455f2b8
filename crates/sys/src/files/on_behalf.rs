//! What a file system in user space does for others: as they asked, with all flags and modes.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    XattrFlags,
};
use rustix::io::ReadWriteFlags;

use super::open::again;
use super::{PathArg, Time, through_proc};

/// Opens what a [handle](super::open_handle_at) stands for, with the flags of open(2).
pub fn open_again_with(handle: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
    let path = through_proc(handle);
    // What is opened is no link any more but the way of /proc to it.
    let flags = OFlags::from_bits_retain(flags as u32) - OFlags::NOFOLLOW - OFlags::CREATE - OFlags::EXCL;
    Ok(again(|| rustix::fs::open(path.as_path(), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()))?)
}

/// Makes and opens a file, or opens the one that is there, with the flags of open(2).
#[doc(alias = "O_CREAT")]
pub fn create_with(dir: BorrowedFd<'_>, name: impl PathArg, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    Ok(name.into_with_c_str(|name| again(|| rustix::fs::openat(dir, name, flags | OFlags::NOCTTY, mode)))?)
}

/// Makes a directory with a mode, of which the umask takes its part.
#[doc(alias = "mkdirat")]
pub fn make_directory_with(dir: BorrowedFd<'_>, name: impl PathArg, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode & 0o7777))?)
}

/// Makes a file, a fifo, a socket or a device; `mode` tells which.
#[doc(alias = "mknodat")]
pub fn make_node_with(dir: BorrowedFd<'_>, name: impl PathArg, mode: u32, rdev: u64) -> io::Result<()> {
    let kind = FileType::from_raw_mode(mode);
    Ok(rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(mode & 0o7777), rdev)?)
}

/// Renames with the flags of renameat2(2).
#[doc(alias = "renameat2")]
pub fn rename_with(
    from_dir: BorrowedFd<'_>,
    from: impl PathArg,
    to_dir: BorrowedFd<'_>,
    to: impl PathArg,
    flags: u32,
) -> io::Result<()> {
    if flags == 0 {
        return Ok(rustix::fs::renameat(from_dir, from, to_dir, to)?);
    }
    Ok(rustix::fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::from_bits_retain(flags))?)
}

/// Cuts or lengthens an open file.
#[doc(alias = "ftruncate")]
pub fn change_size(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    Ok(again(|| rustix::fs::ftruncate(fd, bytes))?)
}

/// Reserves, punches, inserts: whatever `mode` of fallocate(2) says.
pub fn fallocate(fd: BorrowedFd<'_>, mode: i32, offset: u64, bytes: u64) -> io::Result<()> {
    let mode = FallocateFlags::from_bits_retain(mode as u32);
    Ok(again(|| rustix::fs::fallocate(fd, mode, offset, bytes))?)
}

/// Writes some of it at an offset, or at the end that the file has then, and tells how much.
#[doc(alias = "pwrite")]
#[doc(alias = "RWF_APPEND")]
pub fn write_some(fd: BorrowedFd<'_>, bytes: &[u8], place: Place) -> io::Result<usize> {
    let written = again(|| match place {
        Place::At(offset) => rustix::io::pwrite(fd, bytes, offset),
        // The offset is of no account.
        Place::End => rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND),
    })?;
    if written == 0 && !bytes.is_empty() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(written)
}

/// Where something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this offset.
    At(u64),
    /// Behind what is there.
    End,
}

/// What a time of a file becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// What it is.
    Same,
    /// The kernel's now.
    Now,
    /// This.
    At(Time),
}

/// Sets the times of access and of change of what a [handle](super::open_handle_at) stands for.
#[doc(alias = "utimensat")]
pub fn set_moments_handle(handle: BorrowedFd<'_>, access: Moment, change: Moment) -> io::Result<()> {
    let timespec = |moment: Moment| match moment {
        Moment::Same => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Moment::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Moment::At(time) => Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() },
    };
    let times = Timestamps { last_access: timespec(access), last_modification: timespec(change) };
    Ok(rustix::fs::utimensat(handle, c"", &times, AtFlags::EMPTY_PATH)?)
}

/// Sets an extended attribute of what a [handle](super::open_handle_at) stands for, with the flags of setxattr(2).
#[doc(alias = "setxattr")]
pub fn set_xattr_with(handle: BorrowedFd<'_>, name: impl PathArg, value: &[u8], flags: i32) -> io::Result<()> {
    let path = through_proc(handle);
    Ok(rustix::fs::setxattr(path, name, value, XattrFlags::from_bits_retain(flags as u32))?)
}

/// The room of a file system, as statvfs(3) tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a unit.
    pub fragment_bytes: u64,
    /// Bytes that are best written at a time.
    pub block_bytes: u64,
    /// Units.
    pub blocks: u64,
    /// Units that are free.
    pub free: u64,
    /// Units that are free for everybody.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Inodes that are free.
    pub files_free: u64,
    /// Bytes of the longest name.
    pub name_bytes: u64,
}

/// The room of the file system of an open file.
#[doc(alias = "fstatvfs")]
pub fn space(fd: BorrowedFd<'_>) -> io::Result<Space> {
    let found = rustix::fs::fstatvfs(fd)?;
    Ok(Space {
        fragment_bytes: found.f_frsize,
        block_bytes: found.f_bsize,
        blocks: found.f_blocks,
        free: found.f_bfree,
        available: found.f_bavail,
        files: found.f_files,
        files_free: found.f_ffree,
        name_bytes: found.f_namemax,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::{open_handle_at, statx_at};
    use crate::testing::tree;

    #[test]
    fn what_is_asked_for_is_done() {
        let (tree, root) = tree();
        let root = root.as_fd();
        let file = create_with(root, "made", libc::O_RDWR | libc::O_EXCL, 0o640).unwrap();
        assert_eq!(write_some(file.as_fd(), b"some ", Place::At(3)).unwrap(), 5);
        assert_eq!(write_some(file.as_fd(), b"bytes", Place::End).unwrap(), 5);
        assert_eq!(fs::read(tree.path().join("made")).unwrap(), b"\0\0\0some bytes");
        change_size(file.as_fd(), 5).unwrap();
        fallocate(file.as_fd(), 0, 0, 100).unwrap();
        assert_eq!(statx_at(root, "made", true).unwrap().size, 100);
        assert!(create_with(root, "made", libc::O_RDWR | libc::O_EXCL, 0o640).is_err());
        make_directory_with(root, "below", 0o755).unwrap();
        make_node_with(root, "below/pipe", libc::S_IFIFO | 0o600, 0).unwrap();
        rename_with(root, "below/pipe", root, "made", libc::RENAME_EXCHANGE).unwrap();
        assert!(rename_with(root, "made", root, "below/pipe", libc::RENAME_NOREPLACE).is_err());
        let handle = open_handle_at(root, "below/pipe").unwrap();
        set_moments_handle(handle.as_fd(), Moment::Same, Moment::At(Time { secs: 7, nanos: 8 })).unwrap();
        assert_eq!(statx_at(root, "below/pipe", true).unwrap().mtime, Time { secs: 7, nanos: 8 });
        let again = open_again_with(handle.as_fd(), libc::O_RDONLY | libc::O_NOFOLLOW).unwrap();
        let mut five = [0; 5];
        assert_eq!(crate::files::read_at(again.as_fd(), &mut five, 0).unwrap(), 5);
        assert_eq!(&five, b"\0\0\0so");
        assert!(space(root).unwrap().blocks > 0);
    }
}
