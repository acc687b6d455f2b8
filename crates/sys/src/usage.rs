//! What this thread has used, and processes that it has started.
#![allow(unsafe_code)]

use std::time::Duration;

/// Units of 512 bytes that this thread has made block devices read; what came from a cache is not counted, nor what
/// came over a network.
#[doc(alias = "getrusage")]
pub fn blocks_read() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to memory of that size, and one of zeros is valid too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_inblock).unwrap_or(0)
}

/// The time that processors gave to the processes that this one has started and waited for, and those that they have.
#[doc(alias = "getrusage")]
pub fn of_children() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to memory of that size, and one of zeros is valid too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    time(usage.ru_utime) + time(usage.ru_stime)
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
