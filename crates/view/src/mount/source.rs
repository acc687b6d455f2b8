//! The tree that is shown, as files that are open: a node leads to what it stands for, or to an error, never to something else.

use std::{
    collections::HashMap,
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use onesweep_sys::{
    files::{EntryType, Stat, open_again_with, open_dir_handle, open_handle_at, statx_fd},
    handle::{Access, FileHandle, handle_at, open_by_handle},
    mounting, user,
};

use super::{
    births::{Birth, keeps_handles},
    nodes::{Life, Name, NodeId, Nodes, ROOT},
};
use crate::{guide::Inode, lock, record::Record};

/// Directories that stay open.
const DIRECTORIES_MAX: usize = 2048;
/// Directories between a node and the root, at most.
const DEPTH_MAX: usize = 1 << 16;

/// The tree.
#[derive(Debug)]
pub(super) struct Source {
    /// As others name it.
    path: PathBuf,
    root: Arc<OwnedFd>,
    /// That the root is a mount of its own: views that the kernel shows leave it alone.
    _noted: Option<Record>,
    /// The same, open for reading: marks and handles want that.
    anchor: OwnedFd,
    inode: Inode,
    read_only: bool,
    /// Its handles may be compared.
    pub(super) keeps_handles: bool,
    /// Inodes may be opened by their handles: as root.
    opens_handles: bool,
    nodes: Mutex<Nodes>,
    directories: Mutex<HashMap<Life, Arc<OwnedFd>>>,
    /// Nodes whose last name is gone.
    kept: Mutex<HashMap<Life, Arc<OwnedFd>>>,
}

/// What has to be known of a node to come to what it stands for.
struct Way {
    life: Life,
    inode: Inode,
    birth: Birth,
    names: Vec<Name>,
    handle: Option<FileHandle>,
}

fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

impl Source {
    /// Opens a directory. As root it becomes a mount of its own: nothing that is mounted in it is seen, no access time is written,
    /// and where it is `read_only`, nothing else either.
    pub(super) fn open(path: &Path, read_only: bool) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let own = if user::effective_uid() == 0 { mounting::own_mount_of(&path, read_only).ok() } else { None };
        // Before anything is opened through it.
        let noted = own.as_ref().and_then(|own| Record::of_own(own.as_fd()).ok());
        let root = match own {
            Some(root) => root,
            None => open_dir_handle(path.as_path())?,
        };
        let stat = statx_fd(root.as_fd())?;
        if stat.file_type() != EntryType::Dir {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let inode = Inode { dev: stat.dev, ino: stat.ino };
        let anchor = open_again_with(root.as_fd(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        let keeps_handles = keeps_handles(anchor.as_fd());
        let opens = |handle| open_by_handle(anchor.as_fd(), &handle, Access::Facts);
        let opens_handles = keeps_handles && handle_at(anchor.as_fd(), c"").and_then(opens).is_ok();
        Ok(Self {
            path,
            root: Arc::new(root),
            _noted: noted,
            anchor,
            inode,
            read_only,
            keeps_handles,
            opens_handles,
            nodes: Mutex::new(Nodes::new(inode)),
            directories: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.anchor.as_fd()
    }

    /// The inode of the root.
    pub(super) fn inode(&self) -> Inode {
        self.inode
    }

    /// The nodes; held for a moment only.
    pub(super) fn nodes(&self) -> std::sync::MutexGuard<'_, Nodes> {
        lock(&self.nodes)
    }

    /// The flags of open(2) that leave no trace of a reader.
    pub(super) fn quiet_flags(&self) -> i32 {
        if self.read_only { libc::O_NOATIME } else { 0 }
    }

    /// Whether a directory belongs to another file system, or to another subvolume. It is shown empty.
    pub(super) fn is_foreign(&self, stat: &Stat) -> bool {
        stat.dev != self.inode.dev && stat.file_type() == EntryType::Dir
    }

    /// A directory, for going on from it.
    pub(super) fn directory(&self, id: NodeId) -> io::Result<Arc<OwnedFd>> {
        let mut below = Vec::new();
        let mut at = id;
        let mut open = loop {
            if at == ROOT {
                break Arc::clone(&self.root);
            }
            let life = self.life(at)?;
            let known = lock(&self.directories).get(&life).or(lock(&self.kept).get(&life)).cloned();
            if let Some(known) = known {
                break known;
            }
            let way = self.way(at)?;
            let name = way.names.first().cloned().ok_or_else(stale)?;
            if below.len() == DEPTH_MAX {
                return Err(stale());
            }
            below.push((way, name.name));
            at = name.directory;
        };
        while let Some((way, name)) = below.pop() {
            open = self
                .directory_by(&open, &name, &way)
                .or_else(|why| self.nameless(&way).map(|(open, _)| open).ok_or(why))?;
            self.put(&self.directories, way.life, &open, DIRECTORIES_MAX);
        }
        Ok(open)
    }

    fn directory_by(&self, above: &OwnedFd, name: &CStr, way: &Way) -> io::Result<Arc<OwnedFd>> {
        let found = open_handle_at(above.as_fd(), name).map_err(gone_is_stale)?;
        match self.is_at(found.as_fd(), way)? {
            Some(stat) if stat.file_type() == EntryType::Dir => Ok(Arc::new(found)),
            _ => Err(stale()),
        }
    }

    /// The node that has a number now.
    pub(super) fn life(&self, id: NodeId) -> io::Result<Life> {
        self.nodes().life(id).ok_or_else(stale)
    }

    fn way(&self, id: NodeId) -> io::Result<Way> {
        let nodes = self.nodes();
        let (life, (inode, birth)) = nodes.life(id).zip(nodes.inode_and_birth(id)).ok_or_else(stale)?;
        Ok(Way { life, inode, birth, names: nodes.names(id), handle: nodes.handle(id) })
    }

    /// What it is, if it is what a way leads to: another one of the same number isn't.
    fn is_at(&self, open: BorrowedFd<'_>, way: &Way) -> io::Result<Option<Stat>> {
        let found = self.look(open)?;
        Ok((found.inode() == way.inode && way.birth.is(&found.birth)).then_some(found.stat))
    }

    /// Notes what a node is open as, as long as the kernel knows it.
    fn put(&self, place: &Mutex<HashMap<Life, Arc<OwnedFd>>>, of: Life, open: &Arc<OwnedFd>, at_most: usize) {
        // Whoever forgets the node does so before he looks whether something is noted.
        let nodes = self.nodes();
        if nodes.life(of.id) == Some(of) {
            let mut place = lock(place);
            if place.len() >= at_most {
                // Those that are needed come again.
                place.clear();
            }
            place.insert(of, Arc::clone(open));
        }
    }

    /// What a node stands for: an `O_PATH` descriptor, also of a link.
    pub(super) fn handle(&self, id: NodeId) -> io::Result<Arc<OwnedFd>> {
        self.handle_and_stat(id).map(|(handle, _)| handle)
    }

    /// The same, and what it is now.
    pub(super) fn handle_and_stat(&self, id: NodeId) -> io::Result<(Arc<OwnedFd>, Stat)> {
        if id == ROOT {
            return Ok((Arc::clone(&self.root), statx_fd(self.root.as_fd())?));
        }
        let way = self.way(id)?;
        if let Some(kept) = lock(&self.kept).get(&way.life).cloned() {
            let stat = statx_fd(kept.as_fd())?;
            return Ok((kept, stat));
        }
        let mut why = stale();
        for name in &way.names {
            let found = self
                .directory(name.directory)
                .and_then(|directory| open_handle_at(directory.as_fd(), name.name.as_c_str()).map_err(gone_is_stale));
            match found.and_then(|found| self.is_at(found.as_fd(), &way).map(|stat| (found, stat))) {
                Ok((found, Some(stat))) => return Ok((Arc::new(found), stat)),
                Ok((_, None)) => {}
                Err(error) => why = error,
            }
        }
        self.nameless(&way).ok_or(why)
    }

    /// Notes what leads to a node when its names go.
    pub(super) fn note_handle(&self, of: Life, open: BorrowedFd<'_>) {
        if self.opens_handles
            && let Ok(handle) = handle_at(open, c"")
        {
            self.nodes().note_handle(of, handle);
        }
    }

    /// What has lost the names by which it is known, if its handle is.
    fn nameless(&self, way: &Way) -> Option<(Arc<OwnedFd>, Stat)> {
        let found = open_by_handle(self.root(), &way.handle?, Access::Facts).ok()?;
        let stat = self.is_at(found.as_fd(), way).ok()??;
        Some((Arc::new(found), stat))
    }

    /// Opens what a node stands for, with the flags of open(2).
    pub(super) fn open_file(&self, id: NodeId, flags: i32) -> io::Result<(OwnedFd, Stat)> {
        let (handle, stat) = self.handle_and_stat(id)?;
        let quiet = self.quiet_flags();
        match open_again_with(handle.as_fd(), flags | quiet) {
            // Only its owner may leave the access time alone.
            Err(error) if quiet != 0 && error.raw_os_error() == Some(libc::EPERM) => {
                Ok((open_again_with(handle.as_fd(), flags)?, stat))
            }
            // Somebody looks whether anybody writes it, and is about to let go of it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok((open_again_with(handle.as_fd(), (flags | quiet) & !libc::O_NONBLOCK)?, stat))
            }
            opened => Ok((opened?, stat)),
        }
    }

    /// The name of a node goes; what it stands for stays within reach.
    pub(super) fn keep(&self, of: Life, handle: &Arc<OwnedFd>) {
        self.put(&self.kept, of, handle, usize::MAX);
    }

    /// It didn't go.
    pub(super) fn keep_no_more(&self, of: Life) {
        lock(&self.kept).remove(&of);
    }

    /// The kernel forgets a node.
    pub(super) fn forget(&self, id: NodeId, times: u64) {
        let ended = self.nodes().forget(id, times);
        if let Some(ended) = ended {
            lock(&self.directories).remove(&ended);
            lock(&self.kept).remove(&ended);
        }
    }

    /// A name of a node, below the root.
    pub(super) fn name_of(&self, id: NodeId) -> Option<Vec<u8>> {
        let nodes = self.nodes();
        let last = nodes.names(id).into_iter().next()?;
        let mut names = nodes.path(last.directory)?;
        names.push(last.name);
        Some(names.iter().map(|name| name.to_bytes()).collect::<Vec<_>>().join(&b'/'))
    }

    /// The path of a directory, as others name it.
    pub(super) fn path_of(&self, id: NodeId) -> Option<PathBuf> {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        let names = self.nodes().path(id)?;
        Some(names.iter().fold(self.path.clone(), |path, name| path.join(OsStr::from_bytes(name.to_bytes()))))
    }
}

/// That a name is gone which led to a node is news to the kernel, which asks for the name again.
fn gone_is_stale(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => stale(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs};

    use super::*;

    fn told(source: &Source, directory: NodeId, name: &str) -> NodeId {
        let name = CString::new(name).unwrap();
        let found = source.look_at(source.directory(directory).unwrap().as_fd(), &name).unwrap();
        source.nodes().told(found.inode(), &found.birth, directory, &name).id
    }

    #[test]
    fn a_node_leads_to_its_inode_or_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/file"), "bytes").unwrap();
        fs::hard_link(folder.path().join("a/b/file"), folder.path().join("link")).unwrap();
        let source = Source::open(folder.path(), true).unwrap();
        let a = told(&source, ROOT, "a");
        let b = told(&source, a, "b");
        let file = told(&source, b, "file");
        assert_eq!(source.handle_and_stat(file).unwrap().1.size, 5);
        assert_eq!(source.path_of(b).unwrap(), source.path().join("a/b"));
        assert_eq!(source.name_of(file).unwrap(), b"a/b/file");
        fs::rename(folder.path().join("a/b/file"), folder.path().join("a/b/other")).unwrap();
        let why = |id| source.handle(id).unwrap_err().raw_os_error();
        assert_eq!(why(file), Some(libc::ESTALE));
        fs::write(folder.path().join("a/b/file"), "another one").unwrap();
        assert_eq!(why(file), Some(libc::ESTALE));
        assert_eq!(told(&source, ROOT, "link"), file);
        assert_eq!(source.handle_and_stat(file).unwrap().1.size, 5);
        source.forget(file, 1);
        source.forget(file, 1);
        assert_eq!(why(file), Some(libc::ESTALE));
        let handle = source.handle(b).unwrap();
        let life = source.nodes().life(b).unwrap();
        source.keep(life, &handle);
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        assert_eq!(source.handle_and_stat(b).unwrap().1.nlink, 0);
    }
}
