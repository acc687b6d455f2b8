//! Answers on a Unix socket, to each user what `du` run by that user would print.

use std::{
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use onesweep_sys::{
    files,
    handle::handle_at,
    peer::{self, Peer},
};

use super::{
    breakdown::{Breakdown, Listed, listed},
    each_alone::each_alone,
    eyes::{Eyes, Glances},
    left_out::left_out,
    listing::{LARGEST_MAX, Largest, Listing},
    openings::Openings,
    pages::{Entry, PageHead},
    patience::{Patience, Progress},
    portions::{Piece, PortionHead},
    protocol::{Beginning, Head, Inode, Question, Refusal, Row},
    reach::Reach,
    shared::{self, Shared},
};
use crate::{
    access::Asker,
    custom::declare::Declared,
    file_system::FileSystem,
    identity::NodeId,
    moment::seconds,
    nodes::Slot,
    reading::{Directories, EntryName},
    record::{Access, Record},
    sight::is_shown,
    summaries::{Answer, Freshness, Summaries, SummaryError},
    survey::Method,
    tracker::Fanotify,
    view::{MayList, Most, View, view_of_most},
};

/// What an answer takes, at most: its lines some 20 MiB, and each of these with others a quarter of a second, in which nothing can
/// change.
pub(super) const MOST: Most = Most { lines: 20_000, looks: 200_000, links: 20_000 };
/// Why there is none, where that isn't enough.
pub(super) const TOO_MUCH: &str = "that takes too much at once: there are more than 20,000 directories so far down, or more than 20,000 inodes with \
                        several names in them, or 200,000 to be looked at because of what you may not see; ask for less depth, or for those below";
/// Bytes of a question, at most.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// Summaries of a mounted file system, kept true.
pub type Tracked = Summaries<Arc<dyn FileSystem>, Fanotify>;

pub(super) type Held<'a> = shared::Held<'a, Arc<dyn FileSystem>, Fanotify>;

/// Answers for several file systems.
pub struct Server {
    volumes: RwLock<Arc<Vec<Arc<Served>>>>,
    reach: Arc<dyn Reach>,
    openings: Arc<Openings>,
    full_totals: RwLock<Vec<u32>>,
}

/// One of them.
pub struct Served {
    path: PathBuf,
    volume: Arc<dyn FileSystem>,
    shared: Arc<SharedByAll>,
}

type SharedByAll = Shared<Arc<dyn FileSystem>, Fanotify>;

impl Served {
    /// Known to people by that path. Nothing is known yet of what has changed.
    pub fn new(path: PathBuf, tracked: Tracked) -> Arc<Served> {
        Arc::new(Served { path, volume: Arc::clone(tracked.directories()), shared: Arc::new(Shared::new(tracked)) })
    }

    /// The path by which people know it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds out what has changed while nobody tracked it, and harvests that. Until then who asks for what is stored gets that,
    /// and all others wait. `done` is told before they are answered, and what was found is made durable while they are. An error when it
    /// can't be written. Of either [`goes_on_after`](Shared::goes_on_after) says what follows.
    pub fn catch_up(&self, done: impl FnOnce(&Tracked, Result<(), SummaryError>)) -> Result<(), SummaryError> {
        self.shared.catch_up(done)
    }

    /// Its summaries, as several ask for them.
    pub fn summaries(&self) -> &Arc<Shared<Arc<dyn FileSystem>, Fanotify>> {
        &self.shared
    }

    /// Ends it in good order; false where it is being read, and not waited for: while all is found out about it, or where what it lies
    /// on may not answer. What is stored stays as it was then.
    pub fn close(&self) -> Result<bool, SummaryError> {
        self.shared.close(self.volume.changes_are_told())
    }

    /// Looks at the files that are open or mapped for writing. Nobody waits meanwhile.
    pub fn check_open_files(&self) -> Result<(), Box<dyn std::error::Error>> {
        let began = seconds();
        let files = self.volume.open_for_writing()?;
        Ok(self.shared.alone().take_open_files(began, &files)?)
    }

    /// Where it is read.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.volume
    }
}

