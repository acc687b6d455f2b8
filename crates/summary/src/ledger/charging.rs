//! What inodes with several names add where ([`crate::links`]), put down once for all of their directories that are read.

use std::collections::BTreeMap;

use super::Ledger;
use crate::{
    links::{Charges, LinkKey, Linked},
    nodes::Slot,
    reading::LinkedName,
    store::StoreError,
    totals::Sums,
};

impl Ledger {
    /// Gives the directories that name inodes which have changed since these were read.
    pub(super) fn merge_links(
        &mut self,
        slot: Slot,
        before: &[u64],
        found: &[LinkedName],
    ) -> Result<Vec<Slot>, StoreError> {
        if before.is_empty() && found.is_empty() {
            return Ok(Vec::new());
        }
        let subvolume = self.nodes.id(slot).subvolume;
        let mut outdated = Vec::new();
        let mut names: BTreeMap<u64, Vec<LinkedName>> = before.iter().map(|&ino| (ino, Vec::new())).collect();
        for name in found {
            names.entry(name.id.ino).or_default().push(*name);
        }
        for (ino, names) in names {
            let key = LinkKey { subvolume, ino };
            let is_changed = if let Some(Some(linked)) = self.batch.linked.get_mut(&key) {
                linked.find_in(slot, &names, &mut outdated)
            } else {
                let mut linked = self.linked(key)?.unwrap_or_default();
                let is_changed = linked.find_in(slot, &names, &mut outdated);
                if is_changed {
                    self.batch.linked.insert(key, Some(linked));
                }
                is_changed
            };
            if is_changed {
                self.uncharged.insert(key);
            }
        }
        Ok(outdated)
    }

    /// An inode has so many names now.
    pub(crate) fn set_links(&mut self, key: LinkKey, links: u32) -> Result<(), StoreError> {
        if let Some(linked) = self.linked(key)?.filter(|linked| linked.links != links) {
            self.batch.linked.insert(key, Some(Linked { links, ..linked }));
            self.uncharged.insert(key);
        }
        Ok(())
    }

    /// Puts down, once each, what inodes add of which names were found or have gone.
    pub(super) fn charge_changed(&mut self) -> Result<(), StoreError> {
        while let Some(&key) = self.uncharged.first() {
            if let Some(linked) = self.linked(key)? {
                let due = linked.due(&self.nodes);
                self.charge_due(key, linked, due)?;
            }
            self.uncharged.remove(&key);
        }
        Ok(())
    }

    /// In place of what was put down of it before.
    pub(super) fn charge_due(&mut self, key: LinkKey, mut linked: Linked, due: Charges) -> Result<(), StoreError> {
        let mut change: BTreeMap<Slot, Sums> = BTreeMap::new();
        for (slot, sums) in linked.charges.sums() {
            *change.entry(slot).or_default() -= sums;
        }
        for (slot, sums) in due.sums() {
            *change.entry(slot).or_default() += sums;
        }
        change.retain(|&slot, sums| !sums.is_zero() && self.nodes.is_used(slot));
        // All of them are put down, or none: what fails is done again.
        change.keys().try_for_each(|&slot| self.edit(slot).map(drop))?;
        for (slot, sums) in change {
            self.edit(slot)?.charged += sums;
            self.owed.entry(slot).or_default().sums += sums;
        }
        let is_forgotten = linked.places.is_empty();
        linked.charges = due;
        self.batch.linked.insert(key, (!is_forgotten).then_some(linked));
        Ok(())
    }
}
