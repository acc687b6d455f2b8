//! What one directory holds, as a harvest finds it.

use std::{io, sync::Arc};

use smallvec::SmallVec;

use crate::{
    custom::{declare::Declared, found::Found},
    identity::NodeId,
    record::Access,
    survey::{Method, Tell},
    totals::{Sums, Totals},
    tracker::SizesFollow,
};

/// The name of a directory; most are so short that they take no memory of their own.
pub type EntryName = SmallVec<[u8; 16]>;

/// A directory and its entries.
#[derive(Debug, Default)]
pub struct Reading {
    /// Who may look into it.
    pub access: Access,
    /// Units of 512 bytes that are allocated to the directory itself.
    pub blocks: i64,
    /// The directory itself and its entries, but for inodes with several names.
    pub own: Totals,
    /// The directories in it, and their names. What is mounted there is left out.
    pub directories: Vec<(NodeId, EntryName)>,
    /// Those of them of which it was found out on the way that nothing is in them, in the same order: they needn't be read.
    pub empty: Vec<Empty>,
    /// The inodes with one name.
    pub inodes: Vec<u64>,
    /// The inodes with several names, one for each name in it.
    pub linked: Vec<LinkedName>,
    /// What it adds to declared summaries, where there are any.
    pub custom: Option<Found>,
    /// When an inode in it was changed last, but for directories, in seconds since 1970: blocks may change for a while after that and
    /// nobody tells. 0 where there is none.
    pub changed_at: i64,
    /// By which it can be told later whether it is still as it was read; 0 where it can't.
    pub stamp: u64,
    /// Why its entries, or some of them, aren't there.
    pub unreadable: Option<io::Error>,
    /// How often reading it had to wait for a disk, or for whatever else where that can't be told. Of those that were read together the first has it for all.
    pub waits: u32,
}

/// A directory with nothing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// Its inode.
    pub id: NodeId,
    /// As of any [`Reading`].
    pub access: Access,
    /// As of any [`Reading`].
    pub blocks: i64,
    /// The directory itself.
    pub own: Totals,
    /// As of any [`Reading`].
    pub stamp: u64,
}

/// An inode with several names, of which one was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkedName {
    /// The inode.
    pub id: NodeId,
    /// What it adds.
    pub weight: Sums,
    /// How many names it has.
    pub links: u32,
    /// Another one when something else has changed that summaries show of it; 0 where that isn't told.
    pub facts: u64,
}

/// That one entry of a directory can't be looked at: all others are.
pub(crate) fn of_entry(name: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{:?} in it can't be looked at: {error}", String::from_utf8_lossy(name)))
}

/// A file that is open for writing, mapped so, or below a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// The inode.
    pub id: NodeId,
    /// Another one when the file has changed; 0 where that can't be told.
    pub stamp: u64,
    /// Nobody tells of writes to it: it is mapped, its process may write by `io_submit`, or the kernel writes to it.
    pub is_silent: bool,
}

/// What a harvest is going to read.
pub enum Wanted<'a> {
    /// Nearly all directories.
    Most,
    /// Some, and those in them for which `is_wanted` says so.
    Some {
        /// Those that are known to be read.
        directories: &'a [NodeId],
        /// Those that aren't known, or have changed.
        is_wanted: &'a dyn Fn(NodeId) -> bool,
    },
}

/// Directories that are read at the same time: a drive's queue holds as many.
const READERS: usize = 32;
/// The same where nobody tells what changes, and where no answer may come: dozens of those find room in the warden side by side.
const READERS_OF_TIMED: usize = 8;

/// What [`Directories::remounted`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remounted {
    /// In these something was mounted or unmounted.
    pub directories: Vec<NodeId>,
    /// There may be others, and no means just now to find out. A later call tells of them.
    pub is_partial: bool,
}

