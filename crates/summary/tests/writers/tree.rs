//! The tree, and how it is told of.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use onesweep_summary::{
    custom::{
        declare::Declared,
        found::Gathering,
        tally::{Merge, Rule},
    },
    identity::NodeId,
    reading::{Directories, Empty, EntryName, LinkedName, OpenFile, Reading, too_large},
    record::Access,
    survey::{Method, Seen, Tell},
    totals::{Largest, Sums},
    tracker::{Change, SizesFollow},
};
use onesweep_sys::{fanotify::Happened, files::Time};

use crate::{
    declared::{ByClass, ByName, ByOwner, stat},
    settling::Hands,
};

pub(crate) const ROOT: u64 = 1;

#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) parent: u64,
    pub(crate) directories: BTreeMap<u64, String>,
    /// The inode of each name.
    pub(crate) names: BTreeMap<String, u64>,
    /// The number of its last change.
    pub(crate) changed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) directories: BTreeMap<u64, Directory>,
    /// Bytes of each inode.
    pub(crate) files: BTreeMap<u64, i64>,
    /// Of some a time, which tells the owner, too.
    pub(crate) times: BTreeMap<u64, i64>,
    pub(crate) ignored: BTreeSet<u64>,
    /// Told of since events were taken last, and told of before that and not ignored since.
    pub(crate) reported: BTreeSet<u64>,
    pub(crate) once: BTreeSet<u64>,
    pub(crate) heeded: BTreeSet<u64>,
    pub(crate) told: Vec<Change>,
    pub(crate) next: u64,
    pub(crate) seed: u64,
    /// Changes that come with each reading.
    pub(crate) busy: u32,
    /// Readings are torn, and each step of one comes in an order that the seed gives.
    pub(crate) is_woven: bool,
    /// Directories that are about to be read: from some moment before that on, what happens there is told.
    pub(crate) to_heed: BTreeSet<u64>,
    pub(crate) lose: bool,
    /// Files that are open for writing, by whatever name.
    pub(crate) written: BTreeSet<u64>,
    pub(crate) method: Option<Method>,
    /// The number of the last change of anything.
    pub(crate) changes: u64,
    /// That of each file.
    pub(crate) file_changes: BTreeMap<u64, u64>,
    pub(crate) sizes: SizesFollow,
    /// For so long after its last change blocks of a file may change, and nobody tells.
    pub(crate) settling: i64,
    /// When that was, of all files, in seconds since 1970.
    pub(crate) changed_at: i64,
    /// Files that stay open for writing, and the directories of the names by which they were opened.
    pub(crate) open: BTreeMap<u64, u64>,
    /// Files that are mapped for writing.
    pub(crate) mapped: BTreeSet<u64>,
    /// Some are written through overlays, of which nobody tells.
    pub(crate) has_silent_overlays: bool,
    /// It reads in bulk where that is wanted.
    pub(crate) is_bulk: bool,
    /// Sizes as they were written, and the number of the last change by then, while it does.
    pub(crate) written_down: Option<(BTreeMap<u64, i64>, u64)>,
    /// One directory is read after the other.
    pub(crate) is_read_by_one: bool,
    /// So many seconds pass with each reading.
    pub(crate) takes: Option<(Arc<Hands>, i64)>,
    /// What it was asked, and of which inode.
    pub(crate) trace: Vec<(&'static str, u64)>,
}

/// What is shown of a file: its bytes, and by its time who owns it; how many names it has where summaries of one's own are declared, which may
/// show that as well.
fn facts(bytes: i64, time: i64, (links, is_declared): (u32, bool)) -> u64 {
    ((bytes as u64) << 32 | time as u64) + 1 + if is_declared { u64::from(links) << 56 } else { 0 }
}

/// A file has as many blocks as bytes, and a directory none.
fn weight(bytes: i64) -> Sums {
    Sums { files: 1, bytes, blocks: bytes, ..Sums::default() }
}

pub(crate) fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

