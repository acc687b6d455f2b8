//! Where a spindle's items go: counted, told to the observer, handed to the consumers.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    budget::{Loan, Share},
    delivery::{Item, Producer},
    progress::{Cancel, Observer, Progress},
    summary::Summary,
};

/// Files between two progress events.
const EVERY: u64 = 64;

/// Bytes of streams between two progress events.
const EVERY_STREAMED: u64 = 1 << 20;

/// What all spindles of a sweep count together.
#[derive(Default)]
pub(crate) struct Counters {
    summary: Mutex<Summary>,
    streamed: AtomicU64,
    observer: Option<Arc<dyn Observer>>,
}

impl Counters {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Arc<Self> {
        Arc::new(Self { summary: Mutex::default(), streamed: AtomicU64::new(0), observer })
    }

    fn lock(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Summary)) {
        change(&mut self.lock());
    }

    pub(crate) fn summary(&self) -> Summary {
        self.lock().clone()
    }

    /// Counts what a consumer has read from a stream.
    pub(crate) fn add_streamed(&self, read: u64) {
        let before = self.streamed.fetch_add(read, Ordering::Relaxed);
        let bytes = before + read;
        if before / EVERY_STREAMED != bytes / EVERY_STREAMED {
            self.tell(|| Progress::Streamed { bytes });
        }
    }

    pub(crate) fn tell(&self, event: impl FnOnce() -> Progress) {
        if let Some(observer) = &self.observer {
            observer.on(event());
        }
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("summary", &self.summary).finish_non_exhaustive()
    }
}

pub(crate) struct Outlet {
    producer: Producer,
    counters: Arc<Counters>,
}

impl Outlet {
    pub(crate) fn new(producer: Producer, counters: Arc<Counters>) -> Self {
        Self { producer, counters }
    }

    /// Hands an item over. False when the sweep was cancelled.
    pub(crate) fn send(&self, item: Item) -> bool {
        let (files, bytes) = {
            let mut summary = self.counters.lock();
            summary.add(&item);
            (summary.files, summary.bytes)
        };
        if files.is_multiple_of(EVERY) {
            self.counters.tell(|| Progress::Read { files, bytes });
        }
        self.producer.send(item)
    }

    /// Lets the consumers see at once what was sent: to be called before a wait.
    pub(crate) fn flush(&self) {
        self.producer.flush();
    }

    pub(crate) fn reserve(&self, share: &Share, bytes: u64) -> Option<Loan> {
        self.producer.reserve(share, bytes)
    }

    /// Runs `wait`, during which nothing is sent from here.
    pub(crate) fn stand_aside<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.producer.stand_aside(wait)
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Summary)) {
        self.counters.count(change);
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        self.producer.cancel()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel().is_cancelled()
    }
}
