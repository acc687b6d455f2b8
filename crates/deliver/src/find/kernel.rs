//! What the kernel says of names below a directory.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use onesweep_layout::{Sources, tables::InodeFlags};
use onesweep_sys::{
    files::{self, DirReader, EntryType},
    inode,
};

use super::Row;

/// What is known of a name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Looked {
    pub(super) row: Row,
    /// The device of its file system.
    pub(super) dev: u64,
}

/// Asked for what the tables don't tell, or not for sure. Paths are relative, without a slash at the front; the directory
/// itself is the empty one.
pub(super) trait Kernel {
    fn look(&mut self, path: &[u8]) -> io::Result<Looked>;

    /// The names of a directory, with what they stand for as far as it is known.
    fn list(&mut self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, EntryType)>>;
}

/// The files below an open directory.
pub(super) struct Below {
    directory: OwnedFd,
    reader: DirReader,
    /// Whether it is asked where files lie.
    sources: Option<Sources>,
}

/// The kernel takes paths of 4096 bytes.
const PATH_STEP: usize = 3000;

impl Below {
    pub(super) fn new(directory: OwnedFd, layout: bool) -> Below {
        Below { directory, reader: DirReader::default(), sources: layout.then(Sources::new) }
    }

    /// The directory that holds the last part of a path, and that part, `.` for the empty path. Long paths go by steps.
    fn last<T>(&self, path: &[u8], then: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<T>) -> io::Result<T> {
        let mut rest = path;
        let mut at: Option<OwnedFd> = None;
        while rest.len() > PATH_STEP {
            let cut = rest[..PATH_STEP].iter().rposition(|&byte| byte == b'/').ok_or(io::ErrorKind::InvalidInput)?;
            let from = at.as_ref().map_or(self.directory.as_fd(), |fd| fd.as_fd());
            at = Some(files::open_handle_at(from, &rest[..cut])?);
            rest = &rest[cut + 1..];
        }
        then(at.as_ref().map_or(self.directory.as_fd(), |fd| fd.as_fd()), if rest.is_empty() { b"." } else { rest })
    }
}

impl Kernel for Below {
    fn look(&mut self, path: &[u8]) -> io::Result<Looked> {
        let stat = self.last(path, |directory, name| {
            // By a handle, so that no symbolic link on the way leads elsewhere.
            files::statx_fd(files::open_handle_at(directory, name)?.as_fd())
        })?;
        let mut row = Row::of_stat(&stat);
        if stat.file_type() == EntryType::File && self.sources.is_some() {
            let file = self.last(path, |directory, name| files::open_file_at(directory, name));
            if let (Ok(file), Some(sources)) = (file, &mut self.sources) {
                let mut extents = Vec::new();
                // Where it lies can't be told of each; what else is known stands.
                if sources.map(file.as_fd(), &stat, &mut |extent| extents.push(extent)).is_ok() {
                    row.set_extents(&extents);
                }
                let flags = inode::flags(file.as_fd()).ok().flatten().unwrap_or(0);
                row.flags.set(InodeFlags::COMPRESSED, flags & inode::FLAG_COMPRESSED != 0);
                row.flags.set(InodeFlags::ENCRYPTED, flags & inode::FLAG_ENCRYPTED != 0);
                row.flags.set(InodeFlags::JOURNALED, flags & inode::FLAG_JOURNALED != 0);
            }
        }
        Ok(Looked { row, dev: stat.dev })
    }

    fn list(&mut self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, EntryType)>> {
        let directory = self.last(path, |directory, name| files::open_dir_at(directory, name))?;
        let mut names = Vec::new();
        self.reader.read(directory.as_fd(), |entry| {
            names.push((entry.name.to_bytes().to_vec(), entry.kind));
        })?;
        Ok(names)
    }
}
