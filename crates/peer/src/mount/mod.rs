//! A device or a tree that is shown, and whose reads are raced.
//!
//! [`Device`] answers reads, writes and flushes of a device or an image; [`show`] shows it as a file. [`Tree`] answers reads of
//! the files of a tree, and hears of writes; whoever shows the tree asks it.
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
mod engine;
mod fuse;
mod ground;
mod offers;
mod places;
mod pool;
mod reads;
mod storage;
mod trace;
mod tree;
mod unsent;
mod writes;

use std::{
    fs::File,
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
};

use onesweep_sys::buffer::{BufferPart, BufferPool};

use self::{
    counters::Owed,
    engine::{Engine, Running, Setting, THREADS},
    ground::{Answered, Ground},
    offers::Debts,
    pool::Pool,
    writes::{Lost, Owing},
};
pub use self::{
    fuse::{BLOCK_FILE, METRICS_FILE, SHOWN, Showing, show},
    places::Places,
    storage::{DirectFile, Storage},
    tree::{METRICS_ATTRIBUTE, Tree, TreeFile, TreeSettings},
    unsent::Unsent,
};
use crate::{
    client::Peers,
    id::{Hash, TrustDomain},
    index::{Block, DeviceIndex, Geometry, Learned},
    race::Policy,
};

/// Sets of servers are bits of a number.
pub const SERVERS_MAX: usize = 16;

/// Regions that are marked by one flush where servers are to have what is written: 4 GiB, which whoever writes all over a disk
/// comes to by his third mark. After a kill all that are marked are read, one by one, and offered to them.
const MARKED_AND_OWED: u64 = 4096;

/// Memory that is kept for the next reads of the disk: as much as those that go there together hold. Fresh memory has to be cleared and
/// mapped before the disk is asked, and a disk that turns doesn't wait.
const KEPT_BYTES: usize = 8 << 20;

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
    /// Servers get what is written, after the disk. What they could not be sent yet.
    pub write_through: Option<Unsent>,
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
            write_through: None,
            share: false,
            reclaim: false,
            trace: None,
        }
    }
}

/// What all threads share.
struct Shared {
    engine: Arc<Engine>,
    storage: Arc<dyn Storage>,
    /// `None` once it was taken at the end.
    index: Mutex<Option<DeviceIndex<File>>>,
    geometry: Geometry,
    places: Places,
    write_through: Option<Arc<Owing>>,
    reclaim: bool,
    read_only: bool,
    writers: Pool,
    memory: BufferPool,
    /// Writes of whole sectors hold it for reading. Who reads and then writes holds it alone.
    gate: RwLock<()>,
    /// This, for what outlives a call.
    own: Weak<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a device is not served.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotStarted {
    /// The index that was handed over.
    pub index: Option<Box<DeviceIndex<File>>>,
    /// What failed.
    #[source]
    pub error: io::Error,
}

impl NotStarted {
    fn new(index: DeviceIndex<File>, error: io::Error) -> Self {
        Self { index: Some(Box::new(index)), error }
    }
}

/// A device or an image whose reads are raced.
pub struct Device {
    shared: Arc<Shared>,
    running: Running,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("geometry", &self.shared.geometry).finish_non_exhaustive()
    }
}

