//! Reads one file whole, through the file system, until it held still while it was read.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::fd::BorrowedFd,
};

use onesweep_sys::{
    buffer::{BufferPool, Bytes},
    files::{self, Stat},
};

use crate::{budget::Loan, error::FileError, spindle::whole, stream::State, survey::is_recent};

/// Readings that are tried on a file that changes.
const ATTEMPTS: u32 = 3;

/// Memory is taken in whole blocks of this many bytes.
const BLOCK: u64 = 4096;

/// What became of the reading.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The whole content, as it was at one moment, and the attributes of that moment. Of a file that was appended to all
    /// the time: what it held when the last reading began.
    Whole { bytes: Bytes, loan: Loan, stat: Box<Stat> },
    /// It has grown beyond what can be reserved now.
    TooLarge,
}

/// Reads the file into memory. `seen` is what it was a moment ago, if that was asked of `fd`; `loan` is what is reserved for it;
/// `reserve` asks for another if it has grown.
pub(crate) fn read_stable(
    fd: BorrowedFd<'_>,
    mut seen: Option<Stat>,
    pool: &BufferPool,
    mut loan: Loan,
    mut reserve: impl FnMut(u64) -> Option<Loan>,
    path: &dyn Fn() -> std::path::PathBuf,
) -> Result<Outcome, FileError> {
    let fail = |step: String, error| FileError::io(path(), step, error);
    for attempt in 1..=ATTEMPTS {
        let before = match seen.take() {
            Some(seen) => seen,
            None => files::statx_fd(fd).map_err(|error| fail("stat".into(), error))?,
        };
        let cost = before.size.next_multiple_of(BLOCK);
        if cost > loan.bytes() && before.size > loan.bytes() {
            // The old loan goes first: both together might not fit.
            drop(loan);
            loan = match reserve(cost) {
                Some(larger) => larger,
                None => return Ok(Outcome::TooLarge),
            };
        }
        let mut bytes = pool
            .try_bytes(before.size as usize)
            .ok_or_else(|| fail("get memory for it".into(), io::ErrorKind::OutOfMemory.into()))?;
        let read = fill(fd, &mut bytes).map_err(|(at, error)| fail(format!("read at byte {at}"), error))?;
        let after = files::statx_fd(fd).map_err(|error| fail("stat".into(), error))?;
        if read as u64 == before.size && State::of(&before) == State::of(&after) {
            // Times are set when a write begins: one that is on its way shows only by bytes that change.
            let is_settled = !is_recent(after.ctime.secs)
                || begins_with(fd, &bytes).map_err(|error| fail("read it again".into(), error))?;
            if is_settled {
                return Ok(Outcome::Whole { bytes, loan, stat: Box::new(after) });
            }
            continue;
        }
        if attempt == ATTEMPTS && read as u64 == before.size && may_have_grown(&before, &after) {
            // What is equal in two readings was all there between them.
            let still_there = begins_with(fd, &bytes).map_err(|error| fail("read it again".into(), error))?;
            if still_there {
                return Ok(Outcome::Whole { bytes, loan, stat: Box::new(before) });
            }
        }
    }
    Err(FileError::Changed { path: path(), attempts: ATTEMPTS })
}

/// The ranges of a file that are no holes, as the file system tells them now: of a file that was read, and may have changed
/// since. Where it says that there is a hole, and bytes were read, all is data.
pub(crate) fn data_ranges(fd: BorrowedFd<'_>, bytes: &[u8], stat: &Stat) -> Vec<Range<u64>> {
    let size = bytes.len() as u64;
    if stat.blocks * 512 >= size {
        return whole(size);
    }
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        // Without data behind it there is no answer but ENXIO.
        let start = files::seek_data(fd, at).ok().flatten().unwrap_or(size).clamp(at, size);
        let end = files::seek_hole(fd, start).ok().flatten().unwrap_or(size).clamp(start, size);
        if bytes[at as usize..start as usize].iter().any(|&byte| byte != 0) {
            return whole(size);
        }
        if start < end {
            ranges.push(start..end);
        } else if start < size {
            return whole(size);
        }
        at = end.max(start);
    }
    ranges
}

