//! Puts down what readings say.

use std::io;

use super::{
    Summaries, SummaryError, UNKNOWN_SECONDS, aliens::Aliens, message, settling::Lost, unsettled::Unsettled,
    watched::Relinked,
};
use crate::{
    clock::{Clock, millis},
    custom::found::Found,
    identity::NodeId,
    ledger::Ledger,
    links::LinkKey,
    nodes::{Count, Slot},
    order::{Map, Set},
    reading::{Directories, Reading, is_gone, is_too_large},
    service::budget::charge,
    store::Facts,
    tracker::Tracker,
};

/// The parts of [`Summaries`] that a reading changes, by a harvest with one number.
pub(super) struct Merging<'a> {
    pub(super) ledger: &'a mut Ledger,
    nowhere: &'a mut Vec<Lost>,
    open: &'a mut Set<LinkKey>,
    aliens: &'a Aliens,
    relinked: &'a Map<LinkKey, Relinked>,
    unreadable: &'a mut Map<Slot, String>,
    vanished: &'a mut Map<NodeId, Vanished>,
    unsettled: &'a mut Unsettled,
    readings: &'a mut u64,
    charged: &'a mut u64,
    large: &'a mut Set<NodeId>,
    doubted: &'a mut Set<NodeId>,
    pub(super) entries_max: usize,
    settling: i64,
    clock: &'a dyn Clock,
    /// When it began, in milliseconds since 1970.
    began: i64,
    /// Until then times of files say nothing.
    doubtful_until: i64,
    are_told: bool,
    moves_change_times: bool,
    facts: Facts,
    now: i64,
    /// Directories that have to be read again, when this is over.
    pub(super) outdated: Vec<Slot>,
}

/// Of a directory that could not be opened as one that is gone: the directory above tells whether it is.
///
/// The kernel says the same of one that is there where it can't read which directory it is in; by its name it finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vanished {
    /// The directory above is to be read.
    ToBeNamed,
    /// It is still named there, and is to be opened once more.
    Named,
}

/// What has to be read for what a reading said.
#[derive(Debug, Default)]
pub(super) struct Further {
    /// Directories that weren't known.
    pub(super) new: Vec<Slot>,
    /// Those that contradict it.
    pub(super) doubted: Vec<Slot>,
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// By a harvest that took the number `count` at a time of `now` seconds since 1970; and what reads.
    pub(super) fn merging(&mut self, count: Count, now: i64) -> (Merging<'_>, &D, &T) {
        let facts = Facts { count, ..self.facts.clone() };
        let (settling, are_told) = (self.directories.settling_seconds(), self.directories.changes_are_told());
        let moves_change_times = self.directories.moves_change_times();
        let Self { ledger, directories, tracker, nowhere, open, aliens, relinked, unreadable, vanished, .. } = self;
        let Self { unsettled, readings, charged, large, doubted, entries_max, clock, told, .. } = self;
        let merging = Merging {
            ledger,
            nowhere,
            open,
            aliens,
            relinked,
            unreadable,
            vanished,
            unsettled,
            readings,
            charged,
            large,
            doubted,
            entries_max: *entries_max,
            settling,
            clock: &**clock,
            began: millis(clock.time()),
            doubtful_until: told.doubtful_until,
            are_told,
            moves_change_times,
            facts,
            now,
            outdated: Vec::new(),
        };
        (merging, directories, tracker)
    }
}

