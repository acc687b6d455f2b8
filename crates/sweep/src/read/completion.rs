//! A file that has all its bytes: it is checked, and handed over; what can't be trusted is read again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use onesweep_sys::{cache, files};

use super::{Engine, Halt, Reader, Trust, Waiting};
use crate::{
    budget::Loan,
    catalogue::{EntryId, Flags},
    error::FileError,
    footprint::Footprint,
    handover,
    image::{ImageContent, unpack},
    item::{Content, FileBytes, Route, SweptFile},
    read_through::{self, Outcome},
    settings::CachePolicy,
};

impl Reader<'_> {
    /// Checks a file that has all its bytes, and hands it over.
    pub(super) fn complete(&mut self, file: u32) -> Result<(), Halt> {
        let volume = self.engine.catalogue.get(self.id(file)).device;
        if self.engine.catalogue.volume(volume).image.is_some() {
            let item = self.item_of_image(file, volume);
            return self.deliver(file, item);
        }
        let opened = self.open_best(file);
        let mut waiting = self.waiting.remove(&file).expect("admitted");
        let came = opened.as_ref().is_ok_and(|(fd, _)| self.leave_cache(file, &mut waiting, fd.as_fd()));
        let item = match waiting.state {
            Trust::Failed(error) => Err(error),
            Trust::Good | Trust::Doubtful => match opened {
                Ok((fd, direct)) => self.checked(file, waiting, &fd, direct, came),
                Err(error) => Err(FileError::io(self.path(file), "open", error)),
            },
        };
        self.open.forget(file);
        self.deliver(file, item)
    }

    /// Nobody else can have changed the file, so it needs no check; what could not be read with others is read alone.
    fn item_of_image(&mut self, file: u32, volume: u16) -> Result<SweptFile, FileError> {
        let (id, catalogue) = (self.id(file), self.engine.catalogue);
        let waiting = self.waiting.remove(&file).expect("admitted");
        let mut item = handover::item(catalogue, self.engine.opener, id, self.engine.xattrs, None)?;
        let mut bytes = waiting.buffer.try_into_bytes().expect("all reads of the file have landed");
        let size = catalogue.get(id).size as usize;
        match waiting.state {
            Trust::Failed(error) => return Err(error),
            Trust::Doubtful => {
                bytes.truncate(size);
                let device = self.device().image(volume).cloned().expect("an image has a device");
                let read = ImageContent::of(catalogue, id, &device).read_all(&mut bytes);
                read.map_err(|error| FileError::io(item.path.clone(), "read", error))?;
            }
            Trust::Good => {
                if let Some(unit) = catalogue.packed_unit(id) {
                    let unpacked = unpack(&mut bytes, unit, catalogue.pieces(id, file));
                    unpacked.map_err(|error| FileError::io(item.path.clone(), "unpack", error))?;
                }
                bytes.truncate(size);
                if let Some(extra) = catalogue.extra(id) {
                    extra.amends.apply(&mut bytes, 0);
                }
            }
        }
        item.data = catalogue.data_ranges(id);
        item.content = Content::Bytes(FileBytes::lent(bytes, waiting.loan));
        item.route = Route::Swept;
        Ok(item)
    }

    pub(super) fn deliver(&mut self, file: u32, item: Result<SweptFile, FileError>) -> Result<(), Halt> {
        if item.is_err() {
            self.failed.push(self.id(file));
        }
        if self.engine.outlet.send(item) { Ok(()) } else { Err(Halt::Cancelled) }
    }

    fn checked(
        &mut self,
        file: u32,
        waiting: Waiting,
        fd: &OwnedFd,
        direct: bool,
        came: bool,
    ) -> Result<SweptFile, FileError> {
        let id = self.id(file);
        let entry = self.engine.catalogue.get(id);
        // A write that began before the survey shows by no time stamp, and its bytes may have come in between.
        // Where nobody can tell what a second reading would leave in the page cache, there is none.
        let in_doubt = entry.flags.has(Flags::RECENT) && !entry.flags.has(Flags::UNTOLD);
        let unchanged = !in_doubt && files::statx_fd(fd.as_fd()).is_ok_and(|stat| entry.is_unchanged(&stat));
        let holds = match &mut self.engine.device {
            Some(device) => unchanged && device.holds(self.engine.catalogue, id, fd.as_fd()),
            None => unchanged,
        };
        if !holds || !matches!(waiting.state, Trust::Good) {
            drop(waiting.buffer);
            let mut item = read_again(&mut self.engine, id, waiting.loan)?;
            item.was_cached = waiting.was_cached;
            return Ok(item);
        }
        // Some file systems take direct reads through their cache after all: btrfs, where data has checksums.
        let shows = waiting.through && direct && !entry.flags.has(Flags::PARTLY_CACHED);
        if shows && !(came && entry.flags.has(Flags::THROUGH_FILE_SYSTEM)) {
            self.ways(file).learn(!came);
        }
        let catalogue = self.engine.catalogue;
        let mut item = handover::item(catalogue, self.engine.opener, id, self.engine.xattrs, Some(fd.as_fd()))?;
        let mut bytes = waiting.buffer.try_into_bytes().expect("all reads of the file have landed");
        bytes.truncate(entry.size as usize);
        item.data = catalogue.data_ranges(id);
        item.content = Content::Bytes(FileBytes::lent(bytes, waiting.loan));
        item.route = Route::Swept;
        item.was_cached = waiting.was_cached;
        Ok(item)
    }

    /// After the last read of a file, whatever became of it: drops what was brought into the page cache. Tells if a file
    /// of which nothing was there had come into it.
    pub(super) fn leave_cache(&self, file: u32, waiting: &mut Waiting, fd: BorrowedFd<'_>) -> bool {
        waiting.footprint.wipe(fd);
        let partly_cached = self.engine.catalogue.get(self.id(file)).flags.has(Flags::PARTLY_CACHED);
        let untouched = self.engine.cache == CachePolicy::Untouched;
        untouched && waiting.through && !partly_cached && drop_what_came(fd)
    }
}

