//! The totals of all directories, and what a reading of one changes in those above it.
//!
//! Every change is first owed, by the directory where it happened. When all are known, they are paid from the deepest directory
//! upwards, so that each directory above is touched once, however many below it have changed.

mod charging;
mod moving;
mod opening;

use std::{
    collections::{BTreeSet, BinaryHeap},
    sync::Arc,
    thread,
};

use self::opening::tree_of;
use crate::{
    custom::{
        books::{Books, Unwritten},
        declare::Declared,
        parts::{LinkedParts, Part},
    },
    history::{History, Noting, Point},
    links::{LinkKey, Linked},
    nodes::{Count, Nodes, Slot, SlotMap},
    order::Set,
    places::Block,
    reading::{Empty, EntryName, Reading},
    record::Record,
    store::{Batch, Facts, Store, StoreError},
    totals::{Extremes, Sums},
    whole_for::WholeFor,
};

/// Bytes of records and totals over time that wait to be written,
const UNWRITTEN_MAX: usize = 4 << 20;
/// and in a first harvest: what is written at a time lies all over the store, of which pages that were let go are read once more.
const UNWRITTEN_AT_FIRST_MAX: usize = 16 << 20;
/// Those of inodes with several names: in each of many copies of a tree they are found again, and what is written by then has to be read
/// and written once more.
const LINKED_UNWRITTEN_MAX: usize = 64 << 20;

/// So many directories may be waiting for their first harvest before they are written without it.
const FOUND_MAX: usize = 1 << 17;

/// So many inodes that are gone may be in the index from inodes to directories, besides as many as there are; a byte or two each.
const LOST_PLACES_MAX: u64 = 1 << 16;

/// What has changed in a directory's subtree, and isn't in its totals yet.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    sums: Sums,
    /// What came.
    raised: Extremes,
    /// What went: a total that stood on it has to be found again.
    sunk: Extremes,
}

impl Owed {
    /// The sums have changed by so much, and what stands out.
    fn add(&mut self, change: Sums, before: Extremes, after: Extremes) {
        self.sums += change;
        self.raised = self.raised.or(after);
        self.sunk = self.sunk.or(sunk(before, after));
    }
}

/// What a reading brought to light.
#[derive(Debug, Default)]
pub struct Merged {
    /// Directories that were not known: they have to be read.
    pub new: Vec<Slot>,
    /// Directories that are not there any more: moved elsewhere, or gone.
    pub missing: Vec<Slot>,
    /// It contradicts what is known, for things have moved since: it has to be read again.
    pub is_doubtful: bool,
    /// Directories above it that have to be read first, for one of them seems to lie in it.
    pub doubted: Vec<Slot>,
    /// Directories that name inodes which this one has shown to be changed: they show what these were, and have to be read again.
    pub outdated: Vec<Slot>,
    /// Directories that were known, and were in another one.
    pub moved: Vec<Slot>,
    /// What it adds by itself, or inodes with several names in it, isn't what was known.
    pub differs: bool,
}

/// Where an inode has names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Directories that named it when they were last harvested.
    pub named: Vec<Slot>,
    /// The one that named it while it had one name only. Whether it still does is not known.
    pub before: Option<Slot>,
    /// Tells it from another that had the number before, where it has, or had, several names.
    pub(crate) generation: Option<u32>,
}

impl Places {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = Slot> + '_ {
        self.named.iter().copied().chain(self.before)
    }
}

/// Totals, in the store and on the way there.
#[derive(Debug)]
pub struct Ledger {
    /// The tree.
    pub nodes: Nodes,
    store: Arc<Store>,
    batch: Batch,
    /// What was made durable last, and whether more was written since.
    kept: Facts,
    is_loose: bool,
    /// Directories that were found and are in the batch and the store as little as in a total, since most are harvested soon:
    /// their names.
    found: SlotMap<EntryName>,
    owed: SlotMap<Owed>,
    /// Inodes of which names were found or have gone since it was put down what they add where: each is in many directories, which are
    /// read one after the other.
    uncharged: Set<LinkKey>,
    /// Inodes that clean directories name more often than they have names: which of these has lost one is about to be told, and what would
    /// be freed where goes by that.
    crowded: Set<LinkKey>,
    /// Directories that came from elsewhere, or went: what inodes with several names below them add where isn't known yet.
    displaced: BTreeSet<Slot>,
    /// Of declared summaries, where there are any.
    books: Option<Books>,
}

