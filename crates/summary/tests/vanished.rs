//! Directories that can't be opened as if they were gone: the directory above tells whether they are. Counted, not timed.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    store::Store,
    summaries::{Answer, Freshness, Summaries},
    tracker::{Change, Drained, Tracker},
};
use onesweep_sys::fanotify::Happened;

const ROOT: u64 = 1;
const STALE: i32 = 116;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

/// A directory with some in it that can't be opened so many times.
#[derive(Default)]
struct Stubborn {
    /// By their numbers.
    named: Mutex<HashMap<u64, u64>>,
    readings: AtomicU64,
    changed: Mutex<Vec<Change>>,
}

impl Stubborn {
    fn set(&self, ino: u64, stale_times: u64) {
        self.named.lock().expect("not poisoned").insert(ino, stale_times);
        self.tell(ROOT);
    }

    fn remove(&self, ino: u64) {
        self.named.lock().expect("not poisoned").remove(&ino);
        self.tell(ROOT);
    }

    fn tell(&self, ino: u64) {
        let change = Change { directory: Some(id(ino)), object: None, happened: Happened::CREATE };
        self.changed.lock().expect("not poisoned").push(change);
    }
}

impl Directories for Stubborn {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        self.readings.fetch_add(1, Ordering::SeqCst);
        let mut named = self.named.lock().expect("not poisoned");
        let mut reading = Reading::default();
        reading.own.sums.directories = 1;
        if directory == id(ROOT) {
            reading.directories = named.keys().map(|&ino| (id(ino), ino.to_string().into_bytes().into())).collect();
            return Ok(reading);
        }
        match named.get_mut(&directory.ino) {
            Some(0) => {
                reading.own.sums.files = 10;
                Ok(reading)
            }
            Some(left) => {
                *left -= 1;
                Err(io::Error::from_raw_os_error(STALE))
            }
            None => Err(io::Error::from_raw_os_error(STALE)),
        }
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

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        let named = self.named.lock().expect("not poisoned");
        if named.contains_key(&directory.ino) { Ok(id(ROOT)) } else { Err(io::Error::from_raw_os_error(STALE)) }
    }
}

/// Says what was changed.
struct Told(Arc<Stubborn>);

impl Tracker for Told {
    fn drain(&self) -> io::Result<Drained> {
        let changes = std::mem::take(&mut *self.0.changed.lock().expect("not poisoned"));
        Ok(Drained { changes, ..Drained::default() })
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, _: NodeId, _: bool) {}

    fn start_anew(&self) {}
}

struct Asked {
    directories: Arc<Stubborn>,
    summaries: Summaries<Arc<Stubborn>, Told>,
}

impl Asked {
    fn of(named: &[(u64, u64)]) -> Asked {
        let directories = Arc::new(Stubborn::default());
        named.iter().for_each(|&(ino, stale_times)| directories.set(ino, stale_times));
        let store = Store::in_memory().expect("a store");
        let told = Told(Arc::clone(&directories));
        let parts = (Arc::clone(&directories), told);
        let summaries = Summaries::open(store, parts, id(ROOT), b"stubborn").expect("summaries");
        Asked { directories, summaries }
    }

    fn answer(&mut self) -> Answer {
        let answer = self.summaries.query(id(ROOT), Freshness::Exact).expect("an answer");
        assert!(answer.is_exact, "{answer:?}");
        answer
    }

    /// Directories and files, and how many directories could not be read.
    fn figures(&mut self) -> (i64, i64, usize) {
        let answer = self.answer();
        (answer.totals.sums.directories, answer.totals.sums.files, answer.unreadable)
    }
}

#[test]
fn one_that_is_still_named_is_opened_again() {
    let mut asked = Asked::of(&[(2, 1), (3, 0)]);
    assert_eq!(asked.figures(), (3, 20, 0));
}

#[test]
fn one_that_is_named_and_never_opens_is_unreadable() {
    let mut asked = Asked::of(&[(2, u64::MAX), (3, 0)]);
    let (_, files, unreadable) = asked.figures();
    assert_eq!((files, unreadable), (10, 1));
    let before = asked.directories.readings.load(Ordering::SeqCst);
    asked.answer();
    let again = asked.directories.readings.load(Ordering::SeqCst) - before;
    assert!(again <= 1, "{again} readings, and nothing changed");
    // It can be opened from now on, and something in it changes.
    asked.directories.set(2, 0);
    asked.directories.tell(2);
    assert_eq!(asked.figures(), (3, 20, 0));
}

#[test]
fn one_that_is_gone_is_forgotten() {
    let mut asked = Asked::of(&[(2, 0), (3, 0)]);
    assert_eq!(asked.figures(), (3, 20, 0));
    asked.directories.remove(2);
    assert_eq!(asked.figures(), (2, 10, 0));
    // Also one that had seemed to be gone before.
    asked.directories.set(4, u64::MAX);
    assert_eq!(asked.figures().2, 1);
    asked.directories.remove(4);
    assert_eq!(asked.figures(), (2, 10, 0));
}
