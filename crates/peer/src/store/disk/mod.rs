//! Blocks in segment files: each is appended to the newest, and when there is no room, the oldest goes as a whole. What of
//! it was read since it was written, is written again before.
//!
//! Nothing is ever synced. A block is read with its hash and its check, so what a power cut tore, or a disk changed, is a
//! block that isn't there: it is forgotten, and can be put again. Where blocks lie is held in memory, 24 bytes and some more
//! for each, by the first eight bytes of their hashes.

mod format;
mod health;
mod segment;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use self::{
    format::{ENTRY_BYTES, Entry, HEAD_BYTES, RECORD_BYTES_MAX, RECORD_HEAD_BYTES, RecordHead, Unusable},
    health::Health,
    segment::{Names, Opened, Segment},
};
use super::{BlockStore, Figure, Put, StoreError};
use crate::id::{Hash, TrustDomain};

/// Bytes of a segment, at least.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// And at most: offsets in it have 32 bits.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;
/// The store has about so many segments.
const SEGMENTS: u64 = 64;
/// Bytes that are written again at most when a segment goes: who puts waits for it.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// So many blocks are forgotten while nobody can read.
const FORGOTTEN_AT_A_TIME: usize = 1024;

/// How a store on disk is.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// Bytes of all its files, at most; 4 MiB are the least.
    pub bytes_max: u64,
    /// Whose blocks they are: what is read is checked with its key.
    pub domain: TrustDomain,
}

/// What a store on disk has to tell while it is used.
#[derive(Debug)]
pub enum DiskNews<'a> {
    /// No block can be written any more; what is there can be read. Told once.
    Failing(&'a StoreError),
    /// Blocks are written again.
    Well,
}

