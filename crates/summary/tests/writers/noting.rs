//! Totals over time, by clocks that are wrong for a while.

use std::{collections::HashMap, sync::Arc};

use onesweep_summary::{history::History, store::Store, summaries::Tended};
use onesweep_sys::fanotify::Happened;

use crate::{
    Tracked, agrees, opened,
    settling::{HOUR, Hands},
    tree::{Directory, ROOT, Tree, id},
};

const DAY: i64 = 24 * HOUR;
/// So often totals are noted.
const EVERY: i64 = 600;

/// Time passes, and what is due by itself is done.
fn go_on(tracked: &mut Tracked, hands: &Hands, seconds: i64) {
    for _ in 0..seconds / EVERY {
        hands.pass(EVERY);
        tracked.tend(i64::MAX, 1000, &|| false).expect("no error");
    }
}

fn history(tracked: &Tracked, ino: u64) -> History {
    let slot = tracked.ledger().nodes.find(id(ino)).expect("it is known");
    tracked.history(slot).expect("it reads")
}

fn times(tracked: &Tracked) -> Vec<i64> {
    history(tracked, ROOT).points().iter().map(|point| point.at).collect()
}

/// A tree that has changed between any two points, noted for so long.
fn noted(store: Store, hands: &Arc<Hands>, seconds: i64) -> (Tree, Tracked) {
    let tree = Tree::new(7);
    let mut tracked = opened(&tree, store).with_clock(hands.clone());
    agrees(&mut tracked, &tree, ROOT, "at first");
    tracked.begin_noting();
    change_and_go_on(&tree, &mut tracked, hands, seconds);
    (tree, tracked)
}

fn change_and_go_on(tree: &Tree, tracked: &mut Tracked, hands: &Hands, seconds: i64) {
    for _ in 0..seconds / EVERY {
        tree.state().create(ROOT);
        agrees(tracked, tree, ROOT, "it grows");
        go_on(tracked, hands, EVERY);
    }
}

#[test]
fn a_clock_that_is_behind_for_a_while_takes_nothing() {
    for back in [2 * HOUR, 30 * DAY] {
        let hands = Hands::new();
        let (tree, mut tracked) = noted(Store::in_memory().expect("a store"), &hands, 10 * HOUR);
        let before = times(&tracked);
        assert!(before.len() >= 60, "{}", before.len());
        hands.set(-back);
        // One that is asked for the first time then has no point yet.
        let other = *tree.state().directories.keys().find(|&&ino| ino != ROOT).expect("another one");
        change_and_go_on(&tree, &mut tracked, &hands, HOUR);
        agrees(&mut tracked, &tree, other, "then");
        assert_eq!(times(&tracked), before, "back by {back}");
        assert!(history(&tracked, other).points().is_empty(), "back by {back}");
        hands.set(back);
        change_and_go_on(&tree, &mut tracked, &hands, HOUR);
        let after = times(&tracked);
        assert!(after.starts_with(&before) && after.len() >= before.len() + 5, "back by {back}");
        // As soon as that is seen.
        assert!(!history(&tracked, other).points().is_empty(), "back by {back}");
    }
}

#[test]
fn what_is_noted_when_a_clock_is_behind_at_the_start_takes_nothing() {
    let (folder, hands) = (tempfile::tempdir().expect("a folder"), Hands::new());
    let path = folder.path().join("store");
    let (tree, mut tracked) = noted(Store::open(&path).expect("a store"), &hands, 10 * HOUR);
    let before = times(&tracked);
    tracked.close().expect("it is written");
    drop(tracked);
    hands.set(-1000 * DAY);
    let mut tracked = opened(&tree, Store::open(&path).expect("the store")).with_clock(hands.clone());
    agrees(&mut tracked, &tree, ROOT, "then");
    tracked.begin_noting();
    change_and_go_on(&tree, &mut tracked, &hands, HOUR);
    assert_eq!(times(&tracked), before);
}

/// It may be right now, and was wrong before.
#[test]
fn a_clock_that_stays_behind_is_believed_after_a_day() {
    let hands = Hands::new();
    let (tree, mut tracked) = noted(Store::in_memory().expect("a store"), &hands, 10 * HOUR);
    let before = times(&tracked);
    hands.set(-30 * DAY);
    let set_at = hands.time();
    go_on(&mut tracked, &hands, DAY - HOUR);
    assert_eq!(times(&tracked), before);
    change_and_go_on(&tree, &mut tracked, &hands, 2 * HOUR);
    let after = times(&tracked);
    assert!(after.iter().all(|&at| at > set_at) && after.len() >= 5, "{after:?}");
}

