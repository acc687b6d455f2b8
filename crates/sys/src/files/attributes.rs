//! Owner, mode and time, set.
//!
//! A handle is what [`open_handle_at`](super::open_handle_at) gives: the very entry that was looked at, also when it is
//! a symbolic link, a fifo or a device, whatever has its name meanwhile.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid};

use super::{PathArg, Time, through_proc};

/// Sets owner and group of an open file; `None` leaves what is there.
#[doc(alias = "fchown")]
pub fn set_owner_fd(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    Ok(rustix::fs::fchown(fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?)
}

/// As [`set_owner_fd`], of a handle.
#[doc(alias = "fchownat")]
pub fn set_owner_handle(handle: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    Ok(rustix::fs::chownat(handle, c"", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)?)
}

/// Sets the permission bits of an open file.
#[doc(alias = "fchmod")]
pub fn set_mode_fd(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?)
}

/// As [`set_mode_fd`], of a handle that is none of a symbolic link: those have no permission bits.
///
/// Goes through `/proc`, since a handle itself is refused before Linux 6.6.
#[doc(alias = "fchmodat")]
pub fn set_mode_handle(handle: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::chmodat(CWD, through_proc(handle), Mode::from_raw_mode(mode), AtFlags::empty())?)
}

/// Sets the times of the last access and the last change of an open file; `None` leaves the former.
#[doc(alias = "futimens")]
pub fn set_times_fd(fd: BorrowedFd<'_>, atime: Option<Time>, mtime: Time) -> io::Result<()> {
    Ok(rustix::fs::futimens(fd, &timestamps(atime, mtime))?)
}

/// As [`set_times_fd`], of the file `path`, or of the link itself when it is a symbolic link.
#[doc(alias = "utimensat")]
pub fn set_times_path(path: impl PathArg, atime: Option<Time>, mtime: Time) -> io::Result<()> {
    Ok(rustix::fs::utimensat(CWD, path, &timestamps(atime, mtime), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// As [`set_times_fd`], of a handle.
#[doc(alias = "utimensat")]
pub fn set_times_handle(handle: BorrowedFd<'_>, atime: Option<Time>, mtime: Time) -> io::Result<()> {
    Ok(rustix::fs::utimensat(handle, c"", &timestamps(atime, mtime), AtFlags::EMPTY_PATH)?)
}

fn timestamps(atime: Option<Time>, mtime: Time) -> Timestamps {
    let timespec = |time: Time| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
    let leave = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Timestamps { last_access: atime.map_or(leave, timespec), last_modification: timespec(mtime) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::{Stat, open_file_at, open_handle_at, statx_at};
    use crate::testing::tree;

    const MOMENT: Time = Time { secs: -2, nanos: 123_456_789 };

    #[test]
    fn mode_and_time_are_set_by_file_and_by_handle() {
        let (tree, root) = tree();
        let path = tree.path().join("dir/sub/file");
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        let stat = || statx_at(root.as_fd(), "dir/sub/file", true).unwrap();
        let accessed = stat().atime;
        set_mode_fd(file.as_fd(), 0o640).unwrap();
        set_times_fd(file.as_fd(), None, MOMENT).unwrap();
        assert_eq!((stat().mode & 0o7777, stat().mtime, stat().atime), (0o640, MOMENT, accessed));
        set_times_path(&path, Some(MOMENT), Time::default()).unwrap();
        assert_eq!((stat().mtime, stat().atime), (Time::default(), MOMENT));
        for name in ["dir/sub/file", "fifo"] {
            let handle = open_handle_at(root.as_fd(), name).unwrap();
            set_mode_handle(handle.as_fd(), 0o604).unwrap();
            set_times_handle(handle.as_fd(), None, MOMENT).unwrap();
            let stat = statx_at(root.as_fd(), name, true).unwrap();
            assert_eq!((stat.mode & 0o7777, stat.mtime), (0o604, MOMENT), "{name}");
        }
    }

    #[test]
    fn what_a_link_points_to_is_left_alone() {
        let (tree, root) = tree();
        let stat = |name: &str| statx_at(root.as_fd(), name, true).unwrap();
        let target = stat("dir/sub");
        let Stat { uid, gid, .. } = target;
        let link = open_handle_at(root.as_fd(), "dir/link").unwrap();
        set_times_handle(link.as_fd(), None, MOMENT).unwrap();
        assert_eq!(stat("dir/link").mtime, MOMENT);
        set_times_path(tree.path().join("dir/link"), None, Time::default()).unwrap();
        assert_eq!(stat("dir/link").mtime, Time::default());
        set_owner_handle(link.as_fd(), Some(uid), Some(gid)).unwrap();
        assert_eq!(stat("dir/sub"), target);
    }

    #[test]
    fn owner_can_be_kept_while_the_group_changes() {
        let (_kept, root) = tree();
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        let owner = || {
            let Stat { uid, gid, .. } = statx_at(root.as_fd(), "dir/sub/file", true).unwrap();
            (uid, gid)
        };
        let (uid, gid) = owner();
        set_owner_fd(file.as_fd(), None, Some(gid)).unwrap();
        assert_eq!(owner(), (uid, gid));
        if crate::user::effective_uid() == 0 {
            set_owner_fd(file.as_fd(), None, Some(gid + 1)).unwrap();
            assert_eq!(owner(), (uid, gid + 1));
            let handle = open_handle_at(root.as_fd(), "dir/sub/file").unwrap();
            set_owner_handle(handle.as_fd(), Some(uid + 1), None).unwrap();
            assert_eq!(owner(), (uid + 1, gid + 1));
        }
    }
}
