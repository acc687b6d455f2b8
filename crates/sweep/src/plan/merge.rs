//! From steps to requests.
//!
//! One look ahead at the schedule is enough, because its steps come by rising address: a request is open until a piece
//! comes that can't join it. A piece that overlaps the open request is copied as far as the request has its bytes and
//! read beyond. What passes the longest request is a *rest*: it opens the next one, after all pieces that lie before it.
//!
//! ```text
//! device     |--------- A ---------|
//!               |------- B -----------|        |--- C ---|
//! request 1  |--- read A ---|                                      cut at the longest request;
//!               |- copy B --|                                      B overlaps and is copied
//! request 2                 |- rA -|rB| (gap) |- read C -|         the rests: A is read, B copied,
//!                           |- cB -|                               then B read; C is near enough
//! ```
//!
//! A request is also closed before a file whose cost would pass the budget if memory were freed only behind requests.
//! So merging changes when bytes come, never which bin a file is in.

use std::collections::{HashMap, VecDeque};

use super::{
    fragment::Piece,
    request::{Part, Request, RequestShape, Strategy},
    schedule::{Schedule, Step},
    source::PlanSource,
};

/// The requests of a plan, one at a time.
///
/// Their addresses rise as those of the schedule's steps do, with one exception: when a piece longer than the longest
/// request overlaps one of another file that there is no memory for yet, the long piece is finished first, and the sweep
/// returns to the other.
#[derive(Debug)]
pub struct Requests<S> {
    schedule: Schedule<S>,
    shape: RequestShape,
    ahead: Option<Step>,
    /// What was cut off pieces at the end of their request, by address.
    rests: VecDeque<Step>,
    /// For each file with rests: how many, and whether its last step has been placed.
    unfinished: HashMap<u32, Unfinished>,
    /// The address of the last step that was placed.
    reached: u64,
    /// What the files admitted by earlier requests and not completed by them cost.
    held: u64,
    peak: u64,
    open: Open,
}

#[derive(Debug, Default)]
struct Unfinished {
    rests: u32,
    last_step_placed: bool,
}

/// The request being made, apart from the request itself.
#[derive(Debug, Default)]
struct Open {
    /// The address of the piece that joined last.
    last: u64,
    /// No byte from here on can join.
    limit: u64,
    /// All its pieces may be shared.
    shared: bool,
    /// What its admitted files cost.
    admitted: u64,
    /// Which of its parts are reads.
    reads: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Step,
    Rest,
}

impl<S: PlanSource> Requests<S> {
    /// Makes requests of the given shape from the steps of `schedule`.
    pub fn new(schedule: Schedule<S>, shape: RequestShape) -> Self {
        Self {
            schedule,
            shape: RequestShape { max_request: shape.max_request.max(1), ..shape },
            ahead: None,
            rests: VecDeque::new(),
            unfinished: HashMap::new(),
            reached: 0,
            held: 0,
            peak: 0,
            open: Open::default(),
        }
    }

    /// The schedule, which may be one step ahead of the requests.
    pub fn schedule(&self) -> &Schedule<S> {
        &self.schedule
    }

    /// What the plan is made from.
    pub fn source(&self) -> &S {
        self.schedule.source()
    }

    /// The shape of the requests.
    pub fn shape(&self) -> RequestShape {
        self.shape
    }

    /// The most bytes that were held at any request so far, when memory is freed only behind completed requests.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Makes `request` the next one, and says whether there was one. Its lists are reused, so an engine that keeps a few
    /// requests and passes them round allocates nothing.
    pub fn next_into(&mut self, request: &mut Request) -> bool {
        request.clear();
        self.open.reads.clear();
        self.open.admitted = 0;
        while let Some((turn, item)) = self.turn() {
            if request.length > 0 && !self.joins(request, &item) {
                break;
            }
            self.take(turn, &item);
            self.place(request, turn, &item);
        }
        self.held += self.open.admitted;
        for &file in &request.completes {
            self.held -= self.schedule.source().cost(file);
        }
        request.length > 0
    }

    /// What comes next: a step that lies before all rests, or the first rest. A step of a later run, or one that has to
    /// wait for memory, comes after the rests: they belong to earlier steps.
    fn turn(&mut self) -> Option<(Turn, Step)> {
        if self.ahead.is_none() {
            self.ahead = self.schedule.next();
        }
        match (self.rests.front(), self.ahead) {
            (None, step) => step.map(|step| (Turn::Step, step)),
            (Some(rest), Some(step)) if self.comes_before(&step, rest) => Some((Turn::Step, step)),
            (Some(rest), _) => Some((Turn::Rest, *rest)),
        }
    }

    fn comes_before(&self, step: &Step, rest: &Step) -> bool {
        self.shape.strategy != Strategy::Vanilla
            && step.bin == rest.bin
            && (self.reached..rest.piece.address).contains(&step.piece.address)
            && self.has_memory_for(step)
    }