/// True when all that happened to a file may be that something was appended. A write sets the times before the size, so
/// that may not show yet.
fn may_have_grown(before: &Stat, after: &Stat) -> bool {
    before.ino == after.ino && before.size <= after.size
}

/// Bytes that are read of a file whose size says nothing.
const MADE_UP_BYTES_MAX: u64 = 1 << 20;

/// So much of such a file is looked at before memory is taken for it: most of them are smaller. Beside the budget, so it
/// is a page.
const LOOKED_AT_FIRST: usize = 4096;

/// Reads a file that the kernel makes up when it is read, to its end, if that comes within `room` bytes. Memory for it is
/// taken once `reserve` has given as much; nothing when that gives none.
pub(crate) fn read_made_up(
    fd: impl Into<File>,
    pool: &BufferPool,
    room: u64,
    mut reserve: impl FnMut(u64) -> Option<Loan>,
) -> io::Result<Option<(Bytes, Loan)>> {
    let mut file = fd.into();
    let limit = room.min(MADE_UP_BYTES_MAX) as usize;
    let mut first = [0; LOOKED_AT_FIRST];
    let first = &mut first[..LOOKED_AT_FIRST.min(limit)];
    let begun = read_up_to(&mut file, first)?;
    if begun < first.len() {
        return Ok(reserve(begun as u64).map(|loan| (Bytes::copy_of(&first[..begun]), loan)));
    }
    let Some(loan) = reserve(limit as u64) else { return Ok(None) };
    let buffer = pool.try_uncleared(limit).ok_or(io::ErrorKind::OutOfMemory)?;
    let mut part = buffer.lend(0..limit);
    part.as_mut_slice()[..begun].copy_from_slice(first);
    let read = begun + read_up_to(&mut file, &mut part.as_mut_slice()[begun..])?;
    if read == limit && read_up_to(&mut file, &mut [0])? > 0 {
        return Err(io::Error::other(format!("it goes on after {limit} bytes, and has no size")));
    }
    drop(part);
    let mut bytes = buffer.try_into_bytes().expect("the part was dropped after reading");
    bytes.truncate(read);
    Ok(Some((bytes, loan)))
}

