//! The trace: one line of text for each command. Its form is in `docs/FORMATS.md`.

use std::fmt;

use super::drive::{Command, Op, Service};

/// The first line of every trace.
pub(crate) const HEADER: &str =
    "# onesweep-lab trace 1: time_ms op address length service_ms seek_ms rotation_ms queue";

/// One command that was served.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// When its service began, in virtual time since the disk was switched on.
    pub(crate) time_ms: f64,
    pub(crate) command: Command,
    pub(crate) service_ms: f64,
    pub(crate) seek_ms: f64,
    pub(crate) rotation_ms: f64,
    /// How many waited when it was chosen, itself included.
    pub(crate) queue: u64,
}

impl Entry {
    pub(crate) fn new(time_ms: f64, command: Command, service: &Service, queue: u64) -> Self {
        let (seek_ms, rotation_ms) = (service.seek_ms, service.rotation_ms);
        Self { time_ms, command, service_ms: service.ms(), seek_ms, rotation_ms, queue }
    }

    /// One line of a trace; `None` for anything else.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let time_ms = fields.next()?.parse().ok()?;
        let op = match fields.next()? {
            "R" => Op::Read,
            "W" => Op::Write,
            "F" => Op::Flush,
            _ => return None,
        };
        let start = fields.next()?.parse().ok()?;
        let len = fields.next()?.parse().ok()?;
        let mut time = || fields.next()?.parse().ok();
        let (service_ms, seek_ms, rotation_ms) = (time()?, time()?, time()?);
        let queue = fields.next()?.parse().ok()?;
        let command = Command { op, start, len };
        Some(Self { time_ms, command, service_ms, seek_ms, rotation_ms, queue })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time_ms, command, service_ms, seek_ms, rotation_ms, queue } = self;
        let op = match command.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Flush => 'F',
        };
        let Command { start, len, .. } = command;
        write!(out, "{time_ms:.3} {op} {start} {len} {service_ms:.3} {seek_ms:.3} {rotation_ms:.3} {queue}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back() {
        let line = "12.345 R 1048576 4096 8.412 4.100 4.273 3";
        let entry = Entry::parse(line).unwrap();
        assert_eq!(entry.to_string(), line);
        assert_eq!(entry.command, Command { op: Op::Read, start: 1 << 20, len: 4096 });
        assert_eq!(Entry::parse(HEADER), None);
        assert_eq!(Entry::parse("1 X 2 3 4 5 6 7"), None);
        assert_eq!(Entry::parse("1 R 2 3"), None);
    }
}
