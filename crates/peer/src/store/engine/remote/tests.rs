//! An engine that fails, hangs or lies can only fail to help.

use std::{
    collections::HashMap,
    sync::{Barrier, atomic::AtomicU32},
};

use super::{super::Kept, *};
use crate::store::conformance::{self, block, domain, got};

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(60);
/// Short, where it is known that nothing comes.
const SHORT: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    Fails,
    Panics,
    Hangs,
}

/// An engine in memory with two parts, each in a mood.
struct Shelf {
    blocks: Mutex<HashMap<Hash, Vec<u8>>>,
    moods: Mutex<[Mood; 2]>,
    changed: Condvar,
    calls: AtomicU32,
    /// So many reads have to come at the same time.
    together: Option<Barrier>,
}

impl Shelf {
    fn new(together: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            blocks: Mutex::default(),
            moods: Mutex::new([Mood::Well; 2]),
            changed: Condvar::new(),
            calls: AtomicU32::new(0),
            together: together.map(Barrier::new),
        })
    }

    fn set(&self, moods: [Mood; 2]) {
        *self.moods.lock().unwrap() = moods;
        self.changed.notify_all();
    }

    fn suffer(&self, hash: &Hash) -> Result<(), EngineError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let at = part(hash) as usize;
        let mut moods = self.moods.lock().unwrap();
        while moods[at] == Mood::Hangs {
            moods = self.changed.wait(moods).unwrap();
        }
        let mood = moods[at];
        drop(moods);
        match mood {
            Mood::Fails => Err(EngineError::new("it is broken")),
            Mood::Panics => panic!("a fault in the engine"),
            _ => Ok(()),
        }
    }

    fn plant(&self, hash: &Hash, bytes: &[u8]) {
        self.blocks.lock().unwrap().insert(*hash, bytes.to_vec());
    }

    fn len(&self) -> usize {
        self.blocks.lock().unwrap().len()
    }
}

fn part(hash: &Hash) -> u64 {
    hash.prefix() % 2
}

impl Engine for Arc<Shelf> {
    fn part(&self, hash: &Hash) -> u64 {
        part(hash)
    }

    fn get(&self, hash: &Hash) -> Result<Option<Vec<u8>>, EngineError> {
        self.suffer(hash)?;
        if let Some(together) = &self.together {
            together.wait();
        }
        Ok(self.blocks.lock().unwrap().get(hash).cloned())
    }

    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, EngineError> {
        self.suffer(hash)?;
        let before = self.blocks.lock().unwrap().insert(*hash, bytes.to_vec());
        Ok(if before.is_none() { Put::New } else { Put::Known })
    }

    fn has(&self, hashes: &[Hash]) -> Result<Vec<bool>, EngineError> {
        self.suffer(&hashes[0])?;
        assert!(hashes.iter().all(|hash| part(hash) == part(&hashes[0])));
        let blocks = self.blocks.lock().unwrap();
        Ok(hashes.iter().map(|hash| blocks.contains_key(hash)).collect())
    }

    fn remove(&self, hash: &Hash) -> Result<(), EngineError> {
        self.suffer(hash)?;
        self.blocks.lock().unwrap().remove(hash);
        Ok(())
    }

    fn list(&self, each: &mut dyn FnMut(Kept) -> bool) -> Result<(), EngineError> {
        let blocks = self.blocks.lock().unwrap();
        for (hash, bytes) in blocks.iter() {
            // Those with a smaller first byte are older.
            let written = i64::from(bytes[0]);
            if !each(Kept { hash: *hash, bytes: bytes.len() as u32, written }) {
                break;
            }
        }
        Ok(())
    }

    fn lookup_most(&self) -> usize {
        7
    }
}

fn settings(timeout: Duration) -> RemoteSettings {
    RemoteSettings {
        domain: domain(),
        name: "the shelf".to_owned(),
        timeout,
        workers: 4,
        unwritten_max: 64 << 20,
        bytes_max: None,
        tell: Arc::new(|_| {}),
    }
}

