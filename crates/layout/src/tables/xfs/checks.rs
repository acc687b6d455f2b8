//! What the tables of version 4 tell twice: names and their hashes, link counts and names, blocks in use and free ones, extents
//! and their number.

use std::collections::HashMap;

use super::{
    block::Block,
    directory::{self, Entry},
    extents, free,
    inode::{BLOCKS_AT, DIRECTORY, Dinode, FILE, LINKS_AT, MODE_AT, SYMLINK},
    inode_btree::{CHUNK_INODES, Chunk},
    unused_fields,
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{
        TableError,
        checks::{Balance, Claims, Links, Said, mixed},
    },
};

/// Directories whose index is looked at one by one, at most; 48 bytes each.
const DOUBTFUL_MAX: usize = 1 << 18;

/// The difference of directories, and a byte of their indexes.
type Doubtful = HashMap<u64, (u64, Option<u64>)>;

/// What was told so far.
#[derive(Debug)]
pub(super) struct Checks {
    links: Links,
    /// Names against hashes; `None` where these don't tell names apart by their case.
    index: Option<Balance>,
    /// In the second look: of each directory whose names may not be those of its index, the difference, and a byte of the index.
    doubtful: Option<(Balance, Doubtful)>,
    /// `None` where it isn't known which blocks are free, and in the second look.
    space: Option<Claims>,
    has_kinds: bool,
}

fn claims<B: BlockRead>(volume: &Volume<B>) -> Result<Claims, TableError> {
    let superblock = &volume.superblock;
    let (block_bytes, bytes) = (superblock.block_bytes() as u64, superblock.facts.bytes);
    Claims::new(block_bytes, bytes, &mut |each| free::runs(volume, each))
}

impl Checks {
    /// With what was damaged where free space can't be told.
    pub(super) fn new<B: BlockRead>(volume: &Volume<B>) -> (Checks, Option<TableError>) {
        let superblock = &volume.superblock;
        let checks = Checks {
            links: Links::new(superblock.facts.root, false),
            index: (!superblock.ignores_case).then(Balance::default),
            doubtful: None,
            space: None,
            has_kinds: superblock.has_ftype,
        };
        match claims(volume) {
            Ok(space) => (Checks { space: Some(space), ..checks }, None),
            Err(problem) => (checks, Some(problem)),
        }
    }

    /// Whether the indexes of directories are to be told.
    pub(super) fn has_indexes(&self) -> bool {
        self.index.is_some()
    }

    /// Whether names, hashes and link counts agree.
    pub(super) fn is_even(&self) -> bool {
        self.links.is_even() && self.index.as_ref().is_none_or(Balance::is_even)
    }

    /// For a second look.
    pub(super) fn again(&self) -> Checks {
        Checks {
            links: self.links.again(),
            index: self.index.as_ref().map(|_| Balance::default()),
            doubtful: self.index.clone().map(|index| (index, HashMap::new())),
            space: None,
            has_kinds: self.has_kinds,
        }
    }

    /// A chunk of inodes.
    pub(super) fn chunk<B: BlockRead>(&mut self, volume: &Volume<B>, group: u32, chunk: &Chunk) {
        let Some(space) = &mut self.space else { return };
        let superblock = &volume.superblock;
        let (length, block) =
            (u64::from(CHUNK_INODES) * superblock.inode_bytes() as u64, superblock.block_bytes() as u64);
        let first = superblock.inode_number(group, chunk.first).and_then(|number| superblock.inode_address(number));
        // Where blocks are large, several chunks lie in one.
        if let Some(at) = first.filter(|at| at.is_multiple_of(block) && length.is_multiple_of(block)) {
            space.claim(at, length, chunk.first_at, || {
                format!("the place of a chunk of inodes of allocation group {group}")
            });
        }
    }

