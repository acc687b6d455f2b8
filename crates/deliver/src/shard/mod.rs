//! Tar shards for training runs, in WebDataset's layout, of files that come in the order of the disk.
//!
//! A data set is a directory of tar archives. Files whose paths are the same up to the first dot of the last name are one sample
//! and stand side by side in one shard; samples come in the order of the disk, shuffled within a reach.
//!
//! ```text
//!  plan ──► layout: every byte's place ──► packer ──► store ──► index
//!  names,   samples, shuffle, shards       files as   written   wids, DALI
//!  sizes    (pure)                         they come  anywhere
//! ```
//!
//! **Why places are known before.** The files of a sample may lie far apart on the disk, and a shuffle mixes samples besides; whoever
//! writes shards from their start to their end has to keep in memory what comes too early. The plan of a sweep tells names and sizes
//! of all files. Thus each byte of each shard has its place before the first file is read, every file is written there when it
//! comes, and memory never holds more than the sweep's budget, whatever the reach of the shuffle.
//!
//! **What is left out.** A sample of which a file could not be read, or has another size than the plan says, is left out as a whole, and
//! what stands behind it in its shard is moved up in the end.
//!
//! What it doesn't do: compress shards, change or decode content.
//!
//! | module | what it knows |
//! |---|---|
//! | `key` | which sample a file belongs to |
//! | `shuffle` | the order of samples |
//! | `layout` | which sample goes into which shard, and where |
//! | `packer` | files on their way to their places |
//! | `store` | the directory of the shards |
//! | `index` | `index.json` and `.idx` |

mod error;
mod index;
mod key;
mod layout;
mod packer;
mod shuffle;
mod store;

pub use error::{ShardError, ShardWarning};
pub use layout::{Layout, LeftOut, Planned, Rules};
pub use packer::{Packer, ShardTotals};
pub use store::{Directory, Store};

use crate::tar::PlainHeaders;

/// Deals out the files of a plan, which come in the order of reading.
pub fn deal(files: impl IntoIterator<Item = Planned>, rules: Rules) -> (Layout, Vec<LeftOut>) {
    let mut headers = PlainHeaders::new();
    Layout::new(files, rules, |name, size| headers.of(name, size, 0).len() as u64)
}