impl Ledger {
    /// What a store holds. Records without a parent, but for the root, are left out: they were on the way elsewhere.
    pub fn open(store: Store) -> Result<Ledger, StoreError> {
        let (nodes, kept, store) = (tree_of(&store, thread::Builder::new())?, store.facts()?, Arc::new(store));
        Ok(Ledger {
            nodes,
            store,
            batch: Batch::default(),
            kept,
            is_loose: false,
            found: SlotMap::default(),
            owed: SlotMap::default(),
            uncharged: Set::default(),
            crowded: Set::default(),
            displaced: BTreeSet::new(),
            books: None,
        })
    }

    /// From now on keeps these summaries, too. What the store holds of others goes.
    pub fn keep(&mut self, declared: Option<Arc<Declared>>, are_others: bool) -> Result<(), StoreError> {
        if are_others {
            self.store.forget_custom()?;
        }
        self.books = declared.map(Books::new);
        Ok(())
    }

    /// The summaries that are kept.
    pub fn declared(&self) -> Option<&Declared> {
        self.books.as_ref().map(Books::declared)
    }

    /// What a directory comes to by them.
    pub fn parts(&self, slot: Slot) -> Result<Vec<Part>, StoreError> {
        self.books.as_ref().map_or(Ok(Vec::new()), |books| books.parts(slot, &self.store))
    }

    /// The same of an inode with several names.
    pub fn linked_parts(&self, key: LinkKey) -> Result<Option<LinkedParts>, StoreError> {
        self.books.as_ref().map_or(Ok(None), |books| books.linked(key, &self.store))
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Makes the store's file smaller where that pays; what isn't in the store yet stays where it is.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        self.store.forget_places(|slot| !self.nodes.is_used(slot))?;
        // Whoever writes to it just now keeps it as it is.
        Arc::get_mut(&mut self.store).map_or(Ok(()), |store| store.compact_if_it_pays().map(drop))
    }

    /// Whether the store says of many more inodes where they are than there are.
    pub(crate) fn has_lost_places(&self, root: Slot) -> Result<bool, StoreError> {
        let sums = self.record(root)?.subtree.sums;
        let there = u64::try_from(sums.files + sums.others).unwrap_or(0);
        Ok(self.store.places() > 2 * there + LOST_PLACES_MAX)
    }

    /// Forgets which inodes were in directories that are gone, and in those that a harvest after `since` has read: these have to be
    /// read again, and whoever opens the store meanwhile does so.
    pub(crate) fn forget_places(&mut self, since: Count, facts: &Facts) -> Result<Vec<Slot>, StoreError> {
        let read: Vec<Slot> = self.nodes.all().filter(|&slot| self.nodes.counts(slot).1 > since).collect();
        read.iter().try_for_each(|&slot| self.doubt(slot))?;
        self.commit(facts, true)?;
        let nodes = &self.nodes;
        self.store.forget_places(|slot| !nodes.is_used(slot) || nodes.counts(slot).1 > since)?;
        Ok(read)
    }

    /// The record of a directory, with what isn't in the store yet.
    pub fn record(&self, slot: Slot) -> Result<Record, StoreError> {
        if let Some(record) = self.batch.record(slot) {
            return Ok(record.unwrap_or_default());
        }
        if let Some(name) = self.found.get(&slot) {
            return Ok(found(&self.nodes, slot, name.clone()));
        }
        Ok(self.store.record(slot)?.map(|record| (*record).clone()).unwrap_or_default())
    }

    /// True when all that is known is in the totals.
    pub(crate) fn is_paid(&self) -> bool {
        self.owed.is_empty()
            && self.uncharged.is_empty()
            && self.displaced.is_empty()
            && self.books.as_ref().is_none_or(Books::is_paid)
    }

    /// An inode with several names.
    pub fn linked(&self, key: LinkKey) -> Result<Option<Linked>, StoreError> {
        match self.batch.linked.get(&key) {
            Some(linked) => Ok(linked.clone()),
            None => self.store.linked(key),
        }
    }

    /// The directories that name an inode of which a name may be where nothing is told: in a directory that has changed, or in
    /// none that is known. `None` where it is none of those.
    pub fn open_places(&self, key: LinkKey) -> Result<Option<Vec<Slot>>, StoreError> {
        let stored;
        let linked = match self.batch.linked.get(&key) {
            Some(linked) => linked.as_ref(),
            None => {
                stored = self.store.linked(key)?;
                stored.as_ref()
            }
        };
        Ok(linked.filter(|linked| self.is_open(linked)).map(|linked| linked.places.clone()))
    }

