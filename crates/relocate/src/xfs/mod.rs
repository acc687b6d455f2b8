//! XFS: bytes are written to captured places, and files come to have those instead of their own, while the kernel makes sure that
//! nobody has written to them meanwhile.
//!
//! Where there are reflinks, a file comes to share what was written if it is equal: the kernel compares the bytes of both while nobody
//! can write to either (`FIDEDUPERANGE`). Then the donor gives its share up, and the file alone has the new places. Files of which
//! anything was shared before stay.
//!
//! Else, where there is exchange-range, a file changes places with what was written if its times are those of before it was read,
//! which the kernel looks at under the same locks (`XFS_IOC_COMMIT_RANGE`). The donor gives the old places back.
//!
//! Else a file changes all its places with those of a file that was written for it, under the same condition (`XFS_IOC_SWAPEXT`). That
//! file gets the captured places first, which XFS does not offer: `placed` tells how.
//!
//! Needs no privilege for files of one's own in directories of one's own. Without root `XFS_IOC_COMMIT_RANGE` changes the time of the last
//! change of the inode (ctime).

mod facts;
mod placed;
mod share;
mod swap;
mod whole;
mod writers;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use onesweep_sys::files::{file_system, is_untouched, open_dir, sync_file_system};
use onesweep_sys::inode::{XFLAG_REALTIME, extended_flags};

pub use self::facts::Refusal;
use crate::file::{Asked, MovableFile, announce, clean_in_memory, stays_by_flags, trouble};
pub use crate::giving::Donor;
use crate::giving::{capture, give};
use crate::host::{
    Captured, Exchange, Failure, Host, Looked, Moved, Moves, Opened, Stays, Trouble, Uncached, donors_of, one_by_one,
};
use crate::places::Places;

/// How a file comes to its new places.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// It shares what was written there.
    Share,
    /// It changes places with what was written there.
    Exchange,
    /// It changes places as a whole with a file that was written there.
    Whole,
}

/// A mounted XFS, whose files can be moved.
#[derive(Debug)]
pub struct Xfs {
    root: OwnedFd,
    directory: PathBuf,
    asked: Asked,
    way: Way,
    unit: u64,
    uncached: Uncached,
    swapping: swap::Swapping,
    wholes: whole::Wholes,
    /// Memory that is used again.
    bytes: Vec<u8>,
}

/// Blocks of a donor, unless the caller wants others.
const UNIT: u64 = 512;
/// Blocks of a donor at most: so many bytes are in memory at once.
const LARGEST_UNIT: u64 = 2048;

impl Xfs {
    /// The file system of a directory.
    ///
    /// # Errors
    ///
    /// When files of it must not or can't be moved.
    pub fn of(directory: &Path, uncached: Uncached) -> Result<Xfs, Refusal> {
        let root = open_dir(directory).map_err(|error| Refusal::Unknown { what: "open it", source: error })?;
        let facts = facts::Facts::of(root.as_fd())?;
        let asked = Asked::new(facts.dev, facts.block_bytes);
        let (swapping, bytes) = (swap::Swapping::default(), Vec::new());
        let wholes = whole::Wholes::new(facts.known);
        let directory = directory.to_owned();
        Ok(Xfs { root, directory, asked, way: facts.way, unit: UNIT, uncached, swapping, wholes, bytes })
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.asked.block_bytes
    }

    /// Files whose time of the last change of the inode (ctime) became another: by an exchange, without root.
    #[must_use]
    pub fn new_ctime_files(&self) -> u64 {
        self.swapping.new_ctime.len() as u64
    }

    /// Makes donors of so many blocks, 8 MiB of the usual ones at most: XFS looks for a piece that holds all of a donor, near its
    /// directory first.
    pub fn set_unit(&mut self, blocks: u64) {
        self.unit = blocks.clamp(1, LARGEST_UNIT);
    }
}

impl Host for Xfs {
    type File = MovableFile;
    type Donor = Donor;

    fn unit(&self) -> u64 {
        self.unit
    }

