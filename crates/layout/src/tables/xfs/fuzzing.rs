//! The parsers of XFS with bytes that nobody has looked at before. See [`crate::fuzzing`].

use std::io;

use super::{
    Xfs,
    allocation_group::GroupInodes,
    attributes::{self, Attributes},
    block::{Block, Number},
    checksum::crc32c,
    directory, directory_places, extents, features,
    inode::Dinode,
    inode_btree, log,
    volume::Volume,
};
use crate::{
    block_read::{BlockRead, Part},
    fuzzing::{Checker, Counted, Repeated, Target, cut, options},
    tables::{Found, TableError},
};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "xfs_superblock", run: superblock, memory: 4 << 20 },
    Target { name: "xfs_inode_btree", run: inode_tree, memory: 4 << 20 },
    Target { name: "xfs_inode", run: inodes, memory: 32 << 20 },
    Target { name: "xfs_extents", run: extent_tree, memory: 16 << 20 },
    Target { name: "xfs_directory", run: directory_block, memory: 16 << 20 },
    Target { name: "xfs_attributes", run: attribute_fork, memory: 80 << 20 },
    Target { name: "xfs_log", run: log_state, memory: 1 << 20 },
];

/// Asks for the first block of each of the first inodes of a file system, as if it were mounted.
pub(crate) fn first_blocks(device: impl BlockRead) {
    let Ok(volume) = Volume::open(device) else { return };
    let root = volume.superblock.facts.root;
    let far = [u64::MAX, 1 << 40].into_iter().chain((0..16).map(|bit| root << bit));
    for inode in (root / 64 * 64..root.saturating_add(512)).chain(far) {
        let at = directory_places::first_block(&volume, inode);
        assert!(at.is_none_or(|at| at < volume.superblock.facts.bytes), "{at:?} for inode {inode}");
    }
}

const BLOCK: usize = 1024;
const BLOCKS: u64 = 256;
const INODE: usize = 512;
const SECTOR: usize = 512;
/// The first inode of the only chunk, and the owner of all blocks.
const OWNER: u64 = 64;
const UUID: [u8; 16] = [7; 16];

/// Bits of the first byte of an input: version 4; checksums and what else says that a block is the right one as found.
const VERSION_4: u8 = 1;
const AS_FOUND: u8 = 1 << 1;
const LARGE_DIRECTORY_BLOCKS: u8 = 1 << 2;
const NO_TYPES: u8 = 1 << 3;

/// Makes metadata look as if they belonged where they lie: checksum, UUID, address, owner.
#[derive(Debug)]
struct Mended<B> {
    inner: B,
    directory_bytes: usize,
    is_on: bool,
}

impl<B: BlockRead> BlockRead for Mended<B> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.inner.read_at(buffer, at)?;
        let mut from = 0;
        while self.is_on && from + SECTOR <= buffer.len() {
            let rest = &mut buffer[from..];
            let place = Place { at: at + from as u64, identity: Some(UUID), owner: Some(OWNER) };
            from += seal(rest, place, &[SECTOR, INODE, BLOCK, self.directory_bytes]).unwrap_or(SECTOR);
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

/// Where a piece of metadata lies, and what it belongs to where that is to be put in.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) identity: Option<[u8; 16]>,
    pub(crate) owner: Option<u64>,
}

