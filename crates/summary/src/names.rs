//! Where directories are, by names: for file systems whose inodes can't be opened by their numbers.

use std::{
    collections::HashMap,
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use onesweep_sys::files::{self, DirReader, EntryType, Stat};

use crate::{identity::NodeId, reading::is_gone};

/// Bytes of names that are opened in one go: a path may be longer than the kernel takes at once.
const STEP_BYTES_MAX: usize = 4000;

/// The directories of one mount.
#[derive(Debug)]
pub(crate) struct Names {
    root: NodeId,
    dev: u64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The directory that each is in, and its name there.
    places: HashMap<NodeId, (NodeId, CString)>,
    /// All were looked for: who isn't known since came later, and is found by the reading of the one above.
    is_searched: bool,
}

impl Names {
    pub(crate) fn below(top: &Stat) -> Names {
        let root = NodeId { subvolume: 0, ino: top.ino, generation: 0 };
        Names { root, dev: top.dev, known: Mutex::default() }
    }

    /// The number of an inode: what `stat` tells. Nobody tells whether another one had it before.
    pub(crate) fn node(&self, stat: &Stat) -> NodeId {
        let subvolume = if stat.dev == self.dev { 0 } else { stat.dev };
        NodeId { subvolume, ino: stat.ino, generation: 0 }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory was found there.
    pub(crate) fn found(&self, directory: NodeId, above: NodeId, name: CString) {
        self.known().places.insert(directory, (above, name));
    }

    /// Opens a directory, for its facts alone. `NotFound` when it isn't where it was.
    pub(crate) fn open(&self, top: BorrowedFd<'_>, directory: NodeId) -> io::Result<OwnedFd> {
        let way = match self.way(directory) {
            Some(way) => way,
            // What a store says of was found by an earlier process.
            None => {
                self.search(top)?;
                self.way(directory).ok_or(io::ErrorKind::NotFound)?
            }
        };
        let mut opened = top.try_clone_to_owned()?;
        for path in way {
            opened = files::open_handle_at(opened.as_fd(), path.as_slice()).inspect_err(|error| {
                if is_gone(error) {
                    self.forget(directory);
                }
            })?;
        }
        let stat = files::statx_fd(opened.as_fd())?;
        if self.node(&stat) != directory || stat.file_type() != EntryType::Dir {
            self.forget(directory);
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(opened)
    }

    /// The directory above one, where it is still there.
    pub(crate) fn parent(&self, top: BorrowedFd<'_>, directory: NodeId) -> io::Result<NodeId> {
        self.open(top, directory)?;
        let known = self.known();
        Ok(known.places.get(&directory).ok_or(io::ErrorKind::NotFound)?.0)
    }

    fn forget(&self, directory: NodeId) {
        self.known().places.remove(&directory);
    }

    /// The names that lead to it, joined to paths that can be opened; `None` where they aren't known.
    fn way(&self, directory: NodeId) -> Option<Vec<Vec<u8>>> {
        let known = self.known();
        let (mut names, mut at) = (Vec::new(), directory);
        while at != self.root {
            // Moved into each other since, by what was found before and after.
            if names.len() > known.places.len() {
                return None;
            }
            let (above, name) = known.places.get(&at)?;
            names.push(name.as_bytes());
            at = *above;
        }
        let mut paths: Vec<Vec<u8>> = Vec::new();
        for name in names.into_iter().rev() {
            match paths.last_mut() {
                Some(path) if path.len() + 1 + name.len() <= STEP_BYTES_MAX => {
                    path.push(b'/');
                    path.extend(name);
                }
                _ => paths.push(name.to_vec()),
            }
        }
        Some(paths)
    }

    /// Looks for all directories, once: those that can't be listed have none in them.
    fn search(&self, top: BorrowedFd<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.known().is_searched, true) {
            return Ok(());
        }
        let mount = files::statx_fd(top)?.mnt_id;
        let mut left = vec![self.root];
        while let Some(above) = left.pop() {
            let listed = self.open(top, above).and_then(|at| files::open_dir_at(at.as_fd(), c"."));
            let Ok(directory) = listed else { continue };
            let mut names: Vec<(CString, EntryType)> = Vec::new();
            let read = DirReader::with_buffer(32 << 10)
                .read(directory.as_fd(), |entry| names.push((entry.name.to_owned(), entry.kind)));
            if read.is_err() {
                continue;
            }
            // Of some file systems it takes a look to know what an entry is.
            for (name, _) in names.into_iter().filter(|(_, kind)| matches!(kind, EntryType::Dir | EntryType::Unknown)) {
                let Ok(stat) = files::statx_at(directory.as_fd(), name.as_c_str(), true) else { continue };
                if stat.file_type() == EntryType::Dir && stat.mnt_id == mount {
                    let id = self.node(&stat);
                    self.found(id, above, name);
                    left.push(id);
                }
            }
        }
        Ok(())
    }
}
