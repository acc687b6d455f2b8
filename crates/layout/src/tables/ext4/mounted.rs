//! A mounted file system by the device below it.

use std::{io, os::fd::AsFd, path::Path, sync::Arc};

use onesweep_sys::{block, cache, files};

use super::Ext4;
use crate::{block_read::ImageFile, tables::TableError};

impl Ext4<Arc<ImageFile>> {
    /// Opens a mounted file system by the node of its device, which has the number `dev`. Needs read access to it, mostly
    /// root. Nothing but what is asked for comes into the page cache.
    pub fn of_mounted(node: &Path, dev: u64) -> io::Result<Ext4<Arc<ImageFile>>> {
        let fd = block::open_device(node)?;
        if files::statx_fd(fd.as_fd())?.rdev != dev {
            return Err(io::Error::other("it is another device now"));
        }
        cache::random_access(fd.as_fd())?;
        let device = Arc::new(ImageFile::new(fd.into())?);
        let tables = match Ext4::open_mounted(Arc::clone(&device)) {
            // The kernel may have been writing the superblock just then, as its checksum told.
            Err(TableError::Damaged { .. }) => Ext4::open_mounted(device),
            opened => opened,
        };
        tables.map_err(io::Error::other)
    }

    /// Whether half of the tables of inodes, or more, is in memory.
    pub fn is_mostly_cached(&self) -> bool {
        let fd = self.volume.device.file().as_fd();
        let page = onesweep_sys::memory::page_bytes();
        let cached = self.volume.tables().into_iter().map(|table| {
            let (at, end) =
                (self.volume.byte_of(table.block), self.volume.byte_of(table.block + u64::from(table.count)));
            cache::residency(fd, at, end - at).map_or(0, |found| found.cached * page)
        });
        cached.sum::<u64>() >= self.table_bytes() / 2
    }

    /// Whether half of the blocks that hold these inodes, or more, is in memory.
    pub fn are_mostly_cached(&self, inodes: impl Iterator<Item = u32>) -> bool {
        let fd = self.volume.device.file().as_fd();
        let block_bytes = u64::from(self.volume.superblock.block_bytes);
        let (mut all, mut cached) = (0_u64, 0);
        for (block, _) in inodes.filter_map(|inode| self.volume.inode_place(inode)) {
            let found = cache::residency(fd, self.volume.byte_of(block), block_bytes);
            all += 1;
            cached += u64::from(found.is_ok_and(|found| found.cached > 0));
        }
        cached * 2 >= all
    }
}
