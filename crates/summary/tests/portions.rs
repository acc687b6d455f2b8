//! What nobody waits for is harvested in portions, and gives way to who asks; of what is told, no more is heeded and read than has to
//! be. Counted, not timed.

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, LinkedName, OpenFile, Reading, too_large},
    service::{
        budget::Budget,
        patience::{Patience, Progress},
        shared::Shared,
    },
    store::Store,
    summaries::{Freshness, Summaries, SummaryError, Tended},
    tracker::{Change, Drained, Tracker},
};
use onesweep_sys::fanotify::Happened;

const ROOT: u64 = 1;
const DIRECTORIES: u64 = 10_000;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

/// A directory with many in it, which counts its readings. What changes is told.
#[derive(Default)]
struct Flat {
    readings: AtomicU64,
    /// Which directories were read.
    read: Mutex<Vec<u64>>,
    told: Mutex<Vec<Change>>,
    /// Directories that aren't ignored, whatever changes in them.
    heeded: Mutex<Vec<u64>>,
    /// At this reading somebody asks.
    asks_at: AtomicU64,
    shared: OnceLock<Weak<Shared<Arc<Flat>, Told>>>,
    answered_at: Arc<AtomicU64>,
    /// How often all was to be written or open files looked at, and how often that kept others out.
    slow: AtomicU64,
    keeping_out: AtomicU64,
}

impl Directories for Flat {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let number = self.readings.fetch_add(1, Ordering::SeqCst) + 1;
        self.read.lock().expect("no panic").push(directory.ino);
        if number == self.asks_at.load(Ordering::SeqCst)
            && let Some(shared) = self.shared.get().and_then(|shared| shared.upgrade())
        {
            let asked = Arc::clone(&shared);
            let answered_at = Arc::clone(&self.answered_at);
            thread::spawn(move || {
                let mut tracked = asked.alone();
                let answer = tracked.query(id(2), Freshness::Exact).expect("an answer");
                assert!(answer.is_exact);
                let readings = tracked.directories().readings.load(Ordering::SeqCst);
                answered_at.store(readings, Ordering::SeqCst);
            });
            while shared.waiting() == 0 {
                thread::yield_now();
            }
        }
        let mut reading = Reading::default();
        reading.own.sums.directories = 1;
        if directory == id(ROOT) {
            reading.directories = (2..=DIRECTORIES).map(|ino| (id(ino), ino.to_string().into_bytes().into())).collect();
        }
        Ok(reading)
    }

    fn look(&self, _: NodeId) -> io::Result<LinkedName> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        self.takes_long();
        Ok(vec![OpenFile { id: id(3), stamp: 0, is_silent: true }])
    }

    fn sync(&self) -> io::Result<()> {
        self.takes_long();
        Ok(())
    }

    fn settling_seconds(&self) -> i64 {
        0
    }

    fn parent(&self, _: NodeId) -> io::Result<NodeId> {
        Ok(id(ROOT))
    }
}

struct Told(Arc<Flat>);

impl Tracker for Told {
    fn drain(&self) -> io::Result<Drained> {
        Ok(Drained { changes: std::mem::take(&mut self.0.told.lock().expect("no panic")), lost: false })
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, directory: NodeId, keep: bool) {
        let mut heeded = self.0.heeded.lock().expect("no panic");
        heeded.retain(|&known| known != directory.ino);
        heeded.extend(keep.then_some(directory.ino));
    }

    fn start_anew(&self) {}
}

