//! ext2, ext3 and ext4: tables and directories by the device below, which shows what the kernel has changed in memory.

use std::{io, sync::Arc};

use onesweep_layout::{
    Devices, ImageFile,
    tables::ext4::{Ext4, LookUp},
};
use onesweep_sys::files;

use super::{Names, Told};
use crate::{identity::NodeId, volume::Volume};

/// So many looks tell whether most directories are empty.
const TRIES: usize = 32;

pub(super) struct Tables(Ext4<Arc<ImageFile>>);

impl Tables {
    pub(super) fn of(volume: &Volume) -> io::Result<Tables> {
        let stat = files::statx_fd(volume.top())?;
        let stack = Devices::of_system()?.by_stat(&stat).map_err(io::Error::other)?;
        Ok(Tables(Ext4::of_mounted(&stack.node, stat.dev)?))
    }

    pub(super) fn session(&self) -> Session<'_> {
        Session { look_up: self.0.look_up(), tries: Tries::default() }
    }
}

pub(super) struct Session<'a> {
    look_up: LookUp<'a, Arc<ImageFile>>,
    tries: Tries,
}

/// How often it was looked into a directory, whether it is empty, before its turn.
#[derive(Debug, Default)]
struct Tries {
    made: usize,
    /// So many were empty.
    hit: usize,
    /// A block wasn't in memory: the kernel reads it now, before its turn, and no more of them are to follow.
    has_waited: bool,
}

impl Tries {
    /// Where most directories hold something, each of them is read twice, for nothing.
    fn are_worth_it(&self) -> bool {
        !self.has_waited && (self.made < TRIES || self.hit * 2 >= self.made)
    }

    fn note(&mut self, is_empty: Option<bool>) {
        self.made += 1;
        self.hit += usize::from(is_empty == Some(true));
        self.has_waited |= is_empty.is_none();
    }
}

impl Session<'_> {
    /// Tells inodes with these numbers, those that can be told.
    pub(super) fn look(&mut self, inodes: &[u64], found: &mut dyn FnMut(Told)) {
        for &ino in inodes {
            let told = u32::try_from(ino).ok().and_then(|number| self.look_up.inode(number));
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
        self.look_up.names(u32::try_from(directory.ino).ok()?, &mut |ino, name| {
            count += 1;
            names.add(ino.into(), name);
            count <= most
        })
    }

    /// Whether nothing is in a directory, and it has no access list; that takes a look into its block, where that is in memory.
    pub(super) fn is_known_empty(&mut self, told: &Told) -> bool {
        if told.has_xattrs || !self.tries.are_worth_it() {
            return false;
        }
        let is_empty = u32::try_from(told.ino).ok().and_then(|number| self.look_up.is_one_empty_block(number));
        self.tries.note(is_empty);
        is_empty == Some(true)
    }
}
