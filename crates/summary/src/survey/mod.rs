//! All inodes of a file system without a walk, to find what has changed while nobody told.
//!
//! Each reading of a directory leaves a stamp. Where all inodes can be told quickly it is the sum of a term for the directory
//! and one for each name in it, and the same sum is made again of what is told: no clock has to be trusted, and no list of
//! what happened has to be whole. Where the file system counts its changes, the stamp is the count at the reading.

pub(crate) mod btrfs;
pub(crate) mod ext4;
pub(crate) mod xfs;

use onesweep_sys::files::Stat;

use crate::{identity::NodeId, mixing::mixed};

/// What the stamps of a file system are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Sums of terms. All inodes that have names are told, with their terms.
    Sums,
    /// Counts of the file system's own. Directories are told that have changed, or in which an inode has, and the count of that.
    Generations,
}

/// What a survey tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// An inode; by [`Method::Generations`], a directory.
    pub id: NodeId,
    /// It is a directory.
    pub is_directory: bool,
    /// Its names.
    pub links: u32,
    /// Its term, or the count of its change.
    pub stamp: u64,
    /// When it changed last, in seconds since 1970: blocks may change for a while after that and nobody tells.
    pub changed_at: i64,
}

/// Takes some of what is found, in whatever order, from several threads.
pub type Tell<'a> = &'a (dyn Fn(&[Seen]) + Sync);

/// So many are told in one go.
pub(crate) const BATCH: usize = 4096;

/// What a term is made of: all that a summary could show. Owners are left out, for an id-mapped mount shows others; a change of
/// them shows by the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) ctime: (i64, u32),
}

impl Facts {
    pub(crate) fn of(stat: &Stat) -> Facts {
        let &Stat { ino, mode, nlink: links, size, blocks, mtime, ctime, .. } = stat;
        Facts { ino, mode, links, size, blocks, mtime: (mtime.secs, mtime.nanos), ctime: (ctime.secs, ctime.nanos) }
    }

    /// The term. Who doesn't know the key can't make files whose terms add up to those of others.
    pub(crate) fn term(&self, key: u64) -> u64 {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [
            self.ino,
            pair(self.mode, self.links),
            self.size,
            self.blocks,
            self.mtime.0 as u64,
            self.ctime.0 as u64,
            pair(self.mtime.1, self.ctime.1),
        ];
        words.into_iter().fold(mixed(key), |sum, word| mixed(sum ^ mixed(word.wrapping_add(key))))
    }
}

/// 0 stands for a stamp that isn't known.
pub(crate) fn stamp_of_sum(sum: u64) -> u64 {
    sum.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_makes_another_term() {
        let some = Facts { ino: 12, mode: 0o100_644, links: 1, size: 5, blocks: 8, mtime: (7, 1), ctime: (7, 2) };
        let others = [
            Facts { ino: 13, ..some },
            Facts { mode: 0o100_600, ..some },
            Facts { links: 2, ..some },
            Facts { size: 6, ..some },
            Facts { blocks: 16, ..some },
            Facts { mtime: (8, 1), ..some },
            Facts { mtime: (7, 2), ..some },
            Facts { ctime: (8, 2), ..some },
            Facts { ctime: (7, 3), ..some },
            Facts { mtime: (7, 2), ctime: (7, 1), ..some },
            Facts { size: 8, blocks: 5, ..some },
        ];
        for other in others {
            assert_ne!(other.term(3), some.term(3), "{other:?}");
        }
        assert_eq!(some.term(3), some.term(3));
        assert_ne!(some.term(3), some.term(4));
        assert_ne!(stamp_of_sum(0), 0);
    }
}
