//! Whether pages of a file in memory are parts of larger folios.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Of an entry of `pagemap`: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// Of an entry of `pagemap`: the number of the page.
const FRAME: u64 = (1 << 55) - 1;
/// Of an entry of `kpageflags`: first page, or one of the others, of a folio of several.
const COMPOUND: u64 = 1 << 15 | 1 << 16;

/// The two tables of the kernel that tell. Open to root alone.
#[derive(Debug)]
pub struct Folios {
    frames: File,
    flags: File,
}

impl Folios {
    /// `PermissionDenied` or `NotFound` where the kernel doesn't tell.
    #[doc(alias = "kpageflags")]
    pub fn open() -> io::Result<Folios> {
        Ok(Folios { frames: File::open("/proc/self/pagemap")?, flags: File::open("/proc/kpageflags")? })
    }

    /// Whether any of the first `bytes` of a file that is open for reading lies in a folio of several pages; `None` when
    /// not all of them are in memory, or the kernel doesn't tell.
    ///
    /// Pages that are not in memory are read. Looks at each page: for small files.
    pub fn any_large(&self, fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Option<bool>> {
        if bytes == 0 {
            return Ok(Some(false));
        }
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice, never read or written.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, fd, 0)? };
        let answer = self.look(start.addr() as u64, bytes.div_ceil(rustix::param::page_size()));
        // SAFETY: exactly the mapping made above, of which nothing is kept.
        unsafe { munmap(start, bytes)? };
        answer
    }

    fn look(&self, address: u64, pages: usize) -> io::Result<Option<bool>> {
        let first = address / rustix::param::page_size() as u64;
        let mut entries = vec![0; pages * 8];
        self.frames.read_exact_at(&mut entries, first * 8)?;
        for entry in entries.chunks_exact(8) {
            let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
            let frame = entry & FRAME;
            if entry & PRESENT == 0 || frame == 0 {
                return Ok(None);
            }
            let mut flags = [0; 8];
            self.flags.read_exact_at(&mut flags, frame * 8)?;
            if u64::from_ne_bytes(flags) & COMPOUND != 0 {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::testing::skipped;

    #[test]
    fn pages_of_tmpfs_are_small_unless_it_is_asked_for_large_ones() {
        let folios = match Folios::open() {
            Ok(folios) => folios,
            Err(error) => return skipped(&format!("needs root: {error}")),
        };
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all_at(&[1; 3 * 4096], 0).unwrap();
        assert_eq!(folios.any_large(file.as_fd(), 3 * 4096).unwrap(), Some(false));
        assert_eq!(folios.any_large(file.as_fd(), 0).unwrap(), Some(false));
        // Behind the end there is no page.
        assert_eq!(folios.any_large(file.as_fd(), 5 * 4096).unwrap(), None);
    }
}
