//! The metadata of a mounted XFS through the kernel, which keeps it in buffers of its own.
//!
//! XFS tells its inodes without their names (`XFS_IOC_BULKSTAT`), group by group, or several at a time where they lie on several
//! disks. Then the directories among them are read,
//! first those that have others below them. Their blocks lie near their inodes, but in no order that a number tells: so the
//! inodes of the directories are read once more, from the device, which tells where the blocks are.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use onesweep_layout::tables::xfs::{DirectoryPlaces, each_group};
use onesweep_sys::{
    features::features,
    files::{self, DirReader},
    memory, priority,
    usage::blocks_read,
    xfs,
};

use crate::progress::Cancel;

/// What XFS keeps in memory for an inode, at the most usual size of inodes.
const INODE_BYTES: u64 = 1024;

/// With fewer inodes a walk is quicker, which comes to a directory's inode and its block at once: all inodes first, then all
/// directories is a turn over the allocation groups more.
const INODES_MIN: u64 = 192;

const LISTING_BUFFER: usize = 32 << 10;
const STACK_BYTES: usize = 128 << 10;

/// An XFS that is mounted.
#[derive(Debug)]
pub(super) struct MountedXfs {
    /// The node of its device, where it has one.
    pub(super) node: Option<PathBuf>,
    /// Directories that are read at a time.
    pub(super) in_flight: usize,
    /// Allocation groups that are asked for at a time.
    pub(super) groups_at_a_time: usize,
    pub(super) idle: bool,
    pub(super) cancel: Cancel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Directory {
    inode: u64,
    generation: u32,
    has_directories: bool,
}

impl MountedXfs {
    /// Reads all inodes and directories; nothing below another directory than the root, where that costs more than a walk,
    /// where they would not fit in memory, or may not be asked for. With `always` only the last two count.
    pub(super) fn bring_in(&self, root: BorrowedFd<'_>, always: bool) {
        let inodes = files::file_system(root).map_or(u64::MAX, |facts| facts.inodes_used);
        let is_wanted = always || (gains(inodes) && is_root(root));
        if !(features().bulkstat && is_wanted && fits_in_memory(inodes)) {
            return;
        }
        let before = blocks_read();
        let mut directories = self.inodes(root);
        // What is in memory needs no order.
        if blocks_read() != before {
            directories = self.by_place(root, directories);
        }
        // The kernel looks up the ancestors of what it opens by number: of the lowest ones, all are known then.
        let (upper, lowest): (Vec<_>, Vec<_>) =
            directories.into_iter().partition(|directory| directory.has_directories);
        self.read(root, &upper);
        self.read(root, &lowest);
    }

