//! The orders in which files can be read (qtar, figure 5).

use std::{fmt, str::FromStr};

/// The order of a sweep. Five of them are the bars of qtar's figure 5; `Fragment` is the step beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// `Fragment` unless every real disk below the path is known to have no seeks; then `Directory`.
    #[default]
    Auto,
    /// All fragments of all files by their place on the device.
    Fragment,
    /// Whole files by their first block: qtar's own order.
    FirstExtent,
    /// Whole files by inode number, over the whole tree.
    Inode,
    /// Whole files by inode number, one directory after the other.
    InodePerDirectory,
    /// Whole files by their first block, one directory after the other.
    FirstExtentPerDirectory,
    /// As the directories list them: the vanilla order.
    Directory,
}

impl Order {
    /// Every order, `Auto` included.
    pub const ALL: [Self; 7] = [
        Self::Auto,
        Self::Fragment,
        Self::FirstExtent,
        Self::Inode,
        Self::InodePerDirectory,
        Self::FirstExtentPerDirectory,
        Self::Directory,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fragment => "fragment",
            Self::FirstExtent => "first-extent",
            Self::Inode => "inode",
            Self::InodePerDirectory => "inode-per-directory",
            Self::FirstExtentPerDirectory => "first-extent-per-directory",
            Self::Directory => "directory",
        }
    }

    /// True for orders that finish one directory before they open the next.
    pub fn is_per_directory(self) -> bool {
        matches!(self, Self::InodePerDirectory | Self::FirstExtentPerDirectory | Self::Directory)
    }

    /// True for orders that need to know where the data lies.
    pub fn needs_layout(self) -> bool {
        matches!(self, Self::Auto | Self::Fragment | Self::FirstExtent | Self::FirstExtentPerDirectory)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Order {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|order| order.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|order| order.name()).collect();
            format!("unknown order '{text}'; use one of {}", names.join(", "))
        })
    }
}