impl State {
    pub(crate) fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.seed >> 33) % below.max(1) as u64) as usize
    }

    /// What the file system keeps of it, whoever listens.
    pub(crate) fn keep(&mut self, directory: u64, object: Option<u64>) {
        self.changes += 1;
        let changes = self.changes;
        match object {
            Some(ino) => _ = self.file_changes.insert(ino, changes),
            None => self.directory(directory).changed = changes,
        }
    }

    pub(crate) fn tell(&mut self, directory: u64, object: Option<u64>, happened: Happened) {
        self.keep(directory, object);
        // Events are taken every now and then, whoever asks.
        if self.random(2) == 0 {
            self.end_round();
        }
        if self.ignored.contains(&directory) {
            return;
        }
        self.told.push(Change { directory: Some(id(directory)), object: object.map(id), happened });
        if !self.heeded.contains(&directory) {
            self.reported.insert(directory);
        }
    }

    /// What happened is taken. Who was told of in an earlier round, too, is ignored from now on.
    pub(crate) fn end_round(&mut self) {
        for directory in std::mem::take(&mut self.reported) {
            if self.once.remove(&directory) {
                self.ignored.insert(directory);
            } else {
                self.once.insert(directory);
            }
        }
    }

    /// What others do meanwhile, when the steps of readings are woven.
    fn let_others_write(&mut self) {
        for _ in 0..self.random(self.busy as usize + 1) {
            self.change();
        }
    }

    pub(crate) fn links(&self, ino: u64) -> u32 {
        self.directories.values().flat_map(|directory| directory.names.values()).filter(|&&named| named == ino).count()
            as u32
    }

    /// The same of all files.
    fn all_links(&self) -> HashMap<u64, u32> {
        let mut links = HashMap::new();
        for &named in self.directories.values().flat_map(|directory| directory.names.values()) {
            *links.entry(named).or_default() += 1;
        }
        links
    }

    pub(crate) fn any_directory(&mut self) -> u64 {
        let at = self.random(self.directories.len());
        *self.directories.keys().nth(at).expect("there is the root")
    }

    /// A name and where it is.
    pub(crate) fn any_name(&mut self) -> Option<(u64, String, u64)> {
        let count = self.directories.values().map(|directory| directory.names.len()).sum();
        let at = self.random(count);
        let mut all = self
            .directories
            .iter()
            .flat_map(|(&ino, directory)| directory.names.iter().map(move |(name, &file)| (ino, name, file)));
        all.nth(at).map(|(ino, name, file)| (ino, name.clone(), file))
    }

    pub(crate) fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn change(&mut self) {
        let directory = self.any_directory();
        match self.random(10) {
            0 | 1 => self.create(directory),
            2 | 3 => {
                if let Some((place, _, ino)) = self.any_name() {
                    let more = self.random(1000) as i64;
                    *self.files.get_mut(&ino).expect("a file") += more;
                    match (self.sizes, self.random(3)) {
                        (SizesFollow::Write, _) => self.tell(place, Some(ino), Happened::MODIFY),
                        (SizesFollow::Close, 0) => self.tell(place, Some(ino), Happened::CLOSE_WRITE),
                        (SizesFollow::Close, _) => {
                            self.keep(place, Some(ino));
                            self.open.entry(ino).or_insert(place);
                        }
                    }
                }
            }
            4 => {
                if let Some((place, name, ino)) = self.any_name() {
                    self.unlink(place, &name, ino);
                }
            }
            5 => {
                if let Some((_, _, ino)) = self.any_name() {
                    self.link(ino, directory);
                }
            }
            6 => {
                let ino = self.fresh();
                self.directories.insert(ino, Directory { parent: directory, ..Directory::default() });
                self.directory(directory).directories.insert(ino, format!("d{ino}"));
                self.tell(directory, None, Happened::CREATE | Happened::ON_DIRECTORY);
            }
            7 => {
                if let Some((place, _, ino)) = self.any_name() {
                    let time = self.random(1000) as i64;
                    self.times.insert(ino, time);
                    self.tell(place, Some(ino), Happened::ATTRIB);
                }
            }
            8 => self.move_directory(directory),
            _ => self.remove_directory(directory),
        }
    }

    pub(crate) fn create(&mut self, directory: u64) {
        let (ino, size) = (self.fresh(), self.random(10_000) as i64);
        self.files.insert(ino, size);
        self.directory(directory).names.insert(format!("f{ino}"), ino);
        self.tell(directory, None, Happened::CREATE);
    }

    pub(crate) fn link(&mut self, ino: u64, directory: u64) {
        let name = format!("l{}", self.fresh());
        self.directory(directory).names.insert(name, ino);
        self.tell(directory, None, Happened::CREATE);
        self.keep(directory, Some(ino));
        self.told.push(Change { directory: None, object: Some(id(ino)), happened: Happened::ATTRIB });
    }

    fn unlink(&mut self, directory: u64, name: &str, ino: u64) {
        self.directory(directory).names.remove(name);
        if self.links(ino) == 0 {
            self.files.remove(&ino);
            self.open.remove(&ino);
        }
        self.tell(directory, None, Happened::DELETE);
        self.keep(directory, Some(ino));
        self.told.push(Change { directory: None, object: Some(id(ino)), happened: Happened::ATTRIB });
    }

    /// The name of a directory that comes last.
    pub(crate) fn unlink_last(&mut self, directory: u64) {
        let (name, ino) = self.directory(directory).names.last_key_value().expect("a name");
        let (name, ino) = (name.clone(), *ino);
        self.unlink(directory, &name, ino);
    }

    /// All that are open are closed.
    pub(crate) fn close_all(&mut self) {
        for (ino, place) in std::mem::take(&mut self.open) {
            self.tell(place, Some(ino), Happened::CLOSE_WRITE);
        }
    }

    /// Some files get other sizes by their paths, which nobody is told.
    pub(crate) fn cut_some(&mut self) {
        for _ in 0..3 {
            if let Some((place, _, ino)) = self.any_name() {
                *self.files.get_mut(&ino).expect("a file") /= 2;
                self.keep(place, Some(ino));
            }
        }
    }

    pub(crate) fn directory(&mut self, ino: u64) -> &mut Directory {
        self.directories.get_mut(&ino).expect("a directory")
    }

    pub(crate) fn move_directory(&mut self, moved: u64) {
        let into = self.any_directory();
        let mut above = into;
        while above != ROOT && above != moved {
            above = self.directory(above).parent;
        }
        if moved != ROOT && above != moved {
            self.move_into(moved, into);
        }
    }

    pub(crate) fn move_into(&mut self, moved: u64, into: u64) {
        let from = self.directory(moved).parent;
        let name = self.directory(from).directories.remove(&moved).expect("it is there");
        self.directory(into).directories.insert(moved, name);
        self.directory(moved).parent = into;
        self.tell(from, None, Happened::MOVED_FROM | Happened::ON_DIRECTORY);
        self.tell(into, None, Happened::MOVED_TO | Happened::ON_DIRECTORY);
    }

    pub(crate) fn remove_directory(&mut self, ino: u64) {
        let is_empty = self.directory(ino).names.is_empty() && self.directory(ino).directories.is_empty();
        if ino != ROOT && is_empty {
            let parent = self.directory(ino).parent;
            self.directory(parent).directories.remove(&ino);
            self.directories.remove(&ino);
            self.tell(parent, None, Happened::DELETE | Happened::ON_DIRECTORY);
        }
    }

    /// Seconds.
    pub(crate) fn time(&self, ino: u64) -> i64 {
        self.times.get(&ino).copied().unwrap_or(0)
    }

    /// The term of a file in the stamp of a directory that names it, or of a directory in its own.
    pub(crate) fn term(&self, ino: u64) -> u64 {
        let changed = match self.directories.get(&ino) {
            Some(directory) => directory.changed,
            None => self.file_changes.get(&ino).copied().unwrap_or(0),
        };
        (ino << 32 | changed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn stamp(&self, ino: u64) -> u64 {
        match self.method {
            None => 0,
            // As btrfs counts: what changes now gets this number.
            Some(Method::Generations) => self.changes,
            Some(Method::Sums) => {
                let terms = self.directories[&ino].names.values().map(|&named| self.term(named));
                terms.fold(self.term(ino), u64::wrapping_add).max(1)
            }
        }
    }

    /// A directory and all below it, and how often each inode is named there.
    fn below(&self, top: u64) -> (Vec<u64>, BTreeMap<u64, u32>) {
        let (mut directories, mut names) = (vec![top], BTreeMap::new());
        let mut at = 0;
        while let Some(next) = directories.get(at).copied() {
            let directory = &self.directories[&next];
            directories.extend(directory.directories.keys());
            directory.names.values().for_each(|&file| *names.entry(file).or_default() += 1);
            at += 1;
        }
        (directories, names)
    }

    /// What all below a directory comes to: inodes and bytes, each inode once, the newest time and the largest file.
    pub(crate) fn truth(&self, top: u64) -> (i64, i64, Option<i64>, Option<u64>) {
        let (directories, files) = self.below(top);
        let bytes = files.keys().map(|ino| self.files[ino]).sum();
        let newest = files.keys().map(|&ino| self.time(ino)).max();
        let largest = files.keys().map(|ino| self.files[ino] as u64).max();
        (directories.len() as i64 + files.len() as i64, bytes, newest, largest)
    }

    /// What removing a directory would free: files of which no name is elsewhere.
    pub(crate) fn freed(&self, top: u64) -> i64 {
        let (all, (_, below)) = (self.all_links(), self.below(top));
        below.into_iter().filter(|(ino, links)| all[ino] == *links).map(|(ino, _)| self.files[&ino]).sum()
    }
}

/// A tree, and the summaries that are declared of it.
#[derive(Clone, Debug)]
pub(crate) struct Tree(pub(crate) Arc<Mutex<State>>, pub(crate) Option<Arc<Declared>>);

impl Tree {
    pub(crate) fn new(seed: u64) -> Tree {
        let method = [None, Some(Method::Sums), Some(Method::Generations)][seed as usize % 3];
        // By one all is the same each time; in which order several come nobody can tell.
        let (is_bulk, is_read_by_one) = (seed.is_multiple_of(2), (seed / 6).is_multiple_of(2));
        let mut state = State { next: ROOT, seed, method, is_bulk, is_read_by_one, ..State::default() };
        state.directories.insert(ROOT, Directory::default());
        (0..60).for_each(|_| state.change());
        Tree(Arc::new(Mutex::new(state)), None)
    }

    /// The same with summaries of all kinds.
    pub(crate) fn with_summaries(seed: u64) -> Tree {
        let mut declared = Declared::parse("[largest]\nby = \"largest\"\ncount = 3\n").expect("it is understood");
        let rule = |merge, limit| Rule { merge, limit };
        for (name, rule) in
            [("classes", rule(Merge::Sum, 9)), ("cut", rule(Merge::Sum, 2)), ("most", rule(Merge::Max, 9))]
        {
            declared.add(name, rule, 1, Arc::new(ByClass)).expect("it is declared");
        }
        declared.add("names", rule(Merge::Sum, 9), 1, Arc::new(ByName)).expect("it is declared");
        declared.add("owners", rule(Merge::Sum, 9), 1, Arc::new(ByOwner)).expect("it is declared");
        Tree(Tree::new(seed).0, Some(Arc::new(declared)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }
}

/// How far the reading of a directory is.
enum Step {
    Begun,
    Heeded,
    Listed(Listed),
    Read(Box<io::Result<Reading>>),
}

/// The names in a directory at some moment.
struct Listed {
    ino: u64,
    stamp: u64,
    changed: u64,
    directories: Vec<(NodeId, EntryName)>,
    names: BTreeMap<String, u64>,
}

impl Listed {
    fn of(state: &State, ino: u64) -> io::Result<Listed> {
        let found = state.directories.get(&ino).ok_or(io::ErrorKind::NotFound)?;
        Ok(Listed {
            ino,
            stamp: state.stamp(ino),
            changed: state.changes,
            directories: found
                .directories
                .iter()
                .map(|(&ino, name)| (id(ino), name.clone().into_bytes().into()))
                .collect(),
            names: found.names.clone(),
        })
    }
}

impl Tree {
    /// What was listed and is still there, as it is now.
    fn reading(&self, state: &State, listed: Listed) -> Reading {
        let Listed { ino: directory, changed, .. } = listed;
        // Where it counts by sums, what has changed meanwhile is one that nothing comes to later.
        let is_torn = changed != state.changes && state.method == Some(Method::Sums);
        let access = Access { mode: 0o40_755, ..Access::default() };
        let stamp = match &state.written_down {
            Some((_, at)) if *at != state.changes => {
                if state.method == Some(Method::Generations) {
                    *at
                } else {
                    0
                }
            }
            _ if is_torn => 0,
            _ => listed.stamp,
        };
        let mut reading = Reading { access, stamp, changed_at: state.changed_at, ..Reading::default() };
        reading.own.sums.directories = 1;
        let is_here = |ino: u64| state.directories.get(&ino).is_some_and(|found| found.parent == directory);
        reading.directories = listed.directories.into_iter().filter(|(found, _)| is_here(found.ino)).collect();
        if state.written_down.is_some() {
            reading.empty = reading.directories.iter().filter_map(|(id, _)| self.empty(state, *id)).collect();
        }
        let now = state.directories.get(&directory).map(|found| &found.names);
        let all_links = state.all_links();
        let mut gathering =
            self.1.as_deref().map(|declared| Gathering::new(declared, &stat(directory, true, 0, 0), 0, None));
        for (name, ino) in listed.names {
            if now.and_then(|names| names.get(&name)) != Some(&ino) {
                continue;
            }
            // In bulk a size is told late, and only events say so.
            let late = state.written_down.as_ref().and_then(|(sizes, _)| sizes.get(&ino)).copied();
            let (bytes, time, links) = (late.unwrap_or(state.files[&ino]), state.time(ino), all_links[&ino]);
            if let Some(gathering) = &mut gathering {
                let linked = (links > 1).then(|| id(ino));
                gathering.add(name.as_bytes(), &stat(ino, false, bytes, time), None, linked);
            }
            let weight = weight(bytes);
            let extremes = &mut reading.own.extremes;
            extremes.newest = extremes.newest.max(Some(Time { secs: time, nanos: 0 }));
            extremes.largest = extremes.largest.max(Some(Largest { bytes: bytes as u64, ino, directory: 0 }));
            match links {
                1 => {
                    reading.own.sums += Sums { freed_blocks: weight.blocks, ..weight };
                    reading.inodes.push(ino);
                }
                links => {
                    let facts = facts(bytes, time, (links, self.1.is_some()));
                    reading.linked.push(LinkedName { id: id(ino), weight, links, facts });
                }
            }
        }
        reading.custom = gathering.map(Gathering::finish);
        reading
    }

    /// A directory with nothing in it, as it is now.
    fn empty(&self, state: &State, id: NodeId) -> Option<Empty> {
        let listed = Listed::of(state, id.ino).ok()?;
        if !listed.names.is_empty() || !listed.directories.is_empty() {
            return None;
        }
        let Reading { access, blocks, own, stamp, .. } = self.reading(state, listed);
        Some(Empty { id, access, blocks, own, stamp })
    }
}

impl Directories for Tree {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let mut state = self.state();
        state.trace.push(("read", directory.ino));
        for _ in 0..state.busy {
            state.change();
        }
        let listed = Listed::of(&state, directory.ino)?;
        let reading = self.reading(&state, listed);
        if let Some((hands, seconds)) = &state.takes {
            hands.pass(*seconds);
        }
        Ok(reading)
    }

    /// Where they are woven, others write at every step of a reading, and some are read at the same time.
    fn read_some(&self, directories: &[NodeId]) -> Vec<io::Result<Reading>> {
        let mut state = self.state();
        if !state.is_woven {
            drop(state);
            return directories.iter().map(|&directory| self.read(directory)).collect();
        }
        let mut steps: Vec<Step> = directories.iter().map(|_| Step::Begun).collect();
        // Those that are being read, and the first that isn't: they are heeded in the order in which they are merged.
        let (mut being_read, mut next) = (Vec::new(), 0);
        while next < steps.len() || !being_read.is_empty() {
            state.let_others_write();
            let is_one_more = next < steps.len() && being_read.len() < 8;
            let pick = state.random(being_read.len() + usize::from(is_one_more));
            if pick == being_read.len() {
                being_read.push(next);
                next += 1;
            }
            let at = being_read[pick];
            let ino = directories[at].ino;
            state.trace.push(("step", ino));
            steps[at] = match std::mem::replace(&mut steps[at], Step::Begun) {
                Step::Begun => {
                    state.ignored.remove(&ino);
                    state.to_heed.remove(&ino);
                    Step::Heeded
                }
                Step::Heeded => match Listed::of(&state, ino) {
                    Ok(listed) => Step::Listed(listed),
                    Err(error) => Step::Read(Box::new(Err(error))),
                },
                Step::Listed(listed) => Step::Read(Box::new(Ok(self.reading(&state, listed)))),
                read => read,
            };
            if matches!(steps[at], Step::Read(_)) {
                being_read.remove(pick);
            }
        }
        state.let_others_write();
        let read = |step| match step {
            Step::Read(reading) => *reading,
            _ => unreachable!("all have been read"),
        };
        steps.into_iter().map(read).collect()
    }

    fn read_some_up_to(&self, directories: &[NodeId], entries_max: usize) -> Vec<io::Result<Reading>> {
        if entries_max == usize::MAX {
            return self.read_some(directories);
        }
        let is_large = |directory: &NodeId| {
            let state = self.state();
            let found = state.directories.get(&directory.ino);
            found.is_some_and(|found| found.names.len() + found.directories.len() > entries_max)
        };
        let read = |directory: &NodeId| if is_large(directory) { Err(too_large()) } else { self.read(*directory) };
        directories.iter().map(read).collect()
    }

    fn readers(&self) -> usize {
        let state = self.state();
        if state.is_woven || state.is_read_by_one { 1 } else { 32 }
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        let mut state = self.state();
        state.trace.push(("look", inode.ino));
        let bytes = *state.files.get(&inode.ino).ok_or(io::ErrorKind::NotFound)?;
        let (weight, links) = (weight(bytes), state.links(inode.ino));
        let facts = facts(bytes, state.time(inode.ino), (links, self.1.is_some()));
        Ok(LinkedName { id: inode, weight, links, facts })
    }

    fn is_written(&self, inode: NodeId) -> io::Result<bool> {
        let mut state = self.state();
        state.trace.push(("is written", inode.ino));
        Ok(state.open.contains_key(&inode.ino) || state.written.contains(&inode.ino))
    }

    fn sizes_follow(&self) -> SizesFollow {
        self.state().sizes
    }

    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        let state = self.state();
        let open = state.open.keys().filter(|ino| !state.mapped.contains(ino)).map(|&ino| (ino, false));
        let all = open.chain(state.mapped.iter().map(|&ino| (ino, true)));
        Ok(all.map(|(ino, is_silent)| OpenFile { id: id(ino), stamp: state.term(ino), is_silent }).collect())
    }

    fn has_silent_overlays(&self) -> bool {
        self.state().has_silent_overlays
    }

    fn begin_bulk(&self) -> bool {
        let mut state = self.state();
        if state.is_bulk && self.1.is_none() {
            state.written_down = Some((state.files.clone(), state.changes));
        }
        state.written_down.is_some()
    }

    fn end_bulk(&self) {
        self.state().written_down = None;
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        let mut state = self.state();
        state.trace.push(("parent", directory.ino));
        Ok(id(state.directories.get(&directory.ino).ok_or(io::ErrorKind::NotFound)?.parent))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn settling_seconds(&self) -> i64 {
        self.state().settling
    }

    fn declared(&self) -> Option<Arc<Declared>> {
        self.1.clone()
    }

    fn method(&self) -> Option<Method> {
        self.state().method
    }

    fn generation(&self) -> io::Result<u64> {
        Ok(self.state().changes)
    }

    fn survey(&self, since: u64, _: &[u64], tell: Tell<'_>) -> io::Result<()> {
        let mut state = self.state();
        for _ in 0..state.busy {
            state.change();
        }
        let seen = |ino, is_directory, links, stamp| Seen { id: id(ino), is_directory, links, stamp, changed_at: 0 };
        if state.method == Some(Method::Sums) {
            state.directories.keys().for_each(|&ino| tell(&[seen(ino, true, 2, state.term(ino))]));
            state.files.keys().for_each(|&ino| tell(&[seen(ino, false, state.links(ino), state.term(ino))]));
            return Ok(());
        }
        for (&ino, directory) in &state.directories {
            let files = directory.names.values().map(|file| state.file_changes.get(file).copied().unwrap_or(0));
            let changed = files.max().unwrap_or(0).max(directory.changed);
            if changed >= since {
                tell(&[seen(ino, true, 2, changed)]);
            }
        }
        Ok(())
    }

    fn is_mounted_alike(&self) -> bool {
        true
    }
}
