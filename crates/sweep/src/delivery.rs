//! The way from the threads that read to those that consume.
//!
//! Bounded in items here and in bytes by the budget, so that a slow consumer holds the sweep back. A consumer that asks
//! for more while it holds all the memory that could be read into is told so ([`FileError::BudgetLent`]) instead of
//! waiting for ever.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use crate::{
    budget::{Budget, Loan, Share},
    error::FileError,
    item::SweptFile,
    progress::Cancel,
};

/// What comes out of a sweep.
pub(crate) type Item = Result<SweptFile, FileError>;

/// Items that may wait for the consumer: without bytes of their own (directories, empty files) they cost no budget.
const ITEMS_MAX: usize = 1024;

/// A sleeping consumer is woken for so many items, or when the producer is about to wait: waking costs more than
/// reading a small file from the cache.
const WAKE_AT: usize = 32;

/// How long a waiting thread sleeps before it looks at the cancel switch again.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Delivery {
    state: Mutex<State>,
    /// Items came, a producer ended, or one began to wait for memory.
    produced: Condvar,
    /// Room came.
    consumed: Condvar,
    budget: Budget,
    cancel: Cancel,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    producers: usize,
    /// Producers that only wait for others.
    standing_aside: usize,
    /// Producers that can't go on before memory is given back, and what each needs.
    starved: Vec<(Share, u64)>,
    consumers: usize,
    waiting_consumers: usize,
    /// Of them, those that were woken and did not come to it yet: to wake them again would be a system call for each item.
    woken_consumers: usize,
    waiting_producers: usize,
    /// A consumer was told that it holds the whole budget; the next one to be stuck ends the sweep.
    warned: bool,
}

/// The end of a [`Delivery`] where items go in. The sweep is over when the last one is dropped.
#[derive(Debug)]
pub(crate) struct Producer(Arc<Delivery>);

impl Delivery {
    pub(crate) fn new(budget: Budget, cancel: Cancel, consumers: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { consumers, ..State::default() }),
            produced: Condvar::new(),
            consumed: Condvar::new(),
            budget,
            cancel,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn producer(self: &Arc<Self>) -> Producer {
        self.state().producers += 1;
        Producer(Arc::clone(self))
    }

    pub(crate) fn set_consumers(&self, consumers: usize) {
        self.state().consumers = consumers;
    }

    /// A consumer will not ask again.
    pub(crate) fn leave(&self) {
        self.state().consumers -= 1;
        self.produced.notify_all();
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// True when nothing will come any more, and nothing waits.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.producers == 0 && state.items.is_empty()
    }

    /// Moves items to `taken`, which must be empty; leaves it empty when the sweep is over.
    pub(crate) fn take(&self, taken: &mut VecDeque<Item>) {
        while !self.take_within(PATIENCE, taken) {}
    }

    /// The same, but false when nothing came within `patience`.
    pub(crate) fn take_within(&self, patience: Duration, taken: &mut VecDeque<Item>) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.state();
        loop {
            if self.cancel.is_cancelled() {
                // What lies here was read for nothing; its memory is given back now.
                let unwanted = std::mem::take(&mut state.items);
                drop(state);
                drop(unwanted);
                return true;
            }
            if !state.items.is_empty() {
                state.warned = false;
                state.hand_out(taken);
                if state.waiting_producers > 0 {
                    self.consumed.notify_all();
                }
                return true;
            }
            if state.producers == 0 {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state.waiting_consumers += 1;
            if state.is_stuck() {
                state.waiting_consumers -= 1;
                let error = if state.warned { self.end_for_want_of_memory() } else { self.budget_lent() };
                state.warned = true;
                taken.push_back(Err(error));
                return true;
            }
            let patience = left.min(PATIENCE);
            state = self.produced.wait_timeout(state, patience).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            state.waiting_consumers -= 1;
            // Also of one that woke by itself: then somebody is woken once too often, and never too seldom.
            state.woken_consumers = state.woken_consumers.saturating_sub(1);
        }
    }
}

impl Delivery {
    fn budget_lent(&self) -> FileError {
        FileError::BudgetLent { lent: self.budget.held() }
    }

    /// What is not delivered by now will not be: that must not pass for the end of the sweep.
    fn end_for_want_of_memory(&self) -> FileError {
        self.cancel.cancel();
        let lent = self.budget.held();
        let source = io::Error::other(format!("the consumer keeps all {lent} bytes of the budget and asks for more"));
        FileError::Stopped { disk: "every disk".into(), source }
    }
}

impl State {
    /// A fair part of the items for one consumer.
    fn hand_out(&mut self, taken: &mut VecDeque<Item>) {
        if self.consumers <= 1 {
            return std::mem::swap(&mut self.items, taken);
        }
        let part = (self.items.len() / self.consumers).clamp(1, WAKE_AT);
        taken.extend(self.items.drain(..part));
    }

    /// True when every consumer asks, every producer needs memory, and none is free for any of them.
    fn is_stuck(&self) -> bool {
        self.waiting_consumers >= self.consumers
            && self.starved.len() + self.standing_aside == self.producers
            && !self.starved.is_empty()
            && self.starved.iter().all(|(share, bytes)| !share.fits(*bytes))
    }
}

impl Producer {
    /// Hands an item over; waits while too many are waiting. False when the sweep was cancelled.
    pub(crate) fn send(&self, item: Item) -> bool {
        let mut state = self.0.state();
        while state.items.len() >= ITEMS_MAX {
            self.0.produced.notify_all();
            if self.0.cancel.is_cancelled() {
                return false;
            }
            state.waiting_producers += 1;
            state = self.0.consumed.wait_timeout(state, PATIENCE).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            state.waiting_producers -= 1;
        }
        state.items.push_back(item);
        if state.items.len() >= WAKE_AT {
            self.wake_one(state);
        }
        !self.0.cancel.is_cancelled()
    }

    /// Wakes a consumer that sleeps, if there is one, after the lock is given back: on one processor he runs at once, and would
    /// have to sleep again for the lock.
    fn wake_one(&self, mut state: MutexGuard<'_, State>) {
        if state.waiting_consumers > state.woken_consumers {
            state.woken_consumers += 1;
            drop(state);
            self.0.produced.notify_one();
        }
    }

    /// Wakes a consumer for what was sent.
    pub(crate) fn flush(&self) {
        let state = self.0.state();
        if !state.items.is_empty() {
            self.wake_one(state);
        }
    }

    /// Runs `wait`, during which this producer sends nothing and needs no memory.
    pub(crate) fn stand_aside<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.0.state().standing_aside += 1;
        let result = wait();
        self.0.state().standing_aside -= 1;
        result
    }

    /// Reserves memory, waiting for the consumers to give some back. `None` when the sweep was cancelled.
    ///
    /// To be called only when nothing is in flight that would be delivered meanwhile.
    pub(crate) fn reserve(&self, share: &Share, bytes: u64) -> Option<Loan> {
        loop {
            if let Some(loan) = share.try_reserve(bytes) {
                return Some(loan);
            }
            if self.0.cancel.is_cancelled() {
                return None;
            }
            let mut state = self.0.state();
            state.starved.push((share.clone(), bytes));
            drop(state);
            self.0.produced.notify_all();
            share.wait_for(bytes, PATIENCE);
            let mut state = self.0.state();
            let at = state.starved.iter().position(|(other, needed)| other.is_same(share) && *needed == bytes);
            if let Some(at) = at {
                state.starved.swap_remove(at);
            }
        }
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.0.cancel
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.0.state().producers -= 1;
        self.0.produced.notify_all();
    }
}
