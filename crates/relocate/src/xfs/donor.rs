//! Files without a name that hold reserved places behind their end, and are filled from their start on.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use onesweep_sys::exchange_ranges::exchange;
use onesweep_sys::files::{give_back, open_dir, open_unnamed, reserve};
use onesweep_sys::sharing::{Part, clone_part};

use super::Way;
use crate::host::Captured;

/// A file without a name that holds reserved places.
#[derive(Debug)]
pub struct Donor {
    file: File,
    bytes: u64,
    /// Where it was made.
    directory: Rc<OwnedFd>,
}

/// What a part of a file is to have: bytes of an open file, from here on.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// In the donor.
    Donor(&'a Donor, u64),
    /// In a file of its own.
    Staged(File),
}

impl Source<'_> {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Donor(donor, _) => donor.fd(),
            Source::Staged(file) => file.as_fd(),
        }
    }

    pub(super) fn offset(&self) -> u64 {
        match self {
            Source::Donor(_, offset) => *offset,
            Source::Staged(_) => 0,
        }
    }

    /// Gives up at once what it has of so many bytes, its share or what it got for them: what is dropped is let go of in the background.
    pub(super) fn give_up(&self, bytes: u64) -> io::Result<()> {
        match self {
            Source::Donor(donor, offset) => give_back(donor.fd(), *offset, bytes),
            Source::Staged(file) => file.set_len(0),
        }
    }
}

impl Donor {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it was made.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        (*self.directory).as_fd()
    }

    /// Writes bytes, which end where a file ends or a block does, to reserved places of whole blocks.
    ///
    /// A block that is not full can only be given as the last one of both files. It is that of the donor while what is written
    /// lies behind all that was written before; else the blocks go to a file of their own.
    pub(super) fn fill(&self, offset: u64, bytes: &[u8], block: u64, way: Way) -> io::Result<Source<'_>> {
        let length = bytes.len() as u64;
        let is_last = offset + length >= self.file.metadata()?.len();
        if is_last || length.is_multiple_of(block) {
            self.file.write_all_at(bytes, offset)?;
            return Ok(Source::Donor(self, offset));
        }
        let whole = Part { offset, bytes: length.next_multiple_of(block) };
        let staged = File::from(open_unnamed(self.directory())?);
        match way {
            Way::Share => {
                self.file.write_all_at(bytes, offset)?;
                clone_part(self.fd(), whole, staged.as_fd(), 0)?;
                // While the block was shared, to cut it would need another one.
                give_back(self.fd(), offset, whole.bytes)?;
                staged.set_len(length)?;
            }
            Way::Exchange => {
                staged.set_len(whole.bytes)?;
                exchange(self.fd(), whole, staged.as_fd(), 0)?;
                // Nothing is written there yet that would have to be zeroed behind the end.
                staged.set_len(length)?;
                staged.write_all_at(bytes, 0)?;
            }
        }
        Ok(Source::Staged(staged))
    }
}

/// Makes donors of so many blocks each in a directory, near which they come to lie.
pub(super) fn capture(directory: &Path, blocks: impl Iterator<Item = u64>, block_bytes: u64) -> Captured<Donor> {
    let mut captured = Captured { donors: Vec::new(), error: None };
    let made = open_dir(directory).map(Rc::new).and_then(|directory| {
        for bytes in blocks.map(|blocks| blocks * block_bytes) {
            let file = File::from(open_unnamed(directory.as_fd().as_fd())?);
            reserve(file.as_fd(), bytes)?;
            captured.donors.push(Donor { file, bytes, directory: Rc::clone(&directory) });
        }
        Ok(())
    });
    captured.error = made.err();
    captured
}
