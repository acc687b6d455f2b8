//! From what tables tell to a catalogue: inodes first get entries without names, and names put them into their places.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::ControlFlow,
};

use onesweep_layout::{
    ExtentFlags,
    tables::{Found, Inode, InodeFlags, Name, TableError, Wanted},
};

use super::Image;
use crate::{
    catalogue::{Catalogue, EntryId, Extra, Flags, NameAt},
    filter::Filter,
    opener::path_bytes,
    progress::Cancel,
};

/// Problems that are told one by one; of a badly damaged file system there may be millions.
const PROBLEMS_MAX: usize = 1000;

/// What is taken of an image.
pub(crate) struct Wishes<'a> {
    pub(crate) filter: &'a Filter,
    pub(crate) no_recursion: bool,
    pub(crate) xattrs: bool,
    pub(crate) catalog_limit: u64,
    pub(crate) cancel: &'a Cancel,
}

/// What was found below the place that is swept.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// Parents before children.
    pub(crate) directories: Vec<EntryId>,
    /// All others, each inode once.
    pub(crate) entries: Vec<EntryId>,
    pub(crate) problems: Vec<TableError>,
}

/// Why there is nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FillError {
    #[error(transparent)]
    Tables(#[from] TableError),
    #[error("no such file or directory inside; check the name")]
    NoSuchPath,
    #[error("its names and fragments take more than {limit} bytes; raise --catalog-limit")]
    TooMany { limit: u64 },
}

/// A name that was told, until it has its place.
struct NameOf {
    directory: u64,
    inode: u64,
    at: NameAt,
    len: u16,
}

struct Filler<'a> {
    catalogue: &'a mut Catalogue,
    volume: u16,
    block: u64,
    start: u64,
    wishes: &'a Wishes<'a>,
    by_inode: HashMap<u64, EntryId>,
    names: Vec<NameOf>,
    problems: Vec<TableError>,
    problems_met: u64,
    full: bool,
}

/// Reads the tables of an image into the catalogue.
pub(crate) fn fill(
    catalogue: &mut Catalogue,
    volume: u16,
    image: &mut Image,
    wishes: &Wishes<'_>,
) -> Result<Filled, FillError> {
    let root = image.tables.facts().root;
    let mut filler = Filler {
        block: catalogue.volume(volume).block.into(),
        catalogue,
        volume,
        start: image.device.start(),
        wishes,
        by_inode: HashMap::new(),
        names: Vec::new(),
        problems: Vec::new(),
        problems_met: 0,
        full: false,
    };
    image.tables.scan(Wanted { xattrs: wishes.xattrs }, &mut filler)?;
    if filler.full {
        return Err(FillError::TooMany { limit: wishes.catalog_limit });
    }
    // Within a directory the order of the tables stays.
    filler.names.sort_by_key(|name| name.directory);
    let from = filler.resolve(root, &image.inside).ok_or(FillError::NoSuchPath)?;
    filler.place(from, path_bytes(&image.shown))
}

