//! Fields of inodes of versions 1 and 2 that have a meaning only when another one says so, and are empty else.

use super::{
    block::Block,
    inode::{DIRECTORY, Dinode, FILE},
    superblock::Superblock,
};
use crate::tables::TableError;

/// Where an inode has what it is about.
const VERSION: usize = 4;
/// The number of links of version 1.
const OLD_LINKS: usize = 6;
const EXTENT_HINT: usize = 72;
const ATTRIBUTE_EXTENTS: usize = 80;
const ATTRIBUTE_OFFSET: usize = 82;
const FLAGS: usize = 90;
const NEXT_UNLINKED: usize = 96;

/// Flags of files: on the realtime device, and with a hint how long extents are to be.
const OF_FILES: u16 = 1 | EXTENT_SIZE;
const REALTIME: u16 = 1;
const EXTENT_SIZE: u16 = 1 << 11;
/// Flags that directories have for what is made in them.
const OF_DIRECTORIES: u16 = 1 << 8 | 1 << 9 | 1 << 10 | EXTENT_SIZE_BELOW;
const EXTENT_SIZE_BELOW: u16 = 1 << 12;
/// No flag.
const UNKNOWN: u16 = 1 << 15;

/// Tells the first field that isn't empty though it should be.
pub(super) fn check(superblock: &Superblock, dinode: &Dinode<'_>, block: &Block<'_>) -> Result<(), TableError> {
    if block.u8(VERSION)? > 1 {
        block.check(OLD_LINKS, "the older link count", 0, block.u16(OLD_LINKS)?)?;
    }
    let flags = block.u16(FLAGS)?;
    let mut others = UNKNOWN;
    if !dinode.is(DIRECTORY) {
        others |= OF_DIRECTORIES;
    }
    if !dinode.is(FILE) {
        others |= OF_FILES;
    }
    if !superblock.has_realtime_device() {
        others |= REALTIME;
    }
    if flags & others != 0 {
        let (expected, found) = (format!("none of {others:#06x}"), format!("{flags:#06x}"));
        return Err(block.damaged(FLAGS, "the flags", expected, found));
    }
    if flags & (EXTENT_SIZE | EXTENT_SIZE_BELOW) == 0 {
        block.check(
            EXTENT_HINT,
            "the hint for the length of extents, which no flag turns on,",
            0,
            block.u32(EXTENT_HINT)?,
        )?;
    }
    if block.u8(ATTRIBUTE_OFFSET)? == 0 {
        let what = "the number of extents of attributes, for which there is no room,";
        block.check(ATTRIBUTE_EXTENTS, what, 0, block.u16(ATTRIBUTE_EXTENTS)?)?;
    }
    // The list of those without links ends there.
    if dinode.links > 0 {
        let next = block.u32(NEXT_UNLINKED)?;
        if next != u32::MAX {
            let (expected, found) = (format!("{:#x}", u32::MAX), format!("{next:#x}"));
            return Err(block.damaged(NEXT_UNLINKED, "the next inode without links", expected, found));
        }
    }
    Ok(())
}
