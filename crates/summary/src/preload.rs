//! Metadata of ext4 that a harvest needs, read in the order of the disk before it is asked for.
//!
//! The kernel keeps it in the page cache of the device: what was read there it doesn't read again, and without this it reads
//! for each directory an inode, a block, and the inodes of what is in it, at three places.

use std::path::PathBuf;

use onesweep_layout::{
    Devices,
    tables::ext4::{Ext4, Needs},
};
use onesweep_sys::{
    files::{Stat, magic},
    memory,
};

use crate::{identity::NodeId, reading::Wanted};

/// So few directories cost less than looking at the tables.
const FEW: usize = 8;

/// A mounted ext2, ext3 or ext4 on a disk that seeks.
#[derive(Debug)]
pub(crate) struct Preload {
    node: PathBuf,
    dev: u64,
}

impl Preload {
    /// For the file system with that magic; `None` where nothing is gained, or the device can't be found.
    pub(crate) fn of(magic_number: u32, stat: &Stat) -> Option<Preload> {
        if magic_number != magic::EXT {
            return None;
        }
        let stack = Devices::of_system().ok()?.by_dev(stat.dev).ok()?;
        (!stack.is_seekless()).then_some(Preload { node: stack.node, dev: stat.dev })
    }

    /// Reads what harvesting takes, unless most of it is in memory, or it would not fit there.
    pub(crate) fn bring_in(&self, wanted: &Wanted<'_>) {
        if matches!(wanted, Wanted::Some { directories, .. } if directories.len() < FEW) {
            return;
        }
        // What can't be read so is read by the kernel when it is needed.
        let Ok(tables) = Ext4::of_mounted(&self.node, self.dev) else { return };
        let most = memory::available_bytes().unwrap_or(0) / 2;
        match wanted {
            Wanted::Most => {
                if !tables.is_mostly_cached() && tables.table_bytes() <= most {
                    tables.bring_in(Needs { layout: false, xattrs: true }, most, &|| true);
                }
            }
            Wanted::Some { directories, is_wanted } => {
                let numbers = || directories.iter().map(|id| number(*id));
                if !tables.are_mostly_cached(numbers()) {
                    let is_wanted =
                        |number: u32, generation| is_wanted(NodeId { subvolume: 0, ino: number.into(), generation });
                    tables.bring_in_directories(numbers(), &is_wanted, most, &|| true);
                }
            }
        }
    }
}

/// Inodes of ext4 have 32 bits.
fn number(id: NodeId) -> u32 {
    u32::try_from(id.ino).unwrap_or(0)
}