impl Server {
    /// Reached by `reach`; the users in `full_totals` get whole totals, as root does.
    pub fn new(volumes: Vec<Arc<Served>>, reach: Box<dyn Reach>, full_totals: Vec<u32>) -> Server {
        Server {
            volumes: RwLock::new(Arc::new(volumes)),
            reach: reach.into(),
            openings: Arc::default(),
            full_totals: RwLock::new(full_totals),
        }
    }

    /// All file systems, as they are now.
    pub fn volumes(&self) -> Arc<Vec<Arc<Served>>> {
        Arc::clone(&self.volumes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on these are all; who asks for others just now is still answered.
    pub fn set_volumes(&self, volumes: Vec<Arc<Served>>) {
        *self.volumes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(volumes);
    }

    /// From now on these users get whole totals, but for connections that they have already.
    pub fn set_full_totals(&self, full_totals: Vec<u32>) {
        *self.full_totals.write().unwrap_or_else(PoisonError::into_inner) = full_totals;
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
                Ok(question) if line.ends_with(b"\n") => {
                    // Who is gone by now is found gone when the answer comes.
                    let mut tell =
                        |progress| _ = say(&mut out, &Beginning::Working(progress)).and_then(|()| out.flush());
                    self.answer(&asker, &question, file, &mut tell)
                }
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
                Ok(Said::Portion(head, pieces)) => {
                    say(&mut out, &Beginning::Portion(head))?;
                    pieces.iter().try_for_each(|piece| say(&mut out, piece))?;
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
        let full_totals = self.full_totals.read().unwrap_or_else(PoisonError::into_inner);
        if peer.uid == 0 || full_totals.contains(&peer.uid) {
            return Asker::Everything;
        }
        Asker::User { uid: peer.uid, groups: peer.groups }
    }

    /// The declared summaries: the same of all file systems.
    pub(super) fn summaries(&self) -> Option<Arc<Declared>> {
        self.volumes().first().and_then(|served| served.volume.declared())
    }

    fn answer(
        &self,
        asker: &Asker,
        question: &Question,
        file: Option<OwnedFd>,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Said, Refusal> {
        if let Some(Largest { limit, by }) = question.list {
            let listing = self.listing(asker, question, file, Some((limit.min(LARGEST_MAX), by)))?;
            return Ok(Said::Listing(Box::new(listing)));
        }
        if let Some(page) = question.page {
            let (head, entries) = self.page(asker, question, file, page)?;
            return Ok(Said::Page(head, entries));
        }
        if let Some(cursor) = question.portion {
            let (head, pieces) = self.portion(asker, question, file, cursor)?;
            return Ok(Said::Portion(head, pieces));
        }
        if question.by.is_some() {
            return Ok(Said::Breakdown(Box::new(self.break_down(asker, question, file)?)));
        }
        let volumes = self.volumes();
        let tell = question.progress.then_some(tell);
        let reached = self.reach_and_tell(&volumes, (asker, question), file, tell)?;
        if question.since.is_some() {
            if question.one_file_system {
                // What is noted counts all.
                return Err(Refusal::Failed("`since` goes without `one_file_system`".to_owned()));
            }
            let long = question.takes_portions.then(|| Head { long: true, ..reached.head(0, false) });
            return match (each_alone(reached, asker, question), long) {
                (Err(Refusal::Failed(why)), Some(long)) if why == TOO_MUCH => Ok(Said::Rows(long, Vec::new())),
                (answer, _) => answer.map(|(head, rows)| Said::Rows(head, rows)),
            };
        }
        let how = (MOST, question.one_file_system);
        let Some(View { lines, is_partial, hidden, leads_out }) =
            reached.see(asker, reached.slot, question.depth, how)?
        else {
            return match (question.takes_portions, question.depth, question.one_file_system) {
                (true, ..) => Ok(Said::Rows(Head { long: true, ..reached.head(0, false) }, Vec::new())),
                (_, 0, false) => {
                    let (head, rows) = each_alone(reached, asker, question)?;
                    Ok(Said::Rows(head, rows))
                }
                _ => Err(Refusal::Failed(TOO_MUCH.to_owned())),
            };
        };
        let left_out = left_out(&reached, &hidden)?;
        let mut rows = Vec::with_capacity(lines.len());
        for line in &lines {
            let name = if line.slot == reached.slot { EntryName::new() } else { reached.record(line.slot)?.name };
            rows.push(Row::of(line, &name, is_partial));
        }
        Ok(Said::Rows(Head { leads_out, left_out, ..reached.head(rows.len(), is_partial) }, rows))
    }

    /// Finds the directory of a question, and brings what is known of it up to date.
    pub(super) fn reach<'a>(
        &self,
        volumes: &'a [Arc<Served>],
        (asker, question): (&Asker, &Question),
        file: Option<OwnedFd>,
    ) -> Result<Reached<'a>, Refusal> {
        self.reach_and_tell(volumes, (asker, question), file, None)
    }

    /// The same; `tell` hears how far that is.
    fn reach_and_tell<'a>(
        &self,
        volumes: &'a [Arc<Served>],
        (asker, question): (&Asker, &Question),
        file: Option<OwnedFd>,
        tell: Option<&mut dyn FnMut(Progress)>,
    ) -> Result<Reached<'a>, Refusal> {
        let began = Instant::now();
        let until = |has_to_answer: bool| {
            let given_up_at = question.max_ms.and_then(|max_ms| began.checked_add(Duration::from_millis(max_ms)));
            [given_up_at, question.catching_up_until.filter(|_| !has_to_answer)].into_iter().flatten().min()
        };
        // What lies on another machine may never answer. Who has it read is ready to wait for that.
        let has_to_answer = |served: &Served| {
            let is_told = served.volume.changes_are_told() || question.freshness == Freshness::Synced;
            is_told && served.shared.is_ready()
        };
        let directory = match (file, &question.path, question.inode) {
            (Some(file), _, _) => file,
            (None, Some(path), _) => match until(false) {
                Some(until) => self.openings.open(&self.reach, asker, path, until)?,
                None => self.reach.open(asker, path)?,
            },
            (None, None, Some(inode)) => {
                let may_hold = || volumes.iter().filter(|served| served.volume.may_hold(inode.dev));
                let are_ready = may_hold().all(|it| it.shared.is_ready());
                let until = until(may_hold().all(|served| has_to_answer(served)));
                let directory = find_inode(volumes, (asker, inode), question.freshness, until)?;
                // Whether there is one that can't be reached isn't told.
                self.reach.check_way_to(asker, directory.as_fd()).map_err(|refusal| match refusal {
                    Refusal::Denied if until.is_some() && !are_ready => Refusal::Late,
                    Refusal::Denied => Refusal::NotTracked,
                    other => other,
                })?;
                directory
            }
            (None, None, None) => return Err(Refusal::Failed("no directory is named".to_owned())),
        };
        let (served, id) = find(volumes, directory.as_fd()).ok_or(Refusal::NotTracked)?;
        let volume = &served.volume;
        // What is waited for is read, which takes longer than a look.
        let glances = if question.freshness == Freshness::Cached { Glances::default() } else { Glances::endless() };
        let eyes = Eyes { asker, volume, glances: &glances };
        let seen = eyes.seen();
        let (answer, tracked) = if question.freshness == Freshness::Cached {
            if !served.shared.is_counted() {
                return Err(Refusal::Late);
            }
            let tracked = served.shared.shared_until(until(false)).ok_or(Refusal::Late)?;
            (tracked.cached(id, seen).map_err(refusal)?, Held::Shared(tracked))
        } else {
            let catching_up_until = question.catching_up_until;
            let mut patience = Patience { until: until(has_to_answer(served)), catching_up_until, tell };
            let how = (question.since.is_some(), seen);
            let told = served.shared.query_within(id, question.freshness, how, &mut patience);
            told.map_err(|error| match error {
                SummaryError::Unknown if patience.is_over() => Refusal::Late,
                error => refusal(error),
            })?
        };
        let slot = tracked.ledger().nodes.find(id).ok_or(Refusal::NotTracked)?;
        let access = tracked.record(slot).map_err(refusal)?.access;
        let is_shown = |viewer| is_shown(&tracked.ledger().nodes, (slot, slot), &access, viewer);
        let (is_denied, user) = (!seen.is_none_or(is_shown), asker.user());
        let age = Duration::from_secs(u64::try_from(answer.age).unwrap_or(0));
        let right_at = tracked.clock().passed().saturating_sub(age);
        let (shared, glances) = (&*served.shared, Glances::default());
        Ok(Reached { volume, shared, tracked, slot, answer, is_denied, user, glances, right_at, turns: 0 })
    }
}

