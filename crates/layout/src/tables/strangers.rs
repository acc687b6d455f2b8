//! What is known by its first bytes and not read here: what holds file systems, and file systems of other kinds.

use super::{TableError, beginning::has};
use crate::block_read::BlockRead;

struct Stranger {
    at: u64,
    magic: &'static [u8],
    what: &'static str,
    advice: &'static str,
}

const MOUNT: &str = "mount it, and name its directory";

/// The first that fits counts.
const STRANGERS: [Stranger; 14] = [
    stranger(0, b"LUKS\xba\xbe", "a LUKS container", "open it by cryptsetup, and name what it becomes"),
    stranger(0, b"LABELONE", "a physical volume of LVM", VOLUMES),
    stranger(512, b"LABELONE", "a physical volume of LVM", VOLUMES),
    stranger(1024, b"LABELONE", "a physical volume of LVM", VOLUMES),
    stranger(1536, b"LABELONE", "a physical volume of LVM", VOLUMES),
    stranger(4096, b"\xfc\x4e\x2b\xa9", "a part of a RAID", "assemble it by mdadm, and name what it becomes"),
    stranger(4086, b"SWAPSPAC", "swap space", "it holds no files"),
    stranger(3, b"EXFAT   ", "an exFAT file system", MOUNT),
    stranger(82, b"FAT32   ", "a FAT file system", MOUNT),
    stranger(54, b"FAT16   ", "a FAT file system", MOUNT),
    stranger(54, b"FAT12   ", "a FAT file system", MOUNT),
    stranger(1024, b"\x10\x20\xf5\xf2", "an F2FS file system", MOUNT),
    stranger(0, b"hsqs", "a squashfs file system", MOUNT),
    stranger(32769, b"CD001", "an ISO 9660 file system", MOUNT),
];

const VOLUMES: &str = "name one of its logical volumes (lvs)";

const fn stranger(at: u64, magic: &'static [u8], what: &'static str, advice: &'static str) -> Stranger {
    Stranger { at, magic, what, advice }
}

/// The error for what begins at byte 0, where that is known.
pub(super) fn refusal(device: &(impl BlockRead + ?Sized)) -> Option<TableError> {
    let found = STRANGERS.iter().find(|stranger| has(device, (stranger.at, stranger.magic)))?;
    Some(TableError::Stranger { what: found.what, advice: found.advice })
}
