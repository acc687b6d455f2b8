//! How old what is stored may be: when the oldest change happened that isn't counted, by numbers of harvests.

use super::{Seen, Summaries, SummaryError};
use crate::{
    clock::{millis, whole},
    nodes::{Count, Slot, SlotMap},
    reading::Directories,
    tracker::Tracker,
};

/// So many numbers and their times are kept.
const TIMES_MAX: usize = 4096;
/// So many directories that have changed again before they were harvested are told apart.
const SINCE_MAX: usize = 1 << 16;
/// A number stands for the changes of so many seconds, at least.
const SECONDS: i64 = 1;

/// From when on changes have which number, in seconds of the clock that nobody sets.
#[derive(Debug)]
pub(super) struct Ages {
    times: Vec<(Count, i64)>,
    /// When changes were taken in last: what is told now has happened since.
    drained_at: i64,
    /// The first number of directories that have changed again with a later one.
    since: SlotMap<Count>,
    /// The first of those that found no room there.
    crowded: Option<Count>,
    /// Since when it isn't known what has changed.
    behind_since: Option<i64>,
}

impl Ages {
    pub(super) fn new(count: Count, now: i64) -> Ages {
        Ages {
            times: vec![(count, now)],
            drained_at: now,
            since: SlotMap::default(),
            crowded: None,
            behind_since: None,
        }
    }

    /// Changes have a new number, and happened at that time or later.
    fn begin(&mut self, count: Count, at: i64) {
        self.times.push((count, at));
        if self.times.len() > TIMES_MAX {
            // Of each two neighbours the first stands for both, as the older.
            let mut kept: Vec<(Count, i64)> = Vec::with_capacity(TIMES_MAX);
            for pair in self.times.chunks(2) {
                let at = pair.iter().map(|(_, at)| *at).min().unwrap_or(at);
                kept.push((pair[0].0, at));
            }
            self.times = kept;
        }
    }

    fn of(&self, count: Count) -> i64 {
        let later = self.times.partition_point(|(first, _)| *first <= count);
        self.times[later.saturating_sub(1)].1
    }

    pub(super) fn are_behind(&mut self, since: i64) {
        let since = self.behind_since.map_or(since, |known| known.min(since));
        self.behind_since = Some(since);
    }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// Seconds that nobody sets.
    pub(super) fn now(&self) -> i64 {
        whole(self.clock.passed())
    }

    /// The same in milliseconds.
    pub(super) fn now_millis(&self) -> i64 {
        millis(self.clock.passed())
    }

    /// Seconds since 1970.
    pub(super) fn time(&self) -> i64 {
        whole(self.clock.time())
    }

    /// A new number: what is told from now on has it, and happened after what was told before.
    pub(super) fn begin_count(&mut self) {
        self.begin_count_at(self.ages.drained_at);
    }

    fn begin_count_at(&mut self, at: i64) {
        self.count += 1;
        self.ages.begin(self.count, at);
    }

    /// Before changes that were taken in at `now` are put down.
    pub(super) fn number_changes(&mut self, has_any: bool, now: i64) {
        let last = self.ages.times.last().map_or(0, |(_, at)| *at);
        if has_any && self.ages.drained_at - last >= SECONDS {
            self.begin_count();
        }
        self.ages.drained_at = now;
    }

    /// More may have changed since the last time that changes were taken in.
    pub(super) fn fall_behind(&mut self) {
        self.is_behind = true;
        self.ages.are_behind(self.ages.drained_at);
    }

    /// The same of what isn't told at all: since it was asked for last.
    pub(super) fn fall_behind_in_silence(&mut self) {
        self.is_behind = true;
        self.ages.are_behind(self.asked_at);
    }

    /// What is found to have changed did so since then.
    pub(super) fn begin_catching_up(&mut self) {
        if let Some(since) = self.ages.behind_since {
            self.begin_count_at(since);
        }
    }

    /// It is known again.
    pub(super) fn end_catching_up(&mut self) {
        if self.ages.behind_since.take().is_some() {
            self.begin_count();
        }
    }

    /// A directory that was dirty changes once more, which its number will tell.
    pub(super) fn keep_first_change(&mut self, slot: Slot) {
        let (changed, harvested) = self.ledger.nodes.counts(slot);
        if changed == self.count {
            return;
        }
        let first = self.ages.since.entry(slot).or_insert(changed);
        if *first < harvested {
            *first = changed;
        }
        if self.ages.since.len() > SINCE_MAX {
            let nodes = &self.ledger.nodes;
            let still = |(slot, first): &(&Slot, &Count)| nodes.is_used(**slot) && **first >= nodes.counts(**slot).1;
            let first = self.ages.since.iter().filter(still).map(|(_, first)| *first).min();
            self.ages.crowded = self.ages.crowded.into_iter().chain(first).min();
            self.ages.since = SlotMap::default();
        }
    }

    /// All is counted.
    pub(super) fn forget_changes(&mut self) {
        (self.ages.since, self.ages.crowded) = (SlotMap::default(), None);
    }

    /// So many seconds ago what is stored of a directory was what there is, as far as `seen` shows it.
    pub(super) fn age(&self, slot: Slot, seen: Seen<'_>) -> Result<i64, SummaryError> {
        let now = self.now();
        let mut oldest = self.ages.behind_since.unwrap_or(now);
        let since_time = |at: i64| now - (self.time() - at).max(0);
        if !self.directories.changes_are_told() || self.has_closed_alone() || self.has_mapped_below(slot, seen)? {
            oldest = oldest.min(since_time(self.looked_at()));
        }
        if self.has_closed_alone() {
            oldest = oldest.min(self.asked_at);
        }
        self.each_dirty(slot, seen, false, &mut |slot| {
            let (changed, harvested) = self.ledger.nodes.counts(slot);
            let first = self.ages.since.get(&slot).copied().filter(|first| *first >= harvested).unwrap_or(changed);
            let first = self.ages.crowded.map_or(first, |crowded| crowded.min(first));
            oldest = oldest.min(self.ages.of(first));
        })?;
        Ok((now - oldest).max(0))
    }
}