/// Makes the checksum of the piece of version 5 right that begins here, by its magic number; its bytes. `sizes` are those of
/// a sector, an inode, a block and a directory block.
pub(crate) fn seal(bytes: &mut [u8], place: Place, sizes: &[usize; 4]) -> Option<usize> {
    let [sector, inode, block, directory] = *sizes;
    // The checksum, the UUID, the own address, the owner, and the bytes of all.
    let (sum, uuid, address, owner, length) = match bytes.get(..10)? {
        [b'I', b'N', ..] => (100, 160, None, None, inode),
        [b'X', b'F', b'S', b'B', ..] => (224, 32, None, None, sector),
        [b'X', b'A', b'G', b'I', ..] => (312, 296, None, None, sector),
        [b'I', b'A', b'B', b'3', ..] => (52, 32, Some(16), None, block),
        [b'B', b'M', b'A', b'3', ..] => (64, 40, Some(24), Some(56), block),
        [b'X', b'D', b'B' | b'D', b'3', ..] => (4, 24, Some(8), Some(40), directory),
        [b'X', b'A', b'R', b'M', ..] | [b'X', b'S', b'L', b'M', ..] => (12, 16, Some(40), Some(32), block),
        [.., 0x3b, 0xee] | [.., 0x3e, 0xbe] => (12, 32, Some(16), Some(48), block),
        _ => return None,
    };
    let bytes = bytes.get_mut(..length)?;
    if let Some(identity) = place.identity {
        bytes.get_mut(uuid..uuid + 16)?.copy_from_slice(&identity);
        if let Some(address) = address {
            bytes.get_mut(address..address + 8)?.copy_from_slice(&(place.at / 512).to_be_bytes());
        }
        if bytes.starts_with(b"IN") {
            bytes.get_mut(152..160)?.copy_from_slice(&(place.at / length as u64).to_be_bytes());
        }
    }
    if let (Some(at), Some(owner)) = (owner, place.owner) {
        bytes.get_mut(at..at + 8)?.copy_from_slice(&owner.to_be_bytes());
    }
    let right = crc32c(bytes, sum);
    bytes.get_mut(sum..sum + 4)?.copy_from_slice(&right.to_le_bytes());
    Some(length)
}

/// The first blocks of a sound file system of 256 in one group: superblock, header, tree of inodes, and a chunk whose
/// first inodes are these.
fn beginning(options: u8, inodes: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 32 * BLOCK + inodes.len()];
    let is_v5 = options & VERSION_4 == 0;
    let mut put = |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
    put(0, b"XFSB");
    put(4, &(BLOCK as u32).to_be_bytes());
    put(8, &BLOCKS.to_be_bytes());
    put(32, &UUID);
    put(48, &200_u64.to_be_bytes());
    put(56, &OWNER.to_be_bytes());
    put(84, &(BLOCKS as u32).to_be_bytes());
    put(88, &1_u32.to_be_bytes());
    put(96, &50_u32.to_be_bytes());
    put(100, &(if is_v5 { 0xb4a5_u16 } else { 0xb4a4 }).to_be_bytes());
    put(102, &(SECTOR as u16).to_be_bytes());
    put(104, &(INODE as u16).to_be_bytes());
    put(120, &[10, 9, 9, 1, 8]);
    put(192, &[if options & LARGE_DIRECTORY_BLOCKS != 0 { 2 } else { 0 }]);
    let ftype = options & NO_TYPES == 0;
    put(200, &(if ftype { 0x200_u32 } else { 0 }).to_be_bytes());
    let incompatible = features::SPARSE_INODES | if ftype { features::FTYPE } else { 0 };
    put(216, &incompatible.to_be_bytes());
    put(2 * SECTOR, b"XAGI\0\0\0\x01\0\0\0\0\0\0\x01\0");
    put(2 * SECTOR + 20, &[0, 0, 0, 3, 0, 0, 0, 1]);
    put(2 * SECTOR + 296, &UUID);
    let used = inodes.len().div_ceil(INODE).min(64) as u32;
    let tree = 3 * BLOCK;
    let record = if is_v5 { tree + 56 } else { tree + 16 };
    put(tree, if is_v5 { b"IAB3\0\0\0\x01" } else { b"IABT\0\0\0\x01" });
    put(record, &[0, 0, 0, OWNER as u8]);
    let free = 64 - used;
    put(record + 4, &if is_v5 { [0, 0, 64, free as u8] } else { [0, 0, 0, free as u8] });
    put(record + 8, &u64::MAX.checked_shl(used).unwrap_or(0).to_be_bytes());
    put(32 * BLOCK, inodes);
    for start in [0, 2 * SECTOR, tree].into_iter().filter(|_| is_v5) {
        let place = Place { at: start as u64, identity: Some(UUID), owner: None };
        seal(&mut bytes[start..], place, &[SECTOR, INODE, BLOCK, BLOCK]);
    }
    bytes
}

