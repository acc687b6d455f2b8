//! Who is asked when, and whose answer counts.
//!
//! [`Race`] decides for the reads of one device. It has no threads and no clock: it is told what happened and when, and
//! tells what is to be done. Whoever drives it carries out [`Action`]s, checks remote answers against the index, and
//! reports [`Event`]s. The rules:
//!
//! * The first *valid* answer wins. An error or a wrong hash never ends the race, whichever side it comes from.
//! * By [`Policy::Race`] and [`Policy::LocalFirst`] the local disk is always asked. By the others it is asked at once when
//!   the peer has nothing, and otherwise after a deadline.
//! * Only blocks whose hash is known to be right are asked of a peer.
//! * A remote request that has lost is cancelled. A local read that still waits here is withdrawn; one in service can't be.
//!   Reads that may yet be abandoned in service go to the device one at a time (in so many *lanes* as the device serves reads
//!   at once), the others wait in the order in which they were asked. So there is at most one abandoned read for a lane,
//!   and it is all that a read ever waits for more than it would with the local disk alone.
//! * A few reads that no peer has a chance to answer go out beside the one in its lane, as local reads that can't be abandoned:
//!   a device that waits between two reads of a file for the next one misses its turn.
//! * While an abandoned read is in service, a waiting read whose remote answer is late goes out at once. It is then a
//!   local read like any other: its remote request is cancelled, so that it can't be abandoned as well.
//! * Requests that were of no use, and answers that came too late, are paid from a budget that successes fill. A peer that
//!   fails is left alone and probed.
//! * By [`Policy::Race`] too, a device that mostly answers at once is waited for as by [`Policy::LocalFirst`], and a peer that
//!   would be the last in any case is asked now and then only.
//! * What the local disk can't read is asked of every peer, whatever the budget says.
//! * A read ends when it is answered or has failed, never before: a loop device takes no request back, and `fuser` tells the kernel that
//!   it knows no interrupts of FUSE, so whoever asked is there until then.

mod breaker;
mod budget;
mod events;
mod known;
mod latency;
mod peer;
mod policy;

use std::collections::{HashMap, VecDeque};

use budget::{Budget, WORTH};
use known::Known;

pub(crate) use breaker::Breaker;
pub use events::{Action, Answer, Counts, Event, PeerId, ReadId, RequestId, Settings, Source};
pub use latency::{Latency, Micros};
pub use policy::{Policy, QUIET_DISK_DEADLINE};

/// After the local disk has failed, each peer gets so long.
const RESCUE_LIMIT: Micros = 2_000_000;
/// Of reads for which no delay is worth while, one in so many asks the peer at once: it may have become quicker.
const EXPLORE_EACH: u32 = 32;

/// Reads that may be at the device beside those in lanes.
const BESIDE: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local {
    /// Not wanted yet.
    Idle,
    /// Waits for a lane.
    Held,
    /// At the device.
    InService {
        since: Micros,
        lane: Lane,
    },
    Failed,
}

/// By which way a read is at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// It may be abandoned.
    Own,
    /// It can't be abandoned any more, and is one of a few.
    Beside,
    /// It can't be abandoned, and isn't counted.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remote {
    /// To be asked later; the request is paid.
    Planned {
        at: Micros,
    },
    Out {
        request: RequestId,
        peer: PeerId,
        since: Micros,
        paid: bool,
    },
    /// Not, or no more.
    Over,
}

#[derive(Debug)]
struct Read {
    bytes: u64,
    checkable: bool,
    peers: Vec<PeerId>,
    /// Those that were asked, as bits of their places in `peers`.
    asked: u64,
    local: Local,
    remote: Remote,
    /// The local disk is asked at the latest now.
    local_at: Micros,
    /// Once the local disk has failed, the peer that was asked has until now.
    give_up_at: Micros,
    /// The remote answer is late, so the local read no longer waits for a lane.
    is_late: bool,
    explores: bool,
    /// No peer has a chance, unless the disk is much later than usual.
    is_hopeless: bool,
    armed: Option<Micros>,
}

impl Read {
    /// Whether a peer may yet answer, so that the local read would be abandoned.
    fn is_raced(&self) -> bool {
        self.remote != Remote::Over
    }
}

/// A local read in service whose read has ended.
#[derive(Clone, Copy, Debug)]
struct Abandoned {
    since: Micros,
    lane: Lane,
    /// When a paid request won, and of how many bytes: what it gains is known when the disk answers.
    won: Option<(Micros, u64)>,
}

