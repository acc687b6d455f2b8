//! The survey: each file is opened once, in inode order; what lies in the page cache is told from what must come from
//! the disk, and of the latter it is learned where it lies.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_layout::{Extent, ExtentFlags, LayoutSource};
use onesweep_sys::{cache, files, inode};

use crate::{
    catalogue::{Catalogue, EntryId, Flags},
    error::FileError,
    item::Kind,
    opener::Opener,
};

/// Pages of the page cache, in bytes.
const PAGE: u64 = 4096;

/// Time stamps of files younger than this are not trusted to show a change: they tick coarsely before Linux 6.13.
const SETTLED_SECONDS: i64 = 1;

/// What is to be done with an entry.
#[derive(Debug)]
pub(crate) enum Surveyed {
    /// Nothing has to come from the disk: no content, or all of it in the cache. Open, if it was opened.
    Ready(Option<OwnedFd>),
    /// Its fragments are in the catalogue.
    Planned,
    /// Too large or too special for the plan.
    Streamed,
}

/// What a survey is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    /// Content is wanted, or the plan for it.
    pub(crate) content: bool,
    /// The order needs to know where the data lies.
    pub(crate) layout: bool,
    /// The data will be read from the device.
    pub(crate) device: bool,
    /// Files over this size are streamed.
    pub(crate) large: u64,
}

/// Where the data of each volume's files lies, as far as it was asked for already.
pub(crate) struct Surveyor {
    aim: Aim,
    sources: HashMap<u16, Box<dyn LayoutSource>>,
}

impl Surveyor {
    pub(crate) fn new(aim: Aim) -> Self {
        Self { aim, sources: HashMap::new() }
    }

