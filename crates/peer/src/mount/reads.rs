//! Reads: the race, carried out.
//!
//! [`Shared::happen`] tells the race what has happened, under a lock, and does afterwards what is to be done, without it.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use onesweep_sys::buffer::{BufferPart, FileBuffer};

use super::{Shared, counters::add, lock, trace::Line};
use crate::{
    client::{Failure, Ticket},
    id::Hash,
    index::Block,
    race::{Action, Answer, Event, Micros, PeerId, Race, ReadId, RequestId, Settings, Source},
    wire::Priority,
};

/// A server that hasn't answered by then won't: the race has long gone on without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a device says of a place that it can't read.
const EIO: i32 = 5;

pub(super) type ReadDone = Box<dyn FnOnce(io::Result<&[u8]>) + Send>;

/// A read that has no answer yet.
struct Pending {
    at: u64,
    len: usize,
    /// What is read of the disk for it: whole sectors, and whole blocks where the index is to learn them.
    local: Range<u64>,
    blocks: Range<u64>,
    /// Of its blocks, where all are known to hold; `None` for zeros.
    hashes: Vec<Option<Hash>>,
    /// Sets of servers that could be asked, and which of them for each block.
    choices: Vec<(PeerId, Vec<usize>)>,
    learns: bool,
    asked: Micros,
    why: &'static str,
    /// Why the disk couldn't read it.
    local_error: Option<i32>,
    timer: Option<Micros>,
    done: ReadDone,
}

/// Blocks that servers were asked for.
struct Request {
    read: ReadId,
    peer: PeerId,
    /// Where its bytes begin.
    at: u64,
    bytes: Vec<u8>,
    came: u64,
    missing: usize,
    tickets: Vec<Ticket>,
}

/// The race, and what it knows nothing of.
pub(super) struct Racing {
    pub(super) race: Race,
    next: u64,
    pending: HashMap<ReadId, Pending>,
    requests: HashMap<RequestId, Request>,
    timers: BTreeSet<(Micros, ReadId)>,
    actions: Vec<Action>,
}

impl Racing {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            race: Race::new(settings),
            next: 0,
            pending: HashMap::new(),
            requests: HashMap::new(),
            timers: BTreeSet::new(),
            actions: Vec::new(),
        }
    }

    fn take(&mut self, read: ReadId) -> Option<Pending> {
        let pending = self.pending.remove(&read)?;
        if let Some(at) = pending.timer {
            self.timers.remove(&(at, read));
        }
        Some(pending)
    }
}

/// A block that is to be asked for.
struct Get {
    place: usize,
    server: usize,
    hash: Hash,
}

/// What is to be done without the lock.
enum Effect {
    Local { read: ReadId, range: Range<u64>, learns: bool },
    Remote { key: (ReadId, RequestId, PeerId), gets: Vec<Get> },
    Cancel(Vec<Ticket>),
    Answer { pending: Box<Pending>, source: Source, now: Micros },
    Fail { pending: Box<Pending>, now: Micros },
}

/// Bytes that an event has brought, from an address on.
pub(super) struct Brought<'a> {
    at: u64,
    bytes: &'a [u8],
}

impl Shared {
    fn now(&self) -> Micros {
        self.began.elapsed().as_micros() as Micros
    }

    pub(super) fn read(self: &Arc<Self>, at: u64, len: usize, done: ReadDone) {
        let len = (self.geometry.device_bytes.saturating_sub(at)).min(len as u64) as usize;
        if len == 0 {
            return done(Ok(&[]));
        }
        add(&self.counters.read_bytes, len as u64);
        let block_bytes = u64::from(self.geometry.block_bytes);
        let blocks = at / block_bytes..(at + len as u64).div_ceil(block_bytes);
        let known = lock(&self.index).as_ref().map(|index| index.blocks(blocks.clone())).unwrap_or_default();
        let hashes = hashes(&known);
        if hashes.as_ref().is_some_and(|hashes| hashes.iter().all(Option::is_none)) {
            add(&self.counters.zeros, 1);
            self.trace(at, len, self.now(), "zeros", "-");
            return done(Ok(&vec![0; len]));
        }
        let learns = hashes.is_none();
        let unit = if learns { block_bytes } else { self.storage.sector_bytes() };
        let local = at / unit * unit..((at + len as u64).next_multiple_of(unit)).min(self.geometry.device_bytes);
        let hashes = hashes.unwrap_or_default();
        let choices = self.choices(&hashes);
        let bytes = blocks.end.min(blocks.start + hashes.len() as u64) - blocks.start;
        let pending = Pending {
            at,
            len,
            local,
            blocks,
            hashes,
            choices,
            learns,
            asked: self.now(),
            why: "raced",
            local_error: None,
            timer: None,
            done,
        };
        self.ask(pending, (bytes * block_bytes).max(len as u64));
    }

