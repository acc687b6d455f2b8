//! What tables without checksums tell twice: link counts and names, inodes and blocks in use and the bitmaps of both, blocks of an
//! inode and their number.
//!
//! Bitmaps are believed only where the file system was unmounted, or where the journal brought all of its tables to one state.

use super::{
    attribute_blocks::AttributeBlocks,
    directory::{self, Directory},
    extents::{Nodes, Run},
    fields::le32,
    free,
    indexes::Indexes,
    inode::{self, RawInode, kind},
    journal,
    superblock::{Incompatible, ReadOnlyCompatible, Superblock},
    volume::Volume,
    xattr::Owners,
};
use crate::{
    block_read::BlockRead,
    tables::{
        Name, TableError,
        cast::{to_u32, to_usize},
        checks::{Claims, Links, Said, Twins},
    },
};

const ROOT: u64 = 2;
/// Where an inode has its number of links, its size, its number of blocks and where these lie.
const LINKS_AT: u64 = 0x1A;
const BLOCKS_AT: u64 = 0x1C;
const PLACES_AT: u64 = 0x28;
const FLAGS_AT: u64 = 0x20;
const ATTRIBUTES_AT: u64 = 0x68;
/// Flags of inodes, each with the feature without which none has it.
const NEEDED: [(u32, Incompatible); 4] = [
    (inode::INLINE_DATA, Incompatible::INLINE_DATA),
    (inode::ENCRYPTED, Incompatible::ENCRYPT),
    (inode::CASEFOLD, Incompatible::CASEFOLD),
    (inode::HAS_EXTENTS, Incompatible::EXTENT),
];
/// Has a tree of hashes behind its end.
const VERITY: u32 = 0x10_0000;

/// What was told so far.
#[derive(Debug)]
pub(super) struct Checks {
    links: Links,
    has_kinds: bool,
    /// Blocks and inodes in use by their bitmaps. `None` where these are damaged, and in the second look.
    space: Option<Claims>,
    inodes: Option<Claims>,
    attributes: AttributeBlocks,
    /// `None` in the second look.
    indexes: Option<Indexes>,
    twins: Option<Twins>,
}

/// What an inode has of blocks.
pub(super) struct Blocks<'a> {
    pub(super) runs: &'a [Run],
    /// Those that tell where the others are.
    pub(super) nodes: &'a Nodes,
    /// What its block of extended attributes says, where it was read.
    pub(super) owners: Option<Owners>,
    /// It may have lost a part of them when the machine crashed.
    pub(super) is_orphan: bool,
}

impl Checks {
    /// With what was damaged in the bitmaps.
    pub(super) fn new<B: BlockRead>(volume: &Volume<B>) -> (Checks, Vec<TableError>) {
        let superblock = &volume.superblock;
        let may_be_uncounted = superblock.read_only.contains(ReadOnlyCompatible::DIR_NLINK);
        let mut problems = Vec::new();
        // Blocks with the same content may be one there.
        let is_shared = superblock.read_only.contains(ReadOnlyCompatible::SHARED_BLOCKS);
        let space = (!is_shared).then(|| {
            let mut space =
                Claims::new(superblock.block_bytes.into(), volume.byte_of(superblock.blocks), &mut |each| {
                    free::runs(volume, each)
                })?;
            metadata(volume, &mut space)?;
            Ok(space)
        });
        let inodes = Claims::new(1, superblock.inodes.into(), &mut |each| free::inodes(volume, each));
        let checks = Checks {
            links: Links::new(ROOT, may_be_uncounted),
            has_kinds: superblock.incompatible.contains(Incompatible::FILETYPE),
            space: space.and_then(|space: Result<_, TableError>| space.map_err(|problem| problems.push(problem)).ok()),
            inodes: inodes.map_err(|problem| problems.push(problem)).ok(),
            attributes: AttributeBlocks::default(),
            indexes: Some(Indexes::default()),
            twins: Some(Twins::default()),
        };
        (checks, problems)
    }

    /// Whether names and link counts agree.
    pub(super) fn is_even(&self) -> bool {
        self.links.is_even()
    }

    /// For a second look.
    pub(super) fn again(&self) -> Checks {
        let (links, attributes) = (self.links.again(), AttributeBlocks::default());
        Checks { links, has_kinds: self.has_kinds, space: None, inodes: None, attributes, indexes: None, twins: None }
    }

