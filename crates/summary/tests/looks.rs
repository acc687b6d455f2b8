//! Inodes that change where nothing is told are looked at before an answer: no more of them than that may change it, and so that who asks
//! meanwhile is let in. Counted, not timed.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Arc, Mutex},
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    store::Store,
    summaries::{Freshness, Summaries, Tended},
    totals::Sums,
    tracker::{Change, Drained, Tracker},
};
use onesweep_sys::fanotify::Happened;

const ROOT: u64 = 1;
/// Both name all files.
const ONE: u64 = 2;
const COPY: u64 = 3;
/// These name none.
const WRITTEN_THROUGH: u64 = 4;
const ANOTHER: u64 = 5;

const FILES: u64 = 10_000;
const FIRST: u64 = 100;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

/// A directory and its copy by hard links.
#[derive(Default)]
struct Copied {
    /// Bytes of files that have any.
    bytes: Mutex<HashMap<u64, i64>>,
    /// Somebody has them open for writing.
    written: Mutex<BTreeSet<u64>>,
    /// What was looked at.
    looked: Mutex<Vec<u64>>,
    told: Mutex<Vec<Change>>,
    /// Directories that aren't ignored, whatever changes in them.
    heeded: Mutex<Vec<u64>>,
}

impl Copied {
    fn name(&self, ino: u64) -> LinkedName {
        let bytes = self.bytes.lock().expect("no panic").get(&ino).copied().unwrap_or(0);
        let weight = Sums { files: 1, bytes, ..Sums::default() };
        LinkedName { id: id(ino), weight, links: 2, facts: bytes as u64 + 1 }
    }

    /// Somebody writes to it, and nobody is told.
    fn write(&self, ino: u64, bytes: i64) {
        self.bytes.lock().expect("no panic").insert(ino, bytes);
    }

    fn tell(&self, directory: u64, object: Option<u64>, happened: Happened) {
        let change = Change { directory: Some(id(directory)), object: object.map(id), happened };
        self.told.lock().expect("no panic").push(change);
    }

    /// What was looked at since this was asked last.
    fn take_looked(&self) -> Vec<u64> {
        std::mem::take(&mut self.looked.lock().expect("no panic"))
    }
}

impl Directories for Copied {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let mut reading = Reading::default();
        reading.own.sums.directories = 1;
        match directory.ino {
            ROOT => {
                let all = [ONE, COPY, WRITTEN_THROUGH, ANOTHER];
                reading.directories = all.map(|ino| (id(ino), ino.to_string().into_bytes().into())).into();
            }
            ONE | COPY => reading.linked = (FIRST..FIRST + FILES).map(|ino| self.name(ino)).collect(),
            _ => {}
        }
        Ok(reading)
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        self.looked.lock().expect("no panic").push(inode.ino);
        Ok(self.name(inode.ino))
    }

    fn is_written(&self, inode: NodeId) -> io::Result<bool> {
        Ok(self.written.lock().expect("no panic").contains(&inode.ino))
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

struct Told(Arc<Copied>);

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

type Tracked = Summaries<Arc<Copied>, Told>;

/// All of it is read.
fn copied() -> (Arc<Copied>, Tracked) {
    let copied = Arc::new(Copied::default());
    let told = Told(Arc::clone(&copied));
    let store = Store::in_memory().expect("a store");
    let mut tracked = Summaries::open(store, (Arc::clone(&copied), told), id(ROOT), b"copied").expect("summaries");
    assert_eq!(bytes(&mut tracked, ROOT), 0);
    assert_eq!(copied.take_looked(), [0; 0], "all is told of");
    (copied, tracked)
}

fn bytes(tracked: &mut Tracked, directory: u64) -> i64 {
    let answer = tracked.query(id(directory), Freshness::Exact).expect("an answer");
    assert!(answer.is_exact);
    answer.totals.sums.bytes
}

/// Each look takes a lease and the facts of an inode, which only those are to wait for whose answer it may change.
#[test]
fn what_is_written_through_other_names_is_looked_at_by_who_asks_for_it() {
    const WRITTEN: u64 = 1000;
    let (copied, mut tracked) = copied();
    let written: BTreeSet<u64> = (FIRST..FIRST + WRITTEN).collect();
    *copied.written.lock().expect("no panic") = written.clone();
    written.iter().for_each(|&ino| copied.tell(WRITTEN_THROUGH, Some(ino), Happened::MODIFY));
    assert_eq!(bytes(&mut tracked, ROOT), 0);
    copied.take_looked();
    assert_eq!(*copied.heeded.lock().expect("no panic"), [WRITTEN_THROUGH]);
    for _ in 0..3 {
        copied.write(FIRST, 5000);
        copied.tell(ANOTHER, None, Happened::CREATE);
        assert_eq!(bytes(&mut tracked, ANOTHER), 0);
        assert_eq!(copied.take_looked(), [0; 0], "none of them is there");
    }
    for (asked, of_first) in [(ONE, 6000), (COPY, 7000), (ROOT, 8000)] {
        copied.write(FIRST, of_first);
        assert_eq!(bytes(&mut tracked, asked), of_first, "{asked}");
        let looked: BTreeSet<u64> = copied.take_looked().into_iter().collect();
        assert!(looked.is_superset(&written), "{} by who asks for {asked}", looked.len());
    }
    // By whom they were written is over: who asks where that was told has them looked at for the last time.
    copied.written.lock().expect("no panic").clear();
    copied.write(FIRST, 9000);
    copied.tell(WRITTEN_THROUGH, None, Happened::CREATE);
    assert_eq!(bytes(&mut tracked, WRITTEN_THROUGH), 0);
    assert!(copied.take_looked().len() as u64 >= WRITTEN && copied.heeded.lock().expect("no panic").is_empty());
    assert_eq!(bytes(&mut tracked, ONE), 9000);
    // And so does who harvests all that is due.
    copied.written.lock().expect("no panic").insert(FIRST + 1);
    copied.tell(WRITTEN_THROUGH, Some(FIRST + 1), Happened::MODIFY);
    assert_eq!(bytes(&mut tracked, ANOTHER), 0);
    copied.written.lock().expect("no panic").clear();
    copied.write(FIRST + 1, 10);
    while tracked.tend(0, 100, &|| false).expect("it is read") != Tended::Nothing {}
    assert!(copied.heeded.lock().expect("no panic").is_empty());
    assert_eq!(tracked.cached(id(COPY), None).expect("it is known").totals.sums.bytes, 9010);
}