/// A directory that is known by the numbers that `stat` tells.
pub(super) fn find_inode(
    volumes: &[Arc<Served>],
    (asker, inode): (&Asker, Inode),
    freshness: Freshness,
    until: Option<Instant>,
) -> Result<OwnedFd, Refusal> {
    let mut patience = Patience { until, ..Patience::default() };
    let mut may_hold: Vec<&Arc<Served>> = volumes.iter().filter(|served| served.volume.may_hold(inode.dev)).collect();
    // Only subvolumes of btrfs have device numbers that aren't known.
    let is_btrfs = |served: &&Arc<Served>| served.volume.method() == Some(Method::Generations);
    if !may_hold.iter().all(is_btrfs) {
        may_hold.retain(|served| !is_btrfs(served));
    }
    // What lies in one that is known waits for no other to be.
    may_hold.sort_by_key(|served| !served.shared.is_counted());
    for served in may_hold {
        let volume = &served.volume;
        // Who asks for what is stored waits for nothing. Where all is read once more, that is waited for below.
        let counted_by = if freshness == Freshness::Cached { Some(Instant::now()) } else { until };
        let is_counted = served.shared.is_counted_by(counted_by);
        if !is_counted && (freshness == Freshness::Cached || !served.shared.is_ready()) {
            return Err(Refusal::Late);
        }
        let known = || {
            let tracked = served.shared.shared_until(until).ok_or(Refusal::Late)?;
            let nodes = &tracked.ledger().nodes;
            let mut handles = nodes.numbered(inode.ino).filter_map(|slot| volume.handle_of(nodes.id(slot)).ok());
            Ok(handles.find(|fd| {
                files::statx_fd(fd.as_fd()).is_ok_and(|stat| (stat.dev, stat.ino) == (inode.dev, inode.ino))
            }))
        };
        if let Some(directory) = known()? {
            return Ok(directory);
        }
        if freshness != Freshness::Cached {
            // It may be new.
            let eyes = Eyes { asker, volume, glances: &Glances::endless() };
            let how = (false, eyes.seen());
            let asked = served.shared.query_within(volume.root(), freshness, how, &mut patience);
            let answer = asked.map(|(answer, _)| answer).map_err(refusal)?;
            if let Some(directory) = known()? {
                return Ok(directory);
            }
            if answer.late.is_some() {
                return Err(Refusal::Late);
            }
        }
    }
    Err(Refusal::NotTracked)
}

