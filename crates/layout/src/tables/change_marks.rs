//! What changes in the tables of a file system whenever it is mounted and written to.

use super::{
    beginning::{Kind, is_btrfs},
    ext4, ntfs, xfs,
};
use crate::block_read::BlockRead;

/// Numbers that are other ones after a file system was mounted and written to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeMarks {
    /// ext4: s_wtime, s_mtime, s_mnt_count, s_kbytes_written, a sum of the whole superblock, and of the journal the number of its next transaction and where
    /// it begins.
    Ext4(Vec<u64>),
    /// XFS: the head of the log, its round and its block, and a sum of the superblocks and the headers of the groups.
    Xfs(Vec<u64>),
    /// btrfs: the generation, of this device of it.
    Btrfs(Vec<u64>),
    /// NTFS: the restart LSN of $LogFile, how often records of the system's files were written, and a sum of all records.
    Ntfs(Vec<u64>),
}

/// The marks of the file system that begins at byte 0.
///
/// `None` where it is none of these, where its tables can't be read, and where they tell nothing or too much: an NTFS whose
/// $LogFile is empty, as it is when it was made, and one with more than 256 MiB of records, which would all be read. Bytes that were written past the file system change no mark; those that its own tools
/// write to headers do.
pub fn change_marks(device: &impl BlockRead) -> Option<ChangeMarks> {
    if is_btrfs(device) {
        return btrfs(device).map(ChangeMarks::Btrfs);
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.has_magic(device))?;
    match kind {
        Kind::Ext4 => ext4::change_marks(device).ok().map(ChangeMarks::Ext4),
        Kind::Xfs => xfs::change_marks(device).ok().flatten().map(ChangeMarks::Xfs),
        Kind::Ntfs => ntfs::change_marks(device).ok().flatten().map(ChangeMarks::Ntfs),
    }
}

/// The first superblock of a btrfs.
const BTRFS_SUPERBLOCK: u64 = 0x1_0000;

fn btrfs(device: &impl BlockRead) -> Option<Vec<u64>> {
    let mut superblock = [0; 0x80];
    device.read_at(&mut superblock, BTRFS_SUPERBLOCK).ok()?;
    // The place of the superblock itself, which it has to tell rightly; the generation; the root of the tree of roots; and
    // how many bytes are in use.
    let number = |at: usize| superblock[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (place, generation, root, used) = (number(0x30), number(0x48), number(0x50), number(0x78));
    (place == BTRFS_SUPERBLOCK).then(|| vec![generation, root, used])
}