    /// Brings the inodes in, and tells which are directories.
    fn inodes(&self, root: BorrowedFd<'_>) -> Vec<Directory> {
        let groups = xfs::facts(root).map_or(0, |facts| facts.groups);
        let by_group = Mutex::new(BTreeMap::new());
        let ask = |group| {
            if self.idle && self.groups_at_a_time > 1 {
                let _ = priority::set_idle_io();
            }
            let mut directories = Vec::new();
            let told = xfs::bulkstat(root, group, &mut |inode| {
                if inode.mode & 0o170_000 == 0o040_000 {
                    let has_directories = inode.nlink > 2;
                    directories.push(Directory { inode: inode.ino, generation: inode.generation, has_directories });
                }
                !self.cancel.is_cancelled()
            });
            by_group.lock().unwrap_or_else(PoisonError::into_inner).insert(group, directories);
            told?;
            Ok(if self.cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        // Whoever may not ask reads no more than a walk does.
        let _ = each_group(groups, self.groups_at_a_time, &ask);
        by_group.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().flatten().collect()
    }

    /// Directories in the order of their blocks on the disk; as they are, where the device can't be read.
    fn by_place(&self, root: BorrowedFd<'_>, directories: Vec<Directory>) -> Vec<Directory> {
        let opened = self.node.as_ref().zip(files::statx_fd(root).ok());
        let Some(places) = opened.and_then(|(node, stat)| DirectoryPlaces::of_mounted(node, stat.dev).ok()) else {
            return directories;
        };
        let placed = Mutex::new(Vec::with_capacity(directories.len()));
        self.side_by_side(&directories, || {
            |directory: &Directory| {
                let place = places.first_block(directory.inode);
                placed.lock().unwrap_or_else(PoisonError::into_inner).push((place, *directory));
            }
        });
        let mut placed = placed.into_inner().unwrap_or_else(PoisonError::into_inner);
        placed.sort_unstable_by_key(|(place, directory)| (*place, directory.inode));
        placed.into_iter().map(|(_, directory)| directory).collect()
    }

    fn read(&self, root: BorrowedFd<'_>, directories: &[Directory]) {
        self.side_by_side(directories, || {
            let mut listing = DirReader::with_buffer(LISTING_BUFFER);
            move |directory: &Directory| {
                // Whoever needs it asks again, and meets the same error.
                if let Ok(fd) = xfs::open_directory(root, directory.inode, directory.generation) {
                    let _ = listing.read(fd.as_fd(), |_| {});
                }
            }
        });
    }

    /// Does something with each directory, by threads that each take the next one.
    fn side_by_side<W: FnMut(&Directory)>(&self, directories: &[Directory], work: impl Fn() -> W + Sync) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..self.in_flight.min(directories.len()) {
                let builder = thread::Builder::new().name("onesweep-ahead".into()).stack_size(STACK_BYTES);
                // With fewer threads, or none, less is read ahead.
                let _ = builder.spawn_scoped(scope, || {
                    if self.idle {
                        let _ = priority::set_idle_io();
                    }
                    let mut work = work();
                    while let Some(directory) = directories.get(next.fetch_add(1, Ordering::Relaxed))
                        && !self.cancel.is_cancelled()
                    {
                        work(directory);
                    }
                });
            }
        });
    }
}

/// Below another directory, much of what is read might not be wanted.
fn is_root(directory: BorrowedFd<'_>) -> bool {
    let stat = files::statx_fd(directory);
    stat.is_ok_and(|stat| xfs::root_inode(directory).is_ok_and(|root| root == stat.ino))
}

/// Whether an XFS of so many inodes is quicker with all of them brought in.
fn gains(inodes: u64) -> bool {
    inodes >= INODES_MIN
}

fn fits_in_memory(inodes: u64) -> bool {
    let available = memory::available_bytes().unwrap_or(0);
    inodes.saturating_mul(INODE_BYTES) <= available / 2
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs, io, io::Write, process::Command};

    use super::*;

    /// By measurement: 100 files of the source recipe are read sooner by a walk, 250 are not.
    #[test]
    fn a_small_xfs_is_walked() {
        assert!(!gains(110) && gains(270));
    }

    /// A file system that is mounted, unmounted when dropped.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }

    #[test]
    fn groups_at_a_time_tell_the_same() {
        if onesweep_sys::user::effective_uid() != 0 {
            // Past the test harness, which would keep it back.
            let _ = writeln!(io::stderr(), "skipped: {}: needs root", thread::current().name().unwrap_or("a test"));
            return;
        }
        let done = |program: &str, arguments: &[&OsStr]| {
            let out = Command::new(program).args(arguments).output().unwrap();
            assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
        };
        let folder = tempfile::tempdir().unwrap();
        let [image, root] = ["image", "root"].map(|name| folder.path().join(name));
        fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
        done("mkfs.xfs", &["-q".as_ref(), "-d".as_ref(), "agcount=8".as_ref(), image.as_os_str()]);
        fs::create_dir(&root).unwrap();
        done("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), root.as_os_str()]);
        let mounted = Mounted(root);
        // A new directory goes to the next group.
        (0..100).for_each(|number| fs::create_dir_all(mounted.0.join(format!("{number}/below"))).unwrap());
        let opened = files::open_dir(mounted.0.as_path()).unwrap();
        let told = |groups_at_a_time| {
            let idle = groups_at_a_time == 4;
            let xfs = MountedXfs { node: None, in_flight: 1, groups_at_a_time, idle, cancel: Cancel::default() };
            xfs.inodes(opened.as_fd())
        };
        let expected = told(1);
        assert_eq!(expected.len(), 201);
        assert!(expected.is_sorted_by_key(|directory| directory.inode));
        for groups in [2, 3, 4] {
            assert_eq!(told(groups), expected, "{groups} groups at a time");
        }
    }
}
