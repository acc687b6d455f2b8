//! A file changes places with what was written for it, if nobody has changed it since before it was read.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use onesweep_sys::{
    exchange_ranges::{Sample, exchange, exchange_if_same, sample},
    files::{Moment, Stat, Time, reopen_to_write, set_moments_handle, statx_fd, xattr_fd},
    sharing::Part,
    xfs::open_timeless,
};

use super::writers::refuse_writers;
use crate::errno::EPERM;
use crate::file::{MovableFile, not_opened, stays_by_flags, trouble};
use crate::giving::{Donor, Source, Way, stays_by_error};
use crate::host::{Failure, Stays, Trouble};

/// An exchange takes rights away from a file that gives some.
pub(super) fn refuse_rights(file: &MovableFile, stat: &Stat) -> Result<(), Trouble> {
    const SET_IDS: u32 = 0o6000;
    let capabilities = xattr_fd(file.fd(), c"security.capability");
    let capabilities = capabilities.map_err(|error| trouble("ask for its attributes", file.path(), error))?;
    if stat.mode & SET_IDS != 0 || capabilities.is_some() { Err(Stays::Rights.into()) } else { Ok(()) }
}

/// What became of times.
#[derive(Debug, Default)]
pub(super) struct Swapping {
    /// Files that have a new time of the last change of the inode (ctime).
    pub(super) new_ctime: HashSet<PathBuf>,
}

impl Way for Swapping {
    type Begun = Begun;

    fn begin(&self, file: &MovableFile) -> Result<Begun, Trouble> {
        begin(file)
    }

    fn stage(&self, donor: &Donor, whole: Part, bytes: &[u8]) -> io::Result<File> {
        let staged = donor.beside()?;
        staged.set_len(whole.bytes)?;
        exchange(donor.fd(), whole, staged.as_fd(), 0)?;
        // Nothing is written there yet that would have to be zeroed behind the end.
        staged.set_len(bytes.len() as u64)?;
        staged.write_all_at(bytes, 0)?;
        Ok(staged)
    }

    fn pass(
        &mut self,
        begun: &Begun,
        file: &MovableFile,
        from: u64,
        source: &Source<'_>,
        part: Part,
        donor: &Donor,
    ) -> Result<u64, Trouble> {
        if !begun.swap(file, from, source, part, donor.directory())? {
            self.new_ctime.insert(file.path().to_owned());
        }
        Ok(part.bytes)
    }
}

/// A file as it was before it was read.
#[derive(Debug)]
pub(super) struct Begun {
    sample: Sample,
    changed: Time,
}

/// Looks at a file that is about to be read.
fn begin(file: &MovableFile) -> Result<Begun, Trouble> {
    let failed = |error| trouble("ask when it was changed", file.path(), error);
    let sample = sample(file.fd()).map_err(failed)?;
    // Is this another time than that of the sample, then so it is when places are to change.
    let changed = statx_fd(file.fd()).map_err(failed)?.mtime;
    refuse_writers(file)?;
    Ok(Begun { sample, changed })
}

impl Begun {
    /// Has the part of the source, which lies in a directory, and as many bytes of the file change places; tells whether all times of
    /// the file stayed.
    fn swap(
        &self,
        file: &MovableFile,
        from: u64,
        source: &Source<'_>,
        part: Part,
        directory: BorrowedFd<'_>,
    ) -> Result<bool, Trouble> {
        let (fd, keeps_times) = open_to_swap(file, directory)?;
        let told = exchange_if_same(source.fd(), part, fd.as_fd(), from, &self.sample);
        drop(fd);
        told.map_err(|error| match stays_by_error(&error) {
            Some(stays) => stays.into(),
            None => Trouble::from(Failure::new("move it", file.path(), error)),
        })?;
        if !keeps_times {
            set_back(file, self.changed)?;
        }
        Ok(keeps_times)
    }
}

/// The file open for writing, and whether its times stay: only root can have that.
fn open_to_swap(file: &MovableFile, directory: BorrowedFd<'_>) -> Result<(OwnedFd, bool), Trouble> {
    let opened = match open_timeless(directory, file.fd()) {
        Err(error) if error.raw_os_error() == Some(EPERM) => reopen_to_write(file.fd()).map(|fd| (fd, false)),
        opened => opened.map(|fd| (fd, true)),
    };
    opened.map_err(|error| not_opened(file.path(), stays_by_flags, error))
}

/// Sets the time of change back. Who has opened the file for writing since may have changed it: then now is right.
fn set_back(file: &MovableFile, changed: Time) -> Result<(), Trouble> {
    let set = |moment| {
        let told = set_moments_handle(file.fd(), Moment::Same, moment);
        told.map_err(|error| Failure::new("set its time back", file.path(), error))
    };
    set(Moment::At(changed))?;
    match refuse_writers(file) {
        Err(Trouble::Stays(Stays::Busy)) => Ok(set(Moment::Now)?),
        told => told,
    }
}
