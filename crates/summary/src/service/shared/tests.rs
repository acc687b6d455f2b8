//! For what questions wait: those of who doesn't see all for what that one sees and no more, and none for the disk of the store.

use std::{collections::BTreeSet, io, ops::RangeInclusive, path::Path, sync::Condvar};

use onesweep_sys::fanotify::Happened;
use redb::{StorageBackend, backends::InMemoryBackend};

use super::*;
use crate::{
    access::Asker,
    reading::{LinkedName, Reading, Remounted},
    record::{Access, Record},
    store::Store,
    tracker::{Change, Drained},
};

const ROOT: u64 = 1;
const SHOWN: RangeInclusive<u64> = 2..=300;
const CLOSED: u64 = 1000;
const HIDDEN: RangeInclusive<u64> = 1001..=1300;

fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 1 }
}

fn access(ino: u64) -> Access {
    let mode = if ino == CLOSED { 0o40_700 } else { 0o40_755 };
    Access { mode, uid: 0, gid: 0, acl: 0 }
}

/// The root holds what is shown and one that is closed, which holds what is hidden.
#[derive(Debug, Default)]
struct Homes {
    read: Mutex<BTreeSet<u64>>,
    told: Mutex<Vec<Change>>,
    /// Nothing can be heard of what changes.
    is_silent: AtomicBool,
    /// What it tells of mounts next.
    remounted: Mutex<Remounted>,
}

impl Homes {
    fn change_all(&self) {
        self.happen(Happened::CREATE);
    }

    fn happen(&self, happened: Happened) {
        let all = SHOWN.chain(HIDDEN).map(id);
        lock(&self.told).extend(all.map(|id| Change { directory: Some(id), object: None, happened }));
    }

    /// How many of these were read since this was asked last.
    fn take_read(&self) -> [usize; 2] {
        let read = std::mem::take(&mut *lock(&self.read));
        [SHOWN, HIDDEN].map(|range| read.range(range).count())
    }
}

impl Directories for Homes {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        lock(&self.read).insert(directory.ino);
        let mut reading = Reading { access: access(directory.ino), ..Reading::default() };
        (reading.own.sums.directories, reading.own.sums.closed) = (1, i64::from(directory.ino == CLOSED));
        let below: Vec<u64> = match directory.ino {
            ROOT => SHOWN.chain([CLOSED]).collect(),
            CLOSED => HIDDEN.collect(),
            _ => Vec::new(),
        };
        reading.directories = below.into_iter().map(|ino| (id(ino), ino.to_string().into_bytes().into())).collect();
        Ok(reading)
    }

    fn look(&self, _: NodeId) -> io::Result<LinkedName> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn settling_seconds(&self) -> i64 {
        0
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        Ok(id(if HIDDEN.contains(&directory.ino) { CLOSED } else { ROOT }))
    }

    fn remounted(&self) -> Remounted {
        let mut remounted = lock(&self.remounted);
        if remounted.is_partial { remounted.clone() } else { std::mem::take(&mut *remounted) }
    }
}

struct Told(Arc<Homes>);

impl Tracker for Told {
    fn drain(&self) -> io::Result<Drained> {
        if self.0.is_silent.load(Ordering::Relaxed) {
            return Err(io::Error::other("silence"));
        }
        Ok(Drained { changes: std::mem::take(&mut *lock(&self.0.told)), ..Drained::default() })
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, _: NodeId, _: bool) {}

    fn start_anew(&self) {}
}

/// Somebody whom nothing belongs to, and how often was looked who may look into a directory.
#[derive(Clone, Debug)]
struct Other(Asker, Arc<AtomicU64>);

impl Other {
    fn new() -> Other {
        Other(Asker::User { uid: 1000, groups: vec![1000] }, Arc::default())
    }
}

impl Viewer for Other {
    fn may_list(&self, _: NodeId, access: &Access) -> bool {
        self.0.may_list(access, || None::<Vec<u8>>)
    }

