//! Questions, each from its beginning to its answer, a portion at a time (the paper's `QueryDirStatistics`).

use super::{Answer, Freshness, ROUNDS_MAX, Seen, Summaries, SummaryError, Written, looks::Looks};
use crate::{
    identity::NodeId,
    nodes::{Count, Slot},
    order::Map,
    reading::Directories,
    tracker::Tracker,
};

/// How far a question has got.
#[derive(Debug, Default)]
pub struct Asking<'a> {
    pub(super) seen: Seen<'a>,
    /// What was done before it; where all is to be written and this is `None`, that is done while it is asked.
    pub(super) written: Option<Written>,
    pub(super) has_begun: bool,
    /// All that was dirty has been harvested so often, and by then this was the number of the last harvest.
    pub(super) rounds: usize,
    pub(super) round: Count,
    /// So often it was to be found out first what has changed.
    pub(super) searches: usize,
    /// The last harvest was.
    pub(super) is_whole: bool,
    /// The directory isn't where it was, and is looked for in all of them.
    pub(super) is_lost: bool,
    /// How often large directories were read aside.
    pub(super) aside: Map<NodeId, u32>,
    pub(super) looks: Looks,
    /// Where it gives way, whoever asks is told so.
    pub(super) is_told_when_late: bool,
}

impl<'a> Asking<'a> {
    /// By somebody who may not see all.
    pub fn by(seen: Seen<'a>) -> Asking<'a> {
        Asking { seen, ..Asking::default() }
    }

    /// What was looked at since the question needs no further look.
    pub(crate) fn after_looks(self, looks: Looks) -> Asking<'a> {
        Asking { looks, ..self }
    }

    pub(crate) fn take_looks(&mut self) -> Looks {
        std::mem::take(&mut self.looks)
    }

