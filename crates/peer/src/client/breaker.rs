//! Whether a server is asked. Pure: the time is an argument. Not the breaker of [`crate::race`], which judges who would have won.
//!
//! ```text
//!              failures in a row, or wrong bytes
//!   closed ────────────────────────────────────► open ◄──┐ a failure, or a probe without an answer:
//!     ▲                                            │      │ the next wait is twice as long
//!     │  successes                                 │ a probe is answered
//!     └──────────────────── trial ◄────────────────┘──────┘
//! ```

use std::time::{Duration, Instant};

/// Failures in a row that open it.
const FAILURES: u32 = 8;
/// Successes after which a server is as good as any other.
const SUCCESSES: u32 = 20;
/// The first wait, and the longest.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_LAST: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    Trial { successes: u32 },
}

/// Whether a server is asked.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    state: State,
    wait: Duration,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { state: State::Closed { failures: 0 }, wait: WAIT_FIRST }
    }

    /// Requests may go.
    pub(super) fn allows(&self) -> bool {
        !matches!(self.state, State::Open { .. })
    }

    /// An answer came in time.
    pub(super) fn success(&mut self) {
        match &mut self.state {
            State::Closed { failures } => *failures = 0,
            State::Trial { successes } if *successes + 1 >= SUCCESSES => *self = Self::new(),
            State::Trial { successes } => *successes += 1,
            State::Open { .. } => {}
        }
    }

    /// None came, or one that helps nobody.
    pub(super) fn failure(&mut self, now: Instant) {
        match &mut self.state {
            State::Closed { failures } if *failures + 1 < FAILURES => *failures += 1,
            State::Closed { .. } => self.open(now),
            State::Trial { .. } => self.open_longer(now),
            State::Open { .. } => {}
        }
    }

    /// It lied: no more of that, at once.
    pub(super) fn wrong(&mut self, now: Instant) {
        match self.state {
            State::Closed { .. } => self.open(now),
            State::Trial { .. } => self.open_longer(now),
            State::Open { .. } => {}
        }
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open { until: now + self.wait };
    }

    fn open_longer(&mut self, now: Instant) {
        self.wait = (2 * self.wait).min(WAIT_LAST);
        self.open(now);
    }

    /// When a probe is to be sent; none while requests may go.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            _ => None,
        }
    }

    pub(super) fn probe_answered(&mut self) {
        if let State::Open { .. } = self.state {
            self.state = State::Trial { successes: 0 };
        }
    }

    pub(super) fn probe_failed(&mut self, now: Instant) {
        if let State::Open { .. } = self.state {
            self.open_longer(now);
        }
    }

    /// The network is another one: what was learnt counts no more.
    pub(super) fn nudge(&mut self, now: Instant) {
        self.wait = WAIT_FIRST;
        if let State::Open { .. } = self.state {
            self.state = State::Open { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn failures_in_a_row_open_it_and_others_do_not() {
        let (mut breaker, now) = (Breaker::new(), Instant::now());
        for _ in 0..100 {
            (1..FAILURES).for_each(|_| breaker.failure(now));
            assert!(breaker.allows());
            breaker.success();
        }
        (0..FAILURES).for_each(|_| breaker.failure(now));
        assert!(!breaker.allows());
        assert_eq!(breaker.probe_at(), Some(now + ms(500)));
    }

    #[test]
    fn wrong_bytes_open_it_at_once_and_waits_grow_to_their_end() {
        let (mut breaker, now) = (Breaker::new(), Instant::now());
        breaker.wrong(now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push((breaker.probe_at().unwrap() - now).as_millis());
            breaker.probe_failed(now);
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        breaker.nudge(now);
        assert_eq!(breaker.probe_at(), Some(now));
        breaker.probe_failed(now);
        assert_eq!(breaker.probe_at(), Some(now + ms(1000)));
    }

    #[test]
    fn after_a_probe_one_failure_opens_it_again_and_many_successes_make_it_new() {
        let (mut breaker, now) = (Breaker::new(), Instant::now());
        breaker.wrong(now);
        breaker.probe_answered();
        assert!(breaker.allows() && breaker.probe_at().is_none());
        breaker.success();
        breaker.failure(now);
        assert_eq!(breaker.probe_at(), Some(now + ms(1000)));
        breaker.probe_answered();
        (0..SUCCESSES).for_each(|_| breaker.success());
        breaker.failure(now);
        assert!(breaker.allows());
        breaker.wrong(now);
        assert_eq!(breaker.probe_at(), Some(now + ms(500)));
    }

    #[test]
    fn what_comes_late_while_it_is_open_changes_nothing() {
        let (mut breaker, now) = (Breaker::new(), Instant::now());
        breaker.wrong(now);
        breaker.success();
        breaker.failure(now + ms(100));
        breaker.wrong(now + ms(100));
        assert_eq!(breaker.probe_at(), Some(now + ms(500)));
    }
}
