//! ext2, ext3 and ext4.
//!
//! The tables of inodes are read in reads of up to 4 MiB, those of neighbouring groups together, and without their parts that
//! were never used. Then all directories are read in the order of their blocks over the whole file system.
//!
//! A journal that has to be recovered is replayed in memory. Checksums are compared wherever there are any; what has a wrong
//! one is left out, with a problem that says so. Where metadata has none, tables are held against each other (`checks`).
//!
//! Memory: 16 bytes a group, 16 a directory; 24 for each run of a directory, of which no more are kept than 4,194,304 and those
//! of one directory; 24 for each block that is newer in the journal, of which up to 10,240,000 are looked at (64 bytes each
//! while it is opened) beside 1,048,576 revoked ones; the numbers of up to 1,048,576 orphans; without checksums, a bit for each
//! block and each inode, up to 64 MiB for either, another bit for each block where inodes have blocks of attributes, up to
//! 72 MiB for indexes of directories, 1 MiB of hashes of names, some 10 MiB for blocks of attributes that inodes share, and up
//! to 32 MiB where link counts are wrong; and some 110 MiB at most for reads, for inodes that wait for blocks and for these blocks; beside that the extents of one file, and up to 64 MiB of its
//! extended attributes.
//!
//! Names and targets of symbolic links that are encrypted are told as the kernel shows them without their key.
//! Names in directories that fold case are told as they were written.

mod acl;
mod attribute_blocks;
mod backup;
mod bring_in;
mod checks;
mod checksum;
mod directory;
mod dirhash;
mod extents;
mod fields;
mod free;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod groups;
mod indexes;
mod inode;
mod journal;
mod look_up;
mod merge;
mod mounted;
mod no_key_name;
mod orphans;
mod scan;
mod source;
mod superblock;
mod volume;
mod xattr;

use std::ops::ControlFlow;

pub use bring_in::Needs;
use checks::Checks;
use journal::Overlay;
pub use look_up::LookUp;
use superblock::{Incompatible, Superblock};
use volume::Volume;

use super::{Found, Moved, TableError, Tables, VolumeFacts, Wanted};
use crate::{
    block_read::BlockRead,
    tables::{
        cast::to_usize,
        checks::{Nobody, Watched},
        problems::Problems,
    },
};

/// An ext2, ext3 or ext4 file system on a device or in an image.
pub struct Ext4<B> {
    volume: Volume<B>,
    facts: VolumeFacts,
    /// What was damaged already when it was opened.
    problems: Problems,
    /// It has no checksums, but nobody changes it, so that its tables can be held against each other.
    is_checked: bool,
}

impl<B: BlockRead> Ext4<B> {
    /// Reads its superblock and group descriptors, and its journal where it has to be recovered.
    ///
    /// A damaged superblock is told with where a copy of it lies. [`TableError::Dirty`] where the journal can't be replayed
    /// here: it lies on another device, or has fast commits.
    pub fn open(device: B) -> Result<Ext4<B>, TableError> {
        let superblock = Superblock::read(&device)?;
        let dirty = superblock.incompatible.contains(Incompatible::NEEDS_RECOVERY);
        let (mut volume, mut problems) = volume(device, superblock, merge::GAP_BYTES);
        if dirty {
            volume.overlay = journal::replay(&volume)?;
            if !volume.overlay.is_empty() {
                // Both may be newer in the journal themselves.
                let place = superblock::AT / u64::from(volume.superblock.block_bytes);
                let byte = to_usize(superblock::AT % u64::from(volume.superblock.block_bytes));
                let block = volume.block(place)?;
                let bytes = block.get(byte..byte + superblock::BYTES).unwrap_or_default();
                volume.superblock = Superblock::parse(bytes, volume.device.len())?;
                problems.clear();
                volume.groups = groups::read(&volume, &mut problems);
            }
        }
        let facts = VolumeFacts { is_replayed: !volume.overlay.is_empty(), ..volume.superblock.facts() };
        let is_checked = !volume.superblock.is_checksummed() && volume.superblock.is_whole;
        Ok(Ext4 { volume, facts, problems, is_checked })
    }

    /// Opens a file system that is mounted, by its device; `device` must read through the page cache, in which the kernel
    /// keeps what it changed. The journal, which is for others, is left alone, and gaps are never read through, so that
    /// nothing but metadata comes into the cache.
    ///
    /// What is told may change while it is read: the caller compares.
    pub fn open_mounted(device: B) -> Result<Ext4<B>, TableError> {
        let superblock = Superblock::read(&device)?;
        let (volume, problems) = volume(device, superblock, 0);
        let facts = volume.superblock.facts();
        Ok(Ext4 { volume, facts, problems, is_checked: false })
    }

    /// Bytes of the used parts of the inode tables.
    pub fn table_bytes(&self) -> u64 {
        self.volume.tables().iter().map(|table| u64::from(table.count)).sum::<u64>() * u64::from(self.facts.block_bytes)
    }

    /// Reads the used parts of the inode tables, the blocks of directories and what [`Needs`] name, in nearly one rising
    /// pass and at most `most` bytes, while `go_on` says so. Nothing comes of it but that it lies in memory then, where the
    /// device reads through the page cache. What is damaged is left out.
    ///
    /// Takes 40 bytes for each run of a directory, 80 MiB at most.
    pub fn bring_in(&self, needs: Needs, most: u64, go_on: &dyn Fn() -> bool) {
        bring_in::BringIn::new(&self.volume, needs, most, go_on).run();
    }

