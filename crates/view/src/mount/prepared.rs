//! Directories that are looked at before a program asks for them, in the time in which it works on what it has.
//!
//! Who walks comes to the directories of a directory next. So those are listed, with the attributes of all that is in them, as soon
//! as they were told; what was seen is taken for an answer if nothing has changed in the whole source since.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use onesweep_sys::{files::EntryType, usage::blocks_read};

use super::{births::Found, forerun::insert_behind, lock, nodes::NodeId, shown::Shown};
use crate::order::{self, Listed};

/// Entries that are kept, at most; each directory counts for one more.
const ENTRIES_MAX: usize = 1 << 14;
/// Directories that wait to be looked at.
const WAITING_MAX: usize = 1 << 12;

/// What is in a directory.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) listed: Arc<Vec<Listed>>,
    /// What each is; none of what may change unseen, and nothing where that wasn't looked at.
    found: Vec<Option<Found>>,
    /// How many changes there had been before.
    since: u64,
}

impl Entries {
    /// Names alone.
    pub(super) fn of_names(listed: Arc<Vec<Listed>>) -> Self {
        Self { listed, found: Vec::new(), since: 0 }
    }

    /// What was seen when there had been `since` changes.
    pub(super) fn seen(listed: Arc<Vec<Listed>>, found: Vec<Option<Found>>, since: u64) -> Self {
        Self { listed, found, since }
    }

    /// What an entry is, if that was seen and nothing has changed since.
    pub(super) fn found(&self, at: usize, changes: u64) -> Option<&Found> {
        self.found.get(at)?.as_ref().filter(|_| self.since == changes)
    }

    fn weight(&self) -> usize {
        self.listed.len() + 1
    }
}

/// What was looked at, and what is to be: pure.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    waiting: VecDeque<NodeId>,
    seen: HashMap<NodeId, Entries>,
    kept: usize,
}

impl Prepared {
    /// A program was told of these directories, one below the other in a listing, behind `after`: it may come to them next.
    pub(super) fn expect(&mut self, after: Option<NodeId>, directories: impl Iterator<Item = NodeId>) {
        insert_behind(&mut self.waiting, after, directories);
        self.waiting.truncate(WAITING_MAX);
    }

    /// The next one to be looked at, while there is room.
    pub(super) fn next(&mut self) -> Option<NodeId> {
        if self.is_full() {
            return None;
        }
        self.waiting.pop_front()
    }

    /// What was seen in a directory.
    pub(super) fn keep(&mut self, id: NodeId, entries: Entries) {
        self.kept += entries.weight();
        if let Some(old) = self.seen.insert(id, entries) {
            self.kept -= old.weight();
        }
    }

    /// Whether there is no room for more.
    pub(super) fn is_full(&self) -> bool {
        self.kept >= ENTRIES_MAX
    }

    /// Nobody will ask for a directory.
    pub(super) fn drop_seen(&mut self, id: NodeId) {
        self.kept -= self.seen.remove(&id).as_ref().map_or(0, Entries::weight);
    }

    /// Whether a directory was seen, when there had been so many changes.
    pub(super) fn has(&self, id: NodeId, changes: u64) -> bool {
        self.seen.get(&id).is_some_and(|entries| entries.since == changes)
    }

    /// A program asks for a directory, when there have been so many changes.
    pub(super) fn take(&mut self, id: NodeId, changes: u64) -> Option<Entries> {
        if let Some(at) = self.waiting.iter().position(|waiting| *waiting == id) {
            self.waiting.remove(at);
        }
        let seen = self.seen.remove(&id);
        self.kept -= seen.as_ref().map_or(0, Entries::weight);
        // Where one is old, those that were seen before it are, too.
        if seen.as_ref().is_some_and(|entries| entries.since != changes) {
            self.forget();
            return None;
        }
        seen
    }

    /// Nothing is to be kept, nor to be looked at.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Looks ahead of programs.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) prepared: Mutex<Prepared>,
    /// One thread does it at a time: others have to take requests.
    is_busy: AtomicBool,
    count: AtomicU64,
}

