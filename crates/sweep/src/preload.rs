//! All metadata of a file system brought into memory before a walk that wants all of it, in the order of the disk.
//!
//! A walk learns of a directory when it has read the one above, so it goes over the disk as often as the tree is deep. XFS
//! tells its inodes without their names: these are read group by group, then the directories among them. ext4 is read in one
//! pass over its device; so is NTFS, in two, which `ntfs-3g` reads through that same cache. Of btrfs, its own trees tell where
//! its metadata lies ([`crate::btrfs`]). The walk that follows finds everything in memory.

mod ext4;
mod ntfs;
mod xfs;

use std::{
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    sync::Arc,
};

use onesweep_layout::tables::{ext4::Needs, ntfs::MountedNtfs, xfs::groups_at_a_time};
use onesweep_sys::{btrfs::SUBVOLUME_ROOT, features::features, files};

use self::{ext4::MountedExt4, xfs::MountedXfs};
use crate::{
    btrfs::{Btrfs, Manner},
    placement::Placement,
    progress::Cancel,
    settings::{MetadataSource, Settings},
};

/// Directories that are read at a time, for each disk: more than its queue holds, for some wait for their parents.
const IN_FLIGHT: usize = 64;

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
    Xfs(MountedXfs),
    Ext4(MountedExt4),
    Ntfs(Arc<MountedNtfs>),
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
            "xfs" => Source::Xfs(MountedXfs {
                node: placement.stack.as_ref().map(|stack| stack.node.clone()),
                in_flight: IN_FLIGHT * placement.members(),
                groups_at_a_time: placement.stack.as_ref().map_or(1, groups_at_a_time),
                idle: settings.idle,
                cancel: settings.cancel.clone(),
            }),
            "ext4" | "ext3" | "ext2" if features().tables => {
                let node = placement.stack.as_ref()?.node.clone();
                let needs = Needs { layout: layout || settings.content, xattrs: settings.xattrs };
                Source::Ext4(MountedExt4 { node, needs })
            }
            "fuseblk" => Source::Ntfs(placement.ntfs.clone()?),
            _ => Source::Btrfs { trees: placement.btrfs.clone()?, nested: !settings.one_file_system },
        };
        Some(Self { source, is_wished, idle: settings.idle, cancel: settings.cancel.clone() })
    }

    /// Why the tables of the mounted file system that `path` lies on can't be read, if they can't.
    pub(crate) fn refusal(placement: &Placement, path: &Path) -> Option<String> {
        match (placement.fs_type.as_str(), &placement.stack) {
            ("xfs", _) if features().bulkstat => {
                // What is no directory can't be asked, and has nothing below.
                let asked = files::open_dir(path).ok().map(|root| onesweep_sys::xfs::root_inode(root.as_fd()));
                let refused = asked.is_some_and(|asked| asked.is_err());
                refused.then(|| "XFS tells its inodes to root alone; be root, or use --metadata auto".into())
            }
            ("ext4" | "ext3" | "ext2", Some(stack)) => ext4::refusal(&stack.node, placement.volume.dev),
            ("fuseblk", _) if placement.ntfs.is_some() => None,
            ("btrfs", _) if placement.btrfs.is_some() => {
                let is_subvolume = path.metadata().is_ok_and(|found| found.ino() == SUBVOLUME_ROOT);
                (!is_subvolume).then(|| "the trees of btrfs are read for whole subvolumes; name one".into())
            }
            ("btrfs", _) => Some("btrfs tells its trees to root alone; be root, or use --metadata auto".into()),
            (other, _) => Some(format!(
                "the tables of a mounted {other} can't be read; only those of ext2, ext3, ext4, XFS and btrfs can, by root those of \
                 NTFS, too, and those of images and unmounted devices. Leave out --metadata tables"
            )),
        }
    }

    /// Whether it is to run before it is seen that metadata comes from the disk: where that was wished, and where another
    /// process reads it.
    pub(crate) fn runs_at_once(&self) -> bool {
        self.is_wished || matches!(self.source, Source::Ntfs(_))
    }

    /// Reads what there is below the root directory of a file system; nothing below another (unless that is wished), or when
    /// it would not fit in memory or may not be asked for.
    pub(crate) fn run(&self, root: BorrowedFd<'_>) {
        match &self.source {
            Source::Xfs(xfs) => xfs.bring_in(root, self.is_wished),
            Source::Ext4(ext4) => ext4.bring_in(root, self.is_wished, &self.cancel),
            Source::Ntfs(tables) => ntfs::bring_in(tables, root, self.is_wished, &self.cancel),
            Source::Btrfs { trees, nested } => {
                let manner = Manner { idle: self.idle, cancel: self.cancel.clone() };
                trees.bring_subvolume(root, *nested, &manner);
            }
        }
    }
}
