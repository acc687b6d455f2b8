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
    complaints: Complaints,
    /// Until then nothing is read: what was read last has used it up.
    rests_until: Instant,
}

impl<'a> Background<'a> {
    fn new(schedule: &'a Schedule, warden: &'a Warden) -> Self {
        // Where that can't be had it waits for nobody but those who ask.
        let _ = priority::set_idle_io();
        let (read_of, losses_of, complaints) = (HashMap::new(), HashMap::new(), Complaints::default());
        let (committed, rests_until) = (Instant::now(), Instant::now());
        Self { schedule, warden, committed, read_of, losses_of, complaints, rests_until }
    }

    /// One portion of what is due of each of these that is known; how long to wait after it.
    fn tend(&mut self, volumes: &[&Arc<Served>]) -> Duration {
        // One directory can have so many entries that it takes long. All else goes on.
        let left = self.rests_until.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return left.min(TEND_EVERY);
        }
        let Self { schedule, warden, read_of, losses_of, complaints, .. } = self;
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
            let losses = served.summaries().shared().losses();
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
                    if all > MANY {
                        warden.rest();
                    }
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
