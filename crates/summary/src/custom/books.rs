//! The declared summaries of all directories, and what a reading of one changes in those above it: as [`crate::ledger`] does
//! for the totals.
//!
//! An inode with several names counts once in a sum, whichever directory is asked about, and under the key of its first name:
//! what it adds by each name is added there, and at the lowest common ancestor of each two neighbours, in the order of the tree,
//! what the later one adds is taken off. The names that lie below a directory are neighbours, so all but the first cancel out.

use std::{
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::Arc,
};

use super::{
    declare::Declared,
    found::{Found, FoundName, Tallies},
    parts::{self, LinkedParts, Part},
    tally::{Change, Merge, Tally},
};
use crate::{
    links::{LinkKey, common, path},
    nodes::{Nodes, Slot},
    order::Map,
    store::{Store, StoreError},
};

/// What is to be written, as the store keeps it.
#[derive(Debug, Default)]
pub struct Unwritten {
    /// Directories, and those that are gone.
    pub directories: Map<Slot, Option<Vec<u8>>>,
    /// Inodes with several names, and those that have them no longer.
    pub linked: Map<LinkKey, Option<Vec<u8>>>,
}

impl Unwritten {
    /// Nothing to write.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.linked.is_empty()
    }
}

/// The declared summaries, in the store and on the way there.
#[derive(Debug)]
pub(crate) struct Books {
    declared: Arc<Declared>,
    pub(crate) unwritten: Unwritten,
    /// By summary; `None` where nothing is.
    owed: Map<Slot, Vec<Option<Change>>>,
}

/// The tree, and where what isn't in memory is.
pub(crate) type Ground<'a> = (&'a Nodes, &'a Store);

impl Books {
    pub(crate) fn new(declared: Arc<Declared>) -> Books {
        Books { declared, unwritten: Unwritten::default(), owed: Map::default() }
    }

    pub(crate) fn declared(&self) -> &Declared {
        &self.declared
    }

    /// True when all that is known is in the totals.
    pub(crate) fn is_paid(&self) -> bool {
        self.owed.is_empty()
    }

    /// A directory's parts, one for each summary.
    pub(crate) fn parts(&self, slot: Slot, store: &Store) -> Result<Vec<Part>, StoreError> {
        let stored;
        let bytes = match self.unwritten.directories.get(&slot) {
            Some(bytes) => bytes.as_ref(),
            None => {
                stored = store.custom(slot)?;
                stored.as_ref()
            }
        };
        let Some(bytes) = bytes else { return Ok(vec![Part::default(); self.declared.all().len()]) };
        let damaged = || store.damaged(&format!("the summaries of directory {} can't be read", slot.0));
        parts::decode(bytes, &self.declared).ok_or_else(damaged)
    }

    fn put(&mut self, slot: Slot, parts: &[Part]) {
        self.unwritten.directories.insert(slot, Some(parts::encode(parts, &self.declared)));
    }

    /// An inode with several names.
    pub(crate) fn linked(&self, key: LinkKey, store: &Store) -> Result<Option<LinkedParts>, StoreError> {
        let stored;
        let bytes = match self.unwritten.linked.get(&key) {
            Some(bytes) => bytes.as_ref(),
            None => {
                stored = store.custom_linked(key)?;
                stored.as_ref()
            }
        };
        let damaged = || store.damaged(&format!("the summaries of inode {} can't be read", key.ino));
        bytes.map(|bytes| LinkedParts::decode(bytes, &self.declared).ok_or_else(damaged)).transpose()
    }

    fn owe(&mut self, slot: Slot, summary: usize, change: Option<Change>) {
        let Some(change) = change else { return };
        let count = self.declared.all().len();
        let rule = self.declared.all()[summary].rule;
        match &mut self.owed.entry(slot).or_insert_with(|| vec![None; count])[summary] {
            Some(before) => before.then(&change, rule),
            none => *none = Some(change),
        }
    }