    /// By somebody who is told what is stored, as late, where it gives way.
    pub fn told_when_late(self) -> Asking<'a> {
        Asking { is_told_when_late: true, ..self }
    }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// What is stored of a directory, without any reading.
    pub fn cached(&self, directory: NodeId, seen: Seen<'_>) -> Result<Answer, SummaryError> {
        let slot = self.ledger.nodes.find(directory).ok_or(SummaryError::Unknown)?;
        let record = self.ledger.record(slot)?;
        let unreadable = self.unreadable_for(slot, seen)?.len();
        let (is_exact, checked_at, late, age) = (false, None, None, self.age(slot, seen)?);
        let (totals, harvested_at) = (record.subtree, record.harvested_at);
        Ok(Answer { totals, harvested_at, is_exact, checked_at, unreadable, late, age })
    }

    /// The same for who didn't wait any longer. Where something is hidden it isn't told how much is left.
    pub fn late(&self, directory: NodeId, seen: Seen<'_>) -> Result<Answer, SummaryError> {
        let nodes = &self.ledger.nodes;
        let slot = nodes.find(directory).ok_or(SummaryError::Late)?;
        if self.ledger.record(slot)?.harvested == 0 {
            // Nothing is stored of it but its name.
            return Err(SummaryError::Late);
        }
        // What is unsure would have to be looked at, which may take longer than anybody waits.
        let is_hidden = seen.is_some() && (nodes.may_be_unsure(slot) || self.hides_below(slot, seen)?);
        let left = if is_hidden { 0 } else { self.left_below(directory, seen)? };
        Ok(Answer { late: Some(left), ..self.cached(directory, seen)? })
    }

    /// The answer where all is harvested that is known to have changed; `None` where something may have, which [`query`](Self::query) finds out.
    pub fn query_clean(&self, directory: NodeId, seen: Seen<'_>) -> Result<Option<Answer>, SummaryError> {
        let nodes = &self.ledger.nodes;
        let Some(slot) = nodes.find(directory) else { return Ok(None) };
        let is_noted = self.remembered.is_asked(slot, self.believed_time());
        let is_known = is_noted
            && !nodes.may_be_outdated(slot)
            && !self.is_behind
            && (self.caught_up_to.is_none() || slot != self.root)
            && (!nodes.may_have_open(slot) && self.unreadable(slot).next().is_none())
            && self.unsettled.are_none_due(self.now_millis())
            && (self.ledger.is_paid() && !self.is_broken());
        // Last: what was done before the question is told by now.
        if !is_known || !self.directories.is_mounted_alike() || !self.tracker.is_quiet() {
            return Ok(None);
        }
        Ok(Some(self.settled_answer(directory, Freshness::Exact, seen)?))
    }

    /// Answers a question for a directory (the paper's `QueryDirStatistics`).
    pub fn query(&mut self, directory: NodeId, freshness: Freshness) -> Result<Answer, SummaryError> {
        let mut asking = Asking::default();
        loop {
            match self.query_within(directory, freshness, &mut asking, &|| false)? {
                Some(answer) => return Ok(answer),
                None if self.waits_for_search() => self.search()?,
                None => return Err(SummaryError::Unknown),
            }
        }
    }

    /// The same, a portion at a time: `None` when it `gives_way`, or something has to be done first that is left to the caller, to be called
    /// again with the same `asking`.
    pub fn query_within(
        &mut self,
        directory: NodeId,
        freshness: Freshness,
        asking: &mut Asking<'_>,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Option<Answer>, SummaryError> {
        if freshness == Freshness::Cached {
            return self.cached(directory, asking.seen).map(Some);
        }
        if !std::mem::replace(&mut asking.has_begun, true) {
            if freshness == Freshness::Exact
                && let Some(answer) = self.query_clean(directory, asking.seen)?
            {
                return Ok(Some(answer));
            }
            self.reopen_if_broken()?;
            if freshness == Freshness::Synced {
                let written = match asking.written.take() {
                    Some(written) => written,
                    None => Written::by_now(&self.directories, &*self.clock)?,
                };
                self.suspect_unsettled(i64::MAX)?;
                if self.has_silent_changes() {
                    self.fall_behind_in_silence();
                }
                if let Some((at, files)) = &asking.written.insert(written).open {
                    self.take_open_files(*at, files)?;
                }
            }
            self.suspect_unsettled(self.now_millis())?;
            // What could not be read may be readable again.
            let top = self.ledger.nodes.find(directory).unwrap_or(self.root);
            let unreadable: Vec<Slot> = self.unreadable(top).map(|(slot, _)| slot).collect();
            unreadable.into_iter().try_for_each(|slot| self.mark(slot))?;
            self.drain()?;
            asking.round = self.count;
        }
        for _ in 0..ROUNDS_MAX {
            let Some(slot) = self.ledger.nodes.find(directory) else {
                if self.settle_more(self.root, asking, gives_way)?.is_none() {
                    return Ok(None);
                }
                if self.ledger.nodes.find(directory).is_none() {
                    break;
                }
                continue;
            };
            match self.settle_more(if asking.is_lost { self.root } else { slot }, asking, gives_way) {
                // It was forgotten together with one above it that is gone, and may have moved out of that: all is looked through.
                Err(SummaryError::Unknown) => {}
                Err(error) => return Err(error),
                Ok(None) => return Ok(None),
                // Where directories are known by their names, it or one above it may have moved.
                Ok(Some(false)) if !asking.is_lost && !self.directories.changes_are_told() => {
                    (asking.is_lost, asking.is_whole, asking.rounds) = (true, false, 0);
                }
                Ok(Some(false)) => return self.cached(directory, asking.seen).map(Some),
                Ok(Some(true)) => {
                    let Some(slot) = self.ledger.nodes.find(directory) else { break };
                    // What is hidden and has changed isn't counted yet for those who see it.
                    if asking.seen.is_none() || !self.ledger.nodes.may_be_outdated(slot) {
                        self.remember(slot)?;
                    }
                    return self.settled_answer(directory, freshness, asking.seen).map(Some);
                }
            }
        }
        Err(SummaryError::Unknown)
    }

    /// Directories in which blocks may have changed by now.
    pub(super) fn suspect_unsettled(&mut self, now: i64) -> Result<(), SummaryError> {
        self.unsettled.take_due(now).into_iter().try_for_each(|slot| self.mark_used(slot))
    }

    pub(super) fn mark_used(&mut self, slot: Slot) -> Result<(), SummaryError> {
        if self.ledger.nodes.is_used(slot) { self.mark(slot) } else { Ok(()) }
    }
}
