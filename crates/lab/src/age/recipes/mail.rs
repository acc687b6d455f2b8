//! Small files that arrive at random over 1,000 directories.

use std::collections::VecDeque;

use super::log_normal;
use crate::age::recipe::{Amount, Op, Steps};
use crate::random::Random;

/// Files between two syncs.
const BATCH: u64 = 500;

pub(crate) struct Mail {
    random: Random,
    dirs: u64,
    files: u64,
    arrived: u64,
}

impl Mail {
    pub(crate) fn new(amount: &Amount) -> Self {
        Self { random: amount.random(), dirs: amount.of(1000), files: amount.of(1_000_000), arrived: 0 }
    }
}

impl Steps for Mail {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        if self.arrived == 0 {
            out.extend((0..self.dirs).map(|dir| Op::Dir(format!("box{dir:04}"))));
        }
        for _ in 0..BATCH.min(self.files - self.arrived) {
            let dir = self.random.below(self.dirs);
            let size = log_normal(&mut self.random, 4000.0, 0.8, 200, 256 << 10);
            out.push_back(Op::Create(format!("box{dir:04}/{}.eml", self.arrived), size));
            self.arrived += 1;
        }
        out.push_back(Op::Sync);
        self.arrived < self.files
    }
}
