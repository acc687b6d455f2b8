//! Acting for somebody else, in one thread, for the time of one call: what is made is his, and he gets the room that he would get.
#![allow(unsafe_code)]

use std::{cell::Cell, io, os::fd::BorrowedFd};

use rustix::{
    fs::Gid,
    thread::{CapabilitySet, CapabilitySets},
};

thread_local! {
    /// Whether this thread has a umask and a working directory of its own.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
    /// The rights of this thread, where it has acted for somebody.
    static RIGHTS: Cell<Option<CapabilitySets>> = const { Cell::new(None) };
}

/// What is kept of root's rights: whether somebody may do it was judged before, with all of his groups, which aren't known here.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD);

/// What lets a process past quotas and into what is reserved. A thread that acts for others has it in its hands while it acts for root
/// alone, and when nothing else does: taking it up takes longer than a short write.
const ROOM: CapabilitySet = CapabilitySet::SYS_RESOURCE;

/// From so much room on nobody comes near what is reserved, whatever others write meanwhile.
const AMPLE_BYTES: u64 = 256 << 20;

/// The rights of this thread, without [`ROOM`].
fn rights() -> io::Result<CapabilitySets> {
    if let Some(rights) = RIGHTS.get() {
        return Ok(rights);
    }
    let mut rights = rustix::thread::capabilities(None)?;
    rights.effective -= ROOM;
    rustix::thread::set_capabilities(None, rights)?;
    RIGHTS.set(Some(rights));
    Ok(rights)
}

/// Whatever becomes of an act, the thread is root's again.
struct Back<F: Fn()>(F);

impl<F: Fn()> Drop for Back<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn set_user(uid: u32) {
    // SAFETY: a number, of this thread alone.
    unsafe { libc::setfsuid(uid) };
}

fn set_group(gid: u32) {
    // SAFETY: a number, of this thread alone.
    unsafe { libc::setfsgid(gid) };
}

/// Acts as root, with all of his room where he needs it.
fn as_root<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let rights = rights()?;
    match act() {
        Err(error) if is_short_of_room(&error) => with_all_room(rights, act),
        done => done,
    }
}

fn with_all_room<T>(rights: CapabilitySets, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _back = Back(|| {
        let _ = rustix::thread::set_capabilities(None, rights);
    });
    let effective = rights.effective | (ROOM & rights.permitted);
    rustix::thread::set_capabilities(None, CapabilitySets { effective, ..rights })?;
    act()
}

