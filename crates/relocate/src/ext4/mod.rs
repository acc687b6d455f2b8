//! ext4: files move by `EXT4_IOC_MOVE_EXT` into preallocated files without a name.
//!
//! Needs no privilege for files of one's own in directories of one's own. As root it also learns which pages in memory are
//! large ones, and may [raise](Ext4::raise_unit) the size up to which ext4 puts a donor near its directory.

mod donor;
mod facts;
mod fast_commit;
mod file;
mod journal;
pub mod keep;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use onesweep_sys::{
    features::kernel_version,
    files::{file_system, open_dir, sync_data, sync_file_system},
    folios::Folios,
    memory::page_bytes,
    move_extents::move_extents,
    setting::Raised,
};

use self::journal::commit_journal;
use self::keep::Keeper;
pub use self::{donor::Donor, facts::Refusal};
use crate::errno::{EAGAIN, EBUSY, EINVAL, ENODATA, ENOTTY, EOPNOTSUPP, EPERM, ETXTBSY};
use crate::file::{Asked, MovableFile, announce};
use crate::host::{
    Captured, Exchange, Failure, Host, Looked, Moved, Moves, Opened, Stays, Trouble, Uncached, donors_of, one_by_one,
};
use crate::places::Places;

/// A mounted ext4 whose files can be moved.
#[derive(Debug)]
pub struct Ext4 {
    root: OwnedFd,
    asked: Asked,
    /// The kernel's name of its device.
    name: String,
    /// Blocks of a page, or 1.
    page_blocks: u64,
    unit: u64,
    raised: Option<Raised>,
    uncached: Uncached,
    folios: Option<Folios>,
    /// The kernel moves page by page and commits for each page of a larger folio.
    has_slow_folios: bool,
    /// The kernel may free blocks twice after an exchange that failed midway.
    ends_at_first_error: bool,
    is_rehearsed: bool,
    mount_point: PathBuf,
    keeper: Option<Keeper>,
}

impl Ext4 {
    /// The file system of a directory.
    ///
    /// # Errors
    ///
    /// When files of it must not or can't be moved.
    pub fn of(directory: &Path, uncached: Uncached) -> Result<Ext4, Refusal> {
        let root = open_dir(directory).map_err(|error| Refusal::Unknown { what: "open it", source: error })?;
        let facts = facts::Facts::of(root.as_fd())?;
        let version = kernel_version();
        Ok(Ext4 {
            root,
            asked: Asked::new(facts.dev, facts.block_bytes),
            unit: facts::stream_request(&facts.name).clamp(1, LARGEST_UNIT),
            name: facts.name,
            page_blocks: (page_bytes() / facts.block_bytes).max(1),
            raised: None,
            uncached,
            folios: Folios::open().ok(),
            has_slow_folios: ((6, 16)..(6, 19)).contains(&version),
            ends_at_first_error: version < (6, 8),
            is_rehearsed: false,
            mount_point: facts.mount_point,
            keeper: None,
        })
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.asked.block_bytes
    }

    /// Keeps the old places of all that is moved from now on, in [`.onesweep/undo`](keep); gives the name by which they are
    /// [undone](keep::undo) and [forgotten](keep::forget).
    ///
    /// # Errors
    ///
    /// When that folder can't be made in the root of the mount, or is not the caller's own.
    pub fn keep_old_places(&mut self) -> Result<&str, Failure> {
        let keeper = Keeper::begin(&self.mount_point, self.asked.dev)?;
        Ok(self.keeper.insert(keeper).id())
    }

    /// The name by which old places are kept, when any are.
    #[must_use]
    pub fn kept_run(&self) -> Option<&str> {
        self.keeper.as_ref().filter(|keeper| keeper.is_used()).map(Keeper::id)
    }

    /// The folder of kept places, if it lies below this directory. What is in it is not to be moved.
    #[must_use]
    pub fn kept_below(&self, directory: &Path) -> Option<PathBuf> {
        let folder = keep::folder_path(&self.mount_point);
        let below = folder.strip_prefix(directory.canonicalize().ok()?).ok()?.to_owned();
        Some(directory.join(below))
    }