    fn access_now(&self, id: NodeId) -> Option<Access> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Some(access(id.ino))
    }

    fn parent_now(&self, _: NodeId) -> Option<NodeId> {
        None
    }

    fn is_as_stored(&self, _: NodeId, _: &Record) -> bool {
        true
    }

    fn staying(&self) -> Staying {
        Staying { asker: self.0.clone(), viewer: Box::new(self.clone()) }
    }
}

#[test]
fn when_a_question_is_answered_tells_nothing_of_what_is_hidden() {
    let homes = Arc::<Homes>::default();
    let (store, told) = (Store::in_memory().expect("a store"), Told(Arc::clone(&homes)));
    let tracked = Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries");
    let shared = Arc::new(Shared::new(tracked));
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    let (shown, hidden) = (SHOWN.count(), HIDDEN.count());
    assert_eq!(homes.take_read(), [shown, hidden]);
    let other = Other::new();
    for freshness in [Freshness::Exact, Freshness::Synced] {
        homes.change_all();
        let mut patience = Patience::of(Some(Duration::from_secs(100_000)));
        let how = (false, Some(&other as &dyn Viewer));
        let (answer, held) = shared.query_within(id(ROOT), freshness, how, &mut patience).expect("an answer");
        assert!(answer.is_exact && answer.late.is_none(), "{answer:?}");
        drop(held);
        assert_eq!(homes.take_read(), [shown, 0], "{freshness:?}");
        // What was begun for that one reads no more when that one has gone.
        homes.change_all();
        let late = shared.query_within(id(ROOT), freshness, how, &mut Patience::of(Some(Duration::ZERO)));
        assert_eq!(late.expect("what is stored").0.late, Some(0), "how much is left isn't told");
        while Arc::strong_count(&shared) > 1 {
            thread::yield_now();
        }
        assert_eq!(homes.take_read(), [shown, 0], "{freshness:?}");
        // Who sees all has a harvest of all.
        let mut patience = Patience::of(Some(Duration::from_secs(100_000)));
        shared.answer_within(id(ROOT), freshness, &mut patience).expect("an answer");
        assert_eq!(homes.take_read(), [0, hidden], "{freshness:?}");
    }
}

/// A look would take as long as reading, and nobody is let in between.
#[test]
fn what_is_read_in_any_case_is_not_looked_at_before() {
    let homes = Arc::<Homes>::default();
    let (store, told) = (Store::in_memory().expect("a store"), Told(Arc::clone(&homes)));
    let tracked = Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries");
    let shared = Arc::new(Shared::new(tracked));
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    assert_eq!(homes.take_read(), [SHOWN.count(), HIDDEN.count()]);
    homes.happen(Happened::ATTRIB | Happened::ON_DIRECTORY);
    let other = Other::new();
    let answer = shared.query(id(ROOT), Freshness::Exact, false, Some(&other)).expect("an answer").0;
    assert!(answer.is_exact, "{answer:?}");
    assert_eq!((homes.take_read(), other.1.load(Ordering::SeqCst)), ([SHOWN.count(), 0], 0));
}

/// However many harvests go on by themselves.
#[test]
fn who_set_no_time_is_not_told_that_it_is_up() {
    let homes = Arc::<Homes>::default();
    let (store, told) = (Store::in_memory().expect("a store"), Told(Arc::clone(&homes)));
    let tracked = Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries");
    let shared = Arc::new(Shared::new(tracked));
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    let mut going = Vec::new();
    while let Some(one) = shared.going.join((id(CLOSED), Freshness::Synced, None)) {
        going.push(one);
    }
    homes.change_all();
    let mut tell = |_: Progress| {};
    let mut patience = Patience { tell: Some(&mut tell), ..Patience::default() };
    let answer = shared.answer_within(id(ROOT), Freshness::Exact, &mut patience).expect("an answer");
    assert!(answer.is_exact && answer.late.is_none(), "{answer:?}");
    homes.change_all();
    let late = shared.answer_within(id(ROOT), Freshness::Exact, &mut Patience::of(Some(Duration::ZERO)));
    assert!(late.expect("what is stored").late.is_some());
}

