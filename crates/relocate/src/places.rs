//! Where the blocks of a file lie.

use std::ops::Range;

/// Blocks that lie side by side, in the file and on the disk. All numbers are blocks of the file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    /// The number of the first block in the file.
    pub logical: u64,
    /// Where that block lies.
    pub place: u64,
    /// How many there are, never 0.
    pub blocks: u64,
}

impl Run {
    /// The number of the first block of the file behind it.
    #[must_use]
    pub fn logical_end(self) -> u64 {
        self.logical + self.blocks
    }

    /// The first place behind it.
    #[must_use]
    pub fn end(self) -> u64 {
        self.place + self.blocks
    }
}

/// The blocks of one file, in the order of the file; holes have none.
///
/// 24 bytes for each run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Places(Vec<Run>);

impl Places {
    /// Runs in the order of the file, of which those that go on from each other become one. `None` when two of them overlap in
    /// the file, or a number is beyond what a disk can have.
    pub fn of(runs: impl IntoIterator<Item = Run>) -> Option<Places> {
        let mut joined: Vec<Run> = Vec::new();
        for run in runs.into_iter().filter(|run| run.blocks > 0) {
            let ends = (run.logical.checked_add(run.blocks)?, run.place.checked_add(run.blocks)?);
            if ends.0 > i64::MAX as u64 || ends.1 > i64::MAX as u64 {
                return None;
            }
            match joined.last_mut() {
                Some(last) if run.logical < last.logical_end() => return None,
                Some(last) if (last.logical_end(), last.end()) == (run.logical, run.place) => last.blocks += run.blocks,
                _ => joined.push(run),
            }
        }
        Some(Places(joined))
    }

    /// The runs, in the order of the file.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.0
    }

    /// Where a block of the file lies.
    #[must_use]
    pub fn at(&self, logical: u64) -> Option<u64> {
        let behind = self.0.partition_point(|run| run.logical_end() <= logical);
        let run = self.0.get(behind).filter(|run| run.logical <= logical)?;
        Some(run.place + (logical - run.logical))
    }

    /// The places of these blocks, in the order of the file.
    #[must_use]
    pub fn within(&self, blocks: Range<u64>) -> Places {
        let cut = |run: &Run| {
            let (start, end) = (run.logical.max(blocks.start), run.logical_end().min(blocks.end));
            (start < end).then(|| Run { logical: start, place: run.place + (start - run.logical), blocks: end - start })
        };
        Places(self.0.iter().filter_map(cut).collect())
    }

    /// The same places as those of a file whose first block among them has this number.
    #[must_use]
    pub fn shifted(&self, first: u64) -> Places {
        let start = self.0.first().map_or(0, |run| run.logical);
        Places(self.0.iter().map(|run| Run { logical: first + (run.logical - start), ..*run }).collect())
    }

    /// Blocks that have a place.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.iter().map(|run| run.blocks).sum()
    }

    /// Where the first block lies.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.0.first().map(|run| run.place)
    }

    /// The blocks that follow each other in the file, wherever they lie: as many numbers as there are holes between them, and one.
    pub(crate) fn between_holes(&self) -> Vec<u64> {
        let mut parts = Vec::new();
        let mut end = None;
        for run in &self.0 {
            match parts.last_mut() {
                Some(last) if end == Some(run.logical) => *last += run.blocks,
                _ => parts.push(run.blocks),
            }
            end = Some(run.logical_end());
        }
        parts
    }

    /// The place behind the last block of the file.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.0.last().map(|run| run.end())
    }

    /// How often a reader of the file from its start to its end finds the next block elsewhere than behind the last one.
    #[must_use]
    pub fn breaks(&self) -> u64 {
        self.0.windows(2).filter(|pair| pair[0].end() != pair[1].place).count() as u64
    }

    /// Whether the first block of the next file lies behind the last one of this.
    #[must_use]
    pub fn leads_to(&self, next: &Places) -> bool {
        self.end().is_some() && self.end() == next.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(runs: &[(u64, u64, u64)]) -> Option<Places> {
        Places::of(runs.iter().map(|&(logical, place, blocks)| Run { logical, place, blocks }))
    }

    #[test]
    fn what_goes_on_is_one_run_and_holes_are_none() {
        let file = places(&[(0, 10, 2), (2, 12, 3), (5, 40, 1), (9, 41, 1)]).unwrap();
        assert_eq!(file.runs().len(), 3);
        assert_eq!((file.blocks(), file.breaks(), file.first(), file.end()), (7, 1, Some(10), Some(42)));
        assert!(file.leads_to(&places(&[(0, 42, 1)]).unwrap()));
        assert!(!file.leads_to(&Places::default()) && !Places::default().leads_to(&Places::default()));
    }

    #[test]
    fn blocks_are_found() {
        let file = places(&[(0, 10, 2), (5, 40, 3)]).unwrap();
        let found: Vec<Option<u64>> = (0..9).map(|block| file.at(block)).collect();
        assert_eq!(found, [Some(10), Some(11), None, None, None, Some(40), Some(41), Some(42), None]);
        assert_eq!(file.within(1..7), places(&[(1, 11, 1), (5, 40, 2)]).unwrap());
        assert_eq!(file.within(2..5), Places::default());
        assert_eq!(places(&[(0, 10, 2), (2, 30, 3), (9, 40, 3)]).unwrap().between_holes(), [5, 3]);
        assert_eq!(file.shifted(7), places(&[(7, 10, 2), (12, 40, 3)]).unwrap());
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(places(&[(0, 10, 2), (1, 20, 1)]), None);
        assert_eq!(places(&[(0, u64::MAX, 2)]), None);
        assert_eq!(places(&[(0, 3, u64::MAX)]), None);
        assert_eq!(places(&[(0, 10, 0)]).unwrap(), Places::default());
    }
}
