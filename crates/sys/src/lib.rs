//! The system calls of onesweep: reads in flight, FIEMAP, cachestat, block-device facts.
//!
//! Everything here is a safe function or type. The unsafe code of the whole workspace sits in the modules of this
//! crate that open with `#![allow(unsafe_code)]`, and nowhere else; `grep` for that line gives the list to audit.
//!
//! What this crate does not do: it decides nothing. It does not know what a sweep or a plan is, retries only what the
//! kernel asks to be retried (`EINTR`), and never logs.
//!
//! ```
//! use std::sync::Arc;
//! use onesweep_sys::buffer::FileBuffer;
//! use onesweep_sys::files::{CURRENT_DIR, open_file_at};
//! use onesweep_sys::read_queue::{ReadOp, ReadPart, best_queue};
//!
//! let file = Arc::new(open_file_at(CURRENT_DIR, "Cargo.toml")?);
//! let buffer = FileBuffer::zeroed(9);
//! let parts = vec![ReadPart::Buffer(buffer.lend(0..9))];
//!
//! let mut queue = best_queue(32);
//! queue.push(ReadOp { token: 7, file, offset: 0, parts, dont_cache: false, copy: None })?;
//! let done = queue.wait()?;
//! assert_eq!((done.token, done.result?), (7, 9));
//!
//! drop(done.parts);
//! assert_eq!(&buffer.try_into_bytes().unwrap()[..], b"[package]");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`features`] | what this kernel offers, and the switch that hides it for tests |
//! | [`buffer`] | aligned memory that is lent out to reads in flight |
//! | [`read_queue`] | many positioned reads in flight: io_uring, or a small pool of threads |
//! | [`files`] | opening, making, `statx`, directories, attributes, contents |
//! | [`fiemap`], [`fibmap`] | where the blocks of a file lie |
//! | [`fsmap`] | what of a file system is free |
//! | [`cache`] | what of a file is in the page cache, and advice to it |
//! | [`inode`] | generation, flags and extended flags of an inode |
//! | [`block`] | facts about a block device |
//! | [`allocator`], [`memory`], [`limits`], [`priority`], [`usage`], [`user`] | facts and settings of this process, and of users |
//! | [`memfd`] | files in memory, and bytes in one that nobody changes |
//! | [`shared_words`] | words of memory that several processes share |
//! | [`freeze`], [`subvolume`] | frozen file systems and snapshots of btrfs, undone however this process ends |
//! | [`setting`] | a number in `/sys` that is raised for a while, likewise |
//! | [`move_extents`] | blocks of files of ext4 that change places |
//! | [`exchange_ranges`], [`swap_extents`] | places that files of XFS exchange, parts or all of them, where they have not changed meanwhile |
//! | [`sharing`] | bytes of files that come to share one place, when they are equal |
//! | [`folios`], [`one_cpu`] | what moving blocks wants to know and have |
//! | [`mounting`] | mounting for reading |
//! | [`local_time`] | times for people |
//! | [`stall`] | writes that nobody takes |
//! | [`acting`] | making files as somebody else |
//! | [`rights`] | giving up what root may do |
//! | [`confined`] | a program of somebody else's, without a network, for a bounded time |
//! | [`groups`] | groups of processes that do not outlast this one |
//! | [`fuse_guard`] | a FUSE file system that ends with its process |
//! | [`lists_apart`] | listing directories for which this process answers itself |
//! | [`process`] | ending and waiting for the programs that this one has started |
//! | [`signals`] | signals that were ignored when this process began; stopping it by one |
//! | [`xfs`] | inodes of a mounted XFS, in bulk and by number, and their names; facts about it |
//! | [`peer`] | who is at the other end of a Unix socket, and files that are handed over |
//! | [`links`] | when network links and addresses come and go |
//! | [`awake`] | processors that do not sleep while requests come in quick succession |
//! | [`ready`] | waiting for a socket, and a bell that another thread rings |
//! | [`handle`] | inodes by handles, without paths |
//! | [`fanotify`], [`inotify`] | what changes on a file system, or in directories |
//! | [`permission`] | whether something may be opened, which the kernel asks before; and which directories were |
//! | [`lease`] | whether a file is open for writing, and how long a lease on it is waited for |
//! | [`image_lock`] | whether a machine runs from an image |
//! | [`btrfs`] | items of the trees of a mounted btrfs, and its devices |

pub mod acting;
pub mod allocator;
mod apart;
pub mod awake;
pub mod block;
pub mod btrfs;
pub mod buffer;
pub mod cache;
pub mod confined;
pub mod exchange_ranges;
pub mod fanotify;
pub mod features;
pub mod fibmap;
pub mod fiemap;
pub mod files;
pub mod folios;
pub mod freeze;
pub mod fsmap;
pub mod fuse_guard;
pub mod groups;
pub mod handle;
pub mod image_lock;
pub mod inode;
pub mod inotify;
mod keeper;
pub mod lease;
pub mod limits;
pub mod links;
pub mod lists_apart;
pub mod local_time;
pub mod mappings;
pub mod memfd;
pub mod memory;
pub mod mounting;
pub mod move_extents;
pub mod one_cpu;
pub mod peer;
pub mod permission;
pub mod pressure;
pub mod priority;
pub mod process;
pub mod read_queue;
pub mod ready;
mod retry;
pub mod rights;
pub mod setting;
pub mod shared_words;
pub mod sharing;
pub mod signals;
pub mod stall;
pub mod subvolume;
pub mod swap_extents;
#[cfg(test)]
mod testing;
pub mod usage;
pub mod user;
pub mod xfs;
