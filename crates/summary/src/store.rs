//! The store: one record for each directory, in an embedded database that is one file (docs/FORMATS.md).
//!
//! What is committed survives a kill; what isn't was never acknowledged. Nothing is changed in place: an interrupted write
//! leaves the state before it.

mod batch;
mod custom;
mod held;
mod place;
mod staged;
mod taken_over;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend,
    TableDefinition,
};
use thiserror::Error;

pub use self::{batch::Batch, place::place};
use self::{
    batch::Row,
    held::{Held, Snapshot},
    staged::Staging,
    taken_over::{VERSIONS_BEFORE, take_over},
};
use crate::{
    custom::books::Unwritten,
    history::History,
    links::{LinkKey, Linked},
    moment::Moment,
    nodes::{Count, Known, NameHash, Slot},
    places::{Block, INODES_PER_BLOCK},
    record::Record,
};

const FACTS: TableDefinition<&str, &[u8]> = TableDefinition::new("facts");
const DIRECTORIES: TableDefinition<u32, &[u8]> = TableDefinition::new("directories");
const LINKED: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("linked");
const PLACES: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("places");
const HISTORIES: TableDefinition<u32, &[u8]> = TableDefinition::new("histories");

/// The version of what the tables hold.
const VERSION: u32 = 7;
/// A file that is no larger isn't worth the work.
const SMALL_BYTES: u64 = 4 << 20;
/// So many blocks of places that change are held at a time; some 500 bytes each.
const BLOCKS_AT_ONCE: usize = 4096;
/// Bytes of the file that are kept in memory.
const CACHE_BYTES: usize = 8 << 20;

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
    /// It has failed, and is opened again later.
    #[error("the store {} has failed, and is opened again in a moment", path.display())]
    Waiting {
        /// Where it is.
        path: PathBuf,
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

/// A damaged store that was set aside, and that an empty one has taken the place of.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the store {} was damaged: {what}; it is kept as {}, and all is harvested anew, without the totals over time that it held", path.display(), kept.display())]
pub struct SetAside {
    /// Where it was.
    pub path: PathBuf,
    /// What was wrong.
    pub what: String,
    /// Where it is now.
    pub kept: PathBuf,
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
    /// A directory that is in the records of the one above it may have no record.
    pub is_partial: bool,
    /// The number of the last harvest when places of inodes that are gone were last forgotten.
    pub tidied: Count,
    /// Where the file system counts its changes: what harvests up to this number have read is on its disk. What later ones have read may
    /// be gone after a power cut, and nothing tells that it ever was.
    pub synced: Count,
}

/// So many seconds a moment does that was written; else the store would be written where nothing changes.
const MOMENT_SECONDS: i64 = 3600;

impl Facts {
    /// True when these say nothing that has to be written, beside a number that no record has yet.
    pub(crate) fn are_still(&self, now: &Facts) -> bool {
        let is_recent = (0..MOMENT_SECONDS).contains(&(now.moment.seconds - self.moment.seconds));
        is_recent && Facts { count: self.count, moment: self.moment.clone(), ..now.clone() } == *self
    }
}

/// Directory summaries of one file system.
#[derive(Debug)]
pub struct Store {
    // Before the database: it has to go first.
    held: Held,
    database: Database,
    path: PathBuf,
    /// Reading or writing it has failed: then it is of no more use before it is opened again.
    is_broken: AtomicBool,
    /// Inodes of which it says where they are.
    places: AtomicU64,
    staging: Staging,
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

    /// The same, with an empty store in place of one that is damaged, and what became of that.
    pub fn open_or_begin_anew(path: &Path) -> Result<(Store, Option<SetAside>), StoreError> {
        Self::open(path).map(|store| (store, None)).or_else(|error| {
            let (store, aside) = Self::begin_anew(path, error)?;
            Ok((store, Some(aside)))
        })
    }

    /// Sets a store aside that is damaged, in place of one that was set aside before, and opens an empty one. The error is given
    /// back where it tells of no damage, or the store can't be set aside.
    pub(crate) fn begin_anew(path: &Path, error: StoreError) -> Result<(Store, SetAside), StoreError> {
        let Some(what) = error.damage() else { return Err(error) };
        let mut kept = path.as_os_str().to_owned();
        kept.push(".damaged");
        let aside = SetAside { path: path.to_owned(), what, kept: kept.into() };
        match fs::rename(path, &aside.kept) {
            Ok(()) => Ok((Self::open(path)?, aside)),
            Err(_) => Err(error),
        }
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
        let store = Store {
            held: Held::default(),
            database: opened?,
            path: path.to_owned(),
            is_broken: AtomicBool::new(false),
            places: AtomicU64::new(0),
            staging: Staging::default(),
        };
        match store.fact("version")? {
            Some(bytes) => match bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) {
                Some(VERSION) => {}
                Some(before) if VERSIONS_BEFORE.contains(&before) => {
                    store.write("take over", Durability::Immediate, |transaction| take_over(transaction, before))?
                }
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
        store.places.store(store.count_places()?, Ordering::Relaxed);
        Ok(store)
    }

    /// True once reading or writing it has failed. What was written last and not made durable is lost then.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    fn failed(&self, step: &'static str) -> impl Fn(redb::Error) -> StoreError {
        move |source| {
            self.is_broken.store(true, Ordering::Relaxed);
            failed(&self.path, step)(source)
        }
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
        let is_partial = self.fact("partial")?.is_some();
        let harvest = |name| {
            let bytes = self.fact(name)?.unwrap_or_default();
            Ok::<_, StoreError>(bytes.first_chunk().map_or(0, |bytes| Count::from_le_bytes(*bytes)))
        };
        let (tidied, synced) = (harvest("tidied")?, harvest("synced")?);
        let (key, generation) = (number("key")?, number("generation")?);
        Ok(Facts { count, file_system, key, generation, moment, declared, is_partial, tidied, synced })
    }

    /// Of a file system that was known as `before` it says from now on that it is `now`.
    pub fn rename_file_system(&self, before: &[u8], now: &[u8]) -> Result<(), StoreError> {
        let facts = self.facts()?;
        if facts.file_system != before {
            return Ok(());
        }
        self.commit(&Batch::default(), &Facts { file_system: now.to_owned(), ..facts }, true)
    }

    /// The record of a directory.
    pub fn record(&self, slot: Slot) -> Result<Option<Arc<Record>>, StoreError> {
        if let Some(record) = self.staged().and_then(|staged| staged.batch.record(slot)) {
            return Ok(record.map(Arc::new));
        }
        if let Some(record) = self.held.record(slot) {
            return Ok(Some(record));
        }
        let Some(record) = self.read_record(slot)?.map(Arc::new) else { return Ok(None) };
        self.held.keep(slot, &record);
        Ok(Some(record))
    }

    /// The same for who changes it: it isn't kept for other questions.
    pub(crate) fn record_to_change(&self, slot: Slot) -> Result<Option<Record>, StoreError> {
        if let Some(record) = self.staged().and_then(|staged| staged.batch.record(slot)) {
            return Ok(record);
        }
        match self.held.record(slot) {
            Some(record) => Ok(Some((*record).clone())),
            None => self.read_record(slot),
        }
    }

    fn read_record(&self, slot: Slot) -> Result<Option<Record>, StoreError> {
        let found = self.snapshot()?.directories.get(slot.0).map_err(|error| self.failed("read")(error.into()))?;
        found.map(|bytes| self.decoded(bytes.value(), slot)).transpose()
    }

    /// All inodes that have several names. An error of `each` ends it.
    pub fn each_linked(&self, mut each: impl FnMut(LinkKey) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.write_staged()?;
        let failed = self.failed("read");
        let table = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = table.open_table(LINKED).map_err(|error| failed(error.into()))?;
        for found in table.iter().map_err(|error| failed(error.into()))? {
            let (key, _) = found.map_err(|error| failed(error.into()))?;
            let (subvolume, ino) = key.value();
            each(LinkKey { subvolume, ino })?;
        }
        Ok(())
    }

    /// How many directories have a record.
    pub(crate) fn directories(&self) -> Result<usize, StoreError> {
        self.write_staged()?;
        let length = self.snapshot()?.directories.len().map_err(|error| self.failed("read")(error.into()))?;
        Ok(usize::try_from(length).unwrap_or(0))
    }

    /// What the tree knows of all records. It ends when `each` says no.
    pub(crate) fn each_known(
        &self,
        names: &NameHash,
        mut each: impl FnMut(Slot, Known) -> bool,
    ) -> Result<(), StoreError> {
        self.write_staged()?;
        let (snapshot, failed) = (self.snapshot()?, self.failed("read"));
        for found in snapshot.directories.iter().map_err(|error| failed(error.into()))? {
            let (slot, bytes) = found.map_err(|error| failed(error.into()))?;
            let slot = Slot(slot.value());
            let known = Record::known(bytes.value(), names).ok_or_else(|| self.undecoded(slot))?;
            if !each(slot, known) {
                break;
            }
        }
        Ok(())
    }

    /// All records. An error of `each` ends it.
    pub fn each_record(&self, mut each: impl FnMut(Slot, Record) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.write_staged()?;
        let failed = self.failed("read");
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
        if let Some(linked) = self.staged().and_then(|staged| staged.batch.linked.get(&key).cloned()) {
            return Ok(linked);
        }
        let bytes = self.get(|tables| &tables.linked, (key.subvolume, key.ino))?;
        let damaged = || self.damaged(&format!("inode {} can't be read", key.ino));
        bytes.map(|bytes| Linked::decode(&bytes).ok_or_else(damaged)).transpose()
    }

    /// The directory that named an inode with one name when that directory was last harvested. It may have gone since.
    pub fn place(&self, subvolume: u64, ino: u64) -> Result<Option<Slot>, StoreError> {
        Ok(self.block(subvolume, ino)?.get(ino))
    }

    /// The same of all inodes with numbers of the same block.
    pub(crate) fn block(&self, subvolume: u64, ino: u64) -> Result<Block, StoreError> {
        let bytes = self.get(|tables| &tables.places, (subvolume, ino / INODES_PER_BLOCK))?;
        let mut block = bytes.map(|bytes| Block::decode(&bytes)).unwrap_or_default();
        if let Some(staged) = self.staged() {
            staged.batch.put_places(subvolume, ino, &mut block);
        }
        Ok(block)
    }

    /// The totals of a directory over time.
    pub fn history(&self, slot: Slot) -> Result<Option<History>, StoreError> {
        if let Some(history) = self.staged().and_then(|staged| staged.batch.history(slot)) {
            return Ok(history);
        }
        let bytes = self.get(|tables| &tables.histories, slot.0)?;
        let damaged = || self.damaged(&format!("the history of directory {} can't be read", slot.0));
        bytes.map(|bytes| History::decode(&bytes).ok_or_else(damaged)).transpose()
    }

    /// Directories that have a history, and when each was asked for last, in seconds since 1970.
    pub fn with_history(&self) -> Result<Vec<(Slot, i64)>, StoreError> {
        self.write_staged()?;
        let failed = self.failed("read");
        let table = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = table.open_table(HISTORIES).map_err(|error| failed(error.into()))?;
        let slots = table.iter().map_err(|error| failed(error.into()))?;
        let slot = |found: Result<(redb::AccessGuard<'_, u32>, redb::AccessGuard<'_, &[u8]>), _>| {
            let (slot, history) = found.map_err(|error: redb::StorageError| failed(error.into()))?;
            // What can't be read is told when it is to be.
            Ok((Slot(slot.value()), History::asked_at_of(history.value()).unwrap_or_default()))
        };
        slots.map(slot).collect()
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
        self.held.let_go(batch.slots());
        self.write_batch(batch, custom, facts, durable)
    }

    /// The same while others read by the tables as they were.
    fn write_batch(&self, batch: &Batch, custom: &Unwritten, facts: &Facts, durable: bool) -> Result<(), StoreError> {
        let durability = if durable { Durability::Immediate } else { Durability::None };
        let mut more_places = 0;
        self.write("write", durability, |transaction| {
            let mut table = transaction.open_table(DIRECTORIES)?;
            for (slot, row) in batch.rows() {
                match row {
                    Row::Record(record) => table.insert(slot.0, record.encode().as_slice())?,
                    Row::Bytes(bytes) => table.insert(slot.0, bytes)?,
                    Row::Gone => table.remove(slot.0)?,
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
                    more_places += (block.len() - before.len()) as u64;
                    table.insert(key, block.encode().as_slice())?;
                }
            }
            drop(table);
            let mut table = transaction.open_table(HISTORIES)?;
            for (slot, history) in batch.histories() {
                match history {
                    Some(history) => table.insert(slot.0, history)?,
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
            if facts.is_partial {
                table.insert("partial", [1].as_slice())?;
            } else {
                table.remove("partial")?;
            }
            if facts.declared != 0 {
                let kept = [&facts.declared.to_le_bytes()[..], &facts.count.to_le_bytes()].concat();
                table.insert("custom", kept.as_slice())?;
            }
            table.insert("tidied", facts.tidied.to_le_bytes().as_slice())?;
            table.insert("synced", facts.synced.to_le_bytes().as_slice())?;
            drop(table);
            custom::write(transaction, custom)?;
            Ok(())
        })?;
        self.places.fetch_add(more_places, Ordering::Relaxed);
        Ok(())
    }

    /// Inodes of which it says where they are, or were.
    pub fn places(&self) -> u64 {
        self.places.load(Ordering::Relaxed)
    }

    /// Bytes of the file that the index of these takes, with its tree and what is free in its pages. Reads all of that.
    pub fn places_bytes(&self) -> Result<u64, StoreError> {
        let told = self.snapshot()?.places.stats().map_err(|error| self.failed("read")(error.into()))?;
        Ok(told.stored_bytes() + told.metadata_bytes() + told.fragmented_bytes())
    }

    fn count_places(&self) -> Result<u64, StoreError> {
        let failed = self.failed("read");
        let table = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = table.open_table(PLACES).map_err(|error| failed(error.into()))?;
        let mut blocks = table.iter().map_err(|error| failed(error.into()))?;
        blocks.try_fold(0, |sum, found| {
            let (_, bytes) = found.map_err(|error| failed(error.into()))?;
            Ok(sum + Block::decode(bytes.value()).len() as u64)
        })
    }

    /// Forgets which inodes were in some directories.
    pub(crate) fn forget_places(&self, is_forgotten: impl Fn(Slot) -> bool) -> Result<(), StoreError> {
        self.write_staged()?;
        self.held.let_go([].iter());
        let mut fewer = 0;
        self.write("write", Durability::Immediate, |transaction| {
            let mut table = transaction.open_table(PLACES)?;
            let (mut changed, mut from) = (Vec::new(), Some((0, 0)));
            while let Some(first) = from.take() {
                for found in table.range(first..)? {
                    let (key, bytes) = found?;
                    if changed.len() >= BLOCKS_AT_ONCE {
                        from = Some(key.value());
                        break;
                    }
                    let mut block = Block::decode(bytes.value());
                    let before = block.len();
                    if block.forget(&is_forgotten) {
                        fewer += (before - block.len()) as u64;
                        changed.push((key.value(), block));
                    }
                }
                for (key, block) in changed.drain(..) {
                    match block.is_empty() {
                        true => table.remove(key)?,
                        false => table.insert(key, block.encode().as_slice())?,
                    };
                }
            }
            Ok(())
        })?;
        self.places.fetch_sub(fewer, Ordering::Relaxed);
        Ok(())
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
        self.write_staged()?;
        let failed = self.failed("measure");
        let transaction = self.database.begin_write().map_err(|error| failed(error.into()))?;
        let stats = transaction.stats().map_err(|error| failed(error.into()))?;
        transaction.abort().map_err(|error| failed(error.into()))?;
        // In memory there is no file.
        let all = fs::metadata(&self.path).map_or(0, |found| found.len());
        Ok((stats.allocated_pages() * stats.page_size() as u64, all))
    }

    /// Makes the file as small as what it holds.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        self.write_staged()?;
        self.held.let_go([].iter());
        while self.database.compact().map_err(|error| self.failed("compact")(error.into()))? {}
        Ok(())
    }

    fn fact(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.write_staged()?;
        let failed = self.failed("read");
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        match transaction.open_table(FACTS) {
            Ok(table) => Ok(table.get(name).map_err(|error| failed(error.into()))?.map(|bytes| bytes.value().to_vec())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>, StoreError> {
        self.held.snapshot(&self.database).map_err(self.failed("read"))
    }

    fn get<K: redb::Key + 'static>(
        &self,
        table: impl FnOnce(&Snapshot) -> &ReadOnlyTable<K, &'static [u8]>,
        key: K::SelfType<'_>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_of(|tables| Some(table(tables)), key)
    }

    /// From a table that may not be there.
    fn get_of<K: redb::Key + 'static>(
        &self,
        table: impl FnOnce(&Snapshot) -> Option<&ReadOnlyTable<K, &'static [u8]>>,
        key: K::SelfType<'_>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let snapshot = self.snapshot()?;
        let Some(table) = table(&snapshot) else { return Ok(None) };
        let found = table.get(key).map_err(|error| self.failed("read")(error.into()))?;
        Ok(found.map(|bytes| bytes.value().to_vec()))
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
        run().map_err(self.failed(step))
    }

    fn decoded(&self, bytes: &[u8], slot: Slot) -> Result<Record, StoreError> {
        Record::decode(bytes).ok_or_else(|| self.undecoded(slot))
    }

    fn undecoded(&self, slot: Slot) -> StoreError {
        self.damaged(&format!("directory {} can't be read", slot.0))
    }

    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), what: what.to_owned() }
    }
}

fn failed(path: &Path, step: &'static str) -> impl Fn(redb::Error) -> StoreError {
    move |source| StoreError::Database { path: path.to_owned(), step, source: Box::new(source) }
}

impl StoreError {
    /// What is wrong with what it holds, where that is why: nothing can be known of it any more.
    pub fn damage(&self) -> Option<String> {
        match self {
            StoreError::Damaged { what, .. } => Some(what.clone()),
            StoreError::Database { source, .. } => match &**source {
                redb::Error::Corrupted(what) => Some(what.clone()),
                redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => Some(error.to_string()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Another process has it open.
    pub fn is_in_use(&self) -> bool {
        let StoreError::Database { source, .. } = self else { return false };
        matches!(&**source, redb::Error::DatabaseAlreadyOpen)
    }

    /// The store is no more to be used in this process: what was to be written isn't there.
    pub fn is_full(&self) -> bool {
        let StoreError::Database { source, .. } = self else { return false };
        matches!(&**source, redb::Error::Io(error) if error.kind() == io::ErrorKind::StorageFull)
    }
}
