//! DAFT III.C: a used volume of 30,000 files with the sizes and fragments of the paper's table III.
//!
//! The table gives shares and fragments of files up to 128, 512 and 1,024 KB. Its three shares are those of a log-normal
//! distribution around 5 KB; within a class the sizes follow that. Above, where the paper is silent, twice the size is
//! half as likely, up to 32 MiB, with one break a MiB. Within a class each border between two blocks is as likely to be
//! a break as any other, so a file has the more the larger it is.
//!
//! Files come in twelve rounds, one to eight to a directory, as from an unpacked archive. What follows a break is
//! appended in a later round, when others have come in between, and a small file of the same directory is written before.
//! These small files go at the end, and leave holes as on a used disk.

use std::collections::{BTreeSet, VecDeque};

use super::log_normal;
use crate::age::recipe::{Amount, Op, Steps};
use crate::random::Random;

const ROUNDS: u32 = 12;
const BLOCK: u64 = 4096;
const BURST_MOST: u64 = 8;
const SIZE_MOST: u64 = 32 << 20;

/// The log-normal distribution that has the table's shares.
const MEDIAN: f64 = 5200.0;
const DEVIATION: f64 = 2.75;

/// A line of table III: files of at most so many bytes, their share of all, and their fragments.
pub(in crate::age) struct Line {
    pub(in crate::age) bytes_most: u64,
    pub(in crate::age) share: f64,
    pub(in crate::age) fragments: f64,
}

pub(in crate::age) const TABLE: [Line; 3] = [
    Line { bytes_most: 128 << 10, share: 0.879, fragments: 1.11 },
    Line { bytes_most: 512 << 10, share: 0.951, fragments: 1.21 },
    Line { bytes_most: 1024 << 10, share: 0.973, fragments: 1.28 },
];

/// A file to be made.
struct File {
    path: String,
    size: u64,
    /// Its pieces' lengths, the next one first.
    pieces: VecDeque<u64>,
    /// The rounds in which the pieces come, the next one first.
    rounds: VecDeque<u32>,
}

pub(crate) struct Fragmented {
    random: Random,
    dirs: Vec<String>,
    files: Vec<File>,
    /// Files that came so far: the first ones.
    come: usize,
    rounds: u32,
    round: u32,
    in_between: Vec<String>,
}

impl Fragmented {
    pub(crate) fn new(amount: &Amount) -> Self {
        let mut random = amount.random();
        let mut dirs: Vec<String> = vec!["c".into()];
        for index in 1..amount.of(2000) {
            let parent = &dirs[random.below(index.min(300)) as usize];
            dirs.push(format!("{parent}/d{index}"));
        }
        let mut made = Self {
            random,
            dirs,
            files: Vec::new(),
            come: 0,
            rounds: amount.steps_or(ROUNDS),
            round: 0,
            in_between: Vec::new(),
        };
        made.choose_files(amount.of(30_000));
        made
    }

    fn choose_files(&mut self, count: u64) {
        let ends = TABLE.map(|line| (line.share * count as f64).round() as u64);
        let mut sizes = Vec::new();
        let (mut least, mut made, mut breaks_made) = (1, 0, 0);
        for (line, end) in TABLE.iter().zip(ends) {
            let class: Vec<u64> = (made..end).map(|_| self.size(least, line.bytes_most)).collect();
            let breaks_until = ((line.fragments - 1.0) * end as f64).round() as u64;
            sizes.extend(self.broken(&class, breaks_until - breaks_made));
            (least, made, breaks_made) = (line.bytes_most + 1, end, breaks_until);
        }
        let large: Vec<u64> = (made..count).map(|_| self.large_size(least)).collect();
        let breaks = large.iter().sum::<u64>() >> 20;
        sizes.extend(self.broken(&large, breaks));
        self.scatter(sizes);
    }

    fn size(&mut self, least: u64, most: u64) -> u64 {
        loop {
            let size = log_normal(&mut self.random, MEDIAN, DEVIATION, 1, SIZE_MOST);
            if (least..=most).contains(&size) {
                return size;
            }
        }
    }

    fn large_size(&mut self, least: u64) -> u64 {
        loop {
            let size = least as f64 / (1.0 - self.random.unit());
            if size <= SIZE_MOST as f64 {
                return size as u64;
            }
        }
    }

    /// Sizes, each with the blocks at which a fragment of it begins.
    fn broken(&mut self, sizes: &[u64], breaks: u64) -> Vec<(u64, BTreeSet<u64>)> {
        let mut broken: Vec<(u64, BTreeSet<u64>)> = sizes.iter().map(|&size| (size, BTreeSet::new())).collect();
        // Where the borders between two blocks of each file end in a row of all of them.
        let ends: Vec<u64> = sizes
            .iter()
            .scan(0, |sum, size| {
                *sum += (size - 1) / BLOCK;
                Some(*sum)
            })
            .collect();
        let borders = ends.last().copied().unwrap_or_default();
        let mut left = breaks.min(borders);
        while left > 0 {
            let border = self.random.below(borders);
            let index = ends.partition_point(|&end| end <= border);
            if broken[index].1.insert(ends[index] - border) {
                left -= 1;
            }
        }
        broken
    }

