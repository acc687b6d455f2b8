//! What a directory comes to: asked of `onesweep serve`, else walked.

use std::{
    fmt, io,
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use onesweep_summary::{
    mounted::{How, Mounted, Parts},
    service::{
        client::Client,
        default_socket,
        protocol::{Figures, Head, Name, Question, Refusal, Row},
    },
    store::Store,
    summaries::{Freshness, Summaries},
    view::view,
    walk::{Untracked, Walk},
};
use onesweep_sys::files::{self, EntryType, Stat};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::{
    fault,
    paths::{self, Style},
    record::{self, fields},
    wait,
};

/// What a directory comes to, and who says so.
struct Told {
    row: Row,
    source: &'static str,
    is_exact: bool,
    is_partial: bool,
    harvested_at: Option<i64>,
    unreadable: u64,
    /// Something in it has names elsewhere.
    leads_out: bool,
}

impl Told {
    fn of_server(head: &Head, row: Row) -> Self {
        Self {
            row,
            source: "server",
            is_exact: head.exact,
            is_partial: head.partial,
            harvested_at: Some(head.harvested_at),
            unreadable: head.unreadable,
            leads_out: head.leads_out,
        }
    }

    /// A file on which another one is mounted.
    fn of_file(stat: &Stat) -> Self {
        let figures = Figures::of_inode(stat);
        let largest = (stat.file_type() == EntryType::File).then_some(stat.size);
        let (name, newest) = (Name::of(b""), Some(stat.mtime.secs));
        let row = Row { name, depth: 0, total: figures, own: figures, newest, largest, past: None };
        let leads_out = figures.freed < figures.allocated;
        Self { row, source: "walk", is_exact: true, is_partial: false, harvested_at: None, unreadable: 0, leads_out }
    }

    /// Adds what is mounted in it; a file that lies right in it is its own.
    fn add(&mut self, below: &Told, is_own: bool) {
        let row = &mut self.row;
        row.total += &below.row.total;
        if is_own {
            row.own += &below.row.total;
        }
        row.newest = row.newest.max(below.row.newest);
        row.largest = row.largest.max(below.row.largest);
        self.is_exact &= below.is_exact;
        self.is_partial |= below.is_partial;
        self.unreadable += below.unreadable;
        self.harvested_at = self.harvested_at.into_iter().chain(below.harvested_at).min();
        if self.is_partial {
            // What removing it frees isn't told where something is left out.
            (row.total.freed, row.own.freed) = (0, 0);
        }
    }
}

/// Why that can't be told.
struct Untold {
    class: &'static str,
    source: Option<io::Error>,
    message: String,
}

impl Untold {
    fn io(class: &'static str, path: &Path, source: io::Error) -> Self {
        let message = format!("{}: {source}", path.display());
        Self { class, source: Some(source), message }
    }
}

/// Stops a question that is being answered, or a walk, from the thread that heeds signals.
#[derive(Clone, Default)]
struct Stop {
    is_thrown: Arc<AtomicBool>,
    socket: Arc<Mutex<Option<UnixStream>>>,
}

impl Stop {
    fn throw(&self) {
        self.is_thrown.store(true, Ordering::Relaxed);
        if let Some(socket) = &*self.socket.lock().unwrap_or_else(PoisonError::into_inner) {
            // What is not connected any more needs no end.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn is_thrown(&self) -> bool {
        self.is_thrown.load(Ordering::Relaxed)
    }

    fn watch(&self, client: &Client) -> io::Result<()> {
        let socket = client.socket()?;
        let mut watched = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_thrown() {
            // That was before there was anything to shut down, and comes once.
            let _ = socket.shutdown(Shutdown::Both);
        }
        *watched = Some(socket);
        Ok(())
    }
}

fn walk(path: &Path, one_file_system: bool, stop: &Stop) -> Result<Told, Untold> {
    let walk = Walk::of(path, one_file_system).map_err(|error| Untold::io("RootError", path, error))?;
    let failed = |error: &dyn fmt::Display| Untold {
        class: "ServiceError",
        source: None,
        message: format!("{}: cannot be walked: {error}", path.display()),
    };
    let root = walk.root();
    let store = Store::in_memory().map_err(|error| failed(&error))?;
    let walk = walk.stopped_by(stop.is_thrown.clone());
    let mut summaries = Summaries::open(store, (walk, Untracked), root, b"").map_err(|error| failed(&error))?;
    let top = summaries.root();
    summaries.settle(top).map_err(|error| failed(&error))?;
    let seen = view(summaries.ledger(), top, 0, None).map_err(|error| failed(&error))?;
    let line = seen.lines.last().ok_or_else(|| failed(&"nothing is known of it"))?;
    let record = summaries.record(line.slot).map_err(|error| failed(&error))?;
    let unreadable = summaries.unreadable(top).count() as u64;
    Ok(Told {
        row: Row::of(line, &record.name, seen.is_partial),
        source: "walk",
        is_exact: true,
        is_partial: seen.is_partial,
        harvested_at: None,
        unreadable,
        leads_out: seen.leads_out,
    })
}

struct Asked {
    path: PathBuf,
    socket: PathBuf,
    must_be_served: bool,
    freshness: Freshness,
    one_file_system: bool,
}

/// Who tells of directories: the server as long as it answers, else a walk.
struct Teller<'a> {
    asked: &'a Asked,
    server: Option<Client>,
    stop: &'a Stop,
}

impl Teller<'_> {
    /// What the directory that was named comes to.
    fn tell(&mut self) -> Result<Told, Untold> {
        let path = &self.asked.path;
        let root = |error| Untold::io("RootError", path, error);
        let directory = files::open_dir_handle(path).map_err(root)?;
        let stat = files::statx_fd(directory.as_fd()).map_err(root)?;
        if stat.file_type() != EntryType::Dir {
            return Err(root(io::Error::from_raw_os_error(ENOTDIR)));
        }
        match Client::connect(&self.asked.socket) {
            Ok(server) => {
                self.stop.watch(&server).map_err(root)?;
                self.server = Some(server);
            }
            Err(error) if self.asked.must_be_served => {
                let socket = self.asked.socket.display();
                let message = format!("no server listens at {socket}: {error}; start onesweep serve");
                return Err(Untold { class: "ServiceError", source: Some(error), message });
            }
            Err(_) => {}
        }
        self.tell_of(path, &directory)
    }

    fn tell_of(&mut self, path: &Path, directory: &OwnedFd) -> Result<Told, Untold> {
        let Some(mut told) = self.ask(path, directory)? else { return self.walk(path) };
        // Which inodes count twice only a walk tells, which nobody wants who takes what is stored.
        let counts_twice = self.add_mounted(path, &mut told)?;
        if counts_twice && self.asked.freshness != Freshness::Cached { self.walk(path) } else { Ok(told) }
    }

    fn walk(&self, path: &Path) -> Result<Told, Untold> {
        let Asked { freshness, one_file_system, .. } = *self.asked;
        if freshness == Freshness::Synced && !self.stop.is_thrown() {
            let synced = files::open_dir(path).and_then(|open| files::sync_file_system(open.as_fd()));
            synced.map_err(|error| Untold::io("RootError", path, error))?;
        }
        walk(path, one_file_system, self.stop)
    }

    /// Asks the server. `None` is for a walk: there is none, or it has no answer; one that was named has to have one for what was
    /// named.
    fn ask(&mut self, path: &Path, directory: &OwnedFd) -> Result<Option<Told>, Untold> {
        let Some(server) = &mut self.server else { return Ok(None) };
        let must_be_served = self.asked.must_be_served;
        let Asked { freshness, one_file_system, .. } = *self.asked;
        let question = Question { freshness, one_file_system, ..Question::plain() };
        let mut row = None;
        let answer = server.ask(directory.as_fd(), &question, |line| row = Some(line));
        let answer = answer.and_then(|answer| match answer {
            Ok(head) => row.map(|row| Ok((head, row))).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(refusal) => Ok(Err(refusal)),
        });
        let untold = |source, why: String| Untold {
            class: "ServiceError",
            source,
            message: format!("{}: {why}", path.display()),
        };
        match answer {
            Ok(Ok((head, row))) => Ok(Some(Told::of_server(&head, row))),
            Ok(Err(Refusal::Failed(why))) if must_be_served => {
                Err(untold(None, format!("the server could not answer: {why}")))
            }
            Ok(Err(Refusal::NotTracked | Refusal::Denied | Refusal::Late))
                if must_be_served && path == self.asked.path =>
            {
                Err(untold(None, format!("the server at {} doesn't track it", self.asked.socket.display())))
            }
            Ok(Err(_)) => Ok(None),
            Err(error) if must_be_served => {
                let why = format!("cannot be asked for: {error}");
                Err(untold(Some(error), why))
            }
            Err(_) => {
                // It went away: what is left is walked.
                self.server = None;
                Ok(None)
            }
        }
    }

    /// Adds what is mounted below, which a walk counts and a server tells of by itself. True where something may count in more than one
    /// place then.
    fn add_mounted(&mut self, path: &Path, told: &mut Told) -> Result<bool, Untold> {
        let mounted = Mounted::below(path, self.asked.one_file_system).map_err(|error| Untold {
            class: "SystemError",
            message: error.to_string(),
            source: Some(error),
        })?;
        let mut parts = Parts::begin(&mounted, told.leads_out);
        for place in &mounted.places {
            if self.stop.is_thrown() {
                break;
            }
            if parts.hold(place) {
                continue;
            }
            let path = path.join(&place.below);
            let looked_at = files::open_handle(&path).and_then(|open| Ok((files::statx_fd(open.as_fd())?, open)));
            let (how, below) = match looked_at {
                Ok((stat, directory)) if stat.file_type() == EntryType::Dir => match self.ask(&path, &directory)? {
                    Some(below) => (How::Told, below),
                    None => (How::Walked, self.walk(&path)?),
                },
                Ok((stat, _)) => (How::File, Told::of_file(&stat)),
                Err(_) => {
                    told.unreadable += 1;
                    continue;
                }
            };
            parts.add(place, how, below.leads_out);
            told.add(&below, how == How::File && place.below.components().count() == 1);
        }
        Ok(parts.may_count_twice())
    }
}

