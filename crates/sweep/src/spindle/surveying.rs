//! Looking at what the walk has found: in the order of the inodes, with others looked at ahead.

use std::{collections::VecDeque, ops::Range, os::fd::OwnedFd};

use onesweep_layout::AddressTrust;

use super::{AHEAD, BATCH_MIN, Batch, EVERY, NEIGHBOURS, SpindleSweep, ready::Tried};
use crate::{
    ahead::{EntryLook, Look},
    at_once,
    catalogue::{EntryId, Flags},
    order::Order,
    outlet::{Counters, Outlet},
    progress::Progress,
    read::Halt,
    survey::Surveyed,
};

impl SpindleSweep {
    /// Surveys entries until the window is done or the catalogue is full. With an outlet, what needs no read from the
    /// disk is handed over on its first open.
    pub(super) fn survey(
        &mut self,
        counters: &Counters,
        outlet: Option<&Outlet>,
        batch: &mut Batch,
    ) -> Result<(), Halt> {
        self.ahead.begin();
        let start = self.pending.next;
        while self.pending.next < self.pending.entries.len() {
            let surveyed = self.pending.next - start;
            let limit = self.catalog_limit.max(self.walk_limit());
            // A few files may have millions of fragments.
            let full = if surveyed >= BATCH_MIN { limit } else { limit.saturating_mul(2) };
            if surveyed > 0 && self.catalogue.bytes() > full {
                break;
            }
            if self.settings.cancel.is_cancelled() {
                return Err(Halt::Cancelled);
            }
            if surveyed.is_multiple_of(EVERY) {
                let (files, bytes) = (self.surveyed_files, self.surveyed_bytes);
                counters.tell(|| Progress::Surveyed { files, bytes });
            }
            if self.order != Order::Directory && self.ahead.is_worthwhile() {
                self.look_ahead();
            }
            let names = self.next_inode();
            let opened = match outlet.filter(|_| names.len() == 1) {
                Some(outlet) => match self.hand_over_at_once(outlet, self.pending.entries[names.start])? {
                    Tried::HandedOver => continue,
                    Tried::Opened(opened) => opened,
                },
                None => None,
            };
            let names = self.pending.entries[names].to_vec();
            self.survey_inode(names, opened, outlet, batch)?;
        }
        let (files, bytes) = (self.surveyed_files, self.surveyed_bytes);
        counters.tell(|| Progress::Surveyed { files, bytes });
        if let Some(why) = self.surveyor.verdict()
            && self.order.needs_layout()
        {
            self.remark = Some(AddressTrust::Meaningless(why.clone()).to_string());
            self.order = if self.order.is_per_directory() { Order::InodePerDirectory } else { Order::Inode };
        }
        Ok(())
    }

    /// Has the entries that come next looked at, by neighbourhoods: inodes of one block come by one read.
    fn look_ahead(&mut self) {
        let from = self.pending.ahead.max(self.pending.next);
        let to = (self.pending.next + AHEAD).min(self.pending.entries.len());
        if from.saturating_sub(self.pending.next) > AHEAD / 2 || from >= to {
            return;
        }
        self.pending.ahead = to;
        let neighbourhood = |id: &EntryId| {
            let entry = self.catalogue.get(*id);
            (entry.device, entry.ino / NEIGHBOURS)
        };
        for group in self.pending.entries[from..to].chunk_by(|a, b| neighbourhood(a) == neighbourhood(b)) {
            let look = |&id: &EntryId| {
                let way = self.opener.short_way(&self.catalogue, id).ok()??;
                let is_file = self.catalogue.get(id).is_file();
                let layout = self.settings.needs_layout(self.order)
                    && !self.surveyor.maps_by_items(self.catalogue.get(id).device);
                Some(EntryLook { way, is_file, layout, xattrs: self.settings.xattrs })
            };
            self.ahead.push(Look::Entries(group.iter().filter_map(look).collect()));
        }
    }

    /// The names of the next inode: those that stand in a row.
    fn next_inode(&mut self) -> Range<usize> {
        let entries = &self.pending.entries[self.pending.next..];
        let place = |id: EntryId| {
            let entry = self.catalogue.get(id);
            (entry.device, entry.ino)
        };
        let first = place(entries[0]);
        let same = 1 + entries[1..].iter().take_while(|&&id| place(id) == first).count();
        let first = self.pending.next;
        self.pending.next += same;
        first..self.pending.next
    }

    /// `opened` is the first of the names, if that is open already.
    fn survey_inode(
        &mut self,
        names: Vec<EntryId>,
        mut opened: Option<OwnedFd>,
        outlet: Option<&Outlet>,
        batch: &mut Batch,
    ) -> Result<(), Halt> {
        let mut names = VecDeque::from(names);
        while let Some(id) = names.pop_front() {
            let listed = self.catalogue.get(id).ino;
            let surveyed = match self.surveyor.survey(&mut self.catalogue, &mut self.opener, id, opened.take()) {
                Ok(surveyed) => surveyed,
                Err(error) => {
                    self.catalogue.get_mut(id).flags.set(Flags::DONE);
                    self.catalogue.get_mut(id).flags.set(Flags::FAILED);
                    self.report(outlet, error)?;
                    continue;
                }
            };
            let entry = self.catalogue.get(id);
            if entry.is_file() {
                self.surveyed_files += 1;
                self.surveyed_bytes += entry.size;
            }
            // Another file may have taken the name since it was listed.
            if entry.nlink > 1 && entry.ino == listed && !entry.flags.has(Flags::FOREIGN) {
                // One read serves all names of an inode.
                let mut last = id;
                let (links, others): (Vec<_>, Vec<_>) = names.iter().partition(|&&name| self.is_link_to(name, id));
                for link in links {
                    self.catalogue.get_mut(last).next_link = link;
                    last = link;
                }
                names = others.into();
                if self.is_known_inode(id, outlet)? {
                    continue;
                }
            }
            match surveyed {
                Surveyed::Ready(opened) => {
                    let entry = self.catalogue.get(id);
                    let is_in_memory = entry.flags.has(Flags::CACHED);
                    if is_in_memory {
                        self.ahead.met_in_memory();
                    }
                    if entry.size > 0 {
                        self.at_once.met(is_in_memory && entry.size <= at_once::BYTES_MAX as u64);
                    }
                    match outlet {
                        Some(outlet) => self.hand_over_ready(outlet, id, opened)?,
                        None => batch.ready.push(id),
                    }
                }
                Surveyed::Planned => {
                    self.at_once.met(false);
                    batch.planned.push(id);
                }
                Surveyed::Streamed => batch.streamed.push(id),
            }
        }
        Ok(())
    }
}
