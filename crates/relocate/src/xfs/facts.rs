//! Whether files of an XFS may be moved at all.

use std::io;
use std::os::fd::BorrowedFd;

use onesweep_sys::{files::file_system, xfs};
use thiserror::Error;

use crate::mounted::mount_of;

/// Why nothing of a file system is moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is another file system.
    #[error("its file system is {0}, not xfs")]
    NotXfs(String),
    /// Files can't share blocks.
    #[error("its XFS has no reflinks (mkfs.xfs -m reflink=0), without which its files cannot be put side by side")]
    NoReflinks,
    /// Files are used where they lie.
    #[error("its XFS is mounted with dax=always; mount it without")]
    Dax,
    /// It is mounted for reading.
    #[error("it is mounted read-only")]
    ReadOnly,
    /// The kernel has found damage.
    #[error("the kernel has found damage in its XFS; unmount it and run xfs_repair first")]
    Damaged,
    /// Something could not be found out.
    #[error("cannot {what}: {source}")]
    Unknown {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// What has to be known.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) dev: u64,
    pub(super) block_bytes: u64,
}

impl Facts {
    pub(super) fn of(directory: BorrowedFd<'_>) -> Result<Facts, Refusal> {
        let unknown = |what| move |source| Refusal::Unknown { what, source };
        let (dev, mount) = mount_of(directory).map_err(unknown("find its mount"))?;
        if mount.fs_type != "xfs" {
            return Err(Refusal::NotXfs(mount.fs_type));
        }
        let has = |options: &str, wanted: &[&str]| options.split(',').any(|option| wanted.contains(&option));
        if has(&mount.options, &["ro"]) || has(&mount.super_options, &["ro"]) {
            return Err(Refusal::ReadOnly);
        }
        if has(&mount.super_options, &["dax", "dax=always"]) {
            return Err(Refusal::Dax);
        }
        judge(xfs::facts(directory).map_err(unknown("ask the kernel about its XFS"))?)?;
        let block_bytes = file_system(directory).map_err(unknown("ask for its block size"))?.block_size;
        Ok(Facts { dev, block_bytes })
    }
}

fn judge(told: xfs::Facts) -> Result<(), Refusal> {
    match told {
        xfs::Facts { is_sick: true, .. } => Err(Refusal::Damaged),
        xfs::Facts { has_reflinks: false, .. } => Err(Refusal::NoReflinks),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_sound_is_refused() {
        let told = |has_reflinks, is_sick| judge(xfs::Facts { has_reflinks, is_sick, groups: 4 });
        assert!(told(true, false).is_ok());
        assert!(matches!(told(true, true), Err(Refusal::Damaged)));
        assert!(matches!(told(false, true), Err(Refusal::Damaged)));
        assert!(matches!(told(false, false), Err(Refusal::NoReflinks)));
    }
}
