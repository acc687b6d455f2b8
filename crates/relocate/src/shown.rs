//! A file system whose files are looked at alone.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use onesweep_sys::files::{file_system, sync_file_system};

use crate::file::Asked;
use crate::host::{Captured, Exchange, Failure, Host, Looked, Moved, Moves, Opened, Stays, Trouble};
use crate::places::Places;

/// A file system that tells where its files lie, and moves none.
#[derive(Debug)]
pub struct Shown {
    root: OwnedFd,
    asked: Asked,
}

impl Shown {
    pub(crate) fn of(root: OwnedFd, dev: u64) -> io::Result<Shown> {
        let block_bytes = file_system(root.as_fd())?.block_size;
        Ok(Shown { root, asked: Asked::new(dev, block_bytes) })
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.asked.block_bytes
    }
}

impl Host for Shown {
    type File = Infallible;
    type Donor = Infallible;

    fn unit(&self) -> u64 {
        1
    }

    fn shares_donors(&self) -> bool {
        false
    }

    fn look(&mut self, path: &Path) -> Result<Looked, Trouble> {
        let looked = self.asked.look(path, |_| None)?;
        Ok(Looked { stays: looked.stays.or(Some(Stays::Unsupported)), ..looked })
    }

    fn look_in_memory(&mut self, path: &Path) -> Result<Option<Looked>, Trouble> {
        let looked = self.asked.look_in_memory(path, |_| None)?;
        Ok(looked.map(|looked| Looked { stays: looked.stays.or(Some(Stays::Unsupported)), ..looked }))
    }

    fn announce(&mut self, _: &Path) {}

    fn open(&mut self, _: &Path, _: u64) -> Result<Opened<Infallible>, Trouble> {
        Err(Stays::Unsupported.into())
    }

    fn places(&mut self, file: &Infallible) -> Result<Places, Trouble> {
        match *file {}
    }

    fn free_blocks(&mut self) -> io::Result<u64> {
        Ok(file_system(self.root.as_fd())?.blocks_free)
    }

    fn capture(&mut self, _: &Path, _: u64) -> Captured<Infallible> {
        Captured { donors: Vec::new(), error: Some(io::ErrorKind::Unsupported.into()) }
    }

    fn capture_for(&mut self, _: &Path, _: &[u64]) -> Option<Captured<Infallible>> {
        None
    }

    fn donor_places(&mut self, donor: &Infallible) -> io::Result<Places> {
        match *donor {}
    }

    fn prepare(&mut self, _: &[Moves<'_, Infallible, Infallible>]) -> Result<(), Failure> {
        Ok(())
    }

    fn exchange(&mut self, file: &Infallible, _: &Infallible, _: Exchange) -> Moved {
        match *file {}
    }

    fn exchange_all(&mut self, file: &Infallible, _: &[(&Infallible, Exchange)]) -> Moved {
        match *file {}
    }

    fn settle(&mut self, _: &Path) -> io::Result<()> {
        self.commit()
    }

    fn commit(&mut self) -> io::Result<()> {
        sync_file_system(self.root.as_fd())
    }
}
