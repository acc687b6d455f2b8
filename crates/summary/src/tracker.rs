//! Which directories have changed: the paper's tracer (FastDu, 1.4 and 2), of a stock kernel's parts.
//!
//! fanotify reports what happens anywhere on a file system. When a directory's first event arrives, it is put on the list of
//! changes; when more arrives in a later round, it is ignored from then on, so that between two harvests the kernel makes few
//! records for each directory that changes. One that is filled at once and left alone, as most are when a tree is unpacked, isn't
//! worth a mark. A harvest first ends the ignoring and then reads, in this order, so that no change is lost.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use onesweep_sys::{
    fanotify::{Group, Happened},
    handle::FileHandle,
    ready::{self, Bell, Wanted},
};

use crate::{
    file_system::FileSystem,
    identity::NodeId,
    order::{Map, Set},
};

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

impl Change {
    /// Whether somebody may not come any more to what is in the directory: its rights are others, or one in it has moved.
    pub(crate) fn may_close(&self) -> bool {
        self.happened.contains(Happened::ATTRIB)
            || self.happened.contains(Happened::MOVED_FROM.union(Happened::ON_DIRECTORY))
    }
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

    /// True when a [`drain`](Self::drain) now would find nothing. Nothing is taken.
    fn is_quiet(&self) -> bool {
        false
    }

    /// A directory is about to be read: what happens in it from now on is told.
    fn heed(&self, directory: NodeId);

    /// The same of several.
    fn heed_each(&self, directories: &[NodeId]) {
        directories.iter().for_each(|&directory| self.heed(directory));
    }

    /// The same of all directories, until they change for the first time after this. False where that can't be done.
    fn heed_all(&self) -> bool {
        false
    }

    /// Whether a directory may be ignored once it has changed. It may, until this says otherwise.
    fn keep_heeding(&self, directory: NodeId, keep: bool);

    /// What was told is forgotten: from now on all is told again, and the next [`drain`](Self::drain) says that something was
    /// lost.
    fn start_anew(&self);
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

/// When the size of a file that is written is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizesFollow {
    /// With each write, which costs each write some time.
    #[default]
    Write,
    /// When it is closed. What stays open has to be looked at from time to time, and what is cut by its path has to be asked for.
    Close,
}

impl SizesFollow {
    /// What the kernel is asked to tell. Without [`Happened::MODIFY`] a write passes by all of it.
    pub(crate) fn watched(self) -> Happened {
        match self {
            SizesFollow::Write => WATCHED,
            SizesFollow::Close => WATCHED.difference(Happened::MODIFY),
        }
    }

    /// What it doesn't tell of a directory that is ignored. What happens to directories in it (their owner, rights and times) is in no
    /// other's reading, and would be lost; that one is made or moved there can't be told apart from that.
    pub(crate) fn ignored(self) -> Happened {
        self.watched().difference(Happened::ON_DIRECTORY)
    }
}

/// So long the kernel merges what happens to the same directory.
const PAUSE: Duration = Duration::from_millis(100);
// The bounds are below seven eighths of a power of two, beyond which a table of hashes has twice as many places.
/// So many directories are ignored at a time; some 30 bytes each. Beyond, all are told of again: some may have been removed
/// since, and nobody asks for those.
const IGNORED_MAX: usize = 220_000;
/// So many directories are remembered to have been told of once; some 30 bytes each. Beyond, all are forgotten, and ignored one
/// telling later.
const ONCE_MAX: usize = 56_000;
/// Takes some 3,000 events.
const BUFFER_BYTES: usize = 256 << 10;
/// So many changes are kept until somebody asks for them; some 90 bytes each. Beyond, all are forgotten, and the file system
/// is asked what has changed.
const CHANGES_MAX: usize = 450_000;
/// What is left over of room for so many that were ignored is kept.
const SPARE: usize = 1 << 12;

/// The tracker of a stock kernel. Needs `CAP_SYS_ADMIN` and `CAP_DAC_READ_SEARCH`; Linux 6.1.
#[derive(Debug)]
pub struct Fanotify {
    shared: Arc<Shared>,
    drainer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    group: Group,
    volume: Arc<dyn FileSystem>,
    state: Mutex<State>,
    ended: AtomicBool,
    /// Rung at the end.
    bell: Bell,
    /// The process that moves blocks and changes nothing; 0 where there is none.
    mover: AtomicI32,
}