    /// The same for what it takes to list some directories and to look at what is in them: their inodes, their blocks, and
    /// the inodes that they name. Directories that are found in them come too where `is_wanted` says so, by inode number and
    /// generation.
    ///
    /// Takes some 40 bytes for each block.
    pub fn bring_in_directories(
        &self,
        directories: impl Iterator<Item = u32>,
        is_wanted: &dyn Fn(u32, u32) -> bool,
        most: u64,
        go_on: &dyn Fn() -> bool,
    ) {
        let needs = Needs { layout: false, xattrs: true };
        bring_in::BringIn::new(&self.volume, needs, most, go_on).run_chosen(directories, is_wanted);
    }
}

/// What changes whenever the file system is mounted and written to; see [`change_marks`](super::change_marks).
pub(super) fn change_marks(device: &impl BlockRead) -> Result<Vec<u64>, TableError> {
    let mut bytes = [0; superblock::BYTES];
    let length = bytes.len() as u64;
    let error = |source| TableError::Io { at: superblock::AT, length, source };
    device.read_at(&mut bytes, superblock::AT).map_err(error)?;
    let superblock = Superblock::parse(&bytes, device.len())?;
    let word = |at| u64::from(fields::le32(&bytes, at));
    let (written_at, mounted_at) =
        (word(0x30) | u64::from(bytes[0x274]) << 32, word(0x2C) | u64::from(bytes[0x275]) << 32);
    let (mounts, kibibytes) = (word(0x34) & 0xFFFF, word(0x178) | word(0x17C) << 32);
    // Times are whole seconds, in which tune2fs may write once more. With the checksum at the end the sum would always be the same.
    let all = u64::from(checksum::crc32c(!0, &bytes[..superblock::BYTES - 4]));
    let mut marks = vec![written_at, mounted_at, mounts, kibibytes, all];
    if superblock.journal_inode != 0 {
        let (volume, _) = volume(device, superblock, 0);
        marks.extend(journal::position(&volume)?);
    }
    Ok(marks)
}

fn volume<B: BlockRead>(device: B, superblock: Superblock, gap_bytes: u64) -> (Volume<B>, Problems) {
    let mut volume = Volume { device, superblock, groups: Vec::new(), overlay: Overlay::default(), gap_bytes };
    let mut problems = Problems::default();
    volume.groups = groups::read(&volume, &mut problems);
    (volume, problems)
}

impl<B: BlockRead> Ext4<B> {
    /// Tells every inode in use, and of the names at most those that lie in inodes. To compare with what was told before.
    pub fn scan_inodes(&self, found: &mut dyn Found) {
        let _ = scan::Scan::new(&self.volume, Wanted::default(), found).run_inodes();
    }

    /// Tells every inode that has a name, with what lies in the inode itself: no extents, no targets, no names. Allocated bytes
    /// are those that `stat` tells. Reads the tables of inodes and nothing else, in rising order.
    pub fn scan_facts(&self, found: &mut dyn Found) {
        let _ = scan::Scan::new(&self.volume, Wanted::default(), found).run_facts();
    }
}

impl<B: BlockRead> Tables for Ext4<B> {
    fn facts(&self) -> &VolumeFacts {
        &self.facts
    }

    fn free(&self, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
        free::runs(&self.volume, each)
    }

    fn inode_at(&self, number: u64) -> Option<u64> {
        let (block, byte) = self.volume.inode_place(u32::try_from(number).ok()?)?;
        self.volume.byte_of(block).checked_add(byte as u64)
    }

    fn moved(&self) -> Vec<Moved> {
        let length = u64::from(self.volume.superblock.block_bytes);
        let copies = self.volume.overlay.of(0, u64::MAX);
        copies
            .map(|(block, copied)| Moved {
                from: self.volume.byte_of(block),
                to: self.volume.byte_of(copied.block),
                length,
                first_bytes: copied.escaped.then_some(journal::MAGIC),
            })
            .collect()
    }

    fn scan(&mut self, wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
        let (met, kept) = (self.problems.met(), self.problems.take());
        let more = met - kept.len() as u64;
        let others = (more > 0).then_some(TableError::Further { problems: more });
        for problem in kept.into_iter().chain(others) {
            if found.problem(problem).is_break() {
                return Ok(());
            }
        }
        // Whether it came to its end or was ended makes no difference to the caller, who knows.
        let _ = match self.is_checked {
            true => checked_scan(&self.volume, wanted, found, met > 0),
            false => scan::Scan::new(&self.volume, wanted, found).run(),
        };
        Ok(())
    }
}

/// A scan that holds tables without checksums against each other. What was damaged before leaves gaps in what is told.
fn checked_scan<B: BlockRead>(
    volume: &Volume<B>,
    wanted: Wanted,
    found: &mut dyn Found,
    had_problems: bool,
) -> ControlFlow<()> {
    let (mut checks, problems) = Checks::new(volume);
    let mut watched = Watched { found, has_problems: had_problems };
    problems.into_iter().try_for_each(|problem| watched.found.problem(problem))?;
    scan::Scan::new(volume, wanted, &mut watched).checked(&mut checks).run()?;
    let mut problems = checks.bitmap_contradictions(volume);
    let (of_indexes, incomplete) = checks.index_contradictions();
    problems.extend(of_indexes);
    problems.extend(checks.twin_contradictions());
    if !watched.has_problems {
        problems.extend(checks.attribute_contradictions());
        problems.extend(checks.missing_inodes(volume).take(Problems::MOST));
        if !checks.is_even() {
            let mut again = checks.again();
            scan::Scan::new(volume, Wanted::default(), &mut Nobody).checked(&mut again).run()?;
            problems.extend(again.contradictions(volume));
        }
    }
    incomplete.into_iter().for_each(|directory| watched.found.incomplete(Some(directory)));
    problems.into_iter().try_for_each(|problem| watched.found.problem(problem))
}
