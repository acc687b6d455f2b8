//! The superblock: what kind of XFS it is, and the arithmetic of its addresses.

use super::{block::Block, features};
use crate::tables::{CUT_SHORT, Sign, TableError, VolumeFacts, hexadecimal};

/// Bytes of the superblock that are looked at; it has the first sector for itself.
pub(super) const SUPERBLOCK_BYTES: usize = 512;
const MAGIC: u32 = 0x5846_5342; // XFSB

/// Bits of the version number.
const VERSION: u16 = 0xf;
const DIRECTORIES_V2: u16 = 0x2000;
const NAMES_WITHOUT_CASE: u16 = 0x4000;
const MORE_BITS: u16 = 0x8000;
/// A bit of the second features of version 4.
const FTYPE_V4: u32 = 0x200;
/// No such inode.
const NULL_INODE: u64 = u64::MAX;

/// What is needed of the superblock, all of it checked against each other.
/// Where the superblock has the size of the realtime device, in blocks and in extents, and the blocks of an extent.
const REALTIME_BLOCKS: usize = 16;
const REALTIME_EXTENTS: usize = 24;
const REALTIME_EXTENT: usize = 80;

#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) facts: VolumeFacts,
    /// Bytes of a sector, by which the headers of allocation groups lie.
    pub(super) sector_bytes: u32,
    /// log2 of the bytes of a block.
    block_log: u8,
    /// Blocks of the file system.
    blocks: u64,
    /// Blocks of each allocation group but the last.
    group_blocks: u32,
    /// Bits of a block number within its group.
    group_block_log: u8,
    /// Allocation groups.
    pub(super) groups: u32,
    /// log2 of the bytes of an inode.
    inode_log: u8,
    /// log2 of the blocks of a directory block.
    pub(super) directory_block_log: u8,
    /// The first block of the log; `None` where it lies on another device.
    log_start: Option<u64>,
    /// Blocks of the log.
    log_blocks: u32,
    /// The UUID of the file system, which its log has, too.
    pub(super) own_uuid: [u8; 16],
    /// Where the log was when the superblock was written: its round, and the block in it. `None` where nobody can tell.
    pub(super) written: Option<[u32; 2]>,
    /// The UUID in metadata; `None` in version 4, whose metadata has neither it nor checksums.
    pub(super) uuid: Option<[u8; 16]>,
    /// Blocks of the realtime device; 0 where there is none.
    realtime_blocks: u64,
    /// Whether directory entries have a type.
    pub(super) has_ftype: bool,
    /// Whether inode chunks may have holes.
    pub(super) has_sparse_inodes: bool,
    /// Whether names are told apart without regard to the case of ASCII letters.
    pub(super) ignores_case: bool,
    /// Inodes that no directory names: the bitmap and summary of the realtime device, quotas.
    internal: [u64; 5],
}

impl Superblock {
    /// Reads it from the first `sector` bytes, where the sector is as large as it says itself: `more` is asked for that many.
    ///
    /// `device_bytes` is what there is of the device; a file system that is larger is damaged.
    pub(super) fn parse(
        bytes: &[u8],
        device_bytes: u64,
        more: impl FnOnce(usize) -> Result<Vec<u8>, TableError>,
    ) -> Result<Superblock, TableError> {
        let block = Block { what: "the superblock", at: 0, bytes };
        if block.u32(0)? != MAGIC {
            let found = hexadecimal(&block.array::<4>(0)?);
            return Err(TableError::NotHere { fs_type: "xfs", what: "magic number \"XFSB\"", at: 0, found });
        }
        let version = block.u16(100)?;
        if !matches!(version & VERSION, 4 | 5) {
            let found = version & VERSION;
            return Err(unsupported(format!("version {found} of the superblock"), Sign::new(100, "4 or 5", found)));
        }
        let sector_bytes = u32::from(block.u16(102)?);
        check_log(&block, 121, "the bytes of a sector", sector_bytes, 9..=15)?;
        let is_v5 = version & VERSION == 5;
        if is_v5 {
            let sector = more(sector_bytes as usize)?;
            Block { bytes: &sector, ..block }.check_crc(224)?;
            features::check_incompat(block.u32(216)?, 216)?;
        }
        if version & DIRECTORIES_V2 == 0 {
            let sign = Sign::new(100, format!("the bit {DIRECTORIES_V2:#x}"), format!("{version:#x}"));
            return Err(unsupported("version 1 of directories".to_owned(), sign));
        }
        if block.u8(126)? != 0 {
            return Err(block.damaged(126, "the mark of an unfinished mkfs.xfs", 0, block.u8(126)?));
        }
        let superblock = Superblock::geometry(&block, is_v5, version)?;
        superblock.check(&block, device_bytes)?;
        Ok(superblock)
    }

