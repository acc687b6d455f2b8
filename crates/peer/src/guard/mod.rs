//! Nobody opens a file in which something bad was found (`onesweep guard`).
//!
//! ```text
//!  kernel ──► answerers ── known, or none of ours ─────────────────────────────► answer
//!                 └─ unknown ──► desk ──► scanners: hash ──► own store ──► servers ──► engine ──► answer, memory, store
//!                                 └──── timekeeper: waited too long ──► fail-open or fail-closed
//!  keeper: is the engine's epoch still the one? ──► store and servers
//! ```
//! Who answers never waits for anybody who may wait for an answer: answerers open nothing on what is guarded, take no lock that is
//! held across I/O, and write to nobody; what happens goes into a channel that loses what doesn't fit. Files that the guard's own
//! process, its programs or the engine open are let through unseen ([`kin`]). Whatever scanners wait for, the
//! timekeeper doesn't.
//!
//! | module | subject |
//! |---|---|
//! | `memory` | what is known of files without reading them |
//! | `desk` | who waits for which file |
//! | [`kin`] | who opens files for the guard itself |
//! | `place` | which files are guarded |
//! | `look` | what of a file, by whoever knows |

mod desk;
pub mod kin;
mod look;
mod memory;
mod place;

use std::{
    fs::File,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::SyncSender,
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use onesweep_sys::{
    files::{self, EntryType, Stat},
    inode,
    lease::is_open_for_writing,
    permission::{Gate, Opening},
};

use self::{
    desk::{Desk, JobId},
    kin::{EngineProgram, Kin},
    memory::{FileId, Memory},
    place::{Place, shown_path},
};
use crate::{
    aborting::or_abort,
    index::tree::FileKey,
    scan::{Engine, EngineId, Judge, Source, Verdict},
};

/// One may be held up by a file system; the others go on.
const ANSWERERS: usize = 2;
/// What was found is kept so soon, and the engine asked so often for its epoch.
const KEEP_EVERY: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_secs(10);
/// After the kernel could not hand a file over.
const PAUSE: Duration = Duration::from_millis(1);

/// What becomes of an opening of which there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// It is let through.
    FailOpen,
    /// It is refused.
    FailClosed,
}

/// How to guard.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Without a verdict.
    pub undecided: Undecided,
    /// Nobody waits for a verdict longer than this.
    pub patience: Duration,
    /// A file is read for so long to be hashed, where it doesn't fit into memory; then it has no verdict.
    pub hash_time: Duration,
    /// Files that are looked at at a time.
    pub scanners: usize,
    /// So many may wait, with a descriptor each. Who comes then is undecided at once.
    pub waiting_max: usize,
    /// So many files are known without reading them, some 150 bytes each.
    pub known_max: usize,
    /// The engine, where its socket doesn't tell its process.
    pub program: Option<EngineProgram>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A file was not opened.
    Refused {
        /// Which.
        path: PathBuf,
        /// What is in it.
        name: String,
        /// Who wanted to.
        pid: i32,
    },
    /// There was no verdict, so [`Settings::undecided`] was asked.
    Undecided {
        /// Of which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The engine can't be asked; what is known is known.
    EngineGone(String),
    /// It can be asked, or has other signatures now.
    EngineIs(EngineId),
    /// So many verdicts are kept, and known to the next one.
    Kept(u64),
    /// Something failed that makes no verdict wrong.
    Failed(String),
    /// It guards no more. Nothing comes behind it.
    Ended(Figures),
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Openings that were asked for.
    pub opened: u64,
    /// Answered without reading the file.
    pub known: u64,
    /// Files whose content was known here,
    pub kept: u64,
    /// to a server,
    pub peer: u64,
    /// or to nobody, so that the engine was asked.
    pub scanned: u64,
    /// Openings that were refused since something was found.
    pub refused: u64,
    /// Openings without a verdict.
    pub undecided: u64,
    /// News that nobody has heard.
    pub unheard: u64,
}

#[derive(Debug, Default)]
struct Counters {
    opened: AtomicU64,
    known: AtomicU64,
    kept: AtomicU64,
    peer: AtomicU64,
    scanned: AtomicU64,
    refused: AtomicU64,
    undecided: AtomicU64,
    unheard: AtomicU64,
}

/// Guards a directory until its process ends. When that is killed, the kernel lets everything through.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
    keeper: thread::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    gate: Gate,
    place: Place,
    kin: Kin,
    engine: Box<dyn Engine>,
    /// Without one only files are known, not contents.
    judge: Option<Judge>,
    settings: Settings,
    memory: Memory,
    desk: Mutex<Desk<Opening>>,
    /// There is a job.
    work: Condvar,
    /// Somebody waits.
    waits: Condvar,
    /// Something was found that is to be kept.
    is_found: AtomicBool,
    is_over: Mutex<bool>,
    over: Condvar,
    tell: SyncSender<News>,
    counters: Counters,
}