type Device<'a> = Counted<Mended<Repeated<'a>>>;

/// A volume with these inodes, and blocks that lie everywhere behind them.
fn volume<'a>(options: u8, inodes: &[u8], rest: &'a [u8]) -> Volume<Device<'a>> {
    let first = beginning(options, inodes);
    let inner = Repeated { first, first_at: 0, rest, block_bytes: BLOCK, len: BLOCKS * BLOCK as u64 };
    let directory_bytes = if options & LARGE_DIRECTORY_BLOCKS != 0 { 4 * BLOCK } else { BLOCK };
    let device = Mended { inner, directory_bytes, is_on: options & (AS_FOUND | VERSION_4) == 0 };
    Volume::open(Counted::new(device, 1 << 17)).expect("a sound superblock")
}

/// An inode of a kind with its two forks.
fn inode(options: u8, mode: u16, formats: [u8; 2], size: u64, data: &[u8], attributes: &[u8]) -> Vec<u8> {
    let is_v5 = options & VERSION_4 == 0;
    let core = if is_v5 { 176 } else { 100 };
    let mut bytes = vec![0; INODE];
    bytes[..2].copy_from_slice(b"IN");
    bytes[2..4].copy_from_slice(&mode.to_be_bytes());
    bytes[4..6].copy_from_slice(&[if is_v5 { 3 } else { 2 }, formats[0]]);
    bytes[19] = 1;
    bytes[56..64].copy_from_slice(&size.to_be_bytes());
    bytes[64..72].copy_from_slice(&BLOCKS.to_be_bytes());
    let border = (INODE - core) / 16 * 8;
    bytes[82..84].copy_from_slice(&[(border / 8) as u8, formats[1]]);
    let (data, attributes) = (&data[..data.len().min(border)], &attributes[..attributes.len().min(border)]);
    bytes[core..core + data.len()].copy_from_slice(data);
    bytes[core + border..core + border + attributes.len()].copy_from_slice(attributes);
    if is_v5 {
        let place = Place { at: OWNER * INODE as u64, identity: Some(UUID), owner: None };
        seal(&mut bytes, place, &[SECTOR, INODE, BLOCK, BLOCK]);
    }
    bytes
}

fn parsed<'a, B>(volume: &Volume<B>, bytes: &'a [u8]) -> Option<Dinode<'a>> {
    let block = Block { what: "an inode", at: OWNER * INODE as u64, bytes };
    match Dinode::parse(&volume.superblock, OWNER, block) {
        Ok(dinode) => Some(dinode),
        Err(error) => {
            assert!(error.to_string().len() < 4096);
            None
        }
    }
}

/// A superblock, and blocks that lie everywhere behind it, such as headers of allocation groups and the log.
fn superblock(input: &[u8]) {
    let (options, rest) = options(input);
    let (mut first, rest) = cut::<SECTOR>(rest);
    let is_on = options & AS_FOUND == 0;
    if is_on {
        seal(&mut first, Place { at: 0, identity: None, owner: None }, &[SECTOR, INODE, BLOCK, BLOCK]);
    }
    let inner = Repeated { first: first.to_vec(), first_at: 0, rest, block_bytes: BLOCK, len: 1 << 30 };
    let device = Counted::new(Mended { inner, directory_bytes: BLOCK, is_on: false }, 1 << 13);
    match Xfs::open(device) {
        Ok(xfs) => {
            let volume = &xfs.volume;
            let superblock = &volume.superblock;
            assert!(superblock.facts.bytes <= 1 << 30 && superblock.groups > 0);
            for group in [0, 1, superblock.groups - 1] {
                let _ = GroupInodes::read(volume, group);
            }
            for number in [0, 64, superblock.facts.root, u64::MAX] {
                let at = superblock.inode_address(number);
                assert!(at.is_none_or(|at| at + superblock.inode_bytes() as u64 <= superblock.facts.bytes));
            }
        }
        Err(error) => assert!(error.to_string().len() < 4096),
    }
}

