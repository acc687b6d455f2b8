//! Small files of a directory moved side by side, so that a later read of them is one sweep.
//!
//! What decides is pure: numbers of blocks in, a plan out, tested without a disk. What moves is a [`host::Host`].
//!
//! ```no_run
//! use std::path::Path;
//! use onesweep_relocate::carry::Settings;
//! use onesweep_relocate::ext4::Ext4;
//! use onesweep_relocate::host::{Host, Uncached};
//! use onesweep_relocate::pack::Rules;
//! use onesweep_relocate::passes::{pack_until_rest, plan_for};
//! use onesweep_relocate::survey::{Order, files_below, survey};
//!
//! let directory = Path::new("/srv/mail");
//! let mut host = Ext4::of(directory, Uncached::Read)?;
//! host.commit()?; // what was written lately has its place now
//! let paths = files_below(directory, Order::Readdir, &mut |path, error| eprintln!("{}: {error}", path.display()))?;
//! let mut files = survey(&mut host, paths)?;
//! let settings = Settings::new(Rules::for_regions(512));
//! let plan = plan_for(&files, &settings);
//! println!("{} seeks now, {} then, {} blocks to write", plan.before.breaks(), plan.after.breaks(), plan.blocks());
//!
//! let done = pack_until_rest(&mut host, &mut files, &settings, 8, &mut |_| true);
//! println!("{} files moved, {} seeks now", done.report.files, done.after.breaks());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`places`] | where the blocks of a file lie |
//! | [`survey`] | the files below a directory, in the order of a reader |
//! | [`pack`] | which files to put side by side, pure |
//! | [`carry`] | a plan carried out |
//! | [`passes`] | plans and carries out until nothing gains any more |
//! | [`follow`] | directories put in order just after they were written |
//! | [`host`] | what moves blocks, and why a file stays |
//! | [`ext4`] | a mounted ext4 as a host |
//! | [`xfs`] | a mounted XFS as a host |
//! | [`btrfs`] | a mounted btrfs as a host |
//! | [`shown`] | any other file system: looked at, not moved |
//! | [`mounted`] | which of them a directory has |
//! | [`mod@file`] | files of all of them |
//! | [`dfs`] | the algorithm of *DFS: A De-fragmented File System*, pure: what lies in memory is put in order whenever a block of it is flushed |

pub mod btrfs;
pub mod carry;
pub mod dfs;
mod errno;
pub mod ext4;
pub mod file;
pub mod follow;
mod giving;
pub mod host;
pub mod mounted;
pub mod pack;
pub mod passes;
pub mod places;
pub mod shown;
pub mod survey;
pub mod xfs;
