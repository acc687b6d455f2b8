//! Files that are open or mapped for writing: of some nobody tells what is written to them, so all are looked at from time to time.
//!
//! Which ones those are may be another set a moment later, and no event says so. So each answer tells when the last look was.

use std::io;

use super::{Answer, Freshness, Seen, Summaries, SummaryError};
use crate::{
    identity::NodeId,
    links::LinkKey,
    nodes::Slot,
    order::{Map, Set},
    reading::{Directories, OpenFile},
    tracker::{SizesFollow, Tracker},
};

/// What was found at the last look.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// In seconds since 1970: as all open files were then, or later, they are counted.
    at: i64,
    /// By what each can be told from what it is later.
    stamps: Map<NodeId, u64>,
    /// The directories that name those of which nobody tells what is written.
    places: Set<Slot>,
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

    /// All that is certain is what was closed in the ordinary way, or found by a search of the file system.
    pub(super) fn has_closed_alone(&self) -> bool {
        self.follows_close() || self.directories.has_silent_overlays()
    }

    /// Takes in which files were open for writing, and how they were, from `at` on, in seconds since 1970. Where they aren't as at
    /// the last look, the directories that name them are read before they are asked for.
    pub fn take_open_files(&mut self, at: i64, files: &[OpenFile]) -> Result<(), SummaryError> {
        // One that wasn't open then may have been written since it was counted.
        let before = std::mem::replace(&mut self.looked, Looked::at(at)).stamps;
        for OpenFile { id, stamp, is_silent } in files {
            let is_the_same = *stamp != 0 && before.get(id) == Some(stamp);
            let key = LinkKey { subvolume: id.subvolume, ino: id.ino };
            for place in self.ledger.places(key)?.all() {
                if *is_silent {
                    self.looked.places.insert(place);
                }
                // What was told of it meanwhile has been read, and this finds it clean; what was not hasn't.
                if !is_the_same {
                    self.mark(place)?;
                }
            }
        }
        self.looked.stamps = files.iter().map(|file| (file.id, file.stamp)).collect();
        Ok(())
    }

    /// Looks at them now, for who wants all that is written.
    pub fn look_at_open_files(&mut self) -> Result<(), SummaryError> {
        let began = self.time();
        match self.directories.open_for_writing() {
            Ok(files) => self.take_open_files(began, &files),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(error) => Err(SummaryError::OpenFiles(error)),
        }
    }

    /// What is stored of a directory, when all below it was harvested that is known to have changed.
    pub(super) fn settled_answer(
        &self,
        directory: NodeId,
        freshness: Freshness,
        seen: Seen<'_>,
    ) -> Result<Answer, SummaryError> {
        let slot = self.ledger.nodes.find(directory).ok_or(SummaryError::Unknown)?;
        // Who wants all written has these looked at, and where sizes follow at close, the file system asked what has changed.
        let is_right =
            freshness == Freshness::Synced || !(self.has_closed_alone() || self.has_mapped_below(slot, seen)?);
        let is_exact = is_right && self.knows_mounts && self.directories.changes_are_told();
        // A mapping may have been made since the last look.
        let checked_at = (!is_exact || freshness != Freshness::Synced).then_some(self.looked.at);
        let age = checked_at.filter(|_| !is_exact).map_or(0, |at| (self.time() - at).max(0));
        Ok(Answer { is_exact, checked_at, age, ..self.cached(directory, seen)? })
    }

    pub(super) fn looked_at(&self) -> i64 {
        self.looked.at
    }

    /// The clock was set by so many seconds.
    pub(super) fn shift_looked(&mut self, by: i64) {
        self.looked.at += by;
    }

    /// Whether nobody tells what is written to a file at or below a directory that is shown, by the last look.
    pub(super) fn has_mapped_below(&self, slot: Slot, seen: Seen<'_>) -> Result<bool, SummaryError> {
        let nodes = &self.ledger.nodes;
        for &place in self.looked.places.iter().filter(|&&place| nodes.is_used(place)) {
            if self.shows_below(slot, place, seen)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
