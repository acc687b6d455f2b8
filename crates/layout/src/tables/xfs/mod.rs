//! XFS, versions 4 and 5.
//!
//! | module | subject |
//! |---|---|
//! | `superblock`, `features` | what kind of XFS it is, and the arithmetic of its addresses |
//! | `log` | whether it was unmounted after the last write |
//! | `allocation_group`, `inode_btree` | which inodes are in use |
//! | `group_btree` | blocks of the trees of a group |
//! | `free` | which blocks are free |
//! | `inode`, `extents` | inodes, and where their content lies |
//! | `mounted`, `owned`, `directory_places` | a mounted XFS, by what the kernel and the device tell |
//! | `directory`, `symlink`, `attributes`, `acl` | names, targets, extended attributes |
//! | `checks`, `unused_fields` | what tables of version 4, which has no checksums, tell twice, and what has no meaning there |
//! | `block`, `checksum`, `volume`, `merged_reads` | bytes with their place, CRC-32C, reading |
//!
//! Names and numbers are those of *XFS Algorithms & Data Structures* and of the kernel's `xfs_format.h`.
//!
//! What isn't told of an image: whether an extent is shared with other files (the tree of reference counts isn't read), so
//! there [`ExtentFlags::SHARED`] is never set.

mod acl;
mod allocation_group;
mod attributes;
mod block;
mod checks;
mod checksum;
mod directory;
mod directory_places;
mod extents;
mod features;
mod free;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod group_btree;
mod groups;
mod inode;
mod inode_btree;
mod log;
mod merged_reads;
mod mounted;
mod owned;
mod superblock;
mod symlink;
mod unused_fields;
mod volume;

use std::ops::ControlFlow;

pub use directory_places::DirectoryPlaces;
pub use groups::{each_group, groups_at_a_time};
pub use mounted::MountedXfs;

use allocation_group::GroupInodes;
use attributes::Attributes;
use block::Block;
use checks::Checks;
use directory::{DirectoryBlock, Entry};
use extents::Mapping;
use inode::{DIRECTORY, Dinode, FILE, Format, SYMLINK};
use inode_btree::{CHUNK_INODES, Chunk};
use merged_reads::{MergedRead, MergedReads};
use volume::Volume;

use crate::{
    block_read::BlockRead,
    extent::{Extent, ExtentFlags},
    tables::{
        Found, Inode, InodeFlags, TableError, Tables, VolumeFacts, Wanted,
        checks::{Nobody, Watched},
        crc32c::crc32c,
    },
};

/// Directory blocks that are kept to be read in the order of their addresses. When there are more, those that are here are
/// read before further inodes.
const MAX_DIRECTORY_BLOCKS: usize = 4 << 20;

/// An XFS that isn't mounted, read from its own tables.
///
/// A scan goes through the inodes in rising address order, then through the blocks of all directories; the device is told of
/// up to 128 requests ahead, of 16 MiB at most, so that a disk can choose among them. It takes about 10 MiB of memory; 32 bytes
/// for each block of a directory (more where directory blocks lie in pieces), of which no more are kept
/// than 4,194,304 and those of the inodes of one request of 4 MiB; 40 bytes for each extent of the one file that is being
/// told; and up to 64 MiB for its extended attributes, and 12 MiB for where they lie, where they are asked for. Version 4, which
/// has no checksums and whose tables are held against each other, takes a bit for each block, up to 64 MiB, another 32 bytes for
/// each block of the index of a directory, and up to 48 MiB where something contradicts.
///
/// An inode whose content can't be located, or a symbolic link whose target can't be read, goes to [`Found::problem`] and is
/// left out. One with damaged extended attributes is told with those that could be read, after the problem.
///
/// Files of a realtime device are told with [`InodeFlags::ELSEWHERE`]. Their extents have addresses of that device where it
/// [is here](Self::with_realtime_device), and else none.
#[derive(Debug)]
pub struct Xfs<B> {
    volume: Volume<B>,
}

