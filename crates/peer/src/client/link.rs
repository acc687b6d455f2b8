//! One server: what was asked of it and has no answer yet. The thread that talks to it is in [`super::talk`].

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use onesweep_sys::ready::Bell;

use super::{
    Failure, Refused, Settings,
    breaker::Breaker,
    counters::{Counters, add},
    names::Name,
    rank,
};
use crate::{
    id::Hash,
    scan::{EngineId, Statement},
    wire::{Closing, Priority, Request, VERDICT_BATCH_MAX, Welcome},
};

/// Told of a block, or why there is none.
pub(super) type GetDone = Box<dyn FnOnce(Result<&[u8], Failure>) + Send>;
/// Told of whether a block was known before.
pub(super) type PutDone = Box<dyn FnOnce(Result<bool, Failure>) + Send>;
/// Told of which blocks are there.
pub(super) type HasDone = Box<dyn FnOnce(Result<Vec<bool>, Failure>) + Send>;
/// Told of what is known of contents: of each, what others say.
pub(super) type VerdictsDone = Box<dyn FnOnce(Result<Vec<Vec<Statement>>, Failure>) + Send>;
/// Told of how many statements were new to the server.
pub(super) type TellDone = Box<dyn FnOnce(Result<u64, Failure>) + Send>;
/// Told of a text.
pub(super) type StatDone = Box<dyn FnOnce(Result<String, Failure>) + Send>;

/// Who is told of an answer.
pub(super) enum Reply {
    Get { hash: Hash, done: GetDone },
    Put { done: PutDone },
    Has { count: usize, done: HasDone },
    Stat { done: StatDone },
    Ping { sent: Instant },
    Verdicts { hashes: Vec<Hash>, done: VerdictsDone },
    Tell { done: TellDone },
}

impl Reply {
    pub(super) fn fail(self, why: Failure) {
        match self {
            Self::Get { done, .. } => done(Err(why)),
            Self::Put { done } => done(Err(why)),
            Self::Has { done, .. } => done(Err(why)),
            Self::Stat { done } => done(Err(why)),
            Self::Ping { .. } => {}
            Self::Verdicts { done, .. } => done(Err(why)),
            Self::Tell { done } => done(Err(why)),
        }
    }
}

/// A request without an answer.
pub(super) struct Flight {
    /// Nobody is told any more where there is none; the answer is still to come.
    pub(super) reply: Option<Reply>,
    pub(super) due: Instant,
    pub(super) was_sent: bool,
    /// Bytes of a block that is put.
    put_bytes: usize,
}

/// Bytes that are handed to the socket before what comes later may go first.
const SEND_AHEAD_BYTES: usize = 64 << 10;

/// What the thread that talks and those that ask share.
pub(super) struct State {
    /// The limits of the server, while there is a connection.
    pub(super) welcome: Option<Welcome>,
    pub(super) breaker: Breaker,
    /// Nobody will ask any more.
    pub(super) is_ended: bool,
    /// The next try to connect is due.
    pub(super) is_nudged: bool,
    /// When the network became another one.
    pub(super) nudged_at: Option<Instant>,
    /// The thread waits, and has to be woken.
    pub(super) is_asleep: bool,
    /// Why the last connection, or the last try, came to its end.
    pub(super) last_error: Option<Arc<str>>,
    /// As the server said it.
    pub(super) closing: Option<Closing>,
    pub(super) flights: HashMap<u32, Flight>,
    dues: BTreeSet<(Instant, u32)>,
    next_id: u32,
    waiting: VecDeque<(u32, Hash)>,
    prefetch: VecDeque<(u32, Hash)>,
    cancels: Vec<u32>,
    /// Frames that are ready to go: questions before blocks.
    questions: VecDeque<Vec<u8>>,
    puts: VecDeque<Vec<u8>>,
    put_bytes: usize,
}

