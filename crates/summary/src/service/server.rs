//! Answers on a Unix socket, to each user what `du` run by that user would print.

use std::{
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    ops::Deref,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
};

use onesweep_sys::{
    files,
    handle::handle_at,
    peer::{self, Peer},
};

use super::{
    breakdown::Breakdown,
    listing::{LARGEST_MAX, Largest, Listing},
    pages::{Entry, PageHead},
    protocol::{Beginning, Head, Inode, Past, Question, Refusal, Row},
    reach,
};
use crate::{
    access::Asker,
    custom::{self, declare::Declared, view::Seen},
    history::History,
    identity::NodeId,
    nodes::Slot,
    reading::Directories,
    record::{Access, Record},
    summaries::{Answer, Freshness, Summaries, SummaryError},
    tracker::Fanotify,
    view::{MayList, View, view},
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
pub(super) enum Held<'a> {
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
                tracked.begin_noting();
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
            // Before the first question changes what is told of it.
            done(&served.shared(), caught_up);
            *served.is_ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
            served.ready.notify_all();
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
                Ok(Said::Rows(head, rows)) => {
                    say(&mut out, &Beginning::Answer(head))?;
                    rows.iter().try_for_each(|row| say(&mut out, row))?;
                }
                Ok(Said::Page(head, entries)) => {
                    say(&mut out, &Beginning::Page(head))?;
                    entries.iter().try_for_each(|entry| say(&mut out, entry))?;
                }
                Ok(Said::Listing(listing)) => say(&mut out, &Beginning::Listing(listing))?,
                Ok(Said::Breakdown(breakdown)) => say(&mut out, &Beginning::Breakdown(breakdown))?,
                Err(refusal) => say(&mut out, &Beginning::Refused(refusal))?,
            }
            out.flush()?;
        }
    }

    /// Who it is that asks.
    pub(super) fn asker(&self, peer: Peer) -> Asker {
        if peer.uid == 0 || self.full_totals.contains(&peer.uid) {
            return Asker::Everything;
        }
        Asker::User { uid: peer.uid, groups: peer.groups }
    }

    /// The declared summaries: the same of all file systems.
    pub(super) fn summaries(&self) -> Option<Arc<Declared>> {
        self.volumes.first().and_then(|served| served.volume.declared())
    }

    /// The directory at the top of each.
    pub(super) fn tops(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.volumes.iter().map(|served| served.volume.top())
    }

    fn answer(&self, asker: &Asker, question: &Question, file: Option<OwnedFd>) -> Result<Said, Refusal> {
        if let Some(Largest { limit, by }) = question.list {
            let listing = self.listing(asker, question, file, Some((limit.min(LARGEST_MAX), by)))?;
            return Ok(Said::Listing(Box::new(listing)));
        }
        if let Some(page) = question.page {
            let (head, entries) = self.page(asker, question, file, page)?;
            return Ok(Said::Page(head, entries));
        }
        if question.by.is_some() {
            return Ok(Said::Breakdown(Box::new(self.break_down(asker, question, file)?)));
        }
        let mut reached = self.reach(asker, question, file)?;
        let View { lines, is_partial } = reached.view(asker, reached.slot, question.depth)?;
        let mut rows = Vec::with_capacity(lines.len());
        for line in &lines {
            let name = if line.slot == reached.slot { Vec::new() } else { reached.record(line.slot)?.name };
            let mut row = Row::of(line, &name, is_partial);
            // What was left out then can't be told from what is left out now.
            if let Some(since) = question.since.filter(|_| !is_partial) {
                row.past = reached.past(line.slot, since)?;
            }
            rows.push(row);
        }
        Ok(Said::Rows(reached.head(rows.len(), is_partial), rows))
    }

    /// Finds the directory of a question, and brings what is known of it up to date.
    pub(super) fn reach(
        &self,
        asker: &Asker,
        question: &Question,
        file: Option<OwnedFd>,
    ) -> Result<Reached<'_>, Refusal> {
        let directory = match (file, &question.path, question.inode) {
            (Some(file), _, _) => file,
            (None, Some(path), _) => reach::open(asker, path)?,
            (None, None, Some(inode)) => {
                let directory = self.find_inode(inode, question.freshness)?;
                reach::check_way_to(asker, directory.as_fd())?;
                directory
            }
            (None, None, None) => return Err(Refusal::Failed("no directory is named".to_owned())),
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
        Ok(Reached { volume, tracked, slot, answer })
    }

    /// A directory that is known by the numbers that `stat` tells.
    fn find_inode(&self, inode: Inode, freshness: Freshness) -> Result<OwnedFd, Refusal> {
        // Where it isn't known it may be new.
        for looks_anew in [false, true] {
            for served in &self.volumes {
                let volume = &served.volume;
                if looks_anew {
                    served.wait_until_ready();
                    served.alone().query(volume.root(), freshness).map_err(refusal)?;
                }
                let tracked = served.shared();
                let nodes = &tracked.ledger().nodes;
                for id in nodes.all().map(|slot| nodes.id(slot)).filter(|id| id.ino == inode.ino) {
                    let Ok(directory) = volume.open(id) else { continue };
                    let is_it = files::statx_fd(directory.as_fd()).is_ok_and(|stat| stat.dev == inode.dev);
                    if is_it {
                        return Ok(directory);
                    }
                }
            }
            if freshness == Freshness::Cached {
                break;
            }
        }
        Err(Refusal::NotTracked)
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

/// A directory that was asked for, and its file system, of which nobody else is told anything meanwhile.
pub(super) struct Reached<'a> {
    volume: &'a Volume,
    pub(super) tracked: Held<'a>,
    pub(super) slot: Slot,
    answer: Answer,
}

