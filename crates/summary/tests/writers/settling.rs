//! Blocks of a file that was written just now may change, and nobody tells.

use std::{
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onesweep_summary::{
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
    assert_eq!(tracked.cached(id(ROOT)).expect("it is known").totals.sums.bytes, tree.state().truth(ROOT).1);
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
    assert_eq!(tracked.cached(id(ROOT)).expect("it is known").totals.sums.bytes, tree.state().truth(ROOT).1);
}

/// Waits for what is harvested by itself.
fn until_read(tracked: &mut Tracked, timeout: i64) {
    while !matches!(tracked.tend(timeout, 100, &|| false).expect("no error"), Tended::All(_)) {
        thread::sleep(Duration::from_millis(20));
    }
}
