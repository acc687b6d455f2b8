//! A device that is shown, and whose reads are raced.
//!
//! [`Device`] answers reads, writes and flushes of a device or an image; [`show`] shows it as a file.
//!
//! ```text
//!   read ──► index: hashes? ──► race ──┬─► disk (a thread that waits)  ──┬─► first valid answer ──► reply
//!                                      └─► server (no thread)          ──┘                          └─► index learns
//!   write ─► index: blocks unknown, durably ──► disk ──► reply ──► servers, where they are to have it
//! ```
//!
//! * What is decided is decided by [`crate::race`]; this carries it out.
//! * A block is asked of a server only while the index calls its hash valid, and what comes is checked against it.
//! * A write is answered when the disk has answered it. Servers never hold one up.
//! * What the disk can't read, and no server has, is an error.

mod counters;
mod fuse;
mod offers;
mod places;
mod pool;
mod reads;
mod storage;
mod trace;
mod writes;

use std::{
    fs::File,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use onesweep_sys::{links::LinkWatch, ready::Bell};

use self::{
    counters::{Counters, add},
    offers::Offers,
    pool::{Pool, or_abort},
    reads::Racing,
    trace::Trace,
};
pub use self::{
    fuse::{BLOCK_FILE, METRICS_FILE, SHOWN, show},
    places::Places,
    storage::{DirectFile, Storage},
};
use crate::{
    client::Peers,
    id::TrustDomain,
    index::{DeviceIndex, Geometry},
    race::{self, Answer, Event, PeerId, Policy, ReadId, RequestId},
};

/// Threads that wait for reads of the device, and for writes, at most.
const THREADS: usize = 32;
/// How often late answers are counted, and links looked at.
const TICK: Duration = Duration::from_millis(200);
/// How often the index clears bits of regions that are quiet.
const TIDY_EACH: Duration = Duration::from_secs(5);
/// Sets of servers are bits of a number.
pub const SERVERS_MAX: usize = 16;

/// How a device is shown.
#[derive(Debug)]
pub struct Settings {
    /// Who is asked first.
    pub policy: Policy,
    /// Places with another policy.
    pub places: Places,
    /// How many reads the device truly serves at the same time: 1 for a disk with one head.
    pub lanes: usize,
    /// Refuse writes.
    pub read_only: bool,
    /// Servers get what is written, after the disk.
    pub write_through: bool,
    /// Servers get what is read from the disk, when they lack it.
    pub share: bool,
    /// What the disk couldn't read and a server had is written over the bad place.
    pub reclaim: bool,
    /// A line for each read goes there.
    pub trace: Option<File>,
}

impl Settings {
    /// With nothing but a policy, for a disk with one head.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            places: Places::new(),
            lanes: 1,
            read_only: false,
            write_through: false,
            share: false,
            reclaim: false,
            trace: None,
        }
    }
}

/// What all threads share.
struct Shared {
    storage: Arc<dyn Storage>,
    /// `None` once it was taken at the end.
    index: Mutex<Option<DeviceIndex<File>>>,
    geometry: Geometry,
    policy: Policy,
    places: Places,
    peers: Arc<Peers>,
    servers: usize,
    write_through: bool,
    share: bool,
    reclaim: bool,
    read_only: bool,
    racing: Mutex<Racing>,
    /// A timer was set that is earlier than all others, or the end has come.
    timers: Condvar,
    began: Instant,
    readers: Pool,
    writers: Pool,
    /// Writes of whole sectors hold it for reading. Who reads and then writes holds it alone.
    gate: RwLock<()>,
    offers: Mutex<Option<Offers>>,
    trace: Mutex<Option<Trace>>,
    counters: Arc<Counters>,
    is_ending: AtomicBool,
    bell: Bell,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device or an image whose reads are raced.
pub struct Device {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("geometry", &self.shared.geometry).finish_non_exhaustive()
    }
}

