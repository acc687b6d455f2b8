//! Directories whose totals are noted over time: those that were asked for, up to a bound.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::{nodes::Slot, order::Map};

/// So many, at most.
const MAX: usize = 10_000;
const DAY: i64 = 86_400;
/// One that nobody has asked for in so many seconds makes room for another one. Who asks for very many takes nothing from others before.
const UNASKED: i64 = 7 * DAY;

/// What became of a directory that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It was remembered.
    Before,
    /// It is from now on, and another one isn't any more.
    Now(Option<Slot>),
    /// There is no room.
    No,
}

/// All of them. Times are seconds since 1970, as far as the clock is believed.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// When each was asked for last.
    asked: Map<Slot, AtomicI64>,
    /// Before that none makes room.
    full_until: i64,
    /// So often there was no room since that was told, and when it was.
    turned_away: AtomicU64,
    told_at: AtomicI64,
}

impl Remembered {
    pub(super) fn of(all: impl IntoIterator<Item = (Slot, i64)>) -> Remembered {
        let asked = all.into_iter().map(|(slot, at)| (slot, AtomicI64::new(at))).collect();
        Remembered { asked, ..Remembered::default() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Slot, i64)> + '_ {
        self.asked.iter().map(|(&slot, at)| (slot, at.load(Ordering::Relaxed)))
    }

    /// When it was asked for last; `None` where it isn't remembered.
    pub(super) fn asked_at(&self, slot: Slot) -> Option<i64> {
        self.asked.get(&slot).map(|at| at.load(Ordering::Relaxed))
    }

    /// It is asked for: whether nothing has to be done for that.
    pub(super) fn is_asked(&self, slot: Slot, now: i64) -> bool {
        if let Some(at) = self.asked.get(&slot) {
            at.fetch_max(now, Ordering::Relaxed);
            return true;
        }
        let is_full = self.asked.len() >= MAX && now < self.full_until;
        if is_full {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        is_full
    }

    pub(super) fn admit(&mut self, slot: Slot, now: i64) -> Admitted {
        if self.is_asked(slot, now) {
            return if self.asked.contains_key(&slot) { Admitted::Before } else { Admitted::No };
        }
        let mut instead = None;
        if self.asked.len() >= MAX {
            let (longest, at) = self.all().min_by_key(|&(slot, at)| (at, slot)).unwrap_or((slot, now));
            if now - at < UNASKED {
                self.full_until = at + UNASKED;
                self.turned_away.fetch_add(1, Ordering::Relaxed);
                return Admitted::No;
            }
            self.asked.remove(&longest);
            instead = Some(longest);
        }
        self.asked.insert(slot, AtomicI64::new(now));
        Admitted::Now(instead)
    }

    /// It isn't there any more.
    pub(super) fn forget(&mut self, slot: Slot) {
        if self.asked.remove(&slot).is_some() {
            self.full_until = 0;
        }
    }

    /// Whether there was no room since this was said last; once a day at most, in seconds that nobody sets.
    pub(super) fn take_turned_away(&self, now: i64) -> bool {
        let told_at = self.told_at.load(Ordering::Relaxed);
        if (told_at != 0 && now + 1 - told_at < DAY) || self.turned_away.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        // Not 0, which is never.
        self.told_at.store(now + 1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unasked_makes_room_after_a_week() {
        let mut remembered = Remembered::of((0..MAX as u32).map(|number| (Slot(number), 1000 + i64::from(number))));
        let (new, other, now) = (Slot(MAX as u32), Slot(MAX as u32 + 1), 1000 + UNASKED);
        assert!(!remembered.take_turned_away(5));
        assert_eq!(remembered.admit(new, now - 1), Admitted::No);
        assert!(remembered.is_asked(new, now - 1), "nothing is to be done");
        assert!(remembered.take_turned_away(5) && !remembered.take_turned_away(6));
        assert!(remembered.is_asked(Slot(0), now));
        assert_eq!(
            remembered.admit(new, now + 1),
            Admitted::Now(Some(Slot(1))),
            "the other one was asked for meanwhile"
        );
        assert_eq!(remembered.admit(new, now + 1), Admitted::Before);
        assert_eq!(remembered.admit(other, now + 1), Admitted::No);
        assert!(!remembered.take_turned_away(7), "it was told today");
        assert!(remembered.take_turned_away(7 + DAY));
        assert_eq!(remembered.all().count(), MAX);
        remembered.forget(Slot(7));
        assert!(!remembered.is_asked(other, now + 1));
        assert_eq!(remembered.admit(other, now + 1), Admitted::Now(None));
        remembered.forget(other);
        assert!(!remembered.is_asked(other, now + 1), "another one may get the number");
    }

    #[test]
    fn who_was_asked_for_by_a_clock_that_is_behind_was_asked_for_before() {
        let mut remembered = Remembered::of([(Slot(1), 5000)]);
        assert_eq!(remembered.admit(Slot(1), 10), Admitted::Before);
        assert_eq!(remembered.all().collect::<Vec<_>>(), [(Slot(1), 5000)]);
    }
}