/// As a file system is by whose reload it isn't tracked any more, in the middle of its first harvest.
#[test]
fn who_is_left_before_all_is_counted_keeps_no_part_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let open = |homes: &Arc<Homes>| {
        let (store, told) = (Store::open(&path).expect("a store"), Told(Arc::clone(homes)));
        Summaries::open(store, (Arc::clone(homes), told), id(ROOT), b"homes").expect("summaries")
    };
    let homes = Arc::<Homes>::default();
    let shared = Shared::new(open(&homes));
    {
        let mut tracked = shared.alone();
        let (root, mut asking, asked) = (tracked.root(), Asking::default(), Cell::new(0));
        let soon = || asked.replace(asked.get() + 1) > 0;
        assert_eq!(tracked.settle_more(root, &mut asking, &soon).expect("a portion"), None);
    }
    let [shown, hidden] = homes.take_read();
    assert!(shown + hidden > 0 && shown + hidden < SHOWN.count() + HIDDEN.count());
    for waits in [false, true] {
        assert!(!shared.close(waits).expect("nothing to do"));
    }
    drop(shared);
    let shared = Shared::new(open(&homes));
    assert!(!shared.is_counted(), "a part was taken for all");
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    assert!(shared.close(true).expect("all is stored"));
    drop(shared);
    assert!(Shared::new(open(&homes)).is_counted());
}

/// As little as what is there of one that is begun anew, for the disk has damaged it.
#[test]
fn what_a_store_has_that_took_the_place_of_a_damaged_one_is_not_told_as_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let homes = Arc::<Homes>::default();
    let (store, told) = (Store::open(&path).expect("a store"), Told(Arc::clone(&homes)));
    let tracked = Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries");
    let shared = Arc::new(Shared::new(tracked));
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    let break_it = || {
        shared.commit().expect("it is written");
        let mut damaged = std::fs::read(&path).expect("a store");
        damaged[..4096].fill(0x5a);
        // The one that is open writes no more to it.
        std::fs::remove_file(&path).expect("it goes");
        std::fs::write(&path, &damaged).expect("damage");
        shared.shared().ledger().store().fail_once();
    };
    break_it();
    assert!(shared.is_counted(), "nobody knows yet");
    {
        let mut tracked = shared.alone();
        let asked = Cell::new(0);
        let soon = || asked.replace(asked.get() + 1) > 0;
        let answer = tracked.query_within(id(ROOT), Freshness::Exact, &mut Asking::default(), &soon);
        assert!(answer.expect("a portion").is_none());
        assert!(tracked.take_set_aside().is_some());
    }
    assert!(!shared.is_counted(), "a part was taken for all");
    let late = shared.answer_within(id(ROOT), Freshness::Exact, &mut Patience::of(Some(Duration::ZERO)));
    assert!(matches!(late, Err(SummaryError::Late)) || shared.is_counted(), "{late:?}");
    let answer = shared.answer(id(ROOT), Freshness::Exact).expect("an answer");
    assert!(answer.is_exact && shared.is_counted());
    // And by itself, where nobody asks.
    break_it();
    shared.commit().expect("it is begun anew");
    assert!(!shared.is_counted());
    while shared.tend(i64::MAX, Budget { directories: 0 }).expect("it is read").0 != Tended::Nothing {}
    assert!(shared.is_counted());
}

/// What was written on the way isn't all, as little as what is left where it failed.
#[test]
fn what_a_first_harvest_has_left_unfinished_is_not_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let homes = Arc::<Homes>::default();
    let open = || {
        let (store, told) = (Store::open(&path).expect("a store"), Told(Arc::clone(&homes)));
        Shared::new(Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries"))
    };
    let shared = open();
    {
        let mut tracked = shared.alone();
        let (root, mut asking, asked) = (tracked.root(), Asking::default(), Cell::new(0));
        let soon = || asked.replace(asked.get() + 1) > 0;
        assert_eq!(tracked.settle_more(root, &mut asking, &soon).expect("a portion"), None);
        tracked.commit(true).expect("it is written");
    }
    drop(shared);
    let shared = open();
    assert!(!shared.is_counted(), "a part was taken for all");
    homes.is_silent.store(true, Ordering::Relaxed);
    shared.catch_up(|_, done| assert!(done.is_err())).expect("it is written");
    assert!(shared.is_ready() && !shared.is_counted() && !shared.is_counted_by(None), "a part was taken for all");
    assert!(!shared.close(true).expect("nothing to do"));
    homes.is_silent.store(false, Ordering::Relaxed);
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    assert!(shared.is_counted_by(None));
}

