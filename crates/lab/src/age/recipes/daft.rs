//! DAFT III.B: directories of 1,000 files of one size, made one after the other.

use std::collections::VecDeque;

use crate::age::recipe::{Amount, Op, Steps};

const FILES: u64 = 1000;

pub(crate) struct Daft {
    dirs: u64,
    made: u64,
    size: u64,
}

impl Daft {
    pub(crate) fn new(amount: &Amount, dirs: u64, size: u64) -> Self {
        Self { dirs: amount.of(dirs), made: 0, size }
    }
}

impl Steps for Daft {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        let dir = format!("d{:04}", self.made);
        out.push_back(Op::Dir(dir.clone()));
        out.extend((0..FILES).map(|file| Op::Create(format!("{dir}/f{file:03}"), self.size)));
        out.push_back(Op::Sync);
        self.made += 1;
        self.made < self.dirs
    }
}
