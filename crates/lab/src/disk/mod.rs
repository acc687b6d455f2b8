//! The emulated disk as numbers: no I/O, no clock. Times go in, times come out, in milliseconds.
//!
//! | module | what it knows |
//! |---|---|
//! | [`model`] | a disk's data sheet, the named ones, and TOML |
//! | [`geometry`] | zones, and where on its track an address lies |
//! | [`buffer`] | what was read ahead |
//! | [`cache`] | what is written but not yet on the medium |
//! | [`drive`] | all of these behind one command at a time |
//! | [`queue`] | which command comes next |
//! | [`books`] | sums of what it cost |
//! | [`trace`] | one line for each command |
//! | [`faults`] | bad and slow places, and what a power cut leaves |

pub(crate) mod books;
pub(crate) mod buffer;
pub(crate) mod cache;
pub(crate) mod drive;
pub(crate) mod faults;
pub(crate) mod geometry;
pub(crate) mod model;
pub(crate) mod queue;
pub(crate) mod trace;
