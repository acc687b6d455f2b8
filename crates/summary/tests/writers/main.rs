//! A tree in memory that somebody changes at every step of a harvest, told as the kernel tells it: an ignored directory says
//! nothing, a link made there shows as a change of the inode alone, and writes through its names show nowhere.

mod aside;
mod chance;
mod declared;
mod mapped;
mod noting;
mod other_names;
mod places;
mod settling;
mod store_faults;
mod told;
mod tree;

use onesweep_summary::{
    reading::Directories,
    store::{Batch, Store},
    summaries::{Answer, CaughtUp, Freshness, Summaries, Tended},
    survey::Method,
    tracker::{Change, SizesFollow},
};
use onesweep_sys::fanotify::Happened;

use self::{
    chance::opened_by,
    declared::summaries_agree,
    tree::{Directory, ROOT, Tree, id},
};

type Tracked = Summaries<Tree, Tree>;

fn agrees(tracked: &mut Tracked, tree: &Tree, directory: u64, when: &str) {
    let answer = answers_right(tracked, tree, (directory, Freshness::Exact), when);
    assert!(answer.is_exact && answer.checked_at.is_some(), "{when}");
}

fn answers_right(tracked: &mut Tracked, tree: &Tree, (directory, freshness): (u64, Freshness), when: &str) -> Answer {
    let answer = tracked.query(id(directory), freshness).unwrap_or_else(|error| panic!("{when}: {error}"));
    let (sums, extremes) = (answer.totals.sums, answer.totals.extremes);
    let (newest, largest) = (extremes.newest.map(|time| time.secs), extremes.largest.map(|largest| largest.bytes));
    let found = (sums.inodes(), sums.bytes, newest, largest);
    assert_eq!(found, tree.state().truth(directory), "directory {directory} {when}");
    assert_eq!(sums.freed_blocks, tree.state().freed(directory), "what {directory} would free {when}");
    if tree.1.is_some() {
        summaries_agree(tracked, tree, directory, when);
    }
    answer
}

fn opened(tree: &Tree, store: Store) -> Tracked {
    let summaries = Summaries::open(store, (tree.clone(), tree.clone()), id(ROOT), b"tree");
    let mut summaries = summaries.expect("summaries");
    summaries.leave_few(0);
    summaries
}

/// Whoever writes while it harvests: when they stop, every answer is right, and with the fewest readings between.
#[test]
fn a_writer_at_every_step_is_not_missed() {
    chance::seeds(30, 300).for_each(|seed| drop(beside_a_writer(seed, chance::given(), 8, false)));
}

/// The same with each step of the readings in an order that the seed gives.
#[test]
fn a_writer_between_the_steps_of_readings_is_not_missed() {
    chance::seeds(30, 3000).for_each(|seed| drop(beside_a_writer(seed, chance::given(), 6, true)));
}

/// Else what such a test finds could not be had once more.
#[test]
fn what_is_read_is_the_same_by_the_same_seed_and_chance() {
    for (seed, is_woven) in [(0, true), (5, true), (142, true), (143, true), (2, false), (3, false), (5, false)] {
        let [once, again] = [3, 3].map(|chance| beside_a_writer(seed, chance, 6, is_woven));
        assert!(!once.is_empty() && once == again, "seed {seed}, is_woven {is_woven}");
    }
}

/// Gives what was read.
fn beside_a_writer(seed: u64, chance: u64, rounds: usize, is_woven: bool) -> Vec<(&'static str, u64)> {
    let tree = if seed % 6 == 5 { Tree::with_summaries(seed) } else { Tree::new(seed) };
    tree.state().is_woven = is_woven;
    let busy = 1 + if is_woven { seed / 7 } else { seed } as u32 % 3;
    let mut tracked = opened_by(&tree, Store::in_memory().expect("a store"), (seed, chance));
    for round in 0..rounds {
        tree.state().busy = busy;
        let asked = tree.state().any_directory();
        // It may be gone by then, and need not be exact.
        let _ = tracked.query(id(asked), Freshness::Exact);
        tree.state().busy = 0;
        (0..round).for_each(|_| tree.state().change());
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for directory in directories.into_iter().rev().take(1 + seed as usize % 4) {
            agrees(&mut tracked, &tree, directory, &format!("in round {round} of seed {seed}, chance {chance}"));
        }
    }
    let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
    for directory in directories {
        agrees(&mut tracked, &tree, directory, &format!("at the end of seed {seed}, chance {chance}"));
    }
    let (known, there) = (tracked.ledger().nodes.len(), tree.state().directories.len());
    assert_eq!(known, there, "seed {seed}, chance {chance}: no more is kept");
    std::mem::take(&mut tree.state().trace)
}

