//! What was written to files of a tree, until servers have it.
//!
//! What a file was written is gathered until somebody closes it, or for some seconds; then those of its blocks that were touched
//! are read, mostly from memory, and sent. Files that no server takes are remembered, and held open, up to a bound. What a kill
//! or the bound loses is sent when it is read again: the index has forgotten it.

use std::{
    collections::{HashMap, VecDeque},
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use onesweep_sys::files::{fill_at, seek_data, statx_fd};

use super::super::{
    lock,
    offers::{Debt, Debts, Seen},
};

/// Ranges of a file that are told apart.
const RANGES_MAX: usize = 64;
/// Files that wait for a server, at most, and files that are on their way.
const LOST_MAX: usize = 256;
const OUT_MAX: u64 = 1024;

/// What was written to a file.
struct Touched {
    /// Open for reading.
    file: Arc<OwnedFd>,
    ranges: Vec<Range<u64>>,
}

impl Touched {
    fn add(&mut self, bytes: Range<u64>) {
        if let Some(last) = self.ranges.last_mut()
            && bytes.start <= last.end
            && last.start <= bytes.end
        {
            *last = last.start.min(bytes.start)..last.end.max(bytes.end);
            return;
        }
        self.ranges.push(bytes);
        if self.ranges.len() > RANGES_MAX {
            let start = self.ranges.iter().map(|range| range.start).min().unwrap_or(0);
            let end = self.ranges.iter().map(|range| range.end).max().unwrap_or(0);
            self.ranges.clear();
            self.ranges.push(start..end);
        }
    }
}

/// What servers are owed of a tree that is written through.
pub(super) struct FileDebts {
    block_bytes: u64,
    /// By inode.
    touched: Mutex<HashMap<u64, Touched>>,
    lost: Mutex<VecDeque<FileDebt>>,
    /// Files on their way.
    out: AtomicU64,
    own: Weak<FileDebts>,
}

impl FileDebts {
    pub(super) fn new(block_bytes: u32) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            block_bytes: block_bytes.into(),
            touched: Mutex::default(),
            lost: Mutex::default(),
            out: AtomicU64::new(0),
            own: Weak::clone(own),
        })
    }

    /// Bytes of a file were written. `open` opens it for reading.
    pub(super) fn touch(
        &self,
        inode: u64,
        bytes: Range<u64>,
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> io::Result<()> {
        let mut touched = lock(&self.touched);
        match touched.get_mut(&inode) {
            Some(known) => known.add(bytes),
            None => {
                let file = Arc::new(open()?);
                touched.insert(inode, Touched { file, ranges: vec![bytes] });
            }
        }
        Ok(())
    }

    /// What was gathered of a file, or of all of them.
    pub(super) fn gathered(&self, inode: Option<u64>) -> Vec<FileDebt> {
        let mut touched = lock(&self.touched);
        let taken: Vec<(u64, Touched)> = match inode {
            Some(inode) => touched.remove_entry(&inode).into_iter().collect(),
            None => touched.drain().collect(),
        };
        drop(touched);
        let debt = |(inode, Touched { file, ranges })| {
            let debts = self.own.upgrade().filter(|_| self.out.load(Ordering::Relaxed) < OUT_MAX)?;
            self.out.fetch_add(1, Ordering::Relaxed);
            Some(FileDebt { debts, inode, file, ranges })
        };
        taken.into_iter().filter_map(debt).collect()
    }

    /// Files that servers may lack something of.
    pub(super) fn count(&self) -> u64 {
        let waiting = lock(&self.touched).len() + lock(&self.lost).len();
        waiting as u64 + self.out.load(Ordering::Relaxed)
    }
}

impl Debts for FileDebts {
    fn next(&self) -> Option<Box<dyn Debt>> {
        let debt = lock(&self.lost).pop_front()?;
        self.out.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(debt))
    }
}

/// What was written to one file.
pub(super) struct FileDebt {
    debts: Arc<FileDebts>,
    inode: u64,
    file: Arc<OwnedFd>,
    ranges: Vec<Range<u64>>,
}

impl Debt for FileDebt {
    fn read(&self, seen: &mut Seen, take: &mut dyn FnMut(&[u8]) -> bool) {
        let each = self.debts.block_bytes;
        // The last block is as long as the file is now.
        let Ok(size) = statx_fd(self.file.as_fd()).map(|stat| stat.size) else { return };
        let mut bytes = vec![0; each as usize];
        for range in &self.ranges {
            let mut at = range.start / each * each;
            let end = range.end.min(size);
            while at < end {
                // Holes are zeros, which nobody is sent.
                match seek_data(self.file.as_fd(), at) {
                    Ok(Some(data)) if data < end => at = data / each * each,
                    _ => break,
                }
                let len = (size - at).min(each) as usize;
                let fill = |bytes: &mut [u8]| fill_at(self.file.as_fd(), bytes, at).is_ok_and(|filled| filled == len);
                let is_read = seen.insert((self.inode, at / each)) && fill(&mut bytes[..len]);
                if is_read && !take(&bytes[..len]) {
                    return;
                }
                at += each;
            }
        }
    }

    fn paid(self: Box<Self>) {
        self.debts.out.fetch_sub(1, Ordering::Relaxed);
    }

    fn lost(self: Box<Self>) {
        let debts = Arc::clone(&self.debts);
        let mut lost = lock(&debts.lost);
        lost.push_back(*self);
        if lost.len() > LOST_MAX {
            lost.pop_front();
        }
        drop(lost);
        debts.out.fetch_sub(1, Ordering::Relaxed);
    }
}
