//! One rising pass over the inode tables of an ext4: the least by which a server can learn what has changed.
//!
//! By what dumpe2fs prints, so without any of the code that is held against it.

use std::path::Path;

use super::stage::emulated;
use crate::address_runs::{self, AddressRun};
use crate::bench::run::Disk;
use crate::bound;
use crate::mount;

/// Milliseconds of the modelled disk for the part of the tables that has been used.
pub(super) fn over_inode_tables(image: &Path, disk: &Disk) -> Result<f64, String> {
    let printed = mount::run("dumpe2fs", [image])?.stdout;
    let tables = tables(&String::from_utf8_lossy(&printed)).ok_or("dumpe2fs doesn't print what is expected")?;
    let bytes = std::fs::metadata(image).map_err(|error| format!("{}: {error}", image.display()))?.len();
    let (model, span) = emulated(disk, bytes)?;
    Ok(bound::pass_ms(&address_runs::joined(tables), &model, bytes, span))
}

/// The used part of each group's table.
fn tables(printed: &str) -> Option<Vec<AddressRun>> {
    let head = |name: &str| -> Option<u64> {
        let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line?.trim().parse().ok()
    };
    let (block, inode, in_group) = (head("Block size")?, head("Inode size")?, head("Inodes per group")?);
    let mut tables = Vec::new();
    let mut start = None;
    for line in printed.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("Inode table at ") {
            start = Some(rest.split(['-', ' ']).next()?.parse::<u64>().ok()?.checked_mul(block)?);
        } else if let (Some(at), true) = (start, line.contains(" free inodes, ")) {
            let unused = line.split(", ").find_map(|part| part.strip_suffix(" unused inodes")?.trim().parse().ok());
            let used = in_group.saturating_sub(unused.unwrap_or(0));
            tables.extend((used > 0).then(|| AddressRun { start: at, end: at + used * inode }));
            start = None;
        }
    }
    Some(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_where_dumpe2fs_says() {
        let printed = "Block size:               4096\nInode size:\t          256\nInodes per group:         8192\n\n\
            Group 0: (Blocks 0-32767) csum 0x1 [ITABLE_ZEROED]\n  Inode table at 100-611 (+100)\n  \
            1 free blocks, 8181 free inodes, 2 directories, 8181 unused inodes\n\
            Group 1: (Blocks 32768-65535) [INODE_UNINIT]\n  Inode table at 1000-1511 (bg #0 + 1000)\n  \
            2 free blocks, 8192 free inodes, 0 directories, 8192 unused inodes\n  Free blocks: 5\n\
            Group 2: (Blocks 65536-98303)\n  Inode table at 2000-2511 (bg #0 + 2000)\n  \
            3 free blocks, 5 free inodes, 0 directories\n";
        let expected = [(409_600, 409_600 + 11 * 256), (8_192_000, 8_192_000 + 8192 * 256)];
        assert_eq!(tables(printed).unwrap(), expected.map(|(start, end)| AddressRun { start, end }));
        assert_eq!(tables("nothing"), None);
    }
}