impl Merging<'_> {
    pub(super) fn merge(&mut self, slot: Slot, reading: io::Result<Reading>) -> Result<Further, SummaryError> {
        let (count, now) = (self.facts.count, self.now);
        *self.readings += 1;
        *self.charged += charge(reading.as_ref().map_or(0, Reading::entries));
        if !self.ledger.nodes.is_used(slot) {
            return Ok(Further::default());
        }
        let mut reading = match reading {
            Ok(reading) => reading,
            Err(error) if is_too_large(&error) => {
                self.large.insert(self.ledger.nodes.id(slot));
                return Ok(Further::default());
            }
            Err(error) if is_gone(&error) && self.is_to_be_named(slot) => {
                // The one that it was in tells.
                if let Some(parent) = self.ledger.nodes.parent(slot) {
                    self.ledger.mark_changed(parent, count);
                }
                // Where it is known by its name it may be elsewhere, and is read when it is found there.
                if self.are_told {
                    self.ledger.nodes.mark_harvested(slot, count);
                }
                self.ledger.doubt(slot)?;
                return Ok(Further::default());
            }
            Err(error) => {
                self.ledger.doubt(slot)?;
                self.unreadable.insert(slot, message(&error));
                self.ledger.nodes.mark_harvested(slot, count);
                return Ok(Further::default());
            }
        };
        if self.has_doubts() {
            // Each is read by itself, so that what is held against it goes.
            reading.empty.clear();
        }
        let empty = reading.empty.len() as u64;
        *self.readings += empty;
        *self.charged += empty * charge(0);
        let id = self.ledger.nodes.id(slot);
        self.let_go_of_doubts(slot, id, &reading);
        let was_due = self.unsettled.let_go(slot);
        self.settles_later(slot, &reading);
        let may_settle = !(reading.inodes.is_empty() && reading.linked.is_empty());
        let subvolume = id.subvolume;
        let linked: Vec<LinkKey> = reading.linked.iter().map(|name| LinkKey { subvolume, ino: name.id.ino }).collect();
        let is_watched = self.names_watched(subvolume, &reading);
        let returned = self.named_again(&reading);
        let merged = self.ledger.merge(slot, reading, count, now)?;
        for key in linked {
            match self.ledger.open_places(key)? {
                Some(places) if self.open.insert(key) => {
                    places.into_iter().for_each(|place| self.ledger.nodes.mark_open(place));
                }
                Some(_) => self.ledger.nodes.mark_open(slot),
                None => _ = self.open.remove(&key),
            }
        }
        if is_watched {
            self.ledger.nodes.mark_open(slot);
        }
        for id in returned {
            if let Some(returned) = self.ledger.nodes.find(id) {
                self.ledger.mark_changed(returned, count);
            }
        }
        if was_due && merged.differs && may_settle {
            // A slow disk may not have been through with it.
            self.unsettled.add(slot, millis(self.clock.passed()) + self.settling * 1000);
        }
        if merged.is_doubtful {
            self.ledger.mark_changed(slot, count);
        }
        let nodes = &mut self.ledger.nodes;
        // What was told while it was read may have come after.
        if !nodes.is_dirty(slot) {
            nodes.be_sure(slot);
        }
        let doubted: Vec<Slot> = merged.doubted.into_iter().filter(|&at| nodes.counts(at).1 < count).collect();
        self.doubted.extend(doubted.iter().map(|&at| nodes.id(at)));
        self.outdated.extend(merged.outdated);
        if self.moves_change_times {
            self.outdated.extend(merged.moved.into_iter().filter(|&at| !self.ledger.nodes.is_dirty(at)));
        }
        self.nowhere.extend(merged.missing.into_iter().map(|slot| Lost { slot, told: None }));
        self.ledger.commit_much(&self.facts)?;
        Ok(Further { new: merged.new, doubted })
    }

    fn has_doubts(&self) -> bool {
        !(self.unreadable.is_empty() && self.vanished.is_empty() && self.doubted.is_empty() && self.large.is_empty())
    }

    /// It was read: what was held against it before goes. Hardly ever there is anything, and to look for it takes a hash each time.
    fn let_go_of_doubts(&mut self, slot: Slot, id: NodeId, reading: &Reading) {
        if let Some(error) = &reading.unreadable {
            self.unreadable.insert(slot, message(error));
        } else if !self.unreadable.is_empty() {
            self.unreadable.remove(&slot);
        }
        if !self.vanished.is_empty() {
            self.vanished.remove(&id);
        }
        if !self.doubted.is_empty() {
            self.doubted.remove(&id);
        }
        if !self.large.is_empty() && reading.entries() <= self.entries_max {
            self.large.remove(&id);
        }
    }

    /// Where blocks may still change without anybody being told.
    fn settles_later(&mut self, slot: Slot, reading: &Reading) {
        let is_unknown = reading.custom.as_ref().is_some_and(Found::is_unknown);
        if reading.inodes.is_empty() && reading.linked.is_empty() && !is_unknown {
            return;
        }
        let (passed, settling) = (millis(self.clock.passed()), self.settling * 1000);
        let left = match passed < self.doubtful_until {
            true => settling,
            // What is told of it may be as old as the harvest.
            false => reading.changed_at.saturating_mul(1000).saturating_add(settling) - self.began,
        };
        if left > 0 {
            // Times of the future may be anybody's.
            self.unsettled.set(slot, passed + left.min(settling));
        }
        if is_unknown {
            self.unsettled.extend(slot, passed + UNKNOWN_SECONDS * 1000);
        }
    }

    /// Whether it may really be gone; not when it still had its name after it had seemed so.
    fn is_to_be_named(&mut self, slot: Slot) -> bool {
        let nodes = &self.ledger.nodes;
        if !self.are_told || nodes.parent(slot).is_none() {
            return true;
        }
        *self.vanished.entry(nodes.id(slot)).or_insert(Vanished::ToBeNamed) == Vanished::ToBeNamed
    }

    /// Directories that have their names there, and seemed to be gone.
    fn named_again(&mut self, reading: &Reading) -> Vec<NodeId> {
        if self.vanished.is_empty() {
            return Vec::new();
        }
        let named = reading.directories.iter().map(|(id, _)| *id);
        named.filter(|id| self.vanished.get_mut(id).map(|vanished| *vanished = Vanished::Named).is_some()).collect()
    }

    /// Whether an inode that is watched has a name there.
    fn names_watched(&self, subvolume: u64, reading: &Reading) -> bool {
        if self.aliens.is_empty() && self.relinked.is_empty() {
            return false;
        }
        let mut inodes = reading.inodes.iter().copied().chain(reading.linked.iter().map(|name| name.id.ino));
        inodes.any(|ino| {
            let key = LinkKey { subvolume, ino };
            self.aliens.contains(key) || self.relinked.contains_key(&key)
        })
    }
}
