//! What a run comes to: the summary, as JSON too, and the exit code.

use std::{
    io::{self, Write},
    path::Path,
};

use onesweep::{Summary, SweepError};
use serde::Serialize;

use crate::message;

/// Some files failed.
pub(crate) const SOME_FAILED: u8 = 1;
/// Nothing could be done.
pub(crate) const CANNOT_RUN: u8 = 2;
/// Ended by a signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command could not run, or had to end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was done, or no more could be; with the messages.
    Told(Vec<String>),
    /// The sweep could not start.
    Sweep(SweepError),
    /// Nobody reads the output any more, which is no error; with the exit code of what was done before.
    Closed(u8),
}

impl Failure {
    pub(crate) fn told(message: impl Into<String>) -> Self {
        Self::Told(vec![message.into()])
    }

    pub(crate) fn could_not_run(path: &Path, step: &str, why: impl std::fmt::Display) -> Self {
        Self::told(format!("{}: cannot {step}: {why}", message::path_text(path)))
    }

    pub(crate) fn io(path: &Path, step: &str, error: &io::Error) -> Self {
        Self::told(message::of_other(path, step, error))
    }

    /// Writing to standard output failed. When that is because nobody reads it any more, `code` tells how it went so far.
    pub(crate) fn output(error: &io::Error, code: u8) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed(code);
        }
        Self::io(Path::new("standard output"), "write", error)
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        match self {
            Self::Told(messages) => messages.clone(),
            Self::Sweep(error) => vec![message::of_sweep(error)],
            Self::Closed(_) => Vec::new(),
        }
    }

    pub(crate) fn print(&self) {
        let mut out = io::stderr().lock();
        for message in self.messages() {
            let _ = writeln!(out, "onesweep: {message}");
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Told(_) | Self::Sweep(_) => CANNOT_RUN,
            Self::Closed(code) => *code,
        }
    }
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Self {
        Self::Sweep(error)
    }
}

/// Files and bytes that took one way.
#[derive(Debug, Default, Serialize)]
struct Share {
    files: u64,
    bytes: u64,
}

/// The summary of a run, the same for every command; `details` are the command's own.
#[derive(Debug, Serialize)]
pub(crate) struct Report<D: Serialize> {
    command: &'static str,
    files: u64,
    bytes: u64,
    others: u64,
    errors: u64,
    cached: Share,
    streamed: Share,
    reread: Share,
    through: Share,
    unmapped_files: u64,
    dirty_files: u64,
    encrypted_files: u64,
    unknown_reparse_points: u64,
    requests: u64,
    bytes_read: u64,
    peak_budget: u64,
    windows: u64,
    cancelled: bool,
    seconds: f64,
    details: D,
}

impl<D: Serialize> Report<D> {
    /// `errors` are all that were told, the sweep's and the delivery's.
    pub(crate) fn new(command: &'static str, sweep: &Summary, errors: u64, seconds: f64, details: D) -> Self {
        Self {
            command,
            files: sweep.files,
            bytes: sweep.bytes,
            others: sweep.others,
            errors,
            cached: Share { files: sweep.cached_files, bytes: sweep.cached_bytes },
            streamed: Share { files: sweep.streamed_files, bytes: sweep.streamed_bytes },
            reread: Share { files: sweep.reread_files, bytes: sweep.reread_bytes },
            through: Share { files: sweep.through_files, bytes: sweep.through_bytes },
            unmapped_files: sweep.unmapped_files,
            dirty_files: sweep.dirty_files,
            encrypted_files: sweep.encrypted_files,
            unknown_reparse_points: sweep.unknown_reparse_points,
            requests: sweep.requests,
            bytes_read: sweep.bytes_read,
            peak_budget: sweep.peak_budget,
            windows: sweep.windows,
            cancelled: sweep.cancelled,
            seconds,
            details,
        }
    }

    /// Writes it as one line of JSON.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

/// The exit code of a run that came to its end.
pub(crate) fn exit_code(interrupted: bool, errors: u64) -> u8 {
    match (interrupted, errors) {
        (true, _) => INTERRUPTED,
        (false, 0) => 0,
        (false, _) => SOME_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_how_it_ended() {
        assert_eq!(exit_code(false, 0), 0);
        assert_eq!(exit_code(false, 3), 1);
        assert_eq!(exit_code(true, 3), 130);
        assert_eq!(Failure::told("x").exit_code(), 2);
        assert_eq!(Failure::output(&io::ErrorKind::BrokenPipe.into(), 1).exit_code(), 1);
        assert_eq!(Failure::output(&io::ErrorKind::StorageFull.into(), 0).exit_code(), 2);
    }

    #[test]
    fn the_summary_is_one_line_of_json() {
        let sweep = Summary { files: 2, cached_files: 1, cached_bytes: 7, through_files: 3, ..Summary::default() };
        let mut out = Vec::new();
        Report::new("sum", &sweep, 1, 0.5, ()).write_json(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["command"], &value["cached"]["bytes"]), (&"sum".into(), &7.into()));
        assert_eq!((&value["errors"], &value["through"]["files"]), (&1.into(), &3.into()));
    }
}