    /// Which servers can be asked: the likeliest for each block, then the next ones.
    fn choices(&self, hashes: &[Option<Hash>]) -> Vec<(PeerId, Vec<usize>)> {
        if hashes.is_empty() || !self.peers.is_usable() {
            return Vec::new();
        }
        if self.servers == 1 {
            return vec![(PeerId(1), vec![0; hashes.len()])];
        }
        let servers: Vec<Vec<usize>> =
            hashes.iter().map(|hash| hash.map(|hash| self.peers.servers_of(&hash)).unwrap_or_default()).collect();
        let mut choices: Vec<(PeerId, Vec<usize>)> = Vec::new();
        for level in 0..self.servers {
            let places: Option<Vec<usize>> = servers
                .iter()
                .zip(hashes)
                .map(|(servers, hash)| if hash.is_some() { servers.get(level).copied() } else { Some(0) })
                .collect();
            let Some(places) = places else { break };
            let asked = places.iter().zip(hashes).filter(|(_, hash)| hash.is_some());
            let set = PeerId(asked.fold(0, |set, (server, _)| set | 1 << server));
            // A set is known to the race by its members alone.
            if choices.iter().all(|(other, _)| *other != set) {
                choices.push((set, places));
            }
        }
        choices
    }

    fn ask(self: &Arc<Self>, pending: Pending, bytes: u64) {
        let mut racing = lock(&self.racing);
        racing.next += 1;
        let read = ReadId(racing.next);
        let peers = pending.choices.iter().map(|(peer, _)| *peer).collect();
        let checkable = !pending.learns;
        let policy = self.places.policy(&(pending.at..pending.at + pending.len as u64));
        self.counters.count_policy(policy.unwrap_or(self.policy));
        racing.pending.insert(read, pending);
        let event = Event::Asked { read, bytes, checkable, peers, policy };
        let effects = self.decide(&mut racing, event);
        drop(racing);
        self.carry_out(effects, None);
    }

    /// Tells the race what has happened, and does what is to be done.
    pub(super) fn happen(self: &Arc<Self>, event: Event, brought: Option<&Brought<'_>>) {
        let mut racing = lock(&self.racing);
        let effects = self.decide(&mut racing, event);
        drop(racing);
        self.carry_out(effects, brought);
    }

    fn decide(&self, racing: &mut Racing, event: Event) -> Vec<Effect> {
        // Under the lock, so that times never go back.
        let now = self.now();
        let asked = match event {
            Event::Asked { read, .. } => Some((read, *racing.race.counts())),
            _ => None,
        };
        let mut actions = std::mem::take(&mut racing.actions);
        racing.race.on(now, event, &mut actions);
        if let Some((read, before)) = asked
            && let Some(pending) = racing.pending.get_mut(&read)
        {
            let counts = racing.race.counts();
            let reasons = [
                (counts.not_checkable > before.not_checkable, "no-hash"),
                (counts.no_peer > before.no_peer, "no-server"),
                (counts.no_budget > before.no_budget, "no-budget"),
            ];
            pending.why = reasons.iter().find(|(is_so, _)| *is_so).map_or("raced", |(_, why)| why);
        }
        let effects = actions.drain(..).filter_map(|action| self.prepare(racing, now, action)).collect();
        racing.actions = actions;
        effects
    }

