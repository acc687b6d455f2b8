//! What is to be asked of an engine, and what came of it. No threads, no waiting: the time is an argument.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{
    Engine, EngineError,
    ledger::{Gone, Ledger},
    slot::Slot,
};
use crate::{
    id::Hash,
    race::{Breaker, Micros},
    store::Put,
};

/// Blocks that are brought before they are asked for, at most.
const SOON_MAX: usize = 256;
/// What was brought and never asked for is kept so long.
const SOON_KEPT: Micros = 5_000_000;
/// Of so many jobs one is a write, where there is one, however many wait to read.
const WRITE_TURN: u32 = 4;

/// What came of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fetched {
    /// The bytes, which are those of the hash.
    Found(Arc<[u8]>),
    /// It isn't there.
    Absent,
    /// The engine failed, or gave other bytes.
    Failed,
    /// It was not asked, since it failed just before.
    Skipped,
}

/// A read that is to be done, or is done and not taken yet.
#[derive(Debug)]
struct Fetch {
    slot: Arc<Slot<Fetched>>,
    asked: Micros,
    waiting: u32,
    is_in_service: bool,
    /// Nobody waited to its end: that counts as a failure already.
    was_late: bool,
}

/// Hashes of one part that are asked about at a time.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    pub(super) hashes: Vec<Hash>,
    pub(super) slot: Arc<Slot<Vec<bool>>>,
    pub(super) until: Micros,
}

/// What a worker does next.
#[derive(Clone, Debug)]
pub(super) enum Job {
    Get { part: u64, hash: Hash },
    Put { part: u64, hash: Hash, bytes: Arc<[u8]> },
    Has { part: u64, lookup: Lookup },
    Remove { part: u64, hash: Hash },
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) failures: u64,
    pub(super) late: u64,
    pub(super) skipped: u64,
    pub(super) wrong: u64,
    pub(super) written: u64,
    pub(super) unwritten: u64,
    pub(super) removed: u64,
}

/// Who asks for a block finds this.
pub(super) enum Begun {
    /// It waits to be written.
    Here(Arc<[u8]>),
    /// It will be here.
    Wait(Arc<Slot<Fetched>>),
    /// The engine isn't asked.
    Skipped,
}

/// Who puts a block finds this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It will be written.
    New,
    /// It is there.
    Known,
    /// Too much waits to be written.
    NoRoom,
    /// The engine isn't asked.
    Skipped,
}

/// A part of the engine that is no longer asked, or asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Shut(EngineError),
    Open,
}

/// All that is to be done.
pub(super) struct Desk {
    engine: Arc<dyn Engine>,
    unwritten_max: u64,
    soon_kept: Micros,
    reads: VecDeque<Hash>,
    fetches: HashMap<Hash, Fetch>,
    writes: VecDeque<Hash>,
    unwritten: HashMap<Hash, Arc<[u8]>>,
    unwritten_bytes: u64,
    lookups: VecDeque<Lookup>,
    removals: VecDeque<Hash>,
    breakers: HashMap<u64, Breaker>,
    ledger: Ledger,
    turn: u32,
    pub(super) counted: Counted,
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

impl Desk {
    pub(super) fn new(engine: Arc<dyn Engine>, bytes_max: Option<u64>, unwritten_max: u64) -> Self {
        Self {
            engine,
            unwritten_max,
            soon_kept: SOON_KEPT,
            reads: VecDeque::new(),
            fetches: HashMap::new(),
            writes: VecDeque::new(),
            unwritten: HashMap::new(),
            unwritten_bytes: 0,
            lookups: VecDeque::new(),
            removals: VecDeque::new(),
            breakers: HashMap::new(),
            ledger: Ledger::new(bytes_max),
            turn: 0,
            counted: Counted::default(),
            blocks: 0,
            bytes: 0,
        }
    }

    pub(super) fn bytes_max(&self) -> Option<u64> {
        self.ledger.bytes_max()
    }

    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes
    }

    /// Parts that aren't asked at the moment.
    pub(super) fn shut_parts(&self) -> u64 {
        self.breakers.values().filter(|breaker| !breaker.is_closed()).count() as u64
    }

