//! Directories with very many entries are read aside: nobody else waits meanwhile.
//!
//! Somebody else may harvest other directories while such a one is read, and put down what is newer than what is read here. So
//! all that was harvested since the reading began is read again after it: then the last word on each inode is the newest.

use std::{io, sync::Arc};

use super::{Summaries, SummaryError, merging::Further};
use crate::{
    identity::NodeId,
    links::LinkKey,
    nodes::{Count, Slot},
    order::Set,
    reading::{Directories, Reading},
    tracker::Tracker,
};

/// Of more inodes it isn't kept which were told of.
const TOLD_MAX: usize = 1 << 18;

/// Inodes that were told of, not by the directories of their names, while directories are read aside: nobody knows yet that these
/// name them.
#[derive(Debug, Default)]
pub(super) struct Meanwhile {
    /// Each reading that has begun and hasn't ended has a clone.
    readings: Arc<()>,
    told: Set<LinkKey>,
}

impl Meanwhile {
    fn begin(&mut self) -> Arc<()> {
        if !self.is_read_aside() {
            self.told = Set::default();
        }
        Arc::clone(&self.readings)
    }

    pub(super) fn is_read_aside(&self) -> bool {
        Arc::strong_count(&self.readings) > 1
    }

    pub(super) fn note(&mut self, key: LinkKey) {
        if self.is_read_aside() && self.told.len() < TOLD_MAX {
            self.told.insert(key);
        }
    }

    /// Whether something was told of an inode that a reading names.
    fn has_told_of(&self, subvolume: u64, reading: &Reading) -> bool {
        let mut inodes = reading.inodes.iter().copied().chain(reading.linked.iter().map(|name| name.id.ino));
        self.told.len() >= TOLD_MAX || inodes.any(|ino| self.told.contains(&LinkKey { subvolume, ino }))
    }
}

/// A reading that has begun: what happens from now on in the directory is told.
#[derive(Debug)]
pub struct Aside {
    slot: Slot,
    id: NodeId,
    count: Count,
    began: i64,
    /// What had been looked for by then.
    searches: u64,
    _begun: Arc<()>,
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// From now on directories with more entries than that are left to who asks: a question or a harvest comes back, and
    /// [`take_due_aside`](Self::take_due_aside) names one.
    pub fn leave_large(&mut self, entries_max: usize) {
        self.entries_max = entries_max;
    }

    /// The directory that has to be read aside before what came back can go on.
    pub fn take_due_aside(&mut self) -> Option<NodeId> {
        self.due_aside.take()
    }

    /// Before a directory is read aside. `None` where it need not be read any more, or not yet.
    pub fn begin_aside(&mut self, directory: NodeId) -> Result<Option<Aside>, SummaryError> {
        self.drain()?;
        let found = self.ledger.nodes.find(directory).filter(|&slot| self.ledger.nodes.is_dirty(slot));
        let Some(slot) = found.filter(|_| !self.waits_for_search()) else { return Ok(None) };
        self.begin_count();
        self.tracker.heed(directory);
        let (id, count, began, searches) = (directory, self.count, self.time(), self.searches);
        Ok(Some(Aside { slot, id, count, began, searches, _begun: self.meanwhile.begin() }))
    }

    /// Puts down what was read. One that can't be relied on is left out, and the directory stays dirty.
    pub fn end_aside(&mut self, aside: Aside, reading: io::Result<Reading>) -> Result<(), SummaryError> {
        let Aside { slot, id, count, began, searches, _begun } = aside;
        // What has changed since is dirty before it is called clean.
        self.drain()?;
        if self.ledger.nodes.find(id) != Some(slot) || self.ledger.nodes.counts(slot).1 > count {
            return Ok(());
        }
        if self.searches != searches || self.is_behind {
            // What was told meanwhile isn't known.
            return self.mark(slot);
        }
        let is_older = reading.as_ref().is_ok_and(|reading| self.meanwhile.has_told_of(id.subvolume, reading));
        let nodes = &self.ledger.nodes;
        let newer: Vec<Slot> = nodes.all().filter(|&at| nodes.counts(at).1 > count).collect();
        // It was begun before that.
        self.heard = self.heard.min(count.saturating_sub(1));
        let (mut merging, ..) = self.merging(count, began);
        let Further { doubted, .. } = merging.merge(slot, reading)?;
        let outdated = merging.outdated;
        outdated.into_iter().chain(newer).chain(is_older.then_some(slot)).try_for_each(|slot| self.mark_used(slot))?;
        // They may lie outside of what is asked for, and would not be read at all.
        if !doubted.is_empty() {
            self.harvest(doubted, (0, None), &|| false)?;
        }
        self.find_the_lost()?;
        self.ledger.pay()?;
        Ok(())
    }

    /// What is left of these below `slot` when large ones are left out; an error where large ones have to be read first names one
    /// that is due, if there is one.
    pub(super) fn without_large(
        &self,
        slot: Slot,
        dirty: Vec<Slot>,
        is_due: impl Fn(&NodeId) -> bool,
    ) -> Result<Vec<Slot>, Option<NodeId>> {
        if self.large.is_empty() || dirty.is_empty() {
            return Ok(dirty);
        }
        let nodes = &self.ledger.nodes;
        // What seems to hold one that it is in stays dirty until that one is read.
        let concerns = |at: Slot| nodes.is_dirty(at) && (nodes.contains(at, slot) || nodes.contains(slot, at));
        let mut doubted = self.doubted.intersection(&self.large).copied().filter(&is_due);
        if let Some(first) = doubted.find(|&id| nodes.find(id).is_some_and(concerns)) {
            return Err(Some(first));
        }
        let (large, small): (Vec<Slot>, Vec<Slot>) =
            dirty.into_iter().partition(|&slot| self.large.contains(&nodes.id(slot)));
        match small.is_empty() {
            true => Err(large.into_iter().map(|slot| nodes.id(slot)).find(is_due)),
            false => Ok(small),
        }
    }
}