fn remote(shelf: &Arc<Shelf>, timeout: Duration) -> Remote {
    Remote::start(Box::new(Arc::clone(shelf)), settings(timeout)).unwrap()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn figure_of(store: &Remote, name: &str) -> u64 {
    store.figures().into_iter().find(|figure| figure.name == name).unwrap().value
}

/// Blocks of one part.
fn blocks_of(wanted: u64) -> impl Iterator<Item = (Hash, Vec<u8>)> {
    (0..).map(|n| block(n, 4096)).filter(move |(hash, _)| part(hash) == wanted)
}

#[test]
fn it_is_a_store() {
    conformance::all(&|| Box::new(remote(&Shelf::new(None), LONG)));
}

#[test]
fn wrong_bytes_are_refused_removed_and_can_be_put_again() {
    let shelf = Shelf::new(None);
    let store = remote(&shelf, LONG);
    let (hash, bytes) = block(1, 4096);
    let wrongs = [block(2, 4096).1, Vec::new(), vec![0; BLOCK_BYTES_MAX + 1], bytes[..4095].to_vec()];
    for (at, wrong) in wrongs.iter().enumerate() {
        shelf.plant(&hash, wrong);
        // After three in a row it isn't asked for a while.
        eventually("it was asked", || {
            assert_eq!(got(&store, &hash), None);
            figure_of(&store, "engine_wrong") == at as u64 + 1
        });
        eventually("it was removed", || shelf.len() == 0);
    }
    eventually("it is asked again", || store.put(&hash, &bytes).is_ok());
    eventually("it is written", || shelf.len() == 1);
    assert_eq!(got(&remote(&shelf, LONG), &hash), Some(bytes));
}

#[test]
fn an_engine_that_hangs_is_left_alone_after_a_few_and_asked_again_later() {
    let shelf = Shelf::new(None);
    let store = remote(&shelf, SHORT);
    let blocks: Vec<_> = blocks_of(0).take(20).collect();
    blocks.iter().for_each(|(hash, bytes)| shelf.plant(hash, bytes));
    shelf.set([Mood::Hangs; 2]);
    // Each has its own request, as long as it is asked.
    for (hash, _) in &blocks {
        assert_eq!(got(&store, hash), None);
    }
    assert_eq!(figure_of(&store, "engine_shut"), 1);
    assert!(figure_of(&store, "engine_late") >= 3 && figure_of(&store, "engine_skipped") > 0);
    let hashes: Vec<Hash> = blocks.iter().map(|(hash, _)| *hash).collect();
    assert_eq!(store.has_all(&hashes), [false; 20]);
    let (hash, bytes) = &blocks[0];
    shelf.set([Mood::Well; 2]);
    eventually("it is asked again", || got(&store, hash).as_ref() == Some(bytes));
    // What had hung so long counts for nothing.
    eventually("a new request was answered", || {
        let again = got(&store, hash);
        assert!(again.as_ref().is_none_or(|again| again == bytes));
        figure_of(&store, "engine_shut") == 0
    });
}

#[test]
fn a_part_that_fails_keeps_nobody_from_the_other() {
    for mood in [Mood::Fails, Mood::Panics] {
        let shelf = Shelf::new(None);
        let store = remote(&shelf, LONG);
        let bad: Vec<_> = blocks_of(0).take(20).collect();
        let good: Vec<_> = blocks_of(1).take(20).collect();
        bad.iter().chain(&good).for_each(|(hash, bytes)| shelf.plant(hash, bytes));
        shelf.set([mood, Mood::Well]);
        for ((bad, _), (good, bytes)) in bad.iter().zip(&good) {
            assert_eq!(got(&store, bad), None);
            assert_eq!(got(&store, good).as_ref(), Some(bytes));
        }
        assert!(figure_of(&store, "engine_failures") >= 3);
        assert_eq!(figure_of(&store, "engine_shut"), 1);
        let asked: Vec<Hash> = bad.iter().zip(&good).flat_map(|(bad, good)| [bad.0, good.0]).collect();
        let expected: Vec<bool> = (0..40).map(|at| at % 2 == 1).collect();
        assert_eq!(store.has_all(&asked), expected);
    }
}

#[test]
fn what_waits_to_be_written_is_there_and_is_written_at_the_end() {
    let shelf = Shelf::new(None);
    let store =
        Remote::start(Box::new(Arc::clone(&shelf)), RemoteSettings { unwritten_max: 20 * 4096, ..settings(SHORT) })
            .unwrap();
    shelf.set([Mood::Hangs; 2]);
    let blocks: Vec<_> = (0..20).map(|n| block(n, 4096)).collect();
    for (hash, bytes) in &blocks {
        assert_eq!(store.put(hash, bytes).unwrap(), Put::New);
        assert_eq!(store.put(hash, bytes).unwrap(), Put::Known);
        assert_eq!(got(&store, hash).as_ref(), Some(bytes));
        assert!(store.has(hash));
    }
    let (other, bytes) = block(99, 4096);
    let why = store.put(&other, &bytes).unwrap_err().to_string();
    assert!(why.contains("too much waits") && why.contains("the shelf"), "{why}");
    assert_eq!(shelf.len(), 0);
    shelf.set([Mood::Well; 2]);
    drop(store);
    assert_eq!(shelf.len(), 20);
}

#[test]
fn what_could_not_be_written_is_forgotten_and_can_be_put_again() {
    let shelf = Shelf::new(None);
    let store = remote(&shelf, LONG);
    shelf.set([Mood::Fails; 2]);
    let (hash, bytes) = block(1, 4096);
    assert_eq!(store.put(&hash, &bytes).unwrap(), Put::New);
    eventually("it failed", || figure_of(&store, "engine_unwritten") == 1);
    assert_eq!((store.blocks(), store.bytes()), (0, 0));
    shelf.set([Mood::Well; 2]);
    assert_eq!(store.put(&hash, &bytes).unwrap(), Put::New);
    eventually("it is written", || figure_of(&store, "engine_written") == 1);
    assert_eq!(shelf.len(), 1);
    // The engine may drop what it likes.
    shelf.blocks.lock().unwrap().clear();
    assert_eq!(got(&store, &hash), None);
    assert_eq!(store.put(&hash, &bytes).unwrap(), Put::New);
    eventually("it is written again", || shelf.len() == 1);
}

#[test]
fn there_is_never_more_than_the_limit_for_long_and_the_oldest_go() {
    let shelf = Shelf::new(None);
    let old: Vec<_> = (0..30).map(|n| block(n, 4096)).collect();
    old.iter().for_each(|(hash, bytes)| shelf.plant(hash, bytes));
    let limited = RemoteSettings { bytes_max: Some(20 * 4096), ..settings(LONG) };
    let store = Remote::start(Box::new(Arc::clone(&shelf)), limited).unwrap();
    eventually("what was there before is within the limit", || shelf.len() == 20);
    assert_eq!((store.blocks(), store.bytes()), (20, 20 * 4096));
    for n in 100..115 {
        let (hash, bytes) = block(n, 4096);
        store.put(&hash, &bytes).unwrap();
    }
    eventually("the new are there", || {
        (100..115).all(|n| shelf.blocks.lock().unwrap().contains_key(&block(n, 4096).0))
    });
    eventually("the oldest went", || shelf.len() == 20);
    assert_eq!(store.bytes(), 20 * 4096);
    // Counted when the engine has answered, a little after they went.
    eventually("all are counted", || figure_of(&store, "engine_removed") == 25);
}

#[test]
fn what_is_asked_for_soon_is_brought_at_the_same_time() {
    let shelf = Shelf::new(Some(4));
    let store = remote(&shelf, LONG);
    let blocks: Vec<_> = (0..4).map(|n| block(n, 4096)).collect();
    blocks.iter().for_each(|(hash, bytes)| shelf.plant(hash, bytes));
    let hashes: Vec<Hash> = blocks.iter().map(|(hash, _)| *hash).collect();
    store.soon(&hashes);
    for (hash, bytes) in &blocks {
        assert_eq!(got(&store, hash).as_ref(), Some(bytes));
    }
    assert_eq!(shelf.calls.load(Ordering::SeqCst), 4, "each was asked for once");
}

#[test]
fn that_nothing_was_there_before_it_was_put_is_not_told_after() {
    let shelf = Shelf::new(None);
    let store = remote(&shelf, LONG);
    let [(one, bytes), (other, _)] = [block(1, 4096), block(2, 4096)];
    store.soon(&[one, other]);
    eventually("they are looked for", || figure_of(&store, "engine_misses") == 2);
    store.put(&one, &bytes).unwrap();
    eventually("it is written", || shelf.len() == 1);
    assert_eq!(got(&store, &one), Some(bytes));
}

#[test]
fn who_watches_is_told_once_that_it_fails_and_once_that_it_answers() {
    let shelf = Shelf::new(None);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let list = Arc::clone(&told);
    let tell: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(move |text| list.lock().unwrap().push(text.to_owned()));
    let store = Remote::start(Box::new(Arc::clone(&shelf)), RemoteSettings { tell, ..settings(LONG) }).unwrap();
    shelf.set([Mood::Fails; 2]);
    let (hash, _) = blocks_of(1).next().unwrap();
    for _ in 0..200 {
        assert_eq!(got(&store, &hash), None);
    }
    eventually("it is told", || told.lock().unwrap().len() == 1);
    assert!(told.lock().unwrap()[0].contains("the shelf: it is broken"), "{told:?}");
    shelf.set([Mood::Well; 2]);
    eventually("it answers again", || {
        assert_eq!(got(&store, &hash), None);
        told.lock().unwrap().len() == 2
    });
    assert!(told.lock().unwrap()[1].contains("answers again"), "{told:?}");
}