fn is_short_of_room(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Acts as a user with some of root's rights.
fn as_user<T>(uid: u32, gid: u32, kept: CapabilitySet, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut rights = rights()?;
    let _back = Back(|| {
        set_user(0);
        set_group(0);
    });
    set_group(gid);
    set_user(uid);
    // The kernel has taken the rights over files.
    rights.effective -= KEPT | CapabilitySet::LINUX_IMMUTABLE | CapabilitySet::MAC_OVERRIDE;
    rights.effective |= kept & rights.permitted;
    rustix::thread::set_capabilities(None, rights)?;
    act()
}

/// Does something with a umask, and as root with a user and a group, so that what is made belongs to them, and takes no room that they
/// wouldn't get. Other threads aren't touched. What fails for want of room is done twice for root.
#[doc(alias = "setfsuid")]
#[doc(alias = "umask")]
pub fn on_behalf_of<T>(uid: u32, gid: u32, umask: u32, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    if !IS_APART.get() {
        // SAFETY: a number. The working directory of the thread stays what it is.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        IS_APART.set(true);
    }
    // SAFETY: a number, of this thread alone.
    unsafe { libc::umask(umask & 0o777) };
    let mut act = act;
    if crate::user::effective_uid() != 0 {
        return act();
    }
    match (uid, gid) {
        (0, 0) => as_root(act),
        (0, _) => {
            let _back = Back(|| set_group(0));
            set_group(gid);
            as_root(act)
        }
        _ => as_user(uid, gid, KEPT, act),
    }
}

/// Writes up to so many bytes to an open file, or reserves room for it: as root within the room of a user. What fails for want of room
/// is done twice for root, so it goes on where it stands. For others than root the call alone is made.
///
/// To be another user for a moment takes longer than a short write. So that is done only where it matters: where something is reserved
/// and not much else is left.
#[doc(alias = "CAP_SYS_RESOURCE")]
pub fn in_room_of<T>(uid: u32, file: BorrowedFd<'_>, bytes: u64, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut act = act;
    if crate::user::effective_uid() != 0 {
        return act();
    }
    if uid == 0 {
        return as_root(act);
    }
    rights()?;
    let found = rustix::fs::fstatvfs(file)?;
    let (unit, left) = (found.f_frsize, found.f_bavail);
    if left == found.f_bfree || left.saturating_mul(unit) >= AMPLE_BYTES.saturating_add(bytes) {
        return act();
    }
    as_bare_user(uid, act)
}

/// As root: hands over something in the name of a user, without root's rights over files and his room; or in that of root, with all of
/// them.
pub fn lend_to<T>(uid: u32, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let rights = rights()?;
    match uid {
        0 => with_all_room(rights, act),
        uid => as_bare_user(uid, act),
    }
}

fn as_bare_user<T>(uid: u32, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _back = Back(|| set_user(0));
    set_user(uid);
    act()
}

/// As [`on_behalf_of`], for what depends on whether the user is in the group of a file: `groups` are all that he is in besides `gid`.
#[doc(alias = "setgroups")]
pub fn as_member<T>(uid: u32, gid: u32, groups: &[u32], act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut act = act;
    if crate::user::effective_uid() != 0 {
        return act();
    }
    if uid == 0 {
        return as_root(act);
    }
    let own = rustix::process::getgroups()?;
    let _back = Back(|| {
        let _ = rustix::thread::set_thread_groups(&own);
    });
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    as_user(uid, gid, KEPT - CapabilitySet::FSETID, act)
}

/// Removes or moves a name as a user, with root's rights but for that to the files of others: what the sticky bit of a directory protects
/// from him stays, whatever it is by now. Nobody has to know his groups for that.
#[doc(alias = "CAP_FOWNER")]
pub fn moving_names<T>(uid: u32, gid: u32, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut act = act;
    if crate::user::effective_uid() != 0 {
        return act();
    }
    match uid {
        0 => as_root(act),
        _ => as_user(uid, gid, KEPT - CapabilitySet::FOWNER, act),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{fd::AsFd, unix::fs::MetadataExt},
    };

    use super::*;
    use crate::files::{create_with, make_directory_with, open_dir, remove_at};

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

    #[test]
    fn what_a_sticky_directory_protects_stays() {
        if crate::user::effective_uid() != 0 {
            return;
        }
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1770)).unwrap();
        let dir = open_dir(folder.path()).unwrap();
        for (uid, name) in [(0, "ours"), (4321, "theirs")] {
            on_behalf_of(uid, uid, 0, || create_with(dir.as_fd(), name, libc::O_RDWR, 0o600)).unwrap();
        }
        let remove = |uid, name| moving_names(uid, uid, || remove_at(dir.as_fd(), name));
        assert_eq!(remove(4321, "ours").unwrap_err().raw_os_error(), Some(libc::EPERM));
        // His groups aren't known: whether he may write the directory was judged before.
        remove(4321, "theirs").unwrap();
        remove(0, "ours").unwrap();
    }

    #[test]
    fn a_thread_is_roots_again_and_has_no_room_of_its_own() {
        if crate::user::effective_uid() != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let dir = open_dir(folder.path()).unwrap();
        let had = rustix::thread::capabilities(None).unwrap().effective;
        let now = || Ok(rustix::thread::capabilities(None)?.effective);
        for uid in [4321, 0] {
            let ways = [
                on_behalf_of(uid, 1234, 0, now).unwrap(),
                in_room_of(uid, dir.as_fd(), 0, now).unwrap(),
                as_member(uid, 1234, &[5], now).unwrap(),
                moving_names(uid, 1234, now).unwrap(),
            ];
            assert!(ways.iter().all(|rights| !rights.contains(ROOM)), "{uid}: {ways:?}");
            assert_eq!(now().unwrap(), had - ROOM);
        }
        assert!(!as_member(4321, 1234, &[5], now).unwrap().contains(CapabilitySet::FSETID));
        // Root has all of it at the second time, where he has it at all: in containers he mostly hasn't.
        let mut rights = Vec::new();
        let mut fails = || {
            rights.push(now()?);
            Err::<(), _>(io::Error::from_raw_os_error(libc::EDQUOT))
        };
        in_room_of(0, dir.as_fd(), 0, &mut fails).unwrap_err();
        in_room_of(4321, dir.as_fd(), 0, &mut fails).unwrap_err();
        let has_room: Vec<bool> = rights.iter().map(|rights| rights.contains(ROOM)).collect();
        assert_eq!(has_room, [false, had.contains(ROOM), false]);
        assert_eq!(lend_to(0, now).unwrap(), had);
        assert!(!lend_to(4321, now).unwrap().intersects(KEPT | ROOM));
        assert_eq!(now().unwrap(), had - ROOM);
    }
}
