//! Small files that lie in memory, with fewer calls: the content is read first, and what the file is is asked once, behind it.
//!
//! In the ordinary way a file is looked at, its pages are counted, it is read, and looked at again, so that a change meanwhile
//! shows. One look behind the reading does as well where the inode was last changed well before the file was opened: whatever
//! happened since would have made that time a later one. That holds where the times are those of this machine's clock, and that
//! wasn't set back meanwhile.
//!
//! That all of it lies in memory tells a read that may not wait. Where a page is missing, it has that one brought in, out of the
//! order of the disk. So it is for files behind many that lay in memory, and for fewer of them each time that one didn't, which
//! has gone from memory again when it is looked at in the ordinary way.

use std::{
    io::IoSliceMut,
    os::fd::BorrowedFd,
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_sys::{
    buffer::{BufferPool, Bytes},
    cache,
    files::{self, Stat},
};

use crate::{
    budget::{Loan, Share},
    item::Kind,
    settings::CachePolicy,
    survey::SETTLED_SECONDS,
};

/// So many files in a row have to lie in memory before the first time.
const IN_ROW: u32 = 32;

/// Larger ones are left to the ordinary way.
pub(crate) const BYTES_MAX: usize = 64 << 10;

/// So much is read to where it stays; what is behind it is copied once.
const FIRST_BYTES: usize = 4096;

/// So much behind a missing page may have been brought in with it.
const READ_AHEAD_BYTES: u64 = 256 << 10;

/// Files in a row that lay in memory.
#[derive(Debug)]
struct Row {
    met: u32,
    wanted: u32,
}

impl Row {
    fn is_long(&self) -> bool {
        self.met >= self.wanted
    }

    /// It didn't go on: twice as many are wanted from now on.
    fn misled(&mut self) {
        *self = Self { met: 0, wanted: self.wanted.saturating_mul(2) };
    }
}

/// Where those lie whose content is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// On a disk, and in the page cache beside.
    Disk,
    /// In memory alone, which knows no reads that may not wait: none has to.
    Memory,
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) loan: Loan,
    /// What it is.
    pub(crate) stat: Stat,
}

/// Reads files at once, as long as they lie in memory.
#[derive(Debug)]
pub(crate) struct ReaderAtOnce {
    row: Row,
    cache: CachePolicy,
    /// What the clock said when nothing of the next file was asked yet.
    before: i64,
    rest: Vec<u8>,
}

impl ReaderAtOnce {
    pub(crate) fn new(cache: CachePolicy) -> Self {
        Self { row: Row { met: 0, wanted: IN_ROW }, cache, before: i64::MIN, rest: Vec::new() }
    }

    /// Takes note of a file that was looked at in the ordinary way.
    pub(crate) fn met(&mut self, is_small_and_in_memory: bool) {
        self.row.met = if is_small_and_in_memory { self.row.met.saturating_add(1) } else { 0 };
    }

