//! Answers on a Unix socket, to each user what `du` run by that user would print.

use std::{
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, MutexGuard},
};

use onesweep_sys::{
    files,
    handle::handle_at,
    peer::{self, Peer},
};

use super::{
    protocol::{Beginning, Head, Inode, Past, Question, Refusal, Row},
    reach,
};
use crate::{
    access::Asker,
    identity::NodeId,
    nodes::Slot,
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

/// Answers for several file systems.
pub struct Server {
    volumes: Vec<(Arc<Volume>, Mutex<Tracked>)>,
    full_totals: Vec<u32>,
}

impl Server {
    /// For these; the users in `full_totals` get whole totals, as root does.
    pub fn new(tracked: Vec<Tracked>, full_totals: Vec<u32>) -> Server {
        let volumes = tracked.into_iter().map(|tracked| (Arc::clone(tracked.directories()), Mutex::new(tracked)));
        Server { volumes: volumes.collect(), full_totals }
    }

    /// The summaries of each, one after the other.
    pub fn each(&self, mut visit: impl FnMut(&mut Tracked)) {
        self.volumes.iter().for_each(|(_, tracked)| visit(&mut lock(tracked)));
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

    /// Who it is that asks.
    pub(super) fn asker(&self, peer: Peer) -> Asker {
        if peer.uid == 0 || self.full_totals.contains(&peer.uid) {
            return Asker::Everything;
        }
        Asker::User { uid: peer.uid, groups: peer.groups }
    }

    /// The directory at the top of each.
    pub(super) fn tops(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.volumes.iter().map(|(volume, _)| volume.top())
    }

    fn answer(&self, asker: &Asker, question: &Question, file: Option<OwnedFd>) -> Result<(Head, Vec<Row>), Refusal> {
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
        Ok((reached.head(rows.len(), is_partial), rows))
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
        let (volume, tracked, id) = self.find(directory.as_fd()).ok_or(Refusal::NotTracked)?;
        let mut tracked = lock(tracked);
        let answer = tracked.query(id, question.freshness).map_err(refusal)?;
        let slot = tracked.ledger().nodes.find(id).ok_or(Refusal::NotTracked)?;
        Ok(Reached { volume, tracked, slot, answer })
    }

    /// A directory that is known by the numbers that `stat` tells.
    fn find_inode(&self, inode: Inode, freshness: Freshness) -> Result<OwnedFd, Refusal> {
        // Where it isn't known it may be new.
        for looks_anew in [false, true] {
            for (volume, tracked) in &self.volumes {
                let mut tracked = lock(tracked);
                if looks_anew {
                    tracked.query(volume.root(), freshness).map_err(refusal)?;
                }
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
    fn find(&self, directory: BorrowedFd<'_>) -> Option<(&Arc<Volume>, &Mutex<Tracked>, NodeId)> {
        let stat = files::statx_fd(directory).ok()?;
        let handle = handle_at(directory, c"").ok()?;
        self.volumes.iter().find_map(|(volume, tracked)| {
            let id = volume.family().node(&handle)?;
            // Numbers of different file systems are alike: what is opened by this one must be the same directory.
            let same = files::statx_fd(volume.open(id).ok()?.as_fd()).ok()?;
            ((same.dev, same.ino) == (stat.dev, stat.ino)).then_some((volume, tracked, id))
        })
    }
}

/// A directory that was asked for, and its file system, of which nobody else is told anything meanwhile.
pub(super) struct Reached<'a> {
    volume: &'a Volume,
    pub(super) tracked: MutexGuard<'a, Tracked>,
    pub(super) slot: Slot,
    answer: Answer,
}

impl Reached<'_> {
    /// What a directory came to then; from now on it is noted.
    fn past(&mut self, slot: Slot, since: i64) -> Result<Option<Past>, Refusal> {
        let tracked = &mut *self.tracked;
        tracked
            .remember(slot)
            .and_then(|()| tracked.history(slot))
            .map(|history| Past::since(&history, since))
            .map_err(refusal)
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

    pub(super) fn record(&self, slot: Slot) -> Result<Record, Refusal> {
        self.tracked.record(slot).map_err(refusal)
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

fn lock(tracked: &Mutex<Tracked>) -> MutexGuard<'_, Tracked> {
    tracked.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        Question { path: None, inode: None, depth: 0, freshness: Freshness::Exact, since: None }
    }
}
