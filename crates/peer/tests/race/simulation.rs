//! A device and peers by a simulated clock, driven by a [`Race`].
//!
//! The device serves as many reads at the same time as the race has lanes, each by itself, in the order in which they come: what
//! a read waits for there can be bounded.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
};

use onesweep_peer::{
    id::{Hash, TrustDomain},
    race::{
        Action, Answer, Event, Micros, PeerId, Policy, QUIET_DISK_DEADLINE, Race, ReadId, RequestId, Settings, Source,
    },
};

pub(crate) const BLOCK: u64 = 4096;

/// What a peer does with a request, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Truth(Micros),
    Lie(Micros),
    Absent(Micros),
    Error(Micros),
    Never,
}

/// A read, and how each side will take it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// After the read before was asked, or, in a closed loop, after it ended.
    pub(crate) pause: Micros,
    pub(crate) service: Micros,
    pub(crate) bytes: u64,
    pub(crate) disk_fails: bool,
    pub(crate) checkable: bool,
    pub(crate) replies: Vec<Reply>,
    /// The peer answers though it was told not to.
    pub(crate) deaf: bool,
    /// Its own policy, as the pattern of a file has it.
    pub(crate) policy: Option<Policy>,
    /// The network is another one just before it is asked.
    pub(crate) on_another_network: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Ask(usize),
    DiskDone(usize),
    Reply(RequestId),
    Timer(usize),
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Local,
    Remote,
    Failed,
}

#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) asked: Micros,
    pub(crate) end: Option<(Micros, End)>,
    /// How long the local disk is given to the peer.
    pub(crate) deadline: Micros,
    /// What the device had to do when it was asked: the rest of what is in service, abandoned reads too, and all reads asked before.
    pub(crate) ahead: Micros,
    /// When its local read went to the device.
    pub(crate) started: Option<Micros>,
    content: u64,
    hash: Hash,
}

pub(crate) struct Simulation<'a> {
    race: Race,
    policy: Policy,
    lanes: usize,
    plan: &'a [Planned],
    closed: bool,
    domain: TrustDomain,
    now: Micros,
    agenda: BinaryHeap<Reverse<(Micros, u64, Happening)>>,
    order: u64,
    /// Reads at the device that wait there, and those in service with the times when they end.
    disk: VecDeque<usize>,
    in_service: Vec<(usize, Micros)>,
    /// Requests that are out: read, peer, and whether they were cancelled.
    remotes: HashMap<RequestId, (usize, PeerId, bool)>,
    pub(crate) told: Vec<Told>,
}

/// A peer by its place.
fn peer(place: usize) -> PeerId {
    PeerId(1 << place)
}

