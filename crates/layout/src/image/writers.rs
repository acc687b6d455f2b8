//! Whether somebody may be writing to what is to be read: whatever is mounted for writing is followed down to the bytes that it
//! lies on, through partitions, loop devices and the devices of others.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::{
    mounts::{Mount, MountTable},
    sysfs::{SysBlock, SysTree},
};

/// Layers below one another; more than there ever are, fewer than would be noticed.
const LAYERS_MAX: usize = 16;

/// What bytes lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// A block device, by its number.
    Device(u64),
    /// A file, by its device and inode.
    File(u64, u64),
}

/// Bytes of a ground; without a length, all that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    ground: Ground,
    start: u64,
    len: u64,
}

/// The devices that one is made of (LVM, md): where in them its bytes lie is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    /// All of each counts.
    All,
    /// None of them counts.
    Left,
}

impl Stretch {
    fn holds(&self, place: &Stretch) -> bool {
        self.ground == place.ground && (self.start..self.start.saturating_add(self.len)).contains(&place.start)
    }
}

/// Where a file system is mounted for writing that lies over byte `start` of a file or device. What another mount namespace has
/// mounted is not seen.
pub(super) fn writable_mount(file: &Path, start: u64) -> Option<PathBuf> {
    let tree = SysTree::default();
    let place = ground_of(file)?;
    let mut places = Vec::new();
    stretches(&tree, Stretch { ground: place, start, len: u64::MAX }, Members::Left, &mut places, LAYERS_MAX);
    let mounts = MountTable::read().ok()?;
    let is_writable = |mount: &&Mount| !mount.super_options.split(',').any(|option| option == "ro");
    let lies_there = |mount: &&Mount| {
        let mut written = Vec::new();
        for ground in grounds_of(mount) {
            stretches(&tree, Stretch { ground, start: 0, len: u64::MAX }, Members::All, &mut written, LAYERS_MAX);
        }
        written.iter().any(|written| places.iter().any(|place| written.holds(place)))
    };
    mounts.iter().filter(is_writable).find(lies_there).map(|mount| mount.mount_point.clone())
}

fn ground_of(path: &Path) -> Option<Ground> {
    let found = fs::metadata(path).ok()?;
    match found.file_type() {
        kind if kind.is_block_device() => Some(Ground::Device(found.rdev())),
        kind if kind.is_file() => Some(Ground::File(found.dev(), found.ino())),
        _ => None,
    }
}

/// What a mount lies on. File systems in user space have a number of their own, and name what they read.
fn grounds_of(mount: &Mount) -> impl Iterator<Item = Ground> {
    // Others name shares, or words that could be a file here by chance.
    let is_local = mount.fs_type.starts_with("fuse") || mount.fs_type == "btrfs";
    let source = Path::new(&mount.source);
    let named = (is_local && source.is_absolute()).then(|| ground_of(source)).flatten();
    std::iter::once(Ground::Device(mount.dev)).chain(named)
}

/// Adds a stretch, and what it lies on.
fn stretches(tree: &SysTree, stretch: Stretch, members: Members, found: &mut Vec<Stretch>, layers: usize) {
    let block = match stretch.ground {
        Ground::Device(dev) if layers > 0 => tree.block(dev).ok(),
        _ => None,
    };
    let Some(block) = block else { return found.push(stretch) };
    let len = stretch.len.min(block.size_bytes().saturating_sub(stretch.start));
    let stretch = Stretch { len, ..stretch };
    found.push(stretch);
    let mut below = |ground, start: u64| {
        stretches(
            tree,
            Stretch { ground, start: start.saturating_add(stretch.start), len },
            members,
            found,
            layers - 1,
        );
    };
    if let Some((whole, start)) = block.partition() {
        below(Ground::Device(whole.dev), start);
    } else if let Some((file, start)) = backing(&block) {
        below(file, start);
    } else if members == Members::All {
        for slave in block.slaves() {
            let all = Stretch { ground: Ground::Device(slave.dev), start: 0, len: u64::MAX };
            stretches(tree, all, members, found, layers - 1);
        }
    }
}

fn backing(block: &SysBlock) -> Option<(Ground, u64)> {
    Some((ground_of(&block.backing_file()?)?, block.backing_offset()))
}