    /// Puts down what a directory holds. `before`: the inodes with several names that it named. Gives the directories that have
    /// to be read again, for they name inodes that have changed.
    pub(crate) fn merge(
        &mut self,
        (nodes, store): Ground<'_>,
        slot: Slot,
        mut found: Found,
        before: &[u64],
    ) -> Result<Vec<Slot>, StoreError> {
        let mut record = self.parts(slot, store)?;
        let declared = Arc::clone(&self.declared);
        found.own.iter_mut().zip(declared.all()).filter(|(_, one)| one.rule.merge == Merge::Files).for_each(
            |(own, _)| {
                own.put_in(slot.0);
            },
        );
        let news = found.itself.into_iter().zip(found.own);
        for (at, ((part, (itself, own)), one)) in record.iter_mut().zip(news).zip(declared.all()).enumerate() {
            let was = Tally::of_all(one.rule, [&part.itself, &part.own]);
            (part.itself, part.own) = (itself, own);
            let is = Tally::of_all(one.rule, [&part.itself, &part.own]);
            self.owe(slot, at, Change::between(&was, &is, one.rule));
        }
        self.put(slot, &record);
        self.merge_links((nodes, store), slot, before, found.linked)
    }

    /// The same of inodes with several names alone.
    pub(crate) fn merge_links(
        &mut self,
        (nodes, store): Ground<'_>,
        slot: Slot,
        before: &[u64],
        found: Vec<FoundName>,
    ) -> Result<Vec<Slot>, StoreError> {
        let subvolume = nodes.id(slot).subvolume;
        let mut outdated = Vec::new();
        let mut names: BTreeMap<u64, Vec<FoundName>> = before.iter().map(|&ino| (ino, Vec::new())).collect();
        for name in found {
            names.entry(name.id.ino).or_default().push(name);
        }
        for (ino, names) in names {
            let key = LinkKey { subvolume, ino };
            let mut linked = self.linked(key, store)?.unwrap_or_default();
            linked.names.retain(|(place, _)| *place != slot);
            if let Some(name) = names.last() {
                if linked.generation != name.id.generation {
                    linked.names.clear();
                }
                if linked.facts != name.facts {
                    outdated.extend(linked.names.iter().map(|(place, _)| *place));
                }
                (linked.generation, linked.facts) = (name.id.generation, name.facts);
            }
            linked.names.extend(names.into_iter().map(|name| (slot, name.tallies)));
            self.charge((nodes, store), key, linked)?;
        }
        Ok(outdated)
    }

    /// Puts down what an inode with several names adds where, after something of that has changed.
    fn charge(&mut self, (nodes, store): Ground<'_>, key: LinkKey, linked: LinkedParts) -> Result<(), StoreError> {
        let due = due(nodes, &linked.names, &self.declared);
        self.charge_due((nodes, store), key, linked, due)
    }

    fn charge_due(
        &mut self,
        (nodes, store): Ground<'_>,
        key: LinkKey,
        mut linked: LinkedParts,
        due: Vec<(Slot, Tallies)>,
    ) -> Result<(), StoreError> {
        let mut changes: BTreeMap<Slot, Tallies> = BTreeMap::new();
        for (list, times) in [(&linked.charges, -1), (&due, 1)] {
            for (slot, tallies) in list {
                let change = changes.entry(*slot).or_insert_with(|| vec![Tally::default(); tallies.len()]);
                change.iter_mut().zip(tallies).for_each(|(change, tally)| change.charge(tally, times));
            }
        }
        for (slot, tallies) in changes {
            if !nodes.is_used(slot) || tallies.iter().all(Tally::is_empty) {
                continue;
            }
            let mut record = self.parts(slot, store)?;
            for (at, (part, tally)) in record.iter_mut().zip(tallies).enumerate() {
                part.charged.charge(&tally, 1);
                let is_cut = part.charged.is_cut;
                let change = (!tally.is_empty()).then(|| Change::by(tally, is_cut));
                self.owe(slot, at, change);
            }
            self.put(slot, &record);
        }
        let is_forgotten = linked.names.is_empty();
        linked.charges = due;
        self.unwritten.linked.insert(key, (!is_forgotten).then(|| linked.encode()));
        Ok(())
    }

    /// The same of inodes of which names have been moved.
    pub(crate) fn charge_again(&mut self, ground: Ground<'_>, keys: BTreeSet<LinkKey>) -> Result<(), StoreError> {
        for key in keys {
            let Some(linked) = self.linked(key, ground.1)? else { continue };
            let due = due(ground.0, &linked.names, &self.declared);
            if due != linked.charges {
                self.charge_due(ground, key, linked, due)?;
            }
        }
        Ok(())
    }

