//! Sweeps of small trees through the public interface.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write as _},
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use onesweep::{
    BulkRead, Cancel, Entries, FileError, Filter, Kind, Order, Progress, Reassembly, Route, Strategy, Summary,
    SweptFile,
};

/// A tree with the odd cases; gives what a sweep must deliver.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut expected = BTreeMap::new();
    let mut seed = 1_u64;
    for n in 0..300_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n | 1);
        let directory = root.join(format!("d{}", seed >> 60)).join(format!("e{}", (seed >> 56) & 3));
        fs::create_dir_all(&directory).unwrap();
        let size = [0, 1, 4095, 4096, 4097, 20_000, 300_000][(seed >> 40) as usize % 7];
        let content: Vec<u8> = (0..size).map(|at| (at as u64 * 31 + n) as u8).collect();
        let path = directory.join(format!("f{n}"));
        fs::write(&path, &content).unwrap();
        expected.insert(path, content);
    }
    let sparse = root.join("sparse");
    fs::File::create(&sparse).unwrap().set_len(100_000).unwrap();
    expected.insert(sparse, vec![0; 100_000]);
    expected
}

fn deliver(read: BulkRead) -> (BTreeMap<PathBuf, Vec<u8>>, Vec<FileError>, Summary) {
    let (mut found, mut errors) = (BTreeMap::new(), Vec::new());
    let summary = read
        .run(|item| {
            match item {
                Ok(mut file) => {
                    let mut content = Vec::new();
                    file.reader().read_to_end(&mut content).unwrap();
                    for path in std::iter::once(file.path()).chain(file.links().iter().map(PathBuf::as_path)) {
                        assert!(found.insert(path.to_owned(), content.clone()).is_none(), "delivered once");
                    }
                }
                Err(error) => errors.push(error),
            }
            true
        })
        .unwrap();
    (found, errors, summary)
}

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

#[test]
fn hard_links_are_read_once_and_keep_all_names() {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<PathBuf> = (0..40).map(|n| root.path().join(format!("d{}/n{n}", n % 8))).collect();
    for path in &names {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if *path == names[0] {
            fs::write(path, b"content").unwrap();
        } else {
            fs::hard_link(&names[0], path).unwrap();
        }
    }
    for order in Order::ALL {
        for limit in [1000, 1 << 30] {
            let (mut with_content, mut all) = (0, Vec::new());
            BulkRead::new([root.path()])
                .order(order)
                .catalog_limit(limit)
                .run(|item| {
                    let file = item.unwrap();
                    if let Some(first) = file.linked_to() {
                        assert!(all.contains(&first.to_owned()), "a link comes after what it points to");
                        assert_eq!(file.bytes(), None);
                    } else {
                        with_content += 1;
                        assert_eq!(file.bytes(), Some(&b"content"[..]));
                    }
                    all.push(file.path().to_owned());
                    all.extend(file.links().iter().cloned());
                    true
                })
                .unwrap();
            assert_eq!(with_content, 1, "{order}");
            all.sort();
            let mut expected = names.clone();
            expected.sort();
            assert_eq!(all, expected, "{order}");
        }
    }
}

/// A write that is on its way shows by no time stamp, so what changed just now is read until it holds still.
#[test]
fn a_file_that_changed_just_now_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), vec![7; 100_000]).unwrap();
    let route = || {
        let read = BulkRead::new([root.path()]).ignore_cache(true);
        read.start().unwrap().map(|item| item.unwrap().route()).collect::<Vec<_>>()
    };
    let changed = fs::metadata(root.path().join("file")).unwrap().ctime();
    assert_eq!(route(), [Route::Reread]);
    let seconds = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    while seconds() < changed + 2 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(route(), [Route::Swept]);
}

/// Also where no order gains anything, as in memory, unless that of the directories is asked for.
#[test]
fn what_is_cached_comes_first_on_a_disk_without_seeks_too() {
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("skipped: no /dev/shm") };
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
fn a_stream_is_opened_by_a_name_that_is_left() {
    let root = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"].map(|name| root.path().join(name));
    fs::write(&names[0], vec![7; 1 << 20]).unwrap();
    names[1..].iter().for_each(|name| fs::hard_link(&names[0], name).unwrap());
    let mut files = BulkRead::new([root.path()]).large(4096).ignore_cache(true).start().unwrap();
    let mut file = files.next().unwrap().unwrap();
    assert_eq!((file.route(), file.links().len()), (Route::Streamed, 2));
    fs::remove_file(file.path()).unwrap();
    // Another file under one of its names is none of it.
    fs::remove_file(&file.links()[0]).unwrap();
    fs::write(&file.links()[0], vec![8; 1 << 20]).unwrap();
    let mut content = Vec::new();
    let read = file.reader().read_to_end(&mut content);
    // Its times have changed with its names.
    assert!(read.is_err_and(|error| error.to_string().contains("changed")) && content == vec![7; 1 << 20]);
}

