//! Two files of an XFS that change places as wholes, where one of them has not changed meanwhile.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, opcode};

use crate::files::Time;
use crate::retry::retry;

/// `XFS_IOC_SWAPEXT`.
const XFS_IOC_SWAPEXT: Opcode = opcode::read_write::<SwapExtents>(b'X', 109);

/// `struct xfs_bstime`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Moment {
    seconds: libc::c_long,
    nanoseconds: i32,
}

/// `struct xfs_bstat`, of which the kernel looks at two times.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Looked {
    ino: u64,
    mode_and_links: [u16; 2],
    owners: [u32; 2],
    rdev: u32,
    block_bytes: i32,
    size: i64,
    accessed: Moment,
    modified: Moment,
    changed: Moment,
    blocks: i64,
    rest: [u32; 10],
}

/// `struct xfs_swapext`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SwapExtents {
    version: i64,
    target: i64,
    other: i64,
    offset: i64,
    length: i64,
    pad: [u8; 16],
    looked: Looked,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Looked>() == 136 && size_of::<SwapExtents>() == 192 && XFS_IOC_SWAPEXT == 0xC0C0_586D);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(std::mem::offset_of!(Looked, modified) == 56 && std::mem::offset_of!(Looked, changed) == 72);

/// When a file was changed last: its bytes (mtime), and anything of it (ctime).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Changes {
    /// `mtime`.
    pub modified: Time,
    /// `ctime`.
    pub changed: Time,
}

/// Has two files of the same size change all their places, and so their contents, if the first one was last changed at these times, which
/// the kernel looks at while nobody can write to it; else `EBUSY`. Both are open for reading and writing. No time changes.
///
/// What is dirty of both is written first, and what was in memory of them is dropped. It is one transaction; with a reverse map
/// (`rmapbt=1`) one for each piece, so that after a crash the first file may have some of its old places and some new ones.
///
/// Before Linux 6.13, two changes within one tick of the clock have the same time. Reads past the page cache (`O_DIRECT`) that are under way are
/// not waited for.
///
/// `EFAULT` for files of another size. `EINVAL` where the first has fewer pieces than the other, where the map of one would not fit into
/// the inode of the other, beside its attributes, for files of two owners, groups or projects while quotas are on, and for a file
/// that is swapped to; `EXDEV` and `EINVAL` across two file systems, `ENOTTY` on others.
#[doc(alias = "XFS_IOC_SWAPEXT")]
pub fn swap_if_same(target: BorrowedFd<'_>, other: BorrowedFd<'_>, size: u64, seen: Changes) -> io::Result<()> {
    let moment = |time: Time| Moment { seconds: time.secs as libc::c_long, nanoseconds: time.nanos as i32 };
    let looked = Looked { modified: moment(seen.modified), changed: moment(seen.changed), ..Looked::default() };
    let mut argument = SwapExtents {
        target: target.as_raw_fd().into(),
        other: other.as_raw_fd().into(),
        length: i64::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?,
        looked,
        ..SwapExtents::default()
    };
    // SAFETY: the kernel reads a `struct xfs_swapext`, which this is (asserted above).
    retry(|| unsafe { libc::ioctl(target.as_raw_fd(), XFS_IOC_SWAPEXT as _, &raw mut argument) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::files::statx_fd;
    use crate::testing::on_xfs;

    fn seen(file: &File) -> Changes {
        let stat = statx_fd(file.as_fd()).unwrap();
        Changes { modified: stat.mtime, changed: stat.ctime }
    }

    #[test]
    fn other_file_systems_say_that_they_cannot() {
        let (one, other) = (tempfile::tempfile_in("/dev/shm").unwrap(), tempfile::tempfile_in("/dev/shm").unwrap());
        let error = swap_if_same(one.as_fd(), other.as_fd(), 0, seen(&one)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn files_change_places_while_nobody_has_changed_the_first() {
        on_xfs(|own| {
            let made = |byte, size| {
                let file = tempfile::tempfile_in(&own.root).unwrap();
                file.write_all_at(&vec![byte; size], 0).unwrap();
                file
            };
            let (one, other) = (made(1, 5000), made(2, 5000));
            let read = |file: &File| {
                let mut bytes = [0; 5000];
                file.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            let errno = |told: io::Result<()>| told.map_err(|error| error.raw_os_error());
            let before = seen(&one);
            assert_eq!(errno(swap_if_same(one.as_fd(), other.as_fd(), 5000, before)), Ok(()));
            assert!(read(&one) == [2; 5000] && read(&other) == [1; 5000]);
            assert_eq!(seen(&one), before, "no time has changed");

            one.write_all_at(&[3], 0).unwrap();
            assert_eq!(errno(swap_if_same(one.as_fd(), other.as_fd(), 5000, before)), Err(Some(libc::EBUSY)));
            let now = seen(&one);
            assert_eq!(errno(swap_if_same(one.as_fd(), other.as_fd(), 4999, now)), Err(Some(libc::EFAULT)));
            assert_eq!(errno(swap_if_same(one.as_fd(), made(4, 9000).as_fd(), 5000, now)), Err(Some(libc::EFAULT)));
            assert!(read(&one)[..2] == [3, 2] && read(&other) == [1; 5000]);
        });
    }
}
