//! Whether files of a file system may be moved at all.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use onesweep_layout::SysTree;
use onesweep_sys::files::file_system;
use thiserror::Error;

use super::fast_commit::makes_fast_commits;
use crate::mounted::mount_of;

/// Why nothing of a file system is moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is another file system.
    #[error("its file system is {0}; only files of ext4 are moved this way")]
    NotExt4(String),
    /// It has no journal: after a crash files would have other files' bytes.
    #[error("its ext4 has no journal, without which a crash would damage what was moved; tune2fs -j adds one")]
    NoJournal,
    /// All data goes through the journal.
    #[error("its ext4 writes data to the journal (data=journal) and cannot move files; mount it with data=ordered")]
    DataJournal,
    /// Data may come to the disk behind the journal. The kernel then gives the old place of what was moved to others before the journal
    /// has the move, so that a crash would leave their bytes in it.
    #[error(
        "its ext4 lets data come to the disk behind the journal (data=writeback), so that a crash would damage what was moved; mount it with data=ordered"
    )]
    DataWriteback,
    /// It makes fast commits, which leave out what was moved.
    #[error(
        "its ext4 makes fast commits (fast_commit), which leave out what was moved, so that after a crash it could not be mounted; unmount it and \
         run tune2fs -O ^fast_commit on its device"
    )]
    FastCommits,
    /// The disk isn't asked to keep the order of what is written. What was moved could then be lost in a power cut, with files that nobody
    /// has written for years.
    #[error(
        "its ext4 is mounted with nobarrier (barrier=0), so that a power cut would damage what was moved; mount it with barrier=1"
    )]
    NoBarriers,
    /// Space is given out in clusters.
    #[error("its ext4 gives out space in clusters (bigalloc) and cannot move files")]
    Bigalloc,
    /// Files are used where they lie.
    #[error("its ext4 is mounted with dax and cannot move files; mount it without")]
    Dax,
    /// It is mounted for reading.
    #[error("it is mounted read-only")]
    ReadOnly,
    /// The kernel has found errors in it.
    #[error("its ext4 has recorded {0} errors; unmount it and run e2fsck first")]
    Damaged(u64),
    /// Something could not be found out.
    #[error("cannot {what}: {source}")]
    Unknown {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::Unknown { source, .. } => source,
            refusal => io::Error::new(io::ErrorKind::Unsupported, refusal),
        }
    }
}

/// What has to be known.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) dev: u64,
    pub(super) block_bytes: u64,
    /// The kernel's name of the device.
    pub(super) name: String,
    pub(super) mount_point: PathBuf,
}

impl Facts {
    pub(super) fn of(directory: BorrowedFd<'_>) -> Result<Facts, Refusal> {
        let unknown = |what| move |source| Refusal::Unknown { what, source };
        let (dev, mount) = mount_of(directory).map_err(unknown("find its mount"))?;
        if mount.fs_type != "ext4" {
            return Err(Refusal::NotExt4(mount.fs_type));
        }
        let has = |options: &str, wanted: &str| options.split(',').any(|option| option == wanted);
        if has(&mount.options, "ro") || has(&mount.super_options, "ro") {
            return Err(Refusal::ReadOnly);
        }
        let block = SysTree::default().block(dev).map_err(unknown("find its device in /sys"))?;
        let (node, name) = (block.node(), block.name);
        let read = |path: PathBuf| std::fs::read_to_string(path).map_err(unknown("ask the kernel about its ext4"));
        let options = read(Path::new("/proc/fs/ext4").join(&name).join("options"))?;
        let journal = read(settings(&name).join("journal_task"))?;
        let errors = read(settings(&name).join("errors_count"))?;
        let block_bytes = file_system(directory).map_err(unknown("ask for its block size"))?.block_size;
        judge(&options, &journal, &errors)?;
        let makes = makes_fast_commits(&name, &node, dev, &options);
        if makes.map_err(unknown("find out whether its ext4 makes fast commits"))? {
            return Err(Refusal::FastCommits);
        }
        Ok(Facts { dev, block_bytes, name, mount_point: mount.mount_point })
    }
}

/// Refuses what the kernel's own words don't show to be sound.
fn judge(options: &str, journal: &str, errors: &str) -> Result<(), Refusal> {
    let mode = options.lines().find_map(|line| line.strip_prefix("data="));
    // The number of the journal's thread.
    if journal.trim().parse::<u32>().is_err() {
        return Err(Refusal::NoJournal);
    }
    match mode {
        Some("ordered") => {}
        Some("writeback") => return Err(Refusal::DataWriteback),
        Some("journal") => return Err(Refusal::DataJournal),
        _ => return Err(Refusal::NoJournal),
    }
    if !options.lines().any(|line| line == "barrier") {
        return Err(Refusal::NoBarriers);
    }
    if options.lines().any(|line| line == "dax" || line == "dax=always") {
        return Err(Refusal::Dax);
    }
    match errors.trim().parse() {
        Ok(0) => {}
        Ok(errors) => return Err(Refusal::Damaged(errors)),
        Err(_) => {
            let source = io::ErrorKind::InvalidData.into();
            return Err(Refusal::Unknown { what: "read how many errors its ext4 has recorded", source });
        }
    }
    Ok(())
}

fn settings(name: &str) -> PathBuf {
    Path::new("/sys/fs/ext4").join(name)
}

pub(super) fn stream_request_path(name: &str) -> PathBuf {
    settings(name).join("mb_stream_req")
}

/// Blocks up to which an allocation comes from the space that is kept for small files near their directories.
pub(super) fn stream_request(name: &str) -> u64 {
    let told = std::fs::read_to_string(stream_request_path(name));
    told.ok().and_then(|told| told.trim().parse().ok()).unwrap_or(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_to_be_sound_is_refused() {
        assert!(judge("rw\nbarrier\ndata=ordered\n", "77\n", "0\n").is_ok());
        let refused = |options, journal, errors| judge(options, journal, errors).unwrap_err();
        assert!(matches!(refused("rw", "<none>\n", "0"), Refusal::NoJournal));
        assert!(matches!(refused("rw\ndata=ordered", "<none>\n", "0"), Refusal::NoJournal));
        assert!(matches!(refused("rw", "77", "0"), Refusal::NoJournal));
        assert!(matches!(refused("data=journal", "77", "0"), Refusal::DataJournal));
        assert!(matches!(refused("rw\ndata=writeback\n", "77\n", "0\n"), Refusal::DataWriteback));
        assert!(matches!(refused("nobarrier\ndata=ordered", "77", "0"), Refusal::NoBarriers));
        assert!(matches!(refused("data=ordered", "77", "0"), Refusal::NoBarriers));
        assert!(matches!(refused("barrier\ndata=ordered\ndax=always", "77", "0"), Refusal::Dax));
        assert!(matches!(refused("barrier\ndata=ordered", "77", "3"), Refusal::Damaged(3)));
        assert!(matches!(refused("barrier\ndata=ordered", "77", ""), Refusal::Unknown { .. }));
    }
}
