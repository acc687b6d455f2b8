//! Single inodes and directories of a mounted file system, one after the other, without a scan.

use std::ops::ControlFlow;

use super::{
    Ext4,
    directory::{self, Directory},
    extents::Run,
    fields::le32,
    inode::{CASEFOLD, EA_INODE, ENCRYPTED, INLINE_DATA, RawInode, kind},
    source::Direct,
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::Inode};

/// Behind an inode's fields, where extended attributes begin that lie in its table.
const XATTR_MAGIC: u32 = 0xEA02_0000;
/// Blocks of a directory, at most: larger ones are for the kernel.
const BLOCKS_MAX: u64 = 1024;

impl<B: BlockRead> Ext4<B> {
    /// Looks at inodes by their numbers. What lies in one block is read once where it is asked for in a row.
    pub fn look_up(&self) -> LookUp<'_, B> {
        LookUp { volume: &self.volume, table: None, spare: Vec::new(), block: Vec::new() }
    }
}

/// See [`Ext4::look_up`]. Whatever is unusual or damaged, or is being written at the moment, is `None`: then the kernel is to be asked.
pub struct LookUp<'a, B> {
    volume: &'a Volume<B>,
    /// The block of an inode table that was read last.
    table: Option<u64>,
    spare: Vec<u8>,
    block: Vec<u8>,
}

impl<B> std::fmt::Debug for LookUp<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LookUp").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<B: BlockRead> LookUp<'_, B> {
    fn raw(&mut self, number: u32) -> Option<RawInode<'_>> {
        let volume = self.volume;
        let (block, at) = volume.inode_place(number)?;
        if self.table != Some(block) {
            self.table = None;
            self.spare.resize(volume.superblock.block_bytes as usize, 0);
            volume.device.read_at(&mut self.spare, volume.byte_of(block)).ok()?;
            self.table = Some(block);
        }
        let bytes = self.spare.get(at..at + volume.superblock.inode_bytes)?;
        let raw = RawInode { number, bytes };
        raw.check(volume, volume.byte_of(block) + at as u64).ok()?;
        let is_in_use = raw.links() > 0 && raw.mode() != 0 && raw.flags() & EA_INODE == 0;
        is_in_use.then_some(raw)
    }

    /// An inode that has names, and whether it has extended attributes.
    pub fn inode(&mut self, number: u32) -> Option<(Inode, bool)> {
        let superblock = &self.volume.superblock;
        let raw = self.raw(number)?;
        let behind = 128 + raw.extra_bytes();
        let has_xattrs = raw.xattr_block(superblock) != 0
            || raw.bytes.len() >= behind + 4 && raw.bytes.len() > 128 && le32(raw.bytes, behind) == XATTR_MAGIC;
        Some((raw.fields(superblock), has_xattrs))
    }

    /// Tells the names of a directory with the inodes that they name, until `tell` says no. `None` where they aren't all told.
    pub fn names(&mut self, number: u32, tell: &mut dyn FnMut(u32, &[u8]) -> bool) -> Option<()> {
        let volume = self.volume;
        let (directory, blocks) = self.directory(number)?;
        self.block.resize(volume.superblock.block_bytes as usize, 0);
        for block in blocks.iter().flat_map(|run| run.physical..run.physical + run.count) {
            volume.device.read_at(&mut self.block, volume.byte_of(block)).ok()?;
            self.names_of_block(&directory, tell)?;
        }
        Some(())
    }

    /// Whether a directory is one block without names. `None` where that can't be told, or only by waiting for the disk.
    pub fn is_one_empty_block(&mut self, number: u32) -> Option<bool> {
        let volume = self.volume;
        if self.raw(number)?.size(&volume.superblock) != u64::from(volume.superblock.block_bytes) {
            return Some(false);
        }
        let (directory, blocks) = self.directory(number)?;
        let [Run { physical, .. }] = *blocks else { return None };
        self.block.resize(volume.superblock.block_bytes as usize, 0);
        let is_read = volume.device.read_at_if_cached(&mut self.block, volume.byte_of(physical)).ok()?;
        let mut is_empty = true;
        let told = is_read.then(|| {
            self.names_of_block(&directory, &mut |_, _| {
                is_empty = false;
                false
            })
        })?;
        (told.is_some() || !is_empty).then_some(is_empty)
    }

    /// What is needed to read a directory, and where all of its blocks are.
    fn directory(&mut self, number: u32) -> Option<(Directory, Vec<Run>)> {
        let volume = self.volume;
        let superblock = &volume.superblock;
        let raw = self.raw(number)?;
        // What is encrypted only the kernel shows as users see it.
        if raw.kind() != kind::DIRECTORY || raw.flags() & (ENCRYPTED | INLINE_DATA | CASEFOLD) != 0 {
            return None;
        }
        let blocks = raw.size(superblock).div_ceil(superblock.block_bytes.into());
        if blocks > BLOCKS_MAX {
            return None;
        }
        let mapped = raw.runs(volume, &mut Direct::new(volume));
        let directory = Directory {
            number,
            seed: raw.seed(superblock),
            flags: raw.flags(),
            hash: Directory::hash_kind(raw.flags(), blocks, superblock),
            has_index_to_check: false,
        };
        let is_whole = mapped.runs.iter().map(|run| run.count).sum::<u64>() == blocks;
        let can_be_read = is_whole && mapped.lack.is_none() && !mapped.runs.iter().any(|run| run.unwritten);
        can_be_read.then_some((directory, mapped.runs))
    }

    /// Those in the block that was read last. `None` where they aren't all told.
    fn names_of_block(&self, directory: &Directory, tell: &mut dyn FnMut(u32, &[u8]) -> bool) -> Option<()> {
        let superblock = &self.volume.superblock;
        if superblock.is_checksummed() && directory::check(directory, &self.block).is_err() {
            return None;
        }
        let mut all_are_told = true;
        let mut shown = Vec::new();
        let flow = directory::names(directory, superblock, &self.block, 0, &mut shown, &mut |told| {
            let inode = told.ok().and_then(|(name, _)| Some((u32::try_from(name.inode).ok()?, name.name)));
            all_are_told = inode.is_some_and(|(inode, name)| tell(inode, name));
            if all_are_told { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (flow.is_continue() && all_are_told).then_some(())
    }
}
