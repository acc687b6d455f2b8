//! The bytes that files in memory may hold.
//!
//! Reserved at a file's first fragment, given back when its buffer is dropped, and never more than the budget, over all
//! spindles together. Each spindle plans with a share of its own, so that two of them never wait for each other.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

/// The budget of a whole sweep.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    peak: u64,
    taken_over: u64,
    /// Bytes held by each share.
    shares: Vec<u64>,
    /// Threads that wait for a return: without any, to wake them would be a system call for each file.
    waiting: usize,
}

/// What one spindle may hold of the budget.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    budget: Budget,
    number: usize,
    limit: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(Shared { limit, state: Mutex::default(), freed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A share of `limit` bytes; at most all of the budget.
    pub(crate) fn share(&self, limit: u64) -> Share {
        let mut state = self.state();
        state.shares.push(0);
        Share { budget: self.clone(), number: state.shares.len() - 1, limit: limit.min(self.0.limit) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Bytes reserved now.
    pub(crate) fn held(&self) -> u64 {
        self.state().held
    }

    /// The most that was ever reserved.
    pub(crate) fn peak(&self) -> u64 {
        self.state().peak
    }

    /// Bytes that consumers took over; they no longer count.
    pub(crate) fn taken_over(&self) -> u64 {
        self.state().taken_over
    }
}

impl Share {
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// True for clones of the same share.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.number == other.number
    }

    fn fits_in(&self, state: &State, bytes: u64) -> bool {
        state.held.saturating_add(bytes) <= self.budget.0.limit
            && state.shares[self.number].saturating_add(bytes) <= self.limit
    }

    /// True when `bytes` could be reserved now.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.fits_in(&self.budget.state(), bytes)
    }

    /// Reserves `bytes` if they are free now.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Loan> {
        let mut state = self.budget.state();
        if !self.fits_in(&state, bytes) {
            return None;
        }
        state.held += bytes;
        state.shares[self.number] += bytes;
        state.peak = state.peak.max(state.held);
        drop(state);
        Some(Loan { share: self.clone(), bytes })
    }

    /// Waits until `bytes` would fit, or until `patience` is over.
    pub(crate) fn wait_for(&self, bytes: u64, patience: Duration) {
        let mut state = self.budget.state();
        state.waiting += 1;
        let waited = self.budget.0.freed.wait_timeout_while(state, patience, |state| !self.fits_in(state, bytes));
        let (mut state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        state.waiting -= 1;
    }
}

/// Bytes reserved from a budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    share: Share,
    bytes: u64,
}

impl Loan {
    /// Bytes of this loan.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the loan because the consumer owns the memory now.
    pub(crate) fn hand_over(self) {
        self.share.budget.state().taken_over += self.bytes;
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut state = self.share.budget.state();
        state.held -= self.bytes;
        state.shares[self.share.number] -= self.bytes;
        if state.waiting > 0 {
            drop(state);
            self.share.budget.0.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_lends_one_byte_too_many() {
        let budget = Budget::new(100);
        let share = budget.share(100);
        let first = share.try_reserve(60).unwrap();
        assert!(share.try_reserve(41).is_none());
        let second = share.try_reserve(40).unwrap();
        assert_eq!(budget.held(), 100);
        assert!(!share.fits(1));
        drop(first);
        assert!(share.fits(60));
        second.hand_over();
        assert_eq!((budget.held(), budget.peak(), budget.taken_over()), (0, 100, 40));
    }

    #[test]
    fn a_share_leaves_the_rest_to_others() {
        let budget = Budget::new(100);
        let (one, two) = (budget.share(50), budget.share(80));
        assert!(one.try_reserve(51).is_none());
        let held = two.try_reserve(80).unwrap();
        assert!(one.try_reserve(21).is_none(), "all shares together keep to the budget");
        assert!(one.try_reserve(20).is_some());
        drop(held);
        assert!(one.try_reserve(50).is_some());
    }

    #[test]
    fn who_waits_is_woken_by_a_return() {
        let share = Budget::new(10).share(10);
        let loan = share.try_reserve(10).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                while !share.fits(10) {
                    share.wait_for(10, Duration::from_secs(60));
                }
            });
            drop(loan);
            waiting.join().unwrap();
        });
    }
}
