//! Making files as somebody else, in one thread, for the time of one call.
#![allow(unsafe_code)]

use std::{cell::Cell, io};

use rustix::thread::CapabilitySet;

thread_local! {
    /// Whether this thread has a umask and a working directory of its own.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// What is kept of root's rights: whether somebody may do it was judged before, with all of his groups, which aren't known here.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD);

/// Does something with a umask, and as root with a user and a group, so that what is made belongs to them. Other threads aren't
/// touched.
#[doc(alias = "setfsuid")]
#[doc(alias = "umask")]
pub fn on_behalf_of<T>(uid: u32, gid: u32, umask: u32, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if !IS_APART.get() {
        // SAFETY: a number. The working directory of the thread stays what it is.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        IS_APART.set(true);
    }
    // SAFETY: a number, of this thread alone.
    unsafe { libc::umask(umask & 0o777) };
    if crate::user::effective_uid() != 0 || (uid, gid) == (0, 0) {
        return act();
    }
    // Whatever becomes of `act`, the thread is root's again.
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            // SAFETY: two numbers, of this thread alone.
            unsafe {
                libc::setfsuid(0);
                libc::setfsgid(0);
            }
        }
    }
    let _back = Back;
    // SAFETY: two numbers, of this thread alone.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
    let mut rights = rustix::thread::capabilities(None)?;
    rights.effective |= KEPT & rights.permitted;
    rustix::thread::set_capabilities(None, rights)?;
    act()
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{fd::AsFd, unix::fs::MetadataExt},
    };

    use super::*;
    use crate::files::{create_with, make_directory_with, open_dir};

    #[test]
    fn what_is_made_belongs_to_who_asked() {
        let folder = tempfile::tempdir().unwrap();
        let dir = open_dir(folder.path()).unwrap();
        let (own, group) = (crate::user::effective_uid(), rustix::process::getegid().as_raw());
        let (uid, gid) = if own == 0 { (4321, 1234) } else { (own, group) };
        on_behalf_of(uid, gid, 0o027, || create_with(dir.as_fd(), "theirs", libc::O_RDWR, 0o666)).unwrap();
        on_behalf_of(own, group, 0, || make_directory_with(dir.as_fd(), "ours", 0o777)).unwrap();
        let facts = |name: &str| {
            let facts = fs::metadata(folder.path().join(name)).unwrap();
            (facts.uid(), facts.gid(), facts.mode() & 0o777)
        };
        assert_eq!(facts("theirs"), (uid, gid, 0o640));
        assert_eq!(facts("ours"), (own, group, 0o777));
    }
}
