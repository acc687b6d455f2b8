//! What stands at a path that somebody named, however long the path is.

use std::{io, path::Path};

use onesweep_sys::files::{self, EntryType, Stat};

/// What is there; where `follow`, what a symbolic link leads to.
pub(crate) fn look(path: &Path, follow: bool) -> io::Result<Stat> {
    files::statx_at(files::CURRENT_DIR, path, !follow)
}

/// Whether a regular file is there, or a link leads to one.
pub(crate) fn leads_to_file(path: &Path) -> bool {
    look(path, true).is_ok_and(|found| found.file_type() == EntryType::File)
}

/// What is neither file nor directory nor link.
pub(crate) fn special(kind: EntryType) -> Option<&'static str> {
    match kind {
        EntryType::Fifo => Some("a pipe"),
        EntryType::Socket => Some("a socket"),
        EntryType::CharDevice | EntryType::BlockDevice => Some("a device"),
        EntryType::File | EntryType::Dir | EntryType::Symlink | EntryType::Unknown => None,
    }
}
