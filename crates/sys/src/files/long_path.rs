//! Paths of `PATH_MAX` bytes and more: no system call takes one, though a command line and a list of files may hold it.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The kernel takes paths shorter than this, which counts the final zero.
const PATH_MAX: usize = 4096;

/// Makes a call of a path; of the end of it, from a directory on the way, where it is too long for one call.
///
/// Symbolic links on the way are followed. Costs nothing for a path that the kernel takes.
pub(super) fn call_of_path<T>(
    dir: BorrowedFd<'_>,
    path: &CStr,
    call: impl Fn(BorrowedFd<'_>, &CStr) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match call(dir, path) {
        Err(Errno::NAMETOOLONG) if path.count_bytes() >= PATH_MAX => {}
        answer => return answer,
    }
    const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let mut near: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.count_bytes() >= PATH_MAX {
        let (way, below) = split(rest).ok_or(Errno::NAMETOOLONG)?;
        let from = near.as_ref().map_or(dir, AsFd::as_fd);
        near = Some(super::open::again(|| rustix::fs::openat(from, way, STEP, Mode::empty()))?);
        rest = below;
    }
    call(near.as_ref().map_or(dir, AsFd::as_fd), if rest.is_empty() { c"." } else { rest })
}

/// The longest start of whole names that the kernel takes, and what comes behind it; `None` where the first name is too long.
fn split(path: &CStr) -> Option<(&[u8], &CStr)> {
    let bytes = path.to_bytes();
    let slash = bytes[..PATH_MAX - 1].iter().rposition(|&byte| byte == b'/')?;
    let way = &bytes[..slash.max(1)];
    let below = path.to_bytes_with_nul()[slash..].iter().position(|&byte| byte != b'/')? + slash;
    Some((way, CStr::from_bytes_with_nul(&path.to_bytes_with_nul()[below..]).ok()?))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::path::PathBuf;

    use super::*;
    use crate::files::{
        EntryType, link_at, make_directory_at, make_symlink_at, open_dir, open_dir_at, open_direct_at, open_file,
        open_file_at, open_handle_at, read_link_at, statx_at, statx_fd,
    };

    /// A directory so deep that its path has more than two `PATH_MAX`, with a file, a directory and links in it.
    fn deep() -> (tempfile::TempDir, PathBuf) {
        let tree = tempfile::tempdir().unwrap();
        let mut path = tree.path().to_owned();
        let mut at = open_dir(tree.path()).unwrap();
        let name = "n".repeat(250);
        while path.as_os_str().len() < 2 * PATH_MAX + 300 {
            make_directory_at(at.as_fd(), name.as_str()).unwrap();
            at = open_dir_at(at.as_fd(), name.as_str()).unwrap();
            path.push(&name);
        }
        let file = crate::files::create_file_at(at.as_fd(), "file").unwrap();
        rustix::io::write(&file, b"content").unwrap();
        link_at(at.as_fd(), "file", at.as_fd(), "further").unwrap();
        make_symlink_at("file", at.as_fd(), "link").unwrap();
        (tree, path)
    }

    #[test]
    fn what_has_a_longer_path_than_the_kernel_takes_is_opened_and_looked_at() {
        let (_kept, path) = deep();
        let cwd = crate::files::CURRENT_DIR;
        let file = statx_at(cwd, path.join("file"), true).unwrap();
        assert_eq!((file.size, file.nlink), (7, 2));
        assert_eq!(statx_fd(open_file(path.join("file")).unwrap().as_fd()).unwrap(), file);
        assert_eq!(statx_fd(open_file_at(cwd, path.join("file")).unwrap().as_fd()).unwrap(), file);
        assert_eq!(statx_fd(open_handle_at(cwd, path.join("further")).unwrap().as_fd()).unwrap(), file);
        assert_eq!(statx_at(cwd, path.join("link"), false).unwrap(), file);
        assert_eq!(statx_at(cwd, path.join("link"), true).unwrap().file_type(), EntryType::Symlink);
        assert_eq!(read_link_at(cwd, path.join("link")).unwrap(), "file");
        let mut with_slashes = path.as_os_str().to_owned();
        with_slashes.push("//");
        assert!(open_dir(&path).is_ok() && open_dir_at(cwd, with_slashes.as_os_str()).is_ok());
        if let Err(error) = open_direct_at(cwd, path.join("file")) {
            assert_ne!(error.raw_os_error(), Some(libc::ENAMETOOLONG), "{error}");
        }
        assert_eq!(statx_at(cwd, path.join("none"), true).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn a_name_that_is_too_long_stays_so() {
        let (_kept, path) = deep();
        let long = path.join("n".repeat(PATH_MAX + 1));
        let error = statx_at(crate::files::CURRENT_DIR, long, true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
    }

    #[test]
    fn a_path_is_split_between_names() {
        let path = CString::new([&b"/"[..], &[b'a'; 4000], b"//", &[b'b'; 200]].concat()).unwrap();
        let (way, below) = split(&path).unwrap();
        assert_eq!((way.len(), below.count_bytes()), (4002, 200), "the second slash is the last that fits");
        let name = CString::new([&b"/"[..], &[b'a'; 5000]].concat()).unwrap();
        assert_eq!(split(&name).map(|(way, below)| (way, below.count_bytes())), Some((&b"/"[..], 5000)));
        assert!(split(&CString::new([b'a'; 5000]).unwrap()).is_none());
    }
}
