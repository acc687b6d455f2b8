//! What goes on beside a disk that is shown: a program that is run to its end, or nothing until a signal comes.

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use onesweep_sys::process;

use super::{Emulation, MountSpec, Spec};
use crate::interrupt::{self, Interrupt};
use crate::mount;

/// Shows a disk until a signal comes, the server ends, or the command is done.
pub(crate) fn run(spec: &Spec, mount: Option<&MountSpec>, command: &[String]) -> Result<u8, String> {
    let interrupt = Interrupt::by_signals()?;
    let mut emulation = Emulation::start(spec, mount)?;
    let code = match command {
        [] => watch(&mut emulation, &interrupt, spec, mount),
        [program, args @ ..] => accompany(&mut emulation, &interrupt, program, args),
    };
    let complaints = emulation.stop();
    let code = code?;
    if complaints.is_empty() { Ok(code) } else { Err(complaints.join("\n")) }
}

/// Waits for a signal or the server's end.
fn watch(
    emulation: &mut Emulation,
    interrupt: &Interrupt,
    spec: &Spec,
    mount: Option<&MountSpec>,
) -> Result<u8, String> {
    let shown = mount.map_or_else(|| spec.dir.join("disk"), |mount| mount.target.clone());
    println!("{} is ready as {}; end with Ctrl-C", spec.model.name, shown.display());
    let _ = std::io::stdout().flush();
    while !interrupt.came() {
        if emulation.server_is_gone() {
            // Unmounting the directory by hand is a way to end, too.
            return if mount::is_mounted(&spec.dir) { Err("the server ended".into()) } else { Ok(0) };
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(interrupt::EXIT_CODE)
}

/// Runs a command beside the disk and prints the books after it.
fn accompany(emulation: &mut Emulation, interrupt: &Interrupt, program: &str, args: &[String]) -> Result<u8, String> {
    emulation.reset()?;
    let mut command = Command::new(program);
    // A terminal's Ctrl-C reaches all that was started on it; other signals are handed on here.
    let is_group = !std::io::stdin().is_terminal();
    if is_group {
        command.process_group(0);
    }
    let mut child = command.args(args).spawn().map_err(|error| format!("can't run {program}: {error}"))?;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            eprint!("{}", emulation.stats()?);
            return Ok(status.code().map_or(1, |code| code as u8));
        }
        if interrupt.came() || emulation.server_is_gone() {
            let _ = if is_group { process::kill_group(child.id()) } else { child.kill() };
            let _ = child.wait();
            return if interrupt.came() { Ok(interrupt::EXIT_CODE) } else { Err("the server ended".into()) };
        }
        thread::sleep(Duration::from_millis(5));
    }
}
