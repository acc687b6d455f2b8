//! Much changes at a time, in directories that all lie in one. Counted, not timed.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    store::Store,
    summaries::{Freshness, Summaries, Tended},
    tracker::{Change, Drained, Tracker},
};
use onesweep_sys::fanotify::Happened;

const ROOT: u64 = 1;
const LAST: u64 = 1001;
const FILE: u64 = 5000;
const PORTION: usize = 100;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

#[derive(Default)]
struct Tree {
    /// How often each directory was read.
    readings: Mutex<BTreeMap<u64, u64>>,
    told: Mutex<Vec<Change>>,
    /// Directories that aren't ignored, whatever changes in them.
    heeded: Mutex<Vec<u64>>,
}

impl Tree {
    fn summaries() -> (Arc<Tree>, Summaries<Arc<Tree>, Told>) {
        let tree = Arc::new(Tree::default());
        let told = Told(Arc::clone(&tree));
        let store = Store::in_memory().expect("a store");
        let mut summaries = Summaries::open(store, (Arc::clone(&tree), told), id(ROOT), b"tree").expect("summaries");
        summaries.query(id(ROOT), Freshness::Exact).expect("an answer");
        tree.readings.lock().expect("no panic").clear();
        (tree, summaries)
    }

    fn changes(&self, directory: u64, object: Option<u64>, happened: Happened) {
        let change = Change { directory: Some(id(directory)), object: object.map(id), happened };
        self.told.lock().expect("no panic").push(change);
    }

    fn heeded(&self) -> Vec<u64> {
        self.heeded.lock().expect("no panic").clone()
    }
}

impl Directories for Tree {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        *self.readings.lock().expect("no panic").entry(directory.ino).or_default() += 1;
        let mut reading = Reading::default();
        reading.own.sums.directories = 1;
        if directory == id(ROOT) {
            reading.directories = (2..=LAST).map(|ino| (id(ino), ino.to_string().into_bytes())).collect();
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

struct Told(Arc<Tree>);

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

/// Or each file that is made would have its directory tell of all that goes on there.
#[test]
fn a_new_file_is_not_taken_for_one_that_is_written_without_a_name() {
    let (tree, mut summaries) = Tree::summaries();
    tree.changes(2, Some(FILE), Happened::MODIFY | Happened::CLOSE_WRITE);
    tree.changes(2, None, Happened::CREATE);
    summaries.drain().expect("it drains");
    assert_eq!(tree.heeded(), [0; 0]);
    tree.changes(3, Some(FILE + 1), Happened::MODIFY);
    summaries.drain().expect("it drains");
    assert_eq!(tree.heeded(), [3], "no name came there");
    summaries.query(id(ROOT), Freshness::Exact).expect("an answer");
    assert_eq!(tree.heeded(), [0; 0], "it is gone");
}

/// Else those that come first on the disk would be read in every portion, and the last ones never.
#[test]
fn what_changes_again_waits_until_the_harvest_comes_round() {
    let (tree, mut summaries) = Tree::summaries();
    (2..=LAST).for_each(|ino| tree.changes(ino, None, Happened::CREATE));
    while tree.readings.lock().expect("no panic").len() < LAST as usize - 1 {
        let tended = summaries.tend(0, PORTION, &|| false).expect("it is read");
        assert_eq!(tended, Tended::Some(PORTION as u64));
        tree.changes(2, None, Happened::CREATE);
    }
    assert_eq!(tree.readings.lock().expect("no panic").get(&2), Some(&1));
    assert_eq!(summaries.tend(0, PORTION, &|| false).expect("it is read"), Tended::All(1));
}
