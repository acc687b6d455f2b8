//! What comes bit by bit out of threads of ours, as an iterator of Python wants it.

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    task::Poll,
    thread::{self, JoinHandle},
    time::Duration,
};

use onesweep::{Cancel, Files};
use pyo3::{prelude::*, sync::MutexExt};

use super::{fault, fork::Birth, wait::PATIENCE};

/// Where items come from. Dropping it ends its threads, once they are told to.
pub(crate) trait Source: Send {
    type Item: Send;

    /// The next item if it is here already.
    fn at_hand(&mut self) -> Option<Self::Item>;

    /// The next item if it comes in time; `None` when there are no more.
    fn within(&mut self, patience: Duration) -> Poll<Option<Self::Item>>;
}

impl Source for Files {
    type Item = <Self as Iterator>::Item;

    fn at_hand(&mut self) -> Option<Self::Item> {
        self.next_at_hand()
    }

    fn within(&mut self, patience: Duration) -> Poll<Option<Self::Item>> {
        self.next_within(patience)
    }
}

/// Items that a thread of ours makes, a few ahead.
pub(crate) struct Produced<T> {
    items: Option<Receiver<T>>,
    thread: Option<JoinHandle<()>>,
}

/// Items that wait for Python.
const AHEAD_MAX: usize = 256;

impl<T: Send + 'static> Produced<T> {
    /// `produce` has to end when nobody takes its items any more.
    pub(crate) fn by(produce: impl FnOnce(&SyncSender<T>) + Send + 'static) -> io::Result<Self> {
        let (sender, items) = sync_channel(AHEAD_MAX);
        let thread = thread::Builder::new().name("onesweep".into()).spawn(move || produce(&sender))?;
        Ok(Self { items: Some(items), thread: Some(thread) })
    }

    fn end(&mut self) {
        self.items = None;
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl<T: Send + 'static> Source for Produced<T> {
    type Item = T;

    fn at_hand(&mut self) -> Option<T> {
        self.items.as_ref()?.try_recv().ok()
    }

    fn within(&mut self, patience: Duration) -> Poll<Option<T>> {
        let Some(items) = &self.items else { return Poll::Ready(None) };
        match items.recv_timeout(patience) {
            Ok(item) => Poll::Ready(Some(item)),
            Err(RecvTimeoutError::Timeout) => Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => {
                self.end();
                Poll::Ready(None)
            }
        }
    }
}

impl<T> Drop for Produced<T> {
    fn drop(&mut self) {
        self.items = None;
        if let Some(thread) = self.thread.take() {
            // What it panicked for has been told on standard error.
            let _ = thread.join();
        }
    }
}

/// A source in the hands of Python: several threads may ask, one at a time; it may be closed by another one; it stays behind when
/// the process forks.
pub(crate) struct Stream<S: Source> {
    source: Mutex<Option<S>>,
    cancel: Cancel,
    is_closed: AtomicBool,
    is_over: AtomicBool,
    birth: Birth,
}

/// It was closed before everything was handed over.
struct Closed;

impl<S: Source> Stream<S> {
    pub(crate) fn new(source: S, cancel: Cancel) -> Self {
        let (is_closed, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { source: Mutex::new(Some(source)), cancel, is_closed, is_over, birth: Birth::now() }
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<S>>> {
        self.birth.check()?;
        Ok(self.source.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }

    /// The next item; `None` at the end. Waits without the lock of Python, and as long as no signal handler raises.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Option<S::Item>> {
        loop {
            match self.turn(py)? {
                Poll::Ready(Ok(item)) => return Ok(item),
                Poll::Ready(Err(Closed)) => return Err(fault::cancelled(py)),
                // A handler may close what is waited for, or ask for the next one itself.
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// What `next` does between two looks at signals. It has the source to itself, so no code of Python may run in it.
    fn turn(&self, py: Python<'_>) -> PyResult<Poll<Result<Option<S::Item>, Closed>>> {
        let mut source = self.lock(py)?;
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(Poll::Ready(Ok(None)));
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Ok(Poll::Ready(Err(Closed)));
        }
        let Some(source) = source.as_mut() else { return Ok(Poll::Ready(Ok(None))) };
        if let Some(item) = source.at_hand() {
            return Ok(Poll::Ready(Ok(Some(item))));
        }
        Ok(match py.detach(|| source.within(PATIENCE)) {
            Poll::Ready(None) if self.is_closed.load(Ordering::Relaxed) => Poll::Ready(Err(Closed)),
            Poll::Ready(item) => {
                self.is_over.fetch_or(item.is_none(), Ordering::Relaxed);
                Poll::Ready(Ok(item))
            }
            Poll::Pending => Poll::Pending,
        })
    }

    /// Ends it and waits until it has ended. In a child of a fork it does nothing.
    pub(crate) fn close(&self, py: Python<'_>) -> Option<S> {
        if !self.birth.is_here() {
            return None;
        }
        self.is_closed.store(true, Ordering::Relaxed);
        if !self.is_over.load(Ordering::Relaxed) {
            self.cancel.cancel();
        }
        self.lock(py).ok()?.take()
    }

    /// Fails in a child of a fork.
    pub(crate) fn check(&self) -> PyResult<()> {
        self.birth.check()
    }
}

impl<S: Source> Drop for Stream<S> {
    fn drop(&mut self) {
        let source = self.source.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(source) = source else { return };
        if !self.birth.is_here() {
            // Its threads are not in this process, and its locks may be held for ever.
            return std::mem::forget(source);
        }
        if !self.is_over.load(Ordering::Relaxed) {
            self.cancel.cancel();
        }
        drop_aside(source);
    }
}

/// Drops what waits for threads, without the lock of Python.
pub(crate) fn drop_aside(source: impl Send) {
    let mut source = Some(source);
    let _ = Python::try_attach(|py| {
        let source = source.take();
        py.detach(|| drop(source));
    });
    drop(source);
}
