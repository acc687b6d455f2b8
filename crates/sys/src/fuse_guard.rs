//! A FUSE file system that doesn't outlast the process by which it is answered.
//!
//! A process that is killed closes the device by which it answers, and whoever waits for an answer gets an error. But a thread that
//! tells the kernel of something, content that it gives or names that have changed, waits for locks of the kernel without being
//! killed, maybe those of who waits for an answer; and as long as it waits, the files of its process are open. Both wait for ever
//! then. So somebody else ends the connection.

use std::{
    ffi::CString,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::mpsc::{self, Receiver, Sender},
    thread,
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

use crate::{
    apart::leave_files,
    keeper::{Keeper, Step},
    mounting::device_at,
};

/// Where connections are told, if somebody has mounted that.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Ends a connection when the process ends, in a child process that nothing but SIGKILL reaches.
#[derive(Debug)]
pub struct FuseGuard(Sender<()>);

impl FuseGuard {
    /// Guards the file system that is mounted at `root`. Costs a thread and a process.
    ///
    /// Needs `CAP_SYS_ADMIN`; without it, that the kernel's file system `fusectl` is mounted, as systemd does.
    pub fn start(name: &str, root: &Path) -> io::Result<Self> {
        let device = device_at(root)?;
        let (release, released) = mpsc::channel();
        let (is_ready, ready) = mpsc::channel();
        let work = move || match keep(device) {
            Ok(keeper) => {
                if is_ready.send(Ok(())).is_ok() {
                    wait(&released);
                }
                drop(keeper);
            }
            Err(error) => drop(is_ready.send(Err(error))),
        };
        thread::Builder::new().name(name.into()).spawn(work)?;
        ready.recv().map_err(|_| io::Error::other("the thread that was to guard it has ended"))??;
        Ok(Self(release))
    }

    /// Ends the connection now. Dropped, it is guarded until the process ends.
    pub fn release(self) {
        let _ = self.0.send(());
    }
}

/// Until it is released; else as long as the process is there.
fn wait(released: &Receiver<()>) {
    if released.recv().is_err() {
        loop {
            thread::park();
        }
    }
}

/// In a thread whose files end with it, since nothing that can't be killed has them: the child waits for that.
fn keep(device: u64) -> io::Result<Keeper> {
    leave_files()?;
    let abort = open_abort(device)?;
    Keeper::start(abort, Step::Nothing, Step::Tell(b"1"[..].into()), None)
}

/// The file that ends a connection.
fn open_abort(device: u64) -> io::Result<OwnedFd> {
    let connection = (u64::from(rustix::fs::major(device)) << 20) | u64::from(rustix::fs::minor(device));
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let own = || -> io::Result<OwnedFd> {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(rustix::fs::openat(&mounted, CString::new(format!("{connection}/abort"))?, flags, Mode::empty())?)
    };
    let shared = || rustix::fs::openat(CWD, format!("{CONNECTIONS}/{connection}/abort"), flags, Mode::empty());
    own().or_else(|error| shared().map_err(|_| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_fuse_has_nothing_to_guard() {
        assert!(FuseGuard::start("guard", Path::new("/proc")).is_err());
    }
}
