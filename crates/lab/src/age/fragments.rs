//! Counting fragments: runs of a file that lie apart from one another.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use onesweep_layout::{Extent, Fibmap, Fiemap, LayoutSource as _, MapError};
use onesweep_sys::fibmap::{block_address, block_bytes};
use onesweep_sys::files::statx_fd;

/// The fragments of files that are on the disk.
#[derive(Debug, Default)]
pub(super) struct Maps {
    fiemap: Fiemap,
    fibmap: Fibmap,
}

impl Maps {
    /// Whether the byte at `from` lies elsewhere than right behind the byte before.
    pub(super) fn begins_fragment(&mut self, file: &File, from: u64) -> io::Result<bool> {
        Ok(self.address(file, from)? != self.address(file, from - 1)? + 1)
    }

    /// The address of a byte of a file.
    pub(super) fn address(&mut self, file: &File, at: u64) -> io::Result<u64> {
        let (file, size) = (file.as_fd(), statx_fd(file.as_fd())?.size);
        let mut found = None;
        let mapped = self.fiemap.map(file, size, &mut |extent| {
            if (extent.logical..extent.logical_end()).contains(&at) {
                found = extent.physical.map(|start| start + (at - extent.logical));
            }
        });
        match mapped {
            // One block is asked for: thousands one by one would take long.
            Err(MapError::Unsupported) => {
                let block = u64::from(block_bytes(file)?);
                found = block_address(file, at / block)?.map(|address| address * block + at % block);
            }
            mapped => drop(mapped.map_err(io::Error::other)?),
        }
        found.ok_or_else(|| io::Error::other(format!("byte {at} has no address")))
    }

    /// How many fragments a file has; 0 for one without bytes in blocks of its own.
    pub(super) fn fragments(&mut self, file: &File) -> io::Result<u64> {
        Ok(self.runs(file)?.len() as u64)
    }

    fn runs(&mut self, file: &File) -> io::Result<Vec<Extent>> {
        let size = statx_fd(file.as_fd())?.size;
        let mut runs = Vec::new();
        let mut mapped = self.fiemap.map(file.as_fd(), size, &mut |extent| join(&mut runs, extent));
        if matches!(mapped, Err(MapError::Unsupported)) {
            mapped = self.fibmap.map(file.as_fd(), size, &mut |extent| join(&mut runs, extent));
        }
        mapped.map_err(io::Error::other)?;
        Ok(runs)
    }
}

/// Adds an extent, to the last run where it lies right behind it. File systems cut long runs into extents.
fn join(runs: &mut Vec<Extent>, extent: Extent) {
    match runs.last_mut() {
        Some(last) if last.logical_end() == extent.logical && last.physical_end() == extent.physical => {
            last.length += extent.length;
        }
        _ => runs.push(extent),
    }
}

/// Calls `visit` with path, size and fragments of each file below `root`, in the order of the paths.
pub(super) fn of_tree(root: &Path, visit: &mut dyn FnMut(&Path, u64, u64)) -> Result<(), String> {
    let mut maps = Maps::default();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let said = |error: io::Error| format!("{}: {error}", dir.display());
        let entries = fs::read_dir(&dir).map_err(said)?;
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>().map_err(said)?;
        paths.sort_unstable();
        for path in paths {
            let said = |error: io::Error| format!("{}: {error}", path.display());
            let facts = path.symlink_metadata().map_err(said)?;
            if facts.is_file() {
                let fragments = File::open(&path).and_then(|file| maps.fragments(&file)).map_err(said)?;
                visit(path.strip_prefix(root).unwrap_or(&path), facts.len(), fragments);
            } else if facts.is_dir() {
                dirs.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_touch_are_one_fragment() {
        let extent = |logical, physical, length| Extent {
            logical,
            physical: Some(physical),
            length,
            flags: onesweep_layout::ExtentFlags::default(),
        };
        let mut runs = Vec::new();
        for each in
            [extent(0, 8192, 4096), extent(4096, 12_288, 4096), extent(8192, 4096, 4096), extent(16_384, 8192, 1)]
        {
            join(&mut runs, each);
        }
        assert_eq!(runs, [extent(0, 8192, 8192), extent(8192, 4096, 4096), extent(16_384, 8192, 1)]);
    }
}
