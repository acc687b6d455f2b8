//! What ends a data set ([`ShardError`]) and what one file lacks ([`ShardWarning`]).

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why no data set could be written. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A step on the output failed.
    #[error("{}: cannot {step}: {source}", path.display())]
    Io {
        /// The directory of the shards.
        path: PathBuf,
        /// What was tried, as a verb.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The directory holds something, which could pass for a part of the data set.
    #[error("{}: cannot pack: it holds {name} already; name a new directory, or empty this one", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// One of the names in it.
        name: String,
    },
    /// The shards would lie in the tree that they are made of.
    #[error("{}: cannot pack: it lies in {}, which is read; name a directory outside of it", path.display(), tree.display())]
    Inside {
        /// The directory of the shards.
        path: PathBuf,
        /// The tree.
        tree: PathBuf,
    },
    /// No sample could be read whole.
    #[error("{}: cannot pack: no sample is whole", path.display())]
    Nothing {
        /// The directory of the shards.
        path: PathBuf,
    },
}

impl ShardError {
    /// The output, what was tried, and what the kernel said; for messages of another form.
    pub fn failed_step(&self) -> Option<(&Path, &'static str, &io::Error)> {
        match self {
            Self::Io { path, step, source } => Some((path, step, source)),
            _ => None,
        }
    }
}

/// Why a file is not in its shard. Its whole sample is left out: a part of one would end a training run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardWarning {
    /// It isn't what the plan was made for.
    #[error("{}: cannot pack: it has changed since the plan was made; pack again when nobody writes to it", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// It was in the plan, and never came.
    #[error("{}: cannot pack: it vanished after the plan was made; pack again when nobody writes to it", path.display())]
    Vanished {
        /// The file, from the root of the tree.
        path: PathBuf,
    },
    /// It could not be read to its end.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is another name of a file that could not be packed.
    #[error("{}: cannot pack: another name of the file failed", path.display())]
    OtherName {
        /// The name.
        path: PathBuf,
    },
}
