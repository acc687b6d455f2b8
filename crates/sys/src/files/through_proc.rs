//! What `/proc` shows of an open file: a way to it, and its path.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use super::{CURRENT_DIR, read_link_at};

/// A path that leads to an open file, or to what a [handle](super::open_handle_at) stands for, whatever its names are by now.
///
/// It is a link that has to be followed, for this process alone, and as long as the descriptor is open.
pub fn through_proc(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The path of an open file, as the kernel tells it now. Of one that has lost its name it ends with ` (deleted)`, and one that this process
/// sees in no mount has none that leads there: who opens it has to look whether it is the same file.
///
/// `NotFound` without `/proc`.
#[doc(alias = "readlink")]
pub fn path_of(file: BorrowedFd<'_>) -> io::Result<PathBuf> {
    Ok(read_link_at(CURRENT_DIR, through_proc(file))?.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_path_follows_the_file_and_the_way_needs_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(folder.path()).unwrap();
        fs::write(top.join("first"), "content").unwrap();
        let file = File::open(top.join("first")).unwrap();
        assert_eq!(path_of(file.as_fd()).unwrap(), top.join("first"));
        fs::rename(top.join("first"), top.join("then")).unwrap();
        assert_eq!(path_of(file.as_fd()).unwrap(), top.join("then"));
        fs::remove_file(top.join("then")).unwrap();
        assert_eq!(path_of(file.as_fd()).unwrap(), top.join("then (deleted)"));
        assert_eq!(fs::read(through_proc(file.as_fd())).unwrap(), b"content");
    }
}
