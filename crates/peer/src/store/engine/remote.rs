//! An engine as a store.

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Engine, EngineError, Kept,
    desk::{Begun, Desk, Fetched, Got, Job, Lookup, News, Taken},
    slot::Slot,
};
use crate::{
    id::{BLOCK_BYTES_MAX, Hash, TrustDomain},
    race::Micros,
    store::{BlockStore, Figure, Put, StoreError},
};

/// Who asks about many blocks waits for so many times the time of one, and no longer than a client waits for any answer.
const LOOKUP_TIMES: u32 = 4;
const LOOKUP_LONGEST: Duration = Duration::from_secs(2);
/// At its end it writes what waits to be written, for so long at most.
const FAREWELL: Duration = Duration::from_secs(5);
/// What is in the engine is asked for again after so long, where that has failed.
const LIST_AGAIN: Duration = Duration::from_secs(30);

/// How an engine is used.
#[derive(Clone)]
pub struct RemoteSettings {
    /// Whose blocks they are: what comes is checked with its key.
    pub domain: TrustDomain,
    /// What it is called where something is told of it.
    pub name: String,
    /// Nobody waits longer for a block.
    pub timeout: Duration,
    /// Threads that ask it, at most so many at a time.
    pub workers: usize,
    /// Bytes of blocks that wait to be written, at most.
    pub unwritten_max: u64,
    /// Bytes of all blocks there, at most: the oldest are removed. None where the engine takes care of that.
    pub bytes_max: Option<u64>,
    /// Is told when a part of the engine is no longer asked, or asked again.
    pub tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for RemoteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Blocks in an engine.
pub struct Remote {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    settings: RemoteSettings,
    began: Instant,
    desk: Mutex<Desk>,
    /// There is something to do.
    work: Condvar,
    /// Something was written.
    room: Condvar,
    is_ending: AtomicBool,
    /// When the last thread goes, at the latest.
    ends: Mutex<Option<Instant>>,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // No panic leaves it half changed.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Micros {
        self.began.elapsed().as_micros() as Micros
    }

    fn tell(&self, news: Option<News>) {
        match news {
            Some(News::Shut(error)) => (self.settings.tell)(&format!(
                "{}: {error}; a part of it is left alone for a while, and its blocks are missing",
                self.settings.name
            )),
            Some(News::Open) => (self.settings.tell)(&format!("{}: answers again", self.settings.name)),
            None => {}
        }
    }

    fn failure(&self, step: &'static str, why: impl Into<String>) -> StoreError {
        StoreError::Engine { engine: self.settings.name.clone(), step, why: why.into() }
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    fn has_ended(&self) -> bool {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|ends| Instant::now() >= ends)
    }

    /// A worker's life.
    fn work(&self) {
        while let Some(job) = self.wait_for_job() {
            self.carry_out(job);
        }
    }

