//! Pieces in their order, under a budget.
//!
//! In fragment order a sweep is the merge of two streams: the files by their first fragment, and the unread pieces of
//! the files that have been admitted (DAFT II.B). A file's whole buffer is reserved at its first fragment and is free
//! again after its last.
//!
//! When a file doesn't fit in the free bytes, the batch threshold S decides (DAFT II.C). Bins are passes over the disk;
//! each considers the files that the earlier bins refused, in the order of their first fragments.
//!
//! ```text
//! file fits ──────────────────────────► admitted
//! else, S bytes or more are free ─────► refused: it waits for the next bin, this bin goes on with the next file
//! else ───────────────────────────────► clean-up: no file is admitted, waiting files are read on in address order
//!                                       until S bytes are free; then the sweep returns to this file
//! ```
//!
//! S = 0 never cleans up: the paper's first fit, Dynamic Bin Packing. S = the budget never refuses: the paper's
//! on-demand cleaning, a single bin. A larger S makes fewer passes that return more often.
//!
//! A budget that defers has two bins, of which the first refuses nothing and never cleans up: it leaves out from the start
//! what would hold much for long.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    deferral,
    error::PlanError,
    fragment::{NO_ADDRESS, Piece},
    source::PlanSource,
};

/// The order in which a schedule goes through its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweepOrder {
    /// All pieces of all files by their address: the sweep.
    Fragment,
    /// One whole file after the other, each from its front to its back. Files that the list leaves out are not read.
    WholeFiles(Vec<u32>),
}

/// The memory that files waiting for their pieces may hold, and the batch threshold S.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    bytes: u64,
    threshold: u64,
    defers: bool,
}

impl Budget {
    /// A bin that has refused a file takes files again only when at least `threshold` of its bytes are free. A
    /// threshold beyond the budget counts as the budget.
    #[must_use]
    pub fn batched(bytes: u64, threshold: u64) -> Self {
        Self { bytes, threshold: threshold.min(bytes), defers: false }
    }

    /// S = 0: a file that doesn't fit waits for the next pass (Dynamic Bin Packing).
    #[must_use]
    pub fn first_fit(bytes: u64) -> Self {
        Self::batched(bytes, 0)
    }

    /// S = the budget: when a file doesn't fit, all waiting files are completed first.
    #[must_use]
    pub fn on_demand(bytes: u64) -> Self {
        Self::batched(bytes, bytes)
    }

    /// Files that would hold much of it for long are left to a second pass, so that the others fit in the first. The
    /// second cleans up on demand. Not in the paper.
    #[must_use]
    pub fn deferring(bytes: u64) -> Self {
        Self { defers: true, ..Self::on_demand(bytes) }
    }

    /// No limit: every file is admitted when the sweep comes to it.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::first_fit(u64::MAX)
    }

    /// The budget in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The batch threshold S in bytes.
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.threshold
    }
}

/// One piece, in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is read.
    pub piece: Piece,
    /// The first piece of its file to be read: the file's cost is reserved before.
    pub admits: bool,
    /// The last piece of its file to be read: the file's cost is free after.
    pub completes: bool,
    /// Which bin, from 0.
    pub bin: u32,
    /// How many clean-ups this bin has begun so far.
    pub epoch: u32,
    /// Part of a clean-up: no step of one admits a file.
    pub cleaning: bool,
}

/// The steps of a plan, one at a time.
///
/// It keeps two `u32` for each file and the unread pieces of the admitted files; a file that a pass refuses is looked up
/// in the source again by the next.
#[derive(Debug)]
pub struct Schedule<S> {
    source: S,
    budget: Budget,
    whole_files: bool,
    /// The files that the current bin considers, from `next` on; those that it refused stand in `..refused`.
    queue: Vec<u32>,
    next: usize,
    refused: usize,
    /// What the first bin doesn't even consider.
    deferred: Vec<u32>,
    /// The unread pieces of the file at `next`, once it was looked up; afterwards, in whole-file order, of the file
    /// being read. The one to read first stands last.
    candidate: Vec<Piece>,
    considering: bool,
    pending: BinaryHeap<Reverse<Piece>>,
    /// How many pieces of an admitted file are unread.
    left: Vec<u32>,
    held: u64,
    peak: u64,
    bin: u32,
    epoch: u32,
    cleaning: bool,
    steps: u64,
    without_address: u64,
}