/// Drops what the reads of a file brought into the page cache, where nothing of it was before; tells if they did.
fn drop_what_came(fd: BorrowedFd<'_>) -> bool {
    let came = cache::residency(fd, 0, 0).is_ok_and(|pages| pages.cached > 0);
    if came {
        Footprint::everything().wipe(fd);
    }
    came
}

/// Reads a file through the file system after its fragments could not be trusted.
fn read_again(engine: &mut Engine<'_>, id: EntryId, loan: Loan) -> Result<SweptFile, FileError> {
    let path = || engine.catalogue.path(id);
    engine.throttle.pass(engine.catalogue.get(id).size, engine.outlet.cancel());
    let fd = engine.opener.inode(engine.catalogue, id, false).map_err(|error| FileError::io(path(), "open", error))?;
    let mut footprint = match engine.cache {
        CachePolicy::Untouched => Footprint::of_entry(&engine.catalogue.get(id), fd.as_fd()),
        CachePolicy::Fill => Footprint::default(),
    };
    let outcome =
        read_through::read_stable(fd.as_fd(), None, engine.pool, loan, |bytes| engine.share.try_reserve(bytes), &path);
    footprint.wipe(fd.as_fd());
    let outcome = outcome?;
    let mut item = handover::item(engine.catalogue, engine.opener, id, engine.xattrs, Some(fd.as_fd()))?;
    match outcome {
        Outcome::Whole { bytes, loan, stat } => {
            item.learn(&stat);
            item.data = read_through::data_ranges(fd.as_fd(), &bytes, &stat);
            item.content = Content::Bytes(FileBytes::lent(bytes, loan));
            item.route = Route::Reread;
        }
        Outcome::TooLarge => {
            let rules = engine.stream_rules.clone();
            handover::stream_as_it_is_now(engine.catalogue, engine.opener, id, &mut item, fd.as_fd(), rules)?;
        }
    }
    Ok(item)
}
