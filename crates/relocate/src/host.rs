//! What moves blocks: a file system, or what tests put in its place.

use std::io;
use std::path::{Path, PathBuf};

pub use onesweep_sys::move_extents::Exchange;
use thiserror::Error;

use crate::places::Places;

/// Why a file stays where it is.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, Ord, PartialEq, PartialOrd)]
pub enum Stays {
    /// There is no such file any more, or it is another one now.
    #[error("it is gone, or another file has its name")]
    Gone,
    /// It is no regular file.
    #[error("it is no regular file")]
    NoFile,
    /// Its blocks were moved or cut by somebody else in the meantime.
    #[error("it has changed meanwhile")]
    Changed,
    /// It has bytes that are not on the disk yet, or its pages are in use.
    #[error("it is being written, or its pages are in use")]
    Busy,
    /// It is not in memory, and nothing is to be read.
    #[error("it is not in memory")]
    NotCached,
    /// Its pages are parts of larger folios, so that each would cost a journal commit.
    #[error("its pages in memory are large ones, which move slowly")]
    LargePages,
    /// It is a program that runs.
    #[error("it is a program that runs")]
    Running,
    /// It is swapped to.
    #[error("it is a swap file")]
    Swap,
    /// It may not be changed (`chattr +i`).
    #[error("it may not be changed (chattr +i)")]
    Immutable,
    /// It may only grow (`chattr +a`).
    #[error("it may only grow (chattr +a)")]
    AppendOnly,
    /// It is encrypted.
    #[error("it is encrypted")]
    Encrypted,
    /// It has hashes (fs-verity).
    #[error("it is protected by fs-verity")]
    Verity,
    /// Its data goes through the journal (`chattr +j`).
    #[error("its data goes through the journal (chattr +j)")]
    Journaled,
    /// Its bytes are used where they lie.
    #[error("it is used where it lies (DAX)")]
    Dax,
    /// Its bytes lie in its inode.
    #[error("it lies in its inode")]
    Inline,
    /// Its places are not kept as extents.
    #[error("its places are kept block by block (not as extents)")]
    NoExtents,
    /// It has blocks that were promised and never written.
    #[error("it has preallocated blocks")]
    Preallocated,
    /// Other files have the same bytes at the same place.
    #[error("it shares its place with other files or snapshots")]
    Shared,
    /// It can't share with what is written beside it.
    #[error("it has no checksums, or new files beside it have none (chattr +C, nodatasum)")]
    NoChecksums,
    /// Its bytes are compressed on the disk.
    #[error("it is compressed")]
    Compressed,
    /// Whoever runs it gets rights by it.
    #[error("it gives rights to who runs it (setuid, setgid, file capabilities), which would be lost")]
    Rights,
    /// Another process has a lease on it.
    #[error("another program has a lease on it")]
    Leased,
    /// Somebody else has got what was to be its new place, or there is too little room for it.
    #[error("there is no room for it at its new place any more")]
    NoRoom,
    /// The caller may not write to it.
    #[error("no permission to write to it")]
    Denied,
    /// To read it would change its access time.
    #[error("it is somebody else's, so that reading it would change its access time")]
    Others,
    /// The file system can't move it.
    #[error("its file system cannot move it")]
    Unsupported,
}

