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
    service::{
        client::Client,
        default_socket,
        protocol::{Head, Question, Refusal, Row},
    },
    store::Store,
    summaries::{Freshness, Summaries},
    view::view,
    walk::{Untracked, Walk},
};
use onesweep_sys::files::{self, EntryType};
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

    fn watch(&self, client: &Client) -> io::Result<()> {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.socket()?);
        Ok(())
    }
}

fn ask(client: &mut Client, path: &Path, directory: &OwnedFd, freshness: Freshness) -> Result<Option<Told>, Untold> {
    let broke = |error: io::Error| Untold {
        message: format!("{}: cannot be asked for: {error}", path.display()),
        class: "ServiceError",
        source: Some(error),
    };
    let mut row = None;
    let question = Question { freshness, ..Question::plain() };
    let head: Head = match client.ask(directory.as_fd(), &question, |line| row = Some(line)).map_err(broke)? {
        Ok(head) => head,
        Err(Refusal::NotTracked | Refusal::Denied | Refusal::Late) => return Ok(None),
        Err(Refusal::Failed(why)) => {
            let message = format!("{}: the server could not answer: {why}", path.display());
            return Err(Untold { class: "ServiceError", source: None, message });
        }
    };
    let row = row.ok_or_else(|| broke(io::ErrorKind::InvalidData.into()))?;
    Ok(Some(Told {
        row,
        source: "server",
        is_exact: head.exact,
        is_partial: head.partial,
        harvested_at: Some(head.harvested_at),
        unreadable: head.unreadable,
    }))
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
    })
}

struct Asked {
    path: PathBuf,
    socket: PathBuf,
    must_be_served: bool,
    freshness: Freshness,
    one_file_system: bool,
}

fn tell(asked: &Asked, stop: &Stop) -> Result<Told, Untold> {
    let Asked { path, socket, must_be_served, freshness, one_file_system } = asked;
    let root = |error| Untold::io("RootError", path, error);
    let directory = files::open_dir_handle(path).map_err(root)?;
    let stat = files::statx_fd(directory.as_fd()).map_err(root)?;
    if stat.file_type() != EntryType::Dir {
        return Err(root(io::Error::from_raw_os_error(ENOTDIR)));
    }
    match Client::connect(socket) {
        Ok(mut client) => {
            stop.watch(&client).map_err(root)?;
            match ask(&mut client, path, &directory, *freshness)? {
                Some(told) => return Ok(told),
                None if *must_be_served => {
                    let message = format!("{}: the server at {} doesn't track it", path.display(), socket.display());
                    return Err(Untold { class: "ServiceError", source: None, message });
                }
                None => {}
            }
        }
        Err(error) if *must_be_served => {
            let message = format!("no server listens at {}: {error}; start onesweep serve", socket.display());
            return Err(Untold { class: "ServiceError", source: Some(error), message });
        }
        Err(_) => {}
    }
    if *freshness == Freshness::Synced {
        files::open_dir(path).and_then(|open| files::sync_file_system(open.as_fd())).map_err(root)?;
    }
    walk(path, *one_file_system, stop)
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
    let told = wait::interruptible(py, move || throw.throw(), || tell(&asked, &stop))?;
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
