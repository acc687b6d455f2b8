//! Which places of a device have a policy of their own: those of files that are told apart.

use std::{collections::BTreeMap, ops::Range};

use crate::race::Policy;

/// Ranges of a device, each with its policy; none overlaps another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// By where they begin: where they end, and the policy.
    ranges: BTreeMap<u64, (u64, Policy)>,
}

impl Places {
    /// No place is told apart.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range. What of it has a policy already (files may share blocks) keeps that.
    pub fn add(&mut self, range: &Range<u64>, policy: Policy) {
        let before = self.ranges.range(..range.end).rev();
        let taken: Vec<Range<u64>> =
            before.map(|(start, (end, _))| *start..*end).take_while(|taken| taken.end > range.start).collect();
        let mut at = range.start;
        for taken in taken.into_iter().rev() {
            if at < taken.start {
                self.ranges.insert(at, (taken.start, policy));
            }
            at = at.max(taken.end);
        }
        if at < range.end {
            self.ranges.insert(at, (range.end, policy));
        }
    }

    /// The policy of a read of this range: that of the first place in it that has one.
    #[must_use]
    pub fn policy(&self, range: &Range<u64>) -> Option<Policy> {
        let before = self.ranges.range(..=range.start).next_back().filter(|(_, (end, _))| *end > range.start);
        let within = || self.ranges.range(range.clone()).next();
        before.or_else(within).map(|(_, (_, policy))| *policy)
    }

    /// How many ranges there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Policy = Policy::QuietDisk;
    const RACE: Policy = Policy::Race;

    #[test]
    fn a_read_has_the_policy_of_the_first_place_that_it_touches() {
        let mut places = Places::new();
        places.add(&(100..200), QUIET);
        places.add(&(300..400), RACE);
        for (range, policy) in [
            (0..100, None),
            (0..101, Some(QUIET)),
            (100..101, Some(QUIET)),
            (199..350, Some(QUIET)),
            (200..300, None),
            (200..301, Some(RACE)),
            (399..500, Some(RACE)),
            (400..500, None),
        ] {
            assert_eq!(places.policy(&range), policy, "{range:?}");
        }
        assert_eq!(Places::new().policy(&(0..10)), None);
    }

    /// Against a policy for each byte.
    #[test]
    fn what_was_named_first_counts_wherever_ranges_overlap() {
        let mut state = 1_u64;
        let mut draw = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for _ in 0..200 {
            let mut places = Places::new();
            let mut bytes = [None; 64];
            for _ in 0..12 {
                let start = draw(60);
                let range = start..(start + draw(20)).min(64);
                let policy = [QUIET, RACE, Policy::LocalFirst, Policy::RemoteFirst][draw(4) as usize];
                places.add(&range, policy);
                for byte in range {
                    bytes[byte as usize].get_or_insert(policy);
                }
            }
            for (at, expected) in bytes.iter().enumerate() {
                assert_eq!(places.policy(&(at as u64..at as u64 + 1)), *expected, "{at} of {places:?}");
            }
        }
    }
}