    pub(super) fn has_writes(&self) -> bool {
        !self.unwritten.is_empty()
    }

    pub(super) fn is_unwritten(&self, hash: &Hash) -> bool {
        self.unwritten.contains_key(hash)
    }

    /// Whether this part may be asked.
    pub(super) fn allows(&self, part: u64, now: Micros) -> bool {
        self.breakers.get(&part).is_none_or(|breaker| breaker.allows(now))
    }

    // Reads.

    /// Somebody waits for a block from now on, and has to leave.
    pub(super) fn fetch(&mut self, hash: &Hash, now: Micros) -> Begun {
        if let Some(bytes) = self.unwritten.get(hash) {
            self.counted.hits += 1;
            return Begun::Here(Arc::clone(bytes));
        }
        match self.fetches.get_mut(hash) {
            // What was brought ahead so long ago may not be so any more.
            Some(fetch) if fetch.waiting == 0 && fetch.slot.is_set() && now >= fetch.asked + self.soon_kept => {
                self.fetches.remove(hash);
            }
            Some(fetch) => {
                fetch.waiting += 1;
                return Begun::Wait(Arc::clone(&fetch.slot));
            }
            None => {}
        }
        if !self.allows(self.engine.part(hash), now) {
            self.counted.skipped += 1;
            return Begun::Skipped;
        }
        Begun::Wait(self.queue(hash, 1, now))
    }

    /// It will be asked for soon. False where there is no room for it, or no use.
    pub(super) fn fetch_soon(&mut self, hash: &Hash, now: Micros) -> bool {
        if self.fetches.len() >= SOON_MAX {
            let soon_kept = self.soon_kept;
            self.fetches.retain(|_, fetch| {
                fetch.waiting > 0 || fetch.is_in_service && !fetch.slot.is_set() || now < fetch.asked + soon_kept
            });
        }
        let is_useless = self.fetches.len() >= SOON_MAX
            || self.unwritten.contains_key(hash)
            || self.fetches.contains_key(hash)
            || !self.allows(self.engine.part(hash), now);
        if !is_useless {
            self.queue(hash, 0, now);
        }
        !is_useless
    }

    fn queue(&mut self, hash: &Hash, waiting: u32, now: Micros) -> Arc<Slot<Fetched>> {
        let slot = Arc::new(Slot::new());
        let fetch = Fetch { slot: Arc::clone(&slot), asked: now, waiting, is_in_service: false, was_late: false };
        self.fetches.insert(*hash, fetch);
        self.reads.push_back(*hash);
        slot
    }

    /// Who waited has what came, or waits no longer.
    pub(super) fn leave(&mut self, hash: &Hash, is_late: bool, now: Micros) -> Option<News> {
        let fetch = self.fetches.get_mut(hash)?;
        fetch.waiting -= 1;
        let was_asked = fetch.is_in_service && !fetch.was_late && !fetch.slot.is_set();
        let is_over = fetch.slot.is_set() || !fetch.is_in_service;
        fetch.was_late |= is_late;
        if fetch.waiting == 0 && is_over {
            self.fetches.remove(hash);
        }
        self.counted.late += u64::from(is_late);
        // What only waited in our own queue tells nothing of the engine.
        if is_late && was_asked {
            self.failed(self.engine.part(hash), EngineError::new("no answer in time"), now)
        } else {
            None
        }
    }

    /// A read has ended.
    pub(super) fn fetched(&mut self, part: u64, hash: &Hash, got: Got, now: Micros) -> Option<News> {
        let was_late = self.fetches.get(hash).is_some_and(|fetch| fetch.was_late);
        let (fetched, failure) = match got {
            Got::Block(bytes) => {
                self.counted.hits += 1;
                self.ledger.used(hash);
                (Fetched::Found(bytes), None)
            }
            Got::Nothing => {
                self.counted.misses += 1;
                self.forget(hash);
                (Fetched::Absent, None)
            }
            Got::Wrong => {
                self.counted.wrong += 1;
                self.forget(hash);
                (Fetched::Failed, Some(EngineError::new("it gave other bytes than those that were put")))
            }
            Got::Failure(error) => {
                self.counted.failures += 1;
                (Fetched::Failed, Some(error))
            }
        };
        let is_wanted = self.fetches.get_mut(hash).is_some_and(|fetch| {
            fetch.slot.set(fetched);
            // What was brought ahead is kept for who comes.
            fetch.waiting > 0 || !fetch.was_late
        });
        if !is_wanted {
            self.fetches.remove(hash);
        }
        match failure {
            _ if was_late => None,
            Some(error) => self.failed(part, error, now),
            None => self.answered(part),
        }
    }

