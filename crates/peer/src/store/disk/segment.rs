//! The files of a store: their names, and how they are read and written.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use super::format::{
    self, Entry, HEAD_BYTES, Kind, RECORD_HEAD_BYTES, RecordHead, Unusable, check_head, decode_index, encode_index,
};
use crate::{id::DomainName, store::StoreError};

const LOCK: &str = "lock";
/// Bytes of an index, at most: of a segment of the largest size with blocks of 4 KiB, and as much again.
const INDEX_BYTES_MAX: u64 = 32 << 20;
/// Bytes of a segment that are read at a time when its records are looked for.
const SCAN_BYTES: usize = 1 << 20;

/// A segment file.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    file: File,
    end: AtomicU32,
}

impl Segment {
    /// All bytes, or an error.
    pub(super) fn read(&self, bytes: &mut [u8], offset: u32) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset.into())
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u32) -> io::Result<()> {
        self.file.write_all_at(bytes, offset.into())
    }

    /// Where its last record ends.
    pub(super) fn end(&self) -> u32 {
        self.end.load(Ordering::Relaxed)
    }

    pub(super) fn set_end(&self, end: u32) {
        self.end.store(end, Ordering::Relaxed);
    }

    /// The records, from the first to the last whose head is whole.
    fn scan(&self) -> io::Result<(u32, Vec<Entry>)> {
        let length = u32::try_from(self.file.metadata()?.len()).unwrap_or(u32::MAX);
        let (mut end, mut entries) = (HEAD_BYTES as u32, Vec::new());
        let (mut window, mut window_start) = (Vec::new(), 0_u32);
        loop {
            let (from, to) = (end, end.saturating_add(RECORD_HEAD_BYTES as u32));
            if to > length {
                return Ok((end, entries));
            }
            if from < window_start || (to - window_start) as usize > window.len() {
                window.resize(SCAN_BYTES.min((length - from) as usize), 0);
                window_start = from;
                self.read(&mut window, from)?;
            }
            let bytes = &window[(from - window_start) as usize..];
            let head = RecordHead::decode(bytes, self.number, from);
            let Some((head, next)) = head.and_then(|head| Some((head, to.checked_add(head.length)?))) else {
                return Ok((end, entries));
            };
            if next > length {
                return Ok((end, entries));
            }
            entries.push(Entry { prefix: head.hash.prefix(), offset: from, length: head.length });
            end = next;
        }
    }
}

/// What was found in a segment.
pub(super) struct Opened {
    pub(super) segment: Segment,
    pub(super) end: u32,
    pub(super) entries: Vec<Entry>,
    /// Its index told them.
    pub(super) is_indexed: bool,
}

/// The directory of a store.
#[derive(Debug)]
pub(super) struct Names {
    dir: PathBuf,
    domain: DomainName,
}

impl Names {
    pub(super) fn new(dir: &Path, domain: DomainName) -> Self {
        Self { dir: dir.to_owned(), domain }
    }

    fn segment(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:08x}.segment"))
    }

    fn index(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:08x}.index"))
    }

    pub(super) fn failure(&self, step: &'static str, source: io::Error) -> StoreError {
        StoreError::Io { path: self.dir.clone(), step, source }
    }

    pub(super) fn segment_failure(&self, number: u32, step: &'static str, source: io::Error) -> StoreError {
        StoreError::Io { path: self.segment(number), step, source }
    }

    /// The file that whoever has the store open holds a lock on.
    pub(super) fn lock(&self) -> Result<File, StoreError> {
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(self.dir.join(LOCK));
        opened.map_err(|source| self.failure("make the lock in it", source))
    }

    /// The numbers of all segments, from the oldest.
    pub(super) fn numbers(&self) -> Result<Vec<u32>, StoreError> {
        let listed = fs::read_dir(&self.dir).and_then(|entries| {
            let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
            names
        });
        let names = listed.map_err(|source| self.failure("list the directory", source))?;
        let number = |name: &std::ffi::OsString| u32::from_str_radix(name.to_str()?.strip_suffix(".segment")?, 16).ok();
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A new segment without records.
    pub(super) fn make(&self, number: u32) -> Result<Segment, StoreError> {
        let made = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.segment(number));
        let made = made.and_then(|file| {
            file.write_all_at(&format::head(Kind::Segment, self.domain, number), 0)?;
            Ok(file)
        });
        let file = made.map_err(|source| self.segment_failure(number, "make a segment", source))?;
        Ok(Segment { number, file, end: AtomicU32::new(HEAD_BYTES as u32) })
    }

    /// Opens a segment; none where it is damaged. The last one has no index that could be believed: it may have grown since.
    pub(super) fn open(&self, number: u32, is_last: bool) -> Result<Option<Opened>, StoreError> {
        let failure = |source| self.segment_failure(number, "read a segment", source);
        let file = OpenOptions::new().read(true).write(true).open(self.segment(number)).map_err(failure)?;
        let segment = Segment { number, file, end: AtomicU32::new(0) };
        let mut head = [0; HEAD_BYTES];
        let checked = match segment.read(&mut head, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Unusable::Damaged),
            Err(error) => return Err(failure(error)),
            Ok(()) => check_head(&head, Kind::Segment, self.domain, number),
        };
        match checked {
            Err(Unusable::Damaged) => return Ok(None),
            Err(why) => return Err((why, self.segment(number)).into()),
            Ok(()) => {}
        }
        let indexed = if is_last { None } else { self.read_index(&segment) };
        let is_indexed = indexed.is_some();
        let (end, entries) = match indexed {
            Some(found) => found,
            None => segment.scan().map_err(failure)?,
        };
        segment.set_end(end);
        Ok(Some(Opened { segment, end, entries, is_indexed }))
    }

    /// What a segment that grows no more has; nothing where it can't be read any more.
    pub(super) fn entries(&self, segment: &Segment) -> Vec<Entry> {
        let found = self.read_index(segment).or_else(|| segment.scan().ok());
        found.map(|(_, entries)| entries).unwrap_or_default()
    }

    fn read_index(&self, segment: &Segment) -> Option<(u32, Vec<Entry>)> {
        let path = self.index(segment.number);
        let is_small = fs::metadata(&path).is_ok_and(|found| found.len() <= INDEX_BYTES_MAX);
        let bytes = is_small.then(|| fs::read(&path).ok()).flatten()?;
        let (end, entries) = decode_index(&bytes, self.domain, segment.number).ok()?;
        // Of a segment that was cut, each record that is still there is found by looking.
        (segment.file.metadata().ok()?.len() >= end.into()).then_some((end, entries))
    }

    /// Writes the index of a segment, all of it or none.
    pub(super) fn write_index(&self, number: u32, end: u32, entries: &[Entry]) {
        let (path, new) = (self.index(number), self.dir.join(format!("{number:08x}.new")));
        let written =
            fs::write(&new, encode_index(self.domain, number, end, entries)).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
    }

    /// Removes a segment and its index. What can't be removed is found at the next start, and goes then.
    pub(super) fn remove(&self, number: u32) {
        for path in [self.segment(number), self.index(number)] {
            let _ = fs::remove_file(path);
        }
    }
}
