//! `onesweep run`: a program with a helper ahead of it. Whatever becomes of the helper, the program runs, and its end is ours.

mod habits;
mod trees;

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    thread,
};

use clap::ValueEnum;
use onesweep_sys::process;
use onesweep_view::{
    ahead::{Ahead, Figures},
    order::Order,
    preload::Library,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::Signals,
};

use crate::{
    args::{ListingOrder, RunArgs},
    message,
    report::Failure,
    size::Size,
};

/// As env(1) and nice(1) have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// What shells add to the number of the signal that ended a program.
const BY_SIGNAL: u8 = 128;

pub(crate) fn run(args: RunArgs) -> Result<u8, Failure> {
    let trees = if args.tree.is_empty() { trees::named(&args.command) } else { args.tree.clone() };
    if trees.is_empty() {
        return Err(Failure::told("the command names no directory; say which one it reads with --tree DIR"));
    }
    let order = args.sort.map_or(Order::Source, order_of);
    let ahead = Ahead::start(&trees, args.limit.map(|limit| limit.0), order)
        .map_err(|error| Failure::told(error.to_string()))?;
    let library =
        Library::new().map_err(|error| Failure::told(format!("cannot give the program a library: {error}")))?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command.env("LD_PRELOAD", preloaded(env::var_os("LD_PRELOAD"), library.path().as_os_str()));
    command.env("ONESWEEP_BOARD", ahead.board_path());
    match args.sort.as_ref().and_then(ValueEnum::to_possible_value) {
        Some(order) => command.env("ONESWEEP_SORT", order.get_name()),
        None => command.env_remove("ONESWEEP_SORT"),
    };
    // Before the program is there: no signal may find nobody who passes it on.
    let signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP]);
    let signals = signals.map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let ended = command.spawn().and_then(|program| wait(program, signals));
    let figures = ahead.finish();
    match ended {
        Ok(status) => {
            if args.verbose {
                tell(&figures);
            }
            Ok(code_of(status))
        }
        Err(error) => {
            let program = PathBuf::from(&args.command[0]);
            eprintln!("onesweep: {}", message::of_other(&program, "run it", &error));
            Ok(code_of_refusal(&error))
        }
    }
}

fn order_of(sort: ListingOrder) -> Order {
    match sort {
        ListingOrder::Device => Order::Device,
        ListingOrder::Inode => Order::Inode,
        ListingOrder::Name => Order::Name,
    }
}

/// Waits for the program. What a terminal sends comes to it as well; what is sent to this process alone is passed on.
fn wait(mut program: Child, mut signals: Signals) -> io::Result<ExitStatus> {
    let id = program.id();
    let handle = signals.handle();
    let listener = thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if matches!(signal, SIGTERM | SIGHUP) {
                let _ = process::terminate(id);
            }
        }
    });
    let status = program.wait();
    handle.close();
    if let Ok(listener) = listener {
        let _ = listener.join();
    }
    status
}

/// Ours comes behind what is there.
fn preloaded(there: Option<OsString>, ours: &OsStr) -> OsString {
    let mut all = there.filter(|there| !there.is_empty()).map_or_else(OsString::new, |mut there| {
        there.push(":");
        there
    });
    all.push(ours);
    all
}

/// What a program that can't be run ends with.
pub(crate) fn code_of_refusal(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// What a program ended with, as shells tell it.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().and_then(|signal| u8::try_from(signal).ok()).map(|signal| BY_SIGNAL + signal);
    status.code().map(|code| code as u8).or_else(by_signal).unwrap_or(u8::MAX)
}

/// Tells what was brought in.
pub(crate) fn tell(figures: &Figures) {
    let Figures { files, bytes, sweeps, waits, given, seen, listed, asked, remark } = figures;
    let remark = remark.as_ref().map(|remark| format!("; {remark}")).unwrap_or_default();
    let times =
        |count: u64, one: &str, many: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {many}") };
    let given = match given {
        0 => String::new(),
        _ => format!(", and was given {} before it asked", times(*given, "file", "files")),
    };
    let seen = match seen {
        0 => String::new(),
        _ => format!("; {} seen ahead", times(*seen, "directory", "directories")),
    };
    let listed = match listed {
        0 => String::new(),
        _ => format!("; {} listed ahead", times(*listed, "directory", "directories")),
    };
    let asked = match asked {
        0 => String::new(),
        _ => format!("; {} asked about", times(*asked, "opening", "openings")),
    };
    eprintln!(
        "onesweep: {} ({}) brought in by {}; the program waited {}{given}{seen}{listed}{asked}{remark}",
        times(*files, "file", "files"),
        Size(*bytes),
        times(*sweeps, "sweep", "sweeps"),
        times(*waits, "time", "times"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_program_is_told_as_shells_do() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn what_is_preloaded_stays() {
        let ours = OsStr::new("/proc/1/fd/3");
        assert_eq!(preloaded(None, ours), "/proc/1/fd/3");
        assert_eq!(preloaded(Some("".into()), ours), "/proc/1/fd/3");
        assert_eq!(preloaded(Some("libfaketime.so".into()), ours), "libfaketime.so:/proc/1/fd/3");
    }
}
