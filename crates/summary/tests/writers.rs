//! A tree in memory that somebody changes at every step of a harvest, told as the kernel tells it: an ignored directory says
//! nothing, a link made there shows as a change of the inode alone, and writes through its names show nowhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use onesweep_summary::{
    custom::{
        declare::Declared,
        found::Gathering,
        keys::{Add, Entry, Summarise},
        tally::{Amounts, Merge, Rule},
        view::view,
    },
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    record::Access,
    store::{Batch, Store},
    summaries::{CaughtUp, Freshness, Summaries},
    survey::{Method, Seen, Tell},
    totals::Sums,
    tracker::{Change, Drained, Tracker},
};
use onesweep_sys::{
    fanotify::Happened,
    files::{CURRENT_DIR, EntryType, Stat, Time, statx_at},
};

const ROOT: u64 = 1;

#[derive(Debug, Default)]
struct Directory {
    parent: u64,
    directories: BTreeMap<u64, String>,
    /// The inode of each name.
    names: BTreeMap<String, u64>,
    /// The number of its last change.
    changed: u64,
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
    method: Option<Method>,
    /// The number of the last change of anything.
    changes: u64,
    /// That of each file.
    file_changes: BTreeMap<u64, u64>,
}

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

impl State {
    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.seed >> 33) % below.max(1) as u64) as usize
    }

    /// What the file system keeps of it, whoever listens.
    fn keep(&mut self, directory: u64, object: Option<u64>) {
        self.changes += 1;
        let changes = self.changes;
        match object {
            Some(ino) => _ = self.file_changes.insert(ino, changes),
            None => self.directory(directory).changed = changes,
        }
    }

    fn tell(&mut self, directory: u64, object: Option<u64>, happened: Happened) {
        self.keep(directory, object);
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
                    self.keep(place, Some(ino));
                    self.told.push(Change { directory: None, object: Some(id(ino)), happened: Happened::ATTRIB });
                }
            }
            5 => {
                if let Some((_, _, ino)) = self.any_name() {
                    let name = format!("l{}", self.fresh());
                    self.directory(directory).names.insert(name, ino);
                    self.tell(directory, None, Happened::CREATE);
                    self.keep(directory, Some(ino));
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

    /// The term of a file in the stamp of a directory that names it, or of a directory in its own.
    fn term(&self, ino: u64) -> u64 {
        let changed = match self.directories.get(&ino) {
            Some(directory) => directory.changed,
            None => self.file_changes.get(&ino).copied().unwrap_or(0),
        };
        (ino << 32 | changed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn stamp(&self, ino: u64) -> u64 {
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

/// A tree, and the summaries that are declared of it.
#[derive(Clone, Debug)]
struct Tree(Arc<Mutex<State>>, Option<Arc<Declared>>);

impl Tree {
    fn new(seed: u64) -> Tree {
        let method = [None, Some(Method::Sums), Some(Method::Generations)][seed as usize % 3];
        let mut state = State { next: ROOT, seed, method, ..State::default() };
        state.directories.insert(ROOT, Directory::default());
        (0..60).for_each(|_| state.change());
        Tree(Arc::new(Mutex::new(state)), None)
    }

    /// The same with summaries of all kinds.
    fn with_summaries(seed: u64) -> Tree {
        let mut declared = Declared::parse("[largest]\nby = \"largest\"\ncount = 3\n").expect("it is understood");
        let rule = |merge, limit| Rule { merge, limit };
        for (name, rule) in
            [("classes", rule(Merge::Sum, 9)), ("cut", rule(Merge::Sum, 2)), ("most", rule(Merge::Max, 9))]
        {
            declared.add(name, rule, 1, Arc::new(ByClass)).expect("it is declared");
        }
        declared.add("names", rule(Merge::Sum, 9), 1, Arc::new(ByName)).expect("it is declared");
        Tree(Tree::new(seed).0, Some(Arc::new(declared)))
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
        let access = Access { mode: 0o40_755, ..Access::default() };
        let mut reading = Reading { access, stamp: state.stamp(directory.ino), ..Reading::default() };
        reading.own.sums.directories = 1;
        reading.directories =
            found.directories.iter().map(|(&ino, name)| (id(ino), name.clone().into_bytes())).collect();
        let mut gathering =
            self.1.as_deref().map(|declared| Gathering::new(declared, &stat(directory.ino, true, 0), 0, None));
        for (name, &ino) in &found.names {
            if let Some(gathering) = &mut gathering {
                let linked = (state.links(ino) > 1).then(|| id(ino));
                gathering.add(name.as_bytes(), &stat(ino, false, state.files[&ino]), None, linked);
            }
            let weight = Sums { files: 1, bytes: state.files[&ino], ..Sums::default() };
            match state.links(ino) {
                1 => {
                    reading.own.sums += weight;
                    reading.inodes.push(ino);
                }
                links => reading.linked.push(LinkedName { id: id(ino), weight, links }),
            }
        }
        reading.custom = gathering.map(Gathering::finish);
        Ok(reading)
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        let state = self.state();
        let bytes = *state.files.get(&inode.ino).ok_or(io::ErrorKind::NotFound)?;
        Ok(LinkedName { id: inode, weight: Sums { files: 1, bytes, ..Sums::default() }, links: state.links(inode.ino) })
    }

    fn is_written(&self, _: NodeId) -> io::Result<bool> {
        Ok(false)
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
    if tree.1.is_some() {
        summaries_agree(tracked, tree, directory, when);
    }
}

/// Keys are classes of inodes, which links share.
#[derive(Debug)]
struct ByClass;

impl Summarise for ByClass {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(&class(entry.stat.ino, entry.stat.file_type() == EntryType::Dir), [1, entry.stat.size as i64, 0]);
        // The larger of two is the one with more bytes.
        add(b"bytes", [entry.stat.size as i64, 0, 0]);
    }
}

fn class(ino: u64, is_directory: bool) -> Vec<u8> {
    if is_directory { b"directory".to_vec() } else { format!("{}", ino % 4).into_bytes() }
}

/// Keys are of names: whether it is the first that a file got.
#[derive(Debug)]
struct ByName;

impl Summarise for ByName {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(entry.name.get(..1).unwrap_or_default(), [1, entry.stat.size as i64, 0]);
    }
}

fn stat(ino: u64, is_directory: bool, bytes: i64) -> Stat {
    static ANY: OnceLock<Stat> = OnceLock::new();
    let found = *ANY.get_or_init(|| statx_at(CURRENT_DIR, "/", true).expect("there is a root"));
    Stat {
        ino,
        mode: if is_directory { 0o40_755 } else { 0o100_644 },
        size: bytes as u64,
        mtime: Time::default(),
        ..found
    }
}

fn summaries_agree(tracked: &Tracked, tree: &Tree, top: u64, when: &str) {
    let (state, ledger) = (tree.state(), tracked.ledger());
    let slot = ledger.nodes.find(id(top)).expect("it is known");
    let told = |name: &str| {
        let at = ledger.declared().and_then(|declared| declared.find(name)).expect("it is declared");
        view(ledger, slot, at, None).expect("it reads").expect("it is declared").tally
    };
    let (mut directories, mut files) = (vec![top], BTreeMap::new());
    let mut at = 0;
    while let Some(next) = directories.get(at).copied() {
        directories.extend(state.directories[&next].directories.keys());
        for (name, &ino) in &state.directories[&next].names {
            files.entry(ino).or_insert_with(BTreeSet::new).insert(&name[..1]);
        }
        at += 1;
    }
    let (mut classes, mut most): (BTreeMap<Vec<u8>, Amounts>, BTreeMap<Vec<u8>, Amounts>) = Default::default();
    let all =
        directories.iter().map(|&ino| (ino, true, 0)).chain(files.keys().map(|&ino| (ino, false, state.files[&ino])));
    for (ino, is_directory, bytes) in all {
        for (key, [one, more, _]) in [(class(ino, is_directory), [1, bytes, 0]), (b"bytes".to_vec(), [bytes, 0, 0])] {
            let sum = classes.entry(key.clone()).or_default();
            *sum = [sum[0] + one, sum[1] + more, 0];
            let larger = most.entry(key).or_default();
            *larger = (*larger).max([one, more, 0]);
        }
    }
    classes.retain(|_, amounts| *amounts != [0; 3]);
    assert_eq!(told("classes").entries, classes, "directory {top} {when}");
    assert_eq!(told("most").entries, most, "directory {top} {when}");
    let cut = told("cut");
    let sum = |of: usize| cut.entries.values().map(|amounts| amounts[of]).sum::<i64>() + cut.other[of];
    let expected = [0, 1].map(|of| classes.values().map(|amounts| amounts[of]).sum::<i64>());
    assert_eq!([sum(0), sum(1)], expected, "directory {top} {when}: {cut:?}");
    assert!(cut.entries.len() <= 2);
    let mut largest: Vec<i64> = files.keys().map(|ino| state.files[ino]).collect();
    largest.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    largest.truncate(3);
    let mut found: Vec<i64> = told("largest").entries.values().map(|amounts| amounts[0]).collect();
    found.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    assert_eq!(found, largest, "directory {top} {when}");
    // A file with names of both kinds counts once, by one of them.
    let names = told("names");
    let of = |key: &str| names.entries.get(key.as_bytes()).map_or(0, |amounts| amounts[0]);
    let only = |key: &str| files.values().filter(|keys| keys.len() == 1 && keys.contains(key)).count() as i64;
    let both = files.values().filter(|keys| keys.len() == 2).count() as i64;
    assert_eq!(of("f") + of("l"), files.len() as i64, "directory {top} {when}: {names:?}");
    assert!((only("f")..=only("f") + both).contains(&of("f")), "directory {top} {when}: {names:?}");
}

fn opened(tree: &Tree, store: Store) -> Tracked {
    Summaries::open(store, (tree.clone(), tree.clone()), id(ROOT), b"tree").expect("summaries")
}

/// Whoever writes while it harvests: when they stop, every answer is right, and with the fewest readings between.
#[test]
fn a_writer_at_every_step_is_not_missed() {
    let seeds = if std::env::var_os("ONESWEEP_TEST_LONG").is_some() { 300 } else { 30 };
    for seed in 0..seeds {
        let tree = if seed % 6 == 5 { Tree::with_summaries(seed) } else { Tree::new(seed) };
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
        let tree = if seed % 2 == 0 { Tree::new(seed) } else { Tree::with_summaries(seed) };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
        agrees(&mut tracked, &tree, ROOT, "at first");
        tracked.commit(true).expect("a commit");
        (0..40).for_each(|_| tree.state().change());
        tree.state().lose = true;
        agrees(&mut tracked, &tree, ROOT, &format!("after losses, seed {seed}"));
        assert!(tracked.caught_up().is_some());
        // The store holds what was before, or something between.
        for _ in 0..seed % 4 {
            (0..5).for_each(|_| tree.state().change());
            let asked = tree.state().any_directory();
            let _ = tracked.query(id(asked), Freshness::Exact);
            if seed % 8 > 3 {
                tracked.commit(true).expect("a commit");
            }
        }
        drop(tracked);
        (0..40).for_each(|_| tree.state().change());
        tree.state().told.clear();
        tree.state().ignored.clear();
        let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
        // Somebody writes while it finds out.
        tree.state().busy = seed as u32 % 2;
        let _ = tracked.query(id(ROOT), Freshness::Exact);
        tree.state().busy = 0;
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for directory in directories {
            agrees(&mut tracked, &tree, directory, &format!("after opening again, seed {seed}"));
        }
        let is_by_walk = matches!(tracked.caught_up(), Some(CaughtUp::All(_)));
        assert_eq!(is_by_walk, tree.state().method.is_none(), "{:?}", tracked.caught_up());
    }
}

/// Who opens a store reads what has changed since, and little else.
#[test]
fn what_has_not_changed_meanwhile_is_not_read() {
    for seed in 0..30 {
        let tree = Tree::new(seed);
        (0..600).for_each(|_| tree.state().change());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
        agrees(&mut tracked, &tree, ROOT, "at first");
        tracked.close().expect("an end");
        drop(tracked);
        // Each writes at most two directories and an inode.
        (0..3).for_each(|_| tree.state().change());
        tree.state().told.clear();
        tree.state().ignored.clear();
        let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
        let before = tracked.cached(id(ROOT)).expect("what is stored");
        assert!(!before.is_exact && tracked.readings() == 0);
        agrees(&mut tracked, &tree, ROOT, &format!("after opening again, seed {seed}"));
        let (read, all) = (tracked.readings() as usize, tracked.ledger().nodes.len());
        match tree.state().method {
            Some(_) => assert!(read <= 30 && read < all, "{read} of {all}, seed {seed}"),
            None => assert!(read >= all, "{read} of {all}, seed {seed}"),
        }
    }
}

/// An older copy of the file system in its place, and a clock that was set back: all is read again.
#[test]
fn doubts_lead_to_a_full_harvest() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, method) in [Method::Sums, Method::Generations].into_iter().enumerate() {
        let tree = Tree::new(1);
        tree.state().method = Some(method);
        let path = folder.path().join(format!("store-{number}"));
        let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
        agrees(&mut tracked, &tree, ROOT, "at first");
        tracked.close().expect("an end");
        drop(tracked);
        let ahead = |by: i64, generation: u64| {
            let store = Store::open(&path).expect("the store");
            let mut facts = store.facts().expect("its facts");
            facts.moment.seconds += by;
            facts.generation += generation;
            store.commit(&Batch::default(), &facts, true).expect("a commit");
        };
        for (by, generation, expected) in [(0, 0, ""), (3600, 0, "the clock was set back"), (0, 1 << 40, "older copy")]
        {
            ahead(by, generation);
            let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
            agrees(&mut tracked, &tree, ROOT, "again");
            let said = match tracked.caught_up() {
                Some(CaughtUp::All(doubt)) => doubt.to_string(),
                _ => String::new(),
            };
            let is_doubtful = !expected.is_empty() && (by > 0 || method == Method::Generations);
            assert!(
                if is_doubtful { said.contains(expected) } else { said.is_empty() },
                "{method:?} {expected}: {said}"
            );
            if is_doubtful {
                assert_eq!(tracked.readings() as usize, tracked.ledger().nodes.len());
            }
            tracked.close().expect("an end");
            drop(tracked);
        }
        // What was harvested anew is believed from then on.
        let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
        agrees(&mut tracked, &tree, ROOT, "at last");
        assert!(matches!(tracked.caught_up(), Some(CaughtUp::Changed(_))), "{:?}", tracked.caught_up());
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
