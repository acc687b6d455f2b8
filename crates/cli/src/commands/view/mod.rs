//! `onesweep view`: a tree shown once more, until a signal comes or a program has ended.

pub(super) mod place;
pub(super) mod shown;

use std::{
    io,
    path::PathBuf,
    process::{Child, Command},
    sync::mpsc,
    thread,
};

use onesweep_sys::process;
use onesweep_view::{
    mount::{SHOWN, Settings, View},
    order::Order,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::run::{code_of, code_of_refusal, tell};
use crate::{
    args::{ViewArgs, ViewOrder},
    message,
    report::Failure,
    session::heeded_signals,
};

pub(crate) fn run(args: ViewArgs) -> Result<u8, Failure> {
    let dir = place::prepared(&args.source, &args.dir, SHOWN)?;
    // Before it is shown: no signal may leave it there.
    let signals = if args.command.is_empty() { heeded_signals().collect() } else { vec![SIGINT, SIGTERM, SIGHUP] };
    let signals = Signals::new(signals);
    let signals = signals.map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let settings = Settings {
        order: match args.order {
            ViewOrder::Device => Order::Device,
            ViewOrder::Inode => Order::Inode,
            ViewOrder::Name => Order::Name,
            ViewOrder::Source => Order::Source,
        },
        limit: args.limit.map(|limit| limit.0),
        read_write: args.read_write,
        sweeps_ahead: true,
        name: SHOWN,
        allow_other: args.allow_other,
    };
    let view = View::show(&args.source, &dir, &settings).map_err(|error| shown::refused(&args.dir, &error))?;
    let names = (message::path_text(&args.source), message::path_text(&args.dir));
    if args.command.is_empty() {
        eprintln!("onesweep: {} is shown at {}; Ctrl-C ends it", names.0, names.1);
    }
    if args.verbose {
        eprintln!("onesweep: {}", view.how());
    }
    let told = shown::listen(signals);
    let code = match args.command.split_first() {
        None => {
            shown::wait_for_end(&view, &told);
            Ok(0)
        }
        Some((program, words)) => match Command::new(program).args(words).spawn() {
            Ok(program) => wait_for_program(program, &told),
            Err(error) => {
                eprintln!("onesweep: {}", message::of_other(&PathBuf::from(program), "run it", &error));
                Ok(code_of_refusal(&error))
            }
        },
    };
    let figures = shown::take_away(view, (&args.dir, &dir), &told)?;
    if args.verbose {
        tell(&figures);
    }
    code.map_err(|error: io::Error| Failure::told(format!("cannot wait for the program: {error}")))
}

/// What a terminal sends comes to the program as well; what is sent to this process alone is passed on.
fn wait_for_program(mut program: Child, told: &mpsc::Receiver<i32>) -> io::Result<u8> {
    let id = program.id();
    let (ended, has_ended) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let status = program.wait();
        let _ = ended.send(());
        status
    });
    while has_ended.recv_timeout(shown::LOOK / 4).is_err() {
        while let Ok(signal) = told.try_recv() {
            if matches!(signal, SIGTERM | SIGHUP) {
                let _ = process::terminate(id);
            }
        }
    }
    waiting.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended early"))).map(code_of)
}