    fn geometry(block: &Block<'_>, is_v5: bool, version: u16) -> Result<Superblock, TableError> {
        let block_bytes = block.u32(4)?;
        check_log(block, 120, "the bytes of a block", block_bytes, 9..=16)?;
        check_log(block, 122, "the bytes of an inode", u32::from(block.u16(104)?), 8..=11)?;
        let label: [u8; 12] = block.array(108)?;
        let label = label.split(|&byte| byte == 0).next().unwrap_or_default();
        let blocks = block.u64(8)?;
        let bytes = blocks.checked_mul(u64::from(block_bytes));
        let incompat = if is_v5 { block.u32(216)? } else { 0 };
        let own_uuid = block.array(32)?;
        let uuid = if incompat & features::META_UUID != 0 { block.array(248)? } else { own_uuid };
        let second = if version & MORE_BITS != 0 { block.u32(200)? } else { 0 };
        let project_quota = if is_v5 { block.u64(232)? } else { NULL_INODE };
        Ok(Superblock {
            facts: VolumeFacts {
                fs_type: "xfs",
                label: String::from_utf8_lossy(label).into_owned(),
                block_bytes,
                bytes: bytes.ok_or_else(|| block.damaged(8, "the number of blocks", "fewer", blocks))?,
                root: block.u64(56)?,
                inodes_used: block.u64(128)?.checked_sub(block.u64(136)?),
                is_replayed: false,
                is_dirty: false,
                compression_unit_bytes: 0,
            },
            sector_bytes: u32::from(block.u16(102)?),
            block_log: block.u8(120)?,
            blocks,
            group_blocks: block.u32(84)?,
            group_block_log: block.u8(124)?,
            groups: block.u32(88)?,
            inode_log: block.u8(122)?,
            directory_block_log: block.u8(192)?,
            log_start: Some(block.u64(48)?).filter(|start| *start != 0),
            log_blocks: block.u32(96)?,
            own_uuid,
            written: Some([block.u32(240)?, block.u32(244)?]).filter(|written| is_v5 && *written != [u32::MAX; 2]),
            uuid: is_v5.then_some(uuid),
            realtime_blocks: block.u64(REALTIME_BLOCKS)?,
            has_ftype: if is_v5 { incompat & features::FTYPE != 0 } else { second & FTYPE_V4 != 0 },
            has_sparse_inodes: incompat & features::SPARSE_INODES != 0,
            ignores_case: version & NAMES_WITHOUT_CASE != 0,
            internal: [block.u64(64)?, block.u64(72)?, block.u64(160)?, block.u64(168)?, project_quota],
        })
    }

