//! Directories put in order just after they were written, while their files are in memory: the moment that *DFS* chose (3.2).
//!
//! DFS does it when a block is flushed. Nobody tells a program of that, and what is dirty can't be moved. So a directory in which a
//! file was written is looked at when nobody writes to it any more, again and again while something in it is dirty, and put in order as soon as
//! nearly all of it was flushed: earlier, it would be put in order many times, and later, what else is read and written may have driven it out of memory. What is in memory is
//! moved, and what isn't is read first where that is worth it, within a bound of its own. Files above the size that the paper calls small are passed over.
//!
//! | module | subject |
//! |---|---|
//! | [`watch`] | who hears that files were written |
//! | `queue` | when each directory is looked at |
//! | `uncached` | files that are not in memory, and are worth being read |
//! | `unseen` | those that are not, among those that are in memory |
//! | `budget` | how much may be written and read for it |

mod budget;
mod queue;
mod uncached;
mod unseen;
pub mod watch;

use std::collections::HashMap;
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
use self::uncached::{Most, Seen, worth_reading};
use self::unseen::with_unseen;
use crate::carry::{Ended, Report, Settings, carry_out};
use crate::file::read_back;
use crate::host::{Failure, Host, Stays, Trouble};
use crate::mounted::Mounted;
use crate::pack::Rules;
use crate::passes::{add, next_smaller, plan_for};
use crate::places::Places;
use crate::survey::Candidate;

/// Larger directories stay as they are: they are for who plans at leisure.
const MOST_FILES: usize = 1 << 16;
/// Up to so many pieces of a file are kept in its inode, so that it takes no block more or less when it is moved.
const PIECES_IN_INODE: usize = 4;

/// How directories are put in order.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// From the last write to a directory until it is looked at, and then until it is looked at once more.
    pub settle: Duration,
    /// What a region may cost.
    pub rules: Rules,
    /// Files of more blocks are passed over, as if they were not there: who reads one pays little for the way to it and back.
    pub largest: u64,
    /// Blocks that may be written for each hundred that others write to the device, with those of the file system by estimate; `None` for as
    /// many as are worth it, for which as many files are read as that takes. Else one file may be read for each 25 blocks that others write.
    pub percent: Option<u32>,
}

/// Blocks for each hundred that others write, unless somebody wants it otherwise.
pub const PERCENT: u32 = 20;
/// With little memory a flushed file is there for seconds.
const SETTLE: Duration = Duration::from_secs(2);
/// What the paper calls small, in blocks.
const LARGEST: u64 = 12;
/// So many times as many files have to be clean as are dirty: what is left would be packed again in a moment, with all around it.
const CLEAN: usize = 8;
/// A directory that always has something dirty is put in order all the same after so many looks.
const LOOKS: u32 = 15;
/// Blocks of a region, in which ext4 still finds place on a disk that is three quarters full.
const REGION: u64 = 128;

impl Policy {
    /// What the daemon goes by.
    #[must_use]
    pub fn usual(percent: Option<u32>) -> Policy {
        Policy { settle: SETTLE, rules: Rules::for_regions(REGION), largest: LARGEST, percent }
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
    /// Those of these that were read for it.
    pub read: u64,
    /// What was moved.
    pub report: Report,
    /// It will be looked at again by itself: something was dirty, or might not be written or read for.
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
    largest: u64,
    /// How often each was looked at while it was dirty.
    looks: HashMap<K, u32>,
    /// Nothing more may be written, so until then nobody is looked at.
    resting_until: Duration,
    reader: DirReader,
}

impl<K: Clone + Eq + Hash> Follower<K> {
    /// None yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        // Nobody waits for the moves to be on the disk: the journal brings them there in order.
        let settings = Settings { gain_first: true, batch: 0, is_durable: false, ..Settings::new(policy.rules) };
        let (queue, budget) = (Queue::new(policy.settle), Budget::new(policy.percent));
        let (largest, looks, resting_until) = (policy.largest, HashMap::new(), Duration::ZERO);
        Follower { queue, budget, settings, largest, looks, resting_until, reader: DirReader::default() }
    }

    /// A file in this directory was written.
    pub fn written(&mut self, directory: K, now: Duration) {
        self.queue.written(directory, now);
    }

    /// A directory whose time has come.
    pub fn take(&mut self, now: Duration) -> Option<K> {
        if now < self.resting_until {
            return None;
        }
        self.queue.take(now)
    }

