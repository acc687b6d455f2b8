//! The real disks under a device, a mount or a path.
//!
//! A sweep is made for each head that moves, and file systems hide the heads behind partitions, LVM, encryption, RAID
//! and files. [`Devices`] goes down through all of these to a [`DeviceStack`], which names the disks at the bottom and
//! says whether a seek on them costs anything.
//!
//! That one does not is believed only when it is known: a kind of device that is real, and that says that it does not
//! rotate. What can't be resolved, such as a loop device on a FUSE file, counts as seeking: then a sorted order is
//! at worst useless, while an unsorted one on a disk that seeks would be slow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use onesweep_sys::files::{CURRENT_DIR, EntryType, Stat, dev_numbers, statx_at, statx_fd};
use thiserror::Error;

use crate::mounts::{Mount, MountTable};
use crate::sysfs::{SysBlock, SysTree};

/// Layers to go down at most; more can only be a loop of loop devices.
const DEPTH_MAX: usize = 16;

/// A device and all that lies under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStack {
    /// The device.
    pub dev: u64,
    /// Its name, such as `sda1` or `dm-0`.
    pub name: String,
    /// Its node in `/dev`.
    pub node: PathBuf,
    /// Its node in `/dev/mapper`, by which LVM knows it; `None` where it is not of device-mapper.
    pub mapper_node: Option<PathBuf>,
    /// Its bytes.
    pub size: u64,
    /// Bytes that a request to it must be a multiple of.
    pub logical_block: u32,
    /// The disks at the bottom, by number; at least one.
    pub disks: Vec<Disk>,
    /// The byte of the disk where the device begins, when it is one piece of one disk (the disk itself, a partition).
    pub base: Option<u64>,
    /// The layers from the device down to the disks, for people.
    pub through: Vec<Layer>,
    /// Devices that the file system spans: 1, but for btrfs.
    pub members: usize,
}

/// A disk, or what must be taken for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its number.
    pub dev: u64,
    /// Its name, such as `sda` or `nvme0n1`.
    pub name: String,
    /// Whether it says that it rotates; a hint only.
    pub rotational: Option<bool>,
    /// Its bytes.
    pub size: u64,
    /// Known to read from anywhere at the same cost.
    pub seekless: bool,
}

/// The devices of one level of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Their names.
    pub names: Vec<String>,
    /// What they are, such as `LVM`; `None` for disks and partitions.
    pub kind: Option<String>,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(" + "))?;
        match &self.kind {
            Some(kind) => write!(f, " ({kind})"),
            None => Ok(()),
        }
    }
}

impl DeviceStack {
    /// Whether a seek costs nothing on any of the disks.
    pub fn is_seekless(&self) -> bool {
        self.disks.iter().all(|disk| disk.seekless)
    }

    /// The numbers of the disks whose heads move when this device is read: paths with the same key belong in one
    /// sweep. When no disk seeks, the numbers of all of them.
    ///
    /// Keys that differ may still have a disk in common (a stripe over two disks, and a partition of one of them).
    pub fn spindle_key(&self) -> Vec<u64> {
        let all_seekless = self.is_seekless();
        self.disks.iter().filter(|disk| all_seekless || !disk.seekless).map(|disk| disk.dev).collect()
    }
}

impl fmt::Display for DeviceStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, layer) in self.through.iter().enumerate() {
            let arrow = if at == 0 { "" } else { " > " };
            write!(f, "{arrow}{layer}")?;
        }
        Ok(())
    }
}

/// Why no device is known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The file system is on no block device: in memory, on the network, or made by a program.
    #[error("{fs_type} is on no block device")]
    NoDevice {
        /// The type of the file system.
        fs_type: String,
    },
    /// No mount has this number, or shows this path.
    #[error("the mount is not in the list of mounts")]
    UnknownMount,
    /// `/sys` does not have the device.
    #[error("block device {major}:{minor} is not in /sys")]
    NotInSysfs {
        /// The first number of the device.
        major: u32,
        /// The second number of the device.
        minor: u32,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The file cannot be looked at.
    #[error("the facts of the file cannot be read")]
    Stat(#[source] io::Error),
}

/// What to ask for the facts of the file at a path: the file behind a loop device, or the node of a device.
type StatPath = dyn Fn(&Path) -> io::Result<FileFacts> + Send + Sync;

/// What [`Devices`] must know of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// The device of its file system.
    pub dev: u64,
    /// Its mount.
    pub mnt_id: Option<u64>,
    /// The device that it is, when it is the node of a block device.
    pub is_device: Option<u64>,
}

impl From<Stat> for FileFacts {
    fn from(stat: Stat) -> FileFacts {
        let is_device = (stat.file_type() == EntryType::BlockDevice).then_some(stat.rdev);
        FileFacts { dev: stat.dev, mnt_id: stat.mnt_id, is_device }
    }
}