const ENOTDIR: i32 = 20;

#[pyfunction]
#[pyo3(signature = (path, *, socket = None, freshness = "exact", one_file_system = false))]
pub(crate) fn du<'py>(
    py: Python<'py>,
    path: &Bound<'py, PyAny>,
    socket: Option<&Bound<'py, PyAny>>,
    freshness: &str,
    one_file_system: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (path, style): (PathBuf, Style) = paths::path(path)?;
    let freshness = match freshness {
        "exact" => Freshness::Exact,
        "cached" => Freshness::Cached,
        "synced" => Freshness::Synced,
        other => {
            let message = format!("unknown freshness '{other}'; use exact, cached or synced");
            return Err(PyValueError::new_err(message));
        }
    };
    let must_be_served = socket.is_some();
    let socket = socket.map(|socket| paths::path(socket).map(|(path, _)| path)).transpose()?;
    let socket = socket.unwrap_or_else(default_socket);
    let asked = Asked { path, socket, must_be_served, freshness, one_file_system };
    let stop = Stop::default();
    let throw = stop.clone();
    let told =
        wait::interruptible(py, move || throw.throw(), || Teller { asked: &asked, server: None, stop: &stop }.tell())?;
    let told = told.map_err(|why| {
        fault::of_service(py, why.class, Some((&asked.path, style)), why.source.as_ref(), why.message)
    })?;
    let row = &told.row;
    let fields = fields!(py, told => { source, is_exact, is_partial, harvested_at, unreadable },
        "path" => style.path(py, &asked.path)?,
        "total" => record::totals(py, &row.total)?, "own" => record::totals(py, &row.own)?,
        "newest" => row.newest, "largest" => row.largest);
    record::make(py, "DirectoryTotals", &fields)
}
