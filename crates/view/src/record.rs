//! Mounts that views have made, noted where other views find it: those by which the kernel shows a tree, also when the process that showed it was
//! killed, and those by which views look at their trees. Such a mount looks as any other one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
};

use onesweep_layout::mounts::MountTable;
use onesweep_sys::{
    files::{open_handle, statx_fd},
    mounting,
};

/// Root alone can make names there, and nothing in it outlasts a restart, as mounts don't.
const FOLDER: &str = "/run/onesweep-view";

/// A mount that this process has made. It is known as such until this is dropped; when the process is killed, as one that was left behind.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
    /// Locked as long as somebody serves it.
    file: File,
}

/// What a mount is to a view that is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    /// None of ours.
    Another,
    /// Somebody serves it.
    Served,
    /// Its process was killed.
    LeftBehind,
}

impl Record {
    /// Notes that the mount with this top is one by which this process is about to show a tree at `place`.
    pub(crate) fn of_shown(top: BorrowedFd<'_>, place: &Path) -> io::Result<Self> {
        Self::of(top, place)
    }

    /// Notes that the mount with this top is one by which this process looks at a tree: it is nowhere to be seen.
    pub(crate) fn of_own(top: BorrowedFd<'_>) -> io::Result<Self> {
        Self::of(top, Path::new(""))
    }

    fn of(top: BorrowedFd<'_>, place: &Path) -> io::Result<Self> {
        if let Ok(mounts) = MountTable::read() {
            forget_those_that_are_gone(Path::new(FOLDER), |mount| mounts.by_id(mount).is_some());
        }
        Self::below(Path::new(FOLDER), top, place, mounting::mount_id(top)?)
    }

    fn below(folder: &Path, top: BorrowedFd<'_>, place: &Path, mount: u64) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let new = folder.join(format!("{mount}.new"));
        // One of a process that was killed, when a mount that is gone had this number.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.try_lock()?;
        file.write_all(&text(top, place)?)?;
        // Whoever finds it finds it locked, and in place of another one of such a mount.
        let path = folder.join(mount.to_string());
        fs::rename(new, &path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        remove_if(&self.path, &self.file);
    }
}

/// Removes what is noted there, if it is that. The number of a mount that is gone is given to the next one, whose note takes the place of this one.
fn remove_if(path: &Path, is: &File) {
    let id = |stat: fs::Metadata| (stat.dev(), stat.ino());
    if fs::symlink_metadata(path).map(id).ok().is_some_and(|there| is.metadata().map(id).is_ok_and(|it| it == there)) {
        let _ = fs::remove_file(path);
    }
}

/// Removes what is noted of mounts that aren't there any more, by views that were killed.
fn forget_those_that_are_gone(folder: &Path, is_there: impl Fn(u64) -> bool) {
    for note in fs::read_dir(folder).into_iter().flatten().flatten() {
        let mount = note.file_name().to_str().and_then(|name| name.parse().ok());
        let is_gone = mount.is_some_and(|mount| !is_there(mount));
        if is_gone
            && let Ok(file) = File::open(note.path())
            && file.try_lock().is_ok()
        {
            remove_if(&note.path(), &file);
        }
    }
}

/// What is mounted at `place`, if a view is.
pub fn former(place: &Path) -> Former {
    let Ok(mounts) = MountTable::read() else { return Former::Another };
    let top = mounts.iter().rfind(|mount| mount.mount_point == place);
    // Before Linux 6.8 a number may have come to another mount at the same place.
    let top = top.filter(|mount| ["nosuid", "nodev"].iter().all(|ours| mount.options.split(',').any(|it| it == *ours)));
    top.map_or(Former::Another, |mount| former_below(Path::new(FOLDER), place, mount.id))
}

fn former_below(folder: &Path, place: &Path, mount: u64) -> Former {
    let there = || text(open_handle(place)?.as_fd(), place);
    let (Ok((file, noted)), Ok(there)) = (noted_below(folder, mount), there()) else { return Former::Another };
    // The number may have come to another mount.
    if noted != there {
        return Former::Another;
    }
    // Several may ask at once, and aren't to find each other.
    if file.try_lock_shared().is_ok() { Former::LeftBehind } else { Former::Served }
}

/// Whether the mount through which something was opened is one that a view has made and somebody serves.
pub(crate) fn is_served(open: BorrowedFd<'_>) -> bool {
    mounting::mount_id(open).is_ok_and(|mount| is_served_below(Path::new(FOLDER), open, mount))
}

fn is_served_below(folder: &Path, open: BorrowedFd<'_>, mount: u64) -> bool {
    let (Ok((file, noted)), Ok(start)) = (noted_below(folder, mount), start(open)) else { return false };
    noted.starts_with(start.as_bytes()) && file.try_lock_shared().is_err()
}

/// What is noted of the mount of that number.
fn noted_below(folder: &Path, mount: u64) -> io::Result<(File, Vec<u8>)> {
    let mut file = File::open(folder.join(mount.to_string()))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((file, bytes))
}

/// What a note begins with: a number that the mount has alone, where the kernel gives any.
fn start(open: BorrowedFd<'_>) -> io::Result<String> {
    Ok(format!("{} ", mounting::unique_mount_id(open)?.unwrap_or(0)))
}

/// The top of a mount, and the place where it is to be seen.
fn text(top: BorrowedFd<'_>, place: &Path) -> io::Result<Vec<u8>> {
    let facts = statx_fd(top)?;
    let mut text = format!("{}{} {} ", start(top)?, facts.dev, facts.ino).into_bytes();
    text.extend(place.as_os_str().as_bytes());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_known_while_it_is_served_and_when_it_was_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (records, place) = (folder.path().join("records"), folder.path().join("place"));
        fs::create_dir(&place).unwrap();
        let is = |mount| former_below(&records, &place, mount);
        let below = |mount| Record::below(&records, open_handle(&place).unwrap().as_fd(), &place, mount).unwrap();
        // By anything that is opened through it, wherever that is.
        let is_served = |mount| is_served_below(&records, File::open(folder.path()).unwrap().as_fd(), mount);
        assert_eq!(is(7), Former::Another);
        let record = below(7);
        assert_eq!((is(7), is(8)), (Former::Served, Former::Another));
        assert!(is_served(7) && !is_served(8));
        // Its number is given to the next mount before it has taken its note away.
        let next = below(7);
        drop(record);
        assert_eq!(is(7), Former::Served);
        drop(next);
        assert_eq!(is(7), Former::Another);
        assert!(!is_served(7));
        let mut record = below(7);
        // As when its process is killed.
        record.path = folder.path().join("none");
        drop(record);
        assert_eq!(is(7), Former::LeftBehind);
        assert!(!is_served(7), "nobody is left to help there");
        assert_eq!(former_below(&records, folder.path(), 7), Former::Another, "another place");
        fs::rename(&place, folder.path().join("former")).unwrap();
        fs::create_dir(&place).unwrap();
        assert_eq!(is(7), Former::Another, "something else is there by now");
        let _served = below(8);
        forget_those_that_are_gone(&records, |mount| mount == 7);
        let left = || fs::read_dir(&records).unwrap().count();
        assert_eq!(left(), 2, "one is there, and the other is served");
        forget_those_that_are_gone(&records, |_| false);
        assert_eq!((left(), is(8)), (1, Former::Served));
    }
}
