//! A file of a tree that is open: each read finds out what is known of it now.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use onesweep_sys::{
    cache::residency,
    files::{Stat, fill_at, read_at_if_cached, statx_fd},
    inode,
    memory::page_bytes,
};

use super::{Shared, books::Record};
use crate::{
    index::{Block, Geometry, Learned, tree::FileKey},
    mount::{
        counters::add,
        ground::{Answered, Ground, whole_blocks},
        lock,
        reads::ReadDone,
    },
    race::Policy,
};

/// A file of a tree.
pub struct TreeFile {
    shared: Arc<Shared>,
    file: Arc<OwnedFd>,
    generation: Option<u32>,
    policy: Option<Policy>,
    /// It is on another file system, of which the index says nothing.
    is_foreign: bool,
}

impl std::fmt::Debug for TreeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeFile").field("file", &self.file).finish_non_exhaustive()
    }
}

impl TreeFile {
    pub(super) fn new(shared: Arc<Shared>, file: Arc<OwnedFd>, policy: Option<Policy>) -> io::Result<Self> {
        let generation = inode::generation(file.as_fd())?;
        let is_foreign = statx_fd(file.as_fd())?.dev != shared.dev;
        Ok(Self { shared, file, generation, policy, is_foreign })
    }

    /// Whether the kernel may as well read it by itself: it is in memory, nothing is known of it nor will be, or the disk is
    /// quicker than the network. `stat` was looked up just now.
    #[must_use]
    pub fn suits_kernel(&self, stat: &Stat) -> bool {
        if self.is_foreign || self.is_cached(0, stat.size) {
            return true;
        }
        let record = self.shared.books.record(&FileKey::new(stat, self.generation));
        if !record.knows() && !record.learns(self.file.as_fd()) {
            return true;
        }
        match self.policy.unwrap_or(self.shared.engine.policy) {
            Policy::Race | Policy::LocalFirst => self.shared.disk_is_quicker(),
            Policy::RemoteFirst | Policy::QuietDisk => false,
        }
    }

    /// Reads; what lies beyond the end is left out. `done` is run once, on any thread, and must not wait.
    pub fn read(&self, at: u64, len: usize, done: impl FnOnce(io::Result<&[u8]>) + Send + 'static) {
        let done: ReadDone = Box::new(done);
        if self.is_foreign {
            return read_now(&self.file, at, len, done);
        }
        let stat = match statx_fd(self.file.as_fd()) {
            Ok(stat) => stat,
            Err(error) => return done(Err(error)),
        };
        let key = FileKey::new(&stat, self.generation);
        let len = stat.size.saturating_sub(at).min(len as u64) as usize;
        if len == 0 {
            return done(Ok(&[]));
        }
        let record = self.shared.books.record(&key);
        let ground = Arc::new(FileGround {
            shared: Arc::clone(&self.shared),
            file: Arc::clone(&self.file),
            generation: self.generation,
            record,
            policy: self.policy,
            end: AtomicU64::new(u64::MAX),
        });
        let known = ground.known_of(at, len);
        if known.iter().any(|block| *block != Block::Zero) && self.is_cached(at, len as u64) {
            // Before the bytes are read.
            let learns = known.contains(&Block::Unknown) && ground.learns();
            if let Some(bytes) = ground.read_cached(at, len) {
                return ground.answer_from_memory(at, bytes, learns, done);
            }
        }
        let was_known = is_some_known(&known);
        let (asked, raced) = (Arc::clone(&ground), ground as Arc<dyn Ground>);
        self.shared.engine.read(raced, at, len, Box::new(move |got| asked.finish(was_known, at, len, got, done)));
    }

    /// [`Self::read`], waiting for it.
    pub fn read_and_wait(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let (tell, told) = std::sync::mpsc::channel();
        self.read(at, len, move |got| _ = tell.send(got.map(<[u8]>::to_vec)));
        told.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Whether all of it seems to be in the page cache. Asking brings nothing in, unlike a read that must not wait.
    fn is_cached(&self, at: u64, len: u64) -> bool {
        let page = page_bytes();
        let from = at / page * page;
        let end = (at + len).next_multiple_of(page);
        residency(self.file.as_fd(), from, end - from).is_ok_and(|found| found.cached >= (end - from) / page)
    }
}

impl Shared {
    /// Whether the disk mostly answers before the nearest server could.
    fn disk_is_quicker(&self) -> bool {
        let pings = self.engine.peers.health().into_iter().filter(|server| server.is_usable);
        let network = pings.map(|server| server.counted.ping_us).filter(|us| *us > 0).min();
        let local = lock(&self.engine.racing).race.local_latency().median();
        match (local, network) {
            (Some(local), Some(network)) => local <= network,
            (None, Some(_)) => self.is_seekless,
            (_, None) => true,
        }
    }
}

/// The file as it was when a read began.
struct FileGround {
    shared: Arc<Shared>,
    file: Arc<OwnedFd>,
    generation: Option<u32>,
    record: Arc<Record>,
    policy: Option<Policy>,
    /// Where the disk found its end, if before the one that it had.
    end: AtomicU64,
}

impl FileGround {
    fn known_of(&self, at: u64, len: usize) -> Vec<Block> {
        let block_bytes = u64::from(self.record.geometry().block_bytes);
        self.record.blocks(at / block_bytes..(at + len as u64).div_ceil(block_bytes))
    }

