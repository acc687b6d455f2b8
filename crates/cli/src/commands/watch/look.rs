//! What one answer tells of a directory.

use onesweep_summary::service::protocol::Figures;

/// By what sizes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Measure {
    /// Bytes that are allocated.
    #[default]
    Allocated,
    /// Bytes as sizes tell them.
    Apparent,
}

/// What something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) allocated: i64,
    pub(super) apparent: i64,
    pub(super) inodes: i64,
}

impl Sizes {
    pub(super) fn of(figures: &Figures) -> Sizes {
        Sizes {
            allocated: figures.allocated,
            apparent: figures.bytes + figures.directory_bytes,
            inodes: figures.inodes(),
        }
    }

    pub(super) fn by(&self, measure: Measure) -> i64 {
        match measure {
            Measure::Allocated => self.allocated,
            Measure::Apparent => self.apparent,
        }
    }

    pub(super) fn add(&mut self, more: Sizes) {
        self.allocated += more.allocated;
        self.apparent += more.apparent;
        self.inodes += more.inodes;
    }
}

/// How much of a directory is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Whole,
    /// Something below was left out.
    Part,
    /// It may not be listed.
    Nothing,
}

/// What is in a directory: another, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) is_directory: bool,
    pub(super) seen: Seen,
    pub(super) sizes: Sizes,
    /// In seconds since 1970.
    pub(super) newest: Option<i64>,
}

/// A directory and the largest of what is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) total: Sizes,
    pub(super) newest: Option<i64>,
    /// It may not be listed.
    pub(super) denied: bool,
    /// Something in it was left out that the user may not see.
    pub(super) partial: bool,
    /// Nothing is known to have changed since it was counted.
    pub(super) exact: bool,
    /// When files that stay mapped, or open where sizes follow at close, were looked at last, in seconds since 1970.
    pub(super) checked_at: Option<i64>,
    /// Nobody tells what changes: all was read again then.
    pub(super) timed: bool,
    /// When it was counted, in seconds since 1970.
    pub(super) counted_at: i64,
    /// Directories below that could not be read.
    pub(super) unreadable: u64,
    pub(super) entries: Vec<Entry>,
    /// What isn't named: how many directories and files, and all of them.
    pub(super) rest_directories: u64,
    pub(super) rest_files: u64,
    pub(super) rest: Sizes,
}
