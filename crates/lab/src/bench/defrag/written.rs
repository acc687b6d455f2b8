//! What a trace says of writes.

use serde::{Deserialize, Serialize};

use crate::bench::share::Content;
use crate::disk::drive::Op;
use crate::disk::trace::Entry;

/// Writes until all was on the disk, the journal's and those of metadata among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Requests where files that moved lie now.
    pub(crate) content_requests: u64,
    pub(crate) content_bytes: u64,
    /// Of them those that don't begin where the one before ended: the emulated disk takes so much at once and no more.
    pub(crate) content_runs: u64,
}

pub(super) fn of<'a>(trace: impl IntoIterator<Item = &'a Entry>, content: &Content) -> Written {
    let mut written = Written::default();
    let mut end = None;
    for command in trace.into_iter().map(|entry| entry.command).filter(|command| command.op == Op::Write) {
        written.requests += 1;
        written.bytes += command.len;
        if content.touches(command.start, command.end()) {
            written.content_requests += 1;
            written.content_bytes += command.len;
            written.content_runs += u64::from(end != Some(command.start));
            end = Some(command.end());
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_runs::tests::run;

    #[test]
    fn writes_of_content_are_told_from_others() {
        let lines = [
            "0 W 4096 4096 1 0 0 1",    // the journal
            "1 W 8192 8192 1 0 0 1",    // content
            "2 R 8192 8192 1 0 0 1",    // read
            "3 W 16384 4096 1 0 0 1",   // goes on behind
            "4 F 0 0 1 0 0 1",          // a flush
            "5 W 1048576 4096 1 0 0 1", // elsewhere
        ];
        let trace: Vec<Entry> = lines.iter().filter_map(|line| Entry::parse(line)).collect();
        assert_eq!(trace.len(), lines.len());
        let content = Content::new(vec![run(8192, 12_288), run(1_048_576, 100)]);
        let expected =
            Written { requests: 4, bytes: 20_480, content_requests: 3, content_bytes: 16_384, content_runs: 2 };
        assert_eq!(of(&trace, &content), expected);
    }
}