    fn has_memory_for(&self, step: &Step) -> bool {
        let free = self.schedule.budget().bytes() - self.held - self.open.admitted;
        !step.admits || self.schedule.source().cost(step.piece.file) <= free
    }

    fn joins(&self, request: &Request, item: &Step) -> bool {
        let piece = &item.piece;
        if !(request.has_address() && piece.has_address() && item.bin == request.bin && piece.address >= self.open.last)
        {
            return false;
        }
        let overlaps = piece.address < request.end();
        let near = match self.shape.strategy {
            Strategy::Vanilla => false,
            Strategy::Unmerged => overlaps && self.open.shared && piece.shared,
            Strategy::Merged if overlaps => true,
            Strategy::Merged => piece.address - request.end() <= self.shape.gap && piece.end() <= self.open.limit,
        };
        near && self.has_memory_for(item)
    }

    fn take(&mut self, turn: Turn, item: &Step) {
        match turn {
            Turn::Step => {
                self.ahead = None;
                self.reached = item.piece.address;
            }
            Turn::Rest => {
                self.rests.pop_front();
            }
        }
    }

    fn place(&mut self, request: &mut Request, turn: Turn, item: &Step) {
        let file = item.piece.file;
        if request.length == 0 {
            request.address = item.piece.address;
            request.bin = item.bin;
            self.open.limit = item.piece.address.saturating_add(self.shape.max_request);
            self.open.shared = item.piece.shared;
        }
        request.epoch = request.epoch.max(item.epoch);
        self.open.last = item.piece.address;
        if item.admits {
            let cost = self.schedule.source().cost(file);
            debug_assert!(self.has_memory_for(item), "a schedule admits what fits");
            self.open.admitted += cost;
            self.peak = self.peak.max(self.held + self.open.admitted);
            request.admits.push(file);
        }
        let placed = self.put(request, &item.piece);
        if placed < item.piece.length {
            self.put_off(item, placed);
        }
        if self.is_complete(turn, item) {
            request.completes.push(file);
        }
    }

    /// Adds as much of the piece as the request may hold, and says how much that is.
    fn put(&mut self, request: &mut Request, piece: &Piece) -> u64 {
        if !piece.has_address() {
            let length = piece.length.min(self.shape.max_request);
            request.parts.push(Part::Read(piece.part(0, length)));
            request.length = length;
            return length;
        }
        let end = request.end();
        if piece.address > end {
            request.parts.push(Part::Gap { length: piece.address - end });
        }
        self.copy(request, piece, piece.end().min(end));
        let (from, to) = (piece.address.max(end), piece.end().min(self.open.limit));
        if from < to {
            self.open.reads.push(request.parts.len() as u32);
            request.parts.push(Part::Read(piece.part(from - piece.address, to - from)));
            request.length = to - request.address;
        }
        piece.end().min(self.open.limit) - piece.address
    }

    /// Copies what lies before `until` from the reads that have it. There is no gap in between, since every gap ends
    /// where a piece begins that joined before.
    fn copy(&self, request: &mut Request, piece: &Piece, until: u64) {
        let read = |request: &Request, at: u32| match request.parts[at as usize] {
            Part::Read(read) => read,
            Part::Gap { .. } | Part::Copy { .. } => unreachable!("the list of reads names reads"),
        };
        let mut from = piece.address;
        let first = self.open.reads.partition_point(|&at| read(request, at).end() <= from);
        for &at in &self.open.reads[first..] {
            if from >= until {
                break;
            }
            let read = read(request, at);
            let to = read.end().min(until);
            request.parts.push(Part::Copy {
                from_file: read.file,
                from_offset: read.offset + (from - read.address),
                to: piece.part(from - piece.address, to - from),
            });
            from = to;
        }
    }

    fn put_off(&mut self, item: &Step, placed: u64) {
        let piece = item.piece.part(placed, item.piece.length - placed);
        let rest = Step { piece, admits: false, completes: false, ..*item };
        // Rests are cut at rising limits, but for a sweep that had to return.
        let at = self.rests.partition_point(|other| other.piece.address <= piece.address);
        self.rests.insert(at, rest);
        self.unfinished.entry(piece.file).or_default().rests += 1;
    }

    /// Called when the item was placed and its own rest put off.
    fn is_complete(&mut self, turn: Turn, item: &Step) -> bool {
        if self.unfinished.is_empty() {
            return item.completes;
        }
        let Some(unfinished) = self.unfinished.get_mut(&item.piece.file) else { return item.completes };
        unfinished.rests -= u32::from(turn == Turn::Rest);
        unfinished.last_step_placed |= item.completes;
        if unfinished.rests > 0 {
            return false;
        }
        let complete = unfinished.last_step_placed;
        self.unfinished.remove(&item.piece.file);
        complete
    }
}

impl<S: PlanSource> Iterator for Requests<S> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let mut request = Request::default();
        self.next_into(&mut request).then_some(request)
    }
}
