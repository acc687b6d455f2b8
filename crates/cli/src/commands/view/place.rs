//! The directory where a tree is shown: outside of the tree, empty, and free of what a view that was killed has left.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use onesweep_layout::mounts::MountTable;
use onesweep_sys::mounting;
use onesweep_view::record::{self, Former};

use crate::report::Failure;

const STEP: &str = "show the tree there";
const ANOTHER: &str = "another view is shown there";

/// The absolute path of a place that is ready. `shown_as` tells what a tree would be called among the mounts.
pub(in crate::commands) fn prepared(source: &Path, dir: &Path, shown_as: &str) -> Result<PathBuf, Failure> {
    let place = absolute(dir).map_err(|error| Failure::io(dir, STEP, &error))?;
    let former = record::former(&place);
    if former == Former::Served {
        return Err(Failure::could_not_run(dir, STEP, ANOTHER));
    }
    if former == Former::LeftBehind || is_dead(&place, shown_as) {
        detach(&place).map_err(|error| Failure::io(dir, "unmount what a killed view has left there", &error))?;
    }
    let tree = source.canonicalize().and_then(|tree| fs::read_dir(&tree).map(|_| tree));
    let tree = tree.map_err(|error| Failure::io(source, "show it", &error))?;
    let place = place.canonicalize().map_err(|error| Failure::io(dir, STEP, &error))?;
    if lies_in(&place, &tree).map_err(|error| Failure::io(dir, STEP, &error))? {
        return Err(Failure::could_not_run(dir, STEP, "it lies in the tree; choose a directory outside of it"));
    }
    if lies_in(&tree, &place).map_err(|error| Failure::io(dir, STEP, &error))? {
        return Err(Failure::could_not_run(dir, STEP, "the tree lies in it; choose a directory beside the tree"));
    }
    if is_shown(&place, shown_as) {
        return Err(Failure::could_not_run(dir, STEP, ANOTHER));
    }
    let mut entries = fs::read_dir(&place).map_err(|error| Failure::io(dir, STEP, &error))?;
    if entries.next().is_some() {
        return Err(Failure::could_not_run(dir, STEP, "it is not empty; choose an empty directory"));
    }
    Ok(place)
}

/// The absolute path, without a look at its last part: that may be a mount that nobody serves any more.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(whole),
    }
}

/// Whether a view was shown there whose process was killed.
fn is_dead(place: &Path, shown_as: &str) -> bool {
    // Its attributes may still be in the kernel's memory.
    is_shown(place, shown_as) && fs::read_dir(place).is_err_and(|error| error.raw_os_error() == Some(NOT_CONNECTED))
}

/// `ENOTCONN`.
const NOT_CONNECTED: i32 = 107;

fn is_shown(place: &Path, shown_as: &str) -> bool {
    let Ok(mounts) = MountTable::read() else { return false };
    let top = mounts.iter().rfind(|mount| mount.mount_point == place);
    top.is_some_and(|mount| mount.fs_type.starts_with("fuse") && mount.source == shown_as)
}

/// Whether a directory is another one, or lies in it, under whatever name.
fn lies_in(inner: &Path, outer: &Path) -> io::Result<bool> {
    let outer = fs::metadata(outer)?;
    for above in inner.ancestors() {
        let facts = fs::metadata(above)?;
        if (facts.dev(), facts.ino()) == (outer.dev(), outer.ino()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether there is the helper of FUSE that mounts for others than root, by one of its names.
pub(super) fn can_mount_for_users() -> bool {
    let places = ["", "/sbin/", "/bin/"]
        .into_iter()
        .flat_map(|place| ["fusermount3", "fusermount"].map(|name| format!("{place}{name}")));
    places.into_iter().any(|helper| Command::new(helper).arg("-h").stdin(Stdio::null()).output().is_ok())
}

/// Takes a view away, whether somebody uses it or nobody serves it.
pub(super) fn detach(place: &Path) -> io::Result<()> {
    let done = mounting::detach(place);
    if !done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return done;
    }
    // For others than root a helper of FUSE does it.
    let mut helper = Command::new("fusermount3");
    let status = helper.args(["-u", "-z", "--"]).arg(place).stdin(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { done }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_that_hold_each_other_are_found_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("tree/below")).unwrap();
        fs::create_dir(folder.path().join("tree-beside")).unwrap();
        std::os::unix::fs::symlink("tree", folder.path().join("link")).unwrap();
        let prepared = |source: &str, dir: &str| {
            let told = prepared(&folder.path().join(source), &folder.path().join(dir), "none");
            told.map(drop).map_err(|failure| failure.messages().concat())
        };
        prepared("tree", "tree-beside").unwrap();
        for (source, dir, why) in [
            ("tree", "tree/below", "it lies in the tree"),
            ("link", "tree/below", "it lies in the tree"),
            ("tree", "tree", "it lies in the tree"),
            ("tree/below", "link", "the tree lies in it"),
            ("tree-beside", "tree", "it is not empty"),
            ("none", "tree-beside", "none: cannot show it"),
            ("tree", "none", "none: cannot show the tree there"),
        ] {
            let told = prepared(source, dir).unwrap_err();
            assert!(told.contains(why), "{source} {dir}: {told}");
        }
    }
}