impl Device {
    /// Begins to serve. `index` is open, and of this storage. Takes some threads; more, at most 64, come when the disk is slow.
    pub fn start(
        storage: Arc<dyn Storage>,
        index: DeviceIndex<File>,
        peers: Peers,
        domain: TrustDomain,
        settings: Settings,
    ) -> io::Result<Self> {
        let geometry = index.geometry();
        if geometry.device_bytes != storage.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the index is of a device of another size"));
        }
        let servers = peers.health().len();
        if servers > SERVERS_MAX {
            let what = format!("there can be {SERVERS_MAX} servers, and here are {servers}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (peers, counters) = (Arc::new(peers), Arc::new(Counters::default()));
        let block_bytes = geometry.block_bytes as usize;
        let offers = match settings.write_through || settings.share {
            true => Some(Offers::start(Arc::clone(&peers), domain, block_bytes, Arc::clone(&counters))?),
            false => None,
        };
        let race = race::Settings { policy: settings.policy, lanes: settings.lanes };
        let shared = Arc::new(Shared {
            storage,
            index: Mutex::new(Some(index)),
            geometry,
            policy: settings.policy,
            places: settings.places,
            peers,
            servers,
            write_through: settings.write_through,
            share: settings.share,
            reclaim: settings.reclaim && !settings.read_only,
            read_only: settings.read_only,
            racing: Mutex::new(Racing::new(race)),
            timers: Condvar::new(),
            began: Instant::now(),
            readers: Pool::new("peer-read", THREADS)?,
            writers: Pool::new("peer-write", THREADS)?,
            gate: RwLock::new(()),
            offers: Mutex::new(offers),
            trace: Mutex::new(settings.trace.map(Trace::start).transpose()?),
            counters,
            is_ending: AtomicBool::new(false),
            bell: Bell::new()?,
        });
        let mut device = Self { shared, threads: Vec::new() };
        // Where links can't be watched, servers are probed all the same, only later.
        let links = LinkWatch::new().ok();
        device.spawn("peer-timer", |shared| shared.keep_time())?;
        device.spawn("peer-tidy", move |shared| shared.keep_house(links.as_ref()))?;
        Ok(device)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Arc<Shared>) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let run = move || or_abort(|| run(&shared));
        self.threads.push(thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.geometry.device_bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads; what lies beyond the end is left out. `done` is run once, on any thread, and must not wait. Any number of reads
    /// and writes may be under way.
    pub fn read(&self, at: u64, len: usize, done: impl FnOnce(io::Result<&[u8]>) + Send + 'static) {
        self.shared.read(at, len, Box::new(done));
    }

    /// [`Self::read`], waiting for it.
    pub fn read_and_wait(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let (tell, told) = std::sync::mpsc::channel();
        self.read(at, len, move |got| _ = tell.send(got.map(<[u8]>::to_vec)));
        told.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Writes. When `done` is run the disk has taken it, and no read will give what was there before.
    pub fn write(&self, at: u64, bytes: &[u8], done: impl FnOnce(io::Result<()>) + Send + 'static) {
        self.shared.write(at, bytes, Box::new(done));
    }

    /// [`Self::write`], waiting for it.
    pub fn write_and_wait(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (tell, told) = std::sync::mpsc::channel();
        self.write(at, bytes, move |done| _ = tell.send(done));
        told.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Makes durable what was written.
    pub fn flush(&self, done: impl FnOnce(io::Result<()>) + Send + 'static) {
        self.shared.flush(Box::new(done));
    }

    /// [`Self::flush`], waiting for it.
    pub fn flush_and_wait(&self) -> io::Result<()> {
        let (tell, told) = std::sync::mpsc::channel();
        self.flush(move |done| _ = tell.send(done));
        told.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// What was counted so far, in the text form of OpenMetrics 1.0.
    #[must_use]
    pub fn metrics(&self) -> String {
        let race = *lock(&self.shared.racing).race.counts();
        let index_works = lock(&self.shared.index).as_ref().is_some_and(|index| !index.is_broken());
        self.shared.counters.exposition(&race, index_works, &self.shared.peers.health())
    }

    /// The network is another one: servers that failed are tried at once.
    pub fn network_changed(&self) {
        self.shared.network_changed();
    }

    /// Ends all threads, makes durable what was written, and gives the index back to be closed. Nobody may read or write any
    /// more. What servers are to have is sent first. `None` for the index where that could not be made durable.
    pub fn end(mut self) -> (Option<DeviceIndex<File>>, io::Result<()>) {
        let shared = &self.shared;
        shared.readers.end();
        shared.writers.end();
        let flushed = if shared.read_only { Ok(()) } else { shared.flush_now() };
        let offers = lock(&shared.offers).take();
        offers.into_iter().for_each(Offers::end);
        let trace = lock(&shared.trace).take();
        trace.into_iter().for_each(Trace::end);
        self.end_threads();
        let index = lock(&self.shared.index).take();
        (index.filter(|_| flushed.is_ok()), flushed)
    }

    fn end_threads(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.shared.bell.ring();
        // Under the lock, so that it doesn't come between a look and a wait.
        drop(lock(&self.shared.racing));
        self.shared.timers.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.end_threads();
    }
}

impl Shared {
    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    fn network_changed(self: &Arc<Self>) {
        add(&self.counters.network_changes, 1);
        self.peers.network_changed();
        self.happen(Event::NetworkChanged, None);
    }

    /// What is done now and then, until the end.
    fn keep_house(self: &Arc<Self>, links: Option<&LinkWatch>) {
        let (mut tidied, mut late, mut seeded) = (Instant::now(), 0, 0_u16);
        while !self.is_ending() {
            let changed = match links {
                Some(links) => links.wait(&self.bell, Some(TICK)),
                None => onesweep_sys::ready::wait_for_bell(&self.bell, Some(TICK)).map(|_| false),
            };
            match changed {
                Ok(true) => self.network_changed(),
                Ok(false) => {}
                Err(_) => thread::sleep(TICK),
            }
            let health = self.peers.health();
            for (number, server) in health.iter().enumerate().filter(|(_, server)| server.counted.ping_us > 0) {
                let set = 1 << number;
                if seeded & set == 0 {
                    seeded |= set;
                    lock(&self.racing).race.seed(PeerId(set), server.counted.ping_us);
                }
            }
            // What came of requests that were cancelled has used the link as well.
            let late_now = health.iter().map(|server| server.counted.late_bytes).sum();
            let bytes = late_now - late;
            late = late_now;
            if bytes > 0 {
                let (read, request, peer) = (ReadId(u64::MAX), RequestId(u64::MAX), PeerId(0));
                self.happen(Event::Remote { read, request, peer, bytes, answer: Answer::Valid }, None);
            }
            if tidied.elapsed() >= TIDY_EACH {
                tidied = Instant::now();
                if let Some(index) = lock(&self.index).as_mut() {
                    // It says itself whether it still works.
                    let _ = index.tidy();
                }
            }
        }
    }
}
