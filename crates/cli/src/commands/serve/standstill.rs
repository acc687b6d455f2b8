//! When the mover stands still for long, since programs wait for disks all the time: that is worth a word.

use std::time::Duration;

/// A back-up or a build may take that long.
const LONG: Duration = Duration::from_secs(10 * 60);
/// So often it is told while it goes on.
const AGAIN: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Standstill {
    since: Option<Duration>,
    told_at: Option<Duration>,
}

impl Standstill {
    /// What is so at a time, by a clock that nobody sets: the machine is too busy, and directories wait. True when it is to be told.
    pub(super) fn is_to_be_told(&mut self, now: Duration, stands: bool) -> bool {
        if !stands {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_new = self.told_at.is_none_or(|told_at| now - told_at >= AGAIN);
        let is_told = is_new && now - since >= LONG;
        if is_told {
            self.told_at = Some(now);
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_when_it_lasts_and_once_a_day() {
        let mut standstill = Standstill::default();
        let mut told = Vec::new();
        for second in 0..4 * 24 * 3600_u64 {
            // Quiet for a moment in the third hour, and from the third day on.
            let stands = second != 2 * 3600 + 60 && second < 2 * 24 * 3600;
            if standstill.is_to_be_told(Duration::from_secs(second), stands) {
                told.push(second);
            }
        }
        assert_eq!(told, [LONG.as_secs(), LONG.as_secs() + AGAIN.as_secs()]);
    }

    #[test]
    fn what_is_busy_for_a_while_is_not_told() {
        let mut standstill = Standstill::default();
        assert!(!(0..10_000).any(|second| standstill.is_to_be_told(Duration::from_secs(second), second % 599 > 0)));
    }
}
