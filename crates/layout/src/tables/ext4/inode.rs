//! Inodes as they lie in their tables.

use super::{
    checksum::crc32c,
    extents::{Mapped, Mapping},
    fields::{le16, le32},
    source::Source,
    superblock::{HURD, Incompatible, LINUX, ReadOnlyCompatible, Superblock},
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{Inode, InodeFlags, TableError, Timestamp},
};

/// Where an inode has the time of its deletion, or as an orphan the number of the next one.
pub(super) const SIZE_AT: u64 = 4;
pub(super) const DELETION_TIME_AT: usize = 0x14;
/// Where fragments of blocks were to be, which no kernel has.
pub(super) const FRAGMENT_AT: usize = 0x70;

pub(super) const COMPRESSED: u32 = 0x4;
pub(super) const ENCRYPTED: u32 = 0x800;
pub(super) const INDEXED: u32 = 0x1000;
const JOURNALED: u32 = 0x4000;
const HUGE_FILE: u32 = 0x4_0000;
pub(super) const HAS_EXTENTS: u32 = 0x8_0000;
/// Its content is the value of an extended attribute.
pub(super) const EA_INODE: u32 = 0x20_0000;
pub(super) const INLINE_DATA: u32 = 0x1000_0000;
pub(super) const CASEFOLD: u32 = 0x4000_0000;

/// The kinds of files, as in `st_mode`.
pub(super) mod kind {
    pub(in super::super) const MASK: u32 = 0o170_000;
    pub(in super::super) const FILE: u32 = 0o100_000;
    pub(in super::super) const DIRECTORY: u32 = 0o040_000;
    pub(in super::super) const SYMLINK: u32 = 0o120_000;
    pub(in super::super) const CHARACTER: u32 = 0o020_000;
    pub(in super::super) const BLOCK: u32 = 0o060_000;
}

/// The bytes of an inode, as many as the superblock says: 128 at least.
#[derive(Clone, Copy)]
pub(super) struct RawInode<'a> {
    pub(super) number: u32,
    pub(super) bytes: &'a [u8],
}

impl<'a> RawInode<'a> {
    pub(super) fn mode(&self) -> u32 {
        le16(self.bytes, 0).into()
    }

    pub(super) fn kind(&self) -> u32 {
        self.mode() & kind::MASK
    }

    pub(super) fn links(&self) -> u32 {
        le16(self.bytes, 0x1A).into()
    }

    pub(super) fn flags(&self) -> u32 {
        le32(self.bytes, 0x20)
    }

    pub(super) fn generation(&self) -> u32 {
        le32(self.bytes, 0x64)
    }

    /// For an orphan: the next one.
    pub(super) fn deletion_time(&self) -> u32 {
        le32(self.bytes, DELETION_TIME_AT)
    }

    /// Something that is always 0.
    pub(super) fn fragment(&self) -> u32 {
        le32(self.bytes, FRAGMENT_AT)
    }

