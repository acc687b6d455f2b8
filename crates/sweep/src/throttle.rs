//! `--bwlimit`: at most so many bytes a second, over all spindles.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::progress::Cancel;

/// Paces reads. Each read pays with time for the bytes of those before it, so that the rate holds from the start.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: Option<u64>,
    next: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, next: Mutex::new(None) }
    }

    /// Takes the turn of a read of `bytes`: when it may begin, if that is not now.
    pub(crate) fn turn(&self, bytes: u64) -> Option<Instant> {
        let rate = self.bytes_per_second?;
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (begin, following) = turn(*next, now, bytes, rate);
        *next = Some(following);
        (begin > now).then_some(begin)
    }

    /// Waits until `bytes` more may be read, or until the sweep is cancelled.
    pub(crate) fn pass(&self, bytes: u64, cancel: &Cancel) {
        if let Some(begin) = self.turn(bytes) {
            sleep_until(begin, cancel);
        }
    }
}

/// Sleeps, but not through a cancel.
pub(crate) fn sleep_until(begin: Instant, cancel: &Cancel) {
    while !cancel.is_cancelled() {
        let left = begin.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// When a read of `bytes` may begin, and when the one after it.
fn turn(next: Option<Instant>, now: Instant, bytes: u64, rate: u64) -> (Instant, Instant) {
    let begin = next.map_or(now, |next| next.max(now));
    (begin, begin + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_spaced_by_their_bytes() {
        let now = Instant::now();
        let (first, second) = turn(None, now, 500, 1000);
        assert_eq!((first - now, second - now), (Duration::ZERO, Duration::from_millis(500)));
        let (third, _) = turn(Some(second), now, 1, 1000);
        assert_eq!(third - now, Duration::from_millis(500));
        let later = now + Duration::from_secs(9);
        assert_eq!(turn(Some(second), later, 1, 1000).0, later, "time that passed unused is not saved up");
    }
}
