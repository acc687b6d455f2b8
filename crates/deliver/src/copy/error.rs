//! What can go wrong with a copy.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a copy could not start, or why one entry could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A step on one entry failed.
    #[error("{}: cannot {step}: {source}", path.display())]
    Io {
        /// The entry, of the source or of the destination.
        path: PathBuf,
        /// What was tried, as a verb.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The original did not hold still while it was copied.
    #[error("{}: cannot copy: changed each of {attempts} times; run again when nobody writes to it", path.display())]
    Changed {
        /// The original.
        path: PathBuf,
        /// How often it was copied.
        attempts: u32,
    },
    /// The directory that a whole source goes into can't be made. Nothing of the source can be copied.
    #[error("{}: cannot make the directory: {source}", path.display())]
    Destination {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The destination is full, or the quota used up. Nothing further can be written.
    #[error("{}: cannot write: the destination is full ({source}); make room and copy again", path.display())]
    Full {
        /// The file that did not fit.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A directory would be copied into itself.
    #[error("{}: cannot copy: a directory can't be copied into itself, {}; name a destination outside of it",
        path.display(), destination.display())]
    IntoItself {
        /// The directory.
        path: PathBuf,
        /// Where it would go.
        destination: PathBuf,
    },
    /// Source and destination are the same file, or the source is a symbolic link to the destination.
    #[error("{}: cannot copy: {} is the same file; leave it out with --exclude, or name another destination",
        path.display(), destination.display())]
    SameFile {
        /// The source.
        path: PathBuf,
        /// The destination.
        destination: PathBuf,
    },
    /// The destination must be a directory and is none.
    #[error("{}: cannot copy into it: it is no directory; make it first, or name one source and a new name",
        path.display())]
    NoDirectory {
        /// The destination.
        path: PathBuf,
    },
    /// Two sources would get the same name.
    #[error("{}: cannot copy: {} would get the same name, {}; copy one at a time",
        path.display(), other.display(), destination.display())]
    SameName {
        /// A source.
        path: PathBuf,
        /// The one named before.
        other: PathBuf,
        /// The name of both.
        destination: PathBuf,
    },
    /// One source lies in another.
    #[error("{}: cannot copy: it lies in {}, which is copied too; copy one at a time", path.display(), outer.display())]
    Nested {
        /// The inner source.
        path: PathBuf,
        /// The outer one.
        outer: PathBuf,
    },
    /// `--reflink=always`, and the destination can't share blocks with the source.
    #[error("{}: cannot clone: {source}; use --reflink=auto to copy what can't be cloned", path.display())]
    Clone {
        /// The destination.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The sweep handed over a path that belongs to no source.
    #[error("{}: cannot copy: it lies in none of the sources", path.display())]
    Stranger {
        /// The path.
        path: PathBuf,
    },
}

impl CopyError {
    pub(super) fn io(path: &Path, step: &str, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, source },
            _ => Self::Io { path, step: step.into(), source },
        }
    }

    /// True when going on makes no sense: every further file would fail the same way.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Destination { .. } => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::ReadOnlyFilesystem,
            _ => false,
        }
    }
}
