//! Opening files and directories.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::long_path::call_of_path;
use super::{CURRENT_DIR, PathArg, through_proc};
use crate::features::features;

const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a directory below `dir` for listing, without following a symbolic link in any component.
///
/// `ELOOP` or `ENOTDIR` when there is one. An absolute path is only kept from a link in its last component.
pub fn open_dir_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    open_at(dir, path, FILE_FLAGS | OFlags::DIRECTORY)
}

/// Opens a file below `dir` for reading, without following a symbolic link in any component.
///
/// Access times stay as they are where the caller may ask for that (owner or `CAP_FOWNER`). A fifo opens at once; a
/// socket gives `ENXIO`. An absolute path is only kept from a link in its last component.
pub fn open_file_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    open_at(dir, path, FILE_FLAGS)
}

/// As [`open_file_at`], with `O_DIRECT`: reads go past the page cache, and their offset, length and memory must be
/// aligned (see [`dio_align`](super::Stat::dio_align)). `EINVAL` where the file system cannot; `Unsupported` when it is
/// hidden.
#[doc(alias = "O_DIRECT")]
pub fn open_direct_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    if !features().direct {
        return Err(io::ErrorKind::Unsupported.into());
    }
    open_at(dir, path, FILE_FLAGS | OFlags::DIRECT)
}

/// Opens what may be looked at but not read (`O_PATH`): symbolic links and files without read permission too.
#[doc(alias = "O_PATH")]
pub fn open_handle_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(path.into_with_c_str(|path| open_beneath(dir, path, flags))?)
}

/// As [`open_handle_at`], of a path whose symbolic links are followed, but for the last component where nothing stands behind it.
#[doc(alias = "O_PATH")]
pub fn open_handle(path: impl PathArg) -> io::Result<OwnedFd> {
    open_named(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)
}

/// Opens a handle of what a link of `/proc` leads to, such as `/proc/1/fd/0`. Disturbs no lease.
#[doc(alias = "O_PATH")]
pub fn open_handle_of_link(path: impl PathArg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens what a handle is of for reading: a directory, or a regular file.
#[doc(alias = "O_PATH")]
pub fn reopen(handle: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    reopen_with(handle, OFlags::empty())
}

/// Opens an open file again for reading alone, without a new access time, which the caller must be allowed to ask for (owner or
/// `CAP_FOWNER`).
pub fn reopen_untouched(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    reopen_with(file, OFlags::NOATIME)
}

/// As [`reopen_untouched`], for reading and writing. Errors as of [`open_file_to_write`].
pub fn reopen_to_write(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    reopen_with(file, OFlags::NOATIME | OFlags::RDWR)
}

fn reopen_with(file: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    let path = through_proc(file);
    // What is opened is no link any more but the way of /proc to it.
    Ok(again(|| rustix::fs::open(path.as_path(), (FILE_FLAGS | flags) - OFlags::NOFOLLOW, Mode::empty()))?)
}

/// Opens a directory for listing, where `path` itself may not be a symbolic link; those on the way to it are followed.
pub fn open_dir(path: impl PathArg) -> io::Result<OwnedFd> {
    open_named(path, FILE_FLAGS | OFlags::DIRECTORY)
}

/// Opens a file for reading, where `path` itself may not be a symbolic link; those on the way to it are followed.
pub fn open_file(path: impl PathArg) -> io::Result<OwnedFd> {
    open_named(path, FILE_FLAGS)
}

fn open_named(path: impl PathArg, flags: OFlags) -> io::Result<OwnedFd> {
    let open = |dir: BorrowedFd<'_>, path: &CStr| again(|| rustix::fs::openat(dir, path, flags, Mode::empty()));
    Ok(path.into_with_c_str(|path| call_of_path(CURRENT_DIR, path, open))?)
}

/// True when a file could not be opened because there is none of that name: nothing at all, or a symbolic link, a socket
/// or a device without a driver.
pub fn is_no_file(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::LOOP | Errno::NXIO))
}

/// Opens the directory `path` to work in it (`O_PATH`), following symbolic links.
#[doc(alias = "O_PATH")]
pub fn open_dir_handle(path: impl PathArg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_named(path, flags)
}

/// As [`open_dir_handle`], of a directory below `dir`: no component of `path` may be a symbolic link or lead out
/// of `dir`.
///
/// [`is_link_refused`] tells the error that a link gives.
#[doc(alias = "RESOLVE_BENEATH")]
pub fn open_dir_handle_beneath(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    const FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let opened = path.into_with_c_str(|path| {
        if features().openat2 {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            return again(|| rustix::fs::openat2(dir, path, FLAGS, Mode::empty(), resolve));
        }
        let bytes = path.to_bytes();
        if bytes.starts_with(b"/") || bytes.split(|&byte| byte == b'/').any(|part| part == b"..") {
            return Err(Errno::XDEV);
        }
        open_by_component(dir, bytes, FLAGS | OFlags::NOFOLLOW)
    });
    Ok(opened?)
}

