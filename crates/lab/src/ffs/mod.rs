//! A model of the Fast File System with a file cache, on the disk as numbers: the host under which DFS was measured.
//!
//! No I/O and no clock: operations go in, blocks get places, and the drive tells what the requests took. What lies on
//! the medium is kept, too, one stamp for each block, and every read is held against what was written.
//!
//! | module | what it knows |
//! |---|---|
//! | [`shape`] | cylinder groups, and where inodes lie |
//! | [`space`] | which blocks are used, and which comes next |
//! | [`inodes`] | the same of inodes and directories |
//! | [`wish`] | where a file would like its next block |
//! | [`cache`] | blocks in memory, the least used first |
//! | [`read_ahead`] | what is read before it is asked for |
//! | [`disk`] | requests, and what they take |
//! | [`system`] | files, and operations on them |
//! | [`flush`] | dirty blocks on their way to the disk, and DFS beside them |
//! | [`around`] | the region of a flush laid so that it gains most |
//! | [`books`] | sums of what was done |
//! | [`score`] | layout scores |
//! | [`replay`] | a recipe's operations, done to it |

mod around;
pub(crate) mod books;
mod cache;
mod disk;
mod flush;
mod inodes;
mod read_ahead;
pub(crate) mod replay;
pub(crate) mod score;
pub(crate) mod shape;
mod space;
pub(crate) mod system;
mod wish;

#[cfg(test)]
mod tests;
