//! What is mounted where, and which host moves files there.

use std::io;
use std::os::fd::BorrowedFd;

use onesweep_layout::{Mount, MountTable};
use onesweep_sys::files::statx_fd;

/// The mount of an open file, and the device of its files.
pub(crate) fn mount_of(fd: BorrowedFd<'_>) -> io::Result<(u64, Mount)> {
    let stat = statx_fd(fd)?;
    let mounts = MountTable::read()?;
    let mount = stat.mnt_id.and_then(|id| mounts.by_id(id));
    let mount = mount.or_else(|| mounts.iter().find(|mount| mount.dev == stat.dev));
    let mount = mount.cloned().ok_or(io::ErrorKind::NotFound)?;
    Ok((stat.dev, mount))
}
