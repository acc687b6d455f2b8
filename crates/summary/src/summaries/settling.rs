//! What is dirty is harvested until nothing is (FastDu, algorithm 1).

use super::{ROUNDS_MAX, Summaries, SummaryError, asking::Asking, merging::Further, viewer::Seen};
use crate::{
    harvest::{self, Waiting},
    identity::NodeId,
    nodes::{Count, Slot},
    reading::{Directories, Wanted, is_gone},
    tracker::Tracker,
};

/// So often a directory is read aside for one question. Else one that changes all the time would keep it for ever.
const ASIDE_MAX: u32 = 2;
/// Where one directory in so many is read, reading all metadata of the disk in one pass is as good.
const MOST_SHARE: usize = 4;

/// A directory that is in none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) slot: Slot,
    /// The one that the kernel says it is in, which then had this count and has to be read.
    pub(super) told: Option<(Slot, Count)>,
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// Harvests what is dirty below a directory. False when something goes on changing all the time.
    pub fn settle(&mut self, slot: Slot) -> Result<bool, SummaryError> {
        Ok(self.settle_more(slot, &mut Asking { has_begun: true, ..Asking::default() }, &|| false)?.unwrap_or(false))
    }

    /// The same, until it `gives_way`, or something has to be done first that is left to the caller: then `None`, and to be called again.
    pub fn settle_more(
        &mut self,
        slot: Slot,
        asking: &mut Asking<'_>,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Option<bool>, SummaryError> {
        let (mut id, mut has_given_way) = (None, false);
        // What bounds them is how many are to be looked at.
        if asking.looks.have_got_on() {
            asking.rounds = 0;
        }
        loop {
            self.drain()?;
            if self.waits_for_search() {
                self.ledger.pay()?;
                asking.searches += 1;
                // More happens all the time than can be told.
                return Ok((asking.searches > ROUNDS_MAX).then_some(false));
            }
            let nodes = &self.ledger.nodes;
            // Another may have its number by now.
            if !nodes.is_used(slot) || *id.get_or_insert(nodes.id(slot)) != nodes.id(slot) {
                return Err(SummaryError::Unknown);
            }
            let mut dirty = self.dirty_for(slot, asking.seen)?;
            // Before they are read: what is written meanwhile would have to be read once more.
            let is_concerned = !dirty.is_empty() || self.ledger.nodes.may_have_open(slot);
            // Who doesn't see all would learn from a late answer that something hidden has changed.
            let is_kept_from_asker = asking.seen.is_some() && asking.is_told_when_late;
            let gives_way_to_looks: &dyn Fn() -> bool = if is_kept_from_asker { &|| false } else { gives_way };
            if is_concerned && !self.relinked.is_empty() {
                if !self.watch_relinked(gives_way_to_looks)? {
                    self.ledger.pay()?;
                    return Ok(None);
                }
                // Some may have been found that are others now.
                dirty = self.dirty_for(slot, asking.seen)?;
            }
            if dirty.is_empty() {
                match self.look_at_silent((slot, asking.seen), &mut asking.looks, gives_way_to_looks)? {
                    Some(true) => dirty = self.dirty_for(slot, asking.seen)?,
                    Some(false) => {
                        match asking.seen {
                            Some(_) => self.ledger.pay()?,
                            None => self.settled(slot)?,
                        }
                        return Ok(Some(true));
                    }
                    None => {
                        self.ledger.pay()?;
                        return Ok(None);
                    }
                }
            }
            if has_given_way {
                self.ledger.pay()?;
                return Ok(None);
            }
            let is_due = |id: &NodeId| asking.aside.get(id).is_none_or(|&times| times < ASIDE_MAX);
            let dirty = match self.without_large(slot, dirty, is_due) {
                Ok(dirty) => dirty,
                Err(due) => {
                    self.ledger.pay()?;
                    let Some(next) = due else { return Ok(Some(false)) };
                    *asking.aside.entry(next).or_default() += 1;
                    self.due_aside = Some(next);
                    return Ok(None);
                }
            };
            let nodes = &self.ledger.nodes;
            if asking.is_whole || dirty.iter().all(|&slot| nodes.counts(slot).1 > asking.round) {
                (asking.rounds, asking.round) = (asking.rounds + 1, self.count);
            }
            if asking.rounds > ROUNDS_MAX {
                self.ledger.pay()?;
                return Ok(Some(false));
            }
            self.harvest(dirty, (usize::MAX, asking.seen), gives_way)?;
            self.find_the_lost()?;
            has_given_way = gives_way();
            asking.is_whole = !has_given_way;
        }
    }

    /// Harvests these, and at most so many new ones that are found below them and are shown; fewer when it has to give way.
    pub(super) fn harvest(
        &mut self,
        dirty: Vec<Slot>,
        (mut most_new, seen): (usize, Seen<'_>),
        gives_way: &dyn Fn() -> bool,
    ) -> Result<(), SummaryError> {
        self.bring_in(&dirty);
        self.begin_count();
        let (count, now) = (self.count, self.time());
        let mut waiting = Waiting::of(dirty.into_iter().map(|slot| (self.ledger.nodes.id(slot), slot)));
        let is_first = self.ledger.nodes.counts(self.root).1 == 0;
        let (mut merging, directories, tracker) = self.merging(count, now);
        let entries_max = merging.entries_max;
        // Whatever is told from here on is kept until this is over, and has its directory read again.
        let bulk = (is_first && tracker.heed_all() && directories.begin_bulk()).then(|| EndOfBulk(directories));
        harvest::harvest(&mut waiting, (directories, tracker, entries_max), gives_way, |slot, reading, waiting| {
            let Further { new, doubted } = merging.merge(slot, reading)?;
            let are_shown = match seen.filter(|_| !new.is_empty()) {
                Some(viewer) => {
                    let access = merging.ledger.record(slot)?.access;
                    access.is_open_to_all() || viewer.may_list(merging.ledger.nodes.id(slot), &access)
                }
                None => true,
            };
            let nodes = &merging.ledger.nodes;
            // They may lie outside of what is asked for, and would not be read at all.
            doubted.into_iter().for_each(|doubted| waiting.add(nodes.id(doubted), doubted));
            let followed = if are_shown { new.len().min(most_new) } else { 0 };
            most_new -= followed;
            new.into_iter().take(followed).for_each(|new| waiting.add(nodes.id(new), new));
            Ok::<_, SummaryError>(())
        })?;
        drop(bulk);
        let outdated = merging.outdated;
        outdated.into_iter().try_for_each(|slot| self.mark_used(slot))
    }

    /// Has the disk read in its own order what harvesting these takes.
    fn bring_in(&self, dirty: &[Slot]) {
        let nodes = &self.ledger.nodes;
        if dirty.len() * MOST_SHARE >= nodes.len() {
            return self.directories.bring_in(&Wanted::Most);
        }
        let directories: Vec<NodeId> = dirty.iter().map(|&slot| nodes.id(slot)).collect();
        let is_wanted = |id| nodes.find(id).is_none_or(|slot| nodes.is_dirty(slot));
        self.directories.bring_in(&Wanted::Some { directories: &directories, is_wanted: &is_wanted });
    }

    /// Directories that are in none: gone, or in another one, which then has to be read (again).
    pub(super) fn find_the_lost(&mut self) -> Result<(), SummaryError> {
        for Lost { slot, told } in std::mem::take(&mut self.nowhere) {
            if !self.ledger.nodes.is_used(slot) || self.ledger.nodes.parent(slot).is_some() {
                continue;
            }
            match self.directories.parent(self.ledger.nodes.id(slot)) {
                Err(error) if is_gone(&error) => self.forget(slot)?,
                Err(_) => self.nowhere.push(Lost { slot, told }),
                Ok(parent) => {
                    let parent = self.ledger.nodes.find(parent);
                    let was_read = |(at, count)| {
                        parent == Some(at) && self.ledger.nodes.counts(at).1 > count && !self.ledger.nodes.is_dirty(at)
                    };
                    if told.is_some_and(was_read) {
                        // It is there, and doesn't show: something is mounted on it.
                        self.forget(slot)?;
                        continue;
                    }
                    let told = told.filter(|(at, _)| Some(*at) == parent).or(parent.map(|at| (at, self.count)));
                    if let Some(parent) = parent {
                        self.mark(parent)?;
                    }
                    self.nowhere.push(Lost { slot, told });
                }
            }
        }
        Ok(())
    }

    /// Forgets a directory that is in none, and all below.
    fn forget(&mut self, slot: Slot) -> Result<(), SummaryError> {
        let below = self.ledger.nodes.subtree(slot).into_iter().map(|at| (at, self.ledger.nodes.id(at)));
        let (slots, ids): (Vec<Slot>, Vec<NodeId>) = below.unzip();
        self.tracker.heed_each(&ids);
        for (at, id) in slots.into_iter().zip(ids) {
            self.unreadable.remove(&at);
            self.remembered.forget(at);
            self.unsettled.let_go(at);
            self.vanished.remove(&id);
            self.large.remove(&id);
            self.doubted.remove(&id);
        }
        Ok(self.ledger.forget(slot)?)
    }
}

/// Ends reading in bulk when it goes.
struct EndOfBulk<'a, D: Directories>(&'a D);

impl<D: Directories> Drop for EndOfBulk<'_, D> {
    fn drop(&mut self) {
        self.0.end_bulk();
    }
}
