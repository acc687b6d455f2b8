//! One moment for all that is swept (DAFT II.E): snapshots, or file systems that are frozen while the plan is made.
//!
//! | file system | what is done |
//! |---|---|
//! | btrfs | a read-only snapshot of the subvolume is swept in its place (`btrfs`) |
//! | on LVM | a snapshot of the volume is mounted and swept in its place (`lvm`) |
//! | others | writers are held until the plan stands (`frozen`) |
//! | read-only | nothing: it is as it is |
//!
//! A snapshot is there until the last of the sweep and of the streams that it handed out is dropped.

mod btrfs;
mod frozen;
mod ground;
mod left_over;
mod lvm;

use std::{
    collections::HashMap,
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use onesweep_layout::mounts::{Mount, MountTable};
use onesweep_sys::{files, subvolume};

use self::{btrfs::BtrfsSnapshot, frozen::Freeze, lvm::LvmSnapshot};
use crate::{
    error::{FileError, NO_MOUNTS, SweepError},
    opener::path_bytes,
    placement::Placement,
    progress::{Observer, Progress},
    settings::Settings,
};

/// A named path, where it lies now.
pub(crate) struct Live<'a> {
    pub(crate) shown: &'a Path,
    pub(crate) opened: &'a Path,
    pub(crate) placement: &'a Placement,
}

/// File systems that stand still for a sweep.
pub(crate) struct Moment {
    snapshots: Vec<InSnapshot>,
    frozen: Mutex<Vec<Freeze>>,
    nested_told: AtomicBool,
    voice: Voice,
}

/// A part of the tree of mounts that a snapshot stands for.
struct InSnapshot {
    /// As in `st_dev`, in the snapshot and in the original.
    dev: u64,
    live_dev: u64,
    /// The root directory of the snapshot and of the original.
    at: PathBuf,
    live: PathBuf,
    /// What is mounted below the original: none of it is in the snapshot.
    mounts: Vec<PathBuf>,
    kind: Kind,
}

enum Kind {
    Btrfs(BtrfsSnapshot),
    Lvm(LvmSnapshot),
}

/// What a walk reads instead of a directory of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Another file system, as it is now.
    Live(PathBuf),
    /// Nothing: it is a snapshot that is swept by another name.
    Nothing,
}

/// Tells what is no error.
#[derive(Clone)]
struct Voice(Option<Arc<dyn Observer>>);

impl Voice {
    fn tell(&self, text: String) {
        if let Some(observer) = &self.0 {
            observer.on(Progress::Remark { text });
        }
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("snapshots", &self.snapshots.len()).finish_non_exhaustive()
    }
}

/// What keeps a named path from being held.
fn refused(path: &Path, reason: impl Into<String>) -> SweepError {
    SweepError::Snapshot { path: path.to_owned(), reason: reason.into(), source: None }
}

/// The same where that is what the kernel said, which the reason tells in other words.
fn refused_by(path: &Path, error: io::Error, reason: impl Into<String>) -> SweepError {
    SweepError::Snapshot { path: path.to_owned(), reason: reason.into(), source: Some(error) }
}

/// The same for what the kernel said.
fn failed(path: &Path, what: &str, error: io::Error) -> SweepError {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root, or leave out --snapshot",
        io::ErrorKind::ReadOnlyFilesystem => "; name it by a mount that can be written to",
        io::ErrorKind::StorageFull => "; make room and run again",
        _ => "",
    };
    let reason = format!("{what}: {error}{advice}");
    refused_by(path, error, reason)
}

impl Moment {
    /// Takes the snapshots, then freezes what has none. Whatever fails, nothing of it stays.
    pub(crate) fn begin(settings: &Settings, roots: &[Live<'_>]) -> Result<Self, SweepError> {
        let mounts = MountTable::read().map_err(|source| SweepError::System { what: NO_MOUNTS, source })?;
        let voice = Voice(settings.observer.clone());
        let mut moment =
            Self { snapshots: Vec::new(), frozen: Mutex::default(), nested_told: AtomicBool::new(false), voice };
        let mut to_freeze: HashMap<u64, &Live<'_>> = HashMap::new();
        for root in roots {
            let dev = root.placement.volume.dev;
            if moment.snapshots.iter().any(|snapshot| snapshot.live_dev == dev) || to_freeze.contains_key(&dev) {
                continue;
            }
            let place = place_of(root)?;
            let mount = place.mnt_id.and_then(|id| mounts.by_id(id));
            if mount.is_some_and(is_read_only) {
                continue;
            }
            if root.placement.fs_type == "btrfs" {
                moment.snapshots.extend(btrfs::snapshot(root, &place, &mounts, &moment.voice)?);
            } else if let (true, Some(mount)) = (lvm::is_volume(root.placement), mount) {
                let snapshot = lvm::snapshot(root, mount, &mounts, &lvm::Programs::of_system(), &moment.voice)?;
                moment.snapshots.push(snapshot);
            } else {
                to_freeze.insert(dev, root);
            }
        }
        // Last, since their time is short.
        for root in to_freeze.into_values() {
            frozen::check_outputs(root, &settings.writes_to)?;
            let freeze = Freeze::begin(root, settings.freeze_limit)?;
            moment.frozen.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).push(freeze);
        }
        Ok(moment)
    }

