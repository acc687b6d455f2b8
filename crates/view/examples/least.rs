//! The least that a tree costs when it is shown by FUSE: a read-only file system that answers everything from its own memory.
//!
//! ```text
//! least SRC DIR [--without-opendir] [--without-xattrs] [--store | --ahead]
//! ```
//!
//! Shows SRC at DIR as it was when this began, until DIR is unmounted. It watches no changes, waits for no disk, and calls nobody:
//! what a program takes longer here than on SRC with everything in memory, it takes longer through any file system of FUSE.
//! `bench/least` measures that beside a view. Two savings are for comparison alone, since who shows another's tree can't have them:
//! `--without-opendir` has the kernel open directories by itself, so that nobody hears of a walk; `--without-xattrs` tells it that no
//! file has extended attributes. `--store` gives the kernel the small files of a directory as soon as
//! it was listed, or the first of them was asked for. `--ahead` has a thread walk over DIR some directories ahead of the program, as
//! GNU tar does, so that another processor has the kernel make the inodes, and gives each small file on that way.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, MountOption, Notifier, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyXattr, Request, Session, SessionACL,
};
use onesweep_sys::awake::{Awake, Busy};

/// The kernel is told everything once.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// As a view gives them.
const STORED_MAX: usize = 128 << 10;

enum Content {
    Bytes(Vec<u8>),
    Link(OsString),
    /// Names and nodes, and where each name is.
    Entries(Vec<(OsString, usize)>, HashMap<OsString, usize>),
    Nothing,
}

/// A file in memory; its number is its place and one.
struct Node {
    attributes: FileAttr,
    parent: usize,
    content: Content,
}

fn time(secs: i64, nanos: i64) -> SystemTime {
    UNIX_EPOCH + Duration::new(secs.max(0) as u64, nanos as u32)
}

