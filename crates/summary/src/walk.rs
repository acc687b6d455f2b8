//! A tree that nobody tracks: directories are opened by their names, so that no privilege is needed.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use onesweep_sys::files::{self, DirReader, EntryType, magic};

use crate::{
    identity::{NodeId, STUB_INO},
    reading::{Directories, LinkedName, Reading, of_entry},
    tracker::{Drained, Tracker},
    volume::{access, add, linked, stand_out},
};

/// Bytes of names that are opened in one go: a path may be longer than the kernel takes at once.
const STEP_BYTES_MAX: usize = 4000;

/// A tree, read once. Its directories are told apart by device and inode, so mounts are no bounds.
#[derive(Debug)]
pub struct Walk {
    top: OwnedFd,
    root: NodeId,
    one_file_system: bool,
    /// The directory that each is in, and its name there.
    names: Mutex<HashMap<NodeId, (NodeId, CString)>>,
    /// Once it is true, nothing more is read.
    is_stopped: Arc<AtomicBool>,
}

impl Walk {
    /// The tree below `path`; `one_file_system`: without what is mounted in it.
    pub fn of(path: &Path, one_file_system: bool) -> io::Result<Walk> {
        let top = files::open_dir_handle(path)?;
        let stat = files::statx_fd(top.as_fd())?;
        let root = node(stat.dev, stat.ino);
        Ok(Walk { top, root, one_file_system, names: Mutex::default(), is_stopped: Arc::default() })
    }

    /// One that ends early once `is_stopped`, also within a directory: what is left of the tree is as if it couldn't be read, so
    /// that whoever stops it has no use for what comes of it.
    pub fn stopped_by(self, is_stopped: Arc<AtomicBool>) -> Walk {
        Walk { is_stopped, ..self }
    }

    fn check_stopped(&self) -> io::Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) { Err(io::Error::other("it was stopped")) } else { Ok(()) }
    }

    /// The directory at the top.
    pub fn root(&self) -> NodeId {
        self.root
    }

    fn handle(&self, directory: NodeId) -> io::Result<OwnedFd> {
        let mut way = Vec::new();
        let names = self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut at = directory;
        while at != self.root {
            let (above, name) = names.get(&at).ok_or(io::ErrorKind::NotFound)?;
            way.push(name.as_bytes());
            at = *above;
        }
        let mut paths: Vec<Vec<u8>> = Vec::new();
        for name in way.into_iter().rev() {
            match paths.last_mut() {
                Some(path) if path.len() + 1 + name.len() <= STEP_BYTES_MAX => {
                    path.push(b'/');
                    path.extend(name);
                }
                _ => paths.push(name.to_vec()),
            }
        }
        drop(names);
        let mut opened = self.top.try_clone()?;
        for path in paths {
            opened = files::open_handle_at(opened.as_fd(), path.as_slice())?;
        }
        let stat = files::statx_fd(opened.as_fd())?;
        // Somebody may have put something else in its place.
        if node(stat.dev, stat.ino) != (NodeId { generation: 0, ..directory }) {
            Err(io::ErrorKind::NotFound.into())
        } else {
            Ok(opened)
        }
    }

    fn list(&self, directory: NodeId, fd: BorrowedFd<'_>, reading: &mut Reading) -> io::Result<()> {
        let mut names: Vec<(u64, CString)> = Vec::new();
        DirReader::with_buffer(32 << 10).read_while(fd, |entry| {
            names.push((entry.ino, entry.name.to_owned()));
            !self.is_stopped.load(Ordering::Relaxed)
        })?;
        names.sort_unstable_by_key(|(ino, _)| *ino);
        for (_, name) in names {
            self.check_stopped()?;
            let stat = match files::statx_at(fd, name.as_c_str(), true) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    reading.unreadable.get_or_insert_with(|| of_entry(name.as_bytes(), &error));
                    continue;
                }
                Ok(stat) => stat,
            };
            let mut id = node(stat.dev, stat.ino);
            if self.one_file_system && stat.dev != self.root.subvolume {
                continue;
            }
            if stat.file_type() == EntryType::Dir {
                let is_stub = is_stub(fd, &name, stat.ino);
                let mut known = self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                if is_stub {
                    // Of those each is another one.
                    id.generation = 1 + known.len() as u32;
                }
                // A directory that is mounted a second time, or within itself, is the same one.
                if id == self.root {
                    continue;
                }
                match known.entry(id) {
                    Entry::Occupied(found) if *found.get() != (directory, name.clone()) => continue,
                    Entry::Occupied(_) => {}
                    Entry::Vacant(place) => {
                        place.insert((directory, name.clone()));
                    }
                }
                reading.directories.push((id, name.into_bytes().into()));
            } else if stat.nlink > 1 {
                reading.linked.push(linked(id, &stat));
                reading.own.sums.shared_names += 1;
                stand_out(&mut reading.own.extremes, &stat);
            } else {
                add(reading, &stat);
            }
        }
        Ok(())
    }
}

/// Whether a directory stands in a snapshot of btrfs for a subvolume of the original: all of those have the same number.
pub fn is_stub(directory: BorrowedFd<'_>, name: &CStr, ino: u64) -> bool {
    let file_system = || files::file_system(files::open_handle_at(directory, name)?.as_fd());
    ino == STUB_INO && file_system().is_ok_and(|told| told.magic == magic::BTRFS)
}

fn node(dev: u64, ino: u64) -> NodeId {
    NodeId { subvolume: dev, ino, generation: 0 }
}

impl Directories for Walk {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        self.check_stopped()?;
        let handle = self.handle(directory)?;
        let stat = files::statx_fd(handle.as_fd())?;
        let mut reading = Reading { blocks: stat.blocks as i64, ..Reading::default() };
        add(&mut reading, &stat);
        let listed = files::open_dir_at(handle.as_fd(), c".").and_then(|fd| {
            reading.access = access(fd.as_fd(), &stat);
            self.list(directory, fd.as_fd(), &mut reading)
        });
        if let Err(error) = listed {
            reading.unreadable = Some(error);
        }
        Ok(reading)
    }

    fn look(&self, _: NodeId) -> io::Result<LinkedName> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn parent(&self, _: NodeId) -> io::Result<NodeId> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        files::sync_file_system(self.top.as_fd())
    }

    fn settling_seconds(&self) -> i64 {
        0
    }
}

/// Nothing is told: for a tree that is read once.
#[derive(Clone, Copy, Debug)]
pub struct Untracked;

impl Tracker for Untracked {
    fn drain(&self) -> io::Result<Drained> {
        Ok(Drained::default())
    }

    fn heed(&self, _: NodeId) {}

    fn keep_heeding(&self, _: NodeId, _: bool) {}

    fn start_anew(&self) {}
}
