//! DFS 5.2: 50 directories, chosen by a Poisson distribution, with 100 to 5,000 operations at each visit.
//!
//! The kinds of operations are those of the paper's table 2, before and after the disk is three quarters full. The sizes
//! of its figure 5, which is missing from our text, are taken as blocks of 4 KiB: 1: 38 %, 2: 14, 3: 8, 4 to 8: 20, 9 to
//! 12: 6, 13 to 64: 10, 65 to 512: 4. With 200 requests a second, the flush of every 30 seconds comes after 6,000.

use std::collections::VecDeque;

use crate::age::recipe::{Amount, Op, Steps};
use crate::random::Random;

const DIRS: u64 = 50;
const FLUSH_EVERY: u64 = 6000;
const BLOCK: u64 = 4096;

/// Visits to a directory; the paper's figure 6 goes well beyond the point where three quarters are used.
const VISITS: u32 = 400;

/// Cumulated share of files, and the blocks they have.
const SIZES: [(f64, u64, u64); 7] =
    [(0.38, 1, 1), (0.52, 2, 2), (0.60, 3, 3), (0.80, 4, 8), (0.86, 9, 12), (0.96, 13, 64), (1.00, 65, 512)];

pub(crate) struct Dfs {
    random: Random,
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
    pub(crate) fn new(amount: &Amount) -> Self {
        Self {
            random: amount.random(),
            live: vec![Vec::new(); DIRS as usize],
            capacity: amount.image_bytes / BLOCK,
            used: 0,
            operations: 0,
            made: 0,
            visits: amount.steps_or(VISITS).max(1),
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
        let (_, least, most) = SIZES.into_iter().find(|size| share < size.0).unwrap_or(SIZES[6]);
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