    /// An inode that is in use, whether it is told or not.
    pub(super) fn in_use(&mut self, number: u32, at: u64) {
        if let Some(inodes) = &mut self.inodes {
            let what = || format!("the use of inode {number}, which has links, by its bitmap");
            inodes.claim(u64::from(number).saturating_sub(1), 1, at + LINKS_AT, what);
        }
    }

    /// An inode that is told, and the first thing in it that can't be.
    pub(super) fn inode(
        &mut self,
        superblock: &Superblock,
        raw: &RawInode<'_>,
        at: u64,
        blocks: &Blocks<'_>,
    ) -> Result<(), TableError> {
        let is_directory = raw.kind() == kind::DIRECTORY;
        let told = kind_of(raw.kind());
        let said = Said { links: raw.links().into(), is_directory, kind: if self.has_kinds { told } else { 0 } };
        self.links.inode(raw.number.into(), said);
        if told == 0 {
            let what = format!("the mode of inode {}", raw.number);
            return Err(TableError::damaged(what, at, "a type of file", format!("{:#o}", raw.mode())));
        }
        let needed = NEEDED
            .iter()
            .find(|(flag, feature)| raw.flags() & flag != 0 && !superblock.incompatible.contains(*feature));
        if let Some((flag, _)) = needed {
            let what = format!("the flags of inode {}", raw.number);
            let expected = format!("not {flag:#x}, whose feature the file system hasn't");
            return Err(TableError::damaged(what, at + FLAGS_AT, expected, format!("{:#x}", raw.flags())));
        }
        if let Some(oddity) = blocks.nodes.oddity {
            let node_at = oddity.block.map_or(at + PLACES_AT, |block| block * u64::from(superblock.block_bytes));
            let what = format!("{} of inode {}", oddity.what, raw.number);
            return Err(TableError::damaged(what, node_at + oddity.offset, oddity.expected, oddity.found));
        }
        if let Some(space) = &mut self.space {
            for run in blocks.runs {
                let block = u64::from(superblock.block_bytes);
                space.claim(run.physical * block, run.count * block, at + PLACES_AT, || {
                    format!("where the content of inode {} lies", raw.number)
                });
            }
            for &node in &blocks.nodes.blocks {
                let block = u64::from(superblock.block_bytes);
                space.claim(node * block, block, at + PLACES_AT, || {
                    format!("where inode {} has its map of blocks", raw.number)
                });
            }
        }
        if let (Some(space), block @ 1..) = (&mut self.space, raw.xattr_block(superblock)) {
            let named_by = (raw.number, at + ATTRIBUTES_AT);
            self.attributes.claim(space, block * u64::from(superblock.block_bytes), blocks.owners, named_by);
        }
        if blocks.is_orphan {
            return Ok(());
        }
        zeros(superblock, raw, at)?;
        counted(superblock, raw, at, blocks)?;
        let has_blocks = matches!(raw.kind(), kind::FILE | kind::DIRECTORY) && raw.flags() & inode::INLINE_DATA == 0;
        if has_blocks { size(superblock, raw, at, blocks.runs) } else { Ok(()) }
    }

    /// A name, the type that its entry tells, and where the block begins that has it.
    pub(super) fn name(&mut self, name: &Name<'_>, kind: u8, at: u64) {
        self.links.name(name.inode, if self.has_kinds { kind } else { 0 });
        self.twins.iter_mut().for_each(|twins| twins.name(name, at));
    }

    /// Names that directories have twice, as far as these were told one after the other.
    pub(super) fn twin_contradictions(&mut self) -> Vec<TableError> {
        self.twins.take().map(Twins::contradictions).unwrap_or_default()
    }

    /// The directory above another one.
    pub(super) fn above(&mut self, directory: u32, above: u32) {
        self.links.above(directory.into(), above.into());
    }

    /// `.` and `..`, by the first block of a directory.
    pub(super) fn first_block(&mut self, number: u32, block: &[u8], at: u64) -> Result<(), TableError> {
        let Some((itself, above)) = directory::itself_and_above(block) else {
            let what = format!("the first block of directory {number}");
            return Err(TableError::damaged(what, at, "entries . and ..", "others"));
        };
        if itself != number {
            let what = format!("the entry . of directory {number}");
            return Err(TableError::damaged(what, at, number, itself));
        }
        if number == to_u32(ROOT) && above != number {
            let what = "the entry .. of the root directory";
            return Err(TableError::damaged(what, at, number, above));
        }
        self.above(number, above);
        Ok(())
    }

