//! The directory that shards are written into: all of them get their names in the end, or none does.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            ffi::OsStrExt as _,
            fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_sys::files;

use super::error::ShardError;
use crate::temporary::Temporary;

/// Files that are open at a time; cached files of the tree come in any order, and there may be thousands of shards.
const OPEN_MAX: usize = 64;

/// Where files of a data set are written, at any place of any of them. They are known by the numbers that they are made in.
///
/// What has no name when this is dropped is removed, and so is what has one, until [`Store::keep`].
pub trait Store {
    /// Makes a file without a final name, of so many zeros, for which there is room.
    fn make(&mut self, name: &str, bytes: u64) -> io::Result<usize>;
    /// Writes at a place.
    fn write(&mut self, file: usize, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Reads what was written at a place.
    fn read(&mut self, file: usize, buffer: &mut [u8], at: u64) -> io::Result<()>;
    /// Keeps the first `kept` bytes of a file, and gives it `len` with zeros.
    fn shorten(&mut self, file: usize, kept: u64, len: u64) -> io::Result<()>;
    /// Makes everything durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Gives a file its name.
    fn publish(&mut self, file: usize, name: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, file: usize) -> io::Result<()>;
    /// Makes the names durable. From now on what has one stays.
    fn keep(&mut self) -> io::Result<()>;
}

/// A directory of a file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    handle: Arc<OwnedFd>,
    /// It was made for the data set.
    made: bool,
    kept: bool,
    files: Vec<Place>,
    open: VecDeque<(usize, File)>,
}

/// What a file is called now.
#[derive(Debug)]
enum Place {
    Unnamed(Temporary),
    Named(String),
    Gone,
}

impl Directory {
    /// Opens the directory at `path`, or makes it. It must be empty, and lie outside of the tree at `tree`.
    pub fn open(path: &Path, tree: &Path) -> Result<Self, ShardError> {
        let failed = |step| move |source| ShardError::Io { path: path.to_owned(), step, source };
        if is_inside(path, tree).map_err(failed("look up"))? {
            return Err(ShardError::Inside { path: path.to_owned(), tree: tree.to_owned() });
        }
        let made = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed("make the directory")(error)),
        };
        let handle = Arc::new(files::open_dir_handle(path).map_err(failed("open"))?);
        for entry in fs::read_dir(by_handle(&handle)).map_err(failed("list"))? {
            let name = entry.map_err(failed("list"))?.file_name();
            // Of every new ext4.
            if name != "lost+found" {
                let name = name.to_string_lossy().into_owned();
                return Err(ShardError::Occupied { path: path.to_owned(), name });
            }
        }
        Ok(Self { path: path.to_owned(), handle, made, kept: false, files: Vec::new(), open: VecDeque::new() })
    }

    fn file(&mut self, number: usize) -> io::Result<&File> {
        if let Some(at) = self.open.iter().position(|(known, _)| *known == number) {
            return Ok(&self.open[at].1);
        }
        let name = match &self.files[number] {
            Place::Unnamed(temporary) => by_handle(&self.handle).join(temporary.name()),
            Place::Named(name) => by_handle(&self.handle).join(name),
            Place::Gone => return Err(io::ErrorKind::NotFound.into()),
        };
        let file = OpenOptions::new().read(true).write(true).open(name)?;
        self.remember(number, file);
        Ok(&self.open[self.open.len() - 1].1)
    }

    fn remember(&mut self, number: usize, file: File) {
        if self.open.len() == OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back((number, file));
    }
}

impl Store for Directory {
    fn make(&mut self, name: &str, bytes: u64) -> io::Result<usize> {
        let partial = format!(".{name}.partial");
        let path = by_handle(&self.handle).join(&partial);
        let open = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(&path);
        let (temporary, file) = Temporary::make(Arc::clone(&self.handle), partial.as_ref(), open)?;
        let number = self.files.len();
        self.files.push(Place::Unnamed(temporary));
        make_room(&file, bytes)?;
        self.remember(number, file);
        Ok(number)
    }

    fn write(&mut self, file: usize, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file(file)?.write_all_at(bytes, at)
    }

    fn read(&mut self, file: usize, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file(file)?.read_exact_at(buffer, at)
    }

    fn shorten(&mut self, file: usize, kept: u64, len: u64) -> io::Result<()> {
        let file = self.file(file)?;
        file.set_len(kept)?;
        file.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        // One call for thousands of files.
        files::sync_file_system(files::reopen(self.handle.as_fd())?.as_fd())
    }

    fn publish(&mut self, file: usize, name: &str) -> io::Result<()> {
        if let Place::Unnamed(temporary) = &self.files[file] {
            temporary.rename(name.as_ref())?;
            self.files[file] = Place::Named(name.to_owned());
        }
        Ok(())
    }

    fn remove(&mut self, file: usize) -> io::Result<()> {
        self.open.retain(|(known, _)| *known != file);
        match std::mem::replace(&mut self.files[file], Place::Gone) {
            Place::Unnamed(temporary) => temporary.remove(),
            Place::Named(name) => files::remove_at(self.handle.as_fd(), name.as_str()),
            Place::Gone => Ok(()),
        }
    }