impl State {
    fn new() -> Self {
        Self {
            welcome: None,
            breaker: Breaker::new(),
            is_ended: false,
            is_nudged: false,
            nudged_at: None,
            is_asleep: false,
            last_error: None,
            closing: None,
            flights: HashMap::new(),
            dues: BTreeSet::new(),
            next_id: 0,
            waiting: VecDeque::new(),
            prefetch: VecDeque::new(),
            cancels: Vec::new(),
            questions: VecDeque::new(),
            puts: VecDeque::new(),
            put_bytes: 0,
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        self.welcome.is_some() && self.breaker.allows() && !self.is_ended
    }

    /// A number for one more request.
    fn launch(&mut self, reply: Reply, due: Instant, put_bytes: usize) -> u32 {
        let mut id = self.next_id;
        // After 2³² requests some number may still be in flight.
        while self.flights.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        self.next_id = id.wrapping_add(1);
        self.put_bytes += put_bytes;
        self.dues.insert((due, id));
        self.flights.insert(id, Flight { reply: Some(reply), due, was_sent: false, put_bytes });
        id
    }

    /// The request is over: its answer came, or it never went.
    pub(super) fn land(&mut self, id: u32) -> Option<Flight> {
        let flight = self.flights.remove(&id)?;
        self.dues.remove(&(flight.due, id));
        self.put_bytes -= flight.put_bytes;
        Some(flight)
    }

    /// Nobody waits for it any more. Who would have been told, if it was not over yet.
    fn abandon(&mut self, id: u32) -> Option<Reply> {
        let flight = self.flights.get_mut(&id)?;
        let reply = flight.reply.take()?;
        if flight.was_sent {
            if matches!(reply, Reply::Get { .. }) {
                self.cancels.push(id);
            }
        } else {
            // What lies in a queue is passed over there.
            self.land(id);
        }
        Some(reply)
    }

    /// Those whose time is over; nobody waits for them any more.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Reply> {
        let mut late = Vec::new();
        while let Some((due, id)) = self.dues.first().copied().filter(|(due, _)| *due <= now) {
            self.dues.remove(&(due, id));
            late.extend(self.abandon(id));
        }
        late
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// Everything is lost with the connection.
    pub(super) fn take_all(&mut self) -> Vec<Reply> {
        self.welcome = None;
        self.dues.clear();
        self.waiting.clear();
        self.prefetch.clear();
        self.cancels.clear();
        self.questions.clear();
        self.puts.clear();
        self.put_bytes = 0;
        std::mem::take(&mut self.flights).into_values().filter_map(|flight| flight.reply).collect()
    }

    pub(super) fn has_work(&self) -> bool {
        !(self.waiting.is_empty()
            && self.prefetch.is_empty()
            && self.cancels.is_empty()
            && self.questions.is_empty()
            && self.puts.is_empty())
    }

    /// Appends frames of what waits, in the order of how much each matters, as long as there is room.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, unsent: usize) {
        let batch = self.welcome.map_or(1, |welcome| welcome.batch) as usize;
        let full = out.len() + SEND_AHEAD_BYTES.saturating_sub(unsent);
        self.cancels.sort_unstable();
        for run in self.cancels.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
            run.chunks(usize::from(u16::MAX)).for_each(|run| Request::cancel(out, run[0], run.len() as u16));
        }
        self.cancels.clear();
        write_gets(&mut self.waiting, &mut self.flights, Priority::Waiting, batch, out, full);
        while out.len() < full
            && let Some(frame) = self.questions.pop_front()
        {
            out.extend_from_slice(&frame);
        }
        write_gets(&mut self.prefetch, &mut self.flights, Priority::Prefetch, batch, out, full);
        while out.len() < full
            && let Some(frame) = self.puts.pop_front()
        {
            out.extend_from_slice(&frame);
        }
    }
}

