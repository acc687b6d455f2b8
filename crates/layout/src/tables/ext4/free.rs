//! What is free, by the block bitmaps of the groups.

use super::{
    checksum::crc32c,
    fields::{le16, le32, split64},
    groups,
    superblock::Incompatible,
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, bits::clear_runs, problems::Problems},
};

/// The bitmap was never written: what the group has of metadata is all that is used.
const BLOCK_UNINIT: u16 = 2;
const INODE_UNINIT: u16 = 1;
/// Bitmaps in one read.
const BITMAPS: usize = 64;

/// What a descriptor says of the space of its group.
#[derive(Clone, Copy, Default)]
struct Space {
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    is_unwritten: bool,
    has_no_inodes: bool,
    /// Where the descriptor lies.
    told_at: u64,
    /// The checksum of the bitmap, and which of its bits are kept.
    checksum: (u32, u32),
}

impl Space {
    fn parse(bytes: &[u8], at: u64, trusts_flags: bool) -> Space {
        let wide = bytes.len() >= 64;
        let block = |low: usize| if wide { split64(bytes, low, low + 0x20) } else { le32(bytes, low).into() };
        let checksum = u32::from(le16(bytes, 0x18)) | if wide { u32::from(le16(bytes, 0x38)) << 16 } else { 0 };
        Space {
            block_bitmap: block(0),
            inode_bitmap: block(4),
            inode_table: block(8),
            is_unwritten: trusts_flags && le16(bytes, 0x12) & BLOCK_UNINIT != 0,
            has_no_inodes: trusts_flags && le16(bytes, 0x12) & INODE_UNINIT != 0,
            told_at: at,
            checksum: (checksum, if wide { u32::MAX } else { 0xffff }),
        }
    }
}

/// Visits the free runs, in bytes. Takes 88 bytes a group. Ends at the first thing that is damaged.
pub(super) fn runs<B: BlockRead>(volume: &Volume<B>, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
    let spaces = spaces(volume)?;
    let metadata = metadata(volume, &spaces);
    let mut first = 0;
    while first < spaces.len() {
        if spaces[first].is_unwritten {
            unwritten(volume, &metadata, first as u64, each);
            first += 1;
            continue;
        }
        let follows = |index: usize| {
            spaces.get(index).is_some_and(|space| {
                !space.is_unwritten
                    && space.block_bitmap == spaces[first].block_bitmap.saturating_add((index - first) as u64)
            })
        };
        let count = 1 + (1..BITMAPS).take_while(|step| follows(first + step)).count();
        let bytes = bitmaps(volume, "block", first, spaces[first].block_bitmap, count)?;
        for (index, bitmap) in bytes.chunks_exact(volume.superblock.block_bytes as usize).enumerate() {
            written(volume, &spaces[first + index], (first + index) as u64, bitmap, each)?;
        }
        first += count;
    }
    Ok(())
}

/// Visits the runs of inodes that are free: how many are before each, and how many it has. Their checksums aren't compared.
pub(super) fn inodes<B: BlockRead>(volume: &Volume<B>, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
    let spaces = spaces(volume)?;
    let per_group = u64::from(volume.superblock.inodes_per_group);
    let mut first = 0;
    while first < spaces.len() {
        let start = first as u64 * per_group;
        if spaces[first].has_no_inodes {
            each(start, per_group);
            first += 1;
            continue;
        }
        let follows = |index: usize| {
            spaces.get(index).is_some_and(|space| {
                !space.has_no_inodes
                    && space.inode_bitmap == spaces[first].inode_bitmap.saturating_add((index - first) as u64)
            })
        };
        let count = 1 + (1..BITMAPS).take_while(|step| follows(first + step)).count();
        let bytes = bitmaps(volume, "inode", first, spaces[first].inode_bitmap, count)?;
        for (index, bitmap) in bytes.chunks_exact(volume.superblock.block_bytes as usize).enumerate() {
            let start = start + index as u64 * per_group;
            clear_runs(bitmap, per_group, &mut |bit, count| each(start + bit, count));
        }
        first += count;
    }
    Ok(())
}

/// Visits the metadata that each group has: what it is, where it begins and how long it is, and the byte that tells so.
pub(super) fn metadata_of_groups<B: BlockRead>(
    volume: &Volume<B>,
    each: &mut dyn FnMut(&str, u64, u64, u64),
) -> Result<(), TableError> {
    let superblock = &volume.superblock;
    let table_bytes = u64::from(superblock.inodes_per_group) * superblock.inode_bytes as u64;
    let block_bytes = u64::from(superblock.block_bytes);
    for (group, space) in (0..).zip(spaces(volume)?) {
        let (start, _) = extent(volume, group);
        // Block 0 of a kibibyte stays free, also where groups begin with it.
        let start = if start == 0 && block_bytes == 1024 { 1 } else { start };
        let at = volume.byte_of(start);
        each("the place of a copy of the superblock and descriptors", at, base_blocks(volume, group) * block_bytes, at);
        let told_at = space.told_at;
        each("the place of a bitmap of blocks", volume.byte_of(space.block_bitmap), block_bytes, told_at);
        each("the place of a bitmap of inodes", volume.byte_of(space.inode_bitmap), block_bytes, told_at + 4);
        each("the place of a table of inodes", volume.byte_of(space.inode_table), table_bytes, told_at + 8);
    }
    Ok(())
}

/// What all descriptors say.
fn spaces<B: BlockRead>(volume: &Volume<B>) -> Result<Vec<Space>, TableError> {
    let superblock = &volume.superblock;
    let mut spaces = vec![Space::default(); superblock.groups as usize];
    let mut problems = Problems::default();
    groups::each_descriptor(volume, &mut problems, &mut |number, bytes, at| {
        if let Some(space) = spaces.get_mut(number as usize) {
            *space = Space::parse(bytes, at, superblock.has_group_checksums());
        }
        Ok(())
    });
    match problems.take().into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(spaces),
    }
}

