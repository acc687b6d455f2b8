//! Who reads the bytes of files: the file system of the source, or somebody who knows a quicker way.

use std::{
    ffi::OsStr,
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use onesweep_sys::files::{Stat, fill_at};

/// What becomes of the bytes that were read.
pub type Done = Box<dyn FnOnce(io::Result<&[u8]>) + Send>;

/// Reads the files of a tree that is shown, and hears before they are changed. All that is not bytes of files is the view's.
pub trait Contents: Send + Sync {
    /// What reads a file that was opened. `path` tells its name below the tree, where one is known.
    fn open(&self, file: Arc<OwnedFd>, stat: &Stat, path: &dyn Fn() -> Option<Vec<u8>>)
    -> io::Result<Arc<dyn Content>>;

    /// The bytes of a file are about to be changed, by somebody who has it open for writing. They are changed when this has
    /// returned.
    fn before_change(&self, _inode: u64) {}

    /// These bytes of a file were changed, by somebody who has it open for writing; or, before that one closes it, perhaps.
    fn changed(&self, _inode: u64, _file: &OwnedFd, _bytes: Range<u64>) {}

    /// Somebody who had a file open for writing has closed it.
    fn closed(&self, _inode: u64) {}

    /// An extended attribute of the topmost directory that the source doesn't have. It is in no list.
    fn attribute(&self, _name: &OsStr) -> Option<Vec<u8>> {
        None
    }
}

/// Reads an open file.
pub trait Content: Send + Sync {
    /// Reads; what lies beyond the end is left out. `done` is run once, on any thread.
    fn read(&self, offset: u64, len: usize, done: Done);

    /// Whether the kernel may as well read it by itself. Asked once, when it is opened.
    fn suits_kernel(&self, _stat: &Stat) -> bool {
        true
    }

    /// The kernel reads it by itself.
    fn left_to_kernel(&self) {}
}

/// The file system of the source reads them.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfSource;

impl Contents for OfSource {
    fn open(
        &self,
        file: Arc<OwnedFd>,
        _stat: &Stat,
        _path: &dyn Fn() -> Option<Vec<u8>>,
    ) -> io::Result<Arc<dyn Content>> {
        Ok(Arc::new(Plain(file)))
    }
}

struct Plain(Arc<OwnedFd>);

impl Content for Plain {
    fn read(&self, offset: u64, len: usize, done: Done) {
        match read_whole(&self.0, offset, len) {
            Ok(bytes) => done(Ok(&bytes)),
            Err(error) => done(Err(error)),
        }
    }
}

/// All that is asked for, but for what is behind the end.
fn read_whole(file: &OwnedFd, offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let filled = fill_at(file.as_fd(), &mut bytes, offset)?;
    bytes.truncate(filled);
    Ok(bytes)
}
