//! What is done with swept files.
//!
//! Every delivery takes the items of a sweep one by one, as `Result<SweptFile, FileError>`, and needs nothing else of
//! the engine; so each can be fed by hand in a test. None of them prints: what is to be told comes back as a value.
//!
//! | module | delivery |
//! |---|---|
//! | [`tar`] | archives, as GNU tar writes them |
//! | [`list`] | one line for each planned file |
//! | [`sum`] | manifests that `b3sum -c` and `sha256sum -c` read, and checking them |
//! | [`copy`] | `cp -a`, written in the order of reading |
//! | [`shard`] | tar shards for training runs, in WebDataset's layout |
//! | [`warm`] | the page cache, as far as it holds |
//! | [`temporary`] | names that must not outlive the process |
//! | [`attributes`] | owner, mode, times and extended attributes, set on the destination |

pub mod attributes;
pub mod copy;
pub mod find;
pub mod list;
pub mod shard;
pub mod sum;
pub mod tar;
pub mod temporary;
pub mod warm;

#[cfg(test)]
pub(crate) mod testing;
