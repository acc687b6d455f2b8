//! Which files are guarded: those below a directory, as far as that can be told of an open file.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use onesweep_sys::files::{self, Stat};

/// A directory. Its file system as a whole is what the kernel asks for; here the others are told apart.
#[derive(Debug)]
pub(super) struct Place {
    dir: OwnedFd,
    /// The mount through which it was named.
    mount: Option<u64>,
    /// All of that mount is below it.
    is_all: bool,
    /// It may be moved.
    path: Mutex<Vec<u8>>,
}

impl Place {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let dir = files::open_dir(path)?;
        let stat = files::statx_fd(dir.as_fd())?;
        let path = Mutex::new(path_of(dir.as_fd())?);
        Ok(Self { dir, mount: stat.mnt_id, is_all: stat.is_mount_root, path })
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Where it can't be told, it is: of what has several names one may be below, and of other mounts of the file system nobody
    /// knows where they are seen.
    pub(super) fn holds(&self, file: BorrowedFd<'_>, stat: &Stat) -> bool {
        if self.is_all || stat.nlink != 1 || self.mount.is_none() || stat.mnt_id != self.mount {
            return true;
        }
        let Ok(file) = path_of(file) else { return true };
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        if is_below(&file, &path) {
            return true;
        }
        match path_of(self.dir.as_fd()) {
            Ok(now) => *path = now,
            Err(_) => return true,
        }
        is_below(&file, &path)
    }
}

/// Whether one path is below another, or is none that can be compared: a file that was opened by its handle may have none, and is
/// said to be the root.
fn is_below(file: &[u8], dir: &[u8]) -> bool {
    if !file.starts_with(b"/") || file == b"/" || !dir.starts_with(b"/") {
        return true;
    }
    let rest = file.strip_prefix(dir);
    rest.is_some_and(|rest| dir.ends_with(b"/") || rest.starts_with(b"/"))
}

/// Where an open file lies, as the kernel tells it.
pub(super) fn path_of(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    Ok(files::path_of(file)?.into_os_string().into_vec())
}

/// The same for people.
pub(super) fn shown_path(file: BorrowedFd<'_>) -> PathBuf {
    path_of(file).map_or_else(|_| "a file without a path".into(), |path| OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn what_lies_below_is_told_by_paths_even_when_the_directory_is_moved() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("a/bc")).unwrap();
        for name in ["a/b/in", "a/bc/out", "a/out", "a/link"] {
            fs::write(root.join(name), name).unwrap();
        }
        fs::hard_link(root.join("a/link"), root.join("a/link2")).unwrap();
        let place = Place::new(&root.join("a/b")).unwrap();
        let holds = |path: &str| {
            let file = File::open(root.join(path)).unwrap();
            place.holds(file.as_fd(), &files::statx_fd(file.as_fd()).unwrap())
        };
        assert!(holds("a/b/in") && !holds("a/bc/out") && !holds("a/out"));
        assert!(holds("a/link"), "another name of it may lie below");
        fs::rename(root.join("a"), root.join("z")).unwrap();
        assert!(holds("z/b/in") && !holds("z/out"));
    }

    #[test]
    fn paths_that_cannot_be_compared_count_as_below() {
        for (file, dir, expected) in [
            ("/a/b/c", "/a/b", true),
            ("/a/bc", "/a/b", false),
            ("/a/b", "/a/b", false),
            ("/x", "/", true),
            ("(unreachable)/x", "/a", true),
            ("/", "/a", true),
            ("", "/a", true),
        ] {
            assert_eq!(is_below(file.as_bytes(), dir.as_bytes()), expected, "{file} {dir}");
        }
    }
}
