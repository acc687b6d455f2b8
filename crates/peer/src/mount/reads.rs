//! Reads: the race, carried out.
//!
//! [`Engine::happen`] tells the race what has happened, under a lock, and does afterwards what is to be done, without it.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    counters::add,
    engine::Engine,
    ground::{Ground, whole_blocks},
    lock,
    trace::Line,
};
use crate::{
    client::{Failure, Ticket},
    id::Hash,
    index::{Block, Learned},
    race::{Action, Answer, Event, Micros, PeerId, Policy, Race, ReadId, RequestId, Settings, Source},
    wire::Priority,
};

/// A server that hasn't answered by then won't: the race has long gone on without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a device says of a place that it can't read.
const EIO: i32 = 5;

/// No server at all, as a set of them.
const NOBODY: PeerId = PeerId(0);

pub(super) type ReadDone = Box<dyn FnOnce(io::Result<&[u8]>) + Send>;

/// A read that has no answer yet.
struct Pending {
    ground: Arc<dyn Ground>,
    at: u64,
    len: usize,
    /// What is read of the disk for it: whole sectors, and whole blocks where the index is to learn them.
    local: Range<u64>,
    blocks: Range<u64>,
    /// Of its blocks, where all are known to hold; `None` for zeros.
    hashes: Vec<Option<Hash>>,
    /// Sets of servers that could be asked, and which of them for each block.
    choices: Vec<(PeerId, Vec<usize>)>,
    checkable: bool,
    learns: bool,
    asked: Micros,
    why: &'static str,
    priority: Priority,
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
    block_bytes: usize,
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
    /// Whoever rings for the race looks at the timers again then, at the latest.
    looks_at: Micros,
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
            looks_at: Micros::MAX,
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

/// Who reads.
#[derive(Clone, Copy)]
enum Asker {
    /// A thread that may wait for a quick disk.
    Reader,
    /// Any thread, for a part of what could not be read as a whole.
    Part,
    /// Nobody waits for it: the disk couldn't read it, for this reason, when the answer of a server had already been taken.
    Mending(i32),
}

impl Asker {
    /// How urgently servers are asked. FUSE doesn't tell what the kernel reads ahead from what somebody waits for, a loop device even less,
    /// and nothing is read ahead here: so all reads are waited for, but those of which this is known.
    fn priority(self) -> Priority {
        match self {
            Self::Reader | Self::Part => Priority::Waiting,
            Self::Mending(_) => Priority::Prefetch,
        }
    }
}

/// A block that is to be asked for.
struct Get {
    place: usize,
    server: usize,
    hash: Hash,
}

/// What the disk is to read.
struct LocalRead {
    read: ReadId,
    ground: Arc<dyn Ground>,
    range: Range<u64>,
    learns: bool,
    is_rescue: bool,
}

/// What an event calls for.
#[derive(Default)]
struct Effects {
    local: Vec<LocalRead>,
    others: Vec<Effect>,
}

/// What is to be done without the lock.
enum Effect {
    Remote { key: (ReadId, RequestId, PeerId), gets: Vec<Get>, priority: Priority },
    Cancel(Vec<Ticket>),
    Answer { pending: Box<Pending>, source: Source, now: Micros },
    Fail { pending: Box<Pending>, now: Micros },
}

impl Effect {
    /// What is carried out first: what the reader waits for. To ask servers for many blocks, or to take that back, takes longer than a
    /// disk that turns gives to whoever reads on.
    fn turn(&self) -> u8 {
        match self {
            Self::Answer { .. } | Self::Fail { .. } => 0,
            Self::Remote { .. } => 1,
            Self::Cancel(_) => 2,
        }
    }
}

/// Bytes that an event has brought, from an address on.
pub(super) struct Brought<'a> {
    at: u64,
    bytes: &'a [u8],
}

impl Engine {
    pub(super) fn now(&self) -> Micros {
        self.began.elapsed().as_micros() as Micros
    }

    /// By a thread that may wait for a quick disk.
    pub(super) fn read(self: &Arc<Self>, ground: Arc<dyn Ground>, at: u64, len: usize, done: ReadDone) {
        self.begin(ground, at, len, Asker::Reader, done);
    }

