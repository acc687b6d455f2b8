//! A peer that fails is left alone for a while, then tried by one request.
//!
//! What is counted here is who would have won: a peer that answers late has failed, one that lost has not, and a request of its own is
//! the probe. [`crate::client`] has another one, for a connection: there whatever comes before the asker's patience ends is a success, a ping is
//! the probe, and a server has to be well for a while before it is trusted. All that they share is a wait that grows.

use super::latency::Micros;

/// So many failures in a row are enough.
const FAILURES_MOST: u32 = 3;
/// So many requests in a row that got no answer in good time.
const UNANSWERED_MOST: u32 = 8;
const PAUSE_FIRST: Micros = 100_000;
const PAUSE_MOST: Micros = 30_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is asked.
    Closed,
    /// It is not asked before this time.
    Open { until: Micros },
    /// One request was sent to see whether it is well again.
    Probing,
}

/// Whether a peer is asked.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    state: State,
    failures: u32,
    unanswered: u32,
    pause: Micros,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed, failures: 0, unanswered: 0, pause: PAUSE_FIRST }
    }
}

impl Breaker {
    /// Whether a request may be sent now.
    pub(crate) fn allows(&self, now: Micros) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } => now >= until,
            State::Probing => false,
        }
    }

    /// It is asked by everybody.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// A request was sent.
    pub(crate) fn sent(&mut self) {
        if let State::Open { .. } = self.state {
            self.state = State::Probing;
        }
    }

    /// It answered, as a peer that is well does; that it doesn't have the block is an answer.
    pub(crate) fn answered(&mut self) {
        *self = Self::default();
    }

    /// The request failed.
    pub(crate) fn failed(&mut self, now: Micros) {
        self.failures += 1;
        if self.failures >= FAILURES_MOST || self.state == State::Probing {
            self.open(now);
        }
    }

    /// It answered with something else than the block.
    pub(crate) fn lied(&mut self, now: Micros) {
        self.open(now);
    }

    /// Nobody waits for the answer any longer. `long`: it should have come.
    pub(crate) fn given_up(&mut self, now: Micros, long: bool) {
        self.unanswered += u32::from(long);
        match self.state {
            State::Probing if !long => self.state = State::Open { until: now },
            State::Probing => self.open(now),
            State::Closed if self.unanswered >= UNANSWERED_MOST => self.open(now),
            _ => {}
        }
    }

    /// The network is another one: it is tried at once.
    pub(crate) fn renew(&mut self, now: Micros) {
        self.pause = PAUSE_FIRST;
        if self.state != State::Closed {
            self.state = State::Open { until: now };
        }
    }

    fn open(&mut self, now: Micros) {
        // Of several requests that fail at once, the first has opened it.
        if let State::Open { until } = self.state
            && until > now
        {
            return;
        }
        self.state = State::Open { until: now + self.pause };
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        self.unanswered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_and_closes_by_a_probe() {
        let mut breaker = Breaker::default();
        breaker.failed(0);
        breaker.answered();
        breaker.failed(0);
        breaker.failed(0);
        assert!(breaker.allows(0));
        breaker.failed(0);
        assert!(!breaker.allows(PAUSE_FIRST - 1) && breaker.allows(PAUSE_FIRST));
        breaker.sent();
        assert!(!breaker.allows(PAUSE_FIRST), "one probe at a time");
        breaker.failed(PAUSE_FIRST);
        assert!(!breaker.allows(PAUSE_FIRST * 3 - 1) && breaker.allows(PAUSE_FIRST * 3), "the pause is twice as long");
        breaker.sent();
        breaker.answered();
        assert!(breaker.allows(0));
    }

    #[test]
    fn a_liar_is_left_at_once() {
        let mut breaker = Breaker::default();
        breaker.lied(0);
        assert!(!breaker.allows(1));
    }

    #[test]
    fn silence_is_a_failure_only_when_it_was_long() {
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            breaker.given_up(0, false);
        }
        assert!(breaker.allows(0), "it merely lost");
        for _ in 0..UNANSWERED_MOST {
            breaker.given_up(0, true);
        }
        assert!(!breaker.allows(0));
        breaker.sent();
        breaker.given_up(PAUSE_FIRST, false);
        assert!(breaker.allows(PAUSE_FIRST), "a probe that told nothing is repeated");
    }

    #[test]
    fn a_new_network_ends_the_pause() {
        let mut breaker = Breaker::default();
        for round in 0..20 {
            breaker.lied(round * 2 * PAUSE_MOST);
        }
        let now = 19 * 2 * PAUSE_MOST;
        assert!(!breaker.allows(now + PAUSE_MOST - 1) && breaker.allows(now + PAUSE_MOST));
        breaker.renew(now);
        assert!(breaker.allows(now));
    }
}