fn content(read: usize) -> u64 {
    (read as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(policy: Policy, lanes: usize, plan: &'a [Planned], closed: bool) -> Self {
        Self {
            race: Race::new(Settings { policy, lanes }),
            policy,
            lanes,
            plan,
            closed,
            domain: TrustDomain::from_key([7; 32]),
            now: 0,
            agenda: BinaryHeap::new(),
            order: 0,
            disk: VecDeque::new(),
            in_service: Vec::new(),
            remotes: HashMap::new(),
            told: Vec::new(),
        }
    }

    /// The first peer answered something small before it was asked for anything.
    pub(crate) fn seeded(mut self, round_trip: Micros) -> Self {
        self.race.seed(peer(0), round_trip);
        self
    }

    /// Runs until nothing happens any more.
    pub(crate) fn run(mut self) -> (Race, Vec<Told>) {
        if let Some(first) = self.plan.first() {
            self.at(first.pause, Happening::Ask(0));
        }
        while let Some(Reverse((at, _, happening))) = self.agenda.pop() {
            assert!(self.order < 1_000_000, "it goes on for ever");
            self.now = at;
            self.happen(happening);
        }
        (self.race, self.told)
    }

    fn at(&mut self, at: Micros, happening: Happening) {
        self.order += 1;
        self.agenda.push(Reverse((at, self.order, happening)));
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Ask(read) => self.ask(read),
            Happening::DiskDone(read) => {
                let before = self.in_service.len();
                self.in_service.retain(|(other, _)| *other != read);
                assert_eq!(self.in_service.len() + 1, before);
                self.serve();
                let done = !self.plan[read].disk_fails;
                self.tell(Event::Local { read: ReadId(read as u64), done });
            }
            Happening::Reply(request) => self.reply(request),
            Happening::Timer(read) => self.tell(Event::Timer { read: ReadId(read as u64) }),
        }
    }

    fn ask(&mut self, read: usize) {
        let plan = &self.plan[read];
        let content = content(read);
        let hash = self.domain.hash(&content.to_le_bytes());
        if plan.on_another_network {
            self.tell(Event::NetworkChanged);
        }
        let (ahead, deadline) = (self.ahead(read), self.deadline(read));
        self.told.push(Told { asked: self.now, end: None, deadline, ahead, started: None, content, hash });
        if !self.closed {
            self.ask_next(read);
        }
        let peers = (0..plan.replies.len()).map(peer).collect();
        let (id, checkable) = (ReadId(read as u64), plan.checkable);
        let event = Event::Asked { read: id, bytes: plan.bytes, checkable, peers, policy: plan.policy };
        self.tell(event);
    }

    fn ask_next(&mut self, read: usize) {
        if let Some(next) = self.plan.get(read + 1) {
            self.at(self.now + next.pause, Happening::Ask(read + 1));
        }
    }

    /// The local disk alone would first serve all reads asked before that somebody waits for, or did when it began. What is
    /// in service since a peer won comes on top: at most one read for each lane, as is checked after each event.
    fn ahead(&self, read: usize) -> Micros {
        let in_service: Micros = self.in_service.iter().map(|(_, until)| until - self.now).sum();
        let is_there = |read: &usize| self.is_at_device(*read);
        let waiting = (0..read).filter(|earlier| self.told[*earlier].end.is_none() && !is_there(earlier));
        let before: Micros = self.disk.iter().copied().chain(waiting).map(|earlier| self.plan[earlier].service).sum();
        in_service + before
    }

    fn deadline(&self, read: usize) -> Micros {
        match self.policy_of(read) {
            Policy::Race | Policy::LocalFirst => 0,
            Policy::RemoteFirst => self.race.local_latency().median().unwrap_or(2000),
            Policy::QuietDisk => QUIET_DISK_DEADLINE,
        }
    }

    fn policy_of(&self, read: usize) -> Policy {
        self.plan[read].policy.unwrap_or(self.policy)
    }

    fn is_at_device(&self, read: usize) -> bool {
        self.disk.contains(&read) || self.in_service.iter().any(|(other, _)| *other == read)
    }

    fn serve(&mut self) {
        while self.in_service.len() < self.lanes
            && let Some(next) = self.disk.pop_front()
        {
            let until = self.now + self.plan[next].service;
            self.in_service.push((next, until));
            self.at(until, Happening::DiskDone(next));
        }
    }

    /// Checks a remote answer as a client does, by the hash that its index has.
    fn reply(&mut self, request: RequestId) {
        let (read, peer, cancelled) = self.remotes.remove(&request).expect("asked for");
        let reply = self.reply_of(read, peer);
        if cancelled && !self.plan[read].deaf {
            return;
        }
        let content = self.told[read].content;
        let came = match reply {
            Reply::Truth(_) => Ok(content),
            Reply::Lie(_) => Ok(content ^ 1),
            Reply::Absent(_) => Err(Answer::Absent),
            Reply::Error(_) | Reply::Never => Err(Answer::Failed),
        };
        let answer = match came {
            Ok(bytes) if self.domain.hash(&bytes.to_le_bytes()) == self.told[read].hash => Answer::Valid,
            Ok(_) => Answer::Invalid,
            Err(answer) => answer,
        };
        let bytes = if came.is_ok() { self.plan[read].bytes } else { 0 };
        self.tell(Event::Remote { read: ReadId(read as u64), request, peer, bytes, answer });
        if answer == Answer::Valid && !cancelled {
            let end = self.told[read].end.expect("the first valid answer ends the read");
            assert_eq!(end, (self.now, End::Remote), "read {read}");
        }
    }

    fn reply_of(&self, read: usize, peer: PeerId) -> Reply {
        self.plan[read].replies[peer.0.trailing_zeros() as usize]
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.race.on(self.now, event, &mut actions);
        for action in actions {
            self.carry_out(action);
        }
        let won = |read: &&usize| matches!(self.told[**read].end, Some((_, End::Remote)));
        let abandoned = self.disk.iter().chain(self.in_service.iter().map(|(read, _)| read)).filter(won).count();
        assert!(abandoned <= self.lanes, "{abandoned} abandoned reads at the device");
        assert!(self.race.counts().extra <= self.allowed(), "{:?}", self.race.counts());
    }

    /// Extra requests: 8 at the start, 4 % of the reads, two for each success, one for each new network, and as many as there are reads
    /// that leave the disk in peace.
    fn allowed(&self) -> u64 {
        let counts = self.race.counts();
        let asked = &self.plan[..self.told.len()];
        let networks = self.plan.iter().take(self.told.len() + 1).filter(|read| read.on_another_network).count();
        let patient = (0..asked.len()).filter(|read| self.policy_of(*read) == Policy::QuietDisk).count();
        8 + counts.reads / 25 + 2 * counts.remote + (networks + patient) as u64
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::StartLocal { read } => {
                let read = read.0 as usize;
                assert_eq!(self.told[read].started.replace(self.now), None, "read {read} is started twice");
                assert_eq!(self.told[read].end, None, "read {read} has ended");
                self.disk.push_back(read);
                self.serve();
            }
            Action::StartRemote { read, request, peer } => {
                let read = read.0 as usize;
                assert!(self.plan[read].checkable, "read {read} can't be checked");
                let out = |(other, _, cancelled): &(usize, PeerId, bool)| *other == read && !cancelled;
                assert!(!self.remotes.values().any(out), "read {read} has a request out");
                assert!(self.remotes.insert(request, (read, peer, false)).is_none());
                match self.reply_of(read, peer) {
                    Reply::Truth(after) | Reply::Lie(after) | Reply::Absent(after) | Reply::Error(after) => {
                        self.at(self.now + after, Happening::Reply(request));
                    }
                    Reply::Never => {}
                }
            }
            Action::CancelRemote { request, .. } => {
                let (_, _, cancelled) = self.remotes.get_mut(&request).expect("is out");
                assert!(!std::mem::replace(cancelled, true), "cancelled twice");
            }
            Action::Wake { read, at } => self.at(at.max(self.now), Happening::Timer(read.0 as usize)),
            Action::Answer { read, source } => {
                let read = read.0 as usize;
                match source {
                    Source::Local => {
                        assert!(!self.plan[read].disk_fails);
                        self.end(read, End::Local);
                    }
                    Source::Remote(peer) => {
                        let reply = self.reply_of(read, peer);
                        assert!(matches!(reply, Reply::Truth(_)), "read {read} got {reply:?}");
                        self.end(read, End::Remote);
                    }
                }
            }
            Action::Fail { read } => {
                let plan = &self.plan[read.0 as usize];
                assert!(plan.disk_fails);
                self.end(read.0 as usize, End::Failed);
            }
        }
    }

    fn end(&mut self, read: usize, end: End) {
        assert_eq!(self.told[read].end, None, "read {read} ends twice");
        self.told[read].end = Some((self.now, end));
        if self.closed {
            self.ask_next(read);
        }
    }
}
