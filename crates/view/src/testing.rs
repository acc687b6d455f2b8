//! What the tests of several modules need.

use std::{
    fs::{self, Permissions},
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::Path,
};

use onesweep_sys::{acting, cache, user};
use tempfile::TempDir;

/// Whoever owns nothing.
const NOBODY: u32 = 65_534;

/// A folder that everybody may look into.
pub(crate) fn open_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    folder
}

/// Everybody may look into it, and read the files there.
pub(crate) fn open(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(0o644)).unwrap();
    }
}

/// Does something in the name of somebody to whom the files below a folder are others'. `None`, with the reason printed, where nobody can, or
/// where no read can be tried.
pub(crate) fn as_stranger<T>(folder: &Path, act: impl FnOnce() -> T) -> Option<T> {
    let has_trial = || {
        let file = tempfile::tempfile_in(folder).unwrap();
        cache::has_trial(file.as_fd())
    };
    if user::effective_uid() != 0 || !has_trial() {
        eprintln!("left out: only root can become somebody else, and not on each file system a read can be tried");
        return None;
    }
    Some(acting::lend_to(NOBODY, || Ok(act())).unwrap())
}
