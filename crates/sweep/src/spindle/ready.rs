//! Entries that need no read from the disk (no content, or all of it cached), and those that are streamed after the sweep.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use onesweep_sys::buffer::Bytes;

use super::{SpindleSweep, send, whole};
use crate::{
    at_once::Whole,
    catalogue::{EntryId, Flags},
    delivery::Item,
    error::FileError,
    footprint::Footprint,
    handover,
    item::{Content, FileBytes, Route, SweptFile},
    outlet::Outlet,
    read::Halt,
    read_through::{self, Outcome},
    settings::CachePolicy,
    stream::StreamRules,
    survey::{self, Opened},
};

/// What became of a file that might be read at once.
pub(super) enum Tried {
    HandedOver,
    /// It is to be looked at in the ordinary way. Open, if it was opened.
    Opened(Option<OwnedFd>),
}

impl SpindleSweep {
    /// Reads a file [at once](crate::at_once) and hands it over, where that is due.
    pub(super) fn hand_over_at_once(&mut self, outlet: &Outlet, id: EntryId) -> Result<Tried, Halt> {
        let entry = self.catalogue.get(id);
        let home = self.surveyor.reads_at_once(entry.device).filter(|_| entry.is_file());
        let Some(home) = home.filter(|_| self.at_once.is_due()) else { return Ok(Tried::Opened(None)) };
        // What can't be opened is told of in the ordinary way.
        let Ok(fd) = survey::open(&self.catalogue, &mut self.opener, id) else { return Ok(Tried::Opened(None)) };
        let expected = (self.catalogue.volume(entry.device).dev, entry.ino);
        let (bytes, loan, stat) = match self.at_once.read(fd.as_fd(), (expected, home), &self.pool, &self.share) {
            Some(Whole { bytes, loan, stat }) if self.surveyor.is_held(stat.size, loan.bytes()) => (bytes, loan, stat),
            _ => return Ok(Tried::Opened(Some(fd))),
        };
        self.surveyed_files += 1;
        self.surveyed_bytes += stat.size;
        self.ahead.met_in_memory();
        let entry = self.catalogue.get_mut(id);
        entry.learn(&stat);
        entry.flags.set(Flags::CACHED);
        entry.flags.set(Flags::DONE);
        let mut item = handover::item(&self.catalogue, &mut self.opener, id, self.settings.xattrs, Some(fd.as_fd()));
        if let Ok(item) = &mut item {
            item.route = Route::Cached;
            item.data = whole(stat.size);
            item.content = Content::Bytes(FileBytes::lent(bytes, loan));
        }
        self.hand_over(outlet, id, item)?;
        Ok(Tried::HandedOver)
    }

    /// Hands over an entry that needs no read from the disk.
    pub(super) fn hand_over_ready(&mut self, outlet: &Outlet, id: EntryId, opened: Option<Opened>) -> Result<(), Halt> {
        self.catalogue.get_mut(id).flags.set(Flags::DONE);
        let item = self.ready_item(outlet, id, opened);
        match item.transpose() {
            Some(item) => self.hand_over(outlet, id, item),
            None => Err(Halt::Cancelled),
        }
    }

    fn hand_over(&mut self, outlet: &Outlet, id: EntryId, item: Item) -> Result<(), Halt> {
        let failed = item.is_err();
        send(outlet, item)?;
        if failed { self.fail(outlet, id) } else { Ok(()) }
    }

