//! Files of the source that somebody has mapped for writing: nobody tells what is written to them.
//!
//! Nor do times of change: a page that is written again before it went to the disk changes none. So what is mapped so is forgotten
//! at each look, and once more when it isn't any longer.

use std::{
    collections::HashSet,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use onesweep_layout::MountTable;
use onesweep_sys::{
    files::{CURRENT_DIR, statx_at},
    mappings::{SharedMapping, shared_on},
};

/// The time between two looks, at least.
const PAUSE: Duration = Duration::from_secs(2);
/// How many times as long as a look it is, at least: what looking may take of a processor.
const SHARE: u32 = 50;
/// Of a link in `map_files`: the file was opened for writing.
const MAY_WRITE: u32 = 0o200;

/// How long to wait after a look that took so long.
pub(super) fn pause(look: Duration) -> Duration {
    PAUSE.max(look * SHARE)
}

/// Whose mappings are looked for.
pub(super) struct Mapped {
    /// The file system, as mappings tell it: on btrfs no subvolume has this number.
    device: u64,
    before: HashSet<u64>,
}

impl Mapped {
    /// Of the file system of a tree. `None` where that can't be told apart.
    pub(super) fn of(tree: &Path) -> Option<Self> {
        let mount = statx_at(CURRENT_DIR, tree, true).ok()?.mnt_id?;
        let device = MountTable::read().ok()?.by_id(mount)?.dev;
        Some(Self { device, before: HashSet::new() })
    }

    /// Numbers of the inodes that are mapped for writing, or were at the last look. Of processes that may not be looked at nothing is known.
    pub(super) fn look(&mut self, is_wanted: impl Fn(u64) -> bool) -> HashSet<u64> {
        let now: HashSet<u64> = processes().flat_map(|process| self.of_process(&process, &is_wanted)).collect();
        let before = std::mem::replace(&mut self.before, now);
        self.before.union(&before).copied().collect()
    }

    fn of_process(&self, process: &Path, is_wanted: &impl Fn(u64) -> bool) -> Vec<u64> {
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        let shared = maps.lines().filter_map(|line| shared_on(line, self.device));
        // It may have been written before it was made one for reading.
        let may_write = |mapping: &SharedMapping| {
            let link = || process.join("map_files").join(&mapping.name).symlink_metadata();
            mapping.is_written || link().is_ok_and(|facts| facts.permissions().mode() & MAY_WRITE != 0)
        };
        shared.filter(|mapping| is_wanted(mapping.ino) && may_write(mapping)).map(|mapping| mapping.ino).collect()
    }
}

/// Processes, but for this one.
fn processes() -> impl Iterator<Item = PathBuf> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let others = names.filter(move |name| name.as_bytes().iter().all(u8::is_ascii_digit) && *name != *own);
    others.map(|name| Path::new("/proc").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_take_a_bounded_part_of_a_processor() {
        assert_eq!(pause(Duration::from_millis(1)), PAUSE);
        assert_eq!(pause(Duration::from_millis(100)), Duration::from_secs(5));
    }
}
