//! Pages of a file in memory that are parts of larger folios.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

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
    /// Pages that are not in memory are read, and it's no error here when that fails. Looks at each page: for small files.
    pub fn any_large(&self, fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Option<bool>> {
        if bytes == 0 {
            return Ok(Some(false));
        }
        mapped(fd, bytes, |start| self.look(start.addr() as u64, bytes.div_ceil(crate::memory::page_len())))
    }

    fn look(&self, address: u64, pages: usize) -> io::Result<Option<bool>> {
        let first = address / crate::memory::page_bytes();
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

/// Divides the folios that hold the first `bytes` of a file that is open for reading into folios of one page.
///
/// Pages that are not in memory are read, where that is possible. Folios that others have mapped, too, stay as they are, and nobody is told. All count as
/// cold afterwards. A system call for each page: for small files.
#[doc(alias = "MADV_COLD")]
pub fn make_small(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let page = crate::memory::page_len();
    if bytes == 0 {
        return Ok(());
    }
    mapped(fd, bytes, |start| {
        for at in (0..bytes).step_by(page) {
            // SAFETY: a page of the mapping. That a part of a folio is cold has the kernel divide it (Linux 5.4).
            unsafe { madvise(start.byte_add(at), page, Advice::LinuxCold)? };
        }
        Ok(())
    })
}

/// Gives the start of a mapping of a file, all of it in memory that can be, which is gone afterwards.
fn mapped<T>(fd: BorrowedFd<'_>, bytes: usize, body: impl FnOnce(*mut libc::c_void) -> io::Result<T>) -> io::Result<T> {
    // SAFETY: a new mapping at an address of the kernel's choice, never read or written.
    let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, fd, 0)? };
    // SAFETY: exactly the mapping made above. With `MAP_POPULATE` the kernel would try for ever to read what can't be read.
    let populated = unsafe { madvise(start, bytes, Advice::LinuxPopulateRead) };
    let answer = match populated {
        // A page that isn't there, behind the end or on a bad place, or a kernel before 5.14: `body` finds what there is.
        Ok(()) | Err(Errno::FAULT | Errno::INVAL) => body(start),
        Err(error) => Err(error.into()),
    };
    // SAFETY: exactly the mapping made above, of which nothing is kept.
    unsafe { munmap(start, bytes)? };
    answer
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::testing::{on_xfs, skipped};

    #[test]
    fn folios_are_divided_in_memory() {
        const BYTES: usize = 64 << 10;
        on_xfs(|own| {
            let folios = Folios::open().unwrap();
            let file = tempfile::tempfile_in(&own.root).unwrap();
            file.write_all_at(&[7; BYTES], 0).unwrap();
            file.sync_all().unwrap();
            assert_eq!(folios.any_large(file.as_fd(), BYTES).unwrap(), Some(true), "one write is one folio");
            make_small(file.as_fd(), BYTES).unwrap();
            assert_eq!(folios.any_large(file.as_fd(), BYTES).unwrap(), Some(false));
            make_small(file.as_fd(), 0).unwrap();
        });
    }

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