/// Where directories are read: a file system, or a tree that a test makes up.
pub trait Directories: Sync {
    /// Reads a directory. Entries that vanish meanwhile are left out. One that can be looked at and not listed is no error.
    ///
    /// `ESTALE` (or `NotFound`) when it is gone.
    fn read(&self, directory: NodeId) -> io::Result<Reading>;

    /// Reads several, one after the other.
    fn read_some(&self, directories: &[NodeId]) -> Vec<io::Result<Reading>> {
        directories.iter().map(|&directory| self.read(directory)).collect()
    }

    /// The same of those that have at most so many entries; of others the error that [`is_too_large`] knows.
    fn read_some_up_to(&self, directories: &[NodeId], _entries_max: usize) -> Vec<io::Result<Reading>> {
        self.read_some(directories)
    }

    /// So many at a time are read side by side. Where it is one, whoever harvests reads itself.
    fn readers(&self) -> usize {
        if self.changes_are_told() { READERS } else { READERS_OF_TIMED }
    }

    /// Looks at one inode. `ESTALE` (or `NotFound`) when it is gone.
    fn look(&self, inode: NodeId) -> io::Result<LinkedName>;

    /// Whether somebody has a file open for writing; true where that isn't known. `ESTALE` (or `NotFound`) when it is gone.
    fn is_written(&self, _: NodeId) -> io::Result<bool> {
        Ok(true)
    }

    /// The same as [`look`](Self::look) of several.
    fn look_each(&self, inodes: &[NodeId]) -> Vec<io::Result<LinkedName>> {
        inodes.iter().map(|&inode| self.look(inode)).collect()
    }

    /// The same as [`is_written`](Self::is_written) of several.
    fn are_written(&self, inodes: &[NodeId]) -> Vec<io::Result<bool>> {
        inodes.iter().map(|&inode| self.is_written(inode)).collect()
    }

    /// Files that are open under names that they have lost.
    fn open_by_lost_names(&self) -> Vec<NodeId> {
        Vec::new()
    }

    /// False where nobody tells what changes, so that all has to be read again from time to time.
    fn changes_are_told(&self) -> bool {
        true
    }

    /// When sizes of files here are told.
    fn sizes_follow(&self) -> SizesFollow {
        SizesFollow::Write
    }

    /// Files that are open or mapped for writing, each once, as they are now.
    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether what is written through overlays that lie on it is told to nobody, as [`open_for_writing`](Self::open_for_writing)
    /// has found last.
    fn has_silent_overlays(&self) -> bool {
        false
    }

    /// Has everything written that waits in memory, so that blocks are what they will be.
    fn sync(&self) -> io::Result<()>;

    /// For so many seconds after a change, blocks may change without anybody being told.
    fn settling_seconds(&self) -> i64;

    /// A directory that has come into another one may have another time of its own by that, of which nobody is told.
    fn moves_change_times(&self) -> bool {
        false
    }

    /// Until [`end_bulk`](Self::end_bulk) directories are read by what the file system says of many inodes at a time, where that is
    /// quicker and this says so. What changes after this call may not be seen in such a reading: all directories have to be heeded before.
    fn begin_bulk(&self) -> bool {
        false
    }

    /// Ends that.
    fn end_bulk(&self) {}

