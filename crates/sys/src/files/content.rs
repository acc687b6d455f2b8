//! The bytes of an open file: reading, holes, copying, writing out.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// True for errors by which a kernel or file system says that it has no such way of reading.
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Reads at `offset`; fewer bytes than asked for at the end of the file, and whenever the kernel likes.
#[doc(alias = "pread")]
pub fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(fd, buffer, offset)?)
}

/// As [`read_at`], until the buffer is full or the file ends: fewer bytes are all that there are. An error is one even behind bytes that
/// could be read, since those would pass for all.
#[doc(alias = "pread")]
pub fn fill_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

/// As [`read_at`], but what it brings into the page cache does not stay there (`RWF_DONTCACHE`, Linux 6.14). A
/// [refusal](is_refusal) where the kernel or the file system can't do that.
#[doc(alias = "RWF_DONTCACHE")]
pub fn read_at_uncached(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    const DONTCACHE: rustix::io::ReadWriteFlags = rustix::io::ReadWriteFlags::from_bits_retain(0x80);
    Ok(rustix::io::preadv2(fd, &mut [io::IoSliceMut::new(buffer)], offset, DONTCACHE)?)
}

/// As [`read_at`], but `None` where it would have to wait for the disk, or the file system doesn't tell. The kernel may begin
/// to read ahead.
#[doc(alias = "RWF_NOWAIT")]
pub fn read_at_if_cached(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    read_parts_at_if_cached(fd, &mut [io::IoSliceMut::new(buffer)], offset)
}

/// As [`read_at`], into several buffers, one after the other.
pub fn read_parts_at(fd: BorrowedFd<'_>, buffers: &mut [io::IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::preadv(fd, buffers, offset)?)
}

/// As [`read_at_if_cached`], into several buffers, one after the other.
#[doc(alias = "RWF_NOWAIT")]
pub fn read_parts_at_if_cached(
    fd: BorrowedFd<'_>,
    buffers: &mut [io::IoSliceMut<'_>],
    offset: u64,
) -> io::Result<Option<usize>> {
    match rustix::io::preadv2(fd, buffers, offset, rustix::io::ReadWriteFlags::NOWAIT) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes all bytes, and waits until these are durable, whatever else of the file is not. A [refusal](is_refusal) where the kernel
/// or the file system can't do that.
#[doc(alias = "RWF_DSYNC")]
pub fn write_all_durably_at(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while let Some(left) = bytes.get(done..).filter(|left| !left.is_empty()) {
        let flags = rustix::io::ReadWriteFlags::DSYNC;
        match rustix::io::pwritev2(fd, &[io::IoSlice::new(left)], offset + done as u64, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The first byte at or behind `offset` that is not in a hole; `None` when only a hole is left. Moves the descriptor.
#[doc(alias = "SEEK_DATA")]
pub fn seek_data(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Option<u64>> {
    seek(fd, SeekFrom::Data(offset))
}

/// The first byte at or behind `offset` that is in a hole, at the latest the end of the file; `None` behind the end.
/// Moves the descriptor.
#[doc(alias = "SEEK_HOLE")]
pub fn seek_hole(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Option<u64>> {
    seek(fd, SeekFrom::Hole(offset))
}

fn seek(fd: BorrowedFd<'_>, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(fd, to) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Copies inside the kernel; gives the bytes copied, 0 at the end of `source`. `EXDEV` across most file systems.
#[doc(alias = "copy_file_range")]
pub fn copy_range(
    source: BorrowedFd<'_>,
    source_offset: u64,
    target: BorrowedFd<'_>,
    target_offset: u64,
    len: usize,
) -> io::Result<usize> {
    let (mut from, mut to) = (source_offset, target_offset);
    Ok(rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), len)?)
}

/// Finds places for the first `bytes` of a file, which it is made as long as, and which read as zeros.
#[doc(alias = "fallocate")]
pub fn allocate(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    Ok(super::open::again(|| rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, bytes))?)
}

/// Finds places for so many bytes from `offset` on. The file becomes as long as that takes, and they read as zeros where nothing was written.
#[doc(alias = "fallocate")]
pub fn allocate_part(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(super::open::again(|| rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), offset, bytes))?)
}

/// Gives places of a file back: the bytes read as zeros then, and its size stays.
#[doc(alias = "FALLOC_FL_PUNCH_HOLE")]
pub fn give_back(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    Ok(super::open::again(|| rustix::fs::fallocate(fd, flags, offset, bytes))?)
}

/// Moves all bytes from `offset` on further behind by `bytes`, both in whole blocks, so that a hole comes to lie there. No place changes.
#[doc(alias = "FALLOC_FL_INSERT_RANGE")]
pub fn insert_hole(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(super::open::again(|| rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::INSERT_RANGE, offset, bytes))?)
}

/// Takes bytes out of a file, in whole blocks, so that those behind them follow those before. Their places are given back; no other changes.
/// `EINVAL` where nothing is behind them.
#[doc(alias = "FALLOC_FL_COLLAPSE_RANGE")]
pub fn take_out(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(super::open::again(|| rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::COLLAPSE_RANGE, offset, bytes))?)
}

/// Makes `target` share all bytes of `source`. `EOPNOTSUPP` where the file system cannot, `EXDEV` across two of them.
#[doc(alias = "FICLONE")]
pub fn clone_file(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(target, source)?)
}

