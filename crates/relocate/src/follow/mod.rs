//! Directories put in order just after they were written, while their files are in memory: the moment that *DFS* chose (3.2).
//!
//! DFS does it when a block is flushed. Nobody tells a program of that, and what is dirty can't be moved. So a directory in which a
//! file was written is looked at again and again while something in it is dirty, and put in order as soon as most of it was flushed: later, what
//! else is read and written may have driven it out of memory. Only what is in memory is looked at and moved: nothing is read.
//!
//! | module | subject |
//! |---|---|
//! | [`watch`] | who hears that files were written |
//! | `queue` | when each directory is looked at |
//! | `unseen` | files that are not in memory, among those that are |
//! | `budget` | how much may be written for it |

mod budget;
mod queue;
mod unseen;
pub mod watch;

use std::ffi::OsStr;
use std::hash::Hash;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onesweep_sys::files::{DirReader, EntryType, open_dir};

use self::budget::Budget;
use self::queue::Queue;
use self::unseen::with_unseen;
use crate::carry::{Ended, Report, Settings, carry_out};
use crate::host::{Failure, Host, Stays, Trouble};
use crate::pack::{Plan, Rules};
use crate::passes::plan_for;
use crate::survey::Candidate;

/// Larger directories stay as they are: they are for who plans at leisure.
const MOST_FILES: usize = 1 << 16;
/// Up to so many pieces of a file are kept in its inode, so that it takes no block more or less when it is moved.
const PIECES_IN_INODE: usize = 4;

/// How directories are put in order.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// From the first write to a directory until it is looked at, and then until it is looked at once more.
    pub settle: Duration,
    /// What a region may cost.
    pub rules: Rules,
    /// Blocks that may be moved for each hundred that others write to the device; `None` for as many as are worth it.
    pub percent: Option<u32>,
}

/// Blocks for each hundred that others write, unless somebody wants it otherwise.
pub const PERCENT: u32 = 20;
/// With little memory a flushed file is there for seconds.
const SETTLE: Duration = Duration::from_secs(2);
/// Blocks of a region, in which ext4 still finds place on a disk that is three quarters full.
const REGION: u64 = 128;

impl Policy {
    /// What the daemon goes by.
    #[must_use]
    pub fn usual(percent: Option<u32>) -> Policy {
        Policy { settle: SETTLE, rules: Rules::for_regions(REGION), percent }
    }
}

/// The device and the clock at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since any moment, always the same one.
    pub now: Duration,
    /// Blocks that the device has written so far, by whomever.
    pub written: u64,
}

/// What became of a directory.
#[derive(Debug)]
pub struct Told {
    /// Its files.
    pub files: usize,
    /// Those of them that are in memory, with the facts about them.
    pub in_memory: usize,
    /// What was moved.
    pub report: Report,
    /// It will be looked at again by itself: something was dirty, or might not be written for.
    pub again: bool,
    /// Files may take fewer blocks of the disk now.
    pub sizes_may_differ: bool,
}

/// Directories of one file system, each known by a `K`.
#[derive(Debug)]
pub struct Follower<K> {
    queue: Queue<K>,
    budget: Budget,
    settings: Settings,
    reader: DirReader,
}

impl<K: Clone + Eq + Hash> Follower<K> {
    /// None yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        // Nobody waits for the moves to be on the disk: the journal brings them there in order.
        let settings = Settings { gain_first: true, batch: 0, is_durable: false, ..Settings::new(policy.rules) };
        let (queue, budget) = (Queue::new(policy.settle), Budget::new(policy.percent));
        Follower { queue, budget, settings, reader: DirReader::default() }
    }

    /// A file in this directory was written.
    pub fn written(&mut self, directory: K, now: Duration) {
        self.queue.written(directory, now);
    }

    /// A directory whose time has come.
    pub fn take(&mut self, now: Duration) -> Option<K> {
        self.queue.take(now)
    }

    /// When the next one's time comes.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.queue.next()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Puts a directory that was [taken](Self::take) in order, as far as it is in memory and is worth it. `goes_on` is asked before
    /// each region.
    ///
    /// # Errors
    ///
    /// When nothing more can be done on this file system, or the directory can't be listed.
    pub fn put_in_order<H: Host>(
        &mut self,
        host: &mut H,
        (directory, path): (K, &Path),
        moment: Moment,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Told, Failure> {
        let seen = self.look(host, path)?;
        let files = seen.len();
        self.queue.looked(directory.clone(), files, moment.now);
        let mut known = with_unseen(seen);
        let dirty = known.iter().filter(|file| file.stays == Some(Stays::Busy)).count();
        let clean = known.iter().filter(|file| file.stays.is_none()).count();
        let plan = if dirty > clean { Plan::default() } else { plan_for(&known, &self.settings) };
        let pieces: Vec<usize> = known.iter().map(|file| file.places.runs().len()).collect();
        let allowed = self.budget.allows(moment.written);
        let report = if allowed > 0 {
            carry_out(host, &mut known, &plan, &self.settings, &mut |so_far| so_far.blocks < allowed && goes_on())
        } else {
            Report { ended: (!plan.regions.is_empty()).then_some(Ended::Stopped), ..Report::default() }
        };
        self.budget.spend(report.blocks);
        let again = dirty > 0 || matches!(report.ended, Some(Ended::Stopped));
        if again {
            self.queue.written(directory, moment.now);
        }
        let changed = known.iter().zip(pieces).filter(|(file, before)| file.places.runs().len() != *before);
        let sizes_may_differ = changed.into_iter().any(|(_, before)| before > PIECES_IN_INODE);
        let in_memory = known.iter().filter(|file| !file.path.as_os_str().is_empty()).count();
        Ok(Told { files, in_memory, report, again, sizes_may_differ })
    }

    /// The files of a directory in its order; `None` for each that is not in memory. Nothing where there are too many.
    fn look<H: Host>(&mut self, host: &mut H, path: &Path) -> Result<Vec<Option<Candidate>>, Failure> {
        let failed = |error: io::Error| Failure::new("list it", path, error);
        let open = open_dir(path).map_err(failed)?;
        let mut names: Vec<PathBuf> = Vec::new();
        let listed = self.reader.read(open.as_fd(), |entry| {
            if entry.kind == EntryType::File && names.len() <= MOST_FILES {
                names.push(path.join(OsStr::from_bytes(entry.name.to_bytes())));
            }
        });
        listed.map_err(failed)?;
        if names.len() > MOST_FILES {
            return Ok(Vec::new());
        }
        let mut files = Vec::with_capacity(names.len());
        for path in names {
            match host.look_in_memory(&path) {
                Ok(Some(looked)) => {
                    let (inode, places, stays) = (looked.inode, looked.places, looked.stays);
                    files.push(Some(Candidate { path, inode, places, stays }));
                }
                Ok(None) => files.push(None),
                Err(Trouble::Stays(Stays::Gone)) => {}
                // It has no places yet, or none that can be told.
                Err(Trouble::Stays(stays)) => {
                    files.push(Some(Candidate { path, inode: 0, places: Default::default(), stays: Some(stays) }));
                }
                Err(Trouble::Failed(failure)) => return Err(failure),
            }
        }
        Ok(files)
    }
}