/// True for what [`open_dir_handle_beneath`] says to a symbolic link. Where `openat2` is missing it says the same to what
/// is no directory.
pub fn is_link_refused(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::LOOP) => true,
        Some(Errno::NOTDIR) => !features().openat2,
        _ => false,
    }
}

/// Makes an empty file in `dir` that has no name and goes when it is closed, for its owner to read and write.
///
/// [`name_file`](super::name_file) names it.
#[doc(alias = "O_TMPFILE")]
pub fn open_unnamed(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(again(|| rustix::fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR))?)
}

/// Makes an empty file called `name` in `dir`, for its owner to read and write. `AlreadyExists` when anything has
/// the name.
#[doc(alias = "O_EXCL")]
pub fn create_file_at(dir: BorrowedFd<'_>, name: impl PathArg) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?)
}

/// As [`open_file`], without a new access time where the caller may ask for that (owner or `CAP_FOWNER`).
#[doc(alias = "O_NOATIME")]
pub fn open_file_untouched(path: impl PathArg) -> io::Result<OwnedFd> {
    open_untouched(path, FILE_FLAGS)
}

/// As [`open_file_untouched`], for reading and writing.
///
/// `ETXTBSY` for a program that runs; `EAGAIN` for a file that another process has a lease on, which is asked to give it up.
pub fn open_file_to_write(path: impl PathArg) -> io::Result<OwnedFd> {
    open_untouched(path, FILE_FLAGS | OFlags::RDWR)
}

/// As [`open_file`], if all that it takes is in memory; `None` when something would have to be read from the disk, or somebody has a
/// lease on the file (Linux 5.12).
#[doc(alias = "RESOLVE_CACHED")]
pub fn open_file_in_memory(path: impl PathArg) -> io::Result<Option<OwnedFd>> {
    if !features().openat2 {
        return Ok(None);
    }
    let open =
        |path: &CStr| again(|| rustix::fs::openat2(CURRENT_DIR, path, FILE_FLAGS, Mode::empty(), ResolveFlags::CACHED));
    match path.into_with_c_str(open) {
        Err(Errno::AGAIN) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn open_untouched(path: impl PathArg, flags: OFlags) -> io::Result<OwnedFd> {
    const EPERM: i32 = 1;
    let path = path.into_c_str()?;
    match open_named(path.as_ref(), flags | OFlags::NOATIME) {
        Err(error) if error.raw_os_error() == Some(EPERM) => open_named(path.as_ref(), flags),
        opened => opened,
    }
}

/// Takes `O_NONBLOCK` from an open file. Opening needs it, lest a fifo be waited for; a read of a regular file by io_uring
/// may fail by it with `EAGAIN` before Linux 6.5.
#[doc(alias = "F_SETFL")]
pub fn let_block(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK)?)
}

/// Whether reads of an open file leave its access time alone, as was asked for (`O_NOATIME`).
#[doc(alias = "F_GETFL")]
pub fn is_untouched(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NOATIME))
}

/// Whether reads of an open file go past the page cache.
#[doc(alias = "F_GETFL")]
pub fn is_direct(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}

/// Opens with `O_NOATIME`, and without it where the file is another's. Waits for a lease to be given up.
fn open_at(dir: BorrowedFd<'_>, path: impl PathArg, flags: OFlags) -> io::Result<OwnedFd> {
    let open = |path: &CStr, flags: OFlags| match open_beneath(dir, path, flags) {
        Err(Errno::AGAIN) => open_leased(dir, path, flags),
        opened => opened,
    };
    let opened = path.into_with_c_str(|path| match open(path, flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(path, flags),
        opened => opened,
    });
    Ok(opened?)
}

/// Opens a regular file that another process has a lease on (as Samba does), waiting until that has given it up.
///
/// With `O_NONBLOCK` such a file cannot be opened, and without it a fifo would be waited for: so the file is looked at
/// first, and the very same file opened again.
fn open_leased(dir: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let handle = open_beneath(dir, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode) != FileType::RegularFile {
        return Err(Errno::AGAIN);
    }
    let same_file = through_proc(handle.as_fd());
    let flags = flags - OFlags::NONBLOCK - OFlags::NOFOLLOW;
    again(|| rustix::fs::open(same_file.as_path(), flags, Mode::empty()))
}

