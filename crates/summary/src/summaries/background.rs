//! What is harvested without being asked for, some of it at a time.

use std::cmp::Reverse;

use super::{ROUNDS_MAX, Summaries, SummaryError, looks::Looks, synced::CaughtUpTo};
use crate::{
    custom::declare::Declared, moment::Moment, nodes::Slot, order::Set, reading::Directories, survey::Method,
    tracker::Tracker,
};

/// More than one directory in so many is dirty: then all of them are harvested.
const DIRTY_SHARE: usize = 20;
/// Much has been dirty for so many seconds before it is harvested for that: who unpacks a tree goes on in the directories that would be
/// harvested, and each of them would have to be read again.
const CALM: i64 = 5;
/// So many are harvested while somebody waits: where somebody does all the time nothing would ever be.
const FEW: usize = 8;

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tended {
    /// Nothing is due.
    Nothing,
    /// So many directories were read, and more are due.
    Some(u64),
    /// So many were read, and they were the last.
    All(u64),
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// From now on fewer dirty directories than that wait for the timeout or for who asks, also where they are one in twenty.
    pub fn leave_few(&mut self, dirty_min: usize) {
        self.dirty_min = dirty_min;
    }

    /// What is due by itself: what blocks may have changed meanwhile, and everything that is dirty when that has been much for some
    /// seconds, or the last such harvest is `timeout` seconds ago (FastDu, 1.3 and 3.2). About `most` directories are read at a time, fewer large ones, so that
    /// who asks meanwhile doesn't wait for all of them, and no more than are in flight once `gives_way` says so.
    pub fn tend(&mut self, timeout: i64, most: usize, gives_way: &dyn Fn() -> bool) -> Result<Tended, SummaryError> {
        let tended = self.tend_some(timeout, most, gives_way)?;
        if let Tended::All(_) = tended {
            self.sync_what_was_read();
            self.commit(true)?;
            self.tidy_places()?;
        }
        Ok(tended)
    }

    /// The same without making anything durable, and without finding out what has changed where that is left to the caller; after all of it that is due, and [`tidy_places`](Self::tidy_places) after that.
    pub(crate) fn tend_some(
        &mut self,
        timeout: i64,
        most: usize,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Tended, SummaryError> {
        self.drain()?;
        if self.waits_for_search() {
            return Ok(Tended::Some(0));
        }
        let is_watched = self.watch_relinked(gives_way)?;
        // How many names inodes have now: no directory is dirty for that, so it would show nowhere that it isn't counted.
        self.ledger.pay()?;
        if !is_watched {
            return Ok(Tended::Some(0));
        }
        let now = self.now();
        if !self.note_histories()? {
            return Ok(Tended::Some(0));
        }
        if self.waits_for_search() {
            return Ok(Tended::Some(0));
        }
        self.suspect_unsettled(self.now_millis())?;
        if !self.is_tending {
            // Since the last time that was asked, not since the last harvest: who changes much is harvested more often.
            // And what was found last is harvested first, however long finding it took.
            let is_time = now - self.asked_at >= timeout && !self.was_asked_to_tend;
            let is_to_be_asked = self.has_silent_changes() && is_time;
            if is_to_be_asked {
                self.fall_behind_in_silence();
                self.was_asked_to_tend = true;
                self.drain()?;
                if self.waits_for_search() {
                    return Ok(Tended::Some(0));
                }
            }
            let was_asked = std::mem::take(&mut self.was_asked_to_tend);
            let dirty = self.ledger.nodes.dirty_below(self.root).len();
            let is_late = was_asked || now - self.tended_at >= timeout;
            let is_due = self.has_long_been_much(dirty, now) || is_late;
            // Inodes that change where nothing is told make no directory dirty before they are looked at.
            let are_silent = is_late && !(self.open.is_empty() && self.aliens.is_empty());
            if (dirty == 0 && !are_silent) || !is_due {
                return Ok(Tended::Nothing);
            }
            (self.is_tending, self.much_since) = (true, None);
            (self.tended_aside, self.to_tend, self.tended_looks) = (Set::default(), Vec::new(), Looks::default());
            // Or the next start would have to look at all that has changed since the last one.
            if self.directories.method() == Some(Method::Generations) {
                self.fall_behind();
            }
        }
        let before = self.readings;
        let is_done = self.settle_within(self.root, most, gives_way)?;
        let read = self.readings - before;
        if !is_done {
            return Ok(Tended::Some(read));
        }
        (self.is_tending, self.tended_at) = (false, now);
        // Also where something goes on changing.
        self.set_counted(true);
        if read == 0 {
            return Ok(Tended::Nothing);
        }
        Ok(Tended::All(read))
    }

    fn has_long_been_much(&mut self, dirty: usize, now: i64) -> bool {
        let is_much = dirty >= self.dirty_min && dirty * DIRTY_SHARE > self.ledger.nodes.len();
        let since = is_much.then(|| self.much_since.unwrap_or(now));
        self.much_since = since;
        since.is_some_and(|since| now - since >= CALM)
    }

    /// Nobody tells which inodes are gone from a directory, only that some are. So when that comes to more than there are, those
    /// of all directories that were read since the last time are forgotten, and the next reading says which are there. Each
    /// directory that is read for that stands for a change of it, and all of them for as many inodes that went.
    pub(crate) fn tidy_places(&mut self) -> Result<(), SummaryError> {
        if !self.ledger.has_lost_places(self.root)? {
            return Ok(());
        }
        let since = std::mem::replace(&mut self.facts.tidied, self.count);
        self.facts.count = self.count;
        let read = self.ledger.forget_places(since, &self.facts)?;
        read.into_iter().try_for_each(|slot| self.mark(slot))
    }

    /// Something is counted by what the kernel doesn't tell to have changed, but which can be found out: projects, and what
    /// is cut by its path where sizes follow at close, or written through silent overlays; or by what nobody tells anything of.
    pub(super) fn has_silent_changes(&self) -> bool {
        let wants_project = self.ledger.declared().is_some_and(Declared::wants_project);
        !self.directories.changes_are_told()
            || self.follows_close()
            || self.directories.has_silent_overlays()
            || (wants_project && self.directories.method().is_some())
    }

    /// Harvests about `most` of the directories that are dirty, fewer where they have many entries, new ones among them; true when none is left, or something
    /// goes on changing all the time.
    fn settle_within(&mut self, slot: Slot, most: usize, gives_way: &dyn Fn() -> bool) -> Result<bool, SummaryError> {
        let (end, before) = (self.charged.saturating_add(most as u64), self.readings);
        for _ in 0..ROUNDS_MAX {
            self.drain()?;
            if self.waits_for_search() {
                self.ledger.pay()?;
                return Ok(false);
            }
            if !self.has_to_tend() {
                let dirty = self.ledger.nodes.dirty_below(slot);
                if dirty.is_empty() {
                    let mut looks = std::mem::take(&mut self.tended_looks);
                    let looked = self.look_at_silent((slot, None), &mut looks, gives_way);
                    self.tended_looks = looks;
                    match looked? {
                        Some(true) => continue,
                        Some(false) => {
                            self.tended_looks = Looks::default();
                            self.settled(slot)?;
                            return Ok(true);
                        }
                        None => {
                            self.ledger.pay()?;
                            return Ok(false);
                        }
                    }
                }
                // One that has changed again waits for the next time.
                self.to_tend = match self.without_large(slot, dirty, |id| !self.tended_aside.contains(id)) {
                    Ok(dirty) => dirty,
                    Err(due) => {
                        self.ledger.pay()?;
                        self.tended_aside.extend(due);
                        self.due_aside = due;
                        return Ok(due.is_none());
                    }
                };
                let nodes = &self.ledger.nodes;
                self.to_tend.sort_unstable_by_key(|&slot| Reverse(nodes.id(slot)));
            }
            let left = end.saturating_sub(self.charged) as usize;
            let is_waited_for = gives_way();
            if left == 0 || (is_waited_for && self.readings != before) {
                self.ledger.pay()?;
                return Ok(false);
            }
            if is_waited_for {
                let due = self.next_to_tend(left.min(FEW));
                self.harvest(due, (0, None), &|| false)?;
            } else {
                let due = self.next_to_tend(left);
                let room = left - due.len();
                self.harvest(due, (room, None), gives_way)?;
            }
            self.find_the_lost()?;
        }
        self.ledger.pay()?;
        Ok(true)
    }

    /// Whether some are left of those that were dirty when the harvest came round last.
    fn has_to_tend(&mut self) -> bool {
        let nodes = &self.ledger.nodes;
        let is_dirty = |&slot: &Slot| nodes.is_used(slot) && nodes.is_dirty(slot);
        self.to_tend.truncate(self.to_tend.iter().rposition(is_dirty).map_or(0, |last| last + 1));
        !self.to_tend.is_empty()
    }

    /// The next ones of them.
    fn next_to_tend(&mut self, most: usize) -> Vec<Slot> {
        let mut due = Vec::new();
        while due.len() < most && self.has_to_tend() {
            due.extend(self.to_tend.pop());
        }
        due
    }

    /// All below is clean.
    pub(super) fn settled(&mut self, slot: Slot) -> Result<(), SummaryError> {
        self.ledger.pay()?;
        if slot == self.root && self.facts.tidied == 0 {
            // Nothing that the first harvest found was gone by then.
            self.facts.tidied = self.count;
        }
        if slot == self.root {
            self.set_counted(true);
            self.forget_changes();
            // All directories have been read since they were declared.
            self.facts.declared = self.ledger.declared().map_or(0, Declared::hash);
            self.is_declared_in_part = false;
        }
        if let Some(CaughtUpTo { generation, synced }) = self.caught_up_to.take_if(|_| slot == self.root) {
            self.facts.generation = generation;
            self.facts.synced = synced.max(self.facts.synced);
            self.facts.moment = Moment::now();
            self.facts.is_partial = false;
        }
        Ok(())
    }
}
