//! Extended attributes.

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::{PathArg, through_proc};

/// The names of the extended attributes of an open file. Empty where the file system has none.
///
/// `security.capability` and `trusted.*` are listed for the privileged only.
pub fn list_xattrs_fd(fd: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    xattr_names(|buffer| rustix::fs::flistxattr(fd, buffer))
}

/// As [`list_xattrs_fd`], of the file `path`, or of the link itself when it is a symbolic link.
///
/// There is no such call relative to a directory; `/proc/self/fd/N/name` is the way.
pub fn list_xattrs_path(path: impl PathArg) -> io::Result<Vec<CString>> {
    path.into_with_c_str(|path| Ok(xattr_names(|buffer| rustix::fs::llistxattr(path, buffer))))?
}

/// The value of one extended attribute of an open file; `None` when it has no such attribute.
pub fn xattr_fd(fd: BorrowedFd<'_>, name: impl PathArg) -> io::Result<Option<Vec<u8>>> {
    let name = name.into_c_str()?;
    xattr_value(|buffer| rustix::fs::fgetxattr(fd, name.as_ref(), buffer))
}

/// As [`xattr_fd`], of the file `path`, or of the link itself when it is a symbolic link.
pub fn xattr_path(path: impl PathArg, name: impl PathArg) -> io::Result<Option<Vec<u8>>> {
    let (path, name) = (path.into_c_str()?, name.into_c_str()?);
    xattr_value(|buffer| rustix::fs::lgetxattr(path.as_ref(), name.as_ref(), buffer))
}

/// Sets one extended attribute of an open file, whether it is there or not.
pub fn set_xattr_fd(fd: BorrowedFd<'_>, name: impl PathArg, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())?)
}

/// As [`set_xattr_fd`], of the file `path`, or of the link itself when it is a symbolic link.
pub fn set_xattr_path(path: impl PathArg, name: impl PathArg, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?)
}

/// As [`list_xattrs_fd`], of a [handle](super::open_handle_at), which may be one of a symbolic link.
///
/// There is no such call before Linux 6.13; `/proc` leads to what the handle stands for, and no further.
pub fn list_xattrs_handle(handle: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    xattr_names(|buffer| rustix::fs::listxattr(through_proc(handle), buffer))
}

/// As [`xattr_fd`], of a [handle](super::open_handle_at), which may be one of a symbolic link.
pub fn xattr_handle(handle: BorrowedFd<'_>, name: impl PathArg) -> io::Result<Option<Vec<u8>>> {
    let name = name.into_c_str()?;
    xattr_value(|buffer| rustix::fs::getxattr(through_proc(handle), name.as_ref(), buffer))
}

/// As [`set_xattr_fd`], of a [handle](super::open_handle_at), which may be one of a symbolic link.
pub fn set_xattr_handle(handle: BorrowedFd<'_>, name: impl PathArg, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(through_proc(handle), name, value, XattrFlags::empty())?)
}

/// As [`remove_xattr_fd`], of a [handle](super::open_handle_at), which may be one of a symbolic link.
pub fn remove_xattr_handle(handle: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::removexattr(through_proc(handle), name)?)
}

/// Removes one extended attribute of an open file.
pub fn remove_xattr_fd(fd: BorrowedFd<'_>, name: impl PathArg) -> io::Result<()> {
    Ok(rustix::fs::fremovexattr(fd, name)?)
}

/// Reads a list of names that end with a zero byte.
fn xattr_names(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<CString>> {
    match grown(call) {
        Ok(list) => Ok(list
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty())
            .filter_map(|name| CString::new(name).ok())
            .collect()),
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a value that may not be there.
fn xattr_value(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Option<Vec<u8>>> {
    match grown(call) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Calls with a bigger buffer until the answer fits. 64 KiB is the most that Linux keeps.
fn grown(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    const XATTR_BYTES_MAX: usize = 64 << 10;
    let mut small = [0; 256];
    match call(&mut small) {
        Ok(len) => return Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(error) => return Err(error),
    }
    let mut buffer = vec![0; XATTR_BYTES_MAX];
    let len = call(&mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::files::{open_file_at, open_handle_at};
    use crate::testing::{skipped, tree};

    #[test]
    fn attributes_come_back() {
        let (tree, root) = tree();
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        let long = vec![7; 2000];
        if let Err(error) = set_xattr_fd(file.as_fd(), "user.short", b"value") {
            return skipped(&format!("no extended attributes here: {error}"));
        }
        set_xattr_path(tree.path().join("dir/sub/file"), "user.long", &long).unwrap();
        set_xattr_fd(file.as_fd(), "user.empty", b"").unwrap();
        let mut names = list_xattrs_fd(file.as_fd()).unwrap();
        names.retain(|name| name.as_bytes().starts_with(b"user."));
        names.sort();
        assert_eq!(names, [c"user.empty", c"user.long", c"user.short"].map(CString::from));
        assert_eq!(xattr_fd(file.as_fd(), "user.short").unwrap().unwrap(), b"value");
        assert_eq!(xattr_fd(file.as_fd(), "user.long").unwrap().unwrap(), long);
        assert_eq!(xattr_fd(file.as_fd(), "user.empty").unwrap().unwrap(), b"");
        assert_eq!(xattr_fd(file.as_fd(), "user.none").unwrap(), None);
        let through_proc = format!("/proc/self/fd/{}/dir/sub/file", root.as_raw_fd());
        assert_eq!(xattr_path(through_proc.as_str(), "user.short").unwrap().unwrap(), b"value");
        assert!(list_xattrs_path(through_proc.as_str()).unwrap().contains(&c"user.long".to_owned()));
        assert_eq!(xattr_path(tree.path().join("dir/link"), "user.short").unwrap(), None, "the link itself");
        remove_xattr_fd(file.as_fd(), "user.short").unwrap();
        assert_eq!(xattr_fd(file.as_fd(), "user.short").unwrap(), None);
    }

    /// Of all namespaces, only `trusted` may be on a link, and only root may set it.
    #[test]
    fn attributes_of_a_handle_are_those_of_the_entry_itself() {
        let (tree, root) = tree();
        for name in ["dir/link", "fifo", "dir/sub/file"] {
            let handle = open_handle_at(root.as_fd(), name).unwrap();
            if let Err(error) = set_xattr_handle(handle.as_fd(), "trusted.test", b"value") {
                return skipped(&format!("no attributes of links here: {error}"));
            }
            assert_eq!(xattr_path(tree.path().join(name), "trusted.test").unwrap().unwrap(), b"value", "{name}");
            assert!(list_xattrs_handle(handle.as_fd()).unwrap().contains(&c"trusted.test".to_owned()));
            assert_eq!(xattr_path(tree.path().join("dir/sub"), "trusted.test").unwrap(), None);
            remove_xattr_handle(handle.as_fd(), "trusted.test").unwrap();
            assert_eq!(xattr_path(tree.path().join(name), "trusted.test").unwrap(), None, "{name}");
        }
    }
}