    /// Makes donors of so many blocks come to lie near their directories too, instead of 16 (`mb_stream_req`). It holds for all that
    /// is written to the file system meanwhile, and is set back when this is dropped or the process ends, however it ends.
    ///
    /// Needs root. False while another process does so.
    ///
    /// # Errors
    ///
    /// When the setting can't be written.
    pub fn raise_unit(&mut self, blocks: u64) -> io::Result<bool> {
        let blocks = blocks.clamp(1, LARGEST_UNIT);
        if self.raised.is_some() {
            return Ok(self.unit >= blocks);
        }
        match Raised::to(&facts::stream_request_path(&self.name), blocks) {
            Ok(raised) => {
                self.raised = raised;
                self.unit = blocks;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes donors of so many blocks though the setting is less. ext4 gives those wherever it has room for large files, not near their
    /// directory, but in few pieces, where small ones near it come in many.
    pub fn take_unit(&mut self, blocks: u64) {
        self.unit = blocks.clamp(self.unit, LARGEST_UNIT);
    }

    /// Sets back what was [raised](Self::raise_unit).
    pub fn lower_unit(&mut self) {
        if let Some(raised) = self.raised.take() {
            self.unit = raised.before().clamp(1, LARGEST_UNIT);
        }
    }

    /// Makes sure of what can't be told without making a file of one block: that space isn't given out in clusters (bigalloc), and that no
    /// fast commits are made where nothing else has told it. Done by itself before the first capture, and before an undo.
    ///
    /// # Errors
    ///
    /// [`Refusal::Bigalloc`], [`Refusal::FastCommits`], or that the file can't be made in that directory.
    pub fn rehearse(&mut self, directory: &Path) -> Result<(), Refusal> {
        if !self.is_rehearsed {
            donor::rehearse(directory, &self.name, self.asked.block_bytes)?;
            self.is_rehearsed = true;
        }
        Ok(())
    }
}

/// Blocks of a donor at most; what ext4 gives to one file in one piece.
const LARGEST_UNIT: u64 = 2048;

impl Host for Ext4 {
    type File = MovableFile;
    type Donor = Donor;

    fn unit(&self) -> u64 {
        self.unit
    }

    /// Unless old places are kept: what is kept of a donor is kept for one region.
    fn shares_donors(&self) -> bool {
        self.keeper.is_none()
    }

    fn look(&mut self, path: &Path) -> Result<Looked, Trouble> {
        self.asked.look(path, file::by_flags)
    }

    fn look_in_memory(&mut self, path: &Path) -> Result<Option<Looked>, Trouble> {
        self.asked.look_in_memory(path, file::by_flags)
    }

    fn announce(&mut self, path: &Path) {
        if self.uncached == Uncached::Read {
            announce(path);
        }
    }

    fn open(&mut self, path: &Path, inode: u64) -> Result<Opened<MovableFile>, Trouble> {
        file::open(self, path, inode)
    }

    fn places(&mut self, file: &MovableFile) -> Result<Places, Trouble> {
        let (places, stays) = self.asked.places(file.fd(), file.path())?;
        stays.map_or(Ok(places), |stays| Err(stays.into()))
    }

    fn free_blocks(&mut self) -> io::Result<u64> {
        Ok(file_system(self.root.as_fd())?.blocks_free)
    }

    fn capture(&mut self, directory: &Path, blocks: u64) -> Captured<Donor> {
        match self.rehearse(directory) {
            Ok(()) => donor::capture(directory, donors_of(blocks, self.unit), self.asked.block_bytes),
            Err(refusal) => Captured { donors: Vec::new(), error: Some(refusal.into()) },
        }
    }

    fn capture_for(&mut self, _: &Path, _: &[u64]) -> Option<Captured<Donor>> {
        None
    }

    fn donor_places(&mut self, donor: &Donor) -> io::Result<Places> {
        donor.places(&mut self.asked)
    }

    fn prepare(&mut self, moves: &[Moves<'_, MovableFile, Donor>]) -> Result<(), Failure> {
        let mut steps: Vec<_> = moves.iter().flat_map(|file| file.steps.iter().map(|step| (file.path, step))).collect();
        // A hole shifts what is behind it, so the first ones come first.
        steps.sort_by_key(|(_, (_, exchange))| exchange.to);
        for (path, (donor, exchange)) in steps {
            let aligned = donor.align(*exchange, self.page_blocks, self.asked.block_bytes);
            aligned.map_err(|error| Failure::new("make ready to move it", path, error))?;
        }
        match &mut self.keeper {
            Some(keeper) => keeper.keep(moves, &mut self.asked),
            None => Ok(()),
        }
    }

    fn exchange(&mut self, file: &MovableFile, donor: &Donor, exchange: Exchange) -> Moved {
        let aligned = donor.align(exchange, self.page_blocks, self.asked.block_bytes).and_then(|()| {
            // The first blocks of its page may have been moved just now.
            if exchange.from.is_multiple_of(self.page_blocks) { Ok(()) } else { sync_data(file.fd()) }
        });
        if let Err(error) = aligned {
            let failure = Failure::new("make ready to move it", file.path(), error);
            return Moved { blocks: 0, trouble: Some(failure.into()) };
        }
        let told = move_extents(file.fd(), donor.fd(), Exchange { to: donor.number(exchange.to), ..exchange });
        let trouble = told.error.map(|error| {
            let stays = match error.raw_os_error() {
                _ if self.ends_at_first_error => None,
                Some(EBUSY | ENODATA | EAGAIN) => Some(Stays::Busy),
                Some(ETXTBSY) => Some(Stays::Swap),
                Some(EPERM) => Some(Stays::Immutable),
                Some(EOPNOTSUPP | ENOTTY) => Some(Stays::Unsupported),
                Some(EINVAL) => Some(Stays::Changed),
                _ => None,
            };
            stays.map_or_else(|| Failure::new("move it", file.path(), error).into(), Trouble::from)
        });
        Moved { blocks: told.blocks, trouble }
    }

    fn exchange_all(&mut self, file: &MovableFile, steps: &[(&Donor, Exchange)]) -> Moved {
        one_by_one(steps, |donor, exchange| self.exchange(file, donor, exchange))
    }

    /// Has the journal commit, which brings the bytes of what was moved to the disk first, a request for each file. To write back inodes and
    /// bitmaps as well, which the next regions change again, would write them twice at each commit.
    fn settle(&mut self, near: &Path) -> io::Result<()> {
        commit_journal(near).or_else(|_| self.commit())
    }

    fn commit(&mut self) -> io::Result<()> {
        sync_file_system(self.root.as_fd())
    }
}
