//! `onesweep view`: a tree shown once more, until a signal comes or a program has ended.

pub(super) mod place;
pub(super) mod shown;
mod stopped;

use std::{
    io,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};

use onesweep_sys::{process, user};
use onesweep_view::{
    ahead::{Figures, is_on_quick_disks},
    bind::{BindSettings, Bound},
    mount::{SHOWN, Settings, View},
    order::Order,
};
use signal_hook::{
    consts::{SIGHUP, SIGQUIT, SIGTERM},
    iterator::Signals,
};

use super::run::{End, as_started, cannot_wait, tell};
use crate::{
    args::{ViewArgs, ViewOrder},
    message,
    report::Failure,
    session::{heeded_of, heeded_signals},
};

pub(crate) fn run(args: ViewArgs) -> Result<u8, Failure> {
    let dir = place::prepared(&args.source, &args.dir, SHOWN)?;
    // A program may have something to do at Ctrl-\ other than to end.
    let quit = (!args.command.is_empty()).then_some(SIGQUIT);
    // Before it is shown: no signal may leave it there.
    let signals = Signals::new(heeded_signals().chain(heeded_of(quit)));
    let signals = signals.map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let told = shown::listen(signals)?;
    let shown = show(&args, &dir)?;
    if let Shown::ByKernel(bound) = &shown {
        stopped::heed(bound.pauses());
    }
    let names = (message::path_text(&args.source), message::path_text(&args.dir));
    if args.command.is_empty() {
        eprintln!("onesweep: {} is shown at {}; Ctrl-C ends it", names.0, names.1);
    }
    if args.verbose {
        eprintln!("onesweep: {}", shown.how());
    }
    let end = match args.command.split_first() {
        None => {
            shown::wait_for_end(|| shown.is_over(), &told);
            Ok(End::Code(0))
        }
        Some((program, words)) => match as_started(Command::new(program).args(words)).spawn() {
            Ok(program) => wait_for_program(program, &told),
            Err(error) => {
                eprintln!("onesweep: {}", message::of_other(&PathBuf::from(program), "run it", &error));
                Ok(End::of_refusal(&error))
            }
        },
    };
    let figures = shown.take_away(&args.dir, &dir, &told)?;
    if args.verbose {
        tell(&figures);
    }
    Ok(end.map_err(cannot_wait)?.code())
}

/// A tree that is shown, and by whom.
enum Shown {
    /// The kernel does.
    ByKernel(Box<Bound>),
    /// FUSE does, and this process reads.
    ByFuse(View, Why),
}

/// Why it is FUSE.
enum Why {
    Asked,
    /// The kernel can't show it by itself.
    Refused(io::Error),
}

impl Shown {
    fn is_over(&self) -> bool {
        match self {
            Self::ByKernel(bound) => bound.is_over(),
            Self::ByFuse(view, _) => view.is_over(),
        }
    }

    fn how(&self) -> String {
        match self {
            Self::ByKernel(bound) => bound.how(),
            Self::ByFuse(view, Why::Asked) => view.how(),
            Self::ByFuse(view, Why::Refused(error)) => {
                format!("{}; by FUSE, since the kernel can't show it itself ({error})", view.how())
            }
        }
    }

    /// Takes it away. `typed` is the place as it was typed.
    fn take_away(self, typed: &Path, dir: &Path, told: &mpsc::Receiver<i32>) -> Result<Figures, Failure> {
        match self {
            Self::ByFuse(view, _) => shown::take_away(view, (typed, dir), told),
            Self::ByKernel(mut bound) => {
                // Who still uses it reads on without this process.
                if !bound.is_over() && bound.unmount().is_err() && !bound.is_over() {
                    place::detach(dir).map_err(|error| Failure::io(typed, "unmount it", &error))?;
                }
                Ok(bound.finish())
            }
        }
    }
}

/// By the kernel, where it can and nothing was asked for that only FUSE has.
fn show(args: &ViewArgs, dir: &Path) -> Result<Shown, Failure> {
    let wants_fuse = args.fuse || args.order.is_some() || args.passthrough;
    let why = if wants_fuse || user::effective_uid() != 0 {
        Why::Asked
    } else {
        match show_by_kernel(args, dir) {
            Ok(bound) => return Ok(Shown::ByKernel(Box::new(bound))),
            Err(error) => Why::Refused(error),
        }
    };
    let view = View::show(&args.source, dir, &settings(args)).map_err(|error| shown::refused(&args.dir, &error))?;
    Ok(Shown::ByFuse(view, why))
}

fn show_by_kernel(args: &ViewArgs, dir: &Path) -> io::Result<Bound> {
    let limit = args.limit.map(|limit| limit.0);
    let settings = BindSettings { limit, read_write: args.read_write, awake: !args.low_power };
    Bound::show(&args.source.canonicalize()?, dir, &settings)
}

fn settings(args: &ViewArgs) -> Settings {
    Settings {
        order: match args.order {
            // To ask where files lie costs an open of each.
            None if is_on_quick_disks(&args.source) => Order::Inode,
            None | Some(ViewOrder::Device) => Order::Device,
            Some(ViewOrder::Inode) => Order::Inode,
            Some(ViewOrder::Name) => Order::Name,
            Some(ViewOrder::Source) => Order::Source,
        },
        limit: args.limit.map(|limit| limit.0),
        read_write: args.read_write,
        sweeps_ahead: true,
        passthrough: args.passthrough || args.read_write,
        awake: !args.low_power,
        name: SHOWN,
        allow_other: args.allow_other,
    }
}

/// What a terminal sends comes to the program as well; what is sent to this process alone is passed on.
fn wait_for_program(program: Child, told: &mpsc::Receiver<i32>) -> io::Result<End> {
    let id = program.id();
    let (ended, has_ended) = mpsc::channel();
    let program = Arc::new(Mutex::new(program));
    let waited_for = Arc::clone(&program);
    let wait = move || {
        let status = waited_for.lock().unwrap_or_else(PoisonError::into_inner).wait();
        let _ = ended.send(());
        status
    };
    let waiting = thread::Builder::new().spawn(wait);
    // Without a thread that waits it is looked at now and then.
    let looks = waiting.is_err();
    let has_ended = || match has_ended.recv_timeout(shown::LOOK / 4) {
        Err(RecvTimeoutError::Timeout) => false,
        _ if looks => {
            thread::sleep(shown::LOOK / 4);
            !matches!(program.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(None))
        }
        _ => true,
    };
    while !has_ended() {
        while let Ok(signal) = told.try_recv() {
            if matches!(signal, SIGTERM | SIGHUP) {
                let _ = process::pass_on(signal, id);
            }
        }
    }
    let ended = match waiting {
        Ok(waiting) => waiting.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended early"))),
        Err(_) => program.lock().unwrap_or_else(PoisonError::into_inner).wait(),
    };
    ended.map(End::Program)
}
