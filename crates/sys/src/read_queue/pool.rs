//! Reads in flight by a few threads, where io_uring is missing or forbidden.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

#[cfg(not(target_env = "gnu"))]
use libc::preadv2;
// The one of glibc that takes 64 bits of offset everywhere.
#[cfg(target_env = "gnu")]
use libc::preadv64v2 as preadv2;

use super::pieces::{Pieces, RWF_DONTCACHE, Scratch};
use super::{Completion, ReadOp, ReadQueue, admit, nothing_in_flight};

/// Of new threads, one in so many at least is expected to have a number that a line still wants.
const TRIES: usize = 8;

const STACK_BYTES: usize = 128 << 10;

/// A [`ReadQueue`] on a pool of threads, each of which does one read at a time.
///
/// Threads take the reads in order. As many reads are with the device at once as there are threads. Where reads choose among
/// copies, those of each copy are a line of their own, with threads whose numbers make btrfs read that copy.
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
struct Shared {
    state: Mutex<State>,
    /// Something to do in that line, or the end.
    work: Vec<Condvar>,
    /// A read is over.
    done: Condvar,
}

struct State {
    lines: Vec<Line>,
    over: VecDeque<Completion>,
    closed: bool,
}

/// Reads that wait for the same threads.
#[derive(Default)]
struct Line {
    waiting: VecDeque<ReadOp>,
    threads: usize,
}

impl State {
    /// The line of a read, which has threads if any has.
    fn line_of(&self, op: &ReadOp) -> usize {
        let count = self.lines.len();
        let wanted = op.copy.map_or(op.token as usize, usize::from) % count;
        (wanted..count).chain(0..wanted).find(|&line| self.lines[line].threads > 0).unwrap_or(wanted)
    }
}

impl Shared {
    fn new(lines: usize) -> Arc<Shared> {
        let state =
            State { lines: (0..lines).map(|_| Line::default()).collect(), over: VecDeque::new(), closed: false };
        let work = (0..lines).map(|_| Condvar::new()).collect();
        Arc::new(Shared { state: Mutex::new(state), work, done: Condvar::new() })
    }

    /// Takes the calling thread into the line that its number leads to, unless that has as many as it may have.
    fn join(&self, threads_max: usize) -> Option<usize> {
        let mut state = self.state();
        let line = line_of_thread(current_thread(), state.lines.len());
        let threads = &mut state.lines[line].threads;
        (*threads < threads_max).then(|| {
            *threads += 1;
            line
        })
    }

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
        let threads = threads.min(depth.max(1));
        PoolQueue::of_lines(depth, 1, threads)
    }

    /// A queue for `depth` reads in flight, each of which reads the copy that it wants of so many, with as many threads.
    ///
    /// A copy to which the numbers of new threads don't lead within some tries is read by the threads of another.
    pub fn of_copies(depth: usize, copies: u16) -> PoolQueue {
        let lines = usize::from(copies.max(1));
        PoolQueue::of_lines(depth, lines, depth.max(1).div_ceil(lines))
    }

    fn of_lines(depth: usize, lines: usize, threads_each: usize) -> PoolQueue {
        let shared = Shared::new(lines);
        let scratch = Scratch::new();
        let spawn = |_| {
            let (shared, scratch) = (Arc::clone(&shared), scratch.clone());
            let (tell, told) = mpsc::channel();
            let serve = move || {
                let line = shared.join(threads_each);
                let _ = tell.send(line.is_some());
                if let Some(line) = line {
                    serve(&shared, line, &scratch);
                }
            };
            let builder = std::thread::Builder::new().name("onesweep-read".into()).stack_size(STACK_BYTES);
            let thread = builder.spawn(serve).ok()?;
            Some(told.recv().is_ok_and(|joined| joined).then_some(thread))
        };
        let wanted = lines * threads_each;
        let tries = if lines == 1 { wanted } else { wanted * TRIES };
        let threads = (0..tries).map_while(spawn).flatten().take(wanted).collect();
        PoolQueue { capacity: depth.max(1), queued: Vec::new(), begun: 0, shared, scratch, threads }
    }

    /// Does a begun read here when there is no thread to do it.
    fn read_here(&mut self) -> Option<Completion> {
        if !self.threads.is_empty() {
            return None;
        }
        let op = self.shared.state().lines.iter_mut().find_map(|line| line.waiting.pop_front())?;
        Some(read(op, &mut Pieces::default(), &self.scratch))
    }
}

/// The line that the number of a thread leads to: btrfs divides in the same way.
fn line_of_thread(thread: u64, lines: usize) -> usize {
    (thread % lines as u64) as usize
}

/// The number of the calling thread.
#[doc(alias = "gettid")]
fn current_thread() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// One thread of the pool: takes reads of its line in order until the queue is closed.
fn serve(shared: &Shared, line: usize, scratch: &Scratch) {
    let mut pieces = Pieces::default();
    let mut state = shared.state();
    loop {
        if let Some(op) = state.lines[line].waiting.pop_front() {
            drop(state);
            let completion = read(op, &mut pieces, scratch);
            state = shared.state();
            state.over.push_back(completion);
            shared.done.notify_one();
        } else if state.closed {
            return;
        } else {
            state = shared.work[line].wait(state).unwrap_or_else(PoisonError::into_inner);
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
        let mut state = self.shared.state();
        for op in self.queued.drain(..) {
            let line = state.line_of(&op);
            state.lines[line].waiting.push_back(op);
            self.shared.work[line].notify_one();
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
        state.lines.iter_mut().for_each(|line| line.waiting.clear());
        state.closed = true;
        drop(state);
        self.shared.work.iter().for_each(Condvar::notify_all);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each copy has its threads, whose numbers lead to it.
    #[test]
    fn copies_have_threads_of_their_own() {
        for copies in [1, 2, 3, 4_u16] {
            let queue = PoolQueue::of_copies(12, copies);
            let each: Vec<usize> = queue.shared.state().lines.iter().map(|line| line.threads).collect();
            assert_eq!(each, vec![12 / usize::from(copies); usize::from(copies)]);
            assert_eq!(queue.threads.len(), 12);
        }
        assert_eq!([6, 7, 8, 9].map(|thread| line_of_thread(thread, 2)), [0, 1, 0, 1]);
        assert_eq!([6, 7, 8, 9].map(|thread| line_of_thread(thread, 3)), [0, 1, 2, 0]);
    }

    #[test]
    fn a_read_waits_in_the_line_of_its_copy() {
        let mut state = State { lines: Vec::new(), over: VecDeque::new(), closed: false };
        state.lines.resize_with(3, Line::default);
        let file = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let op = |token, copy| ReadOp {
            token,
            file: Arc::clone(&file),
            offset: 0,
            parts: Vec::new(),
            dont_cache: false,
            copy,
        };
        assert_eq!(state.line_of(&op(0, Some(2))), 2, "without any thread, whoever asks reads");
        state.lines.iter_mut().for_each(|line| line.threads = 1);
        assert_eq!([0, 1, 2, 3].map(|copy| state.line_of(&op(7, Some(copy)))), [0, 1, 2, 0]);
        assert_eq!([3, 4, 5].map(|token| state.line_of(&op(token, None))), [0, 1, 2]);
        state.lines[2].threads = 0;
        assert_eq!(state.line_of(&op(7, Some(2))), 0);
    }
}