#[derive(Debug, Default)]
struct State {
    changes: Map<(Option<NodeId>, Option<NodeId>), Happened>,
    /// Told of in one round, and not ignored since.
    once: Set<NodeId>,
    ignored: Set<NodeId>,
    heeded: Set<NodeId>,
    lost: bool,
    broken: Option<io::Error>,
    buffer: Vec<u8>,
    told: u64,
}

impl State {
    /// Those that were told of in an earlier round, too.
    fn told_again(&mut self, reported: Set<NodeId>) -> Vec<NodeId> {
        let (again, first): (Vec<_>, Vec<_>) = reported.into_iter().partition(|id| self.once.remove(id));
        if self.once.len() + first.len() > ONCE_MAX {
            self.once = Set::default();
        }
        self.once.extend(first.into_iter().take(ONCE_MAX));
        again
    }

    fn add(&mut self, change: (Option<NodeId>, Option<NodeId>), happened: Happened) {
        *self.changes.entry(change).or_default() |= happened;
        if self.changes.len() > CHANGES_MAX {
            self.changes = Map::default();
            self.lost = true;
        }
    }
}

impl Fanotify {
    /// Begins to watch a file system.
    ///
    /// `PermissionDenied` without the capabilities; an error that says so below a subvolume of btrfs, which must be watched
    /// from the top of the file system.
    pub fn start(volume: Arc<dyn FileSystem>) -> io::Result<Fanotify> {
        Self::start_with(volume, true)
    }

    /// The same, with a queue that the kernel bounds (`/proc/sys/fs/fanotify/max_queued_events`) unless it is `unlimited`. What
    /// finds no room there is lost, and that is told.
    pub fn start_with(volume: Arc<dyn FileSystem>, unlimited: bool) -> io::Result<Fanotify> {
        let group = watch(volume.top(), unlimited, volume.sizes_follow())?;
        Self::take_up(volume, group)
    }

    /// The same of a group that watches the file system already. Needs no privilege.
    pub fn take_up(volume: Arc<dyn FileSystem>, group: Group) -> io::Result<Fanotify> {
        let state = State { buffer: vec![0; BUFFER_BYTES], ..State::default() };
        let shared = Arc::new(Shared {
            group,
            volume,
            state: Mutex::new(state),
            ended: AtomicBool::new(false),
            bell: Bell::new()?,
            mover: AtomicI32::new(0),
        });
        let drainer = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("tracker".into()).spawn(move || shared.take_what_comes())?
        };
        Ok(Fanotify { shared, drainer: Some(drainer) })
    }

    /// As if the kernel had told that something happened in a directory.
    #[cfg(test)]
    pub(crate) fn tell(&self, directory: NodeId) {
        self.shared.lock().add((Some(directory), None), Happened::MODIFY);
    }

    /// For who moves blocks of files.
    pub fn moves(&self) -> Moves {
        Moves(Arc::downgrade(&self.shared))
    }

    /// Whether the kernel was asked to say no more of what happens in a directory, which was told of in two rounds. It may have forgotten that.
    pub fn ignores(&self, directory: NodeId) -> bool {
        self.shared.lock().ignored.contains(&directory)
    }

    /// Events that the kernel has told so far, and changes that wait to be asked for.
    pub fn told(&self) -> (u64, usize) {
        let state = self.shared.lock();
        (state.told, state.changes.len())
    }
}

/// What a tracker has to know of a process that moves blocks of files.
#[derive(Clone, Debug)]
pub struct Moves(Weak<Shared>);

impl Moves {
    /// What this process does from now on is no change; 0 where none moves any more, which has to be told before another process can
    /// get the number. The kernel merges nothing of one process with what another does.
    pub fn are_by(&self, process: u32) {
        if let Some(shared) = self.0.upgrade() {
            // Who is taking what was told goes by the number before.
            let _state = shared.lock();
            shared.mover.store(i32::try_from(process).unwrap_or_default(), Ordering::Relaxed);
        }
    }

    /// Files of a directory of the file system with this device take more or fewer blocks now. `None` when the tracker is gone.
    pub fn sizes_changed(&self, dev: u64, directory: &FileHandle) -> Option<()> {
        let shared = self.0.upgrade()?;
        if shared.volume.may_hold(dev)
            && let Some(node) = shared.volume.family().and_then(|family| family.node(directory))
        {
            shared.lock().add((Some(node), None), Happened::MODIFY);
        }
        Some(())
    }
}

