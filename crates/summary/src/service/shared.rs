//! The summaries of one file system, as several ask for them at the same time.

use std::{
    cell::Cell,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    budget::Budget,
    gate::Gated,
    patience::{AllGoing, Claim, Going, Outcome, Patience, Progress},
};
use crate::{
    clock::Clock,
    identity::NodeId,
    reading::Directories,
    store::StoreError,
    summaries::{Answer, Asking, Freshness, Looks, Seen, Staying, Summaries, SummaryError, Tended, Viewer, Written},
    tracker::Tracker,
};

/// So many readings, each of one directory or a few dozen, are the least of a harvest that others wait for.
const PORTION: usize = 8;
/// So long the background gives way to who asks, one after the other; then it takes its turn.
const GIVE_WAY: Duration = Duration::from_secs(1);

/// So often it is looked whether who is there first has gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A directory with more entries is read while others are answered.
const ENTRIES_MAX: usize = 1 << 15;

/// Summaries behind a lock.
pub struct Shared<D, T> {
    tracked: Gated<Summaries<D, T>>,
    directories: D,
    clock: Arc<dyn Clock>,
    /// One large directory is read at a time.
    aside: Mutex<()>,
    /// One at a time finds out what has changed.
    search: Mutex<()>,
    /// How many wait for them.
    waiting: Mutex<usize>,
    nobody_waits: Condvar,
    /// Harvests for questions whose askers may have gone.
    going: Arc<AllGoing>,
    /// All was read once: until then whatever is counted is a part. Told by what is behind the lock.
    is_counted: Arc<AtomicBool>,
    /// So it was at the beginning.
    was_counted: bool,
    /// It is known what has changed while nobody tracked it.
    is_ready: Mutex<bool>,
    ready: Condvar,
}

