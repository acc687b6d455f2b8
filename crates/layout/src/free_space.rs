//! What of a file system is free, and in pieces of which size.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

use std::{io, ops::Range, os::fd::BorrowedFd};

use onesweep_sys::{files, fsmap};
use thiserror::Error;

/// Free pieces by size: what a file system can still give out in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeBySize {
    /// Bytes that are free.
    pub bytes: u64,
    /// Pieces that they lie in.
    pub pieces: u64,
    /// Bytes of the largest piece.
    pub largest: u64,
    /// By the power of two that a piece has at least: pieces and bytes.
    classes: [(u64, u64); 64],
}

impl Default for FreeBySize {
    fn default() -> Self {
        Self { bytes: 0, pieces: 0, largest: 0, classes: [(0, 0); 64] }
    }
}

/// Free pieces of nearly one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// The least that a piece of it has, in bytes: a power of two. The next class begins at twice as many.
    pub from: u64,
    /// Pieces.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl FreeBySize {
    /// Counts a piece.
    pub fn add(&mut self, bytes: u64) {
        let Some(class) = bytes.checked_ilog2() else { return };
        self.bytes = self.bytes.saturating_add(bytes);
        self.pieces += 1;
        self.largest = self.largest.max(bytes);
        let (pieces, sum) = &mut self.classes[class as usize];
        *pieces += 1;
        *sum = sum.saturating_add(bytes);
    }

    /// The classes that have pieces, by rising size.
    pub fn classes(&self) -> impl Iterator<Item = SizeClass> {
        let classes = self.classes.iter().enumerate().filter(|(_, (pieces, _))| *pieces > 0);
        classes.map(|(log, &(pieces, bytes))| SizeClass { from: 1 << log, pieces, bytes })
    }
}

/// Joins runs that come by rising address, and passes each on when nothing more can join it.
#[derive(Debug)]
pub struct Joined<F: FnMut(Range<u64>)> {
    open: Option<Range<u64>>,
    each: F,
}

impl<F: FnMut(Range<u64>)> Joined<F> {
    /// Passes runs on to `each`.
    pub fn new(each: F) -> Self {
        Self { open: None, each }
    }

    /// Takes the next run.
    pub fn add(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        match &mut self.open {
            Some(open) if open.end == start => open.end = end,
            open => {
                if let Some(complete) = open.replace(start..end) {
                    (self.each)(complete);
                }
            }
        }
    }

    /// Passes the last one on.
    pub fn finish(mut self) {
        if let Some(open) = self.open.take() {
            (self.each)(open);
        }
    }
}

/// Why nothing is known of free space.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NotTold {
    /// The kernel can't be asked.
    #[error("{fs_type} does not tell which of its space is free{advice}")]
    ByFileSystem {
        /// Its type.
        fs_type: String,
        /// What to do.
        advice: &'static str,
    },
    /// The kernel tells root alone.
    #[error("only root is told which space is free")]
    ByKernel,
    /// Something else.
    #[error(transparent)]
    Io(io::Error),
}

/// Visits the free runs of the mounted file system of type `fs_type` that `fd` lies on, in bytes of its device, by rising
/// address; neighbours are joined.
///
/// ext4 and XFS tell them (`FS_IOC_GETFSMAP`), also to users who aren't root. `fd` is open for reading.
pub fn of_mounted(fd: BorrowedFd<'_>, fs_type: &str, each: impl FnMut(Range<u64>)) -> Result<(), NotTold> {
    let dev = files::statx_fd(fd).map_err(NotTold::Io)?.dev;
    let mut joined = Joined::new(each);
    fsmap::free_runs(fd, dev, &mut |start, length| {
        joined.add(start, length);
        true
    })
    .map_err(|error| not_told(error, fs_type))?;
    joined.finish();
    Ok(())
}

fn not_told(error: io::Error, fs_type: &str) -> NotTold {
    const ENOTTY: i32 = 25;
    const EOPNOTSUPP: i32 = 95;
    let advice = match fs_type {
        "btrfs" => ", but by chunks (btrfs filesystem usage)",
        "ntfs" | "ntfs3" | "fuseblk" | "ext2" | "ext3" => " while it is mounted; unmount it and name its device",
        _ => "",
    };
    match error.raw_os_error() {
        Some(ENOTTY | EOPNOTSUPP) => NotTold::ByFileSystem { fs_type: fs_type.to_owned(), advice },
        _ if error.kind() == io::ErrorKind::PermissionDenied => NotTold::ByKernel,
        _ => NotTold::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_by_their_power_of_two() {
        let mut free = FreeBySize::default();
        [4096, 8191, 8192, 1 << 30, 0].into_iter().for_each(|bytes| free.add(bytes));
        assert_eq!((free.bytes, free.pieces, free.largest), (4096 + 8191 + 8192 + (1 << 30), 4, 1 << 30));
        let class = |from, pieces, bytes| SizeClass { from, pieces, bytes };
        let expected = [class(4096, 2, 4096 + 8191), class(8192, 1, 8192), class(1 << 30, 1, 1 << 30)];
        assert_eq!(free.classes().collect::<Vec<_>>(), expected);
        free.add(u64::MAX);
        assert_eq!(free.classes().last().unwrap().from, 1 << 63);
    }

    #[test]
    fn neighbours_are_one_piece() {
        let mut told = Vec::new();
        let mut joined = Joined::new(|run| told.push(run));
        for (start, length) in [(0, 4), (4, 4), (9, 1), (10, 2), (20, 1)] {
            joined.add(start, length);
        }
        joined.finish();
        assert_eq!(told, [0..8, 9..12, 20..21]);
    }

    #[test]
    fn why_nothing_is_told_is_told() {
        let said = |number, fs_type| not_told(io::Error::from_raw_os_error(number), fs_type).to_string();
        assert!(said(25, "btrfs").contains("btrfs does not tell") && said(25, "btrfs").contains("by chunks"));
        assert_eq!(said(95, "tmpfs"), "tmpfs does not tell which of its space is free");
        assert_eq!(said(1, "xfs"), "only root is told which space is free");
    }
}