    pub(crate) fn is_open(&self, linked: &Linked) -> bool {
        linked.clean_places(&self.nodes) < linked.links as usize
    }

    /// The directories that are known to name an inode.
    pub fn places(&self, key: LinkKey) -> Result<Places, StoreError> {
        let single = match self.batch.places.get(&(key.subvolume, key.ino)) {
            Some(&slot) => Some(slot),
            None => self.store.place(key.subvolume, key.ino)?,
        };
        let single = single.filter(|&slot| self.nodes.is_used(slot));
        Ok(match self.linked(key)? {
            Some(Linked { places, generation, .. }) => {
                let before = single.filter(|slot| !places.contains(slot));
                Places { named: places, before, generation: Some(generation) }
            }
            None => Places { named: single.into_iter().collect(), before: None, generation: None },
        })
    }

    /// The directories of inodes with one name, those of the same block of numbers as `ino`.
    pub(crate) fn block(&self, subvolume: u64, ino: u64) -> Result<Block, StoreError> {
        let mut block = self.store.block(subvolume, ino)?;
        self.batch.put_places(subvolume, ino, &mut block);
        Ok(block)
    }

    /// The inodes of the store that may be open: see [`open_places`](Self::open_places).
    pub(crate) fn all_open(&mut self) -> Result<Vec<LinkKey>, StoreError> {
        let mut keys = Vec::new();
        self.store.each_linked(|key| {
            keys.push(key);
            Ok(())
        })?;
        let mut open = Vec::new();
        for key in keys {
            let Some(linked) = self.linked(key)? else { continue };
            if self.is_open(&linked) {
                open.push(key);
            }
            // Which directories had changed by then isn't stored.
            if linked.has_lost_names() {
                self.crowded.insert(key);
            }
        }
        Ok(open)
    }

    /// Of a directory that could not be read: whoever opens the store next has to try again.
    pub(crate) fn doubt(&mut self, slot: Slot) -> Result<(), StoreError> {
        if self.nodes.stamp(slot) != 0 {
            self.nodes.set_stamp(slot, 0);
            self.edit(slot)?.stamp = 0;
        }
        Ok(())
    }

    /// The totals of a directory over time.
    pub fn history(&self, slot: Slot) -> Result<History, StoreError> {
        match self.batch.history(slot) {
            Some(history) => Ok(history.unwrap_or_default()),
            None => Ok(self.store.history(slot)?.unwrap_or_default()),
        }
    }

    /// Adds to it what the directory comes to now. False where the clock stands before what was noted: see [`History::add`].
    pub fn note_history(&mut self, slot: Slot, noting: Noting, whole_for: WholeFor) -> Result<bool, StoreError> {
        let mut history = self.history(slot)?;
        let point = Point::of(&self.record(slot)?.subtree.sums, noting.at, whole_for);
        if history.says(&point) {
            return Ok(true);
        }
        history.asked_at = noting.asked_at;
        let is_noted = history.add(point, noting);
        if is_noted && !history.points().is_empty() {
            self.batch.put_history(slot, Some(&history));
        }
        Ok(is_noted)
    }

    /// It is noted no longer.
    pub(crate) fn forget_history(&mut self, slot: Slot) {
        self.batch.put_history(slot, None);
    }

    /// Takes a new directory in. `None` when there are too many.
    pub fn add(&mut self, parent: Option<Slot>, id: crate::identity::NodeId, name: EntryName) -> Option<Slot> {
        let slot = self.nodes.add(id, parent)?;
        self.put_down_name(slot, name);
        Some(slot)
    }

    /// Of a new directory, which is to be read.
    fn put_down_name(&mut self, slot: Slot, name: EntryName) {
        self.nodes.set_name(slot, &name);
        // Another had the number, and the store has it still.
        if self.batch.holds(slot) {
            self.batch.records.insert(slot, Some(found(&self.nodes, slot, name)));
        } else {
            self.found.insert(slot, name);
        }
    }

