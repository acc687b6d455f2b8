//! Whatever is mounted: the host that moves files there, or why none does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use onesweep_layout::{Mount, MountTable};
use onesweep_sys::files::{open_dir, statx_fd};
use thiserror::Error;

use crate::btrfs::{self, Btrfs};
use crate::ext4::{self, Ext4};
use crate::host::{Failure, Host, Uncached};
use crate::shown::Shown;
use crate::xfs::{self, Xfs};

/// Why nothing of a file system is moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Of an ext4.
    #[error(transparent)]
    Ext4(#[from] ext4::Refusal),
    /// Of an XFS.
    #[error(transparent)]
    Xfs(#[from] xfs::Refusal),
    /// Of a btrfs.
    #[error(transparent)]
    Btrfs(#[from] btrfs::Refusal),
    /// It is a btrfs, whose files [`Btrfs`] moves for whoever wants that.
    #[error(
        "its file system is btrfs, where files are moved only with defrag --dedupe: each is written anew and comes to share that; \
         what snapshots or reflinks share stays"
    )]
    OnlyAsked,
    /// Files of such a file system are not moved.
    #[error("its file system is {name}; only files of ext4, XFS and, with defrag --dedupe, btrfs are moved: {why}")]
    Kind {
        /// The kernel's name of it.
        name: String,
        /// What stands against it.
        why: &'static str,
    },
    /// Something could not be found out.
    #[error("cannot {what}: {source}")]
    Unknown {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Refusal {
    /// What could not be found out, and why, where that is it.
    #[must_use]
    pub fn unknown(&self) -> Option<(&'static str, &io::Error)> {
        match self {
            Refusal::Ext4(ext4::Refusal::Unknown { what, source })
            | Refusal::Xfs(xfs::Refusal::Unknown { what, source })
            | Refusal::Btrfs(btrfs::Refusal::Unknown { what, source })
            | Refusal::Unknown { what, source } => Some((what, source)),
            _ => None,
        }
    }
}

/// A mounted file system as a host. As with [`Host`], no method has a default.
pub trait Mounted: Host {
    /// Bytes of a block.
    fn block_bytes(&self) -> u64;

    /// Gets ready to move files below a directory into regions of so many blocks, which are to come near their directories where that is
    /// wanted: settings of the file system are changed meanwhile for that, where it takes such and the caller may.
    ///
    /// # Errors
    ///
    /// What is only found out now, without any harm.
    fn get_ready(&mut self, directory: &Path, region: u64, near: bool) -> Result<(), Refusal>;

    /// Sets back what was changed for that, if anything was.
    fn set_back(&mut self);

    /// Keeps the old places of all that is moved from now on below a directory, on a file system where they can be.
    ///
    /// # Errors
    ///
    /// When they can't be kept.
    fn keep_old_places(&mut self, directory: &Path) -> Result<(), Failure>;

    /// The name by which old places are kept, when any are.
    fn kept_run(&self) -> Option<&str>;

    /// The folder of kept places, if it lies below this directory. What is in it is not to be moved.
    fn kept_below(&self, directory: &Path) -> Option<PathBuf>;

    /// Exchanges so far by which a file's time of the last change of the inode (ctime) became another.
    fn new_ctime_files(&self) -> u64;
}

fn cannot_keep(directory: &Path) -> Failure {
    Failure::new("keep old places of its files", directory, io::ErrorKind::Unsupported.into())
}

impl Mounted for Ext4 {
    fn block_bytes(&self) -> u64 {
        Ext4::block_bytes(self)
    }

    fn get_ready(&mut self, directory: &Path, region: u64, near: bool) -> Result<(), Refusal> {
        // Only root may change the setting.
        if !near || self.raise_unit(region).is_err() {
            self.take_unit(region);
        }
        Ok(self.rehearse(directory)?)
    }

    fn set_back(&mut self) {
        self.lower_unit();
    }

    fn keep_old_places(&mut self, _: &Path) -> Result<(), Failure> {
        Ext4::keep_old_places(self).map(|_| ())
    }

    fn kept_run(&self) -> Option<&str> {
        Ext4::kept_run(self)
    }

    fn kept_below(&self, directory: &Path) -> Option<PathBuf> {
        Ext4::kept_below(self, directory)
    }

    fn new_ctime_files(&self) -> u64 {
        0
    }
}

impl Mounted for Xfs {
    fn block_bytes(&self) -> u64 {
        Xfs::block_bytes(self)
    }

    fn get_ready(&mut self, _: &Path, region: u64, _: bool) -> Result<(), Refusal> {
        self.set_unit(region);
        Ok(())
    }

    fn set_back(&mut self) {}

    fn keep_old_places(&mut self, directory: &Path) -> Result<(), Failure> {
        Err(cannot_keep(directory))
    }

    fn kept_run(&self) -> Option<&str> {
        None
    }

    fn kept_below(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn new_ctime_files(&self) -> u64 {
        Xfs::new_ctime_files(self)
    }
}

impl Mounted for Btrfs {
    fn block_bytes(&self) -> u64 {
        Btrfs::block_bytes(self)
    }

    fn get_ready(&mut self, _: &Path, region: u64, _: bool) -> Result<(), Refusal> {
        self.set_unit(region);
        Ok(())
    }

    fn set_back(&mut self) {}

    fn keep_old_places(&mut self, directory: &Path) -> Result<(), Failure> {
        Err(cannot_keep(directory))
    }

    fn kept_run(&self) -> Option<&str> {
        None
    }

    fn kept_below(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn new_ctime_files(&self) -> u64 {
        0
    }
}

/// The host of a mounted file system.
#[derive(Debug)]
pub enum Chosen {
    /// Files are moved by changing places.
    Ext4(Box<Ext4>),
    /// Files are moved by sharing, or by changing places with what was written for them.
    Xfs(Xfs),
    /// Files are looked at, and stay, for this reason.
    Shown(Shown, Refusal),
}

/// The host for a directory.
///
/// # Errors
///
/// When files there could be moved on another file system of that kind, but not on this one.
pub fn host_of(directory: &Path, uncached: Uncached) -> Result<Chosen, Refusal> {
    let unknown = |what| move |source| Refusal::Unknown { what, source };
    let root = open_dir(directory).map_err(unknown("open it"))?;
    let (dev, mount) = mount_of(root.as_fd()).map_err(unknown("find its mount"))?;
    match mount.fs_type.as_str() {
        "ext4" => Ok(Chosen::Ext4(Box::new(Ext4::of(directory, uncached)?))),
        "xfs" => Ok(Chosen::Xfs(Xfs::of(directory, uncached)?)),
        name => {
            let refusal = match name {
                "btrfs" => Refusal::OnlyAsked,
                _ => Refusal::Kind { name: name.to_owned(), why: why_not(name) },
            };
            let shown = Shown::of(root, dev).map_err(unknown("ask for its block size"))?;
            Ok(Chosen::Shown(shown, refusal))
        }
    }
}

fn why_not(name: &str) -> &'static str {
    match name {
        "f2fs" => "it joins pieces inside of files alone, and cleaning moves them again",
        "ext2" | "ext3" => "it keeps places block by block, and only extents change places",
        "tmpfs" | "ramfs" => "it lies in memory",
        _ => "nothing there moves blocks safely while files are in use",
    }
}

/// The mount of an open file, and the device of its files.
pub(crate) fn mount_of(fd: BorrowedFd<'_>) -> io::Result<(u64, Mount)> {
    let stat = statx_fd(fd)?;
    let mounts = MountTable::read_or_say()?;
    let mount = stat.mnt_id.and_then(|id| mounts.by_id(id));
    let mount = mount.or_else(|| mounts.iter().find(|mount| mount.dev == stat.dev));
    let mount = mount.cloned().ok_or(io::ErrorKind::NotFound)?;
    Ok((stat.dev, mount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_its_reason() {
        let told = |name: &str| Refusal::Kind { name: name.to_owned(), why: why_not(name) }.to_string();
        assert_eq!(
            told("f2fs"),
            "its file system is f2fs; only files of ext4, XFS and, with defrag --dedupe, btrfs are moved: it joins pieces inside of files \
             alone, and cleaning moves them again"
        );
        let of = ["f2fs", "ext3", "tmpfs", "ntfs3"].map(why_not);
        assert_eq!((why_not("ext2"), why_not("ramfs")), (of[1], of[2]));
        let apart: std::collections::BTreeSet<_> = of.into_iter().collect();
        assert_eq!(apart.len(), 4);
    }
}
