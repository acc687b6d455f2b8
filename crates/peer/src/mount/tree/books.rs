//! What is known of the files of a tree: the index, what of it is in memory, and what was learnt and isn't durable yet.
//!
//! What is called known is the hash of what a file holds as long as its key is what it was:
//!
//! * A hash is taken of bytes between whose reading the key was the same, of a file that nobody had open for writing before.
//! * Before a file is written through the mount, it is forgotten: in memory at once, in the index durably. The gate keeps what
//!   was learnt before from being kept after that.
//! * What was learnt is kept when the file system has made its files durable. Else a power cut could bring back old bytes under
//!   a key whose hashes are those of new ones.
//! * Once writing the index has failed, nothing is known any more until it is opened again.

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use onesweep_sys::files::sync_file_system;

use super::super::lock;
use crate::{
    id::{Hash, TrustDomain},
    index::{
        Block, Geometry, IndexError, Learned,
        tree::{FileKey, NOT_KNOWN, TreeIndex, holds},
    },
};

/// A file of more blocks than that is the disk's alone: its hashes would fill the memory.
const BLOCKS_MAX: u64 = 1 << 20;
/// Hashes in memory, and files, before those that nobody uses go.
const HASHES_MAX: usize = 2 << 20;
const RECORDS_MAX: usize = 1 << 16;
/// Inodes of which it is remembered that the index has nothing.
const ABSENT_MAX: usize = 1 << 20;
/// What was learnt is kept after so long at the latest, or when it is of so many files.
const KEEP_EACH: Duration = Duration::from_secs(30);
const UNSAVED_MAX: usize = 4096;

/// What is known of a file under one key.
pub(super) struct Record {
    key: FileKey,
    geometry: Geometry,
    /// The file was written through the mount, or has another key now.
    is_gone: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// One for each block, or none at all.
    hashes: Vec<Hash>,
    /// Of blocks of zeros: whole ones, and the last one.
    zeros: Option<[Hash; 2]>,
    /// Whether hashes of what is read hold, once that was found out.
    learns: bool,
    /// Hashes that the index doesn't have.
    unsaved: usize,
}

impl Record {
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn inode(&self) -> u64 {
        self.key.inode
    }

    /// Whether the file that has this key now is the one that the record is of, and was not about to be written.
    pub(super) fn holds_for(&self, key: &FileKey) -> bool {
        !self.is_gone.load(Ordering::Acquire) && self.key == *key
    }

    /// What is known of some blocks.
    pub(super) fn blocks(&self, blocks: std::ops::Range<u64>) -> Vec<Block> {
        let known = lock(&self.known);
        let last = self.geometry.blocks().saturating_sub(1);
        let block = |number: u64| {
            let hash = known.hashes.get(number as usize).copied().unwrap_or(NOT_KNOWN);
            match &known.zeros {
                _ if hash == NOT_KNOWN => Block::Unknown,
                Some(zeros) if hash == zeros[usize::from(number == last)] => Block::Zero,
                _ => Block::Valid(hash),
            }
        };
        blocks.map(block).collect()
    }

    /// Whether anything is known.
    pub(super) fn knows(&self) -> bool {
        lock(&self.known).hashes.iter().any(|hash| *hash != NOT_KNOWN)
    }

    /// Whether hashes of what is read from now on hold.
    pub(super) fn learns(&self, fd: BorrowedFd<'_>) -> bool {
        if self.is_gone.load(Ordering::Acquire) || self.geometry.blocks() > BLOCKS_MAX {
            return false;
        }
        let mut known = lock(&self.known);
        // Once nobody had it open, whoever writes gives it another key.
        known.learns = known.learns || holds(&self.key, fd);
        known.learns
    }
}

#[derive(Default)]
struct State {
    records: HashMap<u64, Arc<Record>>,
    /// Hashes in memory, about.
    hashes: usize,
    /// Inodes of which the index has nothing.
    absent: HashSet<u64>,
    /// Those that are being forgotten, and how many times over.
    leaving: HashMap<u64, usize>,
    unsaved: HashSet<u64>,
    unsaved_since: Option<Instant>,
}

/// The books of a tree.
pub(super) struct Books {
    index: TreeIndex,
    domain: TrustDomain,
    /// The file system of the tree.
    root: OwnedFd,
    state: Mutex<State>,
    /// Held by who writes the index, so that what is kept was not forgotten meanwhile.
    gate: Mutex<()>,
    is_broken: AtomicBool,
}

