//! A store keeps what was committed, and says what is wrong with it.

use std::{
    sync::{Condvar, Mutex, atomic::AtomicU64, mpsc},
    thread,
    time::Duration,
};

use onesweep_sys::files::Time;
use redb::backends::InMemoryBackend;

use super::{taken_over::LAST_MISTAKEN, *};
use crate::{
    custom::books::Unwritten,
    identity::NodeId,
    links::Charges,
    record::Access,
    totals::{Extremes, Largest, Sums},
};

impl Store {
    /// From now on what it holds of an inode with several names can't be read.
    pub(crate) fn damage_linked(&self, key: LinkKey) {
        let damage = |transaction: &redb::WriteTransaction| {
            transaction.open_table(LINKED)?.insert((key.subvolume, key.ino), [0xff].as_slice())?;
            Ok(())
        };
        self.held.let_go([].iter());
        self.write("damage", Durability::None, damage).expect("it is written");
    }

    /// As if the disk had failed once.
    pub(crate) fn fail_once(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }
}

fn record(ino: u64, name: &str) -> Record {
    let id = NodeId { subvolume: 0, ino, generation: 1 };
    Record { id, name: name.as_bytes().into(), harvested: 3, ..Record::default() }
}

fn batch(records: impl IntoIterator<Item = (u32, Option<Record>)>) -> Batch {
    let records = records.into_iter().map(|(slot, record)| (Slot(slot), record)).collect();
    let mut batch = Batch::default();
    batch.records = records;
    batch
}

#[test]
fn what_is_written_is_there_after_opening_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let key = LinkKey { subvolume: 5, ino: 77 };
    let linked = Linked { links: 2, places: vec![Slot(1), Slot(2)], ..Linked::default() };
    let moment = Moment { seconds: 7, boot: b"one".into(), uptime: 3 };
    let facts = Facts {
        count: 9,
        file_system: b"ext4 x".into(),
        key: 5,
        generation: 6,
        moment,
        declared: 8,
        is_partial: true,
        tidied: 4,
        synced: 3,
    };
    {
        let store = Store::open(&path).expect("a store");
        let mut first = batch([(1, Some(record(1, ""))), (2, Some(record(2, "a"))), (3, Some(record(3, "b")))]);
        first.linked.insert(key, Some(linked.clone()));
        first.places.extend([((0, 63), Slot(1)), ((0, 64), Slot(2)), ((0, 100), Slot(2)), ((1, 100), Slot(3))]);
        store.commit(&first, &Facts::default(), false).expect("a commit");
        store.commit(&batch([(3, None)]), &facts, true).expect("a commit");
    }
    let store = Store::open(&path).expect("the store again");
    assert_eq!(store.facts().expect("facts"), facts);
    assert_eq!(store.record(Slot(2)).expect("it reads").as_deref(), Some(&record(2, "a")));
    assert_eq!(store.record(Slot(3)).expect("it reads"), None);
    assert_eq!(store.linked(key).expect("it reads"), Some(linked));
    let place = |subvolume, ino| store.place(subvolume, ino).expect("it reads");
    assert_eq!((place(0, 63), place(0, 64), place(0, 65)), (Some(Slot(1)), Some(Slot(2)), None));
    assert_eq!((place(0, 100), place(1, 100)), (Some(Slot(2)), Some(Slot(3))));
    let mut all = Vec::new();
    store
        .each_record(|slot, record| {
            all.push((slot.0, record.name.into_vec()));
            Ok(())
        })
        .expect("all");
    assert_eq!(all, [(1, b"".to_vec()), (2, b"a".to_vec())]);
}

#[test]
fn places_in_directories_that_are_gone_are_forgotten() {
    let store = Store::in_memory().expect("a store");
    let mut some = batch([]);
    some.places.extend((0..1000).map(|ino| ((0, ino), Slot(if ino < 640 { 1 } else { 2 }))));
    some.places.insert((0, 100), Slot(2));
    store.commit(&some, &Facts::default(), false).expect("a commit");
    store.forget_places(|slot| slot == Slot(1)).expect("they go");
    let place = |ino| store.place(0, ino).expect("it reads");
    assert_eq!([99, 100, 639, 640, 999].map(place), [None, Some(Slot(2)), None, Some(Slot(2)), Some(Slot(2))]);
    let transaction = store.database.begin_read().expect("a transaction");
    let table = transaction.open_table(PLACES).expect("a table");
    // 640 to 1000, and the block of 100.
    assert_eq!(redb::ReadableTableMetadata::len(&table).expect("its length"), 7);
}