/// Two bytes of where the tree of the inodes begins, and its blocks.
fn inode_tree(input: &[u8]) {
    let (options, rest) = options(input);
    let (level, rest) = crate::fuzzing::options(rest);
    let volume = volume(options, &[], rest);
    let group = GroupInodes { group: 0, root: Number { number: 128, told_at: 0 }, level: u16::from(level & 7) };
    let (mut next, mut told) = (0, 0_u64);
    let _ = inode_btree::walk(&volume, group, &mut |chunk| {
        told += 1;
        match chunk {
            Ok(chunk) => {
                assert!(u64::from(chunk.first) >= next);
                next = u64::from(chunk.first) + 64;
            }
            Err(error) => assert!(error.to_string().len() < 4096),
        }
        std::ops::ControlFlow::Continue(())
    });
}

/// Four inodes, and the blocks that they may name.
fn inodes(input: &[u8]) {
    let (options, rest) = options(input);
    let (inodes, rest) = cut::<{ 4 * INODE }>(rest);
    let volume = volume(options, &inodes, rest);
    let mut xfs = Xfs { volume };
    let bytes = BLOCKS * BLOCK as u64;
    let checker = Checker::scan(&mut xfs, bytes);
    assert!(checker.inodes.iter().all(|number| (OWNER..OWNER + 4).contains(number)));
}

/// The root of a tree of extents, and its blocks.
fn extent_tree(input: &[u8]) {
    let (options, rest) = options(input);
    let (root, rest) = cut::<168>(rest);
    let volume = volume(options, &[], rest);
    let bytes = inode(options, 0o100_644, [3, 2], 1 << 20, &root, &[]);
    let Some(mut dinode) = parsed(&volume, &bytes) else { return };
    dinode.data.extents = 3;
    let mut next = 0;
    let walked = extents::walk(&volume, &dinode.data, &mut |mapping| {
        assert!(mapping.blocks > 0 && mapping.offset >= next);
        next = mapping.offset + mapping.blocks;
        let end = mapping.at.map(|at| at + mapping.blocks * BLOCK as u64);
        assert!(end.is_none_or(|end| end <= BLOCKS * BLOCK as u64));
        Ok(())
    });
    if let Err(error) = walked {
        assert!(error.to_string().len() < 4096);
    }
    let _ = extents::first_address(&volume, &dinode.data);
}

/// A directory in its inode, or a block of one.
fn directory_block(input: &[u8]) {
    let (options, rest) = options(input);
    let (form, bytes) = crate::fuzzing::options(rest);
    let volume = volume(options, &[], &[]);
    let mut checker = Checker::default();
    let mut told = 0;
    let mut each = |entry: directory::Entry<'_>| {
        told += 1;
        if !entry.is_dots() {
            let _ = checker.name(entry.name);
        }
    };
    let read = if form & 1 != 0 {
        let fork = inode(options, 0o040_755, [1, 2], u64::from(form >> 1), bytes, &[]);
        let Some(dinode) = parsed(&volume, &fork) else { return };
        directory::short_form(&volume, &dinode, &mut each)
    } else {
        let mut block = bytes[..bytes.len().min(1 << 16)].to_vec();
        if options & AS_FOUND == 0 {
            let length = block.len();
            let place = Place { at: 40 * BLOCK as u64, identity: Some(UUID), owner: Some(OWNER) };
            seal(&mut block, place, &[SECTOR, INODE, BLOCK, length]);
        }
        if !block.is_empty() && block.len().is_power_of_two() {
            let mut entries = 0;
            let _ = directory::index_v4(40 * BLOCK as u64, &block, &mut |_, offset| {
                entries += 1;
                assert!(offset < block.len() && entries <= block.len() / 8);
            });
        }
        directory::names(&volume, 40 * BLOCK as u64, OWNER, &block, &mut each)
    };
    if let Err(error) = read {
        assert!(error.to_string().len() < 4096);
    }
    assert!(told <= bytes.len() / 8 + 256);
}

