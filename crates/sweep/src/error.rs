//! What can go wrong: before a sweep ([`SweepError`]) and with one file of it ([`FileError`]).

use std::{io, path::PathBuf};

/// What is told where it is so.
pub(crate) const NO_MOUNTS: &str = "/proc/self/mountinfo: cannot read the table of mounts";

/// Why a sweep could not start, or had to stop as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A path named by the caller can't be used.
    #[error("{}: {source}", path.display())]
    Root {
        /// The path as it was given.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No path was named.
    #[error("no path was given; name at least one file or directory")]
    NoRoots,
    /// A setting is out of range or contradicts another.
    #[error("{0}")]
    Setting(String),
    /// The block device below a path can't be read directly.
    #[error("device mode is not possible for {}: {reason}", path.display())]
    Device {
        /// The path that was to be read.
        path: PathBuf,
        /// Why not, and what to do instead.
        reason: String,
        /// What the kernel said, which `reason` tells, too; `None` where it wasn't asked.
        source: Option<io::Error>,
    },
    /// File systems can't be held at one moment.
    #[error("cannot hold {} at one moment: {reason}", path.display())]
    Snapshot {
        /// The path that was to be read.
        path: PathBuf,
        /// Why not, and what to do instead.
        reason: String,
        /// What the kernel said, which `reason` tells, too; `None` where it wasn't asked.
        source: Option<io::Error>,
    },
    /// The machine refused something that every sweep needs.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Why one file, or one request for a file, failed. The sweep goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The entry was listed by its directory and was gone when it was needed.
    #[error("{}: vanished while the sweep ran", path.display())]
    Vanished {
        /// The path that was listed.
        path: PathBuf,
    },
    /// A step on the entry failed.
    #[error("{}: cannot {step}: {source}", path.display())]
    Io {
        /// The entry.
        path: PathBuf,
        /// What was tried, as a verb: "open", "read at byte 4096", …
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// An image has nothing of the name that was given.
    #[error("{}: no such file or directory inside; check the name", path.display())]
    NotInside {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file never held still: each reading of it met a change.
    #[error("{}: changed while it was read, {attempts} times", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// How many readings were tried.
        attempts: u32,
    },
    /// A directory that is its own ancestor through a mount; it is not entered again.
    #[error("{}: is a mount of a directory that contains it; not entered again", path.display())]
    Loop {
        /// The directory.
        path: PathBuf,
    },
    /// What was swept is not from one moment, though it was to be.
    #[error("{}: is not from one moment: {reason}", path.display())]
    NotOneMoment {
        /// The path that was to be held.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// All memory of the budget is lent to the consumer, so nothing more can be read.
    ///
    /// Not final: drop or take over a file, then ask again.
    #[error(
        "all {lent} bytes of the budget that can be used are lent to the consumer; drop a file or take it over, then go on"
    )]
    BudgetLent {
        /// Bytes lent at that moment.
        lent: u64,
    },
    /// The sweep of a whole disk ended early.
    #[error("the sweep of {disk} stopped: {source}")]
    Stopped {
        /// The disk, by its kernel name.
        disk: String,
        /// Why.
        source: io::Error,
    },
}

impl FileError {
    pub(crate) fn io(path: PathBuf, step: impl Into<String>, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            return Self::Vanished { path };
        }
        Self::Io { path, step: step.into(), source }
    }

    /// The path that the error is about, if it is about one.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Self::Vanished { path }
            | Self::Io { path, .. }
            | Self::NotInside { path }
            | Self::Changed { path, .. }
            | Self::Loop { path }
            | Self::NotOneMoment { path, .. } => Some(path),
            Self::BudgetLent { .. } | Self::Stopped { .. } => None,
        }
    }
}
