//! Descriptors of the files that are being read.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::OwnedFd,
    sync::Arc,
};

use crate::opener::descriptors;

/// Files that are kept open for further fragments and for the check after the last one, where the process may have
/// as many.
const OPEN_FILES_MAX: u64 = 256;

/// The files that are open; the oldest goes first. What is in flight holds its own.
pub(super) struct OpenFiles {
    files_max: usize,
    fds: HashMap<(u32, bool), Arc<OwnedFd>>,
    oldest: VecDeque<(u32, bool)>,
}

impl OpenFiles {
    pub(super) fn new() -> Self {
        Self { files_max: descriptors(OPEN_FILES_MAX, 4), fds: HashMap::new(), oldest: VecDeque::new() }
    }

    pub(super) fn get(&self, file: u32, direct: bool) -> Option<Arc<OwnedFd>> {
        self.fds.get(&(file, direct)).cloned()
    }

    pub(super) fn keep(&mut self, file: u32, direct: bool, fd: Arc<OwnedFd>) {
        while self.fds.len() >= self.files_max {
            let Some(old) = self.oldest.pop_front() else { break };
            self.fds.remove(&old);
        }
        self.fds.insert((file, direct), fd);
        self.oldest.push_back((file, direct));
    }

    pub(super) fn forget(&mut self, file: u32) {
        self.fds.remove(&(file, false));
        self.fds.remove(&(file, true));
        // Files that were forgotten leave their places; they are cleared before they pile up.
        if self.oldest.len() > 4 * self.files_max {
            self.oldest.retain(|place| self.fds.contains_key(place));
        }
    }
}