/// Numbers that follow each other go as one request.
fn write_gets(
    queue: &mut VecDeque<(u32, Hash)>,
    flights: &mut HashMap<u32, Flight>,
    priority: Priority,
    batch: usize,
    out: &mut Vec<u8>,
    full: usize,
) {
    let mut run: Vec<Hash> = Vec::new();
    let mut first = 0;
    while out.len() + run.len() * Hash::BYTES < full
        && let Some((id, hash)) = queue.pop_front()
    {
        // It may have been cancelled meanwhile.
        let Some(flight) = flights.get_mut(&id) else { continue };
        flight.was_sent = true;
        let follows = id.checked_sub(first).is_some_and(|place| place as usize == run.len());
        if !follows || run.len() == batch.min(crate::wire::BATCH_MAX) {
            Request::get(out, first, priority, &run);
            run.clear();
        }
        if run.is_empty() {
            first = id;
        }
        run.push(hash);
    }
    Request::get(out, first, priority, &run);
}

/// One server.
pub(super) struct Link {
    pub(super) address: String,
    pub(super) name: Name,
    pub(super) seed: u64,
    pub(super) settings: Settings,
    pub(super) counters: Counters,
    pub(super) bell: Bell,
    state: Mutex<State>,
    /// A connection came or went, or the thread has ended.
    pub(super) changed: Condvar,
}