    /// The 60 bytes of block numbers, extents or content.
    pub(super) fn block_field(&self) -> &'a [u8] {
        self.bytes.get(0x28..0x64).unwrap_or_default()
    }

    /// Bytes in use behind the first 128.
    pub(super) fn extra_bytes(&self) -> usize {
        le16(self.bytes, 0x80).into()
    }

    /// Whether the field that ends there is in use.
    fn has_extra(&self, end: usize) -> bool {
        end <= self.bytes.len().min(128 + self.extra_bytes())
    }

    pub(super) fn size(&self, superblock: &Superblock) -> u64 {
        let wide = self.kind() == kind::FILE || superblock.incompatible.contains(Incompatible::LARGE_DIR);
        u64::from(le32(self.bytes, 4)) | if wide { u64::from(le32(self.bytes, 0x6C)) << 32 } else { 0 }
    }

    /// The block of extended attributes, or 0.
    pub(super) fn xattr_block(&self, superblock: &Superblock) -> u64 {
        let wide = superblock.incompatible.contains(Incompatible::BITS_64) && superblock.creator != HURD;
        u64::from(le32(self.bytes, 0x68)) | if wide { u64::from(le16(self.bytes, 0x76)) << 32 } else { 0 }
    }

    /// Blocks as the inode counts them: of 512 bytes, or of the file system.
    fn counted_blocks(&self, superblock: &Superblock) -> u64 {
        let wide = superblock.read_only.contains(ReadOnlyCompatible::HUGE_FILE);
        u64::from(le32(self.bytes, 0x1C)) | if wide { u64::from(le16(self.bytes, 0x74)) << 32 } else { 0 }
    }

    pub(super) fn allocated(&self, superblock: &Superblock) -> u64 {
        let large = superblock.read_only.contains(ReadOnlyCompatible::HUGE_FILE) && self.flags() & HUGE_FILE != 0;
        self.counted_blocks(superblock) * if large { superblock.block_bytes.into() } else { 512 }
    }

    /// Where the checksums of its blocks begin.
    pub(super) fn seed(&self, superblock: &Superblock) -> u32 {
        let crc = crc32c(superblock.checksum_seed, &self.number.to_le_bytes());
        crc32c(crc, &self.generation().to_le_bytes())
    }

    /// Compares the checksum, where there is one, and the size of what is behind the first 128 bytes.
    pub(super) fn check<B: BlockRead>(&self, volume: &Volume<B>, at: u64) -> Result<(), TableError> {
        let bytes = self.bytes;
        if bytes.len() < 128 {
            return Err(TableError::damaged(format!("inode {}", self.number), at, "128 bytes", bytes.len()));
        }
        // The kernel keeps none where another system made the file system.
        if volume.superblock.is_checksummed() && volume.superblock.creator == LINUX {
            let crc = crc32c(self.seed(&volume.superblock), &bytes[..0x7C]);
            let mut crc = crc32c(crc32c(crc, &[0; 2]), &bytes[0x7E..128]);
            let mut found = u32::from(le16(bytes, 0x7C));
            let mut mask = 0xFFFF;
            if bytes.len() > 128 {
                if self.has_extra(0x84) {
                    found |= u32::from(le16(bytes, 0x82)) << 16;
                    mask = !0;
                    crc = crc32c(crc32c(crc32c(crc, &bytes[128..0x82]), &[0; 2]), &bytes[0x84..]);
                } else {
                    crc = crc32c(crc, &bytes[128..]);
                }
            }
            if crc & mask != found {
                let (expected, found) = (format!("{:#010x}", crc & mask), format!("{found:#010x}"));
                let what = format!("the checksum of inode {}", self.number);
                return Err(TableError::damaged(what, at + 0x7C, expected, found));
            }
        }
        let extra = self.extra_bytes();
        if bytes.len() > 128 && (extra > bytes.len() - 128 || !extra.is_multiple_of(4)) {
            let what = format!("the extra size of inode {}", self.number);
            let expected = format!("0 to {}, a multiple of 4", bytes.len() - 128);
            return Err(TableError::damaged(what, at + 0x80, expected, extra));
        }
        let (size, most) = (self.size(&volume.superblock), self.most_bytes(&volume.superblock));
        if self.links() > 0 && size > most {
            let what = format!("the size of inode {}", self.number);
            return Err(TableError::damaged(what, at + SIZE_AT, format!("0 to {most}"), size));
        }
        Ok(())
    }

    /// Numbers of blocks in a file have 32 bits. A larger one the kernel refuses to open, too; its zeros would take years to read.
    pub(super) fn most_bytes(&self, superblock: &Superblock) -> u64 {
        u64::from(superblock.block_bytes) << 32
    }

    /// Where its content lies; with what is lacking of that.
    pub(super) fn runs<B: BlockRead>(&self, volume: &Volume<B>, source: &mut dyn Source) -> Mapped {
        let superblock = &volume.superblock;
        let mapping = Mapping::new(volume, source, self.number, self.seed_of_blocks(superblock));
        if self.has_extents() {
            return mapping.extent_tree(self.block_field());
        }
        let blocks = self.size(superblock).div_ceil(superblock.block_bytes.into());
        mapping.indirect_blocks(self.block_field(), blocks)
    }

    /// Whether an extent tree maps it, and not block numbers.
    pub(super) fn has_extents(&self) -> bool {
        self.flags() & HAS_EXTENTS != 0
    }

    fn seed_of_blocks(&self, superblock: &Superblock) -> u32 {
        if superblock.is_checksummed() { self.seed(superblock) } else { 0 }
    }

    /// Whether a symbolic link has its target in place of block numbers.
    pub(super) fn is_fast_symlink(&self, superblock: &Superblock) -> bool {
        if superblock.incompatible.contains(Incompatible::EA_INODE) {
            return (1..60).contains(&self.size(superblock));
        }
        let xattr_blocks = match self.xattr_block(superblock) {
            0 => 0,
            _ => u64::from(superblock.cluster_bytes / 512),
        };
        self.counted_blocks(superblock) == xattr_blocks
    }

    /// Seconds at `low`, and nanoseconds and more bits of seconds at `extra` where these are in use.
    fn time(&self, low: usize, extra: usize) -> Timestamp {
        let mut time = Timestamp { seconds: i64::from(le32(self.bytes, low) as i32), nanoseconds: 0 };
        if self.has_extra(extra + 4) {
            let extra = le32(self.bytes, extra);
            time.seconds += i64::from(extra & 3) << 32;
            time.nanoseconds = (extra >> 2).min(999_999_999);
        }
        time
    }

    fn device(&self) -> u64 {
        if !matches!(self.kind(), kind::CHARACTER | kind::BLOCK) {
            return 0;
        }
        let (old, new) = (le32(self.block_field(), 0), le32(self.block_field(), 4));
        let (major, minor) = match old {
            0 => (new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xF_FF00),
            old => (old >> 8 & 0xFF, old & 0xFF),
        };
        u64::from(major & 0xFFF) << 8 | u64::from(minor & 0xFF) | u64::from(minor & !0xFF) << 12
    }

    /// All that is told of it but its content and attributes.
    pub(super) fn fields(&self, superblock: &Superblock) -> Inode {
        let flags = self.flags();
        let is_directory = self.kind() == kind::DIRECTORY;
        let mut told = InodeFlags::empty();
        told.set(InodeFlags::COMPRESSED, flags & COMPRESSED != 0);
        told.set(InodeFlags::ENCRYPTED, flags & ENCRYPTED != 0);
        told.set(InodeFlags::JOURNALED, flags & JOURNALED != 0);
        told.set(InodeFlags::ENCRYPTED_NAMES, is_directory && flags & ENCRYPTED != 0);
        told.set(InodeFlags::CASEFOLD, is_directory && flags & CASEFOLD != 0);
        Inode {
            number: self.number.into(),
            generation: self.generation(),
            mode: self.mode(),
            uid: u32::from(le16(self.bytes, 2)) | u32::from(le16(self.bytes, 0x78)) << 16,
            gid: u32::from(le16(self.bytes, 0x18)) | u32::from(le16(self.bytes, 0x7A)) << 16,
            size: self.size(superblock),
            allocated: self.allocated(superblock),
            links: self.links(),
            rdev: self.device(),
            mtime: self.time(0x10, 0x88),
            ctime: self.time(0x0C, 0x84),
            atime: self.time(8, 0x8C),
            btime: self.has_extra(0x98).then(|| self.time(0x90, 0x94)),
            flags: told,
            ..Inode::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(fields: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[0x80] = 32;
        for (at, value) in fields {
            bytes[*at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn two_bits_take_times_beyond_2038() {
        let time = |seconds: i32, extra: u32| {
            let bytes = inode(&[(0x10, seconds as u32), (0x88, extra)]);
            let time = RawInode { number: 12, bytes: &bytes }.time(0x10, 0x88);
            (time.seconds, time.nanoseconds)
        };
        assert_eq!(time(-1, 0), (-1, 0), "1969");
        assert_eq!(time(i32::MIN, 1), (1 << 31, 0), "2038");
        assert_eq!(time(i32::MAX, 3 | 999_999_999 << 2), (0x3_7FFF_FFFF, 999_999_999), "2446");
        assert_eq!(time(0, !0), (3 << 32, 999_999_999), "damaged");
        let mut bytes = inode(&[(0x10, 5), (0x88, !0)]);
        bytes[0x80] = 8;
        assert_eq!(RawInode { number: 12, bytes: &bytes }.time(0x10, 0x88).nanoseconds, 0, "not in use");
    }

    #[test]
    fn devices_in_both_encodings() {
        let device = |old, new| {
            let mut bytes = inode(&[(0x28, old), (0x2C, new)]);
            bytes[1] = 0x20;
            RawInode { number: 12, bytes: &bytes }.device()
        };
        assert_eq!(device(0x0803, 0), 0x803);
        assert_eq!(device(0, 259 << 8 | 0xFF | 0x4AB << 20), 0x4AB0_0000 | 259 << 8 | 0xFF);
    }
}
