//! All metadata of a mounted file system read once, in nearly one rising pass, so that the kernel finds it in memory.
//!
//! The kernel keeps the metadata of ext4 in the page cache of its device: what was read here through the buffered device
//! it doesn't read again. The tables of inodes tell where directories and the nodes of extent trees lie, which mostly is
//! shortly behind them. So the disk goes by sections, each from one run of tables to the next: first the tables, then,
//! rising, what they told of; what they told of elsewhere waits for its section, or for the end. The next requests are
//! always announced while the first is looked at, so that the disk has a choice.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    ops::Range,
};

use super::{
    directory,
    extents::{self, DEEPEST},
    fields::le32,
    inode::{self, RawInode, kind},
    volume::Volume,
    xattr,
};
use crate::{
    block_read::BlockRead,
    tables::cast::{to_u32, to_usize},
};

/// Requests that are announced ahead: what the queue of a drive holds.
const AHEAD: usize = 32;
/// Bytes of the largest request.
const REQUEST_BYTES: u64 = 256 << 10;
/// Tables that lie nearer to each other than this are of one section.
const SECTION_GAP_BYTES: u64 = 4 << 20;
/// Places that are noted at most, some 40 bytes each; what is beyond is left to the walk.
const NOTED_MAX: usize = 2 << 20;

/// What the caller will ask the kernel for, beside names and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Where the content of files lies, and the targets of symbolic links.
    pub layout: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

/// What is learned from blocks when they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Nothing.
    None,
    /// Inodes, from this number on, so many.
    Inodes(u32, u32),
    /// Nodes below one of an extent tree, or the blocks of its directory.
    Node { depth: u16, directory: bool },
    /// The same for a block of block numbers, above so many levels of others.
    Numbers { level: u8, directory: bool },
    /// Which inodes a directory names.
    Names,
}

/// Some directories instead of all.
struct Chosen<'a> {
    /// By number and generation.
    is_wanted: &'a dyn Fn(u32, u32) -> bool,
    /// Inodes that may be of such directories, and haven't come yet.
    awaited: HashSet<u32>,
    /// Blocks of inode tables that were noted.
    noted: HashSet<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Noted {
    count: u32,
    look: Look,
}

pub(super) struct BringIn<'a, B> {
    volume: &'a Volume<B>,
    needs: Needs,
    go_on: &'a dyn Fn() -> bool,
    noted: BTreeMap<u64, Noted>,
    /// Blocks that may still be read: more than those of the metadata, and trees that name each other again and again
    /// must end.
    left: u64,
    buffer: Vec<u8>,
    /// What directories are chosen, if not all.
    chosen: Option<Chosen<'a>>,
}

/// Runs of blocks that are read together.
struct Request {
    first: u64,
    count: u64,
    runs: Vec<(u64, Noted)>,
}

