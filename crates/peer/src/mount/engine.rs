//! What carries races out: threads, timers, servers, counters. The same for a device and for a tree.

use std::{
    fs::File,
    io,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use onesweep_sys::ready::{self, Bell};

use super::{
    SERVERS_MAX,
    counters::{Counters, Owed, add},
    lock,
    offers::{Debt, Debts, Offers},
    pool::{Pool, Turns},
    reads::Racing,
    trace::Trace,
};
use crate::{
    aborting::or_abort,
    client::Peers,
    id::TrustDomain,
    race::{self, Event, Micros, PeerId, Policy},
};

/// Threads that wait for reads of the disk, and for writes, at most.
pub(super) const THREADS: usize = 32;
/// How often late answers are counted.
const TICK: Duration = Duration::from_millis(200);
/// How often the index is put in order.
const TIDY_EACH: Duration = Duration::from_secs(5);

/// How races are run.
pub(super) struct Setting {
    pub(super) policy: Policy,
    pub(super) lanes: usize,
    pub(super) block_bytes: usize,
    /// Servers get what is read from the disk.
    pub(super) shares: bool,
    /// They get what is written; what could not be sent yet.
    pub(super) debts: Option<Arc<dyn Debts>>,
    pub(super) trace: Option<File>,
    /// The trace tells which file was read.
    pub(super) of_files: bool,
    /// So many of the threads that ask may wait for a quick disk; fewer than there are, so that others can ask meanwhile.
    pub(super) own_reads: usize,
}

/// What all reads share.
pub(super) struct Engine {
    pub(super) policy: Policy,
    pub(super) peers: Arc<Peers>,
    pub(super) servers: usize,
    pub(super) shares: bool,
    pub(super) racing: Mutex<Racing>,
    /// A timer was set that is earlier than all others, or the end has come.
    pub(super) timers: Condvar,
    pub(super) began: Instant,
    pub(super) readers: Pool,
    /// Who asks and reads a quick disk without another thread.
    pub(super) own_reads: Turns,
    pub(super) offers: Mutex<Option<Offers>>,
    pub(super) trace: Mutex<Option<Trace>>,
    pub(super) counters: Arc<Counters>,
    is_ending: AtomicBool,
    bell: Bell,
}

impl Engine {
    pub(super) fn new(peers: Peers, domain: TrustDomain, setting: Setting) -> io::Result<Arc<Self>> {
        let names: Vec<String> = peers.health().into_iter().map(|server| server.address).collect();
        let servers = names.len();
        if servers > SERVERS_MAX {
            let what = format!("there can be {SERVERS_MAX} servers, and here are {servers}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (peers, counters) = (Arc::new(peers), Arc::new(Counters::default()));
        let offers = match setting.shares || setting.debts.is_some() {
            true => {
                let (peers, counters) = (Arc::clone(&peers), Arc::clone(&counters));
                Some(Offers::start(peers, domain, setting.block_bytes, counters, setting.debts)?)
            }
            false => None,
        };
        let of_files = setting.of_files;
        let trace = setting.trace.map(|file| Trace::start(file, of_files, &names)).transpose()?;
        let engine = Arc::new(Self {
            policy: setting.policy,
            peers,
            servers,
            shares: setting.shares,
            racing: Mutex::new(Racing::new(race::Settings { policy: setting.policy, lanes: setting.lanes })),
            timers: Condvar::new(),
            began: Instant::now(),
            readers: Pool::new("peer-read", THREADS)?,
            own_reads: Turns::new(setting.own_reads),
            offers: Mutex::new(offers),
            trace: Mutex::new(trace),
            counters,
            is_ending: AtomicBool::new(false),
            bell: Bell::new()?,
        });
        let told = Arc::downgrade(&engine);
        engine.peers.on_network_change(move || {
            if let Some(engine) = told.upgrade() {
                or_abort(|| engine.begin_anew());
            }
        });
        Ok(engine)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// `owed`: what servers may lack of what was written.
    pub(super) fn metrics(&self, index_works: bool, owed: Owed) -> String {
        let race = *lock(&self.racing).race.counts();
        self.counters.exposition(&race, index_works, owed, &self.peers.health())
    }

    /// Servers get whole blocks.
    pub(super) fn offer(&self, whole: &[u8]) {
        if let Some(offers) = lock(&self.offers).as_ref().filter(|_| !whole.is_empty()) {
            offers.offer(whole, None);
        }
    }

    /// They get what was written: whole blocks, and what of it has to be read.
    pub(super) fn offer_written(&self, whole: &[u8], debt: Box<dyn Debt>) {
        match lock(&self.offers).as_ref() {
            Some(offers) => offers.offer(whole, Some(debt)),
            None => debt.lost(),
        }
    }

    pub(super) fn network_changed(&self) {
        self.peers.network_changed();
    }

    /// By another network, what was learnt of delays counts no more.
    fn begin_anew(self: &Arc<Self>) {
        self.happen(Event::NetworkChanged, None);
        // Whoever sees this seeds what has been forgotten.
        add(&self.counters.network_changes, 1);
    }

    /// What is done now and then, until the end.
    fn keep_house(self: &Arc<Self>, tidy: &dyn Fn()) {
        let (mut tidied, mut late, mut seeds) = (Instant::now(), 0, Seeds::default());
        while !self.is_ending() {
            if ready::wait_for_bell(&self.bell, Some(TICK)).is_err() {
                thread::sleep(TICK);
            }
            // Before pings are looked at: those of before a change are gone when it is counted.
            let networks = self.counters.network_changes.load(Ordering::Relaxed);
            let health = self.peers.health();
            for (peer, ping) in seeds.due(networks, health.iter().map(|server| server.counted.ping_us)) {
                lock(&self.racing).race.seed(peer, ping);
            }
            // What came of requests that were cancelled has used the link as well.
            let late_now = health.iter().map(|server| server.counted.late_bytes).sum();
            let bytes = late_now - late;
            late = late_now;
            if bytes > 0 {
                lock(&self.racing).race.came_for_nothing(bytes);
            }
            if tidied.elapsed() >= TIDY_EACH {
                tidied = Instant::now();
                tidy();
            }
        }
    }
}

/// The servers of whose first ping the race knows, by the network as it is.
#[derive(Default)]
struct Seeds {
    networks: u64,
    known: u16,
}

impl Seeds {
    /// What the race is to be told of, after so many changes of the network. `pings`: of each server, 0 where there is none yet.
    fn due(&mut self, networks: u64, pings: impl Iterator<Item = Micros>) -> Vec<(PeerId, Micros)> {
        if self.networks != networks {
            *self = Self { networks, known: 0 };
        }
        let pings = pings.enumerate().map(|(number, ping)| (PeerId(1 << number), ping));
        let due: Vec<_> = pings.filter(|(peer, ping)| *ping > 0 && self.known & peer.0 == 0).collect();
        due.iter().for_each(|(peer, _)| self.known |= peer.0);
        due
    }
}

/// The threads of an engine; ended when this is dropped.
pub(super) struct Running {
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// `tidy` is called every few seconds.
    pub(super) fn start(engine: &Arc<Engine>, tidy: impl Fn() + Send + 'static) -> io::Result<Self> {
        let mut running = Self { engine: Arc::clone(engine), threads: Vec::new() };
        running.spawn("peer-timer", |engine| engine.keep_time())?;
        running.spawn("peer-tidy", move |engine| engine.keep_house(&tidy))?;
        Ok(running)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Arc<Engine>) + Send + 'static) -> io::Result<()> {
        let engine = Arc::clone(&self.engine);
        let run = move || or_abort(|| run(&engine));
        self.threads.push(thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }

    /// Sends what servers are to have, writes the trace down, and ends the threads. Nobody reads any more.
    pub(super) fn end(mut self) {
        let offers = lock(&self.engine.offers).take();
        offers.into_iter().for_each(Offers::end);
        let trace = lock(&self.engine.trace).take();
        trace.into_iter().for_each(Trace::end);
        self.end_threads();
    }

    fn end_threads(&mut self) {
        self.engine.is_ending.store(true, Ordering::Release);
        self.engine.bell.ring();
        // Under the lock, so that it doesn't come between a look and a wait.
        drop(lock(&self.engine.racing));
        self.engine.timers.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_threads();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_seeded_once_by_each_network() {
        let mut seeds = Seeds::default();
        let mut due = |networks, pings: [Micros; 3]| seeds.due(networks, pings.into_iter());
        assert_eq!(due(0, [0, 700, 0]), [(PeerId(0b10), 700)]);
        assert_eq!(due(0, [300, 650, 0]), [(PeerId(0b1), 300)]);
        assert_eq!(due(0, [310, 640, 0]), []);
        assert_eq!(due(1, [0, 0, 0]), []);
        assert_eq!(due(1, [0, 90, 80]), [(PeerId(0b10), 90), (PeerId(0b100), 80)]);
        assert_eq!(due(1, [0, 91, 81]), []);
    }
}
