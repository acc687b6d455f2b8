//! The core: what is dirty is harvested before it is asked for (FastDu, algorithm 1).

mod ages;
mod aliens;
mod answer;
mod aside;
mod asking;
mod background;
mod clocks;
mod looks;
mod merging;
mod missed;
mod noting;
mod open_files;
mod opened;
mod remembered;
mod settling;
mod synced;
mod unsettled;
mod viewer;
mod watched;
mod written_first;

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use self::{
    ages::Ages,
    aliens::Aliens,
    aside::Meanwhile,
    clocks::Told,
    merging::Vanished,
    noting::NotedBy,
    open_files::Looked,
    opened::{Opened, Place, Reopening},
    remembered::Remembered,
    settling::Lost,
    synced::CaughtUpTo,
    unsettled::Unsettled,
    watched::Relinked,
};
pub use self::{
    answer::{Answer, Freshness, SummaryError},
    aside::Aside,
    asking::Asking,
    background::Tended,
    missed::{CaughtUp, Missed},
    viewer::{Seen, Staying, Viewer},
};
pub(crate) use self::{looks::Looks, written_first::Written};
use crate::{
    clock::{Clock, SystemClock},
    identity::NodeId,
    ledger::Ledger,
    links::LinkKey,
    moment::Moment,
    nodes::{Count, Slot},
    order::{Map, Set},
    reading::{Directories, Remounted},
    record::Record,
    store::{Facts, SetAside, Store},
    tracker::{Change, Tracker},
};

/// Rounds of a query. Each harvests what changed in the one before, so that even under writers the last ones are short.
const ROUNDS_MAX: usize = 16;
/// Fewer are left to who asks, whatever share they are: a disk reads so many in its order in half a second, and who unpacks a tree into
/// a small file system would pay twice for each file.
const DIRTY_MIN: usize = 4096;

/// What a directory adds to a declared summary is asked for again after so long when that failed.
const UNKNOWN_SECONDS: i64 = 10 * 60;

