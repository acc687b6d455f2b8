//! Whether a directory and what is in it are in memory.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use onesweep_sys::{
    cache,
    files::{DirReader, EntryType, open_dir_handle_beneath, open_file_at, reopen, statx_at},
    usage::waits,
};

use super::routes::Route;

/// Entries of a directory that are looked at, at most.
const ENTRIES: usize = 64;
/// Files of them.
const FILES: usize = 2;

/// What isn't in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// The directory, or attributes of what is in it.
    Entries,
    /// Bytes of a file in it.
    Content,
}

/// Looks at a directory below `tree`, of which nobody is told. What isn't in memory of it is by then, but for the content of files.
///
/// Who reads the same directory at the same time may have asked the disk for it: then it isn't read here, but waited for.
pub(super) fn missing(tree: BorrowedFd<'_>, route: &Route) -> io::Result<Option<Missing>> {
    let before = waits();
    let path = if route.path().as_os_str().is_empty() { ".".as_ref() } else { route.path() };
    let directory = reopen(open_dir_handle_beneath(tree, path)?.as_fd())?;
    let mut names = Vec::new();
    let mut all = DirReader::default();
    all.read_while(directory.as_fd(), |entry| {
        names.push(entry.name.to_owned());
        names.len() < ENTRIES
    })?;
    let mut files = Vec::new();
    for name in names {
        // What has gone meanwhile is missed by nobody.
        let Ok(stat) = statx_at(directory.as_fd(), name.as_c_str(), true) else { continue };
        if stat.file_type() == EntryType::File && stat.size > 0 {
            files.push((name, stat.size));
        }
    }
    if waits() != before {
        return Ok(Some(Missing::Entries));
    }
    let apart = (files.len() / FILES).max(1);
    for (name, bytes) in files.iter().step_by(apart).take(FILES) {
        let Ok(file) = open_file_at(directory.as_fd(), name.as_c_str()) else { continue };
        if !is_cached(file.as_fd(), *bytes) {
            return Ok(Some(Missing::Content));
        }
    }
    Ok(None)
}

/// Whether all of a file is in memory. Where that can't be asked, nothing is known to be missing.
pub(super) fn is_cached(file: BorrowedFd<'_>, bytes: u64) -> bool {
    cache::residency(file, 0, bytes).map_or(true, |found| found.has_all_of(bytes))
}
