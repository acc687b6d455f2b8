//! `onesweep peer mount`: a device or a tree whose reads are raced (docs/peer.md).
//!
//! A tree is shown by one process. For a device there are two. One serves the device; it must not end while something stands on it. The other, which was typed, starts it,
//! puts the loop device and the file system on what it shows, and takes all down when it is told to end, or when the first has
//! died. When this one is killed, the first notices and takes all down.

mod bounds;
mod patterns;
mod serve;
mod stack;
mod tree;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};

use onesweep_peer::mount::BLOCK_FILE;
use onesweep_sys::process;
use signal_hook::iterator::Signals;

use crate::{
    args::PeerMountArgs,
    commands::serve::{log, ready},
    message,
    report::{CANNOT_RUN, Failure, SOME_FAILED},
    session::heeded_signals,
};

/// What the process that serves says when the device is there.
const READY: &str = "ready";

pub(super) fn run(args: &PeerMountArgs) -> Result<u8, Failure> {
    let _switch = log::start(args.log);
    match (&args.tree, &args.device) {
        (Some(source), _) => tree::run(args, source),
        (None, Some(device)) if args.serving => serve::run(args, device),
        (None, Some(device)) => watch_over(args, device),
        (None, None) => Err(Failure::told("name a device by --device, or a directory by --dir")),
    }
}

enum News {
    Signal,
    Ended,
}

fn watch_over(args: &PeerMountArgs, shown: &Path) -> Result<u8, Failure> {
    let dir = stack::absolute(&args.dir).map_err(|error| Failure::io(&args.dir, "show the device there", &error))?;
    let mnt = args.mount.as_deref().map(|mnt| (mnt, stack::absolute(mnt)));
    let mnt = match mnt {
        Some((mnt, absolute)) => Some(absolute.map_err(|error| Failure::io(mnt, "mount it there", &error))?),
        None => None,
    };
    look_at_the_place(&dir)?;
    let mut signals =
        Signals::new(heeded_signals()).map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let mut server = start()?;
    let mut line = String::new();
    let answered = server.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    if !matches!(answered, Some(Ok(_))) || line.trim() != READY {
        // It has said why.
        let ended = server.wait().ok().and_then(|status| status.code());
        return Ok(ended.and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0).unwrap_or(CANNOT_RUN));
    }
    let mut waited = Ok(());
    let stacked = mnt.as_deref().map_or(Ok(()), |mnt| stack_up(args, shown, &dir, mnt));
    if stacked.is_ok() {
        let at = mnt.as_deref().map(|mnt| format!(", mounted at {}", message::path_text(mnt))).unwrap_or_default();
        tracing::info!("{} is shown at {}{at}", message::path_text(shown), message::path_text(&dir));
        ready::ready("showing a device");
        waited = wait(&mut signals, server.id());
    }
    ready::stopping();
    let complaints = stack::take_down(&dir);
    for complaint in &complaints {
        tracing::warn!("{complaint}");
    }
    // It ends when nobody uses what it shows any more.
    drop(server.stdin.take());
    let status = server.wait().map_err(|error| Failure::told(format!("cannot wait for the server: {error}")))?;
    stacked.and(waited)?;
    Ok(match status.code() {
        Some(0) if complaints.is_empty() => 0,
        Some(0) => SOME_FAILED,
        Some(code) => u8::try_from(code).unwrap_or(CANNOT_RUN),
        None => {
            tracing::error!("the process that served the device has died ({status})");
            CANNOT_RUN
        }
    })
}

/// What a run that was killed has left there goes; what else is there stays, and is in the way.
fn look_at_the_place(dir: &Path) -> Result<(), Failure> {
    if stack::is_shown(dir) && fs::read(dir.join(onesweep_peer::mount::METRICS_FILE)).is_ok() {
        return Err(Failure::could_not_run(dir, "show the device there", "another one is shown there"));
    }
    for complaint in stack::take_down(dir) {
        tracing::warn!("left by a run that was killed: {complaint}");
    }
    let mut entries = fs::read_dir(dir).map_err(|error| Failure::io(dir, "show the device there", &error))?;
    if entries.next().is_some() {
        return Err(Failure::could_not_run(dir, "show the device there", "it is not empty"));
    }
    Ok(())
}

fn start() -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::told(format!("cannot start the process that serves: {error}"));
    let program = env::current_exe().map_err(failed)?;
    Command::new(program)
        .args(env::args_os().skip(1))
        .arg("--serving")
        // Ctrl-C is for this process.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)
}

fn stack_up(args: &PeerMountArgs, shown: &Path, dir: &Path, mnt: &Path) -> Result<(), Failure> {
    let turns = !serve::is_seekless(shown);
    let device = stack::attach(&dir.join(BLOCK_FILE), args.read_only, turns).map_err(Failure::told)?;
    let options = match (&args.options, args.read_only) {
        (Some(options), true) => Some(format!("ro,{options}")),
        (None, true) => Some("ro".to_owned()),
        (options, false) => options.clone(),
    };
    stack::mount(&device, mnt, args.fs_type.as_deref(), options.as_deref()).map_err(Failure::told)
}

/// Until somebody wants it to end, or the server has died.
fn wait(signals: &mut Signals, server: u32) -> Result<(), Failure> {
    let (tell, told) = mpsc::channel();
    let (other, handle) = (tell.clone(), signals.handle());
    // Not waited for: it stays until the server has ended.
    let waiting = thread::Builder::new().spawn(move || {
        let _ = process::wait_for_end(server);
        let _ = other.send(News::Ended);
        handle.close();
    });
    waiting.map_err(|error| Failure::told(message::no_thread(&error)))?;
    if signals.forever().next().is_some() {
        let _ = tell.send(News::Signal);
    }
    match told.recv() {
        Ok(News::Ended) | Err(_) => tracing::error!("the process that serves the device has ended"),
        Ok(News::Signal) => tracing::info!("taking it down"),
    }
    Ok(())
}
