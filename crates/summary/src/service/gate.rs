//! Whoever wants to be alone waits before the lock while one looks through all for long: waiting at the lock itself would keep out those
//! who only read, too.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A lock that can be read for long while others read.
#[derive(Debug)]
pub(super) struct Gated<T> {
    inner: RwLock<T>,
    /// Held by who goes in next, so that nobody else waits at the lock itself.
    is_shut: Mutex<bool>,
    opens: Condvar,
}

/// Nobody comes in alone before this goes, but who holds it.
pub(super) struct Shut<'a, T>(&'a Gated<T>);

impl<T> Gated<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner: RwLock::new(inner), is_shut: Mutex::new(false), opens: Condvar::new() }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where nobody has to be waited for.
    pub(super) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.inner.try_read() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, T> {
        let turn = self.turn();
        let inner = self.write_now();
        drop(turn);
        inner
    }

    /// Where nobody has to be waited for.
    pub(super) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let turn = match self.is_shut.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if *turn {
            return None;
        }
        match self.inner.try_write() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The same as [`write`](Self::write), but `None` while one looks through all.
    pub(super) fn write_unless_shut(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let turn = self.lock();
        (!*turn).then(|| self.write_now())
    }

    /// To be read for long, and changed by what was found without anybody having changed it between.
    pub(super) fn shut(&self) -> (RwLockReadGuard<'_, T>, Shut<'_, T>) {
        let mut turn = self.turn();
        // Nobody else waits for the lock now, or will before it is read.
        let inner = self.read();
        *turn = true;
        (inner, Shut(self))
    }

    /// Whether one looks through all: who waits to be alone can't go first meanwhile.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut.try_lock().is_ok_and(|is_shut| *is_shut)
    }

    fn turn(&self) -> MutexGuard<'_, bool> {
        let turn = self.opens.wait_while(self.lock(), |is_shut| *is_shut);
        turn.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_shut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_now(&self) -> RwLockWriteGuard<'_, T> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Shut<'_, T> {
    /// Alone, once it was read.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write_now()
    }
}

impl<T> Drop for Shut<'_, T> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.opens.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn who_looks_through_all_keeps_out_nobody_who_reads() {
        let gated = Arc::new(Gated::new(1));
        let (read, shut) = gated.shut();
        let others = [(); 2].map(|()| {
            let gated = Arc::clone(&gated);
            thread::spawn(move || *gated.write() += 1)
        });
        for _ in 0..1000 {
            assert_eq!(gated.try_read().as_deref(), Some(&1));
            assert!(gated.try_write().is_none() && gated.write_unless_shut().is_none());
            assert!(gated.is_shut());
            thread::yield_now();
        }
        drop(read);
        *shut.write() *= 10;
        drop(shut);
        others.into_iter().for_each(|other| other.join().expect("it ends"));
        assert_eq!(*gated.read(), 12);
        assert!(!gated.is_shut() && gated.try_write().is_some() && gated.write_unless_shut().is_some());
    }
}
