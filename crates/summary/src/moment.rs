//! When something was, told so that a clock that was set back is seen.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::code::{Reader, Writer};

/// A point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970, as the clock told.
    pub seconds: i64,
    /// The name of the time that the machine had been running for then; empty where it isn't known.
    pub boot: Vec<u8>,
    /// Seconds since the machine was started.
    pub uptime: u64,
}

/// Readings of both clocks, at most, until they were made at the same time.
const TRIES: usize = 10;
/// Both clocks are read one after the other, and told in whole seconds.
const SLACK: i64 = 2;

impl Moment {
    /// Now.
    pub fn now() -> Moment {
        let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim_ascii().to_vec();
        for _ in 0..TRIES {
            let (before, uptime) = (seconds(), fs::read_to_string("/proc/uptime").unwrap_or_default());
            let uptime = uptime.split('.').next().and_then(|seconds| seconds.parse().ok());
            // Somebody else may have had the processor between.
            match uptime {
                Some(uptime) if (0..=1).contains(&(seconds() - before)) => {
                    return Moment { seconds: before, boot, uptime };
                }
                _ => {}
            }
        }
        Moment { seconds: seconds(), boot: Vec::new(), uptime: 0 }
    }

    /// Whether the clock must have been set back between this and `later`.
    pub fn is_set_back(&self, later: &Moment) -> bool {
        let passed = later.seconds.saturating_sub(self.seconds);
        let is_same_boot = !self.boot.is_empty() && self.boot == later.boot;
        let at_least = if is_same_boot { later.uptime.saturating_sub(self.uptime) as i64 - SLACK } else { 0 };
        passed < at_least
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.signed(self.seconds);
        out.bytes(&self.boot);
        out.unsigned(self.uptime);
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Moment> {
        let mut from = Reader(bytes);
        Some(Moment { seconds: from.signed()?, boot: from.bytes()?.to_vec(), uptime: from.unsigned()? })
    }
}

/// The clock's seconds since 1970.
pub(crate) fn seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, boot: &[u8], uptime: u64) -> Moment {
        Moment { seconds, boot: boot.into(), uptime }
    }

    #[test]
    fn a_clock_that_was_set_back_is_seen() {
        let then = at(1000, b"one", 100);
        assert!(!then.is_set_back(&at(1010, b"one", 110)));
        assert!(!then.is_set_back(&at(1009, b"one", 111)), "rounded");
        assert!(!then.is_set_back(&at(9000, b"one", 110)), "set forward");
        assert!(then.is_set_back(&at(1010, b"one", 150)), "it went on, and was set back by less");
        assert!(then.is_set_back(&at(900, b"one", 110)));
        assert!(!then.is_set_back(&at(1010, b"two", 5)));
        assert!(then.is_set_back(&at(999, b"two", 5)));
        assert!(!at(1000, b"", 0).is_set_back(&at(1001, b"", 50)), "who knows");
    }

    #[test]
    fn a_moment_comes_back_and_the_clock_runs_on() {
        let now = Moment::now();
        assert!(now.uptime > 0 && !now.boot.is_empty());
        assert_eq!(Moment::decode(&now.encode()), Some(now.clone()));
        assert!(!now.is_set_back(&Moment::now()));
    }
}
