//! A place where one thread leaves something, and others wait for it, but not for ever.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Instant,
};

/// Empty, until something is left there.
#[derive(Debug)]
pub(super) struct Slot<T> {
    value: Mutex<Option<T>>,
    bell: Condvar,
}

impl<T: Clone> Slot<T> {
    pub(super) fn new() -> Self {
        Self { value: Mutex::new(None), bell: Condvar::new() }
    }

    /// Leaves something, and wakes who waits.
    pub(super) fn set(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.bell.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What was left there, up to a time.
    pub(super) fn wait(&self, until: Instant) -> Option<T> {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        while value.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            value = self.bell.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        value.clone()
    }
}
