//! Reads in flight by a few threads, where io_uring is missing or forbidden.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

#[cfg(not(target_env = "gnu"))]
use libc::preadv2;
// The one of glibc that takes 64 bits of offset everywhere.
#[cfg(target_env = "gnu")]
use libc::preadv64v2 as preadv2;

use super::pieces::{Pieces, RWF_DONTCACHE, Scratch};
use super::{Completion, ReadOp, ReadQueue, admit, nothing_in_flight};

/// A [`ReadQueue`] on a pool of threads, each of which does one read at a time.
///
/// Threads take the reads in order. As many reads are with the device at once as there are threads.
pub struct PoolQueue {
    capacity: usize,
    /// Pushed, not yet shown to the threads.
    queued: Vec<ReadOp>,
    /// With the threads, or over and not yet given back.
    begun: usize,
    shared: Arc<Shared>,
    scratch: Scratch,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads and the queue have in common.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something to do, or the end.
    work: Condvar,
    /// A read is over.
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<ReadOp>,
    over: VecDeque<Completion>,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a thread to end a read.
    fn next(&self) -> Completion {
        let mut state = self.state();
        loop {
            match state.over.pop_front() {
                Some(completion) => return completion,
                None => state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl PoolQueue {
    /// A queue for `depth` reads in flight, done by `threads` threads (at least 1 of each).
    ///
    /// When the system refuses some of the threads, the others do; when it refuses all, `wait` does the reads.
    pub fn new(depth: usize, threads: usize) -> PoolQueue {
        PoolQueue::of_threads(depth, threads.max(1))
    }

    pub(super) fn of_threads(depth: usize, threads: usize) -> PoolQueue {
        let capacity = depth.max(1);
        let shared = Arc::<Shared>::default();
        let scratch = Scratch::new();
        let spawn = |_| {
            let (shared, scratch) = (Arc::clone(&shared), scratch.clone());
            let serve = move || serve(&shared, &scratch);
            std::thread::Builder::new().name("onesweep-read".into()).spawn(serve).ok()
        };
        let threads = (0..threads.min(capacity)).map_while(spawn).collect();
        PoolQueue { capacity, queued: Vec::new(), begun: 0, shared, scratch, threads }
    }

    /// Does a begun read here when there is no thread to do it.
    fn read_here(&mut self) -> Option<Completion> {
        if !self.threads.is_empty() {
            return None;
        }
        let op = self.shared.state().waiting.pop_front()?;
        Some(read(op, &mut Pieces::default(), &self.scratch))
    }
}

/// One thread of the pool: takes reads in order until the queue is closed.
fn serve(shared: &Shared, scratch: &Scratch) {
    let mut pieces = Pieces::default();
    let mut state = shared.state();
    loop {
        if let Some(op) = state.waiting.pop_front() {
            drop(state);
            let completion = read(op, &mut pieces, scratch);
            state = shared.state();
            state.over.push_back(completion);
            shared.done.notify_one();
        } else if state.closed {
            return;
        } else {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Does one read.
fn read(op: ReadOp, pieces: &mut Pieces, scratch: &Scratch) -> Completion {
    pieces.set(&op.parts, scratch);
    let result = loop {
        let read = read_once(&op, pieces.as_slice());
        if read >= 0 {
            break Ok(read as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            break Err(error);
        }
    };
    Completion { token: op.token, result, parts: op.parts }
}

/// One `preadv2`, which is the only call of the family that takes `RWF_DONTCACHE`.
fn read_once(op: &ReadOp, pieces: &[libc::iovec]) -> isize {
    let flags = if op.dont_cache { RWF_DONTCACHE } else { 0 };
    let (file, count) = (op.file.as_raw_fd(), pieces.len() as libc::c_int);
    // SAFETY: the pieces lie in parts that `op` owns and in the scratch, both of which outlive the call.
    unsafe { preadv2(file, pieces.as_ptr(), count, op.offset as i64, flags) }
}

impl ReadQueue for PoolQueue {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.begun
    }

    fn push(&mut self, op: ReadOp) -> io::Result<()> {
        admit(self, &op)?;
        self.queued.push(op);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        let count = self.queued.len();
        if count == 0 {
            return Ok(());
        }
        self.begun += count;
        self.shared.state().waiting.extend(self.queued.drain(..));
        match count {
            1 => self.shared.work.notify_one(),
            _ => self.shared.work.notify_all(),
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Completion> {
        self.submit()?;
        if self.begun == 0 {
            return Err(nothing_in_flight());
        }
        let completion = self.read_here().unwrap_or_else(|| self.shared.next());
        self.begun -= 1;
        Ok(completion)
    }

    fn try_wait(&mut self) -> Option<Completion> {
        let over = self.shared.state().over.pop_front();
        let completion = over.or_else(|| self.read_here())?;
        self.begun -= 1;
        Some(completion)
    }
}

impl Drop for PoolQueue {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.waiting.clear();
        state.closed = true;
        drop(state);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for PoolQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolQueue({} of {})", self.in_flight(), self.capacity)
    }
}
