//! Metadata read ahead of the walk and the survey, so that the disk has a queue of requests to choose from.
//!
//! Walk and survey look at one directory or file after the other, and while nothing is cached each look waits for the
//! disk. Once a look was seen to read from a block device, threads look at what comes next: they open, list and map, and
//! throw the answers away, which the walk and the survey then find in memory. A tree that is cached is never touched twice.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::AsFd,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use onesweep_sys::{fiemap, files, priority, usage};

use crate::{
    catalogue::EntryId,
    opener::{self, Way},
    walk::Position,
};

/// Looks in flight for each disk: what its queue holds.
const IN_FLIGHT: u64 = 32;

/// After so many looks without a read from a disk, what follows is taken to be cached as well.
const CALM: u32 = 64;

/// Threads hold two buffers and a path; names are opened by the kernel.
const STACK_BYTES: usize = 128 << 10;

/// After which a cancelled walk is noticed.
const MOMENT: Duration = Duration::from_millis(100);

const LISTING_BUFFER: usize = 32 << 10;

/// Something to be looked at.
#[derive(Debug)]
pub(crate) enum Look {
    /// A directory that is to be listed, if it is still on this device.
    Directory { at: Position, way: Way, dev: u64 },
    /// Entries whose inodes lie side by side.
    Entries(Vec<EntryLook>),
}

/// An entry that the survey will come to.
#[derive(Debug)]
pub(crate) struct EntryLook {
    pub(crate) way: Way,
    pub(crate) is_file: bool,
    /// The order needs to know where the data lies.
    pub(crate) layout: bool,
    /// Extended attributes will be delivered.
    pub(crate) xattrs: bool,
}

#[derive(Debug)]
pub(crate) struct ReadAhead {
    threads_max: u64,
    idle: bool,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    blocks_read: BlocksRead,
    /// Looks since the last one that read from a disk.
    calm: u32,
    /// The last look met content in memory.
    was_in_memory: bool,
}

/// What has come from disks up to now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct BlocksRead {
    by_looker: u64,
    by_threads: u64,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    looked: Mutex<Vec<EntryId>>,
    looked_at_one: Condvar,
    blocks_read: AtomicU64,
    /// As in the queue, for who is in the middle of a look.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Directories lie near their inodes: the one that comes next on the disk goes first, whenever it was found.
    directories: BTreeMap<Position, (Way, u64)>,
    head: (u64, u64),
    looks: VecDeque<Look>,
    closed: bool,
}

impl Queue {
    fn push(&mut self, look: Look) {
        match look {
            Look::Directory { at, way, dev } => drop(self.directories.insert(at, (way, dev))),
            look => self.looks.push_back(look),
        }
    }

    fn pop(&mut self) -> Option<Look> {
        let (base, ino) = self.head;
        let next =
            self.directories.range((base, ino, EntryId(0))..).next().or_else(|| self.directories.first_key_value());
        let Some((&at, _)) = next else { return self.looks.pop_front() };
        self.head = (at.0, at.1);
        self.directories.remove(&at).map(|(way, dev)| Look::Directory { at, way, dev })
    }

    fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.looks.is_empty()
    }
}

impl ReadAhead {
    /// For a spindle of so many disks. With `idle` the threads step back behind other readers.
    pub(crate) fn new(disks: usize, idle: bool) -> Self {
        Self {
            threads_max: IN_FLIGHT * disks as u64,
            idle,
            shared: Arc::default(),
            threads: Vec::new(),
            blocks_read: BlocksRead::default(),
            calm: CALM,
            was_in_memory: false,
        }
    }

    /// To be called before a series of looks, by the thread that looks: what it read before is no metadata.
    pub(crate) fn begin(&mut self) {
        self.blocks_read.by_looker = usage::blocks_read();
    }

    /// Tells that the last look met content of its file in memory, so that the inode, which content in memory hangs on, was there,
    /// too: to ask the kernel what was read would cost a call for each such file.
    pub(crate) fn met_in_memory(&mut self) {
        self.was_in_memory = true;
    }