    /// Brings into memory what reading takes, where that is quicker than one by one.
    fn bring_in(&self, _: &Wanted<'_>) {}

    /// The directory that a directory is in now. `ESTALE` (or `NotFound`) when it is gone.
    fn parent(&self, directory: NodeId) -> io::Result<NodeId>;

    /// Directories in which something was mounted or unmounted since the last call; at the first, those in which something is
    /// mounted.
    fn remounted(&self) -> Remounted {
        Remounted::default()
    }

    /// True when [`remounted`](Self::remounted) now would find nothing.
    fn is_mounted_alike(&self) -> bool {
        false
    }

    /// How it can be told what has changed without a walk; `None` where it can't.
    fn method(&self) -> Option<Method> {
        None
    }

    /// The summaries that readings tell of beside the totals.
    fn declared(&self) -> Option<Arc<Declared>> {
        None
    }

    /// Makes stamps such that who doesn't know the number can't make up files for one. Before the first reading.
    fn set_key(&self, _: u64) {}

    /// Where the file system counts its changes: what changes from now on gets this number or a higher one. Else 0.
    fn generation(&self) -> io::Result<u64> {
        Ok(0)
    }

    /// Tells all inodes, or directories in these subvolumes with changes since the count `since`, by the method. What waits in
    /// memory is written before; what changes during the call may be told or not.
    fn survey(&self, _since: u64, _subvolumes: &[u64], _tell: Tell<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl<D: Directories + Send + ?Sized> Directories for Arc<D> {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        (**self).read(directory)
    }

    fn read_some(&self, directories: &[NodeId]) -> Vec<io::Result<Reading>> {
        (**self).read_some(directories)
    }

    fn read_some_up_to(&self, directories: &[NodeId], entries_max: usize) -> Vec<io::Result<Reading>> {
        (**self).read_some_up_to(directories, entries_max)
    }

    fn readers(&self) -> usize {
        (**self).readers()
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        (**self).look(inode)
    }

    fn is_written(&self, inode: NodeId) -> io::Result<bool> {
        (**self).is_written(inode)
    }

    fn look_each(&self, inodes: &[NodeId]) -> Vec<io::Result<LinkedName>> {
        (**self).look_each(inodes)
    }

    fn are_written(&self, inodes: &[NodeId]) -> Vec<io::Result<bool>> {
        (**self).are_written(inodes)
    }

    fn open_by_lost_names(&self) -> Vec<NodeId> {
        (**self).open_by_lost_names()
    }

    fn changes_are_told(&self) -> bool {
        (**self).changes_are_told()
    }

    fn sizes_follow(&self) -> SizesFollow {
        (**self).sizes_follow()
    }

    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        (**self).open_for_writing()
    }

    fn has_silent_overlays(&self) -> bool {
        (**self).has_silent_overlays()
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }

    fn settling_seconds(&self) -> i64 {
        (**self).settling_seconds()
    }

    fn moves_change_times(&self) -> bool {
        (**self).moves_change_times()
    }

    fn begin_bulk(&self) -> bool {
        (**self).begin_bulk()
    }

    fn end_bulk(&self) {
        (**self).end_bulk();
    }

    fn bring_in(&self, wanted: &Wanted<'_>) {
        (**self).bring_in(wanted);
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        (**self).parent(directory)
    }

    fn remounted(&self) -> Remounted {
        (**self).remounted()
    }

    fn is_mounted_alike(&self) -> bool {
        (**self).is_mounted_alike()
    }

    fn method(&self) -> Option<Method> {
        (**self).method()
    }

    fn declared(&self) -> Option<Arc<Declared>> {
        (**self).declared()
    }

    fn set_key(&self, key: u64) {
        (**self).set_key(key);
    }

    fn generation(&self) -> io::Result<u64> {
        (**self).generation()
    }

    fn survey(&self, since: u64, subvolumes: &[u64], tell: Tell<'_>) -> io::Result<()> {
        (**self).survey(since, subvolumes, tell)
    }
}

impl Reading {
    /// Everything in it.
    pub fn entries(&self) -> usize {
        self.directories.len() + self.inodes.len() + self.linked.len()
    }
}

/// `EFBIG`, which no listing gives.
const TOO_LARGE: i32 = 27;

/// The error of a directory that has more entries than were to be read.
pub fn too_large() -> io::Error {
    io::Error::from_raw_os_error(TOO_LARGE)
}

/// Whether an error is that one.
pub fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(TOO_LARGE)
}

/// Whether an error says that there is no such inode any more.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle | io::ErrorKind::NotADirectory
    )
}
