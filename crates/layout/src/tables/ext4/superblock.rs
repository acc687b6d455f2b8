//! The superblock: geometry and features.

use bitflags::bitflags;

use super::{
    backup,
    checksum::crc32c,
    fields::{le16, le32},
};
use crate::{
    block_read::BlockRead,
    tables::{CUT_SHORT, Sign, TableError, VolumeFacts, cast::to_u32, hexadecimal},
};

/// Where the first superblock begins, in bytes.
pub(super) const AT: u64 = 1024;
/// Where the incompatible features are.
pub(super) const INCOMPATIBLE_AT: u64 = AT + 0x60;
/// Where the inodes of the orphans are named: the first of them, and the file that has others.
pub(super) const LAST_ORPHAN_AT: u64 = AT + 0xE8;
pub(super) const ORPHAN_FILE_AT: u64 = AT + 0x280;
/// Its bytes.
pub(super) const BYTES: usize = 1024;

pub(super) const MAGIC: u16 = 0xEF53;
/// A bit of the state.
const UNMOUNTED: u16 = 1;

/// Systems that make file systems.
pub(super) const LINUX: u32 = 0;
pub(super) const HURD: u32 = 1;

bitflags! {
    /// Features of which a reader needs to know nothing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Compatible: u32 {
        const HAS_JOURNAL = 0x4;
        const DIR_INDEX = 0x20;
        const SPARSE_SUPER2 = 0x200;
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }

    /// Features that only a writer has to know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct ReadOnlyCompatible: u32 {
        const SPARSE_SUPER = 0x1;
        const LARGE_FILE = 0x2;
        const BTREE_DIR = 0x4;
        const HUGE_FILE = 0x8;
        const GDT_CSUM = 0x10;
        const DIR_NLINK = 0x20;
        const BIGALLOC = 0x200;
        const METADATA_CSUM = 0x400;
        const SHARED_BLOCKS = 0x4000;
        const _ = !0;
    }

    /// Features without which nothing can be read right.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Incompatible: u32 {
        const FILETYPE = 0x2;
        const NEEDS_RECOVERY = 0x4;
        const META_BG = 0x10;
        const EXTENT = 0x40;
        const BITS_64 = 0x80;
        const MMP = 0x100;
        const FLEX_BG = 0x200;
        const EA_INODE = 0x400;
        const CSUM_SEED = 0x2000;
        const LARGE_DIR = 0x4000;
        const INLINE_DATA = 0x8000;
        const ENCRYPT = 0x1_0000;
        const CASEFOLD = 0x2_0000;
    }
}

/// What the superblock says.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) inodes: u32,
    pub(super) blocks: u64,
    pub(super) free_inodes: u32,
    /// The block where group 0 begins.
    pub(super) first_data_block: u32,
    pub(super) block_bytes: u32,
    pub(super) cluster_bytes: u32,
    pub(super) blocks_per_group: u32,
    pub(super) inodes_per_group: u32,
    pub(super) groups: u32,
    pub(super) inode_bytes: usize,
    /// Numbers below it have purposes of their own.
    pub(super) first_inode: u32,
    /// The system that made it.
    pub(super) creator: u32,
    pub(super) compatible: Compatible,
    pub(super) read_only: ReadOnlyCompatible,
    pub(super) incompatible: Incompatible,
    pub(super) uuid: [u8; 16],
    pub(super) label: String,
    pub(super) descriptor_bytes: usize,
    pub(super) first_meta_bg: u32,
    /// Blocks behind the group descriptors that are kept for more of them.
    pub(super) reserved_descriptor_blocks: u16,
    /// Blocks that a directory may have behind its end.
    pub(super) kept_directory_blocks: u8,
    /// It was unmounted, or a journal tells what its tables are.
    pub(super) is_whole: bool,
    pub(super) backup_groups: [u32; 2],
    pub(super) hash_version: u8,
    pub(super) hash_unsigned: bool,
    /// It says which of both hashes names have whose bytes are negative in one of them.
    pub(super) has_hash_sign: bool,
    pub(super) hash_seed: [u8; 16],
    /// Where every CRC-32C but that of the superblock begins.
    pub(super) checksum_seed: u32,
    pub(super) journal_inode: u32,
    pub(super) last_orphan: u32,
    pub(super) orphan_file: u32,
    /// Inodes of quotas: of users, groups and projects; 0 where there is none.
    quota_inodes: [u32; 3],
}