impl<'a, B: BlockRead> BringIn<'a, B> {
    /// Reads at most `most` bytes.
    pub(super) fn new(volume: &'a Volume<B>, needs: Needs, most: u64, go_on: &'a dyn Fn() -> bool) -> BringIn<'a, B> {
        let left = (most / u64::from(volume.superblock.block_bytes)).min(volume.superblock.blocks);
        BringIn { volume, needs, go_on, noted: BTreeMap::new(), left, buffer: Vec::new(), chosen: None }
    }

    /// Reads what listing directories takes: their inodes and blocks, and the inodes that they name. Beside those that are
    /// given, all that are named and `is_wanted`.
    pub(super) fn run_chosen(
        mut self,
        directories: impl Iterator<Item = u32>,
        is_wanted: &'a dyn Fn(u32, u32) -> bool,
    ) {
        self.chosen = Some(Chosen { is_wanted, awaited: HashSet::new(), noted: HashSet::new() });
        directories.for_each(|number| self.note_inode(number, true));
        self.read(0..u64::MAX);
    }

    /// Notes the block of the inode table that holds an inode.
    fn note_inode(&mut self, number: u32, may_be_wanted: bool) {
        let Some((block, byte)) = self.volume.inode_place(number) else { return };
        let Some(chosen) = &mut self.chosen else { return };
        let is_new = chosen.noted.insert(block);
        if may_be_wanted && chosen.awaited.insert(number) {
            let inode_bytes = self.volume.superblock.inode_bytes;
            let first = number - to_u32((byte / inode_bytes) as u64);
            let count = self.volume.superblock.block_bytes / to_u32(inode_bytes as u64);
            self.note(block, 1, Look::Inodes(first, count));
        } else if is_new {
            self.note(block, 1, Look::None);
        }
    }

    /// Notes the inodes that blocks of a directory name.
    fn names(&mut self, blocks: &[u8]) {
        let may_be_directory = |kind| matches!(kind, directory::UNKNOWN | directory::DIRECTORY);
        for block in blocks.chunks(self.volume.superblock.block_bytes as usize) {
            directory::inodes(block, &mut |number, kind| self.note_inode(number, may_be_directory(kind)));
        }
    }

    pub(super) fn run(mut self) {
        let block_bytes = u64::from(self.volume.superblock.block_bytes);
        let tables = self.volume.tables();
        let mut sections: Vec<Range<usize>> = Vec::new();
        for (index, table) in tables.iter().enumerate() {
            let near = |last: &super::merge::Piece| {
                table.block <= last.block + u64::from(last.count) + SECTION_GAP_BYTES / block_bytes
            };
            match sections.last_mut() {
                Some(section) if near(&tables[index - 1]) => section.end = index + 1,
                _ => sections.push(index..index + 1),
            }
        }
        for (number, section) in sections.iter().enumerate() {
            let (start, last) = (tables[section.start].block, tables[section.end - 1]);
            for table in &tables[section.clone()] {
                self.note_table(table);
            }
            let end = sections.get(number + 1).map_or(u64::MAX, |next| tables[next.start].block);
            if !self.read(start..last.block + u64::from(last.count)) || !self.read(start..end) {
                return;
            }
        }
        self.read(0..u64::MAX);
    }

    /// Cuts a table into requests.
    fn note_table(&mut self, table: &super::merge::Piece) {
        let superblock = &self.volume.superblock;
        let per_block = superblock.block_bytes / to_u32(superblock.inode_bytes as u64);
        let first = table.tag * superblock.inodes_per_group + 1;
        let inodes = self.volume.groups[table.tag as usize].inodes;
        let step = to_u32((REQUEST_BYTES / u64::from(superblock.block_bytes)).max(1));
        for from in (0..table.count).step_by(step as usize) {
            let count = step.min(table.count - from);
            let here = (inodes - from * per_block).min(count * per_block);
            let look = Look::Inodes(first + from * per_block, here);
            self.noted.insert(table.block + u64::from(from), Noted { count, look });
        }
    }

    /// Reads what is noted within a range, and what is noted there meanwhile, again and again from below. False when that
    /// was ended.
    fn read(&mut self, range: Range<u64>) -> bool {
        let mut announced = VecDeque::new();
        let mut head = range.start;
        loop {
            while announced.len() < AHEAD
                && let Some(request) = self.next_request(head..range.end)
            {
                head = request.first + request.count;
                let block_bytes = u64::from(self.volume.superblock.block_bytes);
                self.volume.device.will_read(self.volume.byte_of(request.first), request.count * block_bytes);
                announced.push_back(request);
            }
            match announced.pop_front() {
                Some(request) => {
                    self.left = self.left.saturating_sub(request.count);
                    if self.left == 0 || !(self.go_on)() {
                        return false;
                    }
                    self.look(&request);
                }
                None if self.first_noted(range.clone()).is_some() => head = range.start,
                None => return true,
            }
        }
    }

    /// The first run that begins within a range, which may end before it begins: runs of a damaged directory reach into the
    /// next tables.
    fn first_noted(&self, range: Range<u64>) -> Option<(u64, Noted)> {
        if range.is_empty() {
            return None;
        }
        self.noted.range(range).next().map(|(&block, &noted)| (block, noted))
    }

    fn next_request(&mut self, range: Range<u64>) -> Option<Request> {
        let most = (REQUEST_BYTES / u64::from(self.volume.superblock.block_bytes)).max(1);
        let (first, _) = self.first_noted(range.clone())?;
        let mut request = Request { first, count: 0, runs: Vec::new() };
        while let Some((block, noted)) = self.first_noted(first + request.count..range.end)
            && block == first + request.count
            && (request.count == 0 || request.count + u64::from(noted.count) <= most)
        {
            self.noted.remove(&block);
            let count = to_u32(u64::from(noted.count).min(most));
            if count < noted.count {
                let rest = Noted { count: noted.count - count, look: Look::None };
                self.noted.insert(block + u64::from(count), rest);
            }
            request.count += u64::from(count);
            request.runs.push((block, Noted { count, ..noted }));
        }
        Some(request)
    }

    /// Reads a request, and learns from it.
    fn look(&mut self, request: &Request) {
        let block_bytes = self.volume.superblock.block_bytes as usize;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(to_usize(request.count) * block_bytes, 0);
        // What can't be read the kernel will tell of.
        if self.volume.device.read_at(&mut buffer, self.volume.byte_of(request.first)).is_ok() {
            for (block, noted) in &request.runs {
                let start = to_usize(block - request.first) * block_bytes;
                let bytes = &buffer[start..start + noted.count as usize * block_bytes];
                match noted.look {
                    Look::None => {}
                    Look::Inodes(first, count) => {
                        let inodes = bytes.chunks_exact(self.volume.superblock.inode_bytes);
                        for (number, bytes) in (first..first + count).zip(inodes) {
                            self.inode(&RawInode { number, bytes });
                        }
                    }
                    Look::Names => self.names(bytes),
                    Look::Node { depth, directory } => self.node(bytes, Some(depth), directory),
                    Look::Numbers { level, directory } => self.numbers(bytes, level, directory),
                }
            }
        }
        self.buffer = buffer;
    }

    fn inode(&mut self, raw: &RawInode<'_>) {
        let superblock = &self.volume.superblock;
        if raw.links() == 0 || superblock.is_special(raw.number) || raw.check(self.volume, 0).is_err() {
            return;
        }
        let is_inline = raw.flags() & inode::INLINE_DATA != 0;
        if let Some(chosen) = &mut self.chosen {
            let is_awaited = chosen.awaited.remove(&raw.number) && raw.kind() == kind::DIRECTORY;
            if !is_awaited || !(chosen.is_wanted)(raw.number, raw.generation()) {
                return;
            }
        }
        match raw.kind() {
            kind::DIRECTORY if is_inline && self.chosen.is_some() => {
                // Its number of the directory above comes first.
                self.names(raw.block_field().get(4..).unwrap_or_default());
                self.names(xattr::inline_rest(raw, 0).unwrap_or_default());
            }
            kind::DIRECTORY if !is_inline => self.content(raw, true),
            kind::FILE if !is_inline && self.needs.layout => self.content(raw, false),
            kind::SYMLINK if !is_inline && self.needs.layout && !raw.is_fast_symlink(superblock) => {
                self.content(raw, true)
            }
            _ => {}
        }
        if self.needs.xattrs {
            self.note(raw.xattr_block(superblock), 1, Look::None);
        }
    }

    /// Notes the blocks that map an inode; those of a directory too.
    fn content(&mut self, raw: &RawInode<'_>, directory: bool) {
        let field = raw.block_field();
        if raw.has_extents() {
            return self.node(field, None, directory);
        }
        for index in 0..12 * usize::from(directory) {
            self.note(le32(field, index * 4).into(), 1, self.look_at_leaf());
        }
        for level in 0..3 {
            let look = Look::Numbers { level, directory };
            self.note(le32(field, (12 + usize::from(level)) * 4).into(), 1, look);
        }
    }

    fn node(&mut self, node: &[u8], depth: Option<u16>, directory: bool) {
        let Some((found, entries)) = extents::entries(node) else { return };
        if depth.map_or(found > DEEPEST, |depth| depth != found) {
            return;
        }
        for entry in entries {
            if found > 0 {
                let look = if directory || found > 1 { Look::Node { depth: found - 1, directory } } else { Look::None };
                self.note(extents::child(entry), 1, look);
            } else if directory {
                let (physical, count) = extents::written(entry);
                self.note(physical, count, self.look_at_leaf());
            }
        }
    }

    fn numbers(&mut self, numbers: &[u8], level: u8, directory: bool) {
        if level == 0 && !directory {
            return;
        }
        for number in numbers.chunks_exact(4) {
            let look = match level {
                0 => self.look_at_leaf(),
                level => Look::Numbers { level: level - 1, directory },
            };
            self.note(le32(number, 0).into(), 1, look);
        }
    }

    /// At a block of a directory.
    fn look_at_leaf(&self) -> Look {
        if self.chosen.is_some() { Look::Names } else { Look::None }
    }

    fn note(&mut self, block: u64, count: u32, look: Look) {
        let is_sound = block != 0 && count > 0 && self.volume.holds(block, count.into());
        if is_sound && self.noted.len() < NOTED_MAX {
            let noted = self.noted.entry(block).or_insert(Noted { count, look });
            // It was noted for nothing but to be read.
            if noted.look == Look::None && noted.count == count {
                noted.look = look;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{journal::Overlay, superblock::Superblock},
        *,
    };

    #[test]
    fn runs_may_reach_over_the_end_of_a_section() {
        let (superblock, overlay) = (Superblock::for_tests(900), Overlay::default());
        let device = vec![0; 900 * superblock.block_bytes as usize];
        let volume = Volume { device, superblock, groups: Vec::new(), overlay, gap_bytes: 0 };
        let mut reading = BringIn::new(&volume, Needs::default(), u64::MAX, &|| true);
        reading.note(5, 10, Look::None);
        reading.note(20, 1, Look::None);
        assert!(reading.read(0..8));
        assert_eq!(reading.noted.keys().copied().collect::<Vec<_>>(), [20], "what begins behind the section waits");
        assert!(reading.read(0..u64::MAX) && reading.noted.is_empty());
    }
}
