//! What is done without being asked for: harvests in portions, behind everybody else's reads, and making durable.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU32, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
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

use crate::{args::ServeSettings, message};

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

/// What was told last of each file system: what goes on isn't told every second.
#[derive(Default)]
struct Complaints(HashMap<PathBuf, (String, Instant)>);

impl Complaints {
    fn tell(&mut self, path: &Path, error: &SummaryError) {
        let text = message::of_error(error);
        let is_told = |(told, at): &(String, Instant)| *told == text && at.elapsed() < COMPLAIN_EVERY;
        // That it is waited for follows what went wrong.
        let is_waiting = matches!(error, SummaryError::Store(StoreError::Waiting { .. }));
        if !is_waiting && !self.0.get(path).is_some_and(is_told) {
            tracing::error!("{}: {text}", message::path_text(path));
            self.0.insert(path.to_owned(), (text, Instant::now()));
        }
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

/// Goes on until the other end of `ended` is gone: of file systems of which changes are told.
pub(super) fn run(server: &Server, schedule: &Schedule, warden: &Warden, ended: &Receiver<()>) {
    let mut background = Background::new(schedule, warden);
    let mut checked = Instant::now();
    loop {
        let volumes = server.volumes();
        let are_told: Vec<_> = volumes.iter().filter(|served| served.file_system().changes_are_told()).collect();
        let pause = background.tend(&are_told);
        if checked.elapsed().as_secs() as i64 >= schedule.check_open_every.load(Ordering::Relaxed) {
            checked = Instant::now();
            server.check_open_files(|served, error| {
                let (path, why) = (message::path_text(served.path()), message::of_error(&error));
                tracing::error!("{path}: cannot look at files that are open for writing: {why}");
            });
        }
        background.commit(&are_told);
        // One that is let go meanwhile is held by nobody.
        drop(volumes);
        match ended.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}

/// The same of one of the others, for as long as it is tracked: each by itself, for one that doesn't answer keeps this waiting.
pub(super) fn run_timed(of: &Weak<Served>, server: &Server, schedule: &Schedule, warden: &Warden) {
    let mut background = Background::new(schedule, warden);
    while let Some(served) = of.upgrade() {
        if !server.volumes().iter().any(|other| Arc::ptr_eq(other, &served)) {
            return;
        }
        let pause = background.tend(&[&served]);
        background.commit(&[&served]);
        drop(served);
        thread::sleep(pause);
    }
}

/// What is harvested and made durable, and what was told of it.
struct Background<'a> {
    schedule: &'a Schedule,
    warden: &'a Warden,
    committed: Instant,
    read_of: HashMap<PathBuf, u64>,
    losses_of: HashMap<PathBuf, u64>,
    harvested_of: HashMap<PathBuf, Harvested>,
    complaints: Complaints,
    /// Until then nothing is read: what was read last has used it up.
    rests_until: Instant,
}

impl<'a> Background<'a> {
    fn new(schedule: &'a Schedule, warden: &'a Warden) -> Self {
        // Where that can't be had it waits for nobody but those who ask.
        let _ = priority::set_idle_io();
        let (committed, rests_until) = (Instant::now(), Instant::now());
        Self {
            schedule,
            warden,
            committed,
            read_of: HashMap::new(),
            losses_of: HashMap::new(),
            harvested_of: HashMap::new(),
            complaints: Complaints::default(),
            rests_until,
        }
    }

    /// One portion of what is due of each of these that is known; how long to wait after it.
    fn tend(&mut self, volumes: &[&Arc<Served>]) -> Duration {
        // One directory can have so many entries that it takes long. All else goes on.
        let left = self.rests_until.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return left.min(TEND_EVERY);
        }
        let Self { schedule, warden, read_of, losses_of, harvested_of, complaints, .. } = self;
        let budget = Budget { directories: schedule.budget.load(Ordering::Relaxed) };
        let timeout = schedule.harvest_after.load(Ordering::Relaxed);
        let mut pause: Option<Duration> = None;
        // What is caught up with is harvested and committed by who does that, and may take hours.
        for served in volumes.iter().filter(|served| served.summaries().is_ready()) {
            let tended = served.summaries().tend(timeout, budget).map(|(tended, wait)| {
                if tended != Tended::Nothing {
                    pause = Some(pause.unwrap_or_default() + wait);
                }
                tended
            });
            let path = served.path();
            let so_far: &mut u64 = read_of.entry(path.to_owned()).or_default();
            let (losses, readings) = {
                let tracked = served.summaries().shared();
                (tracked.losses(), tracked.readings())
            };
            let harvested = harvested_of.entry(path.to_owned()).or_insert(Harvested::so_far(readings));
            if harvested.is_over(readings, matches!(tended, Ok(Tended::All(_)))) {
                tracing::debug!("{}: memory is given back that a harvest has taken", message::path_text(path));
                warden.rest();
            }
            if losses > losses_of.insert(path.to_owned(), losses).unwrap_or_default() {
                let path = message::path_text(path);
                tracing::warn!("{path}: more happened than could be told; it is found out what has changed");
            }
            if served.summaries().shared().has_turned_away() {
                let path = message::path_text(path);
                tracing::warn!(
                    "{path}: more directories are asked for than growth is noted of (10,000, each asked for within a week); of others none is told"
                );
            }
            if let Some(set_aside) = served.summaries().shared().take_set_aside() {
                tracing::warn!("{set_aside}");
            }
            match tended {
                Ok(Tended::Nothing) => {}
                Ok(Tended::Some(read)) => {
                    *so_far += read;
                    tracing::debug!("{}: {read} directories harvested in the background", message::path_text(path));
                }
                Ok(Tended::All(read)) => {
                    let all = std::mem::take(so_far) + read;
                    let path = message::path_text(path);
                    tracing::info!("{path}: all that had changed was harvested in the background, {all} directories");
                }
                Err(ref error) => complaints.tell(path, error),
            }
            if tended.is_ok() {
                complaints.0.remove(path);
            }
        }
        let pause = pause.unwrap_or(TEND_EVERY);
        self.rests_until = Instant::now() + pause;
        pause.min(TEND_EVERY)
    }

    /// Makes durable what is known of these, when it is time.
    fn commit(&mut self, volumes: &[&Arc<Served>]) {
        if self.committed.elapsed() < COMMIT_EVERY {
            return;
        }
        self.committed = Instant::now();
        for served in volumes.iter().filter(|served| served.summaries().is_ready()) {
            let committed = served.summaries().commit();
            if let Err(error) = committed {
                self.complaints.tell(served.path(), &error);
            }
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
