//! The inode on the disk (dinode), versions 1 to 3.

use onesweep_sys::files::makedev;

use super::{block::Block, superblock::Superblock};
use crate::tables::{TableError, Timestamp};

const MAGIC: u16 = 0x494e; // IN

/// Where an inode has its mode, its number of links from version 2 on, and its number of blocks.
pub(super) const MODE_AT: u64 = 2;
pub(super) const LINKS_AT: u64 = 16;
pub(super) const BLOCKS_AT: u64 = 64;

/// Bits of the flags.
const REALTIME: u16 = 1;
/// Bits of the second flags, of version 3.
const BIG_TIME: u64 = 1 << 3;
const BIG_COUNTERS: u64 = 1 << 4;
const METADATA: u64 = 1 << 5;

/// The bits of the mode that are the type.
const TYPE: u32 = 0o170_000;
pub(super) const DIRECTORY: u32 = 0o040_000;
pub(super) const FILE: u32 = 0o100_000;
pub(super) const SYMLINK: u32 = 0o120_000;

/// What one of the two forks of an inode holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The number of a device.
    Device,
    /// The content itself.
    Local,
    /// The records of its extents.
    Extents,
    /// The root of a B+tree of extents (bmbt).
    Tree,
}

/// A fork: the data of an inode, or its attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fork<'a> {
    pub(super) format: Format,
    /// The bytes in the inode.
    pub(super) block: Block<'a>,
    /// How many extents it has, and the byte that says so.
    pub(super) extents: u64,
    pub(super) extents_at: u64,
    /// The inode.
    pub(super) owner: u64,
    /// Whether its blocks are those of the realtime device.
    pub(super) is_elsewhere: bool,
}

/// An inode, its checksum and number checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dinode<'a> {
    pub(super) number: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) size: u64,
    /// The byte that says so.
    pub(super) size_at: u64,
    /// Blocks that are allocated to it.
    pub(super) blocks: u64,
    pub(super) generation: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) btime: Option<Timestamp>,
    /// Whether its data is on the realtime device.
    pub(super) is_realtime: bool,
    /// Whether it belongs to the file system itself.
    pub(super) is_internal: bool,
    pub(super) data: Fork<'a>,
    pub(super) attributes: Option<Fork<'a>>,
}

