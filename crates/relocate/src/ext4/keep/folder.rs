//! `.onesweep/undo` in the root of a mount, and the folders of single runs in it.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use onesweep_sys::{
    files::{
        DirReader, EntryType, make_directory_at, open_dir, open_dir_at, open_file_to_write, open_file_untouched,
        remove_at, remove_directory_at, statx_fd, through_proc,
    },
    local_time,
    user::effective_uid,
};

use crate::host::Failure;

const NAME: &str = ".onesweep";
const UNDO: &str = "undo";

/// Where old places are kept on a mount.
#[must_use]
pub(in crate::ext4) fn folder_path(mount_point: &Path) -> PathBuf {
    mount_point.join(NAME)
}

/// `.onesweep/undo`, the caller's own.
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// The folder, which is made where there is none and it is to be.
    pub(super) fn open(mount_point: &Path, dev: u64, is_made: bool) -> Result<Option<Folder>, Failure> {
        let root = open_dir(mount_point).map_err(|error| Failure::new("open it", mount_point, error))?;
        let stat = statx_fd(root.as_fd()).map_err(|error| Failure::new("look at it", mount_point, error))?;
        if stat.dev != dev {
            let covered = io::Error::other("another file system is mounted over it; unmount that one first");
            return Err(Failure::new("keep old places in it", mount_point, covered));
        }
        let own = folder_path(mount_point);
        let Some(own_fd) = own_directory(root.as_fd(), NAME, &own, is_made)? else { return Ok(None) };
        let path = own.join(UNDO);
        let fd = own_directory(own_fd.as_fd(), UNDO, &path, is_made)?;
        Ok(fd.map(|fd| Folder { fd, path }))
    }

    /// To be held while files are moved; fails where another process does so.
    pub(super) fn claim(&self) -> Result<Arc<Claim>, Failure> {
        let stat = statx_fd(self.fd.as_fd()).map_err(|error| self.failed("look at it", error))?;
        let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|(.., claim)| claim.strong_count() > 0);
        let own = claims.iter().find(|(dev, ino, _)| (*dev, *ino) == (stat.dev, stat.ino));
        if let Some(claim) = own.and_then(|(.., claim)| claim.upgrade()) {
            return Ok(claim);
        }
        let file = self.fd.try_clone().map(File::from).map_err(|error| self.failed("open it", error))?;
        lock(&file, "another run with --keep or --undo moves files of this file system; wait until it ends")
            .map_err(|error| self.failed("keep old places in it, or use them", error))?;
        let claim = Arc::new(Claim { _folder: file.into() });
        claims.push((stat.dev, stat.ino, Arc::downgrade(&claim)));
        Ok(claim)
    }

    /// A folder of a new run, named by the time.
    pub(super) fn add(&self) -> Result<RunFolder, Failure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let time = local_time::format(i64::try_from(now).unwrap_or(0), "%Y%m%d-%H%M%S").unwrap_or(now.to_string());
        for number in 1.. {
            let id = if number == 1 { time.clone() } else { format!("{time}-{number}") };
            match make_directory_at(self.fd.as_fd(), id.as_str()) {
                Ok(()) => {
                    return self
                        .run(&id)?
                        .ok_or_else(|| self.failed("make a folder in it", io::ErrorKind::NotFound.into()));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(self.failed("make a folder in it", error)),
            }
        }
        unreachable!("the numbers don't end")
    }

    /// The folder of a run, which nobody else has at hand meanwhile.
    pub(super) fn run(&self, id: &str) -> Result<Option<RunFolder>, Failure> {
        if id.is_empty() || id == "." || id == ".." || id.contains('/') {
            return Ok(None);
        }
        let path = self.path.join(id);
        let Some(fd) = own_directory(self.fd.as_fd(), id, &path, false)? else { return Ok(None) };
        let file = File::from(fd);
        lock(&file, "another onesweep works with it; wait until it ends")
            .map_err(|error| Failure::new("have it for itself", &path, error))?;
        Ok(Some(RunFolder { file, path, id: id.to_owned() }))
    }

    /// The names of all runs.
    pub(super) fn ids(&self) -> Result<Vec<String>, Failure> {
        let listed = names(self.fd.as_fd(), Some(EntryType::Dir));
        listed.map_err(|error| self.failed("list it", error))
    }

    /// Takes the empty folder of a run away.
    pub(super) fn remove(&self, run: &RunFolder) -> io::Result<()> {
        remove_directory_at(self.fd.as_fd(), run.id.as_str())
    }

    fn failed(&self, doing: &'static str, error: io::Error) -> Failure {
        Failure::new(doing, &self.path, error)
    }
}

/// Whoever moves files of a file system and tells what leads back has it for himself: of two at a time each would tell places from
/// which the other has moved a file just then, and nothing would lead back from there. Runs of this process share it, since they
/// take turns.
#[derive(Debug)]
pub(super) struct Claim {
    /// Locked as long as this is.
    _folder: OwnedFd,
}

/// Those of this process, by the file system and the folder.
static CLAIMS: Mutex<Vec<(u64, u64, Weak<Claim>)>> = Mutex::new(Vec::new());

/// The folder of one run, locked.
#[derive(Debug)]
pub(super) struct RunFolder {
    file: File,
    pub(super) path: PathBuf,
    pub(super) id: String,
}

impl RunFolder {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What was named or unnamed in it holds from now on, and all that went before.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        names(self.fd(), None)
    }

    pub(super) fn open(&self, name: &str) -> io::Result<OwnedFd> {
        open_file_untouched(self.path_of(name))
    }

    pub(super) fn open_to_write(&self, name: &str) -> io::Result<OwnedFd> {
        open_file_to_write(self.path_of(name))
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        remove_at(self.fd(), name)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        through_proc(self.fd()).join(name)
    }
}

/// A process that was just forked has this lock too, until it has let go of what it doesn't need; so a while is waited.
fn lock(file: &File, why_not: &'static str) -> io::Result<()> {
    const TRIALS: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(30);
    for _ in 0..TRIALS {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other(why_not))
}

/// A directory that only the caller may write to. What is a link, or belongs to somebody else, is not used: root would hold its
/// hand out to anybody.
fn own_directory(parent: BorrowedFd<'_>, name: &str, path: &Path, is_made: bool) -> Result<Option<OwnedFd>, Failure> {
    if is_made {
        match make_directory_at(parent, name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::new("make this folder for old places", path, error));
            }
            _ => {}
        }
    }
    let fd = match open_dir_at(parent, name) {
        Ok(fd) => fd,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::new("open this folder for old places", path, error)),
    };
    let stat = statx_fd(fd.as_fd()).map_err(|error| Failure::new("look at it", path, error))?;
    let refused = |why: String| Err(Failure::new("use this folder for old places", path, io::Error::other(why)));
    if stat.uid != effective_uid() {
        return refused(format!("it belongs to user {}; run as that user", stat.uid));
    }
    if stat.mode & 0o022 != 0 {
        return refused("others may write to it; chmod 700 it".to_owned());
    }
    Ok(Some(fd))
}

fn names(directory: BorrowedFd<'_>, kind: Option<EntryType>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    DirReader::default().read(directory, |entry| {
        let name = OsStr::from_bytes(entry.name.to_bytes());
        if kind.is_none_or(|kind| entry.kind == kind) {
            names.extend(name.to_str().map(str::to_owned));
        }
    })?;
    names.sort();
    Ok(names)
}
