//! What ends an archive ([`TarError`]) and what is only told ([`TarWarning`]).

use std::{
    io,
    path::{Path, PathBuf},
};

const CREATE: &str = "create the archive";
const WRITE: &str = "write the archive";
const COMMIT: &str = "put the finished archive in place";

/// Why no archive could be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// The output could not be opened.
    #[error("{}: cannot {}: {source}", path.display(), CREATE)]
    Create {
        /// The output.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The output took no more bytes. What was written of a file is removed.
    #[error("{}: cannot {}: {source}", path.display(), WRITE)]
    Write {
        /// The output.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The complete archive could not be given its name. It is removed.
    #[error("{}: cannot {}: {source}", path.display(), COMMIT)]
    Commit {
        /// The output.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The compression level doesn't exist.
    #[error("compression level {level} is out of range; {range}")]
    Level {
        /// The level that was asked for.
        level: i64,
        /// What is possible.
        range: &'static str,
    },
}

impl TarError {
    /// The output, what was tried as a verb, and what the kernel said; for messages of another form.
    pub fn failed_step(&self) -> Option<(&Path, &'static str, &io::Error)> {
        match self {
            Self::Create { path, source } => Some((path, CREATE, source)),
            Self::Write { path, source } => Some((path, WRITE, source)),
            Self::Commit { path, source } => Some((path, COMMIT, source)),
            Self::Level { .. } => None,
        }
    }
}

/// What helps against changes.
const AGAIN: &str = "archive it again when nobody writes to it";

/// How much a [`TarWarning`] matters, in the exit codes of GNU tar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// All is as it should be (exit code 0).
    Notice,
    /// The archive differs from the tree (exit code 1).
    Differs,
    /// Something is missing from the archive (exit code 2).
    Failed,
}

/// Something to tell about one member; the archive goes on. The texts are those of GNU tar, and what can be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TarWarning {
    /// Sockets have no place in a tar archive.
    #[error("{}: socket ignored", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
    },
    /// Told once for each prefix.
    #[error("Removing leading `{prefix}' from {}", if *link_targets { "hard link targets" } else { "member names" })]
    Stripped {
        /// What is removed.
        prefix: String,
        /// From the targets of hard links, not from members' own names.
        link_targets: bool,
    },
    /// The archive lies in the tree that it archives.
    #[error("{}: file is the archive; not dumped", path.display())]
    IsArchive {
        /// The archive, or the file that it will replace.
        path: PathBuf,
    },
    /// Fewer bytes came than the header promised.
    #[error("{}: File shrank by {missing} bytes; padding with zeros; {AGAIN}", path.display())]
    Shrank {
        /// The file.
        path: PathBuf,
        /// Bytes that are zero in the archive.
        missing: u64,
    },
    /// More bytes were there than the header promised.
    #[error("{}: file grew as it was read; the first {kept} bytes are in the archive; {AGAIN}", path.display())]
    Grew {
        /// The file.
        path: PathBuf,
        /// Bytes in the archive.
        kept: u64,
    },
    /// The file did not hold still.
    #[error("{}: file changed as it was read: {source}; {AGAIN}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
    /// The rest of the file could not be read.
    #[error("{}: Read error at byte {at}; padding {missing} bytes with zeros: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Bytes that had come.
        at: u64,
        /// Bytes that are zero in the archive.
        missing: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// An ACL attribute is not in a form that is known.
    #[error("{}: ACL not stored: {reason}", path.display())]
    Acl {
        /// The entry.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl TarWarning {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Socket { .. } | Self::Stripped { .. } | Self::IsArchive { .. } => Severity::Notice,
            Self::Shrank { .. } | Self::Grew { .. } | Self::Changed { .. } => Severity::Differs,
            Self::Read { .. } | Self::Acl { .. } => Severity::Failed,
        }
    }
}