/// Finds what lies under devices, mounts and files.
pub struct Devices {
    sys: SysTree,
    mounts: MountTable,
    stat: Box<StatPath>,
}

impl Devices {
    /// The devices of this machine, as `/sys` and `/proc/self/mountinfo` tell them now.
    pub fn of_system() -> io::Result<Devices> {
        let stat = |path: &Path| statx_at(CURRENT_DIR, path, false).map(FileFacts::from);
        Ok(Devices::new(SysTree::default(), MountTable::read()?, stat))
    }

    /// The devices of another machine: its `/sys`, its mounts, and what its files are.
    pub fn new(
        sys: SysTree,
        mounts: MountTable,
        stat: impl Fn(&Path) -> io::Result<FileFacts> + Send + Sync + 'static,
    ) -> Devices {
        Devices { sys, mounts, stat: Box::new(stat) }
    }

    /// The mounts that were read.
    pub fn mounts(&self) -> &MountTable {
        &self.mounts
    }

    /// What lies under a block device.
    pub fn by_dev(&self, dev: u64) -> Result<DeviceStack, DeviceError> {
        let block = self.block(dev)?;
        let mut walk = Walk::new(self);
        let base = walk.down(&block, 0);
        Ok(walk.into_stack(&block, base, 1))
    }

    /// What lies under a mounted file system; under all devices of a btrfs.
    pub fn by_mount(&self, mount: &Mount) -> Result<DeviceStack, DeviceError> {
        let dev = self.device_of_mount(mount)?;
        let block = self.block(dev)?;
        let members = match mount.fs_type.as_str() {
            "btrfs" => self.sys.btrfs_members(&block.name),
            _ => Vec::new(),
        };
        if members.len() < 2 {
            return self.by_dev(dev);
        }
        let mut walk = Walk::new(self);
        for member in &members {
            walk.down(member, 0);
        }
        Ok(walk.into_stack(&block, None, members.len()))
    }

    /// What lies under the file system of an open file, or under the device when it is the node of one.
    pub fn by_fd(&self, fd: BorrowedFd<'_>) -> Result<DeviceStack, DeviceError> {
        self.by_stat(&statx_fd(fd).map_err(DeviceError::Stat)?)
    }

    /// As [`Devices::by_fd`], from facts that are already known.
    pub fn by_stat(&self, stat: &Stat) -> Result<DeviceStack, DeviceError> {
        self.by_facts((*stat).into())
    }

    fn by_facts(&self, facts: FileFacts) -> Result<DeviceStack, DeviceError> {
        match facts {
            FileFacts { is_device: Some(dev), .. } => self.by_dev(dev),
            FileFacts { dev, .. } if dev_numbers(dev).0 != 0 => self.by_dev(dev),
            FileFacts { mnt_id, .. } => {
                let mount = mnt_id.and_then(|id| self.mounts.by_id(id)).ok_or(DeviceError::UnknownMount)?;
                self.by_mount(mount)
            }
        }
    }

    /// The block device that a mount is of: its number, or when that is anonymous (btrfs), the node it names.
    fn device_of_mount(&self, mount: &Mount) -> Result<u64, DeviceError> {
        if dev_numbers(mount.dev).0 != 0 {
            return Ok(mount.dev);
        }
        let source = Path::new(&mount.source);
        // The source of FUSE and others may be any word, and a path that means nothing.
        let named = source.is_absolute() && matches!(mount.fs_type.as_str(), "btrfs" | "bcachefs");
        let facts = named.then(|| (self.stat)(source).ok()).flatten();
        facts.and_then(|facts| facts.is_device).ok_or_else(|| DeviceError::NoDevice { fs_type: mount.fs_type.clone() })
    }

    fn block(&self, dev: u64) -> Result<SysBlock, DeviceError> {
        let (major, minor) = dev_numbers(dev);
        self.sys.block(dev).map_err(|cause| DeviceError::NotInSysfs { major, minor, cause })
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("sys", &self.sys).finish_non_exhaustive()
    }
}

/// A way down, and what was found on it.
struct Walk<'a> {
    devices: &'a Devices,
    disks: BTreeMap<u64, Disk>,
    levels: Vec<Level>,
}

