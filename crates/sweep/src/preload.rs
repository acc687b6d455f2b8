//! All metadata of a file system brought into memory before a walk that wants all of it, in the order of the disk.
//!
//! A walk learns of a directory when it has read the one above, so it goes over the disk as often as the tree is deep. XFS
//! tells its inodes without their names: these are read group by group, then the directories among them, first those that
//! have others below them, each time by rising inode number, near which their blocks were allocated. ext4 is read in one
//! pass over its device. Of btrfs, its own trees tell where its metadata lies ([`crate::btrfs`]). The walk that follows finds
//! everything in memory.

mod ext4;

use std::{
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use onesweep_layout::tables::ext4::Needs;
use onesweep_sys::{
    btrfs::SUBVOLUME_ROOT,
    features::features,
    files::{self, DirReader},
    memory, priority, xfs,
};

use self::ext4::MountedExt4;
use crate::{
    btrfs::{Btrfs, Manner},
    placement::Placement,
    progress::Cancel,
    settings::{MetadataSource, Settings},
};

/// What XFS keeps in memory for an inode, at the most usual size of inodes.
const INODE_BYTES: u64 = 1024;

/// With fewer inodes a walk is quicker, which comes to a directory's inode and its block at once: all inodes first, then all
/// directories is a turn over the allocation groups more.
const INODES_MIN: u64 = 192;

/// Directories that are read at a time, for each disk: more than its queue holds, for some wait for their parents.
const IN_FLIGHT: usize = 64;

const LISTING_BUFFER: usize = 32 << 10;
const STACK_BYTES: usize = 128 << 10;

/// A file system that a sweep may cover as a whole.
#[derive(Debug)]
pub(crate) struct Preload {
    source: Source,
    /// It was asked for, and is not only done where it gains.
    is_wished: bool,
    idle: bool,
    cancel: Cancel,
}

#[derive(Debug)]
enum Source {
    /// XFS, by so many threads.
    Xfs(usize),
    Ext4(MountedExt4),
    /// btrfs; `nested`: subvolumes below the root are not left out.
    Btrfs {
        trees: Arc<Btrfs>,
        nested: bool,
    },
}

impl Preload {
    /// For a root of a sweep; `None` where the walk is as good: on other file systems, and on disks that don't seek.
    /// With `layout` it will be learned where the data lies.
    pub(crate) fn of(placement: &Placement, settings: &Settings, layout: bool) -> Option<Self> {
        let is_wished = settings.metadata == MetadataSource::Tables;
        if placement.is_seekless() && !is_wished {
            return None;
        }
        let source = match placement.fs_type.as_str() {
            "xfs" => Source::Xfs(IN_FLIGHT * placement.members()),
            "ext4" | "ext3" | "ext2" if features().tables => {
                let node = placement.stack.as_ref()?.node.clone();
                let needs = Needs { layout: layout || settings.content, xattrs: settings.xattrs };
                Source::Ext4(MountedExt4 { node, needs })
            }
            _ => Source::Btrfs { trees: placement.btrfs.clone()?, nested: !settings.one_file_system },
        };
        Some(Self { source, is_wished, idle: settings.idle, cancel: settings.cancel.clone() })
    }

    /// Why the tables of the mounted file system that `path` lies on can't be read, if they can't.
    pub(crate) fn refusal(placement: &Placement, path: &Path) -> Option<String> {
        match (placement.fs_type.as_str(), &placement.stack) {
            ("xfs", _) if features().bulkstat => {
                // What is no directory can't be asked, and has nothing below.
                let asked = files::open_dir(path).ok().map(|root| xfs::root_inode(root.as_fd()));
                let refused = asked.is_some_and(|asked| asked.is_err());
                refused.then(|| "XFS tells its inodes to root alone; be root, or use --metadata auto".into())
            }
            ("ext4" | "ext3" | "ext2", Some(stack)) => ext4::refusal(&stack.node, placement.volume.dev),
            ("btrfs", _) if placement.btrfs.is_some() => {
                let is_subvolume = path.metadata().is_ok_and(|found| found.ino() == SUBVOLUME_ROOT);
                (!is_subvolume).then(|| "the trees of btrfs are read for whole subvolumes; name one".into())
            }
            ("btrfs", _) => Some("btrfs tells its trees to root alone; be root, or use --metadata auto".into()),
            (other, _) => Some(format!(
                "the tables of a mounted {other} can't be read; only those of ext2, ext3, ext4, XFS and btrfs can, and those of \
                 images and unmounted devices. Leave out --metadata tables"
            )),
        }
    }

    /// Whether it is to run also where all is in memory.
    pub(crate) fn is_wished(&self) -> bool {
        self.is_wished
    }

    /// Reads what there is below the root directory of a file system; nothing below another (unless that is wished), or when
    /// it would not fit in memory or may not be asked for.
    pub(crate) fn run(&self, root: BorrowedFd<'_>) {
        match &self.source {
            Source::Xfs(threads) => self.read_xfs(root, *threads),
            Source::Ext4(ext4) => ext4.bring_in(root, self.is_wished, &self.cancel),
            Source::Btrfs { trees, nested } => {
                let manner = Manner { idle: self.idle, cancel: self.cancel.clone() };
                trees.bring_subvolume(root, *nested, &manner);
            }
        }
    }

    fn read_xfs(&self, root: BorrowedFd<'_>, threads: usize) {
        let inodes = files::file_system(root).map_or(u64::MAX, |facts| facts.inodes_used);
        let is_wanted = self.is_wished || (gains(inodes) && is_root(root));
        if !(features().bulkstat && is_wanted && fits_in_memory(inodes)) {
            return;
        }
        let (mut upper, mut lowest) = (Vec::new(), Vec::new());
        for group in 0.. {
            let told = xfs::bulkstat(root, group, &mut |inode| {
                if inode.mode & 0o170_000 == 0o040_000 {
                    // The kernel looks up the ancestors of what it opens by number: of the lowest ones, all are known then.
                    let list = if inode.nlink > 2 { &mut upper } else { &mut lowest };
                    list.push((inode.ino, inode.generation));
                }
                !self.cancel.is_cancelled()
            });
            // Beyond the last group, or not allowed.
            if told.is_err() || self.cancel.is_cancelled() {
                break;
            }
        }
        self.read_directories(root, threads, &upper);
        self.read_directories(root, threads, &lowest);
    }

    fn read_directories(&self, root: BorrowedFd<'_>, threads: usize, directories: &[(u64, u32)]) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..threads.min(directories.len()) {
                let builder = thread::Builder::new().name("onesweep-ahead".into()).stack_size(STACK_BYTES);
                // With fewer threads, or none, less is read ahead.
                let _ = builder.spawn_scoped(scope, || {
                    if self.idle {
                        let _ = priority::set_idle_io();
                    }
                    let mut listing = DirReader::with_buffer(LISTING_BUFFER);
                    while let Some(&(ino, generation)) = directories.get(next.fetch_add(1, Ordering::Relaxed))
                        && !self.cancel.is_cancelled()
                    {
                        // Whoever needs it asks again, and meets the same error.
                        if let Ok(fd) = xfs::open_directory(root, ino, generation) {
                            let _ = listing.read(fd.as_fd(), |_| {});
                        }
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
    use super::*;

    /// By measurement: 100 files of the source recipe are read sooner by a walk, 250 are not.
    #[test]
    fn a_small_xfs_is_walked() {
        assert!(!gains(110) && gains(270));
    }
}
