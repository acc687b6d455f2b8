//! Where the directories of a mounted XFS lie, by their inodes on the device below it.

use std::{io, os::fd::AsFd, path::Path, sync::Arc};

use onesweep_sys::{block, cache, files};

use super::{
    block::Block,
    extents,
    inode::{DIRECTORY, Dinode},
    volume::Volume,
};
use crate::block_read::{BlockRead, ImageFile};

/// The first blocks of the directories of a mounted XFS.
///
/// The kernel tells them only of a directory that is open, and to open one reads its first block. What is told here comes
/// from the inodes on the device, which the file system writes when it likes: it is good for the order of reads, and for
/// nothing else. When it is dropped, what was read leaves the page cache of the device.
#[derive(Debug)]
pub struct DirectoryPlaces {
    device: Arc<ImageFile>,
    volume: Volume<Arc<ImageFile>>,
}

impl DirectoryPlaces {
    /// Opens the node of the device of a mounted file system, which has the number `dev`. Needs read access to it, mostly
    /// root. Costs the read of the superblock.
    pub fn of_mounted(node: &Path, dev: u64) -> io::Result<DirectoryPlaces> {
        let fd = block::open_device(node)?;
        if files::statx_fd(fd.as_fd())?.rdev != dev {
            return Err(io::Error::other("it is another device now"));
        }
        cache::random_access(fd.as_fd())?;
        let device = Arc::new(ImageFile::new(fd.into())?);
        let volume = Volume::open(Arc::clone(&device)).map_err(io::Error::other)?;
        Ok(DirectoryPlaces { device, volume })
    }

    /// The address of the first block of a directory, in bytes; where its inode has no room for all its extents, that of the
    /// tree that tells of them. `None` when it is in the inode itself, and of what isn't known to be a directory. Costs one
    /// read of a page, unless another inode of that page was read shortly before.
    pub fn first_block(&self, inode: u64) -> Option<u64> {
        first_block(&self.volume, inode)
    }
}

pub(super) fn first_block<B: BlockRead>(volume: &Volume<B>, inode: u64) -> Option<u64> {
    let superblock = &volume.superblock;
    let at = superblock.inode_address(inode)?;
    let bytes = volume.read(at, superblock.inode_bytes()).ok()?;
    let dinode = Dinode::parse(superblock, inode, Block { what: "an inode", at, bytes: &bytes }).ok()?;
    let data = dinode.is(DIRECTORY).then_some(dinode.data)?;
    extents::first_address(volume, &data)
}

impl Drop for DirectoryPlaces {
    fn drop(&mut self) {
        // XFS keeps its metadata elsewhere, so nobody else gains by these pages.
        let _ = cache::drop_cached(self.device.file().as_fd(), 0, self.device.len());
    }
}
