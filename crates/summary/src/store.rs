//! The store: one record for each directory, in an embedded database that is one file (docs/FORMATS.md).
//!
//! What is committed survives a kill; what isn't was never acknowledged. Nothing is changed in place: an interrupted write
//! leaves the state before it.

mod custom;

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
};

use redb::{Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use thiserror::Error;

use crate::{
    custom::books::Unwritten,
    history::History,
    links::{LinkKey, Linked},
    moment::Moment,
    nodes::{Count, Slot},
    places::{Block, INODES_PER_BLOCK},
    record::Record,
};

const FACTS: TableDefinition<&str, &[u8]> = TableDefinition::new("facts");
const DIRECTORIES: TableDefinition<u32, &[u8]> = TableDefinition::new("directories");
const LINKED: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("linked");
const PLACES: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("places");
const HISTORIES: TableDefinition<u32, &[u8]> = TableDefinition::new("histories");

/// The version of what the tables hold.
const VERSION: u32 = 3;
/// A file that is no larger isn't worth the work.
const SMALL_BYTES: u64 = 4 << 20;
/// Bytes of the file that are kept in memory.
const CACHE_BYTES: usize = 16 << 20;

/// Why the store can't be used. Each tells which store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It can't be opened, read or written.
    #[error("cannot {step} the store {}: {source}", path.display())]
    Database {
        /// Where it is.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Why not.
        source: Box<redb::Error>,
    },
    /// It was written by another version.
    #[error("the store {} has version {found}, and this program knows version {VERSION}; remove it, and it is made again", path.display())]
    Version {
        /// Where it is.
        path: PathBuf,
        /// What it says.
        found: u32,
    },
    /// It holds what can't be.
    #[error("the store {} is damaged: {what}; remove it, and it is made again", path.display())]
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// What a store says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The number of the last harvest.
    pub count: Count,
    /// Which file system it is about.
    pub file_system: Vec<u8>,
    /// Keeps others from making up stamps; 0 in a new store.
    pub key: u64,
    /// Where the file system counts its changes: all with a lower number are in the records, or the stamps of these are 0.
    pub generation: u64,
    /// When it was last written.
    pub moment: Moment,
    /// Which declared summaries are there of all directories; 0 where not all are.
    pub declared: u64,
}

/// What is to be written in one go: all of it, or nothing.
#[derive(Debug, Default)]
pub struct Batch {
    /// Directories, and those that are gone.
    pub records: HashMap<Slot, Option<Record>>,
    /// Inodes with several names, and those that have them no longer.
    pub linked: HashMap<LinkKey, Option<Linked>>,
    /// Where inodes with one name are.
    pub places: BTreeMap<(u64, u64), Slot>,
    /// Totals over time.
    pub histories: HashMap<Slot, Option<History>>,
}

impl Batch {
    /// Nothing to write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.linked.is_empty() && self.places.is_empty() && self.histories.is_empty()
    }
}

/// Directory summaries of one file system.
#[derive(Debug)]
pub struct Store {
    database: Database,
    path: PathBuf,
}

