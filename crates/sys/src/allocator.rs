//! What the allocator keeps of memory that is free.
#![allow(unsafe_code)]

/// Has buffers of so many bytes and more given back to the kernel as soon as they are free. glibc, once one was freed, keeps those
/// of its size for each of its arenas, which threads by the dozen make many. Other allocators stay as they are.
#[doc(alias = "mallopt")]
pub fn keep_no_free_buffers(from_bytes: u32) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = i32::try_from(from_bytes).unwrap_or(i32::MAX);
        // SAFETY: it takes two numbers, and locks what it changes.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = from_bytes;
}