    /// Whether the numbers fit to each other and to the device.
    fn check(&self, block: &Block<'_>, device_bytes: u64) -> Result<(), TableError> {
        let (group_blocks, groups) = (u64::from(self.group_blocks), u64::from(self.groups));
        if self.inode_log > self.block_log {
            return Err(block.damaged(
                104,
                "the bytes of an inode",
                "at most those of a block",
                1u32 << self.inode_log,
            ));
        }
        // Headers, roots and the first inodes need more than this of every group.
        if !(8..=1 << 31).contains(&group_blocks) {
            return Err(block.damaged(84, "the blocks of an allocation group", "8 to 2^31", group_blocks));
        }
        if self.uuid.is_none() {
            // Extents of the realtime device, by its blocks and those of an extent.
            let (blocks, of_extent) = (block.u64(REALTIME_BLOCKS)?, block.u32(REALTIME_EXTENT)?.max(1));
            let what = "the extents of the realtime device";
            block.check(REALTIME_EXTENTS, what, blocks / u64::from(of_extent), block.u64(REALTIME_EXTENTS)?)?;
        }
        let expected_log = (group_blocks - 1).checked_ilog2().map_or(0, |log| log + 1);
        block.check(124, "the bits of a block number", expected_log, u32::from(self.group_block_log))?;
        if groups != self.blocks.div_ceil(group_blocks) {
            let expected = self.blocks.div_ceil(group_blocks);
            return Err(block.damaged(88, "the number of allocation groups", expected, groups));
        }
        if self.facts.bytes > device_bytes {
            let expected = format!("no more than the {device_bytes} that are here");
            return Err(block.damaged(8, "the size", expected, format!("{}{CUT_SHORT}", self.facts.bytes)));
        }
        let directory_log = self.block_log.saturating_add(self.directory_block_log);
        if directory_log > 16 {
            return Err(block.damaged(192, "log2 of the bytes of a directory block", "at most 16", directory_log));
        }
        let (log_start, log_blocks) = (self.log_start.unwrap_or(0), self.log_blocks);
        if log_blocks == 0 || log_start != 0 && self.log_address().is_none() {
            let found = format!("{log_blocks} blocks from {log_start}");
            return Err(block.damaged(48, "the log", "blocks of one allocation group", found));
        }
        if self.inode_address(self.facts.root).is_none() {
            return Err(block.damaged(56, "the root directory", "an inode of an allocation group", self.facts.root));
        }
        Ok(())
    }

    /// The first byte of the log; `None` where it lies on another device.
    pub(super) fn log_address(&self) -> Option<u64> {
        self.block_address(self.log_start?, u64::from(self.log_blocks))
    }

    /// Bytes of the log, of which there are some.
    pub(super) fn log_bytes(&self) -> u64 {
        u64::from(self.log_blocks) << self.block_log
    }

    /// Whether there is a realtime device.
    pub(super) fn has_realtime_device(&self) -> bool {
        self.realtime_blocks > 0
    }

    /// Bytes of the realtime device that are the file system's.
    pub(super) fn realtime_bytes(&self) -> u64 {
        self.realtime_blocks.saturating_mul(self.block_bytes() as u64)
    }

    /// The first byte of `count` blocks of the realtime device, whose numbers know no groups; `None` when it has not so many.
    pub(super) fn realtime_address(&self, number: u64, count: u64) -> Option<u64> {
        let fits = number.checked_add(count)? <= self.realtime_blocks;
        fits.then(|| number.checked_mul(self.block_bytes() as u64)).flatten()
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        1 << self.block_log
    }

    /// Bytes of an inode.
    pub(super) fn inode_bytes(&self) -> usize {
        1 << self.inode_log
    }

    /// Bytes of a directory block, at most 65536.
    pub(super) fn directory_block_bytes(&self) -> usize {
        1 << (self.block_log + self.directory_block_log)
    }

    /// Blocks of an allocation group, 0 behind the last.
    pub(super) fn group_length(&self, group: u32) -> u32 {
        let before = u64::from(group) * u64::from(self.group_blocks);
        u32::try_from(self.blocks.saturating_sub(before).min(u64::from(self.group_blocks))).unwrap_or(0)
    }

    /// The first byte of an allocation group.
    pub(super) fn group_start(&self, group: u32) -> u64 {
        (u64::from(group) * u64::from(self.group_blocks)) << self.block_log
    }

    /// The first byte of `count` blocks of an allocation group; `None` when it has not so many.
    pub(super) fn group_block_address(&self, group: u32, block: u32, count: u64) -> Option<u64> {
        let end = u64::from(block).checked_add(count)?;
        let fits = end <= u64::from(self.group_length(group));
        fits.then(|| self.group_start(group) + (u64::from(block) << self.block_log))
    }

