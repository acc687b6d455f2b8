//! After more has happened than could be told, or where something changes and nobody tells, all of a file system is searched for it. That
//! may take minutes: who asks for what is stored is answered meanwhile, and nobody is told that something is exact before it is known.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use onesweep_summary::{
    clock::Clock,
    identity::NodeId,
    reading::{Directories, LinkedName, OpenFile, Reading},
    service::{budget::Budget, patience::Patience, shared::Shared},
    store::Store,
    summaries::{Answer, Asking, Freshness, Summaries, Tended},
    survey::{Method, Seen, Tell},
    tracker::{Change, Drained, SizesFollow, Tracker},
};
use onesweep_sys::fanotify::Happened;

const ROOT: u64 = 1;
const DIRECTORIES: u64 = 20;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

type SharedTree = Shared<Arc<Tree>, Told>;

/// The files of each directory, all of which but the first are in that.
#[derive(Default)]
struct Tree {
    files: Mutex<BTreeMap<u64, i64>>,
    told: Mutex<Vec<Change>>,
    /// More happens than is told: once, or each time.
    loses: AtomicBool,
    loses_when_read: AtomicBool,
    always_loses: AtomicBool,
    is_silent: AtomicBool,
    surveys: AtomicU64,
    /// How many seconds a survey takes.
    survey_takes: AtomicU64,
    hands: OnceLock<Arc<Hands>>,
    /// At the next survey others ask, and something changes.
    asks: AtomicBool,
    asked: Mutex<Vec<JoinHandle<Answer>>>,
    looks_up: AtomicBool,
    /// How often the survey kept others out, and how often having all written did.
    keeping_out: AtomicU64,
    written_alone: AtomicU64,
    shared: OnceLock<Weak<SharedTree>>,
}

struct Told(Arc<Tree>);

impl Tree {
    fn change(&self, ino: u64) {
        *self.files.lock().expect("no panic").get_mut(&ino).expect("it is there") += 1;
    }

    fn tell(&self, ino: u64) {
        let change = Change { directory: Some(id(ino)), object: None, happened: Happened::CREATE };
        self.told.lock().expect("no panic").push(change);
    }

    fn all(&self) -> i64 {
        self.files.lock().expect("no panic").values().sum()
    }

    fn term(ino: u64, files: i64) -> u64 {
        ino << 32 | files as u64
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }

    /// Others ask while it is searched. Who else waits for a moment is known, but where somebody `looks_up` meanwhile.
    fn others_ask(&self, shared: &Arc<SharedTree>, looks_up: bool) {
        let stored = |others: usize| {
            let asking = Arc::clone(shared);
            let asked = thread::spawn(move || asking.answer(id(ROOT), Freshness::Cached).expect("what is stored"));
            while !asked.is_finished() {
                if shared.waiting() > others && !looks_up {
                    self.keeping_out.fetch_add(1, Ordering::SeqCst);
                    return None;
                }
                thread::yield_now();
            }
            Some(asked.join().expect("no panic"))
        };
        let Some(cached) = stored(0) else { return };
        assert!(!cached.is_exact);
        // Beside those who have to wait.
        for freshness in [Freshness::Exact, Freshness::Synced] {
            let asking = Arc::clone(shared);
            let asked = thread::spawn(move || asking.answer(id(ROOT), freshness).expect("an answer"));
            self.asked.lock().expect("no panic").push(asked);
        }
        let alone = Arc::clone(shared);
        thread::spawn(move || drop(alone.alone()));
        let mut waiting = shared.waiting();
        while waiting == 0 {
            thread::yield_now();
            waiting = shared.waiting();
        }
        assert_eq!(stored(3).expect("nobody keeps it out").totals, cached.totals);
        let mut patience = Patience::of(Some(Duration::ZERO));
        let late = shared.answer_within(id(ROOT), Freshness::Exact, &mut patience).expect("what is stored");
        assert!(!late.is_exact && late.late.is_some(), "{late:?}");
        assert_eq!(late.totals, cached.totals);
    }
}

