//! XFS: the kernel tells many inodes in one call. Names it tells of directories that are open alone, so those that are empty by their
//! inode aren't opened.

use std::{io, os::fd::AsFd};

use onesweep_sys::{
    files::{self, DirReader, EntryType},
    inode::XFLAG_ATTRIBUTES,
    xfs::{self, AccessLists, Inode, InodeBuffer},
};

use super::{
    Names, Told,
    ahead::{AT_ONCE, Ahead},
};
use crate::{
    identity::NodeId,
    volume::{Volume, access_list, listing::LISTED_BYTES},
};

/// The size of a directory that holds nothing: the head of a list that lies in the inode, with a number of 8 bytes for its parent. With
/// the shortest name it is 15 at least. Who has its last name taken away comes back into the inode.
const EMPTY_MAX: u64 = 10;

pub(super) struct Inodes {
    block_bytes: u64,
    access_lists: AccessLists,
    ahead: Ahead,
}

impl Inodes {
    pub(super) fn of(volume: &Volume) -> io::Result<Inodes> {
        let block_bytes = files::file_system(volume.top())?.block_size;
        // Who may not ask is told so now.
        xfs::bulkstat_from(volume.top(), &mut InodeBuffer::new(1), volume.root().ino, 1, &mut |_| {})?;
        Ok(Inodes { block_bytes, access_lists: AccessLists::of(volume.top())?, ahead: Ahead::new(uses) })
    }

    pub(super) fn session<'a>(&'a self, volume: &'a Volume) -> Session<'a> {
        Session { inodes: self, volume, buffer: None, reader: DirReader::with_buffer(LISTED_BYTES) }
    }

    fn told(&self, inode: &Inode) -> Told {
        let [_, mtime, ctime, _] = inode.times;
        Told {
            ino: inode.ino,
            generation: inode.generation,
            mode: inode.mode,
            links: inode.nlink,
            owner: (inode.uid, inode.gid),
            size: inode.size,
            blocks: inode.blocks.saturating_mul(self.block_bytes) / 512,
            mtime,
            ctime,
            has_xattrs: inode.xflags & XFLAG_ATTRIBUTES != 0,
        }
    }
}

/// For each of its names. A directory for its only one, and to be read itself, but for one that seems to be empty: it is told with the one above it.
fn uses(told: &Told) -> u64 {
    match EntryType::of_mode(told.mode) {
        EntryType::Dir => 1 + u64::from(told.size > EMPTY_MAX),
        _ => told.links.into(),
    }
}

pub(super) struct Session<'a> {
    inodes: &'a Inodes,
    volume: &'a Volume,
    buffer: Option<InodeBuffer>,
    reader: DirReader,
}

impl Session<'_> {
    /// Tells inodes with these numbers, which rise, those that can be told.
    pub(super) fn look(&mut self, wanted: &[u64], found: &mut dyn FnMut(Told)) {
        let Self { inodes, volume, buffer, .. } = self;
        let mut tell = |first: u64, count: usize, each: &mut dyn FnMut(Told)| {
            let buffer = buffer.get_or_insert_with(|| InodeBuffer::new(AT_ONCE));
            xfs::bulkstat_from(volume.top(), buffer, first, count, &mut |inode| each(inodes.told(&inode)))
        };
        // What isn't told is read in the ordinary way, which says why.
        inodes.ahead.look(wanted, &mut tell, &mut |told| {
            if told.links > 0 {
                found(told);
            }
        });
    }

    /// Whether nothing is in a directory, and it has no access list.
    pub(super) fn is_known_empty(&self, directory: NodeId, told: &Told) -> bool {
        told.size <= EMPTY_MAX && !self.may_have_access_list(directory, told)
    }

    /// Most have room for attributes, and none in it.
    fn may_have_access_list(&self, directory: NodeId, told: &Told) -> bool {
        let NodeId { ino, generation, .. } = directory;
        told.has_xattrs && self.inodes.access_lists.are_on(self.volume.top(), ino, generation).unwrap_or(true)
    }

    /// Adds the names of a directory, and gives its access list, if it has one. `None` where they can't be told, or are more than `most`.
    pub(super) fn list(
        &mut self,
        directory: NodeId,
        told: &Told,
        most: usize,
        names: &mut Names,
    ) -> Option<Option<Vec<u8>>> {
        if self.is_known_empty(directory, told) {
            return Some(None);
        }
        let open = self.volume.open(directory).ok()?;
        let list = if told.has_xattrs { access_list(open.as_fd()) } else { None };
        let mut count = 0;
        let is_whole = self.reader.read_up_to(open.as_fd(), self.volume.end_of_directory(told.size), |entry| {
            count += 1;
            names.add(entry.ino, entry.name.to_bytes());
            count <= most
        });
        is_whole.ok().filter(|&is_whole| is_whole).map(|_| list)
    }
}
