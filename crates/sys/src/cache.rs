//! What of a file is in the page cache, and advice to it.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::features::features;
use crate::usage::blocks_read;

/// The number of `cachestat` on every architecture but alpha and MIPS, where it is no system call at all.
pub(crate) const SYS_CACHESTAT: libc::c_long = 451;

/// Bytes that one `FADV_WILLNEED` asks for. The kernel cuts a longer request off without a word.
const PREFETCH_STEP_BYTES: u64 = 256 << 10;

/// Pages of a range of a file in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages in the cache.
    pub cached: u64,
    /// Of these, pages with bytes that are not yet on the device; `None` when only `mincore` could be asked. One
    /// changed byte makes all pages of its folio dirty, which may be many.
    pub dirty: Option<u64>,
    /// Of these, pages on their way to the device; `None` as above.
    pub writeback: Option<u64>,
    /// Pages that have been in the cache and were evicted; `None` as above.
    pub evicted: Option<u64>,
    /// Of these, pages that were evicted lately; `None` as above.
    pub recently_evicted: Option<u64>,
}

impl Residency {
    /// Whether a file of so many bytes is in the cache as a whole, where all of it was asked for.
    pub fn has_all_of(&self, bytes: u64) -> bool {
        self.cached >= bytes.div_ceil(crate::memory::page_bytes())
    }
}

/// `struct cachestat_range`.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

const _: () = assert!(size_of::<CachestatRange>() == 16);
const _: () = assert!(size_of::<Cachestat>() == 40);

/// What of `len` bytes from `offset` is in the page cache; `len` 0 means to the end of the file.
///
/// Uses `cachestat` (Linux 6.5), else `mincore` on a mapping, which does not know what is dirty. Needs no privilege
/// for a file that the caller owns or may write; of others' files the kernel does not tell (`PermissionDenied`).
#[doc(alias = "cachestat")]
pub fn residency(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Residency> {
    match features().cachestat {
        true => residency_by_cachestat(fd, offset, len),
        false => residency_by_mincore(fd, offset, len),
    }
}

/// [`residency`] by `cachestat` alone; `ENOSYS` before Linux 6.5, `EOPNOTSUPP` on hugetlbfs.
pub fn residency_by_cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Residency> {
    let range = CachestatRange { offset, len };
    let mut answer = Cachestat::default();
    // SAFETY: both structs have the kernel's layout (asserted above) and live through the call; flags must be 0.
    let status = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &raw const range, &raw mut answer, 0) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Residency {
        cached: answer.cached,
        dirty: Some(answer.dirty),
        writeback: Some(answer.writeback),
        evicted: Some(answer.evicted),
        recently_evicted: Some(answer.recently_evicted),
    })
}

/// [`residency`] by `mincore` on a mapping: only `cached` is known.
///
/// Of a file that the caller neither owns nor may write, the kernel would say that all pages are cached; that is
/// `PermissionDenied` here.
#[doc(alias = "mincore")]
pub fn residency_by_mincore(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Residency> {
    let stat = rustix::fs::fstat(fd)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() && !may_write(fd) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let size = stat.st_size.max(0) as u64;
    let end = if len == 0 { size } else { offset.saturating_add(len).min(size) };
    let page = crate::memory::page_bytes();
    let mut at = offset / page * page;
    let mut cached = 0;
    while at < end {
        let window = (end - at).min(MINCORE_WINDOW_BYTES);
        cached += cached_pages_of_window(fd, at, window as usize)?;
        at += window;
    }
    Ok(Residency { cached, ..Residency::default() })
}

/// Whether the caller could open the file for writing.
fn may_write(fd: BorrowedFd<'_>) -> bool {
    use rustix::fs::{Access, AtFlags};
    rustix::fs::accessat(fd, c"", Access::WRITE_OK, AtFlags::EACCESS | AtFlags::EMPTY_PATH).is_ok()
}

/// Bytes of a file that are mapped at once to ask for its pages; a multiple of every page size.
const MINCORE_WINDOW_BYTES: u64 = 256 << 20;

/// Cached pages of `len` bytes from `offset`, which is a multiple of the page size.
fn cached_pages_of_window(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<u64> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let mut pages = vec![0_u8; len.div_ceil(crate::memory::page_len())];
    // SAFETY: a new mapping at an address of the kernel's choice, never read or written.
    let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::SHARED, fd, offset)? };
    // SAFETY: the mapping is `len` bytes long, and `pages` has one byte for each page of it.
    let status = unsafe { libc::mincore(start, len, pages.as_mut_ptr()) };
    let answer = match status {
        0 => Ok(pages.iter().filter(|&page| page & 1 == 1).count() as u64),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: exactly the mapping made above, of which nothing is kept.
    unsafe { munmap(start, len)? };
    answer
}