/// Reads bitmaps that follow each other, the first of which is that of a group.
fn bitmaps<B: BlockRead>(
    volume: &Volume<B>,
    of: &str,
    group: usize,
    at: u64,
    count: usize,
) -> Result<Vec<u8>, TableError> {
    let superblock = &volume.superblock;
    if at == 0 || !volume.holds(at, count as u64) {
        let what = format!("the place of the {of} bitmap of group {group}");
        let expected = format!("1 to {}", superblock.blocks.saturating_sub(1));
        return Err(TableError::damaged(what, volume.byte_of(at), expected, at));
    }
    let mut bytes = vec![0; count * superblock.block_bytes as usize];
    let mut unread = Vec::new();
    volume.read(at, &mut bytes, &mut unread);
    match unread.pop() {
        Some((_, error)) => Err(error),
        None => Ok(bytes),
    }
}

/// The first block of a group, and how many it has.
fn extent<B: BlockRead>(volume: &Volume<B>, group: u64) -> (u64, u64) {
    let superblock = &volume.superblock;
    let per_group = u64::from(superblock.blocks_per_group);
    let first = u64::from(superblock.first_data_block).saturating_add(group.saturating_mul(per_group));
    (first, superblock.blocks.saturating_sub(first).min(per_group))
}

/// The free runs of a group by its bitmap.
fn written<B: BlockRead>(
    volume: &Volume<B>,
    space: &Space,
    group: u64,
    bitmap: &[u8],
    each: &mut dyn FnMut(u64, u64),
) -> Result<(), TableError> {
    let superblock = &volume.superblock;
    let cluster_blocks = u64::from((superblock.cluster_bytes / superblock.block_bytes).max(1));
    if superblock.is_checksummed() {
        let summed = (u64::from(superblock.blocks_per_group) / cluster_blocks / 8) as usize;
        let expected = crc32c(superblock.checksum_seed, &bitmap[..summed.min(bitmap.len())]) & space.checksum.1;
        if expected != space.checksum.0 {
            let what = format!("the checksum of the block bitmap of group {group}");
            let (expected, found) = (format!("{expected:#010x}"), format!("{:#010x}", space.checksum.0));
            return Err(TableError::damaged(what, volume.byte_of(space.block_bitmap), expected, found));
        }
    }
    let (start, blocks) = extent(volume, group);
    clear_runs(bitmap, blocks.div_ceil(cluster_blocks), &mut |cluster, count| {
        let from = cluster * cluster_blocks;
        let to = ((cluster + count) * cluster_blocks).min(blocks);
        each(volume.byte_of(start + from), volume.byte_of(to - from));
    });
    Ok(())
}

/// The first block of each bitmap and table of any group, and the one behind it, by rising place.
fn metadata<B: BlockRead>(volume: &Volume<B>, spaces: &[Space]) -> Vec<(u64, u64)> {
    let superblock = &volume.superblock;
    if !spaces.iter().any(|space| space.is_unwritten) {
        return Vec::new();
    }
    let table_bytes = u64::from(superblock.inodes_per_group) * superblock.inode_bytes as u64;
    let table = table_bytes.div_ceil(superblock.block_bytes.into());
    let of_group = |space: &Space| [(space.block_bitmap, 1), (space.inode_bitmap, 1), (space.inode_table, table)];
    let mut all: Vec<(u64, u64)> =
        spaces.iter().flat_map(of_group).map(|(from, count)| (from, from.saturating_add(count))).collect();
    all.sort_unstable();
    all
}

/// The free runs of a group whose bitmap was never written: all but the metadata that lie in it, those of other groups too
/// (flex_bg).
fn unwritten<B: BlockRead>(volume: &Volume<B>, metadata: &[(u64, u64)], group: u64, each: &mut dyn FnMut(u64, u64)) {
    let (start, blocks) = extent(volume, group);
    let end = start + blocks;
    let first = metadata.partition_point(|&(_, to)| to <= start);
    let here = metadata[first..].iter().take_while(|&&(from, _)| from < end);
    let base = (start, start + base_blocks(volume, group));
    let mut used: Vec<(u64, u64)> = here.map(|&(from, to)| (from.max(start), to.min(end))).chain([base]).collect();
    used.sort_unstable();
    let mut at = start;
    for (from, to) in used {
        if from > at {
            each(volume.byte_of(at), volume.byte_of(from - at));
        }
        at = at.max(to);
    }
    if at < end {
        each(volume.byte_of(at), volume.byte_of(end - at));
    }
}

/// Blocks at the start of a group for a copy of the superblock, of group descriptors, and those kept for more of these.
fn base_blocks<B: BlockRead>(volume: &Volume<B>, group: u64) -> u64 {
    let superblock = &volume.superblock;
    let has_copy = superblock.has_backup(group);
    let per_block = u64::from(superblock.block_bytes) / superblock.descriptor_bytes as u64;
    let is_meta = superblock.incompatible.contains(Incompatible::META_BG);
    let (meta_group, within) = (group / per_block, group % per_block);
    let descriptors = match is_meta && meta_group >= superblock.first_meta_bg.into() {
        true => u64::from(within < 2 || within == per_block - 1),
        false if !has_copy => 0,
        false => {
            let all = u64::from(superblock.groups).div_ceil(per_block);
            let own = if is_meta { all.min(superblock.first_meta_bg.into()) } else { all };
            own + u64::from(superblock.reserved_descriptor_blocks)
        }
    };
    u64::from(has_copy) + descriptors
}
