//! Hard links: an inode is read once and handed over with all its names.
//!
//! Names that the survey meets together are chained. A name that is met after its inode was handed over, in another
//! window or another directory of a per-directory order, becomes an item that points to the first name.

use std::{io, path::PathBuf};

use super::{SpindleSweep, send};
use crate::{
    catalogue::{EntryId, Flags},
    error::FileError,
    item::SweptFile,
    outlet::Outlet,
    read::Halt,
    survey,
};

/// A name of an inode that has more of them, and was surveyed.
#[derive(Debug)]
pub(super) struct FirstName {
    pub(super) name: Name,
    /// Names of the inode that were not met yet; with the last one it is forgotten.
    left: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Name {
    Entry(EntryId),
    Path(PathBuf),
}

impl SpindleSweep {
    /// Whether a name that its directory lists with the inode of `file` leads there: something may be mounted over it, or
    /// the directory show several file systems.
    pub(super) fn is_link_to(&mut self, name: EntryId, file: EntryId) -> bool {
        let entry = self.catalogue.get(file);
        let dev = self.catalogue.volume(entry.device).dev;
        survey::stat_unopened(&self.catalogue, &mut self.opener, name)
            .is_ok_and(|stat| (stat.dev, stat.ino) == (dev, entry.ino))
    }

    /// Takes note that an inode failed, which was told by its first name, and tells it of the others: who does something with each
    /// name must not take them for done.
    pub(super) fn fail(&mut self, outlet: &Outlet, id: EntryId) -> Result<(), Halt> {
        self.catalogue.get_mut(id).flags.set(Flags::FAILED);
        let others: Vec<EntryId> = self.catalogue.links(id).skip(1).collect();
        for name in others {
            let source = io::Error::other("another name of the file failed");
            send(outlet, Err(FileError::Io { path: self.catalogue.path(name), step: "read".into(), source }))?;
        }
        Ok(())
    }

    /// Lets first names outlive their entries; those of files that failed are forgotten.
    pub(super) fn keep_first_names(&mut self) {
        let catalogue = &self.catalogue;
        self.first_names.retain(|_, known| match known.name {
            Name::Entry(first) if catalogue.get(first).flags.has(Flags::FAILED) => false,
            Name::Entry(first) => {
                known.name = Name::Path(catalogue.path(first));
                true
            }
            Name::Path(_) => true,
        });
    }

    /// Deals with further names of an inode that was surveyed before.
    pub(super) fn is_known_inode(&mut self, id: EntryId, outlet: Option<&Outlet>) -> Result<bool, Halt> {
        let entry = self.catalogue.get(id);
        let key = (self.catalogue.volume(entry.device).dev, entry.ino);
        let met = self.catalogue.links(id).count() as u32;
        let Some(known) = self.first_names.get_mut(&key) else {
            if entry.nlink > met {
                self.first_names.insert(key, FirstName { name: Name::Entry(id), left: entry.nlink - met });
            }
            return Ok(false);
        };
        known.left = known.left.saturating_sub(met);
        let name = known.name.clone();
        if known.left == 0 {
            self.first_names.remove(&key);
        }
        let links: Vec<EntryId> = self.catalogue.links(id).collect();
        let first = match name {
            Name::Entry(first) if !self.catalogue.get(first).flags.has(Flags::DONE) => {
                // Not handed over yet: it takes the further names along, right behind it, since there may be very many.
                let last = *links.last().expect("an entry is its own first link");
                self.catalogue.get_mut(last).next_link = self.catalogue.get(first).next_link;
                self.catalogue.get_mut(first).next_link = id;
                return Ok(true);
            }
            Name::Entry(first) if self.catalogue.get(first).flags.has(Flags::FAILED) => {
                // Nobody has got its content yet.
                if let Some(known) = self.first_names.get_mut(&key) {
                    known.name = Name::Entry(id);
                }
                return Ok(false);
            }
            Name::Entry(first) => self.catalogue.path(first),
            Name::Path(path) => path,
        };
        for link in links {
            let kind = entry.kind().expect("it was surveyed");
            let dev = self.catalogue.volume(entry.device).dev;
            let item =
                SweptFile::new(self.catalogue.path(link), entry.metadata(kind, dev)).with_linked_to(first.clone());
            self.catalogue.get_mut(link).flags.set(Flags::DONE);
            match outlet {
                Some(outlet) => send(outlet, Ok(item))?,
                // While a plan is made nothing was handed over, so no inode can be known as done.
                None => unreachable!("an entry is done only when it was handed over"),
            }
        }
        Ok(true)
    }
}
