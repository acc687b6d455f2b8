//! Whether files of a btrfs may be moved at all.

use std::io;
use std::os::fd::BorrowedFd;

use onesweep_sys::files::{file_system, is_read_only};
use thiserror::Error;

use crate::mounted::mount_of;

/// Why nothing of a file system is moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is another file system.
    #[error("its file system is {0}, not btrfs")]
    NotBtrfs(String),
    /// What is written has no checksums, and files that have them can't share it.
    #[error("its btrfs is mounted with {0}, so that what is written has no checksums; mount it without")]
    NoChecksums(&'static str),
    /// It is mounted for reading.
    #[error("it is mounted read-only")]
    ReadOnly,
    /// It is a snapshot that nobody may write to.
    #[error("it lies in a read-only subvolume or snapshot")]
    ReadOnlySubvolume,
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
        if mount.fs_type != "btrfs" {
            return Err(Refusal::NotBtrfs(mount.fs_type));
        }
        judge(&mount.options, &mount.super_options)?;
        // Only the subvolume is left that could stand against it.
        if is_read_only(directory).map_err(unknown("ask whether it may be written to"))? {
            return Err(Refusal::ReadOnlySubvolume);
        }
        let block_bytes = file_system(directory).map_err(unknown("ask for its block size"))?.block_size;
        Ok(Facts { dev, block_bytes })
    }
}

fn judge(of_mount: &str, of_file_system: &str) -> Result<(), Refusal> {
    let has = |options: &str, wanted: &str| options.split(',').any(|option| option == wanted);
    if has(of_mount, "ro") || has(of_file_system, "ro") {
        return Err(Refusal::ReadOnly);
    }
    match ["nodatacow", "nodatasum"].into_iter().find(|option| has(of_file_system, option)) {
        Some(option) => Err(Refusal::NoChecksums(option)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_without_checksums_and_for_reading_are_refused() {
        assert!(judge("rw,relatime", "rw,space_cache=v2,subvolid=5").is_ok());
        assert!(matches!(judge("ro,relatime", "rw"), Err(Refusal::ReadOnly)));
        assert!(matches!(judge("rw", "ro"), Err(Refusal::ReadOnly)));
        assert!(matches!(judge("rw", "rw,nodatasum"), Err(Refusal::NoChecksums("nodatasum"))));
        assert!(matches!(judge("rw", "rw,nodatasum,nodatacow"), Err(Refusal::NoChecksums("nodatacow"))));
    }
}
