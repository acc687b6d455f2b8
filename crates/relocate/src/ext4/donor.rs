//! Preallocated files without a name.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use onesweep_sys::{
    files::{allocate, open_dir, open_unnamed, statx_fd},
    one_cpu::OnOneCpu,
};

use super::Refusal;
use crate::host::Captured;

/// A preallocated file without a name.
#[derive(Debug)]
pub struct Donor {
    fd: OwnedFd,
    bytes: u64,
}

impl Donor {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Makes donors in a directory, in whose block group they come to lie.
pub(super) fn capture(directory: &Path, bytes: u64, count: usize) -> Captured<Donor> {
    let mut captured = Captured { donors: Vec::new(), error: None };
    let made = open_dir(directory).and_then(|directory| {
        // The space that ext4 keeps for small files is apart for each processor: on one, donors follow each other.
        let _stays = OnOneCpu::stay();
        for _ in 0..count {
            captured.donors.push(donor(directory.as_fd(), bytes)?);
        }
        Ok(())
    });
    captured.error = made.err();
    captured
}

fn donor(directory: BorrowedFd<'_>, bytes: u64) -> io::Result<Donor> {
    let fd = open_unnamed(directory)?;
    allocate(fd.as_fd(), bytes)?;
    Ok(Donor { fd, bytes })
}

/// Nobody tells whether an ext4 gives out clusters, but a file of one block is charged for a whole one.
pub(super) fn refuse_clusters(directory: &Path, block_bytes: u64) -> Result<(), Refusal> {
    const UNIT: u64 = 512;
    let charged = || {
        let directory = open_dir(directory)?;
        let file = open_unnamed(directory.as_fd())?;
        let before = statx_fd(file.as_fd())?.blocks;
        allocate(file.as_fd(), block_bytes)?;
        Ok(statx_fd(file.as_fd())?.blocks.saturating_sub(before) * UNIT)
    };
    match charged() {
        Ok(charged) if charged > block_bytes => Err(Refusal::Bigalloc),
        Ok(_) => Ok(()),
        Err(source) => Err(Refusal::Unknown { what: "make a file for moving others", source }),
    }
}
