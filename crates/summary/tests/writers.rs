//! A tree in memory that somebody changes at every step of a harvest, told as the kernel tells it: an ignored directory says
//! nothing, a link made there shows as a change of the inode alone, and writes through its names show nowhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    record::Access,
    store::Store,
    summaries::{Freshness, Summaries},
    totals::Sums,
    tracker::{Change, Drained, Tracker},
};
use onesweep_sys::fanotify::Happened;

const ROOT: u64 = 1;

#[derive(Debug, Default)]
struct Directory {
    parent: u64,
    directories: BTreeMap<u64, String>,
    /// The inode of each name.
    names: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct State {
    directories: BTreeMap<u64, Directory>,
    /// Bytes of each inode.
    files: BTreeMap<u64, i64>,
    ignored: BTreeSet<u64>,
    heeded: BTreeSet<u64>,
    told: Vec<Change>,
    next: u64,
    seed: u64,
    /// Changes that come with each reading.
    busy: u32,
    lose: bool,
}

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

impl State {
    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.seed >> 33) % below.max(1) as u64) as usize
    }

    fn tell(&mut self, directory: u64, object: Option<u64>, happened: Happened) {
        if self.ignored.contains(&directory) {
            return;
        }
        self.told.push(Change { directory: Some(id(directory)), object: object.map(id), happened });
        if !self.heeded.contains(&directory) {
            self.ignored.insert(directory);
        }
    }

    fn links(&self, ino: u64) -> u32 {
        self.directories.values().flat_map(|directory| directory.names.values()).filter(|&&named| named == ino).count()
            as u32
    }

    fn any_directory(&mut self) -> u64 {
        let at = self.random(self.directories.len());
        *self.directories.keys().nth(at).expect("there is the root")
    }

    /// A name and where it is.
    fn any_name(&mut self) -> Option<(u64, String, u64)> {
        let all: Vec<_> = self
            .directories
            .iter()
            .flat_map(|(&ino, directory)| directory.names.iter().map(move |(name, &file)| (ino, name.clone(), file)))
            .collect();
        let at = self.random(all.len());
        all.get(at).cloned()
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn change(&mut self) {
        let directory = self.any_directory();
        match self.random(9) {
            0 | 1 => {
                let (ino, size) = (self.fresh(), self.random(10_000) as i64);
                self.files.insert(ino, size);
                self.directory(directory).names.insert(format!("f{ino}"), ino);
                self.tell(directory, None, Happened::CREATE);
            }
            2 | 3 => {
                if let Some((place, _, ino)) = self.any_name() {
                    let more = self.random(1000) as i64;
                    *self.files.get_mut(&ino).expect("a file") += more;
                    self.tell(place, Some(ino), Happened::MODIFY);
                }
            }
            4 => {
                if let Some((place, name, ino)) = self.any_name() {
                    self.directory(place).names.remove(&name);
                    if self.links(ino) == 0 {
                        self.files.remove(&ino);
                    }
                    self.tell(place, None, Happened::DELETE);
                    self.told.push(Change { directory: None, object: Some(id(ino)), happened: Happened::ATTRIB });
                }
            }
            5 => {
                if let Some((_, _, ino)) = self.any_name() {
                    let name = format!("l{}", self.fresh());
                    self.directory(directory).names.insert(name, ino);
                    self.tell(directory, None, Happened::CREATE);
                    self.told.push(Change { directory: None, object: Some(id(ino)), happened: Happened::ATTRIB });
                }
            }
            6 => {
                let ino = self.fresh();
                self.directories.insert(ino, Directory { parent: directory, ..Directory::default() });
                self.directory(directory).directories.insert(ino, format!("d{ino}"));
                self.tell(directory, None, Happened::CREATE | Happened::ON_DIRECTORY);
            }
            7 => self.move_directory(directory),
            _ => self.remove_directory(directory),
        }
    }

    fn directory(&mut self, ino: u64) -> &mut Directory {
        self.directories.get_mut(&ino).expect("a directory")
    }

    fn move_directory(&mut self, moved: u64) {
        let into = self.any_directory();
        let mut above = into;
        while above != ROOT && above != moved {
            above = self.directory(above).parent;
        }
        if moved == ROOT || above == moved {
            return;
        }
        let from = self.directory(moved).parent;
        let name = self.directory(from).directories.remove(&moved).expect("it is there");
        self.directory(into).directories.insert(moved, name);
        self.directory(moved).parent = into;
        self.tell(from, None, Happened::MOVED_FROM | Happened::ON_DIRECTORY);
        self.tell(into, None, Happened::MOVED_TO | Happened::ON_DIRECTORY);
    }

    fn remove_directory(&mut self, ino: u64) {
        let is_empty = self.directory(ino).names.is_empty() && self.directory(ino).directories.is_empty();
        if ino != ROOT && is_empty {
            let parent = self.directory(ino).parent;
            self.directory(parent).directories.remove(&ino);
            self.directories.remove(&ino);
            self.tell(parent, None, Happened::DELETE | Happened::ON_DIRECTORY);
        }
    }

    /// What all below a directory comes to: inodes and bytes, each inode once.
    fn truth(&self, top: u64) -> (i64, i64) {
        let (mut directories, mut files) = (vec![top], BTreeSet::new());
        let mut at = 0;
        while let Some(next) = directories.get(at).copied() {
            let directory = &self.directories[&next];
            directories.extend(directory.directories.keys());
            files.extend(directory.names.values());
            at += 1;
        }
        let bytes = files.iter().map(|ino| self.files[ino]).sum();
        (directories.len() as i64 + files.len() as i64, bytes)
    }
}

