//! The client's own index: which content each block has, as far as it is known.
//!
//! A peer is asked by hash, so a stale hash would bring back old bytes. What keeps the index from going stale is told in
//! [`device`] for devices and images, and in [`tree`] for directories.

pub mod device;
pub mod fill;
mod header;
mod io;
mod parts;
mod regions;
mod states;
pub mod tree;

pub use device::{Block, DeviceIndex, Learned, WriteTicket, regions_written};
pub use header::{BLOCK_BYTES_LEAST, BLOCK_BYTES_MOST, Geometry, REGION_BYTES};
pub use io::IndexFile;

/// Why an index can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The file is something else.
    #[error("it is no index")]
    NoIndex,
    /// It was made by another version.
    #[error("it has version {found}, and only {known} is known; make it anew")]
    Version {
        /// What it has.
        found: u32,
        /// What is known.
        known: u32,
    },
    /// It isn't as it was written.
    #[error("{what} is wrong; make it anew")]
    Damaged {
        /// Which part.
        what: &'static str,
    },
    /// The device has another size.
    #[error("it is of a device of {index} bytes, and this one has {device}; make it anew")]
    Size {
        /// What the index is of.
        index: u64,
        /// What is there.
        device: u64,
    },
    /// The directory is on another file system.
    #[error("it is of a directory on another file system; make it anew")]
    FileSystem,
    /// Its hashes have another key.
    #[error("it belongs to another trust domain; name the key it was made with, or make it anew")]
    Domain,
    /// Reading or writing it failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
