//! A source tree and its versions (qtar 5.3), by a generator: 22,500 files in 1,450 directories, median 5 KB.
//!
//! Each of 24 steps does what checking out the next version does: files that changed are removed and made anew, in the
//! order of their paths, 4 % are added and 3 % go. Steps 1, 2, 10 and 17, the steep ones of the paper's figure 6, change
//! 30 % of the files, the others 5 to 15 %.

use std::collections::{BTreeMap, VecDeque};

use super::log_normal;
use crate::age::recipe::{Amount, Op, Steps};
use crate::random::Random;

const STEPS: u32 = 24;
const STEEP: [u32; 4] = [1, 2, 10, 17];

pub(crate) struct Source {
    random: Random,
    dirs: Vec<String>,
    files: u64,
    steps: u32,
    /// The step that comes next; 0 is the first checkout.
    step: u32,
    live: BTreeMap<String, u64>,
    made: u64,
}

impl Source {
    pub(crate) fn new(amount: &Amount) -> Self {
        let mut random = amount.random();
        let mut dirs: Vec<String> = vec!["src".into()];
        for index in 1..amount.of(1450) {
            let parent = &dirs[random.below(index.min(400)) as usize];
            dirs.push(format!("{parent}/d{index}"));
        }
        let steps = amount.steps_or(STEPS);
        Self { random, dirs, files: amount.of(22_500), steps, step: 0, live: BTreeMap::new(), made: 0 }
    }

    fn size(&mut self) -> u64 {
        log_normal(&mut self.random, 5000.0, 1.3, 64, 2 << 20)
    }

    /// A new file somewhere: not on the disk yet.
    fn add(&mut self) -> (String, u64) {
        let dir = &self.dirs[self.random.below(self.dirs.len() as u64) as usize];
        let path = format!("{dir}/f{}.c", self.made);
        self.made += 1;
        (path, self.size())
    }

    fn first(&mut self, out: &mut VecDeque<Op>) {
        let mut dirs = self.dirs.clone();
        dirs.sort_unstable();
        out.extend(dirs.into_iter().map(Op::Dir));
        for _ in 0..self.files {
            let (path, size) = self.add();
            self.live.insert(path, size);
        }
        out.extend(self.live.iter().map(|(path, &size)| Op::Create(path.clone(), size)));
    }

    fn next_version(&mut self, out: &mut VecDeque<Op>) {
        let changed = if STEEP.contains(&self.step) { 0.30 } else { 0.05 + 0.10 * self.random.unit() };
        let mut remove = Vec::new();
        let mut create = BTreeMap::new();
        for path in self.live.keys().cloned().collect::<Vec<_>>() {
            let fate = self.random.unit();
            if fate < changed + 0.03 {
                if fate >= 0.03 {
                    create.insert(path.clone(), self.size());
                }
                remove.push(path);
            }
        }
        for _ in 0..self.live.len() / 25 {
            let (path, size) = self.add();
            create.insert(path, size);
        }
        for path in remove {
            self.live.remove(&path);
            out.push_back(Op::Remove(path));
        }
        out.extend(create.iter().map(|(path, &size)| Op::Create(path.clone(), size)));
        self.live.extend(create);
    }
}

impl Steps for Source {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        if self.step == 0 {
            self.first(out);
        } else {
            self.next_version(out);
        }
        out.push_back(Op::Sync);
        self.step += 1;
        self.step <= self.steps
    }
}
