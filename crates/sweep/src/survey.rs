//! The survey: each file is opened once, in inode order; what lies in the page cache is told from what must come from
//! the disk, and of the latter it is learned where it lies.

use std::{
    collections::HashSet,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_layout::{AddressSampler, Extent, ExtentFlags, Meaningless, Sources};
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
    /// Content is wanted, not only the order of reading it.
    pub(crate) content: bool,
    /// The order needs to know where the data lies.
    pub(crate) layout: bool,
    /// The data will be read from the device.
    pub(crate) device: bool,
    /// The file system's addresses mean something.
    pub(crate) trusted: bool,
    /// Files that lie in the cache are told apart.
    pub(crate) cached_first: bool,
    /// Files over this size are streamed.
    pub(crate) large: u64,
}

/// Looks at files, one after the other.
pub(crate) struct Surveyor {
    aim: Aim,
    sources: Sources,
    sampler: AddressSampler,
    /// Volumes whose delayed allocations were written out, so that they have addresses.
    synced: HashSet<u16>,
    /// Volumes that can't be read from their devices.
    not_from_device: HashSet<u16>,
}

impl Surveyor {
    /// `device_bytes` is the size of the device below, where there is one.
    pub(crate) fn new(aim: Aim, device_bytes: Option<u64>) -> Self {
        Self {
            aim,
            sources: Sources::new(),
            sampler: AddressSampler::new(device_bytes),
            synced: HashSet::new(),
            not_from_device: HashSet::new(),
        }
    }

    /// Why the addresses that were seen so far can't be places on a device, if they can't.
    pub(crate) fn verdict(&self) -> Option<Meaningless> {
        self.sampler.verdict()
    }

    /// In device mode: reads the files of this volume through the file system all the same.
    pub(crate) fn leave_to_file_system(&mut self, volume: u16) {
        self.not_from_device.insert(volume);
    }

    /// Looks at one entry that is no directory.
    pub(crate) fn survey(
        &mut self,
        catalogue: &mut Catalogue,
        opener: &mut Opener,
        id: EntryId,
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
        if stat.size == 0 {
            return Ok(Surveyed::Ready(Some(fd)));
        }
        let foreign = stat.dev != catalogue.volume(catalogue.get(id).device).dev;
        let looks_sparse = stat.blocks * 512 < stat.size;
        let pages = cache::residency(fd.as_fd(), 0, stat.size).ok();
        if let Some(pages) = &pages {
            let all_cached = pages.cached >= stat.size.div_ceil(PAGE);
            if self.aim.content && self.aim.cached_first && all_cached && !looks_sparse && stat.size <= self.aim.large {
                catalogue.get_mut(id).flags.set(Flags::CACHED);
                return Ok(Surveyed::Ready(Some(fd)));
            }
        }
        // Where it can't be told (another user's file), nothing is dropped from the cache either.
        if pages.as_ref().is_none_or(|pages| pages.cached > 0) {
            catalogue.get_mut(id).flags.set(Flags::PARTLY_CACHED);
        }
        if is_recent(stat.ctime.secs) {
            catalogue.get_mut(id).flags.set(Flags::RECENT);
        }
        if self.aim.layout && !foreign {
            self.map(catalogue, id, fd.as_fd(), &stat);
        } else {
            whole(catalogue, id, stat.size);
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

    /// Learns where the data lies. What can't be mapped is read in inode order.
    fn map(&mut self, catalogue: &mut Catalogue, id: EntryId, fd: BorrowedFd<'_>, stat: &files::Stat) {
        let volume = catalogue.get(id).device;
        if self.synced.insert(volume) {
            // Once for all files; a failure leaves some of them without an address.
            let _ = files::sync_file_system(fd);
        }
        let Self { aim, sources, sampler, .. } = self;
        let (mut flags, mut seen) = (Flags::NONE, ExtentFlags::empty());
        let outcome = sources.map(fd, stat, &mut |extent: Extent| {
            seen |= extent.flags;
            if extent.flags.contains(ExtentFlags::UNWRITTEN) {
                return;
            }
            match extent.physical.filter(|_| aim.trusted) {
                Some(address) => sampler.add(address, extent.length),
                None => flags.set(Flags::UNMAPPED),
            }
            let length = extent.length.min(stat.size.saturating_sub(extent.logical));
            if !catalogue.add_fragment(id, extent.physical.filter(|_| aim.trusted), extent.logical, length) {
                flags.set(Flags::STREAMED);
            }
        });
        if outcome.is_err() {
            // The extents changed while they were told, or the file system is odd: the file is read all the same.
            catalogue.forget_fragments(id);
            flags.set(Flags::UNMAPPED);
            whole(catalogue, id, stat.size);
        }
        // Compressed and encrypted bytes mean nothing to who reads the device (DAFT II.D).
        if self.aim.device && seen.intersects(ExtentFlags::ENCODED | ExtentFlags::ENCRYPTED) {
            flags.set(Flags::STREAMED);
        }
        // Where bytes are encoded, equal addresses don't mean equal bytes of the file.
        if seen.contains(ExtentFlags::SHARED) && !seen.intersects(ExtentFlags::NOT_PLAIN - ExtentFlags::UNWRITTEN) {
            flags.set(Flags::SHARED);
        }
        // Data among metadata, or not in whole blocks, or not as it is read: the kernel goes through its cache.
        if seen.intersects(ExtentFlags::NOT_PLAIN - ExtentFlags::UNWRITTEN) {
            flags.set(Flags::THROUGH_FILE_SYSTEM);
        }
        catalogue.get_mut(id).flags.set(flags);
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
        let foreign = foreign || self.not_from_device.contains(&catalogue.get(id).device);
        let entry = catalogue.get_mut(id);
        entry.generation = inode::generation(fd).ok().flatten().unwrap_or(0);
        if foreign || !clean || entry.flags.has(Flags::RECENT) || entry.flags.has(Flags::UNMAPPED) {
            entry.flags.set(Flags::THROUGH_FILE_SYSTEM);
        }
    }
}

/// Stands for all of a file of which nothing is known.
fn whole(catalogue: &mut Catalogue, id: EntryId, size: u64) {
    if !catalogue.add_fragment(id, None, 0, size) {
        catalogue.get_mut(id).flags.set(Flags::STREAMED);
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