    fn prepare(&self, racing: &mut Racing, now: Micros, action: Action) -> Option<Effect> {
        match action {
            Action::StartLocal { read } => {
                let pending = racing.pending.get(&read)?;
                Some(Effect::Local { read, range: pending.local.clone(), learns: pending.learns })
            }
            Action::StartRemote { read, request, peer } => {
                let pending = racing.pending.get(&read)?;
                let (_, servers) = pending.choices.iter().find(|(set, _)| *set == peer)?;
                let gets = pending.hashes.iter().zip(servers).enumerate();
                let gets =
                    gets.filter_map(|(place, (hash, server))| Some(Get { place, server: *server, hash: (*hash)? }));
                let gets: Vec<Get> = gets.collect();
                let at = self.geometry.place(pending.blocks.start).0;
                let (last, len) = self.geometry.place(pending.blocks.end - 1);
                let bytes = vec![0; (last - at) as usize + len];
                let started = Request { read, peer, at, bytes, came: 0, missing: gets.len(), tickets: Vec::new() };
                racing.requests.insert(request, started);
                Some(Effect::Remote { key: (read, request, peer), gets })
            }
            Action::CancelRemote { request, .. } => {
                racing.requests.remove(&request).map(|request| Effect::Cancel(request.tickets))
            }
            Action::Wake { read, at } => {
                let before = racing.pending.get_mut(&read)?.timer.replace(at);
                if let Some(before) = before {
                    racing.timers.remove(&(before, read));
                }
                racing.timers.insert((at, read));
                if racing.timers.first() == Some(&(at, read)) {
                    self.timers.notify_one();
                }
                None
            }
            Action::Answer { read, source } => {
                let pending = Box::new(racing.take(read)?);
                Some(Effect::Answer { pending, source, now })
            }
            Action::Fail { read } => racing.take(read).map(|pending| Effect::Fail { pending: Box::new(pending), now }),
        }
    }

    fn carry_out(self: &Arc<Self>, effects: Vec<Effect>, brought: Option<&Brought<'_>>) {
        for effect in effects {
            match effect {
                Effect::Local { read, range, learns } => {
                    let shared = Arc::clone(self);
                    self.readers.run(move || shared.read_local(read, range, learns));
                }
                Effect::Remote { key, gets } => self.read_remote(key, gets),
                Effect::Cancel(tickets) => cancel(tickets),
                Effect::Answer { pending, source, now } => match brought {
                    Some(brought) => self.answer(*pending, source, now, brought),
                    None => debug_assert!(false, "an answer without bytes"),
                },
                Effect::Fail { pending, now } => self.fail(*pending, now),
            }
        }
    }

    /// On a thread that may wait.
    fn read_local(self: &Arc<Self>, read: ReadId, range: Range<u64>, learns: bool) {
        let len = (range.end - range.start) as usize;
        let begin = || lock(&self.index).as_mut().map(|index| index.begin_read());
        let ticket = if learns { begin() } else { None };
        let result = match FileBuffer::try_zeroed(len) {
            Some(buffer) => {
                let mut part = buffer.lend(0..len);
                self.storage.read_at(part.as_mut_slice(), range.start).map(|()| part)
            }
            None => Err(io::ErrorKind::OutOfMemory.into()),
        };
        let part = match result {
            Ok(part) => part,
            Err(error) => {
                if let Some(pending) = lock(&self.racing).pending.get_mut(&read) {
                    pending.local_error = Some(error.raw_os_error().unwrap_or(EIO));
                }
                return self.happen(Event::Local { read, done: false }, None);
            }
        };
        let bytes = part.as_slice();
        self.happen(Event::Local { read, done: true }, Some(&Brought { at: range.start, bytes }));
        // The answer doesn't wait for this.
        if let Some(ticket) = ticket
            && let Some(index) = lock(&self.index).as_mut()
        {
            let learned = index.learn(ticket, range.start, bytes);
            add(&self.counters.learned, learned.new);
            add(&self.counters.confirmed, learned.confirmed);
            add(&self.counters.changed, learned.changed);
        }
        if self.share
            && let Some(offers) = lock(&self.offers).as_ref()
        {
            let whole = self.whole_blocks(range.start, bytes);
            if !whole.is_empty() {
                offers.offer(whole);
            }
        }
    }

