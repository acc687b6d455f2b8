//! What was read and may not be on the disk of the file system yet.
//!
//! A reading shows what programs have written so far, and a power cut takes away what the disk didn't have by then, while the store
//! may have it. Where sums of what inodes are tell what has changed (ext4, XFS), that differs from what was read, like anything else.
//! Where the file system counts its changes (btrfs), a change that is gone is in no tree, and its number is given to another one. So
//! there the store knows up to which harvest all that was read is on the disk: whoever opens it reads the rest again. What programs
//! have written is not hurried for that: it is written out when a file system was harvested as a whole, and at the end.

use super::Summaries;
use crate::{nodes::Count, reading::Directories, survey::Method, tracker::Tracker};

/// How far a file system was caught up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaughtUpTo {
    /// Its count of changes, which its disk has.
    pub(super) generation: u64,
    /// What harvests up to this number have read is on its disk.
    pub(super) synced: Count,
}

/// A harvest's number: what those up to it have read is being written.
#[derive(Debug)]
pub(crate) struct BegunSync(Count);

fn counts_changes(directories: &impl Directories) -> bool {
    directories.method() == Some(Method::Generations)
}

/// Where the file system's count stands, when its disk has all with that number; 0 where that isn't known, so that all is looked at.
pub(super) fn written_generation(directories: &impl Directories) -> u64 {
    let generation = directories.generation().unwrap_or(0);
    if !counts_changes(directories) || directories.sync().is_ok() { generation } else { 0 }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// All that was read so far was read by harvests up to this number. What is being read aside was begun by one of them.
    pub(super) fn read_by_now(&self) -> Count {
        if self.meanwhile.is_read_aside() { 0 } else { self.count }
    }

    /// Before [`Directories::sync`], while others may ask. `None` where that is of no use, or what was caught up with isn't harvested.
    pub(crate) fn begin_sync(&mut self) -> Option<BegunSync> {
        let (read, nodes) = (self.read_by_now(), &self.ledger.nodes);
        let is_wanted = counts_changes(&self.directories)
            && self.caught_up_to.is_none()
            && nodes.all().any(|slot| (self.facts.synced + 1..=read).contains(&nodes.counts(slot).1));
        is_wanted.then_some(BegunSync(read))
    }

    /// It is written.
    pub(crate) fn end_sync(&mut self, begun: BegunSync) {
        if self.caught_up_to.is_none() {
            self.facts.synced = begun.0.max(self.facts.synced);
        }
    }

    /// Both, while nobody asks; true when that has to be put down.
    pub(super) fn sync_what_was_read(&mut self) -> bool {
        let Some(begun) = self.begin_sync() else { return false };
        let is_written = self.directories.sync().is_ok();
        if is_written {
            self.end_sync(begun);
        }
        is_written
    }
}
