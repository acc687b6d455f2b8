//! Blocks by hash. A store is a cache: it may forget, and never gives bytes that aren't those of the hash it was given.
//!
//! | store | where blocks are | when it is full |
//! |---|---|---|
//! | [`Memory`] | in memory | the least recently used go |
//! | [`Disk`] | in segment files of a directory (docs/FORMATS.md) | the oldest segment goes; what of it was read stays |
//! | [`Tiered`] | in memory, above another store | as they do |
//! | [`Remote`](engine::Remote) | in an engine: Redis or S3 ([`engine`]) | as the engine does, or the oldest go |

#[cfg(test)]
pub(crate) mod conformance;
mod disk;
pub mod engine;
mod memory;
mod tiered;

use std::{io, path::PathBuf};

pub use disk::{Disk, DiskNews, DiskSettings};
pub use memory::Memory;
pub use tiered::Tiered;

use crate::id::Hash;

/// Why a store failed. A block that isn't there is no failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Something could not be read or written.
    #[error("{}: cannot {step}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{}: another process keeps blocks here", .0.display())]
    InUse(PathBuf),
    /// It was made by another version.
    #[error("{}: version {found} of the format; this program knows version 1. Use that program, or remove the directory", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Its hashes were made by another key.
    #[error("{}: these blocks belong to another trust domain. Name its key, or another directory", .0.display())]
    Domain(PathBuf),
    /// An engine can't be asked, or not now.
    #[error("{engine}: cannot {step}: {why}")]
    Engine {
        /// Its address.
        engine: String,
        /// What was tried.
        step: &'static str,
        /// Why not.
        why: String,
    },
}

/// What became of a block that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was not there.
    New,
    /// It was.
    Known,
}

/// A number that a store tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What it is, as a part of a metric's name.
    pub name: &'static str,
    /// A sentence.
    pub help: &'static str,
    /// It never falls.
    pub is_counter: bool,
    /// How much.
    pub value: u64,
}

/// Blocks by hash. Any number of threads may use it at a time.
pub trait BlockStore: Send + Sync {
    /// Appends the bytes of a block, or nothing where it isn't there. After an error `into` may hold more than before.
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError>;
    /// Keeps a block of 1 byte to 64 KiB. That the bytes are those of the hash, the caller has checked.
    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, StoreError>;
    /// Whether it is there, as far as can be told without reading it.
    fn has(&self, hash: &Hash) -> bool;
    /// The same for many, where one question is quicker than many.
    fn has_all(&self, hashes: &[Hash]) -> Vec<bool> {
        hashes.iter().map(|hash| self.has(hash)).collect()
    }
    /// Whether it takes so long to bring a block that others should be brought meanwhile: then [`Self::soon`] is of use.
    fn is_far(&self) -> bool {
        false
    }
    /// These will be asked for soon. A store that is far away begins to bring them.
    fn soon(&self, _: &[Hash]) {}
    /// How many blocks there are.
    fn blocks(&self) -> u64;
    /// Bytes of all blocks, each once.
    fn bytes(&self) -> u64;
    /// What else it counts.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }
}