impl Books {
    pub(super) fn new(index: TreeIndex, domain: TrustDomain, root: OwnedFd) -> Self {
        let (state, gate) = (Mutex::default(), Mutex::default());
        Self { index, domain, root, state, gate, is_broken: AtomicBool::new(false) }
    }

    pub(super) fn block_bytes(&self) -> u32 {
        self.index.block_bytes()
    }

    pub(super) fn works(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire)
    }

    /// What is known of the file that has this key now.
    pub(super) fn record(&self, key: &FileKey) -> Arc<Record> {
        let (record, is_to_be_looked_up) = {
            let mut state = lock(&self.state);
            if let Some(record) = state.records.get(&key.inode).filter(|record| record.holds_for(key)) {
                return Arc::clone(record);
            }
            state.drop_record(key.inode);
            state.make_room();
            let geometry = Geometry { block_bytes: self.block_bytes(), device_bytes: key.size };
            let (is_gone, known) = (AtomicBool::new(!self.works()), Mutex::default());
            let record = Arc::new(Record { key: *key, geometry, is_gone, known });
            state.records.insert(key.inode, Arc::clone(&record));
            let has_none = state.absent.contains(&key.inode) || state.leaving.contains_key(&key.inode);
            (record, !has_none && self.works() && geometry.blocks() <= BLOCKS_MAX)
        };
        // Whoever asks meanwhile finds nothing known, and reads the disk.
        if is_to_be_looked_up {
            // Where the index can't be read, nothing is known.
            match self.index.known(key) {
                Ok(Some(hashes)) => self.fill(&record, hashes),
                Ok(None) => {}
                Err(_) => self.break_down(),
            }
        }
        record
    }

    fn fill(&self, record: &Record, hashes: Vec<Hash>) {
        let mut state = lock(&self.state);
        if record.is_gone.load(Ordering::Acquire) {
            return;
        }
        state.hashes += hashes.len();
        let mut known = lock(&record.known);
        known.zeros = Some(self.zeros(&record.geometry));
        let learnt = std::mem::replace(&mut known.hashes, hashes);
        for (hash, learnt) in known.hashes.iter_mut().zip(learnt).filter(|(_, learnt)| *learnt != NOT_KNOWN) {
            *hash = learnt;
        }
    }

    fn zeros(&self, geometry: &Geometry) -> [Hash; 2] {
        let last = geometry.place(geometry.blocks().saturating_sub(1)).1;
        [geometry.block_bytes as usize, last].map(|len| self.domain.hash(&vec![0; len]))
    }

    /// Takes the hashes of whole blocks that were read from the disk, where they aren't known. The key was the record's before
    /// and after, and the record learns.
    pub(super) fn learn(&self, record: &Record, at: u64, whole: &[u8]) -> Learned {
        let (block_bytes, first) =
            (u64::from(record.geometry.block_bytes), at / u64::from(record.geometry.block_bytes));
        let missing: Vec<u64> = {
            let known = record.blocks(first..first + (whole.len() as u64).div_ceil(block_bytes));
            (first..).zip(known).filter(|(_, known)| *known == Block::Unknown).map(|(number, _)| number).collect()
        };
        let hash = |number: &u64| {
            let begin = (number - first) as usize * block_bytes as usize;
            let bytes = &whole[begin..whole.len().min(begin + block_bytes as usize)];
            (*number, self.domain.hash(bytes))
        };
        let hashes: Vec<(u64, Hash)> = missing.iter().map(hash).collect();
        let mut state = lock(&self.state);
        if hashes.is_empty() || !self.works() || record.is_gone.load(Ordering::Acquire) {
            return Learned::default();
        }
        let mut known = lock(&record.known);
        if known.hashes.is_empty() {
            known.hashes = vec![NOT_KNOWN; record.geometry.blocks() as usize];
            known.zeros = Some(self.zeros(&record.geometry));
            state.hashes += known.hashes.len();
        }
        let mut learned = Learned::default();
        for (number, hash) in hashes {
            if let Some(place) = known.hashes.get_mut(number as usize).filter(|place| **place == NOT_KNOWN) {
                *place = hash;
                learned.new += 1;
            }
        }
        known.unsaved += learned.new as usize;
        state.unsaved.insert(record.key.inode);
        state.unsaved_since.get_or_insert_with(Instant::now);
        learned
    }

    /// A file is about to be written, or cut, through the mount. Returns when the index has forgotten it, durably; whether it
    /// knew it.
    pub(super) fn before_change(&self, inode: u64) -> bool {
        {
            let mut state = lock(&self.state);
            state.drop_record(inode);
            if state.absent.contains(&inode) {
                return false;
            }
            *state.leaving.entry(inode).or_default() += 1;
        }
        let forgotten = {
            let _gate = lock(&self.gate);
            // What can't be forgotten isn't believed again while this runs; later its ctime tells.
            self.index.forget(inode).inspect_err(|_| self.break_down())
        };
        let mut state = lock(&self.state);
        if let Some(times) = state.leaving.get_mut(&inode) {
            *times -= 1;
            if *times == 0 {
                state.leaving.remove(&inode);
            }
        }
        if state.absent.len() >= ABSENT_MAX {
            state.absent.clear();
        }
        if forgotten.is_ok() {
            state.absent.insert(inode);
        }
        forgotten.unwrap_or(false)
    }

    /// Keeps what was learnt, when it is time to.
    pub(super) fn tidy(&self) {
        let is_time = {
            let state = lock(&self.state);
            state.unsaved.len() >= UNSAVED_MAX || state.unsaved_since.is_some_and(|since| since.elapsed() >= KEEP_EACH)
        };
        if is_time {
            // It says itself whether it still works.
            let _ = self.keep();
        }
    }

    /// Keeps what was learnt.
    pub(super) fn keep(&self) -> Result<(), IndexError> {
        if !self.works() {
            return Ok(());
        }
        let learnt: Vec<(Arc<Record>, Vec<Hash>, usize)> = {
            let mut state = lock(&self.state);
            state.unsaved_since = None;
            let unsaved: Vec<u64> = state.unsaved.drain().collect();
            let records = unsaved.iter().filter_map(|inode| state.records.get(inode));
            let learnt = records.map(|record| {
                let known = lock(&record.known);
                (Arc::clone(record), known.hashes.clone(), known.unsaved)
            });
            learnt.collect()
        };
        if learnt.is_empty() {
            return Ok(());
        }
        let kept = self.keep_all(&learnt);
        if kept.is_err() {
            self.break_down();
        }
        kept
    }

    fn keep_all(&self, learnt: &[(Arc<Record>, Vec<Hash>, usize)]) -> Result<(), IndexError> {
        sync_file_system(self.root.as_fd())?;
        let _gate = lock(&self.gate);
        let files: Vec<(FileKey, Vec<Hash>)> = {
            let mut state = lock(&self.state);
            let stays = learnt.iter().filter(|(record, ..)| !record.is_gone.load(Ordering::Acquire));
            let files: Vec<_> = stays.map(|(record, hashes, _)| (record.key, hashes.clone())).collect();
            files.iter().for_each(|(key, _)| _ = state.absent.remove(&key.inode));
            files
        };
        self.index.keep(&files)?;
        for (record, _, saved) in learnt {
            let mut known = lock(&record.known);
            known.unsaved = known.unsaved.saturating_sub(*saved);
        }
        Ok(())
    }

    fn break_down(&self) {
        self.is_broken.store(true, Ordering::Release);
        let mut state = lock(&self.state);
        state.records.drain().for_each(|(_, record)| record.is_gone.store(true, Ordering::Release));
        state.hashes = 0;
    }
}

