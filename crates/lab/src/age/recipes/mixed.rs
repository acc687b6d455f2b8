//! 2 GiB of files from nothing to 64 MiB, each power of two as likely as the next, in a tree of directories.

use std::collections::VecDeque;

use crate::age::recipe::{Amount, Op, Steps};
use crate::random::Random;

/// The largest size is 2 to that power.
const LARGEST: f64 = 26.0;

pub(crate) struct Mixed {
    random: Random,
    dirs: Vec<String>,
    bytes_left: u64,
    made: u64,
}

impl Mixed {
    pub(crate) fn new(amount: &Amount) -> Self {
        Self { random: amount.random(), dirs: vec![String::new()], bytes_left: amount.of(2 << 30), made: 0 }
    }

    fn path(&self, dir: usize, name: &str) -> String {
        match self.dirs[dir].as_str() {
            "" => name.to_owned(),
            dir => format!("{dir}/{name}"),
        }
    }

    fn size(&mut self) -> u64 {
        if self.random.chance(0.05) {
            return 0;
        }
        (self.random.unit() * LARGEST).exp2() as u64
    }
}

impl Steps for Mixed {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        let dir = self.random.below(self.dirs.len() as u64) as usize;
        if self.made.is_multiple_of(8) {
            let path = self.path(dir, &format!("d{}", self.made));
            self.dirs.push(path.clone());
            out.push_back(Op::Dir(path));
        }
        let dir = self.random.below(self.dirs.len() as u64) as usize;
        let size = self.size().min(self.bytes_left);
        out.push_back(Op::Create(self.path(dir, &format!("f{}", self.made)), size));
        self.made += 1;
        self.bytes_left -= size;
        if self.made.is_multiple_of(32) {
            out.push_back(Op::Sync);
        }
        self.bytes_left > 0
    }
}
