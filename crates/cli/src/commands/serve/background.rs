//! What is done without being asked for: harvests in portions, behind everybody else's reads, and making durable.

use std::{
    mem,
    path::Path,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU32, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use onesweep_summary::{
    reading::Directories,
    service::{
        budget::Budget,
        server::{Served, Server},
    },
    store::StoreError,
    summaries::{SummaryError, Tended},
    warden::guarded::Warden,
};
use onesweep_sys::priority;

use super::{
    catching_up::{self, Heads},
    turns::{Rest, Turns},
};
use crate::{args::ServeSettings, message, report::Failure};

/// So often it looks after what is due.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// So often what is known is made durable.
const COMMIT_EVERY: Duration = Duration::from_secs(60);
/// So often the same trouble is told again.
const COMPLAIN_EVERY: Duration = Duration::from_secs(600);
/// The paper's `timeout`.
const HARVEST_AFTER: i64 = 30 * 60;
/// So often files that stay open or mapped for writing are looked at.
const CHECK_OPEN_EVERY: i64 = 60;

/// Harvesting more than so many directories takes memory that isn't needed afterwards.
const MANY: u64 = 10_000;
/// So few from one look to the next are no harvest of many that is still under way.
const FEW: u64 = 100;

/// When and how much; it can change meanwhile.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    harvest_after: AtomicI64,
    budget: AtomicU32,
    check_open_every: AtomicI64,
}

impl Schedule {
    pub(super) fn new(settings: &ServeSettings) -> Arc<Schedule> {
        let schedule = Arc::<Schedule>::default();
        schedule.set(settings);
        schedule
    }

    /// So long after the last time all that has changed is harvested by itself.
    pub(super) fn harvest_after(&self) -> Duration {
        Duration::from_secs(self.harvest_after.load(Ordering::Relaxed).max(1).unsigned_abs())
    }

    pub(super) fn set(&self, settings: &ServeSettings) {
        let harvest_after = settings.harvest_after.map_or(HARVEST_AFTER, |time| time.0);
        let budget = settings.background_budget.unwrap_or(Budget::default().directories);
        self.harvest_after.store(harvest_after, Ordering::Relaxed);
        self.budget.store(budget, Ordering::Relaxed);
        let check_open_every = settings.check_open_every.map_or(CHECK_OPEN_EVERY, |time| time.0.max(1));
        self.check_open_every.store(check_open_every, Ordering::Relaxed);
    }
}

/// What was told last: what goes on isn't told every second.
#[derive(Default)]
struct Complaints(Option<(String, Instant)>);

impl Complaints {
    fn tell(&mut self, path: &Path, error: &SummaryError) {
        let text = message::of_error(error);
        let is_told = |(told, at): &(String, Instant)| *told == text && at.elapsed() < COMPLAIN_EVERY;
        // That it is waited for follows what went wrong.
        let is_waiting = matches!(error, SummaryError::Store(StoreError::Waiting { .. }));
        if !is_waiting && !self.0.as_ref().is_some_and(is_told) {
            tracing::error!("{}: {text}", message::path_text(path));
            self.0 = Some((text, Instant::now()));
        }
    }

    /// It goes on.
    fn forget(&mut self) {
        self.0 = None;
    }
}

/// Directories of a file system that were harvested so far, by itself or for those who asked.
#[derive(Clone, Copy)]
struct Harvested {
    at_last_look: u64,
    /// When memory was given back last.
    at_last_rest: u64,
}

impl Harvested {
    /// What was harvested before this is known is over, and so is giving back what that took.
    fn so_far(readings: u64) -> Self {
        Self { at_last_look: readings, at_last_rest: readings }
    }

    /// Whether many were harvested since memory was given back last, and no more are just now; then it is to be given back.
    fn is_over(&mut self, readings: u64, all_is_harvested: bool) -> bool {
        // Another one has taken its place.
        if readings < self.at_last_look {
            *self = Self::so_far(0);
        }
        let is_quiet = all_is_harvested || readings - self.at_last_look <= FEW;
        self.at_last_look = readings;
        let is_over = is_quiet && readings - self.at_last_rest > MANY;
        if is_over {
            self.at_last_rest = readings;
        }
        is_over
    }
}

