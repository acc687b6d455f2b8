//! The blocks of a file one by one (`FIBMAP`), for file systems without FIEMAP.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};

/// `FIBMAP`.
const FIBMAP: Opcode = opcode::none(0x00, 1);
/// `FIGETBSZ`.
const FIGETBSZ: Opcode = opcode::none(0x00, 2);

/// Bytes of a block of the file system, the unit of [`block_address`].
#[doc(alias = "FIGETBSZ")]
pub fn block_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: FIGETBSZ is a getter that writes an int.
    let bytes = unsafe { ioctl(fd, Getter::<FIGETBSZ, libc::c_int>::new()) }?;
    u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The block of the device that holds block `number` of the file; `None` for a hole.
///
/// Needs `CAP_SYS_RAWIO`. `EOPNOTSUPP`, `EINVAL` or `ENOTTY` where the file system cannot. May write dirty bytes
/// back first. Blocks beyond 2³¹ cannot be asked for or told (`EFBIG`, `ERANGE`).
#[doc(alias = "FIBMAP")]
pub fn block_address(fd: BorrowedFd<'_>, number: u64) -> io::Result<Option<u64>> {
    let number = libc::c_int::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    let mut block = number;
    // SAFETY: FIBMAP reads and writes one int.
    unsafe { ioctl(fd, Updater::<FIBMAP, libc::c_int>::new(&mut block)) }?;
    match u64::try_from(block) {
        Ok(0) => Ok(None),
        Ok(block) => Ok(Some(block)),
        Err(_) => Err(io::Error::from_raw_os_error(libc::ERANGE)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::fiemap::{FiemapBuffer, extents};
    use crate::testing::skipped;

    #[test]
    fn blocks_are_where_fiemap_says() {
        let file = tempfile::tempfile().unwrap();
        let bytes = u64::from(block_bytes(file.as_fd()).unwrap());
        file.write_all_at(&[1; 100], 3 * bytes).unwrap();
        file.sync_all().unwrap();
        let found = match block_address(file.as_fd(), 3) {
            Ok(found) => found.expect("the block is not a hole"),
            Err(error) => return skipped(&format!("no FIBMAP here: {error}")),
        };
        assert_eq!(block_address(file.as_fd(), 0).unwrap(), None, "a hole");
        let mut places = Vec::new();
        extents(file.as_fd(), &mut FiemapBuffer::new(4), &mut |extent| places.push((extent.logical, extent.physical)))
            .unwrap();
        assert_eq!(places, [(3 * bytes, found * bytes)]);
    }

    #[test]
    fn blocks_too_far_out_are_refused() {
        let file = tempfile::tempfile().unwrap();
        let error = block_address(file.as_fd(), 1 << 31).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    }
}
