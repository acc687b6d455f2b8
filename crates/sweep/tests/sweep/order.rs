//! In which order items come: all of them, each once.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use onesweep::{BulkRead, Entries, Kind, Order, Reassembly, Route, Strategy, SweptFile};

use crate::trees::{deliver, tree};

#[test]
fn every_file_comes_whole_in_every_order_and_with_every_budget() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    for order in Order::ALL {
        for budget in [64 << 10, 1 << 20, 256 << 20] {
            for reassembly in
                [Reassembly::Deferred, Reassembly::FirstFit, Reassembly::OnDemand, Reassembly::Threshold(budget / 3)]
            {
                for (cold, in_batches) in [(false, false), (true, false), (true, true)] {
                    let read = BulkRead::new([root.path()])
                        .order(order)
                        .budget(budget)
                        .reassembly(reassembly)
                        .ignore_cache(cold)
                        .in_batches(in_batches)
                        .catalog_limit(20_000);
                    let (found, errors, summary) = deliver(read);
                    assert!(errors.is_empty(), "{errors:?}");
                    assert!(found == expected, "{order} with {budget} bytes");
                    assert!(summary.peak_budget <= budget);
                    assert_eq!(summary.files, expected.len() as u64);
                }
            }
        }
    }
}

#[test]
fn a_plan_that_was_looked_at_delivers_the_same() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    let sweep = BulkRead::new([root.path()]).ignore_cache(true).plan().unwrap();
    let useful: u64 = expected.values().map(|content| content.len() as u64).sum();
    assert!(sweep.estimate().useful >= useful - 100_000, "the hole needs no read");
    assert_eq!(sweep.files().count(), expected.len());
    let found: BTreeMap<PathBuf, Vec<u8>> = sweep
        .run()
        .unwrap()
        .map(|item| {
            let mut file = item.unwrap();
            let mut content = Vec::new();
            file.reader().read_to_end(&mut content).unwrap();
            (file.path().to_owned(), content)
        })
        .collect();
    assert!(found == expected);
}

fn kinds(read: BulkRead) -> Vec<SweptFile> {
    let mut all = Vec::new();
    read.entries(Entries::All)
        .run(|item| {
            all.push(item.unwrap());
            true
        })
        .unwrap();
    all
}

#[test]
fn directories_come_before_what_is_in_them_and_once_more_at_the_end() {
    let root = tempfile::tempdir().unwrap();
    tree(root.path());
    symlink("nowhere", root.path().join("link")).unwrap();
    for limit in [20_000, 1 << 30] {
        let all = kinds(BulkRead::new([root.path()]).catalog_limit(limit));
        let place = |path: &Path, closing: bool| {
            all.iter().position(|item| item.path() == path && item.is_closing() == closing).unwrap()
        };
        for (at, item) in all.iter().enumerate() {
            if item.path() != root.path() {
                let parent = item.path().parent().unwrap();
                assert!(place(parent, false) < at, "{parent:?} opens before {:?}", item.path());
                assert!(place(parent, true) > at, "{parent:?} closes after {:?}", item.path());
            }
        }
        let link = all.iter().find(|item| item.metadata().kind == Kind::Symlink).unwrap();
        assert_eq!(link.link_target(), Some(Path::new("nowhere")));
    }
}

/// Also where no order gains anything, as in memory, unless that of the directories is asked for.
#[test]
fn what_is_cached_comes_first_on_a_disk_without_seeks_too() {
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else {
        // Past the test harness, which would keep it back.
        let _ =
            writeln!(std::io::stderr(), "skipped: what_is_cached_comes_first_on_a_disk_without_seeks_too: no /dev/shm");
        return;
    };
    fs::write(root.path().join("file"), vec![7; 100_000]).unwrap();
    let route = |read: BulkRead| read.start().unwrap().map(|item| item.unwrap().route()).collect::<Vec<_>>();
    let read = || BulkRead::new([root.path()]);
    assert_eq!(route(read()), [Route::Cached]);
    for asked in [read().order(Order::Directory), read().strategy(Strategy::Vanilla), read().ignore_cache(true)] {
        assert_ne!(route(asked), [Route::Cached]);
    }
}

/// Where it lies doesn't matter then, so nobody asks.
#[test]
fn a_cached_file_is_not_mapped() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), vec![7; 1 << 20]).unwrap();
    let fragments = |cold: bool| {
        let sweep = BulkRead::new([root.path()]).ignore_cache(cold).order(Order::Fragment).plan().unwrap();
        sweep.files().map(|file| file.fragments).sum::<u32>()
    };
    assert!(fragments(true) > 0);
    // The kernel may have dropped a page of it; reading brings it back.
    let found = (0..10).any(|_| fs::read(root.path().join("file")).is_ok() && fragments(false) == 0);
    assert!(found);
}

#[test]
fn a_plan_shows_every_name_and_a_sweep_without_content_keeps_its_order() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    fs::hard_link(root.path().join("sparse"), root.path().join("another")).unwrap();
    let read = || BulkRead::new([root.path()]).ignore_cache(true);
    let sweep = read().plan().unwrap();
    let shown: Vec<PathBuf> = sweep.files().map(|file| file.path).collect();
    assert_eq!(shown.len(), expected.len() + 1);
    let mut delivered = Vec::new();
    read()
        .content(false)
        .run(|item| {
            let file = item.unwrap();
            assert_eq!(file.bytes(), None);
            delivered.push(file.path().to_owned());
            delivered.extend(file.links().iter().cloned());
            true
        })
        .unwrap();
    let with_content = |paths: &[PathBuf]| -> Vec<PathBuf> {
        paths
            .iter()
            .filter(|path| expected.get(*path).is_some_and(|content| content.iter().any(|&byte| byte != 0)))
            .cloned()
            .collect()
    };
    assert_eq!(with_content(&delivered), with_content(&shown));
}

#[test]
fn a_sweep_without_content_by_inode_rises_over_the_whole_tree() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    // What has nothing to be read, be it a file of holes alone, comes at once, before the others.
    let is_read = |content: &Vec<u8>| content.iter().any(|&byte| byte != 0);
    let inodes = |order| {
        let mut inodes = Vec::new();
        BulkRead::new([root.path()])
            .order(order)
            .content(false)
            .run(|item| {
                let item = item.unwrap();
                let is_read = expected.get(item.path()).is_some_and(is_read);
                inodes.extend(is_read.then_some(item.metadata().ino));
                true
            })
            .unwrap();
        inodes
    };
    let by_inode = inodes(Order::Inode);
    assert_eq!(by_inode.len(), expected.values().filter(|content| is_read(content)).count());
    assert!(by_inode.is_sorted(), "{by_inode:?}");
    assert!(!inodes(Order::Directory).is_sorted(), "the directories list them in another order");
}
