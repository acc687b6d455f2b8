//! What reading through the page cache leaves there, so that just this is dropped again.

use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
};

use onesweep_sys::cache;

use crate::catalogue::{Entry, Flags};

/// How it can be found out which pages of a file are cached. The kernel tells owners and those who may write; others can
/// try each page where the file system has reads that may not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    Told,
    ByTrial,
    Not,
}

impl Telling {
    fn of(fd: BorrowedFd<'_>) -> Self {
        if cache::residency(fd, 0, 1).is_ok() {
            Self::Told
        } else if cache::has_trial(fd) {
            Self::ByTrial
        } else {
            Self::Not
        }
    }
}

/// What is tried at once of a range that will be read next.
const TRIED_BYTES: usize = 128 << 10;

/// Whether a file was cached before this range of it is read, through a descriptor without read-ahead; `None` where nobody can tell.
pub(crate) fn was_cached(entry: &Entry, fd: BorrowedFd<'_>, range: &Range<u64>, buffer: &mut Vec<u8>) -> Option<bool> {
    if entry.flags.has(Flags::UNTOLD) {
        let bytes = TRIED_BYTES.min((range.end - range.start) as usize);
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        return cache::is_range_cached_by_trial(fd, range, buffer).ok();
    }
    if !entry.flags.has(Flags::PARTLY_CACHED) {
        return Some(false);
    }
    cache::residency(fd, 0, entry.size).ok().map(|found| found.has_all_of(entry.size))
}

/// Pages of one file that were not cached before it was read.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    uncached: Vec<Range<u64>>,
    /// All of the file is told of.
    complete: bool,
}

impl Footprint {
    /// For a file of which nothing was cached.
    pub(crate) fn everything() -> Self {
        Self { uncached: std::iter::once(0..i64::MAX as u64).collect(), complete: true }
    }

    /// For a file that was surveyed and will be read whole through `fd`, which loses its read-ahead where that would
    /// blur what was cached.
    pub(crate) fn of_entry(entry: &Entry, fd: BorrowedFd<'_>) -> Self {
        if !entry.flags.has(Flags::PARTLY_CACHED) {
            return Self::everything();
        }
        Self::of_file(fd, entry.size)
    }

    /// The same for a file that was not surveyed.
    pub(crate) fn of_file(fd: BorrowedFd<'_>, size: u64) -> Self {
        let mut footprint = Self::default();
        if Telling::of(fd) == Telling::Not {
            return footprint;
        }
        let _ = cache::random_access(fd);
        footprint.expect(fd, 0..size, size);
        footprint
    }

    /// Takes note before a range is read through a descriptor without read-ahead. Where the kernel tells, all of the
    /// file is taken note of at once: a read can start read-ahead far behind its end, at a mark that others left.
    pub(crate) fn expect(&mut self, fd: BorrowedFd<'_>, range: Range<u64>, size: u64) {
        if self.complete {
            return;
        }
        match cache::uncached_runs(fd, &(0..size)) {
            Ok(runs) => {
                self.complete = true;
                self.uncached.extend(runs);
            }
            // What can't be told at all can't be dropped.
            Err(_) => self.uncached.extend(cache::uncached_runs_by_trial(fd, &range).unwrap_or_default()),
        }
    }

    /// Drops what was brought in; nothing but memory depends on it.
    pub(crate) fn wipe(&mut self, fd: BorrowedFd<'_>) {
        for run in self.uncached.drain(..) {
            let _ = cache::drop_cached(fd, run.start, run.end - run.start);
        }
    }
}

/// The same for a file of any size that is read from front to back: known a little ahead of the reader, dropped behind it.
#[derive(Debug)]
pub(crate) struct Trail<F: AsFd> {
    fd: F,
    telling: Telling,
    /// The range of which it is known.
    known: Range<u64>,
    /// Of this, what was not cached and is not dropped yet, rising.
    uncached: Vec<Range<u64>>,
}

/// Known at least so far ahead of a reader: further than the kernel reads ahead.
const TOLD_AHEAD: u64 = 16 << 20;

/// Tried at once, where the kernel does not tell. Trying reads, so this is memory; but a mark that others left near the
/// end of such a part starts read-ahead into the next, which then looks cached.
const TRIED_AT_ONCE: u64 = 32 << 20;

/// A multiple of every page size, and of blocks that are larger: the kernel drops no part of those.
const DROP_ALIGNMENT: u64 = 64 << 10;

impl<F: AsFd> Trail<F> {
    pub(crate) fn new(fd: F) -> Self {
        let telling = Telling::of(fd.as_fd());
        if telling != Telling::Not {
            // Without this, what is read ahead would be taken for what was cached.
            let _ = cache::random_access(fd.as_fd());
        }
        Self { fd, telling, known: 0..0, uncached: Vec::new() }
    }

    /// Takes note before a read at `at`, where data goes on up to `data_end`; gives where the read has to end.
    pub(crate) fn advance(&mut self, at: u64, data_end: u64) -> u64 {
        let told = match self.telling {
            Telling::Told => true,
            Telling::ByTrial => false,
            // What can't be told can't be dropped.
            Telling::Not => return u64::MAX,
        };
        let start = at / DROP_ALIGNMENT * DROP_ALIGNMENT;
        if !(self.known.start..=self.known.end).contains(&start) {
            self.wipe();
            self.known = start..start;
        }
        self.wipe_before(start);
        let fd = self.fd.as_fd();
        let wanted = if told { at + TOLD_AHEAD } else { at + 1 };
        while self.known.end < wanted {
            let (end, runs) = if told {
                let end = self.known.end + TOLD_AHEAD;
                (end, cache::uncached_runs(fd, &(self.known.end..end)))
            } else {
                // Not the hole before: it would be read, and look cached.
                let end = data_end.min(at + TRIED_AT_ONCE);
                (end, cache::uncached_runs_by_trial(fd, &(at..end)))
            };
            self.uncached.extend(runs.unwrap_or_default());
            self.known.end = end;
        }
        self.known.end
    }

    fn wipe_before(&mut self, end: u64) {
        let passed = self.uncached.partition_point(|run| run.end <= end);
        for run in self.uncached.drain(..passed) {
            let _ = cache::drop_cached(self.fd.as_fd(), run.start, run.end - run.start);
        }
        if let Some(run) = self.uncached.first_mut().filter(|run| run.start < end) {
            let _ = cache::drop_cached(self.fd.as_fd(), run.start, end - run.start);
            run.start = end;
        }
        self.known.start = end.max(self.known.start);
    }

    /// Drops all that was brought in, ahead of the reader too.
    pub(crate) fn wipe(&mut self) {
        self.wipe_before(u64::MAX);
        self.known = 0..0;
    }
}

impl<F: AsFd> Drop for Trail<F> {
    fn drop(&mut self) {
        self.wipe();
    }
}
