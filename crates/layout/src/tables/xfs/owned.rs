//! Where the content of files lies, as the reverse map of a mounted XFS has it: by the device, so that it is gathered by owner.

use std::{io, os::fd::BorrowedFd};

use onesweep_sys::fsmap::{self, OwnedRun};

use crate::extent::{Extent, ExtentFlags};

/// Runs that are kept at a time: 64 MiB.
const RUNS_MAX: usize = 2 << 20;

/// Flags, where the length has none of its bits: no block is smaller than 512 bytes.
const UNWRITTEN: u64 = 1;
const SHARED: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    owner: u64,
    logical: u64,
    physical: u64,
    length_and_flags: u64,
}

impl Run {
    /// Cut off at `end`; `None` when nothing is left.
    fn extent(&self, end: u64) -> Option<Extent> {
        let Run { logical, physical, length_and_flags, .. } = *self;
        let length = (length_and_flags & !(UNWRITTEN | SHARED)).min(end.saturating_sub(logical));
        let mut flags = ExtentFlags::empty();
        flags.set(ExtentFlags::UNWRITTEN, length_and_flags & UNWRITTEN != 0);
        flags.set(ExtentFlags::SHARED, length_and_flags & SHARED != 0);
        (length > 0).then_some(Extent { logical, physical: Some(physical), length, flags })
    }
}

/// The runs of the inodes from one number on, as far as there is room for them. A file that would take half of the room by
/// itself has none.
#[derive(Debug)]
pub(super) struct OwnedRuns {
    runs: Vec<Run>,
    from: u64,
    /// The first number of which nothing is here.
    until: u64,
    /// It is told as if it had no runs, since it has too many.
    untold: Option<u64>,
    most: usize,
}

impl OwnedRuns {
    /// Asks for all runs of a device, and keeps those from inode `from` on, 32 bytes each, 64 MiB at most.
    pub(super) fn gather(fd: BorrowedFd<'_>, dev: u64, from: u64) -> io::Result<OwnedRuns> {
        let mut gathered = OwnedRuns::empty(from, RUNS_MAX);
        fsmap::owned_runs(fd, dev, &mut |run| {
            gathered.add(&run);
            true
        })?;
        gathered.runs.sort_unstable();
        Ok(gathered)
    }

    fn empty(from: u64, most: usize) -> OwnedRuns {
        OwnedRuns { runs: Vec::new(), from, until: u64::MAX, untold: None, most }
    }

    /// Whether what is to be said of an inode is here.
    pub(super) fn covers(&self, inode: u64) -> bool {
        (self.from..self.until).contains(&inode)
    }

    /// Whether nothing had to be left out.
    pub(super) fn is_all(&self) -> bool {
        self.from == 0 && self.until == u64::MAX
    }

    /// Where a file of `size` bytes lies. Space behind the end of the file is left out, but for a block of the end.
    pub(super) fn extents(&self, inode: u64, size: u64) -> Vec<Extent> {
        let start = self.runs.partition_point(|run| run.owner < inode);
        let end = size.checked_next_multiple_of(4096).unwrap_or(size);
        let of_inode = self.runs[start..].iter().take_while(|run| run.owner == inode);
        of_inode.filter_map(|run| run.extent(end)).collect()
    }

    fn add(&mut self, run: &OwnedRun) {
        if self.runs.len() >= self.most {
            self.make_room();
        }
        if !self.covers(run.owner) || self.untold == Some(run.owner) {
            return;
        }
        let &OwnedRun { owner, logical, physical, length, is_unwritten, is_shared } = run;
        let flags = (u64::from(is_unwritten) * UNWRITTEN) | (u64::from(is_shared) * SHARED);
        self.runs.push(Run { owner, logical, physical, length_and_flags: (length & !(UNWRITTEN | SHARED)) | flags });
    }

    /// Gives up the inodes of the greatest numbers.
    fn make_room(&mut self) {
        self.runs.sort_unstable();
        let border = self.runs[self.runs.len() / 2].owner;
        let kept = self.runs.partition_point(|run| run.owner < border);
        self.runs.truncate(kept);
        if kept > 0 {
            self.until = border;
        } else {
            (self.until, self.untold) = (border.saturating_add(1), Some(border));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(owner: u64, number: u64) -> OwnedRun {
        let place = number * 4096;
        OwnedRun {
            owner,
            logical: place,
            physical: (owner << 32) + place,
            length: 4096,
            is_unwritten: number % 3 == 1,
            is_shared: number % 5 == 1,
        }
    }

    fn gathered(runs: &[OwnedRun], from: u64, most: usize) -> OwnedRuns {
        let mut gathered = OwnedRuns::empty(from, most);
        for run in runs {
            gathered.add(run);
            assert!(gathered.runs.len() <= most);
        }
        gathered.runs.sort_unstable();
        gathered
    }

    #[test]
    fn runs_come_by_owner_and_place() {
        let runs: Vec<OwnedRun> = (0..40).flat_map(|number| [9, 3, 7].map(|owner| run(owner, 39 - number))).collect();
        let all = gathered(&runs, 0, 1000);
        assert!(all.is_all() && all.covers(0) && all.covers(1 << 60));
        for owner in [3, 7, 9] {
            let extents = all.extents(owner, 40 * 4096);
            assert_eq!(extents.len(), 40);
            for (number, extent) in (0..).zip(extents) {
                let OwnedRun { logical, physical, length, is_unwritten, is_shared, .. } = run(owner, number);
                assert_eq!((extent.logical, extent.physical, extent.length), (logical, Some(physical), length));
                assert_eq!(extent.flags.contains(ExtentFlags::UNWRITTEN), is_unwritten);
                assert_eq!(extent.flags.contains(ExtentFlags::SHARED), is_shared);
            }
        }
        assert!(all.extents(4, u64::MAX).is_empty());
        assert_eq!([0, 1, 4096, 4097].map(|size| all.extents(3, size).len()), [0, 1, 1, 2]);
    }

    /// Going on with the first number that was left out, all come, however little room there is; but for those that have
    /// more runs than half of it.
    #[test]
    fn what_does_not_fit_comes_with_the_next_ones() {
        let runs: Vec<OwnedRun> = (0..600)
            .map(|number| run(number * 7919 % 30 + 1, number / 30))
            .chain((0..90).map(|n| run(17, n)))
            .collect();
        for most in [2, 4, 10, 45, 100, 400, 10_000] {
            let (mut from, mut times) = (0, 0);
            for owner in 1..=30 {
                let mut one = gathered(&runs, from, most);
                if !one.covers(owner) {
                    from = owner;
                    times += 1;
                    one = gathered(&runs, from, most);
                }
                assert!(one.covers(owner), "{most}");
                let expected = runs.iter().filter(|run| run.owner == owner).count();
                let found = one.extents(owner, u64::MAX).len();
                assert!(found == expected || found == 0 && expected > most / 2, "{most} {owner}: {found}");
            }
            assert_eq!(times == 0, most == 10_000, "{most}");
        }
    }
}
