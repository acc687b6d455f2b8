//! What `/sys` says of block devices.
//!
//! The root is a parameter, so that recorded trees of machines that the tests do not run on can be asked.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use onesweep_sys::files::{dev_numbers, makedev};

/// Bytes of the unit in which `/sys` counts, whatever the device.
const SECTOR_BYTES: u64 = 512;

/// A mounted `sysfs`, or a recording of one.
#[derive(Clone, Debug)]
pub struct SysTree {
    root: PathBuf,
}

impl Default for SysTree {
    /// The one of this machine.
    fn default() -> SysTree {
        SysTree::at("/sys")
    }
}

impl SysTree {
    /// The tree at `root`, mostly `/sys`.
    pub fn at(root: impl Into<PathBuf>) -> SysTree {
        SysTree { root: root.into() }
    }

    /// The block device with this number. `NotFound` for anonymous devices (major 0) and those not shown here, as in
    /// a container without `/sys`.
    pub fn block(&self, dev: u64) -> io::Result<SysBlock> {
        let (major, minor) = dev_numbers(dev);
        SysBlock::at(&self.root.join(format!("dev/block/{major}:{minor}")))
    }

    /// The devices of the btrfs that the device of this name (such as `sda2`) belongs to; empty when it is of none
    /// that is mounted.
    pub fn btrfs_members(&self, name: &str) -> Vec<SysBlock> {
        for fs in list(&self.root.join("fs/btrfs")) {
            let devices = fs.join("devices");
            if devices.join(name).exists() {
                return list(&devices).iter().filter_map(|path| SysBlock::at(path).ok()).collect();
            }
        }
        Vec::new()
    }
}

/// One block device: a disk, a partition, or a layer on top of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysBlock {
    dir: PathBuf,
    /// Its number.
    pub dev: u64,
    /// The kernel's name for it, such as `sda1` or `dm-0`; also that of its node in `/dev`.
    pub name: String,
}

impl SysBlock {
    /// The device whose directory, or a link to it, is `path`.
    fn at(path: &Path) -> io::Result<SysBlock> {
        let dir = fs::canonicalize(path)?;
        let uevent = fs::read_to_string(dir.join("uevent")).unwrap_or_default();
        let told = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let dev = match (told("MAJOR").map(str::parse), told("MINOR").map(str::parse)) {
            (Some(Ok(major)), Some(Ok(minor))) => makedev(major, minor),
            _ => parse_dev(fs::read_to_string(dir.join("dev"))?.trim()).ok_or(io::ErrorKind::InvalidData)?,
        };
        let name = match (told("DEVNAME"), dir.file_name()) {
            (Some(name), _) => name.to_owned(),
            // A slash in a name (cciss/c0d0) is a bang in the name of a directory.
            (None, Some(name)) => name.to_string_lossy().replace('!', "/"),
            (None, None) => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(SysBlock { dir, dev, name })
    }

    /// The node in `/dev`.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// The node in `/dev/mapper` of a device of device-mapper, which has the name that its maker gave it.
    pub fn mapper_node(&self) -> Option<PathBuf> {
        let name = self.text("dm/name").filter(|name| !name.is_empty())?;
        Some(Path::new("/dev/mapper").join(name))
    }

    /// Bytes.
    pub fn size_bytes(&self) -> u64 {
        self.number("size").unwrap_or(0).saturating_mul(SECTOR_BYTES)
    }

    /// For a partition: the device that it is a part of, and the byte of it where the partition begins.
    pub fn partition(&self) -> Option<(SysBlock, u64)> {
        if !self.dir.join("partition").exists() {
            return None;
        }
        let whole = SysBlock::at(self.dir.parent()?).ok()?;
        Some((whole, self.number("start")?.saturating_mul(SECTOR_BYTES)))
    }

    /// The devices that this one is made of (LVM, dm, md, bcache), in the order of their names.
    pub fn slaves(&self) -> Vec<SysBlock> {
        let mut slaves: Vec<SysBlock> =
            list(&self.dir.join("slaves")).iter().filter_map(|path| SysBlock::at(path).ok()).collect();
        slaves.sort_by(|a, b| a.name.cmp(&b.name));
        slaves
    }

    /// For a loop device: the path of its file, as it was when the device was set up.
    pub fn backing_file(&self) -> Option<PathBuf> {
        let mut bytes = fs::read(self.dir.join("loop/backing_file")).ok()?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        Some(OsString::from_vec(bytes).into())
    }

    /// For a loop device: the byte of its file that is its first.
    pub fn backing_offset(&self) -> u64 {
        self.number("loop/offset").unwrap_or(0)
    }

    /// Whether it claims to rotate. A hint, not a proof: virtual disks say 1, a loop device on a FUSE file says 0.
    pub fn rotational(&self) -> Option<bool> {
        self.queue("rotational").map(|value| value != 0)
    }

    /// Bytes that a request must be a multiple of.
    pub fn logical_block_bytes(&self) -> Option<u32> {
        self.queue("logical_block_size").and_then(|bytes| bytes.try_into().ok())
    }

    /// What kind of layer it is, in a word for people.
    pub fn kind(&self) -> Option<String> {
        if let Some(uuid) = self.text("dm/uuid") {
            return Some(dm_kind(&uuid).to_owned());
        }
        if let Some(level) = self.text("md/level") {
            return Some(format!("md {level}"));
        }
        if self.name.starts_with("bcache") {
            return Some("bcache".to_owned());
        }
        self.dir.join("loop").exists().then(|| "loop".to_owned())
    }

    /// A value of the request queue; partitions use that of their disk.
    fn queue(&self, name: &str) -> Option<u64> {
        let name = format!("queue/{name}");
        self.number(&name).or_else(|| self.partition()?.0.number(&name))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn text(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.dir.join(name)).ok()?.trim().to_owned())
    }
}

/// What made a device-mapper device, from the beginning of its uuid.
fn dm_kind(uuid: &str) -> &'static str {
    match uuid.split('-').next() {
        Some("LVM") => "LVM",
        Some("CRYPT") => "crypt",
        Some("mpath") => "multipath",
        Some(part) if part.starts_with("part") => "partition",
        _ => "dm",
    }
}

fn parse_dev(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// What is in a directory; nothing when it cannot be read.
fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dm_kinds_come_from_the_uuid() {
        assert_eq!(dm_kind("LVM-abcDEF"), "LVM");
        assert_eq!(dm_kind("CRYPT-LUKS2-0123-home"), "crypt");
        assert_eq!(dm_kind("part1-mpath-3600"), "partition");
        assert_eq!(dm_kind("mpath-3600"), "multipath");
        assert_eq!(dm_kind(""), "dm");
    }

    #[test]
    fn anonymous_devices_are_not_there() {
        assert_eq!(SysTree::default().block(makedev(0, 45)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
