//! The metadata of a mounted ext4 through its buffered device, whose page cache the kernel keeps it in.

use std::{
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use onesweep_layout::tables::ext4::{Ext4, Needs};
use onesweep_sys::{files, memory};

use crate::progress::Cancel;

/// The inode of the root directory.
const ROOT: u64 = 2;

/// An ext2, ext3 or ext4 that is mounted.
#[derive(Debug)]
pub(super) struct MountedExt4 {
    pub(super) node: PathBuf,
    pub(super) needs: Needs,
}

impl MountedExt4 {
    /// Reads the tables and what they tell of; nothing where much of it is in memory already, where it would not fit there,
    /// or when it can't be read. With `always` only the last two count.
    pub(super) fn bring_in(&self, directory: BorrowedFd<'_>, always: bool, cancel: &Cancel) {
        let Ok(stat) = files::statx_fd(directory) else { return };
        if !always && stat.ino != ROOT {
            return;
        }
        let Ok(tables) = Ext4::of_mounted(&self.node, stat.dev) else { return };
        let most = memory::available_bytes().unwrap_or(0) / 2;
        if tables.table_bytes() <= most && (always || !tables.is_mostly_cached()) {
            tables.bring_in(self.needs, most, &|| !cancel.is_cancelled());
        }
    }
}

/// Why the device can't be read, if it can't.
pub(super) fn refusal(node: &Path, dev: u64) -> Option<String> {
    let error = Ext4::of_mounted(node, dev).err()?;
    let advice = if error.kind() == io::ErrorKind::PermissionDenied { "; be root, or use --metadata auto" } else { "" };
    Some(format!("cannot read the tables on {}: {error}{advice}", node.display()))
}