    /// Of a new directory that needn't be read.
    fn put_down_empty(&mut self, slot: Slot, name: EntryName, empty: &Empty, (count, now): (Count, i64)) {
        let Empty { access, blocks, own, stamp, .. } = *empty;
        self.nodes.set_name(slot, &name);
        self.nodes.set_stamp(slot, stamp);
        self.nodes.mark_harvested(slot, count);
        let record = Record {
            access,
            blocks,
            own,
            stamp,
            harvested: count,
            harvested_at: now,
            subtree: own,
            ..found(&self.nodes, slot, name)
        };
        self.batch.finish(slot, &record);
    }

    /// A directory's own entries have changed while the counter stood at `now`.
    pub(crate) fn mark_changed(&mut self, slot: Slot, now: Count) {
        self.nodes.mark_changed(slot, now);
        if !self.crowded.is_empty() {
            // It may be the one that has lost a name.
            self.uncharged.extend(self.crowded.drain());
        }
    }

    /// Puts down what a directory holds, by a harvest that took the number `count` at a time of `now` seconds since 1970.
    pub fn merge(&mut self, slot: Slot, mut reading: Reading, count: Count, now: i64) -> Result<Merged, StoreError> {
        if let Some(largest) = &mut reading.own.extremes.largest {
            largest.directory = slot.0;
        }
        // By these it is told where there are any.
        reading.own.sums.shared_names = reading.linked.len() as i64;
        let mut merged = Merged::default();
        let mut missing: BTreeSet<Slot> = self.nodes.children(slot).collect();
        let mut empty = std::mem::take(&mut reading.empty).into_iter().peekable();
        let mut owed = Owed::default();
        for (id, name) in std::mem::take(&mut reading.directories) {
            let empty = empty.next_if(|empty| empty.id == id);
            match self.nodes.find(id) {
                Some(child) if missing.remove(&child) => {
                    if self.nodes.set_name(child, &name) {
                        self.edit(child)?.name = name;
                    }
                }
                // It was below itself: both have moved, and one of the readings is older than that.
                Some(child) if self.nodes.contains(child, slot) => {
                    merged.is_doubtful = true;
                    merged.doubted.extend(self.nodes.dirty_between(slot, child));
                }
                Some(child) => {
                    self.take_in(child, slot, name)?;
                    merged.moved.push(child);
                }
                None => match (self.nodes.add(id, Some(slot)), empty) {
                    (Some(child), Some(empty)) => {
                        self.put_down_empty(child, name, &empty, (count, now));
                        owed.add(empty.own.sums, Extremes::default(), empty.own.extremes);
                    }
                    (Some(child), None) => {
                        self.put_down_name(child, name);
                        merged.new.push(child);
                    }
                    (None, _) => merged.is_doubtful = true,
                },
            }
        }
        if !owed.sums.is_zero() {
            self.owed.entry(slot).or_default().add(owed.sums, Extremes::default(), owed.raised);
        }
        for &child in &missing {
            self.take_out(child)?;
        }
        merged.missing.extend(missing);
        // What contradicts the rest has to be read again, also by who comes after us.
        let stamp = if merged.is_doubtful { 0 } else { reading.stamp };
        let mut links: Vec<u64> = reading.linked.iter().map(|name| name.id.ino).collect();
        links.sort_unstable();
        self.nodes.set_stamp(slot, stamp);
        self.nodes.set_links(slot, !links.is_empty());
        // Nothing below it is owed: it is paid at once, which is what most of a first harvest comes to.
        let is_paid_now = self.nodes.children(slot).next().is_none() && !self.owed.contains_key(&slot);
        let mut record = self.take(slot)?;
        (record.access, record.blocks) = (reading.access, reading.blocks);
        (record.harvested, record.harvested_at, record.stamp) = (count, now, stamp);
        let before = std::mem::replace(&mut record.own, reading.own);
        let has_links = !links.is_empty();
        let links_before = std::mem::replace(&mut record.links, links);
        let mut change = reading.own.sums;
        change -= before.sums;
        if is_paid_now {
            let subtree_before = record.subtree;
            record.subtree.sums += change;
            record.subtree.extremes = reading.own.extremes;
            if let Some(parent) = self.nodes.parent(slot).filter(|_| record.subtree != subtree_before) {
                self.owed.entry(parent).or_default().add(change, subtree_before.extremes, record.subtree.extremes);
            }
        } else {
            self.owed.entry(slot).or_default().add(change, before.extremes, reading.own.extremes);
        }
        if is_paid_now && !has_links {
            self.batch.finish(slot, &record);
        } else {
            self.batch.records.insert(slot, Some(record));
        }
        let merged_links = self.merge_links(slot, &links_before, &reading.linked)?;
        (merged.outdated, merged.differs) = (merged_links.outdated, merged_links.differ || !change.is_zero());
        if let (Some(books), Some(found)) = (&mut self.books, reading.custom) {
            merged.outdated.extend(books.merge((&self.nodes, &*self.store), slot, found, &links_before)?);
        }
        // One that is dirty is read after this, and compared then.
        merged.outdated.retain(|&place| self.nodes.is_used(place) && !self.nodes.is_dirty(place));
        merged.outdated.sort_unstable();
        merged.outdated.dedup();
        let subvolume = self.nodes.id(slot).subvolume;
        self.batch.places.extend(reading.inodes.into_iter().map(|ino| ((subvolume, ino), slot)));
        self.nodes.mark_harvested(slot, count);
        Ok(merged)
    }