    /// True while metadata comes from the disk. To be asked before each look, by the thread that looks.
    pub(crate) fn is_worthwhile(&mut self) -> bool {
        if std::mem::take(&mut self.was_in_memory) && self.calm >= CALM {
            return false;
        }
        let by_threads = self.shared.blocks_read.load(Ordering::Relaxed);
        self.note(BlocksRead { by_looker: usage::blocks_read(), by_threads })
    }

    fn note(&mut self, blocks_read: BlocksRead) -> bool {
        self.calm = if blocks_read == self.blocks_read { self.calm.saturating_add(1) } else { 0 };
        self.blocks_read = blocks_read;
        self.calm < CALM
    }

    /// Has it looked at soon, after all that was handed in before. False when nobody is there to look.
    pub(crate) fn push(&mut self, look: Look) -> bool {
        if self.threads.is_empty() {
            self.start();
        }
        if self.threads.is_empty() {
            return false;
        }
        self.shared.queue.lock().unwrap().push(look);
        self.shared.wake.notify_one();
        true
    }

    /// The directories that were looked at since the last call.
    pub(crate) fn take_looked(&self) -> Vec<EntryId> {
        std::mem::take(&mut *self.shared.looked.lock().unwrap())
    }

    /// Waits for a moment, or until a directory was looked at.
    pub(crate) fn wait_for_a_look(&self) {
        let looked = self.shared.looked.lock().unwrap();
        if looked.is_empty() {
            drop(self.shared.looked_at_one.wait_timeout(looked, MOMENT));
        }
    }

    /// Forgets what was handed in and not begun, and leaves directories that are being listed.
    fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        let mut queue = self.shared.queue.lock().unwrap();
        queue.closed = true;
        queue.directories.clear();
        queue.looks.clear();
        self.shared.wake.notify_all();
    }

    fn start(&mut self) {
        for _ in 0..opener::descriptors(self.threads_max, 8) {
            let (shared, idle) = (Arc::clone(&self.shared), self.idle);
            let thread =
                thread::Builder::new().name("onesweep-ahead".into()).stack_size(STACK_BYTES).spawn(move || {
                    if idle {
                        // As for the thread of the sweep: a kernel without I/O priorities reads all the same.
                        let _ = priority::set_idle_io();
                    }
                    shared.work();
                });
            // With fewer threads, or none, less is read ahead.
            self.threads.extend(thread);
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut looker = Looker::new();
        while let Some(look) = self.next() {
            let before = usage::blocks_read();
            looker.look(&look, &self.is_closed);
            self.blocks_read.fetch_add(usage::blocks_read() - before, Ordering::Relaxed);
            if let Look::Directory { at, .. } = look {
                self.looked.lock().unwrap().push(at.2);
                self.looked_at_one.notify_one();
            }
        }
    }

    fn next(&self) -> Option<Look> {
        let mut queue = self.queue.lock().unwrap();
        while queue.is_empty() && !queue.closed {
            queue = self.wake.wait(queue).unwrap();
        }
        queue.pop()
    }
}

/// Looks without telling: whoever needs the answer asks again, and meets the same error.
struct Looker {
    listing: files::DirReader,
    extents: fiemap::FiemapBuffer,
}

impl Looker {
    fn new() -> Self {
        Self { listing: files::DirReader::with_buffer(LISTING_BUFFER), extents: fiemap::FiemapBuffer::new(64) }
    }

    fn look(&mut self, look: &Look, is_closed: &AtomicBool) {
        match look {
            Look::Directory { way, dev, .. } => {
                let Ok(fd) = way.open_directory() else { return };
                if files::statx_fd(fd.as_fd()).is_ok_and(|stat| stat.dev == *dev) {
                    let _ = self.listing.read_while(fd.as_fd(), |_| !is_closed.load(Ordering::Relaxed));
                }
            }
            Look::Entries(entries) => entries.iter().for_each(|entry| self.look_at_entry(entry)),
        }
    }