impl<S: PlanSource> Schedule<S> {
    /// Plans to read all files of `source` that have a piece, in the given order.
    ///
    /// Costs one look at every piece and a sort of the files.
    pub fn new(source: S, order: SweepOrder, budget: Budget) -> Result<Self, PlanError> {
        let (mut queue, whole_files) = match order {
            SweepOrder::Fragment => (by_first_address(&source, budget)?, false),
            SweepOrder::WholeFiles(list) => (as_listed(&source, list, budget)?, true),
        };
        let deferred = match budget.defers && !whole_files {
            true => deferral::defer(&source, &mut queue, budget.bytes),
            false => Vec::new(),
        };
        Ok(Self {
            deferred,
            left: vec![0; source.files() as usize],
            source,
            budget,
            whole_files,
            queue,
            next: 0,
            refused: 0,
            candidate: Vec::new(),
            considering: false,
            pending: BinaryHeap::new(),
            held: 0,
            peak: 0,
            bin: 0,
            epoch: 0,
            cleaning: false,
            steps: 0,
            without_address: 0,
        })
    }

    /// What the plan is made from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The budget that the plan keeps to.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// True when whole files are read one after the other.
    pub fn is_whole_files(&self) -> bool {
        self.whole_files
    }

    /// The bytes that the admitted files hold now.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// The most bytes that were held at any step so far, when memory is freed right after each last piece.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// How many steps there were so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// How many of them had a piece without an address.
    pub fn steps_without_address(&self) -> u64 {
        self.without_address
    }

    fn free(&self) -> u64 {
        self.budget.bytes - self.held
    }

    fn next_step(&mut self) -> Option<Step> {
        if self.whole_files {
            return self.next_of_file();
        }
        loop {
            if self.cleaning {
                if self.free() < self.budget.threshold {
                    return self.read_pending();
                }
                self.cleaning = false;
            }
            let Some(first) = self.consider() else {
                if !self.pending.is_empty() {
                    return self.read_pending();
                }
                if self.refused == 0 && self.deferred.is_empty() {
                    return None;
                }
                self.begin_bin();
                continue;
            };
            if self.pending.peek().is_some_and(|Reverse(piece)| *piece < first) {
                return self.read_pending();
            }
            if self.source.cost(first.file) <= self.free() {
                return Some(self.admit());
            }
            if self.free() < self.budget.threshold {
                self.cleaning = true;
                self.epoch += 1;
            } else {
                self.refuse();
            }
        }
    }

    /// The first piece of the file whose turn it is in this bin.
    fn consider(&mut self) -> Option<Piece> {
        if !self.considering {
            let file = *self.queue.get(self.next)?;
            look_up(&self.source, file, &mut self.candidate);
            // Only the first needs its place; the heap sorts the others.
            let first = (0..self.candidate.len()).min_by_key(|&at| self.candidate[at])?;
            let last = self.candidate.len() - 1;
            self.candidate.swap(first, last);
            self.considering = true;
        }
        self.candidate.last().copied()
    }

    fn admit(&mut self) -> Step {
        let piece = self.reserve();
        self.pending.extend(self.candidate.drain(..).map(Reverse));
        self.step(piece, true)
    }

    /// Takes the file at `next` into memory, and its first piece off the list.
    fn reserve(&mut self) -> Piece {
        let piece = self.candidate.pop().expect("a file in the queue has a piece");
        self.left[piece.file as usize] = self.candidate.len() as u32 + 1;
        self.held += self.source.cost(piece.file);
        self.peak = self.peak.max(self.held);
        self.next += 1;
        self.considering = false;
        piece
    }

    fn refuse(&mut self) {
        self.queue[self.refused] = self.queue[self.next];
        self.refused += 1;
        self.next += 1;
        self.considering = false;
    }

