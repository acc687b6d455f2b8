//! What this thread has used, and processes that it has started.
#![allow(unsafe_code)]

use std::time::Duration;

/// Units of 512 bytes that this thread has made block devices read; what came from a cache is not counted, nor what
/// came over a network.
pub fn blocks_read() -> u64 {
    u64::try_from(of(libc::RUSAGE_THREAD).ru_inblock).unwrap_or(0)
}

/// What a thread has had to do with others and with disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How often it has waited for something, a disk or another thread. That others had its processor meanwhile doesn't count.
    pub count: u64,
    /// As [`blocks_read`].
    pub blocks_read: u64,
}

/// Those of this thread.
pub fn waits() -> Waits {
    let usage = of(libc::RUSAGE_THREAD);
    let count = |told| u64::try_from(told).unwrap_or(0);
    Waits { count: count(usage.ru_nvcsw), blocks_read: count(usage.ru_inblock) }
}

/// Whether this kernel counts what is read from block devices (`CONFIG_TASK_IO_ACCOUNTING`); where it doesn't, [`blocks_read`] stays 0.
pub fn counts_blocks_read() -> bool {
    std::path::Path::new("/proc/self/io").exists()
}

/// The time that processors gave to the processes that this one has started and waited for, and those that they have.
pub fn of_children() -> Duration {
    let usage = of(libc::RUSAGE_CHILDREN);
    let time = |time: libc::timeval| {
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[doc(alias = "getrusage")]
fn of(whom: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to memory of that size, and one of zeros is valid too.
    unsafe {
        libc::getrusage(whom, usage.as_mut_ptr());
        usage.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_children_is_counted() {
        let before = of_children();
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
        assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
        assert!(of_children() > before);
    }

    #[test]
    fn who_waits_is_told_and_who_works_is_not() {
        let before = waits().count;
        // To sleep is to wait.
        (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        assert!(waits().count >= before + 5);
        // Code that was paged out may come back at the first time.
        let only_works = (0..10).any(|_| {
            let before = waits().count;
            std::hint::black_box((0..1_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number)));
            waits().count == before
        });
        assert!(only_works);
    }

    #[test]
    fn what_lies_in_memory_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; 4096]).unwrap();
        let read = || std::fs::read(&path).unwrap().len();
        // Code that was paged out may come back at the first time.
        let fresh = (0..10).any(|_| {
            let before = blocks_read();
            assert_eq!(read(), 4096);
            blocks_read() == before
        });
        assert!(fresh);
    }
}