    /// `None` when the sweep was cancelled while it waited for memory.
    fn ready_item(
        &mut self,
        outlet: &Outlet,
        id: EntryId,
        opened: Option<Opened>,
    ) -> Result<Option<SweptFile>, FileError> {
        if self.image_device().is_some() {
            return self.ready_item_of_image(outlet, id);
        }
        let entry = self.catalogue.get(id);
        let xattrs = self.settings.xattrs;
        let is_made_up = entry.flags.has(Flags::MADE_UP);
        let has_content = entry.size > 0 || is_made_up;
        let needs_fd = entry.is_file() && (xattrs || (self.settings.content && has_content));
        let (fd, seen) = opened.map(|opened| (opened.fd, opened.stat)).unzip();
        let fd = match fd {
            None if needs_fd => Some(
                self.opener
                    .inode(&self.catalogue, id, false)
                    .map_err(|error| FileError::io(self.catalogue.path(id), "open", error))?,
            ),
            fd => fd,
        };
        let borrowed = fd.as_ref().map(|fd| fd.as_fd());
        let mut item = handover::item(&self.catalogue, &mut self.opener, id, xattrs, borrowed)?;
        if !entry.is_file() || !self.settings.content {
            return Ok(Some(item));
        }
        if let Some(fd) = fd.as_ref().filter(|_| is_made_up) {
            return self.made_up(outlet, id, item, fd);
        }
        let Some(loan) = outlet.reserve(&self.share, self.catalogue.cost(id)) else { return Ok(None) };
        let Some(fd) = fd.filter(|_| entry.size > 0) else {
            item.content = Content::Bytes(FileBytes::lent(Bytes::empty(), loan));
            return Ok(Some(item));
        };
        let reserve = |bytes| self.share.try_reserve(bytes);
        let path = || self.catalogue.path(id);
        let mut footprint = match self.settings.cache {
            // A file of holes alone: reading it makes pages of zeros.
            CachePolicy::Untouched if !entry.flags.has(Flags::CACHED) => Footprint::of_entry(&entry, fd.as_fd()),
            _ => Footprint::default(),
        };
        let outcome = read_through::read_stable(fd.as_fd(), seen, &self.pool, loan, reserve, &path);
        footprint.wipe(fd.as_fd());
        match outcome? {
            Outcome::Whole { bytes, loan, stat } => {
                item.learn(&stat);
                item.content = Content::Bytes(FileBytes::lent(bytes, loan));
                if entry.flags.has(Flags::CACHED) {
                    item.route = Route::Cached;
                    item.data = whole(stat.size);
                }
            }
            Outcome::TooLarge => {
                let rules = self.stream_rules(outlet);
                handover::stream_as_it_is_now(&self.catalogue, &mut self.opener, id, &mut item, fd.as_fd(), rules)?;
            }
        }
        Ok(Some(item))
    }

    /// Gives an item content that has no size before it is read.
    fn made_up(
        &self,
        outlet: &Outlet,
        id: EntryId,
        mut item: SweptFile,
        fd: &OwnedFd,
    ) -> Result<Option<SweptFile>, FileError> {
        let fail = |error| FileError::io(self.catalogue.path(id), "read it to its end", error);
        let fd = fd.try_clone().map_err(fail)?;
        let reserve = |bytes| outlet.reserve(&self.share, bytes);
        let read = read_through::read_made_up(fd, &self.pool, self.share.limit(), reserve).map_err(fail)?;
        let Some((bytes, loan)) = read else { return Ok(None) };
        item.metadata.size = bytes.len() as u64;
        item.data = whole(item.metadata.size);
        item.content = Content::Bytes(FileBytes::lent(bytes, loan));
        Ok(Some(item))
    }

    pub(super) fn stream_rules(&self, outlet: &Outlet) -> StreamRules {
        StreamRules {
            keep_cached: self.settings.cache == CachePolicy::Fill,
            throttle: Arc::clone(&self.throttle),
            cancel: outlet.cancel().clone(),
            counters: Arc::clone(outlet.counters()),
            moment: self.placements.moment().cloned(),
        }
    }

    /// The order of streams: by their first extents (DAFT II.D), where these are known.
    pub(super) fn sort_streams(&self, streamed: &mut [EntryId]) {
        if self.order.needs_layout() {
            streamed.sort_by_cached_key(|&id| self.catalogue.first_block_address(id).unwrap_or(u64::MAX));
        }
    }

    /// Large and special files.
    pub(super) fn stream(&mut self, outlet: &Outlet, mut streamed: Vec<EntryId>) -> Result<(), Halt> {
        self.sort_streams(&mut streamed);
        for id in streamed {
            let item = match self.image_device() {
                Some(_) => self.stream_item_of_image(outlet, id),
                None => self.stream_item(outlet, id),
            };
            self.catalogue.get_mut(id).flags.set(Flags::DONE);
            self.hand_over(outlet, id, item)?;
        }
        Ok(())
    }

    fn stream_item(&mut self, outlet: &Outlet, id: EntryId) -> Result<SweptFile, FileError> {
        let mut item = handover::item(&self.catalogue, &mut self.opener, id, false, None)?;
        item.data = self.catalogue.data_ranges(id);
        self.stream_extras(outlet, id, &mut item)?;
        Ok(item)
    }

    fn stream_extras(&mut self, outlet: &Outlet, id: EntryId, item: &mut SweptFile) -> Result<(), FileError> {
        if self.settings.xattrs {
            let fd = self
                .opener
                .inode(&self.catalogue, id, false)
                .map_err(|error| FileError::io(self.catalogue.path(id), "open", error))?;
            let with = handover::item(&self.catalogue, &mut self.opener, id, true, Some(fd.as_fd()))?;
            item.xattrs = with.xattrs;
        }
        let (state, rules) = (self.catalogue.get(id).state(), self.stream_rules(outlet));
        handover::stream(&self.catalogue, &mut self.opener, id, item, state, rules)
    }
}
