//! What is known of files without reading them: the first place that is asked.
//!
//! A verdict counts for a file as long as its inode says what it said when it was read: generation, size, mtime, ctime. Two
//! halves: when the newer is full, the older goes, and what is asked for comes into the newer again.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{index::tree::FileKey, scan::Verdict};

/// A file, and what its inode says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) dev: u64,
    pub(super) key: FileKey,
}

/// Which signatures verdicts are of; it rises when they are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u64);

#[derive(Debug)]
pub(super) struct Memory {
    half: usize,
    state: Mutex<State>,
}

/// By file system and inode.
type Half = HashMap<(u64, u64), (FileKey, Verdict)>;

#[derive(Debug)]
struct State {
    epoch: u64,
    newer: Half,
    older: Half,
}

impl Memory {
    /// Room for so many files, some 150 bytes each.
    pub(super) fn new(most: usize) -> Self {
        let state = State { epoch: 0, newer: Half::new(), older: Half::new() };
        Self { half: most.div_ceil(2), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, file: &FileId) -> Option<Verdict> {
        let at = (file.dev, file.key.inode);
        let mut state = self.state();
        if let Some((key, verdict)) = state.newer.get(&at) {
            return (*key == file.key).then(|| verdict.clone());
        }
        let (key, verdict) = state.older.remove(&at)?;
        if key != file.key {
            return None;
        }
        state.put(self.half, at, (key, verdict.clone()));
        Some(verdict)
    }

    /// To be asked for before a file is read.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.state().epoch)
    }

    /// Nothing, where other signatures came since.
    pub(super) fn put(&self, epoch: Epoch, file: FileId, verdict: Verdict) {
        let mut state = self.state();
        if Epoch(state.epoch) == epoch {
            state.put(self.half, (file.dev, file.key.inode), (file.key, verdict));
        }
    }

    /// There are other signatures.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.epoch += 1;
        (state.newer, state.older) = (Half::new(), Half::new());
    }
}

impl State {
    fn put(&mut self, half: usize, at: (u64, u64), known: (FileKey, Verdict)) {
        if self.newer.len() >= half && !self.newer.contains_key(&at) {
            self.older = mem::take(&mut self.newer);
        }
        self.newer.insert(at, known);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::guard) fn file(inode: u64, changed: u32) -> FileId {
        let key = FileKey { inode, generation: 1, size: 10, mtime: (5, 0), ctime: (5, changed) };
        FileId { dev: 7, key }
    }

    #[test]
    fn a_file_that_was_changed_is_not_known() {
        let memory = Memory::new(100);
        let known = [(file(1, 0), Verdict::Clean), (file(2, 0), Verdict::infected("x"))];
        for (file, verdict) in &known {
            memory.put(memory.epoch(), *file, verdict.clone());
            assert_eq!(memory.get(file), Some(verdict.clone()));
        }
        let FileId { key, .. } = file(2, 0);
        let others = [
            FileKey { generation: 2, ..key },
            FileKey { size: 11, ..key },
            FileKey { mtime: (5, 1), ..key },
            FileKey { ctime: (5, 1), ..key },
            FileKey { inode: 3, ..key },
        ];
        for key in others {
            assert_eq!(memory.get(&FileId { dev: 7, key }), None);
        }
        assert_eq!(memory.get(&FileId { dev: 8, key }), None);
        memory.put(memory.epoch(), file(1, 9), Verdict::infected("y"));
        assert_eq!((memory.get(&file(1, 9)), memory.get(&file(1, 0))), (Some(Verdict::infected("y")), None));
    }

    #[test]
    fn other_signatures_void_all_even_what_is_being_read() {
        let memory = Memory::new(100);
        memory.put(memory.epoch(), file(1, 0), Verdict::Clean);
        let before = memory.epoch();
        memory.clear();
        memory.put(before, file(2, 0), Verdict::Clean);
        assert_eq!((memory.get(&file(1, 0)), memory.get(&file(2, 0))), (None, None));
    }

    #[test]
    fn what_is_asked_for_stays_when_there_is_no_room() {
        let memory = Memory::new(20);
        let epoch = memory.epoch();
        for inode in 0..1000 {
            memory.put(epoch, file(inode, 0), Verdict::Clean);
            assert_eq!(memory.get(&file(0, 0)), Some(Verdict::Clean));
        }
        let known = (0..1000).filter(|inode| memory.get(&file(*inode, 0)).is_some()).count();
        assert!((10..=20).contains(&known), "{known}");
    }
}
