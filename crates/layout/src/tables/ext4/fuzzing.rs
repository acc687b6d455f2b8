//! The parsers of ext4 with bytes that nobody has looked at before. See [`crate::fuzzing`].

use std::ops::ControlFlow;

use super::{
    Ext4,
    checksum::crc32c,
    directory::{self, Directory, HashKind},
    fields::{be32, le16, le32},
    groups::Group,
    indexes::Indexes,
    inode::{self, RawInode},
    journal::{self, Overlay},
    scan::Scan,
    source::SPARE_LOOKS,
    superblock::Superblock,
    volume::Volume,
};
use crate::{
    fuzzing::{Checker, Counted, Repeated, Target, cut, options},
    tables::{Found, Wanted, problems::MOST},
};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "ext4_superblock", run: superblock, memory: 16 << 20 },
    Target { name: "ext4_inode", run: inodes, memory: 32 << 20 },
    Target { name: "ext4_directory", run: directory_block, memory: 4 << 20 },
    Target { name: "ext4_journal", run: journal_replay, memory: 16 << 20 },
    Target { name: "ext4_xattrs", run: xattrs, memory: 32 << 20 },
];

const BLOCK: usize = 1024;
const BLOCKS: u32 = 512;
const INODE: usize = 256;
/// The block of the inodes 13 to 16.
const TABLE: u64 = 13;
/// Looks at blocks that a scan may take, and so reads, and those of its own two passes.
const READS: u64 = SPARE_LOOKS + 64 * BLOCKS as u64;

/// Bits of the first byte of an input: features of the file system, and whether checksums are made right.
const CHECKSUMS: u8 = 1;
const WIDE: u8 = 1 << 1;
const LARGE_DIRECTORIES: u8 = 1 << 2;
const VALUE_INODES: u8 = 1 << 3;
const HUGE_FILES: u8 = 1 << 4;
const CLUSTERS: u8 = 1 << 5;

/// A sound superblock of 512 blocks of 1 KiB in one group.
fn geometry(features: u8) -> Superblock {
    let mut bytes = vec![0; 1024];
    let has = |bit: u8, feature: u32| if features & bit != 0 { feature } else { 0 };
    let incompatible = 0x42 | has(WIDE, 0x80) | has(LARGE_DIRECTORIES, 0x4000) | has(VALUE_INODES, 0x400);
    let read_only = has(CHECKSUMS, 0x400) | has(HUGE_FILES, 0x8) | has(CLUSTERS, 0x200);
    for (at, value) in [
        (0, 16),
        (4, BLOCKS),
        (0x14, 1),
        (0x1C, if features & CLUSTERS != 0 { 2 } else { 0 }),
        (0x20, 8192),
        (0x28, 16),
        (0x38, 0xEF53),
        (0x4C, 1),
        (0x54, 11),
        (0x58, INODE as u32),
        (0x60, incompatible),
        (0x64, read_only),
        (0xE0, 13),
        (0xFC, 64 << 16 | 1),
    ] {
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
    }
    seal_superblock(&mut bytes);
    Superblock::parse(&bytes, u64::from(BLOCKS) * BLOCK as u64).expect("a sound superblock")
}

fn seal_superblock(bytes: &mut [u8]) {
    let sum = crc32c(!0, &bytes[..0x3FC]);
    bytes[0x3FC..0x400].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the checksum of an inode right.
pub(super) fn seal_inode(superblock: &Superblock, number: u32, bytes: &mut [u8]) {
    bytes[0x7C..0x7E].fill(0);
    let has_more = bytes.len() > 128 && le16(bytes, 0x80) >= 4;
    if has_more {
        bytes[0x82..0x84].fill(0);
    }
    let sum = crc32c(RawInode { number, bytes }.seed(superblock), bytes).to_le_bytes();
    bytes[0x7C..0x7E].copy_from_slice(&sum[..2]);
    if has_more {
        bytes[0x82..0x84].copy_from_slice(&sum[2..]);
    }
}

/// Four inodes in a table, and blocks that lie everywhere around it.
fn volume<'a>(features: u8, table: &[u8; BLOCK], rest: &'a [u8]) -> Volume<Counted<Repeated<'a>>> {
    let superblock = geometry(features);
    let mut first = table.to_vec();
    for (number, bytes) in (13..).zip(first.chunks_exact_mut(INODE)) {
        if features & CHECKSUMS != 0 {
            seal_inode(&superblock, number, bytes);
        }
    }
    let (block_bytes, len) = (BLOCK, u64::from(BLOCKS) * BLOCK as u64);
    let device = Repeated { first, first_at: TABLE * BLOCK as u64, rest, block_bytes, len };
    // The three blocks before have the first twelve inodes.
    let groups = vec![Group { inode_table: TABLE - 3, inodes: 16 }];
    Volume { device: Counted::new(device, READS), superblock, groups, overlay: Overlay::default(), gap_bytes: 0 }
}

