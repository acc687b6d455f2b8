//! The sweep of an image: its tables are read instead of a walk and a survey, and its files from the device.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_layout::tables::{Indexes, TableError};
use onesweep_sys::buffer::Bytes;

use super::{Batch, SpindleSweep, Surveyed, whole};
use crate::{
    catalogue::{EntryId, Flags, Volume},
    device::DeviceCheck,
    error::FileError,
    handover,
    image::{self, FillError, Filling, Image, ImageContent, ImageDevice},
    item::{Content, FileBytes, Route, SweptFile},
    outlet::{Counters, Outlet},
    placement::Placement,
    progress::Progress,
    read::Halt,
    settings::Entries,
    stream::FileStream,
};

impl SpindleSweep {
    /// Makes this the sweep of an image, which has to be its only root; `realtime` is its realtime device, where
    /// that is here.
    pub(crate) fn set_image(
        &mut self,
        image: Image,
        placement: &Placement,
        realtime: Option<Volume>,
    ) -> io::Result<()> {
        let volume = self.catalogue.volume_number(placement.volume);
        let mut device = DeviceCheck::default();
        device.admit_image(volume, Arc::clone(&image.device))?;
        let mut realtime_volume = None;
        if let Some((on, beside)) = realtime.zip(image.realtime.as_ref()) {
            let number = self.catalogue.volume_number(on);
            device.admit_image(number, Arc::clone(beside))?;
            realtime_volume = Some(number);
        }
        self.device = Some(device);
        self.image_device = Some(Arc::clone(&image.device));
        self.image = Some(Filling::new(volume, realtime_volume, image));
        Ok(())
    }

    /// The device of an image, when this is the sweep of one.
    pub(super) fn image_device(&self) -> Option<&Arc<ImageDevice>> {
        self.image_device.as_ref()
    }

    /// Reads the tables for a plan: until there is something to be read.
    pub(super) fn prepare_image(&mut self, counters: &Counters) {
        while self.image.is_some()
            && self.held.batch.as_ref().is_none_or(Batch::is_empty)
            && !self.settings.cancel.is_cancelled()
        {
            self.read_tables(counters);
        }
    }

    /// Carries the sweep of an image out, from what a plan has prepared.
    pub(super) fn run_image(&mut self, outlet: &Outlet) -> Result<(), Halt> {
        loop {
            if outlet.is_cancelled() {
                return Err(Halt::Cancelled);
            }
            if self.held.batch.is_none() && self.image.is_some() {
                outlet.count(|summary| summary.windows += 1);
                self.read_tables(outlet.counters());
            }
            self.begin(outlet)?;
            if let Some(batch) = self.held.batch.take() {
                self.finish(outlet, batch)?;
            }
            if self.image.is_none() {
                return self.close_directories(outlet, &|_| true);
            }
        }
    }

    /// Reads the tables, or what of them makes a window; what they tell is held until the sweep runs.
    fn read_tables(&mut self, counters: &Counters) {
        let Some(mut filling) = self.image.take() else { return };
        let shown = filling.shown();
        let wishes = image::Wishes {
            shown: &shown,
            filter: &self.settings.filter,
            no_recursion: self.settings.no_recursion,
            xattrs: self.settings.xattrs,
            indexes: if self.settings.content { self.settings.indexes } else { Indexes::Left },
            lost: self.settings.lost,
            catalog_limit: self.catalog_limit,
            cancel: &self.settings.cancel,
        };
        let filled = match filling.next(&mut self.catalogue, &wishes) {
            Ok(filled) => filled,
            Err(FillError::NoSuchPath { problems }) => {
                self.held.errors.extend(problems.into_iter().map(|problem| damaged(&shown, problem)));
                return self.held.errors.push(FileError::NotInside { path: shown });
            }
            Err(mut error) => {
                if let FillError::NoRoot { problems } = &mut error {
                    self.held.errors.extend(problems.drain(..).map(|problem| damaged(&shown, problem)));
                }
                let source = io::Error::other(error);
                return self.held.errors.push(FileError::Io { path: shown, step: "read its tables".into(), source });
            }
        };
        self.held.errors.extend(filled.problems.into_iter().map(|problem| damaged(&shown, problem)));
        self.walked_entries += (filled.directories.len() + filled.entries.len()) as u64;
        counters.tell(|| Progress::Walked { entries: self.walked_entries });
        let is_unknown = |id: &&EntryId| self.catalogue.get(**id).flags.has(Flags::UNKNOWN_REPARSE);
        let unknown = filled.entries.iter().filter(is_unknown).count() as u64;
        counters.count(|summary| summary.unknown_reparse_points += unknown);
        self.held.directories.extend(filled.directories);
        let batch = self.batch_of(filled.entries);
        let (files, bytes) = (self.surveyed_files, self.surveyed_bytes);
        counters.tell(|| Progress::Surveyed { files, bytes });
        self.held.batch = Some(batch);
        self.image = Some(filling).filter(|filling| !filling.is_over());
    }

