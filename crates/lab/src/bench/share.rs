//! What a trace says of a run: how much of the time went to content, and where the head was.

use crate::address_runs::{self, AddressRun};
use crate::disk::drive::Op;
use crate::disk::trace::Entry;

/// Addresses that hold content, sorted, none touching the next.
#[derive(Debug, Default)]
pub(crate) struct Content {
    runs: Vec<AddressRun>,
}

impl Content {
    pub(crate) fn new(runs: Vec<AddressRun>) -> Self {
        Self { runs: address_runs::joined(runs) }
    }

    /// Whether any byte from `start` up to `end` is content.
    pub(super) fn touches(&self, start: u64, end: u64) -> bool {
        let next = self.runs.partition_point(|run| run.end <= start);
        self.runs.get(next).is_some_and(|run| run.start < end)
    }
}

/// Requests that touch content, and their time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Share {
    pub(crate) requests: u64,
    pub(crate) ms: f64,
}

pub(crate) fn of_content<'a>(trace: impl IntoIterator<Item = &'a Entry>, content: &Content) -> Share {
    let mut share = Share::default();
    for entry in trace {
        let command = entry.command;
        if command.op == Op::Read && content.touches(command.start, command.start + command.len) {
            share.requests += 1;
            share.ms += entry.service_ms;
        }
    }
    share
}

/// qtar's figure 4: the lowest and the highest address in each tenth of a second of service.
pub(crate) fn head<'a>(trace: impl IntoIterator<Item = &'a Entry>) -> Vec<(f64, u64, u64)> {
    const TENTH_MS: f64 = 100.0;
    let mut path: Vec<(f64, u64, u64)> = Vec::new();
    let mut busy_ms = 0.0;
    for entry in trace.into_iter().filter(|entry| entry.command.op != Op::Flush) {
        let tenth = (busy_ms / TENTH_MS).floor() / 10.0;
        let (start, end) = (entry.command.start, entry.command.start + entry.command.len);
        match path.last_mut() {
            Some(last) if last.0 == tenth => *last = (tenth, last.1.min(start), last.2.max(end)),
            _ => path.push((tenth, start, end)),
        }
        busy_ms += entry.service_ms;
    }
    path
}

/// How many commands the drive had to choose from, in the median and at most; `None` where there was nothing.
pub(crate) fn queue<'a>(trace: impl IntoIterator<Item = &'a Entry>) -> Option<(u64, u64)> {
    let commands = trace.into_iter().filter(|entry| entry.command.op != Op::Flush);
    let mut lengths: Vec<u64> = commands.map(|entry| entry.queue).collect();
    lengths.sort_unstable();
    Some((*lengths.get(lengths.len() / 2)?, *lengths.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_runs::tests::run;

    fn trace(lines: &[&str]) -> Vec<Entry> {
        lines.iter().filter_map(|line| Entry::parse(line)).collect()
    }

    #[test]
    fn content_is_told_from_the_rest() {
        let content = Content::new(vec![run(8192, 4096), run(0, 4096), run(4096, 904)]);
        let trace = trace(&[
            "0 R 0 4096 10 0 0 1",     // content
            "10 R 4608 512 5 0 0 1",   // the end of it
            "15 R 5120 3072 7 0 0 1",  // a gap
            "22 R 5120 4096 3 0 0 1",  // a gap read through
            "25 W 8192 4096 9 0 0 1",  // not read
            "34 R 12288 4096 1 0 0 1", // behind
        ]);
        assert_eq!(of_content(&trace, &content), Share { requests: 3, ms: 18.0 });
        assert_eq!(of_content(&trace, &Content::default()), Share::default());
    }

    #[test]
    fn the_queue_has_a_median_and_a_most() {
        let lines =
            [(1, 'R'), (9, 'R'), (2, 'W'), (40, 'F')].map(|(queue, op)| format!("0 {op} 0 4096 10 0 0 {queue}"));
        assert_eq!(queue(&trace(&lines.each_ref().map(String::as_str))), Some((2, 9)));
        assert_eq!(queue(&trace(&[])), None);
    }

    #[test]
    fn the_head_is_followed_by_tenths_of_a_second() {
        let trace = trace(&[
            "0 R 5000 100 60 0 0 1",
            "9000 R 1000 100 50 0 0 1", // thinking before it doesn't count
            "9050 R 2000 100 150 0 0 1",
            "9300 F 0 0 1 0 0 1",
            "9301 R 7000 100 1 0 0 1",
        ]);
        assert_eq!(head(&trace), [(0.0, 1000, 5100), (0.1, 2000, 2100), (0.2, 7000, 7100)]);
    }
}
