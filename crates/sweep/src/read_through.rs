//! Reads one file whole, through the file system, until it held still while it was read.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use onesweep_sys::{
    buffer::{Bytes, FileBuffer},
    files,
};

use crate::{
    budget::Loan,
    catalogue::{Catalogue, EntryId},
    error::FileError,
};

/// Readings that are tried on a file that changes.
const ATTEMPTS: u32 = 3;

/// What became of the reading.
pub(crate) enum Outcome {
    /// The whole content, as it was at one moment.
    Whole(Bytes, Loan),
    /// It has grown beyond what was reserved and could be reserved now.
    TooLarge(Loan),
}

/// Reads the file into memory. `reserve` gives a loan for so many bytes, or `None`.
///
/// Updates the attributes in the catalogue to those of the content that is given.
pub(crate) fn read_stable(
    catalogue: &mut Catalogue,
    id: EntryId,
    fd: &OwnedFd,
    mut loan: Loan,
    mut reserve: impl FnMut(u64) -> Option<Loan>,
) -> Result<Outcome, FileError> {
    let fail = |catalogue: &Catalogue, step: String, error| FileError::io(catalogue.path(id), step, error);
    for _ in 0..ATTEMPTS {
        let before = files::statx_fd(fd.as_fd()).map_err(|error| fail(catalogue, "stat".into(), error))?;
        catalogue.get_mut(id).learn(&before);
        let cost = catalogue.cost(id);
        if cost > loan.bytes() {
            // The old loan goes first: both together might not fit.
            drop(loan);
            match reserve(cost) {
                Some(larger) => loan = larger,
                None => match reserve(0) {
                    Some(empty) => return Ok(Outcome::TooLarge(empty)),
                    None => return Err(FileError::Changed { path: catalogue.path(id), attempts: 1 }),
                },
            }
        }
        let buffer = FileBuffer::try_zeroed(cost as usize)
            .ok_or_else(|| fail(catalogue, "get memory for it".into(), io::ErrorKind::OutOfMemory.into()))?;
        let read = fill(fd, &buffer, before.size as usize)
            .map_err(|(at, error)| fail(catalogue, format!("read at byte {at}"), error))?;
        let after = files::statx_fd(fd.as_fd()).map_err(|error| fail(catalogue, "stat".into(), error))?;
        if read as u64 == before.size && catalogue.get(id).is_unchanged(&after) {
            let mut bytes = buffer.try_into_bytes().expect("the part was dropped after reading");
            bytes.truncate(read);
            return Ok(Outcome::Whole(bytes, loan));
        }
    }
    Err(FileError::Changed { path: catalogue.path(id), attempts: ATTEMPTS })
}

/// Reads until the end of the file or of `size`; the place is told with an error.
fn fill(fd: &OwnedFd, buffer: &FileBuffer, size: usize) -> Result<usize, (usize, io::Error)> {
    let mut part = buffer.lend(0..size);
    let mut at = 0;
    while at < size {
        match files::read_at(fd.as_fd(), &mut part.as_mut_slice()[at..], at as u64) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((at, error)),
        }
    }
    Ok(at)
}