    /// Forgets a directory that is in none, and all below it.
    pub fn forget(&mut self, slot: Slot) -> Result<(), StoreError> {
        debug_assert!(self.nodes.parent(slot).is_none());
        let below = self.nodes.subtree(slot);
        for at in &below {
            self.displaced.remove(at);
        }
        // Of what has been moved out of it, something may still be put down at numbers that are others' from now on.
        if !self.displaced.is_empty() {
            self.pay()?;
        }
        for &at in &below {
            if self.nodes.has_links(at) {
                let links = self.record(at)?.links;
                self.merge_links(at, &links, &[])?;
                if let Some(books) = &mut self.books {
                    books.merge_links((&self.nodes, &*self.store), at, &links, Vec::new())?;
                }
            }
        }
        // Nothing of it may be put down at numbers that are others' from now on.
        self.charge_changed()?;
        for &at in below.iter().rev() {
            if self.nodes.parent(at).is_some() {
                self.nodes.detach(at);
            }
            self.nodes.remove(at);
            self.owed.remove(&at);
            self.found.remove(&at);
            self.batch.forget(at);
            self.batch.put_history(at, None);
            if let Some(books) = &mut self.books {
                books.forget(at);
            }
        }
        Ok(())
    }

    /// Brings all totals up to what is known.
    pub fn pay(&mut self) -> Result<(), StoreError> {
        self.charge_changed()?;
        self.pay_owed()?;
        let displaced = std::mem::take(&mut self.displaced);
        if !displaced.is_empty() {
            let charged = self.charge_below(&displaced);
            if charged.is_err() {
                // Whoever pays next begins anew: what was put down by now stays the same.
                self.displaced.extend(displaced);
                return charged;
            }
            self.pay_owed()?;
        }
        Ok(())
    }

    /// The same, but for what inodes with several names add elsewhere since directories have been moved.
    fn pay_owed(&mut self) -> Result<(), StoreError> {
        if let Some(books) = &mut self.books {
            books.pay((&self.nodes, &*self.store))?;
        }
        let mut deepest: BinaryHeap<(usize, Slot)> =
            self.owed.keys().map(|&slot| (self.nodes.upwards(slot).count(), slot)).collect();
        while let Some((depth, slot)) = deepest.pop() {
            // One that was put in twice has been paid.
            let Some(owed) = self.owed.remove(&slot) else { continue };
            let record = self.edit(slot)?;
            let (before, own) = (record.subtree, record.own.extremes);
            record.subtree.sums += owed.sums;
            record.subtree.extremes = before.extremes.or(owed.raised);
            let mut after = record.subtree;
            // What came and went since the last payment is among both.
            let is_lower = stood_on(after.extremes.newest, owed.sunk.newest)
                || stood_on(after.extremes.largest, owed.sunk.largest);
            if is_lower {
                after.extremes = self.extremes(slot, own)?;
                self.edit(slot)?.subtree = after;
            }
            if let Some(parent) = self.nodes.parent(slot).filter(|_| after != before) {
                let above = self.owed.entry(parent).or_insert_with(|| {
                    deepest.push((depth - 1, parent));
                    Owed::default()
                });
                above.add(owed.sums, before.extremes, after.extremes);
            }
        }
        Ok(())
    }

    /// From its own and those of the directories in it.
    fn extremes(&self, slot: Slot, own: Extremes) -> Result<Extremes, StoreError> {
        self.nodes.children(slot).try_fold(own, |found, child| Ok(found.or(self.record(child)?.subtree.extremes)))
    }