#[test]
fn large_files_are_streamed_after_the_others() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("large"), vec![1; 3 << 20]).unwrap();
    fs::write(root.path().join("small"), vec![2; 10_000]).unwrap();
    let mut routes = Vec::new();
    let summary = BulkRead::new([root.path()])
        .large(1 << 20)
        .run(|item| {
            let mut file = item.unwrap();
            let mut content = Vec::new();
            file.reader().read_to_end(&mut content).unwrap();
            assert_eq!(content.len() as u64, file.metadata().size);
            routes.push(file.route());
            true
        })
        .unwrap();
    assert_eq!(routes[1], Route::Streamed);
    assert_eq!((summary.streamed_files, summary.streamed_bytes), (1, 3 << 20));
}

#[test]
fn a_plan_of_one_streamed_file_counts_its_bytes() {
    const SIZE: u64 = 3 << 20;
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("large"), vec![1; SIZE as usize]).unwrap();
    for order in Order::ALL {
        let sweep = BulkRead::new([root.path()]).order(order).large(1 << 20).ignore_cache(true).plan().unwrap();
        let estimate = sweep.estimate();
        assert_eq!((estimate.files, estimate.useful), (1, SIZE), "{order}");
        assert!(estimate.requests > 0 && estimate.read >= SIZE, "{order}: {estimate:?}");
        assert_eq!(estimate.peak_memory, 0, "{order}: a stream takes nothing of the budget");
    }
}

