//! Bytes of two files of an XFS that change places, where one of them has not changed meanwhile.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, opcode};

use crate::retry::retry;
use crate::sharing::Part;

/// `XFS_IOC_EXCHANGE_RANGE` (Linux 6.10).
const XFS_IOC_EXCHANGE_RANGE: Opcode = opcode::write::<ExchangeRange>(b'X', 129);
/// `XFS_IOC_START_COMMIT` (Linux 6.12).
const XFS_IOC_START_COMMIT: Opcode = opcode::read::<CommitRange>(b'X', 130);
/// `XFS_IOC_COMMIT_RANGE` (Linux 6.12).
const XFS_IOC_COMMIT_RANGE: Opcode = opcode::write::<CommitRange>(b'X', 131);

/// `struct xfs_exchange_range`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ExchangeRange {
    file1_fd: i32,
    pad: u32,
    file1_offset: u64,
    file2_offset: u64,
    length: u64,
    flags: u64,
}

/// `struct xfs_commit_range`: the same, and what the second file was like.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CommitRange {
    range: ExchangeRange,
    file2_freshness: [u64; 6],
}

const _: () = assert!(size_of::<ExchangeRange>() == 40 && XFS_IOC_EXCHANGE_RANGE == 0x4028_5881);
const _: () = assert!(size_of::<CommitRange>() == 88 && XFS_IOC_START_COMMIT == 0x8058_5882);
const _: () = assert!(XFS_IOC_COMMIT_RANGE == 0x4058_5883 && std::mem::offset_of!(CommitRange, file2_freshness) == 40);

impl ExchangeRange {
    fn of(one: BorrowedFd<'_>, part: Part, offset: u64) -> Self {
        Self {
            file1_fd: one.as_raw_fd(),
            file1_offset: part.offset,
            file2_offset: offset,
            length: part.bytes,
            ..Self::default()
        }
    }
}

/// What a file was like at some moment: which one it is, and when it was changed last.
#[derive(Clone, Copy, Debug)]
pub struct Sample([u64; 6]);

/// Looks at a file for a later [`exchange_if_same`]. From Linux 6.13 on a change after that is told from any before, however soon it
/// comes.
///
/// Who has the file open for writing already may be in the middle of a change of which the file has the time by now, but not yet the
/// bytes: through a mapping, or past the page cache.
///
/// `ENOTTY` on other file systems and before Linux 6.12.
#[doc(alias = "XFS_IOC_START_COMMIT")]
pub fn sample(file: BorrowedFd<'_>) -> io::Result<Sample> {
    let mut argument = CommitRange::default();
    // SAFETY: the kernel writes a `struct xfs_commit_range`, which this is (asserted above).
    retry(|| unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_START_COMMIT as _, &raw mut argument) })?;
    Ok(Sample(argument.file2_freshness))
}

/// Has a part of one file and as many bytes of another, from `offset` on, change places, and so their contents, in one transaction.
/// Both files are open for reading and writing, by one mount.
///
/// Offsets are multiples of a block, and so is the number of bytes, unless both parts end where their files do. Nothing reaches
/// beyond the end of either. What is dirty of both is written first, and what was in memory of them is dropped. The times of change of
/// both become now, unless a descriptor [leaves them](crate::xfs::open_timeless); setuid, setgid and file capabilities go.
///
/// `EINVAL` for other parts, `EPERM` and `ETXTBSY` for a file that nobody may change or that is swapped to, `EXDEV` across two mounts,
/// `EOPNOTSUPP` where the file system lacks the feature (`mkfs.xfs -i exchange=1`), `ENOTTY` on others and before Linux 6.10.
#[doc(alias = "XFS_IOC_EXCHANGE_RANGE")]
pub fn exchange(one: BorrowedFd<'_>, part: Part, other: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    let argument = ExchangeRange::of(one, part, offset);
    // SAFETY: the kernel reads a `struct xfs_exchange_range`, which this is (asserted above).
    retry(|| unsafe { libc::ioctl(other.as_raw_fd(), XFS_IOC_EXCHANGE_RANGE as _, &raw const argument) })
}

/// As [`exchange`], if the other file is as it was when the sample of it was taken, which the kernel looks at while nobody can write to
/// it; else `EBUSY`.
#[doc(alias = "XFS_IOC_COMMIT_RANGE")]
pub fn exchange_if_same(
    one: BorrowedFd<'_>,
    part: Part,
    other: BorrowedFd<'_>,
    offset: u64,
    sample: &Sample,
) -> io::Result<()> {
    let argument = CommitRange { range: ExchangeRange::of(one, part, offset), file2_freshness: sample.0 };
    // SAFETY: the kernel reads a `struct xfs_commit_range`, which this is (asserted above).
    retry(|| unsafe { libc::ioctl(other.as_raw_fd(), XFS_IOC_COMMIT_RANGE as _, &raw const argument) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_file_systems_say_that_they_cannot() {
        let (one, other) = (tempfile::tempfile_in("/dev/shm").unwrap(), tempfile::tempfile_in("/dev/shm").unwrap());
        let part = Part { offset: 0, bytes: 4096 };
        let errors = [
            sample(one.as_fd()).map(|_| ()),
            exchange(one.as_fd(), part, other.as_fd(), 0),
            exchange_if_same(one.as_fd(), part, other.as_fd(), 0, &Sample([0; 6])),
        ];
        for error in errors {
            assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        }
    }
}
