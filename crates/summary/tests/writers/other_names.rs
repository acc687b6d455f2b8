//! A file with names in several directories: what is told to one of them, or to none, shows in all, and has no more read than that.

use onesweep_summary::{identity::NodeId, store::Store, tracker::Change};
use onesweep_sys::fanotify::Happened;

use crate::{
    Tracked, agrees, opened,
    tree::{Directory, ROOT, Tree, id},
};

const FILE: u64 = 5000;
const ONE: u64 = 9001;
const OTHER: u64 = 9002;

/// Two directories that name a file, all of it read; with nothing declared, and with summaries.
fn two(is_declared: bool) -> (Tree, Tracked) {
    let tree = if is_declared { Tree::with_summaries(7) } else { Tree::new(7) };
    {
        let mut state = tree.state();
        state.files.insert(FILE, 10_000_000);
        state.times.insert(FILE, 2000);
        for ino in [ONE, OTHER] {
            let names = [("file".to_owned(), FILE)].into();
            state.directories.insert(ino, Directory { parent: ROOT, names, ..Directory::default() });
            state.directory(ROOT).directories.insert(ino, ino.to_string());
        }
    }
    let mut tracked = opened(&tree, Store::in_memory().expect("a store"));
    agrees(&mut tracked, &tree, ROOT, "at first");
    (tree, tracked)
}

fn set(tree: &Tree, bytes: i64, time: i64) {
    let mut state = tree.state();
    state.files.insert(FILE, bytes);
    state.times.insert(FILE, time);
}

/// How many directories a question reads, which is answered right.
fn read(tracked: &mut Tracked, tree: &Tree, directory: u64, when: &str) -> u64 {
    let before = tracked.readings();
    agrees(tracked, tree, directory, when);
    tracked.readings() - before
}

#[test]
fn a_change_that_one_is_told_of_shows_in_the_other() {
    for is_declared in [false, true] {
        let (tree, mut tracked) = two(is_declared);
        for (bytes, time) in [(10_000_000, 2001), (10_000_000, 1), (20_000_000, 1), (5, 1), (5, 3000)] {
            let when = format!("with {bytes} bytes of {time}, {is_declared}");
            set(&tree, bytes, time);
            tree.state().tell(ONE, Some(FILE), Happened::ATTRIB);
            assert_eq!(read(&mut tracked, &tree, ONE, &when), 1, "{when}");
            assert_eq!(read(&mut tracked, &tree, OTHER, &when), 1, "{when}");
            assert_eq!(read(&mut tracked, &tree, ROOT, &when), 0, "{when}: nothing is left");
            set(&tree, bytes, time + 1);
            tree.state().tell(ONE, Some(FILE), Happened::ATTRIB);
            assert_eq!(read(&mut tracked, &tree, ROOT, &when), 2, "{when}: each once");
            // What both are told of is no news to either.
            set(&tree, bytes, time);
            [ONE, OTHER].into_iter().for_each(|at| tree.state().tell(at, Some(FILE), Happened::ATTRIB));
            assert_eq!(read(&mut tracked, &tree, ROOT, &when), 2, "{when}: each once");
            assert_eq!(read(&mut tracked, &tree, ROOT, &when), 0, "{when}: nothing is left");
        }
    }
}

#[test]
fn a_change_that_none_is_told_of_shows_where_it_is_asked_for() {
    for is_declared in [false, true] {
        let (tree, mut tracked) = two(is_declared);
        while !tree.state().ignored.contains(&OTHER) {
            tree.state().tell(OTHER, None, Happened::CREATE);
            tracked.drain().expect("it is told");
        }
        for (bytes, time) in [(10_000_000, 2001), (10_000_000, 1), (20_000_000, 1), (5, 1), (5, 3000)] {
            let when = format!("with {bytes} bytes of {time}, {is_declared}");
            set(&tree, bytes, time);
            tree.state().tell(OTHER, Some(FILE), Happened::ATTRIB);
            assert!(tree.state().told.is_empty());
            assert_eq!(read(&mut tracked, &tree, ONE, &when), 1, "{when}");
            for _ in 0..3 {
                assert_eq!(read(&mut tracked, &tree, ONE, &when), 0, "{when}: it is as it was");
            }
        }
        assert_eq!(read(&mut tracked, &tree, ROOT, "at last"), 1, "the one that was ignored");
        assert_eq!(read(&mut tracked, &tree, ROOT, "at last"), 0);
    }
}

