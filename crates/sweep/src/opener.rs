//! Opens entries by their place in the catalogue: relative to directories that are open already, so that any depth and
//! any path length works, and without following a symbolic link on the way.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_sys::{files, limits};

use crate::{
    catalogue::{Catalogue, EntryId},
    item::Kind,
};

/// Open directories that are kept, where the process may have as many.
const DIRECTORIES_MAX: u64 = 64;

/// Open roots that are kept.
const ROOTS_MAX: usize = 16;

/// The kernel takes paths shorter than this (`PATH_MAX` counts the final zero).
const PATH_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Opener {
    directories: HashMap<EntryId, Arc<OwnedFd>>,
    oldest: VecDeque<EntryId>,
    directories_max: usize,
    /// Those that ways begin at.
    roots: HashMap<EntryId, Arc<OwnedFd>>,
}

/// So many descriptors of a cache that would like `wanted`: a sweep takes at most a part of what the process may have.
pub(crate) fn descriptors(wanted: u64, part: u64) -> usize {
    let allowed = limits::open_files().soft.unwrap_or(u64::MAX);
    (allowed / part).clamp(2, wanted) as usize
}

impl Opener {
    pub(crate) fn new() -> Self {
        let directories_max = descriptors(DIRECTORIES_MAX, 16);
        Self { directories: HashMap::new(), oldest: VecDeque::new(), directories_max, roots: HashMap::new() }
    }

    /// Opens a directory, or takes it from those that are open.
    pub(crate) fn directory(&mut self, catalogue: &Catalogue, id: EntryId) -> io::Result<Arc<OwnedFd>> {
        // Stops on the way that are not open: there may be thousands, so this is no recursion.
        let mut stops = Vec::new();
        let mut at = id;
        let mut fd = loop {
            if let Some(open) = self.directories.get(&at) {
                break Arc::clone(open);
            }
            if catalogue.get(at).parent == EntryId::NONE {
                let fd = Arc::new(open_root(catalogue.root(at), catalogue.root_identity(at))?);
                self.keep(at, Arc::clone(&fd));
                break fd;
            }
            let (above, way) = self.reach(catalogue, at);
            stops.push((at, way));
            at = above;
        };
        for (stop, way) in stops.into_iter().rev() {
            fd = Arc::new(files::open_dir_at(fd.as_fd(), &way[..])?);
            self.keep(stop, Arc::clone(&fd));
        }
        Ok(fd)
    }