    /// What is to be done with each.
    fn batch_of(&mut self, mut entries: Vec<EntryId>) -> Batch {
        let mut batch = Batch::default();
        entries.sort_unstable_by_key(|&id| self.catalogue.get(id).ino);
        for id in entries {
            let entry = self.catalogue.get(id);
            if !entry.is_file() {
                if self.settings.entries == Entries::All {
                    batch.ready.push(id);
                }
                continue;
            }
            self.surveyed_files += 1;
            self.surveyed_bytes += entry.size;
            match self.way_of_reading(id) {
                Surveyed::Ready(_) => batch.ready.push(id),
                Surveyed::Planned => batch.planned.push(id),
                Surveyed::Streamed => batch.streamed.push(id),
            }
        }
        batch
    }

    fn way_of_reading(&mut self, id: EntryId) -> Surveyed {
        let entry = self.catalogue.get(id);
        let large = self.settings.large().min(self.share.limit());
        if entry.flags.has(Flags::UNREADABLE) || self.catalogue.extra(id).is_some_and(|extra| extra.inline.is_some()) {
            return Surveyed::Ready(None);
        }
        if entry.size > large || self.catalogue.cost(id) > self.share.limit() {
            self.catalogue.get_mut(id).flags.set(Flags::STREAMED);
            return Surveyed::Streamed;
        }
        if entry.fragments == 0 { Surveyed::Ready(None) } else { Surveyed::Planned }
    }

    /// An entry of an image that needs no read of its own: no file, or one that is empty, all hole, or among the metadata.
    /// `None` when the sweep was cancelled while it waited for memory.
    pub(super) fn ready_item_of_image(&mut self, outlet: &Outlet, id: EntryId) -> Result<Option<SweptFile>, FileError> {
        let entry = self.catalogue.get(id);
        let mut item = handover::item(&self.catalogue, &mut self.opener, id, self.settings.xattrs, None)?;
        if !entry.is_file() || !self.settings.content {
            return Ok(Some(item));
        }
        if entry.flags.has(Flags::UNREADABLE) {
            let why = if entry.flags.has(Flags::ENCRYPTED) {
                "it is encrypted, and its key is not here"
            } else if entry.flags.has(Flags::ELSEWHERE) {
                "it lies on the realtime device of its file system; name that by --rtdev"
            } else {
                "it is compressed in a way that is not known, or what tells its place is damaged; mount the file system to read it"
            };
            let source = io::Error::other(why);
            return Err(FileError::Io { path: item.path, step: "read it from the image".into(), source });
        }
        let Some(loan) = outlet.reserve(&self.share, self.catalogue.cost(id)) else { return Ok(None) };
        let inline = self.catalogue.extra(id).and_then(|extra| extra.inline.as_deref());
        let bytes = match inline {
            Some(inline) => {
                item.data = whole(entry.size);
                Bytes::copy_of(inline)
            }
            None => {
                let size = usize::try_from(entry.size).ok();
                let zeros = size.and_then(|size| self.pool.try_zeroed(size)?.try_into_bytes().ok());
                zeros.ok_or_else(|| FileError::io(item.path.clone(), "read", io::ErrorKind::OutOfMemory.into()))?
            }
        };
        item.content = Content::Bytes(FileBytes::lent(bytes, loan));
        Ok(Some(item))
    }

    /// A large file of an image, to be read by the consumer.
    pub(super) fn stream_item_of_image(&mut self, outlet: &Outlet, id: EntryId) -> Result<SweptFile, FileError> {
        let mut item = handover::item(&self.catalogue, &mut self.opener, id, self.settings.xattrs, None)?;
        let device = self.device.as_ref().and_then(|device| device.image(self.catalogue.get(id).device));
        let content = ImageContent::of(&self.catalogue, id, device.ok_or_else(|| no_image(item.path.clone()))?);
        item.data = self.catalogue.data_ranges(id);
        let (state, rules) = (self.catalogue.get(id).state(), self.stream_rules(outlet));
        item.content = Content::Stream(FileStream::of_image(content, state, item.data.clone(), rules));
        item.route = Route::Streamed;
        Ok(item)
    }
}

fn damaged(path: &Path, problem: TableError) -> FileError {
    FileError::Io { path: path.to_owned(), step: "read all of its tables".into(), source: io::Error::other(problem) }
}

fn no_image(path: PathBuf) -> FileError {
    FileError::io(path, "find its image", io::ErrorKind::NotFound.into())
}