impl Ahead {
    /// Directories that were looked at.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Shown {
    /// A program was told of directories: looks at them, as long as that takes nothing from a disk that turns, where walks are helped
    /// in another way, and nothing changes. What is changed through the view isn't counted as a change, so there nothing is seen ahead.
    pub(super) fn look_ahead(&self, after: Option<NodeId>, below: impl Iterator<Item = NodeId>) {
        if !self.read_only {
            return;
        }
        lock(&self.ahead.prepared).expect(after, below);
        if self.ahead.is_busy.swap(true, Ordering::SeqCst) {
            return;
        }
        let (since, before) = (self.changes.now(), blocks_read());
        loop {
            let Some(id) = lock(&self.ahead.prepared).next() else { break };
            let seen = self.see(id, since, before);
            let mut prepared = lock(&self.ahead.prepared);
            match seen {
                Some(entries) => {
                    prepared.keep(id, entries);
                    self.ahead.count.fetch_add(1, Ordering::Relaxed);
                }
                None => {
                    prepared.forget();
                    break;
                }
            }
        }
        self.ahead.is_busy.store(false, Ordering::SeqCst);
    }

    /// What is in a directory, if all of that is in memory, or on a disk that doesn't turn, and as it was.
    pub(super) fn see(&self, id: NodeId, since: u64, before: u64) -> Option<Entries> {
        let is_cheap = || self.has_quick_disks || blocks_read() == before;
        let directory = self.open_directory(id).ok()?;
        if self.is_foreign(id) || !self.changes.is_seen(id) {
            return None;
        }
        let mut listed = order::read(directory.as_fd()).ok().filter(|_| is_cheap())?;
        // Before they are sorted, for which each may be looked at, too: the first one on the disk ends it.
        let mut by_number = HashMap::with_capacity(listed.len());
        for entry in &listed {
            let found = self.source.look_at(directory.as_fd(), &entry.name).ok().filter(|_| is_cheap())?;
            let stat = &found.stat;
            // One that may change unseen is looked at when it is asked for.
            let names = stat.nlink * u32::from(stat.file_type() != EntryType::Dir);
            if self.changes.are_seen(id, names) {
                by_number.insert(entry.ino, found);
            }
        }
        order::sort(directory.as_fd(), self.order, &mut listed);
        let found = listed.iter().map(|entry| by_number.get(&entry.ino).cloned()).collect();
        (is_cheap() && self.changes.now() == since).then(|| Entries::seen(Arc::new(listed), found, since))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use onesweep_sys::files::{CURRENT_DIR, statx_at};

    use super::{super::births::Birth, *};

    fn entries(count: u64, since: u64) -> Entries {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "bytes").unwrap();
        let stat = statx_at(CURRENT_DIR, dir.path().join("file"), true).unwrap();
        let file = |ino| Listed { name: c"file".to_owned(), ino, kind: EntryType::File };
        let found = (0..count).map(|_| Some(Found { stat, birth: Birth::default() })).collect();
        Entries::seen(Arc::new((0..count).map(file).collect()), found, since)
    }

    #[test]
    fn what_was_seen_is_taken_once_and_as_long_as_nothing_changes() {
        let mut prepared = Prepared::default();
        (10..13).for_each(|id| prepared.keep(id, entries(3, 7)));
        let taken = prepared.take(10, 7).unwrap();
        assert_eq!(taken.found(2, 7).unwrap().stat.size, 5);
        assert!(taken.found(3, 7).is_none() && taken.found(2, 8).is_none(), "changed between two parts of a listing");
        assert!(prepared.take(10, 7).is_none());
        assert!(prepared.take(11, 8).is_none() && prepared.take(12, 7).is_none(), "nothing is left after a change");
        assert_eq!(prepared.kept, 0);
        let names = Entries::of_names(Arc::clone(&taken.listed));
        assert!(names.found(0, 0).is_none(), "not looked at");
    }

    #[test]
    fn the_next_directory_comes_first() {
        let mut prepared = Prepared::default();
        prepared.expect(None, [1, 2].into_iter());
        assert_eq!(prepared.next(), Some(1));
        prepared.expect(Some(2), [3].into_iter());
        prepared.expect(Some(1), [11, 12].into_iter());
        assert!(prepared.take(11, 0).is_none(), "the program came first");
        assert_eq!(
            [prepared.next(), prepared.next(), prepared.next(), prepared.next()],
            [Some(12), Some(2), Some(3), None]
        );
    }

    #[test]
    fn what_is_seen_ahead_is_bounded() {
        let mut prepared = Prepared::default();
        prepared.expect(None, 0..2 * WAITING_MAX as u64);
        assert_eq!(prepared.waiting.len(), WAITING_MAX);
        let mut kept = 0;
        while let Some(id) = prepared.next() {
            prepared.keep(id, entries(1 << 10, 0));
            kept += 1;
        }
        assert_eq!(kept, ENTRIES_MAX.div_ceil(1 + (1 << 10)));
        assert!(prepared.take(1, 0).is_some() && prepared.next().is_some(), "there is room again");
    }
}