/// A group that watches the file system of `top`: see [`Fanotify::start_with`].
pub(crate) fn watch(top: BorrowedFd<'_>, unlimited: bool, sizes: SizesFollow) -> io::Result<Group> {
    let group = Group::new(unlimited)?;
    group.watch_file_system(top, sizes.watched())?;
    Ok(group)
}

impl Drop for Fanotify {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(drainer) = self.drainer.take() {
            self.shared.bell.ring();
            let _ = drainer.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Until it ends. Sleeps as long as nothing happens.
    fn take_what_comes(&self) {
        let events = Wanted { read: true, write: false };
        while !self.ended.load(Ordering::Acquire) {
            // Where either fails, it is asked from time to time: what is told waits for who asks in any case.
            let heard = ready::wait(self.group.as_fd(), events, &self.bell, None);
            if heard.is_ok_and(|heard| heard.is_rung) {
                continue;
            }
            if ready::wait_for_bell(&self.bell, Some(PAUSE)).is_err() {
                thread::sleep(PAUSE);
            }
            self.take(&mut self.lock());
        }
    }

    /// Empties the kernel's queue.
    fn take(&self, state: &mut State) {
        let family = self.volume.family();
        let mut buffer = std::mem::take(&mut state.buffer);
        let mut reported = Set::default();
        loop {
            let mover = self.mover.load(Ordering::Relaxed);
            let told = self.group.read(&mut buffer, |event| {
                state.told += 1;
                state.lost |= event.happened.contains(Happened::OVERFLOW);
                if mover != 0 && event.pid == mover {
                    return;
                }
                let node = |handle: Option<_>| handle.and_then(|handle| family?.node(&handle));
                let (directory, object) = (node(event.directory), node(event.object));
                // One of a kind that isn't known names nothing: then something has happened somewhere.
                let is_unknown =
                    (event.directory.is_some() && directory.is_none()) || (event.object.is_some() && object.is_none());
                state.lost |= is_unknown;
                if directory.is_none() && object.is_none() {
                    return;
                }
                // What happens to a directory itself is told of it, not of the one that it is in.
                let is_of_directory = event.happened.contains(Happened::ON_DIRECTORY);
                let object = object.filter(|_| !is_of_directory);
                state.add((directory, object), event.happened);
                // Of those in one that is ignored it is told all the same.
                let is_known =
                    |id: &NodeId| state.heeded.contains(id) || (is_of_directory && state.ignored.contains(id));
                reported.extend(directory.filter(|id| !is_known(id)));
            });
            let again = state.told_again(std::mem::take(&mut reported));
            self.ignore(state, again);
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

    fn ignore(&self, state: &mut State, reported: Vec<NodeId>) {
        if reported.is_empty() {
            return;
        }
        // Where that fails, each change is told: that costs time, and nothing else.
        let are_ignored = self.volume.ignore(&self.group, &reported).into_iter();
        state
            .ignored
            .extend(reported.into_iter().zip(are_ignored).filter_map(|(id, is_ignored)| is_ignored.then_some(id)));
        if state.ignored.len() > IGNORED_MAX {
            // Where that fails the next time will do.
            let _ = self.heed_all(state);
        }
    }

    fn heed_all(&self, state: &mut State) -> io::Result<()> {
        self.group.heed_all()?;
        state.ignored = Set::default();
        Ok(())
    }
}

impl Tracker for Fanotify {
    fn drain(&self) -> io::Result<Drained> {
        let mut state = self.shared.lock();
        self.shared.take(&mut state);
        if let Some(error) = state.broken.take() {
            return Err(error);
        }
        if state.lost {
            // What is ignored may look like what is known: from now on it has to be told.
            self.shared.heed_all(&mut state)?;
        }
        let changes = std::mem::take(&mut state.changes);
        let changes = changes.into_iter();
        Ok(Drained {
            changes: changes.map(|((directory, object), happened)| Change { directory, object, happened }).collect(),
            lost: std::mem::take(&mut state.lost),
        })
    }

    fn is_quiet(&self) -> bool {
        let mut state = self.shared.lock();
        self.shared.take(&mut state);
        state.changes.is_empty() && !state.lost && state.broken.is_none()
    }

    fn heed(&self, directory: NodeId) {
        self.heed_each(&[directory]);
    }

    fn heed_each(&self, directories: &[NodeId]) {
        let ignored: Vec<NodeId> = {
            let mut state = self.shared.lock();
            let ignored = directories.iter().copied().filter(|directory| state.ignored.remove(directory)).collect();
            if state.ignored.capacity() / 4 > state.ignored.len() + SPARE {
                state.ignored.shrink_to_fit();
            }
            ignored
        };
        if ignored.is_empty() {
            return;
        }
        let heeded = self.shared.volume.heed(&self.shared.group, &ignored);
        for (directory, _) in ignored.into_iter().zip(heeded).filter(|(_, heeded)| heeded.is_err()) {
            // What happens there goes on being silent: so it counts as changed, until that can be ended.
            let mut state = self.shared.lock();
            state.ignored.insert(directory);
            state.add((Some(directory), None), Happened::MODIFY);
        }
    }

    fn heed_all(&self) -> bool {
        self.shared.heed_all(&mut self.shared.lock()).is_ok()
    }

    fn keep_heeding(&self, directory: NodeId, keep: bool) {
        if keep {
            self.shared.lock().heeded.insert(directory);
            self.heed(directory);
        } else {
            self.shared.lock().heeded.remove(&directory);
        }
    }

    fn start_anew(&self) {
        let mut state = self.shared.lock();
        (state.changes, state.heeded) = (Map::default(), Set::default());
        state.lost = true;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::fd::OwnedFd,
        process::{Command, Stdio},
    };

    use onesweep_sys::{
        files::{self, Stat},
        handle::handle_at,
    };

    use super::*;
    use crate::{
        access_lists::AccessLists,
        identity::Family,
        reading::{Directories, LinkedName, Reading},
    };

    const DEVICE: u64 = 7;

    /// One that can be told to fail.
    #[derive(Debug)]
    struct Model {
        top: File,
        fails: AtomicBool,
        heeded: Mutex<Vec<NodeId>>,
        lists: AccessLists,
    }

    impl Model {
        fn tracker() -> (Arc<Model>, Fanotify) {
            let top = File::open("/").expect("a directory");
            let model = Arc::new(Model {
                top,
                fails: AtomicBool::new(false),
                heeded: Mutex::default(),
                lists: AccessLists::default(),
            });
            let group = Group::new(false).expect("a group that watches nothing");
            (Arc::clone(&model), Fanotify::take_up(model, group).expect("a tracker"))
        }
    }

    fn unused<T>() -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Directories for Model {
        fn read(&self, _: NodeId) -> io::Result<Reading> {
            unused()
        }
        fn look(&self, _: NodeId) -> io::Result<LinkedName> {
            unused()
        }
        fn sync(&self) -> io::Result<()> {
            unused()
        }
        fn settling_seconds(&self) -> i64 {
            0
        }
        fn parent(&self, _: NodeId) -> io::Result<NodeId> {
            unused()
        }
    }

    impl FileSystem for Model {
        fn may_hold(&self, dev: u64) -> bool {
            dev == DEVICE
        }
        fn is_it(&self, _: &Stat, _: NodeId) -> bool {
            false
        }
        fn root(&self) -> NodeId {
            NodeId::default()
        }
        fn family(&self) -> Option<Family> {
            Some(Family::Shmem)
        }
        fn top(&self) -> BorrowedFd<'_> {
            self.top.as_fd()
        }
        fn identity(&self) -> io::Result<Vec<u8>> {
            unused()
        }
        fn handle_of(&self, _: NodeId) -> io::Result<OwnedFd> {
            unused()
        }
        fn access_list(&self, _: NodeId) -> Option<Vec<u8>> {
            None
        }
        fn access_lists(&self) -> &AccessLists {
            &self.lists
        }
        fn ignore(&self, _: &Group, directories: &[NodeId]) -> Vec<bool> {
            vec![true; directories.len()]
        }
        fn heed(&self, _: &Group, directories: &[NodeId]) -> Vec<io::Result<()>> {
            let fails = self.fails.load(Ordering::SeqCst);
            let heed = |&directory: &NodeId| match fails {
                true => Err(io::ErrorKind::OutOfMemory.into()),
                false => {
                    self.heeded.lock().expect("no panic").push(directory);
                    Ok(())
                }
            };
            directories.iter().map(heed).collect()
        }
    }

    /// Whoever moves blocks opens and closes files for writing; only what it says itself is a change.
    #[test]
    fn what_the_mover_does_is_no_change() {
        if onesweep_sys::user::effective_uid() != 0 {
            return;
        }
        let tree = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let top = files::open_dir(tree.path()).expect("it opens");
        let handle = handle_at(top.as_fd(), c"").expect("a handle");
        let node = Family::Shmem.node(&handle).expect("an inode");
        let (_, tracker) = Model::tracker();
        tracker.shared.group.watch_file_system(top.as_fd(), WATCHED).expect("it is watched");
        let has_changed = || {
            let drained = tracker.drain().expect("what happened");
            assert!(!drained.lost);
            drained.changes.iter().any(|change| change.directory == Some(node))
        };
        let script = "read go; echo x > \"$0/file\"";
        let mut mover = Command::new("sh");
        let mut mover = mover.args(["-c", script]).arg(tree.path()).stdin(Stdio::piped()).spawn().expect("it starts");
        tracker.moves().are_by(mover.id());
        drop(mover.stdin.take());
        mover.wait().expect("it ends");
        assert!(tree.path().join("file").exists() && !has_changed());
        std::fs::write(tree.path().join("file"), "bytes").expect("it is written");
        assert!(has_changed());
        let moves = tracker.moves();
        assert_eq!(moves.sizes_changed(DEVICE + 1, &handle), Some(()));
        assert!(!has_changed(), "that is another file system");
        assert_eq!(moves.sizes_changed(DEVICE, &handle), Some(()));
        assert!(has_changed());
        drop(tracker);
        assert_eq!(moves.sizes_changed(DEVICE, &handle), None);
    }

    /// Directories that were made, used and removed before anybody asked.
    #[test]
    fn what_is_ignored_is_bounded() {
        let (_, tracker) = Model::tracker();
        let node = |ino| NodeId { subvolume: 0, ino, generation: 1 };
        for ino in (0..2 * IGNORED_MAX as u64).step_by(1000) {
            let mut state = tracker.shared.lock();
            let reported = || (ino..ino + 1000).map(node).collect();
            assert_eq!(state.told_again(reported()), [], "what is told of once may be all");
            let again = state.told_again(reported());
            assert_eq!(again.len(), 1000);
            tracker.shared.ignore(&mut state, again);
            assert!(state.ignored.len() <= IGNORED_MAX && state.once.is_empty());
            assert!(!state.lost);
        }
        assert!(tracker.shared.lock().ignored.capacity() < 1 << 18);
        let all: Vec<NodeId> = (0..2 * IGNORED_MAX as u64).map(node).collect();
        tracker.heed_each(&all);
        let left = tracker.shared.lock().ignored.capacity();
        assert!(left <= 8 * SPARE, "room is given back: {left}");
        tracker.start_anew();
        assert!(!tracker.is_quiet());
        assert!(tracker.drain().expect("it drains").lost && tracker.shared.lock().ignored.is_empty());
    }

    #[test]
    fn what_was_told_of_once_is_bounded() {
        let mut state = State::default();
        let nodes = |from: u64| (from..from + 1000).map(|ino| NodeId { subvolume: 0, ino, generation: 1 }).collect();
        for from in (0..2 * ONCE_MAX as u64).step_by(1000) {
            assert!(state.told_again(nodes(from)).is_empty());
            assert!(state.once.len() <= ONCE_MAX);
        }
        assert!(state.told_again(nodes(0)).is_empty(), "forgotten, and told of once more");
        assert_eq!(state.told_again(nodes(0)).len(), 1000);
    }

    /// Or it would be silent and count as clean.
    #[test]
    fn what_cannot_be_heeded_goes_on_being_dirty() {
        let (model, tracker) = Model::tracker();
        let directory = NodeId { subvolume: 0, ino: 7, generation: 1 };
        tracker.shared.ignore(&mut tracker.shared.lock(), vec![directory]);
        model.fails.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            tracker.heed(directory);
            assert!(!tracker.is_quiet());
            let Drained { changes, lost } = tracker.drain().expect("it drains");
            assert!(!lost);
            assert_eq!(changes, [Change { directory: Some(directory), object: None, happened: Happened::MODIFY }]);
        }
        model.fails.store(false, Ordering::SeqCst);
        let other = NodeId { ino: 8, ..directory };
        tracker.heed_each(&[other, directory]);
        assert!(tracker.is_quiet());
        assert_eq!(*model.heeded.lock().expect("no panic"), [directory], "the other one wasn't ignored");
    }

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
