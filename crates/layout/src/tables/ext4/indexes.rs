//! Indexes of directories, held against the blocks that they lead to.
//!
//! A directory that is larger than a block has its names in the order of their hashes: the first block has the root of an index,
//! whose entries say with which hash each further block begins, directly or by way of nodes. So a name is told twice, by its
//! bytes and by the block that it lies in. Directories are read without their index, in the order of the disk, where leaves
//! may come before what leads to them: of each block is kept what it says, and all of it is compared in the end.

use std::collections::BTreeSet;

use super::{
    directory::{self, Directory},
    dirhash::NameHash,
    fields::{le16, le32},
    inode,
    superblock::{Compatible, Incompatible, Superblock},
};
use crate::tables::{TableError, cast::to_usize, problems::Problems};

/// Blocks of directories with an index that are kept at once, 40 bytes each; directories that would take more aren't looked at.
const BLOCKS_MAX: u64 = 1 << 20;
/// Entries that are kept, 8 bytes each.
const ENTRIES_MAX: usize = 1 << 22;

/// Where entries begin in the root and in a node. In the place of the first hash are the room for entries and their number.
const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;
const ENTRY_BYTES: usize = 8;
/// Where the root tells of itself.
const ROOT_INFO: usize = 24;
const INFO_BYTES: u8 = 8;
/// Bits of an entry that are the number of a block.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;
/// The lowest bit of a hash says that names with the same one are in the block before, too.
const CONTINUED: u32 = 1;
/// A flag of the root that nobody knows.
const INCOMPATIBLE_FLAG: u8 = 1;

/// What a block has for a root or a node.
#[derive(Clone, Copy, Debug)]
enum Entries {
    /// Names: it is none.
    None,
    /// Room for so many entries, and so many of them, which can't be.
    Wrong(u16, u16),
    /// They weren't kept.
    TooMany,
    /// Where they begin among all, and how many there are.
    At(u32, u16),
}

/// What is kept of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    directory: u32,
    /// Its number in the directory.
    number: u32,
    at: u64,
    entries: Entries,
    /// Of a root: levels of nodes between it and the leaves, and whether its hash is that of the file system.
    levels: u8,
    has_default_hash: bool,
    /// The lowest and the highest hash of its names; the other way round where there are none.
    hashes: (u32, u32),
    is_named: bool,
}

/// The hash from which on a block has names, and its number.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    block: u32,
}

/// What indexes and blocks of directories told so far.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    /// Blocks that there is no more room for.
    taken: u64,
    block_bytes: usize,
    blocks: Vec<Block>,
    entries: Vec<Entry>,
    problems: Problems,
    incomplete: BTreeSet<u32>,
}

impl Indexes {
    /// Whether a directory of so many blocks has an index, and is to be looked at.
    pub(super) fn takes(&mut self, flags: u32, blocks: u64, superblock: &Superblock) -> bool {
        let is_indexed = flags & inode::INDEXED != 0 && superblock.compatible.contains(Compatible::DIR_INDEX);
        let taken = self.taken.saturating_add(blocks);
        let is_taken = is_indexed && taken <= BLOCKS_MAX;
        if is_taken {
            self.taken = taken;
        }
        is_taken
    }

    /// A block of a directory that is looked at.
    pub(super) fn block(&mut self, directory: &Directory, number: u32, bytes: &[u8], at: u64, superblock: &Superblock) {
        self.block_bytes = bytes.len();
        let mut block = Block {
            directory: directory.number,
            number,
            at,
            entries: Entries::None,
            levels: 0,
            has_default_hash: false,
            hashes: (u32::MAX, 0),
            is_named: false,
        };
        if number == 0 {
            match root(directory, bytes, at, superblock) {
                Ok((levels, version)) => {
                    (block.levels, block.has_default_hash) = (levels, version == superblock.hash_version);
                }
                // What it leads to can't be told.
                Err(problem) => return self.problems.push(problem),
            }
            block.entries = self.kept(bytes, ROOT_ENTRIES);
        } else {
            if directory::is_node(bytes) {
                block.entries = self.kept(bytes, NODE_ENTRIES);
            }
            block.hashes = hashes(directory, bytes, superblock);
        }
        self.blocks.push(block);
    }