/// A file system that is looked after by a thread of its own until this goes, or it isn't tracked any more: one whose disk holds still, or
/// that doesn't answer, keeps no other waiting.
pub(super) struct LookedAfter {
    of: Weak<Served>,
    _until: Sender<()>,
    thread: JoinHandle<()>,
}

impl LookedAfter {
    /// From now on. Those of which changes are told take `turns`; of the others each has its own budget.
    pub(super) fn start(
        of: &Arc<Served>,
        (server, warden): (&Arc<Server>, &Arc<Warden>),
        (schedule, turns): (&Arc<Schedule>, &Arc<Turns>),
    ) -> Result<LookedAfter, Failure> {
        let are_told = of.file_system().changes_are_told();
        let turns = if are_told { Arc::clone(turns) } else { Arc::default() };
        let (until, ended) = mpsc::channel();
        let (server, schedule, warden) = (Arc::clone(server), Arc::clone(schedule), Arc::clone(warden));
        let (of, its) = (Arc::downgrade(of), Arc::downgrade(of));
        let thread = thread::Builder::new()
            .name(if are_told { "background" } else { "timed" }.into())
            .spawn(move || run(&its, (&server, &warden), (&schedule, &turns), &ended))
            .map_err(|error| Failure::told(format!("cannot start a thread: {error}")))?;
        Ok(LookedAfter { of, _until: until, thread })
    }

    /// Whether it was this one's.
    pub(super) fn is_of(&self, served: &Arc<Served>) -> bool {
        std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(served))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// The thread ends as soon as it has ended what it does now.
    pub(super) fn end(self) -> JoinHandle<()> {
        self.thread
    }
}

/// Goes on until the other end of `ended` is gone, or the file system.
fn run(
    of: &Weak<Served>,
    (server, warden): (&Server, &Warden),
    (schedule, turns): (&Schedule, &Turns),
    ended: &Receiver<()>,
) {
    // Where changes aren't told nothing is asked of what may not answer: it takes its turn alone.
    let heads = |served: &Arc<Served>| match served.file_system().changes_are_told() {
        true => catching_up::heads(served),
        false => Heads::These(Vec::new()),
    };
    let Some(heads) = of.upgrade().as_ref().map(heads) else { return };
    let mut background = Background::new((schedule, warden), (turns, heads));
    while let Some(served) = of.upgrade() {
        if !server.volumes().iter().any(|other| Arc::ptr_eq(other, &served)) {
            return;
        }
        let pause = background.tend(&served);
        if served.file_system().changes_are_told() {
            background.check_open_files(&served);
        }
        background.commit(&served);
        // One that is let go meanwhile is held by nobody.
        drop(served);
        match ended.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}

/// What is harvested of it and made durable, and what was told of it.
struct Background<'a> {
    schedule: &'a Schedule,
    warden: &'a Warden,
    turns: &'a Turns,
    heads: Heads,
    /// Since when it has waited for its turn.
    waits_since: Option<Instant>,
    rest: Rest,
    checked: Instant,
    committed: Instant,
    /// Directories that were read since all that had changed was.
    read: u64,
    losses: u64,
    harvested: Option<Harvested>,
    complaints: Complaints,
}