    /// A donor is filled from its start on.
    fn shares_donors(&self) -> bool {
        false
    }

    fn look(&mut self, path: &Path) -> Result<Looked, Trouble> {
        self.asked.look(path, stays_by_flags)
    }

    fn look_in_memory(&mut self, path: &Path) -> Result<Option<Looked>, Trouble> {
        self.asked.look_in_memory(path, stays_by_flags)
    }

    fn announce(&mut self, path: &Path) {
        if self.uncached == Uncached::Read {
            announce(path);
        }
    }

    fn open(&mut self, path: &Path, inode: u64) -> Result<Opened<MovableFile>, Trouble> {
        let (mut file, stat) = self.asked.open(path, inode, stays_by_flags)?;
        if !is_untouched(file.fd()) {
            return Err(Stays::Others.into());
        }
        let flags = extended_flags(file.fd()).map_err(|error| trouble("ask for its flags", path, error))?;
        if flags.is_some_and(|flags| flags & XFLAG_REALTIME != 0) {
            return Err(Stays::Unsupported.into());
        }
        if self.way == Way::Exchange {
            swap::refuse_rights(&file, &stat)?;
        }
        if self.way != Way::Share {
            file = writers::open_to_read(file)?;
        }
        clean_in_memory(&file, stat.size, self.uncached)?;
        let (places, stays) = self.asked.places(file.fd(), path)?;
        match stays {
            Some(stays) => Err(stays.into()),
            None => Ok(Opened { file, places, was_large: false }),
        }
    }

    fn places(&mut self, file: &MovableFile) -> Result<Places, Trouble> {
        let (places, stays) = self.asked.places(file.fd(), file.path())?;
        stays.map_or(Ok(places), |stays| Err(stays.into()))
    }

    fn free_blocks(&mut self) -> io::Result<u64> {
        Ok(file_system(self.root.as_fd())?.blocks_free)
    }

    fn capture(&mut self, directory: &Path, blocks: u64) -> Captured<Donor> {
        match self.way {
            Way::Share | Way::Exchange => {
                capture(directory, donors_of(blocks, self.unit).map(Some), self.asked.block_bytes)
            }
            Way::Whole => self.wholes.capture([directory, &self.directory], blocks, self.unit, &mut self.asked),
        }
    }

    fn capture_for(&mut self, _: &Path, _: &[u64]) -> Option<Captured<Donor>> {
        None
    }

    fn donor_places(&mut self, donor: &Donor) -> io::Result<Places> {
        match self.way {
            Way::Share | Way::Exchange => self.asked.donor_places(donor.fd(), donor.bytes()),
            Way::Whole => self.wholes.reachable(donor, &mut self.asked),
        }
    }

    fn prepare(&mut self, moves: &[Moves<'_, MovableFile, Donor>]) -> Result<(), Failure> {
        if self.way == Way::Whole { self.wholes.stage(moves, &mut self.asked) } else { Ok(()) }
    }

    fn exchange(&mut self, file: &MovableFile, donor: &Donor, exchange: Exchange) -> Moved {
        let (block, bytes) = (self.asked.block_bytes, &mut self.bytes);
        match self.way {
            Way::Share => give(file, donor, exchange, block, &mut share::Sharing, bytes),
            Way::Exchange => give(file, donor, exchange, block, &mut self.swapping, bytes),
            Way::Whole => self.wholes.exchange(file, &[(donor, exchange)], &mut self.asked),
        }
    }

    fn exchange_all(&mut self, file: &MovableFile, steps: &[(&Donor, Exchange)]) -> Moved {
        match self.way {
            Way::Share | Way::Exchange => one_by_one(steps, |donor, exchange| self.exchange(file, donor, exchange)),
            Way::Whole => self.wholes.exchange(file, steps, &mut self.asked),
        }
    }

    fn settle(&mut self, _: &Path) -> io::Result<()> {
        self.commit()
    }

    fn commit(&mut self) -> io::Result<()> {
        self.wholes.let_go()?;
        sync_file_system(self.root.as_fd())
    }
}