/// What changes whenever the file system is mounted and written to; see [`change_marks`](super::change_marks).
pub(super) fn change_marks(device: &impl BlockRead) -> Result<Option<Vec<u64>>, TableError> {
    let volume = Volume::open(device)?;
    let Some(head) = log::head(&volume)? else { return Ok(None) };
    let mut marks = Vec::from(head);
    marks.push(sum_of_headers(&volume)?.into());
    Ok(Some(marks))
}

/// A sum of the superblock, its copies, and the headers of the groups: what xfs_admin and xfs_repair change past the log.
fn sum_of_headers<B: BlockRead>(volume: &Volume<B>) -> Result<u32, TableError> {
    /// Superblock, free space, inodes, and the list of free blocks.
    const SECTORS: usize = 4;
    /// A terabyte has one group, a damaged superblock may tell of very many.
    const GROUPS: u32 = 1 << 14;
    let mut bytes = vec![0; SECTORS * volume.superblock.sector_bytes as usize];
    (0..volume.superblock.groups.min(GROUPS)).try_fold(!0, |sum, group| {
        volume.read_into(&mut bytes, volume.superblock.group_start(group))?;
        Ok(crc32c(sum, &bytes))
    })
}

impl<B: BlockRead> Xfs<B> {
    /// Begins to read a file system, which starts at byte 0 of the device.
    ///
    /// [`TableError::NotHere`] when there is none, [`TableError::Dirty`] when its log has to be recovered first,
    /// [`TableError::LogElsewhere`] when that is on another device, [`TableError::Unsupported`] for an unknown incompatible
    /// feature, [`TableError::Damaged`] when the superblock is, [`TableError::Io`] when it or the log can't be read.
    pub fn open(device: B) -> Result<Xfs<B>, TableError> {
        let volume = Volume::open(device)?;
        log::check_clean(&volume)?;
        Ok(Xfs { volume })
    }

    /// Begins to read a file system whose log is on a device of its own (`mkfs.xfs -l logdev=`), which is asked whether it is
    /// clean, and is not needed afterwards.
    ///
    /// As [`open`](Self::open); and [`TableError::NotTheLog`] when the log is not that of this file system. Bytes that are named
    /// by errors of the log are those of its device.
    pub fn open_with_log(device: B, log: &impl BlockRead) -> Result<Xfs<B>, TableError> {
        let volume = Volume::open(device)?;
        match volume.superblock.log_address() {
            Some(_) => log::check_clean(&volume)?,
            None => log::check_clean_elsewhere(&volume.superblock, log)?,
        }
        Ok(Xfs { volume })
    }

    /// Whether some files may lie on a device of their own (`mkfs.xfs -r rtdev=`).
    pub fn has_realtime_device(&self) -> bool {
        self.volume.superblock.has_realtime_device()
    }

    /// Tells where files lie on the realtime device, which has so many bytes. Nothing of it is read: it has no bytes of its own
    /// by which it could be told from another one.
    ///
    /// [`TableError::NotTheRealtimeDevice`] when it is smaller than the one of this file system.
    pub fn with_realtime_device(mut self, bytes: u64) -> Result<Xfs<B>, TableError> {
        let least = self.volume.superblock.realtime_bytes();
        if bytes < least {
            return Err(TableError::NotTheRealtimeDevice { least, bytes });
        }
        self.volume.is_realtime_here = true;
        Ok(self)
    }

    /// Whether names are told apart without regard to the case of ASCII letters (`mkfs.xfs -n version=ci`).
    pub fn ignores_case(&self) -> bool {
        self.volume.superblock.ignores_case
    }
}

impl<B: BlockRead> Tables for Xfs<B> {
    fn facts(&self) -> &VolumeFacts {
        &self.volume.superblock.facts
    }

    fn free(&self, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
        free::runs(&self.volume, each)
    }

    fn inode_at(&self, number: u64) -> Option<u64> {
        self.volume.superblock.inode_address(number)
    }

