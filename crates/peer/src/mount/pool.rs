//! Threads that wait for the disk. They are made when they are needed, and stay.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::aborting::or_abort;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_ending: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bounded number of threads that run jobs in the order in which they came.
pub(super) struct Pool {
    name: &'static str,
    most: usize,
    shared: Arc<Shared>,
}

impl Pool {
    /// With so many threads at most, and one from the start, so that there is always one.
    pub(super) fn new(name: &'static str, most: usize) -> std::io::Result<Self> {
        let pool = Self { name, most, shared: Arc::default() };
        let first = pool.spawn()?;
        pool.shared.state().threads.push(first);
        Ok(pool)
    }

    fn spawn(&self) -> std::io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name(self.name.into()).spawn(move || work(&shared))
    }

    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() > state.idle && state.threads.len() < self.most {
            // Where there is none to be had, those that are there do it.
            if let Ok(one) = self.spawn() {
                state.threads.push(one);
            }
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Waits until all jobs are done, and the threads have ended.
    pub(super) fn end(&self) {
        let mut state = self.shared.state();
        state.is_ending = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.changed.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let mut state = shared.state();
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break job;
            }
            if state.is_ending {
                return;
            }
            state.idle += 1;
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        };
        drop(state);
        or_abort(job);
    }
}

/// A bounded number of threads may do something at the same time.
pub(super) struct Turns {
    left: AtomicUsize,
}

/// One of them does.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) fn new(most: usize) -> Self {
        Self { left: AtomicUsize::new(most) }
    }

    /// `None` where as many as may are at it.
    pub(super) fn enter(&self) -> Option<Turn<'_>> {
        let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        taken.is_ok().then_some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use super::*;

    #[test]
    fn jobs_run_side_by_side_up_to_the_limit() {
        let pool = Pool::new("test", 3).unwrap();
        let all = Arc::new(Barrier::new(3));
        let (tell, told) = mpsc::channel();
        for job in 0..3 {
            let (all, tell) = (Arc::clone(&all), tell.clone());
            pool.run(move || {
                // With fewer threads this would stand still for good.
                all.wait();
                tell.send(job).unwrap();
            });
        }
        let mut jobs: Vec<i32> = told.iter().take(3).collect();
        jobs.sort_unstable();
        assert_eq!(jobs, [0, 1, 2]);
        assert_eq!(pool.shared.state().threads.len(), 3);
    }

    #[test]
    fn turns_are_counted() {
        let turns = Turns::new(2);
        let (first, second) = (turns.enter(), turns.enter());
        assert!(first.is_some() && second.is_some() && turns.enter().is_none());
        drop(first);
        assert!(turns.enter().is_some());
        assert!(Turns::new(0).enter().is_none());
    }

    #[test]
    fn the_end_waits_for_what_was_begun() {
        let pool = Pool::new("test", 2).unwrap();
        let done = Arc::new(Mutex::new(0));
        for _ in 0..100 {
            let done = Arc::clone(&done);
            pool.run(move || *done.lock().unwrap() += 1);
        }
        pool.end();
        assert_eq!(*done.lock().unwrap(), 100);
    }
}