/// The reads of one device.
#[derive(Debug)]
pub struct Race {
    settings: Settings,
    reads: HashMap<ReadId, Read>,
    abandoned: HashMap<ReadId, Abandoned>,
    /// Local reads that wait, in the order in which they came. Some may have ended meanwhile.
    held: VecDeque<ReadId>,
    lanes_used: usize,
    beside: usize,
    budget: Budget,
    local: Latency,
    peers: Known,
    /// Requests before this one were sent by another network: what they took says nothing.
    first_request: u64,
    since_explored: u32,
    counts: Counts,
}

impl Race {
    /// No reads yet, and nothing learnt.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Settings { lanes: settings.lanes.max(1), ..settings },
            reads: HashMap::new(),
            abandoned: HashMap::new(),
            held: VecDeque::new(),
            lanes_used: 0,
            beside: 0,
            budget: Budget::default(),
            local: Latency::default(),
            peers: Known::default(),
            first_request: 0,
            since_explored: 0,
            counts: Counts::default(),
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How long the local disk takes, as far as is known.
    pub fn local_latency(&self) -> &Latency {
        &self.local
    }

    /// Whether the device is so quick that a peer seldom helps.
    pub fn is_device_fast(&self) -> bool {
        policy::is_fast(&self.local)
    }

    /// How many local reads are in service whose reads have ended.
    pub fn abandoned(&self) -> usize {
        self.abandoned.len()
    }

    /// Whether nothing is under way on either side, and nothing is held for it.
    pub fn is_idle(&self) -> bool {
        self.reads.is_empty()
            && self.abandoned.is_empty()
            && self.held.is_empty()
            && self.lanes_used == 0
            && self.beside == 0
            && self.budget.is_unreserved()
    }

    /// Tells how long a peer took to answer something small, before it was ever asked for a block.
    pub fn seed(&mut self, peer: PeerId, round_trip: Micros) {
        self.peers.entry(peer).seed(round_trip);
    }

