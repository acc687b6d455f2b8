//! Entries without content: directories, links, special files, further names.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, symlink as make_symlink},
    path::Path,
};

use onesweep::Metadata;
use onesweep_sys::files::{EntryType, make_node};

use super::{CopyError, draft::Drafts};

/// Makes a directory that its owner alone can enter, or takes the one that is there.
pub(super) fn make_directory(to: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match to.symlink_metadata() {
            Ok(there) if there.is_dir() => Ok(()),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) => Err(error),
        },
        made => made,
    }
}

/// Gives the file at `first` the further name `name`.
pub(super) fn link(drafts: &mut Drafts, first: &Path, name: &Path) -> Result<(), CopyError> {
    let linked = drafts.replace(name, |name| fs::hard_link(first, name));
    linked.map_err(|error| CopyError::io(name, &format!("link to {}", first.display()), error))
}

/// Makes a symbolic link.
pub(super) fn symlink(drafts: &mut Drafts, target: &Path, to: &Path) -> Result<(), CopyError> {
    let made = drafts.replace(to, |name| make_symlink(target, name));
    made.map_err(|error| CopyError::io(to, "make the symbolic link", error))
}

/// Makes a pipe, socket or device node. Devices need root.
pub(super) fn special(drafts: &mut Drafts, metadata: &Metadata, to: &Path) -> Result<(), CopyError> {
    let made = drafts.replace(to, |name| make_node(name, EntryType::of_mode(metadata.mode), metadata.rdev));
    made.map_err(|error| CopyError::io(to, "make the special file", error))
}