    fn begin_bin(&mut self) {
        self.queue.truncate(self.refused);
        if !self.deferred.is_empty() {
            self.queue = std::mem::take(&mut self.deferred);
        }
        self.next = 0;
        self.refused = 0;
        self.bin += 1;
        self.epoch = 0;
    }

    fn read_pending(&mut self) -> Option<Step> {
        let Reverse(piece) = self.pending.pop()?;
        Some(self.step(piece, false))
    }

    fn next_of_file(&mut self) -> Option<Step> {
        if let Some(piece) = self.candidate.pop() {
            return Some(self.step(piece, false));
        }
        let file = *self.queue.get(self.next)?;
        look_up(&self.source, file, &mut self.candidate);
        self.candidate.sort_unstable_by_key(|piece| Reverse(piece.offset));
        let piece = self.reserve();
        Some(self.step(piece, true))
    }

    fn step(&mut self, piece: Piece, admits: bool) -> Step {
        self.steps += 1;
        self.without_address += u64::from(!piece.has_address());
        let left = &mut self.left[piece.file as usize];
        *left -= 1;
        let completes = *left == 0;
        if completes {
            self.held -= self.source.cost(piece.file);
        }
        Step { piece, admits, completes, bin: self.bin, epoch: self.epoch, cleaning: self.cleaning }
    }
}

impl<S: PlanSource> Iterator for Schedule<S> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.next_step()
    }
}

pub(super) fn look_up<S: PlanSource>(source: &S, file: u32, pieces: &mut Vec<Piece>) {
    pieces.clear();
    source.pieces(file, &mut |piece| {
        if piece.length > 0 {
            pieces.push(piece);
        }
    });
}

/// The first piece of a file in the order of a sweep, after a look at the file whether it can be planned at all.
fn check<S: PlanSource>(source: &S, file: u32, budget: Budget) -> Result<Option<Piece>, PlanError> {
    let mut first: Option<Piece> = None;
    let mut outside = None;
    source.pieces(file, &mut |piece| {
        debug_assert_eq!(piece.file, file, "a file's pieces carry its number");
        if piece.length > 0 {
            first = Some(first.map_or(piece, |first| first.min(piece)));
            if !is_in_range(&piece) {
                outside = Some(piece);
            }
        }
    });
    if let Some(Piece { address, offset, length, .. }) = outside {
        return Err(PlanError::OutOfRange { file, address, offset, length });
    }
    let cost = source.cost(file);
    if first.is_some() && cost > budget.bytes {
        return Err(PlanError::OverBudget { file, cost, budget: budget.bytes });
    }
    Ok(first)
}

fn is_in_range(piece: &Piece) -> bool {
    let fits = |start: u64| start.checked_add(piece.length).is_some_and(|end| i64::try_from(end).is_ok());
    fits(piece.offset) && (piece.address == NO_ADDRESS || fits(piece.address))
}

fn by_first_address<S: PlanSource>(source: &S, budget: Budget) -> Result<Vec<u32>, PlanError> {
    let mut firsts = Vec::new();
    for file in 0..source.files() {
        // Files are sorted as their first pieces are; no two first pieces have the same file.
        firsts.extend(check(source, file, budget)?.map(|piece| (piece.address, file)));
    }
    firsts.sort_unstable();
    Ok(firsts.into_iter().map(|(_, file)| file).collect())
}

fn as_listed<S: PlanSource>(source: &S, mut list: Vec<u32>, budget: Budget) -> Result<Vec<u32>, PlanError> {
    let files = source.files();
    let mut named = vec![false; files as usize];
    for &file in &list {
        let named = named.get_mut(file as usize).ok_or(PlanError::UnknownFile { file, files })?;
        if std::mem::replace(named, true) {
            return Err(PlanError::NamedTwice { file });
        }
    }
    let mut result = Ok(());
    list.retain(|&file| match check(source, file, budget) {
        Ok(first) => first.is_some(),
        Err(error) => {
            result = result.and(Err(error));
            false
        }
    });
    result.map(|()| list)
}