    /// Whether the file is still what it was, so that hashes are those of its bytes.
    fn still_holds(&self) -> bool {
        let stat = statx_fd(self.file.as_fd());
        stat.is_ok_and(|stat| self.record.holds_for(&FileKey::new(&stat, self.generation)))
    }

    /// All of it, if it can be had at once.
    fn read_cached(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let count = read_at_if_cached(self.file.as_fd(), &mut bytes, at).ok()??;
        (count == len).then_some(bytes)
    }

    fn answer_from_memory(self: Arc<Self>, at: u64, bytes: Vec<u8>, learns: bool, done: ReadDone) {
        let engine = &self.shared.engine;
        add(&engine.counters.memory, 1);
        add(&engine.counters.read_bytes, bytes.len() as u64);
        engine.trace((&*self, at, bytes.len()), engine.now(), "memory", "-");
        done(Ok(&bytes));
        if learns {
            let ground = Arc::clone(&self);
            engine.readers.run(move || {
                let learned = ground.learn(at, &bytes);
                ground.shared.engine.count_learned(&learned);
                ground.offer_learned(&learned, at, &bytes);
                ground.shared.engine.share(&*ground, at, &bytes);
            });
        }
    }

    fn learn(&self, at: u64, bytes: &[u8]) -> Learned {
        let geometry = self.geometry();
        let whole = whole_blocks(&geometry, at, bytes);
        if whole.is_empty() || !self.still_holds() {
            return Learned::default();
        }
        self.shared.books.learn(&self.record, at.next_multiple_of(geometry.block_bytes.into()), whole)
    }

    /// What was not known may have been written, and lost on its way to servers.
    fn offer_learned(&self, learned: &Learned, at: u64, bytes: &[u8]) {
        if learned.new > 0 && self.shared.debts.is_some() {
            self.shared.engine.offer(whole_blocks(&self.geometry(), at, bytes));
        }
    }

    /// Hands over what the race has brought, unless the file has changed meanwhile: then what it has now. A server may have been
    /// asked where hashes were known, and where others have learnt them since.
    fn finish(self: &Arc<Self>, was_known: bool, at: u64, len: usize, got: io::Result<&[u8]>, done: ReadDone) {
        let may_be_a_servers = || was_known || is_some_known(&self.known_of(at, len));
        match got {
            Ok(_) if may_be_a_servers() && !self.still_holds() => {
                add(&self.shared.engine.counters.overtaken, 1);
                let file = Arc::clone(&self.file);
                self.shared.engine.readers.run(move || read_now(&file, at, len, done));
            }
            Ok(bytes) => {
                let end = self.end.load(Ordering::Acquire).saturating_sub(at).min(bytes.len() as u64);
                done(Ok(&bytes[..end as usize]));
            }
            Err(error) => done(Err(error)),
        }
    }
}

impl Ground for FileGround {
    fn geometry(&self) -> Geometry {
        self.record.geometry()
    }

    fn inode(&self) -> Option<u64> {
        Some(self.record.inode())
    }

    fn unit_bytes(&self) -> u64 {
        1
    }

    fn learns(&self) -> bool {
        self.shared.books.works() && self.record.learns(self.file.as_fd())
    }

    fn known(&self, blocks: Range<u64>) -> Vec<Block> {
        self.record.blocks(blocks)
    }

    fn policy(&self, _bytes: &Range<u64>) -> Option<Policy> {
        self.policy
    }

    fn read_local(&self, range: Range<u64>, learns: bool, answered: Answered<'_>) -> Learned {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let filled = match fill_at(self.file.as_fd(), &mut bytes, range.start) {
            Ok(filled) => filled,
            Err(error) => {
                answered(Err(error));
                return Learned::default();
            }
        };
        if filled < bytes.len() {
            // It was cut meanwhile. What is missing is zeros to the race, and nothing to whoever asked.
            self.end.fetch_min(range.start + filled as u64, Ordering::AcqRel);
        }
        answered(Ok(&bytes));
        if !learns || filled < bytes.len() {
            return Learned::default();
        }
        let learned = self.learn(range.start, &bytes);
        self.offer_learned(&learned, range.start, &bytes);
        learned
    }
}

fn is_some_known(blocks: &[Block]) -> bool {
    blocks.iter().any(|block| *block != Block::Unknown)
}

fn read_now(file: &OwnedFd, at: u64, len: usize, done: ReadDone) {
    let mut bytes = vec![0; len];
    match fill_at(file.as_fd(), &mut bytes, at) {
        Ok(filled) => done(Ok(&bytes[..filled])),
        Err(error) => done(Err(error)),
    }
}
