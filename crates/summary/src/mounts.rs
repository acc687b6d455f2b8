//! Where something is mounted in a file system. The kernel reports no event of a directory when that changes.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
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
    /// The kernel has told since the last look that something has changed, which it does once.
    is_old: bool,
    /// Directories in which something has changed, and that there were no means to open so far.
    untold: BTreeSet<PathBuf>,
}

impl Known {
    /// `has_changed`: the kernel has told since this was asked last that something has.
    fn is_true(&mut self, has_changed: bool) -> bool {
        self.is_old |= has_changed;
        self.paths.is_some() && !self.is_old && self.untold.is_empty()
    }

    /// What has changed since this was asked last, opened, and whether that may not be all: then what is missing comes with a later call.
    fn changed<T>(
        &mut self,
        look: impl FnOnce() -> io::Result<BTreeSet<PathBuf>>,
        open: impl Fn(&Path) -> io::Result<T>,
    ) -> (Vec<T>, bool) {
        let is_new = self.paths.is_none() || self.is_old;
        let looked = is_new.then(look).transpose();
        let is_unseen = looked.is_err();
        if let Ok(Some(now)) = looked {
            let before = self.paths.take().unwrap_or_default();
            let parents = before.symmetric_difference(&now).filter_map(|path| path.parent());
            self.untold.extend(parents.map(Path::to_owned));
            (self.paths, self.is_old) = (Some(now), false);
        }
        let mut opened = Vec::new();
        self.untold.retain(|parent| match open(parent) {
            Ok(one) => {
                opened.push(one);
                false
            }
            // One that is gone has changed the directory above it.
            Err(error) => lacks_means(&error),
        });
        (opened, is_unseen || !self.untold.is_empty())
    }
}

/// `EINTR`, `EAGAIN`, `ENOMEM`, `ENFILE`, `EMFILE`: it isn't for what was to be opened, and passes.
const LACKS: [i32; 5] = [4, 11, 12, 23, 24];

fn lacks_means(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| LACKS.contains(&number))
}

impl Mounts {
    /// On the mount of this number.
    pub(crate) fn on(mount: Option<u64>) -> io::Result<Mounts> {
        Ok(Mounts { mount, watch: MountWatch::new()?, known: Mutex::default() })
    }

    /// True when nothing was mounted or unmounted since the last call of [`changed_in`](Self::changed_in), and that told all.
    pub(crate) fn are_alike(&self) -> bool {
        self.known().is_true(self.watch.has_changed())
    }

    /// The directories in which something was mounted or unmounted since the last call, by what `node` makes of each that is open; `top` is
    /// that of the mount. And whether some may be missing, which a later call tells.
    pub(crate) fn changed_in<T>(
        &self,
        top: BorrowedFd<'_>,
        node: impl Fn(BorrowedFd<'_>) -> io::Result<T>,
    ) -> (Vec<T>, bool) {
        let mut known = self.known();
        if known.is_true(self.watch.has_changed()) {
            return (Vec::new(), false);
        }
        known.changed(|| self.look(), |parent| node(open_below(top, parent)?.as_fd()))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paths: &[&str]) -> io::Result<BTreeSet<PathBuf>> {
        Ok(paths.iter().map(PathBuf::from).collect())
    }

    fn too_many_files() -> io::Error {
        io::Error::from_raw_os_error(24)
    }

    fn name(parent: &Path) -> io::Result<PathBuf> {
        Ok(parent.to_owned())
    }

    fn told(parents: &[&str]) -> Vec<PathBuf> {
        parents.iter().map(PathBuf::from).collect()
    }

    /// The kernel says so once.
    #[test]
    fn a_change_that_cannot_be_looked_at_is_looked_at_later() {
        let mut known = Known::default();
        assert!(!known.is_true(false), "nobody has looked");
        assert_eq!(known.changed(|| Err(too_many_files()), name), (vec![], true));
        assert!(!known.is_true(false));
        assert_eq!(known.changed(|| table(&["a/m"]), name), (told(&["a"]), false));
        assert!(known.is_true(false));
        assert!(!known.is_true(true));
        assert_eq!(known.changed(|| Err(too_many_files()), name), (vec![], true));
        assert!(!known.is_true(false), "it isn't known what has changed");
        assert_eq!(known.changed(|| table(&["b/m"]), name), (told(&["a", "b"]), false));
        assert!(known.is_true(false));
    }

    #[test]
    fn a_directory_that_cannot_be_opened_is_told_later() {
        let mut known = Known::default();
        let but_one = |parent: &Path| if parent == Path::new("a") { Err(too_many_files()) } else { name(parent) };
        assert_eq!(known.changed(|| table(&["a/m", "b/m"]), but_one), (told(&["b"]), true));
        assert!(!known.is_true(false));
        // Nothing is new.
        assert_eq!(known.changed(|| panic!("it was looked at"), name), (told(&["a"]), false));
        assert!(known.is_true(false));
    }

    #[test]
    fn a_directory_that_is_gone_is_not_waited_for() {
        let mut known = Known::default();
        let is_gone = |_: &Path| Err::<PathBuf, io::Error>(io::ErrorKind::NotFound.into());
        assert_eq!(known.changed(|| table(&["a/m"]), is_gone), (vec![], false));
        assert!(known.is_true(false));
    }
}