impl Directories for Tree {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        if self.loses_when_read.swap(false, Ordering::SeqCst) {
            self.loses.store(true, Ordering::SeqCst);
        }
        let files = self.files.lock().expect("no panic");
        let own = *files.get(&directory.ino).ok_or(io::ErrorKind::NotFound)?;
        let mut reading = Reading { stamp: Self::term(directory.ino, own), ..Reading::default() };
        (reading.own.sums.directories, reading.own.sums.files) = (1, own);
        if directory == id(ROOT) {
            reading.directories =
                files.keys().skip(1).map(|&ino| (id(ino), ino.to_string().into_bytes().into())).collect();
        }
        Ok(reading)
    }

    fn look(&self, _: NodeId) -> io::Result<LinkedName> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sizes_follow(&self) -> SizesFollow {
        if self.is_silent.load(Ordering::SeqCst) { SizesFollow::Close } else { SizesFollow::Write }
    }

    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        let shared = self.shared.get().and_then(Weak::upgrade);
        // Who asks while it is searched is kept out by that, and not by this.
        let is_searched = !self.asked.lock().expect("no panic").is_empty();
        if shared.is_some_and(|shared| !is_searched && shared.try_alone().is_none()) {
            self.written_alone.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn settling_seconds(&self) -> i64 {
        0
    }

    fn parent(&self, _: NodeId) -> io::Result<NodeId> {
        Ok(id(ROOT))
    }

    fn method(&self) -> Option<Method> {
        Some(Method::Sums)
    }

    fn survey(&self, _: u64, _: &[u64], tell: Tell<'_>) -> io::Result<()> {
        self.surveys.fetch_add(1, Ordering::SeqCst);
        let hands = self.hands.get().expect("a clock");
        hands.0.fetch_add(Self::count(&self.survey_takes), Ordering::SeqCst);
        let files = self.files.lock().expect("no panic").clone();
        if self.asks.swap(false, Ordering::SeqCst)
            && let Some(shared) = self.shared.get().and_then(Weak::upgrade)
        {
            self.others_ask(&shared, self.looks_up.load(Ordering::SeqCst));
            // Too late to be found.
            self.change(3);
            self.tell(3);
        }
        let seen = |(&ino, &files): (&u64, &i64)| Seen {
            id: id(ino),
            is_directory: true,
            links: 2,
            stamp: Tree::term(ino, files),
            changed_at: 0,
        };
        tell(&files.iter().map(seen).collect::<Vec<Seen>>());
        Ok(())
    }
}

impl Tracker for Told {
    fn drain(&self) -> io::Result<Drained> {
        let changes = std::mem::take(&mut *self.0.told.lock().expect("no panic"));
        let lost = self.0.loses.swap(false, Ordering::SeqCst) || self.0.always_loses.load(Ordering::SeqCst);
        Ok(Drained { changes, lost })
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, _: NodeId, _: bool) {}

    fn start_anew(&self) {}
}

#[derive(Debug, Default)]
struct Hands(AtomicU64);

impl Clock for Hands {
    fn time(&self) -> Duration {
        self.passed() + Duration::from_secs(1_700_000_000)
    }

    fn passed(&self) -> Duration {
        Duration::from_secs(Tree::count(&self.0))
    }
}

fn tree() -> (Arc<Tree>, Arc<Hands>, Arc<SharedTree>) {
    let tree = Arc::new(Tree::default());
    tree.files.lock().expect("no panic").extend((ROOT..=DIRECTORIES).map(|ino| (ino, 10)));
    let (store, told, hands) = (Store::in_memory().expect("a store"), Told(Arc::clone(&tree)), Arc::<Hands>::default());
    let summaries = Summaries::open(store, (Arc::clone(&tree), told), id(ROOT), b"tree").expect("summaries");
    assert!(tree.hands.set(Arc::clone(&hands)).is_ok(), "once");
    let shared = Arc::new(Shared::new(summaries.with_clock(hands.clone())));
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    assert!(tree.shared.set(Arc::downgrade(&shared)).is_ok(), "once");
    assert_eq!(exact(&shared, &tree).totals.sums.directories, DIRECTORIES as i64);
    (tree, hands, shared)
}

/// An answer that is right.
fn exact(shared: &SharedTree, tree: &Tree) -> Answer {
    let answer = shared.answer(id(ROOT), Freshness::Exact).expect("an answer");
    assert_eq!((answer.is_exact, answer.totals.sums.files), (true, tree.all()));
    answer
}

#[test]
fn a_search_for_what_was_lost_keeps_out_nobody_who_asks_for_what_is_stored() {
    let (tree, _, shared) = tree();
    let waits_for_so_long = "one that waits for so long";
    for searched_by in ["a question", "the background", waits_for_so_long] {
        let surveys = Tree::count(&tree.surveys);
        tree.change(2);
        tree.loses.store(true, Ordering::SeqCst);
        tree.asks.store(true, Ordering::SeqCst);
        match searched_by {
            "a question" => _ = exact(&shared, &tree),
            // Who has asked meanwhile harvests what it finds, or it does.
            "the background" => {
                assert_eq!(shared.tend(0, Budget { directories: 0 }).expect("no error").0, Tended::Some(0));
            }
            _ => {
                tree.looks_up.store(true, Ordering::SeqCst);
                let mut patience = Patience::of(Some(Duration::from_secs(100_000)));
                let answer = shared.answer_within(id(ROOT), Freshness::Exact, &mut patience).expect("an answer");
                assert_eq!((answer.is_exact, answer.late, answer.totals.sums.files), (true, None, tree.all()));
            }
        }
        assert_eq!(Tree::count(&tree.keeping_out), 0, "{searched_by}");
        // Who waits for so long looks up meanwhile, which keeps it out itself.
        if searched_by != waits_for_so_long {
            assert_eq!(Tree::count(&tree.written_alone), 0, "{searched_by}");
        }
        let asked = std::mem::take(&mut *tree.asked.lock().expect("no panic"));
        assert_eq!(asked.len(), 2, "{searched_by}");
        for asked in asked {
            let answer = asked.join().expect("no panic");
            assert_eq!((answer.is_exact, answer.totals.sums.files), (true, tree.all()), "{searched_by}");
        }
        assert_eq!(Tree::count(&tree.surveys), surveys + 1, "{searched_by}: once for all of them");
        // All that was begun ends before the next.
        while Arc::strong_count(&shared) > 1 {
            thread::yield_now();
        }
    }
    assert_eq!(shared.shared().losses(), 3);
}

