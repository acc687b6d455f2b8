//! What growth counts from: what a directory and all in it came to when it was first shown.

use std::collections::HashMap;

use super::look::{Entry, Look, Measure, Sizes};

#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) total: Sizes,
    /// By whether it is a directory, and its name.
    entries: HashMap<(bool, Vec<u8>), Sizes>,
    /// All directories, and all files, were named.
    is_whole: [bool; 2],
}

impl Baseline {
    pub(super) fn of(look: &Look) -> Baseline {
        let entries =
            look.entries.iter().map(|entry| ((entry.is_directory, entry.name.clone()), entry.sizes)).collect();
        Baseline { total: look.total, entries, is_whole: [look.rest_files == 0, look.rest_directories == 0] }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// By how much an entry has grown. What is new has grown by all of it, unless it may have been among those without a name.
    pub(super) fn growth(&self, entry: &Entry, measure: Measure) -> Option<i64> {
        let now = entry.sizes.by(measure);
        match self.entries.get(&(entry.is_directory, entry.name.clone())) {
            Some(before) => Some(now - before.by(measure)),
            None => self.is_whole[usize::from(entry.is_directory)].then_some(now),
        }
    }
}
