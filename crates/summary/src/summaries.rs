//! The core: what is dirty is harvested before it is asked for (FastDu, algorithm 1).

mod ages;
mod aliens;
mod answer;
mod aside;
mod background;
mod clocks;
mod merging;
mod missed;
mod open_files;
mod opened;
mod viewer;
mod watched;

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex},
};

use self::{
    ages::Ages,
    aliens::Aliens,
    aside::Meanwhile,
    clocks::Told,
    merging::{Further, Vanished},
    open_files::Looked,
    opened::{Opened, Place, Reopening},
    watched::Relinked,
};
pub use self::{
    answer::{Answer, Freshness, SummaryError},
    aside::Aside,
    background::Tended,
    missed::{CaughtUp, Missed},
    viewer::{Seen, Viewer},
};
use crate::{
    clock::{Clock, SystemClock},
    harvest::{self, Waiting},
    history::History,
    identity::NodeId,
    ledger::Ledger,
    links::LinkKey,
    moment::Moment,
    nodes::{Count, Slot},
    reading::{Directories, Wanted, is_gone},
    record::Record,
    store::{Facts, SetAside, Store},
    tracker::{Change, Tracker},
};

/// Rounds of a query. Each harvests what changed in the one before, so that even under writers the last ones are short.
const ROUNDS_MAX: usize = 16;
/// So often a directory is read aside for one question. Else one that changes all the time would keep it for ever.
const ASIDE_MAX: u32 = 2;
/// Records that wait to be written; some 300 bytes each in memory.
const UNWRITTEN_MAX: usize = 8_192;

/// Where one directory in so many is read, reading all metadata of the disk in one pass is as good.
const MOST_SHARE: usize = 4;
/// More than one directory in so many is dirty: then all of them are harvested.
const DIRTY_SHARE: usize = 20;
/// Fewer are left to who asks, whatever share they are: a disk reads so many in its order in half a second, and who unpacks a tree into
/// a small file system would pay twice for each file.
const DIRTY_MIN: usize = 4096;

/// So often the totals of directories that were asked for are noted.
const HISTORY_SECONDS: i64 = 10 * 60;
/// What a directory adds to a declared summary is asked for again after so long when that failed.
const UNKNOWN_SECONDS: i64 = 10 * 60;
/// Of so many directories at most.
const REMEMBERED_MAX: usize = 10_000;

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
    open: HashSet<LinkKey>,
    aliens: Aliens,
    /// Files that are mapped or open for writing, where nobody tells what is written.
    looked: Looked,
    /// Inodes that got a name or lost one just now.
    relinked: HashMap<LinkKey, Relinked>,
    unreadable: HashMap<Slot, String>,
    vanished: HashMap<NodeId, Vanished>,
    clock: Arc<dyn Clock>,
    told: Told,
    ages: Ages,
    // All that is waited for is told by the clock that nobody sets, in seconds.
    /// Directories in which blocks may change and nobody tells, and until when, in milliseconds.
    unsettled: HashMap<Slot, i64>,
    /// Before that none of them is due.
    unsettled_until: i64,
    /// When everything was last harvested without being asked for.
    tended_at: i64,
    /// That is under way.
    is_tending: bool,
    /// What it has still to read, the last in the order of the disk first.
    to_tend: Vec<Slot>,
    /// Fewer dirty directories are not harvested for their share.
    dirty_min: usize,
    /// Since when so much is dirty that it is to be harvested.
    much_since: Option<i64>,
    /// Directories whose totals are noted from time to time, and when that was done last.
    remembered: HashSet<Slot>,
    noted_at: Option<i64>,
    /// What is stored is known to be what there is, but for what was told since.
    is_noting: bool,
    facts: Facts,
    /// Summaries are declared that were not kept until now.
    are_declared_anew: bool,
    /// More may have changed than was told.
    is_behind: bool,
    /// When the file system was asked last what has changed.
    asked_at: i64,
    caught_up: Option<CaughtUp>,
    losses: u64,
    /// How often it was found out what had changed.
    searches: u64,
    /// Directories with more entries are read aside: see [`Aside`].
    entries_max: usize,
    /// Those that are known to have more.
    large: HashSet<NodeId>,
    /// Those that one below seemed to hold, until they are read.
    doubted: HashSet<NodeId>,
    /// One that has to be read aside before it goes on, and those that were since the last harvest of all began.
    due_aside: Option<NodeId>,
    tended_aside: HashSet<NodeId>,
    meanwhile: Meanwhile,
    /// Where the file system's count stood when it was caught up with; what was dirty then isn't all harvested yet.
    caught_up_to: Option<u64>,
    readings: u64,
    place: Place,
    reopening: Reopening,
    set_aside: Mutex<Option<SetAside>>,
}

