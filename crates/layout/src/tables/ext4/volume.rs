//! The blocks of a file system, as they are once its journal was replayed.

use super::{groups::Group, journal::Overlay, merge::Piece, superblock::Superblock};
use crate::{
    block_read::BlockRead,
    tables::{
        TableError,
        cast::{to_u32, to_usize},
    },
};

/// A device and how its file system is laid out.
pub(super) struct Volume<B> {
    pub(super) device: B,
    pub(super) superblock: Superblock,
    pub(super) groups: Vec<Group>,
    pub(super) overlay: Overlay,
    /// Gaps between what is wanted are read through up to this length.
    pub(super) gap_bytes: u64,
}

impl<B: BlockRead> Volume<B> {
    /// Where a block begins, in bytes.
    pub(super) fn byte_of(&self, block: u64) -> u64 {
        block.saturating_mul(self.superblock.block_bytes.into())
    }

    /// Whether all blocks of a run are the file system's.
    pub(super) fn holds(&self, block: u64, count: u64) -> bool {
        block.checked_add(count).is_some_and(|end| end <= self.superblock.blocks)
    }

    /// The used parts of the inode tables in the order of the disk; tags are numbers of groups.
    pub(super) fn tables(&self) -> Vec<Piece> {
        let used = (0..).zip(&self.groups).filter(|(_, group)| group.inodes > 0);
        let table = |(tag, group): (u32, &Group)| {
            let bytes = u64::from(group.inodes) * self.superblock.inode_bytes as u64;
            let count = bytes.div_ceil(self.superblock.block_bytes.into());
            Piece { block: group.inode_table, count: to_u32(count), tag, offset: 0 }
        };
        let mut tables: Vec<Piece> = used.map(table).collect();
        tables.sort_by_key(|table| table.block);
        tables
    }

    /// Reads blocks, all that fit into the buffer. Of those that can't be read the bytes are zeros, and `unread` gets each
    /// with its reason.
    pub(super) fn read(&self, block: u64, buffer: &mut [u8], unread: &mut Vec<(u64, TableError)>) {
        let block_bytes = self.superblock.block_bytes as usize;
        if self.device.read_at(buffer, self.byte_of(block)).is_err() {
            for (index, bytes) in buffer.chunks_mut(block_bytes).enumerate() {
                let block = block + index as u64;
                let at = self.byte_of(block);
                if let Err(source) = self.device.read_at(bytes, at) {
                    bytes.fill(0);
                    unread.push((block, TableError::Io { at, length: bytes.len() as u64, source }));
                }
            }
        }
        let count = (buffer.len() / block_bytes) as u64;
        for (replaced, by) in self.overlay.of(block, count) {
            let start = to_usize(replaced - block) * block_bytes;
            let Some(bytes) = buffer.get_mut(start..start + block_bytes) else { continue };
            let at = self.byte_of(by.block);
            match self.device.read_at(bytes, at) {
                Ok(()) if by.escaped => bytes[..4].copy_from_slice(&super::journal::MAGIC),
                Ok(()) => {}
                Err(source) => unread.push((replaced, TableError::Io { at, length: block_bytes as u64, source })),
            }
        }
    }

    /// Reads one block.
    pub(super) fn block(&self, block: u64) -> Result<Vec<u8>, TableError> {
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        let mut unread = Vec::new();
        self.read(block, &mut bytes, &mut unread);
        match unread.pop() {
            Some((_, error)) => Err(error),
            None => Ok(bytes),
        }
    }

    /// The block of the inode table that has an inode, and the byte in it. `None` for a number that no inode has, or one
    /// of a group of which nothing is known.
    pub(super) fn inode_place(&self, inode: u32) -> Option<(u64, usize)> {
        let index = inode.checked_sub(1)?;
        let group = self.groups.get((index / self.superblock.inodes_per_group) as usize)?;
        let index = index % self.superblock.inodes_per_group;
        if index >= group.inodes {
            return None;
        }
        let byte = u64::from(index) * self.superblock.inode_bytes as u64;
        let block_bytes = u64::from(self.superblock.block_bytes);
        let block = group.inode_table.checked_add(byte / block_bytes)?;
        self.holds(block, 1).then_some((block, to_usize(byte % block_bytes)))
    }
}