    fn begin(self: &Arc<Self>, ground: Arc<dyn Ground>, at: u64, len: usize, asker: Asker, done: ReadDone) {
        let geometry = ground.geometry();
        let len = (geometry.device_bytes.saturating_sub(at)).min(len as u64) as usize;
        if len == 0 {
            return done(Ok(&[]));
        }
        add(&self.counters.read_bytes, len as u64);
        let block_bytes = u64::from(geometry.block_bytes);
        let blocks = at / block_bytes..(at + len as u64).div_ceil(block_bytes);
        let hashes = hashes(&ground.known(blocks.clone()));
        if hashes.as_ref().is_some_and(|hashes| hashes.iter().all(Option::is_none)) {
            add(&self.counters.zeros, 1);
            self.trace((&*ground, at, len), self.now(), "zeros", "-");
            return done(Ok(&vec![0; len]));
        }
        let checkable = hashes.is_some();
        let learns = !checkable && ground.learns();
        let unit = if learns { block_bytes } else { ground.unit_bytes() };
        let local = at / unit * unit..((at + len as u64).next_multiple_of(unit)).min(geometry.device_bytes);
        let hashes = hashes.unwrap_or_default();
        let choices = self.choices(&hashes);
        let bytes = blocks.end.min(blocks.start + hashes.len() as u64) - blocks.start;
        let pending = Pending {
            ground,
            at,
            len,
            local,
            blocks,
            hashes,
            choices,
            checkable,
            learns,
            asked: self.now(),
            why: "-",
            priority: asker.priority(),
            local_error: if let Asker::Mending(error) = asker { Some(error) } else { None },
            timer: None,
            done,
        };
        self.ask(pending, matches!(asker, Asker::Reader), (bytes * block_bytes).max(len as u64));
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

    fn ask(self: &Arc<Self>, pending: Pending, may_wait: bool, bytes: u64) {
        let mut racing = lock(&self.racing);
        racing.next += 1;
        let read = ReadId(racing.next);
        let peers = pending.choices.iter().map(|(peer, _)| *peer).collect();
        let checkable = pending.checkable;
        // A place that is known to be bad is read again only where nobody else has it.
        let policy = match pending.local_error {
            Some(_) => Some(Policy::RemoteFirst),
            None => pending.ground.policy(&(pending.at..pending.at + pending.len as u64)),
        };
        self.counters.count_policy(policy.unwrap_or(self.policy));
        racing.pending.insert(read, pending);
        let event = Event::Asked { read, bytes, checkable, peers, policy };
        let mut effects = self.decide(&mut racing, event);
        let may_wait = may_wait && racing.race.is_device_fast();
        // To wake another thread for it takes a good part of what a quick disk takes.
        let own = effects.local.iter().position(|local| may_wait && local.read == read);
        let turn = own.and_then(|_| self.own_reads.enter());
        let own = own.filter(|_| turn.is_some()).map(|place| effects.local.remove(place));
        self.carry_out(racing, effects, None);
        if let Some(own) = own {
            self.read_local(own);
        }
    }

    /// Tells the race what has happened, and does what is to be done.
    pub(super) fn happen(self: &Arc<Self>, event: Event, brought: Option<&Brought<'_>>) {
        let mut racing = lock(&self.racing);
        let effects = self.decide(&mut racing, event);
        self.carry_out(racing, effects, brought);
    }

    fn decide(&self, racing: &mut Racing, event: Event) -> Effects {
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
                (counts.no_chance > before.no_chance, "no-chance"),
            ];
            pending.why = reasons.iter().find(|(is_so, _)| *is_so).map_or("not-yet", |(_, why)| why);
        }
        let mut effects = Effects::default();
        for action in actions.drain(..) {
            match action {
                Action::StartLocal { read } => {
                    effects.local.extend(racing.pending.get(&read).map(|pending| LocalRead {
                        read,
                        ground: Arc::clone(&pending.ground),
                        range: pending.local.clone(),
                        learns: pending.learns,
                        is_rescue: pending.local_error.is_some(),
                    }))
                }
                action => effects.others.extend(self.prepare(racing, now, action)),
            }
        }
        racing.actions = actions;
        effects
    }

    fn prepare(&self, racing: &mut Racing, now: Micros, action: Action) -> Option<Effect> {
        match action {
            // It is no such effect: see above.
            Action::StartLocal { .. } => None,
            Action::StartRemote { read, request, peer } => {
                let pending = racing.pending.get_mut(&read)?;
                // Whatever was thought of it before.
                pending.why = "raced";
                let (_, servers) = pending.choices.iter().find(|(set, _)| *set == peer)?;
                let gets = pending.hashes.iter().zip(servers).enumerate();
                let gets =
                    gets.filter_map(|(place, (hash, server))| Some(Get { place, server: *server, hash: (*hash)? }));
                let (gets, priority): (Vec<Get>, _) = (gets.collect(), pending.priority);
                let geometry = pending.ground.geometry();
                let at = geometry.place(pending.blocks.start).0;
                let (last, len) = geometry.place(pending.blocks.end - 1);
                let bytes = vec![0; (last - at) as usize + len];
                let (block_bytes, missing) = (geometry.block_bytes as usize, gets.len());
                let started = Request { read, peer, at, block_bytes, bytes, came: 0, missing, tickets: Vec::new() };
                racing.requests.insert(request, started);
                Some(Effect::Remote { key: (read, request, peer), gets, priority })
            }
            Action::CancelRemote { request, .. } => {
                let Request { tickets, came, .. } = racing.requests.remove(&request)?;
                if came > 0 {
                    racing.race.came_for_nothing(came);
                }
                Some(Effect::Cancel(tickets))
            }
            Action::Wake { read, at } => {
                let before = racing.pending.get_mut(&read)?.timer.replace(at);
                if let Some(before) = before {
                    racing.timers.remove(&(before, read));
                }
                racing.timers.insert((at, read));
                // Most reads of a quick disk end before their timer: waking somebody for each would cost more than they take.
                if at < racing.looks_at {
                    racing.looks_at = at;
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

    fn carry_out(self: &Arc<Self>, racing: MutexGuard<'_, Racing>, effects: Effects, brought: Option<&Brought<'_>>) {
        let Effects { local, mut others } = effects;
        // Before anybody else has the lock: so they go to the disk in the order in which they were decided. One that reads on misses
        // its turn for what comes before that.
        for local in local {
            let engine = Arc::clone(self);
            self.readers.run(move || engine.read_local(local));
        }
        drop(racing);
        others.sort_by_key(Effect::turn);
        for effect in others {
            match effect {
                Effect::Remote { key, gets, priority } => self.read_remote(key, gets, priority),
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
    fn read_local(self: &Arc<Self>, local: LocalRead) {
        let LocalRead { read, ground, range, learns, is_rescue } = local;
        let (at, len) = (range.start, (range.end - range.start) as usize);
        // The answer doesn't wait for what is learnt of it.
        let learned = ground.read_local(range, learns, &mut |got| match got {
            Ok(bytes) => {
                self.happen(Event::Local { read, done: true }, Some(&Brought { at, bytes }));
                self.share(&*ground, at, bytes);
            }
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(EIO);
                let is_awaited = match lock(&self.racing).pending.get_mut(&read) {
                    Some(pending) => {
                        pending.local_error = Some(error);
                        true
                    }
                    None => false,
                };
                self.happen(Event::Local { read, done: false }, None);
                // A server was quicker, and nobody has its bytes any more. The place is as bad as if the disk had been waited for.
                if !is_awaited && !is_rescue && ground.mends() && !self.is_ending() {
                    self.begin(Arc::clone(&ground), at, len, Asker::Mending(error), Box::new(|_| ()));
                }
            }
        });
        self.count_learned(&learned);
    }

    pub(super) fn count_learned(&self, learned: &Learned) {
        add(&self.counters.learned, learned.new);
        add(&self.counters.confirmed, learned.confirmed);
        add(&self.counters.changed, learned.changed);
    }

    /// Servers get what was read from the disk, where they are to.
    pub(super) fn share(&self, ground: &dyn Ground, at: u64, bytes: &[u8]) {
        if self.shares {
            self.offer(whole_blocks(&ground.geometry(), at, bytes));
        }
    }

    fn read_remote(self: &Arc<Self>, key: (ReadId, RequestId, PeerId), gets: Vec<Get>, priority: Priority) {
        for Get { place, server, hash } in gets {
            let shared = Arc::clone(self);
            let done = move |got: Result<&[u8], Failure>| shared.block_came(key, place, got);
            match self.peers.get_from(server, &hash, priority, PATIENCE, done) {
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
                let begin = place * request.block_bytes;
                let end = request.bytes.len().min(begin + request.block_bytes);
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
        let Pending { ground, at, len, done, .. } = pending;
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
        let servers = if let Source::Remote(servers) = source { servers } else { NOBODY };
        self.trace_until((&*ground, at, len), (pending.asked, now), (from, pending.why), servers);
        if from == "rescue" {
            ground.rescued(pending.blocks.start, &pending.hashes, brought.bytes);
        }
    }

    /// The disk couldn't read it, and no server has all of it. Some of its blocks may be readable, and others known.
    fn fail(self: &Arc<Self>, pending: Pending, now: Micros) {
        let Pending { ground, at, len, local, blocks, asked, why, local_error, done, .. } = pending;
        if blocks.end - blocks.start == 1 && ground.mends() {
            // While it is written again it is known to nobody; then the disk has it.
            let (engine, local_error) = (Arc::clone(self), local_error.unwrap_or(EIO));
            return self.readers.run(move || {
                let again = ground.read_behind_writes(&local);
                let bytes = again.as_ref().map(|part| &part.as_slice()[(at - local.start) as usize..][..len]);
                let from = if bytes.is_ok() { "disk" } else { "error" };
                add(&engine.counters.failed, again.is_err().into());
                engine.trace((&*ground, at, len), asked, from, why);
                done(bytes.map_err(|_| io::Error::from_raw_os_error(local_error)));
            });
        }
        if blocks.end - blocks.start == 1 {
            add(&self.counters.failed, 1);
            self.trace_until((&*ground, at, len), (asked, now), ("error", why), NOBODY);
            return done(Err(io::Error::from_raw_os_error(local_error.unwrap_or(EIO))));
        }
        add(&self.counters.split, 1);
        self.trace_until((&*ground, at, len), (asked, now), ("parts", why), NOBODY);
        let parts = (blocks.end - blocks.start) as usize;
        let gather = Gather { bytes: vec![0; len], missing: parts, error: None, done: Some(done) };
        let gather = Arc::new(Mutex::new(gather));
        for block in blocks {
            let (begin, block_len) = ground.geometry().place(block);
            let (from, to) = (begin.max(at), (begin + block_len as u64).min(at + len as u64));
            let (gather, place) = (Arc::clone(&gather), (from - at) as usize);
            let take = move |got: io::Result<&[u8]>| Gather::take(&gather, place, got);
            self.begin(Arc::clone(&ground), from, (to - from) as usize, Asker::Part, Box::new(take));
        }
    }

    pub(super) fn trace(&self, what: (&dyn Ground, u64, usize), asked: Micros, from: &'static str, why: &'static str) {
        self.trace_until(what, (asked, self.now()), (from, why), NOBODY);
    }

    fn trace_until(
        &self,
        (ground, at, len): (&dyn Ground, u64, usize),
        (asked, now): (Micros, Micros),
        (from, why): (&'static str, &'static str),
        servers: PeerId,
    ) {
        if let Some(trace) = lock(&self.trace).as_ref() {
            let took = now.saturating_sub(asked);
            let line = Line { asked, inode: ground.inode(), at, bytes: len as u64, from, why, took, servers };
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
                    self.carry_out(racing, effects, None);
                    racing = lock(&self.racing);
                }
                Some((at, _)) => {
                    racing.looks_at = at;
                    let time = Duration::from_micros(at - now);
                    racing = self.timers.wait_timeout(racing, time).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    racing.looks_at = Micros::MAX;
                    racing = self.timers.wait(racing).unwrap_or_else(PoisonError::into_inner);
                }
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