/// A store in memory, on which nothing gets durable for as long as it is shut.
#[derive(Debug, Default)]
struct Gate {
    memory: InMemoryBackend,
    door: Arc<Door>,
}

#[derive(Debug, Default)]
struct Door {
    is_shut: Mutex<bool>,
    opens: Condvar,
}

impl Door {
    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().expect("nobody has panicked") = is_shut;
        self.opens.notify_all();
    }
}

impl StorageBackend for Gate {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let is_shut = self.door.is_shut.lock().expect("nobody has panicked");
        drop(self.door.opens.wait_while(is_shut, |is_shut| *is_shut).expect("nobody has panicked"));
        self.memory.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.memory.write(offset, data)
    }
}

/// Who waits for a first harvest doesn't wait for the disk of the store as well.
#[test]
fn who_asks_is_answered_before_what_is_known_is_durable() {
    let homes = Arc::<Homes>::default();
    let gate = Gate::default();
    let door = Arc::clone(&gate.door);
    let told = Told(Arc::clone(&homes));
    let store = Store::with_backend(gate, "behind a gate").expect("a store");
    let shared = Shared::new(Summaries::open(store, (homes, told), id(ROOT), b"homes").expect("summaries"));
    door.shut(true);
    thread::scope(|scope| {
        let catching_up = scope.spawn(|| shared.catch_up(|_, done| done.expect("it is known")));
        let is_counted = shared.is_counted_by(Instant::now().checked_add(Duration::from_secs(600)));
        // Or a failure would wait for it.
        let answer = if is_counted { Some(shared.answer(id(ROOT), Freshness::Exact)) } else { None };
        let is_stored = catching_up.is_finished();
        door.shut(false);
        assert!(answer.expect("it waits for the store").expect("an answer").is_exact && !is_stored);
        catching_up.join().expect("it ends").expect("it is written");
    });
}

/// A disk with a store on it, which may be full.
#[derive(Debug, Default)]
struct Disk {
    memory: InMemoryBackend,
    is_full: Arc<AtomicBool>,
}

impl Disk {
    /// With what that file holds.
    fn with(path: &Path) -> Disk {
        let (disk, bytes) = (Disk::default(), std::fs::read(path).expect("a store"));
        disk.memory.set_len(bytes.len() as u64).expect("room");
        disk.memory.write(0, &bytes).expect("room");
        disk
    }

    fn room(&self) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.memory.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        self.memory.write(offset, data)
    }
}

/// What is begun again with a store whose disk is full by then; the store is the file again when it has failed.
fn begun_on_a_full_disk(homes: &Arc<Homes>, path: &Path) -> Shared<Arc<Homes>, Told> {
    let disk = Disk::with(path);
    let is_full = Arc::clone(&disk.is_full);
    let store = Store::with_backend(disk, path.to_str().expect("a text")).expect("a store");
    let tracked = Summaries::open(store, (Arc::clone(homes), Told(Arc::clone(homes))), id(ROOT), b"homes");
    is_full.store(true, Ordering::Relaxed);
    Shared::new(tracked.expect("summaries"))
}

fn is_failed<T>(ended: &Result<T, SummaryError>) -> bool {
    matches!(ended, Err(SummaryError::Store(StoreError::Database { .. })))
}

