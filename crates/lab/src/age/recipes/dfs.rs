//! DFS 5.2: 50 directories, chosen by a Poisson distribution, with 100 to 5,000 operations at each visit.
//!
//! The kinds of operations are those of the paper's table 2, before and after the disk is three quarters full. The sizes
//! of its figure 5, which is missing from our text, are taken in three ways, as [`MIXED`], [`SMALL`] and [`SHORT`]. With 200 requests
//! a second, the flush of every 30 seconds comes after 6,000.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::age::recipe::{Amount, Op, Steps};
use crate::random::Random;

const DIRS: u64 = 50;
const FLUSH_EVERY: u64 = 6000;
const BLOCK: u64 = 4096;

/// How large files are.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Cumulated share of files, and the blocks of 4 KiB that they have.
    classes: [(f64, u64, u64); 7],
    /// Visits to a directory; the paper's figure 6 goes well beyond the point where three quarters are used.
    visits: u32,
}

/// 18 blocks in the mean; files of more than 12 blocks hold 85 % of them.
pub(crate) const MIXED: Sizes = Sizes {
    classes: [(0.38, 1, 1), (0.52, 2, 2), (0.60, 3, 3), (0.80, 4, 8), (0.86, 9, 12), (0.96, 13, 64), (1.00, 65, 512)],
    visits: 400,
};

/// 79 % of files have at most 8 KiB, as those of C-FFS's file servers (Ganger and Kaashoek 1997), of whose sizes the paper
/// says that its own are similar; 6 blocks in the mean.
pub(crate) const SMALL: Sizes = Sizes {
    classes: [(0.65, 1, 1), (0.79, 2, 2), (0.84, 3, 3), (0.93, 4, 8), (0.955, 9, 12), (0.99, 13, 64), (1.00, 65, 512)],
    visits: 1200,
};

/// As [`SMALL`], but no file has more than 64 blocks: what comes out when the paper's figure 5 has no longer ones.
pub(crate) const SHORT: Sizes = Sizes {
    classes: [(0.65, 1, 1), (0.79, 2, 2), (0.84, 3, 3), (0.93, 4, 8), (0.955, 9, 12), (0.99, 13, 64), (1.00, 13, 64)],
    visits: 2400,
};

/// Where the paper measures, in operations from the beginning: after a tenth more than it took to use three quarters, and
/// after three times as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Points {
    /// Operations until three quarters are used.
    pub(crate) reached: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
}

impl Points {
    /// By the operations alone, so before any file system has done them; `None` when three quarters are never used.
    pub(crate) fn of(ops: impl Iterator<Item = Op>, image_bytes: u64) -> Option<Self> {
        let (mut sizes, mut used, mut reached) = (HashMap::new(), 0, 0);
        for op in ops {
            reached += u64::from(is_counted(&op));
            match op {
                Op::Create(path, size) => {
                    used += size;
                    sizes.insert(path, size);
                }
                Op::Remove(path) => used -= sizes.remove(&path).unwrap_or(0),
                _ => {}
            }
            if used as f64 > 0.75 * image_bytes as f64 {
                return Some(Self { reached, first: reached + reached / 10, second: 3 * reached });
            }
        }
        None
    }
}

/// Whether the paper would count it: a create, a delete, a read or a write.
pub(crate) fn is_counted(op: &Op) -> bool {
    !matches!(op, Op::Dir(_) | Op::Sync)
}

pub(crate) struct Dfs {
    random: Random,
    sizes: &'static Sizes,
    live: Vec<Vec<(String, u64)>>,
    capacity: u64,
    used: u64,
    operations: u64,
    made: u64,
    visits: u32,
    visit: u32,
    operations_most: u64,
}

impl Dfs {
    pub(crate) fn new(amount: &Amount, sizes: &'static Sizes) -> Self {
        Self {
            random: amount.random(),
            sizes,
            live: vec![Vec::new(); DIRS as usize],
            capacity: amount.image_bytes / BLOCK,
            used: 0,
            operations: 0,
            made: 0,
            visits: amount.steps_or(sizes.visits).max(1),
            visit: 0,
            operations_most: amount.of(4900),
        }
    }