/// The runs of whole pages around a range that are not in the page cache, rising; told to whom [`residency`] is told.
pub fn uncached_runs(fd: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let page = crate::memory::page_bytes();
    let count = |pages: &Range<u64>| Ok(residency(fd, pages.start * page, (pages.end - pages.start) * page)?.cached);
    let mut runs = Vec::new();
    uncached_by_count(&count, page_numbers(range), &mut runs)?;
    Ok(in_bytes(runs))
}

/// As [`uncached_runs`], of any file that may be read: each page is tried by a read that may not wait (`RWF_NOWAIT`).
///
/// That brings the missing pages in, so it is for ranges that will be read and dropped; not before they are read, since
/// pages on their way can't be dropped. Read-ahead must be
/// [off](random_access), or it would bring in pages that are not tried yet. Pages that need no device (holes) look
/// cached. `Unsupported` where no such reads are possible.
#[doc(alias = "RWF_NOWAIT")]
pub fn uncached_runs_by_trial(fd: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let page = crate::memory::page_bytes();
    uncached_by_trial(&mut |number| is_read_at_once(fd, number * page), page_numbers(range)).map(in_bytes)
}

/// Whether a file of so many bytes is in the page cache as a whole: of any file that may be read. Of those of which the kernel doesn't tell, the
/// first and the last page are tried. `Unsupported` where that isn't possible either.
///
/// Of a file that isn't there the first page comes, and no more, and as by every read that succeeds the access time may be a new one. Advice that was given for
/// this descriptor is lost.
#[doc(alias = "RWF_NOWAIT")]
pub fn is_cached(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<bool> {
    match residency(fd, 0, bytes) {
        Ok(found) => Ok(found.has_all_of(bytes)),
        Err(_) => has_both_ends(fd, bytes),
    }
}

/// Whether a file's first and last page are in the page cache, by trial. The first one comes first: where it is missing, the reader begins there, too.
fn has_both_ends(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<bool> {
    // Without this, a page that is missing comes with others.
    random_access(fd)?;
    let ends = [0, bytes.saturating_sub(1)];
    let tried = ends.iter().take(if bytes > crate::memory::page_bytes() { 2 } else { 1 });
    let found = tried.map(|at| is_read_at_once(fd, *at)).find(|found| !matches!(found, Ok(true)));
    // Whoever reads on reads as ever.
    rustix::fs::fadvise(fd, 0, None, Advice::Normal)?;
    found.unwrap_or(Ok(true))
}

/// Whether a range is in the page cache, of any file that may be read, by reads of all of it that may not wait. `Unsupported` where there are none.
///
/// The first part that is missing is asked for as by who reads it, so this is for what will be read next. `buffer` takes what is there, a part as large at a
/// time. Read-ahead must be [off](random_access), or more would come.
#[doc(alias = "RWF_NOWAIT")]
pub fn is_range_cached_by_trial(fd: BorrowedFd<'_>, range: &Range<u64>, buffer: &mut [u8]) -> io::Result<bool> {
    let mut at = range.start;
    while at < range.end {
        let part = buffer.len().min((range.end - at) as usize);
        let before = blocks_read();
        match rustix::io::preadv2(fd, &mut [io::IoSliceMut::new(&mut buffer[..part])], at, ReadWriteFlags::NOWAIT) {
            // A quick device has brought it by now.
            Ok(_) if blocks_read() != before => return Ok(false),
            // The file ends before the range does.
            Ok(0) => return Ok(true),
            // Where it is short because a page is missing, the next one finds that.
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            // What can't be read the reader will tell of.
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether [`uncached_runs_by_trial`] is possible; nothing is brought in by the question.
pub fn has_trial(fd: BorrowedFd<'_>) -> bool {
    // No file has a page there.
    const BEHIND_THE_END: u64 = i64::MAX as u64 / (1 << 20) * (1 << 20) - (1 << 20);
    is_read_at_once(fd, BEHIND_THE_END).is_ok()
}

fn page_numbers(range: &Range<u64>) -> Range<u64> {
    let page = crate::memory::page_bytes();
    range.start / page..range.end.div_ceil(page)
}

fn in_bytes(runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let page = crate::memory::page_bytes();
    runs.into_iter().map(|run| run.start * page..run.end * page).collect()
}

/// Halves the range until each half is wholly cached or wholly uncached.
fn uncached_by_count(
    count: &dyn Fn(&Range<u64>) -> io::Result<u64>,
    pages: Range<u64>,
    runs: &mut Vec<Range<u64>>,
) -> io::Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    let (length, cached) = (pages.end - pages.start, count(&pages)?);
    if cached == 0 {
        match runs.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => runs.push(pages),
        }
    } else if cached < length && length > 1 {
        let middle = pages.start + length / 2;
        uncached_by_count(count, pages.start..middle, runs)?;
        uncached_by_count(count, middle..pages.end, runs)?;
    }
    Ok(())
}

/// Tries the last page first: a cached page may carry the mark at which the kernel reads ahead, and what that brings in
/// has been tried by then.
fn uncached_by_trial(
    is_cached: &mut dyn FnMut(u64) -> io::Result<bool>,
    pages: Range<u64>,
) -> io::Result<Vec<Range<u64>>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in pages.rev() {
        if is_cached(number)? {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.start == number + 1 => last.start = number,
            _ => runs.push(number..number + 1),
        }
    }
    runs.reverse();
    Ok(runs)
}

const SECTOR_BYTES: u64 = 512;

/// True when a byte can be read without the device; behind the end there is nothing to wait for.
fn is_read_at_once(fd: BorrowedFd<'_>, offset: u64) -> io::Result<bool> {
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    let page = crate::memory::page_bytes();
    loop {
        let before = blocks_read() * SECTOR_BYTES;
        match rustix::io::preadv2(fd, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            // A quick device has brought this one page by now. More than a page was read ahead of one that was there.
            Ok(_) => return Ok(!(1..=page).contains(&(blocks_read() * SECTOR_BYTES - before))),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            // A page that can't be read: the reader will tell of it.
            Err(_) => return Ok(false),
        }
    }
}

/// Drops the clean cached pages of a range (`FADV_DONTNEED`); `len` 0 means to the end of the file.
///
/// Dirty pages stay, as do pages that others have mapped or that the range covers only in part.
#[doc(alias = "POSIX_FADV_DONTNEED")]
pub fn drop_cached(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(fd, offset, NonZeroU64::new(len), Advice::DontNeed)?)
}

/// Turns read-ahead off for this descriptor (`FADV_RANDOM`).
#[doc(alias = "POSIX_FADV_RANDOM")]
pub fn random_access(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(fd, 0, None, Advice::Random)?)
}

