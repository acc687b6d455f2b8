//! Inodes that change where nothing is told are looked at before an answer: no more of them than that may change it, and so that who asks
//! meanwhile is let in. Counted, not timed.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap},
    io,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, LinkedName, Reading},
    record::{Access, Record},
    service::{
        budget::Budget,
        patience::{Patience, Progress},
        shared::Shared,
    },
    store::Store,
    summaries::{Asking, Freshness, Staying, Summaries, Tended, Viewer},
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
/// Names one file, which has its other name in the copy.
const MOVED: u64 = 6;
const IN_MOVED: u64 = 50;

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
    /// Where that one is.
    moved_in: Mutex<Option<u64>>,
    /// Directories that aren't ignored, whatever changes in them.
    heeded: Mutex<Vec<u64>>,
    /// When so many were looked at somebody asks for another directory, and is answered when so many were.
    asks_at: AtomicUsize,
    answered_at: Arc<AtomicUsize>,
    shared: OnceLock<Weak<Shared<Arc<Copied>, Told>>>,
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

    /// And wait until what is looked at is given away.
    fn let_another_ask(&self) {
        let shared = self.shared.get().and_then(Weak::upgrade).expect("it is there");
        self.tell(ANOTHER, None, Happened::CREATE);
        let (asked, answered_at) = (Arc::clone(&shared), Arc::clone(&self.answered_at));
        thread::spawn(move || {
            let mut tracked = asked.alone();
            assert_eq!(bytes(&mut tracked, ANOTHER), 0);
            answered_at.store(tracked.directories().looked.lock().expect("no panic").len(), Ordering::SeqCst);
        });
        while shared.waiting() == 0 {
            thread::yield_now();
        }
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
        if let Some(moved_in) = *self.moved_in.lock().expect("no panic") {
            reading.linked.extend([MOVED, COPY].contains(&directory.ino).then(|| self.name(IN_MOVED)));
            reading.directories.extend((directory.ino == moved_in).then(|| (id(MOVED), b"moved".to_vec().into())));
        }
        Ok(reading)
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        let looked = {
            let mut looked = self.looked.lock().expect("no panic");
            looked.push(inode.ino);
            looked.len()
        };
        if looked == self.asks_at.load(Ordering::SeqCst) {
            self.let_another_ask();
        }
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

fn copied() -> (Arc<Copied>, Tracked) {
    read(Copied::default())
}

/// All of it is read.
fn read(copied: Copied) -> (Arc<Copied>, Tracked) {
    let copied = Arc::new(copied);
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

/// So often what goes on changing is read for one question.
const ROUNDS_MAX: usize = 16;
/// The number of looks between which nobody is let in.
const AT_A_TIME: usize = 256;

/// All files have a name in a directory that has changed.
fn open() -> (Arc<Copied>, Tracked) {
    let (copied, tracked) = copied();
    copied.tell(COPY, None, Happened::CREATE);
    (copied, tracked)
}

/// Each is looked at once, and what changes meanwhile is counted where it is told of, or comes before the look.
#[test]
fn a_question_goes_on_with_its_looks_where_it_gave_way() {
    let (copied, mut tracked) = open();
    let mut asking = Asking::default();
    let (mut portions, mut all, mut expected) = (0, BTreeSet::new(), 0);
    let answer = loop {
        let asked = Cell::new(0);
        let soon = || asked.replace(asked.get() + 1) > 0;
        let answer = tracked.query_within(id(ONE), Freshness::Exact, &mut asking, &soon).expect("a portion");
        let looked = copied.take_looked();
        assert!(looked.len() <= 2 * AT_A_TIME, "{} at once", looked.len());
        for ino in looked {
            assert!(all.insert(ino), "{ino} was looked at before");
        }
        if let Some(answer) = answer {
            break answer;
        }
        portions += 1;
        // Others ask in between, also for the same.
        copied.tell(ANOTHER, None, Happened::CREATE);
        assert_eq!(bytes(&mut tracked, ANOTHER), 0);
        let left = (FIRST..FIRST + FILES).find(|ino| !all.contains(ino)).expect("some are left");
        match portions {
            // By the name that is told of nowhere.
            3 => {
                copied.write(left, 500);
                expected += 500;
            }
            // By the one that is.
            6 => {
                let before = *all.first().expect("some were looked at");
                copied.write(before, 70);
                copied.tell(ONE, Some(before), Happened::MODIFY);
                expected += 70;
            }
            9 => {
                copied.write(left + 1, 6);
                expected += 6;
                assert_eq!(bytes(&mut tracked, ONE), expected);
                // What that one has looked at is no matter.
                copied.take_looked();
            }
            _ => {}
        }
    };
    assert!(answer.is_exact);
    assert_eq!(answer.totals.sums.bytes, expected);
    assert!(portions >= FILES as usize / AT_A_TIME / 2, "{portions}");
    assert!(all.into_iter().eq(FIRST..FIRST + FILES), "each of them");
    // What is written after its look is counted by who asks then.
    copied.write(FIRST + FILES - 1, 1000);
    assert_eq!(bytes(&mut tracked, ONE), expected + 1000);
}

/// Whoever else asks meanwhile.
fn in_portions(tracked: &mut Tracked, directory: u64, mut between: impl FnMut(usize)) -> (bool, i64) {
    let mut asking = Asking::default();
    for portion in 1.. {
        let asked = Cell::new(0);
        let soon = || asked.replace(asked.get() + 1) > 0;
        let answer = tracked.query_within(id(directory), Freshness::Exact, &mut asking, &soon).expect("a portion");
        if let Some(answer) = answer {
            return (answer.is_exact, answer.totals.sums.bytes);
        }
        between(portion);
    }
    unreachable!("it ends")
}

/// It wasn't below when what is below was listed.
#[test]
fn what_is_moved_there_between_two_portions_is_looked_at() {
    let (copied, mut tracked) = read(Copied { moved_in: Mutex::new(Some(ANOTHER)), ..Copied::default() });
    copied.tell(COPY, None, Happened::CREATE);
    copied.write(IN_MOVED, 5);
    let mut portions = 0;
    let answer = in_portions(&mut tracked, ONE, |portion| {
        portions = portion;
        if portion == 3 {
            *copied.moved_in.lock().expect("no panic") = Some(ONE);
            copied.tell(ANOTHER, None, Happened::MOVED_FROM);
            copied.tell(ONE, None, Happened::MOVED_TO);
        }
    });
    assert!(portions > 10, "{portions}");
    assert_eq!(answer, (true, 5));
}

#[test]
fn an_answer_is_exact_however_many_portions_its_looks_take() {
    let (copied, mut tracked) = open();
    let mut portions = 0;
    let answer = in_portions(&mut tracked, ONE, |portion| {
        portions = portion;
        copied.tell(ONE, None, Happened::CREATE);
    });
    assert!(portions > 2 * ROUNDS_MAX, "{portions}");
    assert_eq!(answer, (true, 0));
}

/// Who may not list the copy.
#[derive(Debug)]
struct Other;

impl Viewer for Other {
    fn may_list(&self, directory: NodeId, _: &Access) -> bool {
        directory != id(COPY)
    }

    fn access_now(&self, _: NodeId) -> Option<Access> {
        None
    }

    fn parent_now(&self, _: NodeId) -> Option<NodeId> {
        None
    }

    fn is_as_stored(&self, _: NodeId, _: &Record) -> bool {
        true
    }

    fn staying(&self) -> Staying {
        unreachable!("nothing goes on by itself")
    }
}

/// That there is something to look at shows that something hidden has changed. So whoever is told what is late has it looked at in one go.
#[test]
fn what_is_looked_at_for_what_is_hidden_makes_no_answer_late() {
    let (copied, mut tracked) = open();
    let mut looked = |asking: Asking<'_>| {
        let mut asking = asking;
        let answer = tracked.query_within(id(ROOT), Freshness::Exact, &mut asking, &|| true).expect("a portion");
        (answer.map(|answer| answer.is_exact), copied.take_looked().len())
    };
    assert_eq!(looked(Asking::by(Some(&Other)).told_when_late()), (Some(true), FILES as usize));
    let (answer, some) = looked(Asking::by(Some(&Other)));
    assert!(answer.is_none() && some <= AT_A_TIME, "{some}");
}

fn shared() -> (Arc<Copied>, Arc<Shared<Arc<Copied>, Told>>) {
    let (copied, tracked) = copied();
    let shared = Arc::new(Shared::new(tracked));
    assert!(copied.shared.set(Arc::downgrade(&shared)).is_ok(), "once");
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    copied.tell(COPY, None, Happened::CREATE);
    (copied, shared)
}

/// At which look somebody asks for something else, and at which of all that one is answered.
fn answered_at(copied: &Copied, asks_at: usize, ask: impl FnOnce()) -> (usize, usize) {
    copied.take_looked();
    copied.answered_at.store(0, Ordering::SeqCst);
    copied.asks_at.store(asks_at, Ordering::SeqCst);
    ask();
    copied.asks_at.store(0, Ordering::SeqCst);
    while copied.answered_at.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    (copied.answered_at.load(Ordering::SeqCst), copied.take_looked().len())
}

/// Whatever it is that looks: a question, one that is told how far it is, and the background.
#[test]
fn who_asks_waits_for_some_looks_of_anothers_question() {
    let (copied, shared) = shared();
    let asks_at = 3000;
    let asked = |of: &str, (answered_at, all): (usize, usize), most: usize| {
        assert!((asks_at..=asks_at + AT_A_TIME).contains(&answered_at), "{of}: {answered_at} of {all}");
        assert!(all >= FILES as usize && all <= most, "{of}: {all}");
    };
    let ask = || {
        let answer = shared.answer(id(ONE), Freshness::Exact).expect("an answer");
        assert!(answer.is_exact);
    };
    asked("a question", answered_at(&copied, asks_at, ask), FILES as usize);
    let patient = || {
        let mut tell = |_: Progress| ();
        let mut patience = Patience { tell: Some(&mut tell), ..Patience::default() };
        let answer = shared.answer_within(id(ONE), Freshness::Exact, &mut patience).expect("an answer");
        assert!(answer.is_exact && answer.late.is_none());
    };
    // Some before it is known to take longer.
    asked("one that is told", answered_at(&copied, asks_at, patient), FILES as usize + AT_A_TIME);
    let mut patience = Patience::of(Some(Duration::from_secs(100_000)));
    let late = shared.answer_within(id(ONE), Freshness::Exact, &mut patience).expect("an answer");
    assert!(late.is_exact && late.late.is_none());
}

#[test]
fn who_asks_waits_for_some_looks_of_the_background() {
    let (copied, shared) = shared();
    let written: BTreeSet<u64> = (FIRST..FIRST + FILES).collect();
    *copied.written.lock().expect("no panic") = written.clone();
    written.iter().for_each(|&ino| copied.tell(WRITTEN_THROUGH, Some(ino), Happened::MODIFY));
    let asks_at = 3000;
    let tend = || while shared.tend(0, Budget { directories: 0 }).expect("it is read").0 != Tended::Nothing {};
    tend();
    let (answered_at, all) = answered_at(&copied, asks_at, tend);
    assert!((asks_at..=asks_at + AT_A_TIME).contains(&answered_at), "{answered_at} of {all}");
    assert!(all >= FILES as usize, "{all}");
}
