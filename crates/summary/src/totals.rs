//! What is summed up of a directory.
//!
//! A total has two halves. Sums can be taken back: what a directory loses is subtracted from all above it. The extremes can't,
//! and are found again from a directory's own and those of the directories in it.

use std::ops::{AddAssign, Neg, SubAssign};

use onesweep_sys::files::Time;

/// Sums over what lies in a directory. Signed, since the same numbers serve for differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Bytes of all that isn't a directory, as its size says.
    pub bytes: i64,
    /// Bytes of directories, as their sizes say.
    pub directory_bytes: i64,
    /// Units of 512 bytes that are allocated, to everything.
    pub blocks: i64,
    /// Units of 512 bytes that removing it all would free.
    pub freed_blocks: i64,
    /// Regular files.
    pub files: i64,
    /// Directories, the one itself among them.
    pub directories: i64,
    /// Symbolic links, device nodes, FIFOs, sockets.
    pub others: i64,
    /// Names of inodes that have several.
    pub shared_names: i64,
    /// Directories that not everybody may list and enter.
    pub closed: i64,
}

impl Sums {
    /// Of how many numbers it is made.
    pub(crate) const FIELDS: usize = 9;

    pub(crate) fn fields(&self) -> [i64; Self::FIELDS] {
        let Sums { bytes, directory_bytes, blocks, freed_blocks, files, .. } = *self;
        let Sums { directories, others, shared_names, closed, .. } = *self;
        [bytes, directory_bytes, blocks, freed_blocks, files, directories, others, shared_names, closed]
    }

    pub(crate) fn of_fields(fields: [i64; Self::FIELDS]) -> Sums {
        let [bytes, directory_bytes, blocks, freed_blocks, files, directories, others, shared_names, closed] = fields;
        Sums { bytes, directory_bytes, blocks, freed_blocks, files, directories, others, shared_names, closed }
    }

    /// Everything that has an inode.
    pub fn inodes(&self) -> i64 {
        self.files + self.directories + self.others
    }

    /// Nothing in it.
    pub fn is_zero(&self) -> bool {
        *self == Sums::default()
    }

    fn combine(self, other: Sums, with: impl Fn(i64, i64) -> i64) -> Sums {
        let (mut left, right) = (self.fields(), other.fields());
        left.iter_mut().zip(right).for_each(|(left, right)| *left = with(*left, right));
        Sums::of_fields(left)
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        *self = self.combine(other, i64::wrapping_add);
    }
}

impl SubAssign for Sums {
    fn sub_assign(&mut self, other: Sums) {
        *self = self.combine(other, i64::wrapping_sub);
    }
}

impl Neg for Sums {
    type Output = Sums;

    fn neg(self) -> Sums {
        Sums::default().combine(self, i64::wrapping_sub)
    }
}

/// The largest file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Largest {
    /// Its bytes.
    pub bytes: u64,
    /// Its inode, in the subvolume of its directory.
    pub ino: u64,
    /// The directory that names it, as the store numbers it.
    pub directory: u32,
}

/// What stands out. Empty where there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extremes {
    /// The newest change of a content, the directory's own entries among them.
    pub newest: Option<Time>,
    /// The largest file.
    pub largest: Option<Largest>,
}

impl Extremes {
    /// The extremes of both.
    pub fn or(self, other: Extremes) -> Extremes {
        Extremes { newest: self.newest.max(other.newest), largest: self.largest.max(other.largest) }
    }
}

/// What a directory comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What adds up.
    pub sums: Sums,
    /// What stands out.
    pub extremes: Extremes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_can_be_taken_back() {
        let some = Sums::of_fields([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let mut sums = Sums::default();
        sums += some;
        sums += some;
        assert_eq!(sums.fields(), [2, 4, 6, 8, 10, 12, 14, 16, 18]);
        assert_eq!(sums.inodes(), 36);
        sums -= some;
        sums += -some;
        assert!(sums.is_zero());
    }

    #[test]
    fn extremes_of_nothing_are_those_of_the_other() {
        let some = Extremes {
            newest: Some(Time { secs: -5, nanos: 1 }),
            largest: Some(Largest { bytes: 7, ino: 1, directory: 2 }),
        };
        assert_eq!(some.or(Extremes::default()), some);
        assert_eq!(Extremes::default().or(some), some);
        let later = Extremes { newest: Some(Time { secs: 5, nanos: 0 }), largest: None };
        assert_eq!(later.or(some), Extremes { newest: later.newest, largest: some.largest });
    }
}
