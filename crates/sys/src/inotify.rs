//! What changes in single directories, as the kernel tells everybody (inotify).

use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use crate::files::through_proc;

/// Something that happened in a directory that is watched, or to it.
#[derive(Debug)]
pub struct Event<'a> {
    /// The number that watching it gave; `None` when events were lost.
    pub watch: Option<i32>,
    /// The name that was meant; none for the directory itself.
    pub name: Option<&'a CStr>,
    /// A name came or went.
    pub is_of_names: bool,
    /// It isn't watched any more: it is gone.
    pub is_over: bool,
}

/// Directories that are watched.
#[derive(Debug)]
pub struct Watches(OwnedFd);

impl Watches {
    /// None yet.
    #[doc(alias = "inotify_init1")]
    pub fn new() -> io::Result<Watches> {
        Ok(Watches(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches what a descriptor stands for. The same directory gets the same number again. `ENOSPC` when the user watches too
    /// many (`fs.inotify.max_user_watches`).
    #[doc(alias = "inotify_add_watch")]
    pub fn watch(&self, directory: BorrowedFd<'_>) -> io::Result<i32> {
        let what = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            // What is written through a mapping is told by nothing else.
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(&self.0, through_proc(directory), what)?)
    }

    /// Takes what has happened; never waits.
    pub fn read(&self, mut each: impl FnMut(Event<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let flags = event.events();
                    let names = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
                    each(Event {
                        watch: (!flags.contains(ReadFlags::QUEUE_OVERFLOW)).then(|| event.wd()),
                        name: event.file_name(),
                        is_of_names: flags.intersects(names),
                        is_over: flags.contains(ReadFlags::IGNORED),
                    });
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Watches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::open_dir_handle;

    #[test]
    fn what_happens_in_a_directory_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let watches = Watches::new().unwrap();
        let directory = open_dir_handle(folder.path()).unwrap();
        let number = watches.watch(directory.as_fd()).unwrap();
        assert_eq!(watches.watch(directory.as_fd()).unwrap(), number);
        fs::write(folder.path().join("a"), "bytes").unwrap();
        let mut told = Vec::new();
        let note = |event: Event<'_>| {
            assert_eq!(event.watch, Some(number));
            told.push((event.name.map(|name| name.to_string_lossy().into_owned()), event.is_of_names));
        };
        watches.read(note).unwrap();
        assert_eq!(told[0], (Some("a".to_owned()), true));
        assert!(told[1..].contains(&(Some("a".to_owned()), false)), "{told:?}");
    }
}