fn attributes(number: usize, meta: &fs::Metadata) -> FileAttr {
    let of = meta.file_type();
    let kind = match () {
        () if of.is_dir() => FileType::Directory,
        () if of.is_symlink() => FileType::Symlink,
        () if of.is_fifo() => FileType::NamedPipe,
        () if of.is_socket() => FileType::Socket,
        () if of.is_char_device() => FileType::CharDevice,
        () if of.is_block_device() => FileType::BlockDevice,
        () => FileType::RegularFile,
    };
    FileAttr {
        ino: INodeNo(number as u64 + 1),
        size: meta.size(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind,
        perm: (meta.mode() & 0o7777) as u16,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Takes a tree into memory, in the order in which the file system lists it. A second name of a file is a file of its own.
fn taken(root: &Path) -> io::Result<Vec<Node>> {
    let mut nodes = Vec::new();
    let mut waiting: Vec<(PathBuf, usize)> = vec![(root.to_owned(), 0)];
    nodes.push(Node { attributes: attributes(0, &root.metadata()?), parent: 0, content: Content::Nothing });
    while let Some((dir, number)) = waiting.pop() {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let (path, meta, child) = (entry.path(), entry.metadata()?, nodes.len());
            let content = match meta.file_type() {
                kind if kind.is_dir() => {
                    waiting.push((path, child));
                    Content::Nothing
                }
                kind if kind.is_symlink() => Content::Link(path.read_link()?.into_os_string()),
                kind if kind.is_file() => Content::Bytes(fs::read(&path)?),
                _ => Content::Nothing,
            };
            nodes.push(Node { attributes: attributes(child, &meta), parent: number, content });
            entries.push((entry.file_name(), child));
        }
        let places = entries.iter().cloned().collect();
        nodes[number].content = Content::Entries(entries, places);
    }
    Ok(nodes)
}

/// What of it is saved.
#[derive(Clone, Copy, Default)]
struct Saved {
    opendir: bool,
    xattrs: bool,
}

struct Least {
    nodes: Arc<Vec<Node>>,
    saved: Saved,
    awake: Option<Awake>,
    listed: Option<mpsc::Sender<usize>>,
    /// The directory whose files were given last.
    given: AtomicUsize,
    walk: Arc<Walk>,
}

/// Where a program is, and where the thread is that walks ahead of it.
#[derive(Default)]
struct Walk {
    /// Directories that the program has opened.
    opened: AtomicUsize,
    is_over: AtomicBool,
}

/// Directories between the two.
const AHEAD: usize = 12;

impl Least {
    fn node(&self, ino: INodeNo) -> Option<&Node> {
        if let Some(awake) = &self.awake {
            awake.asked();
        }
        self.nodes.get((ino.0 as usize).checked_sub(1)?)
    }

    fn entries(&self, ino: INodeNo) -> Option<&[(OsString, usize)]> {
        match &self.node(ino)?.content {
            Content::Entries(entries, _) => Some(entries),
            _ => None,
        }
    }

    fn give_below(&self, directory: usize) {
        if let Some(listed) = &self.listed
            && self.given.swap(directory, Ordering::Relaxed) != directory
        {
            let _ = listed.send(directory);
        }
    }
}

impl Filesystem for Least {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = || io::Error::other("the kernel refused a FUSE setting");
        config.set_max_background(256).map_err(|_| refused())?;
        config.set_max_write(1 << 20).map_err(|_| refused())?;
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_POSIX_ACL,
        ] {
            // An old kernel does without.
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = match self.node(parent).map(|node| &node.content) {
            Some(Content::Entries(_, places)) => places.get(name),
            _ => None,
        };
        match found {
            Some(child) => reply.entry(&FOR_EVER, &self.nodes[*child].attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Some(node) => reply.attr(&FOR_EVER, &node.attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(ino).map(|node| &node.content) {
            Some(Content::Link(target)) => reply.data(target.as_bytes()),
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // From now on the kernel opens by itself, and keeps what it has read.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.node(ino).map(|node| &node.content) {
            Some(Content::Bytes(bytes)) => {
                let from = bytes.len().min(offset as usize);
                reply.data(&bytes[from..bytes.len().min(from + size as usize)]);
            }
            _ => reply.error(Errno::EINVAL),
        }
        if let Some(node) = self.node(ino) {
            self.give_below(node.parent);
        }
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if req.pid() != std::process::id() {
            self.walk.opened.fetch_add(1, Ordering::Relaxed);
        }
        match self.node(ino) {
            Some(_) if self.saved.opendir => reply.error(Errno::ENOSYS),
            Some(_) => reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _offset: u64, reply: ReplyDirectory) {
        // Who knows the attributes is asked for them, too.
        reply.error(Errno::ENOSYS);
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let Some(entries) = self.entries(ino) else { return reply.error(Errno::ENOTDIR) };
        let number = (ino.0 - 1) as usize;
        for at in offset as usize..entries.len() + 2 {
            let (name, shown) = match at {
                0 => (OsStr::new("."), number),
                1 => (OsStr::new(".."), self.nodes[number].parent),
                _ => (entries[at - 2].0.as_os_str(), entries[at - 2].1),
            };
            let attributes = &self.nodes[shown].attributes;
            if reply.add(attributes.ino, at as u64 + 1, name, &FOR_EVER, attributes, Generation(0)) {
                break;
            }
        }
        reply.ok();
        if offset == 0 {
            self.give_below(number);
        }
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        match self.node(ino) {
            Some(_) if self.saved.xattrs => reply.error(Errno::ENOSYS),
            _ => reply.error(Errno::ENODATA),
        }
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.node(ino) {
            Some(_) if self.saved.xattrs => reply.error(Errno::ENOSYS),
            _ if size == 0 => reply.size(0),
            _ => reply.data(&[]),
        }
    }
}

/// Gives the small files of directories that were listed.
fn store(nodes: &[Node], listed: &mpsc::Receiver<usize>, notifier: &OnceLock<Notifier>) {
    for number in listed {
        let (Content::Entries(entries, _), Some(notifier)) = (&nodes[number].content, notifier.get()) else { continue };
        for (_, child) in entries {
            if let Content::Bytes(bytes) = &nodes[*child].content
                && (1..=STORED_MAX).contains(&bytes.len())
            {
                // What the kernel doesn't take it asks for.
                let _ = notifier.store(INodeNo(*child as u64 + 1), 0, bytes);
            }
        }
    }
}

/// Walks over what is shown, in the order of GNU tar, and gives the small files.
struct Walker<'a> {
    nodes: &'a [Node],
    walk: &'a Walk,
    notifier: &'a Notifier,
    seen: usize,
}

impl Walker<'_> {
    fn go(&mut self, dir: &Path, number: usize) -> io::Result<()> {
        while self.seen >= self.walk.opened.load(Ordering::Relaxed) + AHEAD
            || self.walk.opened.load(Ordering::Relaxed) == 0
        {
            if self.walk.is_over.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            // Looked at, not woken: who answers the program is to have nothing else to do.
            thread::sleep(Duration::from_micros(100));
        }
        self.seen += 1;
        fs::read_dir(dir)?.count();
        let Content::Entries(entries, _) = &self.nodes[number].content else { return Ok(()) };
        for (name, child) in entries {
            match &self.nodes[*child].content {
                Content::Bytes(bytes) if (1..=STORED_MAX).contains(&bytes.len()) => {
                    let _ = self.notifier.store(INodeNo(*child as u64 + 1), 0, bytes);
                }
                Content::Entries(..) => self.go(&dir.join(name), *child)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let usage = || io::Error::other("usage: least SRC DIR [--without-opendir] [--without-xattrs] [--store]");
    let mut words = std::env::args_os().skip(1);
    let (source, dir) = (words.next().ok_or_else(usage)?, words.next().ok_or_else(usage)?);
    let (mut saved, mut stores, mut walks) = (Saved::default(), false, false);
    for word in words {
        match word.to_str() {
            Some("--without-opendir") => saved.opendir = true,
            Some("--without-xattrs") => saved.xattrs = true,
            Some("--store") => stores = true,
            Some("--ahead") => walks = true,
            _ => return Err(usage()),
        }
    }
    let nodes = Arc::new(taken(Path::new(&source))?);
    let (sender, listed) = mpsc::channel();
    let walk = Arc::new(Walk::default());
    let awake = Awake::while_busy(Busy::default()).ok();
    let least = Least {
        nodes: Arc::clone(&nodes),
        saved,
        awake,
        listed: stores.then_some(sender),
        given: usize::MAX.into(),
        walk: Arc::clone(&walk),
    };
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName("least".into()),
        MountOption::DefaultPermissions,
        MountOption::RO,
        MountOption::NoAtime,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(4);
    config.clone_fd = true;
    let session = Session::new(least, Path::new(&dir), &config)?;
    let notifier = OnceLock::new();
    let _ = notifier.set(session.notifier());
    // It ends with the file system, which holds the other end.
    let walker = walks.then(|| {
        let (nodes, walk, notifier, dir) =
            (Arc::clone(&nodes), Arc::clone(&walk), session.notifier(), PathBuf::from(&dir));
        thread::spawn(move || Walker { nodes: &nodes, walk: &walk, notifier: &notifier, seen: 0 }.go(&dir, 0))
    });
    let giver = thread::spawn(move || store(&nodes, &listed, &notifier));
    session.run()?;
    walk.is_over.store(true, Ordering::Relaxed);
    let _ = walker.map(thread::JoinHandle::join);
    let _ = giver.join();
    Ok(())
}
