//! Totals are noted over time, by a clock that may be wrong for a while.
//!
//! A machine may start with a clock that has stood still, and people set clocks to what isn't so. What was noted before isn't taken for
//! wrong, nor for old, before such a clock has held for a day in which the server runs.

use super::{Summaries, SummaryError, remembered::Admitted};
use crate::{
    history::{History, Noting},
    nodes::Slot,
    reading::Directories,
    tracker::Tracker,
    whole_for::Looking,
};

/// So often the totals of directories that were asked for are noted.
const EVERY: i64 = 10 * 60;
/// What the clock says is doubted where it is off by more seconds, until it has held for as long.
const DAY: i64 = 86_400;

/// So many directories are noted at a time, between which others ask.
const NOTED_MAX: usize = 256;
/// So many directories are read so that it is known who may look into them.
const MADE_SURE_MAX: usize = 256;

/// What is known of the clock by which totals are noted. All that is waited for is told by the one that nobody sets, in seconds.
#[derive(Debug)]
pub(super) struct NotedBy {
    /// When all were noted last.
    last: Option<i64>,
    /// What the clock said when it was believed last, and when that was.
    believed: (i64, i64),
    doubted_since: Option<i64>,
    /// Since when it stands before what was noted already.
    behind_since: Option<i64>,
    under_way: Option<Round>,
}

/// All are being noted.
#[derive(Debug)]
struct Round {
    left: Vec<Slot>,
    looking: Looking,
    /// The clock stands before what was noted of one of them.
    is_behind: bool,
}

impl NotedBy {
    /// The clock says `time`. What is `known` was written at that time, at least.
    pub(super) fn starting(time: i64, now: i64, known: Option<i64>) -> NotedBy {
        NotedBy {
            last: None,
            believed: (known.unwrap_or(time), now),
            doubted_since: None,
            // Until the first look.
            behind_since: known.filter(|&known| time < known).map(|_| now),
            under_way: None,
        }
    }

    fn is_due(&self, now: i64) -> bool {
        self.last.is_none_or(|last| now - last >= EVERY)
    }

    fn expected(&self, now: i64) -> i64 {
        self.believed.0 + (now - self.believed.1)
    }

    /// What is noted now.
    fn noting(&mut self, time: i64, now: i64) -> Noting {
        let expected = self.expected(now);
        let since = *self.doubted_since.get_or_insert(now);
        let is_believed = (time - expected).abs() <= DAY || now - since >= DAY;
        if is_believed {
            (self.believed, self.doubted_since) = ((time, now), None);
        }
        let is_long_behind = self.behind_since.is_some_and(|since| now - since >= DAY);
        let old_by = if is_believed { time } else { time.min(expected) };
        Noting {
            at: time,
            old_by,
            asked_at: old_by,
            begins: self.behind_since.is_none() || is_long_behind,
            ends_future: is_long_behind,
        }
    }

    fn is_behind(&mut self, is_behind: bool, now: i64) {
        self.behind_since = is_behind.then(|| self.behind_since.unwrap_or(now));
    }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// The totals of a directory over time: from when it was asked for first.
    pub fn history(&self, slot: Slot) -> Result<History, SummaryError> {
        Ok(self.ledger.history(slot)?)
    }

    /// Seconds since 1970, by a clock that may be ahead as far as it was before.
    pub(super) fn believed_time(&self) -> i64 {
        self.time().min(self.noted_by.expected(self.now()).saturating_add(DAY))
    }

    /// From now on its totals are noted from time to time, unless there are very many already that were asked for lately.
    pub fn remember(&mut self, slot: Slot) -> Result<(), SummaryError> {
        if let Admitted::Now(instead) = self.remembered.admit(slot, self.believed_time()) {
            if let Some(instead) = instead {
                self.ledger.forget_history(instead);
            }
            let noting = self.noted_by.noting(self.time(), self.now());
            self.ledger.nodes.unsure_below(slot);
            let whole_for = Looking::default().at(&self.ledger, slot)?;
            self.ledger.note_history(slot, noting, whole_for)?;
        }
        Ok(())
    }

    /// Whether directories were asked for whose totals can't be noted, for there are too many that were asked for within a week. Told once
    /// a day.
    pub fn has_turned_away(&self) -> bool {
        self.remembered.take_turned_away(self.now())
    }

    /// What has changed while nobody tracked is found and harvested: from now on totals are noted. All was read then, also where
    /// something goes on changing.
    pub fn begin_noting(&mut self) {
        self.is_declared_in_part = false;
        self.set_counted(true);
        self.is_noting = true;
    }

