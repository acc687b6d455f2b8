//! What `statx` says of files.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use super::long_path::call_of_path;
use super::{EntryType, PathArg};

/// A point in time as a file system keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds to add, below 1,000,000,000.
    pub nanos: u32,
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> SystemTime {
        let whole = Duration::from_secs(time.secs.unsigned_abs());
        let base = match time.secs {
            0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
            _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
        };
        base.unwrap_or(SystemTime::UNIX_EPOCH) + Duration::from_nanos(time.nanos.into())
    }
}

/// What `statx` says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The device of the file system, as `makedev` packs it.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Names of the inode.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated.
    pub blocks: u64,
    /// Bytes that the file system likes to be asked for; mostly its block size.
    pub blksize: u32,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last read.
    pub atime: Time,
    /// Birth, where the file system keeps it.
    pub btime: Option<Time>,
    /// For a device file: its device, as `makedev` packs it.
    pub rdev: u64,
    /// The mount, as in `/proc/self/mountinfo` (Linux 5.8).
    pub mnt_id: Option<u64>,
    /// It is what a mount shows at its mount point.
    pub is_mount_root: bool,
    /// Alignment that `O_DIRECT` wants of memory and of file offsets, in bytes (Linux 6.1; regular files and block
    /// devices). `None`: unknown, or `O_DIRECT` does not work on this file.
    pub dio_align: Option<(u32, u32)>,
}

impl Stat {
    /// The type of the file.
    pub fn file_type(&self) -> EntryType {
        EntryType::of_mode(self.mode)
    }
}

/// The facts of an open file.
#[doc(alias = "statx")]
pub fn statx_fd(fd: BorrowedFd<'_>) -> io::Result<Stat> {
    stat_with(fd, c"", AtFlags::EMPTY_PATH)
}

/// The facts of the file `path` below `dir`; of the link itself when `nofollow` and it is a symbolic link.
///
/// Triggers no automount. On network file systems the cached attributes are taken.
#[doc(alias = "statx")]
pub fn statx_at(dir: BorrowedFd<'_>, path: impl PathArg, nofollow: bool) -> io::Result<Stat> {
    let mut flags = AtFlags::NO_AUTOMOUNT;
    flags.set(AtFlags::SYMLINK_NOFOLLOW, nofollow);
    stat_with(dir, path, flags)
}

/// Whether a file is protected by fs-verity, also where this kernel can't open such files.
#[doc(alias = "STATX_ATTR_VERITY")]
pub fn is_verity(path: impl PathArg) -> io::Result<bool> {
    has_attribute(path, StatxAttributes::VERITY)
}

/// Whether a file is encrypted, also where nobody has its key here, or this kernel can't open such files.
#[doc(alias = "STATX_ATTR_ENCRYPTED")]
pub fn is_encrypted(path: impl PathArg) -> io::Result<bool> {
    has_attribute(path, StatxAttributes::ENCRYPTED)
}

fn has_attribute(path: impl PathArg, attribute: StatxAttributes) -> io::Result<bool> {
    let look = |dir: BorrowedFd<'_>, path: &CStr| {
        rustix::fs::statx(dir, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE)
    };
    let found = path.into_with_c_str(|path| call_of_path(super::CURRENT_DIR, path, look))?;
    Ok(found.stx_attributes.contains(attribute))
}

fn stat_with(dir: BorrowedFd<'_>, path: impl PathArg, flags: AtFlags) -> io::Result<Stat> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID | StatxFlags::DIOALIGN;
    let look = |dir: BorrowedFd<'_>, path: &CStr| rustix::fs::statx(dir, path, flags, wanted);
    let found = path.into_with_c_str(|path| call_of_path(dir, path, look))?;
    let has = |flag: StatxFlags| found.stx_mask & flag.bits() != 0;
    let time = |time: rustix::fs::StatxTimestamp| Time { secs: time.tv_sec, nanos: time.tv_nsec };
    let dio_align = (found.stx_dio_mem_align, found.stx_dio_offset_align);
    Ok(Stat {
        dev: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        ino: found.stx_ino,
        mode: found.stx_mode.into(),
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        blocks: found.stx_blocks,
        blksize: found.stx_blksize,
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        atime: time(found.stx_atime),
        btime: has(StatxFlags::BTIME).then(|| time(found.stx_btime)),
        rdev: rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        mnt_id: has(StatxFlags::MNT_ID).then_some(found.stx_mnt_id),
        is_mount_root: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        dio_align: (has(StatxFlags::DIOALIGN) && dio_align.1 > 0).then_some(dio_align),
    })
}

/// Packs the two numbers of a device as [`Stat::dev`] has them.
pub fn makedev(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

/// The two numbers of a device: major, minor.
pub fn dev_numbers(dev: u64) -> (u32, u32) {
    (rustix::fs::major(dev), rustix::fs::minor(dev))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::files::open_file_at;
    use crate::testing::tree;

    #[test]
    fn facts_agree_with_the_standard_library() {
        let (tree, root) = tree();
        let path = tree.path().join("dir/sub/file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let (theirs, ours) = (fs::metadata(&path).unwrap(), statx_at(root.as_fd(), "dir/sub/file", true).unwrap());
        assert_eq!((ours.dev, ours.ino, ours.mode), (theirs.dev(), theirs.ino(), theirs.mode()));
        assert_eq!((ours.uid, ours.gid, u64::from(ours.nlink)), (theirs.uid(), theirs.gid(), theirs.nlink()));
        assert_eq!((ours.size, ours.blocks), (theirs.size(), theirs.blocks()));
        assert_eq!((ours.mtime.secs, i64::from(ours.mtime.nanos)), (theirs.mtime(), theirs.mtime_nsec()));
        assert_eq!(SystemTime::from(ours.mtime), theirs.modified().unwrap());
        assert_eq!(ours.btime.map(SystemTime::from), theirs.created().ok());
        assert!(ours.mnt_id.is_some());
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        assert_eq!(statx_fd(file.as_fd()).unwrap(), ours);
    }

    #[test]
    fn facts_of_a_link_are_its_own_when_wanted() {
        let (_kept, root) = tree();
        let kind = |nofollow| statx_at(root.as_fd(), "dir/link", nofollow).unwrap().file_type();
        assert_eq!((kind(true), kind(false)), (EntryType::Symlink, EntryType::Dir));
    }

    #[test]
    fn times_before_1970_are_times() {
        let second_before = Time { secs: -1, nanos: 500_000_000 };
        assert_eq!(SystemTime::from(second_before), SystemTime::UNIX_EPOCH - Duration::from_millis(500));
        assert!(second_before < Time::default());
    }

    #[test]
    fn device_numbers_pack_and_unpack() {
        for numbers in [(8, 1), (253, 0), (0, 45), (259, 70_000)] {
            assert_eq!(dev_numbers(makedev(numbers.0, numbers.1)), numbers);
        }
    }
}
