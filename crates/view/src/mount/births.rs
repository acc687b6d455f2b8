//! What tells an inode from a later one that gets its number, as ext4 gives one to the next file at once.
//!
//! Mostly the time at which it was born. File systems count that in steps of some milliseconds, in which somebody may remove a file and
//! make another one of the same number: so of what was born a moment ago the file handle is asked for as well, which has the
//! generation of the inode; and of all where times of birth aren't kept.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_sys::{
    files::{Stat, Time, file_system, magic, open_handle_at, statx_at, statx_fd},
    handle::identity_of,
};

use super::{nodes::NodeId, source::Source};
use crate::guide::Inode;

/// No file system counts times of birth in longer steps, in seconds.
const STEP_SECS: i64 = 1;

/// File systems whose handles name an inode as long as it is there, also when it went from memory meanwhile.
const KEEP_HANDLES: [u32; 9] = [
    magic::EXT,
    magic::XFS,
    magic::BTRFS,
    magic::F2FS,
    magic::BCACHEFS,
    magic::TMPFS,
    magic::NTFS3,
    magic::JFS,
    magic::NFS,
];

/// What is known of when an inode began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Birth {
    pub(super) time: Option<Time>,
    /// Where the time alone doesn't tell.
    pub(super) handle: Option<Box<[u8]>>,
    /// So long ago that no other inode begins at this time.
    pub(super) is_over: bool,
}

impl Birth {
    /// Whether it is the same. Of one that was looked at when its time alone was enough there is no handle to compare.
    pub(super) fn is(&self, other: &Self) -> bool {
        let has_same_handle = match (&self.handle, &other.handle) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        self.time == other.time && has_same_handle
    }
}

/// An inode as it was found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) stat: Stat,
    pub(super) birth: Birth,
}

impl Found {
    pub(super) fn inode(&self) -> Inode {
        Inode { dev: self.stat.dev, ino: self.stat.ino }
    }
}

/// Whether a time of birth may be that of an inode that is yet to begin. So may one of the future: somebody has set the clock.
fn may_come_again(birth: Time, now: Time) -> bool {
    birth.secs >= now.secs.saturating_sub(STEP_SECS)
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

/// Whether the handles of what is below a directory may be compared.
pub(super) fn keeps_handles(root: BorrowedFd<'_>) -> bool {
    file_system(root).is_ok_and(|found| KEEP_HANDLES.contains(&found.magic))
}

impl Source {
    /// Looks at something that is open.
    pub(super) fn look(&self, open: BorrowedFd<'_>) -> io::Result<Found> {
        let stat = statx_fd(open)?;
        let (is_over, is_enough) = self.is_told_by_time(&stat);
        let handle = if is_enough { None } else { identity_of(open).ok() };
        Ok(Found { birth: Birth { time: stat.btime, handle, is_over }, stat })
    }

    /// Looks at something in a directory.
    pub(super) fn look_at(&self, directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Found> {
        let stat = statx_at(directory, name, true)?;
        match self.is_told_by_time(&stat) {
            (is_over, true) => Ok(Found { birth: Birth { time: stat.btime, handle: None, is_over }, stat }),
            // All of it of one inode, whatever becomes of the name.
            (_, false) => self.look(open_handle_at(directory, name)?.as_fd()),
        }
    }

    /// Whether nothing else is born at its time any more; and whether that time is all that is to be known of it.
    fn is_told_by_time(&self, stat: &Stat) -> (bool, bool) {
        let is_over = stat.btime.is_some_and(|birth| !may_come_again(birth, now()));
        let inode = Inode { dev: stat.dev, ino: stat.ino };
        (is_over, !self.keeps_handles || is_over && !self.nodes().is_told_by_handle(inode))
    }

    /// The node of something that is open, if the kernel may know it.
    pub(super) fn known(&self, open: BorrowedFd<'_>) -> Option<NodeId> {
        let found = self.look(open).ok()?;
        self.nodes().known(found.inode(), &found.birth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_are_told_apart() {
        let at = |nanos, handle: Option<&[u8]>| Birth {
            time: Some(Time { secs: 5, nanos }),
            handle: handle.map(Into::into),
            is_over: true,
        };
        assert!(at(1, None).is(&at(1, None)) && !at(1, None).is(&at(2, None)));
        assert!(at(1, Some(b"a")).is(&at(1, Some(b"a"))) && !at(1, Some(b"a")).is(&at(1, Some(b"b"))));
        assert!(at(1, Some(b"a")).is(&at(1, None)) && !at(1, Some(b"a")).is(&at(2, Some(b"a"))));
        assert!(Birth::default().is(&Birth::default()));
    }

    #[test]
    fn what_was_born_a_moment_ago_is_looked_at_more_closely() {
        let at = |secs| Time { secs, nanos: 999_999_999 };
        assert!([99, 100, 500, i64::MAX].into_iter().all(|secs| may_come_again(at(secs), at(100))));
        assert!([98, 0, -5, i64::MIN].into_iter().all(|secs| !may_come_again(at(secs), at(100))));
    }
}
