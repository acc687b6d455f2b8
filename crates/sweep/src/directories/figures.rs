//! What there is to say of a directory in numbers: as it lies, and packed.

use std::ops::AddAssign;

use onesweep_layout::LayoutScore;

use super::{FilePlace, LaidDirectory};
use crate::plan::{DiskModel, Estimate};

/// One of before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LaidSide {
    /// Runs of blocks.
    pub fragments: u64,
    /// How much of each file lies in one piece.
    pub layout: LayoutScore,
    /// How much of what is read one after the other lies side by side.
    pub dynamic: LayoutScore,
    /// Seeks of who reads file by file.
    pub seeks: u64,
    /// The disk's time for that.
    pub seconds: f64,
}

/// A directory, or several, in numbers. Blocks, bytes, and both sides are those of files whose place is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LaidFigures {
    /// Files, each inode once.
    pub files: u64,
    /// Those with blocks of which the place is known.
    pub placed_files: u64,
    /// Those of them that lie in more than one piece.
    pub fragmented_files: u64,
    /// Compressed files: which blocks have which of their bytes is not told.
    pub compressed_files: u64,
    /// Files whose place is not known.
    pub unknown_files: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// As the files lie.
    pub before: LaidSide,
    /// As they would lie packed ([`LaidDirectory::packed`]).
    pub after: LaidSide,
}

impl LaidDirectory {
    /// All figures, with times on a disk of that model ([`LaidDirectory::cost`]).
    pub fn figures(&self, model: &DiskModel) -> LaidFigures {
        let packed = self.packed();
        let count = |is: &dyn Fn(&FilePlace) -> bool| self.files.iter().filter(|file| is(&file.place)).count() as u64;
        LaidFigures {
            files: self.files.len() as u64,
            placed_files: count(&|place| matches!(place, FilePlace::Runs(_))),
            fragmented_files: count(&|place| matches!(place, FilePlace::Runs(runs) if runs.len() > 1)),
            compressed_files: count(&|place| *place == FilePlace::Compressed),
            unknown_files: count(&|place| *place == FilePlace::Unknown),
            blocks: self.block_count(),
            bytes: self.runs().map(|run| run.end - run.start).sum(),
            before: LaidSide::of(self, &self.cost(model)),
            after: LaidSide::of(&packed, &packed.cost(model)),
        }
    }
}

impl LaidSide {
    fn of(laid: &LaidDirectory, cost: &Estimate) -> Self {
        Self {
            fragments: laid.runs().count() as u64,
            layout: laid.layout_score(),
            dynamic: laid.dynamic_score(),
            seeks: cost.seeks,
            seconds: cost.seconds,
        }
    }
}

impl AddAssign<&LaidSide> for LaidSide {
    fn add_assign(&mut self, more: &LaidSide) {
        let LaidSide { fragments, layout, dynamic, seeks, seconds } = *more;
        self.fragments += fragments;
        self.layout += layout;
        self.dynamic += dynamic;
        self.seeks += seeks;
        self.seconds += seconds;
    }
}

impl AddAssign<&LaidFigures> for LaidFigures {
    fn add_assign(&mut self, more: &LaidFigures) {
        self.files += more.files;
        self.placed_files += more.placed_files;
        self.fragmented_files += more.fragmented_files;
        self.compressed_files += more.compressed_files;
        self.unknown_files += more.unknown_files;
        self.blocks += more.blocks;
        self.bytes += more.bytes;
        self.before += &more.before;
        self.after += &more.after;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BLOCK, directory};
    use super::*;

    #[test]
    fn directories_add_up() {
        let one = directory(&[&[(10, 2), (30, 3)], &[(50, 1)], &[]]).figures(&DiskModel::default());
        let other = directory(&[&[(100, 4)]]).figures(&DiskModel::default());
        assert_eq!((one.files, one.placed_files, one.fragmented_files, one.blocks), (3, 2, 1, 6));
        assert_eq!((one.before.fragments, one.after.fragments, one.bytes), (3, 2, 6 * BLOCK));
        assert_eq!(one.before.layout, LayoutScore { contiguous: 3, pairs: 4 });
        assert_eq!(one.after.dynamic, LayoutScore { contiguous: 5, pairs: 5 });
        let mut all = one;
        all += &other;
        assert_eq!((all.files, all.blocks, all.before.seeks), (4, 10, one.before.seeks + other.before.seeks));
        assert_eq!(all.before.layout, LayoutScore { contiguous: 6, pairs: 7 });
    }
}