impl Flat {
    /// What the disk, or a look at all processes, may take minutes for.
    fn takes_long(&self) {
        self.slow.fetch_add(1, Ordering::SeqCst);
        if let Some(shared) = self.shared.get().and_then(Weak::upgrade)
            && shared.try_alone().is_none()
        {
            self.keeping_out.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn changes(&self, directory: u64, object: Option<u64>, happened: Happened) {
        let change = Change { directory: Some(id(directory)), object: object.map(id), happened };
        self.told.lock().expect("no panic").push(change);
    }

    fn heeded(&self) -> Vec<u64> {
        self.heeded.lock().expect("no panic").clone()
    }
}

fn flat() -> (Arc<Flat>, Summaries<Arc<Flat>, Told>) {
    let flat = Arc::new(Flat::default());
    let store = Store::in_memory().expect("a store");
    let told = Told(Arc::clone(&flat));
    let tracked = Summaries::open(store, (Arc::clone(&flat), told), id(ROOT), b"flat").expect("summaries");
    (flat, tracked)
}

fn shared() -> (Arc<Flat>, Arc<Shared<Arc<Flat>, Told>>) {
    let (flat, tracked) = flat();
    let shared = Arc::new(Shared::new(tracked));
    assert!(flat.shared.set(Arc::downgrade(&shared)).is_ok(), "once");
    (flat, shared)
}

#[test]
fn new_directories_come_in_portions_too() {
    let (flat, shared) = shared();
    let budget = Budget { directories: 500 };
    let (mut portions, mut before) = (0, 0);
    loop {
        let (tended, _) = shared.tend(0, budget).expect("it is read");
        let readings = flat.readings.load(Ordering::SeqCst);
        let read = readings - before;
        before = readings;
        assert!(read <= budget.portion() as u64, "{read} in one portion");
        portions += 1;
        match tended {
            Tended::Some(told) => assert_eq!(told, read),
            Tended::All(told) => {
                assert_eq!(told, read);
                break;
            }
            Tended::Nothing => panic!("all is new"),
        }
    }
    assert_eq!((before, portions), (DIRECTORIES, DIRECTORIES.div_ceil(budget.portion() as u64)));
    assert_eq!(shared.tend(0, budget).expect("nothing").0, Tended::Nothing);
}

/// And for no more of it than is in flight.
#[test]
fn who_asks_waits_for_one_portion() {
    let (flat, shared) = shared();
    let asked_at = 700;
    flat.asks_at.store(asked_at, Ordering::SeqCst);
    let budget = Budget { directories: 0 };
    while !matches!(shared.tend(0, budget).expect("it is read").0, Tended::All(_)) {}
    while flat.answered_at.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    // The rest of the portion, and what was asked for itself.
    let most = asked_at + budget.portion() as u64 + 1;
    let answered_at = flat.answered_at.load(Ordering::SeqCst);
    assert!((asked_at..=most).contains(&answered_at), "{answered_at} of at most {most}");
}

/// Nor for a harvest that another question needs.
#[test]
fn who_asks_waits_for_one_portion_of_anothers_question() {
    let (flat, shared) = shared();
    let asked_at = 700;
    flat.asks_at.store(asked_at, Ordering::SeqCst);
    let answer = shared.answer(id(ROOT), Freshness::Exact).expect("an answer");
    assert!(answer.is_exact);
    assert_eq!(answer.totals.sums.directories, DIRECTORIES as i64);
    let answered_at = flat.answered_at.load(Ordering::SeqCst);
    assert!((asked_at..DIRECTORIES).contains(&answered_at), "{answered_at}");
}

/// A file.
const FILE: u64 = DIRECTORIES + 1;
/// As many go into all of them a whole number of times.
const EVEN_PORTION: usize = 101;

/// Or each file that is made would have its directory tell of all that goes on there.
#[test]
fn a_new_file_is_not_taken_for_one_that_is_written_without_a_name() {
    let (flat, mut summaries) = flat();
    summaries.query(id(ROOT), Freshness::Exact).expect("an answer");
    flat.changes(2, Some(FILE), Happened::MODIFY | Happened::CLOSE_WRITE);
    flat.changes(2, None, Happened::CREATE);
    summaries.drain().expect("it drains");
    assert_eq!(flat.heeded(), [0; 0]);
    flat.changes(3, Some(FILE + 1), Happened::MODIFY);
    summaries.drain().expect("it drains");
    assert_eq!(flat.heeded(), [3], "no name came there");
    summaries.query(id(ROOT), Freshness::Exact).expect("an answer");
    assert_eq!(flat.heeded(), [0; 0], "it is gone");
}

/// Else those that come first on the disk would be read in every portion, and the last ones never.
#[test]
fn what_changes_again_waits_until_the_harvest_comes_round() {
    let (flat, mut summaries) = flat();
    summaries.query(id(ROOT), Freshness::Exact).expect("an answer");
    (2..=DIRECTORIES).for_each(|ino| flat.changes(ino, None, Happened::CREATE));
    flat.read.lock().expect("no panic").clear();
    while flat.read.lock().expect("no panic").len() < DIRECTORIES as usize - 1 {
        let tended = summaries.tend(0, EVEN_PORTION, &|| false).expect("it is read");
        assert_eq!(tended, Tended::Some(EVEN_PORTION as u64));
        flat.changes(2, None, Happened::CREATE);
    }
    let mut read = flat.read.lock().expect("no panic").clone();
    read.sort_unstable();
    assert!(read.into_iter().eq(2..=DIRECTORIES), "each of them once");
    assert_eq!(summaries.tend(0, EVEN_PORTION, &|| false).expect("it is read"), Tended::All(1));
}

/// Between two portions those who ask come first, but not for ever.
#[test]
fn what_is_due_is_harvested_though_somebody_waits_all_the_time() {
    let (flat, mut summaries) = flat();
    summaries.query(id(ROOT), Freshness::Exact).expect("an answer");
    (2..=DIRECTORIES).for_each(|ino| flat.changes(ino, None, Happened::CREATE));
    let mut portions = 0;
    while let Tended::Some(read) = summaries.tend(0, EVEN_PORTION, &|| true).expect("it is read") {
        assert!((1..=8).contains(&read), "{read}");
        portions += 1;
    }
    assert!(portions >= DIRECTORIES as usize / 8 - 1, "{portions}");
    assert_eq!(summaries.cached(id(ROOT), None).expect("it is stored").age, 0, "nothing is left");
}

/// More entries than are read while others wait.
const MANY: u64 = 40_000;
const LARGE: u64 = 2;
const SMALL: u64 = 3;

/// Two directories, one of them with very many files. What changes is told.
#[derive(Default)]
struct Wide {
    readings: AtomicU64,
    /// At its next reading somebody asks for something else, and it ends when that is answered.
    asks: AtomicBool,
    /// It changes whenever it is read.
    is_busy: AtomicBool,
    told: Mutex<Vec<Change>>,
    /// Files more than there were at first.
    more: AtomicU64,
    /// Who reads it waits until this is let go.
    gate: Mutex<()>,
    shared: OnceLock<Weak<Shared<Arc<Wide>, Telling>>>,
}

struct Telling(Arc<Wide>);

impl Wide {
    fn changes(&self, ino: u64) {
        let change = Change { directory: Some(id(ino)), object: None, happened: Happened::CREATE };
        self.told.lock().expect("no panic").push(change);
    }
}

impl Directories for Wide {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let mut reading = Reading::default();
        reading.own.sums.directories = 1;
        if directory == id(ROOT) {
            reading.directories = [LARGE, SMALL].map(|ino| (id(ino), ino.to_string().into_bytes().into())).into();
        }
        if directory != id(LARGE) {
            return Ok(reading);
        }
        self.readings.fetch_add(1, Ordering::SeqCst);
        if self.asks.swap(false, Ordering::SeqCst) {
            self.changes(SMALL);
            let shared = self.shared.get().and_then(Weak::upgrade).expect("it is there");
            let asked = thread::spawn(move || {
                shared.answer(id(ROOT), Freshness::Cached).expect("what is stored");
                shared.answer(id(SMALL), Freshness::Exact).expect("an answer")
            });
            let answer = asked.join().expect("no panic");
            assert!(answer.is_exact);
            assert_eq!(answer.totals.sums.directories, 1);
        }
        if self.is_busy.load(Ordering::SeqCst) {
            self.changes(LARGE);
        }
        drop(self.gate.lock().expect("no panic"));
        let files = MANY + self.more.load(Ordering::SeqCst);
        reading.own.sums.files = files as i64;
        reading.inodes = (100..100 + files).collect();
        Ok(reading)
    }

    fn read_some_up_to(&self, directories: &[NodeId], entries_max: usize) -> Vec<io::Result<Reading>> {
        let is_large = |directory: NodeId| directory == id(LARGE) && MANY as usize > entries_max;
        let read = |&directory: &NodeId| if is_large(directory) { Err(too_large()) } else { self.read(directory) };
        directories.iter().map(read).collect()
    }

    fn look(&self, _: NodeId) -> io::Result<LinkedName> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn settling_seconds(&self) -> i64 {
        0
    }

    fn parent(&self, _: NodeId) -> io::Result<NodeId> {
        Ok(id(ROOT))
    }
}

impl Tracker for Telling {
    fn drain(&self) -> io::Result<Drained> {
        Ok(Drained { changes: std::mem::take(&mut self.0.told.lock().expect("no panic")), lost: false })
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, _: NodeId, _: bool) {}

