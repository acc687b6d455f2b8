//! Names that a directory has twice.
//!
//! To find all would take a memory of all names. Those that come one after the other, as the names of most directories do, are
//! compared by their hashes.

use super::balance::mixed;
use crate::tables::{Name, TableError, problems::Problems};

/// Names of one directory that are compared at a time; 16 bytes each.
const TOGETHER: usize = 1 << 16;

/// What was told of the directory that is told now.
#[derive(Debug, Default)]
pub(in crate::tables) struct Twins {
    directory: u64,
    /// The hash of each name, and the block that it lies in.
    names: Vec<(u64, u64)>,
    problems: Problems,
}

impl Twins {
    /// A name, and the byte where the block begins that has it.
    pub(in crate::tables) fn name(&mut self, name: &Name<'_>, at: u64) {
        if name.directory != self.directory || self.names.len() >= TOGETHER {
            self.compare();
            self.directory = name.directory;
        }
        self.names.push((hash(name.name), at));
    }

    fn compare(&mut self) {
        self.names.sort_unstable();
        for pair in self.names.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let what = format!("a name in directory {}", self.directory);
            let expected = "one that the directory has once";
            self.problems.push(TableError::damaged(what, pair[1].1, expected, "one that it has twice"));
        }
        self.names.clear();
    }

    /// What was found twice.
    pub(in crate::tables) fn contradictions(mut self) -> Vec<TableError> {
        self.compare();
        self.problems.take()
    }
}

fn hash(name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let of_words = words.iter().fold(name.len() as u64, |hash, word| mixed(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mixed(of_words, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_when_its_directory_has_it_twice() {
        let told = |names: &[(u64, &str)]| {
            let mut twins = Twins::default();
            for (at, (directory, name)) in (0..).zip(names) {
                twins.name(&Name { directory: *directory, inode: 12, name: name.as_bytes() }, at);
            }
            let told: Vec<u64> = twins.contradictions().iter().map(|problem| problem.at().unwrap()).collect();
            told
        };
        assert_eq!(told(&[]), []);
        assert_eq!(told(&[(2, "one"), (2, "two"), (3, "one"), (3, "on"), (2, "three")]), []);
        assert_eq!(told(&[(2, "a rather long name"), (2, "b"), (2, "a rather long name")]), [2]);
        assert_eq!(told(&[(2, "a"), (2, "a"), (3, "b"), (3, "c"), (3, "b")]), [1, 4]);
        let many: Vec<String> = (0..TOGETHER * 2).map(|number| format!("name {number}")).collect();
        let many: Vec<(u64, &str)> = many.iter().map(|name| (2, name.as_str())).collect();
        assert_eq!(told(&many), []);
    }
}
