//! Entries without content: directories, links, special files, further names.

use std::path::Path;

use onesweep::{Kind, Metadata};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags},
    io::Errno,
};

use super::{CopyError, draft::Drafts};

/// How a directory is opened: never through a symbolic link.
pub(super) fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Makes a directory that its owner alone can enter, or takes the one that is there.
pub(super) fn make_directory(to: &Path) -> Result<(), CopyError> {
    match rustix::fs::mkdirat(CWD, to, Mode::RWXU) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match to.symlink_metadata() {
            Ok(there) if there.is_dir() => Ok(()),
            Ok(_) => Err(CopyError::io(to, "make the directory", Errno::NOTDIR.into())),
            Err(error) => Err(CopyError::io(to, "make the directory", error)),
        },
        Err(error) => Err(CopyError::io(to, "make the directory", error.into())),
    }
}

/// Gives the file at `first` the further name `name`.
pub(super) fn link(drafts: &mut Drafts, first: &Path, name: &Path) -> Result<(), CopyError> {
    let linked = drafts.replace(name, |name| rustix::fs::linkat(CWD, first, CWD, name, AtFlags::empty()));
    linked.map_err(|error| CopyError::io(name, &format!("link to {}", first.display()), error))
}

/// Makes a symbolic link.
pub(super) fn symlink(drafts: &mut Drafts, target: &Path, to: &Path) -> Result<(), CopyError> {
    let made = drafts.replace(to, |name| rustix::fs::symlinkat(target, CWD, name));
    made.map_err(|error| CopyError::io(to, "make the symbolic link", error))
}

/// Makes a pipe, socket or device node. Devices need root.
pub(super) fn special(drafts: &mut Drafts, metadata: &Metadata, to: &Path) -> Result<(), CopyError> {
    let kind = match metadata.kind {
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
        _ => FileType::BlockDevice,
    };
    let made = drafts.replace(to, |name| rustix::fs::mknodat(CWD, name, kind, Mode::RUSR | Mode::WUSR, metadata.rdev));
    made.map_err(|error| CopyError::io(to, "make the special file", error))
}
