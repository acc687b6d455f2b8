//! Bytes of files that come to share one place.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, opcode};

use crate::retry::retry;

/// `FICLONERANGE`.
const FICLONERANGE: Opcode = opcode::write::<CloneRange>(0x94, 13);
/// `FIDEDUPERANGE`; the size in it is that of the header alone.
const FIDEDUPERANGE: Opcode = opcode::read_write::<DedupeHeader>(0x94, 54);
/// Of the answer: the bytes are others.
const FILE_DEDUPE_RANGE_DIFFERS: i32 = 1;

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source_fd: i64,
    source_offset: u64,
    source_length: u64,
    target_offset: u64,
}

/// `struct file_dedupe_range` without its array.
#[repr(C)]
struct DedupeHeader {
    source_offset: u64,
    source_length: u64,
    count: u16,
    reserved1: u16,
    reserved2: u32,
}

/// `struct file_dedupe_range_info`.
#[repr(C)]
struct DedupeTarget {
    fd: i64,
    offset: u64,
    bytes: u64,
    status: i32,
    reserved: u32,
}

/// Header and one target, as the kernel wants them in a row.
#[repr(C)]
struct DedupeRequest {
    header: DedupeHeader,
    target: DedupeTarget,
}

const _: () = assert!(size_of::<CloneRange>() == 32 && FICLONERANGE == 0x4020_940D);
const _: () = assert!(size_of::<DedupeHeader>() == 24 && FIDEDUPERANGE == 0xC018_9436);
const _: () = assert!(size_of::<DedupeTarget>() == 32 && size_of::<DedupeRequest>() == 56);

/// Bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The first.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// Makes `target` share bytes of `source` from `offset` on, whatever it has there, and makes it as long as that takes.
///
/// All numbers are multiples of a block, but for an end that is the end of `source`. `EOPNOTSUPP` where the file system cannot,
/// `EXDEV` across two of them.
#[doc(alias = "FICLONERANGE")]
pub fn clone_part(source: BorrowedFd<'_>, part: Part, target: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    let argument = CloneRange {
        source_fd: source.as_raw_fd().into(),
        source_offset: part.offset,
        source_length: part.bytes,
        target_offset: offset,
    };
    // SAFETY: the kernel reads a `struct file_clone_range`, which this is (asserted above).
    retry(|| unsafe { libc::ioctl(target.as_raw_fd(), FICLONERANGE as _, &raw const argument) })
}

/// Makes `target` share bytes of `source` from `offset` on **if it has the same ones there**: the kernel compares them while
/// nobody can write to either. Gives how many it shares now; `None` when they differ. Contents and times stay.
///
/// What is dirty of both is written first. Both offsets are multiples of a block, and so is the end, unless both files end
/// there; where only one does, the block with the end is left out. What was in memory of the part of `target` is dropped.
///
/// `EINVAL` when the part reaches beyond the end of either, `EPERM` for a file that the caller may not write, or nobody may,
/// `ETXTBSY` for one that is swapped to, `EOPNOTSUPP` where the file system cannot, `EXDEV` across two of them.
#[doc(alias = "FIDEDUPERANGE")]
pub fn share_equal(source: BorrowedFd<'_>, part: Part, target: BorrowedFd<'_>, offset: u64) -> io::Result<Option<u64>> {
    let mut request = DedupeRequest {
        header: DedupeHeader {
            source_offset: part.offset,
            source_length: part.bytes,
            count: 1,
            reserved1: 0,
            reserved2: 0,
        },
        target: DedupeTarget { fd: target.as_raw_fd().into(), offset, bytes: 0, status: 0, reserved: 0 },
    };
    // SAFETY: the request is a header that says that there is one target behind it, and that target.
    retry(|| unsafe { libc::ioctl(source.as_raw_fd(), FIDEDUPERANGE as _, &raw mut request) })?;
    match request.target.status {
        0 => Ok(Some(request.target.bytes)),
        FILE_DEDUPE_RANGE_DIFFERS => Ok(None),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::testing::on_xfs;

    #[test]
    fn file_systems_that_share_nothing_say_so() {
        let (one, other) = (tempfile::tempfile_in("/dev/shm").unwrap(), tempfile::tempfile_in("/dev/shm").unwrap());
        for file in [&one, &other] {
            file.write_all_at(&[1; 8192], 0).unwrap();
        }
        let part = Part { offset: 0, bytes: 4096 };
        let cannot = |error: io::Error| matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL));
        assert!(cannot(clone_part(one.as_fd(), part, other.as_fd(), 0).unwrap_err()));
        assert!(cannot(share_equal(one.as_fd(), part, other.as_fd(), 0).unwrap_err()));
    }

    #[test]
    fn only_equal_bytes_are_shared() {
        on_xfs(|own| {
            let (one, other) = (tempfile::tempfile_in(&own.root).unwrap(), tempfile::tempfile_in(&own.root).unwrap());
            one.write_all_at(&[1; 5000], 4096).unwrap();
            other.write_all_at(&[1; 5000], 0).unwrap();
            let part = Part { offset: 4096, bytes: 5000 };
            let shared = share_equal(one.as_fd(), part, other.as_fd(), 0).unwrap();
            assert_eq!(shared, Some(5000), "the end is the end of both");
            other.write_all_at(&[2], 4999).unwrap();
            assert_eq!(share_equal(one.as_fd(), part, other.as_fd(), 0).unwrap(), None);
            clone_part(one.as_fd(), part, other.as_fd(), 8192).unwrap();
            let mut bytes = [0; 5000];
            other.read_exact_at(&mut bytes, 8192).unwrap();
            assert_eq!(bytes, [1; 5000]);
        });
    }
}
