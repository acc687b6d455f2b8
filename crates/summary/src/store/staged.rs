//! What is on its way to the disk. Who reads meanwhile finds it here: a disk that holds still keeps nobody waiting who asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Batch, Facts, Store, StoreError};
use crate::custom::books::Unwritten;

/// All of one write, which goes on while others read.
#[derive(Debug, Default)]
pub(super) struct Staged {
    pub(super) batch: Batch,
    pub(super) custom: Unwritten,
    facts: Facts,
}

/// That, and who writes it.
#[derive(Debug, Default)]
pub(super) struct Staging {
    staged: Mutex<Option<Arc<Staged>>>,
    writing: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    pub(super) fn staged(&self) -> Option<Arc<Staged>> {
        lock(&self.staging.staged).clone()
    }

    /// True while something is on its way to the disk: who writes besides would have to wait for that.
    pub(crate) fn is_writing(&self) -> bool {
        lock(&self.staging.staged).is_some()
    }

    /// From now on that is what the store holds; [`write_staged`](Self::write_staged) makes it durable. What was staged before
    /// has to be written by then. Nobody reads while this is done.
    pub(crate) fn stage(&self, batch: Batch, custom: Unwritten, facts: Facts) {
        let before = lock(&self.staging.staged).replace(Arc::new(Staged { batch, custom, facts }));
        debug_assert!(before.is_none(), "one at a time");
    }

    /// Makes durable what was staged, if anything is. Who comes second waits for the first.
    pub(crate) fn write_staged(&self) -> Result<(), StoreError> {
        let _one_at_a_time = lock(&self.staging.writing);
        let Some(staged) = self.staged() else { return Ok(()) };
        let Staged { batch, custom, facts } = &*staged;
        // Who reads meanwhile reads by this one: to begin to read while the file grows is to wait for the disk.
        self.snapshot()?;
        self.write_batch(batch, custom, facts, true)?;
        // Whoever has looked meanwhile has seen the tables as they were.
        self.held.let_go(batch.slots());
        *lock(&self.staging.staged) = None;
        Ok(())
    }
}
