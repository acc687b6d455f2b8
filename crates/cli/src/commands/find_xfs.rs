//! `onesweep find` in a directory of a mounted XFS: what the kernel tells of all its inodes, without a walk.

use std::{
    ffi::OsStr,
    ops::ControlFlow,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use onesweep_deliver::find::{Condition, Row};
use onesweep_layout::{
    Sources,
    mounts::MountTable,
    tables::{Inode, Tree, Wanted, xfs::MountedXfs},
};
use onesweep_sys::files;

use super::find::{Found, Rows, tell};
use crate::message;

/// Writes what is found below a directory; gives how much of it could not be read, `None` where it is no directory of an XFS.
pub(super) fn find(named: &Path, conditions: &[Condition], rows: &mut Rows<'_>) -> Result<Option<u64>, Found> {
    if !named.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Ok(None);
    }
    let nothing = |error: &std::io::Error| Found::Nothing(cannot_read(named, error));
    let Some(mut xfs) = MountedXfs::open(named).map_err(|error| nothing(&error))? else { return Ok(None) };
    let place = Place::of(named).map_err(|error| nothing(&error))?;
    let name = message::path_text(named);
    let tree = Tree::read(&mut xfs, Wanted::default(), |inode| Row::of(&inode));
    let tree = tree.map_err(|error| Found::Nothing(format!("{name}: {}", message::of_error(&error))))?;
    for problem in tree.problems() {
        tell(&format!("{name}: {}", message::of_error(problem)));
    }
    for mount in &place.mounts {
        let mount = message::path_text(&named.join(mount));
        tell(&format!("{mount}: another file system is mounted there, which is not read; name it"));
    }
    let moved = |_| Found::Nothing(format!("{name}: it is not where it was; run again"));
    let from = tree.resolve(&place.inside).map_err(moved)?;
    let (mut written, mut sources) = (Ok(()), Sources::new());
    let _ = tree.walk(from, &mut |entry| {
        let below = Path::new(OsStr::from_bytes(entry.path));
        if place.mounts.iter().any(|mount| below.starts_with(mount)) {
            return ControlFlow::Continue(());
        }
        // A name that is joined to nothing gets a slash.
        let path = if entry.path.is_empty() { named.to_owned() } else { named.join(below) };
        let shown = path.as_os_str().as_bytes();
        if conditions.iter().all(|condition| condition.holds(shown, entry.value)) {
            let mut row = entry.value.clone();
            if rows.tells_places() {
                map(&mut sources, &path, &mut row);
            }
            written = rows.write(shown, &row);
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written.map_err(Found::Output)?;
    Ok(Some(tree.problems_met()))
}

fn cannot_read(named: &Path, error: &std::io::Error) -> String {
    let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
    let advice = if is_refused { "; run as root, or use find(1)" } else { "" };
    format!("{}: cannot read its file system: {}{advice}", message::path_text(named), message::why(error))
}

/// Where a directory lies in its file system.
struct Place {
    /// The way from the root of the file system.
    inside: Vec<u8>,
    /// What is mounted below, by the way from the directory.
    mounts: Vec<PathBuf>,
}

impl Place {
    fn of(named: &Path) -> std::io::Result<Self> {
        let directory = std::fs::canonicalize(named)?;
        let stat = files::statx_at(files::CURRENT_DIR, directory.as_path(), true)?;
        let mounts = MountTable::read()?;
        let mount = stat.mnt_id.and_then(|id| mounts.by_id(id)).or_else(|| mounts.of_path(&directory));
        let mount = mount.ok_or_else(|| std::io::Error::other("its mount is not in the list of mounts"))?;
        let below = directory.strip_prefix(&mount.mount_point).map_err(std::io::Error::other)?;
        let inside = mount.root.join(below).as_os_str().as_bytes().to_vec();
        let way = |path: &Path| path.strip_prefix(&directory).ok().map(Path::to_owned);
        let mounts = mounts.below(&directory).filter_map(|mount| way(&mount.mount_point)).collect();
        Ok(Self { inside, mounts })
    }
}

/// Where the content of a regular file lies, as far as the kernel tells it.
fn map(sources: &mut Sources, path: &Path, row: &mut Row) {
    if row.mode & 0o170_000 != 0o100_000 || row.size == 0 {
        return;
    }
    let Ok(fd) = files::open_file_at(files::CURRENT_DIR, path) else { return };
    let Ok(stat) = files::statx_fd(fd.as_fd()) else { return };
    let mut inode = Inode { size: stat.size, ..Inode::default() };
    if stat.ino == row.inode && sources.map(fd.as_fd(), &stat, &mut |extent| inode.extents.push(extent)).is_ok() {
        let mapped = Row::of(&inode);
        (row.fragments, row.address) = (mapped.fragments, mapped.address);
    }
}