fn scan<B: crate::BlockRead>(volume: &Volume<B>) {
    let mut checker = Checker::default();
    let ended = Scan::new(volume, Wanted { xattrs: true, ..Wanted::default() }, &mut checker).run();
    assert!(ended.is_continue());
    checker.finish(volume.device.len());
}

/// A superblock, and blocks that lie everywhere behind it, among them the group descriptors.
fn superblock(input: &[u8]) {
    let (features, rest) = options(input);
    let (mut first, rest) = cut::<1024>(rest);
    if features & CHECKSUMS != 0 {
        seal_superblock(&mut first);
    }
    let device = Repeated { first: first.to_vec(), first_at: 1024, rest, block_bytes: BLOCK, len: 16 << 20 };
    match Ext4::open(Counted::new(device, READS)) {
        Ok(ext4) => {
            assert!(ext4.facts.bytes <= 16 << 20);
            let superblock = &ext4.volume.superblock;
            for inode in [0, 1, 2, 12, superblock.inodes, u32::MAX] {
                superblock.is_special(inode);
                let place = ext4.volume.inode_place(inode);
                assert!(place.is_none_or(|(block, _)| block < superblock.blocks));
            }
        }
        Err(error) => assert!(error.to_string().len() < 4096),
    }
}

/// Four inodes of 256 bytes, and the blocks that they may name.
fn inodes(input: &[u8]) {
    let (features, rest) = options(input);
    let (table, rest) = cut(rest);
    scan(&volume(features, &table, rest));
}

/// 128 bytes behind an inode's own fields, three inodes that may hold values, and the blocks that they may name.
fn xattrs(input: &[u8]) {
    let (features, rest) = options(input);
    let (behind, rest) = cut::<128>(rest);
    let (values, rest) = cut::<{ 3 * INODE }>(rest);
    let mut table = [0; BLOCK];
    table[..2].copy_from_slice(&0o100_644_u16.to_le_bytes());
    table[0x1A] = 1;
    table[0x22] = 8; // extents, of which there are none
    table[0x28..0x2C].copy_from_slice(&[0x0A, 0xF3, 0, 0]);
    table[0x2C] = 4;
    table[0x68] = 100; // the block of attributes
    table[128..256].copy_from_slice(&behind);
    table[INODE..].copy_from_slice(&values);
    let mut rest = rest.to_vec();
    let blocks = (rest.len().div_ceil(BLOCK)).max(1);
    if features & CHECKSUMS != 0 {
        let superblock = geometry(features);
        rest.resize(blocks * BLOCK, 0);
        let block = &mut rest[100 % blocks * BLOCK..][..BLOCK];
        block[16..20].fill(0);
        let sum = crc32c(crc32c(superblock.checksum_seed, &100_u64.to_le_bytes()), block);
        block[16..20].copy_from_slice(&sum.to_le_bytes());
    }
    scan(&volume(features, &table, &rest));
}

