//! ext2, ext3 and ext4: tables and directories by the device below, which shows what the kernel has changed in memory.

use std::{io, sync::Arc};

use onesweep_layout::{
    Devices, ImageFile,
    tables::ext4::{Ext4, LookUp},
};
use onesweep_sys::files;

use super::{Names, Told};
use crate::{identity::NodeId, volume::Volume};

pub(super) struct Tables(Ext4<Arc<ImageFile>>);

impl Tables {
    pub(super) fn of(volume: &Volume) -> io::Result<Tables> {
        let stat = files::statx_fd(volume.top())?;
        let stack = Devices::of_system()?.by_stat(&stat).map_err(io::Error::other)?;
        Ok(Tables(Ext4::of_mounted(&stack.node, stat.dev)?))
    }

    pub(super) fn session(&self) -> Session<'_> {
        Session(self.0.look_up())
    }
}

pub(super) struct Session<'a>(LookUp<'a, Arc<ImageFile>>);

impl Session<'_> {
    /// Tells inodes with these numbers, those that can be told.
    pub(super) fn look(&mut self, inodes: &[u64], found: &mut dyn FnMut(Told)) {
        for &ino in inodes {
            let told = u32::try_from(ino).ok().and_then(|number| self.0.inode(number));
            let Some((inode, has_xattrs)) = told else { continue };
            found(Told {
                ino,
                generation: inode.generation,
                mode: inode.mode,
                links: inode.links,
                owner: (inode.uid, inode.gid),
                size: inode.size,
                blocks: inode.allocated / 512,
                mtime: (inode.mtime.seconds, inode.mtime.nanoseconds),
                ctime: (inode.ctime.seconds, inode.ctime.nanoseconds),
                has_xattrs,
            });
        }
    }

    /// Adds the names of a directory. `None` where they can't all be told, or are more than `most`, or it may have an access list.
    pub(super) fn list(&mut self, directory: NodeId, told: &Told, most: usize, names: &mut Names) -> Option<()> {
        if told.has_xattrs {
            return None;
        }
        let mut count = 0;
        self.0.names(u32::try_from(directory.ino).ok()?, &mut |ino, name| {
            count += 1;
            names.add(ino.into(), name);
            count <= most
        })
    }
}
