//! Reads one file whole, through the file system, until it held still while it was read.

use std::{io, os::fd::BorrowedFd};

use onesweep_sys::{
    buffer::{BufferPool, Bytes, FileBuffer},
    files::{self, Stat},
};

use crate::{budget::Loan, error::FileError, stream::State};

/// Readings that are tried on a file that changes.
const ATTEMPTS: u32 = 3;

/// Memory is taken in whole blocks of this many bytes.
const BLOCK: u64 = 4096;

/// What became of the reading.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The whole content, as it was at one moment, and the attributes of that moment.
    Whole { bytes: Bytes, loan: Loan, stat: Box<Stat> },
    /// It has grown beyond what can be reserved now.
    TooLarge,
}

/// Reads the file into memory. `loan` is what is reserved for it; `reserve` asks for another if it has grown.
pub(crate) fn read_stable(
    fd: BorrowedFd<'_>,
    pool: &BufferPool,
    mut loan: Loan,
    mut reserve: impl FnMut(u64) -> Option<Loan>,
    path: &dyn Fn() -> std::path::PathBuf,
) -> Result<Outcome, FileError> {
    let fail = |step: String, error| FileError::io(path(), step, error);
    for _ in 0..ATTEMPTS {
        let before = files::statx_fd(fd).map_err(|error| fail("stat".into(), error))?;
        let cost = before.size.next_multiple_of(BLOCK);
        if cost > loan.bytes() && before.size > loan.bytes() {
            // The old loan goes first: both together might not fit.
            drop(loan);
            loan = match reserve(cost) {
                Some(larger) => larger,
                None => return Ok(Outcome::TooLarge),
            };
        }
        let buffer = pool
            .try_uncleared(before.size as usize)
            .ok_or_else(|| fail("get memory for it".into(), io::ErrorKind::OutOfMemory.into()))?;
        let read = fill(fd, &buffer).map_err(|(at, error)| fail(format!("read at byte {at}"), error))?;
        let after = files::statx_fd(fd).map_err(|error| fail("stat".into(), error))?;
        if read as u64 == before.size && State::of(&before) == State::of(&after) {
            let bytes = buffer.try_into_bytes().expect("the part was dropped after reading");
            return Ok(Outcome::Whole { bytes, loan, stat: Box::new(after) });
        }
    }
    Err(FileError::Changed { path: path(), attempts: ATTEMPTS })
}

/// Fills the buffer from the front of the file, or as far as the file goes; the place is told with an error.
fn fill(fd: BorrowedFd<'_>, buffer: &FileBuffer) -> Result<usize, (usize, io::Error)> {
    let size = buffer.len();
    let mut part = buffer.lend(0..size);
    let mut at = 0;
    while at < size {
        match files::read_at(fd, &mut part.as_mut_slice()[at..], at as u64) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((at, error)),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use std::{
        fs::File,
        io::Write,
        os::fd::AsFd,
        path::PathBuf,
        sync::atomic::{AtomicBool, Ordering},
    };

    #[test]
    fn a_file_that_holds_still_comes_whole() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let share = Budget::new(1 << 20).share(1 << 20);
        let loan = share.try_reserve(4096).unwrap();
        let outcome =
            read_stable(file.as_fd(), &BufferPool::new(0), loan, |bytes| share.try_reserve(bytes), &PathBuf::new)
                .unwrap();
        let Outcome::Whole { bytes, loan, stat } = outcome else { panic!("it fits") };
        assert_eq!((&bytes[..], loan.bytes(), stat.size), (&[7; 10_000][..], 12_288, 10_000));
    }

    #[test]
    fn a_file_that_outgrew_the_budget_is_not_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let share = Budget::new(8192).share(8192);
        let loan = share.try_reserve(4096).unwrap();
        let outcome =
            read_stable(file.as_fd(), &BufferPool::new(0), loan, |bytes| share.try_reserve(bytes), &PathBuf::new)
                .unwrap();
        assert!(matches!(outcome, Outcome::TooLarge));
    }

    #[test]
    fn a_file_that_never_holds_still_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("busy");
        std::fs::write(&path, vec![0; 4 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        let share = Budget::new(1 << 30).share(1 << 30);
        let stop = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut size = 4 << 20;
                let writer = File::options().write(true).open(&path).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    size = if size == 4 << 20 { 5 << 20 } else { 4 << 20 };
                    writer.set_len(size).unwrap();
                }
            });
            let mut changed = false;
            // The writer may not have run yet at the first try.
            for _ in 0..10_000 {
                let loan = share.try_reserve(0).unwrap();
                let outcome =
                    read_stable(file.as_fd(), &BufferPool::new(0), loan, |bytes| share.try_reserve(bytes), &|| {
                        path.clone()
                    });
                if matches!(outcome, Err(FileError::Changed { .. })) {
                    changed = true;
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            changed
        });
        assert!(outcome, "a change during each of three readings is told");
    }
}