/// Two bytes that say what the directory is, and a block of it, or a part of an inode.
fn directory_block(input: &[u8]) {
    let (features, rest) = options(input);
    let (kind, block) = options(rest);
    let superblock = geometry(features);
    let mut flags = 0;
    for (bit, flag) in [(0, inode::ENCRYPTED), (1, inode::CASEFOLD), (2, inode::INDEXED), (3, inode::INLINE_DATA)] {
        flags |= if kind >> bit & 1 != 0 { flag } else { 0 };
    }
    let block = &block[..block.len().min(1 << 16)];
    let mut hash = Directory::hash_kind(flags, u64::from(kind >> 4), &superblock);
    if matches!(hash, HashKind::Algorithm(_))
        && let Some(version) = directory::index_algorithm(block)
    {
        hash = HashKind::Algorithm(version);
    }
    let directory = Directory { number: 2, seed: 7, flags, hash, has_index_to_check: true };
    let _ = directory::check(&directory, block);
    let _ = directory::itself_and_above(block);
    index(&directory, block, &superblock);
    let mut checker = Checker::default();
    let mut told = 0;
    let _ = directory::names(&directory, &superblock, block, 4096, &mut Vec::new(), &mut |name| {
        told += 1;
        if let Ok((name, _)) = &name {
            assert!(name.inode <= superblock.inodes.into());
        }
        match name {
            Ok((name, _)) => checker.name(name),
            Err(problem) => checker.problem(problem),
        }
    });
    assert!(told <= block.len() / 12 + 1);
    // What the caller wants no more of isn't told.
    let mut told = 0;
    let ended = directory::names(&directory, &superblock, block, 4096, &mut Vec::new(), &mut |_| {
        told += 1;
        ControlFlow::Break(())
    });
    assert_eq!(told, i32::from(ended.is_break()));
}

/// Pieces of a block are an index, and what it leads to: of each other, and of themselves.
fn index(directory: &Directory, blocks: &[u8], superblock: &Superblock) {
    let mut indexes = Indexes::default();
    for piece in [blocks.len() / 4, blocks.len()] {
        let blocks = || (0_u32..).zip(blocks.chunks(piece.max(1)).filter(|block| block.len() == piece));
        for (number, block) in blocks().chain(blocks().take(1).map(|(_, block)| (4, block))) {
            indexes.block(directory, number, block, u64::from(number) << 16, superblock);
        }
        indexes.compare();
    }
    let problems = indexes.problems();
    assert!(problems.len() <= MOST);
    assert!(problems.iter().all(|problem| problem.to_string().len() < 4096));
    assert!(indexes.incomplete().count() <= 1);
}

/// The blocks of a journal, from its superblock on.
fn journal_replay(input: &[u8]) {
    let (features, blocks) = options(input);
    let mut blocks = blocks[..blocks.len().min(64 * BLOCK)].to_vec();
    let count = blocks.len().div_ceil(BLOCK).max(1);
    blocks.resize(count * BLOCK, 0);
    if features & CHECKSUMS != 0 {
        seal_journal(&mut blocks);
    }
    let mut table = [0; BLOCK];
    table[..2].copy_from_slice(&0o100_600_u16.to_le_bytes());
    table[0x1A] = 1;
    table[0x22] = 8;
    table[0x28..0x30].copy_from_slice(&[0x0A, 0xF3, 1, 0, 4, 0, 0, 0]);
    table[0x38] = count as u8;
    // Block 128 of the device is the first, since blocks are repeated.
    let place = (128_u32.next_multiple_of(count as u32)).to_le_bytes();
    table[0x3C..0x40].copy_from_slice(&place);
    let mut volume = volume(features, &table, &blocks);
    match journal::replay(&volume) {
        Ok(overlay) => {
            volume.overlay = overlay;
            let mut unread = Vec::new();
            volume.read(0, &mut [0; 32 * BLOCK], &mut unread);
            assert!(unread.is_empty(), "{unread:?}");
        }
        Err(error) => assert!(error.to_string().len() < 4096),
    }
}

/// Makes the checksums of all blocks of a journal right, as far as they lie in the blocks themselves.
fn seal_journal(blocks: &mut [u8]) {
    let seed = crc32c(!0, &blocks[48..64]);
    for (index, block) in blocks.chunks_exact_mut(BLOCK).enumerate() {
        if block[..4] != journal::MAGIC {
            continue;
        }
        let (seed, field) = match (index, be32(block, 4)) {
            (0, _) => (!0, 0xFC),
            (_, 2) => (seed, 16),
            _ => (seed, BLOCK - 4),
        };
        block[field..field + 4].fill(0);
        let sum = crc32c(seed, block).to_be_bytes();
        block[field..field + 4].copy_from_slice(&sum);
    }
}

