//! Listing directories of a file system that this process answers for itself.
//!
//! A thread that waits for such a file system can't be killed before it is answered, and holds the files of its process as long. If
//! the one by which it would be answered were among them, a process that is killed would wait for itself for ever. So this thread
//! has a table of files of its own.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{
    apart::leave_files,
    files::DirReader,
    mounting::{device_at, device_of, own_mount_of},
};

/// How long the mount is kept when nothing is listed: what is unmounted elsewhere ends so much later.
const REST: Duration = Duration::from_millis(20);

type Listed = io::Result<usize>;

/// A thread that lists directories, for the sake of what the kernel remembers of them. It ends with this value.
#[derive(Debug)]
pub struct ListsApart {
    thread: u32,
    asks: Mutex<(Sender<CString>, Receiver<Listed>)>,
}

fn ended() -> io::Error {
    io::Error::other("the thread that lists directories has ended")
}

impl ListsApart {
    /// For directories below `root`, in what is mounted there now.
    ///
    /// Linux 5.12 and `CAP_SYS_ADMIN`, else `EPERM`: it goes by a mount of its own, so that `root` can be unmounted. That keeps the file system
    /// for 20 ms after the last listing, and `root` busy for the moment in which it is made, before the first one.
    pub fn start(name: &str, root: PathBuf) -> io::Result<Self> {
        let device = device_at(&root)?;
        drop(own_mount_of(&root, true)?);
        Self::start_for(name, root, device)
    }

    fn start_for(name: &str, root: PathBuf, device: u64) -> io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let (tells, told) = mpsc::channel();
        let (is_ready, ready) = mpsc::channel();
        let work = move || {
            let began = leave_files().map(|()| rustix::thread::gettid().as_raw_pid().cast_unsigned());
            let goes_on = began.is_ok();
            if is_ready.send(began).is_ok() && goes_on {
                Place { root, device, open: None, reader: DirReader::default() }.serve(&asked, &tells);
            }
        };
        thread::Builder::new().name(name.into()).spawn(work)?;
        let thread = ready.recv().map_err(|_| ended())??;
        Ok(Self { thread, asks: Mutex::new((asks, told)) })
    }

    /// The number of the thread, as the file system is told it.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Lists a directory, named from the root on, and tells how many names it has. Symbolic links and other mounts on the way are
    /// refused.
    pub fn list(&self, directory: CString) -> Listed {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        asks.0.send(directory).map_err(|_| ended())?;
        asks.1.recv().map_err(|_| ended())?
    }
}

/// What the thread has.
struct Place {
    root: PathBuf,
    device: u64,
    open: Option<OwnedFd>,
    reader: DirReader,
}

impl Place {
    fn serve(mut self, asked: &Receiver<CString>, tells: &Sender<Listed>) {
        loop {
            let next = match self.open {
                Some(_) => asked.recv_timeout(REST),
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(directory) => {
                    if tells.send(self.list(&directory)).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.open = None,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn list(&mut self, directory: &CString) -> Listed {
        let root = match self.open.take() {
            Some(open) => open,
            None => self.open_root()?,
        };
        let root = self.open.insert(root);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let open = rustix::fs::openat2(root, directory.as_c_str(), flags, Mode::empty(), resolve)?;
        let mut count = 0;
        self.reader.read(open.as_fd(), |_| count += 1)?;
        Ok(count)
    }

    fn open_root(&self) -> io::Result<OwnedFd> {
        let root = own_mount_of(&self.root, true)?;
        match device_of(root.as_fd())? == self.device {
            true => Ok(root),
            false => Err(io::Error::from_raw_os_error(libc::EXDEV)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
        time::Instant,
    };

    use super::*;

    fn files_of(lists: &ListsApart) -> usize {
        fs::read_dir(format!("/proc/self/task/{}/fd", lists.thread())).unwrap().count()
    }

    #[test]
    fn what_is_listed_is_below_and_nothing_stays_open() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("one/two")).unwrap();
        symlink("one", tree.path().join("link")).unwrap();
        let device = tree.path().metadata().unwrap().dev();
        let lists = match ListsApart::start("lists", tree.path().to_owned()) {
            Ok(lists) => lists,
            // Users, and root in most containers.
            Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        };
        assert!(files_of(&lists) <= 3, "its files are its own");
        let list = |name: &str| lists.list(CString::new(name).unwrap());
        assert_eq!((list(".").unwrap(), list("one").unwrap(), list("one/two").unwrap()), (2, 1, 0));
        assert_eq!(list("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(list("link").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(list("..").unwrap_err().raw_os_error(), Some(libc::EXDEV));
        let until = Instant::now() + Duration::from_secs(30);
        while files_of(&lists) > 3 {
            assert!(Instant::now() < until, "the mount is kept");
            thread::sleep(REST);
        }
        assert_eq!(list("one").unwrap(), 1, "it is opened again");
        let other = ListsApart::start_for("lists", tree.path().to_owned(), device + 1).unwrap();
        assert_eq!(other.list(c".".to_owned()).unwrap_err().raw_os_error(), Some(libc::EXDEV));
    }
}
