//! Mounting and unmounting.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::features::features;

/// Mounts a device on a directory, for reading only. `options` are those of the file system, separated by commas. Needs
/// `CAP_SYS_ADMIN`. A journal that needs recovery is replayed, which writes to the device.
#[doc(alias = "mount")]
pub fn mount_read_only(device: &Path, directory: &Path, fs_type: &str, options: &str) -> io::Result<()> {
    let (device, directory) = (text(device.as_os_str().as_bytes())?, text(directory.as_os_str().as_bytes())?);
    let (fs_type, options) = (text(fs_type.as_bytes())?, text(options.as_bytes())?);
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_NOATIME;
    // SAFETY: four texts that end with a zero and live beyond the call.
    let status =
        unsafe { libc::mount(device.as_ptr(), directory.as_ptr(), fs_type.as_ptr(), flags, options.as_ptr().cast()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Unmounts what is mounted on a directory; `EBUSY` while something of it is open.
#[doc(alias = "umount2")]
pub fn unmount(directory: &Path) -> io::Result<()> {
    let directory = text(directory.as_os_str().as_bytes())?;
    // SAFETY: a text that ends with a zero and lives beyond the call.
    let status = unsafe { libc::umount2(directory.as_ptr(), libc::UMOUNT_NOFOLLOW) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes away what is mounted on a directory at once, also what nobody answers for any more; who has something of it open
/// keeps it.
#[doc(alias = "MNT_DETACH")]
pub fn detach(directory: &Path) -> io::Result<()> {
    let directory = text(directory.as_os_str().as_bytes())?;
    // SAFETY: a text that ends with a zero and lives beyond the call.
    let status = unsafe { libc::umount2(directory.as_ptr(), libc::UMOUNT_NOFOLLOW | libc::MNT_DETACH) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const _: () = assert!(size_of::<MountAttributes>() == 32);

/// The directory as a mount of its own that nobody else sees, and that ends with the last descriptor: without what is mounted
/// below it, and without access times. What is asked to be `read_only` the kernel doesn't let anybody write through it.
///
/// Linux 5.12 and `CAP_SYS_ADMIN`.
#[doc(alias = "open_tree")]
#[doc(alias = "mount_setattr")]
pub fn own_mount_of(directory: &Path, read_only: bool) -> io::Result<OwnedFd> {
    clone_of(directory, if read_only { ATTR_RDONLY | ATTR_NOATIME } else { ATTR_NOATIME })
}

/// The directory as one more mount that is to be shown ([`show_mount`]; a bind mount): without what is mounted below it; devices can't be opened
/// through it, and set-user-ID bits have no effect. What is asked to be `read_only` nobody can write to there, nor does who
/// reads it write access times.
///
/// Linux 5.12 and `CAP_SYS_ADMIN`.
pub fn mount_to_show(source: &Path, read_only: bool) -> io::Result<OwnedFd> {
    let kept = ATTR_NOSUID | ATTR_NODEV;
    clone_of(source, if read_only { kept | ATTR_RDONLY | ATTR_NOATIME } else { kept })
}

/// Whether the mount through which something was opened forbids what those of [`mount_to_show`] do.
#[doc(alias = "statvfs")]
pub fn is_as_shown(open: BorrowedFd<'_>) -> io::Result<bool> {
    let forbids = rustix::fs::StatVfsMountFlags::NOSUID | rustix::fs::StatVfsMountFlags::NODEV;
    Ok(rustix::fs::fstatvfs(open)?.f_flag.contains(forbids))
}

/// Shows a mount at `dir`, for everybody; it stays when the descriptor goes.
#[doc(alias = "move_mount")]
pub fn show_mount(shown: BorrowedFd<'_>, dir: &Path) -> io::Result<()> {
    const FROM_EMPTY_PATH: u32 = 0x4;
    let dir = text(dir.as_os_str().as_bytes())?;
    // SAFETY: two texts that end with a zero and live beyond the call.
    let status = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            shown.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            dir.as_ptr(),
            FROM_EMPTY_PATH,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of the mount through which something was opened, as `/proc/self/mountinfo` has it. One that is gone may be given again.
#[doc(alias = "STATX_MNT_ID")]
pub fn mount_id(open: BorrowedFd<'_>) -> io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(open, c"", flags, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// A number that no other mount has before the machine starts anew (Linux 6.8); `None` where the kernel gives none.
#[doc(alias = "STATX_MNT_ID_UNIQUE")]
pub fn unique_mount_id(open: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    if !features().mount_ids {
        return Ok(None);
    }
    let unique = StatxFlags::from_bits_retain(0x4000);
    let found = rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, unique)?;
    Ok((found.stx_mask & unique.bits() != 0).then_some(found.stx_mnt_id))
}

const ATTR_RDONLY: u64 = 0x1;
const ATTR_NOSUID: u64 = 0x2;
const ATTR_NODEV: u64 = 0x4;
const ATTR_NOATIME: u64 = 0x10;
/// All that is said of access times.
const ATTR_ATIMES: u64 = 0x70;

fn clone_of(directory: &Path, set: u64) -> io::Result<OwnedFd> {
    const CLONE: libc::c_int = 1;
    let path = text(directory.as_os_str().as_bytes())?;
    // SAFETY: a text that ends with a zero and lives beyond the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), CLONE | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given this descriptor, and nobody else knows it.
    let own = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let attributes = MountAttributes {
        set,
        clear: if set & ATTR_NOATIME == 0 { 0 } else { ATTR_ATIMES },
        // What is mounted later in the directory isn't mounted here.
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: an empty text, and a structure of the size that is told.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            own.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(own) }
}

/// Mounts a FUSE file system that this process answers for at a directory, for all users, by the permissions of its files; gives the device
/// by which it is answered. Needs `CAP_SYS_ADMIN`.
#[doc(alias = "/dev/fuse")]
pub fn mount_fuse(name: &str, directory: &Path, read_only: bool) -> io::Result<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mode = std::fs::metadata(directory)?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let options = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions,allow_other",
        device.as_raw_fd()
    );
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME | if read_only { libc::MS_RDONLY } else { 0 };
    let (name, directory) = (text(name.as_bytes())?, text(directory.as_os_str().as_bytes())?);
    let options = text(options.as_bytes())?;
    // SAFETY: four texts that end with a zero and live beyond the call.
    let status =
        unsafe { libc::mount(name.as_ptr(), directory.as_ptr(), c"fuse".as_ptr(), flags, options.as_ptr().cast()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(device) }
}

/// The device of what is mounted at `root`, without asking whoever answers for it.
pub(crate) fn device_at(root: &Path) -> io::Result<u64> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    device_of(rustix::fs::open(root, flags, Mode::empty())?.as_fd())
}

/// The same of what is open.
pub(crate) fn device_of(open: BorrowedFd<'_>) -> io::Result<u64> {
    let found = rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    Ok(rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor))
}

/// Tells when a mount came or went.
#[derive(Debug)]
pub struct MountWatch(File);

impl MountWatch {
    /// Watches the mounts that this process sees.
    pub fn new() -> io::Result<MountWatch> {
        File::open("/proc/self/mountinfo").map(MountWatch)
    }

    /// The watch itself, for another process that sees other mounts.
    pub fn into_file(self) -> OwnedFd {
        self.0.into()
    }

    /// Whether mounts have changed since the last call, or since the watch began. Never waits; costs a microsecond.
    pub fn has_changed(&self) -> bool {
        let mut polled = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one structure, as is said.
        unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
    }
}

impl From<OwnedFd> for MountWatch {
    fn from(file: OwnedFd) -> MountWatch {
        MountWatch(file.into())
    }
}

/// Has this thread, and those that it makes later, see mounts as `namespace` has them: a file such as `/proc/1/ns/mnt`. The
/// working directory is the root then. Before other threads are made; needs `CAP_SYS_ADMIN` and `CAP_SYS_CHROOT`.
#[doc(alias = "setns")]
pub fn see_mounts_of(namespace: &Path) -> io::Result<()> {
    let file = File::open(namespace)?;
    let kind = rustix::thread::LinkNameSpaceType::Mount;
    Ok(rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind))?)
}

fn text(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mounted_says_so() {
        let directory = tempfile::tempdir().unwrap();
        mount_read_only(Path::new("/dev/null"), directory.path(), "ext4", "").unwrap_err();
        unmount(directory.path()).unwrap_err();
        let zero = mount_read_only(Path::new("a\0b"), directory.path(), "ext4", "").unwrap_err();
        assert_eq!(zero.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn no_mount_is_no_change() {
        let watch = MountWatch::new().unwrap();
        // Another test may mount something just then.
        assert!((0..100).any(|_| !watch.has_changed()));
    }
}