/// Whatever was read before a write.
#[test]
fn what_was_written_last_is_read() {
    let store = Store::in_memory().expect("a store");
    let key = LinkKey { subvolume: 0, ino: 5 };
    for round in 0..4_u32 {
        let mut some = batch([(1, Some(record(round.into(), "a"))), (2, (round % 2 == 0).then(|| record(2, "b")))]);
        some.linked.insert(key, Some(Linked { links: round, ..Linked::default() }));
        store.commit(&some, &Facts::default(), false).expect("a commit");
        for _ in 0..2 {
            let found = [1, 2].map(|slot| store.record(Slot(slot)).expect("it reads").map(|record| record.id.ino));
            assert_eq!(found, [Some(round.into()), (round % 2 == 0).then_some(2)]);
            assert_eq!(store.linked(key).expect("it reads").map(|linked| linked.links), Some(round));
        }
    }
}

#[test]
fn what_has_become_empty_is_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let mut store = Store::open(&path).expect("a store");
    let many = 60_000;
    let full = batch((0..many).map(|number| (number, Some(record(number.into(), "a name of some length")))));
    store.commit(&full, &Facts::default(), true).expect("a commit");
    let kept = 100;
    store.commit(&batch((kept..many).map(|number| (number, None))), &Facts::default(), true).expect("a commit");
    let before = fs::metadata(&path).expect("a file").len();
    assert!(store.compact_if_it_pays().expect("it is made small"));
    let after = fs::metadata(&path).expect("a file").len();
    assert!(after * 3 < before, "{before} to {after}");
    assert!(!store.compact_if_it_pays().expect("it is small"));
    drop(store);
    let store = Store::open(&path).expect("the store again");
    assert_eq!(store.record(Slot(kept - 1)).expect("it reads").map(|record| record.id.ino), Some(99));
    assert_eq!(store.record(Slot(kept)).expect("it reads"), None);
}

#[test]
fn another_version_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    drop(Store::open(&path).expect("a store"));
    let database = Database::open(&path).expect("the database");
    let transaction = database.begin_write().expect("a transaction");
    transaction.open_table(FACTS).expect("a table").insert("version", [9, 0, 0, 0].as_slice()).expect("an entry");
    transaction.commit().expect("a commit");
    drop(database);
    let error = Store::open(&path).expect_err("refused");
    assert!(matches!(error, StoreError::Version { found: 9, .. }), "{error}");
    assert!(error.to_string().contains("version 9, and this program knows version 7; remove it"), "{error}");
}

/// The first of them has less of inodes with several names: these are told to be others than they were. Of the first two all has to be read
/// again.
#[test]
fn versions_before_are_taken_over() {
    VERSIONS_BEFORE.for_each(is_taken_over);
}

fn is_taken_over(version: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let key = LinkKey { subvolume: 0, ino: 77 };
    let weight = Sums { bytes: 5000, blocks: 16, files: 1, ..Sums::default() };
    let charges = Charges { weight, times: vec![(Slot(1), 1), (Slot(2), 1), (Slot(4), -1)], freed_at: Some(Slot(4)) };
    let linked = Linked { links: 2, facts: 5, places: vec![Slot(1), Slot(2)], weight, charges, ..Linked::default() };
    let store = Store::open(&path).expect("a store");
    let mut first = batch([(1, Some(record(1, "a")))]);
    first.linked.insert(key, Some(linked.clone()));
    store.commit(&first, &Facts { count: 4, ..Facts::default() }, true).expect("it is written");
    drop(store);
    let database = Database::open(&path).expect("the database");
    let transaction = database.begin_write().expect("a transaction");
    let bytes = taken_over::tests::encode(&linked);
    let (before, facts) = if version == 3 { (&bytes[..bytes.len() - 8], 0) } else { (&bytes[..], linked.facts) };
    let number = version.to_le_bytes();
    transaction.open_table(FACTS).expect("a table").insert("version", number.as_slice()).expect("an entry");
    let mut table = transaction.open_table(LINKED).expect("a table");
    // More than are taken over at a time.
    for ino in 77..10_000 {
        table.insert((0, ino), before).expect("an entry");
    }
    table.insert((0, 10_000), [0xff].as_slice()).expect("an entry");
    drop(table);
    transaction.commit().expect("a commit");
    drop(database);
    for _ in 0..2 {
        let store = Store::open(&path).expect("it is taken over");
        let kept = store.facts().expect("facts");
        assert_eq!((kept.count, kept.is_partial), (4, version <= LAST_MISTAKEN));
        assert_eq!(store.record(Slot(1)).expect("it reads"), Some(Arc::new(record(1, "a"))));
        for ino in [77, 4172, 4173, 9999] {
            let found = store.linked(LinkKey { ino, ..key }).expect("it reads");
            assert_eq!(found, Some(Linked { facts, ..linked.clone() }));
        }
        assert!(store.linked(LinkKey { ino: 10_000, ..key }).is_err(), "what couldn't be read can't be read now");
        let version = store.fact("version").expect("it reads");
        assert_eq!(version, Some(VERSION.to_le_bytes().to_vec()), "who knows the one before alone refuses it");
    }
}