    /// When the next one's time comes.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.queue.next().map(|next| next.max(self.resting_until))
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Puts a directory that was [taken](Self::take) in order, as far as that is worth it. `goes_on` is asked before each region, and
    /// before each file that is read.
    ///
    /// # Errors
    ///
    /// When nothing more can be done on this file system, or the directory can't be listed.
    pub fn put_in_order<H: Mounted>(
        &mut self,
        host: &mut H,
        (directory, path): (K, &Path),
        moment: Moment,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Told, Failure> {
        let mut seen = self.look(host, path)?;
        let files = seen.len();
        self.queue.looked(directory.clone(), files, moment.now);
        let mut known = with_unseen(seen.iter().map(Seen::in_memory));
        let dirty = known.iter().filter(|file| file.stays == Some(Stays::Busy)).count();
        let clean = known.iter().filter(|file| file.stays.is_none() && file.places.blocks() > 0).count();
        let is_time = self.is_time(&directory, dirty, clean);
        let allowed = self.budget.allows(moment.written);
        let (mut read, mut is_cut) = (0, false);
        if is_time && allowed > 0 {
            let most = Most { reads: self.budget.allows_to_read(moment.written), blocks: allowed };
            (read, is_cut) = self.bring_in(host, &seen, most, goes_on)?;
            if read > 0 {
                seen = self.look(host, path)?;
                known = with_unseen(seen.iter().map(Seen::in_memory));
            }
        }
        let pieces: Vec<usize> = known.iter().map(|file| file.places.runs().len()).collect();
        let mut report = Report::default();
        if is_time && !plan_for(&known, &self.settings).regions.is_empty() {
            report.ended = Some(Ended::Stopped);
            if allowed == 0 {
                self.resting_until = moment.now + self.queue.settle();
            } else {
                report = self.move_some(host, path, &mut known, &mut |blocks| blocks < allowed && goes_on());
            }
        }
        self.budget.spend(report.files, report.blocks);
        let is_soon = dirty > 0 || matches!(report.ended, Some(Ended::Stopped));
        if is_soon {
            self.queue.written(directory, moment.now);
        } else if is_cut {
            // A few files are dear to read: until then it may be more of them that can be moved.
            self.queue.put_off(directory, moment.now);
        }
        let changed = known.iter().zip(pieces).filter(|(file, before)| file.places.runs().len() != *before);
        let sizes_may_differ = changed.into_iter().any(|(_, before)| before > PIECES_IN_INODE);
        let in_memory = known.iter().filter(|file| !file.path.as_os_str().is_empty()).count();
        Ok(Told { files, in_memory, read, report, again: is_soon || is_cut, sizes_may_differ })
    }

    /// Whether enough of a directory was flushed, or it was waited for long enough.
    fn is_time(&mut self, directory: &K, dirty: usize, clean: usize) -> bool {
        let looks = self.looks.remove(directory).unwrap_or_default();
        let is_flushed = dirty * CLEAN <= clean;
        if is_flushed || (looks >= LOOKS && dirty <= clean) {
            return true;
        }
        if self.looks.len() >= MOST_FILES {
            self.looks.clear();
        }
        self.looks.insert(directory.clone(), looks.saturating_add(1));
        false
    }

    /// Reads what is worth it and not in memory, in the order of the disk. What can't be read stays where it is. Gives how many files were
    /// read, and whether more would be if more could be moved.
    fn bring_in<H: Host>(
        &mut self,
        host: &mut H,
        seen: &[Seen],
        most: Most,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(u64, bool), Failure> {
        let wanted = worth_reading(host, seen, (&self.settings, self.largest), most)?;
        let read = wanted.paths.iter().take_while(|_| goes_on()).map(|path| drop(read_back(path))).count() as u64;
        self.budget.spend_reads(read);
        Ok((read, wanted.is_cut))
    }

    /// Packs into regions of all sizes, the largest first: free space in pieces holds few of those.
    fn move_some<H: Mounted>(
        &self,
        host: &mut H,
        path: &Path,
        files: &mut [Candidate],
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Report {
        // What can't be had now comes out when free space is captured.
        let _ = host.get_ready(path, self.settings.rules.region, true);
        let (mut sum, mut settings) = (Report::default(), self.settings);
        loop {
            let plan = plan_for(files, &settings);
            let before: Vec<Option<u64>> = files.iter().map(|file| file.places.first()).collect();
            let pass = carry_out(host, files, &plan, &settings, &mut |own| goes_on(sum.blocks + own.blocks));
            let were_left = pass.not_better + pass.no_room > 0;
            add(&mut sum, pass);
            // What was moved is dirty.
            let moved = files.iter_mut().zip(before).filter(|(file, before)| file.places.first() != *before);
            moved.for_each(|(file, _)| file.stays = Some(Stays::Busy));
            match next_smaller(&settings.rules) {
                Some(rules) if were_left && sum.ended.is_none() => settings.rules = rules,
                _ => break,
            }
        }
        host.set_back();
        sum
    }

    /// The files of a directory in its order. Nothing where there are too many.
    fn look<H: Host>(&mut self, host: &mut H, path: &Path) -> Result<Vec<Seen>, Failure> {
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
                    let (inode, stays) = (looked.inode, looked.stays);
                    let is_small = looked.places.blocks() <= self.largest;
                    let places = if is_small { looked.places } else { Places::default() };
                    files.push(Seen::InMemory(Candidate::new(path, inode, places, stays)));
                }
                Ok(None) => files.push(Seen::Uncached(path)),
                Err(Trouble::Stays(Stays::Gone)) => {}
                // It has no places yet, or none that can be told.
                Err(Trouble::Stays(stays)) => {
                    let places = Places::default();
                    files.push(Seen::InMemory(Candidate::new(path, 0, places, Some(stays))));
                }
                Err(Trouble::Failed(failure)) => return Err(failure),
            }
        }
        Ok(files)
    }
}
