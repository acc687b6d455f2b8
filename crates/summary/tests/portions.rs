//! What nobody waits for is harvested in portions, and gives way to who asks. Counted, not timed.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    service::{budget::Budget, shared::Shared},
    store::Store,
    summaries::{Freshness, Summaries, Tended},
    tracker::{Drained, Tracker},
};

const ROOT: u64 = 1;
const DIRECTORIES: u64 = 10_000;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

/// A directory with many in it, which counts its readings.
#[derive(Default)]
struct Flat {
    readings: AtomicU64,
    /// At this reading somebody asks.
    asks_at: AtomicU64,
    shared: std::sync::OnceLock<std::sync::Weak<Shared<Arc<Flat>, Quiet>>>,
    answered_at: Arc<AtomicU64>,
}

impl Directories for Flat {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let number = self.readings.fetch_add(1, Ordering::SeqCst) + 1;
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
            reading.directories = (2..=DIRECTORIES).map(|ino| (id(ino), ino.to_string().into_bytes())).collect();
        }
        Ok(reading)
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

struct Quiet;

impl Tracker for Quiet {
    fn drain(&self) -> io::Result<Drained> {
        Ok(Drained::default())
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, _: NodeId, _: bool) {}

    fn start_anew(&self) {}
}

fn shared() -> (Arc<Flat>, Arc<Shared<Arc<Flat>, Quiet>>) {
    let flat = Arc::new(Flat::default());
    let store = Store::in_memory().expect("a store");
    let tracked = Summaries::open(store, (Arc::clone(&flat), Quiet), id(ROOT), b"flat").expect("summaries");
    let shared = Arc::new(Shared::new(tracked));
    flat.shared.set(Arc::downgrade(&shared)).expect("once");
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