    /// Whether the index of a directory of so many blocks is to be told.
    pub(super) fn takes_index(&mut self, flags: u32, blocks: u64, superblock: &Superblock) -> bool {
        self.indexes.as_mut().is_some_and(|indexes| indexes.takes(flags, blocks, superblock))
    }

    /// A block of a directory whose index is to be told.
    pub(super) fn index_block(
        &mut self,
        directory: &Directory,
        number: u32,
        bytes: &[u8],
        at: u64,
        superblock: &Superblock,
    ) {
        self.indexes.iter_mut().for_each(|indexes| indexes.block(directory, number, bytes, at, superblock));
    }

    /// Whatever directories there were so far have no further blocks.
    pub(super) fn compare_indexes(&mut self) {
        self.indexes.iter_mut().for_each(Indexes::compare);
    }

    /// What contradicts in indexes of directories, and the directories in which something else may have been.
    pub(super) fn index_contradictions(&mut self) -> (Vec<TableError>, Vec<u64>) {
        let Some(indexes) = &mut self.indexes else { return Default::default() };
        (indexes.problems(), indexes.incomplete().collect())
    }

    /// Blocks of attributes with other owners than they say; only where all inodes were told.
    pub(super) fn attribute_contradictions(&self) -> Vec<TableError> {
        self.attributes.contradictions()
    }

    /// What contradicts in names and link counts, after a second look.
    pub(super) fn contradictions<B: BlockRead>(&self, volume: &Volume<B>) -> Vec<TableError> {
        self.links.contradictions(&|inode| {
            let at = place(volume, to_u32(inode.min(u32::MAX.into())));
            (at + LINKS_AT, at)
        })
    }

    /// What contradicts in the bitmap of blocks, and in that of inodes as far as inodes were found.
    pub(super) fn bitmap_contradictions<B: BlockRead>(&self, volume: &Volume<B>) -> Vec<TableError> {
        let of_space = self.space.iter().flat_map(|space| space.contradictions(&mut |each| free::runs(volume, each)));
        let of_inodes =
            self.inodes.iter().flat_map(|inodes| inodes.contradictions(&mut |each| free::inodes(volume, each)));
        of_space.chain(of_inodes).collect()
    }

    /// Inodes that are in use by the bitmap, and weren't found.
    pub(super) fn missing_inodes<'a, B: BlockRead>(
        &'a self,
        volume: &'a Volume<B>,
    ) -> impl Iterator<Item = TableError> + 'a {
        let superblock = &volume.superblock;
        let left = self.inodes.iter().flat_map(Claims::left).map(|bit| bit + 1);
        let numbers = left.take_while(|&number| number <= superblock.inodes.into()).map(to_u32);
        numbers.filter(|&number| number != 2 && !superblock.is_special(number)).map(|number| {
            let what = format!("inode {number}");
            let expected = "one in use, as its bitmap says";
            TableError::damaged(what, place(volume, number) + LINKS_AT, expected, "a free one")
        })
    }
}

/// Claims what the file system has for itself, so that nothing else can.
fn metadata<B: BlockRead>(volume: &Volume<B>, space: &mut Claims) -> Result<(), TableError> {
    free::metadata_of_groups(volume, &mut |what, at, length, told_at| {
        space.claim(at, length, told_at, || what.to_owned());
    })?;
    // Where it can't be told it isn't needed: else it would have ended the reading.
    for run in journal::runs(volume).unwrap_or_default() {
        let (at, told_at) = (volume.byte_of(run.physical), place(volume, volume.superblock.journal_inode) + PLACES_AT);
        space.claim(at, volume.byte_of(run.count), told_at, || "where the journal lies".to_owned());
    }
    Ok(())
}

/// The byte of an inode, also of one that was never used.
fn place<B: BlockRead>(volume: &Volume<B>, number: u32) -> u64 {
    let superblock = &volume.superblock;
    let (group, index) = (
        number.saturating_sub(1) / superblock.inodes_per_group,
        number.saturating_sub(1) % superblock.inodes_per_group,
    );
    let table = volume.groups.get(group as usize).map_or(0, |group| group.inode_table);
    volume.byte_of(table).saturating_add(u64::from(index) * superblock.inode_bytes as u64)
}

