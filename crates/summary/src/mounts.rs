//! Where something is mounted in a file system. The kernel reports no event of a directory when that changes.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use onesweep_layout::MountTable;
use onesweep_sys::{files, mounting::MountWatch};

/// The mounts on directories of one mount.
#[derive(Debug)]
pub(crate) struct Mounts {
    mount: Option<u64>,
    watch: MountWatch,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Paths below the mount. `None` before the first look.
    paths: Option<BTreeSet<PathBuf>>,
    /// The kernel has told since that something has changed, which it does once.
    is_old: bool,
}

impl Known {
    fn is_true(&mut self, watch: &MountWatch) -> bool {
        self.is_old |= watch.has_changed();
        self.paths.is_some() && !self.is_old
    }
}

impl Mounts {
    /// On the mount of this number.
    pub(crate) fn on(mount: Option<u64>) -> io::Result<Mounts> {
        Ok(Mounts { mount, watch: MountWatch::new()?, known: Mutex::default() })
    }

    /// True when nothing was mounted or unmounted since the last call of [`changed_in`](Self::changed_in).
    pub(crate) fn are_alike(&self) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).is_true(&self.watch)
    }

    /// The directories in which something was mounted or unmounted since the last call, open; `top` is that of the mount.
    pub(crate) fn changed_in(&self, top: BorrowedFd<'_>) -> Vec<std::os::fd::OwnedFd> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_true(&self.watch) {
            return Vec::new();
        }
        known.is_old = false;
        let Ok(now) = self.look() else { return Vec::new() };
        let before = known.paths.replace(now.clone()).unwrap_or_default();
        let parents: BTreeSet<&Path> = before.symmetric_difference(&now).filter_map(|path| path.parent()).collect();
        parents.into_iter().filter_map(|parent| open_below(top, parent).ok()).collect()
    }

    /// The directories in which something is mounted now, open.
    pub(crate) fn all_in(&self, top: BorrowedFd<'_>) -> io::Result<Vec<std::os::fd::OwnedFd>> {
        let paths = self.look()?;
        let parents: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        parents.into_iter().map(|parent| open_below(top, parent)).collect()
    }

    fn look(&self) -> io::Result<BTreeSet<PathBuf>> {
        let table = MountTable::read()?;
        let Some(ours) = self.mount.and_then(|id| table.by_id(id)) else { return Ok(BTreeSet::new()) };
        let on_ours = table.iter().filter(|mount| mount.parent == ours.id);
        Ok(on_ours
            .filter_map(|mount| mount.mount_point.strip_prefix(&ours.mount_point).ok())
            .map(Path::to_owned)
            .collect())
    }
}

fn open_below(top: BorrowedFd<'_>, path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    match path.as_os_str().is_empty() {
        true => top.try_clone_to_owned(),
        false => files::open_handle_at(top.as_fd(), path),
    }
}