/// Opens `path`; when it is relative and of several components, none of them may be a symbolic link.
fn open_beneath(dir: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let bytes = path.to_bytes();
    if !bytes.contains(&b'/') || bytes.starts_with(b"/") {
        return call_of_path(dir, path, |dir, path| again(|| rustix::fs::openat(dir, path, flags, Mode::empty())));
    }
    if features().openat2 {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match again(|| rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)) {
            // By its components any path may be opened, however long.
            Err(Errno::NOSYS | Errno::NAMETOOLONG) => {}
            opened => return opened,
        }
    }
    open_by_component(dir, bytes, flags)
}

/// What `openat2` does with `RESOLVE_NO_SYMLINKS`, one directory at a time.
fn open_by_component(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mut components: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    let last = components.pop().unwrap_or(b".");
    let mut parent: Option<OwnedFd> = None;
    for component in components {
        let from = parent.as_ref().map_or(dir, AsFd::as_fd);
        // O_PATH with O_DIRECTORY and O_NOFOLLOW says ENOTDIR to a link, where openat2 says ELOOP.
        parent = Some(again(|| rustix::fs::openat(from, component, STEP, Mode::empty()))?);
    }
    let from = parent.as_ref().map_or(dir, AsFd::as_fd);
    again(|| rustix::fs::openat(from, last, flags, Mode::empty()))
}