impl<'a> Background<'a> {
    fn new((schedule, warden): (&'a Schedule, &'a Warden), (turns, heads): (&'a Turns, Heads)) -> Self {
        // Where that can't be had it waits for nobody but those who ask.
        let _ = priority::set_idle_io();
        let now = Instant::now();
        Self {
            schedule,
            warden,
            turns,
            heads,
            waits_since: None,
            rest: Rest::default(),
            checked: now,
            committed: now,
            read: 0,
            losses: 0,
            harvested: None,
            complaints: Complaints::default(),
        }
    }

    /// One portion of what is due; how long to wait after it.
    fn tend(&mut self, served: &Served) -> Duration {
        let (now, budget) = (Instant::now(), self.schedule.budget.load(Ordering::Relaxed));
        // One directory can have so many entries that it takes long. All else goes on.
        if let Some(left) = self.rest.left(budget, now) {
            return left.min(TEND_EVERY);
        }
        let since = *self.waits_since.get_or_insert(now);
        let turn = match self.turns.take(&self.heads, (since, now)) {
            Ok(turn) => turn,
            Err(wait) => return wait.min(TEND_EVERY),
        };
        self.waits_since = None;
        let portion = Budget { directories: budget };
        let tended = served.summaries().tend(self.schedule.harvest_after.load(Ordering::Relaxed), portion);
        let rest = tended.as_ref().ok().filter(|(tended, _)| *tended != Tended::Nothing).map(|&(_, rest)| rest);
        let now = Instant::now();
        self.rest.begin(rest.unwrap_or_default(), budget, now);
        let away = turn.end(rest.unwrap_or_default(), now);
        self.tell(served, tended.map(|(tended, _)| tended));
        if rest.is_some() { away.min(TEND_EVERY) } else { TEND_EVERY }
    }

    /// What people are to hear of that.
    fn tell(&mut self, served: &Served, tended: Result<Tended, SummaryError>) {
        let path = message::path_text(served.path());
        let (losses, readings, has_turned_away, set_aside) = {
            let tracked = served.summaries().shared();
            (tracked.losses(), tracked.readings(), tracked.has_turned_away(), tracked.take_set_aside())
        };
        let harvested = self.harvested.get_or_insert(Harvested::so_far(readings));
        if harvested.is_over(readings, matches!(tended, Ok(Tended::All(_)))) {
            tracing::debug!("{path}: memory is given back that a harvest has taken");
            self.warden.rest();
        }
        if losses > mem::replace(&mut self.losses, losses) {
            tracing::warn!("{path}: more happened than could be told; it is found out what has changed");
        }
        if has_turned_away {
            tracing::warn!(
                "{path}: more directories are asked for than growth is noted of (10,000, each asked for within a week); of others none is told"
            );
        }
        if let Some(set_aside) = set_aside {
            tracing::warn!("{set_aside}");
        }
        match tended {
            Ok(Tended::Nothing) => {}
            Ok(Tended::Some(read)) => {
                self.read += read;
                tracing::debug!("{path}: {read} directories harvested in the background");
            }
            Ok(Tended::All(read)) => {
                let all = mem::take(&mut self.read) + read;
                tracing::info!("{path}: all that had changed was harvested in the background, {all} directories");
            }
            Err(error) => return self.complaints.tell(served.path(), &error),
        }
        self.complaints.forget();
    }

    /// Looks at files that stay open or mapped for writing, when it is time.
    fn check_open_files(&mut self, served: &Served) {
        if (self.checked.elapsed().as_secs() as i64) < self.schedule.check_open_every.load(Ordering::Relaxed) {
            return;
        }
        self.checked = Instant::now();
        if let Err(error) = served.check_open_files() {
            let (path, why) = (message::path_text(served.path()), message::of_error(&error));
            tracing::error!("{path}: cannot look at files that are open for writing: {why}");
        }
    }

    /// Makes durable what is known, when it is time.
    fn commit(&mut self, served: &Served) {
        if self.committed.elapsed() < COMMIT_EVERY {
            return;
        }
        self.committed = Instant::now();
        if let Err(error) = served.summaries().commit() {
            self.complaints.tell(served.path(), &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, Harvested, MANY};

    #[test]
    fn what_many_have_taken_is_given_back_once_and_when_it_is_over() {
        let mut harvested = Harvested::so_far(5);
        assert!(!harvested.is_over(5 + MANY, true), "not that many");
        assert!(!harvested.is_over(500 + MANY, false), "it goes on");
        assert!(harvested.is_over(500 + MANY + FEW, false));
        assert!(!harvested.is_over(500 + MANY + FEW, false), "once");
        let before = 500 + MANY + FEW;
        assert!(harvested.is_over(before + MANY + 1, true), "all by itself");
        assert!(!harvested.is_over(before + 2 * MANY, false));
    }

    #[test]
    fn one_that_is_begun_anew_is_counted_anew() {
        let mut harvested = Harvested::so_far(7 * MANY);
        assert!(!harvested.is_over(MANY, false));
        assert!(!harvested.is_over(2 * MANY, false));
        assert!(harvested.is_over(2 * MANY, false));
    }
}