/// The devices found so many steps down.
#[derive(Default)]
struct Level {
    names: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    fn new(devices: &'a Devices) -> Walk<'a> {
        Walk { devices, disks: BTreeMap::new(), levels: Vec::new() }
    }

    /// Goes down from `block`; gives the byte of its disk where it begins, when it is one piece of one disk.
    fn down(&mut self, block: &SysBlock, depth: usize) -> Option<u64> {
        self.note(block, depth);
        if depth == DEPTH_MAX {
            self.bottom(block, false);
            return None;
        }
        if let Some((whole, start)) = block.partition() {
            return self.down(&whole, depth + 1)?.checked_add(start);
        }
        let slaves = block.slaves();
        if !slaves.is_empty() {
            for slave in &slaves {
                self.down(slave, depth + 1);
            }
            return None;
        }
        if let Some(file) = block.backing_file() {
            self.down_to_file(block, &file, depth);
            return None;
        }
        // A layer without anything under it hides what it is made of.
        let is_disk = block.kind().is_none();
        self.bottom(block, is_disk && is_seekless(block));
        is_disk.then_some(0)
    }

    /// Goes on under the file of a loop device; ends at the loop device, as one that seeks, when there is no device.
    fn down_to_file(&mut self, block: &SysBlock, file: &Path, depth: usize) {
        let under = (self.devices.stat)(file).ok().and_then(|facts| self.blocks_of(facts));
        match under {
            Some(blocks) => blocks.iter().for_each(|under| {
                self.down(under, depth + 1);
            }),
            None => self.bottom(block, false),
        }
    }

    /// The devices that a file is on, or is.
    fn blocks_of(&self, facts: FileFacts) -> Option<Vec<SysBlock>> {
        let stack_dev = match facts {
            FileFacts { is_device: Some(dev), .. } => dev,
            FileFacts { dev, .. } if dev_numbers(dev).0 != 0 => dev,
            FileFacts { mnt_id, .. } => {
                let mount = self.devices.mounts.by_id(mnt_id?)?;
                self.devices.device_of_mount(mount).ok()?
            }
        };
        let block = self.devices.sys.block(stack_dev).ok()?;
        let members = self.devices.sys.btrfs_members(&block.name);
        Some(if members.is_empty() { vec![block] } else { members })
    }

    fn note(&mut self, block: &SysBlock, depth: usize) {
        if self.levels.len() <= depth {
            self.levels.resize_with(depth + 1, Level::default);
        }
        let level = &mut self.levels[depth];
        level.names.insert(block.name.clone());
        level.kinds.extend(block.kind());
    }

    fn bottom(&mut self, block: &SysBlock, seekless: bool) {
        let disk = Disk {
            dev: block.dev,
            name: block.name.clone(),
            rotational: block.rotational(),
            size: block.size_bytes(),
            seekless,
        };
        self.disks.insert(block.dev, disk);
    }

    fn into_stack(self, block: &SysBlock, base: Option<u64>, members: usize) -> DeviceStack {
        let layer = |level: Level| Layer {
            names: level.names.into_iter().collect(),
            kind: (!level.kinds.is_empty()).then(|| level.kinds.into_iter().collect::<Vec<_>>().join(", ")),
        };
        DeviceStack {
            dev: block.dev,
            name: block.name.clone(),
            node: block.node(),
            mapper_node: block.mapper_node(),
            size: block.size_bytes(),
            logical_block: block.logical_block_bytes().unwrap_or(512),
            disks: self.disks.into_values().collect(),
            base,
            through: self.levels.into_iter().map(layer).collect(),
            members,
        }
    }
}

/// Whether a disk is known to read from anywhere at the same cost.
fn is_seekless(disk: &SysBlock) -> bool {
    match kind_of_disk(&disk.name) {
        Some(DiskKind::Memory) => true,
        Some(DiskKind::Real) => disk.rotational() == Some(false),
        None => false,
    }
}

/// What the name of a disk tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskKind {
    /// Memory, whatever it says of itself.
    Memory,
    /// A disk whose driver asks it whether it rotates; that of a virtual machine passes on what its host knows.
    Real,
}

fn kind_of_disk(name: &str) -> Option<DiskKind> {
    // A kind and then what tells one disk of it from the next: a number, or letters.
    let numbered =
        |kind: &str| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let lettered =
        |kind: &str| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    if ["zram", "ram", "pmem"].into_iter().any(numbered) {
        Some(DiskKind::Memory)
    } else if ["nvme", "mmcblk"].into_iter().any(numbered) || ["sd", "vd", "xvd", "dasd"].into_iter().any(lettered) {
        Some(DiskKind::Real)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_from_whole_names() {
        for name in ["sda", "sdaa", "vda", "xvda", "dasda", "nvme0n1", "mmcblk0", "nvme0c0n1"] {
            assert_eq!(kind_of_disk(name), Some(DiskKind::Real), "{name}");
        }
        for name in ["ram0", "zram0", "pmem0", "pmem1s"] {
            assert_eq!(kind_of_disk(name), Some(DiskKind::Memory), "{name}");
        }
        for name in ["loop0", "nbd0", "rbd0", "zd0", "drbd0", "ublkb0", "sr0", "dm-0", "md0", "sd", "fd0", "rampart"] {
            assert_eq!(kind_of_disk(name), None, "{name}");
        }
    }
}
