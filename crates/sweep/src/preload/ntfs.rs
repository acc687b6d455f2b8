//! The metadata of a mounted NTFS through its buffered device, through which `ntfs-3g` reads it too.

use std::os::fd::BorrowedFd;

use onesweep_layout::tables::ntfs::MountedNtfs;
use onesweep_sys::{files, memory};

use crate::progress::Cancel;

/// Reads the $MFT and the directories; nothing below another directory than the root, where much of it is in memory already, or
/// where it would not fit there. With `always` only the last counts.
pub(super) fn bring_in(tables: &MountedNtfs, directory: BorrowedFd<'_>, always: bool, cancel: &Cancel) {
    let Ok(stat) = files::statx_fd(directory) else { return };
    if !always && stat.ino != MountedNtfs::ROOT {
        return;
    }
    let most = memory::available_bytes().unwrap_or(0) / 2;
    if tables.table_bytes() <= most && (always || !tables.is_mostly_cached()) {
        tables.bring_in(most, &|| !cancel.is_cancelled());
    }
}
