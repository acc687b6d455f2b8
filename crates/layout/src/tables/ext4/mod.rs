//! ext2, ext3 and ext4.
//!
//! The tables of inodes are read in reads of up to 4 MiB, those of neighbouring groups together, and without their parts that
//! were never used. Then all directories are read in the order of their blocks over the whole file system.
//!
//! A journal that has to be recovered is replayed in memory. Checksums are compared wherever there are any; what has a wrong
//! one is left out, with a problem that says so.
//!
//! Memory: 16 bytes a group, 16 a directory and 24 for each of its runs, 24 for each block that is newer in the journal, and
//! some 110 MiB at most for reads, for inodes that wait for blocks and for these blocks; beside that the extents of one file.
//!
//! Names and targets of symbolic links that are encrypted are told as the kernel shows them without their key.
//! Names in directories that fold case are told as they were written.

mod acl;
mod checksum;
mod directory;
mod dirhash;
mod extents;
mod fields;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod groups;
mod inode;
mod journal;
mod merge;
mod no_key_name;
mod orphans;
mod scan;
mod source;
mod superblock;
mod volume;
mod xattr;

use journal::Overlay;
use superblock::{Incompatible, Superblock};
use volume::Volume;

use super::{Found, TableError, Tables, VolumeFacts, Wanted};
use crate::block_read::BlockRead;

/// An ext2, ext3 or ext4 file system on a device or in an image.
pub struct Ext4<B> {
    volume: Volume<B>,
    facts: VolumeFacts,
    /// What was damaged already when it was opened.
    problems: Vec<TableError>,
}

impl<B: BlockRead> Ext4<B> {
    /// Reads its superblock and group descriptors, and its journal where it has to be recovered.
    ///
    /// A damaged superblock is told with where a copy of it lies. [`TableError::Dirty`] where the journal can't be replayed
    /// here: it lies on another device, or has fast commits.
    pub fn open(device: B) -> Result<Ext4<B>, TableError> {
        let superblock = Superblock::read(&device)?;
        let dirty = superblock.incompatible.contains(Incompatible::NEEDS_RECOVERY);
        let mut volume = Volume { device, superblock, groups: Vec::new(), overlay: Overlay::default() };
        let mut problems = Vec::new();
        volume.groups = groups::read(&volume, &mut problems);
        if dirty {
            volume.overlay = journal::replay(&volume)?;
            if !volume.overlay.is_empty() {
                // Both may be newer in the journal themselves.
                let place = superblock::AT / u64::from(volume.superblock.block_bytes);
                let byte = superblock::AT as usize % volume.superblock.block_bytes as usize;
                let block = volume.block(place)?;
                let bytes = block.get(byte..byte + superblock::BYTES).unwrap_or_default();
                volume.superblock = Superblock::parse(bytes, volume.device.len())?;
                problems.clear();
                volume.groups = groups::read(&volume, &mut problems);
            }
        }
        let facts = VolumeFacts { is_replayed: !volume.overlay.is_empty(), ..volume.superblock.facts() };
        Ok(Ext4 { volume, facts, problems })
    }
}

impl<B: BlockRead> Tables for Ext4<B> {
    fn facts(&self) -> &VolumeFacts {
        &self.facts
    }

    fn scan(&mut self, wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
        for problem in std::mem::take(&mut self.problems) {
            if found.problem(problem).is_break() {
                return Ok(());
            }
        }
        // Whether it came to its end or was ended makes no difference to the caller, who knows.
        let _ = scan::Scan::new(&self.volume, wanted, found).run();
        Ok(())
    }
}
