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

use crate::catalogue::{Catalogue, EntryId};

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
        if let Some(open) = self.directories.get(&id) {
            return Ok(Arc::clone(open));
        }
        let fd = match catalogue.get(id).parent.some() {
            None => files::open_dir_at(files::CURRENT_DIR, catalogue.root(id))?,
            Some(_) => {
                let (from, way) = self.nearest(catalogue, id)?;
                files::open_dir_at(from.as_fd(), &way[..])?
            }
        };
        let fd = Arc::new(fd);
        self.keep(id, Arc::clone(&fd));
        Ok(fd)
    }

    /// Opens a file for reading.
    pub(crate) fn file(&mut self, catalogue: &Catalogue, id: EntryId, direct: bool) -> io::Result<OwnedFd> {
        let open = |from: BorrowedFd<'_>, way: &[u8]| {
            if direct { files::open_direct_at(from, way) } else { files::open_file_at(from, way) }
        };
        match catalogue.get(id).parent.some() {
            None => open(files::CURRENT_DIR, path_bytes(catalogue.root(id))),
            Some(_) => {
                let (from, way) = self.nearest(catalogue, id)?;
                open(from.as_fd(), &way)
            }
        }
    }

    /// Opens an inode by any of its names that still leads to it.
    pub(crate) fn inode(&mut self, catalogue: &Catalogue, id: EntryId, direct: bool) -> io::Result<OwnedFd> {
        let entry = catalogue.get(id);
        if entry.next_link == EntryId::NONE {
            return self.file(catalogue, id, direct);
        }
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for name in catalogue.links(id) {
            outcome = self.file(catalogue, name, direct);
            if outcome.as_ref().is_ok_and(|fd| files::statx_fd(fd.as_fd()).is_ok_and(|stat| stat.ino == entry.ino)) {
                return outcome;
            }
        }
        outcome.and(Err(io::ErrorKind::NotFound.into()))
    }

    /// An open directory and the way from there to the entry, short enough for one call.
    fn nearest(&mut self, catalogue: &Catalogue, id: EntryId) -> io::Result<(Arc<OwnedFd>, Vec<u8>)> {
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
        let from = self.directory(catalogue, at)?;
        let mut way = Vec::with_capacity(length);
        for &id in names.iter().rev() {
            if !way.is_empty() {
                way.push(b'/');
            }
            way.extend_from_slice(catalogue.name(id));
        }
        Ok((from, way))
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
            Base::Root(catalogue.root(root).to_owned())
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
    /// A root that is opened anew each time: more of them than may be open.
    Root(PathBuf),
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

    /// Of what stands there itself, be it a symbolic link.
    pub(crate) fn stat(&self) -> io::Result<files::Stat> {
        self.follow(|from| files::statx_at(from, &self.way[..], true))
    }

    fn follow<T>(&self, call: impl Fn(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match &self.from {
            Base::Current => call(files::CURRENT_DIR),
            Base::Open(from) => call(from.as_fd()),
            Base::Root(path) => call(files::open_dir_at(files::CURRENT_DIR, path.as_path())?.as_fd()),
        }
    }
}

/// A path as the kernel takes it.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes()
}
