//! Names that must not outlive the process: those of files that are not complete.
//!
//! Who makes such a file removes it when it is dropped. A process that ends without dropping anything, as at a second
//! signal, calls [`remove_all`].

use std::{
    ffi::{OsStr, OsString},
    io, mem,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
};

use onesweep_sys::files;

static NAMES: Mutex<Vec<Name>> = Mutex::new(Vec::new());

/// A name in an open directory: a path could lead elsewhere by the time it is removed.
type Name = (Arc<OwnedFd>, OsString);

fn names() -> MutexGuard<'static, Vec<Name>> {
    NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A name that [`remove_all`] removes as long as this lives.
#[derive(Debug)]
pub(crate) struct Temporary {
    directory: Arc<OwnedFd>,
    name: OsString,
}

impl Temporary {
    /// Calls `make`, which makes something called `name` in `directory`. [`remove_all`] comes before or after it, never
    /// between the making and the moment that it knows the name.
    pub(crate) fn make<T>(
        directory: Arc<OwnedFd>,
        name: &OsStr,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(Self, T)> {
        let mut names = names();
        let made = make()?;
        names.push((Arc::clone(&directory), name.to_owned()));
        Ok((Self { directory, name: name.to_owned() }, made))
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Removes what has the name.
    pub(crate) fn remove(&self) -> io::Result<()> {
        files::remove_at(self.directory.as_fd(), &self.name)
    }

    /// Gives what has the name another one in the same directory.
    pub(crate) fn rename(&self, to: &OsStr) -> io::Result<()> {
        files::rename_at(self.directory.as_fd(), &self.name, to)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut names = names();
        let known = |(directory, name): &Name| Arc::ptr_eq(directory, &self.directory) && *name == self.name;
        if let Some(at) = names.iter().position(known) {
            names.swap_remove(at);
        }
    }
}

/// Removes what is not complete, just before the process ends. From then on nothing more of the kind is made: who tries
/// waits for the end.
pub fn remove_all() {
    let names = names();
    for (directory, name) in names.iter() {
        let _ = files::remove_at(directory.as_fd(), name);
    }
    mem::forget(names);
}

#[cfg(test)]
pub(crate) fn is_known(directory: std::os::fd::BorrowedFd<'_>, name: &OsStr) -> bool {
    let inode = |stat: io::Result<files::Stat>| stat.map(|stat| (stat.dev, stat.ino)).unwrap();
    let wanted = inode(files::statx_fd(directory));
    names().iter().any(|(other, known)| known == name && inode(files::statx_fd(other.as_fd())) == wanted)
}
