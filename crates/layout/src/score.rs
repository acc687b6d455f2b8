//! How much of a file lies in one piece, and how much of what is read one after the other lies side by side.

use crate::extent::{Extent, ExtentFlags};

/// Contiguous neighbour pairs among the blocks of files: 1 when each file lies in one piece, 0 when no two blocks of
/// any do.
///
/// A file of one block has no pair, and one whose places are not known is left out. Of many files the pairs are
/// summed up before they are divided, so that a large file counts for more than a small one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutScore {
    /// Pairs of neighbours in a file that are neighbours on the device.
    pub contiguous: u64,
    /// Pairs of neighbours in a file: its blocks − 1.
    pub pairs: u64,
}

impl LayoutScore {
    /// The score of the file with these extents (in file order), counted in blocks of `block_bytes`.
    ///
    /// Blocks on both sides of a hole are neighbours. Bytes in the inode have no block.
    ///
    /// # Panics
    ///
    /// When `block_bytes` is 0.
    pub fn of_file<'a>(extents: impl IntoIterator<Item = &'a Extent>, block_bytes: u64) -> LayoutScore {
        let mut score = LayoutScore::default();
        let mut previous_end = None;
        for extent in extents.into_iter().filter(|extent| !extent.flags.contains(ExtentFlags::INLINE)) {
            let Some(start) = extent.physical else {
                return LayoutScore::default();
            };
            let blocks = extent.length.div_ceil(block_bytes);
            score.pairs += blocks - 1;
            score.contiguous += blocks - 1;
            if let Some(end) = previous_end {
                score.pairs += 1;
                score.contiguous += u64::from(end == start);
            }
            previous_end = Some(start + blocks * block_bytes);
        }
        score
    }

    /// The score as a number from 0 to 1; `None` when there is no pair.
    pub fn ratio(self) -> Option<f64> {
        (self.pairs > 0).then(|| self.contiguous as f64 / self.pairs as f64)
    }
}

impl std::ops::AddAssign for LayoutScore {
    fn add_assign(&mut self, other: LayoutScore) {
        self.contiguous += other.contiguous;
        self.pairs += other.pairs;
    }
}

impl std::iter::Sum for LayoutScore {
    fn sum<I: Iterator<Item = LayoutScore>>(scores: I) -> LayoutScore {
        scores.fold(LayoutScore::default(), |mut sum, score| {
            sum += score;
            sum
        })
    }
}

/// The same over blocks in the order in which somebody reads them, of whatever files they are: the dynamic layout score of
/// Conway and others (FAST 2017). So files that lie side by side count, too, and one of a single block has a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DynamicScore {
    score: LayoutScore,
    previous_end: Option<u64>,
}

impl DynamicScore {
    /// Takes the next run to be read: the byte of the device where it begins, and how many blocks of `block_bytes` it has.
    pub fn read(&mut self, start: u64, blocks: u64, block_bytes: u64) {
        if blocks == 0 {
            return;
        }
        self.score += LayoutScore { contiguous: blocks - 1, pairs: blocks - 1 };
        if let Some(end) = self.previous_end {
            self.score += LayoutScore { contiguous: u64::from(end == start), pairs: 1 };
        }
        self.previous_end = Some(start.saturating_add(blocks.saturating_mul(block_bytes)));
    }

    /// The neighbours so far: pairs of blocks read one after the other, and those of them that are neighbours on the device.
    pub fn score(self) -> LayoutScore {
        self.score
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The score of a file of which each entry is a run: first block on the device, blocks.
    fn score(runs: &[(u64, u64)]) -> LayoutScore {
        let mut logical = 0;
        let extents: Vec<Extent> = runs
            .iter()
            .map(|&(start, blocks)| {
                let length = blocks * 4096;
                logical += length;
                let flags = ExtentFlags::empty();
                Extent { logical: logical - length, physical: Some(start * 4096), length, flags }
            })
            .collect();
        LayoutScore::of_file(&extents, 4096)
    }

    #[test]
    fn one_piece_is_one_and_crumbs_are_zero() {
        assert_eq!(score(&[(100, 8)]).ratio(), Some(1.0));
        assert_eq!(score(&[(100, 4), (104, 4)]).ratio(), Some(1.0));
        assert_eq!(score(&[(100, 1), (99, 1), (200, 1)]).ratio(), Some(0.0));
        assert_eq!(score(&[(100, 4), (200, 1)]).ratio(), Some(0.75));
    }

    #[test]
    fn one_block_has_no_score() {
        assert_eq!(score(&[(100, 1)]).ratio(), None);
        assert_eq!(score(&[]).ratio(), None);
    }

    #[test]
    fn a_tail_counts_as_a_block() {
        let flags = ExtentFlags::empty();
        let tail = Extent { logical: 0, physical: Some(0), length: 4097, flags };
        assert_eq!(LayoutScore::of_file(&[tail], 4096), LayoutScore { contiguous: 1, pairs: 1 });
    }

    #[test]
    fn unknown_places_leave_the_file_out() {
        let known = Extent { logical: 0, physical: Some(0), length: 8192, flags: ExtentFlags::empty() };
        let unknown = Extent { logical: 8192, physical: None, length: 8192, flags: ExtentFlags::DELALLOC };
        assert_eq!(LayoutScore::of_file(&[known, unknown], 4096), LayoutScore::default());
    }

    #[test]
    fn many_files_are_summed_before_dividing() {
        let sum: LayoutScore = [score(&[(100, 9)]), score(&[(1, 1), (5, 1), (9, 1)])].into_iter().sum();
        assert_eq!(sum, LayoutScore { contiguous: 8, pairs: 10 });
        assert_eq!(sum.ratio(), Some(0.8));
    }

    /// The dynamic score of runs that are read in this order: first block on the device, blocks.
    fn dynamic(runs: &[(u64, u64)]) -> LayoutScore {
        let mut score = DynamicScore::default();
        runs.iter().for_each(|&(start, blocks)| score.read(start * 4096, blocks, 4096));
        score.score()
    }

    #[test]
    fn neighbours_in_the_order_of_reading_count_over_the_borders_of_files() {
        // Three files of one block side by side: no pair within a file, two between them.
        assert_eq!(dynamic(&[(7, 1), (8, 1), (9, 1)]), LayoutScore { contiguous: 2, pairs: 2 });
        // The same, read backwards.
        assert_eq!(dynamic(&[(9, 1), (8, 1), (7, 1)]), LayoutScore { contiguous: 0, pairs: 2 });
        // Four blocks, a gap, two blocks, and the one behind them: 3 + 0 + 1 + 1 of 6.
        assert_eq!(dynamic(&[(10, 4), (20, 2), (22, 1)]), LayoutScore { contiguous: 5, pairs: 6 });
        assert_eq!(dynamic(&[(10, 4), (14, 0), (14, 1)]), LayoutScore { contiguous: 4, pairs: 4 });
        assert_eq!((dynamic(&[]).ratio(), dynamic(&[(3, 1)]).ratio()), (None, None));
    }
}
