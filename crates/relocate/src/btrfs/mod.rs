//! btrfs: bytes are written to captured places, and files come to share what was written, if it is equal, instead of what they have:
//! the kernel compares both while nobody can write to either (`FIDEDUPERANGE`). Then the donor gives its share up, and the file alone
//! has the new places. Files of which anything was shared before, with snapshots too, stay.
//!
//! Space is given back by whole extents: of one that two files have parts of, nothing is free before both are gone, and each counts as
//! shared. So no extent is captured for two. Where free space lies in one piece, each file gets one that is as long as it is (each part
//! between holes); else each block is one for itself.
//!
//! Needs no privilege for files of one's own in directories of one's own.

mod facts;
mod share;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use onesweep_sys::files::{file_system, is_untouched, open_dir, sync_file_system};
use onesweep_sys::inode::FLAG_NO_COW;

pub use self::facts::Refusal;
use crate::file::{Asked, MovableFile, announce, clean_in_memory, stays_by_flags};
pub use crate::giving::Donor;
use crate::giving::{capture, give};
use crate::host::{
    Captured, Exchange, Failure, Host, Looked, Moved, Moves, Opened, Stays, Trouble, Uncached, donors_of, one_by_one,
};
use crate::places::Places;

/// A mounted btrfs, whose files can be moved.
#[derive(Debug)]
pub struct Btrfs {
    root: OwnedFd,
    asked: Asked,
    unit: u64,
    uncached: Uncached,
    /// Memory that is used again.
    bytes: Vec<u8>,
}

/// Blocks of a donor, unless the caller wants others.
const UNIT: u64 = 512;
/// Blocks of a donor at most: so many bytes are in memory at once, and so many extents are asked for one by one.
const LARGEST_UNIT: u64 = 2048;

impl Btrfs {
    /// The subvolume of a directory. Files of others are not moved, though the kernel could: each of its own.
    ///
    /// # Errors
    ///
    /// When files of it must not or can't be moved.
    pub fn of(directory: &Path, uncached: Uncached) -> Result<Btrfs, Refusal> {
        let root = open_dir(directory).map_err(|error| Refusal::Unknown { what: "open it", source: error })?;
        let facts = facts::Facts::of(root.as_fd())?;
        let asked = Asked::new(facts.dev, facts.block_bytes);
        Ok(Btrfs { root, asked, unit: UNIT, uncached, bytes: Vec::new() })
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.asked.block_bytes
    }

    /// Makes donors of so many blocks, 8 MiB of the usual ones at most.
    pub fn set_unit(&mut self, blocks: u64) {
        self.unit = blocks.clamp(1, LARGEST_UNIT);
    }
}

fn by_flags(flags: u32) -> Option<Stays> {
    stays_by_flags(flags).or((flags & FLAG_NO_COW != 0).then_some(Stays::NoChecksums))
}

impl Host for Btrfs {
    type File = MovableFile;
    type Donor = Donor;

    fn unit(&self) -> u64 {
        self.unit
    }

    fn shares_donors(&self) -> bool {
        false
    }

    fn look(&mut self, path: &Path) -> Result<Looked, Trouble> {
        self.asked.look(path, by_flags)
    }

    fn look_in_memory(&mut self, path: &Path) -> Result<Option<Looked>, Trouble> {
        self.asked.look_in_memory(path, by_flags)
    }

    fn announce(&mut self, path: &Path) {
        if self.uncached == Uncached::Read {
            announce(path);
        }
    }

    fn open(&mut self, path: &Path, inode: u64) -> Result<Opened<MovableFile>, Trouble> {
        let (file, stat) = self.asked.open(path, inode, by_flags)?;
        if !is_untouched(file.fd()) {
            return Err(Stays::Others.into());
        }
        clean_in_memory(&file, stat.size, self.uncached)?;
        let places = self.places(&file)?;
        Ok(Opened { file, places, was_large: false })
    }

    fn places(&mut self, file: &MovableFile) -> Result<Places, Trouble> {
        let (places, stays) = self.asked.places(file.fd(), file.path())?;
        stays.map_or(Ok(places), |stays| Err(stays.into()))
    }

    fn free_blocks(&mut self) -> io::Result<u64> {
        Ok(file_system(self.root.as_fd())?.blocks_free)
    }

    fn capture(&mut self, directory: &Path, blocks: u64) -> Captured<Donor> {
        let by_blocks = |blocks| std::iter::repeat_n(1, usize::try_from(blocks).unwrap_or(usize::MAX));
        capture(directory, donors_of(blocks, self.unit).map(by_blocks), self.asked.block_bytes)
    }

    fn capture_for(&mut self, directory: &Path, parts: &[u64]) -> Option<Captured<Donor>> {
        Some(capture(directory, [parts.iter().copied()].into_iter(), self.asked.block_bytes))
    }

    fn donor_places(&mut self, donor: &Donor) -> io::Result<Places> {
        self.asked.donor_places(donor.fd(), donor.bytes())
    }

    fn prepare(&mut self, moves: &[Moves<'_, MovableFile, Donor>]) -> Result<(), Failure> {
        share::stage_ahead(moves, self.asked.block_bytes)
    }

    fn exchange(&mut self, file: &MovableFile, donor: &Donor, exchange: Exchange) -> Moved {
        give(file, donor, exchange, self.asked.block_bytes, &mut share::Sharing, &mut self.bytes)
    }

    fn exchange_all(&mut self, file: &MovableFile, steps: &[(&Donor, Exchange)]) -> Moved {
        one_by_one(steps, |donor, exchange| self.exchange(file, donor, exchange))
    }

    fn settle(&mut self, _: &Path) -> io::Result<()> {
        self.commit()
    }

    fn commit(&mut self) -> io::Result<()> {
        sync_file_system(self.root.as_fd())
    }
}
