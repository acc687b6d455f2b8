//! Words of memory that several processes share, and waiting for one of them to change.
#![allow(unsafe_code)]

use std::{fs::File, io, ops::Deref, ptr::NonNull, sync::atomic::AtomicU32, time::Duration};

use rustix::{
    event::Timespec,
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
    thread::futex,
};

use crate::memfd;

/// Words in a file, all zero at first. Whoever opens the file has the same ones. Memory is taken where a word was written, by
/// pages.
#[derive(Debug)]
pub struct SharedWords {
    file: File,
    first: NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: the memory is this value's until it is dropped, and all access is by atomics.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// So many words, in memory; more than none.
    pub fn new(count: usize) -> io::Result<Self> {
        Self::over(memfd::empty()?, count)
    }

    /// So many words in an empty file that nobody cuts. Where its file system finds no place for a page that is written to, the
    /// kernel ends whoever writes (`SIGBUS`), unless the place was taken before.
    pub fn over(file: File, count: usize) -> io::Result<Self> {
        let bytes = count.checked_mul(size_of::<AtomicU32>()).ok_or(Errno::OVERFLOW)?;
        file.set_len(bytes as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at a place that the kernel chooses, of a file that is as long and that nobody here cuts.
        let first = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, &file, 0)? };
        let first = NonNull::new(first.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { file, first, count })
    }

    /// The file behind them.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is as long, aligned to a page, lives as long as this value, and any bits are a valid word.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nothing borrows it any more.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.count * size_of::<AtomicU32>()) };
    }
}

/// Waits while a word is `seen`, at most so long. Also comes back for no reason.
#[doc(alias = "futex")]
pub fn wait(word: &AtomicU32, seen: u32, at_most: Duration) {
    let at_most = Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // Whatever ends it, whoever waits looks at the word again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&at_most));
}

/// Wakes all that wait for a word, in other processes too.
#[doc(alias = "futex")]
pub fn wake_all(word: &AtomicU32) {
    // It fails only for a word that isn't memory.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::AsRawFd, unix::fs::FileExt},
        sync::atomic::Ordering,
        thread,
    };

    use super::*;

    #[test]
    fn whoever_opens_the_file_has_the_same_words() {
        let words = SharedWords::new(5000).unwrap();
        assert_eq!(words.len(), 5000);
        let other =
            File::options().read(true).write(true).open(format!("/proc/self/fd/{}", words.file().as_raw_fd())).unwrap();
        other.write_all_at(&7_u32.to_ne_bytes(), 4 * 4999).unwrap();
        assert_eq!(words[4999].load(Ordering::Relaxed), 7);
        words[1].store(9, Ordering::Relaxed);
        let mut read = [0; 4];
        other.read_exact_at(&mut read, 4).unwrap();
        assert_eq!(u32::from_ne_bytes(read), 9);
        assert!(SharedWords::new(usize::MAX).is_err());
    }

    #[test]
    fn who_waits_is_woken_by_a_change() {
        let words = SharedWords::new(1).unwrap();
        wait(&words[0], 1, Duration::from_secs(1000));
        thread::scope(|scope| {
            scope.spawn(|| {
                words[0].store(1, Ordering::SeqCst);
                wake_all(&words[0]);
            });
            while words[0].load(Ordering::SeqCst) == 0 {
                wait(&words[0], 0, Duration::from_secs(1000));
            }
        });
    }
}
