//! Group descriptors: where the tables of inodes lie.

use super::{
    checksum::{crc16, crc32c},
    fields::{le16, le32, split64},
    superblock::{self, Incompatible, Superblock},
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, problems::Problems},
};

/// A group descriptor's block of the inode table, and how many of its inodes were never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// The first block of its inode table; 0 where nothing can be believed.
    pub(super) inode_table: u64,
    /// Inodes of the table that may be in use, from its beginning.
    pub(super) inodes: u32,
}

impl Group {
    /// Reads a descriptor. `Err` with both checksums where they differ.
    pub(super) fn parse(superblock: &Superblock, number: u32, bytes: &[u8]) -> Result<Group, (u16, u16)> {
        let found = le16(bytes, 0x1E);
        let mut expected = found;
        if superblock.is_checksummed() {
            let crc = crc32c(superblock.checksum_seed, &number.to_le_bytes());
            let crc = crc32c(crc32c(crc, &bytes[..0x1E]), &[0, 0]);
            expected = le16(&crc32c(crc, &bytes[0x20..]).to_le_bytes(), 0);
        } else if superblock.has_group_checksums() {
            let crc = crc16(!0, &superblock.uuid);
            let crc = crc16(crc16(crc, &number.to_le_bytes()), &bytes[..0x1E]);
            expected = crc16(crc, &bytes[0x20..]);
        }
        if expected != found {
            return Err((expected, found));
        }
        let wide = bytes.len() >= 64;
        let inode_table = if wide { split64(bytes, 8, 0x28) } else { le32(bytes, 8).into() };
        let flags = le16(bytes, 0x12);
        let unused = u32::from(le16(bytes, 0x1C)) | if wide { u32::from(le16(bytes, 0x32)) << 16 } else { 0 };
        const INODE_UNINIT: u16 = 1;
        let inodes = match superblock.has_group_checksums() {
            true if flags & INODE_UNINIT != 0 => 0,
            true => superblock.inodes_per_group.saturating_sub(unused),
            false => superblock.inodes_per_group,
        };
        Ok(Group { inode_table, inodes })
    }
}

/// Reads all descriptors, one large read where they lie together. The damaged ones are left empty, each with a problem.
///
/// Takes 16 bytes a group.
pub(super) fn read<B: BlockRead>(volume: &Volume<B>, problems: &mut Problems) -> Vec<Group> {
    let mut groups = vec![Group::default(); volume.superblock.groups as usize];
    each_descriptor(volume, problems, &mut |number, descriptor, at| {
        let group = checked(volume, number, descriptor, at)?;
        if let Some(place) = groups.get_mut(number as usize) {
            *place = group;
        }
        Ok(())
    });
    groups
}

/// Takes a descriptor: the number of the group, the bytes, and where they lie.
pub(super) type Visit<'a> = dyn FnMut(u32, &[u8], u64) -> Result<(), TableError> + 'a;

/// Visits all descriptors that can be read.
pub(super) fn each_descriptor<B: BlockRead>(volume: &Volume<B>, problems: &mut Problems, each: &mut Visit<'_>) {
    let superblock = &volume.superblock;
    let block_bytes = superblock.block_bytes as usize;
    let per_block = block_bytes / superblock.descriptor_bytes;
    let descriptor_blocks = (superblock.groups as usize).div_ceil(per_block);
    let mut number = 0;
    let mut done = 0;
    while done < descriptor_blocks {
        let first = place(superblock, done as u64);
        let mut count = 1;
        while done + count < descriptor_blocks
            && (count + 1) * block_bytes <= 4 << 20
            && place(superblock, (done + count) as u64) == first + count as u64
        {
            count += 1;
        }
        done += count;
        let mut bytes = vec![0; count * block_bytes];
        let mut unread = Vec::new();
        if volume.holds(first, count as u64) {
            volume.read(first, &mut bytes, &mut unread);
        } else {
            let expected = format!("below {}", superblock.blocks);
            problems.push(TableError::damaged(
                "the place of group descriptors",
                volume.byte_of(first),
                expected,
                first,
            ));
        }
        for (index, descriptor) in bytes.chunks(superblock.descriptor_bytes).enumerate() {
            if number >= superblock.groups {
                break;
            }
            let block = first + (index / per_block) as u64;
            if !unread.iter().any(|(unread, _)| *unread == block) {
                let at = volume.byte_of(first) + (index * superblock.descriptor_bytes) as u64;
                problems.extend(each(number, descriptor, at).err());
            }
            number += 1;
        }
        problems.extend(unread.into_iter().map(|(_, error)| error));
    }
}

