//! A line for each read: where it went, why, and how long it took.
//!
//! Fields are parted by tabs:
//!
//! ```text
//! us  at  bytes  from  why  took_us
//! 1803  1048576  4096  server  raced  412
//! ```
//!
//! For a tree `inode` follows `us`, and `at` is a byte of that file.
//!
//! `us` is the time since the mount began. `from` is `disk`, `server`, `zeros`, `rescue` (a server, after the disk had
//! failed), `memory` (the page cache had it; nobody was asked), `parts` (it failed as a whole, and its blocks have lines of their own) or `error`. `why` is `raced` (a
//! server was asked), `not-yet` (the disk had answered before one was to be), `no-chance` (none would have been the first), `no-hash`,
//! `no-server`, `no-budget`, or `-` where nothing was to be decided.

use std::{
    fs::File,
    io::{BufWriter, Write},
    sync::mpsc::{self, SyncSender},
    thread::{self, JoinHandle},
};

use crate::race::Micros;

/// What the first line says behind the names of the time and the file.
const HEADER: &str = "at\tbytes\tfrom\twhy\ttook_us";
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
}

/// Written by a thread of its own: no read waits for it.
pub(super) struct Trace {
    lines: SyncSender<Line>,
    thread: JoinHandle<()>,
}

impl Trace {
    /// `of_files`: lines tell which file was read.
    pub(super) fn start(file: File, of_files: bool) -> std::io::Result<Self> {
        let (lines, written) = mpsc::sync_channel::<Line>(WAITING);
        let thread = thread::Builder::new().name("peer-trace".into()).spawn(move || {
            let mut file = BufWriter::new(file);
            let names = if of_files { "us\tinode" } else { "us" };
            let mut works = writeln!(file, "{names}\t{HEADER}").is_ok();
            while let Ok(first) = written.recv() {
                for line in std::iter::once(first).chain(written.try_iter()) {
                    let Line { asked, inode, at, bytes, from, why, took } = line;
                    let inode = inode.map(|inode| format!("\t{inode}")).unwrap_or_default();
                    works = works && writeln!(file, "{asked}{inode}\t{at}\t{bytes}\t{from}\t{why}\t{took}").is_ok();
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
