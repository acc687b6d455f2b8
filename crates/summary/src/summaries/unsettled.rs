//! Directories in which blocks may change and nobody tells, and until when; then they are to be read once more. After a storm these may be
//! all that there are.

use crate::{nodes::Slot, order::Map};

/// Times are kept in tenths of a second, 8 bytes for each directory, and end up to one earlier for that: what is waited for changed at a
/// whole second, and has seconds to spare.
const TENTH: i64 = 100;
/// The time has come, and it wasn't read since: later than all others, since it will be.
const IS_DUE: u32 = u32::MAX;
/// What is left over of room for so many is kept.
const SPARE: usize = 1 << 12;

/// By the clock that nobody sets, in milliseconds.
#[derive(Debug)]
pub(super) struct Unsettled {
    until: Map<Slot, u32>,
    /// Before that none of them is due.
    first: i64,
}

impl Default for Unsettled {
    fn default() -> Self {
        Self { until: Map::default(), first: i64::MAX }
    }
}

impl Unsettled {
    /// Whether none is due by then.
    pub(super) fn are_none_due(&self, now: i64) -> bool {
        now < self.first
    }

    /// Until then, whatever was known of it.
    pub(super) fn set(&mut self, slot: Slot, until: i64) {
        let tenths = in_tenths(until);
        self.until.insert(slot, tenths);
        self.first = self.first.min(in_millis(tenths));
    }

    /// Until then at least.
    pub(super) fn extend(&mut self, slot: Slot, until: i64) {
        let tenths = in_tenths(until);
        let known = self.until.entry(slot).or_insert(tenths);
        *known = tenths.max(*known);
        self.first = self.first.min(in_millis(tenths));
    }

    /// Until then, where nothing is known of it.
    pub(super) fn add(&mut self, slot: Slot, until: i64) {
        let tenths = in_tenths(until);
        self.first = self.first.min(in_millis(*self.until.entry(slot).or_insert(tenths)));
    }

    /// The same as [`Unsettled::extend`] of all that are known, and of these where they aren't.
    pub(super) fn extend_all(&mut self, more: Vec<Slot>, until: i64) {
        let tenths = in_tenths(until);
        self.until.values_mut().for_each(|known| *known = tenths.max(*known));
        for slot in more {
            self.until.entry(slot).or_insert(tenths);
        }
        self.find_first();
    }

    /// Those that are due by then, each once.
    pub(super) fn take_due(&mut self, now: i64) -> Vec<Slot> {
        if self.are_none_due(now) {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (&slot, until) in &mut self.until {
            if *until != IS_DUE && in_millis(*until) <= now {
                *until = IS_DUE;
                due.push(slot);
            }
        }
        self.find_first();
        due
    }

    /// It has been read. Whether it was due.
    pub(super) fn let_go(&mut self, slot: Slot) -> bool {
        let until = self.until.remove(&slot);
        if self.until.capacity() / 4 > self.until.len() + SPARE {
            self.until.shrink_to_fit();
        }
        until == Some(IS_DUE)
    }

    fn find_first(&mut self) {
        let first = self.until.values().filter(|&&until| until != IS_DUE).min();
        self.first = first.map_or(i64::MAX, |&tenths| in_millis(tenths));
    }
}

fn in_tenths(millis: i64) -> u32 {
    u32::try_from(millis.max(0) / TENTH).map_or(IS_DUE - 1, |tenths| tenths.min(IS_DUE - 1))
}

fn in_millis(tenths: u32) -> i64 {
    i64::from(tenths) * TENTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_due_once() {
        let mut unsettled = Unsettled::default();
        assert!(unsettled.are_none_due(i64::MAX - 1));
        unsettled.set(Slot(1), 1001);
        assert!(unsettled.are_none_due(999) && !unsettled.are_none_due(1000));
        unsettled.set(Slot(2), 3000);
        unsettled.extend(Slot(2), 2000);
        unsettled.extend(Slot(1), 1100);
        assert!(unsettled.take_due(1099).is_empty() && unsettled.are_none_due(1099));
        assert_eq!(unsettled.take_due(1100), [Slot(1)]);
        unsettled.extend_all(vec![Slot(2), Slot(3)], 2500);
        assert!(unsettled.are_none_due(2499));
        assert_eq!(unsettled.take_due(2999), [Slot(3)]);
        assert_eq!(unsettled.take_due(i64::MAX), [Slot(2)]);
        unsettled.set(Slot(4), 500);
        unsettled.set(Slot(4), 900);
        assert!(unsettled.take_due(600).is_empty());
        assert_eq!(unsettled.take_due(900), [Slot(4)]);
        assert!(unsettled.are_none_due(i64::MAX - 1));
        [5000, 6000, 4000].into_iter().for_each(|until| unsettled.add(Slot(5), until));
        assert!(unsettled.take_due(4999).is_empty());
        assert_eq!(unsettled.take_due(5000), [Slot(5)]);
    }

    #[test]
    fn one_that_was_due_is_known_until_it_is_read() {
        let mut unsettled = Unsettled::default();
        (1..4).for_each(|slot| unsettled.set(Slot(slot), 1000));
        assert!(!unsettled.let_go(Slot(1)) && !unsettled.let_go(Slot(4)));
        let mut due = unsettled.take_due(1000);
        due.sort_unstable();
        assert_eq!(due, [Slot(2), Slot(3)]);
        assert!(unsettled.let_go(Slot(2)) && !unsettled.let_go(Slot(2)));
        // It is going to be read anyway.
        unsettled.extend_all(vec![Slot(3)], 3000);
        unsettled.extend(Slot(3), 3000);
        assert!(unsettled.take_due(i64::MAX - 1).is_empty() && unsettled.let_go(Slot(3)));
    }

    #[test]
    fn room_is_given_back() {
        let mut unsettled = Unsettled::default();
        (0..1 << 17).for_each(|number| unsettled.set(Slot(number), i64::from(number)));
        assert!(unsettled.until.capacity() >= 1 << 17);
        let due = unsettled.take_due(i64::MAX);
        assert_eq!(due.len(), 1 << 17);
        due.into_iter().for_each(|slot| assert!(unsettled.let_go(slot)));
        assert!(unsettled.until.capacity() <= 8 * SPARE, "{}", unsettled.until.capacity());
    }
}
