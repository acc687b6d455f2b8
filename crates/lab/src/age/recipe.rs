//! What a recipe is: operations on paths, one after the other.

use std::collections::VecDeque;
use std::fmt;

use clap::ValueEnum;

use super::recipes;
use crate::random::Random;

/// One operation on the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    /// Make a directory.
    Dir(String),
    /// Make a file of that size.
    Create(String, u64),
    /// Truncate a file to nothing and write that much.
    Rewrite(String, u64),
    /// Write over the first bytes of a file, in place.
    Overwrite(String, u64),
    /// Write that much more.
    Append(String, u64),
    /// Write that much more so that it doesn't lie right behind what is there.
    AppendApart(String, u64),
    /// Set a file's size: cut its end off, or let a hole follow.
    Resize(String, u64),
    /// Set the time of a file's last change, in seconds since 1970.
    Time(String, u64),
    /// Read a file. Nothing on the disk changes.
    Read(String),
    /// Remove a file.
    Remove(String),
    /// Bring a file to the disk.
    SyncFile(String),
    /// Bring everything to the disk.
    Sync,
    /// What follows happens on that day. Nothing on the disk changes.
    Day(u32),
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(path) => write!(out, "dir {path}"),
            Self::Create(path, size) => write!(out, "create {path} {size}"),
            Self::Rewrite(path, size) => write!(out, "rewrite {path} {size}"),
            Self::Overwrite(path, size) => write!(out, "overwrite {path} {size}"),
            Self::Append(path, size) => write!(out, "append {path} {size}"),
            Self::AppendApart(path, size) => write!(out, "append-apart {path} {size}"),
            Self::Resize(path, size) => write!(out, "resize {path} {size}"),
            Self::Time(path, seconds) => write!(out, "time {path} {seconds}"),
            Self::Read(path) => write!(out, "read {path}"),
            Self::Remove(path) => write!(out, "remove {path}"),
            Self::SyncFile(path) => write!(out, "sync {path}"),
            Self::Sync => write!(out, "sync"),
            Self::Day(day) => write!(out, "day {day}"),
        }
    }
}

/// The recipes by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recipe {
    /// 22,500 files in 800 random directories, synced as it goes, then 12 rounds of change
    Random,
    /// The same, of files whose names are those of samples, f0.jpg (`onesweep shard`)
    Samples,
    /// A source tree of 22,500 files in 1,450 directories, then 24 versions of it (qtar 5.3)
    Source,
    /// 1,000 directories of 1,000 files of 4 KB (DAFT III.B)
    #[value(name = "daft-4k")]
    Daft4,
    /// The same with 16 KB
    #[value(name = "daft-16k")]
    Daft16,
    /// 100 directories of 1,000 files of 64 KB
    #[value(name = "daft-64k")]
    Daft64,
    /// 2 GiB of files from 0 to 64 MiB
    Mixed,
    /// 1,000,000 small files that arrive at random over 1,000 directories
    Mail,
    /// 50 directories under creates, deletes, reads and writes until the disk is three quarters full and beyond (DFS 5.2)
    Dfs,
    /// The same with smaller files, 79 % of which have at most 8 KiB (the file servers of C-FFS)
    DfsSmall,
    /// The same, and no file has more than 64 blocks
    DfsShort,
    /// 30,000 files with DAFT's sizes and fragments (DAFT's table III)
    Fragmented,
    /// 1,630,000 files in 140,000 directories, a tenth of FastDu's server A, then 13 days of changes (FastDu 3.2)
    DaysA,
    /// 340,000 files in 30,000 directories, a tenth of FastDu's server B, then 13 days of changes
    DaysB,
}

/// How much of a recipe: 1 is all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) seed: u64,
    pub(crate) scale: f64,
    /// Steps of ageing; `None` for as many as the recipe has, 0 for a clean file system.
    pub(crate) steps: Option<u32>,
    /// The size of the image, which some recipes fill.
    pub(crate) image_bytes: u64,
}

impl Amount {
    /// A number of things, at this scale; never none.
    pub(crate) fn of(&self, whole: u64) -> u64 {
        ((whole as f64 * self.scale).round() as u64).max(1)
    }

