//! A line for each read: where it went, why, and how long it took.
//!
//! Fields are parted by tabs:
//!
//! ```text
//! us  at  bytes  from  why  took_us  servers
//! 1803  1048576  4096  server  raced  412  box:7497
//! ```
//!
//! For a tree `inode` follows `us`, and `at` is a byte of that file.
//!
//! `us` is the time since the mount began. `from` is `disk`, `server`, `zeros`, `rescue` (a server, after the disk had
//! failed), `memory` (the page cache had it; nobody was asked), `parts` (it failed as a whole, and its blocks have lines of their own) or `error`. `why` is `raced` (a
//! server was asked), `not-yet` (the disk had answered before one was to be), `no-chance` (none would have been the first), `no-hash`,
//! `no-server`, `no-budget`, or `-` where nothing was to be decided. `servers` are those that the blocks came from, as they are named
//! in the configuration and in its order, with commas between; `-` where none has answered.

use std::{
    fs::File,
    io::{BufWriter, Write},
    sync::mpsc::{self, SyncSender},
    thread::{self, JoinHandle},
};

use crate::race::{Micros, PeerId};

/// What the first line says behind the names of the time and the file.
const HEADER: &str = "at\tbytes\tfrom\twhy\ttook_us\tservers";
/// Lines that wait to be written, at most.
const WAITING: usize = 1 << 14;

/// A read that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) asked: Micros,
    /// The file of a tree.
    pub(super) inode: Option<u64>,
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) from: &'static str,
    pub(super) why: &'static str,
    pub(super) took: Micros,
    /// Who answered: a bit for each server, in the order of the configuration.
    pub(super) servers: PeerId,
}

/// Written by a thread of its own: no read waits for it.
pub(super) struct Trace {
    lines: SyncSender<Line>,
    thread: JoinHandle<()>,
}

impl Trace {
    /// `of_files`: lines tell which file was read.
    /// `servers`: their names, in the order of the configuration.
    pub(super) fn start(file: File, of_files: bool, servers: &[String]) -> std::io::Result<Self> {
        let servers: Vec<String> = servers.iter().map(|name| name.replace([',', '\t', '\n'], "?")).collect();
        let (lines, written) = mpsc::sync_channel::<Line>(WAITING);
        let thread = thread::Builder::new().name("peer-trace".into()).spawn(move || {
            let mut file = BufWriter::new(file);
            let names = if of_files { "us\tinode" } else { "us" };
            let mut works = writeln!(file, "{names}\t{HEADER}").is_ok();
            while let Ok(first) = written.recv() {
                for line in std::iter::once(first).chain(written.try_iter()) {
                    let Line { asked, inode, at, bytes, from, why, took, servers: by } = line;
                    let inode = inode.map(|inode| format!("\t{inode}")).unwrap_or_default();
                    let by = names_of(by, &servers);
                    works =
                        works && writeln!(file, "{asked}{inode}\t{at}\t{bytes}\t{from}\t{why}\t{took}\t{by}").is_ok();
                }
                works = works && file.flush().is_ok();
            }
        })?;
        Ok(Self { lines, thread })
    }

    /// Whether there was room for it.
    pub(super) fn write(&self, line: Line) -> bool {
        self.lines.try_send(line).is_ok()
    }

    /// Waits until all is written.
    pub(super) fn end(self) {
        drop(self.lines);
        let _ = self.thread.join();
    }
}

/// The names of a set of servers.
fn names_of(set: PeerId, servers: &[String]) -> String {
    let is_in = |at: &usize| set.0.checked_shr(*at as u32).is_some_and(|rest| rest & 1 == 1);
    let names: Vec<&str> = (0..servers.len()).filter(is_in).map(|at| servers[at].as_str()).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn a_line_names_the_servers_that_answered_in_the_order_of_the_configuration() {
        let mut file = tempfile::tempfile().unwrap();
        let names: Vec<String> = ["one:1", "two:2", "a,b\tc", "four:4"].map(String::from).to_vec();
        let trace = Trace::start(file.try_clone().unwrap(), true, &names).unwrap();
        for servers in [0, 0b10, 0b1101] {
            let from = if servers == 0 { "disk" } else { "server" };
            let line = Line {
                asked: 5,
                inode: Some(12),
                at: 4096,
                bytes: 8192,
                from,
                why: "raced",
                took: 7,
                servers: PeerId(servers),
            };
            assert!(trace.write(line));
        }
        trace.end();
        let mut written = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut written)).unwrap();
        let lines = [
            "us\tinode\tat\tbytes\tfrom\twhy\ttook_us\tservers",
            "5\t12\t4096\t8192\tdisk\traced\t7\t-",
            "5\t12\t4096\t8192\tserver\traced\t7\ttwo:2",
            "5\t12\t4096\t8192\tserver\traced\t7\tone:1,a?b?c,four:4",
        ];
        assert_eq!(written.lines().collect::<Vec<_>>(), lines);
    }
}
