//! The thread behind the disk: takes commands in order of arrival, chooses, serves, answers.
//!
//! In virtual time nothing waits for the modelled milliseconds; they only go into the books. Two real times still count:
//! before each choice the server pauses for [`PAUSE`], or a queue would never form, and the time between a completion
//! and the next arrival is thinking time, in which the drive may read ahead.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use serde::Serialize;

use crate::disk::books::Books;
use crate::disk::drive::{Command, Drive, Service};
use crate::disk::faults::{Fate, Fault, Faults, Unsynced};
use crate::disk::queue;
use crate::disk::trace::{self, Entry};
use crate::inbox::{Inbox, Job};

/// What the server waits in virtual time before it chooses, so that others can arrive.
const PAUSE: Duration = Duration::from_micros(150);

/// Where the answer goes, with what a write brought.
pub(crate) enum Reply {
    Read(ReplyData),
    Write(ReplyWrite, Vec<u8>),
    Flush(ReplyEmpty),
}

#[derive(Default)]
struct Arrivals {
    inbox: Inbox<Reply>,
    closed: bool,
}

/// Everything that the model knows and remembers.
struct State {
    drive: Drive,
    books: Books,
    faults: Faults,
    trace: Option<BufWriter<File>>,
    now_ms: f64,
}

impl State {
    /// Enters a command in the books and the trace: what becomes of it, what it takes, and when it is done.
    fn account(&mut self, command: &Command, others: u64) -> (Fate, Service, f64) {
        let fate = self.faults.judge(command, self.drive.model());
        let mut service = if self.faults.dead() { Service::default() } else { self.drive.serve(command, others > 0) };
        let (Fate::Served { extra_ms } | Fate::Failed { extra_ms }) = fate;
        service.overhead_ms += extra_ms;
        self.books.errors += u64::from(matches!(fate, Fate::Failed { .. }));
        self.books.enter(command.op, command.len, &service, others + 1);
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{}", Entry::new(self.now_ms, *command, &service, others + 1));
        }
        self.now_ms += service.ms();
        (fate, service, self.now_ms)
    }
}

/// What the statistics say about the disk beside its books.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Facts {
    pub(crate) model: String,
    pub(crate) image_bytes: u64,
    pub(crate) span: (f64, f64),
    pub(crate) track_buffer: bool,
    /// The factor of real time, `None` in virtual time.
    pub(crate) real: Option<f64>,
}

#[derive(Serialize)]
struct Stats<'a> {
    #[serde(flatten)]
    facts: &'a Facts,
    /// Milliseconds of virtual time since the disk was switched on.
    now_ms: f64,
    power: bool,
    #[serde(flatten)]
    books: &'a Books,
}

/// The disk: commands go in here. Where both locks are held, that of the arrivals was taken first.
pub(crate) struct Server {
    arrivals: Mutex<Arrivals>,
    arrived: Condvar,
    state: Mutex<State>,
    image: File,
    facts: Facts,
    has_head: bool,
    queue_depth: usize,
}

