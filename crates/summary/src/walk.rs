//! A tree that nobody tracks: directories are opened by their names, so that no privilege is needed.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use onesweep_sys::files::{self, DirReader, EntryType, Stat, magic};

use crate::{
    identity::{NodeId, STUB_INO},
    reading::{Directories, LinkedName, Reading, of_entry},
    tracker::{Drained, Tracker},
    volume::{access_by, add, linked, listing::LISTED_BYTES, stand_out},
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
    /// That aren't in use.
    readers: Mutex<Vec<DirReader>>,
    /// Once it is true, nothing more is read.
    is_stopped: Arc<AtomicBool>,
}

impl Walk {
    /// The tree below `path`; `one_file_system`: without what is mounted in it.
    pub fn of(path: &Path, one_file_system: bool) -> io::Result<Walk> {
        let top = files::open_dir_handle(path)?;
        let stat = files::statx_fd(top.as_fd())?;
        let root = node(stat.dev, stat.ino);
        Ok(Walk {
            top,
            root,
            one_file_system,
            names: Mutex::default(),
            readers: Mutex::default(),
            is_stopped: Arc::default(),
        })
    }

    /// One that ends early once `is_stopped`, also within a directory: what is left of the tree is as if it couldn't be read, so
    /// that whoever stops it has no use for what comes of it.
    pub fn stopped_by(self, is_stopped: Arc<AtomicBool>) -> Walk {
        Walk { is_stopped, ..self }
    }

    fn readers(&self) -> MutexGuard<'_, Vec<DirReader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_stopped(&self) -> io::Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) { Err(io::Error::other("it was stopped")) } else { Ok(()) }
    }

    /// The directory at the top.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// The names that lead to a directory, as many in one as the kernel takes at once.
    fn steps(&self, directory: NodeId) -> io::Result<Vec<Vec<u8>>> {
        let mut way = Vec::new();
        let names = self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut at = directory;
        while at != self.root {
            let (above, name) = names.get(&at).ok_or(io::ErrorKind::NotFound)?;
            way.push(name.as_bytes());
            at = *above;
        }
        let mut steps: Vec<Vec<u8>> = Vec::new();
        for name in way.into_iter().rev() {
            match steps.last_mut() {
                Some(step) if step.len() + 1 + name.len() <= STEP_BYTES_MAX => {
                    step.push(b'/');
                    step.extend(name);
                }
                _ => steps.push(name.to_vec()),
            }
        }
        Ok(steps)
    }

    /// Opens a directory, one that may not be listed too; with why it can't be.
    fn open(&self, directory: NodeId) -> io::Result<(OwnedFd, Stat, Option<io::Error>)> {
        let mut steps = self.steps(directory)?;
        let last = steps.pop().unwrap_or_else(|| b".".to_vec());
        let mut above: Option<OwnedFd> = None;
        for step in steps {
            let at = above.as_ref().map_or(self.top.as_fd(), AsFd::as_fd);
            above = Some(files::open_handle_at(at, step.as_slice())?);
        }
        let above = above.as_ref().map_or(self.top.as_fd(), AsFd::as_fd);
        let (opened, why) = match files::open_dir_at(above, last.as_slice()) {
            Ok(opened) => (opened, None),
            Err(error) => (files::open_handle_at(above, last.as_slice())?, Some(error)),
        };
        let stat = files::statx_fd(opened.as_fd())?;
        // Somebody may have put something else in its place.
        if node(stat.dev, stat.ino) != (NodeId { generation: 0, ..directory }) {
            Err(io::ErrorKind::NotFound.into())
        } else {
            Ok((opened, stat, why))
        }
    }

    fn list(&self, directory: NodeId, fd: BorrowedFd<'_>, reading: &mut Reading) -> io::Result<()> {
        let mut names: Vec<(u64, CString)> = Vec::new();
        let mut reader = self.readers().pop().unwrap_or_else(|| DirReader::with_buffer(LISTED_BYTES));
        let listed = reader.read_while(fd, |entry| {
            names.push((entry.ino, entry.name.to_owned()));
            !self.is_stopped.load(Ordering::Relaxed)
        });
        self.readers().push(reader);
        listed?;
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
        let (opened, stat, why) = self.open(directory)?;
        // Who walks sees what may be seen: access lists are of no use.
        let mut reading = Reading { access: access_by(None, &stat), blocks: stat.blocks as i64, ..Reading::default() };
        add(&mut reading, &stat);
        reading.unreadable = match why {
            Some(why) => Some(why),
            None => self.list(directory, opened.as_fd(), &mut reading).err().or(reading.unreadable.take()),
        };
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
