//! The copies of the superblock, for who has lost the first one.

use super::{
    fields::{le16, le32},
    superblock::{AT, BYTES, MAGIC},
};
use crate::block_read::BlockRead;

/// No group has more blocks, however large they are, since their number has to fit into 16 bits.
const GROUP_BLOCKS_MAX: u64 = 65528;

/// How e2fsck gets at the first copy of the superblock that looks sound. `damaged` is what stands in the place of the first one,
/// which may tell all the same how long the groups are.
pub(super) fn advice(device: &impl BlockRead, damaged: &[u8]) -> Option<String> {
    copy(device, damaged).map(|(block, block_bytes, _)| format!("there is a copy: e2fsck -b {block} -B {block_bytes}"))
}

/// Whether that copy tells as many blocks.
pub(super) fn has_size_of(device: &impl BlockRead, damaged: &[u8]) -> bool {
    copy(device, damaged).is_some_and(|(.., copy)| [4, 0x150].iter().all(|&at| le32(&copy, at) == le32(damaged, at)))
}

/// Its block, the bytes of a block, and the copy.
fn copy(device: &impl BlockRead, damaged: &[u8]) -> Option<(u64, u64, Vec<u8>)> {
    let shift = Some(le32(damaged, 0x18)).filter(|&shift| shift <= 6);
    let told = shift.map(|shift| (u64::from(le32(damaged, 0x14)) + u64::from(le32(damaged, 0x20)), 1024_u64 << shift));
    let usual = (0..=6).map(|shift| {
        let block_bytes = 1024 << shift;
        // Block 0 is left to a boot loader where the superblock isn't in it.
        (u64::from(shift == 0) + (block_bytes * 8).min(GROUP_BLOCKS_MAX), block_bytes)
    });
    told.into_iter().chain(usual).find_map(|(block, block_bytes)| {
        let (at, mut bytes) = (block * block_bytes, vec![0; BYTES]);
        device.read_at(&mut bytes, at).ok()?;
        let is_copy = at > AT && le16(&bytes, 0x38) == MAGIC && le16(&bytes, 0x5A) != 0;
        (is_copy && 1024 << le32(&bytes, 0x18).min(6) == block_bytes).then_some((block, block_bytes, bytes))
    })
}
