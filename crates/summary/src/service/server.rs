//! Answers on a Unix socket, to each user what `du` run by that user would print.

use std::{
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    ops::Deref,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};

use onesweep_sys::{
    files,
    handle::handle_at,
    peer::{self, Peer},
};

use super::protocol::{Beginning, Head, Name, Question, Refusal, Row};
use crate::{
    access::Asker,
    identity::NodeId,
    nodes::Slot,
    record::Access,
    summaries::{Freshness, Summaries, SummaryError},
    tracker::Fanotify,
    view::{View, view},
    volume::Volume,
};

/// Bytes of a question, at most.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// Summaries of a mounted file system, kept true.
pub type Tracked = Summaries<Arc<Volume>, Fanotify>;

/// Directories that are harvested in one go while others wait to ask what is stored.
const SOME: usize = 20_000;

/// Answers for several file systems.
pub struct Server {
    volumes: Vec<Served>,
    full_totals: Vec<u32>,
}

struct Served {
    volume: Arc<Volume>,
    tracked: RwLock<Tracked>,
    /// It is known what has changed while nobody tracked it.
    is_ready: Mutex<bool>,
    ready: Condvar,
}

/// What is stored, and whether others can look at it, too.
enum Held<'a> {
    Shared(RwLockReadGuard<'a, Tracked>),
    Alone(RwLockWriteGuard<'a, Tracked>),
}

impl Deref for Held<'_> {
    type Target = Tracked;

    fn deref(&self) -> &Tracked {
        match self {
            Held::Shared(tracked) => tracked,
            Held::Alone(tracked) => tracked,
        }
    }
}

impl Served {
    fn shared(&self) -> RwLockReadGuard<'_, Tracked> {
        self.tracked.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, Tracked> {
        self.tracked.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until_ready(&self) {
        let is_ready = self.is_ready.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ready.wait_while(is_ready, |is_ready| !*is_ready).unwrap_or_else(PoisonError::into_inner));
    }

    fn catch_up(&self) -> Result<(), SummaryError> {
        let is_behind = self.shared().is_behind();
        if is_behind {
            // What is stored can be asked meanwhile.
            let missed = self.shared().missed()?;
            self.alone().catch_up(missed)?;
        }
        loop {
            let mut tracked = self.alone();
            let root = tracked.root();
            if tracked.settle_some(root, SOME)? {
                return tracked.commit(true);
            }
            drop(tracked);
            thread::yield_now();
        }
    }
}

impl Server {
    /// For these; the users in `full_totals` get whole totals, as root does.
    pub fn new(tracked: Vec<Tracked>, full_totals: Vec<u32>) -> Server {
        let serve = |tracked: Tracked| Served {
            volume: Arc::clone(tracked.directories()),
            tracked: RwLock::new(tracked),
            is_ready: Mutex::new(false),
            ready: Condvar::new(),
        };
        Server { volumes: tracked.into_iter().map(serve).collect(), full_totals }
    }

    /// Finds out what has changed while nobody tracked the file systems, one after the other, and harvests that. Until then who
    /// asks for what is stored gets that, and all others wait. `done` gets each, or why it could not be done.
    pub fn catch_up(&self, mut done: impl FnMut(&Tracked, Result<(), SummaryError>)) {
        for served in &self.volumes {
            let caught_up = served.catch_up();
            *served.is_ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
            served.ready.notify_all();
            done(&served.shared(), caught_up);
        }
    }

    /// The summaries of each, one after the other.
    pub fn each(&self, mut visit: impl FnMut(&mut Tracked)) {
        self.volumes.iter().for_each(|served| visit(&mut served.alone()));
    }