    /// Knuth's way; around the middle of the directories.
    fn directory(&mut self) -> usize {
        let limit = (-(DIRS as f64) / 2.0).exp();
        let (mut count, mut product) = (0, self.random.unit());
        while product > limit {
            count += 1;
            product *= self.random.unit();
        }
        count.min(DIRS as usize - 1)
    }

    fn blocks(&mut self) -> u64 {
        let share = self.random.unit();
        let classes = self.sizes.classes;
        let (_, least, most) = classes.into_iter().find(|class| share < class.0).unwrap_or(classes[6]);
        least + self.random.below(most - least + 1)
    }

    fn operate(&mut self, dir: usize, out: &mut VecDeque<Op>) {
        let full = self.used as f64 > 0.75 * self.capacity as f64;
        let (create, delete, read) = if full { (10, 20, 80) } else { (10, 15, 80) };
        let kind = self.random.below(100);
        let victim = self.random.below(self.live[dir].len() as u64) as usize;
        // A disk needs room to work in: near its end, what would be made is taken away.
        let nearly_full = self.used as f64 > 0.9 * self.capacity as f64;
        if self.live[dir].is_empty() || kind < create && !nearly_full {
            let (path, blocks) = (format!("d{dir:02}/f{}", self.made), self.blocks());
            self.made += 1;
            self.used += blocks;
            self.live[dir].push((path.clone(), blocks));
            out.push_back(Op::Create(path, blocks * BLOCK));
        } else if kind < delete {
            let (path, blocks) = self.live[dir].swap_remove(victim);
            self.used -= blocks;
            out.push_back(Op::Remove(path));
        } else if kind < read {
            out.push_back(Op::Read(self.live[dir][victim].0.clone()));
        } else {
            let (path, blocks) = self.live[dir][victim].clone();
            out.push_back(Op::Overwrite(path, blocks * BLOCK));
        }
    }
}

impl Steps for Dfs {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        if self.visit == 0 {
            out.extend((0..DIRS).map(|dir| Op::Dir(format!("d{dir:02}"))));
        }
        let dir = self.directory();
        for _ in 0..100 + self.random.below(self.operations_most + 1) {
            self.operate(dir, out);
            self.operations += 1;
            if self.operations.is_multiple_of(FLUSH_EVERY) {
                out.push_back(Op::Sync);
            }
        }
        self.visit += 1;
        self.visit < self.visits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount() -> Amount {
        Amount { seed: 1, scale: 0.02, steps: Some(300), image_bytes: 64 << 20 }
    }

    fn ops(sizes: &'static Sizes) -> Vec<Op> {
        let (mut ops, mut recipe) = (VecDeque::new(), Dfs::new(&amount(), sizes));
        while recipe.more(&mut ops) {}
        ops.into()
    }

    /// The share of files with at most two blocks is the one thing that is known of C-FFS's servers.
    #[test]
    fn sizes_are_as_told() {
        for (sizes, two_at_most, mean) in [(&MIXED, 0.52, 18.1), (&SMALL, 0.79, 6.1)] {
            let mut recipe = Dfs::new(&amount(), sizes);
            let blocks: Vec<u64> = (0..100_000).map(|_| recipe.blocks()).collect();
            let share = blocks.iter().filter(|blocks| **blocks <= 2).count() as f64 / blocks.len() as f64;
            assert!((share - two_at_most).abs() < 0.01, "{share}");
            let found = blocks.iter().sum::<u64>() as f64 / blocks.len() as f64;
            assert!((found / mean - 1.0).abs() < 0.05, "{found}");
        }
    }

    #[test]
    fn points_are_told_by_the_operations() {
        let ops = ops(&SMALL);
        let points = Points::of(ops.iter().cloned(), 64 << 20).unwrap();
        assert_eq!((points.first, points.second), (points.reached + points.reached / 10, 3 * points.reached));
        let counted = ops.iter().filter(|op| is_counted(op)).count() as u64;
        assert!((1..counted).contains(&points.reached), "{points:?} of {counted}");
        let mut tree = crate::age::tree::Tree::default();
        let mut left = points.reached;
        for op in &ops {
            tree.follow(op);
            left -= u64::from(is_counted(op));
            if left == 0 {
                break;
            }
        }
        assert!((48 << 20..50 << 20).contains(&tree.bytes()), "{}", tree.bytes());
        assert_eq!(Points::of(ops.into_iter().take(10), 64 << 20), None);
    }
}
