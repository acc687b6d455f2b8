//! Running a program to its end with a reader at the other side of its output.
//!
//! GNU tar reads no file when it writes to `/dev/null`: its output has to go through a pipe.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onesweep_sys::process;

use crate::interrupt::Interrupt;

/// How often an interrupt is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// What is kept of an output.
const KEPT: usize = 4 << 20;

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code, -1 after a signal.
    pub(crate) code: i32,
    pub(crate) wall_s: f64,
    /// The beginning of its output, at most 4 MiB.
    pub(crate) output: Vec<u8>,
    pub(crate) complaint: String,
}

/// Runs it. Everything it prints is read, and dropped after the first 4 MiB. An interrupt ends it, and what it started.
pub(crate) fn run(argv: &[String], interrupt: &Interrupt) -> Result<Ended, String> {
    let [program, args @ ..] = argv else {
        return Err("no program".into());
    };
    interrupt.check()?;
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("can't run {program}: {error}"))?;
    let watch = Watch::over(child.id(), interrupt);
    let complaints = child.stderr.take().map(|stderr| thread::spawn(move || drained(stderr)));
    let output = child.stdout.take().map(drained).unwrap_or_default();
    process::wait_for_end(child.id()).map_err(|error| error.to_string())?;
    let wall_s = began.elapsed().as_secs_f64();
    watch.end();
    let status = child.wait().map_err(|error| error.to_string())?;
    let complaint = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
    interrupt.check()?;
    Ok(Ended { code: status.code().unwrap_or(-1), wall_s, output, complaint })
}

/// A thread that ends a program when an interrupt comes.
struct Watch {
    /// Nothing is sent: it says by closing that the program has ended.
    ended: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watch {
    fn over(program: u32, interrupt: &Interrupt) -> Self {
        let (ended, open) = channel();
        let interrupt = interrupt.clone();
        let thread = thread::spawn(move || {
            while open.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if interrupt.came() {
                    let _ = process::kill_group(program);
                    break;
                }
            }
        });
        Self { ended, thread }
    }

    /// To be called before the program's status is taken: after that its number may be another's.
    fn end(self) {
        drop(self.ended);
        let _ = self.thread.join();
    }
}

fn drained(mut from: impl Read) -> Vec<u8> {
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 1 << 18]);
    while let Ok(len) = from.read(&mut buffer) {
        if len == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..len.min(KEPT - kept.len())]);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, interrupt: &Interrupt) -> Result<Ended, String> {
        run(&["sh", "-c", script].map(String::from), interrupt)
    }

    #[test]
    fn all_of_the_output_is_taken_and_its_beginning_kept() {
        let interrupt = Interrupt::default();
        let ended = sh("head -c 6000000 /dev/zero; echo bad >&2; exit 3", &interrupt).unwrap();
        assert_eq!((ended.code, ended.output.len(), ended.complaint.as_str()), (3, KEPT, "bad"));
        assert!(run(&["/no/such/program".to_owned()], &interrupt).is_err());
    }

    /// It returns although the program would run on: and so would the one that it has started, which holds the pipe.
    #[test]
    fn an_interrupt_ends_the_program_and_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let (started, interrupt) = (dir.path().join("started"), Interrupt::default());
        let script = format!("sleep 1000 & touch '{}'; wait; sleep 1000", started.display());
        let told = interrupt.clone();
        let teller = thread::spawn(move || {
            while !started.exists() {
                thread::sleep(Duration::from_millis(1));
            }
            told.tell();
        });
        assert_eq!(sh(&script, &interrupt).unwrap_err(), "interrupted");
        teller.join().unwrap();
        assert_eq!(sh("exit 0", &interrupt).unwrap_err(), "interrupted");
    }
}
