//! XFS: the kernel tells many inodes in one call. Names it tells of directories that are open alone, so those that are empty by their
//! inode aren't opened.

use std::{
    collections::HashMap,
    io,
    os::fd::AsFd,
    sync::{Mutex, PoisonError},
};

use onesweep_sys::{
    files::{self, DirReader, EntryType},
    inode::XFLAG_ATTRIBUTES,
    xfs::{self, AccessLists, Inode, InodeBuffer},
};

use super::{Names, Told};
use crate::{
    identity::NodeId,
    volume::{Volume, access_list, listing::LISTED_BYTES},
};

/// Inodes whose numbers are no further apart are told in one go, with those between: to ask once more takes longer.
const NEAR: u64 = 8;
/// Inodes of one answer.
const AT_ONCE: usize = 256;
/// The size of a directory that holds nothing: the head of a list that lies in the inode, with a number of 8 bytes for its parent. With
/// the shortest name it is 15 at least. Who has its last name taken away comes back into the inode.
const EMPTY_MAX: u64 = 10;
/// Directories that were told as entries, and are kept until they are read themselves; some 100 bytes each.
const KEPT_MAX: usize = 1 << 16;

pub(super) struct Inodes {
    block_bytes: u64,
    access_lists: AccessLists,
    kept: Mutex<HashMap<u64, Told>>,
}

impl Inodes {
    pub(super) fn of(volume: &Volume) -> io::Result<Inodes> {
        let block_bytes = files::file_system(volume.top())?.block_size;
        // Who may not ask is told so now.
        xfs::bulkstat_from(volume.top(), &mut InodeBuffer::new(1), volume.root().ino, 1, &mut |_| {})?;
        Ok(Inodes { block_bytes, access_lists: AccessLists::of(volume.top())?, kept: Mutex::default() })
    }

    pub(super) fn session<'a>(&'a self, volume: &'a Volume) -> Session<'a> {
        let (buffer, reader) = (InodeBuffer::new(AT_ONCE), DirReader::with_buffer(LISTED_BYTES));
        Session { inodes: self, volume, buffer, reader }
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

pub(super) struct Session<'a> {
    inodes: &'a Inodes,
    volume: &'a Volume,
    buffer: InodeBuffer,
    reader: DirReader,
}

impl Session<'_> {
    /// Tells directories with these numbers, which rise, those that can be told.
    pub(super) fn look_into(&mut self, directories: &[u64], found: &mut dyn FnMut(Told)) {
        let (mut told, mut others) = (Vec::with_capacity(directories.len()), Vec::new());
        {
            let mut kept = self.inodes.kept.lock().unwrap_or_else(PoisonError::into_inner);
            for ino in directories {
                match kept.remove(ino) {
                    Some(directory) => told.push(directory),
                    None => others.push(*ino),
                }
            }
        }
        self.ask(&others, &mut |inode| told.push(inode));
        told.sort_unstable_by_key(|told| told.ino);
        told.into_iter().for_each(found);
    }

    /// Tells inodes with these numbers, which rise, those that can be told.
    pub(super) fn look(&mut self, inodes: &[u64], found: &mut dyn FnMut(Told)) {
        let mut directories = Vec::new();
        self.ask(inodes, &mut |told| {
            // One that seems to be empty is told with the one above it.
            if EntryType::of_mode(told.mode) == EntryType::Dir && told.size > EMPTY_MAX {
                directories.push((told.ino, told));
            }
            found(told);
        });
        let mut kept = self.inodes.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() + directories.len() <= KEPT_MAX {
            kept.extend(directories);
        }
    }

    fn ask(&mut self, inodes: &[u64], found: &mut dyn FnMut(Told)) {
        let Self { inodes: all, volume, buffer, .. } = self;
        let mut left = inodes;
        while let Some(&first) = left.first() {
            let near = left.windows(2).take_while(|pair| pair[1] - pair[0] <= NEAR).count();
            let count = usize::try_from(left[near] - first).map_or(usize::MAX, |last| last + 1);
            let mut reached = first;
            let asked = xfs::bulkstat_from(volume.top(), buffer, first, count, &mut |inode| {
                reached = inode.ino;
                if inode.nlink > 0 && inodes.binary_search(&inode.ino).is_ok() {
                    found(all.told(&inode));
                }
            });
            // What isn't told is read in the ordinary way, which says why.
            if asked.is_err() {
                break;
            }
            let passed = left.partition_point(|&ino| ino <= reached);
            left = &left[passed.max(1)..];
        }
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