    /// Writes what has changed. `durable`: on the disk when this returns.
    pub fn commit(&mut self, facts: &Facts, durable: bool) -> Result<(), StoreError> {
        if durable {
            // One after the other.
            self.store.write_staged()?;
            return self.begin_commit(facts)?.map_or(Ok(()), |store| store.write_staged());
        }
        // What is on its way would have to be waited for.
        if self.store.is_writing() {
            return Ok(());
        }
        self.pay()?;
        if self.found.len() > FOUND_MAX {
            self.put_down_found();
        }
        let facts = &Facts { is_partial: facts.is_partial || !self.found.is_empty(), ..facts.clone() };
        let nothing = &mut Unwritten::default();
        let custom = self.books.as_mut().map_or(nothing, |books| &mut books.unwritten);
        if !self.batch.is_empty() || !custom.is_empty() {
            self.store.commit_with(&self.batch, custom, facts, false)?;
            *custom = Unwritten::default();
            // More of the same follows.
            self.batch.clear();
            self.is_loose = true;
        }
        Ok(())
    }

    /// Writes what is known, not durably, where that is so much that it would take much memory until the next time.
    pub(crate) fn commit_much(&mut self, facts: &Facts) -> Result<(), StoreError> {
        let most = if facts.tidied == 0 { UNWRITTEN_AT_FIRST_MAX } else { UNWRITTEN_MAX };
        let is_much = self.batch.bytes() >= most || self.batch.linked_bytes() >= LINKED_UNWRITTEN_MAX;
        if is_much { self.commit(facts, false) } else { Ok(()) }
    }

    /// Hands over what has changed to be made durable, which is done by [`Store::write_staged`] while others ask. `None` where
    /// there is nothing to write, or something is on its way already.
    pub(crate) fn begin_commit(&mut self, facts: &Facts) -> Result<Option<Arc<Store>>, StoreError> {
        self.pay()?;
        if self.store.is_writing() {
            return Ok(None);
        }
        self.put_down_found();
        let custom = self.books.as_mut().map(|books| std::mem::take(&mut books.unwritten)).unwrap_or_default();
        let is_as_kept = self.batch.is_empty() && custom.is_empty() && !self.is_loose && self.kept.are_still(facts);
        if is_as_kept {
            return Ok(None);
        }
        (self.kept, self.is_loose) = (facts.clone(), false);
        self.store.stage(std::mem::take(&mut self.batch), custom, facts.clone());
        // What a harvest of many takes isn't kept for the next one.
        (self.found, self.owed) = (SlotMap::default(), SlotMap::default());
        Ok(Some(Arc::clone(&self.store)))
    }

    fn put_down_found(&mut self) {
        let records = self.found.drain().map(|(slot, name)| (slot, Some(found(&self.nodes, slot, name))));
        self.batch.records.extend(records);
    }

    /// The record of a directory, which is to be written.
    fn edit(&mut self, slot: Slot) -> Result<&mut Record, StoreError> {
        if !self.batch.records.contains_key(&slot) {
            let record = self.take(slot)?;
            self.batch.records.insert(slot, Some(record));
        }
        Ok(self.batch.records.entry(slot).or_default().get_or_insert_default())
    }

    /// The same, to be put down again.
    fn take(&mut self, slot: Slot) -> Result<Record, StoreError> {
        if let Some(record) = self.batch.take(slot) {
            return Ok(record.unwrap_or_default());
        }
        Ok(match self.found.remove(&slot) {
            Some(name) => found(&self.nodes, slot, name),
            None => self.store.record_to_change(slot)?.unwrap_or_default(),
        })
    }
}

/// The record of a directory before its first harvest.
fn found(nodes: &Nodes, slot: Slot, name: EntryName) -> Record {
    Record { id: nodes.id(slot), parent: nodes.parent(slot), name, ..Record::default() }
}

/// What stood out before and doesn't now.
fn sunk(before: Extremes, after: Extremes) -> Extremes {
    Extremes {
        newest: before.newest.filter(|_| after.newest < before.newest),
        largest: before.largest.filter(|_| after.largest < before.largest),
    }
}

fn stood_on<T: PartialEq>(total: Option<T>, gone: Option<T>) -> bool {
    gone.is_some() && total == gone
}

#[cfg(test)]
mod tests {
    use onesweep_sys::files::Time;

    use super::*;
    use crate::{identity::NodeId, reading::LinkedName, record::Access, totals::Totals};

