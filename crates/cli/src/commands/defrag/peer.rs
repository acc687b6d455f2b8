//! `--peer`: what is moved comes from a server that has it, where that is quicker.
//!
//! The kernel reads what it moves through the file system (ext4), or is handed what was read through it (XFS). So it is the
//! device of the file system whose reads have to be raced, and `onesweep peer mount --device` does that: with the hashes of the
//! index, and the disk for whatever no server has.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use onesweep_layout::{device::Devices, mounts::MountTable};
use onesweep_peer::mount::SHOWN;
use onesweep_sys::files::dev_numbers;

use crate::report::Failure;

/// Refuses a directory where nobody races the reads of any device below: of a btrfs there may be several.
pub(super) fn is_raced(path: &Path) -> Result<(), Failure> {
    let look = |error| Failure::io(path, "look at its mount", &error);
    let mounts = MountTable::read_or_say().map_err(look)?;
    let devices = Devices::of_system().map_err(look)?;
    let whole = path.canonicalize().map_err(look)?;
    // Below the file that is shown there is no device that could be told, so the loop device on it is the last.
    let below = mounts.of_path(&whole).and_then(|mount| devices.by_mount(mount).ok()).map(|stack| stack.disks);
    let mut files = below.into_iter().flatten().filter_map(|disk| file_below(disk.dev).ok());
    if files.any(|file| is_shown(&mounts, &file)) {
        return Ok(());
    }
    let why = "reads of its device are not raced, so all would come from the disk; mount the file system by onesweep peer mount \
               --device DEVICE --mount MNT DIR, and name a directory below MNT";
    Err(Failure::could_not_run(path, "take blocks from a peer", why))
}

/// The file on which a loop device stands.
fn file_below(device: u64) -> io::Result<PathBuf> {
    let (major, minor) = dev_numbers(device);
    let mut bytes = fs::read(format!("/sys/dev/block/{major}:{minor}/loop/backing_file"))?;
    bytes.truncate(bytes.trim_ascii_end().len());
    Ok(OsString::from_vec(bytes).into())
}

fn is_shown(mounts: &MountTable, file: &Path) -> bool {
    mounts.of_path(file).is_some_and(|mount| mount.fs_type.starts_with("fuse") && mount.source == SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_shown_is_told_from_others() {
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /run/shown rw - fuse onesweep-peer rw\n\
            3 1 0:51 / /mnt rw - fuse sshfs rw\n";
        let mounts = MountTable::parse(table.as_bytes()).unwrap();
        let is_shown = |file: &str| is_shown(&mounts, Path::new(file));
        assert!(is_shown("/run/shown/block"));
        assert!(!is_shown("/home/disk.img") && !is_shown("/mnt/block") && !is_shown("/run/block"));
    }
}