    /// Whether the next file is to be read at once. To be asked before it is opened.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.row.is_long();
        if is_due && self.before == i64::MIN {
            self.before = now();
        }
        is_due
    }

    /// Reads a file that was opened after [`ReaderAtOnce::is_due`], if it is a small one, still that inode, and of one name.
    /// Nothing where the ordinary way is to be gone.
    pub(crate) fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        ((dev, ino), home): ((u64, u64), Home),
        pool: &BufferPool,
        share: &Share,
    ) -> Option<Whole> {
        let before = std::mem::replace(&mut self.before, i64::MIN);
        let Some((mut bytes, mut loan)) = pool.try_bytes(FIRST_BYTES).zip(share.try_reserve(FIRST_BYTES as u64)) else {
            return self.otherwise();
        };
        self.rest.resize(BYTES_MAX - FIRST_BYTES, 0);
        let parts = &mut [IoSliceMut::new(&mut bytes), IoSliceMut::new(&mut self.rest)];
        let read = match home {
            Home::Disk => files::read_parts_at_if_cached(fd, parts, 0),
            Home::Memory => files::read_parts_at(fd, parts, 0).map(Some),
        };
        let read = match read {
            Ok(Some(read)) => read,
            Ok(None) | Err(_) => return self.missing(fd, 0),
        };
        let Ok(stat) = files::statx_fd(fd) else { return self.otherwise() };
        let after = now();
        self.before = after;
        if read < BYTES_MAX && (read as u64) < stat.size {
            return self.missing(fd, read);
        }
        if stat.size == 0 {
            return None;
        }
        let is_it = Kind::of_mode(stat.mode) == Some(Kind::File) && (stat.dev, stat.ino, stat.nlink) == (dev, ino, 1);
        let is_whole = read > 0 && read as u64 == stat.size && stat.blocks * 512 >= stat.size;
        if !is_it || !is_whole || !held_still(&stat, before, after) {
            return self.otherwise();
        }
        if read <= FIRST_BYTES {
            bytes.truncate(read);
            return Some(Whole { bytes, loan, stat });
        }
        drop(loan);
        let room = pool.try_bytes(read).zip(share.try_reserve(stat.size.next_multiple_of(FIRST_BYTES as u64)));
        let Some((mut whole, larger)) = room else { return self.otherwise() };
        loan = larger;
        whole[..FIRST_BYTES].copy_from_slice(&bytes);
        whole[FIRST_BYTES..].copy_from_slice(&self.rest[..read - FIRST_BYTES]);
        Some(Whole { bytes: whole, loan, stat })
    }

    /// A page was missing, and the reading has begun to bring it in: that is waited for, since what is on its way can't be dropped.
    /// Pages behind it that lay in memory before go, too.
    fn missing(&mut self, fd: BorrowedFd<'_>, from: usize) -> Option<Whole> {
        self.row.misled();
        if self.cache == CachePolicy::Untouched {
            // What can't be read is told of in the ordinary way.
            let _ = files::read_at(fd, &mut self.rest, from as u64);
            let _ = cache::drop_cached(fd, from as u64, READ_AHEAD_BYTES);
        }
        None
    }

    /// In memory perhaps, and still none for this: what was read is lost.
    fn otherwise(&mut self) -> Option<Whole> {
        self.row.met = 0;
        None
    }
}