/// Who made it was killed in the middle.
#[test]
fn half_a_store_is_made_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    for remains in [&[][..], &[7; 5000]] {
        fs::write(folder.path().join("store.new"), remains).expect("a file");
        drop(Store::open(&path).expect("a store"));
        assert!(!folder.path().join("store.new").exists());
        fs::remove_file(&path).expect("it goes");
    }
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    std::fs::write(&path, vec![7; 20_000]).expect("a file");
    let error = Store::open(&path).expect_err("refused");
    assert!(error.to_string().contains("cannot open the store"), "{error}");
    assert_eq!(std::fs::read(&path).expect("a file"), vec![7; 20_000], "it is left as it was");
}

/// Of whatever was written there by somebody else, or by the disk.
#[test]
fn a_damaged_store_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, kept) = (folder.path().join("store"), folder.path().join("store.damaged"));
    for is_cut in [false, true] {
        let store = Store::open(&path).expect("a store");
        store.commit(&batch([(1, Some(record(1, "a")))]), &Facts::default(), true).expect("it is written");
        drop(store);
        let mut bytes = fs::read(&path).expect("the file");
        match is_cut {
            true => bytes.truncate(bytes.len() / 2),
            false => bytes[..4096].fill(0x5a),
        }
        fs::write(&path, &bytes).expect("damage");
        let error = Store::open(&path).and_then(|store| store.facts()).expect_err("it is damaged");
        assert!(error.damage().is_some(), "{error}");
        let (store, aside) = Store::open_or_begin_anew(&path).expect("an empty one");
        assert_eq!(store.directories().expect("a number"), 0);
        let told = aside.expect("it was set aside").to_string();
        assert!(told.contains("was damaged") && told.contains("store.damaged, and all is harvested anew"), "{told}");
        assert_eq!(fs::read(&kept).expect("it is kept"), bytes);
    }
    // What can't be read for another reason stays where it is.
    fs::remove_file(&path).expect("it goes");
    fs::create_dir(&path).expect("a directory in its place");
    assert!(Store::open_or_begin_anew(&path).expect_err("no file").damage().is_none());
    assert!(path.is_dir());
}

/// Storage on which writing fails from the n-th write on.
#[derive(Debug)]
struct Failing {
    memory: Arc<InMemoryBackend>,
    left: AtomicU64,
}

impl Failing {
    fn take(&self) -> io::Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.take()?;
        self.memory.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.take()?;
        self.memory.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.take()?;
        self.memory.write(offset, data)
    }
}

