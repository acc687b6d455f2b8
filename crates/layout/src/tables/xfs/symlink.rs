//! The targets of symbolic links: in the inode, or in blocks.

use super::{
    block::Block,
    extents::{self, Mapping},
    inode::{Dinode, Format},
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, cast::to_usize},
};

const MAGIC: u32 = 0x5853_4c4d; // XSLM
const HEADER_BYTES: usize = 56;
/// The longest target, in bytes.
const MAX_BYTES: u64 = 1024;

/// The target of a symbolic link.
pub(super) fn target<B: BlockRead>(volume: &Volume<B>, inode: &Dinode<'_>) -> Result<Vec<u8>, TableError> {
    let fork = &inode.data;
    let wrong = |expected, found| {
        let what = format!("the length of the target of symbolic link {}", inode.number);
        TableError::damaged(what, inode.size_at, expected, found)
    };
    let length = usize::try_from(inode.size.min(MAX_BYTES + 1)).unwrap_or(usize::MAX);
    if !(1..=MAX_BYTES).contains(&inode.size) {
        return Err(wrong(format!("1 to {MAX_BYTES}"), inode.size.to_string()));
    }
    if fork.format == Format::Local {
        return Ok(fork.block.slice(0, length)?.to_vec());
    }
    let mut target = Vec::new();
    for Mapping { at, blocks, .. } in extents::list(volume, fork)? {
        let Some(at) = at else { continue };
        let room = length - target.len();
        // Each extent has one header, whatever its number of blocks. A damaged one isn't read beyond the longest target.
        let block_bytes = volume.superblock.block_bytes() as u64;
        let most = (MAX_BYTES + HEADER_BYTES as u64).next_multiple_of(block_bytes);
        let bytes = volume.read(at, to_usize(blocks.saturating_mul(block_bytes).min(most)))?;
        let block = Block { what: "the target of a symbolic link", at, bytes: &bytes };
        let header = match &volume.superblock.uuid {
            Some(uuid) => {
                block.check_magic(0, MAGIC)?;
                block.check_crc(12)?;
                block.check_uuid(16, uuid)?;
                block.check(32, "the owner", inode.number, block.u64(32)?)?;
                block.check_address(40)?;
                block.check(4, "the offset", target.len() as u64, u64::from(block.u32(4)?))?;
                HEADER_BYTES
            }
            None => 0,
        };
        let take = room.min(bytes.len() - header);
        target.extend_from_slice(block.slice(header, take)?);
        if target.len() == length {
            return Ok(target);
        }
    }
    Err(wrong(target.len().to_string(), length.to_string()))
}
