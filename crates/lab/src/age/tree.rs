//! The files that operations leave, without doing them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::recipe::Op;

/// Paths and sizes after some operations.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    sizes: HashMap<String, u64>,
    /// Operations followed so far.
    pub(crate) operations: u64,
}

impl Tree {
    /// What an operation changes.
    pub(crate) fn follow(&mut self, op: &Op) {
        self.operations += 1;
        match op {
            Op::Create(path, size) | Op::Rewrite(path, size) | Op::Resize(path, size) => {
                self.sizes.insert(path.clone(), *size);
            }
            Op::Append(path, more) | Op::AppendApart(path, more) => {
                *self.sizes.entry(path.clone()).or_default() += more;
            }
            Op::Remove(path) => {
                self.sizes.remove(path);
            }
            Op::Dir(_) | Op::Overwrite(..) | Op::Read(_) | Op::Time(..) | Op::SyncFile(_) | Op::Sync | Op::Day(_) => {}
        }
    }

    /// The size of a file that is there.
    pub(crate) fn size(&self, path: &str) -> Option<u64> {
        self.sizes.get(path).copied()
    }

    /// The files right in these directories.
    pub(crate) fn files_in(&self, dirs: &BTreeSet<&str>) -> BTreeMap<&str, u64> {
        let within = |path: &str| path.rsplit_once('/').is_some_and(|split| dirs.contains(split.0));
        self.sizes.iter().filter(|file| within(file.0)).map(|file| (&**file.0, *file.1)).collect()
    }

    pub(crate) fn files(&self) -> u64 {
        self.sizes.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sizes.values().sum()
    }
}
