//! `onesweep run`: a program with a helper ahead of it. Whatever becomes of the helper, the program runs, and its end is ours.

mod end;
mod executable;
mod habits;
mod loading;
mod trees;
mod values;
mod words;
mod wrappers;

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    thread,
};

use clap::ValueEnum;
use onesweep_sys::{limits, process, signals};
use onesweep_view::{
    ahead::{Ahead, AheadError, Figures},
    order::Order,
    preload::Library,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::Signals,
};

pub(crate) use self::end::End;
use crate::{
    args::{ListingOrder, RunArgs},
    message,
    report::Failure,
    session::heeded_of,
    size::Size,
};

pub(crate) fn run(args: RunArgs) -> Result<u8, Failure> {
    let help = match help(&args)? {
        Ok(help) => Some(help),
        Err(why) => {
            eprintln!("onesweep: {why}; the program runs without help");
            None
        }
    };
    if let Some(remark) = help.as_ref().and_then(|_| loading::remark(&args.command)) {
        eprintln!("onesweep: {remark}");
    }
    let mut command = Command::new(&args.command[0]);
    as_started(command.args(&args.command[1..]));
    if let Some(help) = &help {
        help.hand_over(&mut command, args.sort);
    }
    // Before the program is there: no signal may find nobody who passes it on.
    let signals = Signals::new(heeded_of([SIGINT, SIGQUIT, SIGTERM, SIGHUP]));
    let signals = signals.map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let ended = command.spawn().map(|program| wait(program, signals));
    let figures = help.map(Help::end);
    let end = match ended {
        Ok(status) => {
            if let Some(figures) = figures.filter(|_| args.verbose) {
                tell(&Figures { remark: figures.remark.clone().or_else(|| why_none(&figures)), ..figures });
            }
            End::Program(status.map_err(cannot_wait)?)
        }
        Err(error) => {
            let program = PathBuf::from(&args.command[0]);
            eprintln!("onesweep: {}", message::of_other(&program, "run it", &error));
            End::of_refusal(&error)
        }
    };
    Ok(end.code())
}

/// Has a program begin with what this process was started with, where that has changed it for itself.
pub(crate) fn as_started(command: &mut Command) -> &mut Command {
    signals::give_back_ignored(limits::give_back_open_files(command))
}

/// How the program has ended nobody knows then.
pub(crate) fn cannot_wait(error: io::Error) -> Failure {
    Failure::told(format!("cannot wait for the program: {}", message::why(&error)))
}

/// The helper, and how the program hears of it.
struct Help {
    ahead: Ahead,
    library: Library,
}

/// Starts a helper, or tells why the program runs without one. It is a failure only where what was typed is wrong: the program alone
/// would tell what is wrong with trees that were guessed.
fn help(args: &RunArgs) -> Result<Result<Help, String>, Failure> {
    let trees = if args.tree.is_empty() {
        let named = trees::named(&args.command);
        if named.is_empty() {
            return Err(Failure::told("the command names no directory; say which one it reads with --tree DIR"));
        }
        let (readable, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|tree| fs::read_dir(tree).is_ok());
        if let (true, Some(tree)) = (readable.is_empty(), others.first()) {
            return Ok(Err(format!("{}: cannot list it", message::path_text(tree))));
        }
        readable
    } else {
        args.tree.clone()
    };
    let order = args.sort.map_or(Order::Source, order_of);
    let ahead = match Ahead::start(&trees, args.limit.map(|limit| limit.0), order) {
        Ok(ahead) => ahead,
        Err(error @ AheadError::Tree { .. }) if !args.tree.is_empty() => return Err(Failure::told(error.to_string())),
        Err(error) => return Ok(Err(error.to_string())),
    };
    Ok(match Library::new() {
        Ok(library) => Ok(Help { ahead, library }),
        Err(error) => {
            ahead.finish();
            Err(format!("cannot give the program a library: {error}"))
        }
    })
}

impl Help {
    fn hand_over(&self, command: &mut Command, sort: Option<ListingOrder>) {
        command.env("LD_PRELOAD", preloaded(env::var_os("LD_PRELOAD"), self.library.path().as_os_str()));
        command.env("ONESWEEP_BOARD", self.ahead.board_path());
        match sort.as_ref().and_then(ValueEnum::to_possible_value) {
            Some(order) => command.env("ONESWEEP_SORT", order.get_name()),
            None => command.env_remove("ONESWEEP_SORT"),
        };
    }

    fn end(self) -> Figures {
        self.ahead.finish()
    }
}

/// Why nothing was brought in, where the helper has only waited: whoever isn't helped at all has asked for nothing.
fn why_none(figures: &Figures) -> Option<String> {
    let none = "once the trees were known, no file with something in it was opened by a program that has the library";
    (figures.sweeps == 0).then(|| none.to_owned())
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
                let _ = process::pass_on(signal, id);
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
    fn who_asks_for_nothing_is_told_why_nothing_came() {
        assert!(why_none(&Figures::default()).is_some());
        assert!(why_none(&Figures { sweeps: 1, ..Figures::default() }).is_none());
    }

    #[test]
    fn what_is_preloaded_stays() {
        let ours = OsStr::new("/proc/1/fd/3");
        assert_eq!(preloaded(None, ours), "/proc/1/fd/3");
        assert_eq!(preloaded(Some("".into()), ours), "/proc/1/fd/3");
        assert_eq!(preloaded(Some("libfaketime.so".into()), ours), "libfaketime.so:/proc/1/fd/3");
    }
}
