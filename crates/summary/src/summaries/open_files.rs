//! Files that stay open for writing, where sizes follow at close: nobody tells what is written to them, so they are looked at
//! from time to time.

use std::collections::HashMap;

use super::{Answer, Freshness, Summaries, SummaryError};
use crate::{
    identity::NodeId,
    links::LinkKey,
    reading::{Directories, OpenFile},
    tracker::{SizesFollow, Tracker},
};

/// What was found at the last look.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// In seconds since 1970: as all open files were then, or later, they are counted.
    at: i64,
    /// By what each can be told from what it is later.
    stamps: HashMap<NodeId, u64>,
}

impl Looked {
    pub(super) fn at(at: i64) -> Looked {
        Looked { at, ..Looked::default() }
    }

    /// Everything that has changed was looked for then.
    pub(super) fn all_were_at(&mut self, at: i64) {
        self.at = at;
    }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    pub(super) fn follows_close(&self) -> bool {
        self.directories.sizes_follow() == SizesFollow::Close
    }

    /// Takes in which files were open for writing, and how they were, from `at` on, in seconds since 1970. Where they aren't as at
    /// the last look, the directories that name them are read before they are asked for.
    pub fn take_open_files(&mut self, at: i64, files: &[OpenFile]) -> Result<(), SummaryError> {
        // One that wasn't open then may have been written since it was counted.
        let before = std::mem::replace(&mut self.looked, Looked::at(at)).stamps;
        for OpenFile { id, stamp } in files {
            let is_the_same = *stamp != 0 && before.get(id) == Some(stamp);
            if !is_the_same {
                let key = LinkKey { subvolume: id.subvolume, ino: id.ino };
                self.ledger.places(key)?.all().try_for_each(|place| self.mark(place))?;
            }
        }
        self.looked.stamps = files.iter().map(|file| (file.id, file.stamp)).collect();
        Ok(())
    }

    /// What is stored of a directory, when all below it was harvested that is known to have changed.
    pub(super) fn settled_answer(&self, directory: NodeId, freshness: Freshness) -> Result<Answer, SummaryError> {
        // Who wants all written has the file system asked what has changed, too.
        let is_exact = !self.follows_close() || freshness == Freshness::Synced;
        let checked_at = (!is_exact).then_some(self.looked.at);
        Ok(Answer { is_exact, checked_at, ..self.cached(directory)? })
    }
}