/// Reserves places from `offset` on without making the file longer: those behind its end stay for what it grows by. Each call asks
/// for space of its own.
#[doc(alias = "FALLOC_FL_KEEP_SIZE")]
pub fn reserve_part(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(super::open::again(|| rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::KEEP_SIZE, offset, bytes))?)
}

/// Writes the dirty bytes of one file to its device, with its size but without its times.
#[doc(alias = "fdatasync")]
pub fn sync_data(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(fd)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn holes_are_found() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 1 << 20).unwrap();
        file.set_len(2 << 20).unwrap();
        assert_eq!(seek_data(file.as_fd(), 0).unwrap(), Some(1 << 20));
        assert_eq!(seek_hole(file.as_fd(), 0).unwrap(), Some(0));
        assert_eq!(seek_hole(file.as_fd(), 1 << 20).unwrap(), Some((1 << 20) + 4096));
        assert_eq!(seek_data(file.as_fd(), (1 << 20) + 4096).unwrap(), None);
        assert_eq!(seek_hole(file.as_fd(), 2 << 20).unwrap(), None);
    }

    #[test]
    fn a_buffer_is_filled_as_far_as_the_file_goes() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"0123456789", 0).unwrap();
        let mut bytes = [9; 8];
        assert_eq!(fill_at(file.as_fd(), &mut bytes, 1).unwrap(), 8);
        assert_eq!(&bytes, b"12345678");
        assert_eq!(fill_at(file.as_fd(), &mut bytes, 7).unwrap(), 3);
        assert_eq!(&bytes, b"78945678");
        assert_eq!(fill_at(file.as_fd(), &mut bytes, 100).unwrap(), 0);
        fill_at(std::fs::File::open("/").unwrap().as_fd(), &mut bytes, 0).unwrap_err();
    }

    #[test]
    fn bytes_are_written_durably() {
        let file = tempfile::tempfile().unwrap();
        write_all_durably_at(file.as_fd(), &[7; 10_000], 5000).unwrap();
        let mut bytes = [9; 15_000];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert!(bytes[..5000] == [0; 5000] && bytes[5000..] == [7; 10_000]);
    }

    #[test]
    fn places_are_given_back() {
        let file = tempfile::tempfile().unwrap();
        allocate(file.as_fd(), 3 * 4096).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 3 * 4096], 0).unwrap();
        give_back(file.as_fd(), 4096, 4096).unwrap();
        let mut bytes = [9; 3 * 4096];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert!(bytes.chunks(4096).map(|block| block[0]).eq([1, 0, 1]));
        assert_eq!(seek_hole(file.as_fd(), 0).unwrap(), Some(4096));
    }

    #[test]
    fn ranges_are_copied_in_the_kernel() {
        let (source, target) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        std::os::unix::fs::FileExt::write_all_at(&source, b"0123456789", 0).unwrap();
        assert_eq!(copy_range(source.as_fd(), 4, target.as_fd(), 2, 100).unwrap(), 6);
        let mut bytes = [9; 8];
        std::os::unix::fs::FileExt::read_exact_at(&target, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\x00456789");
        assert_eq!(copy_range(source.as_fd(), 10, target.as_fd(), 0, 100).unwrap(), 0);
    }

    #[test]
    fn places_are_reserved_behind_the_end() {
        let file = tempfile::tempfile().unwrap();
        let bytes = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
        reserve_part(file.as_fd(), 0, 1 << 20).unwrap();
        assert_eq!((file.metadata().unwrap().len(), bytes() >= 1 << 20), (0, true));
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 100], 0).unwrap();
        assert_eq!((file.metadata().unwrap().len(), bytes() >= 1 << 20), (100, true));
    }
}
