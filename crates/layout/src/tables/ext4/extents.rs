//! Where the content of an inode lies: extent trees, and the indirect blocks of older file systems.

use std::rc::Rc;

use super::{
    checksum::crc32c,
    fields::{le16, le32},
    source::{Lack, Source},
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, cast::to_usize},
};

/// Blocks of a file that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first block in the file.
    pub(super) logical: u64,
    /// The first block on the device.
    pub(super) physical: u64,
    /// How many blocks.
    pub(super) count: u64,
    /// Whether they read as zeros.
    pub(super) unwritten: bool,
}

const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 12;
const EXTENT_MAGIC: u16 = 0xF30A;
/// No tree that a kernel makes is deeper.
pub(super) const DEEPEST: u16 = 5;
/// Extents longer than this are unwritten.
const LONGEST: u16 = 32768;

/// The depth of a node of an extent tree, and its entries; `None` where it isn't one.
pub(super) fn entries(node: &[u8]) -> Option<(u16, impl Iterator<Item = &[u8]>)> {
    let (used, room) = (usize::from(le16(node, 2)), usize::from(le16(node, 4)));
    let entries = node.get(HEADER_BYTES..HEADER_BYTES + used * ENTRY_BYTES)?;
    let is_sound = le16(node, 0) == EXTENT_MAGIC && used <= room;
    is_sound.then(|| (le16(node, 6), entries.chunks_exact(ENTRY_BYTES)))
}

/// The block of the node that an entry of an index leads to.
pub(super) fn child(entry: &[u8]) -> u64 {
    u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32
}

/// The first block of an extent and how many were written.
pub(super) fn written(entry: &[u8]) -> (u64, u32) {
    let count = le16(entry, 4);
    (u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32, if count > LONGEST { 0 } else { count.into() })
}

/// Nodes of a tree, and indirect blocks.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// How many were looked at.
    pub(super) count: u64,
    /// Which these are, where no checksum tells whose they are; the first ones of a very large file.
    pub(super) blocks: Vec<u64>,
    /// The first number in them that no kernel writes, where no checksum tells that it is right.
    pub(super) oddity: Option<Oddity>,
}

/// A number in a node that can be read, but that no kernel writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oddity {
    pub(super) what: &'static str,
    /// The block of the node; `None` for the inode's own, whose bytes begin behind its other fields.
    pub(super) block: Option<u64>,
    pub(super) offset: u64,
    pub(super) expected: u64,
    pub(super) found: u64,
}

/// Nodes that are kept, of 8 bytes each.
const NODES_KEPT: usize = 1 << 17;

/// What was collected.
pub(super) struct Mapped {
    /// In the order of the file.
    pub(super) runs: Vec<Run>,
    /// Blocks that tell of others.
    pub(super) nodes: Nodes,
    /// What is missing.
    pub(super) lack: Option<Lack>,
}

/// Collects the runs of one inode.
pub(super) struct Mapping<'a, B> {
    pub(super) volume: &'a Volume<B>,
    pub(super) source: &'a mut dyn Source,
    pub(super) inode: u32,
    /// Where the checksums of its blocks begin.
    pub(super) seed: u32,
    /// What is mapped so far, in the order of the file.
    pub(super) runs: Vec<Run>,
    blocks_mapped: u64,
    nodes: Nodes,
    lack: Option<Lack>,
}