    fn wait_for_job(&self) -> Option<Job> {
        let mut desk = self.desk();
        loop {
            let is_ending = self.is_ending();
            if is_ending && self.has_ended() {
                return None;
            }
            let now = self.now();
            let job = if is_ending { desk.next_write(now) } else { desk.next(now) };
            if job.is_some() || is_ending {
                return job;
            }
            desk = self.work.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry_out(&self, job: Job) {
        let engine = self.engine.as_ref();
        let news = match job {
            Job::Get { part, hash } => {
                let got = self.held_against(&hash, guarded(|| engine.get(&hash)));
                if let Got::Wrong = got {
                    // So that it can be put again. Where that fails, it is found wrong again.
                    let _ = guarded(|| engine.remove(&hash));
                }
                let now = self.now();
                self.desk().fetched(part, &hash, got, now)
            }
            Job::Put { part, hash, bytes } => {
                let result = guarded(|| engine.put(&hash, &bytes));
                let now = self.now();
                let news = self.desk().written(part, &hash, result, now);
                self.room.notify_all();
                news
            }
            Job::Has { part, lookup } => {
                let result = guarded(|| engine.has(&lookup.hashes));
                let now = self.now();
                self.desk().looked(part, &lookup, result, now)
            }
            Job::Remove { part, hash } => {
                let result = guarded(|| engine.remove(&hash));
                let now = self.now();
                self.desk().removed(part, result, now)
            }
        };
        self.tell(news);
    }

    fn held_against(&self, hash: &Hash, got: Result<Option<Vec<u8>>, EngineError>) -> Got {
        match got {
            Err(error) => Got::Failure(error),
            Ok(None) => Got::Nothing,
            Ok(Some(bytes)) => {
                let is_right =
                    (1..=BLOCK_BYTES_MAX).contains(&bytes.len()) && self.settings.domain.is_hash_of(hash, &bytes);
                if is_right { Got::Block(bytes.into()) } else { Got::Wrong }
            }
        }
    }

    /// Finds out what is there, so that what is too much can go.
    fn list(&self) {
        loop {
            let mut found = Vec::new();
            let mut each = |kept: Kept| {
                found.push(kept);
                !self.is_ending()
            };
            match guarded(|| self.engine.list(&mut each)) {
                // What came until then is not all.
                _ if self.is_ending() => return,
                Ok(()) => {
                    self.desk().found(found);
                    self.work.notify_all();
                    return;
                }
                Err(error) => (self.settings.tell)(&format!(
                    "{}: {error}; what is there can't be listed, and is not within its limit yet",
                    self.settings.name
                )),
            }
            thread::park_timeout(LIST_AGAIN);
            if self.is_ending() {
                return;
            }
        }
    }
}

/// Calls an engine. A panic in it is a failure like another: it is no part of this program.
fn guarded<T>(call: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(EngineError::new("a fault in the engine's client")))
}

impl Remote {
    /// Begins to use an engine. It need not be there.
    pub fn start(engine: Box<dyn Engine>, settings: RemoteSettings) -> io::Result<Self> {
        let engine: Arc<dyn Engine> = engine.into();
        let desk = Desk::new(Arc::clone(&engine), settings.bytes_max, settings.unwritten_max);
        let (workers, is_bounded) = (settings.workers.max(1), settings.bytes_max.is_some());
        let shared = Arc::new(Shared {
            engine,
            settings,
            began: Instant::now(),
            desk: Mutex::new(desk),
            work: Condvar::new(),
            room: Condvar::new(),
            is_ending: AtomicBool::new(false),
            ends: Mutex::new(None),
        });
        // Dropped, it ends those that were started.
        let mut remote = Self { shared, threads: Vec::with_capacity(workers + 1) };
        for _ in 0..workers {
            remote.spawn("peer-engine", Shared::work)?;
        }
        if is_bounded {
            remote.spawn("peer-engine-list", Shared::list)?;
        }
        Ok(remote)
    }

