//! `onesweep view`: a tree shown once more, until a signal comes or a program has ended.

mod place;

use std::{
    io,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::mpsc,
    thread,
    time::Duration,
};

use onesweep_sys::process;
use onesweep_view::{
    mount::{Settings, View},
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
    report::{Failure, INTERRUPTED},
    session::heeded_signals,
};

/// How often it is looked whether somebody else has unmounted it.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn run(args: ViewArgs) -> Result<u8, Failure> {
    let dir = place::prepared(&args.source, &args.dir)?;
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
        allow_other: args.allow_other,
    };
    let view = View::show(&args.source, &dir, &settings).map_err(|error| refused(&args, &error))?;
    let names = (message::path_text(&args.source), message::path_text(&args.dir));
    if args.command.is_empty() {
        eprintln!("onesweep: {} is shown at {}; Ctrl-C ends it", names.0, names.1);
    }
    if args.verbose {
        eprintln!("onesweep: {}", view.how());
    }
    let told = listen(signals);
    let code = match args.command.split_first() {
        None => {
            wait_for_end(&view, &told);
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
    take_away(view, &args, &dir, &told)?;
    code.map_err(|error: io::Error| Failure::told(format!("cannot wait for the program: {error}")))
}

fn refused(args: &ViewArgs, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound && !Path::new("/dev/fuse").exists() {
        let why = "there is no /dev/fuse; load the module with: modprobe fuse";
        return Failure::could_not_run(&args.dir, "show the tree there", why);
    }
    if error.raw_os_error().is_none() && error.kind() == io::ErrorKind::PermissionDenied {
        let why = "other users may look only if /etc/fuse.conf says user_allow_other";
        return Failure::could_not_run(&args.dir, "show the tree there", why);
    }
    Failure::io(&args.dir, "show the tree there", error)
}

/// Signals, one by one.
fn listen(mut signals: Signals) -> mpsc::Receiver<i32> {
    let (tell, told) = mpsc::channel();
    // It ends with the process.
    thread::spawn(move || {
        for signal in signals.forever() {
            if tell.send(signal).is_err() {
                return;
            }
        }
    });
    told
}

fn wait_for_end(view: &View, told: &mpsc::Receiver<i32>) {
    while told.recv_timeout(LOOK).is_err() && !view.is_over() {}
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
    while has_ended.recv_timeout(LOOK / 4).is_err() {
        while let Ok(signal) = told.try_recv() {
            if matches!(signal, SIGTERM | SIGHUP) {
                let _ = process::terminate(id);
            }
        }
    }
    waiting.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended early"))).map(code_of)
}

/// Unmounts it. Who still uses it keeps it, and is waited for until another signal comes.
fn take_away(mut view: View, args: &ViewArgs, dir: &Path, told: &mpsc::Receiver<i32>) -> Result<(), Failure> {
    if !view.is_over() && view.unmount().is_err() && !view.is_over() {
        place::detach(dir).map_err(|error| Failure::io(&args.dir, "unmount it", &error))?;
        let name = message::path_text(&args.dir);
        if !view.is_over() {
            eprintln!("onesweep: {name} is unmounted, and still in use; waiting for that (Ctrl-C: no longer)");
        }
        while !view.is_over() {
            if told.recv_timeout(LOOK).is_ok() {
                eprintln!("onesweep: {name}: those who still use it get errors from now on");
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    }
    let figures = view.wait().map_err(|error| Failure::io(&args.dir, "serve it", &error))?;
    if args.verbose {
        tell(&figures);
    }
    Ok(())
}