impl<'a> Dinode<'a> {
    pub(super) fn parse(superblock: &Superblock, number: u64, block: Block<'a>) -> Result<Dinode<'a>, TableError> {
        let magic = block.u16(0)?;
        if magic != MAGIC {
            return Err(block.damaged(0, "the magic number", format!("{MAGIC:#x}"), format!("{magic:#x}")));
        }
        let version = block.u8(4)?;
        let is_v3 = version == 3;
        if is_v3 != superblock.uuid.is_some() || !(1..=3).contains(&version) {
            let expected = if superblock.uuid.is_some() { "3" } else { "1 or 2" };
            return Err(block.damaged(4, "the version", expected, version));
        }
        if let Some(uuid) = &superblock.uuid {
            block.check_crc(100)?;
            block.check(152, "the own number", number, block.u64(152)?)?;
            block.check_uuid(160, uuid)?;
        }
        let mode = u32::from(block.u16(2)?);
        if !matches!(mode & TYPE, 0o010_000 | 0o020_000 | DIRECTORY | 0o060_000 | FILE | SYMLINK | 0o140_000) {
            return Err(block.damaged(2, "the mode", "a type of file", format!("{mode:#o}")));
        }
        let size = block.u64(56)?;
        if size > i64::MAX as u64 {
            return Err(block.damaged(56, "the size", "below 2^63", size));
        }
        let second = if is_v3 { block.u64(120)? } else { 0 };
        let is_realtime = block.u16(90)? & REALTIME != 0 && mode & TYPE == FILE;
        let time = |offset| timestamp(&block, offset, second & BIG_TIME != 0);
        let (data, attributes) = forks(&block, number, if is_v3 { 176 } else { 100 }, second, is_realtime)?;
        let is_device = matches!(mode & TYPE, 0o010_000 | 0o020_000 | 0o060_000 | 0o140_000);
        let fits = match data.format {
            Format::Device => is_device,
            Format::Local => matches!(mode & TYPE, DIRECTORY | SYMLINK),
            Format::Extents => !is_device,
            Format::Tree => matches!(mode & TYPE, DIRECTORY | FILE),
        };
        if !fits {
            return Err(block.damaged(5, "the format of the data", format!("one of mode {mode:#o}"), block.u8(5)?));
        }
        Ok(Dinode {
            number,
            mode,
            uid: block.u32(8)?,
            gid: block.u32(12)?,
            links: if version == 1 { u32::from(block.u16(6)?) } else { block.u32(16)? },
            size,
            size_at: block.at + 56,
            blocks: block.u64(64)?,
            generation: block.u32(92)?,
            atime: time(32)?,
            mtime: time(40)?,
            ctime: time(48)?,
            btime: if is_v3 { Some(time(144)?) } else { None },
            is_realtime,
            is_internal: second & METADATA != 0 || superblock.is_internal(number),
            data,
            attributes,
        })
    }

    /// Whether it is of a type, such as [`FILE`].
    pub(super) fn is(&self, kind: u32) -> bool {
        self.mode & TYPE == kind
    }

    /// The device of a device node, else 0.
    pub(super) fn rdev(&self) -> Result<u64, TableError> {
        if !matches!(self.mode & TYPE, 0o020_000 | 0o060_000) {
            return Ok(0);
        }
        // As IRIX packed it: 14 bits, 18 bits.
        let packed = self.data.block.u32(0)?;
        Ok(makedev(packed >> 18 & 0x3fff, packed & 0x3_ffff))
    }
}

/// Takes the part behind the core apart.
fn forks<'a>(
    block: &Block<'a>,
    owner: u64,
    core: usize,
    second: u64,
    is_elsewhere: bool,
) -> Result<(Fork<'a>, Option<Fork<'a>>), TableError> {
    let room = block.bytes.len().saturating_sub(core);
    // Counted in eights, from the end of the core.
    let border = 8 * usize::from(block.u8(82)?);
    if border >= room {
        return Err(block.damaged(82, "the offset of the attributes", format!("below {room}"), border));
    }
    // How many extents each has, and where that is said.
    let (data_extents, attribute_extents) = if second & BIG_COUNTERS != 0 {
        ((block.u64(24)?, 24), (u64::from(block.u32(76)?), 76))
    } else {
        ((u64::from(block.u32(76)?), 76), (u64::from(block.u16(80)?), 80))
    };
    let fork = |what, offset, length, format_at, (extents, count_at): (u64, usize), is_elsewhere| {
        let format = match block.u8(format_at)? {
            0 => Format::Device,
            1 => Format::Local,
            2 => Format::Extents,
            3 => Format::Tree,
            other => return Err(block.damaged(format_at, "the format of a fork", "0 to 3", other)),
        };
        let part = block.part(what, offset, length)?;
        if format == Format::Extents && extents > (length / 16) as u64 {
            let expected = format!("at most {}", length / 16);
            return Err(block.damaged(count_at, &format!("the number of extents, in {what},"), expected, extents));
        }
        let extents_at = block.at + count_at as u64;
        Ok(Fork { format, block: part, extents, extents_at, owner, is_elsewhere })
    };
    let data_length = if border == 0 { room } else { border };
    let data = fork("the data fork of an inode", core, data_length, 5, data_extents, is_elsewhere)?;
    if border == 0 {
        return Ok((data, None));
    }
    let what = "the attribute fork of an inode";
    let attributes = fork(what, core + border, room - border, 83, attribute_extents, false)?;
    if attributes.format == Format::Device {
        return Err(block.damaged(83, "the format of the attributes", "1 to 3", 0));
    }
    Ok((data, Some(attributes)))
}