impl Superblock {
    /// Reads the first superblock of a device.
    pub(super) fn read(device: &impl BlockRead) -> Result<Superblock, TableError> {
        let mut bytes = vec![0; BYTES];
        let absent = |found| TableError::NotHere { fs_type: "ext4", what: "magic number 53 ef", at: AT + 0x38, found };
        if device.len() < AT + BYTES as u64 {
            return Err(absent(format!("a device of {} bytes", device.len())));
        }
        let read = device.read_at(&mut bytes, AT);
        read.map_err(|source| TableError::Io { at: AT, length: BYTES as u64, source })?;
        if le16(&bytes, 0x38) != MAGIC {
            return Err(match backup::advice(device, &bytes) {
                Some(advice) => {
                    let found = format!("{:#06x}; {advice}", le16(&bytes, 0x38));
                    TableError::damaged("the magic number of the superblock", AT + 0x38, format!("{MAGIC:#06x}"), found)
                }
                None => absent(hexadecimal(&bytes[0x38..0x3A])),
            });
        }
        Superblock::parse(&bytes, device.len()).map_err(|error| match (error, backup::advice(device, &bytes)) {
            // A copy that says the same is of no help.
            (error, _) if error.to_string().ends_with(CUT_SHORT) && backup::has_size_of(device, &bytes) => error,
            (TableError::Damaged { what, at, expected, found }, Some(advice)) => {
                TableError::damaged(what, at, expected, format!("{found}; {advice}"))
            }
            (error, _) => error,
        })
    }

    /// What 1024 bytes say, on a device of `device_bytes`.
    pub(super) fn parse(bytes: &[u8], device_bytes: u64) -> Result<Superblock, TableError> {
        let at = |offset: u64| AT + offset;
        let raw_incompatible = le32(bytes, 0x60);
        refuse_unknown(raw_incompatible)?;
        let read_only = ReadOnlyCompatible::from_bits_retain(le32(bytes, 0x64));
        let incompatible = Incompatible::from_bits_truncate(raw_incompatible);
        let checksummed = read_only.contains(ReadOnlyCompatible::METADATA_CSUM);
        if checksummed {
            let (expected, found) = (crc32c(!0, &bytes[..0x3FC]), le32(bytes, 0x3FC));
            if expected != found {
                let (expected, found) = (format!("{expected:#010x}"), format!("{found:#010x}"));
                return Err(TableError::damaged("the checksum of the superblock", at(0x3FC), expected, found));
            }
        }
        let block_bytes = shifted("the block size", le32(bytes, 0x18), 6, at(0x18))?;
        let cluster_bytes = match read_only.contains(ReadOnlyCompatible::BIGALLOC) {
            true => shifted("the cluster size", le32(bytes, 0x1C), 19, at(0x1C))?,
            false => block_bytes,
        };
        let wide = incompatible.contains(Incompatible::BITS_64);
        let blocks = u64::from(le32(bytes, 4)) | if wide { u64::from(le32(bytes, 0x150)) << 32 } else { 0 };
        let held = device_bytes / u64::from(block_bytes);
        if blocks == 0 || blocks > held {
            let found = format!("{blocks}{}", if blocks > held { CUT_SHORT } else { "" });
            return Err(TableError::damaged("the number of blocks", at(4), format!("1 to {held}"), found));
        }
        let first_data_block = le32(bytes, 0x14);
        if u64::from(first_data_block) >= blocks || first_data_block > 1 {
            return Err(TableError::damaged("the first data block", at(0x14), "0 or 1", first_data_block));
        }
        let revision = le32(bytes, 0x4C);
        if revision > 1 {
            return Err(TableError::damaged("the revision", at(0x4C), "0 or 1", revision));
        }
        let dynamic = revision > 0;
        let inode_bytes: usize = if dynamic { le16(bytes, 0x58).into() } else { 128 };
        if !inode_bytes.is_power_of_two() || !(128..=block_bytes as usize).contains(&inode_bytes) {
            return Err(TableError::damaged("the inode size", at(0x58), "128 to a block, a power of 2", inode_bytes));
        }
        let descriptor_bytes: usize = if wide { le16(bytes, 0xFE).into() } else { 32 };
        if !descriptor_bytes.is_power_of_two()
            || !(32..=1024).contains(&descriptor_bytes)
            || wide && descriptor_bytes < 64
        {
            return Err(TableError::damaged("the size of group descriptors", at(0xFE), "64 to 1024", descriptor_bytes));
        }
        // One bitmap block stands for a group, with a bit for each cluster.
        let per_group = u64::from(block_bytes) * 8;
        let blocks_per_group = le32(bytes, 0x20);
        if !(256..=per_group * u64::from(cluster_bytes / block_bytes)).contains(&blocks_per_group.into()) {
            return Err(TableError::damaged(
                "the number of blocks of a group",
                at(0x20),
                "a bitmap's",
                blocks_per_group,
            ));
        }
        let inodes_per_group = le32(bytes, 0x28);
        if inodes_per_group == 0 || u64::from(inodes_per_group) > per_group {
            let expected = format!("1 to {per_group}");
            return Err(TableError::damaged("the number of inodes of a group", at(0x28), expected, inodes_per_group));
        }
        let groups = (blocks - u64::from(first_data_block)).div_ceil(blocks_per_group.into());
        let inodes = le32(bytes, 0);
        if groups * u64::from(inodes_per_group) != inodes.into() {
            let expected = groups * u64::from(inodes_per_group);
            return Err(TableError::damaged("the number of inodes", at(0), expected, inodes));
        }
        let bytes16 = |at: usize| bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or_default();
        let uuid: [u8; 16] = bytes16(0x68);
        let label = bytes16(0x78);
        let label = label.split(|&byte| byte == 0).next().unwrap_or_default();
        let flags = le32(bytes, 0x160);
        Ok(Superblock {
            inodes,
            blocks,
            free_inodes: le32(bytes, 0x10),
            first_data_block,
            block_bytes,
            cluster_bytes,
            blocks_per_group,
            inodes_per_group,
            groups: to_u32(groups),
            inode_bytes,
            first_inode: if dynamic { le32(bytes, 0x54) } else { 11 },
            creator: le32(bytes, 0x48),
            compatible: Compatible::from_bits_retain(le32(bytes, 0x5C)),
            read_only,
            incompatible,
            uuid,
            label: String::from_utf8_lossy(label).into_owned(),
            descriptor_bytes,
            first_meta_bg: le32(bytes, 0x104),
            reserved_descriptor_blocks: le16(bytes, 0xCE),
            kept_directory_blocks: bytes[0xCD],
            is_whole: le16(bytes, 0x3A) & UNMOUNTED != 0 || le32(bytes, 0x5C) & Compatible::HAS_JOURNAL.bits() != 0,
            backup_groups: [le32(bytes, 0x24C), le32(bytes, 0x250)],
            hash_version: bytes[0xFC],
            // Without either flag it is as the machine has it: signed on most.
            hash_unsigned: flags & 2 != 0,
            has_hash_sign: flags & 3 != 0,
            hash_seed: bytes16(0xEC),
            checksum_seed: match incompatible.contains(Incompatible::CSUM_SEED) {
                true => le32(bytes, 0x270),
                false => crc32c(!0, &uuid),
            },
            journal_inode: le32(bytes, 0xE0),
            last_orphan: le32(bytes, 0xE8),
            orphan_file: le32(bytes, 0x280),
            quota_inodes: [le32(bytes, 0x240), le32(bytes, 0x244), le32(bytes, 0x26C)],
        })
    }