/// A poisoned lock means that the server's thread panicked, and then the process ends anyway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl Server {
    pub(crate) fn new(image: File, drive: Drive, facts: Facts, trace: Option<File>) -> std::io::Result<Arc<Self>> {
        let mut trace = trace.map(|file| BufWriter::with_capacity(1 << 16, file));
        if let Some(trace) = &mut trace {
            writeln!(trace, "{}", trace::HEADER)?;
        }
        let (has_head, queue_depth) = (drive.model().has_head(), drive.model().queue_depth);
        let state = State { drive, books: Books::default(), faults: Faults::default(), trace, now_ms: 0.0 };
        let (arrivals, arrived) = (Mutex::default(), Condvar::new());
        Ok(Arc::new(Self { arrivals, arrived, state: Mutex::new(state), image, facts, has_head, queue_depth }))
    }

    pub(crate) fn image_bytes(&self) -> u64 {
        self.facts.image_bytes
    }

    /// A command arrives. Its data is read when it is served, not before.
    pub(crate) fn submit(&self, command: Command, reply: Reply) {
        lock(&self.arrivals).inbox.arrive(command, reply, Instant::now());
        self.arrived.notify_one();
    }

    /// No more commands come; the trace is written out.
    pub(crate) fn close(&self) {
        lock(&self.arrivals).closed = true;
        self.arrived.notify_one();
        if let Some(trace) = &mut lock(&self.state).trace {
            let _ = trace.flush();
        }
    }

    /// The books as JSON.
    pub(crate) fn stats(&self) -> String {
        let mut state = lock(&self.state);
        if let Some(trace) = &mut state.trace {
            let _ = trace.flush();
        }
        let power = !state.faults.dead();
        let stats = Stats { facts: &self.facts, now_ms: state.now_ms, power, books: &state.books };
        let mut text = serde_json::to_string_pretty(&stats).unwrap_or_default();
        text.push('\n');
        text
    }

    /// What was written to the statistics: `reset`, or a fault.
    pub(crate) fn control(&self, text: &str) -> Result<(), String> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if line == "reset" {
                let mut state = lock(&self.state);
                state.books = Books::default();
                state.drive.park();
            } else {
                let fault: Fault = line.parse()?;
                if fault.end().is_some_and(|end| end > self.facts.image_bytes) {
                    return Err(format!("{line}: the disk has {} bytes", self.facts.image_bytes));
                }
                lock(&self.state).faults.add(fault);
            }
        }
        Ok(())
    }

    /// Serves until [`Server::close`].
    pub(crate) fn run(&self) {
        let mut done = Instant::now();
        while let Some((job, thought, others)) = self.next(done) {
            done = self.serve(job, thought, others, done);
        }
    }

    /// Waits for a command and chooses one: with the time that passed before one came, and how many others wait.
    fn next(&self, done: Instant) -> Option<(Job<Reply>, Duration, u64)> {
        let mut arrivals = lock(&self.arrivals);
        while arrivals.inbox.len() == 0 {
            if arrivals.closed {
                return None;
            }
            arrivals = self.arrived.wait(arrivals).unwrap_or_else(PoisonError::into_inner);
        }
        let thought = arrivals.inbox.idle_since(done);
        let depth = self.queue_depth;
        if self.has_head && self.facts.real.is_none() && arrivals.inbox.len() < depth {
            drop(arrivals);
            thread::sleep(PAUSE);
            arrivals = lock(&self.arrivals);
        }
        let inbox = &mut arrivals.inbox;
        let mut state = lock(&self.state);
        if !thought.is_zero() {
            let thought_ms = ms(thought) / self.facts.real.unwrap_or(1.0);
            state.drive.think(thought_ms);
            state.books.think_ms += thought_ms;
            state.now_ms += thought_ms;
            inbox.idle_until(state.now_ms);
        }
        let index = queue::choose(&inbox.waiting(depth), &state.drive)?;
        let job = inbox.take(index)?;
        Some((job, thought, inbox.len() as u64))
    }

    /// Serves one command, and says when it was done.
    fn serve(&self, job: Job<Reply>, thought: Duration, others: u64, done: Instant) -> Instant {
        let (fate, service) = self.account(&job.command, others);
        let result = match fate {
            Fate::Failed { .. } => Err(()),
            Fate::Served { .. } => self.transfer(&job),
        };
        let finished = match self.facts.real {
            None => Instant::now(),
            Some(factor) => {
                // What choosing and transferring took is part of the modelled time, not on top of it.
                let due = done + thought + Duration::from_secs_f64(service.ms() * factor / 1000.0);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                due
            }
        };
        answer(job.reply, &job.command, result);
        finished
    }

    /// Enters a command in the books and the trace, and tells those that wait how late it is.
    fn account(&self, command: &Command, others: u64) -> (Fate, Service) {
        let (fate, service, now_ms) = lock(&self.state).account(command, others);
        lock(&self.arrivals).inbox.worked_until(now_ms);
        (fate, service)
    }

    /// Moves the data between the image and the command.
    fn transfer(&self, job: &Job<Reply>) -> Result<Vec<u8>, ()> {
        let start = job.command.start;
        match &job.reply {
            Reply::Read(_) => {
                let end = job.command.end().min(self.facts.image_bytes);
                let mut data = vec![0; end.saturating_sub(start) as usize];
                self.image.read_exact_at(&mut data, start).map_err(|_| ())?;
                Ok(data)
            }
            Reply::Write(_, data) => self.write(start, data).map(|()| Vec::new()),
            Reply::Flush(_) => {
                lock(&self.state).faults.flushed();
                Ok(Vec::new())
            }
        }
    }

    fn write(&self, start: u64, data: &[u8]) -> Result<(), ()> {
        if start + data.len() as u64 > self.facts.image_bytes {
            return Err(());
        }
        if !lock(&self.state).faults.keeps_writes() {
            return self.image.write_all_at(data, start).map_err(|_| ());
        }
        let mut before = vec![0; data.len()];
        self.image.read_exact_at(&mut before, start).map_err(|_| ())?;
        self.image.write_all_at(data, start).map_err(|_| ())?;
        let mut state = lock(&self.state);
        let safe = !state.drive.caches_writes();
        let back = state.faults.written(Unsynced { start, before, after: data.to_vec() }, safe);
        let Some(back) = back else {
            return Ok(());
        };
        for (start, bytes) in back {
            self.image.write_all_at(&bytes, start).map_err(|_| ())?;
        }
        Err(()) // the power went before it could be answered
    }
}

fn answer(reply: Reply, command: &Command, result: Result<Vec<u8>, ()>) {
    match (reply, result) {
        (Reply::Read(reply), Ok(data)) => reply.data(&data),
        (Reply::Read(reply), Err(())) => reply.error(Errno::EIO),
        (Reply::Write(reply, _), Ok(_)) => reply.written(command.len as u32),
        (Reply::Write(reply, _), Err(())) => reply.error(Errno::EIO),
        (Reply::Flush(reply), Ok(_)) => reply.ok(),
        (Reply::Flush(reply), Err(())) => reply.error(Errno::EIO),
    }
}