struct Tell(Box<dyn Fn(DiskNews<'_>) + Send + Sync>);

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

/// Blocks in segment files of a directory.
#[derive(Debug)]
pub struct Disk {
    domain: TrustDomain,
    bytes_max: u64,
    segment_bytes_max: u64,
    names: Names,
    /// Where blocks lie. Held for moments only.
    known: Mutex<Known>,
    /// Held while a block is put.
    newest: Mutex<Newest>,
    damaged: AtomicU64,
    dropped: AtomicU64,
    tell: Tell,
    /// Held as long as this is.
    _lock: File,
    #[cfg(test)]
    writes_left: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    places: HashMap<u64, Place>,
    segments: BTreeMap<u32, Arc<Segment>>,
    bytes: u64,
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    segment: u32,
    offset: u32,
    /// Bytes of the block, and whether it was read since it was written.
    length_and_use: u32,
}

const WAS_USED: u32 = 1 << 31;

impl Place {
    const fn length(self) -> u32 {
        self.length_and_use & !WAS_USED
    }

    const fn was_used(self) -> bool {
        self.length_and_use & WAS_USED != 0
    }

    /// The same block, read or not.
    const fn is(self, other: Self) -> bool {
        self.segment == other.segment && self.offset == other.offset
    }
}

impl Known {
    fn insert(&mut self, number: u32, entry: &Entry) {
        let place = Place { segment: number, offset: entry.offset, length_and_use: entry.length };
        self.bytes += u64::from(entry.length);
        if let Some(before) = self.places.insert(entry.prefix, place) {
            self.bytes -= u64::from(before.length());
        }
    }

    /// Where it still lies there.
    fn forget(&mut self, prefix: u64, place: Place) {
        if self.places.get(&prefix).is_some_and(|now| now.is(place)) {
            self.places.remove(&prefix);
            self.bytes -= u64::from(place.length());
        }
    }
}

/// The segment that grows; none before the first block is put.
#[derive(Debug)]
struct Newest {
    segment: Option<Arc<Segment>>,
    end: u32,
    entries: Vec<Entry>,
    next_number: u32,
    record: Vec<u8>,
    health: Health,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic leaves these half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Opens the store in a directory, which is made where there is none. Reads the indexes of its segments, 16 bytes for
    /// each block, and the heads of all records of the newest. Refused where another process has it open, where a file is of
    /// another version, or of another domain.
    pub fn open(dir: &Path, settings: DiskSettings) -> Result<Self, StoreError> {
        let DiskSettings { bytes_max, domain } = settings;
        let names = Names::new(dir, domain.name());
        fs::create_dir_all(dir).map_err(|source| names.failure("make the directory", source))?;
        let lock = names.lock()?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(dir.to_owned())),
            Err(TryLockError::Error(source)) => return Err(names.failure("lock the directory", source)),
        }
        let bytes_max = bytes_max.max(4 * SEGMENT_BYTES_MIN);
        let segment_bytes_max = (bytes_max / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let newest = Newest {
            segment: None,
            end: 0,
            entries: Vec::new(),
            next_number: 0,
            record: Vec::new(),
            health: Health::default(),
        };
        let store = Self {
            domain,
            bytes_max,
            segment_bytes_max,
            names,
            known: Mutex::default(),
            newest: Mutex::new(newest),
            damaged: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            tell: Tell(Box::new(|_| {})),
            _lock: lock,
            #[cfg(test)]
            writes_left: AtomicU64::new(u64::MAX),
        };
        store.load()?;
        Ok(store)
    }

    /// `tell` is told when blocks can't be written any more, and when they can again.
    #[must_use]
    pub fn telling(self, tell: impl Fn(DiskNews<'_>) + Send + Sync + 'static) -> Self {
        Self { tell: Tell(Box::new(tell)), ..self }
    }

    /// Takes up what the directory holds.
    fn load(&self) -> Result<(), StoreError> {
        let numbers = self.names.numbers()?;
        let mut newest = lock(&self.newest);
        newest.next_number = numbers.last().map_or(0, |last| last.saturating_add(1));
        for number in &numbers {
            let is_last = Some(number) == numbers.last();
            let Some(Opened { segment, end, entries, is_indexed }) = self.names.open(*number, is_last)? else {
                self.names.remove(*number);
                continue;
            };
            let segment = Arc::new(segment);
            let mut known = lock(&self.known);
            known.segments.insert(*number, Arc::clone(&segment));
            entries.iter().for_each(|entry| known.insert(*number, entry));
            if is_last && u64::from(end) < self.segment_bytes_max {
                // It goes on growing; what lies behind its last record is no record.
                newest.segment = Some(segment);
                (newest.end, newest.entries) = (end, entries);
            } else if !is_indexed {
                self.names.write_index(*number, end, &entries);
            }
        }
        self.make_room(&mut newest)
    }

    /// Reads a block into `into`, and checks it. None where it isn't what was looked for; whether it is damaged then.
    fn read(&self, segment: &Segment, place: Place, hash: &Hash, into: &mut Vec<u8>) -> io::Result<Result<(), bool>> {
        let start = into.len();
        into.resize(start + RECORD_HEAD_BYTES + place.length() as usize, 0);
        let read = segment.read(&mut into[start..], place.offset);
        let head = RecordHead::decode(&into[start..], segment.number, place.offset);
        into.drain(start..start + RECORD_HEAD_BYTES);
        let refused = |into: &mut Vec<u8>, is_damaged| {
            into.truncate(start);
            Ok(Err(is_damaged))
        };
        match read {
            // Something cut the file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return refused(into, true),
            Err(error) => {
                into.truncate(start);
                return Err(error);
            }
            Ok(()) => {}
        }
        match head {
            // Another block whose hash begins alike.
            Some(head) if head.hash != *hash => refused(into, false),
            Some(head) if head.length == place.length() && self.domain.is_hash_of(hash, &into[start..]) => Ok(Ok(())),
            _ => refused(into, true),
        }
    }

    /// Appends a record to the newest segment. What was half written before an error is written over by the next.
    fn append(&self, newest: &mut Newest, hash: &Hash, bytes: &[u8]) -> Result<Place, StoreError> {
        let needed = (RECORD_HEAD_BYTES + bytes.len()) as u64;
        if newest.segment.is_some() && u64::from(newest.end) + needed > self.segment_bytes_max {
            self.seal(newest);
        }
        let segment = match &newest.segment {
            Some(segment) => Arc::clone(segment),
            None => self.begin(newest)?,
        };
        let (offset, length) = (newest.end, bytes.len() as u32);
        let mut record = std::mem::take(&mut newest.record);
        record.clear();
        RecordHead { hash: *hash, length }.encode(segment.number, offset, &mut record);
        record.extend_from_slice(bytes);
        #[cfg(test)]
        let record = self.cut_for_test(record);
        let written = segment.write(&record, offset);
        let is_whole = record.len() as u64 == needed;
        newest.record = record;
        newest.record.shrink_to(RECORD_BYTES_MAX);
        written
            .and_then(|()| if is_whole { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) })
            .map_err(|source| self.names.segment_failure(segment.number, "write a block", source))?;
        newest.end = offset + needed as u32;
        segment.set_end(newest.end);
        newest.entries.push(Entry { prefix: hash.prefix(), offset, length });
        Ok(Place { segment: segment.number, offset, length_and_use: length })
    }

    /// Writes a block that isn't there, and knows it.
    fn write(&self, newest: &mut Newest, hash: &Hash, bytes: &[u8]) -> Result<(), StoreError> {
        let needed = (RECORD_HEAD_BYTES + bytes.len()) as u64;
        if newest.segment.is_some() && u64::from(newest.end) + needed > self.segment_bytes_max {
            self.seal(newest);
            self.make_room(newest)?;
        }
        let place = self.append(newest, hash, bytes)?;
        let entry = Entry { prefix: hash.prefix(), offset: place.offset, length: place.length() };
        lock(&self.known).insert(place.segment, &entry);
        Ok(())
    }

    /// Begins a segment.
    fn begin(&self, newest: &mut Newest) -> Result<Arc<Segment>, StoreError> {
        let number = newest.next_number;
        let segment = Arc::new(self.names.make(number)?);
        newest.next_number = number.saturating_add(1);
        newest.end = HEAD_BYTES as u32;
        newest.entries.clear();
        newest.segment = Some(Arc::clone(&segment));
        lock(&self.known).segments.insert(number, Arc::clone(&segment));
        Ok(segment)
    }

    /// The newest segment grows no more, and gets its index. Where that can't be written, its records will be looked at.
    fn seal(&self, newest: &mut Newest) {
        if let Some(segment) = newest.segment.take() {
            self.names.write_index(segment.number, newest.end, &newest.entries);
            newest.entries = Vec::new();
        }
    }

    /// Bytes of all files, where the newest segment is as long as it may get.
    fn bytes_on_disk(&self, newest: &Newest) -> u64 {
        let known = lock(&self.known);
        let sealed = |segment: &Arc<Segment>| {
            let is_newest = newest.segment.as_ref().is_some_and(|newest| newest.number == segment.number);
            let entries = u64::from(segment.end()) / (RECORD_HEAD_BYTES as u64 + 4096) * ENTRY_BYTES as u64;
            if is_newest { 0 } else { u64::from(segment.end()) + entries + 4096 }
        };
        known.segments.values().map(sealed).sum::<u64>() + self.segment_bytes_max
    }

    /// Lets the oldest segments go until there is room for the newest.
    fn make_room(&self, newest: &mut Newest) -> Result<(), StoreError> {
        while self.bytes_on_disk(newest) > self.bytes_max {
            let oldest = lock(&self.known).segments.values().next().cloned();
            let is_newest =
                |segment: &Arc<Segment>| newest.segment.as_ref().is_some_and(|n| n.number == segment.number);
            let Some(oldest) = oldest.filter(|oldest| !is_newest(oldest)) else { return Ok(()) };
            // First, so that no block is asked for where it is not any more.
            let used = self.take_out(&oldest);
            let kept = self.keep(newest, &oldest, &used);
            self.names.remove(oldest.number);
            kept?;
        }
        Ok(())
    }

    /// Takes a segment out of what is known. What of it was used.
    fn take_out(&self, oldest: &Segment) -> Vec<(u64, Place)> {
        // From now on its blocks are not there, and who comes upon one forgets it.
        lock(&self.known).segments.remove(&oldest.number);
        let mut used = Vec::new();
        for entries in self.names.entries(oldest).chunks(FORGOTTEN_AT_A_TIME) {
            let mut known = lock(&self.known);
            for entry in entries {
                let Some(place) = known.places.get(&entry.prefix).copied() else { continue };
                if place.segment == oldest.number {
                    known.forget(entry.prefix, place);
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    if place.was_used() {
                        used.push((entry.prefix, place));
                    }
                }
            }
        }
        used
    }

    /// Writes again what of a segment that goes was used, as far as that is bounded.
    fn keep(&self, newest: &mut Newest, oldest: &Segment, used: &[(u64, Place)]) -> Result<(), StoreError> {
        let mut left = KEPT_BYTES_MAX.min(self.segment_bytes_max / 2);
        let mut bytes = Vec::new();
        for (_, place) in used {
            bytes.clear();
            bytes.resize(RECORD_HEAD_BYTES + place.length() as usize, 0);
            if oldest.read(&mut bytes, place.offset).is_err() {
                continue;
            }
            let Some(head) = RecordHead::decode(&bytes, oldest.number, place.offset) else { continue };
            let block = &bytes[RECORD_HEAD_BYTES..];
            if block.len() as u64 > left {
                break;
            }
            // A damaged one is not worth it.
            if self.domain.is_hash_of(&head.hash, block) {
                left -= block.len() as u64;
                let place = self.append(newest, &head.hash, block)?;
                let entry = Entry { prefix: head.hash.prefix(), offset: place.offset, length: place.length() };
                lock(&self.known).insert(place.segment, &entry);
                self.dropped.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Leaves out what the disk of a test has no room for.
    #[cfg(test)]
    fn cut_for_test(&self, mut record: Vec<u8>) -> Vec<u8> {
        let left = self.writes_left.load(Ordering::Relaxed);
        self.writes_left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            record.truncate(record.len() / 2);
        }
        record
    }
}

impl BlockStore for Disk {
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        let prefix = hash.prefix();
        let (place, segment) = {
            let mut known = lock(&self.known);
            let Some(place) = known.places.get_mut(&prefix) else { return Ok(false) };
            place.length_and_use |= WAS_USED;
            let place = *place;
            let Some(segment) = known.segments.get(&place.segment).cloned() else {
                known.forget(prefix, place);
                return Ok(false);
            };
            (place, segment)
        };
        let read = self.read(&segment, place, hash, into);
        match read.map_err(|source| self.names.segment_failure(place.segment, "read a block", source))? {
            Ok(()) => Ok(true),
            Err(is_damaged) => {
                if is_damaged {
                    self.damaged.fetch_add(1, Ordering::Relaxed);
                    lock(&self.known).forget(prefix, place);
                }
                Ok(false)
            }
        }
    }

    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, StoreError> {
        let mut newest = lock(&self.newest);
        if self.has(hash) {
            return Ok(Put::Known);
        }
        let written = self.write(&mut newest, hash, bytes);
        let is_news = if written.is_ok() { newest.health.wrote() } else { newest.health.failed() };
        // Whoever is told may take his time.
        drop(newest);
        if is_news {
            (self.tell.0)(written.as_ref().err().map_or(DiskNews::Well, DiskNews::Failing));
        }
        written.map(|()| Put::New)
    }

    fn has(&self, hash: &Hash) -> bool {
        lock(&self.known).places.contains_key(&hash.prefix())
    }

    fn blocks(&self) -> u64 {
        lock(&self.known).places.len() as u64
    }

    fn bytes(&self) -> u64 {
        lock(&self.known).bytes
    }

    fn figures(&self) -> Vec<Figure> {
        let figure = |name, help, is_counter, value| Figure { name, help, is_counter, value };
        let told = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            figure("disk_bytes", "Bytes of the blocks that are on disk.", false, self.bytes()),
            figure("disk_limit_bytes", "Bytes that files on disk may have.", false, self.bytes_max),
            figure(
                "disk_damaged",
                "Blocks on disk that were torn or changed, and forgotten.",
                true,
                told(&self.damaged),
            ),
            figure("disk_dropped", "Blocks on disk that went to make room.", true, told(&self.dropped)),
        ]
    }
}

impl From<(Unusable, PathBuf)> for StoreError {
    /// Damage is no reason to refuse a store; the caller has taken care of it.
    fn from((why, path): (Unusable, PathBuf)) -> Self {
        match why {
            Unusable::Version(found) => Self::Version { path, found },
            Unusable::Domain => Self::Domain(path),
            Unusable::Damaged => {
                Self::Io { path, step: "understand the file", source: io::ErrorKind::InvalidData.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests;