/// A question where nothing has changed takes nothing and reads nothing, until something does.
#[test]
fn a_clean_question_looks_and_takes_nothing() {
    let tree = Tree::new(7);
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    assert_eq!(tracked.query_clean(id(ROOT), None).expect("no error"), None, "it isn't known yet");
    agrees(&mut tracked, &tree, ROOT, "at first");
    let asked = tracked.query(id(ROOT), Freshness::Exact).expect("an answer");
    let readings = tracked.readings();
    for _ in 0..3 {
        assert_eq!(tracked.query_clean(id(ROOT), None).expect("no error").as_ref(), Some(&asked));
    }
    for round in 0..50 {
        tree.state().change();
        let is_told = !tree.state().told.is_empty();
        assert_eq!(tracked.query_clean(id(ROOT), None).expect("no error").is_none(), is_told, "round {round}");
        assert_eq!(tree.state().told.is_empty(), !is_told, "nothing was taken");
        agrees(&mut tracked, &tree, ROOT, &format!("in round {round}"));
    }
    assert!(tracked.readings() > readings);
}

/// What was above has come below: in between something has moved out, where nobody asks.
#[test]
fn a_directory_may_come_to_lie_in_one_that_it_held() {
    let tree = Tree::new(3);
    let (above, asked, inner) = (9001, 9002, 9003);
    for (ino, parent) in [(above, ROOT), (asked, above), (inner, asked)] {
        let mut state = tree.state();
        state.directories.insert(ino, Directory { parent, ..Directory::default() });
        state.directory(parent).directories.insert(ino, ino.to_string());
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    tree.state().move_into(asked, ROOT);
    tree.state().move_into(above, inner);
    agrees(&mut tracked, &tree, asked, "what has moved");
    agrees(&mut tracked, &tree, ROOT, "all of it");
}

/// What was above has come below, and what was between is gone: the one that is asked for isn't.
#[test]
fn a_directory_may_have_moved_out_of_one_that_is_gone() {
    let tree = Tree::new(3);
    let (above, gone, asked) = (9001, 9002, 9003);
    for (ino, parent) in [(above, ROOT), (gone, above), (asked, gone)] {
        let mut state = tree.state();
        state.directories.insert(ino, Directory { parent, ..Directory::default() });
        state.directory(parent).directories.insert(ino, ino.to_string());
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    tree.state().move_into(asked, ROOT);
    tree.state().remove_directory(gone);
    tree.state().move_into(above, asked);
    agrees(&mut tracked, &tree, asked, "what has moved");
    agrees(&mut tracked, &tree, ROOT, "all of it");
}

/// It tells that a file was written by a name that it doesn't have, and is ignored from then on, until that is asked for.
#[test]
fn what_comes_after_a_name_that_is_gone_was_used_is_not_missed() {
    let tree = Tree::new(7);
    let (file, fresh, other) = (5000, 5001, 9000);
    {
        let mut state = tree.state();
        state.files.insert(file, 10);
        state.directories.insert(other, Directory { parent: ROOT, ..Directory::default() });
        let root = state.directory(ROOT);
        root.names.insert("file".to_owned(), file);
        root.directories.insert(other, "other".to_owned());
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    {
        let mut state = tree.state();
        while !state.ignored.contains(&other) {
            state.tell(other, Some(file), Happened::MODIFY);
            state.end_round();
        }
        let told = state.told.len();
        state.files.insert(fresh, 20);
        state.directory(other).names.insert("fresh".to_owned(), fresh);
        state.tell(other, None, Happened::CREATE);
        assert_eq!(state.told.len(), told, "it is ignored");
    }
    agrees(&mut tracked, &tree, ROOT, "when another was made");
}

/// Nobody asks, nothing is told, and no directory is dirty: after the time it is looked at all the same.
#[test]
fn what_changes_where_nothing_is_told_is_seen_by_and_by() {
    let tree = Tree::new(7);
    let (file, other) = (5000, 9000);
    {
        let mut state = tree.state();
        state.files.insert(file, 10);
        state.directories.insert(other, Directory { parent: ROOT, ..Directory::default() });
        let root = state.directory(ROOT);
        root.names.insert("file".to_owned(), file);
        root.directories.insert(other, "other".to_owned());
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    // Somebody writes it by a name that it had in the other directory.
    tree.state().written.insert(file);
    let change = Change { directory: Some(id(other)), object: Some(id(file)), happened: Happened::MODIFY };
    tree.state().told.push(change);
    agrees(&mut tracked, &tree, ROOT, "when that was told");
    for bytes in [70_000, 80_000] {
        *tree.state().files.get_mut(&file).expect("a file") = bytes;
        while tracked.tend(0, 1000, &|| false).expect("it is read") != Tended::Nothing {}
        let all: i64 = tree.state().files.values().sum();
        assert_eq!(tracked.cached(id(ROOT), None).expect("it is known").totals.sums.bytes, all);
    }
}

/// What was lost is found again, and what a store holds is taken up.
#[test]
fn lost_events_and_an_old_store_are_no_harm() {
    for seed in 0..20 {
        let tree = if seed % 2 == 0 { Tree::new(seed) } else { Tree::with_summaries(seed) };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
        agrees(&mut tracked, &tree, ROOT, "at first");
        tracked.commit(true).expect("a commit");
        (0..40).for_each(|_| tree.state().change());
        tree.state().lose = true;
        agrees(&mut tracked, &tree, ROOT, &format!("after losses, seed {seed}"));
        assert!(tracked.caught_up().is_some());
        // The store holds what was before, or something between.
        for _ in 0..seed % 4 {
            (0..5).for_each(|_| tree.state().change());
            let asked = tree.state().any_directory();
            let _ = tracked.query(id(asked), Freshness::Exact);
            if seed % 8 > 3 {
                tracked.commit(true).expect("a commit");
            }
        }
        drop(tracked);
        (0..40).for_each(|_| tree.state().change());
        tree.state().told.clear();
        tree.state().ignored.clear();
        let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
        // Somebody writes while it finds out.
        tree.state().busy = seed as u32 % 2;
        let _ = tracked.query(id(ROOT), Freshness::Exact);
        tree.state().busy = 0;
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for directory in directories {
            agrees(&mut tracked, &tree, directory, &format!("after opening again, seed {seed}"));
        }
        let is_by_walk = matches!(tracked.caught_up(), Some(CaughtUp::All(_)));
        assert_eq!(is_by_walk, tree.state().method.is_none(), "{:?}", tracked.caught_up());
    }
}

/// Who opens a store reads what has changed since, and little else.
#[test]
fn what_has_not_changed_meanwhile_is_not_read() {
    for seed in 0..30 {
        let tree = Tree::new(seed);
        (0..600).for_each(|_| tree.state().change());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
        agrees(&mut tracked, &tree, ROOT, "at first");
        tracked.close().expect("an end");
        drop(tracked);
        // Each writes at most two directories and an inode.
        (0..3).for_each(|_| tree.state().change());
        tree.state().told.clear();
        tree.state().ignored.clear();
        let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
        let before = tracked.cached(id(ROOT), None).expect("what is stored");
        assert!(!before.is_exact && tracked.readings() == 0);
        agrees(&mut tracked, &tree, ROOT, &format!("after opening again, seed {seed}"));
        let (read, all) = (tracked.readings() as usize, tracked.ledger().nodes.len());
        match tree.state().method {
            Some(_) => assert!(read <= 30 && read < all, "{read} of {all}, seed {seed}"),
            None => assert!(read >= all, "{read} of {all}, seed {seed}"),
        }
    }
}

/// An older copy of the file system in its place, and a clock that was set back: all is read again.
#[test]
fn doubts_lead_to_a_full_harvest() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, method) in [Method::Sums, Method::Generations].into_iter().enumerate() {
        let tree = Tree::new(1);
        tree.state().method = Some(method);
        let path = folder.path().join(format!("store-{number}"));
        let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
        agrees(&mut tracked, &tree, ROOT, "at first");
        tracked.close().expect("an end");
        drop(tracked);
        let ahead = |by: i64, generation: u64, is_partial: bool| {
            let store = Store::open(&path).expect("the store");
            let mut facts = store.facts().expect("its facts");
            facts.moment.seconds += by;
            facts.generation += generation;
            facts.is_partial = is_partial;
            store.commit(&Batch::default(), &facts, true).expect("a commit");
        };
        for (by, generation, expected) in [
            (0, 0, ""),
            (3600, 0, "the clock was set back"),
            (0, 1 << 40, "older copy"),
            (0, 0, "the last harvest was broken off"),
        ] {
            let is_partial = expected.contains("broken off");
            ahead(by, generation, is_partial);
            let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
            agrees(&mut tracked, &tree, ROOT, "again");
            let said = match tracked.caught_up() {
                Some(CaughtUp::All(doubt)) => doubt.to_string(),
                _ => String::new(),
            };
            let is_doubtful = !expected.is_empty() && (by > 0 || is_partial || method == Method::Generations);
            assert!(
                if is_doubtful { said.contains(expected) } else { said.is_empty() },
                "{method:?} {expected}: {said}"
            );
            if is_doubtful {
                assert_eq!(tracked.readings() as usize, tracked.ledger().nodes.len());
            }
            tracked.close().expect("an end");
            drop(tracked);
        }
        // What was harvested anew is believed from then on.
        let mut tracked = opened(&tree, Store::open(&path).expect("the store"));
        agrees(&mut tracked, &tree, ROOT, "at last");
        assert!(matches!(tracked.caught_up(), Some(CaughtUp::Changed(_))), "{:?}", tracked.caught_up());
    }
}

/// A question for what has not changed reads nothing.
#[test]
fn what_is_clean_is_not_read() {
    let tree = Tree::new(7);
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    // Each reading would change something.
    tree.state().busy = 1;
    let before = tree.state().truth(ROOT);
    agrees(&mut tracked, &tree, ROOT, "again");
    assert_eq!(tree.state().truth(ROOT), before);
}

/// Where sizes follow at close, what is closed counts at once, what stays open after a look, and what is cut by its path when the
/// file system was asked; and no answer claims more than that.
#[test]
fn sizes_that_follow_at_close() {
    let chance = chance::given();
    for seed in chance::seeds(30, 300) {
        let tree = if seed % 6 == 5 { Tree::with_summaries(seed) } else { Tree::new(seed) };
        tree.state().sizes = SizesFollow::Close;
        let mut tracked = opened_by(&tree, Store::in_memory().expect("a store"), (seed, chance));
        for round in 0..12 {
            tree.state().busy = 1 + seed as u32 % 2;
            let asked = tree.state().any_directory();
            // It may be gone by then.
            let _ = tracked.query(id(asked), Freshness::Exact);
            tree.state().busy = 0;
            (0..round).for_each(|_| tree.state().change());
            let when = format!("in round {round} of seed {seed}, chance {chance}");
            let asked = tree.state().any_directory();
            match round % 4 {
                // Twice: what hasn't changed since the last look isn't read.
                0 | 1 => {
                    let files = tree.open_for_writing().expect("no error");
                    let looked_at = 1000 + i64::from(round);
                    tracked.take_open_files(looked_at, &files).expect("no error");
                    let answer = answers_right(&mut tracked, &tree, (ROOT, Freshness::Exact), &when);
                    assert_eq!((answer.is_exact, answer.checked_at), (false, Some(looked_at)), "{when}");
                    let readings = tracked.readings();
                    tracked.take_open_files(looked_at + 1, &files).expect("no error");
                    let answer = answers_right(&mut tracked, &tree, (asked, Freshness::Exact), &when);
                    assert_eq!((answer.is_exact, answer.checked_at), (false, Some(looked_at + 1)), "{when}");
                    assert_eq!(tracked.readings(), readings, "{when}");
                    let stored = tracked.query(id(asked), Freshness::Cached).expect("it is known");
                    assert_eq!((stored.is_exact, stored.checked_at), (false, None), "{when}");
                }
                2 => {
                    tree.state().cut_some();
                    let answer = answers_right(&mut tracked, &tree, (asked, Freshness::Synced), &when);
                    assert!(answer.is_exact && answer.checked_at.is_none(), "{when}");
                }
                _ => {
                    tree.state().cut_some();
                    tree.state().close_all();
                    while matches!(tracked.tend(0, 5, &|| false).expect("no error"), Tended::Some(_)) {}
                    let answer = answers_right(&mut tracked, &tree, (asked, Freshness::Exact), &when);
                    assert!(!answer.is_exact && answer.checked_at.is_some_and(|at| at > 1_600_000_000), "{when}");
                }
            }
        }
        tracked.query(id(ROOT), Freshness::Synced).expect("an answer");
        (0..20).for_each(|_| tree.state().change());
        tree.state().close_all();
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for directory in directories {
            let when = format!("after all were closed, seed {seed}, chance {chance}");
            assert!(!answers_right(&mut tracked, &tree, (directory, Freshness::Exact), &when).is_exact);
        }
    }
}