/// What is stored, and whether others can look at it, too.
pub(super) enum Held<'a, D, T> {
    Shared(RwLockReadGuard<'a, Summaries<D, T>>),
    Alone(RwLockWriteGuard<'a, Summaries<D, T>>),
}

impl<D, T> std::ops::Deref for Held<'_, D, T> {
    type Target = Summaries<D, T>;

    fn deref(&self) -> &Summaries<D, T> {
        match self {
            Held::Shared(tracked) => tracked,
            Held::Alone(tracked) => tracked,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is had by then. These locks know no end of waiting.
fn try_until<G>(until: Instant, have: impl Fn() -> Option<G>) -> Option<G> {
    loop {
        let had = have();
        if had.is_some() || Instant::now() >= until {
            return had;
        }
        thread::sleep(LOOK_EVERY);
    }
}

impl<D: Directories + Clone, T: Tracker> Shared<D, T> {
    /// Nothing is known yet of what has changed: see [`catch_up`](Self::catch_up).
    pub fn new(mut tracked: Summaries<D, T>) -> Self {
        tracked.leave_large(ENTRIES_MAX);
        tracked.leave_searches();
        let is_counted = Arc::clone(tracked.is_counted());
        let was_counted = is_counted.load(Ordering::Acquire);
        Self {
            directories: tracked.directories().clone(),
            clock: Arc::clone(tracked.clock()),
            tracked: Gated::new(tracked),
            aside: Mutex::default(),
            search: Mutex::default(),
            waiting: Mutex::new(0),
            nobody_waits: Condvar::new(),
            going: Arc::default(),
            is_counted,
            was_counted,
            is_ready: Mutex::new(false),
            ready: Condvar::new(),
        }
    }

    /// What is stored, beside others; before the background, if that is at work.
    pub fn shared(&self) -> RwLockReadGuard<'_, Summaries<D, T>> {
        self.tracked.try_read().unwrap_or_else(|| self.before_the_background(|| self.tracked.read()))
    }

    /// The same, but while it is caught up with, and where who is there first may read what doesn't answer, that isn't waited for any
    /// longer than until then.
    pub(super) fn shared_until(&self, until: Option<Instant>) -> Option<RwLockReadGuard<'_, Summaries<D, T>>> {
        let Some(until) = until.filter(|_| !self.is_ready() || !self.directories.changes_are_told()) else {
            return Some(self.shared());
        };
        self.before_the_background(|| try_until(until, || self.tracked.try_read()))
    }

    /// The same alone.
    pub fn alone(&self) -> RwLockWriteGuard<'_, Summaries<D, T>> {
        self.before_the_background(|| self.tracked.write())
    }

    /// The same, where nobody else has them.
    pub fn try_alone(&self) -> Option<RwLockWriteGuard<'_, Summaries<D, T>>> {
        self.tracked.try_write()
    }

    /// The same as [`alone`](Self::alone), but `None` while somebody finds out what has changed, where that can't be waited for.
    fn alone_before(&self, patience: &Patience<'_>) -> Option<RwLockWriteGuard<'_, Summaries<D, T>>> {
        match patience.until {
            Some(until) if !self.directories.changes_are_told() => {
                self.before_the_background(|| try_until(until, || self.tracked.try_write()))
            }
            Some(_) => self.before_the_background(|| self.tracked.write_unless_shut()),
            None => Some(self.alone()),
        }
    }

    fn before_the_background<G>(&self, wait: impl FnOnce() -> G) -> G {
        *lock(&self.waiting) += 1;
        let tracked = wait();
        let mut waiting = lock(&self.waiting);
        *waiting -= 1;
        if *waiting == 0 {
            self.nobody_waits.notify_all();
        }
        tracked
    }

    /// How many wait for it.
    pub fn waiting(&self) -> usize {
        *lock(&self.waiting)
    }

    /// An answer, and what it was taken from. Where nothing has changed nobody waits for anybody else; `alone` where what is
    /// held has to be changed besides.
    pub(super) fn query(
        &self,
        id: NodeId,
        freshness: Freshness,
        alone: bool,
        seen: Seen<'_>,
    ) -> Result<(Answer, Held<'_, D, T>), SummaryError> {
        self.query_looking(id, freshness, (alone, seen), &mut Looks::default())
    }

    /// The same, which leaves what was looked at for it.
    fn query_looking(
        &self,
        id: NodeId,
        freshness: Freshness,
        (alone, seen): (bool, Seen<'_>),
        looks: &mut Looks,
    ) -> Result<(Answer, Held<'_, D, T>), SummaryError> {
        if freshness == Freshness::Cached && !alone {
            let tracked = self.shared();
            return Ok((tracked.cached(id, seen)?, Held::Shared(tracked)));
        }
        if freshness == Freshness::Exact && !alone {
            let tracked = self.shared();
            if let Some(answer) = tracked.query_clean(id, seen)? {
                return Ok((answer, Held::Shared(tracked)));
            }
        }
        let wants_all_written = freshness == Freshness::Synced;
        // While others are answered.
        let written = wants_all_written.then(|| Written::by_now(&self.directories, &*self.clock)).transpose()?;
        let (mut asking, mut was_broken) = (Asking::by(seen).after(written), false);
        loop {
            let mut tracked = self.alone();
            match tracked.query_within(id, freshness, &mut asking, &self.gives_way()) {
                Ok(Some(answer)) => {
                    *looks = asking.take_looks();
                    return Ok((answer, Held::Alone(tracked)));
                }
                Ok(None) => {}
                // It is opened again.
                Err(SummaryError::Store(_)) if tracked.is_broken() && !was_broken => {
                    (asking, was_broken) = (asking.again(), true);
                }
                Err(error) => return Err(error),
            }
            let (large, is_behind) = (tracked.take_due_aside(), tracked.is_behind() && !tracked.is_broken());
            drop(tracked);
            if !is_behind {
                self.go_on(large)?;
                continue;
            }
            match self.search() {
                Err(SummaryError::Store(_)) if !was_broken && self.shared().is_broken() => {
                    (asking, was_broken) = (asking.again(), true);
                }
                searched => searched?,
            }
        }
    }

    /// Finds out what has changed that wasn't told, where something has. What is stored can be asked meanwhile; all else waits, so that
    /// nothing is harvested before that is known.
    fn search(&self) -> Result<(), SummaryError> {
        let _one_at_a_time = lock(&self.search);
        if !self.shared().is_behind() {
            return Ok(());
        }
        if self.directories.method().is_some() {
            // While nobody waits: what comes first in the search has little to do then. What can't be written is found there.
            let _ = self.directories.sync();
        }
        let (tracked, shut) = self.tracked.shut();
        if !tracked.is_behind() {
            return Ok(());
        }
        let missed = tracked.missed()?;
        drop(tracked);
        shut.write().catch_up(missed)
    }

    /// Before a harvest goes on that has come back.
    fn go_on(&self, large: Option<NodeId>) -> Result<(), SummaryError> {
        let Some(large) = large else {
            self.give_way();
            return Ok(());
        };
        match self.read_aside(large) {
            // Whoever asks next finds the same, or a store that was opened again.
            Ok(_) | Err(SummaryError::Store(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads one directory while others are answered; what it counts for within a budget.
    fn read_aside(&self, directory: NodeId) -> Result<u64, SummaryError> {
        let _one_at_a_time = lock(&self.aside);
        let Some(aside) = self.alone().begin_aside(directory)? else { return Ok(0) };
        let reading = self.directories.read(directory);
        let mut tracked = self.alone();
        let before = tracked.charged();
        tracked.end_aside(aside, reading)?;
        Ok(tracked.charged() - before)
    }

    /// The answer to a question, after which others are answered. One that has to harvest lets others ask between portions.
    pub fn answer(&self, id: NodeId, freshness: Freshness) -> Result<Answer, SummaryError> {
        self.query(id, freshness, false, None).map(|(answer, _)| answer)
    }

    /// Tells a harvest to end when somebody waits, but not before it has got somewhere.
    fn gives_way(&self) -> impl Fn() -> bool {
        let asked = Cell::new(0);
        move || {
            asked.set(asked.get() + 1);
            asked.get() > PORTION && self.waiting() > 0
        }
    }

    /// Lets those go first who wait now, and can.
    pub(super) fn give_way(&self) {
        if self.tracked.is_shut() {
            return;
        }
        let waiting = lock(&self.waiting);
        let given = self.nobody_waits.wait_timeout_while(waiting, GIVE_WAY, |waiting| *waiting > 0);
        drop(given.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until [`catch_up`](Self::catch_up) has found out what there is.
    pub fn wait_until_ready(&self) {
        let is_ready = lock(&self.is_ready);
        drop(self.ready.wait_while(is_ready, |is_ready| !*is_ready).unwrap_or_else(PoisonError::into_inner));
    }

    /// True when [`catch_up`](Self::catch_up) has found out what there is.
    pub fn is_ready(&self) -> bool {
        *lock(&self.is_ready)
    }

    /// True where what is stored was all there was at some time: not while all is read for the first time. Nobody is let in then, for that
    /// would end reading in bulk. Nor is it while all is read after a damaged store was set aside.
    pub(super) fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Acquire)
    }

    /// Waits until that is so; false when that takes too long, or has failed.
    pub(super) fn is_counted_by(&self, until: Option<Instant>) -> bool {
        if self.is_counted() {
            return true;
        }
        let Some(until) = until else {
            self.wait_until_ready();
            return self.is_counted();
        };
        let is_ready = lock(&self.is_ready);
        let left = until.saturating_duration_since(Instant::now());
        drop(self.ready.wait_timeout_while(is_ready, left, |is_ready| !*is_ready));
        self.is_counted()
    }

    /// Finds out what has changed while nobody tracked it, and harvests that. `done` is told before anybody is answered; what was found is made
    /// durable while others are. An error when it can't be written. Of either [`goes_on_after`](Self::goes_on_after) says what follows.
    pub fn catch_up(&self, done: impl FnOnce(&Summaries<D, T>, Result<(), SummaryError>)) -> Result<(), SummaryError> {
        let caught_up = self.try_catch_up();
        let is_known = caught_up.is_ok();
        if caught_up.as_ref().is_err_and(|error| self.goes_on_after(error)) {
            let mut tracked = self.alone();
            tracked.note_behind_a_failure();
            // Else answers would be called exact above what is mapped for writing, until it is looked at next. Whoever looks next tells.
            let _ = tracked.look_at_open_files();
        }
        done(&self.shared(), caught_up);
        *lock(&self.is_ready) = true;
        self.ready.notify_all();
        if is_known { self.commit_synced() } else { Ok(()) }
    }

    /// Whether that is no end where [`catch_up`](Self::catch_up) has failed with it: it is the store alone, which held all that there was at
    /// some time. It is opened again by who asks or harvests next, as after any other failure of the store, and what has changed since is
    /// found out then. Without such a store all would be read again and again.
    pub fn goes_on_after(&self, error: &SummaryError) -> bool {
        // One that can be read and holds what can't be isn't opened again.
        let is_opened_again =
            matches!(error, SummaryError::Store(StoreError::Database { .. } | StoreError::Waiting { .. }));
        self.was_counted && is_opened_again
    }

    fn try_catch_up(&self) -> Result<(), SummaryError> {
        let mut asking = Asking::default();
        loop {
            self.search()?;
            let mut tracked = self.alone();
            let root = tracked.root();
            if tracked.settle_more(root, &mut asking, &self.gives_way())?.is_some() {
                match tracked.look_at_open_files() {
                    // Whoever looks next tells.
                    Ok(()) | Err(SummaryError::OpenFiles(_)) => {}
                    Err(error) => return Err(error),
                }
                tracked.begin_noting();
                return Ok(());
            }
            let large = tracked.take_due_aside();
            drop(tracked);
            self.go_on(large)?;
        }
    }

    /// Makes durable what is known. While the disk does that others are answered, however long it takes.
    pub fn commit(&self) -> Result<(), SummaryError> {
        let Some(store) = self.alone().begin_commit()? else { return Ok(()) };
        store.write_staged()?;
        // Or the store could not be opened again by who asks next.
        drop(store);
        self.alone().committed();
        Ok(())
    }

    /// Ends in good order; false where somebody reads, and that is not waited for: because `waits` is false, or what has changed is still being
    /// found out; and where a first harvest has failed. A part of what is there would be taken for all by who opens the store next.
    pub(super) fn close(&self, waits: bool) -> Result<bool, SummaryError> {
        if !self.is_ready() || !self.is_counted() {
            return Ok(false);
        }
        let tracked = if waits { Some(self.alone()) } else { self.try_alone() };
        tracked.map(|mut tracked| tracked.close()).transpose().map(|closed| closed.is_some())
    }

    /// The same after all was harvested: first what was read is written by the file system, where nobody could tell later that it wasn't.
    fn commit_synced(&self) -> Result<(), SummaryError> {
        let begun = self.alone().begin_sync();
        if let Some(begun) = begun
            && self.directories.sync().is_ok()
        {
            self.alone().end_sync(begun);
        }
        self.commit()
    }

    /// Harvests one portion of what is due by itself, after those who wait to ask; and how long to wait before the next.
    pub fn tend(&self, timeout: i64, budget: Budget) -> Result<(Tended, Duration), SummaryError> {
        self.give_way();
        let mut tracked = self.tracked.write();
        let (began, before) = (Instant::now(), tracked.charged());
        let tended = tracked.tend_some(timeout, budget.portion(), &|| self.waiting() > 0)?;
        let (large, mut charge) = (tracked.take_due_aside(), tracked.charged() - before);
        let is_behind = tracked.is_behind();
        drop(tracked);
        if is_behind {
            self.search()?;
        }
        if let Tended::All(_) = tended {
            self.commit_synced()?;
            self.alone().tidy_places()?;
        }
        if let Some(large) = large {
            charge += self.read_aside(large)?;
        }
        if tended == Tended::Nothing {
            return Ok((tended, Duration::ZERO));
        }
        Ok((tended, budget.pause(charge, began.elapsed())))
    }
}

/// Rounds of a question that somebody waits for so long and no longer. Each follows a harvest of its own.
const PATIENT_ROUNDS_MAX: usize = 3;

impl<D: Directories + Clone + Send + 'static, T: Tracker + Send + 'static> Shared<D, T> {
    /// The same as [`answer`](Self::answer) for who waits so long, and no longer, or wants to know how far it is. When time is up
    /// the answer is what is stored, and says so; the harvest that the question began goes on.
    pub fn answer_within(
        self: &Arc<Self>,
        id: NodeId,
        freshness: Freshness,
        patience: &mut Patience<'_>,
    ) -> Result<Answer, SummaryError> {
        self.query_within(id, freshness, (false, None), patience).map(|(answer, _)| answer)
    }

    pub(super) fn query_within(
        self: &Arc<Self>,
        id: NodeId,
        freshness: Freshness,
        (alone, seen): (bool, Seen<'_>),
        patience: &mut Patience<'_>,
    ) -> Result<(Answer, Held<'_, D, T>), SummaryError> {
        if patience.is_endless() {
            self.wait_until_ready();
            return self.query(id, freshness, alone, seen);
        }
        if !self.is_ready_within(patience, (id, seen)) {
            if !self.is_counted() {
                return Err(SummaryError::Late);
            }
            let tracked = self.shared_until(Some(patience.let_in_by())).ok_or(SummaryError::Late)?;
            return Ok((tracked.late(id, seen)?, Held::Shared(tracked)));
        }
        if freshness == Freshness::Exact {
            if !alone {
                let tracked = self.shared_until(patience.locked_by()).ok_or(SummaryError::Late)?;
                if let Some(answer) = tracked.query_clean(id, seen)? {
                    return Ok((answer, Held::Shared(tracked)));
                }
            }
            // Who is told how far it is hears that while it is found out what has changed, too.
            if self.directories.changes_are_told()
                && let Some(mut tracked) = self.before_the_background(|| self.tracked.write_unless_shut())
                && !tracked.is_behind()
            {
                // Where nothing has changed, or in a directory or two, nobody has to wait for that.
                let mut asking = Asking::by(seen);
                if patience.until.is_some() {
                    asking = asking.told_when_late();
                }
                let answer = tracked.query_within(id, freshness, &mut asking, &|| true)?;
                tracked.take_due_aside();
                if let Some(answer) = answer {
                    return Ok((answer, Held::Alone(tracked)));
                }
            }
        }
        'rounds: for _ in 0..PATIENT_ROUNDS_MAX {
            let Some((going, is_begun)) = self.go(id, freshness, seen) else { break };
            let Claim { is_exact, checked_at } = match self.wait_for(&going, (id, seen), patience) {
                None => break,
                Some(Ok(claim)) => claim,
                Some(Err(why)) => return Err(SummaryError::Harvest(why)),
            };
            // What has changed since it ended is harvested here, if that takes no long time.
            let mut asking = Asking::by(seen);
            if is_begun {
                // What was looked at before the question counts for others alone.
                asking = asking.after_looks(going.take_looks());
            }
            let (tracked, answer) = loop {
                let Some(mut tracked) = self.alone_before(patience) else {
                    if patience.is_over() {
                        break 'rounds;
                    }
                    continue 'rounds;
                };
                let gives_way = self.gives_way();
                let is_let_in = || patience.is_over() || gives_way();
                let answer = tracked.query_within(id, Freshness::Exact, &mut asking, &is_let_in)?;
                let is_left_to_others = tracked.take_due_aside().is_some() || tracked.is_behind();
                if answer.is_some() || is_left_to_others || patience.is_over() {
                    break (tracked, answer);
                }
                // Others have their turn.
                drop(tracked);
                self.give_way();
            };
            match answer {
                // One that goes on changing didn't settle.
                Some(answer) if freshness == Freshness::Synced && is_exact && answer.checked_at.is_some() => {
                    return Ok((Answer { is_exact, checked_at, age: 0, ..answer }, Held::Alone(tracked)));
                }
                Some(answer) => return Ok((answer, Held::Alone(tracked))),
                // One that changes all the time.
                None if !is_exact && checked_at.is_none() => {
                    return Ok((tracked.cached(id, seen)?, Held::Alone(tracked)));
                }
                None => {}
            }
            if patience.is_over() {
                break;
            }
        }
        if patience.until.is_none() {
            // Only who set a time is told that it is up.
            self.wait_until_ready();
            return self.query(id, freshness, alone, seen);
        }
        let tracked = self.shared_until(patience.locked_by()).ok_or(SummaryError::Late)?;
        if !self.is_counted() {
            return Err(SummaryError::Late);
        }
        Ok((tracked.late(id, seen)?, Held::Shared(tracked)))
    }

    /// Has a question answered whoever waits for it, but for who sees what the asker sees: else the time that it takes would tell how much
    /// has changed in what is hidden; and whether that is begun for this one. `None` when too many are.
    fn go(self: &Arc<Self>, id: NodeId, freshness: Freshness, seen: Seen<'_>) -> Option<(Arc<Going>, bool)> {
        let staying = seen.map(Viewer::staying);
        let asker = staying.as_ref().map(|staying| staying.asker.clone());
        let (going, ending) = self.going.join((id, freshness, asker))?;
        let Some(ending) = ending else { return Some((going, false)) };
        let shared = Arc::clone(self);
        // Where no thread can be had, that is how it ends.
        let _ = thread::Builder::new().name("harvest".into()).spawn(move || {
            shared.wait_until_ready();
            let seen = staying.as_ref().and_then(Staying::seen);
            let mut looks = Looks::default();
            let answer = shared.query_looking(id, freshness, (false, seen), &mut looks).map(|(answer, _)| answer);
            ending.leave(looks);
            ending.say(match answer {
                Ok(Answer { is_exact, checked_at, .. }) => Ok(Claim { is_exact, checked_at }),
                // Who waits finds the same.
                Err(SummaryError::Unknown) => Ok(Claim { is_exact: true, checked_at: None }),
                Err(error) => Err(error.to_string()),
            });
        });
        Some((going, true))
    }

    /// Waits until [`catch_up`](Self::catch_up) has found out what there is; false when that takes too long.
    fn is_ready_within(&self, patience: &mut Patience<'_>, (id, seen): (NodeId, Seen<'_>)) -> bool {
        let progress = self.progress(id, seen);
        loop {
            {
                let is_ready = lock(&self.is_ready);
                let waited = self.ready.wait_timeout_while(is_ready, patience.step(), |is_ready| !*is_ready);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return true;
                }
            }
            if patience.is_over() {
                return false;
            }
            if let Some(tell) = &mut patience.tell {
                tell(progress());
            }
        }
    }

    fn wait_for(&self, going: &Going, (id, seen): (NodeId, Seen<'_>), patience: &mut Patience<'_>) -> Option<Outcome> {
        going.wait(patience, self.progress(id, seen))
    }

    /// How far it is, from now on.
    fn progress(&self, id: NodeId, seen: Seen<'_>) -> impl Fn() -> Progress {
        let began = AtomicU64::new(u64::MAX);
        let last = Mutex::new(Progress::default());
        move || {
            let mut last = lock(&last);
            // Who harvests isn't waited for.
            let Some(tracked) = self.tracked.try_read() else { return *last };
            let readings = tracked.readings();
            began.fetch_min(readings, Ordering::Relaxed);
            let read = readings.saturating_sub(began.load(Ordering::Relaxed));
            let nodes = &tracked.ledger().nodes;
            // What is unsure would have to be looked at, each second.
            let slot = nodes.find(id).filter(|&slot| seen.is_none() || !nodes.may_be_unsure(slot));
            // How much is read of what is hidden isn't told.
            if slot.is_some_and(|slot| !tracked.hides_below(slot, seen).unwrap_or(true)) {
                *last = Progress { read, left: tracked.left_below(id, seen).unwrap_or(0) as u64 };
            }
            *last
        }
    }
}

#[cfg(test)]
mod tests;
