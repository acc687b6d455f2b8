//! The command-line program. Glue only: what a command does is in `onesweep-deliver`, how files are read in `onesweep`.
//!
//! | module | what it does |
//! |---|---|
//! | [`args`] | what was typed: one file for each command, and the options that all share |
//! | [`config`] | `/etc/onesweep/config.toml` and `ONESWEEP_…` variables, which fill in what was not typed |
//! | [`session`] | one run: cancelling, messages, plan, reading |
//! | [`forecast`] | everything that knows what a plan's estimate and a disk model look like |
//! | [`progress`] | the bar on a terminal |
//! | [`report`] | the summary, as JSON too, and the exit code |
//! | [`message`] | one line for each thing that went wrong |
//! | [`size`] | sizes and rates, read and written |
//! | [`target`] | files that get their names when they are complete |
//! | [`commands`] | one file for each command |

mod args;
mod commands;
mod config;
mod forecast;
mod message;
mod named;
mod progress;
mod remarks;
mod report;
mod session;
mod size;
mod target;
mod visible;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use report::Failure;
use signal_hook::{consts::SIGXFSZ, flag};

fn main() -> ExitCode {
    // A file that would be larger than may be (`ulimit -f`) is an error, not the end. Programs that are started don't inherit
    // this, as they would if the signal were ignored. Where it isn't possible, all else is.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let _ = onesweep_sys::signals::hear_of_ends();
    let words: Vec<OsString> = std::env::args_os().collect();
    let cannot_run = cannot_run(&words);
    let cli = match args::parse(words) {
        Ok(cli) => cli,
        Err(error) => return answer(&error, cannot_run),
    };
    // Each disk wants some hundreds; where it is not allowed, there are fewer.
    let _ = onesweep_sys::limits::raise_open_files();
    match commands::run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => ended(&failure, cannot_run),
    }
}

/// Tells of it; what it ends with.
fn ended(failure: &Failure, cannot_run: u8) -> ExitCode {
    failure.print();
    ExitCode::from(match failure.exit_code() {
        report::CANNOT_RUN => cannot_run,
        code => code,
    })
}

/// What a command ends with that could not run. Scripts that have `alias du='onesweep du'` know of GNU du's alone, which has one code for
/// whatever goes wrong.
fn cannot_run(words: &[OsString]) -> u8 {
    match words.get(1).is_some_and(|command| command == "du") {
        true => report::SOME_FAILED,
        false => report::CANNOT_RUN,
    }
}

/// Says what is wrong with what was typed, or the help or the version that was asked for.
fn answer(said: &clap::Error, cannot_run: u8) -> ExitCode {
    let written = said.print().and_then(|()| io::stdout().flush());
    if said.use_stderr() {
        return ExitCode::from(cannot_run);
    }
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ended(&Failure::output(&error, 0), cannot_run),
    }
}