/// Whole, and in windows, which begin anew with what they hold but not with what they count.
#[test]
fn an_observer_is_told_of_each_step_and_totals_rise() {
    const LARGE: u64 = 3 << 20;
    let root = tempfile::tempdir().unwrap();
    for n in 0..1300 {
        let directory = root.path().join(format!("d{}", n % 26));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{n}")), [1; 4096]).unwrap();
    }
    fs::write(root.path().join("large"), vec![2; LARGE as usize]).unwrap();
    let (entries, files, bytes) = (1 + 26 + 1300 + 1, 1301, 1300 * 4096 + LARGE);
    for limit in [60_000, 1 << 30] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let observer = Arc::clone(&told);
        let read = BulkRead::new([root.path()]).large(1 << 20).ignore_cache(true).catalog_limit(limit);
        let read = read.observer(move |event: Progress| observer.lock().unwrap().push(event));
        let (found, errors, summary) = deliver(read);
        assert_eq!((found.len(), errors.len()), (files as usize, 0));
        assert_eq!(summary.windows > 1, limit == 60_000, "{} windows", summary.windows);
        let (mut walked, mut surveyed, mut read, mut streamed) = (vec![], vec![], vec![], vec![]);
        let (mut planned, mut steps) = (0, String::new());
        for event in told.lock().unwrap().iter() {
            let step = match event {
                Progress::Walked { entries } => {
                    walked.push(*entries);
                    'w'
                }
                Progress::Surveyed { files, bytes } => {
                    surveyed.push((*files, *bytes));
                    's'
                }
                Progress::Planned { estimate, bytes, .. } => {
                    assert_eq!(estimate.useful, *bytes, "all of them have whole blocks");
                    planned += bytes;
                    'p'
                }
                Progress::Read { files, bytes } => {
                    read.push((*files, *bytes));
                    'r'
                }
                Progress::Streamed { bytes } => {
                    streamed.push(*bytes);
                    't'
                }
                other => panic!("{other:?} is not looked at here"),
            };
            steps.extend((!steps.contains(step)).then_some(step));
        }
        assert!(walked.is_sorted() && walked.last() == Some(&entries), "{walked:?}");
        assert!(surveyed.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{surveyed:?}");
        assert_eq!(surveyed.last(), Some(&(files, bytes)));
        assert_eq!(planned, bytes, "each byte is in one plan");
        assert!(read.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{read:?}");
        assert!(read.last().is_some_and(|&(files, bytes)| files >= 1280 && bytes >= 1280 * 4096), "{read:?}");
        assert!(streamed.is_sorted() && streamed.last() == Some(&LARGE), "{streamed:?}");
        assert!(steps.starts_with("wsp"), "first met in this order: {steps}");
    }
}

#[test]
fn who_keeps_every_lent_buffer_is_told_and_may_go_on() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..32 {
        fs::write(root.path().join(format!("f{n}")), vec![n; 16 << 10]).unwrap();
    }
    let files = BulkRead::new([root.path()]).budget(64 << 10).start().unwrap();
    let (mut kept, mut delivered, mut told) = (Vec::new(), 0, 0);
    for item in files {
        match item {
            Ok(file) => {
                delivered += 1;
                kept.push(file);
            }
            Err(FileError::BudgetLent { lent }) => {
                assert_eq!(lent, 64 << 10);
                told += 1;
                kept.clear();
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((delivered, told), (32, 7));
}

#[test]
fn who_keeps_everything_comes_to_an_end_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..32 {
        fs::write(root.path().join(format!("f{n}")), vec![n; 16 << 10]).unwrap();
    }
    let files = BulkRead::new([root.path()]).budget(64 << 10).start().unwrap();
    let kept: Vec<_> = files.collect();
    assert_eq!(kept.len(), 6, "four files and two errors");
    assert!(matches!(kept[4], Err(FileError::BudgetLent { .. })), "{:?}", kept[4]);
    assert!(matches!(kept[5], Err(FileError::Stopped { .. })), "the rest is missing: {:?}", kept[5]);
}

/// Who has to look after something else gets the same items, and is told of the wait.
#[test]
fn who_waits_in_portions_gets_everything() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    let mut files = BulkRead::new([root.path()]).start().unwrap();
    let mut found = Vec::new();
    loop {
        while let Some(item) = files.next_at_hand() {
            found.push(item.unwrap().path().to_owned());
        }
        match files.next_within(Duration::from_millis(1)) {
            Poll::Ready(Some(item)) => found.push(item.unwrap().path().to_owned()),
            Poll::Ready(None) => break,
            Poll::Pending => {}
        }
    }
    found.sort();
    assert!(found.iter().eq(expected.keys()));
    assert!(matches!(files.next_within(Duration::ZERO), Poll::Ready(None)), "it stays over");
}

#[test]
fn nothing_comes_while_all_memory_is_lent_and_then_it_is_told() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..32 {
        fs::write(root.path().join(format!("f{n}")), vec![n; 16 << 10]).unwrap();
    }
    let mut files = BulkRead::new([root.path()]).budget(64 << 10).start().unwrap();
    let mut kept: Vec<_> = files.by_ref().take(4).map(Result::unwrap).collect();
    assert!(files.next_at_hand().is_none());
    assert!(files.next_within(Duration::ZERO).is_pending());
    let told = loop {
        if let Poll::Ready(item) = files.next_within(Duration::from_millis(100)) {
            break item;
        }
    };
    assert!(matches!(told, Some(Err(FileError::BudgetLent { .. }))), "{told:?}");
    kept.iter_mut().for_each(SweptFile::release);
    assert!(kept.iter().all(|file| !file.has_content()));
    assert_eq!(files.map(Result::unwrap).count(), 28, "what is released can be read into again");
}

#[test]
fn what_is_taken_over_leaves_the_budget() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..32 {
        fs::write(root.path().join(format!("f{n}")), vec![n; 16 << 10]).unwrap();
    }
    let mut files = BulkRead::new([root.path()]).budget(64 << 10).start().unwrap();
    let kept: Vec<_> = files.by_ref().map(|item| item.unwrap().take().unwrap()).collect();
    let summary = files.summary();
    assert_eq!((kept.len(), summary.taken_over_bytes), (32, 32 * (16 << 10)));
    assert!(summary.peak_budget <= 64 << 10);
}

#[test]
fn many_threads_get_each_file_once() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    let found = Mutex::new(Vec::new());
    BulkRead::new([root.path()])
        .budget(1 << 20)
        .run_parallel(4, |item| {
            found.lock().unwrap().push(item.unwrap().path().to_owned());
            true
        })
        .unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort();
    assert!(found.iter().eq(expected.keys()));
}

#[test]
fn cancelling_ends_the_stream() {
    let root = tempfile::tempdir().unwrap();
    tree(root.path());
    let cancel = Cancel::new();
    let mut files = BulkRead::new([root.path()]).cancel(cancel.clone()).start().unwrap();
    assert!(files.next().is_some());
    cancel.cancel();
    assert!(files.next().is_none());
    assert!(files.summary().cancelled);
}

