//! XFS: the kernel tells its inodes group by group, several groups at a time.

use std::{io, ops::ControlFlow, thread};

use onesweep_layout::tables::xfs::each_group;
use onesweep_sys::{
    files::{self, EntryType},
    xfs::{self, Inode},
};

use super::{BATCH, Facts, Seen, Tell};
use crate::{identity::NodeId, volume::Volume};

/// Groups at the same time, at most.
const THREADS: usize = 4;

/// Tells all inodes that have names.
pub(crate) fn survey(volume: &Volume, key: u64, tell: Tell<'_>) -> io::Result<()> {
    // The size that is told is the one that was written last.
    files::sync_file_system(volume.top())?;
    let block_bytes = files::file_system(volume.top())?.block_size;
    let groups = xfs::facts(volume.top())?.groups;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let ask = |group| survey_group(volume, group, (key, block_bytes), tell).map(ControlFlow::Continue);
    each_group(groups, threads, &ask).map_err(|(_, error)| error)
}

fn survey_group(volume: &Volume, group: u32, (key, block_bytes): (u64, u64), tell: Tell<'_>) -> io::Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    xfs::bulkstat(volume.top(), group, &mut |inode| {
        if inode.nlink > 0 {
            batch.push(seen(&inode, key, block_bytes));
        }
        if batch.len() == BATCH {
            tell(&batch);
            batch.clear();
        }
        true
    })?;
    tell(&batch);
    Ok(())
}

fn seen(inode: &Inode, key: u64, block_bytes: u64) -> Seen {
    let [_, mtime, ctime, _] = inode.times;
    let facts = Facts {
        ino: inode.ino,
        mode: inode.mode,
        links: inode.nlink,
        size: inode.size,
        blocks: inode.blocks.saturating_mul(block_bytes) / 512,
        mtime,
        ctime,
    };
    Seen {
        id: NodeId { subvolume: 0, ino: inode.ino, generation: inode.generation },
        is_directory: EntryType::of_mode(inode.mode) == EntryType::Dir,
        links: inode.nlink,
        stamp: facts.term(key),
        changed_at: ctime.0,
    }
}
