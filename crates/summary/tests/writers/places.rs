//! Which directory names which inode: files that are gone don't fill the store, and those that are there are known.

use onesweep_summary::{
    links::LinkKey,
    store::Store,
    summaries::{Freshness, Tended},
};

use crate::{
    Tracked, agrees, opened,
    tree::{Directory, ROOT, Tree, id},
};

const FIRST: u64 = 100;
const DIRECTORIES: u64 = 10;
const FILES: u64 = 1500;

fn tended(tracked: &mut Tracked) {
    while tracked.tend(0, 1000, &|| false).expect("no error") != Tended::Nothing {}
}

/// New files in the place of the old ones in all of these directories, with numbers that were never given out.
fn replace(tree: &Tree, directories: impl Iterator<Item = u64>) {
    let mut state = tree.state();
    for directory in directories {
        let old = std::mem::take(&mut state.directory(directory).names);
        for (name, ino) in old {
            state.files.remove(&ino);
            let fresh = state.fresh();
            state.files.insert(fresh, 1);
            state.directory(directory).names.insert(name, fresh);
        }
        state.tell(directory, None, onesweep_sys::fanotify::Happened::CREATE);
    }
}

fn places_are_known(tracked: &Tracked, tree: &Tree, when: &str) {
    let state = tree.state();
    for (&directory, found) in state.directories.range(FIRST..FIRST + DIRECTORIES) {
        let slot = tracked.ledger().nodes.find(id(directory)).expect("it is known");
        for &ino in found.names.values() {
            let places = tracked.ledger().places(LinkKey { subvolume: 0, ino }).expect("it reads");
            assert_eq!(places.named, [slot], "file {ino} {when}");
        }
    }
}

/// As on btrfs, where no inode gets the number of one that is gone.
#[test]
fn places_of_files_that_are_gone_are_forgotten() {
    let tree = Tree::new(0);
    {
        let mut state = tree.state();
        state.next = 10_000;
        for directory in FIRST..FIRST + DIRECTORIES {
            state.directories.insert(directory, Directory { parent: ROOT, ..Directory::default() });
            state.directory(ROOT).directories.insert(directory, directory.to_string());
            for number in 0..FILES {
                let fresh = state.fresh();
                state.files.insert(fresh, 1);
                state.directory(directory).names.insert(number.to_string(), fresh);
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let mut tracked = opened(&tree, Store::open(&path).expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    let all = DIRECTORIES * FILES;
    let (mut most, mut before) = (0, tracked.readings());
    let mut untouched = 0;
    for round in 0..16 {
        // One directory stays as it was.
        replace(&tree, FIRST + 1..FIRST + DIRECTORIES);
        tended(&mut tracked);
        let read = tracked.readings() - before;
        before = tracked.readings();
        untouched += u64::from(read < DIRECTORIES);
        let known = tracked.ledger().nodes.len() as u64;
        assert!(read <= 2 * known, "{read} of {known} in round {round}");
        let held = tracked.ledger().store().places();
        most = most.max(held);
        places_are_known(&tracked, &tree, &format!("in round {round}"));
        if round == 6 {
            tracked.commit(true).expect("it is written");
            drop(tracked);
            tree.state().ignored.clear();
            tracked = opened(&tree, Store::open(&path).expect("the store"));
            assert_eq!(tracked.ledger().store().places(), held, "the next one knows how many there are");
            tracked.query(id(ROOT), Freshness::Exact).expect("an answer");
            before = tracked.readings();
        }
        agrees(&mut tracked, &tree, ROOT, &format!("in round {round}"));
    }
    assert!(most >= 2 * all, "{most}: nothing was forgotten");
    assert!(most <= 4 * all + (1 << 16), "{most} of {all} are kept");
    assert!(untouched > 8, "mostly nothing is read for it: {untouched}");
}