    // Writes.

    /// Takes a block to write it later.
    pub(super) fn put(&mut self, hash: &Hash, bytes: &[u8], now: Micros) -> Taken {
        if self.ledger.knows(hash) || self.unwritten.contains_key(hash) {
            return Taken::Known;
        }
        if !self.allows(self.engine.part(hash), now) {
            self.counted.skipped += 1;
            return Taken::Skipped;
        }
        if self.unwritten_bytes + bytes.len() as u64 > self.unwritten_max && !self.unwritten.is_empty() {
            return Taken::NoRoom;
        }
        // That it isn't there was true until now.
        if self.fetches.get(hash).is_some_and(|fetch| fetch.waiting == 0 && fetch.slot.is_set()) {
            self.fetches.remove(hash);
        }
        self.unwritten.insert(*hash, bytes.into());
        self.unwritten_bytes += bytes.len() as u64;
        self.writes.push_back(*hash);
        self.blocks += 1;
        self.bytes += bytes.len() as u64;
        let gone = self.ledger.put(hash, bytes.len());
        self.remove(&gone);
        Taken::New
    }

    /// A write has ended.
    pub(super) fn written(
        &mut self,
        part: u64,
        hash: &Hash,
        result: Result<Put, EngineError>,
        now: Micros,
    ) -> Option<News> {
        self.take_unwritten(hash);
        match result {
            Ok(_) => {
                self.counted.written += 1;
                self.answered(part)
            }
            Err(error) => {
                self.counted.unwritten += 1;
                self.forget(hash);
                self.failed(part, error, now)
            }
        }
    }

    fn take_unwritten(&mut self, hash: &Hash) {
        if let Some(bytes) = self.unwritten.remove(hash) {
            self.unwritten_bytes -= bytes.len() as u64;
        }
    }

    /// It isn't there, whatever was thought.
    fn forget(&mut self, hash: &Hash) {
        if let Some(bytes) = self.ledger.forget(hash) {
            self.blocks -= 1;
            self.bytes -= bytes;
        }
    }

    fn remove(&mut self, gone: &[Gone]) {
        for gone in gone {
            self.blocks -= 1;
            self.bytes -= gone.bytes;
            // What was never written needs no removal.
            self.take_unwritten(&gone.hash);
            self.removals.push_back(gone.hash);
        }
    }

    /// What was there before anything was put.
    pub(super) fn found(&mut self, found: Vec<super::Kept>) {
        let (mut blocks, mut bytes) = (0, 0);
        for kept in found.iter().filter(|kept| !self.ledger.knows(&kept.hash)) {
            blocks += 1;
            bytes += u64::from(kept.bytes);
        }
        self.blocks += blocks;
        self.bytes += bytes;
        let gone = self.ledger.found(found);
        self.remove(&gone);
    }

    /// A removal has ended.
    pub(super) fn removed(&mut self, part: u64, result: Result<(), EngineError>, now: Micros) -> Option<News> {
        match result {
            Ok(()) => {
                self.counted.removed += 1;
                self.answered(part)
            }
            Err(error) => {
                self.counted.failures += 1;
                self.failed(part, error, now)
            }
        }
    }

    // Lookups.

    pub(super) fn look(&mut self, lookup: Lookup) {
        self.lookups.push_back(lookup);
    }

