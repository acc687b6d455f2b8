//! What inodes with several names add where ([`crate::links`]), put down once for all of their directories that are read.

use super::Ledger;
use crate::{
    links::{Charges, LinkKey, Linked},
    nodes::Slot,
    reading::LinkedName,
    store::StoreError,
    totals::Sums,
};

/// What a reading says of inodes with several names.
pub(super) struct MergedLinks {
    /// Directories that name inodes which have changed since these were read.
    pub(super) outdated: Vec<Slot>,
    /// Something isn't what was known.
    pub(super) differ: bool,
}

impl Ledger {
    /// Puts down which names of them a directory has.
    pub(super) fn merge_links(
        &mut self,
        slot: Slot,
        before: &[u64],
        found: &[LinkedName],
    ) -> Result<MergedLinks, StoreError> {
        let subvolume = self.nodes.id(slot).subvolume;
        let (mut outdated, mut differ) = (Vec::new(), false);
        let mut found = found.to_vec();
        found.sort_by_key(|name| name.id.ino);
        let gone = before.iter().filter(|&&ino| found.binary_search_by_key(&ino, |name| name.id.ino).is_err());
        let there = found.chunk_by(|one, other| one.id.ino == other.id.ino).map(|names| (names[0].id.ino, names));
        for (ino, names) in gone.map(|&ino| (ino, &[][..])).chain(there) {
            let key = LinkKey { subvolume, ino };
            // Where names have gone that others still show, what is freed where goes by who was read since.
            let (is_changed, has_lost_names) = if let Some(Some(linked)) = self.batch.linked.get_mut(&key) {
                (linked.find_in(slot, names, &mut outdated), linked.has_lost_names())
            } else {
                let mut linked = self.linked(key)?.unwrap_or_default();
                let is_changed = linked.find_in(slot, names, &mut outdated);
                let has_lost_names = linked.has_lost_names();
                if is_changed {
                    self.batch.linked.insert(key, Some(linked));
                }
                (is_changed, has_lost_names)
            };
            differ |= is_changed;
            if is_changed || has_lost_names {
                self.uncharged.insert(key);
            }
        }
        Ok(MergedLinks { outdated, differ })
    }

    /// Puts down an inode that has another number of names than before.
    pub(crate) fn set_links(&mut self, key: LinkKey, linked: Linked) {
        self.batch.linked.insert(key, Some(linked));
        self.uncharged.insert(key);
    }

    /// Puts down, once each, what inodes add of which names were found or have gone.
    pub(super) fn charge_changed(&mut self) -> Result<(), StoreError> {
        let mut keys: Vec<LinkKey> = self.uncharged.iter().copied().collect();
        // Neighbours are in the same directories.
        keys.sort_unstable();
        for key in keys {
            let (linked, is_as_stored) = match self.batch.linked.get_mut(&key) {
                Some(linked) => (linked.take(), false),
                None => (self.store.linked(key)?, true),
            };
            if let Some(linked) = linked {
                let due = linked.due(&self.nodes);
                if linked.has_lost_names() && linked.clean_places(&self.nodes) > linked.links as usize {
                    self.crowded.insert(key);
                }
                if !is_as_stored || due != linked.charges {
                    self.charge_due(key, linked, due)?;
                }
            }
            self.uncharged.remove(&key);
        }
        Ok(())
    }

    /// In place of what was put down of it before.
    pub(super) fn charge_due(&mut self, key: LinkKey, linked: Linked, due: Charges) -> Result<(), StoreError> {
        let change = self.change(&linked.charges, &due);
        // All of them are put down, or none: what fails is done again.
        if let Err(error) = change.iter().try_for_each(|&(slot, _)| self.edit(slot).map(drop)) {
            self.batch.linked.insert(key, Some(linked));
            return Err(error);
        }
        for (slot, sums) in change {
            self.edit(slot)?.charged += sums;
            self.owed.entry(slot).or_default().sums += sums;
        }
        let is_forgotten = linked.places.is_empty();
        self.batch.linked.insert(key, (!is_forgotten).then_some(Linked { charges: due, ..linked }));
        Ok(())
    }

    /// What comes and goes where something else is due.
    fn change(&self, before: &Charges, due: &Charges) -> Vec<(Slot, Sums)> {
        let mut change: Vec<(Slot, Sums)> = before.sums().map(|(slot, sums)| (slot, -sums)).chain(due.sums()).collect();
        change.sort_by_key(|(slot, _)| *slot);
        change.dedup_by(|(slot, more), (of, sums)| {
            let is_same = slot == of;
            if is_same {
                *sums += *more;
            }
            is_same
        });
        change.retain(|&(slot, sums)| !sums.is_zero() && self.nodes.is_used(slot));
        change
    }
}