impl Link {
    pub(super) fn new(address: String, settings: Settings) -> std::io::Result<Self> {
        Ok(Self {
            seed: rank::seed(&address),
            name: Name::new(&address),
            address,
            settings,
            counters: Counters::default(),
            bell: Bell::new()?,
            state: Mutex::new(State::new()),
            changed: Condvar::new(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets others have the state until something changed, or for so long.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn wake(&self, state: MutexGuard<'_, State>) {
        let is_asleep = state.is_asleep;
        drop(state);
        if is_asleep {
            self.bell.ring();
        }
    }

    /// The state, where one more request may go.
    fn with_room(&self, priority: Priority) -> Result<(MutexGuard<'_, State>, Welcome), Refused> {
        let state = self.state();
        let Some(welcome) = state.welcome.filter(|_| state.is_usable()) else { return Err(Refused::NoPeer) };
        // Something is kept free for those who wait.
        let most = match priority {
            Priority::Waiting => welcome.in_flight,
            Priority::Prefetch => welcome.in_flight / 4 * 3,
        };
        if state.flights.len() >= most.min(self.settings.in_flight) as usize {
            add(&self.counters.full, 1);
            return Err(Refused::Full);
        }
        Ok((state, welcome))
    }

    pub(super) fn get(
        self: &Arc<Self>,
        hash: &Hash,
        priority: Priority,
        time: Duration,
        done: GetDone,
    ) -> Result<Ticket, Refused> {
        let due = Instant::now() + time;
        let (mut state, _) = self.with_room(priority)?;
        let id = state.launch(Reply::Get { hash: *hash, done }, due, 0);
        match priority {
            Priority::Waiting => state.waiting.push_back((id, *hash)),
            Priority::Prefetch => state.prefetch.push_back((id, *hash)),
        }
        self.wake(state);
        add(&self.counters.gets, 1);
        Ok(Ticket { link: Arc::downgrade(self), id, due })
    }

    pub(super) fn put(&self, hash: &Hash, bytes: &[u8], time: Duration, done: PutDone) -> Result<(), Refused> {
        let due = Instant::now() + time;
        let (mut state, welcome) = self.with_room(Priority::Prefetch)?;
        if bytes.is_empty() || bytes.len() > welcome.block_bytes as usize {
            return Err(Refused::Size);
        }
        // One block may always go.
        if state.put_bytes > 0 && state.put_bytes + bytes.len() > welcome.put_bytes as usize {
            return Err(Refused::Full);
        }
        let id = state.launch(Reply::Put { done }, due, bytes.len());
        let mut frame = Vec::new();
        Request::put(&mut frame, id, hash, bytes);
        state.puts.push_back(frame);
        self.sent(&mut state, id);
        self.wake(state);
        add(&self.counters.puts, 1);
        add(&self.counters.put_bytes, bytes.len() as u64);
        Ok(())
    }

    pub(super) fn has(&self, hashes: &[Hash], time: Duration, done: HasDone) -> Result<(), Refused> {
        let (state, welcome) = self.with_room(Priority::Prefetch)?;
        if hashes.is_empty() || hashes.len() > (welcome.batch as usize).min(crate::wire::BATCH_MAX) {
            return Err(Refused::Size);
        }
        self.ask(state, Reply::Has { count: hashes.len(), done }, time, |out, id| Request::has(out, id, hashes));
        Ok(())
    }

    pub(super) fn verdicts(
        &self,
        engine: &EngineId,
        hashes: &[Hash],
        time: Duration,
        done: VerdictsDone,
    ) -> Result<(), Refused> {
        let (state, _) = self.with_room(Priority::Waiting)?;
        if !(1..=VERDICT_BATCH_MAX).contains(&hashes.len()) {
            return Err(Refused::Size);
        }
        let reply = Reply::Verdicts { hashes: hashes.to_vec(), done };
        self.ask(state, reply, time, |out, id| Request::verdicts(out, id, engine.on_wire(), hashes));
        Ok(())
    }

    pub(super) fn tell(
        &self,
        engine: &EngineId,
        statements: &[&Statement],
        time: Duration,
        done: TellDone,
    ) -> Result<(), Refused> {
        let (state, _) = self.with_room(Priority::Prefetch)?;
        if !(1..=VERDICT_BATCH_MAX).contains(&statements.len()) {
            return Err(Refused::Size);
        }
        let records: Vec<_> = statements.iter().map(|statement| (statement.hash, statement.on_wire())).collect();
        self.ask(state, Reply::Tell { done }, time, |out, id| Request::tell(out, id, engine.on_wire(), &records));
        Ok(())
    }

    pub(super) fn stat(&self, time: Duration, done: StatDone) -> Result<(), Refused> {
        let (state, _) = self.with_room(Priority::Waiting)?;
        self.ask(state, Reply::Stat { done }, time, Request::stat);
        Ok(())
    }

    /// The thread that talks asks for itself, whatever the breaker says.
    pub(super) fn ping(&self, time: Duration) {
        let sent = Instant::now();
        self.ask(self.state(), Reply::Ping { sent }, time, Request::ping);
        add(&self.counters.pings, 1);
    }

    fn ask(
        &self,
        mut state: MutexGuard<'_, State>,
        reply: Reply,
        time: Duration,
        write: impl FnOnce(&mut Vec<u8>, u32),
    ) {
        let id = state.launch(reply, Instant::now() + time, 0);
        let mut frame = Vec::new();
        write(&mut frame, id);
        state.questions.push_back(frame);
        self.sent(&mut state, id);
        self.wake(state);
    }

    /// A frame that waits already is not taken back: it counts as sent.
    fn sent(&self, state: &mut State, id: u32) {
        if let Some(flight) = state.flights.get_mut(&id) {
            flight.was_sent = true;
        }
    }

    /// The network is another one.
    pub(super) fn nudge(&self) {
        let mut state = self.state();
        let now = Instant::now();
        state.is_nudged = true;
        state.nudged_at = Some(now);
        state.breaker.nudge(now);
        self.counters.ping_us.store(0, Ordering::Relaxed);
        drop(state);
        self.bell.ring();
    }

    pub(super) fn end(&self) {
        self.state().is_ended = true;
        self.bell.ring();
    }
}

/// A block that was asked for. Dropping it changes nothing.
#[derive(Debug)]
pub struct Ticket {
    link: Weak<Link>,
    id: u32,
    due: Instant,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Ticket {
    /// The block is not wanted any more. True: nobody was told of it, and nobody will be. False: somebody was, or is just
    /// being told. Takes microseconds and does not wait. The server is told, and its answer may come all the same; then its
    /// bytes are counted as late.
    pub fn cancel(self) -> bool {
        let Some(link) = self.link.upgrade() else { return false };
        let mut state = link.state();
        // A number that begins anew after 2³² requests is another request.
        if state.flights.get(&self.id).is_none_or(|flight| flight.due != self.due) {
            return false;
        }
        let reply = state.abandon(self.id);
        link.wake(state);
        add(&link.counters.cancelled, reply.is_some().into());
        // Whoever it is drops what it holds outside of the lock.
        reply.is_some()
    }
}
