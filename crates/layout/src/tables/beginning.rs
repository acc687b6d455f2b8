//! What begins somewhere, by its first bytes. Two bytes of a magic stand in many a file by chance, so the fields beside it are
//! looked at as well; one of them may be damaged.

use super::ntfs;
use crate::block_read::BlockRead;

/// What begins in a file or on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Nothing that is known.
    Unknown,
    /// The magic of a file system that is read, among bytes that are none of its fields.
    Doubtful,
    /// A file system that is read.
    FileSystem,
    /// A btrfs.
    Btrfs,
    /// An image in the format of QEMU.
    Qcow2,
}

/// A file system that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ext4,
    Xfs,
    Ntfs,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Ntfs];

    fn magic(self) -> (u64, &'static [u8]) {
        match self {
            Kind::Ext4 => (1080, b"\x53\xef"),
            Kind::Xfs => (0, b"XFSB"),
            Kind::Ntfs => (3, b"NTFS    "),
        }
    }

    pub(super) fn has_magic(self, device: &(impl BlockRead + ?Sized)) -> bool {
        has(device, self.magic())
    }

    /// Whether its fields are, all but one at most, what they can be.
    fn is_plausible(self, device: &(impl BlockRead + ?Sized)) -> bool {
        let mut start = [0; 2048];
        let length = device.len().min(2048) as usize;
        if device.read_at(&mut start[..length], 0).is_err() {
            return false;
        }
        let wrong = |fields: &[bool]| fields.iter().filter(|is_possible| !**is_possible).count();
        let at_most_one = match self {
            Kind::Ext4 => wrong(&ext4_fields(&start[1024..])),
            Kind::Xfs => wrong(&xfs_fields(&start)),
            Kind::Ntfs => wrong(&ntfs_fields(&start)),
        };
        at_most_one <= 1
    }
}

/// Where btrfs keeps its magic.
pub(super) const BTRFS_MAGIC: (u64, &[u8]) = (0x1_0040, b"_BHRfS_M");
const QCOW2_MAGIC: (u64, &[u8]) = (0, b"QFI\xfb");

/// What begins at byte 0. Reads the first 68 KiB, and where an NTFS may have lost its first sector, the last one.
pub fn beginning(device: &(impl BlockRead + ?Sized)) -> Beginning {
    if has(device, BTRFS_MAGIC) {
        return Beginning::Btrfs;
    }
    if has(device, QCOW2_MAGIC) {
        return Beginning::Qcow2;
    }
    let shown: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.has_magic(device)).collect();
    match shown.iter().any(|kind| kind.is_plausible(device)) {
        true => Beginning::FileSystem,
        false if !shown.is_empty() => Beginning::Doubtful,
        false if ntfs::has_backup_alone(device) => Beginning::FileSystem,
        false => Beginning::Unknown,
    }
}

pub(super) fn is_btrfs(device: &(impl BlockRead + ?Sized)) -> bool {
    has(device, BTRFS_MAGIC)
}

pub(super) fn has(device: &(impl BlockRead + ?Sized), (at, magic): (u64, &[u8])) -> bool {
    let mut found = [0; 8];
    let found = &mut found[..magic.len()];
    device.read_at(found, at).is_ok() && *found == *magic
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or([0; N])
}

fn ext4_fields(superblock: &[u8]) -> [bool; 9] {
    let u32_at = |at| u32::from_le_bytes(array(superblock, at));
    [
        u32_at(0) > 0,                         // inodes
        u32_at(4) > 0,                         // blocks
        u32_at(0x14) <= 1,                     // the first data block
        u32_at(0x18) <= 6,                     // log2 of the kibibytes of a block
        u32_at(0x1C) <= 26,                    // the same of a cluster, or a fragment
        u32_at(0x20) > 0,                      // blocks of a group
        (1..=1 << 20).contains(&u32_at(0x28)), // inodes of a group
        u32_at(0x48) <= 4,                     // the system that made it
        u32_at(0x4C) <= 1,                     // the revision
    ]
}

fn xfs_fields(start: &[u8]) -> [bool; 6] {
    let u32_at = |at| u32::from_be_bytes(array(start, at));
    let u16_at = |at| u16::from_be_bytes(array(start, at));
    let is_power = |number: u32, most: u32| number.is_power_of_two() && (256..=most).contains(&number);
    [
        is_power(u32_at(4), 1 << 16),            // bytes of a block
        u64::from_be_bytes(array(start, 8)) > 0, // blocks
        u32_at(88) > 0,                          // allocation groups
        (1..=5).contains(&(u16_at(100) & 0xf)),  // the version
        is_power(u16_at(102).into(), 1 << 15),   // bytes of a sector
        is_power(u16_at(104).into(), 1 << 11),   // bytes of an inode
    ]
}

fn ntfs_fields(start: &[u8]) -> [bool; 4] {
    let sector_bytes = u16::from_le_bytes(array(start, 11));
    [
        matches!(start[0], 0xeb | 0xe9),
        sector_bytes.is_power_of_two() && (256..=4096).contains(&sector_bytes),
        start[510..512] == [0x55, 0xaa],
        u64::from_le_bytes(array(start, 40)).wrapping_sub(1) < 1 << 55, // sectors
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_magic_by_chance_is_doubtful() {
        let mut bytes = vec![0; 1 << 17];
        assert_eq!(beginning(&bytes), Beginning::Unknown);
        bytes[1080..1082].copy_from_slice(b"\x53\xef");
        assert_eq!(beginning(&bytes), Beginning::Doubtful, "among zeros");
        let text: Vec<u8> = b"any text, again ".iter().copied().cycle().take(1 << 17).collect();
        for (at, magic) in Kind::ALL.map(Kind::magic) {
            let mut bytes = text.clone();
            bytes[at as usize..][..magic.len()].copy_from_slice(magic);
            assert_eq!(beginning(&bytes), Beginning::Doubtful, "{at}");
            bytes.truncate(at as usize + magic.len());
            assert_eq!(beginning(&bytes), Beginning::Doubtful, "{at}, and no more");
        }
        assert_eq!(beginning(&Vec::new()), Beginning::Unknown);
        assert_eq!(beginning(&b"QFI\xfb".to_vec()), Beginning::Qcow2);
        let mut bytes = text;
        bytes[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
        assert_eq!(beginning(&bytes), Beginning::Btrfs);
    }

    #[test]
    fn one_damaged_field_leaves_a_file_system() {
        let mut bytes = vec![0; 1 << 17];
        let superblock = &mut bytes[1024..];
        for (at, value) in [(0, 1000_u32), (4, 4000), (0x18, 2), (0x1C, 2), (0x20, 32768), (0x28, 1000), (0x4C, 1)] {
            superblock[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        superblock[0x38..0x3A].copy_from_slice(b"\x53\xef");
        assert_eq!(beginning(&bytes), Beginning::FileSystem);
        bytes[1024 + 0x18] = 77;
        assert_eq!(beginning(&bytes), Beginning::FileSystem);
        bytes[1024 + 0x14] = 77;
        assert_eq!(beginning(&bytes), Beginning::Doubtful);
    }
}
