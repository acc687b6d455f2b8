//! Names: what a symbolic link holds, further names of files, names of nodes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{AtFlags, CWD, FileType, Mode};

use super::{EntryType, PathArg};

/// Where the symbolic link `path` below `dir` points; an empty path means that `dir` is the link itself (`O_PATH`).
pub fn read_link_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OsString> {
    let target = rustix::fs::readlinkat(dir, path, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Gives an open file one more name, its first one if it is [unnamed](super::open_unnamed).
///
/// Goes through `/proc`, since the other way needs a capability.
#[doc(alias = "linkat")]
pub fn name_file(file: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, open.as_str(), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Makes a fifo, socket or device node that its owner alone can use; `InvalidInput` for all other types.
///
/// Devices need root. `rdev` is the device, as [`makedev`](super::makedev) packs it.
#[doc(alias = "mknod")]
pub fn make_node(path: impl PathArg, kind: EntryType, rdev: u64) -> io::Result<()> {
    let kind = match kind {
        EntryType::Fifo => FileType::Fifo,
        EntryType::Socket => FileType::Socket,
        EntryType::CharDevice => FileType::CharacterDevice,
        EntryType::BlockDevice => FileType::BlockDevice,
        EntryType::File | EntryType::Dir | EntryType::Symlink | EntryType::Unknown => {
            return Err(io::ErrorKind::InvalidInput.into());
        }
    };
    Ok(rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, rdev)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::{open_handle_at, open_unnamed, statx_at};
    use crate::testing::{skipped, tree};

    #[test]
    fn links_are_read_by_name_and_by_handle() {
        let (_kept, root) = tree();
        assert_eq!(read_link_at(root.as_fd(), "dir/link").unwrap(), "sub");
        let link = open_handle_at(root.as_fd(), "dir/link").unwrap();
        assert_eq!(read_link_at(link.as_fd(), "").unwrap(), "sub");
    }

    #[test]
    fn unnamed_files_get_names() {
        let (tree, _root) = tree();
        let mut file = match open_unnamed(tree.path()) {
            Ok(file) => File::from(file),
            Err(error) => return skipped(&format!("no unnamed files here: {error}")),
        };
        file.write_all(b"bytes").unwrap();
        for name in ["first", "second"].map(|name| tree.path().join(name)) {
            name_file(file.as_fd(), &name).unwrap();
            assert_eq!(fs::read(&name).unwrap(), b"bytes");
            assert_eq!(name_file(file.as_fd(), &name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
    }

    #[test]
    fn nodes_are_made_and_nothing_else() {
        let (tree, root) = tree();
        for (name, kind) in [("pipe", EntryType::Fifo), ("socket", EntryType::Socket)] {
            make_node(tree.path().join(name), kind, 0).unwrap();
            let stat = statx_at(root.as_fd(), name, true).unwrap();
            assert_eq!((stat.file_type(), stat.mode & 0o077), (kind, 0));
        }
        for kind in [EntryType::File, EntryType::Dir, EntryType::Symlink, EntryType::Unknown] {
            let made = make_node(tree.path().join("none"), kind, 0);
            assert_eq!(made.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(!tree.path().join("none").exists());
        }
    }
}