/// The attributes of an inode, and the blocks that they may lie in.
fn attribute_fork(input: &[u8]) {
    let (options, rest) = options(input);
    let (format, rest) = crate::fuzzing::options(rest);
    let (fork, rest) = cut::<168>(rest);
    let volume = volume(options, &[], rest);
    let bytes = inode(options, 0o100_644, [2, format & 3], 0, &[], &fork);
    let Some(mut dinode) = parsed(&volume, &bytes) else { return };
    if let Some(attributes) = &mut dinode.attributes {
        attributes.extents = u64::from(format >> 2 & 15).min(10);
    }
    let mut kept = Attributes::default();
    if let Err(error) = attributes::read(&volume, &dinode, &mut kept) {
        assert!(error.to_string().len() < 4096);
    }
    let bytes: usize = kept.list.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(bytes <= 65 << 20, "{bytes} bytes");
}

const LOG_BLOCK: usize = 512;
/// Blocks of the file system whose log is looked at, and its first one.
const LOG_BLOCKS: u32 = 4096;
const LOG_START: u32 = 200;
/// The way to the head, and twice the way back to a record, as long as any.
const LOG_READS: u64 = 20 + 2 * 1042;

/// A log whose blocks up to a head were written in a round after that of those behind.
#[derive(Debug)]
struct Rounds<B> {
    inner: B,
    head: u64,
    is_on: bool,
}

impl<B: BlockRead> BlockRead for Rounds<B> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.inner.read_at(buffer, at)?;
        let behind = at.checked_sub(u64::from(LOG_START) * BLOCK as u64).filter(|_| self.is_on);
        if let (Some(behind), LOG_BLOCK) = (behind, buffer.len()) {
            let round: u32 = if behind / (LOG_BLOCK as u64) < self.head { 2 } else { 1 };
            let place = if buffer.starts_with(&log::MAGIC.to_be_bytes()) { 4 } else { 0 };
            buffer[place..place + 4].copy_from_slice(&round.to_be_bytes());
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

/// The blocks that the log has, its head, and what its blocks of 512 bytes hold.
fn log_state(input: &[u8]) {
    let (options, rest) = options(input);
    let (lengths, rest) = cut::<4>(rest);
    let number = |at: usize| u16::from_le_bytes([lengths[at], lengths[at + 1]]);
    let blocks = 1 + u32::from(number(0)) % (LOG_BLOCKS - LOG_START);
    let mut first = beginning(options, &[]);
    for (offset, field) in [(12, LOG_BLOCKS), (84, LOG_BLOCKS), (52, LOG_START), (96, blocks)] {
        first[offset..offset + 4].copy_from_slice(&field.to_be_bytes());
    }
    first[124] = LOG_BLOCKS.ilog2() as u8;
    if options & VERSION_4 == 0 {
        seal(&mut first, Place { at: 0, identity: Some(UUID), owner: None }, &[SECTOR, INODE, BLOCK, BLOCK]);
    }
    let len = u64::from(LOG_BLOCKS) * BLOCK as u64;
    let inner = Repeated { first, first_at: 0, rest, block_bytes: LOG_BLOCK, len };
    let head = 1 + u64::from(number(2)) % (u64::from(blocks) * 2);
    let is_on = options & AS_FOUND == 0;
    let rounds = Rounds { inner, head, is_on };
    let volume = Volume::open(Counted::new(&rounds, LOG_READS)).expect("a sound superblock");
    let holds = |what: fn(&[u8]) -> bool| rest.chunks(LOG_BLOCK).any(what);
    let clean = log::check_clean(&volume);
    // The same blocks as a device of their own.
    let start = u64::from(LOG_START) * BLOCK as u64;
    let alone = Part::new(Counted::new(&rounds, 2 * LOG_READS), start, volume.superblock.log_bytes());
    match log::check_clean_elsewhere(&volume.superblock, &alone) {
        Ok(()) => assert!(clean.is_ok(), "clean as a device of its own"),
        Err(TableError::Dirty { .. }) => assert!(clean.is_err(), "dirty as a device of its own"),
        Err(TableError::NotTheLog { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    match clean {
        // Nothing was ever written there, or what ends a mount was the last.
        Ok(()) => assert!(
            !is_on || holds(|block| block.starts_with(&log::MAGIC.to_be_bytes())) && holds(log::ends_a_mount),
            "clean without a record"
        ),
        Err(TableError::Dirty { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
