//! All metadata of a file system brought into memory before a walk that wants all of it, in the order of the disk.
//!
//! A walk learns of a directory when it has read the one above, so it goes over the disk as often as the tree is deep. XFS
//! tells its inodes without their names: these are read group by group, then the directories among them, first those that
//! have others below them, each time by rising inode number, near which their blocks were allocated. The walk that follows
//! finds everything in memory. Of btrfs, its own trees tell where its metadata lies ([`crate::btrfs`]).

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use onesweep_sys::{
    features::features,
    files::{self, DirReader},
    memory, priority, xfs,
};

use crate::{
    btrfs::{Btrfs, Manner},
    placement::Placement,
    progress::Cancel,
};

/// What XFS keeps in memory for an inode, at the most usual size of inodes.
const INODE_BYTES: u64 = 1024;

/// Directories that are read at a time, for each disk: more than its queue holds, for some wait for their parents.
const IN_FLIGHT: usize = 64;

const LISTING_BUFFER: usize = 32 << 10;
const STACK_BYTES: usize = 128 << 10;

/// An XFS or a btrfs that a sweep may cover as a whole.
#[derive(Debug)]
pub(crate) struct Preload {
    threads: usize,
    idle: bool,
    cancel: Cancel,
    btrfs: Option<Arc<Btrfs>>,
    /// Of btrfs: subvolumes below the root are not left out.
    nested: bool,
}

impl Preload {
    /// For a root of a sweep; `None` where the walk is as good: on other file systems, and in a part of one.
    pub(crate) fn of(placement: &Placement, one_file_system: bool, idle: bool, cancel: &Cancel) -> Option<Self> {
        let tells = placement.fs_type == "xfs" || placement.btrfs.is_some();
        (tells && !placement.is_seekless()).then(|| Self {
            threads: IN_FLIGHT * placement.members(),
            idle,
            cancel: cancel.clone(),
            btrfs: placement.btrfs.clone(),
            nested: !one_file_system,
        })
    }

    /// Reads what there is below the root directory of a file system; nothing below another, or when it would not fit in
    /// memory or may not be asked for.
    pub(crate) fn run(&self, root: BorrowedFd<'_>) {
        if let Some(btrfs) = &self.btrfs {
            let manner = Manner { idle: self.idle, cancel: self.cancel.clone() };
            return btrfs.bring_subvolume(root, self.nested, &manner);
        }
        if !(features().bulkstat && is_root(root) && fits_in_memory(root)) {
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
        self.read_directories(root, &upper);
        self.read_directories(root, &lowest);
    }

    fn read_directories(&self, root: BorrowedFd<'_>, directories: &[(u64, u32)]) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..self.threads.min(directories.len()) {
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

fn fits_in_memory(directory: BorrowedFd<'_>) -> bool {
    let inodes = files::file_system(directory).map_or(u64::MAX, |facts| facts.inodes_used);
    let available = memory::available_bytes().unwrap_or(0);
    inodes.saturating_mul(INODE_BYTES) <= available / 2
}
