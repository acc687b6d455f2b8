//! Progress events and cancelling.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::plan::Estimate;

/// What a sweep tells while it runs. Counts are totals since the start.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Progress {
    /// Entries found so far, while directories are read.
    Walked {
        /// Entries of every kind.
        entries: u64,
    },
    /// Files surveyed so far: opened, and mapped or found in the cache.
    Surveyed {
        /// Regular files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A plan is ready; one for each spindle and window.
    Planned {
        /// The disk, by its kernel name.
        disk: String,
        /// What the plan will cost.
        estimate: Box<Estimate>,
        /// Bytes of its files, which may end within their last blocks.
        bytes: u64,
    },
    /// Bytes and files read so far.
    Read {
        /// Files whose content is complete.
        files: u64,
        /// Bytes of content read; files that are streamed count whole when they are handed over.
        bytes: u64,
    },
    /// Something that is to be known and is no error, in words.
    Remark {
        /// One line without its end.
        text: String,
    },
    /// Bytes that consumers have read from streams so far, holes among them.
    Streamed {
        /// Bytes of content, each as often as it was read.
        bytes: u64,
    },
}

/// Is told of progress, from the threads that read: be quick.
pub trait Observer: Send + Sync {
    /// Takes one event.
    fn on(&self, event: Progress);
}

impl<F: Fn(Progress) + Send + Sync> Observer for F {
    fn on(&self, event: Progress) {
        self(event);
    }
}

/// Stops a sweep from outside, within one request. Clones stop the same sweep.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    thrown: AtomicBool,
    above: Option<Cancel>,
}

impl Cancel {
    /// A switch that is not thrown.
    pub fn new() -> Self {
        Self::default()
    }

    /// A switch that is thrown by this one too, and doesn't throw it: for one of several sweeps that may end by itself.
    #[must_use]
    pub fn below(&self) -> Self {
        Self(Arc::new(Switch { thrown: AtomicBool::new(false), above: Some(self.clone()) }))
    }

    /// Stops the sweep. Safe to call from a signal handler's thread, and more than once.
    pub fn cancel(&self) {
        self.0.thrown.store(true, Ordering::SeqCst);
    }

    /// True once [`Cancel::cancel`] was called, of this switch or of one that it is below.
    pub fn is_cancelled(&self) -> bool {
        self.0.thrown.load(Ordering::SeqCst) || self.0.above.as_ref().is_some_and(Cancel::is_cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_thrown_above_is_thrown_below_alone() {
        let (above, other) = (Cancel::new(), Cancel::new());
        let (one, two) = (above.below(), above.below());
        one.cancel();
        assert_eq!((above.is_cancelled(), two.is_cancelled()), (false, false));
        above.clone().cancel();
        assert_eq!((two.is_cancelled(), other.is_cancelled()), (true, false));
    }
}