    /// Takes what happened at `now`, and appends what is to be done, in that order. Times never go back.
    pub fn on(&mut self, now: Micros, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Asked { read, bytes, checkable, peers, policy } => {
                let policy = policy.unwrap_or(self.settings.policy);
                self.ask(now, (read, policy), bytes, checkable, peers, actions);
            }
            Event::Local { read, done } => self.local(now, read, done, actions),
            Event::Remote { read, request, peer, bytes, answer } => {
                self.remote(now, (read, request, peer), bytes, answer, actions)
            }
            Event::Timer { read } => self.timer(now, read, actions),
            Event::NetworkChanged => {
                self.peers.begin_anew(now);
                self.first_request = self.counts.requests;
                self.budget.renew();
            }
        }
    }

    /// Bytes that nobody waits for came over the link: after a request was taken back, or of one that was, before that.
    pub fn came_for_nothing(&mut self, bytes: u64) {
        self.counts.late += 1;
        self.counts.late_bytes += bytes;
        self.budget.wasted(bytes);
    }

    fn ask(
        &mut self,
        now: Micros,
        (id, policy): (ReadId, Policy),
        bytes: u64,
        checkable: bool,
        peers: Vec<PeerId>,
        actions: &mut Vec<Action>,
    ) {
        self.counts.reads += 1;
        let is_fast = policy::is_fast(&self.local) || self.is_quicker_than(peers.first());
        self.budget.asked(bytes, is_fast);
        let mut read = Read {
            bytes,
            checkable,
            peers,
            asked: 0,
            local: Local::Idle,
            remote: Remote::Over,
            local_at: now,
            give_up_at: Micros::MAX,
            is_late: false,
            explores: false,
            is_hopeless: false,
            armed: None,
        };
        if let Some(peer) = self.paid_peer(now, &read, policy) {
            let mut wait = 0;
            match policy {
                Policy::RemoteFirst | Policy::QuietDisk => {
                    read.local_at = now + policy::deadline(policy, &self.local);
                }
                Policy::Race | Policy::LocalFirst => match self.usual_delay(peer, bytes) {
                    Some(_) if policy == Policy::Race && !is_fast => {}
                    Some(delay) => wait = delay,
                    None => {
                        read.is_hopeless = true;
                        self.counts.no_chance += 1;
                        (wait, read.explores) = self.delay_of_hopeless();
                    }
                },
            }
            read.remote = Remote::Planned { at: now + wait };
        }
        let local_at_once = read.local_at == now;
        self.reads.insert(id, read);
        if local_at_once {
            self.want_local(now, id, actions);
        }
        self.go_on(now, id, actions);
    }

    /// The peer that a new read could ask, whose request is then paid.
    fn paid_peer(&mut self, now: Micros, read: &Read, policy: Policy) -> Option<PeerId> {
        if !read.checkable {
            self.counts.not_checkable += 1;
            return None;
        }
        let Some((_, peer)) = self.next_peer(now, read) else {
            self.counts.no_peer += 1;
            return None;
        };
        if !self.budget.reserve(policy == Policy::QuietDisk) {
            self.counts.no_budget += 1;
            return None;
        }
        Some(peer)
    }

    /// The first peer that wasn't asked yet and isn't left alone, with its place.
    fn next_peer(&self, now: Micros, read: &Read) -> Option<(usize, PeerId)> {
        self.peers_left(read).find(|(_, id)| self.peers.get(*id).is_none_or(|peer| peer.breaker.allows(now)))
    }

    fn peers_left<'a>(&self, read: &'a Read) -> impl Iterator<Item = (usize, PeerId)> + use<'a> {
        read.peers.iter().copied().enumerate().take(64).filter(|(place, _)| read.asked >> place & 1 == 0)
    }

    /// Whether the device is nearly a fast one, and mostly answers before a peer.
    fn is_quicker_than(&self, peer: Option<&PeerId>) -> bool {
        let needs = peer.and_then(|peer| self.peers.get(*peer)).map(|peer| peer.needs(0));
        needs.is_some_and(|needs| policy::is_nearly_fast(&self.local, needs))
    }

    /// How long the disk is waited for before a peer is asked for so many bytes; `None` where it has no chance.
    fn usual_delay(&mut self, peer: PeerId, bytes: u64) -> Option<Micros> {
        policy::delay(&self.local, self.peers.entry(peer).needs(bytes))
    }

    /// The same where no peer has a chance, and whether that is a trial.
    fn delay_of_hopeless(&mut self) -> (Micros, bool) {
        self.since_explored += 1;
        // Behind a read that may be abandoned it would wait, and so would all that come after it.
        if self.since_explored >= EXPLORE_EACH && self.lanes_used < self.settings.lanes {
            self.since_explored = 0;
            return (0, true);
        }
        (policy::tail(&self.local), false)
    }

    /// The local disk is to be asked as soon as its order allows.
    fn want_local(&mut self, now: Micros, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        read.local = Local::Held;
        self.held.push_back(id);
        self.let_out(now, actions);
    }

    /// Sends waiting local reads to the device, in their order, as far as lanes allow.
    fn let_out(&mut self, now: Micros, actions: &mut Vec<Action>) {
        while let Some(&id) = self.held.front() {
            let Some(read) = self.reads.get_mut(&id).filter(|read| read.local == Local::Held) else {
                self.held.pop_front();
                continue;
            };
            let is_full = self.lanes_used >= self.settings.lanes;
            let may_beside = read.is_hopeless
                && !read.explores
                && matches!(read.remote, Remote::Planned { .. })
                && self.beside < BESIDE
                && self.abandoned.is_empty();
            let lane = match read.is_raced() {
                true if !is_full => Lane::Own,
                true if read.is_late => Lane::None,
                true if may_beside => Lane::Beside,
                true => return,
                false => Lane::None,
            };
            self.held.pop_front();
            let hurries = read.is_raced() && lane == Lane::None;
            read.local = Local::InService { since: now, lane };
            match lane {
                Lane::Own => self.lanes_used += 1,
                Lane::Beside => {
                    self.beside += 1;
                    self.end_remote(now, id, actions);
                }
                Lane::None if hurries => {
                    self.counts.hurried += 1;
                    // Should the disk fail, whoever is late now may be asked again.
                    read.asked = 0;
                    self.end_remote(now, id, actions);
                }
                Lane::None => {}
            }
            actions.push(Action::StartLocal { read: id });
        }
    }

    /// Does what is due for a read, and arms its timer for the rest.
    fn go_on(&mut self, now: Micros, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get(&id) else { return };
        if read.local == Local::Idle && now >= read.local_at {
            self.want_local(now, id, actions);
        }
        let Some(read) = self.reads.get(&id) else { return };
        if let Remote::Planned { at } = read.remote {
            // Behind an abandoned read the disk is late in any case.
            let waits_for_abandoned = read.local == Local::Held && !self.abandoned.is_empty();
            if now >= at || waits_for_abandoned {
                self.ask_planned(now, id, actions);
            }
        }
        let Some(read) = self.reads.get_mut(&id) else { return };
        if let (Local::Held, Some(late_at), false) = (read.local, late_at(read, &self.local, &self.peers), read.is_late)
            && now >= late_at
        {
            read.is_late = true;
            self.let_out(now, actions);
        }
        self.arm(id, actions);
    }

    /// Asks a peer by the request that was paid when the read was asked.
    fn ask_planned(&mut self, now: Micros, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get(&id) else { return };
        match self.next_peer(now, read) {
            Some((place, peer)) => self.send(now, id, place, peer, true, actions),
            // It has failed others since.
            None => {
                self.budget.released();
                self.remote_over(now, id, actions);
            }
        }
    }

    fn send(&mut self, now: Micros, id: ReadId, place: usize, peer: PeerId, paid: bool, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        read.asked |= 1 << place;
        if read.local == Local::Failed {
            read.give_up_at = now + RESCUE_LIMIT;
        }
        let request = RequestId(self.counts.requests);
        read.remote = Remote::Out { request, peer, since: now, paid };
        self.peers.entry(peer).breaker.sent();
        self.counts.requests += 1;
        actions.push(Action::StartRemote { read: id, request, peer });
    }

    /// No peer will answer this read as it stands: the local disk must.
    fn remote_over(&mut self, now: Micros, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        read.remote = Remote::Over;
        match &mut read.local {
            Local::Idle => self.want_local(now, id, actions),
            Local::Held => self.let_out(now, actions),
            // It can't be abandoned any more, so others need not wait for it.
            Local::InService { lane, .. } => {
                if *lane == Lane::Own {
                    *lane = Lane::None;
                    self.lanes_used -= 1;
                    self.let_out(now, actions);
                }
            }
            Local::Failed => self.rescue(now, id, actions),
        }
    }

    /// The local disk has failed: asks the next peer, or gives up.
    fn rescue(&mut self, now: Micros, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get(&id) else { return };
        let any = || self.peers_left(read).next();
        let next = if read.checkable { self.next_peer(now, read).or_else(any) } else { None };
        match next {
            Some((place, peer)) => {
                self.send(now, id, place, peer, false, actions);
                self.arm(id, actions);
            }
            None => {
                self.reads.remove(&id);
                self.counts.failed += 1;
                actions.push(Action::Fail { read: id });
            }
        }
    }

    /// Takes back what was planned or asked of a peer.
    fn end_remote(&mut self, now: Micros, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        match std::mem::replace(&mut read.remote, Remote::Over) {
            Remote::Over => {}
            Remote::Planned { .. } => self.budget.released(),
            Remote::Out { request, peer, since, paid } => {
                let (bytes, waited) = (read.bytes, now - since);
                if request.0 >= self.first_request {
                    self.peers.entry(peer).given_up(now, bytes, waited);
                }
                self.lost(paid);
                actions.push(Action::CancelRemote { read: id, request, peer });
            }
        }
    }

    fn lost(&mut self, paid: bool) {
        if paid {
            self.counts.extra += 1;
            self.budget.lost();
        }
    }

    fn local(&mut self, now: Micros, id: ReadId, done: bool, actions: &mut Vec<Action>) {
        if let Some(Abandoned { since, lane, won }) = self.abandoned.remove(&id) {
            self.local.answered(now - since);
            if let Some((at, bytes)) = won {
                self.budget.gained(bytes, now - at);
            }
            self.free_lane(now, lane, actions);
            return;
        }
        let Some(read) = self.reads.get_mut(&id) else { return };
        let Local::InService { since, lane } = read.local else { return };
        self.local.answered(now - since);
        read.local = Local::Failed;
        if done {
            self.end_remote(now, id, actions);
            self.reads.remove(&id);
            self.counts.local += 1;
            actions.push(Action::Answer { read: id, source: Source::Local });
        } else if let Remote::Out { .. } = read.remote {
            read.give_up_at = now + RESCUE_LIMIT;
            self.arm(id, actions);
        } else {
            self.end_remote(now, id, actions);
            self.rescue(now, id, actions);
        }
        self.free_lane(now, lane, actions);
    }

    fn free_lane(&mut self, now: Micros, lane: Lane, actions: &mut Vec<Action>) {
        self.lanes_used -= usize::from(lane == Lane::Own);
        self.beside -= usize::from(lane == Lane::Beside);
        self.let_out(now, actions);
    }

    fn remote(
        &mut self,
        now: Micros,
        (id, request, peer): (ReadId, RequestId, PeerId),
        bytes: u64,
        answer: Answer,
        actions: &mut Vec<Action>,
    ) {
        let out = self.reads.get_mut(&id).and_then(|read| match read.remote {
            Remote::Out { request: last, since, paid, .. } if last == request => Some((read, since, paid)),
            _ => None,
        });
        let Some((read, since, paid)) = out else {
            if matches!(answer, Answer::Valid | Answer::Invalid) {
                self.came_for_nothing(bytes);
            }
            return;
        };
        let (took, is_of_this_network) = (now - since, request.0 >= self.first_request);
        let known = self.peers.entry(peer);
        match answer {
            Answer::Valid => {
                if is_of_this_network {
                    known.answered(read.bytes, took);
                }
                known.breaker.answered();
                if read.explores {
                    // The next one tries again.
                    self.since_explored = EXPLORE_EACH;
                }
                self.answer_by_peer(now, id, (peer, paid), actions);
                return;
            }
            Answer::Absent => known.breaker.answered(),
            Answer::Invalid => {
                known.breaker.lied(now);
                self.counts.invalid += 1;
            }
            Answer::Failed if !is_of_this_network => {}
            Answer::Failed => {
                known.unanswered(read.bytes, took);
                known.breaker.failed(now);
            }
        }
        // Of several blocks some may have come before one was missing.
        self.budget.wasted(bytes);
        self.lost(paid);
        self.remote_over(now, id, actions);
    }

    fn answer_by_peer(&mut self, now: Micros, id: ReadId, (peer, paid): (PeerId, bool), actions: &mut Vec<Action>) {
        let Some(read) = self.reads.remove(&id) else { return };
        if paid {
            self.budget.won();
        }
        let gains_later = matches!(read.local, Local::InService { .. }) && policy::is_fast(&self.local);
        if paid && !gains_later {
            self.budget.gained(read.bytes, WORTH);
        }
        self.counts.remote += 1;
        self.counts.rescued += u64::from(read.local == Local::Failed);
        actions.push(Action::Answer { read: id, source: Source::Remote(peer) });
        let won = (paid && gains_later).then_some((now, read.bytes));
        self.leave_local(now, id, (read.local, won), actions);
    }

    /// The read has ended, and its local side is of no use.
    fn leave_local(
        &mut self,
        now: Micros,
        id: ReadId,
        (local, won): (Local, Option<(Micros, u64)>),
        actions: &mut Vec<Action>,
    ) {
        match local {
            Local::InService { since, lane } => {
                self.counts.abandoned += 1;
                self.abandoned.insert(id, Abandoned { since, lane, won });
                // What waits behind it is better asked of its peer as well.
                for waiting in self.held.clone() {
                    self.go_on(now, waiting, actions);
                }
            }
            Local::Held => {
                self.counts.withdrawn += 1;
                self.let_out(now, actions);
            }
            Local::Idle | Local::Failed => {}
        }
    }

    fn timer(&mut self, now: Micros, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        read.armed = None;
        if now >= read.give_up_at {
            self.end_remote(now, id, actions);
            self.rescue(now, id, actions);
            return;
        }
        self.go_on(now, id, actions);
    }

    fn arm(&mut self, id: ReadId, actions: &mut Vec<Action>) {
        let Some(read) = self.reads.get_mut(&id) else { return };
        let remote = match (read.remote, read.local) {
            (Remote::Planned { at }, _) => Some(at),
            (Remote::Out { .. }, Local::Failed) => Some(read.give_up_at),
            (Remote::Out { .. }, Local::Held) if !read.is_late => late_at(read, &self.local, &self.peers),
            _ => None,
        };
        let local = (read.local == Local::Idle).then_some(read.local_at);
        let due = remote.into_iter().chain(local).min();
        if let Some(at) = due
            && read.armed != due
        {
            read.armed = due;
            actions.push(Action::Wake { read: id, at });
        }
    }
}

/// When the remote answer of a read is late.
fn late_at(read: &Read, local: &Latency, peers: &Known) -> Option<Micros> {
    let Remote::Out { peer, since, .. } = read.remote else { return None };
    peers.get(peer).map(|peer| since + policy::late(local, peer.usual_most(read.bytes)))
}