    /// The part of some bytes that is whole blocks.
    pub(super) fn whole_blocks<'a>(&self, at: u64, bytes: &'a [u8]) -> &'a [u8] {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let (first, end) = (at.next_multiple_of(block_bytes), at + bytes.len() as u64);
        // The last block of the device may be shorter.
        let end = if end == self.geometry.device_bytes { end } else { end / block_bytes * block_bytes };
        bytes.get((first - at) as usize..(end.max(first) - at) as usize).unwrap_or_default()
    }

    fn read_remote(self: &Arc<Self>, key: (ReadId, RequestId, PeerId), gets: Vec<Get>) {
        for Get { place, server, hash } in gets {
            let shared = Arc::clone(self);
            let done = move |got: Result<&[u8], Failure>| shared.block_came(key, place, got);
            match self.peers.get_from(server, &hash, Priority::Waiting, PATIENCE, done) {
                Ok(ticket) => {
                    let mut racing = lock(&self.racing);
                    match racing.requests.get_mut(&key.1) {
                        Some(request) => request.tickets.push(ticket),
                        // It was answered, has failed or was cancelled meanwhile.
                        None => {
                            drop(racing);
                            ticket.cancel();
                            return;
                        }
                    }
                }
                Err(why) => return self.block_came(key, place, Err(why.into())),
            }
        }
    }

    /// A server has answered, or will not. The bytes were checked.
    fn block_came(self: &Arc<Self>, key: (ReadId, RequestId, PeerId), place: usize, got: Result<&[u8], Failure>) {
        let (read, request_id, peer) = key;
        let mut racing = lock(&self.racing);
        let Some(request) = racing.requests.get_mut(&request_id) else {
            drop(racing);
            if let Ok(bytes) = got {
                let (request, bytes) = (request_id, bytes.len() as u64);
                self.happen(Event::Remote { read, request, peer, bytes, answer: Answer::Valid }, None);
            }
            return;
        };
        let answer = match got {
            Ok(bytes) => {
                request.came += bytes.len() as u64;
                let begin = place * self.geometry.block_bytes as usize;
                let end = request.bytes.len().min(begin + self.geometry.block_bytes as usize);
                match request.bytes.get_mut(begin..end) {
                    Some(room) if room.len() == bytes.len() => {
                        room.copy_from_slice(bytes);
                        request.missing -= 1;
                        if request.missing > 0 {
                            return;
                        }
                        Answer::Valid
                    }
                    _ => Answer::Invalid,
                }
            }
            Err(Failure::Absent) => Answer::Absent,
            Err(Failure::WrongBytes) => Answer::Invalid,
            Err(_) => Answer::Failed,
        };
        let Some(request) = racing.requests.remove(&request_id) else { return };
        drop(racing);
        debug_assert_eq!((request.read, request.peer), (read, peer));
        cancel(request.tickets);
        let event = Event::Remote { read, request: request_id, peer, bytes: request.came, answer };
        self.happen(event, Some(&Brought { at: request.at, bytes: &request.bytes }));
    }

    fn answer(self: &Arc<Self>, pending: Pending, source: Source, now: Micros, brought: &Brought<'_>) {
        let Pending { at, len, done, .. } = pending;
        let begin = at.checked_sub(brought.at).map(|begin| begin as usize);
        let Some(bytes) = begin.and_then(|begin| brought.bytes.get(begin..begin + len)) else {
            debug_assert!(false, "an answer of other bytes");
            return done(Err(io::Error::from_raw_os_error(EIO)));
        };
        done(Ok(bytes));
        let from = match (source, pending.local_error) {
            (Source::Local, _) => "disk",
            (Source::Remote(_), None) => "server",
            (Source::Remote(_), Some(_)) => "rescue",
        };
        let counter = if source == Source::Local { &self.counters.local_bytes } else { &self.counters.remote_bytes };
        add(counter, len as u64);
        self.trace_until(at, len, (pending.asked, now), from, pending.why);
        if from == "rescue" && self.reclaim {
            let (first, hashes, bytes) = (pending.blocks.start, pending.hashes, brought.bytes.to_vec());
            let shared = Arc::clone(self);
            self.writers.run(move || shared.reclaim(first, &hashes, &bytes));
        }
    }

    /// The disk couldn't read it, and no server has all of it. Some of its blocks may be readable, and others known.
    fn fail(self: &Arc<Self>, pending: Pending, now: Micros) {
        let Pending { at, len, local, blocks, asked, why, local_error, done, .. } = pending;
        if blocks.end - blocks.start == 1 && self.reclaim {
            // While it is written again it is known to nobody; then the disk has it.
            let (shared, local_error) = (Arc::clone(self), local_error.unwrap_or(EIO));
            return self.readers.run(move || {
                let again = shared.read_behind_writes(&local);
                let bytes = again.as_ref().map(|part| &part.as_slice()[(at - local.start) as usize..][..len]);
                let from = if bytes.is_ok() { "disk" } else { "error" };
                add(&shared.counters.failed, again.is_err().into());
                shared.trace(at, len, asked, from, why);
                done(bytes.map_err(|_| io::Error::from_raw_os_error(local_error)));
            });
        }
        if blocks.end - blocks.start == 1 {
            add(&self.counters.failed, 1);
            self.trace_until(at, len, (asked, now), "error", why);
            return done(Err(io::Error::from_raw_os_error(local_error.unwrap_or(EIO))));
        }
        add(&self.counters.split, 1);
        self.trace_until(at, len, (asked, now), "parts", why);
        let parts = (blocks.end - blocks.start) as usize;
        let gather = Gather { bytes: vec![0; len], missing: parts, error: None, done: Some(done) };
        let gather = Arc::new(Mutex::new(gather));
        for block in blocks {
            let (begin, block_len) = self.geometry.place(block);
            let (from, to) = (begin.max(at), (begin + block_len as u64).min(at + len as u64));
            let (gather, place) = (Arc::clone(&gather), (from - at) as usize);
            self.read(from, (to - from) as usize, Box::new(move |got| Gather::take(&gather, place, got)));
        }
    }

    /// Reads from the disk once nobody writes a block again.
    fn read_behind_writes(&self, range: &Range<u64>) -> io::Result<BufferPart> {
        let len = (range.end - range.start) as usize;
        let mut part = FileBuffer::try_zeroed(len).ok_or(io::ErrorKind::OutOfMemory)?.lend(0..len);
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.storage.read_at(part.as_mut_slice(), range.start)?;
        Ok(part)
    }

    fn trace(&self, at: u64, len: usize, asked: Micros, from: &'static str, why: &'static str) {
        self.trace_until(at, len, (asked, self.now()), from, why);
    }

    fn trace_until(&self, at: u64, len: usize, (asked, now): (Micros, Micros), from: &'static str, why: &'static str) {
        if let Some(trace) = lock(&self.trace).as_ref() {
            let line = Line { asked, at, bytes: len as u64, from, why, took: now.saturating_sub(asked) };
            if !trace.write(line) {
                add(&self.counters.untraced, 1);
            }
        }
    }

    /// Rings for the race, until the end.
    pub(super) fn keep_time(self: &Arc<Self>) {
        let mut racing = lock(&self.racing);
        while !self.is_ending() {
            let now = self.now();
            match racing.timers.first().copied() {
                Some((at, read)) if at <= now => {
                    racing.timers.remove(&(at, read));
                    if let Some(pending) = racing.pending.get_mut(&read) {
                        pending.timer = None;
                    }
                    let effects = self.decide(&mut racing, Event::Timer { read });
                    drop(racing);
                    self.carry_out(effects, None);
                    racing = lock(&self.racing);
                }
                Some((at, _)) => {
                    let time = Duration::from_micros(at - now);
                    racing = self.timers.wait_timeout(racing, time).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => racing = self.timers.wait(racing).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// A read whose blocks are read one by one.
struct Gather {
    bytes: Vec<u8>,
    missing: usize,
    error: Option<io::Error>,
    done: Option<ReadDone>,
}

impl Gather {
    fn take(gather: &Mutex<Gather>, place: usize, got: io::Result<&[u8]>) {
        let mut gather = lock(gather);
        gather.missing -= 1;
        match got {
            Ok(bytes) => gather.bytes[place..place + bytes.len()].copy_from_slice(bytes),
            Err(error) => gather.error = Some(error),
        }
        if gather.missing > 0 {
            return;
        }
        let (bytes, error, done) = (std::mem::take(&mut gather.bytes), gather.error.take(), gather.done.take());
        drop(gather);
        if let Some(done) = done {
            done(error.map_or(Ok(&bytes[..]), Err));
        }
    }
}

/// Hashes of blocks whose contents are known for sure, `None` for zeros; nothing where one is not.
fn hashes(known: &[Block]) -> Option<Vec<Option<Hash>>> {
    let hash = |block: &Block| match block {
        Block::Valid(hash) => Some(Some(*hash)),
        Block::Zero => Some(None),
        Block::Unknown | Block::Suspect(_) => None,
    };
    if known.is_empty() { None } else { known.iter().map(hash).collect() }
}

fn cancel(tickets: Vec<Ticket>) {
    tickets.into_iter().for_each(|ticket| _ = ticket.cancel());
}