impl<'a, B: BlockRead> Mapping<'a, B> {
    pub(super) fn new(volume: &'a Volume<B>, source: &'a mut dyn Source, inode: u32, seed: u32) -> Mapping<'a, B> {
        Mapping { volume, source, inode, seed, runs: Vec::new(), blocks_mapped: 0, nodes: Nodes::default(), lack: None }
    }

    /// Goes through an extent tree, beginning with the 60 bytes of the inode. What can be read is in `runs` also where
    /// something is lacking.
    pub(super) fn extent_tree(mut self, root: &[u8]) -> Mapped {
        self.node(root, None, 0, 1 << 32, None);
        self.mapped()
    }

    /// Goes through the 15 block numbers of an inode without extents, for `blocks` blocks of the file.
    pub(super) fn indirect_blocks(mut self, numbers: &[u8], blocks: u64) -> Mapped {
        for index in 0..12.min(blocks) {
            self.mapped_block(index, le32(numbers, to_usize(index) * 4).into());
        }
        let per_block = u64::from(self.volume.superblock.block_bytes / 4);
        let (mut first, mut covered) = (12, per_block);
        for (level, depth) in (0..3).zip(0..) {
            if first >= blocks {
                break;
            }
            self.indirect(le32(numbers, (12 + level) * 4).into(), depth, first, blocks);
            first += covered;
            covered *= per_block;
        }
        self.mapped()
    }

    fn mapped(self) -> Mapped {
        Mapped { runs: self.runs, nodes: self.nodes, lack: self.lack }
    }

    fn lacking(&mut self, lack: Lack) {
        // Blocks that are to come decide first: with them, everything is looked at again.
        if !matches!(self.lack, Some(Lack::Blocks)) && (self.lack.is_none() || matches!(lack, Lack::Blocks)) {
            self.lack = Some(lack);
        }
    }

    fn damaged(&mut self, what: &str, block: Option<u64>, expected: impl ToString, found: impl ToString) {
        let what = format!("{what} of inode {}", self.inode);
        let (place, byte) = self.volume.inode_place(self.inode).unwrap_or_default();
        let at = match block {
            Some(block) => self.volume.byte_of(block),
            None => self.volume.byte_of(place) + byte as u64 + 0x28,
        };
        self.lacking(TableError::damaged(what, at, expected, found).into());
    }

    fn stopped(&self) -> bool {
        matches!(self.lack, Some(Lack::Damaged(_)))
    }

    /// A node for the blocks of the file from `from` to before `to`; `block` where it isn't the inode's own.
    fn node(&mut self, node: &[u8], depth: Option<u16>, from: u64, to: u64, block: Option<u64>) {
        let (magic, entries, room, found_depth) = (le16(node, 0), le16(node, 2), le16(node, 4), le16(node, 6));
        if magic != EXTENT_MAGIC {
            return self.damaged(
                "the magic number of an extent node",
                block,
                format!("{EXTENT_MAGIC:#06x}"),
                format!("{magic:#06x}"),
            );
        }
        if depth.map_or(found_depth > DEEPEST, |depth| depth != found_depth) {
            let expected = depth.map_or(format!("at most {DEEPEST}"), |depth| depth.to_string());
            return self.damaged("the depth of an extent node", block, expected, found_depth);
        }
        let most = (node.len() - HEADER_BYTES) / ENTRY_BYTES;
        if usize::from(room) > most || entries > room {
            return self.damaged("the number of entries of an extent node", block, format!("at most {most}"), entries);
        }
        if block.is_some() && self.volume.superblock.is_checksummed() {
            let end = HEADER_BYTES + usize::from(room) * ENTRY_BYTES;
            let (expected, found) = (crc32c(self.seed, &node[..end]), le32(node, end));
            if expected != found {
                let (expected, found) = (format!("{expected:#010x}"), format!("{found:#010x}"));
                return self.damaged("the checksum of an extent node", block, expected, found);
            }
        }
        let used = &node[HEADER_BYTES..HEADER_BYTES + usize::from(entries) * ENTRY_BYTES];
        self.look_for_oddities(room, most, used, from, block);
        if found_depth == 0 {
            self.leaf(used, from, to, block)
        } else {
            self.index(used, found_depth - 1, from, to, block)
        }
    }

    /// Remembers what is odd about the head of a node, and about its first entry, which its parent tells, too.
    fn look_for_oddities(&mut self, room: u16, most: usize, used: &[u8], from: u64, block: Option<u64>) {
        if self.volume.superblock.is_checksummed() || self.nodes.oddity.is_some() {
            return;
        }
        let odd = |what, offset, expected, found| Some(Oddity { what, block, offset, expected, found });
        // A tail may take some of the room.
        if usize::from(room) + 2 < most {
            self.nodes.oddity = odd("the room of an extent node", 4, most as u64, room.into());
        } else if block.is_some() && !used.is_empty() && u64::from(le32(used, 0)) != from {
            let what = "the first block of an extent node";
            self.nodes.oddity = odd(what, HEADER_BYTES as u64, from, le32(used, 0).into());
        }
    }

    fn leaf(&mut self, entries: &[u8], from: u64, to: u64, block: Option<u64>) {
        let mut next = from;
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let length = le16(entry, 4);
            let unwritten = length > LONGEST;
            let count = u64::from(if unwritten { length - LONGEST } else { length });
            let logical = u64::from(le32(entry, 0));
            let physical = u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32;
            if count == 0 || logical < next || logical + count > to {
                let found = format!("{logical}, {count} long");
                return self.damaged("the place of an extent in the file", block, format!("{next} to {to}"), found);
            }
            next = logical + count;
            if !self.add(Run { logical, physical, count, unwritten }, block) {
                return;
            }
        }
    }

    fn index(&mut self, entries: &[u8], depth: u16, from: u64, to: u64, block: Option<u64>) {
        let mut next = from;
        for (position, entry) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
            let logical = u64::from(le32(entry, 0));
            let child = child(entry);
            let behind = entries.get((position + 1) * ENTRY_BYTES..).filter(|rest| !rest.is_empty());
            let end = behind.map_or(to, |rest| le32(rest, 0).into());
            if logical < next || end <= logical || end > to {
                let expected = format!("{next} to {to}");
                return self.damaged("the place of an extent node in the file", block, expected, logical);
            }
            next = end;
            if child == 0 || !self.volume.holds(child, 1) {
                let expected = format!("below {}", self.volume.superblock.blocks);
                return self.damaged("the place of an extent node", block, expected, child);
            }
            match self.next_node(child) {
                Ok(bytes) => self.node(&bytes, Some(depth), logical, end, Some(child)),
                Err(lack) => self.lacking(lack),
            }
            if self.stopped() {
                return;
            }
        }
    }

    /// A block of block numbers; below `level` further ones there are the numbers of content.
    fn indirect(&mut self, block: u64, level: u32, first: u64, blocks: u64) {
        if block == 0 || self.stopped() {
            return;
        }
        if !self.volume.holds(block, 1) {
            let expected = format!("below {}", self.volume.superblock.blocks);
            return self.damaged("the number of an indirect block", None, expected, block);
        }
        let bytes = match self.next_node(block) {
            Ok(bytes) => bytes,
            Err(lack) => return self.lacking(lack),
        };
        let per_block = u64::from(self.volume.superblock.block_bytes / 4);
        let covered = per_block.pow(level);
        for (index, number) in bytes.chunks_exact(4).enumerate() {
            let first = first + index as u64 * covered;
            if first >= blocks || self.stopped() {
                return;
            }
            let number = le32(number, 0).into();
            match level {
                0 => self.mapped_block(first, number),
                _ => self.indirect(number, level - 1, first, blocks),
            }
        }
    }

    fn next_node(&mut self, block: u64) -> Result<Rc<[u8]>, Lack> {
        // Nodes that name each other again and again, but map nothing, would take hours.
        self.nodes.count += 1;
        if !self.volume.superblock.is_checksummed() && self.nodes.blocks.len() < NODES_KEPT {
            self.nodes.blocks.push(block);
        }
        if self.nodes.count > self.volume.superblock.blocks {
            self.damaged("the number of nodes", Some(block), "fewer than there are blocks", self.nodes.count);
        }
        self.source.block(block)
    }

    fn mapped_block(&mut self, logical: u64, physical: u64) {
        if physical != 0 {
            self.add(Run { logical, physical, count: 1, unwritten: false }, None);
        }
    }

    /// Adds a run; false where it can't be.
    fn add(&mut self, run: Run, block: Option<u64>) -> bool {
        let blocks = self.volume.superblock.blocks;
        if run.physical == 0 || !self.volume.holds(run.physical, run.count) {
            self.damaged("the place of content", block, format!("1 to {blocks}"), run.physical);
            return false;
        }
        self.blocks_mapped += run.count;
        // A tree that names a block again and again would grow without end.
        if self.blocks_mapped > blocks {
            self.damaged("the number of blocks", block, format!("at most {blocks}"), self.blocks_mapped);
            return false;
        }
        match self.runs.last_mut() {
            Some(last)
                if last.logical + last.count == run.logical
                    && last.physical + last.count == run.physical
                    && last.unwritten == run.unwritten =>
            {
                last.count += run.count;
            }
            _ => self.runs.push(run),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{journal::Overlay, source::Direct, superblock::Superblock},
        *,
    };

    const BLOCK: usize = 1024;
    const BLOCKS: usize = 300;

    fn node(depth: u16, entries: &[[u8; 12]]) -> Vec<u8> {
        let mut node = Vec::new();
        for field in [EXTENT_MAGIC, entries.len() as u16, 4, depth, 0, 0] {
            node.extend_from_slice(&field.to_le_bytes());
        }
        node.extend_from_slice(entries.as_flattened());
        node.resize(60, 0);
        node
    }

    fn extent(logical: u32, length: u16, physical: u32) -> [u8; 12] {
        let mut entry = [0; 12];
        entry[..4].copy_from_slice(&logical.to_le_bytes());
        entry[4..6].copy_from_slice(&length.to_le_bytes());
        entry[8..].copy_from_slice(&physical.to_le_bytes());
        entry
    }

    fn child(logical: u32, block: u32) -> [u8; 12] {
        let mut entry = [0; 12];
        entry[..4].copy_from_slice(&logical.to_le_bytes());
        entry[4..8].copy_from_slice(&block.to_le_bytes());
        entry
    }

    /// Runs as (logical, physical, count), and what is wrong.
    fn mapped(
        blocks: &[(usize, Vec<u8>)],
        map: impl FnOnce(Mapping<'_, Vec<u8>>) -> Mapped,
    ) -> (Vec<(u64, u64, u64)>, String) {
        let mut device = vec![0; BLOCKS * BLOCK];
        let superblock = Superblock::for_tests(BLOCKS as u32);
        blocks.iter().for_each(|(at, bytes)| device[at * BLOCK..][..bytes.len()].copy_from_slice(bytes));
        let volume = Volume { device, superblock, groups: Vec::new(), overlay: Overlay::default(), gap_bytes: 0 };
        let mut source = Direct::new(&volume);
        let Mapped { runs, lack, .. } = map(Mapping::new(&volume, &mut source, 12, 0));
        let lack = match lack {
            Some(Lack::Damaged(error)) => error.to_string(),
            Some(Lack::Blocks) => "blocks".into(),
            None => String::new(),
        };
        (runs.iter().map(|run| (run.logical, run.physical, run.count)).collect(), lack)
    }

    fn tree(root: &[u8], blocks: &[(usize, Vec<u8>)]) -> (Vec<(u64, u64, u64)>, String) {
        mapped(blocks, |mapping| mapping.extent_tree(root))
    }

    #[test]
    fn neighbours_are_joined_and_long_ones_unwritten() {
        let leaf = node(0, &[extent(0, 2, 10), extent(2, 3, 12), extent(9, 1, 40), extent(10, LONGEST + 1, 41)]);
        assert_eq!(tree(&leaf, &[]), (vec![(0, 10, 5), (9, 40, 1), (10, 41, 1)], String::new()));
    }

    #[test]
    fn depth_has_to_fall_and_the_file_to_go_on() {
        let root = node(2, &[child(0, 20)]);
        let middle = node(1, &[child(0, 21), child(7, 22)]);
        let first = node(0, &[extent(0, 7, 100)]);
        let sound = [(20, middle.clone()), (21, first.clone()), (22, node(0, &[extent(8, 1, 200)]))];
        assert_eq!(tree(&root, &sound), (vec![(0, 100, 7), (8, 200, 1)], String::new()));
        let own_child = [(20, node(2, &[child(0, 20)]))];
        assert!(tree(&root, &own_child).1.contains("depth"));
        let overlapping = [(20, middle), (21, node(0, &[extent(0, 8, 100)])), (22, first)];
        assert!(tree(&root, &overlapping).1.contains("place of an extent"));
        for (root, what) in [
            (node(0, &[extent(0, 2, 299)]), "place of content"),
            (node(0, &[extent(0, 0, 29)]), "place of an extent"),
            (node(0, &[extent(5, 2, 29), extent(6, 2, 39)]), "place of an extent"),
            (node(0, &[extent(0, 200, 29), extent(200, 200, 29)]), "number of blocks"),
            (node(1, &[child(0, 300)]), "place of an extent node"),
            (node(6, &[child(0, 30)]), "depth"),
            (vec![0; 60], "magic"),
        ] {
            assert!(tree(&root, &[]).1.contains(what), "{what}: {}", tree(&root, &[]).1);
        }
    }

    #[test]
    fn numbers_of_blocks_on_three_levels() {
        let numbers = |pairs: &[(usize, u32)], count: usize| {
            let mut bytes = vec![0; count * 4];
            pairs.iter().for_each(|(at, number)| bytes[at * 4..][..4].copy_from_slice(&number.to_le_bytes()));
            bytes
        };
        let root = numbers(&[(0, 50), (1, 51), (11, 52), (12, 20), (13, 21), (14, 23)], 15);
        let blocks = [
            (20, numbers(&[(0, 53), (255, 60)], 256)),
            (21, numbers(&[(1, 22)], 256)),
            (22, numbers(&[(2, 61)], 256)),
            (23, numbers(&[(0, 24)], 256)),
            (24, numbers(&[(0, 25)], 256)),
            (25, numbers(&[(0, 62), (1, 63)], 256)),
        ];
        let third = 12 + 256 + 256 * 256;
        let expected = vec![(0, 50, 2), (11, 52, 2), (267, 60, 1), (12 + 256 + 256 + 2, 61, 1), (third, 62, 1)];
        let (runs, lack) = mapped(&blocks, |mapping| mapping.indirect_blocks(&root, third + 1));
        assert_eq!((runs, lack.as_str()), (expected, ""));
        let again = numbers(&[(14, 23)], 15);
        let blocks = [(23, numbers(&[(0, 23), (1, 23), (2, 23), (3, 23)], 256))];
        let (_, lack) = mapped(&blocks, |mapping| mapping.indirect_blocks(&again, u64::MAX / 4096));
        assert!(lack.is_empty(), "numbers of blocks on all levels are block 23: {lack}");
        let (_, lack) = mapped(&[(23, [23, 0, 0, 0].repeat(256))], |mapping| mapping.indirect_blocks(&again, 1 << 40));
        assert!(lack.contains("number of blocks"), "{lack}");
    }
}