impl Reached<'_> {
    /// What a directory came to then; from now on it is noted.
    fn past(&mut self, slot: Slot, since: i64) -> Result<Option<Past>, Refusal> {
        Ok(Past::since(&self.history(slot)?, since))
    }

    /// All that is known of what a directory came to; from now on it is noted.
    pub(super) fn points(&mut self, slot: Slot) -> Result<Vec<Past>, Refusal> {
        Ok(self.history(slot)?.points().iter().map(Past::of).collect())
    }

    fn history(&mut self, slot: Slot) -> Result<History, Refusal> {
        if let Held::Alone(tracked) = &mut self.tracked {
            tracked.remember(slot).map_err(refusal)?;
        }
        self.tracked.history(slot).map_err(refusal)
    }

    /// Whether the asker may list a directory.
    pub(super) fn may_list(&self, asker: &Asker, slot: Slot, access: &Access) -> bool {
        asker.may_list(access, || self.volume.access_list(self.tracked.ledger().nodes.id(slot)))
    }

    /// What the asker sees of a directory.
    pub(super) fn view(&self, asker: &Asker, slot: Slot, depth: u32) -> Result<View, Refusal> {
        let may_list = |slot: Slot, access: &Access| self.may_list(asker, slot, access);
        let may_list = (*asker != Asker::Everything).then_some(&may_list as MayList<'_>);
        view(self.tracked.ledger(), slot, depth, may_list)
            .map_err(|error| Refusal::Failed(SummaryError::Store(error).to_string()))
    }

    /// The same of the directory that was asked for, by a declared summary.
    pub(super) fn custom(&self, asker: &Asker, summary: usize) -> Result<Option<Seen>, Refusal> {
        let may_list = |slot: Slot, access: &Access| self.may_list(asker, slot, access);
        let may_list = (*asker != Asker::Everything).then_some(&may_list as MayList<'_>);
        custom::view::view(self.tracked.ledger(), self.slot, summary, may_list)
            .map_err(|error| Refusal::Failed(SummaryError::Store(error).to_string()))
    }

    pub(super) fn record(&self, slot: Slot) -> Result<Record, Refusal> {
        self.tracked.record(slot).map_err(refusal)
    }

    /// What tells its file system from others.
    pub(super) fn identity(&self) -> io::Result<Vec<u8>> {
        self.volume.identity()
    }

    /// The directory at the top of its file system.
    pub(super) fn top(&self) -> BorrowedFd<'_> {
        self.volume.top()
    }

    /// Of an answer of so many lines.
    pub(super) fn head(&self, lines: usize, is_partial: bool) -> Head {
        Head {
            lines: lines as u64,
            partial: is_partial,
            exact: self.answer.is_exact,
            harvested_at: self.answer.harvested_at,
            unreadable: self.answer.unreadable as u64,
        }
    }
}

fn refusal(error: SummaryError) -> Refusal {
    match error {
        SummaryError::Unknown => Refusal::NotTracked,
        other => Refusal::Failed(other.to_string()),
    }
}

/// An answer.
enum Said {
    Rows(Head, Vec<Row>),
    Listing(Box<Listing>),
    Page(PageHead, Vec<Entry>),
    Breakdown(Box<Breakdown>),
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
        let (path, inode, since) = (None, None, None);
        let (by, list, page) = (None, None, None);
        Question { path, inode, depth: 0, freshness: Freshness::Exact, since, by, list, page }
    }
}
