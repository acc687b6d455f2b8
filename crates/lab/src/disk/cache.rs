//! The write cache: runs that the host believes written and that the medium has yet to see.

use std::collections::BTreeMap;

/// Disjoint runs, start to end; neighbours are joined.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteCache {
    runs: BTreeMap<u64, u64>,
    bytes: u64,
}

impl WriteCache {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `start..end` in.
    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        let touching: Vec<u64> =
            self.runs.range(..=end).rev().take_while(|&(_, &run_end)| run_end >= start).map(|(&run, _)| run).collect();
        for run in touching {
            if let Some(run_end) = self.runs.remove(&run) {
                self.bytes -= run_end - run;
                start = start.min(run);
                end = end.max(run_end);
            }
        }
        self.runs.insert(start, end);
        self.bytes += end - start;
    }

    /// Whether all of `start..end` is here.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        self.runs.range(..=start).next_back().is_some_and(|(_, &run_end)| run_end >= end)
    }

    /// Gives all runs, in one turn of the elevator: up from `head`, then up from the lowest.
    pub(crate) fn drain_from(&mut self, head: u64) -> Vec<(u64, u64)> {
        self.bytes = 0;
        let mut below = std::mem::take(&mut self.runs);
        let mut order: Vec<(u64, u64)> = below.split_off(&head).into_iter().collect();
        order.extend(below);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let mut cache = WriteCache::default();
        for (start, end) in [(100, 200), (300, 400), (200, 250), (240, 310), (500, 600)] {
            cache.add(start, end);
        }
        assert_eq!(cache.bytes(), 400);
        assert!(cache.holds(100, 400) && cache.holds(350, 360) && !cache.holds(350, 401) && !cache.holds(0, 1));
        assert_eq!(cache.drain_from(450), [(500, 600), (100, 400)]);
        assert_eq!(cache.bytes(), 0);
    }
}
