//! Files and directories that programs have open.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fuser::BackingId;

use super::{
    contents::Content,
    nodes::{Life, NodeId},
    prepared::Entries,
};
use crate::lock;

/// Files that stay open though nobody said that they are: programs read them without opening them.
const RECENT_MAX: usize = 64;
/// How long after the last read.
const RECENT: Duration = Duration::from_secs(2);

/// A file that was just opened.
pub(super) struct Fresh {
    pub(super) file: Arc<OwnedFd>,
    pub(super) content: Arc<dyn Content>,
    pub(super) ino: u64,
    pub(super) only_grows: bool,
    pub(super) uid: u32,
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) node: Life,
    pub(super) ino: u64,
    pub(super) file: Arc<OwnedFd>,
    /// What reads it, where the daemon does.
    pub(super) content: Arc<dyn Content>,
    /// What the kernel reads and writes by itself.
    pub(super) backing: Option<Arc<BackingId>>,
    /// It was opened as what may only be appended to.
    pub(super) only_grows: bool,
    /// Who has opened it.
    pub(super) uid: u32,
}

impl OpenFile {
    fn new(node: Life, fresh: Fresh, backing: Option<Arc<BackingId>>) -> Self {
        let Fresh { file, content, ino, only_grows, uid } = fresh;
        Self { node, ino, file, content, backing, only_grows, uid }
    }
}

/// Who asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    Program,
    /// For the sake of a program, as long as nothing has to be waited for.
    Forerun,
}

/// An open directory, and its entries as they were when it was read from the beginning.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    pub(super) node: NodeId,
    pub(super) asks: Asks,
    pub(super) entries: Mutex<Option<Arc<Entries>>>,
    /// The last directory in it of which was told.
    pub(super) last_below: Mutex<Option<NodeId>>,
}

/// How the open files of a node are read: the kernel wants it to be the same way for all of them.
#[derive(Debug, Default)]
struct Way {
    by_daemon: usize,
    by_kernel: usize,
    backing: Option<Arc<BackingId>>,
}

/// What is open.
#[derive(Default)]
pub(super) struct Opened {
    count: AtomicU64,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    directories: Mutex<HashMap<u64, Arc<OpenDirectory>>>,
    ways: Mutex<HashMap<Life, Way>>,
    /// The one that was read last comes last.
    recent: Mutex<VecDeque<(Instant, Life, Arc<OpenFile>)>>,
}

/// Has the kernel read a file by itself.
pub(super) type Back<'a> = &'a dyn Fn(&OwnedFd) -> io::Result<BackingId>;

impl Opened {
    fn next(&self) -> u64 {
        // Zero is what comes where nothing was opened.
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A program has opened a file. `back` tells the kernel to read it by itself; where it is `None` or refuses, or the daemon
    /// reads the file for somebody else, the daemon does.
    pub(super) fn add_file(&self, node: Life, fresh: Fresh, back: Option<Back<'_>>) -> (u64, Arc<OpenFile>) {
        let mut ways = lock(&self.ways);
        let way = ways.entry(node).or_default();
        let backing = match back {
            _ if way.by_daemon > 0 => None,
            _ if way.backing.is_some() => way.backing.clone(),
            Some(back) => back(&fresh.file).ok().map(Arc::new),
            None => None,
        };
        match &backing {
            Some(_) => way.by_kernel += 1,
            None => way.by_daemon += 1,
        }
        way.backing.clone_from(&backing);
        drop(ways);
        let number = self.next();
        let open = Arc::new(OpenFile::new(node, fresh, backing));
        lock(&self.files).insert(number, Arc::clone(&open));
        (number, open)
    }

    /// It has closed it.
    pub(super) fn remove_file(&self, number: u64) -> Option<Arc<OpenFile>> {
        let open = lock(&self.files).remove(&number)?;
        let mut ways = lock(&self.ways);
        let Some(way) = ways.get_mut(&open.node) else {
            drop(ways);
            return Some(open);
        };
        match open.backing {
            Some(_) => way.by_kernel -= 1,
            None => way.by_daemon -= 1,
        }
        if way.by_kernel == 0 {
            way.backing = None;
        }
        if way.by_kernel + way.by_daemon == 0 {
            ways.remove(&open.node);
        }
        drop(ways);
        Some(open)
    }

    pub(super) fn file(&self, number: u64) -> Option<Arc<OpenFile>> {
        lock(&self.files).get(&number).cloned()
    }

    /// A file that nobody has opened, for some reads.
    pub(super) fn recent(&self, node: Life, open: impl FnOnce() -> io::Result<Fresh>) -> io::Result<Arc<OpenFile>> {
        if let Some(known) = self.used_again(node) {
            return Ok(known);
        }
        let open = Arc::new(OpenFile::new(node, open()?, None));
        let mut recent = lock(&self.recent);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back((Instant::now(), node, Arc::clone(&open)));
        Ok(open)
    }

    fn used_again(&self, node: Life) -> Option<Arc<OpenFile>> {
        let mut recent = lock(&self.recent);
        let at = recent.iter().rposition(|(_, of, _)| *of == node)?;
        let (_, _, open) = recent.remove(at)?;
        recent.push_back((Instant::now(), node, Arc::clone(&open)));
        Some(open)
    }

    /// Closes what nobody has asked for lately: what was removed may then give its place back.
    pub(super) fn close_recent(&self) {
        lock(&self.recent).retain(|(used, _, _)| used.elapsed() < RECENT);
    }

    pub(super) fn add_directory(&self, node: NodeId, asks: Asks) -> u64 {
        let number = self.next();
        let open = OpenDirectory { node, asks, entries: Mutex::default(), last_below: Mutex::default() };
        lock(&self.directories).insert(number, Arc::new(open));
        number
    }

    pub(super) fn remove_directory(&self, number: u64) -> Option<Arc<OpenDirectory>> {
        lock(&self.directories).remove(&number)
    }

    pub(super) fn directory(&self, number: u64) -> Option<Arc<OpenDirectory>> {
        lock(&self.directories).get(&number).cloned()
    }
}