impl State {
    fn drop_record(&mut self, inode: u64) {
        if let Some(record) = self.records.remove(&inode) {
            record.is_gone.store(true, Ordering::Release);
            self.hashes = self.hashes.saturating_sub(lock(&record.known).hashes.len());
        }
    }

    /// Those that somebody uses stay, and those with something that the index lacks: who forgets them has to find them here.
    fn make_room(&mut self) {
        if self.records.len() < RECORDS_MAX && self.hashes < HASHES_MAX {
            return;
        }
        self.records.retain(|_, record| Arc::strong_count(record) > 1 || lock(&record.known).unsaved > 0);
        self.hashes = self.records.values().map(|record| lock(&record.known).hashes.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::Path};

    use super::*;

    const LEN: u64 = 4096 * 3 + 1000;

    fn key(inode: u64) -> FileKey {
        FileKey { inode, generation: 1, size: LEN, mtime: (100, 5), ctime: (101, 6) }
    }

    fn domain() -> TrustDomain {
        TrustDomain::from_key([7; 32])
    }

    fn opened(dir: &Path) -> Books {
        let (path, root) = (dir.join("index"), File::open(dir).unwrap());
        if !path.exists() {
            drop(TreeIndex::create(&path, 4096, 1, &domain()).unwrap());
        }
        Books::new(TreeIndex::open(&path, 1, &domain()).unwrap(), domain(), root.into())
    }

    /// The second block and the last one are zeros.
    fn content() -> Vec<u8> {
        (0..LEN).map(|at| if matches!(at / 4096, 1 | 3) { 0 } else { (at % 251) as u8 | 1 }).collect()
    }

    fn blocks(content: &[u8]) -> Vec<Block> {
        let block = |block: &[u8]| if block[0] == 0 { Block::Zero } else { Block::Valid(domain().hash(block)) };
        content.chunks(4096).map(block).collect()
    }

    #[test]
    fn what_is_learnt_is_known_at_once_and_kept_for_its_key_alone() {
        let (dir, content) = (tempfile::tempdir().unwrap(), content());
        let books = opened(dir.path());
        let record = books.record(&key(12));
        assert!(!record.knows() && record.blocks(0..4) == [Block::Unknown; 4]);
        assert_eq!(books.learn(&record, 4096, &content[4096..4096 * 3]).new, 2);
        assert_eq!(books.learn(&record, 4096, &content[4096..4096 * 2]).new, 0);
        let expected = blocks(&content);
        assert_eq!(record.blocks(0..4), [Block::Unknown, expected[1], expected[2], Block::Unknown]);
        books.keep().unwrap();
        assert_eq!(books.learn(&books.record(&key(12)), 0, &content).new, 2);
        books.keep().unwrap();
        drop((record, books));

        let books = opened(dir.path());
        assert_eq!(books.record(&key(12)).blocks(0..4), expected);
        for other in [FileKey { ctime: (101, 7), ..key(12) }, FileKey { generation: 2, ..key(12) }, key(13)] {
            assert_eq!(books.record(&other).blocks(0..4), [Block::Unknown; 4], "{other:?}");
        }
        // It was another one for a while.
        assert_eq!(books.record(&key(12)).blocks(0..4), expected);
    }

    #[test]
    fn a_file_that_is_about_to_be_written_is_known_no_more() {
        let (dir, content) = (tempfile::tempdir().unwrap(), content());
        let books = opened(dir.path());
        books.learn(&books.record(&key(12)), 0, &content);
        books.keep().unwrap();
        let held = books.record(&key(12));
        // Learnt and not yet kept.
        let other = books.record(&key(13));
        books.learn(&other, 0, &content);
        assert!(books.before_change(12) && !books.before_change(12) && !books.before_change(13));
        assert!(!held.holds_for(&key(12)) && !other.holds_for(&key(13)));
        // What was read before comes too late.
        assert_eq!(books.learn(&held, 0, &content).new, 0);
        assert_eq!(books.learn(&other, 0, &content).new, 0);
        books.keep().unwrap();
        for inode in [12, 13] {
            assert!(!books.record(&key(inode)).knows());
        }
        drop((held, other, books));
        let books = opened(dir.path());
        for inode in [12, 13] {
            assert!(!books.record(&key(inode)).knows(), "{inode} came back");
        }
        // Learnt again, forgotten again.
        books.learn(&books.record(&key(12)), 0, &content);
        books.keep().unwrap();
        assert!(books.record(&key(12)).knows() && books.before_change(12));
    }

    /// Writers and learners of one file: when a writer goes on, neither memory nor the index knows the file.
    #[test]
    fn nothing_is_kept_behind_a_writers_back() {
        let (dir, content) = (tempfile::tempdir().unwrap(), content());
        let books = opened(dir.path());
        for _ in 0..30 {
            let record = books.record(&key(12));
            books.learn(&record, 0, &content);
            std::thread::scope(|scope| {
                scope.spawn(|| books.keep().unwrap());
                scope.spawn(|| books.before_change(12));
            });
            assert!(!record.holds_for(&key(12)));
            drop(record);
            assert!(books.index.known(&key(12)).unwrap().is_none() && !books.record(&key(12)).knows());
        }
    }
}
