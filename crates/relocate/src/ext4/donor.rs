//! Preallocated files without a name.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use onesweep_layout::ExtentFlags;
use onesweep_layout::source::{Fiemap, LayoutSource};
use onesweep_sys::{
    files::{EntryType, allocate, insert_hole, open_dir, open_unnamed, statx_fd},
    one_cpu::OnOneCpu,
    user::effective_uid,
};

use super::Refusal;
use super::fast_commit::refuse_fast_commits;
use crate::file::Asked;
use crate::host::{Captured, Exchange};
use crate::places::Places;

/// A preallocated file without a name.
#[derive(Debug)]
pub struct Donor {
    fd: OwnedFd,
    bytes: Cell<u64>,
    /// Blocks before which holes were inserted, by their numbers without any hole, and how many blocks each hole has.
    holes: RefCell<Vec<(u64, u64)>>,
}

impl Donor {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// One that has a name again; `None` when it has bytes of its own, other names, or another owner.
    pub(super) fn kept(fd: OwnedFd, fiemap: &mut Fiemap) -> io::Result<Option<Donor>> {
        let stat = statx_fd(fd.as_fd())?;
        let is_own = stat.uid == effective_uid() && stat.nlink == 1 && stat.file_type() == EntryType::File;
        let donor = Donor::new(fd, stat.size);
        let mut is_unwritten = true;
        let told = fiemap.map(donor.fd(), stat.size, &mut |extent| {
            is_unwritten &= extent.flags.contains(ExtentFlags::UNWRITTEN);
        });
        told.map_err(io::Error::other)?;
        Ok((is_own && is_unwritten).then_some(donor))
    }

    fn new(fd: OwnedFd, bytes: u64) -> Donor {
        Donor { fd, bytes: Cell::new(bytes), holes: RefCell::default() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// The number that a block has by now.
    pub(super) fn number(&self, block: u64) -> u64 {
        let holes = self.holes.borrow();
        block + holes.iter().filter(|(at, _)| *at <= block).map(|(_, blocks)| blocks).sum::<u64>()
    }

    /// Sees to it that the first block of an exchange is the same block of its page in both files, which the kernel wants where
    /// blocks are smaller than pages: a hole before it shifts what is behind, and no place changes.
    pub(super) fn align(&self, exchange: Exchange, page_blocks: u64, block_bytes: u64) -> io::Result<()> {
        let number = self.number(exchange.to);
        let missing = (exchange.from % page_blocks + page_blocks - number % page_blocks) % page_blocks;
        if missing > 0 {
            insert_hole(self.fd(), number * block_bytes, missing * block_bytes)?;
            self.holes.borrow_mut().push((exchange.to, missing));
            self.bytes.set(self.bytes.get() + missing * block_bytes);
        }
        Ok(())
    }

    pub(super) fn places(&self, asked: &mut Asked) -> io::Result<Places> {
        asked.donor_places(self.fd(), self.bytes())
    }
}

/// Makes donors of so many blocks each in a directory, in whose block group they come to lie.
pub(super) fn capture(directory: &Path, blocks: impl Iterator<Item = u64>, block_bytes: u64) -> Captured<Donor> {
    let mut captured = Captured { donors: Vec::new(), error: None };
    let made = open_dir(directory).and_then(|directory| {
        // The space that ext4 keeps for small files is apart for each processor: on one, donors follow each other.
        let _stays = OnOneCpu::stay();
        for blocks in blocks {
            captured.donors.push(donor(directory.as_fd(), blocks * block_bytes)?);
        }
        Ok(())
    });
    captured.error = made.err();
    captured
}

fn donor(directory: BorrowedFd<'_>, bytes: u64) -> io::Result<Donor> {
    let fd = open_unnamed(directory)?;
    allocate(fd.as_fd(), bytes)?;
    Ok(Donor::new(fd, bytes))
}

/// What only a file can tell, before it has blocks and then with one. Nobody tells whether an ext4 gives out clusters, but a file of one block is
/// charged for a whole one.
pub(super) fn rehearse(directory: &Path, name: &str, block_bytes: u64) -> Result<(), Refusal> {
    const UNIT: u64 = 512;
    let unknown = |source| Refusal::Unknown { what: "make a file for moving others", source };
    let file = open_dir(directory).and_then(|directory| open_unnamed(directory.as_fd())).map_err(unknown)?;
    refuse_fast_commits(name, file.as_fd())?;
    let charged = || {
        let before = statx_fd(file.as_fd())?.blocks;
        allocate(file.as_fd(), block_bytes)?;
        Ok(statx_fd(file.as_fd())?.blocks.saturating_sub(before) * UNIT)
    };
    match charged() {
        Ok(charged) if charged > block_bytes => Err(Refusal::Bigalloc),
        Ok(_) => Ok(()),
        Err(source) => Err(unknown(source)),
    }
}