/// Repeats a call that a signal has interrupted.
pub(super) fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::Duration;

    use super::*;
    use crate::files::{EntryType, statx_fd};
    use crate::testing::{on_xfs, skipped, tree};

    fn code<T>(answer: io::Result<T>) -> Option<i32> {
        answer.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn what_is_not_in_memory_is_not_opened() {
        on_xfs(|own| {
            fs::create_dir(own.root.join("deep")).unwrap();
            let path = own.root.join("deep/file");
            fs::write(&path, "bytes").unwrap();
            let is_opened = || open_file_in_memory(path.as_path()).unwrap().is_some();
            assert!(is_opened(), "it was just written");
            own.mount_again();
            assert!(!is_opened());
            path.metadata().unwrap();
            assert!(is_opened());
            fs::remove_file(&path).unwrap();
            let gone = open_file_in_memory(path.as_path()).map(|opened| opened.is_some());
            assert!(gone.as_ref().map_or_else(is_no_file, |is_opened| !is_opened), "{gone:?}");
        });
    }

    #[test]
    fn links_are_not_followed_anywhere() {
        let (_kept, root) = tree();
        let root = root.as_fd();
        assert!(open_file_at(root, "dir/sub/file").is_ok());
        assert!(open_dir_at(root, "dir/sub").is_ok());
        assert!(open_dir_at(root, c"dir").is_ok());
        assert!(code(open_file_at(root, "dir/link/file")).is_some(), "a link in the middle");
        assert!(code(open_dir_at(root, "dir/link")).is_some(), "a link at the end");
        assert_eq!(code(open_file_at(root, "dir/sub/none")), Some(libc::ENOENT));
        assert_eq!(code(open_dir_at(root, "dir/sub/file")), Some(libc::ENOTDIR));
    }

    #[test]
    fn a_directory_beneath_is_reached_by_no_link_and_no_way_out() {
        let (tree, root) = tree();
        symlink("/", tree.path().join("dir/out")).unwrap();
        let open = |path: &str| open_dir_handle_beneath(root.as_fd(), path);
        assert!(open("dir").is_ok() && open("dir/sub").is_ok());
        for link in ["dir/link", "dir/out", "dir/out/etc", "dir/link/."] {
            assert!(is_link_refused(&open(link).unwrap_err()), "{link}");
        }
        for outside in ["..", "dir/../..", "/etc"] {
            assert_eq!(code(open(outside)), Some(libc::EXDEV), "{outside}");
        }
        assert_eq!(code(open("dir/sub/file")), Some(libc::ENOTDIR));
        assert!(open_dir_handle(tree.path().join("dir/link")).is_ok(), "where the user names it, it is followed");
    }

    #[test]
    fn a_new_file_is_its_owners_alone() {
        let (_kept, root) = tree();
        let file = create_file_at(root.as_fd(), "new").unwrap();
        assert_eq!(statx_fd(file.as_fd()).unwrap().mode, 0o100_600);
        assert_eq!(code(create_file_at(root.as_fd(), "dir/link")), Some(libc::EEXIST), "no link is followed");
    }

    #[test]
    fn links_on_the_way_may_be_allowed() {
        let (tree, _root) = tree();
        assert!(open_file(tree.path().join("dir/link/file")).is_ok());
        for open in [open_file_untouched, open_file_to_write] {
            let opened = open(tree.path().join("dir/link/file")).unwrap();
            assert!(rustix::fs::fcntl_getfl(&opened).unwrap().contains(OFlags::NOATIME));
            assert_eq!(code(open(tree.path().join("dir/link"))), Some(libc::ELOOP));
        }
        assert!(open_dir(tree.path().join("dir/link/.")).is_ok());
        assert!(code(open_dir(tree.path().join("dir/link"))).is_some(), "a link at the end");
        symlink("sub/file", tree.path().join("dir/file")).unwrap();
        assert_eq!(code(open_file(tree.path().join("dir/file"))), Some(libc::ELOOP));
    }

    #[test]
    fn going_by_component_is_as_strict() {
        let (_kept, root) = tree();
        let open = |path: &[u8], flags| open_by_component(root.as_fd(), path, flags);
        assert!(open(b"dir/sub/file", FILE_FLAGS).is_ok());
        assert!(open(b"dir//sub/./file", FILE_FLAGS).is_ok());
        assert_eq!(open(b"dir/link/file", FILE_FLAGS).unwrap_err(), Errno::NOTDIR);
        assert_eq!(open(b"dir/link", FILE_FLAGS).unwrap_err(), Errno::LOOP);
        assert_eq!(open(b"none/file", FILE_FLAGS).unwrap_err(), Errno::NOENT);
        assert!(open(b"dir/sub/", FILE_FLAGS | OFlags::DIRECTORY).is_ok());
    }

    #[test]
    fn fifo_is_not_waited_for() {
        let (_kept, root) = tree();
        let fifo = open_file_at(root.as_fd(), "fifo").unwrap();
        assert_eq!(statx_fd(fifo.as_fd()).unwrap().file_type(), EntryType::Fifo);
    }

    #[test]
    fn what_is_no_file_is_told_from_what_may_not_be_read() {
        let (tree, root) = tree();
        let _socket = std::os::unix::net::UnixListener::bind(tree.path().join("socket")).unwrap();
        let open = |path: &str| open_file_at(root.as_fd(), path).unwrap_err();
        for path in ["none", "dir/link", "socket"] {
            assert!(is_no_file(&open(path)), "{path}");
        }
        assert!(!is_no_file(&open("dir/sub/file/below")));
        assert!(!is_no_file(&Errno::ACCESS.into()) && !is_no_file(&Errno::IO.into()));
    }

    #[test]
    fn reading_leaves_the_access_time() {
        let (tree, root) = tree();
        let before = fs::metadata(tree.path().join("dir/sub/file")).unwrap();
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        assert!(rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NOATIME), "the file is ours");
        rustix::io::pread(&file, &mut [0; 5], 0).unwrap();
        assert_eq!(fs::metadata(tree.path().join("dir/sub/file")).unwrap().atime_nsec(), before.atime_nsec());
    }

    #[test]
    fn strangers_files_open_too() {
        let (tree, root) = tree();
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let opened = crate::testing::as_stranger(|| open_file_at(root.as_fd(), "dir/sub/file"));
        if let Some(file) = opened {
            let flags = rustix::fs::fcntl_getfl(file.unwrap()).unwrap();
            assert!(!flags.contains(OFlags::NOATIME), "only the owner may leave the access time alone");
        }
    }

    #[test]
    fn lease_is_waited_for() {
        let (tree, root) = tree();
        let holder = fs::File::options().read(true).write(true).open(tree.path().join("dir/sub/file")).unwrap();
        if let Err(error) = crate::testing::take_lease(&holder) {
            return skipped(&format!("no leases here: {error}"));
        }
        let given_up = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                given_up.store(true, std::sync::atomic::Ordering::SeqCst);
                drop(holder);
            });
            let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
            assert!(given_up.load(std::sync::atomic::Ordering::SeqCst));
            assert!(rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NOATIME), "the file is ours");
        });
    }

    #[test]
    fn strangers_lease_is_waited_for_too() {
        let (tree, root) = tree();
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let holder = fs::File::options().read(true).write(true).open(tree.path().join("dir/sub/file")).unwrap();
        if let Err(error) = crate::testing::take_lease(&holder) {
            return skipped(&format!("no leases here: {error}"));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                drop(holder);
            });
            if let Some(opened) = crate::testing::as_stranger(|| open_file_at(root.as_fd(), "dir/sub/file")) {
                opened.unwrap();
            }
        });
    }

    #[test]
    fn reads_may_block_again() {
        let (_kept, root) = tree();
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        let flags = || rustix::fs::fcntl_getfl(&file).unwrap();
        let before = flags();
        let_block(file.as_fd()).unwrap();
        assert_eq!(before - flags(), OFlags::NONBLOCK);
        assert!(!is_direct(file.as_fd()));
    }
}