    /// Where a named path is to be read instead.
    pub(crate) fn place(&self, root: &Live<'_>) -> Result<Option<PathBuf>, SweepError> {
        let dev = root.placement.volume.dev;
        let Some(snapshot) = self.snapshots.iter().find(|snapshot| snapshot.live_dev == dev) else { return Ok(None) };
        let place = place_of(root)?;
        let below = place.path.strip_prefix(&snapshot.live).map_err(|_| refused(root.shown, NOT_BELOW))?;
        // A path that ends with a slash would not be the link that it may be.
        let is_all = below.as_os_str().is_empty();
        Ok(Some(if is_all { snapshot.at.clone() } else { snapshot.at.join(below) }))
    }

    /// Whether writers are held.
    pub(crate) fn is_frozen(&self) -> bool {
        !self.frozen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_empty()
    }

    /// Lets writers go on. What was not held until now is an error; `whole` says that all was planned meanwhile.
    pub(crate) fn thaw(&self, whole: bool) -> Vec<FileError> {
        let frozen = std::mem::take(&mut *self.frozen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        frozen.into_iter().filter_map(|freeze| freeze.end(whole)).collect()
    }

    /// The device number of the original, for that of a snapshot.
    pub(crate) fn shown_dev(&self, dev: u64) -> u64 {
        self.snapshots.iter().find(|snapshot| snapshot.dev == dev).map_or(dev, |snapshot| snapshot.live_dev)
    }

    /// What is to be read instead of a directory that a walk came to, if it is another thing than the snapshot shows.
    pub(crate) fn instead(&self, stat: &files::Stat, opened: impl FnOnce() -> PathBuf) -> Option<Instead> {
        // The directories that stand for subvolumes have a device number of their own.
        let may_be_nested = stat.ino == subvolume::PLACEHOLDER_INODE;
        let may_be_top = stat.ino == subvolume::ROOT_INODE;
        let has_mounts = |snapshot: &InSnapshot| snapshot.dev == stat.dev && !snapshot.mounts.is_empty();
        if !may_be_nested && !may_be_top && !self.snapshots.iter().any(has_mounts) {
            return None;
        }
        let opened = opened();
        let snapshot = self.snapshots.iter().find(|snapshot| opened.starts_with(&snapshot.at))?;
        if opened == snapshot.at {
            return Some(Instead::Nothing);
        }
        let is_nested = may_be_nested && matches!(snapshot.kind, Kind::Btrfs(_));
        let live = snapshot.live.join(opened.strip_prefix(&snapshot.at).ok()?);
        if is_nested && !self.nested_told.swap(true, Ordering::Relaxed) {
            let path = live.display();
            self.voice
                .tell(format!("{path}: a subvolume of its own, which no snapshot of another holds; read as it is now"));
        }
        (is_nested || snapshot.mounts.contains(&live)).then_some(Instead::Live(live))
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        for snapshot in self.snapshots.drain(..) {
            let (at, ended) = match snapshot.kind {
                Kind::Btrfs(taken) => (snapshot.at, taken.end()),
                Kind::Lvm(taken) => (snapshot.live, taken.end()),
            };
            if let Err(error) = ended {
                self.voice
                    .tell(format!("{}: cannot remove the snapshot: {error}; the next run tries again", at.display()));
            }
        }
    }
}

/// Where a path lies, without symbolic links on the way.
struct Place {
    path: PathBuf,
    dev: u64,
    mnt_id: Option<u64>,
}

const NOT_BELOW: &str = "it is shown by a mount of a part of its file system (a bind mount); name it by the mount of the \
                         whole, or leave out --snapshot";

fn place_of(root: &Live<'_>) -> Result<Place, SweepError> {
    let fail = |error: io::Error| failed(root.shown, "cannot find its place", error);
    let canonical = match (root.opened.parent(), root.opened.file_name()) {
        // The last part may be a link that is meant itself.
        (Some(parent), Some(name)) if !path_bytes(root.opened).ends_with(b"/") => {
            std::fs::canonicalize(parent).map_err(fail)?.join(name)
        }
        _ => std::fs::canonicalize(root.opened).map_err(fail)?,
    };
    let stat = files::statx_at(files::CURRENT_DIR, canonical.as_path(), true).map_err(fail)?;
    if stat.dev != root.placement.volume.dev {
        return Err(refused(root.shown, "something else took its place; run again"));
    }
    Ok(Place { path: canonical, dev: stat.dev, mnt_id: stat.mnt_id })
}

/// A directory of the file system of a path, open as ioctls want it: the path itself, or the one that it is in.
fn directory_of(root: &Live<'_>, place: &Place) -> Result<OwnedFd, SweepError> {
    let fail = |error: io::Error| failed(root.shown, "cannot open it", error);
    let fd = match files::open_dir(place.path.as_path()) {
        Ok(fd) => fd,
        Err(_) => files::open_dir(place.path.parent().unwrap_or(Path::new("/"))).map_err(fail)?,
    };
    let stat = files::statx_fd(fd.as_fd()).map_err(fail)?;
    if stat.dev == place.dev { Ok(fd) } else { Err(refused(root.shown, NOT_BELOW)) }
}

/// Whether nobody can write to a file system, by whichever mount.
fn is_read_only(mount: &Mount) -> bool {
    mount.super_options.split(',').next() == Some("ro")
}

/// What is mounted below a directory.
fn mounts_below(mounts: &MountTable, directory: &Path) -> Vec<PathBuf> {
    mounts.below(directory).map(|mount| mount.mount_point.clone()).collect()
}
