//! System calls that write a copy and that `std` and `onesweep-sys` don't have. Thin and safe; nothing is decided here.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use onesweep::{Kind, Timestamp};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};

/// What a call is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A path that is no symbolic link: a special file.
    Special(&'a Path),
    /// A symbolic link itself.
    Link(&'a Path),
}

/// Sets owner and group; `None` leaves the owner.
pub(crate) fn set_owner(target: Target<'_>, uid: Option<u32>, gid: u32) -> io::Result<()> {
    let (user, group) = (uid.map(Uid::from_raw), Some(Gid::from_raw(gid)));
    Ok(match target {
        Target::Open(fd) => rustix::fs::fchown(fd, user, group),
        Target::Special(path) | Target::Link(path) => {
            rustix::fs::chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW)
        }
    }?)
}

/// Sets the permission bits. Symbolic links have none.
pub(crate) fn set_mode(target: Target<'_>, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    Ok(match target {
        Target::Open(fd) => rustix::fs::fchmod(fd, mode),
        Target::Special(path) => rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()),
        Target::Link(_) => Ok(()),
    }?)
}

/// Sets the time of the last change, and leaves that of the last access.
pub(crate) fn set_mtime(target: Target<'_>, mtime: Timestamp) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() },
    };
    Ok(match target {
        Target::Open(fd) => rustix::fs::futimens(fd, &times),
        Target::Special(path) | Target::Link(path) => {
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        }
    }?)
}

/// Removes an extended attribute.
pub(crate) fn remove_xattr(fd: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::fremovexattr(fd, name)?)
}

/// The user that this process acts as.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// An empty file in `directory` that has no name and goes when it is closed (`O_TMPFILE`), readable by its owner alone.
pub(crate) fn unnamed_file(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Gives an unnamed file its first name. Goes through `/proc`, since the other way needs a capability.
pub(crate) fn name_file(file: &File, name: &Path) -> io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, open.as_str(), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Opens a directory, never through a symbolic link.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a file for reading, never through a symbolic link, and without waiting at a pipe.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Makes a pipe, socket or device node that its owner alone can use. Devices need root.
pub(crate) fn make_node(path: &Path, kind: Kind, rdev: u64) -> io::Result<()> {
    let kind = match kind {
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::File | Kind::Directory | Kind::Symlink => return Err(io::ErrorKind::InvalidInput.into()),
    };
    Ok(rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, rdev)?)
}