/// The disk is full at the k-th write, for every k: the state afterwards is the one before the batch, or the one after it.
#[test]
fn a_full_disk_leaves_one_state_or_the_other() {
    let (facts, mut refused) = (Facts::default(), 0);
    for writes in 0.. {
        let memory = Arc::new(InMemoryBackend::new());
        let plenty = Failing { memory: Arc::clone(&memory), left: AtomicU64::new(u64::MAX) };
        let store = Store::with_backend(plenty, "memory").expect("a store");
        store
            .commit(&batch([(1, Some(record(1, "before"))), (2, Some(record(2, "before")))]), &facts, true)
            .expect("room");
        drop(store);
        let scarce = Failing { memory: Arc::clone(&memory), left: AtomicU64::new(writes) };
        let done = Store::with_backend(scarce, "memory")
            .and_then(|store| store.commit(&batch([(1, Some(record(1, "after"))), (2, None)]), &facts, true));
        if let Err(error) = &done {
            refused += 1;
            assert!(matches!(error, StoreError::Database { .. }), "{error}");
        }
        let plenty = Failing { memory, left: AtomicU64::new(u64::MAX) };
        let store = Store::with_backend(plenty, "memory").expect("the store again");
        let names = [1, 2].map(|slot| store.record(Slot(slot)).expect("it reads").map(|record| record.name.to_vec()));
        let before = [Some(b"before".to_vec()), Some(b"before".to_vec())];
        let after = [Some(b"after".to_vec()), None];
        assert!(names == before || names == after, "{writes} writes: {names:?}");
        if done.is_ok() {
            assert_eq!(names, after, "{writes} writes");
            break;
        }
    }
    assert!(refused > 3, "{refused}");
}

/// Storage whose disk holds still when its file is to grow.
#[derive(Debug, Default)]
struct Still {
    memory: InMemoryBackend,
    disk: Arc<StillDisk>,
}

#[derive(Debug, Default)]
struct StillDisk {
    state: Mutex<Stillness>,
    changes: Condvar,
}

#[derive(Debug, Default)]
struct Stillness {
    holds: bool,
    is_waited_for: bool,
}

impl StillDisk {
    fn hold(&self, holds: bool) {
        self.state.lock().expect("no panic").holds = holds;
        self.changes.notify_all();
    }

    fn wait_until_waited_for(&self) {
        let state = self.state.lock().expect("no panic");
        drop(self.changes.wait_while(state, |state| !state.is_waited_for).expect("no panic"));
    }
}

impl StorageBackend for Still {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock().expect("no panic");
        state.is_waited_for = state.holds;
        self.disk.changes.notify_all();
        drop(self.disk.changes.wait_while(state, |state| state.holds).expect("no panic"));
        self.memory.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.memory.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.memory.write(offset, data)
    }
}

/// As of a file system that is frozen while a file on it grows.
#[test]
fn who_reads_does_not_wait_for_a_file_that_grows() {
    let (still, facts) = (Still::default(), Facts::default());
    let disk = Arc::clone(&still.disk);
    let store = Store::with_backend(still, "memory").expect("a store");
    store
        .commit(&batch((1..100).map(|slot| (slot, Some(record(u64::from(slot), "before"))))), &facts, true)
        .expect("room");
    disk.hold(true);
    let large = |slot| Record { links: vec![1 << 40; 1000], ..record(slot, "after") };
    store.stage(batch((100..3000).map(|slot| (slot, Some(large(u64::from(slot)))))), Unwritten::default(), facts);
    thread::scope(|scope| {
        let writing = scope.spawn(|| store.write_staged());
        disk.wait_until_waited_for();
        let (read, came) = mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            read.send([50, 200].map(|slot| store.record(Slot(slot)).map(|it| it.map(|it| it.name.to_vec()))))
        });
        let came = came.recv_timeout(Duration::from_secs(60));
        let is_written = writing.is_finished();
        // Or a failure would wait for it.
        disk.hold(false);
        let [before, after] = came.expect("who reads waits for the disk");
        assert_eq!(before.expect("it reads"), Some(b"before".to_vec()));
        assert_eq!(after.expect("it reads"), Some(b"after".to_vec()));
        assert!(!is_written, "the disk held still");
        writing.join().expect("no panic").expect("it is written");
    });
}

