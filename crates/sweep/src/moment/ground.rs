//! What else is written when a file system is: those that have the files of loop devices below it, or the upper layer of an
//! overlay.

use std::path::Path;

use onesweep_layout::{Mount, MountTable, SysTree};
use onesweep_sys::files;

/// More can only go round in a circle.
const DEEP: usize = 64;

/// The numbers of the file systems that get what is written to the one with this number, itself among them. What can't be
/// looked at is left out.
pub(super) fn written_with(dev: u64) -> Vec<u64> {
    let (sys, mounts) = (SysTree::default(), MountTable::read().ok());
    let below = |dev| {
        let mut below = below_device(&sys, dev);
        let of_dev = |mount: &&Mount| mount.dev == dev;
        below.extend(mounts.iter().flat_map(|mounts| mounts.iter()).filter(of_dev).filter_map(below_mount));
        below
    };
    closure(dev, &below)
}

/// All that can be reached from one number.
fn closure(dev: u64, below: &dyn Fn(u64) -> Vec<u64>) -> Vec<u64> {
    let mut all = vec![dev];
    let mut next = 0;
    while let Some(&dev) = all.get(next) {
        next += 1;
        for found in below(dev) {
            if !all.contains(&found) && all.len() < DEEP {
                all.push(found);
            }
        }
    }
    all
}

/// What a block device is made of: other devices, and the file systems of the files that it stands on.
fn below_device(sys: &SysTree, dev: u64) -> Vec<u64> {
    let Ok(block) = sys.block(dev) else { return Vec::new() };
    let whole = block.partition().map(|(whole, _)| whole.dev);
    let file = block.backing_file().and_then(|file| dev_of(&file));
    block.slaves().iter().map(|slave| slave.dev).chain(whole).chain(file).collect()
}

/// Where an overlay keeps what is written; the device of a file system that has a number of its own (btrfs).
fn below_mount(mount: &Mount) -> Option<u64> {
    let upper = mount.super_options.split(',').find_map(|option| option.strip_prefix("upperdir="));
    match (&*mount.fs_type, upper) {
        ("overlay", upper) => dev_of(Path::new(upper?)),
        ("btrfs", _) => files::statx_at(files::CURRENT_DIR, Path::new(&mount.source), false).ok().map(|node| node.rdev),
        _ => None,
    }
}

fn dev_of(path: &Path) -> Option<u64> {
    files::statx_at(files::CURRENT_DIR, path, false).ok().map(|stat| stat.dev)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_below_is_found_once_even_in_a_circle() {
        let below = |dev| match dev {
            1 => vec![2, 3],
            2 => vec![4, 1],
            3 => vec![4],
            _ => Vec::new(),
        };
        assert_eq!(closure(1, &below), [1, 2, 3, 4]);
        assert_eq!(closure(9, &below), [9]);
        assert_eq!(closure(0, &|dev| vec![dev + 1]).len(), DEEP);
    }
}
