//! Blocks of a file of ext4 that change places with those of another.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, opcode};

/// `EXT4_IOC_MOVE_EXT`.
const EXT4_IOC_MOVE_EXT: Opcode = opcode::read_write::<MoveExtent>(b'f', 15);

/// `struct move_extent`.
#[repr(C)]
struct MoveExtent {
    reserved: u32,
    donor_fd: u32,
    orig_start: u64,
    donor_start: u64,
    len: u64,
    moved_len: u64,
}

const _: () = assert!(size_of::<MoveExtent>() == 40 && EXT4_IOC_MOVE_EXT == 0xC028_660F);

/// Blocks that are to change places, in blocks of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The first block of the file.
    pub from: u64,
    /// The first block of the donor.
    pub to: u64,
    /// How many.
    pub blocks: u64,
}

/// What became of an exchange.
#[derive(Debug)]
pub struct Exchanged {
    /// Blocks that have changed places, from the first one on but for holes. Linux before 6.8 says 0 after an error.
    pub blocks: u64,
    /// Why there are no more.
    pub error: Option<io::Error>,
}

/// Gives blocks of `file`, which is open for reading and writing, the places that those of `donor` have, with their bytes
/// brought along; contents and times of the file stay. The donor's own bytes are lost: it should be preallocated.
///
/// On ext4 alone, for files with extents. Nothing is waited for: the bytes are dirty pages at the new places, and the old ones
/// hold until the journal is written. Holes are passed over in silence, so the count is to be looked at. With blocks smaller than
/// a page, both numbers must be the same block of their pages.
///
/// `EBUSY` when pages are dirty or in use, `ENODATA` when blocks have no place yet, `ETXTBSY` for a file that is swapped to,
/// `EOPNOTSUPP` where ext4 can't (bigalloc, DAX, data in the journal, encryption, blocks without extents).
///
/// **Never on a file system without a journal**: a crash leaves files with other bytes there.
#[doc(alias = "EXT4_IOC_MOVE_EXT")]
pub fn move_extents(file: BorrowedFd<'_>, donor: BorrowedFd<'_>, exchange: Exchange) -> Exchanged {
    let mut argument = MoveExtent {
        reserved: 0,
        donor_fd: donor.as_raw_fd() as u32,
        orig_start: exchange.from,
        donor_start: exchange.to,
        len: exchange.blocks,
        moved_len: 0,
    };
    // SAFETY: the kernel reads and writes a `struct move_extent`, which this is (asserted above).
    let status = unsafe { libc::ioctl(file.as_raw_fd(), EXT4_IOC_MOVE_EXT as _, &raw mut argument) };
    let error = (status != 0).then(io::Error::last_os_error);
    Exchanged { blocks: argument.moved_len, error }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_file_systems_say_that_they_cannot() {
        let (file, donor) = (std::fs::File::open("/proc/self/status").unwrap(), tempfile::tempfile().unwrap());
        let told = move_extents(file.as_fd(), donor.as_fd(), Exchange { from: 0, to: 0, blocks: 1 });
        assert_eq!(told.blocks, 0);
        assert!(matches!(told.error.unwrap().raw_os_error(), Some(libc::ENOTTY | libc::EOPNOTSUPP)));
    }
}