/// Whether nothing happened to a file between two looks at the clock: it would have its time.
fn held_still(stat: &Stat, before: i64, after: i64) -> bool {
    before <= after && stat.ctime.secs < before - SETTLED_SECONDS
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, os::fd::AsFd, time::Duration};

    use onesweep_sys::files::Time;

    use super::*;
    use crate::budget::Budget;

    fn stat_of(file: &File) -> Stat {
        files::statx_fd(file.as_fd()).unwrap()
    }

    #[test]
    fn a_row_that_misleads_has_to_be_longer_the_next_time() {
        let mut reader = ReaderAtOnce::new(CachePolicy::Untouched);
        let due_after = |reader: &mut ReaderAtOnce| {
            (0..1000).find(|_| {
                let is_due = reader.is_due();
                reader.met(true);
                is_due
            })
        };
        assert_eq!(due_after(&mut reader), Some(32));
        reader.row.misled();
        assert_eq!(due_after(&mut reader), Some(64));
        reader.met(false);
        assert_eq!(due_after(&mut reader), Some(64), "one on the disk ends a row");
        reader.row.misled();
        assert_eq!(due_after(&mut reader), Some(128));
    }

    #[test]
    fn only_what_changed_well_before_held_still() {
        let file = tempfile::tempfile().unwrap();
        let stat = Stat { ctime: Time { secs: 100, nanos: 999_999_999 }, ..stat_of(&file) };
        for (before, after, is_still) in [
            (102, 102, true),
            (102, 500, true),
            // A change of this second may come.
            (101, 101, false),
            (100, 102, false),
            // It was set back: a change may have any time.
            (102, 101, false),
        ] {
            assert_eq!(held_still(&stat, before, after), is_still, "{before} {after}");
        }
    }

    /// Reads a file as if it were long ago that it changed.
    fn read(file: &File, share: &Share) -> Option<Whole> {
        read_at(Home::Disk, file, share)
    }

    fn read_at(home: Home, file: &File, share: &Share) -> Option<Whole> {
        let stat = stat_of(file);
        let mut reader = ReaderAtOnce::new(CachePolicy::Untouched);
        reader.before = stat.ctime.secs + 2;
        // The clock goes on meanwhile.
        while now() < reader.before {
            std::thread::sleep(Duration::from_millis(20));
        }
        reader.read(file.as_fd(), ((stat.dev, stat.ino), home), &BufferPool::new(0), share)
    }

    #[test]
    fn small_files_come_whole_and_all_others_are_left() {
        // On a file system that knows such reads; that of the temporary files need not.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let make = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            File::open(path).unwrap()
        };
        let pattern = |len: usize| (0..len).map(|at| (at * 7 / 3) as u8).collect::<Vec<_>>();
        let sizes = [1, 4095, 4096, 4097, 10_000, BYTES_MAX, BYTES_MAX + 1];
        let files: Vec<File> = sizes.iter().map(|&len| make(&len.to_string(), &pattern(len))).collect();
        let linked = make("linked", b"bytes");
        std::fs::hard_link(folder.path().join("linked"), folder.path().join("link")).unwrap();
        let share = Budget::new(1 << 20).share(1 << 20);
        if files::read_at_if_cached(files[0].as_fd(), &mut [0], 0).unwrap().is_none() {
            return; // no such reads here
        }
        for (file, len) in files.iter().zip(sizes) {
            match read(file, &share) {
                Some(Whole { bytes, loan, stat }) if len <= BYTES_MAX => {
                    assert!(bytes[..] == pattern(len) && loan.bytes() >= len as u64 && stat == stat_of(file), "{len}");
                    assert_eq!(share_held(&share), loan.bytes());
                }
                None if len > BYTES_MAX => {}
                other => panic!("{len}: {other:?}"),
            }
        }
        let small = Budget::new(4096).share(4096);
        for (file, share, why) in [
            (&linked, &share, "it has two names"),
            (&make("empty", b""), &share, "there is nothing to read"),
            (&files[4], &small, "there is no room"),
        ] {
            assert!(read(file, share).is_none(), "{why}");
            assert_eq!(share_held(share), 0, "{why}");
        }
    }

    #[test]
    fn small_files_whose_home_is_memory_come_whole() {
        let Ok(mut file) = tempfile::tempfile_in("/dev/shm") else { return };
        let bytes: Vec<u8> = (0..10_000).map(|at| (at * 7 / 3) as u8).collect();
        file.write_all(&bytes).unwrap();
        let share = Budget::new(1 << 20).share(1 << 20);
        // This one has no name at all.
        assert!(read_at(Home::Memory, &file, &share).is_none());
        let named = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        std::fs::write(named.path(), &bytes).unwrap();
        let whole = read_at(Home::Memory, named.as_file(), &share).expect("it is read");
        assert!(whole.bytes[..] == bytes && whole.stat == stat_of(named.as_file()));
    }

    fn share_held(share: &Share) -> u64 {
        (0..=share.limit())
            .rev()
            .step_by(4096)
            .find(|&bytes| share.fits(bytes))
            .map_or(share.limit(), |free| share.limit() - free)
    }

    #[test]
    fn what_is_not_in_memory_is_left_as_it_was() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 20_000]).unwrap();
        let file = File::open(&path).unwrap();
        files::sync_data(file.as_fd()).unwrap();
        let cached = || cache::residency(file.as_fd(), 0, 20_000).unwrap().cached;
        let share = Budget::new(1 << 20).share(1 << 20);
        for missing_from in [0, 8192] {
            std::fs::read(&path).unwrap();
            cache::drop_cached(file.as_fd(), missing_from, 1 << 20).unwrap();
            let before = cached();
            if before == 5 || files::read_at_if_cached(file.as_fd(), &mut [0], 1 << 20).unwrap().is_none() {
                return; // nothing can be dropped here, or there are no such reads
            }
            assert!(read(&file, &share).is_none());
            assert_eq!(cached(), before, "from {missing_from}");
        }
        assert_eq!(share_held(&share), 0);
    }

    #[test]
    fn another_file_in_its_place_and_one_that_was_just_written_are_left() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(b"bytes").unwrap();
        let stat = stat_of(&file);
        let share = Budget::new(1 << 20).share(1 << 20);
        let (mut reader, pool) = (ReaderAtOnce::new(CachePolicy::Untouched), BufferPool::new(0));
        let mut read = |before: i64, ino: u64| {
            reader.before = before;
            reader.read(file.as_fd(), ((stat.dev, ino), Home::Disk), &pool, &share)
        };
        assert!(read(stat.ctime.secs, stat.ino).is_none());
        assert!(read(stat.ctime.secs - 9, stat.ino + 1).is_none());
    }
}