impl Store {
    /// Opens the store at `path`, or makes an empty one. Only one process can have it open.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        if !path.exists() {
            // Whoever is killed while it is made leaves nothing under its name.
            let mut new = path.as_os_str().to_owned();
            new.push(".new");
            let made = |result: io::Result<()>| result.map_err(|error| failed(path, "make")(redb::Error::Io(error)));
            made(fs::remove_file(&new).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }))?;
            drop(Self::create(Path::new(&new))?);
            made(fs::rename(&new, path))?;
        }
        Self::create(path)
    }

    fn create(path: &Path) -> Result<Store, StoreError> {
        let opened = Database::builder().set_cache_size(CACHE_BYTES).create(path);
        Self::start(opened.map_err(|error| failed(path, "open")(error.into())), path)
    }

    /// A store that is gone when it is dropped.
    pub fn in_memory() -> Result<Store, StoreError> {
        Self::with_backend(redb::backends::InMemoryBackend::new(), "in memory")
    }

    /// A store on other storage; `name` stands for it in messages.
    pub fn with_backend(backend: impl StorageBackend, name: &str) -> Result<Store, StoreError> {
        let path = Path::new(name);
        let opened = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend);
        Self::start(opened.map_err(|error| failed(path, "open")(error.into())), path)
    }

    fn start(opened: Result<Database, StoreError>, path: &Path) -> Result<Store, StoreError> {
        let store = Store { database: opened?, path: path.to_owned() };
        match store.fact("version")? {
            Some(bytes) => match bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) {
                Some(VERSION) => {}
                Some(found) => return Err(StoreError::Version { path: path.to_owned(), found }),
                None => return Err(store.damaged("it has no version")),
            },
            None => store.write("make", Durability::Immediate, |transaction| {
                transaction.open_table(FACTS)?.insert("version", VERSION.to_le_bytes().as_slice())?;
                transaction.open_table(DIRECTORIES)?;
                transaction.open_table(LINKED)?;
                transaction.open_table(PLACES)?;
                transaction.open_table(HISTORIES)?;
                Ok(())
            })?,
        }
        Ok(store)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says of itself.
    pub fn facts(&self) -> Result<Facts, StoreError> {
        let count = match self.fact("count")? {
            None => 0,
            Some(bytes) => {
                let bytes = bytes.first_chunk().ok_or_else(|| self.damaged("its count is cut"))?;
                Count::from_le_bytes(*bytes)
            }
        };
        let number = |name| {
            let bytes = self.fact(name)?.unwrap_or_default();
            Ok::<_, StoreError>(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
        };
        let moment = self.fact("moment")?.and_then(|bytes| Moment::decode(&bytes)).unwrap_or_default();
        let file_system = self.fact("file system")?.unwrap_or_default();
        let custom = self.fact("custom")?.unwrap_or_default();
        // A program that knows of no such summaries goes on counting without them.
        let declared = match (custom.first_chunk(), custom.get(8..)) {
            (Some(hash), Some(at)) if at == count.to_le_bytes() => u64::from_le_bytes(*hash),
            _ => 0,
        };
        Ok(Facts { count, file_system, key: number("key")?, generation: number("generation")?, moment, declared })
    }

    /// The record of a directory.
    pub fn record(&self, slot: Slot) -> Result<Option<Record>, StoreError> {
        let bytes = self.get(DIRECTORIES, slot.0)?;
        bytes.map(|bytes| self.decoded(&bytes, slot)).transpose()
    }

    /// All inodes that have several names. An error of `each` ends it.
    pub fn each_linked(&self, mut each: impl FnMut(LinkKey) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let failed = failed(&self.path, "read");
        let table = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = table.open_table(LINKED).map_err(|error| failed(error.into()))?;
        for found in table.iter().map_err(|error| failed(error.into()))? {
            let (key, _) = found.map_err(|error| failed(error.into()))?;
            let (subvolume, ino) = key.value();
            each(LinkKey { subvolume, ino })?;
        }
        Ok(())
    }

    /// All records. An error of `each` ends it.
    pub fn each_record(&self, mut each: impl FnMut(Slot, Record) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let failed = failed(&self.path, "read");
        let table = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = table.open_table(DIRECTORIES).map_err(|error| failed(error.into()))?;
        for found in table.iter().map_err(|error| failed(error.into()))? {
            let (slot, bytes) = found.map_err(|error| failed(error.into()))?;
            let slot = Slot(slot.value());
            each(slot, self.decoded(bytes.value(), slot)?)?;
        }
        Ok(())
    }

    /// An inode that has several names.
    pub fn linked(&self, key: LinkKey) -> Result<Option<Linked>, StoreError> {
        let bytes = self.get(LINKED, (key.subvolume, key.ino))?;
        let damaged = || self.damaged(&format!("inode {} can't be read", key.ino));
        bytes.map(|bytes| Linked::decode(&bytes).ok_or_else(damaged)).transpose()
    }

    /// The directory that named an inode with one name when that directory was last harvested. It may have gone since.
    pub fn place(&self, subvolume: u64, ino: u64) -> Result<Option<Slot>, StoreError> {
        Ok(self.block(subvolume, ino)?.get(ino))
    }

    /// The same of all inodes with numbers of the same block.
    pub(crate) fn block(&self, subvolume: u64, ino: u64) -> Result<Block, StoreError> {
        let bytes = self.get(PLACES, (subvolume, ino / INODES_PER_BLOCK))?;
        Ok(bytes.map(|bytes| Block::decode(&bytes)).unwrap_or_default())
    }

    /// The totals of a directory over time.
    pub fn history(&self, slot: Slot) -> Result<Option<History>, StoreError> {
        let bytes = self.get(HISTORIES, slot.0)?;
        let damaged = || self.damaged(&format!("the history of directory {} can't be read", slot.0));
        bytes.map(|bytes| History::decode(&bytes).ok_or_else(damaged)).transpose()
    }

    /// Directories that have a history.
    pub fn with_history(&self) -> Result<Vec<Slot>, StoreError> {
        let failed = failed(&self.path, "read");
        let table = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = table.open_table(HISTORIES).map_err(|error| failed(error.into()))?;
        let slots = table.iter().map_err(|error| failed(error.into()))?;
        slots.map(|found| Ok(Slot(found.map_err(|error| failed(error.into()))?.0.value()))).collect()
    }

    /// Writes a batch, all or nothing. `durable`: on the disk when this returns; else it is there with the next durable one.
    pub fn commit(&self, batch: &Batch, facts: &Facts, durable: bool) -> Result<(), StoreError> {
        self.commit_with(batch, &Unwritten::default(), facts, durable)
    }

    /// The same, with declared summaries.
    pub(crate) fn commit_with(
        &self,
        batch: &Batch,
        custom: &Unwritten,
        facts: &Facts,
        durable: bool,
    ) -> Result<(), StoreError> {
        let durability = if durable { Durability::Immediate } else { Durability::None };
        self.write("write", durability, |transaction| {
            let mut table = transaction.open_table(DIRECTORIES)?;
            // Neighbours lie in the same page.
            let mut records: Vec<_> = batch.records.iter().collect();
            records.sort_unstable_by_key(|(slot, _)| **slot);
            for (slot, record) in records {
                match record {
                    Some(record) => table.insert(slot.0, record.encode().as_slice())?,
                    None => table.remove(slot.0)?,
                };
            }
            drop(table);
            let mut table = transaction.open_table(LINKED)?;
            for (key, linked) in &batch.linked {
                let key = (key.subvolume, key.ino);
                match linked {
                    Some(linked) => table.insert(key, linked.encode().as_slice())?,
                    None => table.remove(key)?,
                };
            }
            drop(table);
            let mut table = transaction.open_table(PLACES)?;
            let mut left = batch.places.iter().peekable();
            while let Some(&(&(subvolume, first), _)) = left.peek() {
                let key = (subvolume, first / INODES_PER_BLOCK);
                let before = table.get(key)?.map(|bytes| Block::decode(bytes.value())).unwrap_or_default();
                let mut block = before.clone();
                while let Some((&(_, ino), &slot)) =
                    left.next_if(|&(&(other, ino), _)| (other, ino / INODES_PER_BLOCK) == key)
                {
                    block.set(ino, slot);
                }
                if block != before {
                    table.insert(key, block.encode().as_slice())?;
                }
            }
            drop(table);
            let mut table = transaction.open_table(HISTORIES)?;
            for (slot, history) in &batch.histories {
                match history {
                    Some(history) => table.insert(slot.0, history.encode().as_slice())?,
                    None => table.remove(slot.0)?,
                };
            }
            drop(table);
            let mut table = transaction.open_table(FACTS)?;
            table.insert("count", facts.count.to_le_bytes().as_slice())?;
            table.insert("file system", facts.file_system.as_slice())?;
            table.insert("key", facts.key.to_le_bytes().as_slice())?;
            table.insert("generation", facts.generation.to_le_bytes().as_slice())?;
            table.insert("moment", facts.moment.encode().as_slice())?;
            if facts.declared != 0 {
                let kept = [&facts.declared.to_le_bytes()[..], &facts.count.to_le_bytes()].concat();
                table.insert("custom", kept.as_slice())?;
            }
            drop(table);
            custom::write(transaction, custom)?;
            Ok(())
        })
    }

    /// Bytes that the records of all directories take, and how many there are.
    pub fn size(&self) -> Result<(u64, u64), StoreError> {
        let (mut bytes, mut directories) = (0, 0);
        self.each_record(|_, record| {
            bytes += record.encode().len() as u64;
            directories += 1;
            Ok(())
        })?;
        Ok((bytes, directories))
    }

    /// Makes the file as small as what it holds, where a third of it or more is unused. True when that was done.
    pub fn compact_if_it_pays(&mut self) -> Result<bool, StoreError> {
        let (used, all) = self.bytes()?;
        let pays = all > SMALL_BYTES && used < all - all / 3;
        if pays {
            self.compact()?;
        }
        Ok(pays)
    }

    /// Bytes of the file that are in use, and all of them.
    fn bytes(&self) -> Result<(u64, u64), StoreError> {
        let failed = failed(&self.path, "measure");
        let transaction = self.database.begin_write().map_err(|error| failed(error.into()))?;
        let stats = transaction.stats().map_err(|error| failed(error.into()))?;
        transaction.abort().map_err(|error| failed(error.into()))?;
        // In memory there is no file.
        let all = fs::metadata(&self.path).map_or(0, |found| found.len());
        Ok((stats.allocated_pages() * stats.page_size() as u64, all))
    }

    /// Makes the file as small as what it holds.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        while self.database.compact().map_err(|error| failed(&self.path, "compact")(error.into()))? {}
        Ok(())
    }

    fn fact(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_if_there(FACTS, name)
    }

    fn get<K: redb::Key + 'static>(
        &self,
        table: TableDefinition<K, &[u8]>,
        key: K::SelfType<'_>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let failed = failed(&self.path, "read");
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = transaction.open_table(table).map_err(|error| failed(error.into()))?;
        Ok(table.get(key).map_err(|error| failed(error.into()))?.map(|bytes| bytes.value().to_vec()))
    }

    fn get_if_there<K: redb::Key + 'static>(
        &self,
        table: TableDefinition<K, &[u8]>,
        key: K::SelfType<'_>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let failed = failed(&self.path, "read");
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        match transaction.open_table(table) {
            Ok(table) => Ok(table.get(key).map_err(|error| failed(error.into()))?.map(|bytes| bytes.value().to_vec())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn write(
        &self,
        step: &'static str,
        durability: Durability,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let run = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(durability)?;
            change(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        run().map_err(failed(&self.path, step))
    }

    fn decoded(&self, bytes: &[u8], slot: Slot) -> Result<Record, StoreError> {
        Record::decode(bytes).ok_or_else(|| self.damaged(&format!("directory {} can't be read", slot.0)))
    }

    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), what: what.to_owned() }
    }
}

