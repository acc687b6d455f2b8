//! What was measured, in one JSON file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::age::recipes::dfs::Points;
use crate::bench::versioned::{self, VERSION};
use crate::ffs::books::Books;
use crate::ffs::score::Score;
use crate::ffs::shape::BLOCK_BYTES;

const FILE: &str = "dfs.json";

/// Files with the same number of blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) files: u64,
    #[serde(flatten)]
    pub(crate) score: Score,
    /// Reading them, directory after directory.
    pub(crate) read_ms: f64,
}

/// The file system at one of the paper's points.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) operations: u64,
    /// The share of blocks for files that are used.
    pub(crate) used: f64,
    /// By the number of blocks.
    pub(crate) sizes: BTreeMap<u32, Size>,
}

/// Writes by programs, and what they waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Writes {
    pub(crate) bytes: u64,
    pub(crate) ms: f64,
}

/// What came out of a variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Operations, and the aggregate layout score after them.
    pub(crate) curve: Vec<(u64, f64)>,
    pub(crate) first: Point,
    pub(crate) second: Point,
    pub(crate) writes: Writes,
    pub(crate) flush: Books,
}

/// What came out of a recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recipes {
    pub(crate) points: Points,
    /// By the names of the variants.
    pub(crate) variants: BTreeMap<String, Outcome>,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcomes {
    version: u32,
    pub(crate) commit: String,
    pub(crate) seed: u64,
    pub(crate) scale: f64,
    /// By their names.
    pub(crate) recipes: BTreeMap<String, Recipes>,
    /// The same with further seeds.
    #[serde(default)]
    pub(crate) further: BTreeMap<u64, BTreeMap<String, Recipes>>,
}

impl Point {
    fn within(&self, blocks: RangeInclusive<u32>) -> impl Iterator<Item = (u32, &Size)> {
        self.sizes.range(blocks).map(|(blocks, size)| (*blocks, size))
    }

    /// The layout score of files with so many blocks.
    pub(crate) fn score(&self, blocks: RangeInclusive<u32>) -> Score {
        let mut all = Score::default();
        self.within(blocks).for_each(|(_, size)| all.add(size.score));
        all
    }

    /// The mean of the files' own scores.
    pub(crate) fn mean_score(&self) -> f64 {
        let of = |(_, size): (u32, &Size)| (size.files as f64, size.files as f64 * size.score.share());
        let (files, scores) =
            self.within(2..=u32::MAX).map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        scores / files
    }

    pub(crate) fn files(&self, blocks: RangeInclusive<u32>) -> u64 {
        self.within(blocks).map(|(_, size)| size.files).sum()
    }

    /// MB/s at which files with so many blocks are read.
    pub(crate) fn speed(&self, blocks: RangeInclusive<u32>) -> f64 {
        let of = |(blocks, size): (u32, &Size)| (u64::from(blocks) * size.files * BLOCK_BYTES, size.read_ms);
        let (bytes, ms) = self.within(blocks).map(of).fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        bytes as f64 / 1000.0 / ms
    }
}

impl Outcome {
    /// MB/s at which programs write.
    pub(crate) fn write_speed(&self) -> f64 {
        self.writes.bytes as f64 / 1000.0 / self.writes.ms
    }

    /// MB/s at which dirty blocks of files come to the disk.
    pub(crate) fn flush_speed(&self) -> f64 {
        (self.flush.flushed * BLOCK_BYTES) as f64 / 1000.0 / self.flush.flush_ms
    }

    /// The share of requests for dirty blocks that write a region.
    pub(crate) fn region_share(&self) -> f64 {
        self.flush.regions as f64 / self.flush.requests as f64
    }

    /// Blocks that are written beside the one that is flushed, where a region is written.
    pub(crate) fn relocated(&self) -> f64 {
        (self.flush.region_blocks - self.flush.regions) as f64 / self.flush.regions as f64
    }

    /// Blocks of a region that get another place.
    pub(crate) fn moved(&self) -> f64 {
        self.flush.moved as f64 / self.flush.regions as f64
    }

    /// Blocks of inodes that a region changes.
    pub(crate) fn inode_writes(&self) -> f64 {
        self.flush.inode_blocks as f64 / self.flush.regions as f64
    }
}

impl Outcomes {
    pub(super) fn new(commit: String, seed: u64, scale: f64) -> Self {
        Self { version: VERSION, commit, seed, scale, recipes: BTreeMap::new(), further: BTreeMap::new() }
    }

    /// What came out of a seed.
    pub(super) fn of_seed(&mut self, seed: u64) -> &mut BTreeMap<String, Recipes> {
        if seed == self.seed { &mut self.recipes } else { self.further.entry(seed).or_default() }
    }

    /// A recipe with each seed, the first one first.
    pub(super) fn seeds_of<'a>(&'a self, recipe: &'a str) -> Vec<&'a Recipes> {
        let further = self.further.values().filter_map(|recipes| recipes.get(recipe));
        self.recipes.get(recipe).into_iter().chain(further).collect()
    }

    /// What a directory has; `None` where it has nothing.
    pub(super) fn load(dir: &Path) -> Result<Option<Self>, String> {
        versioned::load(&dir.join(FILE), |outcomes: &Self| outcomes.version)
    }

    pub(super) fn save(&self, dir: &Path) -> Result<(), String> {
        versioned::save(&dir.join(FILE), self)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn outcomes_come_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Outcomes::load(dir.path()).unwrap(), None);
        let mut outcomes = Outcomes::new("abc".into(), 1, 0.5);
        let size = Size { files: 3, score: Score { pairs: 6, adjoining: 2 }, read_ms: 1.5 };
        let second = Point { operations: 30, used: 0.8, sizes: [(3, size)].into() };
        let outcome = Outcome { second, curve: vec![(10, 0.9)], ..Outcome::default() };
        let points = Points { reached: 10, first: 11, second: 30 };
        outcomes.recipes.insert("dfs".into(), Recipes { points, variants: [("ffs".into(), outcome)].into() });
        outcomes.save(dir.path()).unwrap();
        assert_eq!(Outcomes::load(dir.path()).unwrap(), Some(outcomes));
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap().replace("\"version\": 1", "\"version\": 2");
        fs::write(dir.path().join(FILE), text).unwrap();
        assert!(Outcomes::load(dir.path()).unwrap_err().contains("version 2"));
    }

    #[test]
    fn figures_are_taken_from_sizes() {
        let size = |files, pairs, adjoining, read_ms| Size { files, score: Score { pairs, adjoining }, read_ms };
        let sizes = [(1, size(5, 0, 0, 10.0)), (2, size(10, 10, 5, 20.0)), (4, size(10, 30, 30, 20.0))].into();
        let point = Point { sizes, ..Point::default() };
        assert_eq!((point.score(2..=12).share(), point.mean_score(), point.files(1..=2)), (35.0 / 40.0, 0.75, 15));
        assert_eq!(point.speed(2..=3), 20.0 * 4.096 / 20.0);
    }
}