/// What has checksums in an image, to be made right after it was changed.
pub(crate) struct Sealed {
    superblock: Superblock,
    groups: Vec<Group>,
    /// Blocks of directories: where they lie, and the inode.
    directories: Vec<(u64, u32)>,
}

impl Sealed {
    /// Notes all of a sound image. `None` where it has no checksums.
    pub(crate) fn of(image: &[u8]) -> Option<Sealed> {
        let ext4 = Ext4::open(image).ok()?;
        let mut directories = Directories(Vec::new());
        let block_bytes = u64::from(ext4.volume.superblock.block_bytes);
        let _ = Scan::new(&ext4.volume, Wanted::default(), &mut directories).run();
        let blocks = |(start, length, inode): (u64, u64, u32)| {
            (start..start + length).step_by(block_bytes as usize).map(move |at| (at, inode))
        };
        let Ext4 { volume: Volume { superblock, groups, .. }, .. } = ext4;
        let directories = directories.0.into_iter().flat_map(blocks).collect();
        superblock.is_checksummed().then_some(Sealed { superblock, groups, directories })
    }

    /// Makes the checksums of what lies in these bytes right; `at` is where they begin.
    pub(crate) fn seal(&self, bytes: &mut [u8], at: u64, generation: impl Fn(u64) -> u32) {
        let within = |start: u64, length: usize| {
            let start = usize::try_from(start.checked_sub(at)?).ok()?;
            (start + length <= bytes.len()).then_some(start)
        };
        let mut pieces = Vec::new();
        if let Some(start) = within(1024, 1024) {
            pieces.push((start, None));
        }
        let inode_bytes = self.superblock.inode_bytes;
        for (group, number) in self.groups.iter().zip(0..) {
            let table = group.inode_table * u64::from(self.superblock.block_bytes);
            for index in 0..self.superblock.inodes_per_group {
                if let Some(start) = within(table + u64::from(index) * inode_bytes as u64, inode_bytes) {
                    pieces.push((start, Some(number * self.superblock.inodes_per_group + index + 1)));
                }
            }
        }
        let block_bytes = self.superblock.block_bytes as usize;
        let blocks: Vec<_> =
            self.directories.iter().filter_map(|&(at, n)| Some((within(at, block_bytes)?, n))).collect();
        for (start, inode) in pieces {
            match inode {
                None => seal_superblock(&mut bytes[start..start + 1024]),
                Some(inode) => seal_inode(&self.superblock, inode, &mut bytes[start..start + inode_bytes]),
            }
        }
        for (start, inode) in blocks {
            let block = &mut bytes[start..start + block_bytes];
            let place = u64::from(inode - 1) % u64::from(self.superblock.inodes_per_group) * inode_bytes as u64;
            let group = self.groups[((inode - 1) / self.superblock.inodes_per_group) as usize];
            let generation = generation(group.inode_table * block_bytes as u64 + place + 0x64);
            let seed = crc32c(self.superblock.checksum_seed, &inode.to_le_bytes());
            let seed = crc32c(seed, &generation.to_le_bytes());
            let flags = if le16(block, 4) == 12 { inode::INDEXED } else { 0 };
            let directory = Directory { number: inode, seed, flags, hash: HashKind::None, has_index_to_check: false };
            if let Err((right, _)) = directory::check(&directory, block)
                && le32(block, block_bytes - 8) == 0xDE00_000C
            {
                block[block_bytes - 4..].copy_from_slice(&right.to_le_bytes());
            }
        }
    }
}

/// Keeps where directories lie.
struct Directories(Vec<(u64, u64, u32)>);

impl Found for Directories {
    fn inode(&mut self, inode: crate::tables::Inode) -> ControlFlow<()> {
        let number = inode.number as u32;
        if inode.mode & 0o170_000 == 0o040_000 {
            let places = inode.extents.iter().filter_map(|extent| Some((extent.physical?, extent.length, number)));
            self.0.extend(places);
        }
        ControlFlow::Continue(())
    }

    fn name(&mut self, _: crate::tables::Name<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, _: crate::tables::TableError) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
