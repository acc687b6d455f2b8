//! Entries without content: directories, links, special files, further names.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use onesweep::Metadata;
use onesweep_sys::files::{self, EntryType, Stat};

use super::{CopyError, draft::Drafts, place::Place};

/// Makes a directory that its owner alone can enter, or takes the one that is there.
pub(super) fn make_directory(to: &Place) -> io::Result<()> {
    match files::make_directory_at(to.directory(), to.name()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match to.stat()?.file_type() {
            EntryType::Dir => Ok(()),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        },
        made => made,
    }
}

/// Gives the file at `first` the further name `name`.
pub(super) fn link(drafts: &mut Drafts, first: &Place, name: &Place) -> Result<(), CopyError> {
    let make = |new: &std::ffi::OsStr| files::link_at(first.directory(), first.name(), name.directory(), new);
    let linked = drafts.replace(name, make);
    linked.map_err(|error| CopyError::io(name.path(), &format!("link to {}", first.path().display()), error))
}

/// Fails where the symbolic link at `link` leads to what is there at `to`: in its place, it would lead to itself, and the
/// only content would be gone.
pub(super) fn spare_target(link: &Path, to: &Place) -> Result<(), CopyError> {
    let led_to = |there: Stat| {
        let target = files::statx_at(files::CURRENT_DIR, link, false);
        target.is_ok_and(|target| (target.dev, target.ino) == (there.dev, there.ino))
    };
    match to.stat().is_ok_and(led_to) {
        true => Err(CopyError::SameFile { path: link.to_owned(), destination: to.path().to_owned() }),
        false => Ok(()),
    }
}

/// Makes a symbolic link, and gives a handle of it.
pub(super) fn symlink(drafts: &mut Drafts, target: &Path, to: &Place) -> Result<OwnedFd, CopyError> {
    let made = drafts.replace(to, |name| files::make_symlink_at(target, to.directory(), name));
    let made = made.and_then(|()| handle(to, EntryType::Symlink, 0));
    made.map_err(|error| CopyError::io(to.path(), "make the symbolic link", error))
}

/// Makes a pipe, socket or device node, and gives a handle of it. Devices need root.
pub(super) fn special(drafts: &mut Drafts, metadata: &Metadata, to: &Place) -> Result<OwnedFd, CopyError> {
    let (kind, rdev) = (EntryType::of_mode(metadata.mode), metadata.rdev);
    let made = drafts.replace(to, |name| files::make_node_at(to.directory(), name, kind, rdev));
    let made = made.and_then(|()| handle(to, kind, rdev));
    made.map_err(|error| CopyError::io(to.path(), "make the special file", error))
}

/// A handle of what was just made. Whoever owns the directory may have put something else in its place, even a further
/// name of a file of somebody else, which must not get the attributes.
fn handle(to: &Place, kind: EntryType, rdev: u64) -> io::Result<OwnedFd> {
    let handle = files::open_handle_at(to.directory(), to.name())?;
    let found = files::statx_fd(handle.as_fd())?;
    if (found.file_type(), found.rdev) != (kind, rdev) || found.nlink > 1 {
        return Err(io::Error::other("something else took its place"));
    }
    Ok(handle)
}
