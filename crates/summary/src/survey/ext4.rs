//! ext2, ext3 and ext4: the tables of inodes, by the device below.

use std::{io, ops::ControlFlow, os::fd::AsFd};

use onesweep_layout::{
    Devices,
    tables::{Found, Inode, Name, TableError, ext4::Ext4},
};
use onesweep_sys::files::{self, EntryType};

use super::{BATCH, Facts, Seen, Tell};
use crate::{identity::NodeId, volume::Volume};

/// Tells all inodes that have names, in the order of the disk. What is damaged or can't be read is left out, so that the
/// directories that name it differ from what they were.
pub(crate) fn survey(volume: &Volume, key: u64, tell: Tell<'_>) -> io::Result<()> {
    let stat = files::statx_fd(volume.top())?;
    let stack = Devices::of_system()?.by_stat(&stat).map_err(io::Error::other)?;
    // Times and sizes reach the tables late.
    files::sync_file_system(volume.top().as_fd())?;
    let tables = Ext4::of_mounted(&stack.node, stat.dev)?;
    let mut telling = Telling { key, tell, batch: Vec::with_capacity(BATCH) };
    tables.scan_facts(&mut telling);
    (telling.tell)(&telling.batch);
    Ok(())
}

struct Telling<'a> {
    key: u64,
    tell: Tell<'a>,
    batch: Vec<Seen>,
}

impl Found for Telling<'_> {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let facts = Facts {
            ino: inode.number,
            mode: inode.mode,
            links: inode.links,
            size: inode.size,
            blocks: inode.allocated / 512,
            mtime: (inode.mtime.seconds, inode.mtime.nanoseconds),
            ctime: (inode.ctime.seconds, inode.ctime.nanoseconds),
        };
        self.batch.push(Seen {
            id: NodeId { subvolume: 0, ino: inode.number, generation: inode.generation },
            is_directory: EntryType::of_mode(inode.mode) == EntryType::Dir,
            links: inode.links,
            stamp: facts.term(self.key),
            changed_at: inode.ctime.seconds,
        });
        if self.batch.len() == BATCH {
            (self.tell)(&self.batch);
            self.batch.clear();
        }
        ControlFlow::Continue(())
    }

    fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, _: TableError) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