    /// The first byte of `count` blocks from a block number of the file system on, whose upper bits are the group. `None`
    /// unless all lie in one group.
    pub(super) fn block_address(&self, number: u64, count: u64) -> Option<u64> {
        let group = u32::try_from(number >> self.group_block_log).ok()?;
        let block = u32::try_from(number & ((1 << self.group_block_log) - 1)).ok()?;
        self.group_block_address(group, block, count)
    }

    /// Bits of an inode number within its group.
    fn group_inode_log(&self) -> u8 {
        self.group_block_log + self.block_log - self.inode_log
    }

    /// The number of an inode of a group; `None` when the group has no room for it.
    pub(super) fn inode_number(&self, group: u32, index: u32) -> Option<u64> {
        let fits = u64::from(index) >> (self.block_log - self.inode_log) < u64::from(self.group_length(group));
        fits.then(|| u64::from(group) << self.group_inode_log() | u64::from(index))
    }

    /// The first byte of an inode; `None` when there is no such place.
    pub(super) fn inode_address(&self, number: u64) -> Option<u64> {
        let group = u32::try_from(number >> self.group_inode_log()).ok()?;
        let index = u32::try_from(number & ((1 << self.group_inode_log()) - 1)).ok()?;
        self.inode_number(group, index)?;
        Some(self.group_start(group) + (u64::from(index) << self.inode_log))
    }

    /// Whether an inode is for the file system itself.
    pub(super) fn is_internal(&self, number: u64) -> bool {
        // 0 stands for none, too, in file systems that never had quotas.
        number != 0 && number != NULL_INODE && self.internal.contains(&number)
    }
}

/// Fails unless `bytes` is a power of two within bounds, whose logarithm is that at the offset.
fn check_log(
    block: &Block<'_>,
    offset: usize,
    what: &str,
    bytes: u32,
    bounds: std::ops::RangeInclusive<u32>,
) -> Result<(), TableError> {
    let log = u32::from(block.u8(offset)?);
    if !bounds.contains(&log) {
        let expected = format!("log2 from {} to {}", bounds.start(), bounds.end());
        return Err(block.damaged(offset, what, expected, log));
    }
    block.check(offset, what, 1 << log, bytes)
}

