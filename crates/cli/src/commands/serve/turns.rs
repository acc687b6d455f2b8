//! Whose turn it is to harvest without being asked. A thread looks after each file system, but what moves the same heads is read one after the
//! other, and all keep to one budget. Nobody waits for others for long: who has the turn may be held up by a disk that holds still.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::catching_up::{AT_A_TIME, Heads};

/// Longer than a portion takes, and the rest after one.
const PATIENCE: Duration = Duration::from_secs(10);
/// So often it is looked whether others are ready.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who is at work, and until when the budget is used up.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    at_work: Vec<Work>,
    last: u64,
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Work {
    number: u64,
    heads: Heads,
    began: Instant,
    /// Somebody waits for its end.
    is_waited_for: bool,
}

/// One that harvests a portion until this goes.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    of: &'a Turns,
    number: u64,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of who moves these heads and waits `since` then; or when to ask again.
    pub(super) fn take(&self, heads: &Heads, (since, now): (Instant, Instant)) -> Result<Turn<'_>, Duration> {
        let mut state = self.state();
        let is_long_ago = |then: Instant| now.saturating_duration_since(then) >= PATIENCE;
        let rest = state.rests_until.map(|until| until.saturating_duration_since(now)).filter(|rest| !rest.is_zero());
        // Those that are held up count for nothing.
        let mut others: Vec<&mut Work> = state.at_work.iter_mut().filter(|work| !is_long_ago(work.began)).collect();
        let is_full = others.len() >= AT_A_TIME;
        others.retain(|work| is_full || work.heads.meet(heads));
        let wait = rest.or((!others.is_empty()).then_some(LOOK_EVERY));
        if let Some(wait) = wait.filter(|_| !is_long_ago(since)) {
            others.into_iter().for_each(|work| work.is_waited_for = true);
            return Err(wait);
        }
        state.last += 1;
        let number = state.last;
        state.at_work.push(Work { number, heads: heads.clone(), began: now, is_waited_for: false });
        Ok(Turn { of: self, number })
    }
}

/// Who has used up the budget rests for as long as that takes, while others wait for no longer than they would for a portion.
#[derive(Debug, Default)]
pub(super) struct Rest(Option<(Instant, u32)>);

impl Rest {
    /// From now on, by a budget of so many directories.
    pub(super) fn begin(&mut self, rest: Duration, budget: u32, now: Instant) {
        self.0 = now.checked_add(rest).filter(|_| !rest.is_zero()).map(|until| (until, budget));
    }

    /// How long still. Another budget counts from when it is given.
    pub(super) fn left(&self, budget: u32, now: Instant) -> Option<Duration> {
        let (until, _) = self.0.filter(|&(_, by)| by == budget)?;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }
}

impl Turn<'_> {
    /// What was read has used up the budget for so long; how long to be away, so that others come to it.
    pub(super) fn end(self, rest: Duration, now: Instant) -> Duration {
        let mut state = self.of.state();
        let until = state.rests_until.map_or(now, |until| until.max(now)).checked_add(rest);
        // Nobody waits for longer: more would only have each go on when his patience ends.
        let longest = now + PATIENCE;
        state.rests_until = Some(until.map_or(longest, |until| until.min(longest)));
        let is_waited_for = state.at_work.iter().any(|work| work.number == self.number && work.is_waited_for);
        if is_waited_for { rest.max(2 * LOOK_EVERY) } else { rest }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.state().at_work.retain(|work| work.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(number: u64) -> Heads {
        Heads::These(vec![number])
    }

    #[test]
    fn a_head_is_moved_by_one_at_a_time() {
        let (turns, now) = (Turns::default(), Instant::now());
        let turn = turns.take(&disk(1), (now, now)).expect("nobody else is there");
        assert_eq!(turns.take(&disk(1), (now, now)).err(), Some(LOOK_EVERY));
        assert_eq!(turns.take(&Heads::Any, (now, now)).err(), Some(LOOK_EVERY));
        let others = [disk(2), Heads::These(Vec::new()), Heads::These(Vec::new())];
        let others = others.each_ref().map(|heads| turns.take(heads, (now, now)).expect("they move other heads"));
        // Who comes again at once would leave it to nobody.
        assert_eq!(turn.end(Duration::ZERO, now), 2 * LOOK_EVERY);
        let turn = turns.take(&disk(1), (now, now)).expect("it is over");
        assert_eq!(turn.end(Duration::ZERO, now), Duration::ZERO);
        drop(others);
    }

    /// A portion may be held up for as long as a disk holds still.
    #[test]
    fn one_that_is_held_up_is_waited_for_once() {
        let (turns, began) = (Turns::default(), Instant::now());
        let _held_up = turns.take(&disk(1), (began, began)).expect("nobody else is there");
        let (soon, later) = (began + LOOK_EVERY, began + PATIENCE);
        assert!(turns.take(&disk(1), (soon, soon)).is_err());
        for _ in 0..2 {
            let turn = turns.take(&disk(1), (later, later)).expect("it is held up");
            assert!(turns.take(&disk(1), (later, later)).is_err());
            turn.end(Duration::ZERO, later);
        }
    }

    #[test]
    fn so_many_harvest_at_a_time() {
        let (turns, now) = (Turns::default(), Instant::now());
        let none = Heads::These(Vec::new());
        let mut all: Vec<_> = (0..AT_A_TIME).map(|_| turns.take(&none, (now, now)).expect("there is room")).collect();
        assert!(turns.take(&none, (now, now)).is_err());
        all.pop();
        assert!(turns.take(&none, (now, now)).is_ok());
    }

    #[test]
    fn all_keep_to_one_budget() {
        let (turns, began) = (Turns::default(), Instant::now());
        let rest = Duration::from_secs(2);
        for number in 0..2 {
            let at_once = turns.take(&disk(number), (began, began + rest * number as u32));
            at_once.expect("it is over").end(rest, began + rest * number as u32);
        }
        let now = began + rest + LOOK_EVERY;
        assert_eq!(turns.take(&disk(7), (now, now)).err(), Some(rest - LOOK_EVERY));
        assert!(turns.take(&disk(7), (now, began + rest * 2)).is_ok());
        // What takes very long, as one directory can, holds nobody else up.
        turns
            .take(&disk(7), (began, began + rest * 2))
            .expect("it is over")
            .end(Duration::from_secs(900), began + rest * 2);
        let now = began + rest * 3;
        assert_eq!(turns.take(&disk(8), (now, now)).err(), Some(PATIENCE - rest));
        // Nor do many of them.
        for _ in 0..10 {
            let now = now + PATIENCE;
            turns.take(&disk(8), (began, now)).expect("he has waited").end(Duration::from_secs(900), now);
        }
        assert!(turns.take(&disk(9), (now + 2 * PATIENCE, now + 2 * PATIENCE)).is_ok());
    }

    #[test]
    fn who_has_read_much_rests_for_all_of_it() {
        let (mut rest, began) = (Rest::default(), Instant::now());
        assert_eq!(rest.left(100, began), None);
        rest.begin(Duration::from_secs(900), 100, began);
        assert_eq!(rest.left(100, began + 2 * PATIENCE), Some(Duration::from_secs(900) - 2 * PATIENCE));
        assert_eq!(rest.left(0, began + PATIENCE), None, "it was given another budget");
        assert_eq!(rest.left(100, began + Duration::from_secs(900)), None);
        rest.begin(Duration::ZERO, 100, began);
        assert_eq!(rest.left(100, began), None);
    }
}
