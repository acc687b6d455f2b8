//! What is known of a tree that the kernel shows, also when the process that showed it was killed: such a mount looks as any other one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, OpenOptionsExt},
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
pub(super) struct Record {
    path: PathBuf,
    /// Locked as long as somebody serves it.
    _file: File,
}

/// What a mount is to a view that is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// None of ours.
    Another,
    /// Somebody serves it.
    Served,
    /// Its process was killed.
    LeftBehind,
}

impl Record {
    /// Notes that this process shows a tree at `place` by the mount of that number.
    pub(super) fn new(place: &Path, mount: u64) -> io::Result<Self> {
        let folder = Path::new(FOLDER);
        if let Ok(mounts) = MountTable::read() {
            forget_those_that_are_gone(folder, |mount| mounts.by_id(mount).is_some());
        }
        Self::below(folder, place, mount)
    }

    fn below(folder: &Path, place: &Path, mount: u64) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = folder.join(mount.to_string());
        // One of a mount that is gone, whose number this one has.
        let _ = fs::remove_file(&path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.try_lock()?;
        file.write_all(&text(place)?)?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes what is noted of mounts that aren't there any more, by views that were killed.
fn forget_those_that_are_gone(folder: &Path, is_there: impl Fn(u64) -> bool) {
    for note in fs::read_dir(folder).into_iter().flatten().flatten() {
        let mount = note.file_name().to_str().and_then(|name| name.parse().ok());
        let is_gone = mount.is_some_and(|mount| !is_there(mount));
        if is_gone && File::open(note.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(note.path());
        }
    }
}

/// What is mounted at `place`, if a view is.
pub(super) fn former(place: &Path) -> Former {
    let Ok(mounts) = MountTable::read() else { return Former::Another };
    let top = mounts.iter().rfind(|mount| mount.mount_point == place);
    // Before Linux 6.8 a number may have come to another mount at the same place.
    let top = top.filter(|mount| ["nosuid", "nodev"].iter().all(|ours| mount.options.split(',').any(|it| it == *ours)));
    top.map_or(Former::Another, |mount| former_below(Path::new(FOLDER), place, mount.id))
}

fn former_below(folder: &Path, place: &Path, mount: u64) -> Former {
    let read = || -> io::Result<(File, Vec<u8>)> {
        let mut file = File::open(folder.join(mount.to_string()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((file, bytes))
    };
    let (Ok((file, noted)), Ok(there)) = (read(), text(place)) else { return Former::Another };
    // The number may have come to another mount.
    if noted != there {
        return Former::Another;
    }
    if file.try_lock().is_ok() { Former::LeftBehind } else { Former::Served }
}

/// The place, and what is there.
fn text(place: &Path) -> io::Result<Vec<u8>> {
    let directory = open_handle(place)?;
    let mount = mounting::unique_mount_id(directory.as_fd())?.unwrap_or(0);
    let facts = statx_fd(directory.as_fd())?;
    let mut text = format!("{mount} {} {} ", facts.dev, facts.ino).into_bytes();
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
        assert_eq!(is(7), Former::Another);
        let record = Record::below(&records, &place, 7).unwrap();
        assert_eq!((is(7), is(8)), (Former::Served, Former::Another));
        drop(record);
        assert_eq!(is(7), Former::Another);
        let mut record = Record::below(&records, &place, 7).unwrap();
        // As when its process is killed.
        record.path = folder.path().join("none");
        drop(record);
        assert_eq!(is(7), Former::LeftBehind);
        assert_eq!(former_below(&records, folder.path(), 7), Former::Another, "another place");
        fs::rename(&place, folder.path().join("former")).unwrap();
        fs::create_dir(&place).unwrap();
        assert_eq!(is(7), Former::Another, "something else is there by now");
        let _served = Record::below(&records, &place, 8).unwrap();
        forget_those_that_are_gone(&records, |mount| mount == 7);
        let left = || fs::read_dir(&records).unwrap().count();
        assert_eq!(left(), 2, "one is there, and the other is served");
        forget_those_that_are_gone(&records, |_| false);
        assert_eq!((left(), is(8)), (1, Former::Served));
    }
}