fn unsupported(feature: String, sign: Sign) -> TableError {
    let advice = "copy its files to a newer one on a system that still mounts it";
    TableError::Unsupported { feature, sign: Some(sign), advice }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::checksum::crc32c, *};

    /// The superblock of a file system of 4 groups of 1000 blocks of 4096 bytes, with inodes of 512.
    pub(in super::super) fn bytes(is_v5: bool) -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        let mut put = |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
        put(0, b"XFSB");
        put(4, &4096u32.to_be_bytes());
        put(8, &3900u64.to_be_bytes());
        put(32, &[7; 16]);
        put(48, &(2u64 << 10 | 100).to_be_bytes());
        put(56, &128u64.to_be_bytes());
        put(64, &129u64.to_be_bytes());
        put(72, &130u64.to_be_bytes());
        put(84, &1000u32.to_be_bytes());
        put(88, &4u32.to_be_bytes());
        put(96, &500u32.to_be_bytes());
        put(100, &(if is_v5 { 0xb4a5u16 } else { 0xb4a4 }).to_be_bytes());
        put(102, &512u16.to_be_bytes());
        put(104, &512u16.to_be_bytes());
        put(108, b"label");
        put(120, &[12, 9, 9, 3, 10]);
        put(128, &64u64.to_be_bytes());
        put(136, &61u64.to_be_bytes());
        if is_v5 {
            put(216, &(features::FTYPE | features::SPARSE_INODES).to_be_bytes());
            seal(&mut bytes);
        }
        bytes
    }

    pub(in super::super) fn seal(bytes: &mut [u8]) {
        let sum = crc32c(bytes, 224);
        bytes[224..228].copy_from_slice(&sum.to_le_bytes());
    }

    pub(in super::super) fn parse(bytes: &[u8]) -> Result<Superblock, TableError> {
        Superblock::parse(bytes, 3900 << 12, |length| Ok(bytes[..length].to_vec()))
    }

    #[test]
    fn addresses_are_told_within_groups_alone() {
        let superblock = parse(&bytes(true)).unwrap();
        assert_eq!(superblock.facts.label, "label");
        assert_eq!(superblock.facts.inodes_used, Some(3));
        assert_eq!(
            (superblock.group_length(2), superblock.group_length(3), superblock.group_length(4)),
            (1000, 900, 0)
        );
        assert_eq!(superblock.block_address(2 << 10 | 5, 995), Some(2005 << 12));
        assert_eq!(superblock.block_address(2 << 10 | 5, 996), None);
        assert_eq!(superblock.block_address(3 << 10 | 899, 1), Some(3899 << 12));
        assert_eq!(superblock.block_address(3 << 10 | 900, 1), None);
        assert_eq!(superblock.block_address(u64::MAX, u64::MAX), None);
        assert_eq!(superblock.inode_address((1 << 13) | (8 * 7) | 3), Some((1007 << 12) + 3 * 512));
        assert_eq!(superblock.inode_address((3 << 13) | (8 * 900)), None);
        assert_eq!(superblock.inode_address(u64::MAX), None);
        assert!(superblock.is_internal(129) && !superblock.is_internal(128) && !superblock.is_internal(0));
    }

    #[test]
    fn a_log_may_be_elsewhere() {
        let mut changed = bytes(true);
        assert_eq!(parse(&changed).unwrap().log_address(), Some(2100 << 12));
        changed[48..56].fill(0);
        seal(&mut changed);
        let superblock = parse(&changed).unwrap();
        assert_eq!((superblock.log_address(), superblock.log_bytes()), (None, 500 << 12));
    }

    #[test]
    fn version_4_has_no_checksums() {
        let superblock = parse(&bytes(false)).unwrap();
        assert!(superblock.uuid.is_none() && !superblock.has_ftype && !superblock.has_sparse_inodes);
    }

    #[test]
    fn the_uuid_of_metadata_may_be_an_older_one() {
        let mut changed = bytes(true);
        changed[219] |= features::META_UUID as u8;
        changed[248..264].fill(9);
        seal(&mut changed);
        assert_eq!(parse(&changed).unwrap().uuid, Some([9; 16]));
        assert_eq!(parse(&bytes(true)).unwrap().uuid, Some([7; 16]));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let refused = |offset: usize, field: &[u8]| {
            let mut changed = bytes(true);
            changed[offset..offset + field.len()].copy_from_slice(field);
            seal(&mut changed);
            parse(&changed).unwrap_err().to_string()
        };
        for (offset, field, expected) in [
            (0, &b"XFSA"[..], "no xfs file system begins here"),
            (100, &[0xb4, 0xa3], "version 3 of the superblock"),
            (100, &[0x94, 0xa5], "version 1 of directories"),
            (126, &[1], "unfinished mkfs.xfs"),
            (216, &[0, 0, 2, 0], "zoned"),
            (4, &[0, 0, 0, 0], "the bytes of a block"),
            (120, &[255], "the bytes of a block"),
            (84, &[0, 0, 0, 0], "the blocks of an allocation group"),
            (88, &[0xff, 0, 0, 0], "the number of allocation groups"),
            (124, &[63], "the bits of a block number"),
            (8, &[0xff; 8], "the number of blocks"),
            (12, &[0, 1, 0, 0], "the number of allocation groups"),
            (192, &[5], "directory block"),
            (48, &[0xff; 8], "the log"),
            (96, &[0; 4], "the log"),
            (56, &[0xff; 8], "the root directory"),
        ] {
            let error = refused(offset, field);
            assert!(error.contains(expected) && error.contains("byte ") && error.contains("found"), "{error}");
        }
        let mut changed = bytes(true);
        changed[300] = 1;
        assert!(parse(&changed).unwrap_err().to_string().contains("the checksum of the superblock at byte 224"));
    }
}
