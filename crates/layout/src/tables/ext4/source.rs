//! Blocks of metadata that an inode needs beside itself: nodes of extent trees, indirect blocks, targets of long symbolic
//! links, extended attributes.
//!
//! To read them one by one as inodes come would send the disk back and forth. So inodes that need blocks wait; the blocks of
//! many are read in the order of the disk, and then all are looked at again, which for a deep tree asks for the next level.

use std::{collections::HashMap, rc::Rc};

use super::{
    merge::{Piece, merged},
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, cast::to_usize},
};

/// Why an inode can't be told now.
pub(super) enum Lack {
    /// Blocks are needed first, and were asked for.
    Blocks,
    /// It's damaged, or a part of it can't be read.
    Damaged(TableError),
}

impl From<TableError> for Lack {
    fn from(error: TableError) -> Lack {
        Lack::Damaged(error)
    }
}

/// Where blocks of metadata come from.
pub(super) trait Source {
    /// A block, whole.
    fn block(&mut self, block: u64) -> Result<Rc<[u8]>, Lack>;
}

/// Gives the blocks that were gathered, and keeps what else is asked for.
pub(super) struct Gathered {
    blocks: HashMap<u64, Option<Rc<[u8]>>>,
    wanted: Vec<u64>,
    block_bytes: usize,
    /// Looks at blocks that are left. No sound file system needs more, since each block belongs to few inodes; trees that
    /// name the same blocks again and again would take hours.
    left: u64,
}

/// What the smallest file system may take. Fewer where the fuzzer would spend its time in loops that this alone ends.
pub(super) const SPARE_LOOKS: u64 = if cfg!(fuzzing) { 1 << 11 } else { 1 << 16 };

/// Blocks that are asked for before they are read.
const ASKED: usize = 4096;
/// Bytes of blocks that are kept at most.
const KEPT_BYTES: usize = 64 << 20;

impl Gathered {
    pub(super) fn new<B: BlockRead>(volume: &Volume<B>) -> Gathered {
        let left = volume.superblock.blocks.saturating_mul(16).saturating_add(SPARE_LOOKS);
        let block_bytes = volume.superblock.block_bytes as usize;
        Gathered { blocks: HashMap::new(), wanted: Vec::new(), block_bytes, left }
    }

    /// Another way to blocks, for as many looks as are left.
    pub(super) fn direct<'a, B: BlockRead>(&self, volume: &'a Volume<B>) -> Direct<'a, B> {
        let direct = Direct::new(volume);
        Direct { left: direct.left.min(self.left), ..direct }
    }

    /// Counts what was looked at another way.
    pub(super) fn spent<B>(&mut self, by: &Direct<'_, B>) {
        self.left = self.left.saturating_sub(by.looks);
    }

    /// Whether enough was asked for to read it.
    pub(super) fn is_full(&self) -> bool {
        self.wanted.len() >= ASKED.min(KEPT_BYTES / 2 / self.block_bytes)
    }

    /// Reads what was asked for. False, with nothing read, where that would take more than 64 MiB.
    pub(super) fn read<B: BlockRead>(&mut self, volume: &Volume<B>, mut problem: impl FnMut(TableError)) -> bool {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.sort_unstable();
        wanted.dedup();
        let block_bytes = volume.superblock.block_bytes as usize;
        if (self.blocks.len() + wanted.len()) * block_bytes > KEPT_BYTES {
            return false;
        }
        let mut buffer = Vec::new();
        let pieces = wanted.iter().map(|&block| Piece { block, count: 1, tag: 0, offset: 0 });
        merged(pieces, volume.gap_bytes, volume.superblock.block_bytes, |request| {
            buffer.resize(request.count as usize * block_bytes, 0);
            let mut unread = Vec::new();
            volume.read(request.block, &mut buffer, &mut unread);
            for piece in request.pieces {
                let start = to_usize(piece.block - request.block) * block_bytes;
                let failed = unread.iter().any(|(block, _)| *block == piece.block);
                let bytes = (!failed).then(|| Rc::from(&buffer[start..start + block_bytes]));
                self.blocks.insert(piece.block, bytes);
            }
            unread.retain(|(block, _)| request.pieces.iter().any(|piece| piece.block == *block));
            unread.into_iter().for_each(|(_, error)| problem(error));
            true
        });
        true
    }

    /// Forgets all blocks.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.wanted.clear();
    }
}

impl Source for Gathered {
    fn block(&mut self, block: u64) -> Result<Rc<[u8]>, Lack> {
        let at = block.saturating_mul(self.block_bytes as u64);
        match self.blocks.get(&block) {
            Some(Some(bytes)) => {
                self.left = self.left.checked_sub(1).ok_or_else(|| too_many(at))?;
                Ok(bytes.clone())
            }
            Some(None) => {
                let what = format!("block {block} of metadata");
                Err(TableError::damaged(what, at, "bytes that can be read", "an error").into())
            }
            None => {
                // More than can be kept makes no difference.
                if self.wanted.len() <= KEPT_BYTES / 1024 {
                    self.wanted.push(block);
                }
                Err(Lack::Blocks)
            }
        }
    }
}

/// Reads each block when it's asked for, and some more behind it: for what needs more blocks than can be kept.
pub(super) struct Direct<'a, B> {
    volume: &'a Volume<B>,
    window: Vec<u8>,
    first: u64,
    /// Reads that are left: whoever asks for more than any sound inode has is damaged.
    left: u64,
    looks: u64,
}

fn too_many(at: u64) -> TableError {
    TableError::damaged("a tree of blocks", at, "an end", "more blocks than there are")
}

impl<'a, B: BlockRead> Direct<'a, B> {
    pub(super) fn new(volume: &'a Volume<B>) -> Direct<'a, B> {
        let left = volume.superblock.blocks.saturating_add(64);
        Direct { volume, window: Vec::new(), first: 0, left, looks: 0 }
    }
}

impl<B: BlockRead> Source for Direct<'_, B> {
    fn block(&mut self, block: u64) -> Result<Rc<[u8]>, Lack> {
        let block_bytes = self.volume.superblock.block_bytes as usize;
        let cached = |first: u64, window: &[u8]| {
            let start = usize::try_from(block.checked_sub(first)?).ok()?.checked_mul(block_bytes)?;
            Some(Rc::from(window.get(start..start.checked_add(block_bytes)?)?))
        };
        self.looks += 1;
        self.left = self.left.checked_sub(1).ok_or_else(|| too_many(self.volume.byte_of(block)))?;
        if let Some(bytes) = cached(self.first, &self.window) {
            return Ok(bytes);
        }
        let count = (self.volume.superblock.blocks - block.min(self.volume.superblock.blocks)).min(16);
        self.window.resize(count as usize * block_bytes, 0);
        self.first = block;
        let mut unread = Vec::new();
        self.volume.read(block, &mut self.window, &mut unread);
        // What lies behind is used only where all could be read.
        if !unread.is_empty() {
            self.window.clear();
            return Ok(Rc::from(self.volume.block(block)?));
        }
        cached(block, &self.window).ok_or_else(|| {
            let (at, expected) = (self.volume.byte_of(block), "one of the file system's");
            TableError::damaged("a block number", at, expected, block).into()
        })
    }
}
