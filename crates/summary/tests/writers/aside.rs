//! Large directories are read aside, while others write and ask: what they do meanwhile isn't missed.

use std::sync::Arc;

use onesweep_summary::{
    reading::Directories,
    store::Store,
    summaries::{Answer, Asking, Freshness},
};
use onesweep_sys::fanotify::Happened;

use crate::{
    Tracked, agrees,
    chance::{self, opened_by},
    opened,
    tree::{Directory, ROOT, Tree, id},
};

/// What others do while somebody reads.
fn let_others_do(tracked: &mut Tracked, tree: &Tree) {
    if tree.state().busy == 0 {
        return;
    }
    let asked = {
        let mut state = tree.state();
        for _ in 0..state.random(3) {
            state.change();
        }
        state.any_directory()
    };
    // It may be gone by then, and wait for the same.
    let _ = tracked.query_within(id(asked), Freshness::Exact, &mut Asking::default(), &|| false);
    tracked.take_due_aside();
}

/// As those do it who share them.
fn ask(tracked: &mut Tracked, tree: &Tree, directory: u64) -> Option<Answer> {
    let mut asking = Asking::default();
    loop {
        match tracked.query_within(id(directory), Freshness::Exact, &mut asking, &|| false) {
            Ok(Some(answer)) => return Some(answer),
            Ok(None) => {}
            // It is gone.
            Err(_) => return None,
        }
        let large = tracked.take_due_aside().expect("else it would go on");
        let Some(aside) = tracked.begin_aside(large).expect("no error") else { continue };
        let_others_do(tracked, tree);
        let reading = tree.read(large);
        let_others_do(tracked, tree);
        tracked.end_aside(aside, reading).expect("no error");
    }
}

/// Asked again until it is exact: each question reads a directory twice at most.
fn agrees_at_last(tracked: &mut Tracked, tree: &Tree, directory: u64, when: &str) {
    let is_exact = (0..10).any(|_| ask(tracked, tree, directory).is_some_and(|answer| answer.is_exact));
    assert!(is_exact, "{when}: nobody writes");
    agrees(tracked, tree, directory, when);
}

#[test]
fn what_happens_beside_the_reading_of_large_directories_is_not_missed() {
    let chance = chance::given();
    for seed in chance::seeds(30, 3000) {
        let tree = if seed % 6 == 5 { Tree::with_summaries(seed) } else { Tree::new(seed) };
        let mut tracked = opened_by(&tree, Store::in_memory().expect("a store"), (seed, chance));
        tracked.leave_large(1 + seed as usize % 4);
        for round in 0..8 {
            tree.state().busy = 1;
            let asked = tree.state().any_directory();
            // It may be gone by then, and need not be exact.
            let _ = ask(&mut tracked, &tree, asked);
            tree.state().busy = 0;
            (0..round).for_each(|_| tree.state().change());
            let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
            for directory in directories.into_iter().rev().take(1 + seed as usize % 4) {
                agrees_at_last(
                    &mut tracked,
                    &tree,
                    directory,
                    &format!("in round {round} of seed {seed}, chance {chance}"),
                );
            }
        }
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for directory in directories {
            agrees_at_last(&mut tracked, &tree, directory, &format!("at the end of seed {seed}, chance {chance}"));
        }
        assert_eq!(
            tracked.ledger().nodes.len(),
            tree.state().directories.len(),
            "seed {seed}, chance {chance}: no more is kept"
        );
    }
}

/// It is dirty, and outside of what is asked for: without it what it has moved into would stay dirty for ever.
#[test]
fn a_large_directory_that_has_moved_into_one_that_was_in_it_is_read_aside() {
    for (names, order) in [(0, [3, ROOT]), (5, [3, ROOT]), (0, [ROOT, 3])] {
        let tree = Tree(Arc::default(), None);
        let [large, other] = [2, 3];
        {
            let mut state = tree.state();
            state.next = 100;
            for (ino, parent) in [(ROOT, 0), (large, ROOT), (other, large)] {
                state.directories.insert(ino, Directory { parent, ..Directory::default() });
                if let Some(above) = state.directories.get_mut(&parent) {
                    above.directories.insert(ino, format!("d{ino}"));
                }
            }
            (0..5).for_each(|_| state.create(large));
            (0..names).for_each(|_| state.create(other));
        }
        let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
        tracked.leave_large(3);
        assert!(ask(&mut tracked, &tree, ROOT).is_some_and(|answer| answer.is_exact), "nobody writes");
        tree.state().move_into(other, ROOT);
        tree.state().move_into(large, other);
        for asked in order {
            let answer = ask(&mut tracked, &tree, asked);
            assert!(answer.is_some_and(|answer| answer.is_exact), "{asked} of what moved, with {names} names");
            agrees(&mut tracked, &tree, asked, "after they moved");
        }
    }
}

/// A directory of six names that is read aside, and a small one beside it.
fn with_a_large_one() -> (Tree, [u64; 2]) {
    let tree = Tree(Arc::default(), None);
    let places = [2, 3];
    {
        let mut state = tree.state();
        state.next = 100;
        state.directories.insert(ROOT, Directory::default());
        for ino in places {
            state.directories.insert(ino, Directory { parent: ROOT, ..Directory::default() });
            state.directory(ROOT).directories.insert(ino, format!("d{ino}"));
        }
        (0..6).for_each(|_| state.create(places[0]));
    }
    (tree, places)
}

/// Nobody knows yet that it is in there; and when that is known, nobody writes it any more, or looks at it.
#[test]
fn what_is_written_by_a_lost_name_while_its_directory_is_read_aside_is_not_missed() {
    let (tree, [large, other]) = with_a_large_one();
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    tracked.leave_large(3);
    let _ = tracked.query_within(id(ROOT), Freshness::Exact, &mut Asking::default(), &|| false);
    let due = tracked.take_due_aside().expect("it is large");
    assert_eq!(due, id(large));
    let aside = tracked.begin_aside(due).expect("no error").expect("it is dirty");
    let reading = tree.read(due);
    // By who has opened it by a name in the other one, which was gone when that was read; then it is closed.
    {
        let mut state = tree.state();
        let named = *state.directory(large).names.values().next().expect("a name");
        *state.files.get_mut(&named).expect("a file") += 1000;
        state.tell(other, Some(named), Happened::MODIFY);
    }
    for asked in [other, ROOT] {
        let _ = tracked.query_within(id(asked), Freshness::Exact, &mut Asking::default(), &|| false);
        tracked.take_due_aside();
    }
    tracked.end_aside(aside, reading).expect("no error");
    agrees_at_last(&mut tracked, &tree, ROOT, "after it was read");
}

/// Who takes in what is told then doesn't know yet that it is in there.
#[test]
fn what_another_name_is_given_to_while_its_directory_is_read_aside_counts_once() {
    let (tree, [large, _]) = with_a_large_one();
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    tracked.leave_large(3);
    let _ = tracked.query_within(id(ROOT), Freshness::Exact, &mut Asking::default(), &|| false);
    let due = tracked.take_due_aside().expect("it is large");
    let aside = tracked.begin_aside(due).expect("no error").expect("it is dirty");
    let reading = tree.read(due);
    let named = *tree.state().directory(large).names.values().next().expect("a name");
    tree.state().link(named, ROOT);
    let _ = tracked.query_within(id(ROOT), Freshness::Exact, &mut Asking::default(), &|| false);
    tracked.take_due_aside();
    tracked.end_aside(aside, reading).expect("no error");
    agrees_at_last(&mut tracked, &tree, ROOT, "after it was read");
}
