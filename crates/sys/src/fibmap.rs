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
