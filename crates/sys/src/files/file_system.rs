//! The file system that a file is on.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The file system of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its [magic number](super::magic), as in `statfs`.
    pub magic: u32,
    /// Its number: of ext4 and btrfs (of each subvolume another) made from its UUID, of others from the device that it lies on.
    pub id: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that hold nothing.
    pub blocks_free: u64,
    /// Inodes; 0 where they are made as needed.
    pub inodes: u64,
    /// Inodes that are in use.
    pub inodes_used: u64,
}

/// The file system of an open file.
#[doc(alias = "fstatfs")]
pub fn file_system(fd: BorrowedFd<'_>) -> io::Result<FileSystem> {
    let found = rustix::fs::fstatfs(fd)?;
    Ok(FileSystem {
        magic: found.f_type as u32,
        id: rustix::fs::fstatvfs(fd)?.f_fsid,
        block_size: found.f_bsize as u64,
        blocks: found.f_blocks,
        blocks_free: found.f_bfree,
        inodes: found.f_files,
        inodes_used: found.f_files.saturating_sub(found.f_ffree),
    })
}

/// Whether nobody can write below a directory: where it is mounted for reading alone, and in a read-only subvolume of btrfs.
#[doc(alias = "EROFS")]
pub fn is_read_only(directory: BorrowedFd<'_>) -> io::Result<bool> {
    use rustix::fs::{Access, AtFlags, accessat};
    match accessat(directory, c".", Access::WRITE_OK, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::ACCESS) => Ok(false),
        Err(rustix::io::Errno::ROFS) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether nothing of the file system may be run, nor be loaded into a program.
#[doc(alias = "ST_NOEXEC")]
pub fn forbids_execution(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fstatvfs(fd)?.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
}

/// Whether the caller may write to a file by its permissions, as they are for who runs this; true where that can't be told.
pub fn may_write(path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    !matches!(
        accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM)
    )
}

/// Writes everything dirty of the file system of `fd` to its device.
#[doc(alias = "syncfs")]
pub fn sync_file_system(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fd)?)
}

/// Makes the names in an open directory durable: what was made, renamed or removed there.
#[doc(alias = "fsync")]
pub fn sync_directory(fd: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fsync(fd) {
        // A file system that has no such call for directories.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => sync_file_system(fd),
        synced => Ok(synced?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::sync_data;

    #[test]
    fn file_system_has_blocks() {
        let file = tempfile::tempfile().unwrap();
        let found = file_system(file.as_fd()).unwrap();
        assert!(found.block_size >= 512 && found.blocks_free <= found.blocks && found.magic != 0);
        sync_data(file.as_fd()).unwrap();
        sync_file_system(file.as_fd()).unwrap();
        sync_directory(std::fs::File::open("/").unwrap().as_fd()).unwrap();
        // Nobody syncs a directory there.
        sync_directory(std::fs::File::open("/proc").unwrap().as_fd()).unwrap();
    }
}