#[test]
fn who_wants_all_written_keeps_nobody_out_where_nobody_tells_what_is() {
    let (tree, _, shared) = tree();
    tree.is_silent.store(true, Ordering::SeqCst);
    tree.change(2);
    tree.asks.store(true, Ordering::SeqCst);
    let answer = shared.answer(id(ROOT), Freshness::Synced).expect("an answer");
    assert_eq!((answer.is_exact, answer.totals.sums.files), (true, tree.all()));
    assert_eq!((Tree::count(&tree.keeping_out), Tree::count(&tree.written_alone)), (0, 0));
    let asked = std::mem::take(&mut *tree.asked.lock().expect("no panic"));
    for asked in asked {
        assert_eq!(asked.join().expect("no panic").totals.sums.files, tree.all());
    }
}

/// Where so much happens that each search is behind again when it ends.
#[test]
fn what_is_lost_each_time_is_never_called_exact() {
    let (tree, _, shared) = tree();
    tree.always_loses.store(true, Ordering::SeqCst);
    tree.change(2);
    let answer = shared.answer(id(ROOT), Freshness::Exact).expect("an answer");
    assert!(!answer.is_exact, "{answer:?}");
    tree.always_loses.store(false, Ordering::SeqCst);
    exact(&shared, &tree);
}

/// Or each answer for who doesn't see all would have to look at it, until it is read for another reason.
#[test]
fn what_was_not_closed_when_events_were_lost_is_looked_at_no_longer_than_the_search() {
    let (tree, _, shared) = tree();
    let mut tracked = shared.alone();
    let root = tracked.root();
    tree.change(2);
    tree.tell(2);
    tree.loses_when_read.store(true, Ordering::SeqCst);
    let mut asking = Asking::default();
    let mut ask = |tracked: &mut Summaries<Arc<Tree>, Told>| {
        tracked.query_within(id(ROOT), Freshness::Exact, &mut asking, &|| false).expect("no error")
    };
    assert_eq!((ask(&mut tracked), tracked.ledger().nodes.is_unsure(root)), (None, true));
    let missed = tracked.missed().expect("it is searched");
    tracked.catch_up(missed).expect("it is taken in");
    assert!(!tracked.ledger().nodes.is_unsure(root));
    let answer = ask(&mut tracked).expect("an answer");
    assert_eq!((answer.is_exact, answer.totals.sums.files), (true, tree.all()));
}

/// What is found by a search in the background is harvested after it, also when all was harvested not long ago.
#[test]
fn what_nobody_tells_is_harvested_as_soon_as_it_is_found() {
    let (tree, hands, shared) = tree();
    tree.is_silent.store(true, Ordering::SeqCst);
    let (budget, timeout) = (Budget { directories: 0 }, 30);
    hands.0.store(10, Ordering::SeqCst);
    shared.answer(id(ROOT), Freshness::Synced).expect("an answer");
    hands.0.store(30, Ordering::SeqCst);
    tree.change(2);
    tree.tell(2);
    assert_eq!(shared.tend(timeout, budget).expect("no error").0, Tended::All(1));
    hands.0.store(40, Ordering::SeqCst);
    tree.change(4);
    assert_eq!(shared.tend(timeout, budget).expect("no error").0, Tended::Some(0), "it is found");
    assert_eq!(shared.tend(timeout, budget).expect("no error").0, Tended::All(1), "and read");
    let stored = shared.answer(id(ROOT), Freshness::Cached).expect("what is stored");
    assert_eq!(stored.totals.sums.files, tree.all());
}

/// Also where finding it takes longer than the time after which it is to be found again; and where that is none.
#[test]
fn what_took_long_to_be_found_is_harvested_before_it_is_searched_again() {
    for timeout in [0, 30] {
        let (tree, _, shared) = tree();
        tree.is_silent.store(true, Ordering::SeqCst);
        tree.survey_takes.store(40, Ordering::SeqCst);
        let tend = || shared.tend(timeout, Budget { directories: 0 }).expect("no error").0;
        for ino in [2, 4] {
            let searches = Tree::count(&tree.surveys);
            tree.hands.get().expect("a clock").0.fetch_add(30, Ordering::SeqCst);
            tree.change(ino);
            assert_eq!((tend(), tend()), (Tended::Some(0), Tended::All(1)), "every {timeout} s");
            assert_eq!(Tree::count(&tree.surveys), searches + 1, "every {timeout} s");
        }
    }
}