    fn keep(&mut self) -> io::Result<()> {
        files::sync_directory(files::reopen(self.handle.as_fd())?.as_fd())?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // The index goes first: without it nothing passes for a data set.
        for file in (0..self.files.len()).rev() {
            let _ = self.remove(file);
        }
        if self.made {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Finds places for all of a file, so that a disk that is too small is known before anything is read. Where the file system can't
/// promise that, the file is one hole.
fn make_room(file: &File, bytes: u64) -> io::Result<()> {
    use io::ErrorKind as Kind;
    match files::allocate(file.as_fd(), bytes) {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge) => {
            Err(error)
        }
        Err(_) => file.set_len(bytes),
    }
}

fn by_handle(handle: &OwnedFd) -> PathBuf {
    files::through_proc(handle.as_fd())
}

/// Whether `path`, which need not exist, is the directory `tree` or lies in it, whichever way leads there.
fn is_inside(path: &Path, tree: &Path) -> io::Result<bool> {
    let Ok(tree) = fs::metadata(tree) else { return Ok(false) };
    let existing = path.ancestors().find(|above| above.is_dir() && !above.as_os_str().as_bytes().is_empty());
    let here = Path::new(if path.is_absolute() { "/" } else { "." });
    let near = existing.unwrap_or(here).canonicalize()?;
    let is_tree = |above: fs::Metadata| (above.dev(), above.ino()) == (tree.dev(), tree.ino());
    Ok(near.ancestors().any(|above| above.metadata().is_ok_and(is_tree)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
        dir
    }

    #[test]
    fn more_files_than_are_open_are_written_anywhere() {
        let dir = tree();
        let out = dir.path().join("out");
        let mut store = Directory::open(&out, &dir.path().join("tree")).unwrap();
        let all = OPEN_MAX * 2 + 1;
        for number in 0..all {
            assert_eq!(store.make(&format!("{number}"), 100).unwrap(), number);
        }
        for number in (0..all).rev() {
            store.write(number, format!("{number:>9}").as_bytes(), 50).unwrap();
        }
        let mut buffer = [0; 9];
        store.read(3, &mut buffer, 50).unwrap();
        assert_eq!(&buffer, b"        3");
        store.shorten(3, 55, 70).unwrap();
        assert!(names(&out).iter().all(|name| name.ends_with(".partial")));
        for number in 0..all {
            store.publish(number, &format!("{number}")).unwrap();
        }
        store.keep().unwrap();
        drop(store);
        assert_eq!(names(&out).len(), all);
        let kept = fs::read(out.join("3")).unwrap();
        assert_eq!((kept.len(), kept.iter().all(|&byte| byte == 0 || byte == b' ')), (70, true));
    }

    #[test]
    fn what_is_not_kept_goes() {
        let dir = tree();
        let out = dir.path().join("out");
        for made_before in [false, true] {
            if made_before {
                fs::create_dir(&out).unwrap();
            }
            let mut store = Directory::open(&out, &dir.path().join("tree")).unwrap();
            let files = ["a", "b", "c"].map(|name| store.make(name, 10).unwrap());
            store.publish(files[0], "a").unwrap();
            store.remove(files[1]).unwrap();
            assert_eq!(names(&out), [".c.partial", "a"]);
            drop(store);
            assert_eq!(out.exists(), made_before);
        }
        assert_eq!(names(&out), [""; 0]);
    }

    #[test]
    fn what_is_there_is_not_touched() {
        let dir = tree();
        let (out, tree) = (dir.path().join("out"), dir.path().join("tree"));
        fs::create_dir(&out).unwrap();
        fs::create_dir(out.join("lost+found")).unwrap();
        drop(Directory::open(&out, &tree).unwrap());
        fs::write(out.join(".a.tar.partial"), "x").unwrap();
        let error = Directory::open(&out, &tree).unwrap_err();
        assert!(matches!(&error, ShardError::Occupied { name, .. } if name == ".a.tar.partial"), "{error}");
        let error = Directory::open(&out.join(".a.tar.partial"), &tree).unwrap_err();
        assert!(matches!(error, ShardError::Io { .. }), "{error}");
        assert_eq!(names(&out), [".a.tar.partial", "lost+found"]);
    }

    #[test]
    fn a_tree_takes_no_shards_of_itself() {
        let dir = tree();
        let tree = dir.path().join("tree");
        std::os::unix::fs::symlink("tree/sub", dir.path().join("link")).unwrap();
        for out in ["tree", "tree/sub", "tree/new", "link", "link/new", "tree/sub/../new"] {
            let error = Directory::open(&dir.path().join(out), &tree).unwrap_err();
            assert!(matches!(error, ShardError::Inside { .. }), "{out}: {error}");
        }
        assert_eq!(names(&tree), ["sub"]);
        // Beside it and above it is no harm.
        drop(Directory::open(&dir.path().join("tree2"), &tree).unwrap());
        drop(Directory::open(&dir.path().join("tree"), &tree.join("sub")).unwrap_err());
    }
}
