//! Files at random places, synced as they come, then twelve rounds of change.
//!
//! 22,500 files, log-normal around 8 KB up to 1 MiB, each in one of 800 directories. In each round a tenth of them is
//! changed: deleted and made anew elsewhere, rewritten, or appended to, as likely each.
//!
//! `samples` is the same by other names: each file is a sample of a data set, as `onesweep shard` packs them.

use std::collections::VecDeque;

use super::log_normal;
use crate::age::recipe::{Amount, Op, Steps};
use crate::random;

const ROUNDS: u32 = 12;
const MOST: u64 = 1 << 20;

/// What makes 22,500 files of median 8 KB come to some 450 MB.
const DEVIATION: f64 = 1.1;

pub(crate) struct Random {
    random: random::Random,
    /// The end of each name.
    ending: &'static str,
    dirs: u64,
    files: u64,
    rounds_left: u32,
    /// Path and size.
    live: Vec<(String, u64)>,
    made: u64,
}

impl Random {
    pub(crate) fn new(amount: &Amount, ending: &'static str) -> Self {
        let (dirs, files) = (amount.of(800), amount.of(22_500));
        let rounds_left = amount.steps_or(ROUNDS);
        Self { random: amount.random(), ending, dirs, files, rounds_left, live: Vec::new(), made: 0 }
    }

    fn size(&mut self) -> u64 {
        log_normal(&mut self.random, 8192.0, DEVIATION, 1, MOST)
    }

    fn create(&mut self, out: &mut VecDeque<Op>) -> (String, u64) {
        let path = format!("d{:03}/f{}{}", self.random.below(self.dirs), self.made, self.ending);
        let size = self.size();
        self.made += 1;
        out.push_back(Op::Create(path.clone(), size));
        out.push_back(Op::SyncFile(path.clone()));
        (path, size)
    }

    fn change(&mut self, out: &mut VecDeque<Op>) {
        let index = self.random.below(self.live.len() as u64) as usize;
        let (path, size) = self.live[index].clone();
        match self.random.below(3) {
            0 => {
                out.push_back(Op::Remove(path));
                self.live[index] = self.create(out);
                return;
            }
            1 => {
                let size = self.size();
                self.live[index].1 = size;
                out.push_back(Op::Rewrite(path.clone(), size));
            }
            _ => {
                let more = self.size().min(MOST.saturating_sub(size)).max(1);
                self.live[index].1 = size + more;
                out.push_back(Op::Append(path.clone(), more));
            }
        }
        out.push_back(Op::SyncFile(path));
    }
}

impl Steps for Random {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        if self.live.is_empty() {
            out.extend((0..self.dirs).map(|dir| Op::Dir(format!("d{dir:03}"))));
            for _ in 0..self.files {
                let file = self.create(out);
                self.live.push(file);
            }
        } else {
            for _ in 0..self.files.div_ceil(10) {
                self.change(out);
            }
            self.rounds_left -= 1;
        }
        out.push_back(Op::Sync);
        self.rounds_left > 0
    }
}