    /// All that is in a directory goes from another one, or comes there. What was owed below has been paid.
    pub(crate) fn moved(&mut self, store: &Store, child: Slot, parent: Slot, came: bool) -> Result<(), StoreError> {
        let none = Tally::default();
        let declared = Arc::clone(&self.declared);
        for (at, (part, one)) in self.parts(child, store)?.iter().zip(declared.all()).enumerate() {
            let (was, is) = if came { (&none, &part.subtree) } else { (&part.subtree, &none) };
            self.owe(parent, at, Change::between(was, is, one.rule));
        }
        Ok(())
    }

    /// A directory is gone.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.owed.remove(&slot);
        self.unwritten.directories.insert(slot, None);
    }

    /// Brings all totals up to what is known, the deepest directories first.
    pub(crate) fn pay(&mut self, (nodes, store): Ground<'_>) -> Result<(), StoreError> {
        let declared = Arc::clone(&self.declared);
        let mut deepest: BinaryHeap<(usize, Slot)> =
            self.owed.keys().map(|&slot| (nodes.upwards(slot).count(), slot)).collect();
        while let Some((depth, slot)) = deepest.pop() {
            // One that was put in twice has been paid.
            let Some(owed) = self.owed.remove(&slot) else { continue };
            let mut record = self.parts(slot, store)?;
            let before: Tallies = record.iter().map(|part| part.subtree.clone()).collect();
            let mut again = Vec::new();
            for (at, (part, one)) in record.iter_mut().zip(declared.all()).enumerate() {
                if let Some(change) = &owed[at]
                    && !change.apply(&mut part.subtree, one.rule)
                {
                    again.push(at);
                }
            }
            if !again.is_empty() {
                self.make_again((nodes, store), slot, &mut record, &again)?;
            }
            self.put(slot, &record);
            let Some(parent) = nodes.parent(slot) else { continue };
            let was_owed = self.owed.contains_key(&parent);
            for (at, ((before, part), one)) in before.iter().zip(&record).zip(declared.all()).enumerate() {
                self.owe(parent, at, Change::between(before, &part.subtree, one.rule));
            }
            if !was_owed && self.owed.contains_key(&parent) {
                deepest.push((depth - 1, parent));
            }
        }
        Ok(())
    }

    /// Some totals of a directory from its own and those of the directories in it.
    fn make_again(
        &self,
        (nodes, store): Ground<'_>,
        slot: Slot,
        record: &mut [Part],
        which: &[usize],
    ) -> Result<(), StoreError> {
        let mut gathered: Vec<Tally> =
            which.iter().map(|&at| record[at].alone_loose(self.declared.all()[at].rule)).collect();
        for child in nodes.children(slot) {
            let parts = self.parts(child, store)?;
            for (whole, &at) in gathered.iter_mut().zip(which) {
                whole.gather(&parts[at].subtree, self.declared.all()[at].rule);
            }
        }
        for (mut whole, &at) in gathered.into_iter().zip(which) {
            whole.bound(self.declared.all()[at].rule);
            record[at].subtree = whole;
        }
        Ok(())
    }
}

/// What has to be added at which directory on an inode's account, so that every subtree has what its first name there adds.
fn due(nodes: &Nodes, names: &[(Slot, Tallies)], declared: &Declared) -> Vec<(Slot, Tallies)> {
    let mut paths: Vec<(Vec<Slot>, &Tallies)> =
        names.iter().map(|(place, tallies)| (path(nodes, *place), tallies)).collect();
    // A stable order: those in one directory stay as they are.
    paths.sort_by(|one, other| one.0.cmp(&other.0));
    let mut due: BTreeMap<Slot, Tallies> = BTreeMap::new();
    let mut add = |slot: Slot, tallies: &Tallies, times: i64| {
        let there = due.entry(slot).or_insert_with(|| vec![Tally::default(); tallies.len()]);
        for ((there, tally), one) in there.iter_mut().zip(tallies).zip(declared.all()) {
            if one.rule.merge == Merge::Sum {
                there.charge(tally, times);
            }
        }
    };
    for (path, tallies) in &paths {
        path.last().into_iter().for_each(|&place| add(place, tallies, 1));
    }
    for pair in paths.windows(2) {
        common(&pair[0].0, &pair[1].0).into_iter().for_each(|lowest| add(lowest, pair[1].1, -1));
    }
    due.into_iter().filter(|(_, tallies)| !tallies.iter().all(Tally::is_empty)).collect()
}
