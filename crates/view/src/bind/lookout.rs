//! Which mounts show the tree: the shown one, and those that are made of it, as for containers.

use std::{
    collections::HashSet,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use onesweep_layout::mounts::MountTable;
use onesweep_sys::{
    files::{open_handle, open_handle_at, path_of, statx_fd},
    mounting,
};

use crate::record;

/// Directories above one another, at most.
const DEPTH_MAX: usize = 4096;

/// What is known of the mounts of a file system.
#[derive(Debug)]
pub(super) struct Lookout {
    /// The top of the tree.
    top: (u64, u64),
    /// The number of the mount by which it is shown. Where numbers are given once, those of mounts that were there before are lower.
    first: u64,
    /// Mounts that were there before, where the kernel gives numbers again (before Linux 6.8).
    former: Option<HashSet<u64>>,
    /// Those that show the tree.
    showing: HashSet<u64>,
    source: Source,
}

/// The source as others see it. A new namespace has a copy of each mount, also of the source's own one: who uses that has nothing to do with the view.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    /// Its mount could be taken for one of the view by what it forbids.
    is_as_shown: bool,
}

impl Source {
    /// Whether a mount of the tree whose top lies at `place` is a copy of the source's own one. One of the view may have been bound there, too.
    fn is_copied_at(&self, place: &Path, is_as_shown: bool) -> bool {
        place == self.path && (self.is_as_shown || !is_as_shown)
    }
}

/// What a mount is, by something that was opened through it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mount {
    /// It shows the tree, as is known.
    Showing,
    /// It shows the tree, and its top is that for the kernel.
    New(PathBuf),
    /// It is none of ours.
    Other,
    /// A file tells nothing of it, which has no way up to its top; a directory will.
    Unknown,
}

impl Lookout {
    /// `tree` is the top of the tree at `source`, and `shown` that of the mount by which it is to be shown.
    pub(super) fn new(source: &Path, tree: BorrowedFd<'_>, shown: BorrowedFd<'_>) -> io::Result<Self> {
        let former = match mounting::unique_mount_id(shown)? {
            Some(_) => None,
            None => Some(MountTable::read()?.iter().map(|mount| mount.id).collect()),
        };
        let first = number(shown)?;
        let is_as_shown = mounting::is_as_shown(open_handle(source)?.as_fd())?;
        let source = Source { path: source.to_owned(), is_as_shown };
        Ok(Self { top: identity(tree)?, first, former, showing: HashSet::from([first]), source })
    }

    /// Looks at each mount once, by the first directory that is opened through it.
    pub(super) fn sees(&mut self, opened: &File) -> io::Result<Mount> {
        let mount = number(opened.as_fd())?;
        if self.showing.contains(&mount) {
            return Ok(Mount::Showing);
        }
        if self.former.as_ref().map_or(mount < self.first, |former| former.contains(&mount)) {
            return Ok(Mount::Other);
        }
        if !opened.metadata()?.is_dir() {
            return Ok(Mount::Unknown);
        }
        Ok(match self.top_of(mount, opened)? {
            // That one helps who comes by its mounts, and none of its own looks may wait for this one.
            Some(_) if record::is_served(opened.as_fd()) => Mount::Other,
            Some(place) if self.source.is_copied_at(&place, mounting::is_as_shown(opened.as_fd())?) => Mount::Other,
            Some(place) => {
                self.showing.insert(mount);
                Mount::New(place)
            }
            None => Mount::Other,
        })
    }

    /// The name of a mount's top, as the kernel names what is below it, if that is the top of the tree.
    fn top_of(&self, mount: u64, opened: &File) -> io::Result<Option<PathBuf>> {
        let mut place = path_of(opened.as_fd())?;
        let mut at: OwnedFd = opened.as_fd().try_clone_to_owned()?;
        for _ in 0..DEPTH_MAX {
            let above = open_handle_at(at.as_fd(), Path::new(".."))?;
            let here = identity(at.as_fd())?;
            if number(above.as_fd())? != mount || identity(above.as_fd())? == here {
                return Ok((here == self.top).then_some(place));
            }
            at = above;
            if !place.pop() {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

/// The number of the mount through which something was opened, such that it is given once where the kernel has such numbers.
fn number(open: BorrowedFd<'_>) -> io::Result<u64> {
    mounting::unique_mount_id(open)?.map_or_else(|| mounting::mount_id(open), Ok)
}

/// What a directory is, whatever it is called: its device and number.
fn identity(directory: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = statx_fd(directory)?;
    Ok((stat.dev, stat.ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_the_sources_own_mount_are_told_from_binds_of_the_view() {
        let copied = |source: bool, place: &str, mount: bool| {
            Source { path: "/srv".into(), is_as_shown: source }.is_copied_at(Path::new(place), mount)
        };
        assert!(copied(false, "/srv", false));
        assert!(!copied(false, "/srv", true), "a container has the view there");
        assert!(!copied(false, "/data", false) && !copied(true, "/data", true), "elsewhere");
        assert!(copied(true, "/srv", true), "they can't be told apart");
    }
}
