//! Layout scores, after Smith and Seltzer: the share of blocks that lie right behind the one before them in their file.

use onesweep_relocate::dfs::Block;
use serde::{Deserialize, Serialize};

/// Pairs of blocks that follow each other in a file, and those of them that do on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Score {
    pub(crate) pairs: u64,
    pub(crate) adjoining: u64,
}

impl Score {
    pub(crate) fn of(places: &[Block]) -> Self {
        let pairs = places.windows(2);
        let adjoining = pairs.clone().filter(|pair| pair[1] == pair[0] + 1).count() as u64;
        Self { pairs: pairs.len() as u64, adjoining }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.adjoining += other.adjoining;
    }

    /// From 0 to 1; 1 where there is nothing to break.
    pub(crate) fn share(self) -> f64 {
        if self.pairs == 0 { 1.0 } else { self.adjoining as f64 / self.pairs as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_doesnt_count() {
        let mut all = Score::of(&[5, 6, 9, 10, 11]);
        assert_eq!(all, Score { pairs: 4, adjoining: 3 });
        assert_eq!(Score::of(&[7]), Score::default());
        all.add(Score::of(&[1, 3]));
        assert_eq!((all.share(), Score::default().share()), (0.6, 1.0));
    }
}