/// How far a question has got.
#[derive(Debug, Default)]
pub struct Asking<'a> {
    seen: Seen<'a>,
    has_begun: bool,
    /// All that was dirty has been harvested so often, and by then this was the number of the last harvest.
    rounds: usize,
    round: Count,
    /// The last harvest was.
    is_whole: bool,
    /// The directory isn't where it was, and is looked for in all of them.
    is_lost: bool,
    /// How often large directories were read aside.
    aside: HashMap<NodeId, u32>,
}

impl<'a> Asking<'a> {
    /// By somebody who may not see all.
    pub fn by(seen: Seen<'a>) -> Asking<'a> {
        Asking { seen, ..Asking::default() }
    }
}

/// A directory that is in none.
#[derive(Clone, Copy, Debug)]
struct Lost {
    slot: Slot,
    /// The one that the kernel says it is in, which then had this count and has to be read.
    told: Option<(Slot, Count)>,
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
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let mut summaries = Self {
            ledger: opened.ledger,
            directories,
            tracker,
            root: opened.root,
            count: opened.facts.count + 1,
            nowhere: Vec::new(),
            open: HashSet::new(),
            aliens: Aliens::default(),
            looked: Looked::at(0),
            told: Told::by(&*clock),
            clock,
            ages: Ages::new(0, 0),
            relinked: HashMap::new(),
            unreadable: HashMap::new(),
            vanished: HashMap::new(),
            unsettled: HashMap::new(),
            unsettled_until: i64::MAX,
            tended_at: 0,
            is_tending: false,
            to_tend: Vec::new(),
            dirty_min: DIRTY_MIN,
            much_since: None,
            remembered: opened.remembered,
            noted_at: None,
            is_noting: false,
            facts: opened.facts,
            are_declared_anew: opened.are_declared_anew,
            // Of a new one nothing is known that could have changed.
            is_behind: opened.is_known,
            asked_at: 0,
            caught_up: None,
            losses: 0,
            searches: 0,
            entries_max: usize::MAX,
            large: HashSet::new(),
            doubted: HashSet::new(),
            due_aside: None,
            tended_aside: HashSet::new(),
            meanwhile: Meanwhile::default(),
            caught_up_to: Some(opened.generation),
            readings: 0,
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
        if self.is_behind {
            let since = now - (self.time() - self.facts.moment.seconds).max(0);
            self.ages.are_behind(since);
        }
    }

    /// The directory at the top.
    pub fn root(&self) -> Slot {
        self.root
    }

    /// The tree, its records and the store.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Where changes are told.
    pub fn tracker(&self) -> &T {
        &self.tracker
    }

    /// Where directories are read.
    pub fn directories(&self) -> &D {
        &self.directories
    }

    /// Everything may have changed.
    fn suspect_all(&mut self) -> Result<(), SummaryError> {
        let all: Vec<Slot> = self.ledger.nodes.all().collect();
        all.into_iter().try_for_each(|slot| self.mark(slot))
    }

