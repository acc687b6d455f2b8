//! What has changed while nobody told: after opening a store, and after events were lost.

use super::{
    Summaries, SummaryError,
    synced::{CaughtUpTo, written_generation},
};
use crate::{
    catch_up::{self, Changes, Doubt},
    moment::Moment,
    order::Set,
    reading::Directories,
    tracker::Tracker,
};

/// What [`Summaries::missed`] found.
#[derive(Debug)]
pub struct Missed {
    /// By both clocks: since 1970, and in seconds that nobody sets.
    began: (i64, i64),
    caught_up_to: CaughtUpTo,
    found: Result<Changes, Doubt>,
}

/// What was found when it wasn't known what has changed.
#[derive(Debug)]
pub enum CaughtUp {
    /// So many directories have changed.
    Changed(usize),
    /// All may have, for this reason.
    All(Doubt),
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// Finds out what has changed while nobody told: once after opening, which any exact question does by itself. What changes
    /// from its beginning on is told.
    pub fn missed(&self) -> Result<Missed, SummaryError> {
        let began = (self.time(), self.now());
        let (synced, generation) = (self.read_by_now(), self.directories.generation().unwrap_or(0));
        let after = self.may_be_set_back.then_some(self.facts.synced);
        let found = match self.are_declared_anew {
            true => Err(Doubt::OtherSummaries),
            false => catch_up::changes(&self.ledger, &self.directories, (&self.facts, after), &Moment::now())?,
        };
        let caught_up_to = match &found {
            // Whoever looks at what has changed has it written first.
            Ok(_) => CaughtUpTo { generation, synced },
            Err(_) => CaughtUpTo { generation: written_generation(&self.directories), synced: 0 },
        };
        Ok(Missed { began, caught_up_to, found })
    }

    /// Something above what was read since all was told may have been closed by then, of which nobody was told: until that is known it is
    /// looked at for who doesn't see all.
    pub(super) fn doubt_ways_to_what_was_read(&mut self) {
        if !self.leaves_searches {
            // It is known before anybody asks.
            return;
        }
        let nodes = &mut self.ledger.nodes;
        let mut ways = Set::default();
        for slot in nodes.all().filter(|&slot| nodes.counts(slot).1 > self.heard) {
            // All above one that is on a way are on it, too. So is what was read: it may have been closed between its facts and its entries.
            let _ = nodes.upwards(slot).try_for_each(|at| ways.insert(at).then_some(()));
        }
        let sure = ways.into_iter().filter(|&at| !nodes.is_unsure(at));
        self.unheard.extend(sure);
        self.unheard.iter().for_each(|&at| nodes.mark_unsure(at));
    }

    fn be_sure_of_ways(&mut self) {
        let nodes = &mut self.ledger.nodes;
        for at in std::mem::take(&mut self.unheard) {
            // What was told of is dirty as well.
            if nodes.is_used(at) && !nodes.is_dirty(at) {
                nodes.be_sure(at);
            }
        }
    }

    /// Takes that in.
    pub fn catch_up(&mut self, missed: Missed) -> Result<(), SummaryError> {
        self.searches += 1;
        self.begin_catching_up();
        let (time, now) = missed.began;
        let settling = self.directories.settling_seconds();
        self.caught_up = Some(match missed.found {
            Ok(found) => {
                found.changed.iter().try_for_each(|&slot| self.suspect(slot))?;
                for (slot, until) in found.unsettled {
                    let until = now * 1000 + (until - time).clamp(0, settling) * 1000;
                    self.unsettled.extend(slot, until);
                }
                CaughtUp::Changed(found.changed.len())
            }
            Err(doubt) => {
                self.suspect_all()?;
                // Who opens the store before all of it is read has to do so, too.
                self.facts.synced = 0;
                CaughtUp::All(doubt)
            }
        });
        // Of names that were lost meanwhile nobody told either.
        self.watch_lost_names()?;
        self.caught_up_to = Some(missed.caught_up_to);
        self.be_sure_of_ways();
        (self.is_behind, self.are_declared_anew, self.may_be_set_back) = (false, false, false);
        self.end_catching_up();
        // Nothing was read meanwhile.
        self.heard = self.count;
        self.asked_at = now;
        self.looked.all_were_at(time);
        Ok(())
    }

    /// Both, while nobody asks.
    pub(super) fn search(&mut self) -> Result<(), SummaryError> {
        let missed = self.missed()?;
        self.catch_up(missed)
    }

    /// From now on that is left to who shares these, so that what is stored can be asked meanwhile: a question or a harvest comes back,
    /// and [`is_behind`](Self::is_behind) tells why. Nothing is harvested, and no answer is exact, before [`catch_up`](Self::catch_up).
    pub fn leave_searches(&mut self) {
        self.leaves_searches = true;
    }

    /// Whether nothing can be harvested before somebody has done that.
    pub(super) fn waits_for_search(&self) -> bool {
        self.is_behind && self.leaves_searches
    }

    /// More may have changed than was told.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// What was found the last time that more may have changed than was told: after opening, and after events were lost.
    pub fn caught_up(&self) -> Option<&CaughtUp> {
        self.caught_up.as_ref()
    }
}