    fn scan(&mut self, wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
        let volume = &self.volume;
        // That the caller wants no more is no error.
        let _ = match volume.superblock.uuid {
            Some(_) => Scan::new(volume, wanted, found, None).run(),
            None => checked_scan(volume, wanted, found),
        };
        Ok(())
    }
}

/// A scan of version 4, whose tables are held against each other, since they have no checksums.
fn checked_scan<B: BlockRead>(volume: &Volume<B>, wanted: Wanted, found: &mut dyn Found) -> ControlFlow<()> {
    let mut watched = Watched::new(found);
    let (mut checks, problem) = Checks::new(volume);
    problem.map_or(ControlFlow::Continue(()), |problem| watched.found.problem(problem))?;
    Scan::new(volume, wanted, &mut watched, Some(&mut checks)).run()?;
    let mut problems = checks.space_contradictions(volume);
    // What is left out with a problem contradicts what is left.
    if !watched.has_problems && !checks.is_even() {
        let mut again = checks.again();
        Scan::new(volume, Wanted::default(), &mut Nobody, Some(&mut again)).run()?;
        again.incomplete().for_each(|directory| watched.found.incomplete(Some(directory)));
        problems.extend(again.contradictions(volume));
    }
    problems.into_iter().try_for_each(|problem| watched.found.problem(problem))
}

/// Some inodes of a chunk, which lie in a row.
#[derive(Debug)]
struct ChunkPart {
    /// The number of the first inode.
    first: u64,
    /// A bit for each inode that is in use, the lowest for the first.
    used: u64,
}

/// An inode that needs other blocks than its own.
struct Deferred {
    /// The address of the first of these.
    needs: u64,
    number: u64,
    at: u64,
    bytes: Box<[u8]>,
}

struct Scan<'a, B> {
    volume: &'a Volume<B>,
    wanted: Wanted,
    found: &'a mut dyn Found,
    directories: Vec<DirectoryBlock>,
    /// For one request.
    buffer: Vec<u8>,
    checks: Option<&'a mut Checks>,
    /// Blocks with the indexes of directories, where they are checked.
    indexes: Vec<DirectoryBlock>,
}

