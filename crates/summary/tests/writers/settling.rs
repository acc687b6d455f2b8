//! Blocks of a file that was written just now may change, and nobody tells.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onesweep_summary::{
    clock::Clock,
    store::Store,
    summaries::{Freshness, Tended},
};

use onesweep_sys::fanotify::Happened;

use crate::{
    Tracked, agrees, answers_right, opened,
    tree::{ROOT, Tree, id},
};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

const FILE: u64 = 5000;
const SETTLING: i64 = 1000;

/// Nobody is told.
fn change(tree: &Tree) {
    *tree.state().files.get_mut(&FILE).expect("a file") += 1000;
}

#[test]
fn what_may_have_changed_by_itself_is_read_once_more() {
    let tree = Tree::new(7);
    {
        let mut state = tree.state();
        state.files.insert(FILE, 10);
        state.directory(ROOT).names.insert("file".to_owned(), FILE);
        (state.settling, state.changed_at) = (SETTLING, now());
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    let (stored, readings) = (tree.state().truth(ROOT).1, tracked.readings());
    change(&tree);
    for _ in 0..3 {
        let answer = tracked.query(id(ROOT), Freshness::Exact).expect("an answer");
        assert_eq!((answer.totals.sums.bytes, tracked.readings()), (stored, readings), "it isn't time");
    }
    // From this reading on it takes a second or two.
    let due = {
        tree.state().changed_at = now() + 2 - SETTLING;
        now() + 2
    };
    answers_right(&mut tracked, &tree, (ROOT, Freshness::Synced), "by a sync it is read at once");
    change(&tree);
    let once_more = tracked.readings() + tracked.ledger().nodes.len() as u64;
    while now() < due {
        thread::sleep(Duration::from_millis(20));
    }
    agrees(&mut tracked, &tree, ROOT, "when it has settled");
    assert_eq!(tracked.readings(), once_more, "each directory holds something that may change");
    // Once is enough.
    for _ in 0..3 {
        agrees(&mut tracked, &tree, ROOT, "after that");
        assert_eq!(tracked.tend(SETTLING, 100, &|| false).expect("no error"), Tended::Nothing);
    }
    assert_eq!(tracked.readings(), once_more);
}

/// A disk that has much to write may be late with it: what was found to have changed by itself may go on changing.
#[test]
fn what_goes_on_settling_is_read_until_it_stays() {
    for is_linked in [false, true] {
        let hands = Hands::new();
        let (tree, mut tracked) = by(&hands);
        if is_linked {
            let mut state = tree.state();
            state.directory(ROOT).names.insert("another name".to_owned(), FILE);
            state.tell(ROOT, None, Happened::CREATE);
        }
        for time in 0..3 {
            agrees(&mut tracked, &tree, ROOT, "until it is time");
            change(&tree);
            hands.pass(SETTLING + 1);
            agrees(&mut tracked, &tree, ROOT, &format!("linked: {is_linked}, {time}"));
        }
        hands.pass(SETTLING + 1);
        agrees(&mut tracked, &tree, ROOT, "it stayed");
        let readings = tracked.readings();
        hands.pass(10 * SETTLING);
        agrees(&mut tracked, &tree, ROOT, "after that");
        assert_eq!(tracked.readings(), readings, "it isn't looked at for ever");
    }
}

/// Nobody asks.
#[test]
fn what_has_settled_is_read_by_itself() {
    let tree = Tree::new(7);
    let due = {
        let mut state = tree.state();
        state.files.insert(FILE, 10);
        state.directory(ROOT).names.insert("file".to_owned(), FILE);
        (state.settling, state.changed_at) = (SETTLING, now() + 2 - SETTLING);
        now() + 2
    };
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    change(&tree);
    while now() < due {
        thread::sleep(Duration::from_millis(20));
    }
    until_read(&mut tracked, SETTLING);
    assert_eq!(tracked.cached(id(ROOT), None).expect("it is known").totals.sums.bytes, tree.state().truth(ROOT).1);
}

/// However much it is, it waits some seconds for who goes on; then it is read once.
#[test]
fn what_is_being_written_waits_for_its_end() {
    let tree = Tree::new(7);
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    let readings = tracked.readings();
    let began = now();
    {
        let mut state = tree.state();
        state.files.insert(FILE, 10);
        state.directory(ROOT).names.insert("file".to_owned(), FILE);
        state.tell(ROOT, None, Happened::CREATE);
    }
    // More than one in twenty.
    assert_eq!(tracked.tend(SETTLING, 100, &|| false).expect("no error"), Tended::Nothing);
    assert_eq!(tracked.readings(), readings);
    until_read(&mut tracked, SETTLING);
    assert!(now() - began >= 4, "{} s", now() - began);
    assert_eq!(tracked.readings(), readings + 1);
    assert_eq!(tracked.cached(id(ROOT), None).expect("it is known").totals.sums.bytes, tree.state().truth(ROOT).1);
}

/// Waits for what is harvested by itself.
fn until_read(tracked: &mut Tracked, timeout: i64) {
    while !matches!(tracked.tend(timeout, 100, &|| false).expect("no error"), Tended::All(_)) {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Clocks that stand still until a test sets them.
#[derive(Debug)]
pub(crate) struct Hands(Mutex<(i64, i64)>);

const THEN: i64 = 1_700_000_000;
pub(crate) const HOUR: i64 = 3600;

impl Hands {
    pub(crate) fn new() -> Arc<Hands> {
        Arc::new(Hands(Mutex::new((THEN, 0))))
    }

    pub(crate) fn time(&self) -> i64 {
        self.0.lock().expect("no panic").0
    }

    /// Time passes.
    pub(crate) fn pass(&self, seconds: i64) {
        let mut hands = self.0.lock().expect("no panic");
        (hands.0, hands.1) = (hands.0 + seconds, hands.1 + seconds);
    }

    /// Somebody sets the clock.
    pub(crate) fn set(&self, by: i64) {
        self.0.lock().expect("no panic").0 += by;
    }
}

impl Clock for Hands {
    fn time(&self) -> Duration {
        Duration::from_secs(Hands::time(self) as u64)
    }

    fn passed(&self) -> Duration {
        Duration::from_secs(self.0.lock().expect("no panic").1 as u64)
    }
}

/// A tree with a file that was written just now, and what is known of it.
fn by(hands: &Arc<Hands>) -> (Tree, Tracked) {
    let tree = Tree::new(7);
    {
        let mut state = tree.state();
        state.files.insert(FILE, 10);
        state.directory(ROOT).names.insert("file".to_owned(), FILE);
        (state.settling, state.changed_at) = (SETTLING, hands.time());
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store")).with_clock(hands.clone());
    agrees(&mut tracked, &tree, ROOT, "at first");
    (tree, tracked)
}

#[test]
fn a_clock_that_is_set_hastens_and_delays_nothing() {
    for set in [-30 * HOUR, -2, 2, 30 * HOUR] {
        let hands = Hands::new();
        let (tree, mut tracked) = by(&hands);
        hands.set(set);
        let readings = tracked.readings();
        let asked = |tracked: &mut Tracked| tracked.query(id(ROOT), Freshness::Exact).expect("an answer");
        asked(&mut tracked);
        assert_eq!(tracked.readings(), readings, "{set}: nothing has changed");
        // What was read before has a whole time to settle from then on.
        hands.pass(SETTLING - 1);
        change(&tree);
        asked(&mut tracked);
        assert_eq!(tracked.readings(), readings, "{set}: it isn't time");
        hands.pass(2);
        agrees(&mut tracked, &tree, ROOT, &format!("{set}: it has settled"));
    }
}

#[test]
fn what_is_read_after_a_clock_was_set_has_a_whole_time_to_settle() {
    for set in [-30 * HOUR, 30 * HOUR] {
        let hands = Hands::new();
        let (tree, mut tracked) = by(&hands);
        // By its time it is an old one, or one of the future.
        hands.set(set);
        tree.state().tell(ROOT, None, Happened::CREATE);
        agrees(&mut tracked, &tree, ROOT, "it was told");
        hands.pass(SETTLING - 1);
        change(&tree);
        hands.pass(2);
        agrees(&mut tracked, &tree, ROOT, &format!("{set}: it has settled"));
    }
}

/// What is told of a file may be as old as the harvest when its directory is put down.
#[test]
fn what_has_settled_since_it_was_read_is_read_once_more() {
    let hands = Hands::new();
    let tree = Tree::new(7);
    {
        let mut state = tree.state();
        state.files.insert(FILE, 10);
        state.directory(ROOT).names.insert("file".to_owned(), FILE);
        (state.settling, state.changed_at) = (SETTLING, hands.time());
        state.takes = Some((hands.clone(), SETTLING + 1));
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store")).with_clock(hands.clone());
    agrees(&mut tracked, &tree, ROOT, "at first");
    tree.state().takes = None;
    change(&tree);
    hands.pass(SETTLING + 1);
    agrees(&mut tracked, &tree, ROOT, "it has settled");
}

#[test]
fn what_is_due_by_itself_goes_by_the_time_that_passes() {
    for set in [-30 * HOUR, 30 * HOUR] {
        let hands = Hands::new();
        let (tree, mut tracked) = by(&hands);
        tree.state().settling = 0;
        hands.pass(SETTLING + 1);
        agrees(&mut tracked, &tree, ROOT, "settled");
        let tend = |tracked: &mut Tracked| tracked.tend(HOUR, 1000, &|| false).expect("no error");
        tree.state().tell(ROOT, None, Happened::CREATE);
        // More than one in twenty, which waits for some seconds.
        assert_eq!(tend(&mut tracked), Tended::Nothing, "{set}");
        hands.set(set);
        assert_eq!(tend(&mut tracked), Tended::Nothing, "{set}: no time has passed");
        hands.pass(4);
        assert_eq!(tend(&mut tracked), Tended::Nothing, "{set}: it isn't time");
        hands.pass(2);
        assert!(matches!(tend(&mut tracked), Tended::All(_)), "{set}: it is calm");
    }
}

/// How old what is stored is, not when names were read.
#[test]
fn an_age_is_that_of_the_oldest_change_that_is_not_counted() {
    let hands = Hands::new();
    let (tree, mut tracked) = by(&hands);
    tree.state().settling = 0;
    hands.pass(SETTLING + 1);
    agrees(&mut tracked, &tree, ROOT, "settled");
    let age = |tracked: &Tracked| tracked.cached(id(ROOT), None).expect("it is stored").age;
    hands.pass(10 * HOUR);
    assert_eq!(age(&tracked), 0, "nothing has changed");
    tracked.drain().expect("no error");
    hands.pass(1);
    tree.state().tell(ROOT, None, Happened::CREATE);
    tracked.drain().expect("no error");
    assert_eq!(age(&tracked), 1, "it was looked for a second ago");
    hands.pass(100);
    assert_eq!(age(&tracked), 101);
    // What comes later, and a clock that is set, change nothing.
    tree.state().tell(ROOT, None, Happened::CREATE);
    hands.set(-HOUR);
    tracked.drain().expect("no error");
    hands.pass(100);
    assert_eq!(age(&tracked), 201);
    agrees(&mut tracked, &tree, ROOT, "counted");
    assert_eq!(age(&tracked), 0);
}

/// Who asks for what is stored gets nothing older than what is harvested by itself leaves.
#[test]
fn what_is_stored_is_no_older_than_the_timeout() {
    const TIMEOUT: i64 = 10;
    let hands = Hands::new();
    let (tree, mut tracked) = by(&hands);
    tree.state().settling = 0;
    let mut oldest = 0;
    for second in 0..400 {
        hands.pass(1);
        if second % 7 == 0 {
            tree.state().change();
        }
        if second % 90 == 0 {
            hands.set(if second % 180 == 0 { HOUR } else { -HOUR });
        }
        while let Tended::Some(_) = tracked.tend(TIMEOUT, 1000, &|| false).expect("no error") {}
        let age = tracked.cached(id(ROOT), None).expect("it is stored").age;
        assert!(age <= TIMEOUT, "{age} s in second {second}");
        oldest = oldest.max(age);
    }
    assert!(oldest >= 2, "it isn't harvested all the time: {oldest}");
}

/// The store isn't written where nothing changes.
#[test]
fn a_commit_of_nothing_writes_nothing() {
    let (folder, tree) = (tempfile::tempdir().expect("a folder"), Tree::new(7));
    let path = folder.path().join("store");
    let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    tracked.commit(true).expect("it is written");
    let written = || std::fs::read(&path).expect("the store");
    let before = written();
    tracked.commit(true).expect("no error");
    assert!(written() == before, "nothing has changed");
    tree.state().tell(ROOT, None, Happened::CREATE);
    agrees(&mut tracked, &tree, ROOT, "it is read");
    tracked.commit(true).expect("it is written");
    assert!(written() != before);
}

/// Who unpacks a tree into a small file system has more than one directory in twenty changed at once.
#[test]
fn a_few_directories_are_left_to_who_asks() {
    let hands = Hands::new();
    let (tree, mut tracked) = by(&hands);
    tree.state().settling = 0;
    hands.pass(SETTLING + 1);
    agrees(&mut tracked, &tree, ROOT, "settled");
    tracked.leave_few(2);
    let tend = |tracked: &mut Tracked| tracked.tend(HOUR, 1000, &|| false).expect("no error");
    tree.state().tell(ROOT, None, Happened::CREATE);
    for _ in 0..20 {
        assert_eq!(tend(&mut tracked), Tended::Nothing);
        hands.pass(1);
    }
    let other = *tree.state().directories.keys().find(|&&ino| ino != ROOT).expect("another one");
    tree.state().tell(other, None, Happened::CREATE);
    assert_eq!(tend(&mut tracked), Tended::Nothing, "it isn't calm");
    hands.pass(6);
    assert!(matches!(tend(&mut tracked), Tended::All(_)), "two are many");
}
