//! What was written to files of a tree, until servers have it.
//!
//! What a file was written is gathered until somebody closes it, or for some seconds; then those of its blocks that were touched
//! are read, mostly from memory, and sent. Files that no server takes are remembered, and held open, up to a bound. What a kill
//! or the bound loses is sent when it is read again: the index has forgotten it. What the bound loses is counted.
//!
//! No byte depends on it: a file that was written is asked of no server before its blocks were read from the disk again.

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
    counters::{Owed, add},
    lock,
    offers::{Debt, Debts, Seen},
};

/// Ranges of a file that are told apart.
const RANGES_MAX: usize = 64;
/// Files that are remembered, each held open, at most.
#[derive(Clone, Copy, Debug)]
struct Most {
    /// Those that wait for a server.
    lost: usize,
    /// Those that are on their way to one.
    out: u64,
}

const MOST: Most = Most { lost: 256, out: 1024 };

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
    /// Files that nobody remembers.
    let_go: AtomicU64,
    most: Most,
    own: Weak<FileDebts>,
}

impl FileDebts {
    pub(super) fn new(block_bytes: u32) -> Arc<Self> {
        Self::with(block_bytes, MOST)
    }

    fn with(block_bytes: u32, most: Most) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            block_bytes: block_bytes.into(),
            touched: Mutex::default(),
            lost: Mutex::default(),
            out: AtomicU64::new(0),
            let_go: AtomicU64::new(0),
            most,
            own: Weak::clone(own),
        })
    }

    /// Bytes of a file were written. `open` opens it for reading; where that fails, it is let go.
    pub(super) fn touch(&self, inode: u64, bytes: Range<u64>, open: impl FnOnce() -> io::Result<OwnedFd>) {
        let mut touched = lock(&self.touched);
        match touched.get_mut(&inode) {
            Some(known) => known.add(bytes),
            None => match open() {
                Ok(file) => {
                    touched.insert(inode, Touched { file: Arc::new(file), ranges: vec![bytes] });
                }
                Err(_) => add(&self.let_go, 1),
            },
        }
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
            let debts = self.own.upgrade()?;
            if self.out.fetch_add(1, Ordering::Relaxed) >= self.most.out {
                self.out.fetch_sub(1, Ordering::Relaxed);
                add(&self.let_go, 1);
                return None;
            }
            Some(FileDebt { debts, inode, file, ranges })
        };
        taken.into_iter().filter_map(debt).collect()
    }

    /// Files that servers may lack something of.
    pub(super) fn owed(&self) -> Owed {
        let waiting = lock(&self.touched).len() + lock(&self.lost).len();
        Owed { waiting: waiting as u64 + self.out.load(Ordering::Relaxed), let_go: self.let_go.load(Ordering::Relaxed) }
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
        if lost.len() > debts.most.lost {
            lost.pop_front();
            add(&debts.let_go, 1);
        }
        drop(lost);
        debts.out.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const BLOCK: usize = 4096;

    fn written(debts: &FileDebts, file: &std::fs::File, inodes: Range<u64>) -> Vec<FileDebt> {
        inodes.clone().for_each(|inode| debts.touch(inode, 0..10, || file.try_clone().map(OwnedFd::from)));
        inodes.flat_map(|inode| debts.gathered(Some(inode))).collect()
    }

    fn owed(waiting: u64, let_go: u64) -> Owed {
        Owed { waiting, let_go }
    }

    #[test]
    fn files_that_are_too_many_are_let_go_and_counted() {
        let (debts, file) = (FileDebts::with(BLOCK as u32, Most { lost: 3, out: 5 }), tempfile::tempfile().unwrap());
        let mut out = written(&debts, &file, 0..5);
        assert_eq!((out.len(), debts.owed()), (5, owed(5, 0)));
        // Two more than may be on their way.
        assert!(written(&debts, &file, 5..7).is_empty());
        assert_eq!(debts.owed(), owed(5, 2));
        // Four are lost, of which three are remembered, and one is paid.
        Box::new(out.pop().unwrap()).paid();
        out.into_iter().for_each(|debt| Box::new(debt).lost());
        assert_eq!(debts.owed(), owed(3, 3));
        // One of which nobody can say what it holds.
        debts.touch(9, 0..10, || Err(io::ErrorKind::NotFound.into()));
        assert_eq!(debts.owed(), owed(3, 4));
        // The oldest has gone; the others are paid one by one.
        while let Some(debt) = debts.next() {
            debt.paid();
        }
        assert_eq!(debts.owed(), owed(0, 4));
    }

    #[test]
    fn blocks_that_were_touched_are_read_once() {
        let (debts, file) = (FileDebts::new(BLOCK as u32), tempfile::tempfile().unwrap());
        let content: Vec<u8> = (0..3 * BLOCK + 7).map(|at| (at / BLOCK) as u8 + 1).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &content, 0).unwrap();
        let open = || file.try_clone().map(OwnedFd::from);
        debts.touch(1, 5..6, open);
        debts.touch(1, 3 * BLOCK as u64..3 * BLOCK as u64 + 1, open);
        let (mut seen, mut read) = (HashSet::new(), Vec::new());
        let all = debts.gathered(None);
        for _ in 0..2 {
            all.iter().for_each(|debt| {
                debt.read(&mut seen, &mut |block| {
                    read.push(block.to_vec());
                    true
                })
            });
        }
        assert_eq!(read, [vec![1; BLOCK], vec![4; 7]]);
    }
}