    /// Keeps the entries of a root or a node, where their number can be right.
    fn kept(&mut self, bytes: &[u8], start: usize) -> Entries {
        let (room, count) = (le16(bytes, start), le16(bytes, start + 2));
        if usize::from(room) != room_of(bytes.len(), start) || count == 0 || count > room {
            return Entries::Wrong(room, count);
        }
        let first = self.entries.len();
        if first + usize::from(count) > ENTRIES_MAX {
            return Entries::TooMany;
        }
        let entries = bytes[start..].chunks_exact(ENTRY_BYTES).take(count.into());
        self.entries.extend(entries.map(|entry| Entry { hash: le32(entry, 0), block: le32(entry, 4) & BLOCK_MASK }));
        // No more than ENTRIES_MAX.
        u32::try_from(first).map_or(Entries::TooMany, |first| Entries::At(first, count))
    }

    /// Compares what was told of the directories of which all blocks have come, and forgets it.
    pub(super) fn compare(&mut self) {
        let (mut blocks, entries) = (std::mem::take(&mut self.blocks), std::mem::take(&mut self.entries));
        self.taken = 0;
        blocks.sort_unstable_by_key(|block| (block.directory, block.number));
        for blocks in blocks.chunk_by_mut(|one, next| one.directory == next.directory) {
            // Where that is missing, it was told.
            if blocks[0].number != 0 {
                continue;
            }
            let Block { directory, levels, has_default_hash, .. } = blocks[0];
            let (block_bytes, problems) = (self.block_bytes, &mut self.problems);
            let mut walk =
                Walk { blocks, entries: &entries, block_bytes, has_default_hash, problems, has_stray: false };
            let is_whole = walk.visit(0, levels, (0, u32::MAX));
            if walk.has_stray {
                self.incomplete.insert(directory);
            }
            if let Some(block) = blocks[1..].iter().find(|block| is_whole && !block.is_named) {
                let what = format!("block {} of directory {directory}", block.number);
                let expected = "a block that its index leads to";
                self.problems.push(TableError::damaged(what, block.at, expected, "one that no entry names"));
            }
        }
    }

    /// What was wrong.
    pub(super) fn problems(&mut self) -> Vec<TableError> {
        self.problems.take()
    }

    /// Directories with names that don't belong where they are: something else may have been there.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = u64> {
        self.incomplete.iter().map(|&directory| directory.into())
    }
}

/// The way through one index.
struct Walk<'a> {
    /// All of the directory, by rising number.
    blocks: &'a mut [Block],
    entries: &'a [Entry],
    block_bytes: usize,
    has_default_hash: bool,
    problems: &'a mut Problems,
    has_stray: bool,
}

impl Walk<'_> {
    /// Looks at a block with so many levels of nodes below it, and whose names have hashes from the first to the last. False
    /// where not all that it leads to was looked at. Each block is come to once at most.
    fn visit(&mut self, index: usize, levels: u8, (low, high): (u32, u32)) -> bool {
        let Block { directory, number, at, entries, .. } = self.blocks[index];
        let start = if number == 0 { ROOT_ENTRIES } else { NODE_ENTRIES };
        let entries_at = at + start as u64;
        let found = match entries {
            Entries::At(first, count) => Ok((to_usize(first.into()), usize::from(count))),
            Entries::TooMany => return false,
            Entries::Wrong(room, count) => Err(format!("{count} in room for {room}")),
            Entries::None => Err("names".to_owned()),
        };
        let (first, count) = match found {
            Ok(found) => found,
            Err(found) => {
                let room = room_of(self.block_bytes, start);
                let what = format!("the entries of block {number} of the index of directory {directory}");
                let expected = format!("1 to {room} in room for {room}");
                self.problems.push(TableError::damaged(what, entries_at, expected, found));
                return false;
            }
        };
        let entries = &self.entries[first..][..count];
        let last = self.blocks.last().map_or(0, |block| block.number);
        let (mut from, mut is_whole) = (low, true);
        for (position, entry) in entries.iter().enumerate() {
            let entry_at = entries_at + (position * ENTRY_BYTES) as u64;
            if position > 0 {
                let hash = entry.hash & !CONTINUED;
                if hash < from || hash > high {
                    let what = format!("a hash in the index of directory {directory}");
                    let expected = format!("{from:#010x} to {high:#010x}");
                    self.problems.push(TableError::damaged(what, entry_at, expected, format!("{hash:#010x}")));
                    return false;
                }
                from = hash;
            }
            let to = entries.get(position + 1).map_or(high, |next| next.hash & !CONTINUED);
            let wrong = |expected: String| {
                let what = format!("the number of a block in the index of directory {directory}");
                TableError::damaged(what, entry_at + 4, expected, entry.block)
            };
            if !(1..=last).contains(&entry.block) {
                self.problems.push(wrong(format!("1 to {last}")));
                is_whole = false;
                continue;
            }
            let Ok(child) = self.blocks.binary_search_by_key(&entry.block, |block| block.number) else {
                // One that couldn't be read.
                is_whole = false;
                continue;
            };
            if std::mem::replace(&mut self.blocks[child].is_named, true) {
                self.problems.push(wrong("a block that no other entry names".to_owned()));
                is_whole = false;
                continue;
            }
            match levels.checked_sub(1) {
                Some(levels) => is_whole &= self.visit(child, levels, (from, to)),
                None => self.leaf(child, (from, to)),
            }
        }
        is_whole
    }

    /// Compares the names of a leaf with the hashes that its entry and the next one give it.
    fn leaf(&mut self, index: usize, (low, high): (u32, u32)) {
        let Block { directory, number, at, hashes: (lowest, highest), .. } = self.blocks[index];
        // An entry that is out of order is told when its turn comes.
        if !self.has_default_hash || lowest > highest || low > high || lowest >= low && highest <= high {
            return;
        }
        self.has_stray = true;
        let what = format!("names in block {number} of directory {directory}");
        let expected = format!("hashes from {low:#010x} to {high:#010x}, as its index says");
        self.problems.push(TableError::damaged(what, at, expected, format!("{lowest:#010x} to {highest:#010x}")));
    }
}

