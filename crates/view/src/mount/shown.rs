//! What is shown: entries are looked at, files opened and read, directories listed, and the kernel is answered.

use std::{
    ffi::{CString, OsStr},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use fuser::{
    BackingId, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyOpen,
};
use onesweep_sys::{
    acting, cache,
    files::{EntryType, Stat, change_size, dev_numbers, open_again_with, seek_data, seek_hole, statx_fd},
    usage::blocks_read,
};

use super::{
    Settings,
    births::Found,
    changes::{Changes, Told},
    contents::Contents,
    forerun::Forerun,
    given::Given,
    nodes::{Life, NodeId, ROOT},
    opened::{Asks, Fresh, OpenDirectory, OpenFile, Opened},
    prepared::{Ahead, Entries},
    source::Source,
    writes::{self, Who},
};
use crate::{
    ahead::{Figures, Reader, is_on_quick_disks},
    guide::{Guide, Inode},
    lock,
    order::{self, Listed, Order},
};

/// From this size on the kernel reads a file by itself, where it can.
const PASSTHROUGH_BYTES: u64 = 1 << 20;
/// Who owns nothing.
const NOBODY: u32 = 65_534;

/// What is shown.
pub(super) struct Shown {
    pub(super) source: Arc<Source>,
    pub(super) changes: Arc<Changes>,
    pub(super) contents: Arc<dyn Contents>,
    pub(super) guide: Guide,
    /// Files are brought into memory ahead of walks.
    sweeps_ahead: bool,
    /// Nothing turns in the disks below: a look that reads them makes nobody wait.
    pub(super) has_quick_disks: bool,
    pub(super) opened: Opened,
    pub(super) order: Order,
    pub(super) read_only: bool,
    pub(super) given: Given,
    pub(super) ahead: Ahead,
    pub(super) forerun: Forerun,
    /// The kernel may read large files by itself.
    pub(super) wants_passthrough: bool,
    /// The kernel reads large files by itself.
    pub(super) has_passthrough: AtomicBool,
    /// Programs read without telling that they open.
    pub(super) is_without_open: AtomicBool,
}

/// An entry as the kernel is told it.
pub(super) struct Entry {
    pub(super) node: Life,
    pub(super) attributes: FileAttr,
    pub(super) generation: Generation,
    pub(super) ttl: Duration,
}

pub(super) fn name_of(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn kind_of(kind: EntryType) -> FileType {
    match kind {
        EntryType::Dir => FileType::Directory,
        EntryType::Symlink => FileType::Symlink,
        EntryType::Fifo => FileType::NamedPipe,
        EntryType::Socket => FileType::Socket,
        EntryType::CharDevice => FileType::CharDevice,
        EntryType::BlockDevice => FileType::BlockDevice,
        EntryType::File | EntryType::Unknown => FileType::RegularFile,
    }
}

/// Device numbers as FUSE packs them.
fn packed(rdev: u64) -> u32 {
    let (major, minor) = dev_numbers(rdev);
    (minor & 0xff) | major << 8 | (minor & !0xff) << 12
}

/// What `ino` is to a program.
fn attributes(ino: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime.into(),
        mtime: stat.mtime.into(),
        ctime: stat.ctime.into(),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind_of(stat.file_type()),
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: packed(stat.rdev),
        blksize: stat.blksize,
        flags: 0,
    }
}

/// In whose room the kernel may write by itself a file that somebody opens: all who have it open share what they get. `None` where
/// this one gets what others must not have, or the others what he must.
fn lent_as(who: Who, stat: &Stat, flags: i32) -> Option<u32> {
    let is_roots_alone = stat.uid == 0 && stat.mode & 0o022 == 0;
    match (who.uid, stat.uid) {
        _ if is_roots_alone => Some(0),
        (0, _) if flags & libc::O_ACCMODE != libc::O_RDONLY => None,
        (_, 0) => Some(NOBODY),
        (_, owner) => Some(owner),
    }
}

impl Shown {
    pub(super) fn new(
        source: Arc<Source>,
        changes: Arc<Changes>,
        settings: &Settings,
        contents: Arc<dyn Contents>,
    ) -> io::Result<Self> {
        let has_quick_disks = is_on_quick_disks(source.path());
        Ok(Self {
            source,
            changes,
            contents,
            sweeps_ahead: settings.sweeps_ahead,
            has_quick_disks,
            guide: Guide::start(settings.limit, settings.order, Reader::ThroughFuse)?,
            opened: Opened::default(),
            order: settings.order,
            read_only: !settings.read_write,
            given: Given::default(),
            ahead: Ahead::default(),
            forerun: Forerun::default(),
            wants_passthrough: settings.passthrough,
            has_passthrough: AtomicBool::new(false),
            is_without_open: AtomicBool::new(false),
        })
    }

    pub(super) fn how(&self) -> String {
        let large = match self.has_passthrough.load(Ordering::SeqCst) {
            true => "files of 1 MiB and more are read by the kernel",
            false if self.is_without_open.load(Ordering::SeqCst) => "files are read without being opened",
            false => "files are read by the daemon",
        };
        format!("{}; {large}", self.changes.how())
    }

    pub(super) fn tidy(&self) {
        self.opened.close_recent();
    }

    pub(super) fn finish(&self) -> Figures {
        self.forerun.end();
        let (given, seen, listed) = (self.given.count(), self.ahead.count(), self.forerun.count());
        Figures { given, seen, listed, ..self.guide.finish() }
    }

    /// A directory for a look at its entries.
    pub(super) fn directory(&self, id: NodeId) -> io::Result<Arc<OwnedFd>> {
        let directory = self.source.directory(id)?;
        self.changes.before(id, directory.as_fd());
        Ok(directory)
    }

    /// A program has opened a directory.
    pub(super) fn opened_directory(&self, id: NodeId) {
        self.guide.opened(id);
        if let Some(following) = self.given.following() {
            let (is_followed, has_next) = {
                let mut following = lock(following);
                following.opened(id);
                (following.is_followed(), following.has_next_directory())
            };
            let has_more = self.forerun.opened(id);
            if is_followed && (has_next || has_more) {
                self.forerun.call();
            }
        }
    }

    pub(super) fn is_foreign(&self, id: NodeId) -> bool {
        self.source.nodes().inode(id).is_some_and(|inode| inode.dev != self.source.inode().dev)
    }

    /// Looks at an entry, and notes that the kernel is told of it.
    pub(super) fn entry(&self, parent: NodeId, name: &CString) -> io::Result<Entry> {
        let directory = self.directory(parent)?;
        if self.is_foreign(parent) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let found = self.source.look_at(directory.as_fd(), name)?;
        Ok(self.told(parent, name, &found))
    }

    /// Notes that the kernel is told of an entry.
    pub(super) fn told(&self, parent: NodeId, name: &CString, found: &Found) -> Entry {
        let stat = &found.stat;
        let (node, begins, has_own_number) = {
            let mut nodes = self.source.nodes();
            let node = nodes.told(found.inode(), &found.birth, parent, name);
            (node, nodes.is_told_once(node.id), nodes.shown_number(node.id) == node.id)
        };
        if begins {
            self.changes.begins(node.id);
        }
        // Of one that shows another number the kernel is told that when it asks for its attributes.
        let ttl = match self.source.is_foreign(stat) || !has_own_number {
            true => Duration::ZERO,
            false => self.changes.ttl(parent, stat),
        };
        Entry { node, attributes: attributes(node.id, stat), generation: Generation(node.began), ttl }
    }

    pub(super) fn answer_entry(
        &self,
        parent: NodeId,
        name: &OsStr,
        reply: ReplyEntry,
        find: impl FnOnce(&CString) -> io::Result<Entry>,
    ) {
        let since = self.changes.now();
        let found = name_of(name).and_then(|name| find(&name).map(|entry| (name, entry)));
        match found {
            Ok((name, entry)) => {
                reply.entry(&entry.ttl, &entry.attributes, entry.generation);
                self.changes.answered(since, [Told { directory: parent, name, node: entry.node.id }]);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    pub(super) fn stat(&self, id: NodeId, fh: Option<FileHandle>) -> io::Result<Stat> {
        match fh.and_then(|fh| self.opened.file(fh.0)) {
            Some(open) => statx_fd(open.file.as_fd()),
            None => self.source.handle_and_stat(id).map(|(_, stat)| stat),
        }
    }

    pub(super) fn answer_attributes(&self, id: NodeId, reply: ReplyAttr, find: impl FnOnce() -> io::Result<Stat>) {
        let since = self.changes.now();
        match find() {
            Ok(stat) => {
                let names = self.source.nodes().names(id);
                let parent = names.first().map_or(ROOT, |name| name.directory);
                let ttl = self.changes.ttl(parent, &stat);
                reply.attr(&ttl, &attributes(self.shown_number(id), &stat));
                let told = names.into_iter().map(|name| Told { directory: name.directory, name: name.name, node: id });
                self.changes.answered(since, told);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    /// The file that is meant: the one that was opened, or one that nobody has opened.
    pub(super) fn open_file(&self, id: NodeId, fh: FileHandle) -> io::Result<Arc<OpenFile>> {
        match self.opened.file(fh.0) {
            Some(open) => Ok(open),
            None => {
                let node = self.source.life(id)?;
                self.opened.recent(node, || {
                    let (file, stat) = self.source.open_file(id, libc::O_RDONLY | libc::O_NONBLOCK)?;
                    if self.changes.sees_everything() {
                        self.source.note_handle(node, file.as_fd());
                    }
                    self.with_content(id, file, &stat, (false, 0))
                })
            }
        }
    }

    /// A file that was opened, with what reads it.
    pub(super) fn with_content(
        &self,
        id: NodeId,
        file: OwnedFd,
        stat: &Stat,
        (only_grows, uid): (bool, u32),
    ) -> io::Result<Fresh> {
        let file = Arc::new(file);
        let content = self.contents.open(Arc::clone(&file), stat, &|| self.source.name_of(id))?;
        Ok(Fresh { file, content, ino: stat.ino, only_grows, uid })
    }

    /// Opens it, when it is there.
    pub(super) fn open(self: &Arc<Self>, who: Who, id: NodeId, flags: OpenFlags, reply: ReplyOpen) {
        if self.is_without_open.load(Ordering::SeqCst) {
            // From now on the kernel doesn't ask any more.
            return reply.error(Errno::ENOSYS);
        }
        let asked = flags.0;
        let flags = writes::flags_of(asked);
        let opened = writes::opening(asked, |more| self.open_unchanged(id, flags | more));
        let opened = opened.and_then(|((file, stat), only_grows)| {
            let fresh = self.with_content(id, file, &stat, (only_grows, who.uid))?;
            Ok((fresh, stat))
        });
        let (fresh, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => return reply.error(error.into()),
        };
        let is_large = stat.size >= PASSTHROUGH_BYTES
            && self.has_passthrough.load(Ordering::SeqCst)
            && fresh.content.suits_kernel(&stat);
        let lent = if self.read_only { Some(0) } else { lent_as(who, &stat, flags) };
        let Some(lent) = lent.filter(|_| is_large) else {
            return self.answer_open(id, fresh, flags, None, reply);
        };
        // Its reads aren't seen here: it is waited for now.
        let this = Arc::clone(self);
        let look = Arc::clone(&fresh.file);
        self.when_in_memory(id, &look, &stat, Box::new(move || this.answer_open(id, fresh, flags, Some(lent), reply)));
    }

    /// Opens it, and cuts it where it is to be cut: once it is open, so that nobody takes it for a file without writers.
    fn open_unchanged(&self, id: NodeId, flags: i32) -> io::Result<(OwnedFd, Stat)> {
        if flags & libc::O_TRUNC == 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
            if flags & libc::O_TRUNC != 0 {
                self.contents.before_change(self.source.handle_and_stat(id)?.1.ino);
            }
            return self.source.open_file(id, flags);
        }
        let (file, stat) = self.source.open_file(id, flags & !libc::O_TRUNC)?;
        self.contents.before_change(stat.ino);
        change_size(file.as_fd(), 0)?;
        let stat = statx_fd(file.as_fd())?;
        Ok((file, stat))
    }

    /// `lent` is in whose room the kernel writes it by itself, if it is to.
    fn answer_open(&self, id: NodeId, fresh: Fresh, flags: i32, lent: Option<u32>, reply: ReplyOpen) {
        let back = |file: &OwnedFd| acting::lend_to(lent.unwrap_or(NOBODY), || reply.open_backing(file));
        let node = match self.source.life(id) {
            Ok(node) => node,
            Err(error) => return reply.error(error.into()),
        };
        let back = lent.is_some().then_some(&back as &dyn Fn(&OwnedFd) -> io::Result<BackingId>);
        let (number, open) = self.opened.add_file(node, fresh, back);
        let number = FileHandle(number);
        self.before_kernel(&open, flags);
        match &open.backing {
            Some(backing) => reply.opened_passthrough(number, FopenFlags::FOPEN_NOFLUSH, backing),
            None => reply.opened(number, self.flags_of_open(id)),
        }
    }

    /// What the kernel writes by itself isn't seen here.
    pub(super) fn before_kernel(&self, open: &OpenFile, flags: i32) {
        if open.backing.is_none() {
            return;
        }
        open.content.left_to_kernel();
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            self.contents.before_change(open.ino);
        }
    }

    /// Somebody who could write it has closed it.
    pub(super) fn closed(&self, open: &OpenFile) {
        // What the kernel has written by itself isn't known.
        if open.backing.is_some() {
            self.contents.changed(open.ino, &open.file, 0..u64::MAX);
        }
        self.contents.closed(open.ino);
    }

    /// What the kernel may keep of a file between two opens.
    pub(super) fn flags_of_open(&self, id: NodeId) -> FopenFlags {
        let parent = self.source.nodes().names(id).first().map_or(ROOT, |name| name.directory);
        match self.changes.is_seen(parent) {
            true => FopenFlags::FOPEN_NOFLUSH | FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::FOPEN_NOFLUSH,
        }
    }

    /// Does it when the file is in memory, or will not come.
    fn when_in_memory(&self, id: NodeId, file: &OwnedFd, stat: &Stat, job: Box<dyn FnOnce() + Send>) {
        if !self.sweeps_ahead {
            return job();
        }
        let is_cached = || cache::is_cached(file.as_fd(), stat.size).ok();
        let chain = || {
            let nodes = self.source.nodes();
            nodes.names(id).first().map_or_else(Vec::new, |name| nodes.chain(name.directory))
        };
        let inode = Inode { dev: stat.dev, ino: stat.ino };
        self.guide.before_reading(inode, is_cached, chain, |root| self.source.path_of(root), job);
    }

    pub(super) fn read(self: &Arc<Self>, id: NodeId, fh: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        let open = match self.open_file(id, fh) {
            Ok(open) => open,
            Err(error) => return reply.error(error.into()),
        };
        let answer = {
            let open = Arc::clone(&open);
            move || {
                let done = move |got: io::Result<&[u8]>| match got {
                    Ok(bytes) => reply.data(bytes),
                    Err(error) => reply.error(error.into()),
                };
                open.content.read(offset, size as usize, Box::new(done));
            }
        };
        // Later bytes come with the first ones.
        if offset > 0 || !self.sweeps_ahead {
            return answer();
        }
        match statx_fd(open.file.as_fd()) {
            Ok(stat) => self.when_in_memory(id, &open.file, &stat, Box::new(answer)),
            Err(_) => answer(),
        }
        self.give_next(id);
    }

    pub(super) fn list(&self, id: NodeId) -> io::Result<Vec<Listed>> {
        if self.is_foreign(id) {
            return Ok(Vec::new());
        }
        order::list(self.open_directory(id)?.as_fd(), self.order)
    }

    /// A directory that can be read.
    pub(super) fn open_directory(&self, id: NodeId) -> io::Result<OwnedFd> {
        let handle = self.directory(id)?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        open_again_with(handle.as_fd(), flags | self.source.quiet_flags())
            .or_else(|_| open_again_with(handle.as_fd(), flags))
    }

    /// The entries of an open directory; anew when it is read from the beginning.
    fn entries(&self, open: &OpenDirectory, offset: u64) -> io::Result<(NodeId, Arc<Entries>)> {
        let mut entries = lock(&open.entries);
        if let Some(known) = entries.as_ref().filter(|_| offset > 0) {
            return Ok((open.node, Arc::clone(known)));
        }
        let before = blocks_read();
        let changes = self.changes.now();
        let prepared = lock(&self.ahead.prepared).take(open.node, changes);
        let prepared = prepared.filter(|_| self.changes.is_unchanged(changes));
        let found = match prepared {
            Some(prepared) => prepared,
            None if open.asks == Asks::Forerun => return Err(io::ErrorKind::WouldBlock.into()),
            None => Entries::of_names(Arc::new(self.list(open.node)?)),
        };
        let found = Arc::new(found);
        *entries = Some(Arc::clone(&found));
        drop(entries);
        if let Some(following) = self.given.following() {
            lock(following).listed(open.node, &found.listed);
        }
        self.note_disk(open.node, before);
        Ok((open.node, found))
    }

    /// What this thread had to read from the disk since may be the begin of a walk.
    fn note_disk(&self, directory: NodeId, before: u64) {
        if self.sweeps_ahead && !self.has_quick_disks && blocks_read() != before {
            let chain = self.source.nodes().chain(directory);
            self.guide.listed_from_disk(&chain, |root| self.source.path_of(root));
        }
    }

    pub(super) fn read_directory(&self, open: &OpenDirectory, offset: u64, mut reply: ReplyDirectory) {
        let (id, entries) = match self.entries(open, offset) {
            Ok(found) => found,
            Err(error) => return reply.error(error.into()),
        };
        let entries = &entries.listed;
        for at in offset..entries.len() as u64 + 2 {
            let is_full = match at {
                0 => reply.add(INodeNo(self.shown_number(id)), 1, FileType::Directory, "."),
                1 => reply.add(INodeNo(self.shown_number(self.parent_of(id))), 2, FileType::Directory, ".."),
                _ => {
                    let entry = &entries[at as usize - 2];
                    let name = OsStr::from_bytes(entry.name.to_bytes());
                    reply.add(INodeNo(entry.ino), at + 1, kind_of(entry.kind), name)
                }
            };
            if is_full {
                break;
            }
        }
        reply.ok();
    }

    pub(super) fn read_directory_and_attributes(
        &self,
        open: &OpenDirectory,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (since, at_first) = (self.changes.now(), blocks_read());
        let (id, entries) = match self.entries(open, offset) {
            Ok(found) => found,
            Err(error) => return reply.error(error.into()),
        };
        let directory = match self.directory(id) {
            Ok(directory) => directory,
            Err(error) => return reply.error(error.into()),
        };
        let (before, is_unchanged) = (blocks_read(), self.changes.is_unchanged(since));
        let (mut told, mut below) = (Vec::new(), Vec::new());
        for at in offset..entries.listed.len() as u64 + 2 {
            if at < 2 {
                let (of, name) = if at == 0 { (id, ".") } else { (self.parent_of(id), "..") };
                let Ok(stat) = self.stat(of, None) else { continue };
                let attributes = attributes(self.shown_number(of), &stat);
                // The kernel knows these, and doesn't take them from here.
                let number = attributes.ino;
                if reply.add(number, at + 1, name, &Duration::ZERO, &attributes, Generation(0)) {
                    break;
                }
                continue;
            }
            let place = at as usize - 2;
            let listed = &entries.listed[place];
            let name = &listed.name;
            let entry = match entries.found(place, since).filter(|_| is_unchanged) {
                Some(found) => self.told(id, name, found),
                None => {
                    // One that is gone meanwhile is left out.
                    let Ok(found) = self.source.look_at(directory.as_fd(), name) else { continue };
                    self.told(id, name, &found)
                }
            };
            let shown = OsStr::from_bytes(name.to_bytes());
            let number = INodeNo(entry.node.id);
            if reply.add(number, at + 1, shown, &entry.ttl, &entry.attributes, entry.generation) {
                // It wasn't told, after all.
                self.source.forget(entry.node.id, 1);
                break;
            }
            if entry.attributes.kind == FileType::Directory {
                below.push((listed, entry.node.id));
            }
            told.push(Told { directory: id, name: name.clone(), node: entry.node.id });
        }
        reply.ok();
        let is_from_memory = blocks_read() == at_first;
        self.note_disk(id, before);
        self.changes.answered(since, told);
        if !is_from_memory && !self.has_quick_disks {
            return;
        }
        if let Some(following) = self.given.following() {
            lock(following).sort(&mut below);
        }
        let after = below.last().and_then(|(_, last)| lock(&open.last_below).replace(*last)).filter(|_| offset > 0);
        let below = below.into_iter().map(|(_, id)| id);
        if self.given.following().is_some() {
            self.forerun.told(after, below.clone());
        }
        // Who goes ahead looks by himself.
        if open.asks == Asks::Program {
            self.look_ahead(after, below);
        }
    }

    fn parent_of(&self, id: NodeId) -> NodeId {
        self.source.nodes().names(id).first().map_or(ROOT, |name| name.directory)
    }

    fn shown_number(&self, id: NodeId) -> u64 {
        self.source.nodes().shown_number(id)
    }

    pub(super) fn seek(&self, id: NodeId, fh: FileHandle, offset: i64, whence: i32) -> io::Result<i64> {
        let beyond = || io::Error::from_raw_os_error(libc::ENXIO);
        let open = self.open_file(id, fh)?;
        let from = u64::try_from(offset).map_err(|_| beyond())?;
        let found = match whence {
            libc::SEEK_DATA => seek_data(open.file.as_fd(), from)?,
            libc::SEEK_HOLE => seek_hole(open.file.as_fd(), from)?,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        found.and_then(|at| i64::try_from(at).ok()).ok_or_else(beyond)
    }
}
