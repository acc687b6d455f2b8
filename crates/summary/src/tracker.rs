//! Which directories have changed: the paper's tracer (FastDu, 1.4 and 2), of a stock kernel's parts.
//!
//! fanotify reports what happens anywhere on a file system. When a directory's first event arrives, it is put on the list of
//! changes, and ignored from then on, so that between two harvests the kernel makes about one record for each directory that
//! changes. A harvest first ends the ignoring and then reads, in this order, so that no change is lost.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use onesweep_sys::fanotify::{Group, Happened};

use crate::{identity::NodeId, volume::Volume};

/// Something that happened, or several such things to the same inode through the same directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The directory of the name through which it was done, or that it was done to; `None` when only the inode is known.
    pub directory: Option<NodeId>,
    /// The inode that it was done to; `None` when names came or went.
    pub object: Option<NodeId>,
    /// What.
    pub happened: Happened,
}

/// What has happened since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// In no order.
    pub changes: Vec<Change>,
    /// More happened than is told.
    pub lost: bool,
}

/// Tells what changes. Nothing is told twice, and what happens in an ignored directory is not told at all.
pub trait Tracker: Sync {
    /// All that happened before this call.
    fn drain(&self) -> io::Result<Drained>;

    /// A directory is about to be read: what happens in it from now on is told.
    fn heed(&self, directory: NodeId);

    /// Whether a directory may be ignored once it has changed. It may, until this says otherwise.
    fn keep_heeding(&self, directory: NodeId, keep: bool);
}

/// Everything that can change what is summed up.
const WATCHED: Happened = Happened::MODIFY
    .union(Happened::ATTRIB)
    .union(Happened::CLOSE_WRITE)
    .union(Happened::MOVED_FROM)
    .union(Happened::MOVED_TO)
    .union(Happened::CREATE)
    .union(Happened::DELETE)
    .union(Happened::ON_DIRECTORY);

/// So long the kernel merges what happens to the same directory.
const PAUSE: Duration = Duration::from_millis(100);
/// Takes some 3,000 events.
const BUFFER_BYTES: usize = 256 << 10;
/// So many changes are kept until somebody asks for them; some 150 bytes each. Beyond, all are forgotten, and the file system
/// is asked what has changed.
const CHANGES_MAX: usize = 1 << 18;

/// The tracker of a stock kernel. Needs `CAP_SYS_ADMIN` and `CAP_DAC_READ_SEARCH`; Linux 6.0.
#[derive(Debug)]
pub struct Fanotify {
    shared: Arc<Shared>,
    drainer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    group: Group,
    volume: Arc<Volume>,
    state: Mutex<State>,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    changes: HashMap<(Option<NodeId>, Option<NodeId>), Happened>,
    ignored: HashSet<NodeId>,
    heeded: HashSet<NodeId>,
    lost: bool,
    broken: Option<io::Error>,
    buffer: Vec<u8>,
    told: u64,
}

impl State {
    fn add(&mut self, change: (Option<NodeId>, Option<NodeId>), happened: Happened) {
        *self.changes.entry(change).or_default() |= happened;
        if self.changes.len() > CHANGES_MAX {
            self.changes = HashMap::new();
            self.lost = true;
        }
    }
}

impl Fanotify {
    /// Begins to watch a file system.
    ///
    /// `PermissionDenied` without the capabilities; an error that says so below a subvolume of btrfs, which must be watched
    /// from the top of the file system.
    pub fn start(volume: Arc<Volume>) -> io::Result<Fanotify> {
        Self::start_with(volume, true)
    }