/// Of a file with many names one more, or one less, is no reason to read those that name it: who keeps many copies of a tree by hard links
/// makes one each day, and removes another. Where what is declared may show how many it has, it is one.
#[test]
fn a_name_more_or_less_is_read_where_it_came_or_went() {
    const THIRD: u64 = 9003;
    for is_declared in [false, true] {
        let (tree, mut tracked) = two(is_declared);
        tree.state().directories.insert(THIRD, Directory { parent: ROOT, ..Directory::default() });
        tree.state().directory(ROOT).directories.insert(THIRD, THIRD.to_string());
        tree.state().tell(ROOT, None, Happened::CREATE);
        assert_eq!(read(&mut tracked, &tree, ROOT, "a third one"), 2);
        let of_names = if is_declared { 3 } else { 1 };
        for turn in 0..3 {
            tree.state().link(FILE, THIRD);
            assert_eq!(read(&mut tracked, &tree, ROOT, "a name came"), of_names, "{turn}");
            tree.state().unlink_last(THIRD);
            assert_eq!(read(&mut tracked, &tree, ROOT, "a name went"), of_names, "{turn}");
        }
        // It was written as well.
        tree.state().link(FILE, THIRD);
        set(&tree, 7_000_000, 2500);
        assert_eq!(read(&mut tracked, &tree, ROOT, "it has changed, too"), 3);
        // Of those that are asked for alone, too.
        set(&tree, 6_000_000, 2600);
        tree.state().unlink_last(THIRD);
        assert_eq!(read(&mut tracked, &tree, ONE, "one of them"), 1);
        assert_eq!(read(&mut tracked, &tree, ROOT, "the others"), 2);
        assert_eq!(read(&mut tracked, &tree, ROOT, "at last"), 0);
        // Another inode that has got the number is another one.
        tree.state().link(FILE, THIRD);
        assert_eq!(read(&mut tracked, &tree, ROOT, "a name came"), of_names);
        let another = NodeId { generation: 2, ..id(FILE) };
        let change = Change { directory: None, object: Some(another), happened: Happened::ATTRIB };
        tree.state().told.push(change);
        assert_eq!(read(&mut tracked, &tree, ROOT, "another one"), 3);
        tree.state().unlink_last(THIRD);
        assert_eq!(read(&mut tracked, &tree, ROOT, "a name went"), of_names);
        // With one name left it is a file as others are.
        tree.state().unlink_last(OTHER);
        assert_eq!(read(&mut tracked, &tree, ROOT, "one name"), 2);
    }
}

/// Also while the directory that it went from is still to be read, which who asks for another one doesn't wait for.
#[test]
fn what_removing_would_free_grows_when_a_name_goes_where_nobody_asks() {
    for is_declared in [false, true] {
        let (tree, mut tracked) = two(is_declared);
        tree.state().link(FILE, ONE);
        assert_eq!(tree.state().freed(ONE), 0);
        agrees(&mut tracked, &tree, ROOT, "two names in one");
        tree.state().unlink_last(OTHER);
        assert_eq!(tree.state().freed(ONE), 10_000_000);
        assert_eq!(read(&mut tracked, &tree, ONE, "none is elsewhere"), u64::from(is_declared), "{is_declared}");
        // It comes back there, by the name of one that stays.
        tree.state().link(FILE, OTHER);
        agrees(&mut tracked, &tree, ONE, "one is elsewhere again");
        assert_eq!(tree.state().freed(ONE), 0);
        agrees(&mut tracked, &tree, ROOT, "all of it");
        tree.state().unlink_last(ONE);
        agrees(&mut tracked, &tree, OTHER, "one in each");
        agrees(&mut tracked, &tree, ROOT, "at last");
    }
}

/// The directory that has lost a name may be told of after the inode: nothing is taken for known until then.
#[test]
fn who_lost_a_name_is_read_though_only_the_inode_is_told_of() {
    let (tree, mut tracked) = two(false);
    let third = Directory { parent: ROOT, names: [("file".to_owned(), FILE)].into(), ..Directory::default() };
    tree.state().directories.insert(9003, third);
    tree.state().directory(ROOT).directories.insert(9003, "9003".to_owned());
    tree.state().tell(ROOT, None, Happened::CREATE);
    agrees(&mut tracked, &tree, ROOT, "three names");
    tree.state().unlink_last(OTHER);
    let late: Vec<Change> = {
        let mut state = tree.state();
        let (of_directories, of_inodes) =
            std::mem::take(&mut state.told).into_iter().partition(|change| change.directory.is_some());
        state.told = of_inodes;
        of_directories
    };
    assert!(!late.is_empty(), "the directory is told of");
    assert_eq!(read(&mut tracked, &tree, ROOT, "the inode alone"), 3);
    tree.state().told.extend(late);
    agrees(&mut tracked, &tree, ROOT, "the directory, too");
}