/// The summaries of one file system.
#[derive(Debug)]
pub struct Summaries<D, T> {
    ledger: Ledger,
    directories: D,
    tracker: T,
    root: Slot,
    count: Count,
    /// Directories that are in none: they have moved, or are gone.
    nowhere: Vec<Lost>,
    /// Inodes of which names may be in directories that aren't clean, or in none that is known.
    open: Set<LinkKey>,
    aliens: Aliens,
    /// Files that are mapped or open for writing.
    looked: Looked,
    /// Inodes that got a name or lost one just now.
    relinked: Map<LinkKey, Relinked>,
    unreadable: Map<Slot, String>,
    vanished: Map<NodeId, Vanished>,
    clock: Arc<dyn Clock>,
    told: Told,
    ages: Ages,
    // All that is waited for is told by the clock that nobody sets, in seconds.
    /// Directories in which blocks may change and nobody tells.
    unsettled: Unsettled,
    /// When everything was last harvested without being asked for.
    tended_at: i64,
    /// That is under way.
    is_tending: bool,
    /// What it has still to read, the last in the order of the disk first.
    to_tend: Vec<Slot>,
    /// And what to look at.
    tended_looks: Looks,
    /// Fewer dirty directories are not harvested for their share.
    dirty_min: usize,
    /// Since when so much is dirty that it is to be harvested.
    much_since: Option<i64>,
    /// Directories whose totals are noted from time to time.
    remembered: Remembered,
    noted_by: NotedBy,
    /// What is stored is known to be what there is, but for what was told since.
    is_noting: bool,
    facts: Facts,
    /// Summaries are declared that were not kept until now.
    are_declared_anew: bool,
    /// Not all directories were read since.
    is_declared_in_part: bool,
    /// What is stored was all there was at some time: else whatever is counted is a part. Also for who may not wait for what else is known.
    is_counted: Arc<AtomicBool>,
    /// Of what happened up to this harvest all was told.
    heard: Count,
    /// Directories that are unsure for as long as it isn't known what was lost.
    unheard: Vec<Slot>,
    /// More may have changed than was told.
    is_behind: bool,
    /// It is known where something was mounted or unmounted.
    knows_mounts: bool,
    /// That is found out by who shares these: see [`leave_searches`](Self::leave_searches).
    leaves_searches: bool,
    /// It was found out for the harvest of all that is due by itself.
    was_asked_to_tend: bool,
    /// When the file system was asked last what has changed.
    asked_at: i64,
    caught_up: Option<CaughtUp>,
    losses: u64,
    /// How often it was found out what had changed.
    searches: u64,
    /// Directories with more entries are read aside: see [`Aside`].
    entries_max: usize,
    /// Those that are known to have more.
    large: Set<NodeId>,
    /// Those that one below seemed to hold, until they are read.
    doubted: Set<NodeId>,
    /// One that has to be read aside before it goes on, and those that were since the last harvest of all began.
    due_aside: Option<NodeId>,
    tended_aside: Set<NodeId>,
    meanwhile: Meanwhile,
    /// How far it was caught up with; what was dirty then isn't all harvested yet.
    caught_up_to: Option<CaughtUpTo>,
    /// It may be as it was before what the store says of it, after a power cut.
    may_be_set_back: bool,
    readings: u64,
    /// What they cost: see [`budget`](crate::service::budget).
    charged: u64,
    place: Place,
    reopening: Reopening,
    set_aside: Mutex<Option<SetAside>>,
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// The summaries of the file system below `root`. `identity` tells that file system from others: a store of another one is
    /// begun anew, as is one of which nobody can say what happened since it was written. One that is damaged is
    /// [set aside](Self::take_set_aside) first.
    pub fn open(
        store: Store,
        (directories, tracker): (D, T),
        root: NodeId,
        identity: &[u8],
    ) -> Result<Self, SummaryError> {
        let place = Place { root, identity: identity.to_owned(), path: store.path().to_owned() };
        let (opened, set_aside) = Opened::or_anew(store, &directories, &place)?;
        let is_declared_in_part = opened.is_declared_in_part();
        let is_counted = Arc::new(AtomicBool::new(opened.was_whole()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let mut summaries = Self {
            ledger: opened.ledger,
            directories,
            tracker,
            root: opened.root,
            count: opened.facts.count + 1,
            nowhere: Vec::new(),
            open: Set::default(),
            aliens: Aliens::default(),
            looked: Looked::at(0),
            told: Told::by(&*clock),
            clock,
            ages: Ages::new(0, 0),
            relinked: Map::default(),
            unreadable: Map::default(),
            vanished: Map::default(),
            unsettled: Unsettled::default(),
            tended_at: 0,
            is_tending: false,
            to_tend: Vec::new(),
            tended_looks: Looks::default(),
            dirty_min: DIRTY_MIN,
            much_since: None,
            remembered: opened.remembered,
            noted_by: NotedBy::starting(0, 0, None),
            is_noting: false,
            facts: opened.facts,
            are_declared_anew: opened.are_declared_anew,
            is_declared_in_part,
            is_counted,
            // Of a new one nothing is known that could have changed.
            is_behind: opened.is_known,
            knows_mounts: true,
            heard: 0,
            unheard: Vec::new(),
            leaves_searches: false,
            was_asked_to_tend: false,
            asked_at: 0,
            caught_up: None,
            losses: 0,
            searches: 0,
            entries_max: usize::MAX,
            large: Set::default(),
            doubted: Set::default(),
            due_aside: None,
            tended_aside: Set::default(),
            meanwhile: Meanwhile::default(),
            caught_up_to: Some(opened.caught_up_to),
            may_be_set_back: opened.is_known,
            readings: 0,
            charged: 0,
            place,
            reopening: Reopening::default(),
            set_aside: Mutex::new(set_aside),
        };
        summaries.begin_times();
        summaries.open_all()?;
        summaries.watch_lost_names()?;
        Ok(summaries)
    }

    fn begin_times(&mut self) {
        let now = self.now();
        // Whatever isn't known yet is read after this.
        self.looked = Looked::at(self.time());
        (self.tended_at, self.asked_at, self.told) = (now, now, Told::by(&*self.clock));
        self.ages = Ages::new(self.count, now);
        let known = self.is_behind.then_some(self.facts.moment.seconds);
        self.noted_by = NotedBy::starting(self.time(), now, known);
        if self.is_behind {
            let since = now - (self.time() - self.facts.moment.seconds).max(0);
            self.ages.are_behind(since);
        }
    }

    /// The directory at the top.
    pub fn root(&self) -> Slot {
        self.root
    }

    /// True where what is stored was all there was at some time: not before a first harvest has come to its end, nor once a damaged store
    /// was set aside, until all was read again.
    pub(crate) fn is_counted(&self) -> &Arc<AtomicBool> {
        &self.is_counted
    }

    fn set_counted(&self, is_counted: bool) {
        self.is_counted.store(is_counted, Ordering::Release);
    }

    /// True where what is stored by the declared summaries is of all directories: not from when others are declared until all were read.
    pub(crate) fn has_all_declared(&self) -> bool {
        !self.is_declared_in_part
    }

    /// The tree, its records and the store.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Where changes are told.
    pub fn tracker(&self) -> &T {
        &self.tracker
    }

    /// What time it is.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Where directories are read.
    pub fn directories(&self) -> &D {
        &self.directories
    }

    /// Everything may have changed.
    fn suspect_all(&mut self) -> Result<(), SummaryError> {
        let all: Vec<Slot> = self.ledger.nodes.all().collect();
        all.into_iter().try_for_each(|slot| self.suspect(slot))
    }

    /// Anything of it may have changed.
    fn suspect(&mut self, slot: Slot) -> Result<(), SummaryError> {
        self.ledger.nodes.mark_unsure(slot);
        self.mark(slot)
    }

    /// Takes in what the tracker tells. Where that isn't all, and it [isn't left to others](Self::leave_searches), what has changed is found
    /// out at once.
    pub fn drain(&mut self) -> Result<(), SummaryError> {
        self.reopen_if_broken()?;
        self.mind_the_clock()?;
        let now = self.now();
        let drained = self.tracker.drain().map_err(SummaryError::Tracker)?;
        if drained.lost {
            self.fall_behind();
            self.doubt_ways_to_what_was_read();
        } else if !self.is_behind {
            self.heard = self.count;
        }
        self.number_changes(!drained.changes.is_empty(), now);
        self.losses += u64::from(drained.lost);
        // What tells of a directory alone comes first: a file that is new in one that is clean would seem to be written through it without
        // having a name there.
        let (of_directories, of_inodes): (Vec<_>, Vec<_>) =
            drained.changes.iter().partition(|change| change.object.is_none());
        of_directories.into_iter().chain(of_inodes).try_for_each(|change| self.apply(change))?;
        let Remounted { directories, is_partial } = self.directories.remounted();
        self.knows_mounts = !is_partial;
        for id in directories {
            if let Some(slot) = self.ledger.nodes.find(id) {
                self.mark(slot)?;
            }
        }
        if self.is_behind && !self.leaves_searches {
            self.search()?;
        }
        Ok(())
    }

    /// How often so far more happened than the tracker could tell, so that it had to be found out what had changed.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Readings of directories so far.
    pub fn readings(&self) -> u64 {
        self.readings
    }

    /// What they count for within a budget, where one of many entries counts for several.
    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    fn apply(&mut self, change: &Change) -> Result<(), SummaryError> {
        let directory = change.directory.and_then(|id| self.ledger.nodes.find(id));
        match (directory, change.object) {
            (Some(slot), None) if change.may_close() => self.suspect(slot)?,
            (Some(slot), None) => self.mark(slot)?,
            (Some(slot), Some(object)) => self.apply_to_object(slot, object, change)?,
            (None, Some(object)) => {
                let key = LinkKey { subvolume: object.subvolume, ino: object.ino };
                self.meanwhile.note(key);
                // The inode alone: its names are where they were, or there is one more or less. One of a directory that isn't known
                // yet is told through its name there, which is read with that directory.
                match change.directory {
                    None => self.apply_to_inode(key, object, change.happened)?,
                    Some(_) => self.ledger.places(key)?.all().try_for_each(|place| self.mark(place))?,
                }
                if let Some(slot) = self.ledger.nodes.find(object) {
                    self.suspect(slot)?;
                }
            }
            // Not known yet: the directory above it has changed, too, and leads to it.
            (None, None) => {}
        }
        Ok(())
    }

    /// A directory's own entries have changed.
    fn mark(&mut self, slot: Slot) -> Result<(), SummaryError> {
        let was_clean = !self.ledger.nodes.is_dirty(slot);
        if !was_clean {
            self.keep_first_change(slot);
        }
        self.ledger.mark_changed(slot, self.count);
        if was_clean && self.ledger.nodes.has_links(slot) {
            let subvolume = self.ledger.nodes.id(slot).subvolume;
            let links = self.ledger.record(slot)?.links;
            links.into_iter().try_for_each(|ino| self.open_up(LinkKey { subvolume, ino }))?;
        }
        Ok(())
    }

    /// The record of a directory, as it is stored.
    pub fn record(&self, slot: Slot) -> Result<Record, SummaryError> {
        Ok(self.ledger.record(slot)?)
    }

    /// Whether a directory could not be read as a whole.
    pub fn is_unreadable(&self, slot: Slot) -> bool {
        self.unreadable.contains_key(&slot)
    }

    /// Directories below `slot` that could not be read as a whole, and why.
    pub fn unreadable(&self, slot: Slot) -> impl Iterator<Item = (Slot, &str)> {
        let nodes = &self.ledger.nodes;
        let below = move |at: Slot| nodes.is_used(at) && nodes.contains(slot, at);
        self.unreadable.iter().filter(move |(at, _)| below(**at)).map(|(at, why)| (*at, why.as_str()))
    }

    /// The names that lead from `top` down to a directory; empty for `top` itself.
    pub fn path(&self, top: Slot, slot: Slot) -> Result<Vec<Vec<u8>>, SummaryError> {
        let steps: Vec<Slot> = self.ledger.nodes.upwards(slot).take_while(|&at| at != top).collect();
        steps.into_iter().rev().map(|at| Ok(self.ledger.record(at)?.name.into_vec())).collect()
    }

    /// Writes what is known. `durable`: on the disk when this returns.
    pub fn commit(&mut self, durable: bool) -> Result<(), SummaryError> {
        self.reopen_if_broken()?;
        self.note_the_time();
        self.ledger.commit(&self.facts, durable)?;
        if durable {
            self.reopening = Reopening::default();
        }
        Ok(())
    }

    /// Hands over what is known, for [`Store::write_staged`] to make it durable while others ask; then
    /// [`committed`](Self::committed) is due. `None` where nothing has to be written, or something is being written.
    pub(crate) fn begin_commit(&mut self) -> Result<Option<Arc<Store>>, SummaryError> {
        self.reopen_if_broken()?;
        self.note_the_time();
        Ok(self.ledger.begin_commit(&self.facts)?)
    }

    /// What was handed over is durable.
    pub(crate) fn committed(&mut self) {
        if !self.is_broken() {
            self.reopening = Reopening::default();
        }
    }

    fn note_the_time(&mut self) {
        self.facts.count = self.count;
        let now = Moment::now();
        // While the clock stands before what is kept, whoever opens the store next has to doubt everything.
        if !self.facts.moment.is_set_back(&now) {
            self.facts.moment = now;
        }
    }

    /// Ends in good order: what is dirty is found again by who opens the store next.
    pub fn close(&mut self) -> Result<(), SummaryError> {
        // First what needs no other disk: whoever waits for this may not wait for that one.
        self.commit(true)?;
        if self.sync_what_was_read() {
            self.commit(true)?;
        }
        Ok(self.ledger.compact()?)
    }
}

/// Without the number that the standard library puts behind.
fn message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
