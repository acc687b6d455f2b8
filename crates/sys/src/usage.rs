//! What this thread has used.
#![allow(unsafe_code)]

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

#[cfg(test)]
mod tests {
    use super::*;

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
