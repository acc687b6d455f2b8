//! One place in the destination.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_sys::files::{self, Stat};

/// A name in an open directory: what happens there happens in that directory, whatever becomes of the way to it.
#[derive(Debug)]
pub(super) struct Place {
    directory: Arc<OwnedFd>,
    name: OsString,
    path: PathBuf,
}

impl Place {
    /// `path` is for messages only.
    pub(super) fn new(directory: Arc<OwnedFd>, name: &OsStr, path: PathBuf) -> Self {
        Self { directory, name: name.to_owned(), path }
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The directory, for what has to stay in it longer than this.
    pub(super) fn shared_directory(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.directory)
    }

    /// One component.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The path as people know it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What has the name; of a symbolic link, the link itself.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        self.stat_beside(&self.name)
    }

    /// As [`Place::stat`], of another name in the same directory.
    pub(super) fn stat_beside(&self, name: &OsStr) -> io::Result<Stat> {
        files::statx_at(self.directory(), name, true)
    }
}
