//! The directories of the destination, and the way to them.
//!
//! A directory that was there before may belong to somebody else, who can put a symbolic link in its place at any time
//! between its turn and that of its files. So only what the user named is followed, once; from there on no link is.

use std::{
    ffi::OsStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_sys::files;

use super::{destination::joined, place::Place};

/// Directories that stay open. Files come in the order of the disk, mostly some in a row for each of a few directories;
/// to open one anew costs what a path costs.
const KEPT_OPEN: usize = 8;
/// The longest path that the kernel takes at once (`PATH_MAX`, without its zero).
const PATH_BYTES_MAX: usize = 4095;

/// Opens directories below the one that the user named.
#[derive(Debug)]
pub(super) struct Directories {
    named: PathBuf,
    /// `None` as long as it can't be opened.
    root: Option<Arc<OwnedFd>>,
    /// The last ones, the very last first.
    recent: Vec<(PathBuf, Arc<OwnedFd>)>,
}

impl Directories {
    /// Symbolic links in `named` are followed; an empty path is the current directory.
    pub(super) fn below(named: &Path) -> Self {
        let root = open_named(named).ok();
        Self { named: named.to_owned(), root, recent: Vec::new() }
    }

    /// The path of `way`, for messages.
    pub(super) fn path(&self, way: &Path) -> PathBuf {
        joined(&self.named, way)
    }

    /// The place that `way` leads to from the named directory. An empty way is that directory itself.
    pub(super) fn place(&mut self, way: &Path) -> io::Result<Place> {
        let path = self.path(way);
        match (way.parent(), way.file_name()) {
            (Some(parent), Some(name)) => Ok(Place::new(self.open(parent)?, name, path)),
            _ => Ok(Place::new(self.root()?, OsStr::new("."), path)),
        }
    }

    /// Closes a directory that nothing more will be put into.
    pub(super) fn close(&mut self, way: &Path) {
        self.recent.retain(|(known, _)| known.as_os_str() != way.as_os_str());
    }

    fn root(&mut self) -> io::Result<Arc<OwnedFd>> {
        if self.root.is_none() {
            self.root = Some(open_named(&self.named)?);
        }
        self.root.clone().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(&mut self, way: &Path) -> io::Result<Arc<OwnedFd>> {
        if way.as_os_str().is_empty() {
            return self.root();
        }
        if let Some(at) = self.recent.iter().position(|(known, _)| known.as_os_str() == way.as_os_str()) {
            self.recent[..=at].rotate_right(1);
        } else {
            let opened = Arc::new(open_below(self.root()?.as_fd(), way).map_err(explained)?);
            self.recent.truncate(KEPT_OPEN - 1);
            self.recent.insert(0, (way.to_owned(), opened));
        }
        Ok(Arc::clone(&self.recent[0].1))
    }
}

fn open_named(named: &Path) -> io::Result<Arc<OwnedFd>> {
    let path = if named.as_os_str().is_empty() { Path::new(".") } else { named };
    files::open_dir_handle(path).map(Arc::new)
}

/// In as many steps as a long way needs.
fn open_below(root: BorrowedFd<'_>, way: &Path) -> io::Result<OwnedFd> {
    let mut reached: Option<OwnedFd> = None;
    let mut step = PathBuf::new();
    for name in way.components() {
        if step.as_os_str().len() + 1 + name.as_os_str().len() > PATH_BYTES_MAX {
            reached = Some(files::open_dir_handle_beneath(reached.as_ref().map_or(root, AsFd::as_fd), &step)?);
            step.clear();
        }
        step.push(name);
    }
    files::open_dir_handle_beneath(reached.as_ref().map_or(root, AsFd::as_fd), &step)
}

fn explained(error: io::Error) -> io::Error {
    if files::is_link_refused(&error) {
        return io::Error::other(
            "a symbolic link took the place of a directory above it, and is not followed; \
             remove the link and copy again",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_links_that_were_named_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/a/b")).unwrap();
        symlink("real", dir.path().join("named")).unwrap();
        symlink("a", dir.path().join("real/link")).unwrap();
        let mut directories = Directories::below(&dir.path().join("named"));
        for way in ["", "x", "a/x", "a/b/x"] {
            let place = directories.place(Path::new(way)).unwrap();
            assert_eq!(place.path().strip_prefix(dir.path().join("named")).unwrap(), Path::new(way));
        }
        for way in ["link/x", "link/b/x"] {
            let error = directories.place(Path::new(way)).unwrap_err().to_string();
            assert!(error.contains("a symbolic link took the place"), "{error}");
        }
        for way in ["../x/y", "a/../../x/y"] {
            directories.place(Path::new(way)).unwrap_err();
        }
    }

    #[test]
    fn few_directories_stay_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut directories = Directories::below(dir.path());
        for number in 0..3 * KEPT_OPEN {
            fs::create_dir(dir.path().join(number.to_string())).unwrap();
            let last = directories.place(&Path::new(&number.to_string()).join("x")).unwrap();
            directories.place(Path::new("0/x")).unwrap();
            assert!(last.path().ends_with(format!("{number}/x")));
        }
        assert_eq!(directories.recent.len(), KEPT_OPEN);
        assert_eq!(directories.recent[0].0, Path::new("0"));
        directories.close(Path::new("0"));
        assert_eq!(directories.recent.len(), KEPT_OPEN - 1);
    }

    #[test]
    fn a_way_may_be_longer_than_the_kernel_takes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut directories = Directories::below(dir.path());
        let mut way = PathBuf::new();
        for _ in 0..50 {
            way.push("d".repeat(200));
            let place = directories.place(&way).unwrap();
            files::make_directory_at(place.directory(), place.name()).unwrap();
        }
        assert!(way.as_os_str().len() > 2 * PATH_BYTES_MAX);
        let place = directories.place(&way.join("f")).unwrap();
        files::create_file_at(place.directory(), place.name()).unwrap();
        assert_eq!(place.stat().unwrap().size, 0);
    }
}