    fn spawn(&mut self, name: &str, run: fn(&Shared)) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Remote {
    /// Writes what waits to be written. A call that hangs in the engine is not waited for.
    fn drop(&mut self) {
        let shared = &self.shared;
        let ends = Instant::now() + FAREWELL;
        {
            let _desk = shared.desk();
            *shared.ends.lock().unwrap_or_else(PoisonError::into_inner) = Some(ends);
            shared.is_ending.store(true, Ordering::Release);
        }
        shared.work.notify_all();
        let mut desk = shared.desk();
        while desk.has_writes() {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            desk = shared.room.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(desk);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl BlockStore for Remote {
    /// An engine that fails has nothing: who asks is no worse off than without it. It is counted, and told.
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        let shared = &self.shared;
        let until = Instant::now() + shared.settings.timeout;
        let begun = shared.desk().fetch(hash, shared.now());
        let slot = match begun {
            Begun::Here(bytes) => {
                into.extend_from_slice(&bytes);
                return Ok(true);
            }
            Begun::Skipped => return Ok(false),
            Begun::Wait(slot) => slot,
        };
        shared.work.notify_one();
        let fetched = slot.wait(until);
        let news = shared.desk().leave(hash, fetched.is_none(), shared.now());
        shared.tell(news);
        let Some(Fetched::Found(bytes)) = fetched else { return Ok(false) };
        into.extend_from_slice(&bytes);
        Ok(true)
    }

    /// It is written later; what was put is there at once.
    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, StoreError> {
        let shared = &self.shared;
        let until = Instant::now() + shared.settings.timeout;
        let mut desk = shared.desk();
        loop {
            match desk.put(hash, bytes, shared.now()) {
                Taken::New => break,
                Taken::Known => return Ok(Put::Known),
                Taken::Skipped => return Err(shared.failure("keep a block", "it has failed, and is left alone")),
                Taken::NoRoom => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(shared.failure("keep a block", "too much waits to be written"));
            }
            desk = shared.room.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(desk);
        shared.work.notify_one();
        Ok(Put::New)
    }

    fn has(&self, hash: &Hash) -> bool {
        self.has_all(&[*hash])[0]
    }

    fn has_all(&self, hashes: &[Hash]) -> Vec<bool> {
        let shared = &self.shared;
        let most = shared.engine.lookup_most().max(1);
        let time = (shared.settings.timeout * LOOKUP_TIMES).min(LOOKUP_LONGEST.max(shared.settings.timeout));
        let until = Instant::now() + time;
        let mut are_there = vec![false; hashes.len()];
        // Places of what is asked for, by the parts of the engine.
        let mut parts: std::collections::BTreeMap<u64, Vec<usize>> = std::collections::BTreeMap::new();
        let mut asked = Vec::new();
        {
            let mut desk = shared.desk();
            let now = shared.now();
            for (at, hash) in hashes.iter().enumerate() {
                if desk.is_unwritten(hash) {
                    are_there[at] = true;
                } else {
                    parts.entry(shared.engine.part(hash)).or_default().push(at);
                }
            }
            for (part, places) in parts {
                if !desk.allows(part, now) {
                    desk.counted.skipped += places.len() as u64;
                    continue;
                }
                for places in places.chunks(most) {
                    let slot = Arc::new(Slot::<Vec<bool>>::new());
                    let hashes = places.iter().map(|at| hashes[*at]).collect();
                    let until = now + time.as_micros() as Micros;
                    desk.look(Lookup { hashes, slot: Arc::clone(&slot), until });
                    asked.push((places.to_vec(), slot));
                }
            }
        }
        shared.work.notify_all();
        for (places, slot) in asked {
            match slot.wait(until) {
                Some(answers) => places.into_iter().zip(answers).for_each(|(at, is_there)| are_there[at] = is_there),
                None => shared.desk().counted.late += 1,
            }
        }
        are_there
    }

    fn is_far(&self) -> bool {
        true
    }

    fn soon(&self, hashes: &[Hash]) {
        // One is asked for at once.
        if hashes.len() < 2 {
            return;
        }
        let now = self.shared.now();
        let mut desk = self.shared.desk();
        let begun = hashes.iter().filter(|hash| desk.fetch_soon(hash, now)).count();
        drop(desk);
        (0..begun.min(self.threads.len())).for_each(|_| self.shared.work.notify_one());
    }

    fn blocks(&self) -> u64 {
        self.shared.desk().blocks
    }

    fn bytes(&self) -> u64 {
        self.shared.desk().bytes
    }

    fn figures(&self) -> Vec<Figure> {
        let figure = |name, help, is_counter, value| Figure { name, help, is_counter, value };
        let desk = self.shared.desk();
        let counted = desk.counted;
        let mut figures = vec![
            figure("engine_hits", "Blocks that came from the engine.", true, counted.hits),
            figure("engine_misses", "Blocks that the engine didn't have.", true, counted.misses),
            figure("engine_failures", "Requests that the engine failed.", true, counted.failures),
            figure("engine_late", "Requests for which nobody waited to their end.", true, counted.late),
            figure("engine_skipped", "Requests not made, since the engine had failed.", true, counted.skipped),
            figure("engine_wrong", "Other bytes than those of the hash; refused and removed.", true, counted.wrong),
            figure("engine_written", "Blocks that were written to the engine.", true, counted.written),
            figure("engine_unwritten", "Blocks that could not be written to it.", true, counted.unwritten),
            figure("engine_removed", "Blocks that were removed to make room.", true, counted.removed),
            figure("engine_waiting_bytes", "Bytes that wait to be written.", false, desk.unwritten_bytes()),
            figure("engine_shut", "Parts of the engine that are left alone at the moment.", false, desk.shut_parts()),
        ];
        if let Some(bytes_max) = desk.bytes_max() {
            figures.push(figure("engine_limit_bytes", "Bytes that blocks there may have.", false, bytes_max));
        }
        figures
    }
}

#[cfg(test)]
mod tests;