    /// Gives the files their order, directories and rounds.
    fn scatter(&mut self, mut sizes: Vec<(u64, BTreeSet<u64>)>) {
        for last in (1..sizes.len()).rev() {
            sizes.swap(last, self.random.below(last as u64 + 1) as usize);
        }
        let count = sizes.len() as u64;
        let (mut dir, mut burst) = (0, 0);
        for (number, (size, breaks)) in (0..count).zip(sizes) {
            if burst == 0 {
                dir = self.random.below(self.dirs.len() as u64) as usize;
                burst = 1 + self.random.below(BURST_MOST);
            }
            burst -= 1;
            let borders = breaks.iter().map(|border| border * BLOCK);
            let pieces = [0].into_iter().chain(borders.clone()).zip(borders.chain([size]));
            let pieces = pieces.map(|(from, to)| to - from).collect();
            let first = (number * u64::from(self.rounds) / count) as u32;
            let mut rounds: Vec<u32> = breaks.iter().map(|_| self.later_than(first)).collect();
            rounds.sort_unstable();
            let rounds = [first].into_iter().chain(rounds).collect();
            self.files.push(File { path: format!("{}/f{number}", self.dirs[dir]), size, pieces, rounds });
        }
    }

    fn later_than(&mut self, round: u32) -> u32 {
        round + 1 + self.random.below(u64::from(self.rounds.saturating_sub(round).max(1))) as u32
    }

    /// The files of this round.
    fn create(&mut self, out: &mut VecDeque<Op>) {
        while let Some(file) = self.files.get_mut(self.come).filter(|file| file.rounds[0] == self.round) {
            file.rounds.pop_front();
            let first = file.pieces.pop_front().unwrap_or(file.size);
            out.push_back(Op::Create(file.path.clone(), first));
            self.come += 1;
        }
    }

    /// The pieces of this round, from files in any order.
    fn append(&mut self, out: &mut VecDeque<Op>) {
        let mut due: Vec<usize> = Vec::new();
        for (index, file) in self.files[..self.come].iter().enumerate() {
            due.extend(file.rounds.iter().filter(|&&round| round == self.round).map(|_| index));
        }
        for last in (1..due.len()).rev() {
            due.swap(last, self.random.below(last as u64 + 1) as usize);
        }
        for index in due {
            let dir = self.files[index].path.rsplit_once('/').map_or("", |split| split.0);
            let small = format!("{dir}/t{}", self.in_between.len());
            out.push_back(Op::Create(small.clone(), BLOCK * (1 + self.random.below(4))));
            out.push_back(Op::SyncFile(small.clone()));
            self.in_between.push(small);
            let file = &mut self.files[index];
            file.rounds.pop_front();
            let piece = file.pieces.pop_front().unwrap_or_default();
            out.push_back(Op::AppendApart(file.path.clone(), piece));
        }
    }

    /// The same files, each in one go.
    fn clean(&mut self, out: &mut VecDeque<Op>) {
        out.extend(self.files.iter().map(|file| Op::Create(file.path.clone(), file.size)));
    }
}

impl Steps for Fragmented {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool {
        if self.round == 0 {
            out.extend(self.dirs.iter().cloned().map(Op::Dir));
        }
        if self.rounds == 0 {
            self.clean(out);
            out.push_back(Op::Sync);
            return false;
        }
        self.create(out);
        out.push_back(Op::Sync);
        self.append(out);
        self.round += 1;
        let over = self.round > self.rounds;
        if over {
            out.extend(self.in_between.drain(..).map(Op::Remove));
            out.push_back(Op::Sync);
        }
        !over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(steps: Option<u32>) -> Amount {
        Amount { seed: 1, scale: 0.2, steps, image_bytes: 64 << 20 }
    }

    #[test]
    fn the_plan_is_that_of_the_table() {
        let plan = Fragmented::new(&amount(None));
        assert_eq!(plan.files.len(), 6000);
        for line in TABLE {
            let files: Vec<&File> = plan.files.iter().filter(|file| file.size <= line.bytes_most).collect();
            assert_eq!(files.len(), (6000.0 * line.share).round() as usize);
            let fragments: usize = files.iter().map(|file| file.pieces.len()).sum();
            assert_eq!(fragments, (line.fragments * files.len() as f64).round() as usize);
        }
        assert!(plan.files.iter().all(|file| file.pieces.iter().sum::<u64>() == file.size));
        assert!(plan.files.iter().all(|file| file.pieces.len() == file.rounds.len()));
        assert!(plan.files.iter().all(|file| file.size <= SIZE_MOST));
    }

    #[test]
    fn a_clean_one_has_the_same_files() {
        let sizes = |steps| {
            let (mut plan, mut ops, mut tree) =
                (Fragmented::new(&amount(steps)), VecDeque::new(), crate::age::tree::Tree::default());
            while plan.more(&mut ops) {}
            ops.iter().for_each(|op| tree.follow(op));
            tree
        };
        let (aged, clean) = (sizes(None), sizes(Some(0)));
        assert_eq!((aged.files(), aged.bytes()), (6000, clean.bytes()));
        assert_eq!(clean.operations, 6000 + 400 + 1);
    }
}