    /// An inode, and its bytes. `Err` where its extents aren't as many blocks as it says, or where something stands in a field
    /// that nothing else gives a meaning.
    pub(super) fn inode<B: BlockRead>(
        &mut self,
        volume: &Volume<B>,
        dinode: &Dinode<'_>,
        block: &Block<'_>,
    ) -> Result<(), TableError> {
        let at = block.at;
        let kind = if self.has_kinds { kind_of(dinode.mode) } else { 0 };
        let is_directory = dinode.is(DIRECTORY);
        self.links.inode(dinode.number, Said { links: dinode.links.into(), is_directory, kind });
        let Some(space) = &mut self.space else { return Ok(()) };
        unused_fields::check(&volume.superblock, dinode, block)?;
        let block_bytes = volume.superblock.block_bytes() as u64;
        let mut blocks = 0_u64;
        for fork in std::iter::once(&dinode.data).chain(&dinode.attributes) {
            blocks += extents::walk(volume, fork, &mut |mapping| {
                blocks = blocks.saturating_add(mapping.blocks);
                if let Some(at) = mapping.at {
                    let what = || format!("an extent of inode {}", dinode.number);
                    space.claim(at, mapping.blocks * block_bytes, mapping.told_at, what);
                }
                Ok(())
            })?;
        }
        if blocks == dinode.blocks {
            return Ok(());
        }
        let what = format!("the number of blocks of inode {}", dinode.number);
        Err(TableError::damaged(what, at + BLOCKS_AT, format!("{blocks}, as its extents have"), dinode.blocks))
    }

    /// An entry of a directory, whose blocks have an index or don't.
    pub(super) fn entry(&mut self, entry: &Entry<'_>, is_indexed: bool) {
        let name = &entry.name;
        match name.name {
            b"." => {}
            b".." => self.links.above(name.directory, name.inode),
            _ => self.links.name(name.inode, entry.kind),
        }
        if is_indexed && self.has_indexes() {
            self.indexed(name.directory, directory::hash(name.name), entry.offset, None);
        }
    }

    /// A block of the index of a directory, or one that has it behind its names.
    pub(super) fn index(&mut self, directory: u64, at: u64, bytes: &[u8]) -> Result<(), TableError> {
        directory::index_v4(at, bytes, &mut |hash, offset| self.indexed(directory, hash, offset, Some(at)))
    }

    /// A hash and the place of its entry in its block: computed from a name, or told by the block at a byte.
    fn indexed(&mut self, directory: u64, hash: u32, offset: usize, told_at: Option<u64>) {
        let what = mixed(directory, u64::from(hash) << 32 | offset as u64);
        match (&mut self.doubtful, &mut self.index) {
            (Some((uneven, doubtful)), _) => {
                let is_new = !doubtful.contains_key(&directory);
                if uneven.is_even_for(directory) || is_new && doubtful.len() >= DOUBTFUL_MAX {
                    return;
                }
                let (sum, at) = doubtful.entry(directory).or_default();
                *sum = if told_at.is_some() { sum.wrapping_sub(what) } else { sum.wrapping_add(what) };
                *at = told_at.or(*at);
            }
            (None, Some(index)) if told_at.is_some() => index.take(directory, what),
            (None, Some(index)) => index.add(directory, what, 1),
            (None, None) => {}
        }
    }

    /// Directories whose names aren't those of their index, after a second look.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = u64> {
        let doubtful = self.doubtful.iter().flat_map(|(_, doubtful)| doubtful);
        doubtful.filter(|(_, (sum, _))| *sum != 0).map(|(directory, _)| *directory)
    }

    /// What contradicts, after a second look.
    pub(super) fn contradictions<B: BlockRead>(&self, volume: &Volume<B>) -> Vec<TableError> {
        let place = |inode| volume.superblock.inode_address(inode).unwrap_or_default();
        let mut directories: Vec<u64> = self.incomplete().collect();
        directories.sort_unstable();
        let doubtful = self.doubtful.as_ref().map(|(_, doubtful)| doubtful);
        let mut told: Vec<TableError> = directories
            .into_iter()
            .map(|directory| {
                let at = doubtful.and_then(|doubtful| doubtful.get(&directory)?.1).unwrap_or_else(|| place(directory));
                let what = format!("the index of directory {directory}");
                TableError::damaged(what, at, "the hashes of its names, and where these are", "others")
            })
            .collect();
        let links_at = |inode| (place(inode) + LINKS_AT, place(inode) + MODE_AT);
        told.extend(self.links.contradictions(&links_at));
        told
    }

    /// Blocks that are free, or another's too.
    pub(super) fn space_contradictions<B: BlockRead>(&self, volume: &Volume<B>) -> Vec<TableError> {
        let contradictions = |space: &Claims| space.contradictions(&mut |each| free::runs(volume, each));
        self.space.as_ref().map(contradictions).unwrap_or_default()
    }
}

/// The type of a file as names tell it.
fn kind_of(mode: u32) -> u8 {
    match mode & 0o170_000 {
        FILE => 1,
        DIRECTORY => 2,
        0o020_000 => 3,
        0o060_000 => 4,
        0o010_000 => 5,
        0o140_000 => 6,
        SYMLINK => 7,
        _ => 0,
    }
}