/// Whether nothing stands where an inode that is no orphan has zeros.
fn zeros(superblock: &Superblock, raw: &RawInode<'_>, at: u64) -> Result<(), TableError> {
    let wrong = |what: &str, offset: usize, found: u32| {
        Err(TableError::damaged(format!("{what} of inode {}", raw.number), at + offset as u64, 0, found))
    };
    // Orphans have the next one there.
    if raw.deletion_time() != 0 {
        return wrong("the time of deletion", inode::DELETION_TIME_AT, raw.deletion_time());
    }
    if raw.fragment() != 0 {
        return wrong("the place of a fragment", inode::FRAGMENT_AT, raw.fragment());
    }
    if raw.kind() != kind::FILE || raw.has_extents() || raw.flags() & (inode::INLINE_DATA | inode::COMPRESSED) != 0 {
        return Ok(());
    }
    let (blocks, per_block) =
        (raw.size(superblock).div_ceil(superblock.block_bytes.into()), u64::from(superblock.block_bytes / 4));
    // The first block of the file that each number is needed for.
    let far = [12, 12 + per_block, 12 + per_block + per_block * per_block];
    for (index, (first, number)) in (0..12).chain(far).zip(raw.block_field().chunks_exact(4)).enumerate() {
        if first >= blocks && le32(number, 0) != 0 {
            return wrong("a block number behind the end", to_usize(PLACES_AT) + index * 4, le32(number, 0));
        }
    }
    Ok(())
}

/// Whether an inode has as many blocks as it counts.
fn counted(superblock: &Superblock, raw: &RawInode<'_>, at: u64, blocks: &Blocks<'_>) -> Result<(), TableError> {
    // Clusters aren't counted by what is used of them, nor are values that lie in inodes of their own.
    let is_other = superblock.read_only.contains(ReadOnlyCompatible::BIGALLOC)
        || superblock.incompatible.contains(Incompatible::EA_INODE)
        || raw.flags() & inode::COMPRESSED != 0;
    if is_other {
        return Ok(());
    }
    let attributes = u64::from(raw.xattr_block(superblock) != 0);
    let count = blocks.runs.iter().map(|run| run.count).sum::<u64>() + blocks.nodes.count + attributes;
    let (expected, found) = (count * u64::from(superblock.block_bytes), raw.allocated(superblock));
    if expected == found {
        return Ok(());
    }
    let what = format!("the number of blocks of inode {}", raw.number);
    Err(TableError::damaged(what, at + BLOCKS_AT, format!("{expected} bytes, as there are"), format!("{found} bytes")))
}

/// Whether an inode has blocks up to its end, and none that are written behind it.
fn size(superblock: &Superblock, raw: &RawInode<'_>, at: u64, runs: &[Run]) -> Result<(), TableError> {
    let (size, block) = (raw.size(superblock), u64::from(superblock.block_bytes));
    let wrong = |expected: String| {
        Err(TableError::damaged(format!("the size of inode {}", raw.number), at + inode::SIZE_AT, expected, size))
    };
    let end = |run: &Run| run.logical + run.count;
    if raw.kind() == kind::DIRECTORY {
        let there: u64 = runs.iter().map(|run| run.count).sum();
        let last = runs.last().map_or(0, end);
        // Some blocks may be kept for more names.
        let kept = u64::from(superblock.kept_directory_blocks);
        let is_whole = size.is_multiple_of(block) && there == last && last > 0;
        let blocks = size / block;
        return match is_whole && blocks <= last && blocks + kept >= last {
            true => Ok(()),
            false => wrong(format!("{} for its {there} blocks up to block {last}", last * block)),
        };
    }
    let most = raw.most_bytes(superblock);
    let written = runs.iter().rfind(|run| !run.unwritten).map_or(0, |run| (end(run) - 1) * block);
    match (written..=most).contains(&size) || raw.flags() & VERITY != 0 {
        true => Ok(()),
        false => wrong(format!("{written} to {most}")),
    }
}

/// The type of a file as names tell it; 0 for what is none.
fn kind_of(mode: u32) -> u8 {
    match mode {
        kind::FILE => 1,
        kind::DIRECTORY => directory::DIRECTORY,
        kind::CHARACTER => 3,
        kind::BLOCK => 4,
        0o010_000 => 5,
        0o140_000 => 6,
        kind::SYMLINK => 7,
        _ => 0,
    }
}