    pub(crate) fn steps_or(&self, all: u32) -> u32 {
        self.steps.unwrap_or(all)
    }

    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed)
    }
}

/// What a recipe promises of how its files lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Every file in one piece.
    OneFragmentEach,
    /// The shares and fragments of DAFT's table III.
    FragmentsByClass,
}

impl Promise {
    /// Whether it holds after so many steps of ageing.
    pub(crate) fn holds_after(self, steps: Option<u32>) -> bool {
        self == Self::OneFragmentEach || steps != Some(0)
    }
}

/// A recipe while it is done: each call adds a few operations, and says whether there are more to come.
pub(crate) trait Steps {
    fn more(&mut self, out: &mut VecDeque<Op>) -> bool;
}

/// The operations of a recipe.
pub(crate) struct Ops {
    steps: Box<dyn Steps>,
    ready: VecDeque<Op>,
    done: bool,
}

impl Iterator for Ops {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        while self.ready.is_empty() && !self.done {
            self.done = !self.steps.more(&mut self.ready);
        }
        self.ready.pop_front()
    }
}

impl Recipe {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether there are steps that age what it makes.
    pub(crate) fn ages(self) -> bool {
        !matches!(self, Self::Daft4 | Self::Daft16 | Self::Daft64 | Self::Mixed | Self::Mail)
    }

    /// Its operations.
    pub(crate) fn ops(self, amount: &Amount) -> Ops {
        let steps: Box<dyn Steps> = match self {
            Self::Random => Box::new(recipes::random::Random::new(amount, "")),
            Self::Samples => Box::new(recipes::random::Random::new(amount, ".jpg")),
            Self::Source => Box::new(recipes::source::Source::new(amount)),
            Self::Daft4 => Box::new(recipes::daft::Daft::new(amount, 1000, 4096)),
            Self::Daft16 => Box::new(recipes::daft::Daft::new(amount, 1000, 16_384)),
            Self::Daft64 => Box::new(recipes::daft::Daft::new(amount, 100, 65_536)),
            Self::Mixed => Box::new(recipes::mixed::Mixed::new(amount)),
            Self::Mail => Box::new(recipes::mail::Mail::new(amount)),
            Self::Dfs => Box::new(recipes::dfs::Dfs::new(amount, &recipes::dfs::MIXED)),
            Self::DfsSmall => Box::new(recipes::dfs::Dfs::new(amount, &recipes::dfs::SMALL)),
            Self::DfsShort => Box::new(recipes::dfs::Dfs::new(amount, &recipes::dfs::SHORT)),
            Self::Fragmented => Box::new(recipes::fragmented::Fragmented::new(amount)),
            Self::DaysA => Box::new(recipes::days::Days::new(amount, &recipes::days::A)),
            Self::DaysB => Box::new(recipes::days::Days::new(amount, &recipes::days::B)),
        };
        Ops { steps, ready: VecDeque::new(), done: false }
    }

    /// The size of its image and the inodes in it, at full scale.
    pub(crate) fn image(self) -> (u64, u64) {
        match self {
            Self::Random | Self::Samples => (8 << 30, 1 << 19),
            Self::Source | Self::Dfs | Self::DfsSmall => (2 << 30, 1 << 17),
            Self::DfsShort => (2 << 30, 1 << 18),
            Self::Daft4 => (8 << 30, 1_100_000),
            Self::Daft16 => (20 << 30, 1_100_000),
            Self::Daft64 => (8 << 30, 1 << 18),
            Self::Mixed => (3 << 30, 1 << 17),
            Self::Mail => (10 << 30, 1_200_000),
            Self::Fragmented => (8 << 30, 1 << 19),
            Self::DaysA => (24 << 30, 2_100_000),
            Self::DaysB => (6 << 30, 420_000),
        }
    }