    /// Takes in what the tracker tells.
    pub fn drain(&mut self) -> Result<(), SummaryError> {
        self.reopen_if_broken()?;
        self.mind_the_clock()?;
        let now = self.now();
        let drained = self.tracker.drain().map_err(SummaryError::Tracker)?;
        if drained.lost {
            self.fall_behind();
        }
        self.number_changes(!drained.changes.is_empty(), now);
        self.losses += u64::from(drained.lost);
        // What tells of a directory alone comes first: a file that is new in one that is clean would seem to be written through it without
        // having a name there.
        let (of_directories, of_inodes): (Vec<_>, Vec<_>) =
            drained.changes.iter().partition(|change| change.object.is_none());
        of_directories.into_iter().chain(of_inodes).try_for_each(|change| self.apply(change))?;
        for id in self.directories.remounted() {
            if let Some(slot) = self.ledger.nodes.find(id) {
                self.mark(slot)?;
            }
        }
        if self.is_behind {
            let missed = self.missed()?;
            self.catch_up(missed)?;
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

    fn apply(&mut self, change: &Change) -> Result<(), SummaryError> {
        let directory = change.directory.and_then(|id| self.ledger.nodes.find(id));
        match (directory, change.object) {
            (Some(slot), None) => self.mark(slot)?,
            (Some(slot), Some(object)) => self.apply_to_object(slot, object, change)?,
            (None, Some(object)) => {
                let key = LinkKey { subvolume: object.subvolume, ino: object.ino };
                self.meanwhile.note(key);
                self.ledger.places(key)?.all().try_for_each(|place| self.mark(place))?;
                // The inode alone: its names are where they were, or there is one more or less. One of a directory that isn't known
                // yet is told through its name there, which is read with that directory.
                if change.directory.is_none() {
                    self.note_relinked(object)?;
                }
                if let Some(slot) = self.ledger.nodes.find(object) {
                    self.mark(slot)?;
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
        self.ledger.nodes.mark_changed(slot, self.count);
        if was_clean && self.ledger.nodes.has_links(slot) {
            let subvolume = self.ledger.nodes.id(slot).subvolume;
            let links = self.ledger.record(slot)?.links;
            links.into_iter().try_for_each(|ino| self.open_up(LinkKey { subvolume, ino }))?;
        }
        Ok(())
    }

    /// What is stored of a directory, without any reading.
    pub fn cached(&self, directory: NodeId, seen: Seen<'_>) -> Result<Answer, SummaryError> {
        let slot = self.ledger.nodes.find(directory).ok_or(SummaryError::Unknown)?;
        let record = self.ledger.record(slot)?;
        let unreadable = self.unreadable_for(slot, seen)?.len();
        let (is_exact, checked_at, late, age) = (false, None, None, self.age(slot, seen)?);
        let (totals, harvested_at) = (record.subtree, record.harvested_at);
        Ok(Answer { totals, harvested_at, is_exact, checked_at, unreadable, late, age })
    }

    /// The same for who didn't wait any longer. Where something is hidden it isn't told how much is left.
    pub fn late(&self, directory: NodeId, seen: Seen<'_>) -> Result<Answer, SummaryError> {
        let slot = self.ledger.nodes.find(directory).ok_or(SummaryError::Unknown)?;
        if self.ledger.record(slot)?.harvested == 0 {
            // Nothing is stored of it but its name.
            return Err(SummaryError::Unknown);
        }
        let left = if self.hides_below(slot, seen)? { 0 } else { self.left_below(directory, seen)? };
        Ok(Answer { late: Some(left), ..self.cached(directory, seen)? })
    }

    /// The answer where all is harvested that is known to have changed; `None` where something may have, which [`query`](Self::query) finds out.
    pub fn query_clean(&self, directory: NodeId, seen: Seen<'_>) -> Result<Option<Answer>, SummaryError> {
        let nodes = &self.ledger.nodes;
        let Some(slot) = nodes.find(directory) else { return Ok(None) };
        let is_noted = self.remembered.contains(&slot) || self.remembered.len() >= REMEMBERED_MAX;
        let is_known = is_noted
            && !nodes.may_be_outdated(slot)
            && !self.is_behind
            && (self.caught_up_to.is_none() || slot != self.root)
            && (!nodes.may_have_open(slot) && self.unreadable(slot).next().is_none())
            && self.now_millis() < self.unsettled_until
            && (self.ledger.is_paid() && !self.is_broken());
        // Last: what was done before the question is told by now.
        if !is_known || !self.directories.is_mounted_alike() || !self.tracker.is_quiet() {
            return Ok(None);
        }
        Ok(Some(self.settled_answer(directory, Freshness::Exact, seen)?))
    }

    /// Answers a question for a directory (the paper's `QueryDirStatistics`).
    pub fn query(&mut self, directory: NodeId, freshness: Freshness) -> Result<Answer, SummaryError> {
        let answer = self.query_within(directory, freshness, &mut Asking::default(), &|| false)?;
        answer.ok_or(SummaryError::Unknown)
    }

    /// The same, a portion at a time: `None` when it `gives_way`, to be called again with the same `asking`.
    pub fn query_within(
        &mut self,
        directory: NodeId,
        freshness: Freshness,
        asking: &mut Asking<'_>,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Option<Answer>, SummaryError> {
        if freshness == Freshness::Cached {
            return self.cached(directory, asking.seen).map(Some);
        }
        if !std::mem::replace(&mut asking.has_begun, true) {
            if freshness == Freshness::Exact
                && let Some(answer) = self.query_clean(directory, asking.seen)?
            {
                return Ok(Some(answer));
            }
            self.reopen_if_broken()?;
            if freshness == Freshness::Synced {
                self.directories.sync().map_err(SummaryError::Sync)?;
                self.suspect_unsettled(i64::MAX)?;
                if self.has_silent_changes() {
                    self.fall_behind_in_silence();
                }
                if !self.follows_close() {
                    self.look_at_open_files()?;
                }
            }
            self.suspect_unsettled(self.now_millis())?;
            // What could not be read may be readable again.
            let top = self.ledger.nodes.find(directory).unwrap_or(self.root);
            let unreadable: Vec<Slot> = self.unreadable(top).map(|(slot, _)| slot).collect();
            unreadable.into_iter().try_for_each(|slot| self.mark(slot))?;
            self.drain()?;
            asking.round = self.count;
        }
        for _ in 0..ROUNDS_MAX {
            let Some(slot) = self.ledger.nodes.find(directory) else {
                if self.settle_more(self.root, asking, gives_way)?.is_none() {
                    return Ok(None);
                }
                if self.ledger.nodes.find(directory).is_none() {
                    break;
                }
                continue;
            };
            match self.settle_more(if asking.is_lost { self.root } else { slot }, asking, gives_way) {
                // It was forgotten together with one above it that is gone, and may have moved out of that: all is looked through.
                Err(SummaryError::Unknown) => {}
                Err(error) => return Err(error),
                Ok(None) => return Ok(None),
                // Where directories are known by their names, it or one above it may have moved.
                Ok(Some(false)) if !asking.is_lost && !self.directories.changes_are_told() => {
                    (asking.is_lost, asking.is_whole, asking.rounds) = (true, false, 0);
                }
                Ok(Some(false)) => return self.cached(directory, asking.seen).map(Some),
                Ok(Some(true)) => {
                    let Some(slot) = self.ledger.nodes.find(directory) else { break };
                    // What is hidden and has changed isn't counted yet for those who see it.
                    if asking.seen.is_none() || !self.ledger.nodes.may_be_outdated(slot) {
                        self.remember(slot)?;
                    }
                    return self.settled_answer(directory, freshness, asking.seen).map(Some);
                }
            }
        }
        Err(SummaryError::Unknown)
    }

    /// Directories in which blocks may have changed by now.
    fn suspect_unsettled(&mut self, now: i64) -> Result<(), SummaryError> {
        if now < self.unsettled_until {
            return Ok(());
        }
        let due: Vec<Slot> = self.unsettled.iter().filter(|(_, until)| **until <= now).map(|(slot, _)| *slot).collect();
        for slot in due {
            self.unsettled.remove(&slot);
            self.mark_used(slot)?;
        }
        self.unsettled_until = self.unsettled.values().copied().min().unwrap_or(i64::MAX);
        Ok(())
    }

    fn mark_used(&mut self, slot: Slot) -> Result<(), SummaryError> {
        if self.ledger.nodes.is_used(slot) { self.mark(slot) } else { Ok(()) }
    }

    /// The totals of a directory over time: from when it was asked for first.
    pub fn history(&self, slot: Slot) -> Result<History, SummaryError> {
        Ok(self.ledger.history(slot)?)
    }

    /// From now on its totals are noted from time to time.
    pub fn remember(&mut self, slot: Slot) -> Result<(), SummaryError> {
        if self.remembered.len() < REMEMBERED_MAX && self.remembered.insert(slot) {
            self.ledger.note_history(slot, self.time())?;
        }
        Ok(())
    }

    /// What has changed while nobody tracked is found and harvested: from now on totals are noted.
    pub fn begin_noting(&mut self) {
        self.is_noting = true;
    }

    /// Notes the totals of directories that were asked for, when it is time.
    fn note_histories(&mut self) -> Result<(), SummaryError> {
        let (now, time) = (self.now(), self.time());
        if !self.is_noting || self.noted_at.is_some_and(|noted_at| now - noted_at < HISTORY_SECONDS) {
            return Ok(());
        }
        self.noted_at = Some(now);
        let nodes = &self.ledger.nodes;
        self.remembered.retain(|&slot| nodes.is_used(slot));
        for &slot in &self.remembered {
            self.ledger.note_history(slot, time)?;
        }
        Ok(())
    }

    /// The record of a directory, as it is stored.
    pub fn record(&self, slot: Slot) -> Result<Record, SummaryError> {
        Ok(self.ledger.record(slot)?)
    }

    /// Harvests what is dirty below a directory. False when something goes on changing all the time.
    pub fn settle(&mut self, slot: Slot) -> Result<bool, SummaryError> {
        Ok(self.settle_more(slot, &mut Asking { has_begun: true, ..Asking::default() }, &|| false)?.unwrap_or(false))
    }

    /// The same, until it `gives_way`: then `None`, and to be called again.
    pub fn settle_more(
        &mut self,
        slot: Slot,
        asking: &mut Asking<'_>,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Option<bool>, SummaryError> {
        let (mut id, mut has_given_way) = (None, false);
        loop {
            self.drain()?;
            let nodes = &self.ledger.nodes;
            // Another may have its number by now.
            if !nodes.is_used(slot) || *id.get_or_insert(nodes.id(slot)) != nodes.id(slot) {
                return Err(SummaryError::Unknown);
            }
            let dirty = self.dirty_for(slot, asking.seen)?;
            // Before they are read: what is written meanwhile would have to be read once more.
            let is_concerned = !dirty.is_empty() || self.ledger.nodes.may_have_open(slot);
            // Who doesn't see all would learn from a late answer that something hidden has changed.
            let gives_way_to_leases: &dyn Fn() -> bool = if asking.seen.is_some() { &|| false } else { gives_way };
            if is_concerned && !self.watch_relinked(gives_way_to_leases)? {
                self.ledger.pay()?;
                return Ok(None);
            }
            if dirty.is_empty() && !self.look_at_open(slot, asking.seen)? && !self.look_at_aliens(slot)? {
                match asking.seen {
                    Some(_) => self.ledger.pay()?,
                    None => self.settled(slot)?,
                }
                return Ok(Some(true));
            }
            if has_given_way {
                self.ledger.pay()?;
                return Ok(None);
            }
            let is_due = |id: &NodeId| asking.aside.get(id).is_none_or(|&times| times < ASIDE_MAX);
            let dirty = match self.without_large(slot, dirty, is_due) {
                Ok(dirty) => dirty,
                Err(due) => {
                    self.ledger.pay()?;
                    let Some(next) = due else { return Ok(Some(false)) };
                    *asking.aside.entry(next).or_default() += 1;
                    self.due_aside = Some(next);
                    return Ok(None);
                }
            };
            let nodes = &self.ledger.nodes;
            if asking.is_whole || dirty.iter().all(|&slot| nodes.counts(slot).1 > asking.round) {
                (asking.rounds, asking.round) = (asking.rounds + 1, self.count);
            }
            if asking.rounds > ROUNDS_MAX {
                self.ledger.pay()?;
                return Ok(Some(false));
            }
            self.harvest(dirty, (usize::MAX, asking.seen), gives_way)?;
            self.find_the_lost()?;
            has_given_way = gives_way();
            asking.is_whole = !has_given_way;
        }
    }

    /// Harvests these, and at most so many new ones that are found below them and are shown; fewer when it has to give way.
    fn harvest(
        &mut self,
        dirty: Vec<Slot>,
        (mut most_new, seen): (usize, Seen<'_>),
        gives_way: &dyn Fn() -> bool,
    ) -> Result<(), SummaryError> {
        self.bring_in(&dirty);
        self.begin_count();
        let (count, now) = (self.count, self.time());
        let mut waiting = Waiting::of(dirty.into_iter().map(|slot| (self.ledger.nodes.id(slot), slot)));
        let is_first = self.ledger.nodes.counts(self.root).1 == 0;
        let (mut merging, directories, tracker) = self.merging(count, now);
        let entries_max = merging.entries_max;
        // Whatever is told from here on is kept until this is over, and has its directory read again.
        let bulk = (is_first && tracker.heed_all() && directories.begin_bulk()).then(|| EndOfBulk(directories));
        harvest::harvest(&mut waiting, (directories, tracker, entries_max), gives_way, |slot, reading, waiting| {
            let Further { new, doubted } = merging.merge(slot, reading)?;
            let are_shown = match seen.filter(|_| !new.is_empty()) {
                Some(viewer) => {
                    let access = merging.ledger.record(slot)?.access;
                    access.is_open_to_all() || viewer.may_list(merging.ledger.nodes.id(slot), &access)
                }
                None => true,
            };
            let nodes = &merging.ledger.nodes;
            // They may lie outside of what is asked for, and would not be read at all.
            doubted.into_iter().for_each(|doubted| waiting.add(nodes.id(doubted), doubted));
            let followed = if are_shown { new.len().min(most_new) } else { 0 };
            most_new -= followed;
            new.into_iter().take(followed).for_each(|new| waiting.add(nodes.id(new), new));
            Ok::<_, SummaryError>(())
        })?;
        drop(bulk);
        let outdated = merging.outdated;
        outdated.into_iter().try_for_each(|slot| self.mark_used(slot))
    }

    /// Has the disk read in its own order what harvesting these takes.
    fn bring_in(&self, dirty: &[Slot]) {
        let nodes = &self.ledger.nodes;
        if dirty.len() * MOST_SHARE >= nodes.len() {
            return self.directories.bring_in(&Wanted::Most);
        }
        let directories: Vec<NodeId> = dirty.iter().map(|&slot| nodes.id(slot)).collect();
        let is_wanted = |id| nodes.find(id).is_none_or(|slot| nodes.is_dirty(slot));
        self.directories.bring_in(&Wanted::Some { directories: &directories, is_wanted: &is_wanted });
    }

    /// Directories that are in none: gone, or in another one, which then has to be read (again).
    fn find_the_lost(&mut self) -> Result<(), SummaryError> {
        for Lost { slot, told } in std::mem::take(&mut self.nowhere) {
            if !self.ledger.nodes.is_used(slot) || self.ledger.nodes.parent(slot).is_some() {
                continue;
            }
            match self.directories.parent(self.ledger.nodes.id(slot)) {
                Err(error) if is_gone(&error) => self.forget(slot)?,
                Err(_) => self.nowhere.push(Lost { slot, told }),
                Ok(parent) => {
                    let parent = self.ledger.nodes.find(parent);
                    let was_read = |(at, count)| {
                        parent == Some(at) && self.ledger.nodes.counts(at).1 > count && !self.ledger.nodes.is_dirty(at)
                    };
                    if told.is_some_and(was_read) {
                        // It is there, and doesn't show: something is mounted on it.
                        self.forget(slot)?;
                        continue;
                    }
                    let told = told.filter(|(at, _)| Some(*at) == parent).or(parent.map(|at| (at, self.count)));
                    if let Some(parent) = parent {
                        self.mark(parent)?;
                    }
                    self.nowhere.push(Lost { slot, told });
                }
            }
        }
        Ok(())
    }

    /// Forgets a directory that is in none, and all below.
    fn forget(&mut self, slot: Slot) -> Result<(), SummaryError> {
        let below = self.ledger.nodes.subtree(slot).into_iter().map(|at| (at, self.ledger.nodes.id(at)));
        let (slots, ids): (Vec<Slot>, Vec<NodeId>) = below.unzip();
        self.tracker.heed_each(&ids);
        for (at, id) in slots.into_iter().zip(ids) {
            self.unreadable.remove(&at);
            self.vanished.remove(&id);
            self.large.remove(&id);
            self.doubted.remove(&id);
        }
        Ok(self.ledger.forget(slot)?)
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
        steps.into_iter().rev().map(|at| Ok(self.ledger.record(at)?.name)).collect()
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
        self.commit(true)?;
        Ok(self.ledger.compact()?)
    }
}

/// Ends reading in bulk when it goes.
struct EndOfBulk<'a, D: Directories>(&'a D);

impl<D: Directories> Drop for EndOfBulk<'_, D> {
    fn drop(&mut self) {
        self.0.end_bulk();
    }
}

/// Without the number that the standard library puts behind.
fn message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