impl Guard {
    /// Guards what lies below a directory from now on. `engine_id` is the engine as `judge` knows it. `EPERM` without
    /// `CAP_SYS_ADMIN`.
    pub fn start(
        dir: &Path,
        engine: Box<dyn Engine>,
        engine_id: EngineId,
        judge: Option<Judge>,
        settings: Settings,
        tell: SyncSender<News>,
    ) -> io::Result<Guard> {
        let shared = Arc::new(Shared {
            gate: Gate::new()?,
            place: Place::new(dir)?,
            kin: Kin::new(settings.program.clone()),
            engine,
            judge,
            memory: Memory::new(settings.known_max),
            desk: Mutex::new(Desk::new(settings.waiting_max)),
            work: Condvar::new(),
            waits: Condvar::new(),
            is_found: AtomicBool::new(false),
            is_over: Mutex::new(false),
            over: Condvar::new(),
            tell,
            counters: Counters::default(),
            settings,
        });
        let spawn = |name: &str, work: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(name.to_owned()).spawn(move || or_abort(|| work(&shared)))
        };
        (0..ANSWERERS).try_for_each(|_| spawn("answerer", Shared::answer).map(drop))?;
        (0..shared.settings.scanners.max(1)).try_for_each(|_| spawn("scanner", Shared::scan).map(drop))?;
        spawn("timekeeper", Shared::keep_time)?;
        let kept = Arc::clone(&shared);
        let keeper = thread::Builder::new().name("keeper".to_owned()).spawn(move || kept.keep(engine_id))?;
        // From here on somebody may wait; all who answer are there.
        shared.gate.guard_file_system(shared.place.dir())?;
        Ok(Guard { shared, keeper })
    }

    /// What was counted.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let counters = &self.shared.counters;
        Figures {
            opened: counters.opened.load(Relaxed),
            known: counters.known.load(Relaxed),
            kept: counters.kept.load(Relaxed),
            peer: counters.peer.load(Relaxed),
            scanned: counters.scanned.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            undecided: counters.undecided.load(Relaxed),
            unheard: counters.unheard.load(Relaxed),
        }
    }

    /// Guards no more, and keeps what was found. Who waits yet is undecided; threads end with the process. The last [`News`] are
    /// [`News::Ended`].
    pub fn stop(self) -> Figures {
        let shared = &self.shared;
        if let Err(error) = shared.gate.leave() {
            shared.tell(News::Failed(format!("cannot tell the kernel that it ends: {error}")));
        }
        let waiting = shared.desk().all();
        waiting.into_iter().for_each(|opening| shared.undecided(opening, "the guard ends"));
        *shared.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        shared.over.notify_all();
        let figures = self.figures();
        if self.keeper.join().is_err() {
            self.shared.tell(News::Failed("what keeps verdicts has ended early".to_owned()));
        }
        self.shared.tell(News::Ended(figures));
        figures
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk<Opening>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for nobody: who hears it may be waiting for us.
    fn tell(&self, news: News) {
        if self.tell.try_send(news).is_err() {
            self.counters.unheard.fetch_add(1, Relaxed);
        }
    }

    fn respond(&self, opening: Opening, may_open: bool) {
        if let Err(error) = opening.answer(may_open) {
            self.tell(News::Failed(format!("cannot answer the kernel: {error}")));
        }
    }

    fn undecided(&self, opening: Opening, why: &str) {
        self.counters.undecided.fetch_add(1, Relaxed);
        self.tell(News::Undecided { path: shown_path(opening.file().as_fd()), why: why.to_owned() });
        self.respond(opening, self.settings.undecided == Undecided::FailOpen);
    }

    fn decided(&self, opening: Opening, verdict: &Verdict) {
        if let Some(name) = verdict.infection() {
            self.counters.refused.fetch_add(1, Relaxed);
            let path = shown_path(opening.file().as_fd());
            self.tell(News::Refused { path, name: name.to_owned(), pid: opening.pid() });
        }
        self.respond(opening, !verdict.is_infected());
    }

    fn answer(&self) {
        loop {
            if let Err(error) = self.gate.wait(|opening| self.opened(opening)) {
                self.tell(News::Failed(format!("the kernel could not hand a file over, and refused it: {error}")));
                thread::sleep(PAUSE);
            }
        }
    }

    fn opened(&self, opening: Opening) {
        self.counters.opened.fetch_add(1, Relaxed);
        if self.kin.is_own(opening.pid()) {
            return self.respond(opening, true);
        }
        let file = opening.file().as_fd();
        let (stat, id) = match identity(opening.file()) {
            Ok(found) => found,
            Err(error) => return self.undecided(opening, &format!("cannot look at it: {error}")),
        };
        // In nothing there is nothing, and what is no file holds nothing.
        if stat.file_type() != EntryType::File || stat.size == 0 {
            return self.respond(opening, true);
        }
        let known = self.memory.get(&id);
        if known == Some(Verdict::Clean) {
            self.counters.known.fetch_add(1, Relaxed);
            return self.respond(opening, true);
        }
        if self.kin.has(opening.pid(), self.engine.process()) || !self.place.holds(file, &stat) {
            return self.respond(opening, true);
        }
        if let Some(verdict) = known {
            self.counters.known.fetch_add(1, Relaxed);
            return self.decided(opening, &verdict);
        }
        let asked = self.desk().ask(id, opening, Instant::now() + self.settings.patience);
        match asked {
            Ok(is_new) => {
                if is_new {
                    self.work.notify_one();
                }
                self.waits.notify_one();
            }
            Err(opening) => self.undecided(opening, "too many wait for a verdict"),
        }
    }

    fn scan(&self) {
        loop {
            let mut desk = self.desk();
            // A copy, since who waits may be answered before the file was looked at.
            let (job, id, file) = loop {
                match desk.begin() {
                    Some((job, id, opening)) => break (job, id, opening.file().try_clone()),
                    None => desk = self.work.wait(desk).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(desk);
            let verdict =
                file.map_err(|error| format!("cannot read it: {error}")).and_then(|file| self.look_at(job, id, &file));
            let waiting = self.desk().end(job);
            // Another job of this file may begin now.
            self.work.notify_one();
            for opening in waiting {
                match &verdict {
                    Ok(verdict) => self.decided(opening, verdict),
                    Err(why) => self.undecided(opening, why),
                }
            }
        }
    }

    fn look_at(&self, job: JobId, id: FileId, file: &File) -> Result<Verdict, String> {
        // A job before it may have read the same file.
        if let Some(verdict) = self.memory.get(&id) {
            return Ok(verdict);
        }
        let epoch = self.memory.epoch();
        // Who has it open for writing may have mapped it, and write again without a change of its times. Whoever opens it later has
        // to change them first, and by more than a tick where the last change is some time ago.
        let is_steady = id.key.is_settled(SystemTime::now()) && matches!(is_open_for_writing(file.as_fd()), Ok(false));
        if !is_steady {
            self.desk().seal(job);
        }
        let is_same = || is_steady && identity(file).is_ok_and(|(_, now)| now == id);
        let looked = look::look(self.engine.as_ref(), self.judge.as_ref(), file, &is_same, self.settings.hash_time)?;
        let counter = match looked.source {
            Source::Scan => &self.counters.scanned,
            Source::Kept => &self.counters.kept,
            Source::Peer => &self.counters.peer,
        };
        counter.fetch_add(1, Relaxed);
        if looked.source != Source::Kept {
            self.is_found.store(true, Relaxed);
        }
        if is_same() {
            self.memory.put(epoch, id, looked.verdict.clone());
        }
        Ok(looked.verdict)
    }

    fn keep_time(&self) {
        let mut desk = self.desk();
        loop {
            let now = Instant::now();
            let late = desk.late(now);
            if late.is_empty() {
                // Who comes meanwhile is late after the next, or has woken us.
                let pause = desk.next_late().map_or(self.settings.patience, |at| at.saturating_duration_since(now));
                desk = self.waits.wait_timeout(desk, pause).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(desk);
            late.into_iter().for_each(|opening| self.undecided(opening, "no verdict in time"));
            desk = self.desk();
        }
    }

    /// Keeps what was found, and follows the engine's epoch.
    fn keep(&self, mut known: EngineId) {
        let mut is_gone = None;
        let mut asked: Option<Instant> = None;
        let mut is_last = false;
        loop {
            if self.is_found.swap(false, Relaxed) || is_last || asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                asked = Some(Instant::now());
                let was_gone = is_gone.replace(false);
                match self.engine.id() {
                    Ok(now) => {
                        self.flush(&now);
                        let is_other = now != known;
                        if is_other {
                            self.memory.clear();
                            known = now;
                        }
                        if is_other || was_gone != Some(false) {
                            self.tell(News::EngineIs(known.clone()));
                        }
                    }
                    Err(error) => {
                        is_gone = Some(true);
                        if was_gone != Some(true) {
                            self.tell(News::EngineGone(error.to_string()));
                        }
                    }
                }
            }
            if is_last {
                return;
            }
            let over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.over.wait_timeout_while(over, KEEP_EVERY, |is_over| !*is_over);
            is_last = *waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn flush(&self, now: &EngineId) {
        if let Some(judge) = &self.judge {
            let flushed = judge.flush(now.clone());
            if flushed.kept > 0 {
                self.tell(News::Kept(flushed.kept));
            }
            flushed.failures.into_iter().for_each(|failure| self.tell(News::Failed(failure)));
        }
    }
}

/// What names the content of a file.
fn identity(file: &File) -> io::Result<(Stat, FileId)> {
    let stat = files::statx_fd(file.as_fd())?;
    let key = FileKey::new(&stat, inode::generation(file.as_fd())?);
    Ok((stat, FileId { dev: stat.dev, key }))
}
