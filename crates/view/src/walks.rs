//! When a walk over a tree begins, and over which one: pure.
//!
//! A program that walks opens directories one below the other, and reads files in them. What is read from memory needs no help;
//! so it begins when something has to come from the disk, at the topmost directory that was opened lately or still is open.
//! A single file that is read, or a directory that is listed, is no walk.

use std::{collections::VecDeque, time::Duration};

use crate::guide::DirectoryId;

/// How long a directory that was closed may have been the beginning of a walk.
const LATELY: Duration = Duration::from_secs(10);

/// Directories that were closed lately, at most.
const CLOSED_MAX: usize = 256;

/// What had to come from the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The entries of a directory.
    Entries,
    /// Bytes of a file in a directory.
    Content,
}

/// Directories that are open or were so lately.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    open: Vec<DirectoryId>,
    /// When each was closed.
    closed: VecDeque<(Duration, DirectoryId)>,
}

impl Walks {
    /// A program has opened a directory.
    pub(crate) fn opened(&mut self, directory: DirectoryId) {
        self.open.push(directory);
    }

    /// It has closed it. Times are counted from any moment.
    pub(crate) fn closed(&mut self, now: Duration, directory: DirectoryId) {
        if let Some(at) = self.open.iter().rposition(|open| *open == directory) {
            self.open.swap_remove(at);
        }
        if self.closed.len() == CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back((now, directory));
    }

    /// A program has opened the first directory of `chain`, which goes on with those above it; when it closes it nobody will tell. Whether that may be a walk: one above it
    /// was opened lately.
    pub(crate) fn passed(&mut self, now: Duration, chain: &[DirectoryId]) -> bool {
        let top = self.missed(now, chain, Missed::Entries);
        // The one at which a walk has begun stays the beginning for as long as it goes on.
        for directory in top.into_iter().chain(chain.first().copied()) {
            self.closed.retain(|(_, closed)| *closed != directory);
            self.closed(now, directory);
        }
        top.is_some()
    }

    /// Something had to come from the disk, in the first directory of `chain`, which goes on with those above it. Gives the
    /// directory whose tree is walked over, if that is what happens.
    pub(crate) fn missed(&mut self, now: Duration, chain: &[DirectoryId], missed: Missed) -> Option<DirectoryId> {
        while self.closed.front().is_some_and(|(closed, _)| now.saturating_sub(*closed) > LATELY) {
            self.closed.pop_front();
        }
        let is_lately = |id: &DirectoryId| self.open.contains(id) || self.closed.iter().any(|(_, closed)| closed == id);
        let above = match missed {
            // Listed alone it is no walk; below another one it is.
            Missed::Entries => chain.get(1..)?,
            Missed::Content => chain,
        };
        above.iter().rev().find(|id| is_lately(id)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn a_walk_begins_at_the_topmost_directory() {
        let mut walks = Walks::default();
        walks.opened(10);
        assert_eq!(walks.missed(NOW, &[10, 1], Missed::Entries), None, "a single directory");
        walks.opened(11);
        assert_eq!(walks.missed(NOW, &[11, 10, 1], Missed::Entries), Some(10));
        assert_eq!(walks.missed(NOW, &[11, 10, 1], Missed::Content), Some(10));
        walks.closed(NOW, 10);
        assert_eq!(walks.missed(NOW + LATELY, &[11, 10, 1], Missed::Content), Some(10));
        assert_eq!(walks.missed(NOW + LATELY * 2, &[11, 10, 1], Missed::Content), Some(11));
    }

    #[test]
    fn files_by_their_names_are_no_walk() {
        let mut walks = Walks::default();
        assert_eq!(walks.missed(NOW, &[12, 11, 1], Missed::Content), None);
        walks.opened(13);
        assert_eq!(walks.missed(NOW, &[12, 11, 1], Missed::Content), None, "another directory");
        assert_eq!(walks.missed(NOW, &[], Missed::Entries), None);
    }

    #[test]
    fn a_walk_keeps_its_beginning_where_no_end_is_told() {
        let mut walks = Walks::default();
        assert!(!walks.passed(NOW, &[10, 1]), "the first");
        for step in 0..3 * CLOSED_MAX as u32 {
            let now = NOW + step * LATELY / CLOSED_MAX as u32 * 2;
            assert!(walks.passed(now, &[100 + u64::from(step), 10, 1]));
        }
        let end = NOW + 6 * LATELY;
        assert_eq!(walks.missed(end, &[11, 10, 1], Missed::Content), Some(10));
        assert!(!walks.passed(end + 2 * LATELY, &[11, 10, 1]), "another one, later");
        assert!(!walks.passed(end + 2 * LATELY, &[]));
    }

    #[test]
    fn one_that_is_open_twice_stays_open() {
        let mut walks = Walks::default();
        walks.opened(10);
        walks.opened(10);
        walks.closed(NOW, 10);
        assert_eq!(walks.missed(NOW * 9, &[11, 10], Missed::Content), Some(10));
        walks.closed(NOW * 9, 10);
        assert_eq!(walks.missed(NOW * 18, &[11, 10], Missed::Content), None);
        for directory in 0..2 * CLOSED_MAX as u64 {
            walks.closed(NOW, directory);
        }
        assert_eq!(walks.closed.len(), CLOSED_MAX);
    }
}