#[derive(Clone, Debug)]
struct Tree(Arc<Mutex<State>>);

impl Tree {
    fn new(seed: u64) -> Tree {
        let mut state = State { next: ROOT, seed, ..State::default() };
        state.directories.insert(ROOT, Directory::default());
        (0..60).for_each(|_| state.change());
        Tree(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Directories for Tree {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let mut state = self.state();
        for _ in 0..state.busy {
            state.change();
        }
        let found = state.directories.get(&directory.ino).ok_or(io::ErrorKind::NotFound)?;
        let mut reading = Reading { access: Access { mode: 0o40_755, ..Access::default() }, ..Reading::default() };
        reading.own.sums.directories = 1;
        reading.directories =
            found.directories.iter().map(|(&ino, name)| (id(ino), name.clone().into_bytes())).collect();
        for &ino in found.names.values() {
            let weight = Sums { files: 1, bytes: state.files[&ino], ..Sums::default() };
            match state.links(ino) {
                1 => {
                    reading.own.sums += weight;
                    reading.inodes.push(ino);
                }
                links => reading.linked.push(LinkedName { id: id(ino), weight, links }),
            }
        }
        Ok(reading)
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        let state = self.state();
        let bytes = *state.files.get(&inode.ino).ok_or(io::ErrorKind::NotFound)?;
        Ok(LinkedName { id: inode, weight: Sums { files: 1, bytes, ..Sums::default() }, links: state.links(inode.ino) })
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        let state = self.state();
        Ok(id(state.directories.get(&directory.ino).ok_or(io::ErrorKind::NotFound)?.parent))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn settling_seconds(&self) -> i64 {
        0
    }
}

impl Tracker for Tree {
    fn drain(&self) -> io::Result<Drained> {
        let mut state = self.state();
        let lost = std::mem::take(&mut state.lose);
        let changes = std::mem::take(&mut state.told);
        Ok(Drained { changes: if lost { Vec::new() } else { changes }, lost })
    }

    fn heed(&self, directory: NodeId) {
        self.state().ignored.remove(&directory.ino);
    }

    fn keep_heeding(&self, directory: NodeId, keep: bool) {
        let mut state = self.state();
        if keep {
            state.heeded.insert(directory.ino);
            state.ignored.remove(&directory.ino);
        } else {
            state.heeded.remove(&directory.ino);
        }
    }
}

type Tracked = Summaries<Tree, Tree>;

fn agrees(tracked: &mut Tracked, tree: &Tree, directory: u64, when: &str) {
    let answer = tracked.query(id(directory), Freshness::Exact).unwrap_or_else(|error| panic!("{when}: {error}"));
    let found = (answer.totals.sums.inodes(), answer.totals.sums.bytes);
    assert_eq!(found, tree.state().truth(directory), "directory {directory} {when}");
    assert!(answer.is_exact, "{when}");
}

fn opened(tree: &Tree, store: Store) -> Tracked {
    Summaries::open(store, (tree.clone(), tree.clone()), id(ROOT), b"tree").expect("summaries")
}

/// Whoever writes while it harvests: when they stop, every answer is right, and with the fewest readings between.
#[test]
fn a_writer_at_every_step_is_not_missed() {
    let seeds = if std::env::var_os("ONESWEEP_TEST_LONG").is_some() { 300 } else { 30 };
    for seed in 0..seeds {
        let tree = Tree::new(seed);
        let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
        for round in 0..8 {
            tree.state().busy = 1 + seed as u32 % 3;
            let asked = tree.state().any_directory();
            // It may be gone by then, and need not be exact.
            let _ = tracked.query(id(asked), Freshness::Exact);
            tree.state().busy = 0;
            (0..round).for_each(|_| tree.state().change());
            let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
            for directory in directories.into_iter().rev().take(1 + seed as usize % 4) {
                agrees(&mut tracked, &tree, directory, &format!("in round {round} of seed {seed}"));
            }
        }
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for directory in directories {
            agrees(&mut tracked, &tree, directory, &format!("at the end of seed {seed}"));
        }
        assert_eq!(tracked.ledger().nodes.len(), tree.state().directories.len(), "seed {seed}: no more is kept");
    }
}

/// What was lost is found again, and what a store holds is taken up.
#[test]
fn lost_events_and_an_old_store_are_no_harm() {
    for seed in 0..20 {
        let tree = Tree::new(seed);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
        agrees(&mut tracked, &tree, ROOT, "at first");
        tracked.commit(true).expect("a commit");
        (0..40).for_each(|_| tree.state().change());
        tree.state().lose = true;
        agrees(&mut tracked, &tree, ROOT, &format!("after losses, seed {seed}"));
        // The store holds what was before.
        drop(tracked);
        (0..40).for_each(|_| tree.state().change());
        tree.state().told.clear();
        tree.state().ignored.clear();
        let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for directory in directories {
            agrees(&mut tracked, &tree, directory, &format!("after opening again, seed {seed}"));
        }
    }
}

/// A question for what has not changed reads nothing.
#[test]
fn what_is_clean_is_not_read() {
    let tree = Tree::new(7);
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    // Each reading would change something.
    tree.state().busy = 1;
    let before = tree.state().truth(ROOT);
    agrees(&mut tracked, &tree, ROOT, "again");
    assert_eq!(tree.state().truth(ROOT), before);
}
