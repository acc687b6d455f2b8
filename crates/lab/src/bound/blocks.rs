//! Where files lie on NTFS: the blocks of each, as ntfs-3g tells them (`FIBMAP`).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use onesweep_sys::fibmap::{block_address, block_bytes};

use super::Chosen;
use super::layout::Layout;
use crate::address_runs::AddressRun;

/// `EINVAL`: what ntfs-3g says of content that lies in the file's record, or that is compressed.
const NOT_IN_BLOCKS: i32 = 22;

/// Looks at every chosen file below `root`, directory by directory.
pub(super) fn map_files(root: &Path, chosen: Chosen) -> Result<Layout, String> {
    let mut layout = Layout::default();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let said = |error: io::Error| format!("{}: {error}", dir.display());
        for entry in fs::read_dir(&dir).map_err(said)? {
            let entry = entry.map_err(said)?;
            let (path, facts) = (entry.path(), entry.metadata().map_err(said)?);
            if facts.is_dir() {
                dirs.push(path);
            } else if facts.is_file() && chosen.has(facts.len()) {
                let runs = File::open(&path).and_then(|file| runs(&file, facts.len()));
                layout.extents.extend(runs.map_err(|error| format!("{}: {error}", path.display()))?);
                layout.files += 1;
                layout.bytes += facts.len();
            }
        }
    }
    Ok(layout)
}

/// The runs of a file of so many bytes, holes left out.
fn runs(file: &File, size: u64) -> io::Result<Vec<AddressRun>> {
    let block = u64::from(block_bytes(file.as_fd())?);
    let mut addresses = Vec::new();
    for number in 0..size.div_ceil(block) {
        match block_address(file.as_fd(), number) {
            Ok(address) => addresses.extend(address),
            Err(error) if error.raw_os_error() == Some(NOT_IN_BLOCKS) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    }
    Ok(joined(&addresses, block))
}

/// Blocks in the order of their file as runs.
fn joined(addresses: &[u64], block: u64) -> Vec<AddressRun> {
    let mut runs: Vec<AddressRun> = Vec::new();
    for start in addresses.iter().map(|address| address * block) {
        match runs.last_mut() {
            Some(last) if last.end == start => last.end += block,
            _ => runs.push(AddressRun { start, end: start + block }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_runs::tests::run;

    #[test]
    fn blocks_that_follow_each_other_are_one_run() {
        assert_eq!(joined(&[10, 11, 20, 19], 512), [run(5120, 1024), run(10_240, 512), run(9728, 512)]);
        assert_eq!(joined(&[], 512), []);
    }
}