impl Filler<'_> {
    fn go_on(&mut self) -> ControlFlow<()> {
        const NAME_BYTES: u64 = size_of::<NameOf>() as u64;
        const INODE_BYTES: u64 = 24;
        let beside = self.names.len() as u64 * NAME_BYTES + self.by_inode.len() as u64 * INODE_BYTES;
        self.full = self.catalogue.bytes() + beside > self.wishes.catalog_limit;
        if self.full || self.wishes.cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn names_in(&self, directory: u64) -> std::ops::Range<usize> {
        let start = self.names.partition_point(|name| name.directory < directory);
        let end = self.names.partition_point(|name| name.directory <= directory);
        start..end
    }

    fn resolve(&self, root: u64, path: &[u8]) -> Option<u64> {
        let mut at = root;
        for part in path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
            let name = self
                .names_in(at)
                .find(|&name| self.catalogue.name_at(self.names[name].at, self.names[name].len) == part)?;
            at = self.names[name].inode;
        }
        Some(at)
    }

    /// Gives everything at and below an inode its place.
    fn place(mut self, from: u64, shown: &[u8]) -> Result<Filled, FillError> {
        let mut filled = Filled::default();
        let top = *self.by_inode.get(&from).ok_or(FillError::NoSuchPath)?;
        if !self.catalogue.name_root(top, shown) {
            return Err(FillError::TooMany { limit: self.wishes.catalog_limit });
        }
        let mut named = HashSet::from([top]);
        let mut pending = VecDeque::from([(from, top)]);
        if !self.catalogue.get(top).is_directory() {
            filled.entries.push(top);
            pending.clear();
        } else {
            filled.directories.push(top);
        }
        while let Some((inode, directory)) = pending.pop_front() {
            if self.wishes.no_recursion {
                break;
            }
            for name in self.names_in(inode) {
                let NameOf { inode: number, at, len, .. } = self.names[name];
                let Some(&id) = self.by_inode.get(&number) else {
                    let what = "an inode that a directory names";
                    self.note(TableError::damaged(what, 0, format!("inode {number} in use"), "none"));
                    continue;
                };
                if !self.wishes.filter.is_empty() {
                    let mut path = self.catalogue.path_bytes(directory);
                    path.push(b'/');
                    path.extend_from_slice(self.catalogue.name_at(at, len));
                    if self.wishes.filter.excludes(&path) {
                        continue;
                    }
                }
                if named.insert(id) {
                    self.catalogue.place(id, directory, at, len);
                    if self.catalogue.get(id).is_directory() {
                        filled.directories.push(id);
                        pending.push_back((number, id));
                    } else {
                        filled.entries.push(id);
                    }
                } else if self.catalogue.get(id).is_directory() {
                    self.note(TableError::damaged("a directory", 0, "one name", "a second one"));
                } else if !self.catalogue.add_link(id, directory, at, len) {
                    return Err(FillError::TooMany { limit: self.wishes.catalog_limit });
                }
            }
        }
        if self.problems_met > self.problems.len() as u64 {
            let more = self.problems_met - self.problems.len() as u64;
            self.problems.push(TableError::damaged(
                "the file system",
                0,
                "a sound one",
                format!("{more} further faults"),
            ));
        }
        filled.problems = self.problems;
        Ok(filled)
    }

    fn note(&mut self, problem: TableError) {
        self.problems_met += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

impl Found for Filler<'_> {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let Some(id) = self.catalogue.add_inode(self.volume, &inode) else {
            self.full = true;
            return ControlFlow::Break(());
        };
        self.by_inode.insert(inode.number, id);
        let is_file = self.catalogue.get(id).is_file();
        let mut extra = Extra { xattrs: inode.xattrs, ..Extra::default() };
        if let Some(inline) = inode.inline {
            extra.inline = Some(inline);
        } else if is_file {
            for extent in inode.extents.iter().filter(|extent| !extent.is_zeros()) {
                let length = extent.length.min(inode.size.saturating_sub(extent.logical));
                let strange =
                    extent.flags.intersects(ExtentFlags::ENCODED | ExtentFlags::UNKNOWN | ExtentFlags::DELALLOC);
                let end = extent.logical + length;
                let block_end = end.next_multiple_of(self.block).min(inode.size);
                if end < block_end {
                    // Fragments are whole blocks, and behind what was written lies anything.
                    extra.zeros.push(end..block_end);
                }
                let address = extent.physical.filter(|_| !strange).map(|address| self.start + address);
                if length > 0
                    && (address.is_none() || !self.catalogue.add_fragment(id, address, extent.logical, length))
                {
                    self.catalogue.get_mut(id).flags.set(Flags::UNREADABLE);
                }
            }
        }
        if inode.flags.intersects(InodeFlags::COMPRESSED | InodeFlags::ELSEWHERE) && is_file && extra.inline.is_none() {
            self.catalogue.get_mut(id).flags.set(Flags::UNREADABLE);
        }
        self.catalogue.add_extra(id, extra);
        self.go_on()
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        let (Ok(len), Some(at)) = (u16::try_from(name.name.len()), self.catalogue.keep_name(name.name)) else {
            self.full = true;
            return ControlFlow::Break(());
        };
        self.names.push(NameOf { directory: name.directory, inode: name.inode, at, len });
        self.go_on()
    }

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        self.note(problem);
        self.go_on()
    }
}
