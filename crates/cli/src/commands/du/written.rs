//! `--sync` where no server has everything written: before a walk, once for each file system in which it leads.

use std::{
    collections::HashSet,
    fs::File,
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use onesweep_layout::MountTable;
use onesweep_sys::files;

/// Device numbers of file systems of which everything is written.
#[derive(Debug, Default)]
pub(super) struct Written(HashSet<u64>);

impl Written {
    /// Has everything written where a walk from `path` leads, also in what is mounted below. What can't be opened is left to the
    /// walk, which says so.
    pub(super) fn before(&mut self, path: &Path, with_mounts: bool) -> io::Result<()> {
        let Ok(real) = std::fs::canonicalize(path) else { return Ok(()) };
        let mut places: Vec<PathBuf> = Vec::new();
        if with_mounts {
            // Where nobody tells what is mounted, that is all.
            let mounts = MountTable::read().unwrap_or_default();
            // What isn't mounted before somebody looks needs nothing written.
            let mounted = mounts.below(&real).filter(|mount| mount.fs_type != "autofs");
            places.extend(mounted.map(|mount| mount.mount_point.clone()));
        }
        places.push(real);
        places.iter().try_for_each(|place| self.write(place))
    }

    fn write(&mut self, place: &Path) -> io::Result<()> {
        // A pipe, a device or what others hold isn't opened.
        let directory = if place.is_dir() { Some(place) } else { place.parent() };
        let Some(directory) = directory.and_then(|directory| File::open(directory).ok()) else { return Ok(()) };
        if self.0.insert(files::statx_fd(directory.as_fd())?.dev) {
            files::sync_file_system(directory.as_fd())?;
        }
        Ok(())
    }
}
