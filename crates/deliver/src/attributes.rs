//! Owner, mode, times and extended attributes, set on a copy.
//!
//! An attribute that the destination can't hold is not silently dropped and does not spoil the copy: it comes back as
//! [`Lost`].

use std::{io, os::fd::BorrowedFd};

use onesweep::{Metadata, Xattr};
use onesweep_sys::{
    files::{self, Time},
    user::effective_uid,
};

/// Who may do what with an entry.
pub(crate) const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// What a directory hands down to what is made in it.
pub(crate) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Bits of a mode that `chmod` sets.
const PERMISSION_BITS: u32 = 0o7777;
/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// What gets attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A handle of a special file. No path: whoever owns the directory could put a link in its place.
    Special(BorrowedFd<'a>),
    /// A handle of a symbolic link itself.
    Link(BorrowedFd<'a>),
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
/// the mode, the times.
pub(crate) fn apply(target: Target<'_>, metadata: &Metadata, xattrs: &[Xattr]) -> io::Result<Vec<Lost>> {
    let mut lost = Vec::new();
    let owned = give(target, metadata, &mut lost);
    set_xattrs(target, xattrs, &mut lost);
    let kept = if owned { PERMISSION_BITS } else { PERMISSION_BITS & !SET_ID_BITS };
    set_mode(target, metadata.mode & kept)?;
    set_times(target, metadata)?;
    Ok(lost)
}

/// True when the owner is the wanted one. Without the right to give files away, the group alone is tried.
fn give(target: Target<'_>, metadata: &Metadata, lost: &mut Vec<Lost>) -> bool {
    let Err(source) = set_owner(target, Some(metadata.uid), metadata.gid) else { return true };
    let group_set = set_owner(target, None, metadata.gid).is_ok();
    if group_set && effective_uid() == metadata.uid {
        return true;
    }
    lost.push(Lost { name: "owner".into(), source });
    false
}

fn set_owner(target: Target<'_>, uid: Option<u32>, gid: u32) -> io::Result<()> {
    match target {
        Target::Open(fd) => files::set_owner_fd(fd, uid, Some(gid)),
        Target::Special(handle) | Target::Link(handle) => files::set_owner_handle(handle, uid, Some(gid)),
    }
}

fn set_mode(target: Target<'_>, mode: u32) -> io::Result<()> {
    match target {
        Target::Open(fd) => files::set_mode_fd(fd, mode),
        Target::Special(handle) => files::set_mode_handle(handle, mode),
        // It has none.
        Target::Link(_) => Ok(()),
    }
}

fn set_times(target: Target<'_>, metadata: &Metadata) -> io::Result<()> {
    let [atime, mtime] =
        [metadata.atime, metadata.mtime].map(|time| Time { secs: time.seconds, nanos: time.nanoseconds });
    match target {
        Target::Open(fd) => files::set_times_fd(fd, Some(atime), mtime),
        Target::Special(handle) | Target::Link(handle) => files::set_times_handle(handle, Some(atime), mtime),
    }
}

fn set_xattrs(target: Target<'_>, xattrs: &[Xattr], lost: &mut Vec<Lost>) {
    for (name, value) in xattrs {
        if let Err(source) = set_xattr(target, name, value) {
            lost.push(Lost { name: String::from_utf8_lossy(name).into_owned(), source });
        }
    }
    remove_inherited_acls(target, xattrs);
}

fn set_xattr(target: Target<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    match target {
        Target::Open(fd) => files::set_xattr_fd(fd, name, value),
        Target::Special(handle) | Target::Link(handle) => files::set_xattr_handle(handle, name, value),
    }
}

/// What is new takes ACLs over from the default ACL of its directory, pipes and devices too; the original may have
/// none. That this fails is no loss: a file system without ACLs has none to remove.
fn remove_inherited_acls(target: Target<'_>, wanted: &[Xattr]) {
    let names = match target {
        Target::Open(fd) => files::list_xattrs_fd(fd),
        Target::Special(handle) => files::list_xattrs_handle(handle),
        // It has none.
        Target::Link(_) => return,
    };
    for name in names.unwrap_or_default() {
        let name = name.to_bytes();
        if [ACCESS_ACL, DEFAULT_ACL].contains(&name) && !wanted.iter().any(|(kept, _)| kept == name) {
            let _ = remove_xattr(target, name);
        }
    }
}

fn remove_xattr(target: Target<'_>, name: &[u8]) -> io::Result<()> {
    match target {
        Target::Open(fd) => files::remove_xattr_fd(fd, name),
        Target::Special(handle) | Target::Link(handle) => files::remove_xattr_handle(handle, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{metadata, xattrs_of};
    use onesweep::{Kind, Timestamp};
    use onesweep_sys::files::EntryType;
    use std::io::Write;
    use std::os::{fd::AsFd, unix::fs::MetadataExt};
    use std::process::Command;

    const ACCESSED: Timestamp = Timestamp { seconds: 1_600_000_000, nanoseconds: 5 };

    #[test]
    fn attributes_arrive_to_the_nanosecond() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mine = file.as_file().metadata().unwrap();
        let wanted =
            Metadata { uid: mine.uid(), gid: mine.gid(), mode: 0o100_440, atime: ACCESSED, ..metadata(Kind::File, 0) };
        let xattr = (b"user.colour".to_vec(), vec![7; 2000]);
        let lost = apply(Target::Open(file.as_file().as_fd()), &wanted, std::slice::from_ref(&xattr)).unwrap();
        let now = file.as_file().metadata().unwrap();
        assert_eq!((now.mode(), now.mtime(), now.mtime_nsec()), (0o100_440, 1_700_000_000, 123_456_789));
        assert_eq!((now.atime(), now.atime_nsec()), (wanted.atime.seconds, i64::from(wanted.atime.nanoseconds)));
        let kept = xattrs_of(file.path()).contains(&xattr);
        assert!(kept || lost.iter().any(|lost| lost.name == "user.colour"), "kept or reported, never neither");
    }

    #[test]
    fn inherited_acls_do_not_stay_on_what_had_none() {
        let dir = tempfile::tempdir().unwrap();
        let given = Command::new("setfacl").args(["-d", "-m", "u:12345:rwx,m::rwx"]).arg(dir.path()).status();
        if !given.is_ok_and(|status| status.success()) {
            let _ = writeln!(io::stderr(), "skipped: no ACLs here");
            return;
        }
        let directory = files::open_dir_handle(dir.path()).unwrap();
        for (name, kind, entry_type) in [("pipe", Kind::Fifo, EntryType::Fifo), ("s", Kind::Socket, EntryType::Socket)]
        {
            files::make_node_at(directory.as_fd(), name, entry_type, 0).unwrap();
            let path = dir.path().join(name);
            let inherited = |(name, _): &Xattr| name == ACCESS_ACL;
            assert!(xattrs_of(&path).iter().any(inherited), "the test has nothing to show");
            let handle = files::open_handle_at(directory.as_fd(), name).unwrap();
            let mine = path.metadata().unwrap();
            let wanted = Metadata { uid: mine.uid(), gid: mine.gid(), ..metadata(kind, 0) };
            apply(Target::Special(handle.as_fd()), &wanted, &[]).unwrap();
            assert!(!xattrs_of(&path).iter().any(inherited), "{name}");
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, wanted.mode & 0o7777);
        }
    }
}