#[test]
fn cancelling_ends_a_plan() {
    let root = tempfile::tempdir().unwrap();
    tree(root.path());
    let cancel = Cancel::new();
    cancel.cancel();
    let sweep = BulkRead::new([root.path()]).cancel(cancel).plan().unwrap();
    assert!(sweep.run().unwrap().all(|item| item.is_err()));
}

#[test]
fn many_threads_get_what_one_has_not_taken() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    let mut files = BulkRead::new([root.path()]).start().unwrap();
    let first = files.next().unwrap().unwrap().path().to_owned();
    let found = std::sync::Mutex::new(vec![first]);
    files.run_parallel(3, |item| {
        found.lock().unwrap().push(item.unwrap().path().to_owned());
        true
    });
    let mut found = found.into_inner().unwrap();
    found.sort();
    assert!(found.iter().eq(expected.keys()));
}

/// One request at a time, and a budget for one file, so that nothing is read ahead of the consumer.
#[test]
fn cancelling_ends_within_one_request() {
    const SIZE: u64 = 64 << 10;
    let root = tempfile::tempdir().unwrap();
    for n in 0..50 {
        fs::write(root.path().join(format!("f{n}")), vec![n; SIZE as usize]).unwrap();
    }
    let cancel = Cancel::new();
    let read = BulkRead::new([root.path()]).budget(SIZE).large(SIZE).queue_depth(1).ignore_cache(true);
    let mut files = read.cancel(cancel.clone()).start().unwrap();
    let held = files.next().unwrap().unwrap();
    cancel.cancel();
    drop(held);
    assert!(files.next().is_none());
    let summary = files.summary();
    assert!(summary.cancelled && (1..=2).contains(&summary.requests), "{summary:?}");
}

#[test]
fn excluded_entries_are_left_out_with_all_below() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("keep/cache")).unwrap();
    for name in ["keep/a.o", "keep/a.c", "keep/cache/x", ".gitignore"] {
        fs::write(root.path().join(name), b"*.c\n").unwrap();
    }
    let mut filter = Filter::new();
    filter.exclude(b"*.o");
    filter.exclude(b"cache");
    let names = |read: BulkRead| {
        let (found, ..) = deliver(read);
        found.keys().map(|path| path.strip_prefix(root.path()).unwrap().display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(BulkRead::new([root.path()]).filter(filter)), [".gitignore", "keep/a.c"]);
    assert_eq!(names(BulkRead::new([root.path()]).gitignore(true)), [".gitignore", "keep/a.o", "keep/cache/x"]);
}

/// It is gone after the listing and before any other look: who reads files alone has not lost anything.
#[test]
fn a_link_that_vanishes_is_missed_only_where_it_was_wanted() {
    for (entries, missed) in [(Entries::Files, 0), (Entries::All, 1)] {
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("link");
        fs::write(root.path().join("file"), b"x").unwrap();
        symlink("file", &link).unwrap();
        let read = BulkRead::new([root.path()]).entries(entries).observer(move |event: Progress| {
            if let Progress::Walked { entries } = event {
                assert_eq!(entries, 3);
                fs::remove_file(&link).unwrap();
            }
        });
        let (mut files, mut errors) = (0, Vec::new());
        read.run(|item| {
            match item {
                Ok(item) => files += u32::from(item.metadata().kind == Kind::File),
                Err(error) => errors.push(error),
            }
            true
        })
        .unwrap();
        assert_eq!((files, errors.len()), (1, missed), "{entries:?}: {errors:?}");
        assert!(errors.iter().all(|error| matches!(error, FileError::Vanished { path } if path.ends_with("link"))));
    }
}

#[test]
fn roots_may_be_files_links_and_relative() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("real")).unwrap();
    fs::write(root.path().join("real/f"), b"x").unwrap();
    symlink("real", root.path().join("link")).unwrap();
    let names = |read: BulkRead| deliver(read).0.keys().map(|path| path.display().to_string()).collect::<Vec<_>>();
    assert_eq!(names(BulkRead::new(["real/f"]).base(root.path())), ["real/f"]);
    assert_eq!(names(BulkRead::new(["link"]).base(root.path())), Vec::<String>::new());
    assert_eq!(names(BulkRead::new(["link"]).base(root.path()).follow_roots(true)), ["link/f"]);
    assert_eq!(names(BulkRead::new(["link/f"]).base(root.path())), ["link/f"]);
    let (found, errors, summary) = deliver(BulkRead::new(["missing", "real"]).base(root.path()));
    assert_eq!((found.len(), summary.errors), (1, 1), "the others are read");
    assert_eq!(errors[0].to_string(), "missing: cannot find it: No such file or directory (os error 2)");
    let missing = BulkRead::new(["missing"]).base(root.path()).start();
    let Err(error) = missing else { panic!("something must be there") };
    assert_eq!(error.to_string(), "missing: No such file or directory (os error 2)");
}

