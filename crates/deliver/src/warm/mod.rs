//! Filling the page cache in the order of the disk, and stopping before it pushes itself out.
//!
//! What was cached already counts too: it may be pushed out by what comes in just as well.

mod memory;
mod own_files;

use std::{
    io::{self, BufReader, Read, Seek, SeekFrom},
    ops::Range,
};

use onesweep::{ContentReader, FileError, Kind, SweptFile};

pub use memory::{Memory, default_limit};
pub use own_files::own_files;

/// Bytes of a page. Larger pages only make the estimate a little low.
const PAGE_BYTES: u64 = 4096;

/// Bytes that a streamed file is read in.
const STREAM_BUFFER_BYTES: usize = 1 << 20;

/// What a warm-up did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Files that are in the cache now, each by all its names.
    pub files: u64,
    /// Page-cache bytes that they hold.
    pub bytes: u64,
    /// True when the limit ended the warm-up, so that files are left.
    pub full: bool,
}

/// Counts what comes into the page cache.
#[derive(Debug)]
pub struct Warmer {
    limit_bytes: u64,
    warmed: Warmed,
}

impl Warmer {
    /// A warmer that stops at `limit_bytes` of page cache.
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, warmed: Warmed::default() }
    }

    /// Takes one item, whose reading brought it into the cache; streamed ones are read here. False when the limit is
    /// reached: then the sweep should end.
    pub fn warm(&mut self, mut file: SweptFile) -> Result<bool, FileError> {
        if file.metadata().kind != Kind::File {
            return Ok(true);
        }
        let names = 1 + file.links().len() as u64;
        if file.linked_to().is_some() {
            self.warmed.files += names;
            return Ok(true);
        }
        let bytes = cached_bytes(&file);
        if self.warmed.bytes + bytes > self.limit_bytes {
            self.warmed.full = true;
            return Ok(false);
        }
        if file.bytes().is_none() {
            let path = file.path().to_owned();
            let ranges = file.data_ranges().to_vec();
            let drained = drain(&mut file.reader(), &ranges);
            drained.map_err(|source| FileError::Io { path, step: "read".into(), source })?;
        }
        self.warmed.files += names;
        self.warmed.bytes += bytes;
        Ok(true)
    }

    /// What was done so far.
    pub fn warmed(&self) -> Warmed {
        self.warmed
    }
}

/// Page-cache bytes of a file: the pages of its data, holes left out.
fn cached_bytes(file: &SweptFile) -> u64 {
    let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES;
    match file.data_ranges() {
        [] if file.route() == onesweep::Route::NoRead => 0,
        [] => pages(file.metadata().size),
        ranges => ranges.iter().map(|range| pages(range.end) - range.start / PAGE_BYTES * PAGE_BYTES).sum(),
    }
}

/// Reads the data; holes have no pages that would be worth it.
fn drain(reader: &mut ContentReader<'_>, data: &[Range<u64>]) -> io::Result<()> {
    for range in data {
        reader.seek(SeekFrom::Start(range.start))?;
        let length = range.end - range.start;
        io::copy(&mut BufReader::with_capacity(STREAM_BUFFER_BYTES, reader.by_ref().take(length)), &mut io::sink())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, metadata, regular};

    #[test]
    fn stops_at_the_limit_and_counts_pages() {
        let mut warmer = Warmer::new(3 * PAGE_BYTES);
        assert!(warmer.warm(regular("a", b"x")).unwrap());
        assert!(warmer.warm(entry("d", Kind::Directory)).unwrap());
        assert!(warmer.warm(regular("b", &[1; 4097])).unwrap());
        assert_eq!(warmer.warmed(), Warmed { files: 2, bytes: 3 * PAGE_BYTES, full: false });
        assert!(warmer.warm(regular("empty", b"")).unwrap());
        assert!(!warmer.warm(regular("c", b"x")).unwrap());
        assert_eq!(warmer.warmed(), Warmed { files: 3, bytes: 3 * PAGE_BYTES, full: true });
    }

    #[test]
    fn each_name_counts_and_its_pages_once() {
        let mut warmer = Warmer::new(PAGE_BYTES);
        assert!(warmer.warm(regular("a", b"x").with_links(vec!["b".into()])).unwrap());
        assert_eq!(warmer.warmed(), Warmed { files: 2, bytes: PAGE_BYTES, full: false });
    }

    #[test]
    fn holes_take_no_pages() {
        let sparse = SweptFile::new("s".into(), metadata(Kind::File, 1 << 30));
        assert_eq!(cached_bytes(&sparse), 0);
        let sparse = SweptFile::new("s".into(), metadata(Kind::File, 20_000));
        assert_eq!(cached_bytes(&sparse.with_bytes(&[0; 20_000], vec![4096..4097, 12_000..16_384])), 3 * PAGE_BYTES);
    }
}
