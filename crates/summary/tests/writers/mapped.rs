//! Files that are written through a mapping, which nobody tells: they are looked at, and answers say when.

use onesweep_summary::{
    reading::Directories,
    store::Store,
    summaries::{Freshness, Tended},
};

use crate::{
    agrees, answers_right, opened,
    tree::{ROOT, Tree, id},
};

/// Writes to it, and nobody is told.
fn write(tree: &Tree, ino: u64) {
    let mut state = tree.state();
    *state.files.get_mut(&ino).expect("a file") += 7;
    state.keep(ROOT, Some(ino));
}

/// By an overlay on an old kernel: no process has the file open that is written.
#[test]
fn silent_overlays_are_searched_for() {
    for seed in 0..20 {
        let tree = Tree::new(seed);
        let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
        (0..30).for_each(|_| tree.state().change());
        agrees(&mut tracked, &tree, ROOT, "at first");
        tree.state().has_silent_overlays = true;
        for round in 0..3 {
            let when = format!("in round {round} of seed {seed}");
            let Some((_, _, ino)) = tree.state().any_name() else { continue };
            write(&tree, ino);
            tracked.take_open_files(1000, &[]).expect("no error");
            let answer = tracked.query(id(ROOT), Freshness::Exact).expect("an answer");
            assert_eq!((answer.is_exact, answer.checked_at), (false, Some(1000)), "{when}");
            let answer = answers_right(&mut tracked, &tree, (ROOT, Freshness::Synced), &when);
            assert!(answer.is_exact, "{when}");
            write(&tree, ino);
            while matches!(tracked.tend(0, 5, &|| false).expect("no error"), Tended::Some(_)) {}
            answers_right(&mut tracked, &tree, (ROOT, Freshness::Exact), &when);
        }
    }
}

#[test]
fn answers_above_what_is_mapped_are_as_old_as_the_last_look() {
    for seed in 0..20 {
        let tree = Tree::new(seed);
        let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
        (0..30).for_each(|_| tree.state().change());
        agrees(&mut tracked, &tree, ROOT, "at first");
        let Some((ino, places)) = ({
            let mut state = tree.state();
            state.any_name().map(|(_, _, ino)| {
                let names_it = |place: &u64| state.directories[place].names.values().any(|&named| named == ino);
                (ino, state.directories.keys().copied().filter(names_it).collect::<Vec<u64>>())
            })
        }) else {
            continue;
        };
        tree.state().mapped.insert(ino);
        let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
        for round in 1..4 {
            let when = format!("in round {round} of seed {seed}");
            write(&tree, ino);
            let files = tree.open_for_writing().expect("no error");
            tracked.take_open_files(1000 + round, &files).expect("no error");
            for &directory in &directories {
                let answer = answers_right(&mut tracked, &tree, (directory, Freshness::Exact), &when);
                let nodes = &tracked.ledger().nodes;
                let slot = |ino: u64| nodes.find(id(ino)).expect("it is known");
                let is_above = places.iter().any(|&place| nodes.contains(slot(directory), slot(place)));
                let expected = (!is_above, Some(1000 + round));
                assert_eq!((answer.is_exact, answer.checked_at), expected, "{directory} {when}");
            }
            // One that is as it was isn't read for it.
            let readings = tracked.readings();
            tracked.take_open_files(1000 + round, &files).expect("no error");
            answers_right(&mut tracked, &tree, (ROOT, Freshness::Exact), &when);
            assert_eq!(tracked.readings(), readings, "{when}");
            // Who wants all that is written has it looked at.
            write(&tree, ino);
            let answer = answers_right(&mut tracked, &tree, (ROOT, Freshness::Synced), &when);
            assert_eq!((answer.is_exact, answer.checked_at), (true, None), "{when}");
        }
        tree.state().mapped.clear();
        tracked.take_open_files(2000, &[]).expect("no error");
        agrees(&mut tracked, &tree, ROOT, "when the mapping has ended");
    }
}