#[test]
fn a_path_longer_than_the_kernel_takes_is_read() {
    let root = tempfile::tempdir().unwrap();
    let name = "x".repeat(200);
    let mut directory = fs::File::open(root.path()).unwrap();
    // As deep as it goes with relative steps alone.
    for _ in 0..30 {
        rustix_mkdir(&directory, &name);
        directory = open_below(&directory, &name);
    }
    write_below(&directory, "deep", b"content");
    let (found, errors, _) = deliver(BulkRead::new([root.path()]));
    assert!(errors.is_empty(), "{errors:?}");
    let (path, content) = found.iter().next().unwrap();
    assert!(path.as_os_str().len() > 6000);
    assert_eq!(content, b"content");
    remove_deep(root.path());
}

fn rustix_mkdir(directory: &fs::File, name: &str) {
    fs::create_dir(proc_path(directory).join(name)).unwrap();
}

fn open_below(directory: &fs::File, name: &str) -> fs::File {
    fs::File::open(proc_path(directory).join(name)).unwrap()
}

fn write_below(directory: &fs::File, name: &str, content: &[u8]) {
    fs::write(proc_path(directory).join(name), content).unwrap();
}

fn proc_path(directory: &fs::File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

fn remove_deep(root: &Path) {
    let status = std::process::Command::new("rm").arg("-rf").arg(root).status().unwrap();
    assert!(status.success());
    fs::create_dir(root).unwrap();
}

#[test]
fn a_file_that_may_not_be_read_is_an_item_with_its_error() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("good"), b"x").unwrap();
    fs::write(root.path().join("gone"), b"x").unwrap();
    let sweep = BulkRead::new([root.path()]).plan().unwrap();
    fs::remove_file(root.path().join("gone")).unwrap();
    let items: Vec<_> = sweep.run().unwrap().collect();
    assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 1);
    let error = items.into_iter().find_map(Result::err).unwrap();
    assert!(matches!(&error, FileError::Vanished { path } if path.ends_with("gone")), "{error}");
}

#[test]
fn a_file_that_changed_after_the_plan_comes_as_it_is_now() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("f");
    fs::write(&path, vec![1; 50_000]).unwrap();
    for size in [10_000, 90_000] {
        let sweep = BulkRead::new([root.path()]).ignore_cache(true).plan().unwrap();
        fs::write(&path, vec![7; size]).unwrap();
        let mut files = sweep.run().unwrap();
        let file = files.next().unwrap().unwrap();
        assert_eq!(file.bytes().unwrap(), vec![7; size]);
        assert_eq!(file.metadata().size, fs::metadata(&path).unwrap().size());
        assert_eq!(file.route(), Route::Reread);
    }
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

#[test]
fn a_name_that_goes_takes_no_other_name_along() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    for replaced in [false, true] {
        fs::write(&b, b"content").unwrap();
        fs::hard_link(&b, &a).unwrap();
        for gone in [&a, &b] {
            let sweep = BulkRead::new([root.path()]).ignore_cache(true).plan().unwrap();
            let kept = root.path().join("kept");
            fs::rename(gone, &kept).unwrap();
            if replaced {
                fs::write(gone, b"another file").unwrap();
            }
            let items: Vec<_> = sweep.run().unwrap().collect();
            assert_eq!(items.len(), 1);
            assert_eq!(items[0].as_ref().unwrap().bytes(), Some(&b"content"[..]));
            fs::rename(&kept, gone).unwrap();
        }
        fs::remove_file(&a).unwrap();
    }
}

#[test]
fn roots_that_overlap_link_nothing_to_itself() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("s")).unwrap();
    fs::write(root.path().join("s/a"), b"content").unwrap();
    fs::hard_link(root.path().join("s/a"), root.path().join("s/b")).unwrap();
    for order in Order::ALL {
        BulkRead::new(["s", "s/a", "s"])
            .base(root.path())
            .order(order)
            .run(|item| {
                let file = item.unwrap();
                assert!(file.linked_to() != Some(file.path()), "{order}");
                assert!(!file.links().contains(&file.path().to_owned()), "{order}");
                true
            })
            .unwrap();
    }
}