    fn start_anew(&self) {}
}

fn wide() -> (Arc<Wide>, Arc<Shared<Arc<Wide>, Telling>>) {
    let wide = Arc::new(Wide::default());
    let store = Store::in_memory().expect("a store");
    let telling = Telling(Arc::clone(&wide));
    let tracked = Summaries::open(store, (Arc::clone(&wide), telling), id(ROOT), b"wide").expect("summaries");
    let shared = Arc::new(Shared::new(tracked));
    assert!(wide.shared.set(Arc::downgrade(&shared)).is_ok(), "once");
    (wide, shared)
}

/// Who doesn't wait gets what is stored, which says so; the harvest goes on, once for all who ask, and then the answer is right.
#[test]
fn who_waits_no_longer_is_told_what_is_stored() {
    let (wide, shared) = wide();
    let readings = || wide.readings.load(Ordering::SeqCst);
    let now = || Patience::of(Some(Duration::ZERO));
    // Nothing is known yet, and nobody finds out before the start is over.
    let unknown = shared.answer_within(id(ROOT), Freshness::Exact, &mut now());
    assert!(matches!(unknown, Err(SummaryError::Late)), "{unknown:?}");
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    while shared.answer_within(id(ROOT), Freshness::Exact, &mut now()).expect("an answer").late.is_some() {
        thread::yield_now();
    }
    let closed = wide.gate.lock().expect("no panic");
    wide.more.store(7, Ordering::SeqCst);
    let before = readings();
    wide.changes(LARGE);
    let late = |left: Option<usize>| {
        let answer = shared.answer_within(id(ROOT), Freshness::Exact, &mut now()).expect("what is stored");
        assert!(!answer.is_exact && answer.checked_at.is_none());
        assert!(answer.late.is_some() && left.is_none_or(|left| answer.late == Some(left)), "{answer:?}");
        assert_eq!(answer.totals.sums.files, MANY as i64, "as it was");
    };
    late(None);
    while readings() == before {
        thread::yield_now();
    }
    for freshness in [Freshness::Exact; 5] {
        let answer = shared.answer_within(id(LARGE), freshness, &mut now()).expect("what is stored");
        assert_eq!((answer.late, answer.totals.sums.files), (Some(1), MANY as i64));
        late(Some(1));
    }
    assert_eq!(readings(), before + 1, "it is read once for all of them");
    // Beside it nothing is in doubt.
    assert!(shared.answer_within(id(SMALL), Freshness::Exact, &mut now()).expect("an answer").late.is_none());
    // Who waits for as long as it takes hears how far it is.
    let mut told = Vec::new();
    let mut closed = Some(closed);
    let answer = {
        let mut tell = |progress: Progress| {
            told.push(progress);
            drop(closed.take());
        };
        let mut patience = Patience { tell: Some(&mut tell), ..Patience::default() };
        shared.answer_within(id(ROOT), Freshness::Exact, &mut patience).expect("an answer")
    };
    assert_eq!(told[0], Progress { read: 0, left: 1 });
    assert_eq!((answer.is_exact, answer.late, answer.totals.sums.files), (true, None, MANY as i64 + 7));
    let clean = shared.answer_within(id(ROOT), Freshness::Exact, &mut now()).expect("an answer");
    assert_eq!(clean.totals, answer.totals);
    // One that never rests is told as it is, and as not exact.
    wide.is_busy.store(true, Ordering::SeqCst);
    wide.changes(LARGE);
    let mut patience = Patience::of(Some(Duration::from_secs(100_000)));
    let busy = shared.answer_within(id(ROOT), Freshness::Exact, &mut patience).expect("an answer");
    assert!(!busy.is_exact && busy.late.is_none(), "{busy:?}");
    let synced = shared.answer_within(id(SMALL), Freshness::Synced, &mut patience).expect("an answer");
    assert!(synced.is_exact && synced.late.is_none(), "{synced:?}");
}

/// By what it costs to read it, not as one.
#[test]
fn a_large_directory_counts_for_many() {
    let (wide, shared) = wide();
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    let budget = Budget { directories: 1 };
    let tend_all = || {
        let mut longest = Duration::ZERO;
        while let (Tended::Some(_), pause) = shared.tend(0, budget).expect("it is read") {
            longest = longest.max(pause);
        }
        longest
    };
    wide.changes(SMALL);
    assert!(tend_all() <= Duration::from_secs(1));
    wide.changes(LARGE);
    // 625 seconds but for what reading took.
    assert!(tend_all() > Duration::from_secs(10));
}

/// Others are answered while a large directory is read: for a question, and in the background.
#[test]
fn a_large_directory_keeps_nobody_waiting() {
    let (wide, shared) = wide();
    let is_whole = || {
        let answer = shared.answer(id(ROOT), Freshness::Exact).expect("an answer");
        assert_eq!((answer.totals.sums.directories, answer.totals.sums.files), (3, MANY as i64));
        answer.is_exact
    };
    wide.asks.store(true, Ordering::SeqCst);
    assert!(is_whole());
    assert!(!wide.asks.load(Ordering::SeqCst), "somebody has asked meanwhile");
    let tend = || while let Tended::Some(_) = shared.tend(0, Budget { directories: 0 }).expect("it is read").0 {};
    wide.changes(LARGE);
    wide.asks.store(true, Ordering::SeqCst);
    tend();
    assert!(!wide.asks.load(Ordering::SeqCst), "and in the background");
    assert!(is_whole());
    // One that never rests ends, too, and says that it doesn't know.
    let readings = || wide.readings.load(Ordering::SeqCst);
    wide.is_busy.store(true, Ordering::SeqCst);
    wide.changes(LARGE);
    let before = readings();
    assert!(!is_whole(), "it changes all the time");
    assert_eq!(readings() - before, 2);
    let before = readings();
    tend();
    assert_eq!(readings() - before, 1);
    wide.is_busy.store(false, Ordering::SeqCst);
    assert!(is_whole());
}

/// Whoever wants all written waits for the disk, and nobody else does.
#[test]
fn who_wants_all_written_keeps_nobody_waiting() {
    let (flat, tracked) = flat();
    let shared = Arc::new(Shared::new(tracked));
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    assert!(flat.shared.set(Arc::downgrade(&shared)).is_ok(), "once");
    let mut told = |_: Progress| ();
    let mut patience = Patience { tell: Some(&mut told), ..Patience::default() };
    for patience in [&mut Patience::default(), &mut patience] {
        let before = flat.slow.swap(0, Ordering::SeqCst);
        let answer = shared.answer_within(id(ROOT), Freshness::Synced, patience).expect("an answer");
        assert!(answer.is_exact && answer.checked_at.is_none(), "{answer:?}");
        assert_eq!(flat.slow.load(Ordering::SeqCst), 2, "once each, {before} before");
        assert_eq!(flat.keeping_out.load(Ordering::SeqCst), 0);
    }
}
