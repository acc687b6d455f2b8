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
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return answer(&error),
    };
    // Each disk wants some hundreds; where it is not allowed, there are fewer.
    let _ = onesweep_sys::limits::raise_open_files();
    match commands::run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Says what is wrong with what was typed, or the help or the version that was asked for.
fn answer(said: &clap::Error) -> ExitCode {
    let written = said.print().and_then(|()| io::stdout().flush());
    if said.use_stderr() {
        return ExitCode::from(report::CANNOT_RUN);
    }
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let failure = Failure::output(&error, 0);
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}
