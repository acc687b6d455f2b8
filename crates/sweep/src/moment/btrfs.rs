//! Snapshots of btrfs: in the root directory of the subvolume that they show.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use onesweep_layout::mounts::MountTable;
use onesweep_sys::{
    files::{self, DirReader},
    subvolume,
};

use super::{
    InSnapshot, Kind, Live, NOT_BELOW, Place, Voice, failed,
    left_over::{Names, is_alive},
    mounts_below, refused,
};
use crate::error::SweepError;

const NAMES: Names = Names { prefix: ".onesweep-snapshot-" };

/// A snapshot, with the mark that it is in use.
pub(super) struct BtrfsSnapshot {
    snapshot: subvolume::Snapshot,
    mark: OwnedFd,
}

impl BtrfsSnapshot {
    pub(super) fn end(self) -> io::Result<()> {
        drop(self.mark);
        self.snapshot.delete()
    }
}

/// Takes a snapshot of the subvolume of a root; none of one that nobody can write to.
pub(super) fn snapshot(
    root: &Live<'_>,
    place: &Place,
    mounts: &MountTable,
    voice: &Voice,
) -> Result<Option<InSnapshot>, SweepError> {
    let live = subvolume_of(root, place)?;
    let fail = |error: io::Error| failed(root.shown, "cannot take a snapshot of its subvolume", error);
    let directory = files::open_dir(live.as_path()).map_err(fail)?;
    if subvolume::is_read_only(directory.as_fd()).map_err(fail)? {
        return Ok(None);
    }
    remove_left_over(directory.as_fd(), &live, voice);
    let name = NAMES.next();
    let snapshot = subvolume::snapshot(directory.try_clone().map_err(fail)?, &name).map_err(fail)?;
    let at = live.join(&name);
    let mark = files::open_dir_at(directory.as_fd(), name.as_str()).map_err(fail)?;
    subvolume::mark_in_use(mark.as_fd()).map_err(fail)?;
    let dev = files::statx_fd(mark.as_fd()).map_err(fail)?.dev;
    let mounts = mounts_below(mounts, &live);
    let kind = Kind::Btrfs(BtrfsSnapshot { snapshot, mark });
    Ok(Some(InSnapshot { dev, live_dev: place.dev, at, live, mounts, kind }))
}

/// The root directory of the subvolume that a path lies in. It must be to be seen on the way up.
fn subvolume_of(root: &Live<'_>, place: &Place) -> Result<PathBuf, SweepError> {
    for path in place.path.ancestors() {
        let stat = files::statx_at(files::CURRENT_DIR, path, true);
        let stat = stat.map_err(|error| failed(root.shown, "cannot look at what it lies in", error))?;
        if stat.dev != place.dev || stat.mnt_id != place.mnt_id {
            break;
        }
        if stat.ino == subvolume::ROOT_INODE {
            return Ok(path.to_owned());
        }
    }
    Err(refused(root.shown, NOT_BELOW))
}

/// Removes snapshots whose makers are gone.
fn remove_left_over(directory: BorrowedFd<'_>, shown: &Path, voice: &Voice) {
    let mut names = Vec::new();
    let _ = DirReader::with_buffer(32 << 10).read(directory, |entry| {
        let name = entry.name.to_str().ok();
        names.extend(name.and_then(|name| NAMES.maker(name).map(|maker| (name.to_owned(), maker))));
    });
    for (name, maker) in names.into_iter().filter(|&(_, maker)| maker != std::process::id()) {
        let Ok(found) = files::open_dir_at(directory, name.as_str()) else { continue };
        let is_root = files::statx_fd(found.as_fd()).is_ok_and(|stat| stat.ino == subvolume::ROOT_INODE);
        let is_snapshot = is_root && subvolume::is_read_only(found.as_fd()).unwrap_or(false);
        // A maker in another container can't be seen, but its mark can.
        if !is_snapshot || !subvolume::mark_in_use(found.as_fd()).unwrap_or(false) {
            continue;
        }
        drop(found);
        let path = shown.join(&name);
        let path = path.display();
        if is_alive(maker) {
            let what = format!("a snapshot that seems left over, but process {maker} is there");
            voice.tell(format!("{path}: {what}; if it is another one now, remove it (btrfs subvolume delete)"));
            continue;
        }
        match subvolume::delete(directory, &name) {
            Ok(()) => voice.tell(format!("{path}: a snapshot that an earlier run left; removed")),
            Err(error) => voice.tell(format!("{path}: cannot remove a snapshot that an earlier run left: {error}")),
        }
    }
}
