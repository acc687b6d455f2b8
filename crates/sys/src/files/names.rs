//! Names: what a symbolic link holds; giving, changing and taking names in a directory.
//!
//! What gives, changes or takes one wants an open directory and a single name in it, and follows no symbolic link.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{AtFlags, CWD, FileType, Mode};

use super::long_path::call_of_path;
use super::{EntryType, PathArg, through_proc};

/// Where the symbolic link `path` below `dir` points; an empty path means that `dir` is the link itself (`O_PATH`).
pub fn read_link_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OsString> {
    let read = |dir: BorrowedFd<'_>, path: &CStr| rustix::fs::readlinkat(dir, path, Vec::new());
    let target = path.into_with_c_str(|path| call_of_path(dir, path, read))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Gives an open file one more name in `dir`, its first one if it is [unnamed](super::open_unnamed).
///
/// Goes through `/proc`, since the other way needs a capability.
#[doc(alias = "linkat")]
pub fn name_file(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::linkat(CWD, through_proc(file), dir, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Gives what is called `first` in one directory the further name `name` in another; a symbolic link gets it itself.
#[doc(alias = "linkat")]
pub fn link_at(
    first_dir: BorrowedFd<'_>,
    first: impl PathArg,
    dir: BorrowedFd<'_>,
    name: impl PathArg,
) -> io::Result<()> {
    Ok(rustix::fs::linkat(first_dir, first, dir, name, AtFlags::empty())?)
}

/// Makes a directory that its owner alone can enter.
#[doc(alias = "mkdirat")]
pub fn make_directory_at(dir: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(dir, name, Mode::RWXU)?)
}

/// Makes a symbolic link that holds `target`.
#[doc(alias = "symlinkat")]
pub fn make_symlink_at(target: impl PathArg, dir: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::symlinkat(target, dir, name)?)
}

/// Makes a fifo, socket or device node that its owner alone can use; `InvalidInput` for all other types.
///
/// Devices need root. `rdev` is the device, as [`makedev`](super::makedev) packs it.
#[doc(alias = "mknodat")]
pub fn make_node_at(dir: BorrowedFd<'_>, name: impl PathArg, kind: EntryType, rdev: u64) -> io::Result<()> {
    let kind = match kind {
        EntryType::Fifo => FileType::Fifo,
        EntryType::Socket => FileType::Socket,
        EntryType::CharDevice => FileType::CharacterDevice,
        EntryType::BlockDevice => FileType::BlockDevice,
        EntryType::File | EntryType::Dir | EntryType::Symlink | EntryType::Unknown => {
            return Err(io::ErrorKind::InvalidInput.into());
        }
    };
    Ok(rustix::fs::mknodat(dir, name, kind, Mode::RUSR | Mode::WUSR, rdev)?)
}

/// Renames within one directory; what is called `to` is replaced.
#[doc(alias = "renameat")]
pub fn rename_at(dir: BorrowedFd<'_>, from: impl PathArg, to: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::renameat(dir, from, dir, to)?)
}

/// Takes a name away from what is no directory.
#[doc(alias = "unlinkat")]
pub fn remove_at(dir: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
}

/// Takes an empty directory away.
#[doc(alias = "rmdir")]
pub fn remove_directory_at(dir: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
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
        let (tree, root) = tree();
        let mut file = match open_unnamed(root.as_fd()) {
            Ok(file) => File::from(file),
            Err(error) => return skipped(&format!("no unnamed files here: {error}")),
        };
        file.write_all(b"bytes").unwrap();
        for name in ["first", "second"] {
            name_file(file.as_fd(), root.as_fd(), name).unwrap();
            assert_eq!(fs::read(tree.path().join(name)).unwrap(), b"bytes");
            let again = name_file(file.as_fd(), root.as_fd(), name);
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
    }

    #[test]
    fn nodes_are_made_and_nothing_else() {
        let (tree, root) = tree();
        for (name, kind) in [("pipe", EntryType::Fifo), ("socket", EntryType::Socket)] {
            make_node_at(root.as_fd(), name, kind, 0).unwrap();
            let stat = statx_at(root.as_fd(), name, true).unwrap();
            assert_eq!((stat.file_type(), stat.mode & 0o077), (kind, 0));
        }
        for kind in [EntryType::File, EntryType::Dir, EntryType::Symlink, EntryType::Unknown] {
            let made = make_node_at(root.as_fd(), "none", kind, 0);
            assert_eq!(made.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(!tree.path().join("none").exists());
        }
    }

    #[test]
    fn names_are_given_changed_and_taken_without_following_links() {
        let (tree, root) = tree();
        let (root, names) = (root.as_fd(), || fs::read_dir(tree.path().join("dir/sub")).unwrap().count());
        make_symlink_at("dir/sub", root, "link").unwrap();
        make_directory_at(root, "new").unwrap();
        assert_eq!(statx_at(root, "new", true).unwrap().mode & 0o077, 0);
        assert_eq!(make_directory_at(root, "link").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        link_at(root, "link", root, "second").unwrap();
        assert_eq!(read_link_at(root, "second").unwrap(), "dir/sub", "the link itself got the name");
        rename_at(root, "fifo", "link").unwrap();
        assert_eq!(statx_at(root, "link", true).unwrap().file_type(), EntryType::Fifo);
        remove_at(root, "second").unwrap();
        assert!(remove_at(root, "dir").is_err());
        assert_eq!(names(), 1, "nothing came or went behind the link");
    }
}