    /// The same, with a queue that the kernel bounds (`/proc/sys/fs/fanotify/max_queued_events`) unless it is `unlimited`. What
    /// finds no room there is lost, and that is told.
    pub fn start_with(volume: Arc<Volume>, unlimited: bool) -> io::Result<Fanotify> {
        let group = Group::new(unlimited)?;
        group.watch_file_system(volume.top(), WATCHED)?;
        let state = State { buffer: vec![0; BUFFER_BYTES], ..State::default() };
        let shared = Arc::new(Shared { group, volume, state: Mutex::new(state), ended: AtomicBool::new(false) });
        let drainer = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("tracker".into()).spawn(move || {
                while !shared.ended.load(Ordering::Acquire) {
                    thread::park_timeout(PAUSE);
                    shared.take(&mut shared.lock());
                }
            })?
        };
        Ok(Fanotify { shared, drainer: Some(drainer) })
    }

    /// Events that the kernel has told so far, and changes that wait to be asked for.
    pub fn told(&self) -> (u64, usize) {
        let state = self.shared.lock();
        (state.told, state.changes.len())
    }
}

impl Drop for Fanotify {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(drainer) = self.drainer.take() {
            drainer.thread().unpark();
            let _ = drainer.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Empties the kernel's queue.
    fn take(&self, state: &mut State) {
        let family = self.volume.family();
        let mut buffer = std::mem::take(&mut state.buffer);
        loop {
            let told = self.group.read(&mut buffer, |event| {
                state.told += 1;
                state.lost |= event.happened.contains(Happened::OVERFLOW);
                let node = |handle: Option<_>| handle.and_then(|handle| family.node(&handle));
                let (directory, object) = (node(event.directory), node(event.object));
                // One of a kind that isn't known names nothing: then something has happened somewhere.
                let is_unknown =
                    (event.directory.is_some() && directory.is_none()) || (event.object.is_some() && object.is_none());
                state.lost |= is_unknown;
                if directory.is_none() && object.is_none() {
                    return;
                }
                // What happens to a directory itself is told of it, not of the one that it is in.
                let object = object.filter(|_| !event.happened.contains(Happened::ON_DIRECTORY));
                state.add((directory, object), event.happened);
                if let Some(directory) = directory {
                    self.ignore(state, directory);
                }
            });
            match told {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    state.lost = true;
                    if error.kind() != io::ErrorKind::InvalidData {
                        state.broken = Some(error);
                        break;
                    }
                }
            }
        }
        state.buffer = buffer;
    }

    fn ignore(&self, state: &mut State, directory: NodeId) {
        if state.heeded.contains(&directory) {
            return;
        }
        // One that is ignored reports again when the kernel has forgotten its inode.
        let ignored = self.volume.open(directory).and_then(|fd| self.group.ignore_directory(fd.as_fd(), WATCHED));
        // Where that fails, each change is told: that costs time, and nothing else.
        if ignored.is_ok() {
            state.ignored.insert(directory);
        }
    }
}

impl Tracker for Fanotify {
    fn drain(&self) -> io::Result<Drained> {
        let mut state = self.shared.lock();
        self.shared.take(&mut state);
        if let Some(error) = state.broken.take() {
            return Err(error);
        }
        let changes = std::mem::take(&mut state.changes);
        let changes = changes.into_iter();
        Ok(Drained {
            changes: changes.map(|((directory, object), happened)| Change { directory, object, happened }).collect(),
            lost: std::mem::take(&mut state.lost),
        })
    }

    fn heed(&self, directory: NodeId) {
        let was_ignored = self.shared.lock().ignored.remove(&directory);
        if was_ignored && let Ok(fd) = self.shared.volume.open(directory) {
            let heeded = self.shared.group.heed_directory(fd.as_fd(), WATCHED);
            debug_assert!(heeded.is_ok(), "{heeded:?}");
        }
    }

    fn keep_heeding(&self, directory: NodeId, keep: bool) {
        if keep {
            self.shared.lock().heeded.insert(directory);
            self.heed(directory);
        } else {
            self.shared.lock().heeded.remove(&directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded() {
        let mut state = State::default();
        let node = |ino| Some(NodeId { subvolume: 0, ino, generation: 1 });
        for ino in 0..CHANGES_MAX as u64 {
            state.add((node(ino), None), Happened::CREATE);
            state.add((node(ino), None), Happened::DELETE);
        }
        assert!(!state.lost);
        assert_eq!(state.changes.len(), CHANGES_MAX);
        state.add((None, node(1)), Happened::ATTRIB);
        assert!(state.lost && state.changes.is_empty());
    }
}