impl Device {
    /// Begins to serve. `index` is open, and of this storage. Takes some threads; more, at most 64, come when the disk is slow.
    ///
    /// Where it can't, the index comes back as it was: nothing was read or written, so it can be closed and believed again.
    pub fn start(
        storage: Arc<dyn Storage>,
        mut index: DeviceIndex<File>,
        peers: Peers,
        domain: TrustDomain,
        settings: Settings,
    ) -> Result<Self, NotStarted> {
        let geometry = index.geometry();
        if geometry.device_bytes != storage.len() {
            let what = "the index is of a device of another size";
            return Err(NotStarted::new(index, io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        if settings.write_through.is_some() {
            index.mark_at_most(MARKED_AND_OWED);
        }
        let owing = settings.write_through.map(|unsent| Owing { unsent, storage: Arc::clone(&storage), geometry });
        let owing = owing.map(Arc::new);
        let setting = Setting {
            policy: settings.policy,
            lanes: settings.lanes,
            block_bytes: geometry.block_bytes as usize,
            shares: settings.share,
            debts: owing.clone().map(|owing| Arc::new(Lost(owing)) as Arc<dyn Debts>),
            trace: settings.trace,
            of_files: false,
            own_reads: fuse::THREADS - 1,
        };
        let begun =
            Engine::new(peers, domain, setting).and_then(|engine| Ok((engine, Pool::new("peer-write", THREADS)?)));
        let (engine, writers) = match begun {
            Ok(begun) => begun,
            Err(error) => return Err(NotStarted::new(index, error)),
        };
        let shared = Arc::new_cyclic(|own| Shared {
            engine,
            storage,
            index: Mutex::new(Some(index)),
            geometry,
            places: settings.places,
            write_through: owing,
            reclaim: settings.reclaim && !settings.read_only,
            read_only: settings.read_only,
            writers,
            memory: BufferPool::new(KEPT_BYTES),
            gate: RwLock::new(()),
            own: Weak::clone(own),
        });
        let tidied = Arc::clone(&shared);
        let running = Running::start(&shared.engine, move || {
            let mut index = lock(&tidied.index);
            let Some(index) = index.as_mut() else { return };
            // While nobody begins to write: what the index forgets to be written is kept as unsent before.
            if index.is_to_be_tidied() && tidied.write_through.as_ref().is_none_or(|owing| owing.unsent.keep().is_ok())
            {
                // It says itself whether it still works.
                let _ = index.tidy();
            }
        });
        match running {
            Ok(running) => Ok(Self { shared, running }),
            Err(error) => {
                let index = lock(&shared.index).take().map(Box::new);
                Err(NotStarted { index, error })
            }
        }
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
    /// and writes may be under way. Where the disk is quick, one of the threads that ask may wait for it.
    pub fn read(&self, at: u64, len: usize, done: impl FnOnce(io::Result<&[u8]>) + Send + 'static) {
        let ground = Arc::clone(&self.shared) as Arc<dyn Ground>;
        self.shared.engine.read(ground, at, len, Box::new(done));
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
        let index_works = lock(&self.shared.index).as_ref().is_some_and(|index| !index.is_broken());
        // Of a device each region is remembered.
        let waiting = self.shared.write_through.as_ref().map_or(0, |owing| owing.unsent.count());
        self.shared.engine.metrics(index_works, Owed { waiting, let_go: 0 })
    }

    /// The network is another one: servers that failed are tried at once.
    pub fn network_changed(&self) {
        self.shared.engine.network_changed();
    }

    /// Ends all threads, makes durable what was written, and gives the index back to be closed. Nobody may read or write any
    /// more. What servers are to have is sent first. `None` for the index where that could not be made durable.
    pub fn end(self) -> (Option<DeviceIndex<File>>, io::Result<()>) {
        let Self { shared, running } = self;
        shared.engine.readers.end();
        shared.writers.end();
        let flushed = if shared.read_only { Ok(()) } else { shared.flush_now() };
        running.end();
        // The index closes only when this is durable: it has what was written last.
        let kept = shared.write_through.as_ref().map_or(Ok(()), |owing| owing.unsent.keep());
        let flushed = flushed.and(kept);
        let index = lock(&shared.index).take();
        (index.filter(|_| flushed.is_ok()), flushed)
    }
}

impl Ground for Shared {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn unit_bytes(&self) -> u64 {
        self.storage.sector_bytes()
    }

    fn learns(&self) -> bool {
        true
    }

    fn known(&self, blocks: Range<u64>) -> Vec<Block> {
        lock(&self.index).as_ref().map(|index| index.blocks(blocks)).unwrap_or_default()
    }

    fn policy(&self, bytes: &Range<u64>) -> Option<Policy> {
        self.places.policy(bytes)
    }

    fn read_local(&self, range: Range<u64>, learns: bool, answered: Answered<'_>) -> Learned {
        let begin = || lock(&self.index).as_mut().map(|index| index.begin_read());
        let ticket = if learns { begin() } else { None };
        let part = match self.read_range(&range) {
            Ok(part) => part,
            Err(error) => {
                answered(Err(error));
                return Learned::default();
            }
        };
        answered(Ok(part.as_slice()));
        match (ticket, lock(&self.index).as_mut()) {
            (Some(ticket), Some(index)) => index.learn(ticket, range.start, part.as_slice()),
            _ => Learned::default(),
        }
    }

    fn rescued(&self, first: u64, hashes: &[Option<Hash>], bytes: &[u8]) {
        let Some(shared) = self.own.upgrade().filter(|_| self.reclaim) else { return };
        let (hashes, bytes) = (hashes.to_vec(), bytes.to_vec());
        self.writers.run(move || shared.reclaim(first, &hashes, &bytes));
    }

    fn mends(&self) -> bool {
        self.reclaim
    }

    fn read_behind_writes(&self, range: &Range<u64>) -> io::Result<BufferPart> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.read_range(range)
    }
}

impl Shared {
    fn read_range(&self, range: &Range<u64>) -> io::Result<BufferPart> {
        let len = (range.end - range.start) as usize;
        let mut part = self.memory.try_uncleared(len).ok_or(io::ErrorKind::OutOfMemory)?.lend(0..len);
        self.storage.read_at(part.as_mut_slice(), range.start)?;
        Ok(part)
    }
}