/// With its tables' own room, and with the index of ten files in each.
#[test]
fn a_directory_takes_200_bytes_of_the_file_at_most() {
    const DIRECTORIES: u32 = 50_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let mut store = Store::open(&path).expect("a store");
    // As a harvest finds them: in portions, each in an order of its own.
    for portion in 0..DIRECTORIES / 5000 {
        let mut some = batch([]);
        for number in (portion..DIRECTORIES).step_by(DIRECTORIES as usize / 5000) {
            let ino = 1_000_000 + u64::from(number) * 11;
            let largest = Some(Largest { bytes: 81_920, ino: ino + 3, directory: number });
            let newest = Some(Time { secs: 1_790_000_000 + i64::from(number), nanos: 123_456_789 });
            let mut record = Record {
                id: NodeId { subvolume: 0, ino, generation: number.wrapping_mul(2_654_435_769) },
                parent: Some(Slot(number / 10)),
                access: Access { mode: 0o40_755, uid: 1000, gid: 1000, acl: 0 },
                harvested: portion + 1,
                harvested_at: 1_790_000_000,
                stamp: u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                blocks: 8,
                ..record(ino, &format!("project-{number}"))
            };
            record.own.sums = Sums { files: 10, bytes: 409_600, blocks: 808, freed_blocks: 808, ..Sums::default() };
            (record.own.sums.directories, record.own.sums.directory_bytes) = (1, 4096);
            record.own.extremes = Extremes { newest, largest };
            record.subtree = record.alone();
            // Every tenth holds some.
            record.subtree.sums.files += i64::from(number % 10 == 0) * 1000;
            some.records.insert(Slot(number), Some(record));
            some.places.extend((1..=10).map(|file| ((0, ino + file), Slot(number))));
        }
        store.commit(&some, &Facts::default(), portion % 2 == 0).expect("a commit");
    }
    store.compact().expect("it is made smaller");
    drop(store);
    let bytes = std::fs::metadata(&path).expect("the file").len() / u64::from(DIRECTORIES);
    assert!(bytes <= 200, "{bytes} bytes a directory");
}

/// Rows of 64 numbers, each with as many files, which lie in a directory far from that of the row before.
fn bytes_a_file(files: u64) -> f64 {
    const ROWS: u64 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(&folder.path().join("store")).expect("a store");
    let mut some = Batch::default();
    for row in 0..ROWS {
        let slot = Slot((row as u32).wrapping_mul(2_654_435_769) >> 5);
        some.places.extend((0..files).map(|file| ((0, row * 64 + file), slot)));
    }
    store.commit(&some, &Facts::default(), true).expect("a commit");
    assert_eq!(store.places(), ROWS * files);
    store.places_bytes().expect("they are counted") as f64 / store.places() as f64
}

#[test]
fn a_file_takes_five_bytes_where_a_row_of_numbers_has_ten() {
    for files in [10, 20, 64] {
        let bytes = bytes_a_file(files);
        assert!(bytes <= 5.0, "{bytes} bytes a file, of {files} in a row");
    }
    let bytes = bytes_a_file(1);
    assert!((5.0..60.0).contains(&bytes), "a row has a key and its share of a page: {bytes}");
}

#[test]
fn a_million_names_would_be_short() {
    let store = Store::with_backend(InMemoryBackend::new(), "memory").expect("a store");
    let mut some = batch([]);
    for number in 0..1000_u32 {
        let mut record = record(number.into(), "directory");
        record.own.sums = Sums { files: 10, bytes: 40_960, blocks: 88, directories: 1, ..Sums::default() };
        record.subtree = record.alone();
        some.records.insert(Slot(number), Some(record));
    }
    store.commit(&some, &Facts::default(), true).expect("a commit");
    let (bytes, directories) = store.size().expect("its size");
    assert_eq!(directories, 1000);
    assert!(bytes / directories <= 60, "{bytes}");
}

/// Its file system is told apart by more than before. One that is of another file system stays what it is.
#[test]
fn what_a_store_says_it_is_of_can_be_told_otherwise() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let facts = Facts { count: 4, file_system: b"xfs 0".into(), tidied: 3, ..Facts::default() };
    let store = Store::open(&path).expect("a store");
    store.commit(&batch([(1, Some(record(1, "a")))]), &facts, true).expect("it is written");
    for (before, now, told) in [("xfs 1", "xfs 2", "xfs 0"), ("xfs 0", "xfs 77", "xfs 77")] {
        store.rename_file_system(before.as_bytes(), now.as_bytes()).expect("it is written");
        assert_eq!(store.facts().expect("facts"), Facts { file_system: told.into(), ..facts.clone() });
    }
    drop(store);
    let store = Store::open(&path).expect("the store");
    assert_eq!(store.facts().expect("facts").file_system, b"xfs 77");
    assert_eq!(store.record(Slot(1)).expect("it reads"), Some(Arc::new(record(1, "a"))));
}
