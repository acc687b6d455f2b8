//! [`Files`]: the items of a running sweep.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    budget::Budget,
    delivery::{Delivery, Item},
    error::FileError,
    item::SweptFile,
    moment::Moment,
    outlet::Counters,
    progress::Cancel,
    summary::Summary,
};

/// What a sweep has done so far, for who doesn't have its [`Files`], since they wait for the next one in another thread.
#[derive(Debug, Clone)]
pub struct Tally {
    counters: Arc<Counters>,
    budget: Budget,
    cancel: Cancel,
}

impl Tally {
    /// What was done so far; complete when all was handed over, or the files were dropped.
    pub fn summary(&self) -> Summary {
        Summary {
            peak_budget: self.budget.peak(),
            taken_over_bytes: self.budget.taken_over(),
            cancelled: self.cancel.is_cancelled(),
            ..self.counters.summary()
        }
    }
}

/// The items of a running sweep. Dropping it cancels the sweep within one request.
///
/// A slow consumer holds the sweep back: at most the budget is ever waiting here. A consumer that keeps all files it
/// was lent gets [`FileError::BudgetLent`] once nothing more can be read, and [`FileError::Stopped`] and the end of the
/// stream if it asks again without giving anything back.
pub struct Files {
    delivery: Arc<Delivery>,
    tally: Tally,
    threads: Option<JoinHandle<()>>,
    /// Taken from the delivery and not handed out yet.
    taken: VecDeque<Item>,
    /// Snapshots that are there until everything was handed out.
    _moment: Option<Arc<Moment>>,
}

impl Files {
    pub(crate) fn new(
        delivery: Arc<Delivery>,
        counters: Arc<Counters>,
        budget: Budget,
        threads: JoinHandle<()>,
        moment: Option<Arc<Moment>>,
    ) -> Self {
        let tally = Tally { counters, budget, cancel: delivery.cancel().clone() };
        Self { delivery, tally, threads: Some(threads), taken: VecDeque::new(), _moment: moment }
    }

    /// What was done so far; complete when the iterator has ended.
    pub fn summary(&self) -> Summary {
        self.tally.summary()
    }

    /// The same for another thread, without these files.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// The next item, if it is here already: without a wait, and without a look at what the threads that read do.
    pub fn next_at_hand(&mut self) -> Option<Item> {
        if self.delivery.cancel().is_cancelled() {
            self.taken.clear();
        }
        self.taken.pop_front()
    }

    /// What [`Iterator::next`] gives, if it comes within `patience`: for consumers that have to look after something else while
    /// they wait.
    pub fn next_within(&mut self, patience: Duration) -> Poll<Option<Item>> {
        let item = self.next_at_hand();
        if item.is_some() {
            return Poll::Ready(item);
        }
        if !self.delivery.take_within(patience, &mut self.taken) {
            return Poll::Pending;
        }
        let item = self.taken.pop_front();
        Poll::Ready(item.or_else(|| self.ended()))
    }

    /// Gives every item to `each` on this thread. `each` returns false to stop.
    pub fn run(mut self, mut each: impl FnMut(Result<SweptFile, FileError>) -> bool) -> Summary {
        for item in self.by_ref() {
            if !each(item) {
                break;
            }
        }
        self.finish()
    }

    /// Gives the items to `each` on `threads` threads; on fewer where the system refuses some, on this one when it refuses all.
    pub fn run_parallel(
        mut self,
        threads: usize,
        each: impl Fn(Result<SweptFile, FileError>) -> bool + Send + Sync,
    ) -> Summary {
        let threads = threads.max(1);
        self.delivery.set_consumers(threads);
        let stopped = AtomicBool::new(false);
        let (delivery, each, stopped) = (&self.delivery, &each, &stopped);
        // The first one goes on with it.
        let taken_before = Mutex::new(std::mem::take(&mut self.taken));
        let consume = || {
            // Also on a panic: the others must not wait for this one.
            let _leave = Leave(delivery);
            let mut taken = std::mem::take(&mut *taken_before.lock().unwrap_or_else(PoisonError::into_inner));
            while !stopped.load(Ordering::Relaxed)
                && let Some(item) = next(delivery, &mut taken)
            {
                if !each(item) {
                    stopped.store(true, Ordering::Relaxed);
                    delivery.cancel().cancel();
                }
            }
        };
        thread::scope(|scope| {
            let start = |_| thread::Builder::new().spawn_scoped(scope, consume).ok();
            let started = (0..threads).map_while(start).count();
            // No item is kept for those that there are not.
            (started.max(1)..threads).for_each(|_| delivery.leave());
            if started == 0 {
                consume();
            }
        });
        self.finish()
    }

    /// Stops what still runs, waits for it, and counts.
    fn finish(mut self) -> Summary {
        let ended = self.delivery.is_over() && self.taken.is_empty();
        if !ended {
            self.delivery.cancel().cancel();
        }
        if self.join().is_some() {
            self.tally.counters.count(|summary| summary.errors += 1);
        }
        self.summary()
    }

    /// Waits for the threads when nothing comes any more; the last item, where they ended by a fault of the program.
    fn ended(&mut self) -> Option<Item> {
        let fault = self.join()?;
        self.tally.counters.count(|summary| summary.errors += 1);
        Some(Err(fault))
    }

    /// Waits for the threads; gives the error to tell when they ended by a fault of the program.
    fn join(&mut self) -> Option<FileError> {
        let ended = self.threads.take()?.join();
        let fault = || io::Error::other("a fault of the program; what is missing was not read");
        ended.err().map(|_| FileError::Stopped { disk: "every disk".into(), source: fault() })
    }
}

impl Iterator for Files {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        next(&self.delivery, &mut self.taken).or_else(|| self.ended())
    }
}

/// The next item: of those taken before, or of those that wait.
fn next(delivery: &Delivery, taken: &mut VecDeque<Item>) -> Option<Item> {
    if delivery.cancel().is_cancelled() {
        taken.clear();
    }
    if taken.is_empty() {
        delivery.take(taken);
    }
    taken.pop_front()
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.threads.is_some() {
            if !self.delivery.is_over() {
                self.delivery.cancel().cancel();
            }
            self.join();
        }
    }
}

struct Leave<'a>(&'a Delivery);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
