//! The bytes that files in memory may hold (design decision 5): reserved at a file's first fragment, given back
//! when its buffer is dropped, and never more than the budget.

use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// One spindle's share of the budget.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
    taken_over: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    held: u64,
    peak: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Shared { limit, state: Mutex::default(), freed: Condvar::new(), taken_over: AtomicU64::new(0) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reserves `bytes` if they are free now.
    pub fn try_reserve(&self, bytes: u64) -> Option<Loan> {
        let mut state = self.state();
        if state.held.saturating_add(bytes) > self.0.limit {
            return None;
        }
        state.held += bytes;
        state.peak = state.peak.max(state.held);
        drop(state);
        Some(Loan { budget: self.clone(), bytes })
    }

    /// Waits until something is given back, or until `patience` is over. True when `bytes` would fit.
    pub fn wait_for(&self, bytes: u64, patience: std::time::Duration) -> bool {
        let state = self.state();
        let fits = |state: &State| state.held.saturating_add(bytes) <= self.0.limit;
        if fits(&state) {
            return true;
        }
        let (state, _) = self
            .0
            .freed
            .wait_timeout_while(state, patience, |state| !fits(state))
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        fits(&state)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Bytes reserved now.
    pub fn held(&self) -> u64 {
        self.state().held
    }

    /// The most that was ever reserved.
    pub fn peak(&self) -> u64 {
        self.state().peak
    }

    /// Bytes that consumers took over; they no longer count.
    pub fn taken_over(&self) -> u64 {
        self.0.taken_over.load(Ordering::Relaxed)
    }
}

/// Bytes reserved from a [`Budget`]; given back when dropped.
#[derive(Debug)]
pub struct Loan {
    budget: Budget,
    bytes: u64,
}

impl Loan {
    /// Bytes of this loan.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the loan because the consumer owns the memory now.
    pub fn hand_over(self) {
        self.budget.0.taken_over.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.budget.state().held -= self.bytes;
        self.budget.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn never_lends_one_byte_too_many() {
        let budget = Budget::new(100);
        let first = budget.try_reserve(60).unwrap();
        assert!(budget.try_reserve(41).is_none());
        let second = budget.try_reserve(40).unwrap();
        assert_eq!(budget.held(), 100);
        assert!(!budget.wait_for(1, Duration::from_millis(1)));
        drop(first);
        assert!(budget.wait_for(60, Duration::ZERO));
        second.hand_over();
        assert_eq!((budget.held(), budget.peak(), budget.taken_over()), (0, 100, 40));
    }
}