impl<'a, B: BlockRead> Scan<'a, B> {
    fn new(
        volume: &'a Volume<B>,
        wanted: Wanted,
        found: &'a mut dyn Found,
        checks: Option<&'a mut Checks>,
    ) -> Scan<'a, B> {
        Scan { volume, wanted, found, directories: Vec::new(), buffer: Vec::new(), checks, indexes: Vec::new() }
    }

    fn run(&mut self) -> ControlFlow<()> {
        let mut requests = MergedReads::new();
        let volume = self.volume;
        for group in 0..volume.superblock.groups {
            let inodes = match GroupInodes::read(volume, group) {
                Ok(inodes) => inodes,
                Err(error) => {
                    self.found.problem(error)?;
                    continue;
                }
            };
            inode_btree::walk(volume, inodes, &mut |chunk| match chunk {
                Ok(chunk) => self.chunk(group, chunk, &mut requests),
                Err(error) => self.found.problem(error),
            })?;
        }
        while let Some(request) = requests.next(volume) {
            self.inodes(request)?;
        }
        self.names()
    }

    /// Adds the inodes in use of a chunk to the requests.
    fn chunk(&mut self, group: u32, chunk: Chunk, requests: &mut MergedReads<ChunkPart>) -> ControlFlow<()> {
        if let Some(checks) = &mut self.checks {
            checks.chunk(self.volume, group, &chunk);
        }
        let mut from = 0;
        while from < CHUNK_INODES {
            // Holes are free, but what is free may lie amid what is read.
            let holes = chunk.holes >> from;
            if holes & 1 == 1 {
                from += holes.trailing_ones();
                continue;
            }
            let length = holes.trailing_zeros().min(CHUNK_INODES - from);
            let used = !chunk.free >> from & u64::MAX >> (64 - length);
            if used != 0 {
                let (first_used, count) = (used.trailing_zeros(), 64 - used.leading_zeros() - used.trailing_zeros());
                let used = used >> first_used;
                let Some(index) = chunk.first.checked_add(from + first_used) else { break };
                self.part((group, chunk.first_at), index, count, used, requests)?;
            }
            from += length;
        }
        ControlFlow::Continue(())
    }

    fn part(
        &mut self,
        (group, told_at): (u32, u64),
        index: u32,
        count: u32,
        used: u64,
        requests: &mut MergedReads<ChunkPart>,
    ) -> ControlFlow<()> {
        let superblock = &self.volume.superblock;
        let last = index.checked_add(count - 1).and_then(|last| superblock.inode_number(group, last));
        let place = superblock.inode_number(group, index).zip(last);
        let Some((at, first)) = place.and_then(|(first, _)| Some((superblock.inode_address(first)?, first))) else {
            let what = format!("a chunk of the inode tree of allocation group {group}");
            return self.found.problem(TableError::damaged(what, told_at, "inodes within the group", index));
        };
        let length = count as usize * superblock.inode_bytes();
        match requests.add(self.volume, at, length, ChunkPart { first, used }) {
            Some(request) => self.inodes(request),
            None => ControlFlow::Continue(()),
        }
    }

    /// Reads and tells the inodes of a request; those that need further blocks last, in the order of these.
    fn inodes(&mut self, request: MergedRead<ChunkPart>) -> ControlFlow<()> {
        let volume = self.volume;
        let mut buffer = std::mem::take(&mut self.buffer);
        let inode_bytes = volume.superblock.inode_bytes();
        let mut deferred = Vec::new();
        let mut flow = ControlFlow::Continue(());
        request.read(volume, &mut buffer, |at, bytes, part| {
            if flow.is_break() {
                return;
            }
            flow = match bytes {
                Err(error) => self.found.problem(error),
                Ok(bytes) => bytes.chunks_exact(inode_bytes).enumerate().try_for_each(|(index, bytes)| {
                    if part.used >> index & 1 == 0 {
                        return ControlFlow::Continue(());
                    }
                    let (number, at) = (part.first + index as u64, at + (index * inode_bytes) as u64);
                    self.inode(number, at, bytes, Some(&mut deferred))
                }),
            };
        });
        self.buffer = buffer;
        flow?;
        deferred.sort_unstable_by_key(|deferred| deferred.needs);
        deferred.iter().for_each(|deferred| volume.will_read(deferred.needs, volume.superblock.block_bytes() as u64));
        for Deferred { number, at, bytes, .. } in deferred {
            self.inode(number, at, &bytes, None)?;
        }
        if self.directories.len() + self.indexes.len() >= MAX_DIRECTORY_BLOCKS {
            self.names()
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Tells an inode, or puts it off when it needs further blocks.
    fn inode(&mut self, number: u64, at: u64, bytes: &[u8], deferred: Option<&mut Vec<Deferred>>) -> ControlFlow<()> {
        let block = Block { what: "an inode", at, bytes };
        let dinode = match Dinode::parse(&self.volume.superblock, number, block) {
            Ok(dinode) => dinode,
            Err(error) => return self.found.problem(error),
        };
        if dinode.is_internal {
            return ControlFlow::Continue(());
        }
        if let (Some(deferred), Some(needs)) = (deferred, self.needs(&dinode)) {
            deferred.push(Deferred { needs, number, at, bytes: bytes.into() });
            return ControlFlow::Continue(());
        }
        match self.told(&dinode) {
            Ok((inode, problem)) => {
                let space = self.checks.as_mut().and_then(|checks| checks.inode(self.volume, &dinode, &block).err());
                for problem in problem.into_iter().chain(space) {
                    self.found.problem(problem)?;
                }
                self.found.inode(inode)?;
                self.directory(&dinode)
            }
            Err(error) => self.found.problem(error),
        }
    }

    /// Where the first block lies that is needed beside the inode itself.
    fn needs(&self, dinode: &Dinode<'_>) -> Option<u64> {
        let needs_data = dinode.data.format == Format::Tree || dinode.is(SYMLINK);
        let data = needs_data.then(|| extents::first_address(self.volume, &dinode.data)).flatten();
        let attributes = dinode.attributes.filter(|_| self.wanted.xattrs);
        data.or_else(|| extents::first_address(self.volume, &attributes.filter(|fork| fork.extents > 0)?))
    }

    /// All that is told of an inode, and what was damaged in its attributes.
    fn told(&self, dinode: &Dinode<'_>) -> Result<(Inode, Option<TableError>), TableError> {
        let block_bytes = self.volume.superblock.block_bytes() as u64;
        let inline = if dinode.is(SYMLINK) { Some(symlink::target(self.volume, dinode)?) } else { None };
        let mut extents = Vec::new();
        if dinode.is(FILE) || dinode.is(DIRECTORY) && !directory::is_short_form(&dinode.data) {
            // Space behind the end of the file belongs to nobody's content, but a block of the end does.
            let end = dinode.size.next_multiple_of(4096);
            extents::walk(self.volume, &dinode.data, &mut |mapping| {
                extents.extend(extent(mapping, block_bytes, end));
                Ok(())
            })?;
        }
        let mut kept = Attributes::default();
        let mut problem = None;
        if self.wanted.xattrs {
            problem = attributes::read(self.volume, dinode, &mut kept).err();
        }
        let inode = Inode {
            number: dinode.number,
            generation: dinode.generation,
            mode: dinode.mode,
            uid: dinode.uid,
            gid: dinode.gid,
            size: dinode.size,
            allocated: dinode.blocks.saturating_mul(block_bytes),
            links: dinode.links,
            rdev: dinode.rdev()?,
            mtime: dinode.mtime,
            ctime: dinode.ctime,
            atime: dinode.atime,
            btime: dinode.btime,
            flags: if dinode.is_realtime { InodeFlags::ELSEWHERE } else { InodeFlags::empty() },
            extents,
            inline,
            xattrs: kept.list,
            streams: Vec::new(),
        };
        Ok((inode, problem))
    }

    /// Tells the names of a directory in its inode, or keeps the places of its blocks.
    fn directory(&mut self, dinode: &Dinode<'_>) -> ControlFlow<()> {
        if !dinode.is(DIRECTORY) {
            return ControlFlow::Continue(());
        }
        if !directory::is_short_form(&dinode.data) {
            let mut blocks = |block| self.directories.push(block);
            let mut listed = directory::blocks(self.volume, dinode, &mut blocks);
            if listed.is_ok() && self.checks.as_ref().is_some_and(|checks| checks.has_indexes()) {
                listed = directory::index_blocks(self.volume, dinode, &mut |block| self.indexes.push(block));
            }
            return match listed {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => self.lacks_names(dinode.number, error),
            };
        }
        let mut flow = ControlFlow::Continue(());
        let Scan { found, checks, .. } = self;
        let read = directory::short_form(self.volume, dinode, &mut |entry| {
            checks.iter_mut().for_each(|checks| checks.entry(&entry, false));
            tell(*found, &mut flow, &entry);
        });
        flow?;
        read.err().map_or(ControlFlow::Continue(()), |error| self.lacks_names(dinode.number, error))
    }

    /// Tells why names of a directory are missing.
    fn lacks_names(&mut self, directory: u64, error: TableError) -> ControlFlow<()> {
        self.found.incomplete(Some(directory));
        self.found.problem(error)
    }

    /// Reads the directory blocks that were kept, in the order of their addresses.
    fn names(&mut self) -> ControlFlow<()> {
        let mut blocks = std::mem::take(&mut self.directories);
        blocks.sort_unstable_by_key(|block| block.at);
        let length = self.volume.superblock.directory_block_bytes();
        let mut requests = MergedReads::new();
        for block in blocks {
            if let Some(pieces) = &block.pieces {
                self.block_in_pieces(&block, pieces)?;
                continue;
            }
            if let Some(request) = requests.add(self.volume, block.at, length, block.directory) {
                self.directory_blocks(request)?;
            }
        }
        while let Some(request) = requests.next(self.volume) {
            self.directory_blocks(request)?;
        }
        self.index_blocks()
    }

    /// Reads the blocks of indexes that were kept, in the same way.
    fn index_blocks(&mut self) -> ControlFlow<()> {
        let mut blocks = std::mem::take(&mut self.indexes);
        blocks.sort_unstable_by_key(|block| block.at);
        let mut bytes = vec![0; self.volume.superblock.directory_block_bytes()];
        for block in blocks {
            let whole = [(block.at, bytes.len())];
            let read = self.read_pieces(&mut bytes, block.pieces.as_deref().unwrap_or(&whole));
            let Some(checks) = &mut self.checks else { continue };
            let told = read.and_then(|()| checks.index(block.directory, block.at, &bytes));
            if let Err(error) = told {
                self.found.problem(error)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn read_pieces(&self, bytes: &mut [u8], pieces: &[(u64, usize)]) -> Result<(), TableError> {
        let mut rest = bytes;
        for (at, length) in pieces {
            let (piece, behind) = rest.split_at_mut((*length).min(rest.len()));
            self.volume.read_into(piece, *at)?;
            rest = behind;
        }
        Ok(())
    }

    fn directory_blocks(&mut self, request: MergedRead<u64>) -> ControlFlow<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut flow = ControlFlow::Continue(());
        request.read(self.volume, &mut buffer, |at, bytes, directory| {
            if flow.is_continue() {
                flow = match bytes {
                    Ok(bytes) => self.directory_block(at, directory, bytes),
                    Err(error) => self.lacks_names(directory, error),
                };
            }
        });
        self.buffer = buffer;
        flow
    }

    fn block_in_pieces(&mut self, block: &DirectoryBlock, pieces: &[(u64, usize)]) -> ControlFlow<()> {
        let mut bytes = vec![0; self.volume.superblock.directory_block_bytes()];
        if let Err(error) = self.read_pieces(&mut bytes, pieces) {
            return self.lacks_names(block.directory, error);
        }
        self.directory_block(block.at, block.directory, &bytes)
    }

    fn directory_block(&mut self, at: u64, directory: u64, bytes: &[u8]) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        let Scan { found, checks, .. } = self;
        let mut read = directory::names(self.volume, at, directory, bytes, &mut |entry| {
            checks.iter_mut().for_each(|checks| checks.entry(&entry, true));
            tell(*found, &mut flow, &entry);
        });
        if let Some(checks) = checks.as_mut().filter(|checks| checks.has_indexes()) {
            read = read.and_then(|()| checks.index(directory, at, bytes));
        }
        flow?;
        read.err().map_or(ControlFlow::Continue(()), |error| self.lacks_names(directory, error))
    }
}

/// Tells a name unless the caller wants no more.
fn tell(found: &mut dyn Found, flow: &mut ControlFlow<()>, entry: &Entry<'_>) {
    if flow.is_continue() && !entry.is_dots() {
        *flow = found.name(entry.name);
    }
}

/// An extent in bytes, cut off at `end`; `None` when nothing is left.
fn extent(mapping: Mapping, block_bytes: u64, end: u64) -> Option<Extent> {
    let logical = mapping.offset.checked_mul(block_bytes)?;
    let length = mapping.blocks.checked_mul(block_bytes)?.min(end.saturating_sub(logical));
    let mut flags = if mapping.is_unwritten { ExtentFlags::UNWRITTEN } else { ExtentFlags::empty() };
    let physical = mapping.at.or(mapping.on_realtime);
    if physical.is_none() {
        flags |= ExtentFlags::UNKNOWN;
    }
    (length > 0).then_some(Extent { logical, physical, length, flags })
}