fn checked<B: BlockRead>(volume: &Volume<B>, number: u32, bytes: &[u8], at: u64) -> Result<Group, TableError> {
    let superblock = &volume.superblock;
    let group = Group::parse(superblock, number, bytes).map_err(|(expected, found)| {
        let what = format!("the checksum of the descriptor of group {number}");
        TableError::damaged(what, at + 0x1E, format!("{expected:#06x}"), format!("{found:#06x}"))
    })?;
    let table_bytes = u64::from(superblock.inodes_per_group) * superblock.inode_bytes as u64;
    let blocks = table_bytes.div_ceil(superblock.block_bytes.into());
    if group.inodes > 0 && (group.inode_table == 0 || !volume.holds(group.inode_table, blocks)) {
        let what = format!("the place of the inode table of group {number}");
        let expected = format!("1 to {}", superblock.blocks.saturating_sub(blocks));
        return Err(TableError::damaged(what, at + 8, expected, group.inode_table));
    }
    Ok(group)
}

/// The block that has the descriptors with that index, each block full of them counted as one.
fn place(superblock: &Superblock, index: u64) -> u64 {
    let first = u64::from(superblock.first_data_block);
    if !superblock.incompatible.contains(Incompatible::META_BG) || index < superblock.first_meta_bg.into() {
        // Behind the superblock, which lies in block 0 where blocks are larger than 1 KiB. With clusters, group 0 begins with
        // block 0 also where they aren't.
        return superblock::AT / u64::from(superblock.block_bytes) + 1 + index;
    }
    // Each group of as many groups as a block has descriptors keeps its own.
    let group = index * (superblock.block_bytes as usize / superblock.descriptor_bytes) as u64;
    let start = first.saturating_add(group.saturating_mul(superblock.blocks_per_group.into()));
    let boot_block = superblock.block_bytes == 1024 && index == 0 && first == 0;
    start + u64::from(superblock.has_backup(group)) + u64::from(boot_block)
}

#[cfg(test)]
mod tests {
    use crate::{
        fuzzing::Repeated,
        tables::{Tables, Wanted, ext4::Ext4, ext4::superblock::tests, problems::MOST, tree::Tree},
    };

    /// A file of no bytes but a superblock can look as large as one likes.
    #[test]
    fn a_sparse_image_of_wrong_descriptors_alone_has_few_problems() {
        const GROUPS: u32 = 1 << 16;
        const CHECKSUMS_OF_GROUPS: u32 = 0x10;
        let fields = [(0, GROUPS * 8), (4, GROUPS * 256 + 1), (0x20, 256), (0x28, 8), (0x64, CHECKSUMS_OF_GROUPS)];
        let first = tests::bytes(&fields);
        let device =
            Repeated { first, first_at: 1024, rest: &[], block_bytes: 1024, len: (u64::from(GROUPS) + 1) << 18 };
        let mut tables = Ext4::open(device).expect("a superblock");
        assert_eq!(tables.problems.met(), GROUPS.into());
        assert_eq!(tables.problems.kept().len(), MOST);
        let tree = Tree::read(&mut tables as &mut dyn Tables, Wanted::default(), |_| ()).expect("tables");
        assert_eq!(tree.problems_met(), MOST as u64 + 1, "and one that tells of the others");
    }
}
