//! The files below a directory, in the order in which somebody reads them.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use onesweep_sys::{
    files::{DirReader, EntryType, may_write, open_dir, statx_at, statx_fd},
    user::effective_uid,
};

use crate::host::{Failure, Host, Stays, Trouble};
use crate::pack::Item;
use crate::places::Places;

/// The reader who is to profit. Each goes into a directory when its turn comes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// As directories list them: GNU tar, `find -exec`, `grep -r`.
    #[default]
    Readdir,
    /// By inode number in each directory: `tar --sort=inode`, and `cp -a` by and large.
    Inode,
    /// By name in each directory: `tar --sort=name`, rsync, shell patterns.
    Name,
}

/// A file of a survey.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// Its inode.
    pub inode: u64,
    /// Where its blocks lie.
    pub places: Places,
    /// Why it can't be moved.
    pub stays: Option<Stays>,
    /// It has new places since it was looked at: however often it is moved, it is one file.
    pub was_moved: bool,
}

impl Candidate {
    /// As it was found.
    #[must_use]
    pub fn new(path: PathBuf, inode: u64, places: Places, stays: Option<Stays>) -> Candidate {
        Candidate { path, inode, places, stays, was_moved: false }
    }

    /// As plans want it.
    #[must_use]
    pub fn item(&self) -> Item<'_> {
        Item { places: &self.places, may_move: self.stays.is_none() }
    }
}

struct Entry {
    name: CString,
    inode: u64,
    kind: EntryType,
}

/// The regular files below a directory in an order, on its own file system, each inode once.
///
/// What can't be listed is told to `problem` and left out.
///
/// # Errors
///
/// When the directory itself can't be listed.
pub fn files_below(
    directory: &Path,
    order: Order,
    problem: &mut dyn FnMut(&Path, io::Error),
) -> io::Result<Vec<PathBuf>> {
    let mut reader = DirReader::default();
    let mut files = Vec::new();
    let mut met = HashSet::new();
    let dev = statx_fd(open_dir(directory)?.as_fd())?.dev;
    let mut open = vec![(directory.to_owned(), entries(directory, dev, order, &mut reader)?.into_iter())];
    while let Some((path, rest)) = open.last_mut() {
        let Some(entry) = rest.next() else {
            open.pop();
            continue;
        };
        let path = path.join(OsStr::from_bytes(entry.name.to_bytes()));
        match entry.kind {
            EntryType::File if met.insert(entry.inode) => files.push(path),
            EntryType::Dir => match entries(&path, dev, order, &mut reader) {
                Ok(entries) => open.push((path, entries.into_iter())),
                Err(error) => problem(&path, error),
            },
            _ => {}
        }
    }
    Ok(files)
}

/// What a directory lists; nothing where something else is mounted.
fn entries(directory: &Path, dev: u64, order: Order, reader: &mut DirReader) -> io::Result<Vec<Entry>> {
    let open = open_dir(directory)?;
    let mut entries = Vec::new();
    if statx_fd(open.as_fd())?.dev != dev {
        return Ok(entries);
    }
    reader.read(open.as_fd(), |entry| {
        entries.push(Entry { name: entry.name.to_owned(), inode: entry.ino, kind: entry.kind });
    })?;
    for entry in entries.iter_mut().filter(|entry| entry.kind == EntryType::Unknown) {
        if let Ok(stat) = statx_at(open.as_fd(), entry.name.as_c_str(), true) {
            entry.kind = stat.file_type();
        }
    }
    match order {
        Order::Readdir => {}
        Order::Inode => entries.sort_by_key(|entry| entry.inode),
        Order::Name => entries.sort_by(|one, other| one.name.cmp(&other.name)),
    }
    Ok(entries)
}

/// Looks at files, in this order. Those that are gone are left out. Reads metadata alone.
///
/// # Errors
///
/// The first failure that is not one file's own.
pub fn survey<H: Host>(host: &mut H, paths: impl IntoIterator<Item = PathBuf>) -> Result<Vec<Candidate>, Failure> {
    let mut candidates = Vec::new();
    let is_root = effective_uid() == 0;
    for path in paths {
        match host.look(&path) {
            Ok(looked) => {
                let stays = looked.stays.or_else(|| (!is_root && !may_write(&path)).then_some(Stays::Denied));
                candidates.push(Candidate::new(path, looked.inode, looked.places, stays));
            }
            Err(Trouble::Stays(Stays::Gone)) => {}
            Err(Trouble::Stays(stays)) => {
                candidates.push(Candidate::new(path, 0, Places::default(), Some(stays)));
            }
            Err(Trouble::Failed(failure)) => return Err(failure),
        }
    }
    Ok(candidates)
}
