//! Names of other kinds than those that are opened.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;

use super::PathArg;

/// Where the symbolic link `path` below `dir` points; an empty path means that `dir` is the link itself (`O_PATH`).
pub fn read_link_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OsString> {
    let target = rustix::fs::readlinkat(dir, path, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::open_handle_at;
    use crate::testing::tree;

    #[test]
    fn links_are_read_by_name_and_by_handle() {
        let (_kept, root) = tree();
        assert_eq!(read_link_at(root.as_fd(), "dir/link").unwrap(), "sub");
        let link = open_handle_at(root.as_fd(), "dir/link").unwrap();
        assert_eq!(read_link_at(link.as_fd(), "").unwrap(), "sub");
    }
}
