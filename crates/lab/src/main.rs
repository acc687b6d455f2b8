//! The lab of onesweep: an emulated disk under real file systems, ageing, and bounds to measure against.
//!
//! | module | what it does |
//! |---|---|
//! | [`disk`] | the disk as numbers: no I/O, no clock |
//! | [`server`] | the thread that serves commands by it |
//! | [`inbox`] | the commands that wait for it |
//! | [`fuse`] | the directory that shows it |
//! | [`mount`] | loop devices and mounts, and taking them down |
//! | [`emulate`] | `disk`: all of these together, guarded |
//! | [`age`] | `age`: images from recipes |
//! | [`mod@bench`] | `bench`: every program on the same cold images, tables and pictures |
//! | [`ffs`] | a model of FFS, on which DFS is measured as in its paper |
//! | [`bound`] | `bound`: streaming an image's files, and one perfect sweep over them |
//! | [`args`] | what was typed |
//! | [`interrupt`], [`partial`] | ending in order; files that are there as a whole or not at all |
//! | [`scratch`] | directories of a run's own |
//! | [`random`], [`size`], [`address_runs`] | numbers from a seed; sizes as typed; runs of bytes of a device |

mod address_runs;
mod age;
mod args;
mod bench;
mod bound;
mod disk;
mod emulate;
mod ffs;
mod fuse;
mod inbox;
mod interrupt;
mod mount;
mod partial;
mod random;
mod scratch;
mod server;
mod size;

use std::process::ExitCode;

fn main() -> ExitCode {
    match args::run() {
        Ok(code) => ExitCode::from(code),
        Err(complaint) => {
            eprintln!("onesweep-lab: {complaint}");
            ExitCode::from(2)
        }
    }
}
