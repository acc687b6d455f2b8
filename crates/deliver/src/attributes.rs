//! Owner, mode, times and extended attributes, set on a copy.
//!
//! An attribute that the destination can't hold is not silently dropped and does not spoil the copy: it comes back as
//! [`Lost`].

use std::{
    ffi::{CString, OsStr},
    io,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    path::Path,
};

use onesweep::{Metadata, Timestamp, Xattr};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Bits of a mode that `chmod` sets.
const PERMISSION_BITS: u32 = 0o7777;
/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// What attributes are set on.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A path that is no symbolic link: a special file.
    Special(&'a Path),
    /// A symbolic link itself.
    Link(&'a Path),
}

/// An attribute that could not be set.
#[derive(Debug)]
pub struct Lost {
    /// Its name; `owner` for owner and group.
    pub name: String,
    /// What the kernel said.
    pub source: io::Error,
}

/// Gives `target` the attributes of `metadata` and `xattrs`, in the order in which none undoes another: the owner
/// (which clears set-id bits and capabilities), extended attributes (which a file without write permission refuses),
/// the mode, the time of the last change.
pub fn apply(target: Target<'_>, metadata: &Metadata, xattrs: &[Xattr]) -> io::Result<Vec<Lost>> {
    let mut lost = Vec::new();
    let owned = set_owner(target, metadata, &mut lost);
    set_xattrs(target, xattrs, &mut lost);
    let kept = if owned { PERMISSION_BITS } else { PERMISSION_BITS & !SET_ID_BITS };
    set_mode(target, metadata.mode & kept)?;
    set_mtime(target, metadata.mtime)?;
    Ok(lost)
}

/// True when the owner is the wanted one. Without the right to give files away, the group alone is tried.
fn set_owner(target: Target<'_>, metadata: &Metadata, lost: &mut Vec<Lost>) -> bool {
    let group = Some(Gid::from_raw(metadata.gid));
    let set = |user| match target {
        Target::Open(fd) => rustix::fs::fchown(fd, user, group),
        Target::Special(path) | Target::Link(path) => {
            rustix::fs::chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW)
        }
    };
    let Err(error) = set(Some(Uid::from_raw(metadata.uid))) else { return true };
    if set(None).is_ok() && rustix::process::geteuid().as_raw() == metadata.uid {
        return true;
    }
    lost.push(Lost { name: "owner".into(), source: error.into() });
    false
}

fn set_xattrs(target: Target<'_>, xattrs: &[Xattr], lost: &mut Vec<Lost>) {
    for (name, value) in xattrs {
        if let Err(source) = set_xattr(target, name, value) {
            lost.push(Lost { name: String::from_utf8_lossy(name).into_owned(), source });
        }
    }
    if let Target::Open(fd) = target {
        remove_inherited_acls(fd, xattrs);
    }
}

fn set_xattr(target: Target<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    let flags = XattrFlags::empty();
    Ok(match target {
        Target::Open(fd) => rustix::fs::fsetxattr(fd, name.as_c_str(), value, flags),
        Target::Special(path) | Target::Link(path) => rustix::fs::lsetxattr(path, name.as_c_str(), value, flags),
    }?)
}

/// A new file takes ACLs over from the default ACL of its directory; the original may have none. That this fails is
/// no loss: a file system without ACLs has none to remove.
fn remove_inherited_acls(fd: BorrowedFd<'_>, wanted: &[Xattr]) {
    let mut names = [0; 1024];
    let listed = match rustix::fs::flistxattr(fd, &mut names[..]) {
        Ok(0) => return,
        Ok(len) => Some(&names[..len]),
        Err(_) => None,
    };
    for acl in [ACL_ACCESS, ACL_DEFAULT] {
        let there = listed.is_none_or(|names| names.split(|&byte| byte == 0).any(|name| name == acl));
        if there && !wanted.iter().any(|(name, _)| name == acl) {
            let _ = rustix::fs::fremovexattr(fd, OsStr::from_bytes(acl));
        }
    }
}

fn set_mode(target: Target<'_>, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    Ok(match target {
        Target::Open(fd) => rustix::fs::fchmod(fd, mode),
        Target::Special(path) => rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()),
        Target::Link(_) => Ok(()),
    }?)
}

fn set_mtime(target: Target<'_>, mtime: Timestamp) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() },
    };
    Ok(match target {
        Target::Open(fd) => rustix::fs::futimens(fd, &times),
        Target::Special(path) | Target::Link(path) => {
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        }
    }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{metadata, xattrs_of};
    use onesweep::Kind;
    use std::os::{fd::AsFd, unix::fs::MetadataExt};

    #[test]
    fn attributes_arrive_to_the_nanosecond() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mine = file.as_file().metadata().unwrap();
        let wanted = Metadata { uid: mine.uid(), gid: mine.gid(), mode: 0o100_440, ..metadata(Kind::File, 0) };
        let xattr = (b"user.colour".to_vec(), vec![7; 2000]);
        let lost = apply(Target::Open(file.as_file().as_fd()), &wanted, std::slice::from_ref(&xattr)).unwrap();
        let now = file.as_file().metadata().unwrap();
        assert_eq!((now.mode(), now.mtime(), now.mtime_nsec()), (0o100_440, 1_700_000_000, 123_456_789));
        let kept = xattrs_of(file.path()).contains(&xattr);
        assert!(kept || lost.iter().any(|lost| lost.name == "user.colour"), "kept or reported, never neither");
    }
}
