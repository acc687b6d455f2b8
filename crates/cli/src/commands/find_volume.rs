//! `onesweep find` in a directory of a mounted XFS or btrfs: what the kernel tells of all their inodes, without a walk.

use std::{
    cell::{Ref, RefCell},
    collections::HashMap,
    ffi::OsStr,
    io,
    ops::ControlFlow,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use onesweep_deliver::find::{Condition, Row};
use onesweep_layout::{
    Sources,
    mounts::MountTable,
    tables::{
        Inode, Part, TableError, Tables, Tree, VolumeFacts, Wanted, Whole,
        btrfs::{MountedBtrfs, Subvolume},
        xfs::MountedXfs,
    },
};
use onesweep_sys::files;

use super::find::{Found, Rows, tell};
use crate::message;

/// A mounted file system whose inodes the kernel tells all together.
enum Volume {
    Xfs(MountedXfs),
    Btrfs(MountedBtrfs),
}

impl Volume {
    fn open(directory: &Path) -> io::Result<Option<Self>> {
        if let Some(xfs) = MountedXfs::open(directory)? {
            return Ok(Some(Self::Xfs(xfs)));
        }
        Ok(MountedBtrfs::open(directory)?.map(Self::Btrfs))
    }

    /// Whether it tells where files lie and links point, too.
    fn tells_all(&self) -> bool {
        matches!(self, Self::Btrfs(_))
    }
}

/// The names of other subvolumes, by the directories that have them.
type Subvolumes = HashMap<u64, Vec<Vec<u8>>>;

/// A volume whose other subvolumes are known while it tells its inodes.
struct Telling<'a> {
    volume: Volume,
    subvolumes: &'a RefCell<Subvolumes>,
}

impl Tables for Telling<'_> {
    fn facts(&self) -> &VolumeFacts {
        match &self.volume {
            Volume::Xfs(xfs) => xfs.facts(),
            Volume::Btrfs(btrfs) => btrfs.facts(),
        }
    }

    fn scan(&mut self, wanted: Wanted, found: &mut dyn onesweep_layout::tables::Found) -> Result<(), TableError> {
        match &mut self.volume {
            Volume::Xfs(xfs) => xfs.scan(wanted, found),
            Volume::Btrfs(btrfs) => {
                btrfs.scan(wanted, found)?;
                let mut below = Subvolumes::new();
                for Subvolume { directory, name } in btrfs.subvolumes() {
                    below.entry(*directory).or_default().push(name.clone());
                }
                self.subvolumes.replace(below);
                Ok(())
            }
        }
    }
}

/// Writes what is found below a directory; gives how much of it could not be read, `None` where it is no directory of such a
/// file system.
pub(super) fn find(
    named: &Path,
    conditions: &[Condition],
    limit: u64,
    groups_at_a_time: Option<usize>,
    rows: &mut Rows<'_>,
) -> Result<Option<u64>, Found> {
    if !named.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Ok(None);
    }
    let nothing = |error: &io::Error| Found::Nothing(cannot_read(named, error));
    let Some(mut volume) = Volume::open(named).map_err(|error| nothing(&error))? else { return Ok(None) };
    if let (Volume::Xfs(xfs), Some(groups)) = (&mut volume, groups_at_a_time) {
        xfs.ask_groups_at_a_time(groups);
    }
    let start = files::statx_at(files::CURRENT_DIR, named, true).map_err(|error| nothing(&error))?.ino;
    let mounts = mounts_below(named).map_err(|error| nothing(&error))?;
    let name = message::path_text(named);
    let not_read = |path: &Path, what: &str| {
        tell(&format!("{}: another {what}, which is not read; name it", message::path_text(path)));
    };
    let (mut written, mut sources, subvolumes) = (Ok(()), Sources::new(), RefCell::default());
    let (mut is_there, mut problems, tells_all) = (false, 0, volume.tells_all());
    let shows_all = rows.tells_all();
    let mut show = |part: Part<'_, Row>| {
        if part.is_first() {
            problems = part.problems_met();
            for problem in part.problems() {
                tell(&format!("{name}: {}", message::of_error(problem)));
            }
            for mount in &mounts {
                not_read(&named.join(mount), "file system is mounted there");
            }
            is_there = part.get(start).is_some();
        }
        let subvolumes: Ref<'_, Subvolumes> = subvolumes.borrow();
        part.walk(start, &mut |entry| {
            let below = Path::new(OsStr::from_bytes(entry.path));
            if mounts.iter().any(|mount| below.starts_with(mount)) {
                return ControlFlow::Continue(());
            }
            // A name that is joined to nothing gets a slash.
            let path = if entry.path.is_empty() { named.to_owned() } else { named.join(below) };
            for subvolume in subvolumes.get(&entry.inode).into_iter().flatten() {
                let there = below.join(OsStr::from_bytes(subvolume));
                if !mounts.contains(&there) {
                    not_read(&named.join(there), "subvolume is there");
                }
            }
            let shown = path.as_os_str().as_bytes();
            if conditions.iter().all(|condition| condition.holds(shown, entry.value)) {
                let mut row = entry.value.clone();
                if shows_all && !tells_all {
                    look(&mut sources, &path, &mut row);
                }
                written = rows.write(shown, &row);
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    };
    let whole = Whole { limit, keep: &mut |inode| Row::of(&inode), lost: None };
    let mut telling = Telling { volume, subvolumes: &subvolumes };
    let wanted = Wanted { extents: shows_all, ..Wanted::default() };
    Tree::read_in_parts(&mut telling, wanted, whole, &mut show).map_err(|error| match error {
        TableError::Kernel { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => nothing(&source),
        error => Found::Nothing(format!("{name}: {}", message::of_error(&error))),
    })?;
    written.map_err(Found::Output)?;
    if !is_there {
        return Err(Found::Nothing(format!("{name}: it is not where it was; run again")));
    }
    Ok(Some(problems))
}

fn cannot_read(named: &Path, error: &io::Error) -> String {
    let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
    let advice = if is_refused { "; run as root, or use find(1)" } else { "" };
    format!("{}: cannot read its file system: {}{advice}", message::path_text(named), message::why(error))
}

/// What is mounted below a directory, by the way from there.
fn mounts_below(named: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = std::fs::canonicalize(named)?;
    let way = |path: &Path| path.strip_prefix(&directory).ok().map(Path::to_owned);
    let mounts = MountTable::read_or_say()?;
    Ok(mounts.below(&directory).filter_map(|mount| way(&mount.mount_point)).collect())
}

/// What only the inode itself tells: where a symbolic link points, and where the content of a regular file lies, as far as the
/// kernel tells it and hasn't told yet.
fn look(sources: &mut Sources, path: &Path, row: &mut Row) {
    match row.mode & 0o170_000 {
        0o120_000 => row.target = std::fs::read_link(path).ok().map(|to| to.as_os_str().as_bytes().into()),
        0o100_000 if row.size > 0 && row.allocated > 0 && row.fragments == 0 => map(sources, path, row),
        _ => {}
    }
}

fn map(sources: &mut Sources, path: &Path, row: &mut Row) {
    let Ok(fd) = files::open_file_at(files::CURRENT_DIR, path) else { return };
    let Ok(stat) = files::statx_fd(fd.as_fd()) else { return };
    let mut inode = Inode { size: stat.size, ..Inode::default() };
    if stat.ino == row.inode && sources.map(fd.as_fd(), &stat, &mut |extent| inode.extents.push(extent)).is_ok() {
        let mapped = Row::of(&inode);
        (row.fragments, row.address) = (mapped.fragments, mapped.address);
    }
}