    /// What must be true of the files' places.
    pub(crate) fn promise(self) -> Option<Promise> {
        match self {
            Self::Daft4 | Self::Daft16 | Self::Daft64 => Some(Promise::OneFragmentEach),
            Self::Fragmented => Some(Promise::FragmentsByClass),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use sha2::{Digest as _, Sha256};

    use super::*;

    const ALL: [Recipe; 14] = [
        Recipe::Random,
        Recipe::Samples,
        Recipe::Source,
        Recipe::Daft4,
        Recipe::Daft16,
        Recipe::Daft64,
        Recipe::Mixed,
        Recipe::Mail,
        Recipe::Dfs,
        Recipe::DfsSmall,
        Recipe::DfsShort,
        Recipe::Fragmented,
        Recipe::DaysA,
        Recipe::DaysB,
    ];

    fn amount(seed: u64) -> Amount {
        Amount { seed, scale: 0.01, steps: None, image_bytes: 64 << 20 }
    }

    fn hash(recipe: Recipe, seed: u64) -> String {
        let mut hash = Sha256::new();
        for op in recipe.ops(&amount(seed)) {
            hash.update(format!("{op}\n"));
        }
        hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Every table names a recipe and a seed, so what they mean must never change.
    #[test]
    fn the_same_seed_gives_the_same_operations() {
        for recipe in ALL {
            assert_eq!(hash(recipe, 1), hash(recipe, 1), "{recipe:?}");
        }
        assert_ne!(hash(Recipe::Random, 1), hash(Recipe::Random, 2));
    }

    #[test]
    fn the_operations_of_a_seed_stay_as_they_are() {
        let known = ALL.map(|recipe| hash(recipe, 1));
        assert_eq!(known, KNOWN);
    }

    const KNOWN: [&str; 14] = [
        "834c8754", "804d512b", "85ad8a1e", "700e00e9", "4862cf7c", "ff9df34e", "cfb0b4a8", "ebcc9819", "1a504fca",
        "b9b2f168", "697fbacd", "2b1700d6", "1e93b678", "5d495f42",
    ];

    /// Nothing is made twice, nothing is used that isn't there, and directories come before what is in them.
    #[test]
    fn operations_make_sense() {
        for recipe in ALL {
            let mut files: HashMap<String, u64> = HashMap::new();
            let mut dirs = std::collections::HashSet::from([String::new()]);
            for op in recipe.ops(&amount(3)) {
                let parent = |path: &str| path.rsplit_once('/').map_or(String::new(), |split| split.0.to_owned());
                match op {
                    Op::Dir(path) => {
                        assert!(dirs.contains(&parent(&path)), "{recipe:?}: {path}");
                        assert!(dirs.insert(path));
                    }
                    Op::Create(path, size) => {
                        assert!(dirs.contains(&parent(&path)), "{recipe:?}: {path}");
                        assert_eq!(files.insert(path, size), None, "{recipe:?}");
                    }
                    Op::Remove(path) => assert!(files.remove(&path).is_some(), "{recipe:?}: {path}"),
                    Op::Rewrite(path, _)
                    | Op::Overwrite(path, _)
                    | Op::Append(path, _)
                    | Op::AppendApart(path, _)
                    | Op::Resize(path, _)
                    | Op::Time(path, _)
                    | Op::Read(path)
                    | Op::SyncFile(path) => assert!(files.contains_key(&path), "{recipe:?}: {path}"),
                    Op::Sync | Op::Day(_) => {}
                }
            }
            assert!(!files.is_empty(), "{recipe:?}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_recipe() {
        let sizes = |recipe: Recipe, steps| -> Vec<u64> {
            let amount = Amount { scale: 0.1, steps, ..amount(5) };
            let size = |op| if let Op::Create(_, size) = op { Some(size) } else { None };
            let mut sizes: Vec<u64> = recipe.ops(&amount).filter_map(size).collect();
            sizes.sort_unstable();
            sizes
        };
        let random = sizes(Recipe::Random, Some(0));
        assert_eq!(random.len(), 2250);
        let median = random[random.len() / 2];
        assert!((6500..9800).contains(&median), "{median}");
        assert!(random.iter().all(|&size| size <= 1 << 20));
        let source = sizes(Recipe::Source, Some(0));
        let median = source[source.len() / 2];
        assert!((4200..6000).contains(&median), "{median}");
        assert!(sizes(Recipe::Daft64, None).iter().all(|&size| size == 65_536));
        let mixed = sizes(Recipe::Mixed, None);
        assert!(mixed[0] == 0 && mixed[mixed.len() - 1] <= 64 << 20);
        let whole: u64 = mixed.iter().sum();
        assert!((150 << 20..290 << 20).contains(&whole), "{whole}");
    }
}
