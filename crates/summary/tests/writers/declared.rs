//! Summaries that are declared of it, and what they have to come to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use onesweep_summary::custom::{
    keys::{Add, Entry, Summarise},
    tally::Amounts,
    view::view,
};
use onesweep_sys::files::{CURRENT_DIR, EntryType, Stat, Time, statx_at};

use crate::{
    Tracked,
    tree::{Tree, id},
};

/// Keys are classes of inodes, which links share.
#[derive(Debug)]
pub(crate) struct ByClass;

impl Summarise for ByClass {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(&class(entry.stat.ino, entry.stat.file_type() == EntryType::Dir), [1, entry.stat.size as i64, 0]);
        // The larger of two is the one with more bytes.
        add(b"bytes", [entry.stat.size as i64, 0, 0]);
    }
}

pub(crate) fn class(ino: u64, is_directory: bool) -> Vec<u8> {
    if is_directory { b"directory".to_vec() } else { format!("{}", ino % 4).into_bytes() }
}

/// Keys are of names: whether it is the first that a file got.
#[derive(Debug)]
pub(crate) struct ByName;

impl Summarise for ByName {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(entry.name.get(..1).unwrap_or_default(), [1, entry.stat.size as i64, 0]);
    }
}

/// Keys are owners, which a file changes with its time.
#[derive(Debug)]
pub(crate) struct ByOwner;

impl Summarise for ByOwner {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        add(entry.stat.uid.to_string().as_bytes(), [1, entry.stat.size as i64, 0]);
    }
}

fn owner(time: i64) -> u32 {
    time as u32 % 5
}

pub(crate) fn stat(ino: u64, is_directory: bool, bytes: i64, time: i64) -> Stat {
    static ANY: OnceLock<Stat> = OnceLock::new();
    let found = *ANY.get_or_init(|| statx_at(CURRENT_DIR, "/", true).expect("there is a root"));
    Stat {
        ino,
        mode: if is_directory { 0o40_755 } else { 0o100_644 },
        uid: owner(time),
        size: bytes as u64,
        mtime: Time { secs: time, nanos: 0 },
        ..found
    }
}

pub(crate) fn summaries_agree(tracked: &Tracked, tree: &Tree, top: u64, when: &str) {
    let (state, ledger) = (tree.state(), tracked.ledger());
    let slot = ledger.nodes.find(id(top)).expect("it is known");
    let told = |name: &str| {
        let at = ledger.declared().and_then(|declared| declared.find(name)).expect("it is declared");
        view(ledger, slot, at, None).expect("it reads").expect("it is declared").tally
    };
    let (mut directories, mut files) = (vec![top], BTreeMap::new());
    let mut at = 0;
    while let Some(next) = directories.get(at).copied() {
        directories.extend(state.directories[&next].directories.keys());
        for (name, &ino) in &state.directories[&next].names {
            files.entry(ino).or_insert_with(BTreeSet::new).insert(&name[..1]);
        }
        at += 1;
    }
    let (mut classes, mut most): (BTreeMap<Vec<u8>, Amounts>, BTreeMap<Vec<u8>, Amounts>) = Default::default();
    let all =
        directories.iter().map(|&ino| (ino, true, 0)).chain(files.keys().map(|&ino| (ino, false, state.files[&ino])));
    for (ino, is_directory, bytes) in all {
        for (key, [one, more, _]) in [(class(ino, is_directory), [1, bytes, 0]), (b"bytes".to_vec(), [bytes, 0, 0])] {
            let sum = classes.entry(key.clone()).or_default();
            *sum = [sum[0] + one, sum[1] + more, 0];
            let larger = most.entry(key).or_default();
            *larger = (*larger).max([one, more, 0]);
        }
    }
    classes.retain(|_, amounts| *amounts != [0; 3]);
    let mut owners: BTreeMap<Vec<u8>, Amounts> = BTreeMap::new();
    let owned = directories.iter().map(|_| (0, 0));
    for (time, bytes) in owned.chain(files.keys().map(|&ino| (state.time(ino), state.files[&ino]))) {
        let sum = owners.entry(owner(time).to_string().into_bytes()).or_default();
        *sum = [sum[0] + 1, sum[1] + bytes, 0];
    }
    assert_eq!(told("owners").entries, owners, "directory {top} {when}");
    assert_eq!(told("classes").entries, classes, "directory {top} {when}");
    assert_eq!(told("most").entries, most, "directory {top} {when}");
    let cut = told("cut");
    let sum = |of: usize| cut.entries.values().map(|amounts| amounts[of]).sum::<i64>() + cut.other[of];
    let expected = [0, 1].map(|of| classes.values().map(|amounts| amounts[of]).sum::<i64>());
    assert_eq!([sum(0), sum(1)], expected, "directory {top} {when}: {cut:?}");
    assert!(cut.entries.len() <= 2);
    let mut largest: Vec<i64> = files.keys().map(|ino| state.files[ino]).collect();
    largest.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    largest.truncate(3);
    let mut found: Vec<i64> = told("largest").entries.values().map(|amounts| amounts[0]).collect();
    found.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    assert_eq!(found, largest, "directory {top} {when}");
    // A file with names of both kinds counts once, by one of them.
    let names = told("names");
    let of = |key: &str| names.entries.get(key.as_bytes()).map_or(0, |amounts| amounts[0]);
    let only = |key: &str| files.values().filter(|keys| keys.len() == 1 && keys.contains(key)).count() as i64;
    let both = files.values().filter(|keys| keys.len() == 2).count() as i64;
    assert_eq!(of("f") + of("l"), files.len() as i64, "directory {top} {when}: {names:?}");
    assert!((only("f")..=only("f") + both).contains(&of("f")), "directory {top} {when}: {names:?}");
}
