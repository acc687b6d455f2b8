//! Inodes that change where nothing is told: those that have names in directories that aren't clean, and those that are written
//! through names that they don't have any more, or never had.

use std::{collections::BTreeSet, io};

use onesweep_sys::fanotify::Happened;

use super::{Summaries, SummaryError};
use crate::{
    identity::NodeId,
    links::LinkKey,
    nodes::Slot,
    reading::{Directories, is_gone},
    totals::Sums,
    tracker::{Change, Tracker},
};

#[derive(Clone, Debug)]
pub(super) struct Alien {
    id: NodeId,
    /// Directories that aren't ignored on its account: they tell when it is written, and don't name it.
    heeded: BTreeSet<NodeId>,
    seen: Option<Sums>,
}

impl Alien {
    fn of(id: NodeId) -> Alien {
        Alien { id, heeded: BTreeSet::new(), seen: None }
    }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    pub(super) fn apply_to_object(&mut self, slot: Slot, object: NodeId, change: &Change) -> Result<(), SummaryError> {
        let key = LinkKey { subvolume: object.subvolume, ino: object.ino };
        let places = self.ledger.places(key)?;
        let is_named = places.named.contains(&slot);
        // A clean directory's names are all known.
        let is_alien = !is_named && (places.all().next().is_some() || !self.ledger.nodes.is_dirty(slot));
        if !is_alien || change.happened.intersects(Happened::CREATE | Happened::MOVED_TO) {
            return self.mark(slot);
        }
        let heeded = self.ledger.nodes.id(slot);
        let was_heeded = self.aliens.values().any(|alien| alien.heeded.contains(&heeded));
        self.aliens.entry(key).or_insert_with(|| Alien::of(object)).heeded.insert(heeded);
        if !was_heeded {
            self.tracker.keep_heeding(heeded, true);
            // What happened there since was not told: it was ignored from this change on until now.
            self.mark(slot)?;
        }
        places.all().try_for_each(|place| self.mark(place))
    }

    /// Looks at inodes below `slot` of which a name may be where nothing is told; true when one has changed.
    pub(super) fn look_at_open(&mut self, slot: Slot) -> Result<bool, SummaryError> {
        let mut has_changed = false;
        for key in self.open.iter().copied().collect::<Vec<_>>() {
            let Some(linked) = self.ledger.linked(key)? else {
                self.open.remove(&key);
                continue;
            };
            if !self.ledger.is_open(key)? {
                self.open.remove(&key);
                continue;
            }
            let nodes = &self.ledger.nodes;
            if !linked.places.iter().any(|&place| nodes.contains(slot, place)) {
                continue;
            }
            let id = NodeId { subvolume: key.subvolume, ino: key.ino, generation: linked.generation };
            let is_the_same = match self.directories.look(id) {
                Ok(found) => (found.weight, found.links) == (linked.weight, linked.links),
                // A tree that is read once isn't looked at again.
                Err(error) => error.kind() == io::ErrorKind::Unsupported,
            };
            if !is_the_same {
                has_changed = true;
                linked.places.iter().try_for_each(|&place| self.mark(place))?;
            }
        }
        Ok(has_changed)
    }

    /// The same of inodes that are written through names that they don't have.
    pub(super) fn look_at_aliens(&mut self, slot: Slot) -> Result<bool, SummaryError> {
        let mut has_changed = false;
        for (key, alien) in self.aliens.clone() {
            let places = self.ledger.places(key)?;
            let nodes = &self.ledger.nodes;
            let names_it = |heeded| !nodes.is_dirty(heeded) && places.named.contains(&heeded);
            let mut heeded = alien.heeded.iter();
            let is_at_home = heeded.len() > 0 && heeded.all(|&heeded| nodes.find(heeded).is_none_or(names_it));
            // Before it is looked at: what nobody writes any more stays as it is then.
            let is_written = !is_at_home && self.directories.is_written(alien.id).unwrap_or(true);
            let found = match self.directories.look(alien.id) {
                Ok(found) if !is_at_home => found,
                Err(error) if !is_at_home && !is_gone(&error) => continue,
                // It is gone, or the directory names it (again), and tells what happens to it.
                _ => {
                    self.forget_alien(key, alien);
                    continue;
                }
            };
            let is_below = places.all().any(|place| nodes.contains(slot, place));
            if alien.seen != Some(found.weight) && (is_below || !is_written) {
                has_changed |= is_below;
                self.aliens.insert(key, Alien { seen: Some(found.weight), ..alien.clone() });
                places.all().try_for_each(|place| self.mark(place))?;
            }
            if !is_written {
                self.forget_alien(key, alien);
            }
        }
        Ok(has_changed)
    }

    fn forget_alien(&mut self, key: LinkKey, alien: Alien) {
        self.aliens.remove(&key);
        for heeded in alien.heeded {
            if self.aliens.values().all(|other| !other.heeded.contains(&heeded)) {
                self.tracker.keep_heeding(heeded, false);
            }
        }
    }

    /// Who has an inode open under a name that it loses goes on writing through that name, and nobody tells where the directory
    /// of it is ignored. So those that are open for writing when a name came or went are looked at until they are closed. What
    /// is opened later is opened by a name that it has.
    pub(super) fn watch_relinked(&mut self) {
        for (key, id) in std::mem::take(&mut self.relinked) {
            match self.directories.is_written(id) {
                Ok(false) => {}
                Err(error) if is_gone(&error) => {}
                _ => _ = self.aliens.entry(key).or_insert_with(|| Alien::of(id)),
            }
        }
    }

    /// The same of those that were open so before anybody was told.
    pub(super) fn watch_lost_names(&mut self) {
        let open = self.directories.open_by_lost_names().into_iter();
        self.relinked.extend(open.map(|id| (LinkKey { subvolume: id.subvolume, ino: id.ino }, id)));
        self.watch_relinked();
    }
}