/// What went wrong, so that nothing more can be moved.
#[derive(Debug, Error)]
#[error("{}: cannot {doing}: {source}", path.display())]
pub struct Failure {
    /// What was to be done.
    pub doing: &'static str,
    /// To what.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

impl Failure {
    /// That `doing` something to `path` failed.
    #[must_use]
    pub fn new(doing: &'static str, path: &Path, source: io::Error) -> Failure {
        Failure { doing, path: path.to_owned(), source }
    }
}

/// Why something was not done to a file.
#[derive(Debug, Error)]
pub enum Trouble {
    /// It is for this file alone.
    #[error(transparent)]
    Stays(#[from] Stays),
    /// Nothing more can be done.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// What becomes of files that are not in memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Uncached {
    /// They are read.
    Read,
    /// They stay where they are.
    Stays,
}

/// A file as it was looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Looked {
    /// Its inode.
    pub inode: u64,
    /// Where its blocks lie.
    pub places: Places,
    /// Why it can't be moved.
    pub stays: Option<Stays>,
}

/// A file that can be moved now.
#[derive(Debug)]
pub struct Opened<F> {
    /// The file.
    pub file: F,
    /// Where its blocks lie.
    pub places: Places,
    /// Its pages in memory were large ones, and are small ones now.
    pub was_large: bool,
}

/// Free space that was captured.
#[derive(Debug)]
pub struct Captured<D> {
    /// Files that hold it.
    pub donors: Vec<D>,
    /// Why they are fewer than was asked for.
    pub error: Option<io::Error>,
}

/// What became of an exchange.
#[derive(Debug)]
pub struct Moved {
    /// Blocks that have a new place.
    pub blocks: u64,
    /// Why there are no more.
    pub trouble: Option<Trouble>,
}

/// What is about to be done to one file.
#[derive(Debug)]
pub struct Moves<'a, F, D> {
    /// Where it is.
    pub path: &'a Path,
    /// The file.
    pub file: &'a F,
    /// Where its blocks lie now.
    pub places: &'a Places,
    /// Its exchanges.
    pub steps: Vec<(&'a D, Exchange)>,
}

/// The blocks of each donor, when so many blocks are captured.
pub(crate) fn donors_of(blocks: u64, unit: u64) -> impl Iterator<Item = u64> {
    let unit = unit.max(1);
    (0..blocks.div_ceil(unit)).map(move |number| unit.min(blocks - number * unit))
}

/// Exchanges until one does not come about as a whole: [`Host::exchange_all`] where pieces change places one by one.
pub fn one_by_one<D>(steps: &[(&D, Exchange)], mut exchange: impl FnMut(&D, Exchange) -> Moved) -> Moved {
    let mut all = Moved { blocks: 0, trouble: None };
    for &(donor, step) in steps {
        let told = exchange(donor, step);
        all.blocks += told.blocks;
        if told.trouble.is_some() || told.blocks != step.blocks {
            all.trouble = told.trouble;
            break;
        }
    }
    all
}

/// A file system whose files can be moved block by block, without anybody who uses them noticing.
///
/// After an exchange, contents, times and names are as before; whenever the machine stops, each block has its old or its new
/// place and its right bytes.
///
/// No method has a default: a host around another, which tells or counts what happens, would do without what that one does, and nobody
/// would notice.
pub trait Host {
    /// A file that is open for moving.
    type File;
    /// Free space that is held. It is given back, with what has come there, when this is dropped.
    type Donor;

    /// The most blocks that a donor has. With as many it comes to lie near its directory.
    fn unit(&self) -> u64;

    /// Whether files of several regions may come to one donor, by turns. Where not, each region has donors of its own.
    fn shares_donors(&self) -> bool;

    /// Blocks that hold nothing.
    fn free_blocks(&mut self) -> io::Result<u64>;

    /// Looks at a file without changing anything.
    fn look(&mut self, path: &Path) -> Result<Looked, Trouble>;

    /// The same of a file that is in memory with all that is known of it; `None` when something would have to be read from the disk for
    /// that. One whose bytes are not in memory, or not on the disk, stays.
    fn look_in_memory(&mut self, path: &Path) -> Result<Option<Looked>, Trouble>;

    /// Says that a file will be opened soon, so that it can come into memory. Errors come then.
    fn announce(&mut self, path: &Path);

    /// Opens a file that had this inode, with its bytes in memory and on the disk.
    fn open(&mut self, path: &Path, inode: u64) -> Result<Opened<Self::File>, Trouble>;

    /// Where the blocks of an open file lie now.
    fn places(&mut self, file: &Self::File) -> Result<Places, Trouble>;

    /// Captures so many blocks of free space near a directory, in donors of [`Host::unit`] blocks, the last one of which may have less.
    fn capture(&mut self, directory: &Path, blocks: u64) -> Captured<Self::Donor>;

    /// Captures a donor for parts of files of so many blocks each, which are to get its blocks in this order, each part all of its own by
    /// one exchange. `None` where that makes no difference, since whatever is not given away of a donor is free again.
    fn capture_for(&mut self, directory: &Path, parts: &[u64]) -> Option<Captured<Self::Donor>>;

    /// Where the blocks of a donor lie.
    fn donor_places(&mut self, donor: &Self::Donor) -> io::Result<Places>;

    /// Hears of all exchanges of a region before the first of them, to make ready for them and to keep what leads back. When that
    /// fails, none of them is made.
    fn prepare(&mut self, moves: &[Moves<'_, Self::File, Self::Donor>]) -> Result<(), Failure>;

    /// Exchanges blocks of a file with blocks of a donor.
    fn exchange(&mut self, file: &Self::File, donor: &Self::Donor, exchange: Exchange) -> Moved;

    /// Exchanges all these blocks of a file, which are all that it has. One after the other, unless the file system knows whole files alone.
    fn exchange_all(&mut self, file: &Self::File, steps: &[(&Self::Donor, Exchange)]) -> Moved;

    /// Waits until old places are free, and what was exchanged would be found after a crash; no more is written than that takes, but what is
    /// written may come to the disk file by file. `near` is a directory in which donors were captured. Where nothing cheaper does it, this
    /// is [`Host::commit`].
    fn settle(&mut self, near: &Path) -> io::Result<()>;

    /// Waits until all that is dirty in the file system is on the disk, by few requests, and old places are free.
    fn commit(&mut self) -> io::Result<()>;
}