    /// The same where the store has failed before that was found: it is when it is open again, as after any other failure.
    pub(crate) fn note_behind_a_failure(&mut self) {
        self.is_noting = true;
    }

    #[cfg(test)]
    pub(crate) fn is_noting(&self) -> bool {
        self.is_noting
    }

    /// Some of what may have been closed since it was read is read once more: else what is noted would be root's.
    fn make_sure(&mut self) -> Result<(), SummaryError> {
        let mut unsure = self.ledger.nodes.unsure_below(self.root);
        if unsure.is_empty() || self.remembered.all().next().is_none() {
            return Ok(());
        }
        unsure.truncate(MADE_SURE_MAX);
        self.harvest(unsure, (0, None), &|| false)?;
        self.find_the_lost()?;
        self.ledger.pay()?;
        // What was closed before it was read is told by now.
        self.drain()
    }

    /// Notes the totals of directories that were asked for, when it is time, some of them at a time; true when none is left.
    pub(super) fn note_histories(&mut self) -> Result<bool, SummaryError> {
        let (now, time) = (self.now(), self.time());
        if !self.is_noting {
            return Ok(true);
        }
        let round = match self.noted_by.under_way.take() {
            Some(Round { left, looking, is_behind }) => Round { left, looking: looking.anew(), is_behind },
            None if !self.noted_by.is_due(now) => return Ok(true),
            None => {
                let last = self.noted_by.last.replace(now);
                self.make_sure()?;
                if self.waits_for_search() {
                    // What was closed isn't known.
                    self.noted_by.last = last;
                    return Ok(true);
                }
                let left = self.remembered.all().map(|(slot, _)| slot).collect();
                Round { left, looking: Looking::default(), is_behind: false }
            }
        };
        let round = self.note_some(round, time, now)?;
        if round.left.is_empty() {
            self.noted_by.is_behind(round.is_behind, now);
            return Ok(true);
        }
        self.noted_by.under_way = Some(round);
        Ok(false)
    }

    fn note_some(&mut self, mut round: Round, time: i64, now: i64) -> Result<Round, SummaryError> {
        let noting = self.noted_by.noting(time, now);
        for slot in round.left.split_off(round.left.len().saturating_sub(NOTED_MAX)) {
            // One may be gone by now.
            let Some(asked_at) = self.remembered.asked_at(slot) else { continue };
            let whole_for = round.looking.at(&self.ledger, slot)?;
            round.is_behind |= !self.ledger.note_history(slot, Noting { asked_at, ..noting }, whole_for)?;
        }
        self.note_the_time();
        self.ledger.commit_much(&self.facts)?;
        Ok(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    /// What is thinned out goes by what was expected, which goes on as time passes.
    #[test]
    fn a_clock_is_believed_when_it_has_held_for_a_day() {
        for off in [2 * DAY, 400 * DAY] {
            let mut noted_by = NotedBy::starting(NOW, 0, Some(NOW));
            assert_eq!(noted_by.noting(NOW + 10, 10).old_by, NOW + 10);
            assert_eq!(noted_by.noting(NOW + off + 20, 20).old_by, NOW + 20);
            assert_eq!(noted_by.noting(NOW + off + DAY + 19, DAY + 19).old_by, NOW + DAY + 19);
            assert_eq!(noted_by.noting(NOW + off + DAY + 20, DAY + 20).old_by, NOW + off + DAY + 20);
            assert_eq!(noted_by.noting(NOW + off + DAY + 30, DAY + 30).old_by, NOW + off + DAY + 30);
        }
    }

    /// A machine that is off for days each time is thinned out one time later.
    #[test]
    fn after_days_without_a_server_all_is_as_old_as_it_was_then() {
        let mut noted_by = NotedBy::starting(NOW + 5 * DAY, 7, Some(NOW));
        assert_eq!(noted_by.noting(NOW + 5 * DAY + 100, 107).old_by, NOW + 100);
        let mut noted_by = NotedBy::starting(NOW + DAY / 2, 7, Some(NOW));
        assert_eq!(noted_by.noting(NOW + DAY / 2, 7).old_by, NOW + DAY / 2);
    }

    #[test]
    fn a_clock_that_was_wrong_for_a_while_is_believed_again_at_once() {
        let mut noted_by = NotedBy::starting(NOW, 0, Some(NOW));
        for off in [-100 * DAY, 100 * DAY] {
            assert_eq!(noted_by.noting(NOW + off + 10, 10).old_by, (NOW + 10).min(NOW + off + 10));
            assert_eq!(noted_by.noting(NOW + 1000, 1000).old_by, NOW + 1000);
            assert_eq!(noted_by.doubted_since, None);
        }
    }
}
