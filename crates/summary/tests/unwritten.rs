//! Directories that were found and not harvested yet: what a store says of them that is left in the middle.

use onesweep_summary::{
    identity::NodeId,
    ledger::Ledger,
    nodes::Slot,
    reading::{EntryName, Reading},
    store::{Facts, Store},
};

fn id(ino: u64) -> NodeId {
    NodeId { ino, generation: 1, subvolume: 0 }
}

fn names(store: &Store) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let kept = |_, record: onesweep_summary::record::Record| {
        names.push(record.name.into_vec());
        Ok(())
    };
    store.each_record(kept).expect("records");
    names.sort();
    names
}

/// A ledger in which two directories were found in the one at the top.
fn two_found(store: Store) -> (Ledger, [Slot; 2]) {
    let mut ledger = Ledger::open(store).expect("a ledger");
    let top = ledger.add(None, id(1), EntryName::new()).expect("room");
    let directories = vec![(id(2), b"one"[..].into()), (id(3), b"two"[..].into())];
    let merged = ledger.merge(top, Reading { directories, stamp: 7, ..Reading::default() }, 1, 0).expect("a merge");
    (ledger, merged.new.try_into().expect("two"))
}

#[test]
fn what_was_found_is_known_and_written_when_that_is_to_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let (mut ledger, [one, two]) = two_found(Store::open(&path).expect("a store"));
    let record = ledger.record(one).expect("a record");
    assert_eq!((record.id, &record.name[..], record.harvested), (id(2), &b"one"[..], 0));

    ledger.commit(&Facts::default(), false).expect("a commit");
    assert!(ledger.store().facts().expect("facts").is_partial);
    assert_eq!(names(ledger.store()), [&b""[..]], "they come when they are harvested");
    ledger.merge(one, Reading { stamp: 8, ..Reading::default() }, 1, 0).expect("a merge");
    ledger.commit(&Facts::default(), false).expect("a commit");
    assert!(ledger.store().facts().expect("facts").is_partial);
    assert_eq!(names(ledger.store()), [&b""[..], b"one"]);
    assert_eq!(ledger.record(two).expect("a record").name[..], *b"two");

    ledger.commit(&Facts::default(), true).expect("a commit");
    assert!(!ledger.store().facts().expect("facts").is_partial);
    drop(ledger);
    let ledger = Ledger::open(Store::open(&path).expect("the store")).expect("a ledger");
    assert_eq!(names(ledger.store()), [&b""[..], b"one", b"two"]);
    assert!(ledger.nodes.is_dirty(two) && ledger.nodes.stamp(two) == 0, "it is to be read");
}

/// Nothing of it is there, or it says so.
#[test]
fn a_store_that_is_left_in_the_middle_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let (mut ledger, _) = two_found(Store::open(&path).expect("a store"));
    ledger.commit(&Facts::default(), false).expect("a commit");
    drop(ledger);
    let store = Store::open(&path).expect("the store");
    assert!(names(&store).is_empty() || store.facts().expect("facts").is_partial);
}

/// The number of one that is gone serves for another before the store has heard of either.
#[test]
fn a_number_that_is_given_out_again_is_that_of_the_new_one() {
    let (mut ledger, [one, two]) = two_found(Store::in_memory().expect("a store"));
    ledger.commit(&Facts::default(), true).expect("a commit");
    let top = Slot(0);
    let left = vec![(id(2), b"one"[..].into())];
    let merged = ledger.merge(top, Reading { directories: left, ..Reading::default() }, 2, 0).expect("a merge");
    assert_eq!(merged.missing, [two]);
    ledger.forget(two).expect("it goes");
    let other = ledger.add(Some(one), id(9), b"other"[..].into()).expect("room");
    assert_eq!(other, two);
    assert_eq!(ledger.record(other).expect("a record").name[..], *b"other");
    ledger.commit(&Facts::default(), false).expect("a commit");
    assert_eq!(names(ledger.store()), [&b""[..], b"one", b"other"]);
}
