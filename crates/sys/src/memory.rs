//! How much memory there is, and how much this process has taken.
#![allow(unsafe_code)]

use std::fs;
use std::io;

/// Bytes of memory of the machine; less in a container with a limit, which is not looked at.
pub fn total_bytes() -> io::Result<u64> {
    field(&fs::read_to_string("/proc/meminfo")?, "MemTotal")
}

/// Bytes that could be allocated without swapping, by the kernel's own guess.
pub fn available_bytes() -> io::Result<u64> {
    field(&fs::read_to_string("/proc/meminfo")?, "MemAvailable")
}

/// The most bytes of memory that this process has had at once.
#[doc(alias = "VmHWM")]
pub fn peak_rss_bytes() -> io::Result<u64> {
    field(&fs::read_to_string("/proc/self/status")?, "VmHWM")
}

/// The value in bytes of the line `name: <number> kB`.
fn field(text: &str, name: &str) -> io::Result<u64> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc says nothing of {name}")))
}

/// Bytes of a page of memory, and so of the page cache.
pub fn page_bytes() -> u64 {
    page_len() as u64
}

/// The same as the length of memory.
///
/// The C library says it, not rustix, which looks at the vDSO that the kernel tells of: under valgrind there is none.
pub(crate) fn page_len() -> usize {
    // SAFETY: it takes no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Has the allocator keep little of what is freed, also where several threads allocate: for processes that last, and rarely have
/// much to do. Before the first other thread.
pub fn keep_little() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers. Where the allocator refuses it goes on as it was.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        // Or the bound would rise with each larger one that is freed, and what is below it is mixed with everything else.
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

/// Threads that allocate at the same time share so many pools.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;
/// Larger allocations are pages of their own, which go back when they are freed.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 << 10;

/// Gives memory that was freed back to the system, where the allocator keeps it: after work that took much more than what
/// follows.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and may be called at any time by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_whole_names() {
        let text = "MemTotalX:  1 kB\nMemTotal:     2048 kB\nHugePages_Total:  3\n";
        assert_eq!(field(text, "MemTotal").unwrap(), 2048 * 1024);
        assert!(field(text, "HugePages_Total").is_err());
        assert!(field(text, "Mem").is_err());
    }

    #[test]
    fn this_machine_has_memory() {
        let (total, available) = (total_bytes().unwrap(), available_bytes().unwrap());
        assert!(available <= total);
        let peak = peak_rss_bytes().unwrap();
        assert!((1 << 16..total).contains(&peak), "{peak}");
    }
}