/// What was stored before is there. So it is no end, as it is none while a server runs.
#[test]
fn what_a_later_start_cannot_write_is_written_when_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let homes = Arc::<Homes>::default();
    let open = || {
        let (store, told) = (Store::open(&path).expect("a store"), Told(Arc::clone(&homes)));
        Shared::new(Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries"))
    };
    let shared = open();
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    assert!(shared.close(true).expect("all is stored"));
    drop(shared);
    let shared = begun_on_a_full_disk(&homes, &path);
    let written = shared.catch_up(|_, done| done.expect("it is known"));
    assert!(is_failed(&written) && shared.goes_on_after(&written.expect_err("it is full")));
    assert!(shared.shared().is_broken() && shared.shared().is_noting());
    // As by a background; there is room by now.
    homes.take_read();
    shared.commit().expect("it is opened again, and written");
    assert!(shared.answer(id(ROOT), Freshness::Exact).expect("an answer").is_exact);
    assert_eq!(homes.take_read(), [SHOWN.count(), HIDDEN.count()], "what wasn't durable is read once more");
    assert!(shared.close(true).expect("all is stored"));
    drop(shared);
    assert!(open().is_counted());
}

/// Before it was found what has changed.
#[test]
fn a_store_that_fails_while_a_later_start_looks_what_has_changed_is_no_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, away) = (folder.path().join("store"), folder.path().join("away"));
    let homes = Arc::<Homes>::default();
    let open = || {
        let (store, told) = (Store::open(&path).expect("a store"), Told(Arc::clone(&homes)));
        Shared::new(Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries"))
    };
    let shared = open();
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    assert!(shared.close(true).expect("all is stored"));
    drop(shared);
    let shared = open();
    std::fs::rename(&path, &away).expect("it moves");
    std::fs::create_dir(&path).expect("a folder");
    shared.shared().ledger().store().fail_once();
    let mut goes_on = None;
    shared
        .catch_up(|_, done| goes_on = Some(is_failed(&done) && shared.goes_on_after(&done.expect_err("it fails"))))
        .expect("nothing to write");
    assert_eq!(goes_on, Some(true));
    assert!(shared.is_ready() && shared.shared().is_noting());
    std::fs::remove_dir(&path).expect("it goes");
    std::fs::rename(&away, &path).expect("it moves");
    // Who asks too soon is told to wait.
    let answer = loop {
        match shared.answer(id(ROOT), Freshness::Exact) {
            Err(SummaryError::Store(StoreError::Waiting { .. })) => thread::sleep(LOOK_EVERY),
            answer => break answer,
        }
    };
    assert!(answer.expect("an answer").is_exact);
}

/// Nothing is durable then: it would be read again and again.
#[test]
fn a_first_harvest_that_cannot_be_written_is_the_end() {
    let homes = Arc::<Homes>::default();
    let (disk, told) = (Disk::default(), Told(Arc::clone(&homes)));
    let is_full = Arc::clone(&disk.is_full);
    let store = Store::with_backend(disk, "full").expect("a store");
    let shared = Shared::new(Summaries::open(store, (homes, told), id(ROOT), b"homes").expect("summaries"));
    is_full.store(true, Ordering::Relaxed);
    let written = shared.catch_up(|_, done| done.expect("it is known"));
    assert!(is_failed(&written) && !shared.goes_on_after(&written.expect_err("it is full")));
}

/// Where something is mounted couldn't be looked up for the first question.
#[test]
fn no_answer_is_exact_while_it_is_not_known_what_is_mounted() {
    let homes = Arc::<Homes>::default();
    let (store, told) = (Store::in_memory().expect("a store"), Told(Arc::clone(&homes)));
    let tracked = Summaries::open(store, (Arc::clone(&homes), told), id(ROOT), b"homes").expect("summaries");
    let shared = Shared::new(tracked);
    shared.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    homes.take_read();
    *lock(&homes.remounted) = Remounted { is_partial: true, ..Remounted::default() };
    assert!(!shared.answer(id(ROOT), Freshness::Exact).expect("an answer").is_exact);
    *lock(&homes.remounted) = Remounted { directories: vec![id(*SHOWN.start())], is_partial: false };
    assert!(shared.answer(id(ROOT), Freshness::Exact).expect("an answer").is_exact);
    assert_eq!(homes.take_read(), [1, 0]);
}