    /// Opens a file for reading.
    pub(crate) fn file(&mut self, catalogue: &Catalogue, id: EntryId, direct: bool) -> io::Result<OwnedFd> {
        let open = |from: BorrowedFd<'_>, way: &[u8]| {
            if direct { files::open_direct_at(from, way) } else { files::open_file_at(from, way) }
        };
        match catalogue.get(id).parent.some() {
            None => {
                let fd = open(files::CURRENT_DIR, path_bytes(catalogue.root(id)))?;
                check_identity(fd.as_fd(), catalogue.root_identity(id)).map(|()| fd)
            }
            Some(_) => {
                let (from, way) = self.nearest(catalogue, id)?;
                open(from.as_fd(), &way)
            }
        }
    }

    /// Opens the regular file that was surveyed, by any of its names that still leads to it. Another regular file may have
    /// taken its only name since: that one is opened then.
    pub(crate) fn inode(&mut self, catalogue: &Catalogue, id: EntryId, direct: bool) -> io::Result<OwnedFd> {
        let entry = catalogue.get(id);
        let has_links = entry.next_link != EntryId::NONE;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for name in catalogue.links(id) {
            let opened = self.file(catalogue, name, direct).and_then(|fd| {
                let stat = files::statx_fd(fd.as_fd())?;
                // A fifo in its place would keep a read waiting for good.
                if Kind::of_mode(stat.mode) != Some(Kind::File) {
                    return Err(io::Error::other("it is no regular file any more"));
                }
                if has_links && stat.ino != entry.ino {
                    return Err(io::ErrorKind::NotFound.into());
                }
                files::let_block(fd.as_fd())?;
                Ok(fd)
            });
            match opened {
                Ok(fd) => return Ok(fd),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// An open directory and the way from there to the entry, short enough for one call.
    fn nearest(&mut self, catalogue: &Catalogue, id: EntryId) -> io::Result<(Arc<OwnedFd>, Vec<u8>)> {
        let (above, way) = self.reach(catalogue, id);
        Ok((self.directory(catalogue, above)?, way))
    }

    /// A directory above that is open, or that one call leads from to the entry, and the way from there.
    fn reach(&self, catalogue: &Catalogue, id: EntryId) -> (EntryId, Vec<u8>) {
        let mut names = vec![id];
        let mut length = catalogue.name(id).len();
        let mut at = catalogue.get(id).parent;
        loop {
            let is_root = catalogue.get(at).parent == EntryId::NONE;
            let next = length + 1 + catalogue.name(at).len();
            if is_root || self.directories.contains_key(&at) || next >= PATH_MAX {
                break;
            }
            names.push(at);
            length = next;
            at = catalogue.get(at).parent;
        }
        let mut way = Vec::with_capacity(length);
        for &id in names.iter().rev() {
            if !way.is_empty() {
                way.push(b'/');
            }
            way.extend_from_slice(catalogue.name(id));
        }
        (at, way)
    }

    /// How to open a file later, without holding a descriptor of its own until then: from its root, whose descriptor
    /// serves all, unless the way is too long for one call.
    pub(crate) fn way(&mut self, catalogue: &Catalogue, id: EntryId) -> io::Result<Way> {
        match self.short_way(catalogue, id)? {
            Some(way) => Ok(way),
            None => {
                let (from, way) = self.nearest(catalogue, id)?;
                Ok(Way { from: Base::Open(from), way })
            }
        }
    }

    /// The same for ways that are kept by the thousand: `None` where the way is too long for one call.
    pub(crate) fn short_way(&mut self, catalogue: &Catalogue, id: EntryId) -> io::Result<Option<Way>> {
        let lineage: Vec<EntryId> = catalogue.lineage(id).collect();
        let Some((&root, below)) = lineage.split_last().filter(|(_, below)| !below.is_empty()) else {
            return Ok(Some(Way::to(catalogue.root(id))));
        };
        let way = below.iter().rev().map(|&id| catalogue.name(id)).collect::<Vec<_>>().join(&b'/');
        if way.len() >= PATH_MAX {
            return Ok(None);
        }
        let is_kept = self.roots.contains_key(&root);
        let from = if is_kept || self.roots.len() < ROOTS_MAX.min(self.directories_max) {
            Base::Open(self.root(catalogue, root)?)
        } else {
            Base::Root(catalogue.root(root).to_owned(), catalogue.root_identity(root))
        };
        Ok(Some(Way { from, way }))
    }

    /// The directory of a root, kept for good.
    fn root(&mut self, catalogue: &Catalogue, root: EntryId) -> io::Result<Arc<OwnedFd>> {
        if let Some(open) = self.roots.get(&root) {
            return Ok(Arc::clone(open));
        }
        let fd = self.directory(catalogue, root)?;
        self.roots.insert(root, Arc::clone(&fd));
        Ok(fd)
    }

    /// The directory of an entry, opened and kept: for walks that look at many entries of one directory in a row.
    /// `None` for a root.
    pub(crate) fn parent(&mut self, catalogue: &Catalogue, id: EntryId) -> io::Result<Option<Arc<OwnedFd>>> {
        catalogue.get(id).parent.some().map(|parent| self.directory(catalogue, parent)).transpose()
    }

    fn keep(&mut self, id: EntryId, fd: Arc<OwnedFd>) {
        if self.oldest.len() >= self.directories_max
            && let Some(old) = self.oldest.pop_front()
        {
            self.directories.remove(&old);
        }
        self.directories.insert(id, fd);
        self.oldest.push_back(id);
    }

    /// Forgets everything: the numbers of entries have changed.
    pub(crate) fn clear(&mut self) {
        self.directories.clear();
        self.oldest.clear();
        self.roots.clear();
    }
}

/// How to open a file later.
#[derive(Debug)]
pub(crate) struct Way {
    from: Base,
    way: Vec<u8>,
}

/// Where a way begins.
#[derive(Debug)]
enum Base {
    Current,
    Open(Arc<OwnedFd>),
    /// A root that is opened anew each time: more of them than may be open. With what must stand there.
    Root(PathBuf, Option<(u64, u64)>),
}

impl Way {
    /// To a file that is opened by its path.
    pub(crate) fn to(path: &Path) -> Self {
        Self { from: Base::Current, way: path_bytes(path).to_vec() }
    }

    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        self.follow(|from| files::open_file_at(from, &self.way[..]))
    }

    pub(crate) fn open_directory(&self) -> io::Result<OwnedFd> {
        self.follow(|from| files::open_dir_at(from, &self.way[..]))
    }

    /// Of what stands there itself, be it a symbolic link; none on the way is followed.
    pub(crate) fn stat(&self) -> io::Result<files::Stat> {
        self.follow(|from| {
            if !self.way.contains(&b'/') {
                return files::statx_at(from, &self.way[..], true);
            }
            files::statx_fd(files::open_handle_at(from, &self.way[..])?.as_fd())
        })
    }

    fn follow<T>(&self, call: impl Fn(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match &self.from {
            Base::Current => call(files::CURRENT_DIR),
            Base::Open(from) => call(from.as_fd()),
            Base::Root(path, identity) => call(open_root(path, *identity)?.as_fd()),
        }
    }
}

/// Opens the directory of a root, which must be the one that is expected, if one is.
fn open_root(path: &Path, identity: Option<(u64, u64)>) -> io::Result<OwnedFd> {
    let fd = files::open_dir_at(files::CURRENT_DIR, path)?;
    check_identity(fd.as_fd(), identity).map(|()| fd)
}

/// Fails where something else stands than the device and inode that are expected.
pub(crate) fn check_identity(fd: BorrowedFd<'_>, expected: Option<(u64, u64)>) -> io::Result<()> {
    let Some(expected) = expected else { return Ok(()) };
    let stat = files::statx_fd(fd)?;
    if (stat.dev, stat.ino) == expected { Ok(()) } else { Err(io::Error::other("something else is mounted there now")) }
}

/// A path as the kernel takes it.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes()
}