    /// Answers the questions of one connection until it ends.
    pub fn converse(&self, connection: &UnixStream) -> io::Result<()> {
        let asker = self.asker(peer::peer_of(connection.as_fd())?);
        let mut input = BufReader::new(Receiving { connection, file: None });
        let mut out = BufWriter::new(connection);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut input).take(QUESTION_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(());
            }
            let file = input.get_mut().file.take();
            let answer = match serde_json::from_slice::<Question>(&line) {
                Ok(question) if line.ends_with(b"\n") => self.answer(&asker, &question, file),
                Ok(_) => Err(Refusal::Failed("the question has no end".to_owned())),
                Err(error) => Err(Refusal::Failed(format!("the question can't be understood: {error}"))),
            };
            match answer {
                Ok((head, rows)) => {
                    say(&mut out, &Beginning::Answer(head))?;
                    rows.iter().try_for_each(|row| say(&mut out, row))?;
                }
                Err(refusal) => say(&mut out, &Beginning::Refused(refusal))?,
            }
            out.flush()?;
        }
    }

    fn asker(&self, peer: Peer) -> Asker {
        if peer.uid == 0 || self.full_totals.contains(&peer.uid) {
            return Asker::Everything;
        }
        Asker::User { uid: peer.uid, groups: peer.groups }
    }

    fn answer(&self, asker: &Asker, question: &Question, file: Option<OwnedFd>) -> Result<(Head, Vec<Row>), Refusal> {
        let is_reached = file.is_some();
        let directory = match (file, &question.path) {
            (Some(file), _) => file,
            (None, Some(path)) => open(path)?,
            (None, None) => return Err(Refusal::Failed("no directory is named".to_owned())),
        };
        let (served, id) = self.find(directory.as_fd()).ok_or(Refusal::NotTracked)?;
        let volume = &served.volume;
        let (answer, tracked) = if question.freshness == Freshness::Cached {
            let tracked = served.shared();
            (tracked.cached(id).map_err(refusal)?, Held::Shared(tracked))
        } else {
            served.wait_until_ready();
            let mut tracked = served.alone();
            (tracked.query(id, question.freshness).map_err(refusal)?, Held::Alone(tracked))
        };
        let slot = tracked.ledger().nodes.find(id).ok_or(Refusal::NotTracked)?;
        let may_list = |slot: Slot, access: &Access| {
            asker.may_list(access, || volume.access_list(tracked.ledger().nodes.id(slot)))
        };
        // Where nobody has shown that it can be reached, all above must let the asker through.
        if !is_reached && *asker != Asker::Everything {
            for above in tracked.ledger().nodes.upwards(slot).skip(1) {
                let record = tracked.record(above).map_err(refusal)?;
                if !may_list(above, &record.access) {
                    return Err(Refusal::Denied);
                }
            }
        }
        let failed = |error| Refusal::Failed(SummaryError::Store(error).to_string());
        let View { lines, is_partial } = view(tracked.ledger(), slot, question.depth, &may_list).map_err(failed)?;
        let mut rows = Vec::with_capacity(lines.len());
        for line in &lines {
            let name = if line.slot == slot { Vec::new() } else { tracked.record(line.slot).map_err(refusal)?.name };
            let mut row = Row::of(line, &name);
            if is_partial {
                (row.total.freed, row.own.freed) = (0, 0);
            }
            rows.push(row);
        }
        let head = Head {
            lines: rows.len() as u64,
            partial: is_partial,
            exact: answer.is_exact,
            harvested_at: answer.harvested_at,
            unreadable: answer.unreadable as u64,
        };
        Ok((head, rows))
    }

    /// The file system that an open directory belongs to, and its number there.
    fn find(&self, directory: BorrowedFd<'_>) -> Option<(&Served, NodeId)> {
        let stat = files::statx_fd(directory).ok()?;
        let handle = handle_at(directory, c"").ok()?;
        self.volumes.iter().find_map(|served| {
            let volume = &served.volume;
            // One that doesn't answer keeps nobody else waiting.
            if !volume.may_hold(stat.dev) {
                return None;
            }
            let id = volume.family().node(&handle)?;
            // Numbers of different file systems are alike: what is opened by this one must be the same directory.
            let same = files::statx_fd(volume.open(id).ok()?.as_fd()).ok()?;
            ((same.dev, same.ino) == (stat.dev, stat.ino)).then_some((served, id))
        })
    }
}

fn open(path: &Name) -> Result<OwnedFd, Refusal> {
    let bytes = path.clone().into_bytes();
    let path = Path::new(std::ffi::OsStr::from_bytes(&bytes));
    if !path.is_absolute() {
        return Err(Refusal::Failed("the path isn't absolute".to_owned()));
    }
    files::open_dir_handle(path).map_err(|_| Refusal::NotTracked)
}

fn refusal(error: SummaryError) -> Refusal {
    match error {
        SummaryError::Unknown => Refusal::NotTracked,
        other => Refusal::Failed(other.to_string()),
    }
}

fn say(out: &mut impl Write, what: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, what)?;
    out.write_all(b"\n")
}

/// Reads a connection, and keeps the last file that came.
struct Receiving<'a> {
    connection: &'a UnixStream,
    file: Option<OwnedFd>,
}

impl Read for Receiving<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (bytes, file) = peer::receive_with_file(self.connection.as_fd(), buffer)?;
        self.file = file.or(self.file.take());
        Ok(bytes)
    }
}

impl Question {
    /// For one directory alone, exactly.
    pub fn plain() -> Question {
        Question { path: None, depth: 0, freshness: Freshness::Exact }
    }
}