    /// One without features, of blocks of 1 KiB in one group.
    #[cfg(test)]
    pub(super) fn for_tests(blocks: u32) -> Superblock {
        let bytes = tests::bytes(&[(4, blocks)]);
        Superblock::parse(&bytes, u64::from(blocks) * 1024).expect("a sound superblock")
    }

    /// Whether metadata carry a CRC-32C.
    pub(super) fn is_checksummed(&self) -> bool {
        self.read_only.contains(ReadOnlyCompatible::METADATA_CSUM)
    }

    /// Whether group descriptors are checked, and so their notes of what is unused can be believed.
    pub(super) fn has_group_checksums(&self) -> bool {
        self.read_only.intersects(ReadOnlyCompatible::METADATA_CSUM | ReadOnlyCompatible::GDT_CSUM)
    }

    /// Whether a group has a copy of the superblock.
    pub(super) fn has_backup(&self, group: u64) -> bool {
        if group == 0 {
            return true;
        }
        if self.compatible.contains(Compatible::SPARSE_SUPER2) {
            return self.backup_groups.map(u64::from).contains(&group);
        }
        let power = |of: u64| {
            let mut left = group;
            while left.is_multiple_of(of) {
                left /= of;
            }
            left == 1
        };
        !self.read_only.contains(ReadOnlyCompatible::SPARSE_SUPER) || group == 1 || power(3) || power(5) || power(7)
    }