#[test]
fn a_clock_that_is_ahead_thins_nothing_out_before_a_day_has_passed() {
    for ahead in [400 * DAY, 40 * DAY] {
        let hands = Hands::new();
        let (tree, mut tracked) = noted(Store::in_memory().expect("a store"), &hands, 20 * HOUR);
        let before = times(&tracked);
        hands.set(ahead);
        change_and_go_on(&tree, &mut tracked, &hands, HOUR);
        let after = times(&tracked);
        assert!(after.starts_with(&before), "{} of {} are left", after.len(), before.len());
        assert!(after.len() > before.len(), "what is true now is noted");
        go_on(&mut tracked, &hands, DAY + HOUR);
        assert!(times(&tracked).len() < before.len() / 5, "it is believed by now");
    }
}

/// Another directory gets its number.
#[test]
fn one_that_is_gone_is_noted_no_longer() {
    let hands = Hands::new();
    let (tree, mut tracked) = noted(Store::in_memory().expect("a store"), &hands, EVERY);
    let (gone, other) = (9001, 9002);
    let make = |ino: u64| {
        let mut state = tree.state();
        state.directories.insert(ino, Directory { parent: ROOT, ..Directory::default() });
        state.directory(ROOT).directories.insert(ino, ino.to_string());
        state.tell(ROOT, None, Happened::CREATE | Happened::ON_DIRECTORY);
    };
    make(gone);
    agrees(&mut tracked, &tree, gone, "it is there");
    let slot = tracked.ledger().nodes.find(id(gone));
    assert_eq!(history(&tracked, gone).points().len(), 1);
    {
        let mut state = tree.state();
        state.directories.remove(&gone);
        state.directory(ROOT).directories.remove(&gone);
        state.tell(ROOT, None, Happened::DELETE | Happened::ON_DIRECTORY);
    }
    agrees(&mut tracked, &tree, ROOT, "it is gone");
    make(other);
    agrees(&mut tracked, &tree, ROOT, "there is another one");
    assert_eq!(tracked.ledger().nodes.find(id(other)), slot, "which proves nothing");
    go_on(&mut tracked, &hands, 3 * EVERY);
    assert!(history(&tracked, other).points().is_empty(), "nobody has asked for it");
    agrees(&mut tracked, &tree, other, "it is asked for");
    assert_eq!(history(&tracked, other).points().len(), 1);
}

/// The order in which they go is known after a start.
#[test]
fn when_directories_were_asked_for_is_kept() {
    let (folder, hands) = (tempfile::tempdir().expect("a folder"), Hands::new());
    let path = folder.path().join("store");
    let (tree, mut tracked) = noted(Store::open(&path).expect("a store"), &hands, EVERY);
    let began = hands.time();
    let other = *tree.state().directories.keys().find(|&&ino| ino != ROOT).expect("another one");
    agrees(&mut tracked, &tree, other, "once");
    go_on(&mut tracked, &hands, 2 * EVERY);
    // Nothing is read, nor written, for that.
    agrees(&mut tracked, &tree, ROOT, "once more");
    // Of what doesn't change nothing is written for an hour.
    go_on(&mut tracked, &hands, HOUR);
    tracked.close().expect("it is written");
    let slots = [ROOT, other].map(|ino| tracked.ledger().nodes.find(id(ino)).expect("it is known"));
    drop(tracked);
    let asked: HashMap<_, _> =
        Store::open(&path).expect("the store").with_history().expect("it reads").into_iter().collect();
    assert_eq!(slots.map(|slot| asked[&slot] - began), [2 * EVERY, 0]);
}

/// Between which others ask.
#[test]
fn many_are_noted_some_at_a_time() {
    let (tree, hands) = (Tree::new(7), Hands::new());
    let all = 9001..9601;
    for ino in all.clone() {
        let mut state = tree.state();
        state.directories.insert(ino, Directory { parent: ROOT, ..Directory::default() });
        state.directory(ROOT).directories.insert(ino, ino.to_string());
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store")).with_clock(hands.clone());
    all.clone().for_each(|ino| agrees(&mut tracked, &tree, ino, "at first"));
    tracked.begin_noting();
    let noted = |tracked: &Tracked| all.clone().filter(|&ino| history(tracked, ino).points().len() == 2).count();
    hands.pass(EVERY);
    let (mut before, mut times) = (noted(&tracked), 0);
    assert_eq!(before, 0);
    while tracked.tend(i64::MAX, 1000, &|| false).expect("no error") == Tended::Some(0) {
        let now = noted(&tracked);
        assert!((1..=256).contains(&(now - before)), "{before} {now}");
        (before, times) = (now, times + 1);
    }
    assert_eq!((noted(&tracked), times), (600, 2));
}
