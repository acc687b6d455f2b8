//! Who takes items: in portions, by many threads, or until it is enough; and who looks on.

use std::{
    fs,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use onesweep::{BulkRead, Cancel, Progress};

use crate::trees::{deliver, tree};

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

/// Who looks on has no files, and takes none from who has.
#[test]
fn what_was_done_is_told_beside_the_files() {
    let root = tempfile::tempdir().unwrap();
    tree(root.path());
    let mut files = BulkRead::new([root.path()]).start().unwrap();
    let tally = files.tally();
    for item in files.by_ref() {
        assert!(item.is_ok() && tally.summary().files > 0);
    }
    let (told, own) = (tally.summary(), files.summary());
    assert_eq!((told.files, told.bytes, told.peak_budget), (own.files, own.bytes, own.peak_budget));
    assert!(told.files > 0 && told.bytes > 0 && told.peak_budget > 0 && !told.cancelled);
    let files = BulkRead::new([root.path()]).start().unwrap();
    let tally = files.tally();
    drop(files);
    assert!(tally.summary().cancelled, "it outlives them");
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
fn many_threads_get_what_one_has_not_taken() {
    let root = tempfile::tempdir().unwrap();
    let expected = tree(root.path());
    let mut files = BulkRead::new([root.path()]).start().unwrap();
    let first = files.next().unwrap().unwrap().path().to_owned();
    let found = Mutex::new(vec![first]);
    files.run_parallel(3, |item| {
        found.lock().unwrap().push(item.unwrap().path().to_owned());
        true
    });
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