/// Fills the buffer, or as much of it as comes before the end.
fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match file.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// True when the file still begins with these bytes.
fn begins_with(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<bool> {
    let mut again = vec![0; COMPARED_AT_ONCE.min(bytes.len())];
    let mut at = 0;
    while at < bytes.len() {
        let wanted = again.len().min(bytes.len() - at);
        match files::read_at(fd, &mut again[..wanted], at as u64) {
            Ok(0) => return Ok(false),
            Ok(read) if again[..read] != bytes[at..at + read] => return Ok(false),
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Beside the budget, so it is small.
const COMPARED_AT_ONCE: usize = 64 << 10;

/// Fills the buffer from the front of the file, or as far as the file goes; the place is told with an error.
fn fill(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<usize, (usize, io::Error)> {
    let mut at = 0;
    while at < bytes.len() {
        match files::read_at(fd, &mut bytes[at..], at as u64) {
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
        io::Write,
        os::{fd::AsFd, unix::fs::FileExt},
        path::PathBuf,
        sync::atomic::{AtomicBool, Ordering},
    };

    #[test]
    fn holes_are_known_after_a_reading_too() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_all_at(&[7; 4096], 1 << 20).unwrap();
        let ranges = |bytes: &[u8]| data_ranges(file.as_fd(), bytes, &files::statx_fd(file.as_fd()).unwrap());
        let mut bytes = vec![0; 3 << 20];
        bytes[1 << 20..][..4096].fill(7);
        let told = ranges(&bytes);
        let covered = |at: u64| told.iter().any(|range| range.contains(&at));
        assert!(covered(1 << 20) && covered((1 << 20) + 4095), "{told:?}");
        if covered(0) {
            return; // no holes here
        }
        // Bytes that are not there any more, or not yet.
        bytes[5] = 1;
        assert_eq!(ranges(&bytes), whole(3 << 20));
    }

    #[test]
    fn a_file_that_holds_still_comes_whole() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let share = Budget::new(1 << 20).share(1 << 20);
        let loan = share.try_reserve(4096).unwrap();
        let outcome =
            read_stable(file.as_fd(), None, &BufferPool::new(0), loan, |bytes| share.try_reserve(bytes), &PathBuf::new)
                .unwrap();
        let Outcome::Whole { bytes, loan, stat } = outcome else { panic!("it fits") };
        assert_eq!((&bytes[..], loan.bytes(), stat.size), (&[7; 10_000][..], 12_288, 10_000));
    }

    /// What was seen when it was surveyed counts as the state before the reading: a change since is a change.
    #[test]
    fn a_file_that_changed_since_it_was_seen_comes_as_it_is_now() {
        let share = Budget::new(1 << 20).share(1 << 20);
        for now in [&b"shorter"[..], b"as long as then", b"longer than it was when it was seen"] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"as long as it..").unwrap();
            let seen = files::statx_fd(file.as_fd()).unwrap();
            file.set_len(0).unwrap();
            file.write_all_at(now, 0).unwrap();
            // Times tick coarsely before Linux 6.13.
            let has_ticked = || {
                file.set_modified(std::time::SystemTime::now()).unwrap();
                files::statx_fd(file.as_fd()).unwrap().ctime != seen.ctime
            };
            assert!((0..1_000_000).any(|_| has_ticked()));
            let loan = share.try_reserve(4096).unwrap();
            let reserve = |bytes| share.try_reserve(bytes);
            let outcome =
                read_stable(file.as_fd(), Some(seen), &BufferPool::new(0), loan, reserve, &PathBuf::new).unwrap();
            let Outcome::Whole { bytes, stat, .. } = outcome else { panic!("it fits") };
            assert_eq!(&bytes[..], now);
            assert_eq!(*stat, files::statx_fd(file.as_fd()).unwrap());
            assert_ne!(stat.ctime, seen.ctime);
        }
    }

    #[test]
    fn a_file_without_a_size_is_read_to_its_end_or_told_of() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"four").unwrap();
        let share = Budget::new(2 << 20).share(2 << 20);
        let read = |file: &File, room| {
            let reserve = |bytes| share.try_reserve(bytes);
            Ok(read_made_up(file.try_clone()?, &BufferPool::new(0), room, reserve)?.expect("there is room").0.to_vec())
        };
        for (room, expected) in [(3, None), (4, Some(&b"four"[..])), (u64::MAX, Some(b"four"))] {
            io::Seek::rewind(&mut file).unwrap();
            assert_eq!(read(&file, room).ok().as_deref(), expected);
        }
        let error: io::Error = read(&File::open("/dev/zero").unwrap(), u64::MAX).unwrap_err();
        assert!(error.to_string().contains("1048576 bytes"), "{error}");
    }

    #[test]
    fn a_file_without_a_size_is_read_into_memory_that_was_reserved() {
        let content = numbers(0..5000);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let share = Budget::new(64 << 10).share(64 << 10);
        let reserve = |bytes| {
            // One page is looked at before; both handles share their place.
            assert!(io::Seek::stream_position(&mut &file).unwrap() <= LOOKED_AT_FIRST as u64);
            share.try_reserve(bytes)
        };
        let pool = BufferPool::new(0);
        let (bytes, loan) = read_made_up(file.try_clone().unwrap(), &pool, share.limit(), reserve).unwrap().unwrap();
        assert!(bytes[..] == content && loan.bytes() >= content.len() as u64);
        io::Seek::rewind(&mut &file).unwrap();
        assert!(read_made_up(file.try_clone().unwrap(), &pool, share.limit(), |_| None).unwrap().is_none());
    }

    #[test]
    fn a_file_that_outgrew_the_budget_is_not_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let share = Budget::new(8192).share(8192);
        let loan = share.try_reserve(4096).unwrap();
        let outcome =
            read_stable(file.as_fd(), None, &BufferPool::new(0), loan, |bytes| share.try_reserve(bytes), &PathBuf::new)
                .unwrap();
        assert!(matches!(outcome, Outcome::TooLarge));
    }

    /// Reads a file of 4 MiB over and over, while `write` writes to it without a pause, until a reading is as wished.
    fn read_under(
        write: impl Fn(&File, u64) + Sync,
        mut is_as_wished: impl FnMut(&Result<Outcome, FileError>) -> bool,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("busy");
        std::fs::write(&path, numbers(0..1 << 19)).unwrap();
        let file = File::open(&path).unwrap();
        let share = Budget::new(1 << 32).share(1 << 32);
        let stop = AtomicBool::new(false);
        let met = std::thread::scope(|scope| {
            scope.spawn(|| {
                let writer = File::options().write(true).open(&path).unwrap();
                for step in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    write(&writer, step);
                }
            });
            // Also when an assertion fails: the writer is waited for.
            let _stop = StopAtEnd(&stop);
            // The writer may not have run yet at the first try.
            (0..10_000).any(|_| {
                let loan = share.try_reserve(0).unwrap();
                let reserve = |bytes| share.try_reserve(bytes);
                is_as_wished(&read_stable(file.as_fd(), None, &BufferPool::new(0), loan, reserve, &|| path.clone()))
            })
        });
        assert!(met);
    }

    struct StopAtEnd<'a>(&'a AtomicBool);

    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Each number in eight bytes.
    fn numbers(range: std::ops::Range<u64>) -> Vec<u8> {
        range.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn a_file_that_is_appended_to_comes_as_it_was_at_one_moment() {
        const START: usize = 4 << 20;
        const STEPS: u64 = 1 << 19;
        const RECORD: usize = 64;
        let content = numbers(0..(START as u64 + STEPS * RECORD as u64) / 8);
        let append = |writer: &File, step: u64| {
            // Up to a size that is read quickly.
            if step < STEPS {
                let first = START + step as usize * RECORD;
                writer.write_all_at(&content[first..first + RECORD], first as u64).unwrap();
            }
        };
        let mut readings = 0;
        read_under(append, |outcome| {
            let Ok(Outcome::Whole { bytes, stat, .. }) = outcome else { panic!("{outcome:?}") };
            assert_eq!(bytes.len() as u64, stat.size);
            assert!(content.starts_with(bytes) && bytes.len() % RECORD == 0, "a state that the file had");
            readings += 1;
            readings == 20
        });
    }

    #[test]
    fn an_append_of_which_only_the_time_shows_is_no_change() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"four").unwrap();
        let mut stat_after = |change: &dyn Fn(&mut File)| {
            change(&mut file);
            files::statx_fd(file.as_fd()).unwrap()
        };
        let before = stat_after(&|_| {});
        let touched = stat_after(&|file| file.set_modified(std::time::UNIX_EPOCH).unwrap());
        assert!(State::of(&before) != State::of(&touched) && may_have_grown(&before, &touched));
        assert!(may_have_grown(&touched, &stat_after(&|file| file.write_all(b"more").unwrap())));
        assert!(!may_have_grown(&before, &stat_after(&|file| file.set_len(3).unwrap())));
    }

    #[test]
    fn a_file_that_grows_and_changes_is_an_error() {
        let grow_and_change = |writer: &File, step: u64| {
            writer.write_all_at(&step.to_le_bytes(), 8).unwrap();
            writer.set_len((4 << 20) + step + 1).unwrap();
        };
        read_under(grow_and_change, |outcome| matches!(outcome, Err(FileError::Changed { .. })));
    }

    #[test]
    fn a_file_that_never_holds_still_is_an_error() {
        let shrink_and_grow = |writer: &File, step: u64| writer.set_len((4 << 20) + ((step % 2) << 20)).unwrap();
        read_under(shrink_and_grow, |outcome| matches!(outcome, Err(FileError::Changed { .. })));
    }
}