/// Asks the kernel to bring a range into the page cache (`FADV_WILLNEED`), in steps that it does not cut off.
///
/// It may block while the file system reads the map of the file, and on a full device queue.
#[doc(alias = "POSIX_FADV_WILLNEED")]
pub fn prefetch(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end {
        let step = (end - at).min(PREFETCH_STEP_BYTES);
        rustix::fs::fadvise(fd, at, NonZeroU64::new(step), Advice::WillNeed)?;
        at += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::testing::{Pinned, skipped};

    /// A file of `pages` pages that are on the device and in the cache.
    fn cached_file(pages: usize) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; pages * crate::memory::page_len()]).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn pinned(file: &std::fs::File, pages: Range<usize>) -> Pinned {
        let page = crate::memory::page_len();
        Pinned::new(file.as_fd(), (pages.start * page) as u64, pages.len() * page)
    }

    /// Asks `residency` in both ways, leaving out the one that this kernel lacks.
    fn in_both_ways(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Vec<Residency> {
        let mut answers = vec![residency_by_mincore(fd, offset, len).unwrap()];
        match features().cachestat {
            true => answers.push(residency_by_cachestat(fd, offset, len).unwrap()),
            // Linux 6.1 is enough for onesweep, and so for its tests.
            false => eprintln!("this kernel has no cachestat"),
        }
        answers.push(residency(fd, offset, len).unwrap());
        answers
    }

    #[test]
    fn cached_pages_are_counted() {
        let (file, page) = (cached_file(10), crate::memory::page_bytes());
        let _all = pinned(&file, 0..10);
        for (offset, len, pages) in [(0, 0, 10), (0, 10 * page, 10), (2 * page, 3 * page, 3), (page + 1, 1, 1)] {
            for answer in in_both_ways(file.as_fd(), offset, len) {
                assert_eq!(answer.cached, pages, "{offset} {len}");
                assert_eq!(answer.dirty.unwrap_or(0), 0);
            }
        }
        for answer in in_both_ways(file.as_fd(), 50 * page, 5 * page) {
            assert_eq!(answer.cached, 0, "nothing is cached behind the end");
        }
    }

    #[test]
    fn dirty_pages_are_seen() {
        let file = cached_file(4);
        let all_see_them = || {
            std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0).unwrap();
            // A folio is dirty as a whole.
            in_both_ways(file.as_fd(), 0, 0).iter().all(|answer| matches!(answer.dirty, None | Some(1..=4)))
        };
        // The kernel may write back by itself at any moment, but not each time.
        assert!((0..100).any(|_| all_see_them()));
    }

    #[test]
    fn dropped_pages_come_back_when_asked_for() {
        let file = cached_file(64);
        drop_cached(file.as_fd(), 0, 0).unwrap();
        if residency(file.as_fd(), 0, 0).unwrap().cached != 0 {
            return skipped("this file system keeps its pages");
        }
        for answer in in_both_ways(file.as_fd(), 0, 0) {
            assert_eq!(answer.cached, 0);
        }
        // By mincore, pages count when they have been read; and some may be reclaimed before the others are there.
        let all_back = || {
            prefetch(file.as_fd(), 0, 64 * crate::memory::page_bytes()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
            residency(file.as_fd(), 0, 0).unwrap().cached == 64
        };
        assert!((0..1000).any(|_| all_back()), "no read-ahead");
    }

    #[test]
    fn uncached_runs_are_found_by_halves_and_by_trial() {
        let cached = [0, 1, 2, 7, 8, 40];
        let count = |pages: &Range<u64>| Ok(cached.iter().filter(|page| pages.contains(page)).count() as u64);
        let mut by_halves = Vec::new();
        uncached_by_count(&count, 1..64, &mut by_halves).unwrap();
        assert_eq!(by_halves, [3..7, 9..40, 41..64]);
        let mut tried = Vec::new();
        let mut is_cached = |page| {
            tried.push(page);
            Ok(cached.contains(&page))
        };
        assert_eq!(uncached_by_trial(&mut is_cached, 1..64).unwrap(), by_halves);
        assert!(tried.is_sorted_by(|page, next| page > next), "the last page first");
        assert!(uncached_by_count(&count, 5..5, &mut Vec::new()).is_ok());
    }

    #[test]
    fn uncached_runs_are_told_to_owners_and_strangers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let page = crate::memory::page_len();
        file.as_file().write_all(&vec![1; 64 * page]).unwrap();
        file.as_file().sync_all().unwrap();
        let reader = || std::fs::File::open(file.path()).unwrap();
        // Each asker meets the same pages: the third and the fourth alone.
        let prepare = || {
            let warm = reader();
            drop_cached(warm.as_fd(), 0, 0).unwrap();
            random_access(warm.as_fd()).unwrap();
            std::os::unix::fs::FileExt::read_exact_at(&warm, &mut vec![0; 2 * page], 2 * page as u64).unwrap();
            let kept = pinned(&warm, 2..4);
            (residency(warm.as_fd(), 0, 0).unwrap().cached == 2).then_some(kept)
        };
        let Some(kept) = prepare() else { return skipped("this file system keeps its pages") };
        let page = page as u64;
        let expected = [0..2 * page, 4 * page..64 * page];
        assert_eq!(uncached_runs(reader().as_fd(), &(0..64 * page)).unwrap(), expected);
        let trier = reader();
        random_access(trier.as_fd()).unwrap();
        assert_eq!(uncached_runs_by_trial(trier.as_fd(), &(0..64 * page)).unwrap(), expected);
        // What is on its way can't be dropped yet.
        std::fs::read(file.path()).unwrap();
        // Nor what is pinned.
        drop(kept);
        let _kept = prepare().expect("two pages in the cache");
        let stranger = reader();
        random_access(stranger.as_fd()).unwrap();
        if let Some(told) = crate::testing::as_stranger(|| uncached_runs_by_trial(stranger.as_fd(), &(0..64 * page))) {
            assert_eq!(told.unwrap(), expected);
        }
    }

    #[test]
    fn a_strangers_file_is_in_memory_where_both_its_ends_are() {
        const PAGES: usize = 64;
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = (PAGES * crate::memory::page_len()) as u64;
        file.as_file().write_all(&vec![1; bytes as usize]).unwrap();
        file.as_file().sync_all().unwrap();
        let reader = || std::fs::File::open(file.path()).unwrap();
        let cached = || residency(reader().as_fd(), 0, 0).unwrap().cached;
        let empty = || {
            // What is on its way can't be dropped yet.
            std::fs::read(file.path()).unwrap();
            drop_cached(reader().as_fd(), 0, 0).map(|()| cached() == 0).unwrap()
        };
        for (there, expected) in [(0..PAGES, true), (0..2, false), (PAGES - 2..PAGES, false), (0..0, false)] {
            if !empty() {
                return skipped("this file system keeps its pages");
            }
            let warm = reader();
            random_access(warm.as_fd()).unwrap();
            let page = crate::memory::page_len();
            let mut read = vec![0; there.len() * page];
            std::os::unix::fs::FileExt::read_exact_at(&warm, &mut read, (there.start * page) as u64).unwrap();
            let _kept = (!there.is_empty()).then(|| pinned(&warm, there.clone()));
            assert_eq!(cached(), there.len() as u64);
            let asked = reader();
            let Some(told) = crate::testing::as_stranger(|| is_cached(asked.as_fd(), bytes)) else { return };
            assert_eq!(told.unwrap(), expected, "{there:?}");
            assert!(cached() <= there.len() as u64 + 1, "{there:?}: {} pages", cached());
        }
        // The descriptor reads ahead as one that wasn't asked.
        let brought = |by: &std::fs::File| {
            assert!(empty());
            std::os::unix::fs::FileExt::read_exact_at(by, &mut [0], 0).unwrap();
            cached()
        };
        let asked = reader();
        crate::testing::as_stranger(|| is_cached(asked.as_fd(), bytes)).unwrap().unwrap();
        assert_eq!(brought(&asked), brought(&reader()));
    }

    #[test]
    fn a_range_is_tried_as_a_whole() {
        const PAGES: u64 = 64;
        let page = crate::memory::page_bytes();
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all(&vec![1; (PAGES * page) as usize]).unwrap();
        file.as_file().sync_all().unwrap();
        drop_cached(file.as_fd(), 0, 0).unwrap();
        let reader = std::fs::File::open(file.path()).unwrap();
        random_access(reader.as_fd()).unwrap();
        if residency(reader.as_fd(), 0, 0).unwrap().cached > 0 || !has_trial(reader.as_fd()) {
            return skipped("this file system keeps its pages, or has no reads that may not wait");
        }
        let mut buffer = vec![0; 4 * page as usize];
        let mut is_cached = |from, to| {
            let range = from * page..to * page;
            is_range_cached_by_trial(reader.as_fd(), &range, &mut buffer).unwrap()
        };
        assert!(!is_cached(10, 20));
        // What was missing first has come as one part, of what was read behind it nothing.
        assert!(residency(reader.as_fd(), 0, 0).unwrap().cached <= 4);
        std::os::unix::fs::FileExt::read_exact_at(&reader, &mut vec![0; 10 * page as usize], 10 * page).unwrap();
        let _kept = pinned(&reader, 10..20);
        assert!(is_cached(10, 20) && is_cached(12, 15) && is_cached(15, 15));
        assert!(!is_cached(15, 21) && !is_cached(9, 20));
        std::fs::read(file.path()).unwrap();
        let _all = pinned(&reader, 0..PAGES as usize);
        assert!(is_cached(0, PAGES) && is_cached(60, PAGES + 100), "the file ends there");
    }

    /// There it isn't missing, whatever else may be known.
    #[test]
    fn nothing_is_missing_of_a_strangers_file_where_no_read_can_be_tried() {
        let Ok(mut file) = tempfile::NamedTempFile::new_in("/dev/shm") else { return skipped("no tmpfs") };
        file.write_all(&[1; 5000]).unwrap();
        let asked = std::fs::File::open(file.path()).unwrap();
        match crate::testing::as_stranger(|| is_cached(asked.as_fd(), 5000)) {
            Some(Err(error)) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
            told => assert!(matches!(told, None | Some(Ok(true))), "{told:?}"),
        }
    }

    #[test]
    fn strangers_are_not_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_only = std::fs::File::open(file.path()).unwrap();
        let answers = crate::testing::as_stranger(|| {
            let fd = read_only.as_fd();
            [residency(fd, 0, 0), residency_by_mincore(fd, 0, 0)]
        });
        for answer in answers.into_iter().flatten() {
            match answer {
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
                Ok(answer) => eprintln!("this kernel tells strangers: {answer:?}"),
            }
        }
    }

    #[test]
    fn advice_on_a_whole_file_is_taken() {
        let file = cached_file(1);
        random_access(file.as_fd()).unwrap();
        prefetch(file.as_fd(), 0, 0).unwrap();
    }

    #[test]
    fn empty_file_has_no_pages() {
        let file = tempfile::tempfile().unwrap();
        for answer in in_both_ways(file.as_fd(), 0, 0) {
            assert_eq!(answer.cached, 0);
        }
    }
}