/// The entries for which a block has room behind `start`.
fn room_of(block_bytes: usize, start: usize) -> usize {
    block_bytes.saturating_sub(start) / ENTRY_BYTES
}

/// The levels of an index and its hash, by its root, which must be what a kernel takes for one.
fn root(directory: &Directory, bytes: &[u8], at: u64, superblock: &Superblock) -> Result<(u8, u8), TableError> {
    let info = bytes.get(ROOT_INFO..ROOT_ENTRIES).unwrap_or_default();
    let &[_, _, _, _, version, info_bytes, levels, flags] = info else { return Ok((0, 0)) };
    let wrong = |what: &str, offset: usize, expected: &dyn ToString, found: &dyn ToString| {
        let what = format!("{what} of the index of directory {}", directory.number);
        Err(TableError::damaged(what, at + offset as u64, expected.to_string(), found.to_string()))
    };
    if !directory::has_room_for_a_root(bytes) {
        return wrong("the root", 0, &"entries . and .., and nothing else", &"others");
    }
    if le32(info, 0) != 0 {
        return wrong("the first word", ROOT_INFO, &0, &le32(info, 0));
    }
    // The last one is for names that are encrypted and casefolded.
    if version > 6 {
        return wrong("the hash", ROOT_INFO + 4, &"0 to 6", &version);
    }
    if info_bytes != INFO_BYTES {
        return wrong("the length of the head", ROOT_INFO + 5, &INFO_BYTES, &info_bytes);
    }
    let most = if superblock.incompatible.contains(Incompatible::LARGE_DIR) { 2 } else { 1 };
    if levels > most {
        return wrong("the levels", ROOT_INFO + 6, &format!("at most {most}"), &levels);
    }
    if flags & INCOMPATIBLE_FLAG != 0 {
        return wrong("the flags", ROOT_INFO + 7, &"even ones", &flags);
    }
    Ok((levels, version))
}

/// The lowest and the highest hash of the names of a block, as far as their bytes tell these.
fn hashes(directory: &Directory, bytes: &[u8], superblock: &Superblock) -> (u32, u32) {
    let none = (u32::MAX, 0);
    if directory.flags & (inode::ENCRYPTED | inode::CASEFOLD) != 0 {
        return none;
    }
    let Some(hash) = NameHash::new(superblock.hash_version, superblock.hash_unsigned, &superblock.hash_seed) else {
        return none;
    };
    let mut hashes = none;
    directory::plain_names(bytes, &mut |name| {
        // Their hash depends on the machine that computed it where the superblock doesn't say.
        if superblock.has_hash_sign || name.is_ascii() {
            let [hash, _] = hash.of(name);
            hashes = (hashes.0.min(hash), hashes.1.max(hash));
        }
    });
    hashes
}
