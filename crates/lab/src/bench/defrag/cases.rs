//! Images, what packs each, and who reads it then.

use super::packing::{self, Packing};
use crate::bench::work::{Tool, Work};

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reader {
    /// A program that reads all.
    Program(Tool, &'static [&'static str]),
    /// Files of 2 to 12 blocks, each directory from cold.
    Small,
}

impl Reader {
    pub(super) fn name(self) -> String {
        match self {
            Self::Program(tool, options) => Work::with(tool, options).name(),
            Self::Small => super::small::NAME.to_owned(),
        }
    }
}

/// A packing, and who reads after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lot {
    pub(super) packing: Packing,
    pub(super) readers: &'static [Reader],
}

/// An image with all that is done to copies of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) recipe: &'static str,
    pub(super) fs: &'static str,
    /// Options for mkfs, which an older one may not know: then the case is left out.
    pub(super) mkfs: &'static [&'static str],
    pub(super) lots: &'static [Lot],
}

pub(super) const TAR: Reader = Reader::Program(Tool::GnuTar, &[]);
pub(super) const TAR_BY_INODE: Reader = Reader::Program(Tool::GnuTarByInode, &[]);
pub(super) const CP: Reader = Reader::Program(Tool::Cp, &[]);
pub(super) const RSYNC: Reader = Reader::Program(Tool::Rsync, &[]);
pub(super) const CAT: Reader = Reader::Program(Tool::FindCat, &[]);
pub(super) const OURS: Reader = Reader::Program(Tool::Tar, &[]);
pub(super) const MERGED: Reader = Reader::Program(Tool::Tar, &["--device", "--strategy", "merged"]);
/// No reader: one perfect sweep and streaming, computed.
pub(super) const BOUND: Reader = Reader::Program(Tool::Bound, &[]);

const WITHOUT_REFLINKS: &[Lot] =
    &[Lot { packing: packing::NONE, readers: &[TAR] }, Lot { packing: packing::ROOT, readers: &[TAR] }];

/// Everything that is shown, in the order in which it is measured.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "random-ext4",
        recipe: "random",
        fs: "ext4",
        mkfs: &[],
        lots: &[
            Lot { packing: packing::NONE, readers: &[TAR, CP, RSYNC, CAT, TAR_BY_INODE, OURS] },
            Lot { packing: packing::ROOT, readers: &[TAR, CP, RSYNC, CAT, TAR_BY_INODE, OURS, MERGED, BOUND] },
            Lot { packing: packing::USER, readers: &[TAR, CP, RSYNC, CAT] },
            Lot { packing: packing::E4DEFRAG, readers: &[TAR, CP, RSYNC, CAT] },
            Lot { packing: packing::REGION_64K, readers: &[TAR] },
            Lot { packing: packing::INODE, readers: &[TAR, CP, RSYNC, CAT, TAR_BY_INODE] },
            Lot { packing: packing::BY_NAME, readers: &[TAR, CP, RSYNC, CAT] },
        ],
    },
    Case {
        name: "dfs-ext4",
        recipe: "dfs",
        fs: "ext4",
        mkfs: &[],
        lots: &[
            Lot { packing: packing::NONE, readers: &[Reader::Small, TAR] },
            Lot { packing: packing::ROOT, readers: &[Reader::Small, TAR] },
            Lot { packing: packing::REGION_2M, readers: &[Reader::Small, TAR] },
            Lot { packing: packing::E4DEFRAG, readers: &[Reader::Small, TAR] },
        ],
    },
    Case {
        name: "random-xfs",
        recipe: "random",
        fs: "xfs",
        mkfs: &[],
        lots: &[
            Lot { packing: packing::NONE, readers: &[TAR, CP, RSYNC, CAT] },
            Lot { packing: packing::ROOT, readers: &[TAR, CP, RSYNC, CAT] },
        ],
    },
    // Files change places with others as wholes.
    Case {
        name: "random-xfs-without-reflinks",
        recipe: "random",
        fs: "xfs",
        mkfs: &["-m", "reflink=0"],
        lots: WITHOUT_REFLINKS,
    },
    // xfsprogs 6.10 and Linux 6.13.
    Case {
        name: "random-xfs-with-exchange-range",
        recipe: "random",
        fs: "xfs",
        mkfs: &["-m", "reflink=0", "-i", "exchange=1"],
        lots: WITHOUT_REFLINKS,
    },
    Case {
        name: "random-btrfs",
        recipe: "random",
        fs: "btrfs",
        mkfs: &[],
        lots: &[
            Lot { packing: packing::NONE, readers: &[TAR, CP, RSYNC, CAT] },
            Lot { packing: packing::DEDUPE, readers: &[TAR, CP, RSYNC, CAT] },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::run::Subject;

    /// Else one would stand in the place of another, or a ratio would have nothing below it.
    #[test]
    fn names_differ_and_each_case_is_read_as_it_was_first() {
        for (at, case) in CASES.iter().enumerate() {
            assert!(CASES[..at].iter().all(|other| other.name != case.name));
            let subject = Subject::new(case.recipe, case.fs, 1.0, 1);
            assert!(subject.recipe().is_ok() && subject.fs().is_ok(), "{}", case.name);
            let packings: std::collections::HashSet<_> = case.lots.iter().map(|lot| lot.packing.name).collect();
            assert_eq!(packings.len(), case.lots.len(), "{}", case.name);
            let (first, others) = case.lots.split_first().unwrap();
            assert_eq!(first.packing.name, packing::NONE.name);
            let beside = |reader: &&Reader| ![MERGED, BOUND].contains(reader);
            for reader in others.iter().flat_map(|lot| lot.readers).filter(beside) {
                assert!(first.readers.contains(reader), "{}: {}", case.name, reader.name());
            }
        }
    }
}