fn failed(path: &Path, step: &'static str) -> impl Fn(redb::Error) -> StoreError {
    move |source| StoreError::Database { path: path.to_owned(), step, source: Box::new(source) }
}

impl StoreError {
    /// The store is no more to be used in this process: what was to be written isn't there.
    pub fn is_full(&self) -> bool {
        let StoreError::Database { source, .. } = self else { return false };
        matches!(&**source, redb::Error::Io(error) if error.kind() == io::ErrorKind::StorageFull)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::{identity::NodeId, totals::Sums};

    fn record(ino: u64, name: &str) -> Record {
        let id = NodeId { subvolume: 0, ino, generation: 1 };
        Record { id, name: name.into(), harvested: 3, ..Record::default() }
    }

    fn batch(records: impl IntoIterator<Item = (u32, Option<Record>)>) -> Batch {
        let records = records.into_iter().map(|(slot, record)| (Slot(slot), record)).collect();
        Batch { records, ..Batch::default() }
    }

    #[test]
    fn what_is_written_is_there_after_opening_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let key = LinkKey { subvolume: 5, ino: 77 };
        let linked = Linked { links: 2, places: vec![Slot(1), Slot(2)], ..Linked::default() };
        let moment = Moment { seconds: 7, boot: b"one".into(), uptime: 3 };
        let facts = Facts { count: 9, file_system: b"ext4 x".into(), key: 5, generation: 6, moment, declared: 8 };
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
        assert_eq!(store.record(Slot(2)).expect("it reads"), Some(record(2, "a")));
        assert_eq!(store.record(Slot(3)).expect("it reads"), None);
        assert_eq!(store.linked(key).expect("it reads"), Some(linked));
        let place = |subvolume, ino| store.place(subvolume, ino).expect("it reads");
        assert_eq!((place(0, 63), place(0, 64), place(0, 65)), (Some(Slot(1)), Some(Slot(2)), None));
        assert_eq!((place(0, 100), place(1, 100)), (Some(Slot(2)), Some(Slot(3))));
        let mut all = Vec::new();
        store
            .each_record(|slot, record| {
                all.push((slot.0, record.name));
                Ok(())
            })
            .expect("all");
        assert_eq!(all, [(1, b"".to_vec()), (2, b"a".to_vec())]);
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
        assert!(error.to_string().contains("version 9, and this program knows version 3; remove it"), "{error}");
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
            let names = [1, 2].map(|slot| store.record(Slot(slot)).expect("it reads").map(|record| record.name));
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
}