/// The file system that an open directory belongs to, and its number there.
fn find<'a>(volumes: &'a [Arc<Served>], directory: BorrowedFd<'_>) -> Option<(&'a Served, NodeId)> {
    let stat = files::statx_fd(directory).ok()?;
    let handle = handle_at(directory, c"").ok();
    volumes.iter().find_map(|served| {
        let volume = &served.volume;
        // One that doesn't answer keeps nobody else waiting.
        if !volume.may_hold(stat.dev) {
            return None;
        }
        let id = volume.id_of(&stat, handle.as_ref())?;
        volume.is_it(&stat, id).then_some((&**served, id))
    })
}

/// A directory that was asked for, and its file system, of which nobody else is told anything meanwhile.
pub(super) struct Reached<'a> {
    volume: &'a Arc<dyn FileSystem>,
    shared: &'a SharedByAll,
    pub(super) tracked: Held<'a>,
    pub(super) slot: Slot,
    answer: Answer,
    /// The asker can't list it: when it was read is nothing that concerns it.
    pub(super) is_denied: bool,
    /// Who asks, where that one doesn't see all.
    pub(super) user: Option<u32>,
    glances: Glances,
    /// When what is told was right, by the clock that nobody sets.
    right_at: Duration,
    /// So often others have had their turn since.
    pub(super) turns: u64,
}

impl<'a> Reached<'a> {
    /// Lets all others have their turn, then goes on with what is stored by then; nothing where the directory is gone.
    pub(super) fn give_way(self) -> Option<Self> {
        self.anew(|shared| {
            // A lock that is given back is taken again before who waits for it wakes up.
            shared.give_way();
            #[cfg(test)]
            super::tests::others_have_their_turn();
            Held::Shared(shared.shared())
        })
    }

