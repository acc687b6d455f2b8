//! `libonesweep`: the sweep for programs in C, and in whatever calls C.
//!
//! DAFT's `BulkFileRead(FileList, CallBackFunction)` (II.A) is [`onesweep_bulk_read`](bulk_read::onesweep_bulk_read); with it come a
//! walk, plans, layout scores and the query of directory summaries. What each function does is said once, here, and stands so in
//! `include/onesweep.h`, which is made of this crate by cbindgen. `docs/c.md` has the guide.
//!
//! What this crate does not do: decide anything. It turns C's arguments into calls of `onesweep` and `onesweep_summary`, and
//! what comes of them into C's structures.
//!
//! # How a call goes
//!
//! ```text
//!  C ──► pointers, numbers ──► arguments ──► Rust ──► handles, structures ──► the callback
//!           checked: `ffi`, `options`          │
//!           caught, told: `fault`   ◄──────────┘ errors, panics
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`fault`] | error codes, the last error of a thread, panics that end here |
//! | `ffi` | pointers of C as references, strings, lists; strings for C |
//! | [`options`], [`cancel`], [`progress`] | what a sweep is told, how it is stopped, what it tells |
//! | [`bulk_read`] | reading and walking: paths or descriptors in, files to a callback |
//! | [`mod@file`], [`buffer`] | a file at the callback, and its bytes when they are taken over |
//! | [`plan`] | a plan that is looked at and then carried out |
//! | [`layout`] | how files lie, directory by directory |
//! | [`service`] | totals of directories, asked of `onesweep serve` |
//!
//! # Safety
//!
//! This crate is the exception to the rule that `unsafe` is in `crates/sys` alone. Handles come as `Option<&T>` and
//! `Option<Box<T>>`, which are C's pointers; so only strings, lists and descriptors (`ffi`, and who hands them on to it), files,
//! whose handles are counted (`file`), and calls of callbacks take code that is unsafe. What C must keep to stands in the header: a pointer is NULL or valid, a
//! handle is freed once and not used afterwards.
#![allow(unsafe_code)]

pub mod buffer;
pub mod bulk_read;
pub mod cancel;
pub mod fault;
mod ffi;
pub mod file;
pub mod layout;
pub mod options;
pub mod plan;
pub mod progress;
pub mod service;
pub mod version;