    /// Looks at one entry that is no directory.
    pub(crate) fn survey(
        &mut self,
        catalogue: &mut Catalogue,
        opener: &mut Opener,
        id: EntryId,
        source_for: &dyn Fn(u16, BorrowedFd<'_>) -> Box<dyn LayoutSource>,
    ) -> Result<Surveyed, FileError> {
        let fail = |catalogue: &Catalogue, step: &str, error| FileError::io(catalogue.path(id), step, error);
        if !catalogue.get(id).is_file() {
            let stat = stat_unopened(catalogue, opener, id).map_err(|error| fail(catalogue, "stat", error))?;
            catalogue.get_mut(id).learn(&stat);
            return match Kind::of_mode(stat.mode) {
                // Something else has taken the name since it was listed; the next sweep will meet it.
                Some(Kind::File | Kind::Directory) => Err(FileError::Vanished { path: catalogue.path(id) }),
                _ => Ok(Surveyed::Ready(None)),
            };
        }
        let fd = open(catalogue, opener, id).map_err(|error| fail(catalogue, "open", error))?;
        let stat = files::statx_fd(fd.as_fd()).map_err(|error| fail(catalogue, "stat", error))?;
        if Kind::of_mode(stat.mode) != Some(Kind::File) {
            return Err(FileError::Vanished { path: catalogue.path(id) });
        }
        catalogue.get_mut(id).learn(&stat);
        if stat.size == 0 || !self.aim.content {
            return Ok(Surveyed::Ready(Some(fd)));
        }
        let foreign = stat.dev != catalogue.volume(catalogue.get(id).device).dev;
        let looks_sparse = stat.blocks * 512 < stat.size;
        let pages = cache::residency(fd.as_fd(), 0, stat.size).ok();
        if let Some(pages) = &pages {
            let all_cached = pages.cached >= stat.size.div_ceil(PAGE);
            if all_cached && !looks_sparse && stat.size <= self.aim.large {
                catalogue.get_mut(id).flags.set(Flags::CACHED);
                return Ok(Surveyed::Ready(Some(fd)));
            }
            if pages.cached > 0 {
                catalogue.get_mut(id).flags.set(Flags::PARTLY_CACHED);
            }
        }
        if is_recent(stat.ctime.secs) {
            catalogue.get_mut(id).flags.set(Flags::RECENT);
        }
        if self.aim.layout && !foreign {
            self.map(catalogue, id, fd.as_fd(), source_for).map_err(|error| fail(catalogue, "map", error))?;
        } else {
            catalogue.add_fragment(id, None, 0, stat.size);
        }
        if self.aim.device {
            self.judge_for_device(catalogue, id, fd.as_fd(), foreign, pages.as_ref());
        }
        if catalogue.get(id).flags.has(Flags::STREAMED) || stat.size > self.aim.large {
            catalogue.get_mut(id).flags.set(Flags::STREAMED);
            return Ok(Surveyed::Streamed);
        }
        Ok(if catalogue.get(id).fragments == 0 { Surveyed::Ready(Some(fd)) } else { Surveyed::Planned })
    }

    fn map(
        &mut self,
        catalogue: &mut Catalogue,
        id: EntryId,
        fd: BorrowedFd<'_>,
        source_for: &dyn Fn(u16, BorrowedFd<'_>) -> Box<dyn LayoutSource>,
    ) -> io::Result<()> {
        let entry = catalogue.get(id);
        let source = self.sources.entry(entry.device).or_insert_with(|| source_for(entry.device, fd));
        let (mut flags, mut seen) = (Flags::NONE, ExtentFlags::empty());
        let outcome = source.map(fd, entry.size, &mut |extent: Extent| {
            seen |= extent.flags;
            if extent.flags.contains(ExtentFlags::UNWRITTEN) {
                return;
            }
            if extent.physical.is_none() {
                flags.set(Flags::UNMAPPED);
            }
            if !catalogue.add_fragment(id, extent.physical, extent.logical, extent.length) {
                flags.set(Flags::STREAMED);
            }
        });
        outcome.map_err(io::Error::other)?;
        // Compressed and encrypted bytes mean nothing to who reads the device (DAFT II.D).
        if self.aim.device && seen.intersects(ExtentFlags::ENCODED | ExtentFlags::ENCRYPTED) {
            flags.set(Flags::STREAMED);
        }
        // Data among metadata, or not in whole blocks.
        if seen.intersects(ExtentFlags::INLINE | ExtentFlags::TAIL | ExtentFlags::NOT_ALIGNED) {
            flags.set(Flags::THROUGH_FILE_SYSTEM);
        }
        catalogue.get_mut(id).flags.set(flags);
        Ok(())
    }

    /// What a device read could get wrong, and what it is checked by afterwards (design decision 2).
    fn judge_for_device(
        &self,
        catalogue: &mut Catalogue,
        id: EntryId,
        fd: BorrowedFd<'_>,
        foreign: bool,
        pages: Option<&cache::Residency>,
    ) {
        let clean = pages.is_some_and(|pages| pages.dirty == Some(0) && pages.writeback == Some(0));
        let entry = catalogue.get_mut(id);
        entry.generation = inode::generation(fd).ok().flatten().unwrap_or(0);
        if foreign || !clean || entry.flags.has(Flags::RECENT) || entry.flags.has(Flags::UNMAPPED) {
            entry.flags.set(Flags::THROUGH_FILE_SYSTEM);
        }
    }
}

fn is_recent(ctime_seconds: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    ctime_seconds >= now - SETTLED_SECONDS
}

fn open(catalogue: &Catalogue, opener: &mut Opener, id: EntryId) -> io::Result<OwnedFd> {
    match opener.parent(catalogue, id)? {
        Some(parent) => files::open_file_at(parent.as_fd(), catalogue.name(id)),
        None => opener.file(catalogue, id, false),
    }
}

fn stat_unopened(catalogue: &Catalogue, opener: &mut Opener, id: EntryId) -> io::Result<files::Stat> {
    match opener.parent(catalogue, id)? {
        Some(parent) => files::statx_at(parent.as_fd(), catalogue.name(id), true),
        None => files::statx_at(files::CURRENT_DIR, catalogue.root(id), true),
    }
}
