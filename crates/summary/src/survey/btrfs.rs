//! btrfs: leaves of its trees tell which transaction wrote them, and inodes which one changed them.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    os::fd::BorrowedFd,
};

use onesweep_layout::btrfs::{InodeItem, NameRef, kind};
use onesweep_sys::{
    btrfs::{self, Key, SearchBuffer},
    files::{self, EntryType},
};

use super::{Seen, Tell};
use crate::{identity::NodeId, volume::Volume};

/// Where the counter stands: what changes from now on gets this number or a higher one.
pub(crate) fn generation(top: BorrowedFd<'_>) -> io::Result<u64> {
    btrfs::fs_info(top)?.generation.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Tells the directories in these subvolumes that a transaction of the number `since` or a higher one has changed, or an inode
/// that they name. A name that came or went changes its directory, so the names as they are now are all that is needed.
pub(crate) fn survey(volume: &Volume, since: u64, subvolumes: &[u64], tell: Tell<'_>) -> io::Result<()> {
    // What changed isn't in the trees before.
    files::sync_file_system(volume.top())?;
    // Those that stand for others in snapshots are in no tree.
    for &subvolume in subvolumes.iter().filter(|subvolume| **subvolume <= LAST_SUBVOLUME) {
        match Searching::new(volume.top(), subvolume).changes(since, tell) {
            // It is gone, and the directory that named it has changed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

/// The highest number that one can have (`BTRFS_LAST_FREE_OBJECTID`).
const LAST_SUBVOLUME: u64 = u64::MAX - 255;

struct Searching<'a> {
    top: BorrowedFd<'a>,
    subvolume: u64,
    buffer: SearchBuffer,
    /// Directories that were looked up.
    known: HashMap<u64, Option<NodeId>>,
}

/// A change: of which inode, by which transaction, and when.
type Change = (u64, u64, i64);

impl<'a> Searching<'a> {
    fn new(top: BorrowedFd<'a>, subvolume: u64) -> Self {
        Self { top, subvolume, buffer: SearchBuffer::new(1 << 20), known: HashMap::new() }
    }

    fn changes(mut self, since: u64, tell: Tell<'_>) -> io::Result<()> {
        let all = (Key::default(), Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX });
        let (mut files, mut wrong): (Vec<Change>, _) = (Vec::new(), None);
        let subvolume = self.subvolume;
        btrfs::search_since(self.top, &mut self.buffer, subvolume, all, since, &mut |item| {
            if item.key.kind != kind::INODE_ITEM {
                return true;
            }
            match InodeItem::parse(item.data) {
                Ok(inode) if inode.changed_in < since => {}
                Ok(inode) if EntryType::of_mode(inode.mode) == EntryType::Dir => {
                    let id = NodeId { subvolume, ino: item.key.objectid, generation: inode.generation as u32 };
                    tell(&[seen(id, inode.changed_in, inode.ctime.secs)]);
                }
                Ok(inode) => files.push((item.key.objectid, inode.changed_in, inode.ctime.secs)),
                Err(error) => wrong = Some(error),
            }
            wrong.is_none()
        })?;
        if let Some(error) = wrong {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        for (ino, changed_in, changed_at) in files {
            for parent in self.parents(ino)? {
                if let Some(id) = self.directory(parent)? {
                    tell(&[seen(id, changed_in, changed_at)]);
                }
            }
        }
        Ok(())
    }

    /// The directories that name an inode.
    fn parents(&mut self, ino: u64) -> io::Result<BTreeSet<u64>> {
        let key = |kind, offset| Key { objectid: ino, kind, offset };
        let names = (key(kind::INODE_REF, 0), key(kind::INODE_EXTREF, u64::MAX));
        let (mut parents, mut wrong) = (BTreeSet::new(), None);
        btrfs::search(self.top, &mut self.buffer, self.subvolume, names, &mut |item| {
            match item.key.kind {
                kind::INODE_REF => _ = parents.insert(item.key.offset),
                kind::INODE_EXTREF => {
                    let parsed = NameRef::parse_extended(item.data, &mut |name| {
                        parents.insert(name.parent);
                    });
                    wrong = parsed.err();
                }
                _ => {}
            }
            wrong.is_none()
        })?;
        wrong.map_or(Ok(parents), |error| Err(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// A directory by its number; `None` when it is gone by now.
    fn directory(&mut self, ino: u64) -> io::Result<Option<NodeId>> {
        if let Some(&known) = self.known.get(&ino) {
            return Ok(known);
        }
        let key = Key { objectid: ino, kind: kind::INODE_ITEM, offset: 0 };
        let (mut found, subvolume) = (None, self.subvolume);
        btrfs::search(self.top, &mut self.buffer, subvolume, (key, key), &mut |item| {
            let inode = InodeItem::parse(item.data).ok();
            found = inode.map(|inode| NodeId { subvolume, ino, generation: inode.generation as u32 });
            false
        })?;
        self.known.insert(ino, found);
        Ok(found)
    }
}

fn seen(id: NodeId, changed_in: u64, changed_at: i64) -> Seen {
    Seen { id, is_directory: true, links: 1, stamp: changed_in, changed_at }
}