#[test]
fn many_large_files_need_few_descriptors() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..1200 {
        let directory = root.path().join(format!("d{n}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("large"), vec![1; 70_000]).unwrap();
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let mut streams = Vec::new();
    let files = BulkRead::new([root.path()]).large(64 << 10).order(Order::Directory).start().unwrap();
    for item in files {
        streams.push(item.unwrap());
    }
    assert_eq!(streams.len(), 1200);
    // Other tests of this process open files too.
    assert!(open() < before + 300, "{} descriptors for {} streams", open() - before, streams.len());
}

#[test]
fn a_tree_deeper_than_the_stack_is_swept_by_windows() {
    let root = tempfile::tempdir().unwrap();
    let mut directory = fs::File::open(root.path()).unwrap();
    for _ in 0..12_000 {
        rustix_mkdir(&directory, "d");
        directory = open_below(&directory, "d");
    }
    write_below(&directory, "deep", b"content");
    let read = BulkRead::new([root.path()]).catalog_limit(100_000);
    let (found, errors, _) = deliver(read);
    remove_deep(root.path());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(found.len(), 1);
}

#[test]
fn a_preallocated_file_that_was_just_written_comes_with_its_bytes() {
    use std::os::unix::fs::FileExt;
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("f");
    let made = std::process::Command::new("fallocate").args(["-l", "4M"]).arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        // Past the test harness, which would keep it back: a run as root must not leave tests out unseen.
        let _ = writeln!(std::io::stderr(), "skipped: a preallocated file: no fallocate here");
        return;
    }
    // The survey writes out what is delayed once; this file turns dirty after that, by a first file that takes long.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0_u64.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                file.write_all_at(&[7; 100], at % 1000 * 4096).unwrap();
            }
        });
        for _ in 0..50 {
            let sweep = BulkRead::new([root.path()]).ignore_cache(true).large(8 << 20).plan().unwrap();
            for item in sweep.run().unwrap() {
                let Ok(item) = item else { continue };
                let now = fs::metadata(&path).unwrap();
                if item.metadata().mtime.seconds == now.mtime()
                    && i64::from(item.metadata().mtime.nanoseconds) == now.mtime_nsec()
                {
                    assert_eq!(item.bytes().unwrap(), fs::read(&path).unwrap());
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn what_is_open_is_read_whatever_it_is_called_by() {
    let root = tempfile::tempdir().unwrap();
    let (before, after, file) = (root.path().join("before"), root.path().join("after"), root.path().join("file"));
    fs::create_dir(&before).unwrap();
    fs::write(before.join("a"), "in a directory").unwrap();
    fs::write(&file, "a file").unwrap();
    let open = |path: &Path| fs::File::open(path).unwrap().into();
    let named = BulkRead::new(["/nonexistent"]);
    let read = |before: &Path| named.clone().roots([""; 0]).open_roots([("dir", open(before)), ("f", open(&file))]);
    let sweep = read(&before);
    fs::rename(&before, &after).unwrap();
    let (found, errors, _) = deliver(sweep);
    assert!(errors.is_empty(), "{errors:?}");
    let expected = [("dir/a", "in a directory"), ("f", "a file")];
    assert_eq!(found, expected.map(|(path, text)| (path.into(), text.into())).into());

    // A file is found by its name alone.
    let sweep = read(&after);
    fs::remove_file(&file).unwrap();
    fs::write(&file, "another").unwrap();
    let (found, errors, _) = deliver(sweep);
    assert_eq!(found.len(), 1);
    assert!(
        matches!(&errors[..], [FileError::Io { path, .. } | FileError::Vanished { path }] if path == Path::new("f"))
    );
}

#[test]
fn bytes_are_taken_once_and_the_rest_stays() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("f"), "taken").unwrap();
    let summary = BulkRead::new([root.path()]).run(|item| {
        let mut file = item.unwrap();
        assert!(file.has_content());
        assert_eq!(file.take_bytes().as_deref(), Some(&b"taken"[..]));
        assert!(file.take_bytes().is_none() && !file.has_content() && file.bytes().is_none());
        assert_eq!(file.metadata().size, 5);
        true
    });
    assert!(summary.unwrap().taken_over_bytes >= 5);
}
