//! What changes in the source, and what the kernel is told to forget of it.
//!
//! As root the whole file system is watched (fanotify); else the directories that were asked about (inotify), of which the number
//! is limited. Where neither sees all that may happen, the kernel believes what it was told for a second. What is written through
//! mappings neither sees: that is looked for each few seconds ([`mapped`]).
//!
//! An answer may be older than a change of which the kernel was told while that answer was on its way. So each change is
//! remembered for a while, and whoever has answered asks whether it was about one of his nodes: then the kernel is told again.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::{CStr, CString, OsStr},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use fuser::{INodeNo, Notifier};
use onesweep_sys::{
    fanotify::{Group, Happened},
    files::{EntryType, Stat, file_system, magic, open_handle_at},
    handle::{Access, FileHandle, open_by_handle},
    inotify::Watches,
    ready::{self, Bell, Wanted},
};

use super::{
    births::Found,
    mapped::{self, Mapped},
    nodes::NodeId,
    source::Source,
};
use crate::{guide::Inode, lock};

/// How long the kernel believes what it was told where changes are seen, and where they aren't.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_secs(1);
/// The same of files of which only the directories are watched: who opened one by its handle (a server of NFS) is not seen there,
/// nor are mappings of other users.
const MIDDLE: Duration = Duration::from_secs(60);
/// Changes that are remembered.
const REMEMBERED: usize = 4096;
/// How often it is looked whether all is to end.
const TICK: Duration = Duration::from_secs(1);
/// In which a program takes an answer, also on a busy machine.
const TAKEN: Duration = Duration::from_secs(1);
/// What is forgotten once more, at most; beyond that, all at once.
const ONCE_MORE_MAX: usize = 1 << 16;
const BUFFER_BYTES: usize = 64 << 10;

const NAMES: Happened = Happened::CREATE.union(Happened::DELETE).union(Happened::MOVED_FROM).union(Happened::MOVED_TO);
const CONTENT: Happened = Happened::MODIFY.union(Happened::CLOSE_WRITE);

/// File systems that this kernel alone changes, and tells of each change that is a call; and those that nobody changes. On others
/// (network and cluster file systems, those of virtual machines, layers, whatever FUSE shows; ZFS, where a rollback tells nothing)
/// files may change unseen.
const LOCAL: [u32; 13] = [
    magic::EXT,
    magic::XFS,
    magic::BTRFS,
    magic::F2FS,
    magic::BCACHEFS,
    magic::TMPFS,
    magic::NTFS3,
    magic::FAT,
    magic::EXFAT,
    magic::JFS,
    magic::SQUASHFS,
    magic::EROFS,
    magic::ISO9660,
];

enum Watch {
    Everything(Group),
    Directories { watches: Watches, by_number: Mutex<HashMap<i32, NodeId>>, seen: Mutex<HashSet<NodeId>> },
    Nothing,
}

/// Something the kernel may have to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) directory: NodeId,
    pub(super) name: CString,
    pub(super) node: NodeId,
}

/// What the kernel is to forget.
#[derive(Debug, Clone)]
enum Forget {
    Content(NodeId),
    Attributes(NodeId),
    Entry(NodeId, CString),
}

/// The watch over the source.
pub(super) struct Changes {
    watch: Watch,
    bell: Bell,
    is_ending: AtomicBool,
    /// Changes were taken from the queue, and are not all counted.
    is_counting: AtomicBool,
    /// Counts changes; the last of them are in `recent`.
    count: AtomicU64,
    recent: Mutex<VecDeque<(u64, NodeId)>>,
    again: Mutex<Vec<Told>>,
    /// Files of which the kernel has the length wrong.
    misjudged: Mutex<Vec<NodeId>>,
    began: Instant,
    /// When the kernel was answered last, in milliseconds since.
    answered_ms: AtomicU64,
    /// What it forgets once more, and when.
    once_more: Mutex<VecDeque<(Instant, Forget)>>,
}

impl Changes {
    pub(super) fn watch(source: &Source) -> io::Result<Self> {
        Ok(Self::by(watch(source), Bell::new()?))
    }

    fn by(watch: Watch, bell: Bell) -> Self {
        Self {
            watch,
            bell,
            is_ending: AtomicBool::new(false),
            is_counting: AtomicBool::new(false),
            count: AtomicU64::new(0),
            recent: Mutex::default(),
            again: Mutex::default(),
            misjudged: Mutex::default(),
            began: Instant::now(),
            answered_ms: AtomicU64::new(0),
            once_more: Mutex::default(),
        }
    }

