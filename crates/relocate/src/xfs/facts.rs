//! Whether files of an XFS may be moved at all.

use std::io;
use std::os::fd::BorrowedFd;

use onesweep_sys::{features::kernel_version, files::file_system, xfs};
use thiserror::Error;

use super::Way;
use super::whole::Known;
use crate::mounted::mount_of;

/// Why nothing of a file system is moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is another file system.
    #[error("its file system is {0}, not xfs")]
    NotXfs(String),
    /// Files are used where they lie.
    #[error("its XFS is mounted with dax=always; mount it without")]
    Dax,
    /// The disk isn't asked to keep the order of what is written, which kernels before 4.19 could be told.
    #[error("its XFS is mounted with nobarrier, so that a power cut would damage what was moved; mount it without")]
    NoBarriers,
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
    pub(super) way: Way,
    pub(super) known: Known,
}

impl Facts {
    pub(super) fn of(directory: BorrowedFd<'_>) -> Result<Facts, Refusal> {
        let unknown = |what| move |source| Refusal::Unknown { what, source };
        let (dev, mount) = mount_of(directory).map_err(unknown("find its mount"))?;
        if mount.fs_type != "xfs" {
            return Err(Refusal::NotXfs(mount.fs_type));
        }
        judge_options(&mount.options, &mount.super_options)?;
        let told = xfs::facts(directory).map_err(unknown("ask the kernel about its XFS"))?;
        let kernel = kernel_version();
        let way = judge(told, kernel)?;
        let known = Known {
            group_blocks: u64::from(told.group_blocks).max(1),
            inode_room: told.inode_room.into(),
            tells_changes: kernel >= TELLS_CHANGES,
        };
        let block_bytes = file_system(directory).map_err(unknown("ask for its block size"))?.block_size;
        Ok(Facts { dev, block_bytes, way, known })
    }
}

/// Before this a change may have the very time of the one before it, so that nobody could tell.
const TELLS_CHANGES: (u32, u32) = (6, 13);

/// Of the mount, and of the file system.
fn judge_options(mount: &str, whole: &str) -> Result<(), Refusal> {
    let has = |options: &str, wanted: &[&str]| options.split(',').any(|option| wanted.contains(&option));
    if has(mount, &["ro"]) || has(whole, &["ro"]) {
        return Err(Refusal::ReadOnly);
    }
    if has(whole, &["dax", "dax=always"]) {
        return Err(Refusal::Dax);
    }
    if has(whole, &["nobarrier"]) {
        return Err(Refusal::NoBarriers);
    }
    Ok(())
}

fn judge(told: xfs::Facts, kernel: (u32, u32)) -> Result<Way, Refusal> {
    match told {
        xfs::Facts { is_sick: true, .. } => Err(Refusal::Damaged),
        xfs::Facts { has_reflinks: true, .. } => Ok(Way::Share),
        xfs::Facts { has_exchange: true, .. } if kernel >= TELLS_CHANGES => Ok(Way::Exchange),
        _ => Ok(Way::Whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_refused_by_name() {
        assert!(judge_options("rw,relatime", "rw,attr2,inode64,logbufs=8,noquota").is_ok());
        assert!(matches!(judge_options("ro,relatime", "rw"), Err(Refusal::ReadOnly)));
        assert!(matches!(judge_options("rw", "ro"), Err(Refusal::ReadOnly)));
        assert!(matches!(judge_options("rw", "rw,dax=always"), Err(Refusal::Dax)));
        assert!(judge_options("rw", "rw,dax=inode").is_ok());
        assert!(matches!(judge_options("rw", "rw,nobarrier,noquota"), Err(Refusal::NoBarriers)));
    }

    #[test]
    fn what_is_not_sound_is_refused() {
        let told = |has_reflinks, has_exchange, is_sick, kernel| {
            judge(xfs::Facts { has_reflinks, has_exchange, is_sick, ..xfs::Facts::default() }, kernel)
        };
        assert!(matches!(told(true, false, false, (5, 10)), Ok(Way::Share)));
        assert!(matches!(told(true, true, false, (6, 18)), Ok(Way::Share)));
        assert!(matches!(told(false, true, false, (6, 13)), Ok(Way::Exchange)));
        assert!(matches!(told(false, true, false, (6, 12)), Ok(Way::Whole)));
        assert!(matches!(told(false, false, false, (6, 18)), Ok(Way::Whole)));
        for (has_reflinks, has_exchange) in [(true, false), (false, true), (false, false)] {
            assert!(matches!(told(has_reflinks, has_exchange, true, (6, 18)), Err(Refusal::Damaged)));
        }
    }
}