    /// Those that were read before, and only where the inode is another one; whoever saw two of them knows neither.
    #[test]
    fn directories_that_name_a_changed_inode_are_outdated() {
        let mut ledger = Ledger::open(Store::in_memory().expect("a store")).expect("it reads");
        let id = |ino| NodeId { subvolume: 0, ino, generation: 1 };
        let [one, other] = [1, 2].map(|ino| ledger.add(None, id(ino), EntryName::new()).expect("there is room"));
        let mut read = |slot, facts: &[u64], count| {
            let name = |&facts: &u64| LinkedName { id: id(7), weight: Sums::default(), links: 3, facts };
            let reading = Reading { linked: facts.iter().map(name).collect(), ..Reading::default() };
            let outdated = ledger.merge(slot, reading, count, 0).expect("it is put down").outdated;
            let linked = ledger.linked(LinkKey { subvolume: 0, ino: 7 }).expect("it reads");
            (outdated, linked.map(|linked| linked.facts))
        };
        assert_eq!(read(one, &[5], 1), (vec![], Some(5)));
        assert_eq!(read(other, &[5], 1), (vec![], Some(5)));
        assert_eq!(read(other, &[6], 2), (vec![one], Some(6)));
        assert_eq!(read(one, &[6, 6], 3), (vec![], Some(6)));
        assert_eq!(read(other, &[7, 6], 4), (vec![one], Some(0)));
        assert_eq!(read(other, &[], 5), (vec![], Some(0)));
    }

    /// What comes of empty directories is the same, whether each is read or they are told with the one that they are in.
    #[test]
    fn empty_directories_may_be_told_with_the_one_above() {
        let id = |ino| NodeId { subvolume: 0, ino, generation: 1 };
        let itself = |ino: i64, closed| Totals {
            sums: Sums { directories: 1, directory_bytes: ino, blocks: 8, freed_blocks: 8, closed, ..Sums::default() },
            extremes: Extremes { newest: Some(Time { secs: 100 - ino, nanos: 7 }), largest: None },
        };
        let access = |mode| Access { mode, uid: 5, ..Access::default() };
        let empty = |ino: u64, mode, closed| Empty {
            id: id(ino),
            access: access(mode),
            blocks: 8,
            own: itself(ino as i64, closed),
            stamp: ino * 1000,
        };
        let told = [empty(12, 0o40755, 0), empty(14, 0o40700, 1), empty(15, 0o40755, 0)];
        let harvested = |are_told: bool| {
            let mut ledger = Ledger::open(Store::in_memory().expect("a store")).expect("it reads");
            let top = ledger.add(None, id(2), EntryName::new()).expect("there is room");
            let directories = (11..=15).map(|ino| (id(ino), format!("d{ino}").into_bytes().into())).collect();
            let empty = if are_told { told.to_vec() } else { Vec::new() };
            let (own, stamp) = (itself(2, 0), 9);
            let reading = Reading { access: access(0o40755), own, stamp, directories, empty, ..Reading::default() };
            let new = ledger.merge(top, reading, 3, 50).expect("it is put down").new;
            let unread: Vec<u64> = new.iter().map(|&slot| ledger.nodes.id(slot).ino).collect();
            assert_eq!(unread, if are_told { vec![11, 13] } else { vec![11, 12, 13, 14, 15] });
            for slot in new {
                let node = ledger.nodes.id(slot);
                let alone = told.iter().find(|empty| empty.id == node);
                let (access, own, stamp) =
                    alone.map_or((access(0o40755), itself(1, 0), 6), |empty| (empty.access, empty.own, empty.stamp));
                let reading = Reading { access, own, stamp, blocks: 8, ..Reading::default() };
                ledger.merge(slot, reading, 3, 50).expect("it is put down");
            }
            assert_eq!(ledger.nodes.dirty_below(top), []);
            ledger.commit(&Facts::default(), false).expect("it is written");
            let told = |slot: Slot| {
                let record = ledger.record(slot).expect("it reads");
                (record.id.ino, ledger.nodes.stamp(slot), ledger.nodes.counts(slot), record)
            };
            let mut all: Vec<_> = ledger.nodes.all().map(told).collect();
            all.sort_unstable_by_key(|(ino, ..)| *ino);
            all
        };
        let (read, told) = (harvested(false), harvested(true));
        assert_eq!((read.len(), read[0].3.subtree.sums.directories, read[0].3.subtree.sums.closed), (6, 6, 1));
        assert_eq!(read, told);
    }
}