    /// How the source is watched, in words.
    pub(super) fn how(&self) -> &'static str {
        match self.watch {
            Watch::Everything(_) => "changes are seen at once",
            Watch::Directories { .. } => "changes are seen by inotify",
            Watch::Nothing => "changes are seen within a second",
        }
    }

    /// A directory is about to be looked at.
    pub(super) fn before(&self, id: NodeId, directory: BorrowedFd<'_>) {
        let Watch::Directories { watches, by_number, seen } = &self.watch else { return };
        if lock(seen).contains(&id) {
            return;
        }
        // Where there are too many, the kernel is told to believe for a second.
        if let Ok(number) = watches.watch(directory) {
            lock(by_number).insert(number, id);
            lock(seen).insert(id);
        }
    }

    /// Whether each change is seen of what has so many names and one of them in a directory.
    pub(super) fn are_seen(&self, directory: NodeId, names: u32) -> bool {
        match &self.watch {
            Watch::Everything(_) => true,
            // By its other name it changes unseen.
            Watch::Directories { seen, .. } => names <= 1 && lock(seen).contains(&directory),
            Watch::Nothing => false,
        }
    }

    /// How long the kernel may believe what it is told of something in a directory.
    pub(super) fn ttl(&self, directory: NodeId, stat: &Stat) -> Duration {
        let kind = stat.file_type();
        let is_seen = self.are_seen(directory, stat.nlink * u32::from(kind != EntryType::Dir));
        match self.watch {
            _ if !is_seen => SHORT,
            Watch::Directories { .. } if kind == EntryType::File => MIDDLE,
            _ => LONG,
        }
    }

    /// The same of the entries of a directory as a whole.
    pub(super) fn is_seen(&self, directory: NodeId) -> bool {
        self.are_seen(directory, 1)
    }

    /// A moment before something is looked at.
    pub(super) fn now(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether nothing that is watched has changed since that moment: not even what nobody has taken note of yet.
    pub(super) fn is_unchanged(&self, since: u64) -> bool {
        self.are_noted() && self.now() == since
    }

    /// Whether note was taken of all that is watched and has changed until now.
    pub(super) fn are_noted(&self) -> bool {
        let is_queue_empty = self.queue().is_some_and(|queue| ready::can_read(queue).is_ok_and(|is_there| !is_there));
        // In this order, in which a change goes.
        is_queue_empty && !self.is_counting.load(Ordering::SeqCst)
    }

    /// Whether no change of attributes stays unseen, by whatever name.
    pub(super) fn sees_everything(&self) -> bool {
        matches!(self.watch, Watch::Everything(_))
    }

    /// The kernel is told of a node that it didn't know. One before it may have had its number.
    pub(super) fn begins(&self, id: NodeId) {
        if let Watch::Directories { seen, .. } = &self.watch {
            lock(seen).remove(&id);
        }
    }

    /// The view itself has changed something, of which nobody else tells.
    pub(super) fn changed_by_itself(&self, id: NodeId) {
        self.note(id);
    }

    fn queue(&self) -> Option<BorrowedFd<'_>> {
        match &self.watch {
            Watch::Everything(group) => Some(group.as_fd()),
            Watch::Directories { watches, .. } => Some(watches.as_fd()),
            Watch::Nothing => None,
        }
    }

    /// After the answer: what of it has changed since that moment is told again.
    pub(super) fn answered(&self, since: u64, told: impl IntoIterator<Item = Told>) {
        self.answered_ms.store(self.now_ms(), Ordering::SeqCst);
        if self.now() == since {
            return;
        }
        let changed: HashSet<NodeId> = {
            let recent = lock(&self.recent);
            recent.iter().rev().take_while(|(count, _)| *count > since).map(|(_, id)| *id).collect()
        };
        let is_long_ago = self.now() - since >= REMEMBERED as u64;
        let is_changed = |told: &Told| changed.contains(&told.directory) || changed.contains(&told.node);
        let again: Vec<Told> = told.into_iter().filter(|told| is_long_ago || is_changed(told)).collect();
        if !again.is_empty() {
            lock(&self.again).extend(again);
            self.bell.ring();
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Whether a program may not have taken its last answer yet: it does so when it gets a processor.
    fn is_answering(&self) -> bool {
        // Another thread may answer in between.
        self.now_ms().saturating_sub(self.answered_ms.load(Ordering::SeqCst)) < TAKEN.as_millis() as u64
    }

    /// What is forgotten when it is due once more.
    fn take_due(&self) -> Vec<Forget> {
        let mut once_more = lock(&self.once_more);
        let is_over = once_more.len() > ONCE_MORE_MAX;
        let now = Instant::now();
        let due = once_more.iter().take_while(|(due, _)| is_over || *due <= now).count();
        once_more.drain(..due).map(|(_, what)| what).collect()
    }

    /// The kernel was wrong about where a file ends, and has kept bytes at the wrong place. It forgets them soon, told by another thread:
    /// it may hold these pages until the request is answered.
    pub(super) fn misjudged(&self, node: NodeId) {
        lock(&self.misjudged).push(node);
        self.bell.ring();
    }

    fn note(&self, id: NodeId) {
        let mut recent = lock(&self.recent);
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        // Under the lock: whoever sees the number finds the change.
        recent.push_back((self.count.fetch_add(1, Ordering::SeqCst) + 1, id));
    }

    /// Tells the kernel, in a thread of its own. `tick` is called about once a second.
    pub(super) fn start(
        self: &Arc<Self>,
        source: Arc<Source>,
        notifier: Notifier,
        tick: impl Fn() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let teller = Teller { changes: Arc::clone(self), source, notifier };
        // A thread of its own: where there are many processes a look takes long, and changes are to show soon.
        let looker = teller.clone();
        let looker = thread::Builder::new().name("view-mapped".into()).spawn(move || looker.look_at_mappings())?;
        thread::Builder::new().name("view-changes".into()).spawn(move || {
            teller.run(&tick);
            looker.thread().unpark();
            let _ = looker.join();
        })
    }

    /// Ends that thread.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

fn tells_all(magic: u32) -> bool {
    LOCAL.contains(&magic)
}

fn watch(source: &Source) -> Watch {
    let what = NAMES | CONTENT | Happened::ATTRIB | Happened::ON_DIRECTORY;
    if !file_system(source.root()).is_ok_and(|found| tells_all(found.magic)) {
        return Watch::Nothing;
    }
    // What can't be opened by its handle can't be told apart.
    let opens = |root: BorrowedFd<'_>| {
        let handle = onesweep_sys::handle::handle_at(root, c"")?;
        open_by_handle(root, &handle, Access::Facts)
    };
    let everything = Group::of_names().and_then(|group| {
        group.watch_file_system(source.root(), what)?;
        opens(source.root()).map(|_| group)
    });
    match (everything, Watches::new()) {
        (Ok(group), _) => Watch::Everything(group),
        (Err(_), Ok(watches)) => Watch::Directories { watches, by_number: Mutex::default(), seen: Mutex::default() },
        (Err(_), Err(_)) => Watch::Nothing,
    }
}

#[derive(Clone)]
struct Teller {
    changes: Arc<Changes>,
    source: Arc<Source>,
    notifier: Notifier,
}

impl Teller {
    fn run(&self, tick: &dyn Fn()) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while !self.changes.is_ending.load(Ordering::SeqCst) {
            tick();
            let queue = self.changes.queue();
            let wanted = Wanted { read: true, write: false };
            let waited = match queue {
                Some(queue) => ready::wait(queue, wanted, &self.changes.bell, Some(TICK)).map(drop),
                None => ready::wait_for_bell(&self.changes.bell, Some(TICK)).map(drop),
            };
            if waited.is_err() {
                thread::sleep(TICK);
            }
            self.changes.take_due().iter().for_each(|what| self.tell(what));
            let again = std::mem::take(&mut *lock(&self.changes.again));
            for Told { directory, name, node } in again {
                self.entry_changed(directory, &name);
                self.content_changed(node);
            }
            let misjudged = std::mem::take(&mut *lock(&self.changes.misjudged));
            misjudged.into_iter().for_each(|node| self.content_changed(node));
            self.changes.is_counting.store(true, Ordering::SeqCst);
            match &self.changes.watch {
                Watch::Everything(group) => self.take_events(group, &mut buffer),
                Watch::Directories { watches, by_number, .. } => self.take_directories(watches, by_number),
                Watch::Nothing => {}
            }
            self.changes.is_counting.store(false, Ordering::SeqCst);
        }
    }

    /// Has the kernel forget what is mapped for writing, again and again until all ends.
    fn look_at_mappings(&self) {
        let Some(mut mapped) = Mapped::of(self.source.path()) else { return };
        let dev = self.source.inode().dev;
        let all_of = |ino| self.source.nodes().all_of(Inode { dev, ino }).collect::<Vec<_>>();
        while !self.changes.is_ending.load(Ordering::SeqCst) {
            let began = Instant::now();
            let found = mapped.look(|ino| !all_of(ino).is_empty());
            found.into_iter().flat_map(all_of).for_each(|node| self.content_changed(node));
            thread::park_timeout(mapped::pause(began.elapsed()));
        }
    }

    fn take_events(&self, group: &Group, buffer: &mut [u8]) {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut of_handles: HashMap<FileHandle, Option<Found>> = HashMap::new();
        let mut parents: HashMap<FileHandle, Option<Found>> = HashMap::new();
        // The kernel may be told of it between two events: so it is asked each time whether it is known.
        let node_of = |found: &Option<Found>| {
            let found = found.as_ref()?;
            self.source.nodes().known(found.inode(), &found.birth)
        };
        let mut known = |handle: Option<FileHandle>| {
            let handle = handle?;
            node_of(of_handles.entry(handle).or_insert_with(|| self.look_by_handle(&handle, c"")))
        };
        let mut known_parent = |handle: Option<FileHandle>| {
            let handle = handle?;
            node_of(parents.entry(handle).or_insert_with(|| self.look_by_handle(&handle, c"..")))
        };
        let told = group.read_named(buffer, |event, name| {
            if event.happened.contains(Happened::OVERFLOW) {
                return self.everything_changed();
            }
            // What the view does itself the kernel knows.
            if event.pid == own {
                return;
            }
            let name = name.filter(|name| *name != c".");
            if event.happened.contains(Happened::MOVED_TO)
                && let (Some(directory), Some(name)) = (event.directory, name)
            {
                self.note_moved(&directory, name);
            }
            if event.happened.intersects(NAMES) {
                if let Some(directory) = known(event.directory) {
                    self.content_changed(directory);
                    if let Some(name) = name {
                        self.entry_changed(directory, name);
                    }
                } else if let Some(parent) = known_parent(event.directory) {
                    // The kernel hasn't been told of the directory yet. Who is about to has looked at it there.
                    self.changes.note(parent);
                }
            }
            let changed = match event.happened {
                what if what.intersects(CONTENT) => {
                    known(event.object).map(|node| self.content_changed(node)).is_some()
                }
                what if what.contains(Happened::ATTRIB) => {
                    known(event.object.or(event.directory)).map(|node| self.attributes_changed(node)).is_some()
                }
                _ => true,
            };
            // The kernel hasn't been told of it yet. Who is about to has looked at it in its directory.
            if !changed && let Some(directory) = known(event.directory) {
                self.changes.note(directory);
            }
        });
        if told.is_err() {
            self.everything_changed();
        }
    }

    fn take_directories(&self, watches: &Watches, by_number: &Mutex<HashMap<i32, NodeId>>) {
        let told = watches.read(|event| {
            let Some(number) = event.watch else { return self.everything_changed() };
            let Some(directory) = lock(by_number).get(&number).copied() else { return };
            if event.is_over {
                if let Watch::Directories { seen, .. } = &self.changes.watch {
                    lock(seen).remove(&directory);
                }
                lock(by_number).remove(&number);
            }
            match event.name {
                Some(name) if event.is_of_names => {
                    self.content_changed(directory);
                    self.entry_changed(directory, name);
                }
                Some(name) => {
                    // The file is the one that has the name now, or none that is known.
                    let found = self
                        .source
                        .directory(directory)
                        .and_then(|directory| self.source.look_at(directory.as_fd(), name));
                    let known = found.ok().map(|found| self.source.nodes().all_of(found.inode()).collect::<Vec<_>>());
                    match known.filter(|known| !known.is_empty()) {
                        Some(known) => known.into_iter().for_each(|node| self.content_changed(node)),
                        None => self.changes.note(directory),
                    }
                }
                None => self.attributes_changed(directory),
            }
        });
        if told.is_err() {
            self.everything_changed();
        }
    }

    /// Looks at a directory, or something in it, that an event has named.
    fn look_by_handle(&self, handle: &FileHandle, name: &CStr) -> Option<Found> {
        let open = open_by_handle(self.source.root(), handle, Access::Facts).ok()?;
        match name.is_empty() {
            true => self.source.look(open.as_fd()).ok(),
            false => self.source.look(open_handle_at(open.as_fd(), name).ok()?.as_fd()).ok(),
        }
    }

    /// Something has got this name, maybe in a directory that nobody knows: who has it open comes to it all the same.
    fn note_moved(&self, directory: &FileHandle, name: &CStr) {
        let Ok(directory) = open_by_handle(self.source.root(), directory, Access::Facts) else { return };
        let Ok(moved) = open_handle_at(directory.as_fd(), name) else { return };
        if let Some(node) = self.source.known(moved.as_fd())
            && let Ok(node) = self.source.life(node)
        {
            self.source.note_handle(node, moved.as_fd());
        }
    }

    fn note(&self, node: NodeId) {
        self.changes.note(node);
        self.source.nodes().forget_attributes(node);
    }

    // What the kernel doesn't know it can't forget: that is no failure.

    fn content_changed(&self, node: NodeId) {
        self.note(node);
        self.forget(Forget::Content(node));
    }

    fn attributes_changed(&self, node: NodeId) {
        self.note(node);
        self.forget(Forget::Attributes(node));
    }

    fn entry_changed(&self, directory: NodeId, name: &CStr) {
        self.changes.note(directory);
        self.forget(Forget::Entry(directory, name.to_owned()));
    }

    /// Has the kernel forget something now; and once more, if an answer that tells of it may not be taken yet: what the kernel doesn't
    /// know it can't forget, and it would believe that answer afterwards.
    fn forget(&self, what: Forget) {
        self.tell(&what);
        if self.changes.is_answering() {
            lock(&self.changes.once_more).push_back((Instant::now() + TAKEN, what));
        }
    }

    fn tell(&self, what: &Forget) {
        let _ = match what {
            Forget::Content(node) => self.notifier.inval_inode(INodeNo(*node), 0, 0),
            Forget::Attributes(node) => self.notifier.inval_inode(INodeNo(*node), -1, 0),
            Forget::Entry(directory, name) => {
                self.notifier.inval_entry(INodeNo(*directory), OsStr::from_bytes(name.to_bytes()))
            }
        };
    }

    fn everything_changed(&self) {
        let all = self.source.nodes().all();
        for (node, names) in all {
            self.content_changed(node);
            for name in names {
                self.entry_changed(name.directory, &name.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use onesweep_sys::files::{CURRENT_DIR, statx_at};

    use super::*;

    fn changes(watch: Watch) -> Changes {
        Changes::by(watch, Bell::new().unwrap())
    }

    #[test]
    fn what_may_change_unseen_is_believed_for_a_moment() {
        let seen = Mutex::new(HashSet::from([7]));
        let watch = Watch::Directories { watches: Watches::new().unwrap(), by_number: Mutex::default(), seen };
        let by_directory = changes(watch);
        assert!(by_directory.are_seen(7, 1) && by_directory.is_seen(7));
        assert!(!by_directory.are_seen(7, 2), "by its other name");
        assert!(!by_directory.are_seen(8, 1), "in a directory that isn't watched");
        assert!(!changes(Watch::Nothing).are_seen(7, 1));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "bytes").unwrap();
        let [directory, mut file] =
            ["", "file"].map(|name| statx_at(CURRENT_DIR, folder.path().join(name), true).unwrap());
        assert_eq!([7, 8].map(|id| by_directory.ttl(id, &directory)), [LONG, SHORT]);
        assert_eq!([7, 8].map(|id| by_directory.ttl(id, &file)), [MIDDLE, SHORT]);
        file.nlink = 2;
        assert_eq!(by_directory.ttl(7, &file), SHORT);
    }

    #[test]
    fn a_file_system_is_believed_if_it_is_known_to_tell_all() {
        for local in ["ef53", "58465342", "9123683e", "f2f52010", "01021994"] {
            assert!(tells_all(u32::from_str_radix(local, 16).unwrap()), "{local}");
        }
        // NFS, SMB, 9p, Ceph, AFS, FUSE, GFS2, OCFS2, Lustre, VirtualBox, eCryptfs, layers, and one of next year.
        for other in [
            0x6969,
            0xff53_4d42,
            0xfe53_4d42,
            0x0102_1997,
            0x00c3_6400,
            0x5346_414f,
            0x6573_5546,
            0x0116_1970,
            0x7461_636f,
            0x0bd0_0bd0,
            0x786f_4256,
            0xf15f,
            0x794c_7630,
            0x1234_5678,
        ] {
            assert!(!tells_all(other), "{other:x}");
        }
    }
}