fn timestamp(block: &Block<'_>, offset: usize, is_big: bool) -> Result<Timestamp, TableError> {
    const SECOND: u64 = 1_000_000_000;
    if is_big {
        // Nanoseconds since the earliest time of the older form, in 1901.
        let nanoseconds = block.u64(offset)?;
        let seconds = (nanoseconds / SECOND) as i64 + i64::from(i32::MIN);
        return Ok(Timestamp { seconds, nanoseconds: (nanoseconds % SECOND) as u32 });
    }
    let nanoseconds = block.u32(offset + 4)?;
    if u64::from(nanoseconds) >= SECOND {
        return Err(block.damaged(offset + 4, "the nanoseconds of a time", "below 1000000000", nanoseconds));
    }
    Ok(Timestamp { seconds: i64::from(block.u32(offset)? as i32), nanoseconds })
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::{checksum::crc32c, superblock::tests as superblocks},
        *,
    };

    /// An empty regular file of version 3 with the number 131, and whatever is put over it.
    pub(in super::super) fn bytes(changes: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        let mut put = |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
        put(0, &[0x49, 0x4e, 0x81, 0xa4, 3, 2]);
        put(16, &[0, 0, 0, 1]);
        put(152, &131u64.to_be_bytes());
        put(160, &[7; 16]);
        for (offset, field) in changes {
            put(*offset, field);
        }
        let sum = crc32c(&bytes, 100);
        bytes[100..104].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Dinode<'_>, String> {
        let superblock = superblocks::parse(&superblocks::bytes(true)).unwrap();
        let block = Block { what: "an inode", at: 0, bytes };
        Dinode::parse(&superblock, 131, block).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms_of_time_are_read() {
        let old = bytes(&[(32, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 5])]);
        assert_eq!(parse(&old).unwrap().atime, Timestamp { seconds: -1, nanoseconds: 5 });
        let nanoseconds = ((1u64 << 31) + 10) * 1_000_000_000 + 7;
        let new = bytes(&[(32, &nanoseconds.to_be_bytes()), (120, &BIG_TIME.to_be_bytes())]);
        assert_eq!(parse(&new).unwrap().atime, Timestamp { seconds: 10, nanoseconds: 7 });
    }

    #[test]
    fn counters_come_in_two_sizes() {
        let old = bytes(&[(76, &[0, 0, 0, 1, 0, 2]), (82, &[20, 2])]);
        let old = parse(&old).unwrap();
        assert_eq!((old.data.extents, old.attributes.unwrap().extents), (1, 2));
        assert_eq!((old.data.block.bytes.len(), old.attributes.unwrap().block.bytes.len()), (160, 176));
        let flags = BIG_COUNTERS.to_be_bytes();
        let new = bytes(&[(24, &3u64.to_be_bytes()), (76, &[0, 0, 0, 4]), (82, &[20, 2]), (120, &flags)]);
        let new = parse(&new).unwrap();
        assert_eq!((new.data.extents, new.attributes.unwrap().extents), (3, 4));
    }

    #[test]
    fn files_of_the_realtime_device_and_devices_are_told() {
        assert!(parse(&bytes(&[(90, &[0, 1])])).unwrap().is_realtime);
        let device = bytes(&[(2, &[0x21, 0xa4]), (5, &[0]), (176, &(8u32 << 18 | 17).to_be_bytes())]);
        assert_eq!(parse(&device).unwrap().rdev().unwrap(), makedev(8, 17));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (offset, field, expected) in [
            (0, &b"NI"[..], "the magic number"),
            (2, &[0, 0], "the mode"),
            (4, &[2], "the version"),
            (5, &[9], "the format of a fork"),
            (5, &[1], "the format of the data"),
            (36, &[0xff; 4], "the nanoseconds"),
            (56, &[0x80], "the size"),
            (76, &[1, 0, 0, 0], "the number of extents"),
            (82, &[42, 2], "the offset of the attributes"),
            (155, &[1], "the own number"),
            (160, &[1], "the UUID"),
        ] {
            let error = parse(&bytes(&[(offset, field)])).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let mut changed = bytes(&[]);
        changed[500] = 1;
        assert!(parse(&changed).unwrap_err().contains("the checksum"));
    }
}
