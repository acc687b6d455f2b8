//! What time it is: for people, by a clock that somebody may set, and for whoever waits, by one that nobody sets.

use std::{
    fmt::Debug,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Both clocks.
pub trait Clock: Send + Sync + Debug {
    /// Since 1970.
    fn time(&self) -> Duration;

    /// Since some moment that stays what it is.
    fn passed(&self) -> Duration;
}

/// Those of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// From now on.
    pub fn start() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn time(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Seconds of a clock.
pub(crate) fn whole(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// The same in milliseconds.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// By so much the clock for people is ahead of the other one, in milliseconds.
pub(crate) fn ahead(clock: &dyn Clock) -> i64 {
    // The one that waits is read on both sides: who lost the processor between has not set a clock.
    let mut best = (i64::MAX, 0);
    for _ in 0..3 {
        let (before, time, after) = (millis(clock.passed()), millis(clock.time()), millis(clock.passed()));
        best = best.min((after - before, time - before));
        if best.0 <= 1 {
            break;
        }
    }
    best.1
}