    /// The same for who notes something, but for others' turn where nobody else is told anything anyway.
    pub(super) fn alone(self) -> Option<Self> {
        match self.tracked {
            Held::Shared(_) => self.anew(|shared| Held::Alone(shared.alone())),
            Held::Alone(_) => Some(self),
        }
    }

    fn anew(self, hold: impl FnOnce(&'a SharedByAll) -> Held<'a>) -> Option<Self> {
        let Reached { tracked, slot, answer, right_at, turns, .. } = self;
        let (id, readings) = (tracked.ledger().nodes.id(slot), tracked.readings());
        drop(tracked);
        let tracked = hold(self.shared);
        let slot = tracked.ledger().nodes.find(id)?;
        let answer = match tracked.readings() == readings {
            true => answer,
            // What has moved from one directory to another may count twice, or not at all.
            false => {
                let age = tracked.clock().passed().saturating_sub(right_at).as_secs_f64().ceil() as i64;
                // What stays open is the least of what it doesn't count, where it did count all.
                let checked_at = answer.checked_at.filter(|_| !answer.is_exact);
                Answer { is_exact: false, checked_at, age: answer.age.max(age), ..answer }
            }
        };
        Some(Reached { tracked, slot, answer, turns: turns + 1, ..self })
    }

    /// Whether the asker may list a directory.
    pub(super) fn may_list(&self, asker: &Asker, slot: Slot, access: &Access) -> bool {
        let nodes = &self.tracked.ledger().nodes;
        self.eyes(asker).seen().is_none_or(|viewer| is_shown(nodes, (self.slot, slot), access, viewer))
    }

    fn eyes<'b>(&'b self, asker: &'b Asker) -> Eyes<'b> {
        Eyes { asker, volume: self.volume, glances: &self.glances }
    }

    /// What the asker sees of a directory; `None` where that takes more.
    fn see(&self, asker: &Asker, slot: Slot, depth: u32, how: (Most, bool)) -> Result<Option<View>, Refusal> {
        let may_list = |slot: Slot, access: &Access| self.may_list(asker, slot, access);
        let may_list = (*asker != Asker::Everything).then_some(&may_list as MayList<'_>);
        view_of_most(self.tracked.ledger(), slot, depth, may_list, how)
            .map_err(|error| Refusal::Failed(SummaryError::Store(error).to_string()))
    }

    /// The summaries that are declared.
    pub(super) fn listed(&self) -> Vec<Listed> {
        self.tracked.ledger().declared().map(listed).unwrap_or_default()
    }

    /// Refuses what is stored by declared summaries while that is a part. What was harvested for the question is none.
    pub(super) fn check_declared(&self, question: &Question) -> Result<(), Refusal> {
        let is_stored = question.freshness == Freshness::Cached || self.answer.late.is_some();
        if is_stored && !self.tracked.has_all_declared() { Err(Refusal::Late) } else { Ok(()) }
    }

    /// The directories that could not be read, as far as the asker would come to them.
    pub(super) fn unreadable(&self, asker: &Asker) -> Result<Vec<Slot>, Refusal> {
        self.tracked.unreadable_for(self.slot, self.eyes(asker).seen()).map_err(refusal)
    }

    /// Why a directory could not be read.
    pub(super) fn why_unreadable(&self, slot: Slot) -> Option<String> {
        let is_it = |(at, why): (Slot, &str)| (at == slot).then(|| why.to_owned());
        if self.tracked.is_unreadable(slot) { self.tracked.unreadable(self.slot).find_map(is_it) } else { None }
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
            checked_at: self.answer.checked_at,
            timed: !self.volume.changes_are_told(),
            harvested_at: if self.is_denied { 0 } else { self.answer.harvested_at },
            unreadable: self.answer.unreadable as u64,
            late: self.answer.late.map(|left| left as u64),
            age: u64::try_from(self.answer.age).ok(),
            leads_out: false,
            long: false,
            left_out: Vec::new(),
        }
    }
}

pub(super) fn refusal(error: SummaryError) -> Refusal {
    match error {
        SummaryError::Unknown => Refusal::NotTracked,
        SummaryError::Late => Refusal::Late,
        other => Refusal::Failed(other.to_string()),
    }
}

/// An answer.
enum Said {
    Rows(Head, Vec<Row>),
    Listing(Box<Listing>),
    Page(PageHead, Vec<Entry>),
    Portion(PortionHead, Vec<Piece>),
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
