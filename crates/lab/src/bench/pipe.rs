//! Running a program to its end with a reader at the other side of its output.
//!
//! GNU tar reads no file when it writes to `/dev/null`: its output has to go through a pipe.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

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

/// Runs it. Everything it prints is read, and dropped after the first 4 MiB.
pub(crate) fn run(argv: &[String]) -> Result<Ended, String> {
    let [program, args @ ..] = argv else {
        return Err("no program".into());
    };
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("can't run {program}: {error}"))?;
    let complaints = child.stderr.take().map(|stderr| thread::spawn(move || drained(stderr)));
    let output = child.stdout.take().map(drained).unwrap_or_default();
    let status = child.wait().map_err(|error| error.to_string())?;
    let wall_s = began.elapsed().as_secs_f64();
    let complaint = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
    Ok(Ended { code: status.code().unwrap_or(-1), wall_s, output, complaint })
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

    fn sh(script: &str) -> Ended {
        run(&["sh", "-c", script].map(String::from)).unwrap()
    }

    #[test]
    fn all_of_the_output_is_taken_and_its_beginning_kept() {
        let ended = sh("head -c 6000000 /dev/zero; echo bad >&2; exit 3");
        assert_eq!((ended.code, ended.output.len(), ended.complaint.as_str()), (3, KEPT, "bad"));
        assert!(run(&["/no/such/program".to_owned()]).is_err());
    }
}
