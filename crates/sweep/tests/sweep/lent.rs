//! Memory that a consumer keeps.

use std::{fs, task::Poll, time::Duration};

use onesweep::{BulkRead, FileError, SweptFile};

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