    fn look_at_entry(&mut self, entry: &EntryLook) {
        if !entry.is_file {
            let _ = entry.way.stat();
            return;
        }
        let Ok(fd) = entry.way.open() else { return };
        if entry.layout {
            let _ = fiemap::extents(fd.as_fd(), &mut self.extents, &mut |_| {});
        }
        if entry.xattrs {
            let _ = files::list_xattrs_fd(fd.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn entry(path: &Path, is_file: bool) -> EntryLook {
        EntryLook { way: Way::to(path), is_file, layout: true, xattrs: true }
    }

    #[test]
    fn nothing_is_read_ahead_before_something_has_come_from_a_disk() {
        let mut ahead = ReadAhead::new(1, false);
        ahead.blocks_read.by_looker = 1 << 20;
        ahead.begin();
        assert!(!ahead.note(ahead.blocks_read), "what the thread read before doesn't count");
        assert!(ahead.threads.is_empty(), "a tree in memory costs no thread");
    }

    #[test]
    fn a_read_keeps_it_going_until_it_is_calm() {
        for read in [BlocksRead { by_looker: 8, by_threads: 0 }, BlocksRead { by_looker: 0, by_threads: 8 }] {
            let mut ahead = ReadAhead::new(1, false);
            let worthwhile = (0..3 * CALM).filter(|_| ahead.note(read)).count();
            assert_eq!(worthwhile, CALM as usize);
        }
    }

    #[test]
    fn what_was_in_memory_is_not_asked_for_and_the_next_look_is() {
        let mut ahead = ReadAhead::new(1, false);
        ahead.begin();
        // As if something had come from a disk since.
        ahead.blocks_read.by_looker = u64::MAX;
        ahead.met_in_memory();
        assert!(!ahead.is_worthwhile());
        assert!(ahead.is_worthwhile(), "the kernel is asked again");
        ahead.met_in_memory();
        assert!(ahead.is_worthwhile(), "while something comes from a disk each look counts");
    }

    #[test]
    fn whatever_stands_there_is_looked_at_without_harm() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), b"bytes").unwrap();
        std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(fifo.success());
        let (mut looker, is_closed) = (Looker::new(), AtomicBool::new(false));
        let dev = files::statx_at(files::CURRENT_DIR, folder.path(), true).unwrap().dev;
        for (name, dev) in [("", dev), ("", dev + 1), ("file", dev), ("gone", dev)] {
            looker.look(&Look::Directory { at: (0, 0, EntryId(0)), way: Way::to(&path(name)), dev }, &is_closed);
        }
        // The listing may have told of a file where another thing stands by now.
        let named = ["file", "link", "fifo", "gone", ""].map(|name| [true, false].map(|is| entry(&path(name), is)));
        looker.look(&Look::Entries(named.into_iter().flatten().collect()), &is_closed);
    }

    #[test]
    fn each_directory_is_told_of_once_it_was_looked_at() {
        let mut ahead = ReadAhead::new(1, false);
        let ids: Vec<EntryId> = (0..200).map(EntryId).collect();
        for &id in &ids {
            let at = (0, u64::from(id.0), id);
            assert!(ahead.push(Look::Directory { at, way: Way::to(Path::new("/gone")), dev: 0 }));
        }
        let mut looked = Vec::new();
        while looked.len() < ids.len() {
            ahead.wait_for_a_look();
            looked.extend(ahead.take_looked());
        }
        looked.sort_unstable();
        assert_eq!(looked, ids);
    }

    #[test]
    fn an_end_does_not_wait_for_all_that_was_handed_in() {
        let mut ahead = ReadAhead::new(1, true);
        let waiting = |ahead: &ReadAhead| ahead.shared.queue.lock().unwrap().looks.len();
        // Handed in behind the back of the threads, of which there is none yet.
        ahead.shared.queue.lock().unwrap().looks.push_back(Look::Entries(Vec::new()));
        assert_eq!((waiting(&ahead), ahead.threads.len()), (1, 0));
        ahead.close();
        assert_eq!(waiting(&ahead), 0);
        ahead.start();
        let shared = Arc::clone(&ahead.shared);
        drop(ahead);
        assert_eq!(Arc::strong_count(&shared), 1, "no thread is left");
    }
}
