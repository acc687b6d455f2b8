//! What the tests of several modules need.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode};
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};

use crate::files::{CURRENT_DIR, open_dir_at};

/// Says that the running test is left out, or a part of it, and why.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    // Past the test harness, which would keep it back: a run as root must not leave tests out unseen.
    let _ = writeln!(io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// A directory with `dir/sub/file`, a link `dir/link` to `sub`, and a fifo.
pub(crate) fn tree() -> (tempfile::TempDir, OwnedFd) {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("dir/sub")).unwrap();
    fs::write(tree.path().join("dir/sub/file"), b"hello").unwrap();
    symlink("sub", tree.path().join("dir/link")).unwrap();
    let fifo = tree.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let root = open_dir_at(CURRENT_DIR, tree.path()).unwrap();
    (tree, root)
}

/// Runs `body` in a thread that has no privilege and owns nothing; `None`, with the reason printed, where that is not
/// possible. Only that thread changes: the kernel keeps the user of each thread apart, only libc makes them agree.
pub(crate) fn as_stranger<T: Send>(body: impl FnOnce() -> T + Send) -> Option<T> {
    const NOBODY: libc::c_long = 65_534;
    const UNCHANGED: libc::c_long = -1;
    let run = || {
        // SAFETY: three plain numbers.
        let become_nobody = || unsafe { libc::syscall(libc::SYS_setresuid, UNCHANGED, NOBODY, UNCHANGED) };
        // Nobody may become nobody, but is no stranger then.
        (rustix::process::geteuid().is_root() && become_nobody() == 0).then(body)
    };
    let answer = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    if answer.is_none() {
        skipped("only root can become somebody else");
    }
    answer
}

/// A mounted XFS in an image.
pub(crate) struct OwnXfs {
    image: PathBuf,
    pub(crate) root: PathBuf,
}

impl OwnXfs {
    /// Nothing of it is in memory afterwards.
    pub(crate) fn mount_again(&self) {
        run(Command::new("umount").arg(&self.root));
        self.mount();
    }

    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop"]).args([&self.image, &self.root]));
    }
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// Runs `body` with a fresh XFS. Only one thread sees the mount, in a namespace of its own, so that mount and loop
/// device go with it, whatever happens. Only root can; others are told what is left out.
pub(crate) fn on_xfs(body: impl FnOnce(&OwnXfs) + Send) {
    const LEAST_BYTES: u64 = 512 << 20;
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can mount");
    }
    let folder = tempfile::tempdir().unwrap();
    let own = OwnXfs { image: folder.path().join("image"), root: folder.path().join("root") };
    File::create(&own.image).and_then(|image| image.set_len(LEAST_BYTES)).unwrap();
    fs::create_dir(&own.root).unwrap();
    let mounted = || {
        // SAFETY: a plain number.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0, "{}", io::Error::last_os_error());
        run(Command::new("mount").args(["--make-rprivate", "/"]));
        run(Command::new("mkfs.xfs").arg("-q").arg(&own.image));
        own.mount();
        body(&own);
    };
    std::thread::scope(|scope| scope.spawn(mounted).join()).unwrap();
}

/// Gives this thread, and the programs that it starts, a network of their own that nobody else sees. Whether it could.
pub(crate) fn in_own_network() -> bool {
    // SAFETY: a plain number.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

/// Pages of a file that the kernel can't reclaim while this lives.
pub(crate) struct Pinned {
    start: *mut libc::c_void,
    len: usize,
}

impl Pinned {
    /// Pins pages that are best cached already: those that are not are read, maybe others around them too.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Pinned {
        // SAFETY: a new mapping at an address of the kernel's choice, never read or written.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, offset) }.unwrap();
        let pinned = Pinned { start, len };
        // SAFETY: exactly the mapping made above.
        unsafe { mlock(start, len) }.unwrap();
        pinned
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping of `new`, of which nothing is kept.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

/// Takes a lease on a file that keeps others from opening it until `holder` is closed.
pub(crate) fn take_lease(holder: &File) -> io::Result<()> {
    let set = |command, value: libc::c_int| {
        // SAFETY: both commands take a plain number.
        match unsafe { libc::fcntl(holder.as_raw_fd(), command, value) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // The signal that asks for the lease back would end the process; this one is ignored by default.
    set(F_SETSIG, libc::SIGURG)?;
    set(libc::F_SETLEASE, libc::F_WRLCK as libc::c_int)
}

/// Of `linux/fcntl.h`; not in libc.
const F_SETSIG: libc::c_int = 10;