    /// A lookup has ended.
    pub(super) fn looked(
        &mut self,
        part: u64,
        lookup: &Lookup,
        result: Result<Vec<bool>, EngineError>,
        now: Micros,
    ) -> Option<News> {
        match result {
            Ok(are_there) if are_there.len() == lookup.hashes.len() => {
                for (hash, _) in lookup.hashes.iter().zip(&are_there).filter(|(_, is_there)| !**is_there) {
                    // The engine may drop what it likes. What waits to be written will be there.
                    if !self.unwritten.contains_key(hash) {
                        self.forget(hash);
                    }
                }
                lookup.slot.set(are_there);
                self.answered(part)
            }
            other => {
                let error = other.err().unwrap_or_else(|| EngineError::new("it answered for another number of blocks"));
                self.counted.failures += 1;
                lookup.slot.set(vec![false; lookup.hashes.len()]);
                self.failed(part, error, now)
            }
        }
    }

    // Workers.

    /// What is to be done next.
    pub(super) fn next(&mut self, now: Micros) -> Option<Job> {
        self.turn = (self.turn + 1) % WRITE_TURN;
        if self.turn == 0
            && let Some(job) = self.next_write(now)
        {
            return Some(job);
        }
        self.next_lookup(now).or_else(|| self.next_read(now)).or_else(|| self.next_write(now))
    }

    /// The same where no block is read any more.
    pub(super) fn next_write(&mut self, now: Micros) -> Option<Job> {
        while let Some(hash) = self.writes.pop_front() {
            let Some(bytes) = self.unwritten.get(&hash).map(Arc::clone) else { continue };
            let part = self.engine.part(&hash);
            if self.begin(part, now) {
                return Some(Job::Put { part, hash, bytes });
            }
            // It would wait as long as the engine is down, and others behind it.
            self.take_unwritten(&hash);
            self.forget(&hash);
            self.counted.unwritten += 1;
        }
        while let Some(hash) = self.removals.pop_front() {
            let part = self.engine.part(&hash);
            // It was put again meanwhile.
            if self.ledger.knows(&hash) {
                continue;
            }
            if self.begin(part, now) {
                return Some(Job::Remove { part, hash });
            }
            self.counted.failures += 1;
        }
        None
    }

    fn next_lookup(&mut self, now: Micros) -> Option<Job> {
        while let Some(lookup) = self.lookups.pop_front() {
            let part = lookup.hashes.first().map_or(0, |hash| self.engine.part(hash));
            if now <= lookup.until && self.begin(part, now) {
                return Some(Job::Has { part, lookup });
            }
            lookup.slot.set(vec![false; lookup.hashes.len()]);
        }
        None
    }

    fn next_read(&mut self, now: Micros) -> Option<Job> {
        while let Some(hash) = self.reads.pop_front() {
            let part = self.engine.part(&hash);
            let Some(fetch) = self.fetches.get_mut(&hash).filter(|fetch| !fetch.is_in_service) else { continue };
            fetch.is_in_service = true;
            if self.begin(part, now) {
                return Some(Job::Get { part, hash });
            }
            self.counted.skipped += 1;
            if let Some(fetch) = self.fetches.get(&hash) {
                fetch.slot.set(Fetched::Skipped);
            }
        }
        None
    }

    /// Whether this part is asked now; it is then.
    fn begin(&mut self, part: u64, now: Micros) -> bool {
        let breaker = self.breakers.entry(part).or_default();
        let is_allowed = breaker.allows(now);
        if is_allowed {
            breaker.sent();
        }
        is_allowed
    }

    fn failed(&mut self, part: u64, error: EngineError, now: Micros) -> Option<News> {
        let breaker = self.breakers.entry(part).or_default();
        let was_closed = breaker.is_closed();
        breaker.failed(now);
        (was_closed && !breaker.is_closed()).then_some(News::Shut(error))
    }

    fn answered(&mut self, part: u64) -> Option<News> {
        let breaker = self.breakers.entry(part).or_default();
        let was_closed = breaker.is_closed();
        breaker.answered();
        (!was_closed).then_some(News::Open)
    }
}

/// What an engine gave for a hash, held against it.
#[derive(Debug)]
pub(super) enum Got {
    Block(Arc<[u8]>),
    Nothing,
    Wrong,
    Failure(EngineError),
}
