//! Why no plan can be made.

use thiserror::Error;

/// What is wrong with the files that a plan was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file alone needs more than the whole budget: it is a large file, to be streamed outside the plan.
    #[error("file {file} needs {cost} bytes, the budget is {budget}: it has to be streamed as a large file")]
    OverBudget {
        /// The first such file.
        file: u32,
        /// What it needs.
        cost: u64,
        /// What there is.
        budget: u64,
    },
    /// A piece ends beyond 2^63 - 1, on the device or in its file, which no Linux file offset can name.
    #[error(
        "file {file}: a piece of {length} bytes at file offset {offset:#x}, address {address:#x} ends beyond 2^63 - 1"
    )]
    OutOfRange {
        /// The file it belongs to.
        file: u32,
        /// Its address on the device.
        address: u64,
        /// Its offset in the file.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// The order names a file that the source doesn't have.
    #[error("the order names file {file}, there are {files}")]
    UnknownFile {
        /// The file named.
        file: u32,
        /// How many there are.
        files: u32,
    },
    /// The order names a file twice.
    #[error("the order names file {file} twice")]
    NamedTwice {
        /// The file named.
        file: u32,
    },
}
