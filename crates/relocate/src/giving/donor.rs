//! Files without a name that hold reserved places behind their end, and are filled from their start on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use onesweep_sys::files::{give_back, open_dir, open_unnamed, reserve_part};
use onesweep_sys::sharing::Part;

use super::Way;
use crate::host::Captured;

/// A file without a name that holds reserved places.
#[derive(Debug)]
pub struct Donor {
    file: File,
    bytes: u64,
    /// Where it was made.
    directory: Rc<OwnedFd>,
    /// Files that have got its places from this byte on, to be written later.
    staged: RefCell<BTreeMap<u64, File>>,
    /// What is to last as long as it does.
    kept: RefCell<Vec<Rc<dyn Debug>>>,
}

/// What a part of a file is to have: bytes of an open file, from here on.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// In the donor.
    Donor(&'a Donor, u64),
    /// In a file of its own.
    Staged(File),
}

impl Source<'_> {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
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
            Source::Donor(donor, offset) => donor.give_up(Part { offset: *offset, bytes }),
            Source::Staged(file) => file.set_len(0),
        }
    }
}

impl Donor {
    /// A file that has places within so many bytes, made in a directory.
    pub(crate) fn of(file: File, bytes: u64, directory: Rc<OwnedFd>) -> Donor {
        Donor { file, bytes, directory, staged: RefCell::default(), kept: RefCell::default() }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it was made.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        (*self.directory).as_fd()
    }

    /// Another file without a name beside it.
    pub(crate) fn beside(&self) -> io::Result<File> {
        open_unnamed(self.directory()).map(File::from)
    }

    /// Up to where it was written, or made longer.
    pub(crate) fn end(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Makes it as long as what it has, so that all of that can be cloned.
    pub(crate) fn make_long(&self) -> io::Result<()> {
        self.file.set_len(self.bytes)
    }

    /// Keeps a file that has got its places from a byte on.
    pub(crate) fn put_staged(&self, offset: u64, file: File) {
        self.staged.borrow_mut().insert(offset, file);
    }

    pub(crate) fn take_staged(&self, offset: u64) -> Option<File> {
        self.staged.borrow_mut().remove(&offset)
    }

    /// Has something last as long as it does.
    pub(crate) fn keep(&self, what: Rc<dyn Debug>) {
        self.kept.borrow_mut().push(what);
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Has these places no longer.
    pub(crate) fn give_up(&self, part: Part) -> io::Result<()> {
        give_back(self.fd(), part.offset, part.bytes)
    }

    /// Writes bytes, which end where a file ends or a block does, to reserved places of whole blocks.
    ///
    /// A block that is not full can only be given as the last one of both files. It is that of the donor while what is written
    /// lies behind all that was written before; else the blocks go to a file of their own.
    pub(super) fn fill(&self, offset: u64, bytes: &[u8], block: u64, way: &impl Way) -> io::Result<Source<'_>> {
        let length = bytes.len() as u64;
        let is_last = offset + length >= self.end()?;
        if is_last || length.is_multiple_of(block) {
            self.write(offset, bytes)?;
            return Ok(Source::Donor(self, offset));
        }
        let whole = Part { offset, bytes: length.next_multiple_of(block) };
        way.stage(self, whole, bytes).map(Source::Staged)
    }
}

/// Makes donors in a directory, near which they come to lie. Of each donor the blocks of its parts are told, each of which is reserved
/// for itself.
pub(crate) fn capture<P>(directory: &Path, donors: impl Iterator<Item = P>, block_bytes: u64) -> Captured<Donor>
where
    P: IntoIterator<Item = u64>,
{
    let mut captured = Captured { donors: Vec::new(), error: None };
    let made = open_dir(directory).map(Rc::new).and_then(|directory| {
        for parts in donors {
            let file = File::from(open_unnamed(directory.as_fd().as_fd())?);
            let mut bytes = 0;
            for part in parts {
                let part = Part { offset: bytes, bytes: part * block_bytes };
                reserve_part(file.as_fd(), part.offset, part.bytes)?;
                bytes += part.bytes;
            }
            captured.donors.push(Donor::of(file, bytes, Rc::clone(&directory)));
        }
        Ok(())
    });
    captured.error = made.err();
    captured
}