    /// Whether an inode serves the file system alone, and is no file.
    pub(super) fn is_special(&self, inode: u32) -> bool {
        const ROOT: u32 = 2;
        inode < self.first_inode.max(11) && inode != ROOT
            || inode == self.journal_inode && self.compatible.contains(Compatible::HAS_JOURNAL)
            || inode == self.orphan_file && self.compatible.contains(Compatible::ORPHAN_FILE)
            || self.quota_inodes.contains(&inode)
    }

    /// What is told of the file system.
    pub(super) fn facts(&self) -> VolumeFacts {
        let old_incompatible = Incompatible::FILETYPE | Incompatible::NEEDS_RECOVERY | Incompatible::META_BG;
        let old_read_only =
            ReadOnlyCompatible::SPARSE_SUPER | ReadOnlyCompatible::LARGE_FILE | ReadOnlyCompatible::BTREE_DIR;
        let fs_type = if !old_incompatible.contains(self.incompatible) || !old_read_only.contains(self.read_only) {
            "ext4"
        } else if self.compatible.contains(Compatible::HAS_JOURNAL) {
            "ext3"
        } else {
            "ext2"
        };
        VolumeFacts {
            fs_type,
            label: self.label.clone(),
            block_bytes: self.block_bytes,
            bytes: self.blocks * u64::from(self.block_bytes),
            root: 2,
            inodes_used: self.inodes.checked_sub(self.free_inodes).map(u64::from),
            is_replayed: false,
            is_dirty: false,
            compression_unit_bytes: 0,
        }
    }
}

/// 1024 bytes shifted, by `most` at most.
fn shifted(what: &str, shift: u32, most: u32, at: u64) -> Result<u32, TableError> {
    if shift <= most {
        return Ok(1024 << shift);
    }
    Err(TableError::damaged(what, at, format!("1024 shifted by 0 to {most}"), format!("by {shift}")))
}

/// Refuses features that aren't known, by the names that tune2fs has for them.
fn refuse_unknown(incompatible: u32) -> Result<(), TableError> {
    let unknown = incompatible & !Incompatible::all().bits();
    if unknown == 0 {
        return Ok(());
    }
    let names = (0..32).filter(|bit| unknown >> bit & 1 == 1).map(|bit| match bit {
        0 => "compression".to_owned(),
        3 => "journal_dev".to_owned(),
        12 => "dirdata".to_owned(),
        _ => format!("FEATURE_I{bit}"),
    });
    let advice = match unknown {
        0x8 => "name the device of the file system, not that of its journal",
        _ => "mount it, if the kernel knows it",
    };
    let known = format!("no bits but {:#x}", Incompatible::all().bits());
    let sign = Some(Sign::new(INCOMPATIBLE_AT, known, format!("{incompatible:#x}")));
    Err(TableError::Unsupported { feature: names.collect::<Vec<_>>().join(", "), sign, advice })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One without features, of blocks of 1 KiB in one group, but for these fields.
    pub(in crate::tables::ext4) fn bytes(fields: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        let sound =
            [(0, 64), (4, 1000), (0x14, 1), (0x20, 8192), (0x28, 64), (0x38, MAGIC.into()), (0x4C, 1), (0x54, 11)];
        for (at, value) in sound.iter().chain(&[(0x58, 128)]).chain(fields) {
            bytes[*at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn parsed(fields: &[(usize, u32)]) -> Result<Superblock, String> {
        Superblock::parse(&bytes(fields), 1 << 20).map_err(|error| error.to_string())
    }

    #[test]
    fn geometry_that_makes_no_sense_is_refused() {
        assert_eq!(parsed(&[]).unwrap().groups, 1);
        for (at, value, what) in [
            (0x18, 7, "block size"),
            (4, 0, "number of blocks"),
            (4, 1025, "number of blocks"),
            (0x14, 1000, "first data block"),
            (0x58, 100, "inode size"),
            (0x58, 2048, "inode size"),
            (0x20, 8193, "blocks of a group"),
            (0x20, 0, "blocks of a group"),
            (0x28, 0, "inodes of a group"),
            (0, 65, "number of inodes"),
            (0x64, 0x400, "checksum"),
        ] {
            let error = parsed(&[(at, value)]).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn groups_with_copies() {
        let with = |fields: &[(usize, u32)]| {
            let superblock = parsed(fields).unwrap();
            (0..60).filter(|&group| superblock.has_backup(group)).collect::<Vec<_>>()
        };
        assert_eq!(with(&[]).len(), 60);
        assert_eq!(with(&[(0x64, 1)]), [0, 1, 3, 5, 7, 9, 25, 27, 49]);
        assert_eq!(with(&[(0x5C, 0x200), (0x24C, 1), (0x250, 50)]), [0, 1, 50]);
    }
}
