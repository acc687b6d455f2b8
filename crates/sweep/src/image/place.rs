//! Names brought to their places in a tree: directories first, then what is in them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::Range,
};

use onesweep_layout::tables::{
    Inode, TableError, Tables,
    lost::{LOST, tops},
};

use super::{
    fill::{FillError, Filled, Wishes},
    gather::{Gathered, NameOf},
};
use crate::{
    catalogue::{Catalogue, EntryId},
    filter::Filter,
    opener::path_bytes,
};

/// The mode of the directory of what is lost: its owner's.
const LOST_MODE: u32 = 0o040_700;

/// Names by the directory that has them.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<NameOf>);

impl Names {
    pub(super) fn new(mut names: Vec<NameOf>) -> Self {
        // Within a directory the order of the tables stays.
        names.sort_by_key(|name| name.directory);
        Self(names)
    }

    fn range(&self, directory: u64) -> Range<usize> {
        let start = self.0.partition_point(|name| name.directory < directory);
        start..self.0.partition_point(|name| name.directory <= directory)
    }

    fn of(&self, directory: u64) -> &[NameOf] {
        &self.0[self.range(directory)]
    }

    /// Whether a directory has a name.
    pub(super) fn has(&self, catalogue: &Catalogue, directory: u64, wanted: &[u8]) -> bool {
        self.of(directory).iter().any(|name| catalogue.name_at(name.at, name.len) == wanted)
    }

    pub(super) fn is_empty(&self, directory: u64) -> bool {
        self.range(directory).is_empty()
    }

    /// Leaves out all names of an inode.
    pub(super) fn forget(&mut self, inode: u64) {
        self.0.retain(|name| name.inode != inode);
    }
}

/// Where a path leads.
pub(super) enum Way<'a> {
    To(u64),
    /// All of it is there but its last part.
    Last(u64, &'a [u8]),
    Nowhere,
}

fn contradiction(tables: &dyn Tables, name: &NameOf, expected: &str, found: &str) -> TableError {
    TableError::of_name(tables, (name.directory, name.inode), expected, found)
}

/// Puts names to their places.
pub(super) struct Placer<'a> {
    pub(super) catalogue: &'a mut Catalogue,
    pub(super) wishes: &'a Wishes<'a>,
    pub(super) filled: Filled,
}

impl Placer<'_> {
    fn text(&self, name: &NameOf) -> &[u8] {
        self.catalogue.name_at(name.at, name.len)
    }

    fn too_many(&self) -> FillError {
        FillError::TooMany { limit: self.wishes.catalog_limit }
    }

    pub(super) fn way<'p>(&self, root: u64, path: &'p [u8], names: &[&Names]) -> Way<'p> {
        let mut at = root;
        let mut parts = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).peekable();
        while let Some(part) = parts.next() {
            let found = names.iter().flat_map(|names| names.of(at)).find(|name| self.text(name) == part);
            match found {
                Some(name) => at = name.inode,
                None if parts.peek().is_none() => return Way::Last(at, part),
                None => return Way::Nowhere,
            }
        }
        Way::To(at)
    }

    /// Nothing is there; what was damaged on the way may tell why.
    pub(super) fn nowhere(&mut self) -> FillError {
        FillError::NoSuchPath { problems: std::mem::take(&mut self.filled.problems) }
    }

    /// Where there is no root directory, tells so, and makes one up for what is lost, where that is wanted.
    pub(super) fn see_to_root(
        &mut self,
        volume: u16,
        directories: &mut HashMap<u64, EntryId>,
        tables: &dyn Tables,
    ) -> Result<(), FillError> {
        let root = tables.facts().root;
        if directories.contains_key(&root) {
            return Ok(());
        }
        self.filled.note(TableError::without_root(tables));
        if !self.wishes.lost {
            return Err(FillError::NoRoot { problems: std::mem::take(&mut self.filled.problems) });
        }
        let inode = Inode { number: root, mode: LOST_MODE, links: 2, ..Inode::default() };
        let id = self.catalogue.add_inode(volume, &inode).ok_or_else(|| self.too_many())?;
        directories.insert(root, id);
        Ok(())
    }

    /// Makes an inode what the tree begins with.
    pub(super) fn root(&mut self, id: EntryId) -> Result<(), FillError> {
        match self.catalogue.name_root(id, path_bytes(self.wishes.shown)) {
            true => Ok(()),
            false => Err(self.too_many()),
        }
    }

    /// The names of the directories that none leads to, and of their own directory, which gets an entry. `is_taken` tells
    /// whether the root gave a name away.
    pub(super) fn lost_directories(
        &mut self,
        volume: u16,
        root: u64,
        names: Names,
        directories: &mut HashMap<u64, EntryId>,
        mut is_taken: impl FnMut(&mut Catalogue, &[u8]) -> Result<bool, FillError>,
    ) -> Result<Names, FillError> {
        let mut unreached: HashSet<u64> = directories.keys().copied().collect();
        unreached.remove(&root);
        let mut pending = vec![root];
        while let Some(inode) = pending.pop() {
            pending.extend(names.of(inode).iter().map(|name| name.inode).filter(|inode| unreached.remove(inode)));
        }
        let below = |inode| {
            let children = names.of(inode).iter().map(|name| name.inode);
            children.filter(|inode| unreached.contains(inode)).collect()
        };
        let tops = tops(unreached.iter().copied().collect(), below);
        let mut candidates = std::iter::once("lost".to_owned()).chain((1_u32..).map(|number| format!("lost.{number}")));
        let mut shown = candidates.next().unwrap_or_default();
        while is_taken(self.catalogue, shown.as_bytes())? {
            shown = candidates.next().unwrap_or_default();
        }
        let inode = Inode { mode: LOST_MODE, links: 2, ..Inode::default() };
        let id = self.catalogue.add_inode(volume, &inode).ok_or_else(|| self.too_many())?;
        directories.insert(LOST, id);
        let mut all = names.0;
        all.push(self.named(root, LOST, shown.as_bytes())?);
        for inode in tops {
            all.push(self.lost(inode)?);
        }
        Ok(Names::new(all))
    }

    fn named(&mut self, directory: u64, inode: u64, name: &[u8]) -> Result<NameOf, FillError> {
        let at = self.catalogue.keep_name(name).ok_or_else(|| self.too_many())?;
        let len = u16::try_from(name.len()).map_err(|_| self.too_many())?;
        Ok(NameOf { directory, inode, at, len })
    }

    /// The name of an inode among those that are lost.
    fn lost(&mut self, inode: u64) -> Result<NameOf, FillError> {
        self.named(LOST, inode, inode.to_string().as_bytes())
    }

    /// Adds the names of those that have none. `root` needs none.
    pub(super) fn lost_files(&mut self, found: &mut Gathered, root: u64) -> Result<(), FillError> {
        let named: HashSet<u64> = found.names.iter().map(|name| name.inode).collect();
        let is_lost = |(inode, id): (&u64, &EntryId)| {
            (*inode != root && !named.contains(inode) && !self.catalogue.get(*id).is_directory()).then_some(*inode)
        };
        let mut lost: Vec<u64> = found.by_inode.iter().filter_map(is_lost).collect();
        lost.sort_unstable();
        for inode in lost {
            let name = self.lost(inode)?;
            found.names.push(name);
        }
        Ok(())
    }

    /// Gives every directory at and below an inode its place; tells which have one.
    pub(super) fn directories(
        &mut self,
        from: u64,
        directories: &HashMap<u64, EntryId>,
        names: &Names,
        tables: &dyn Tables,
    ) -> Result<HashMap<u64, EntryId>, FillError> {
        let top = *directories.get(&from).ok_or_else(|| self.nowhere())?;
        self.root(top)?;
        self.filled.directories.push(top);
        let mut placed = HashMap::from([(from, top)]);
        let mut pending = VecDeque::from([(from, top)]);
        while let Some((inode, above)) = pending.pop_front() {
            if self.wishes.no_recursion {
                return Ok(HashMap::new());
            }
            for name in names.of(inode) {
                let Some(&id) = directories.get(&name.inode) else { continue };
                if self.is_excluded(above, name, Filter::excludes) {
                    continue;
                }
                if placed.contains_key(&name.inode) {
                    self.filled.note(contradiction(tables, name, "a directory with one name", "one with several"));
                    continue;
                }
                placed.insert(name.inode, id);
                self.catalogue.place(id, above, name.at, name.len);
                self.filled.directories.push(id);
                pending.push_back((name.inode, id));
            }
        }
        Ok(placed)
    }

    /// Gives what is no directory its places in these.
    pub(super) fn files(
        &mut self,
        by_inode: &HashMap<u64, EntryId>,
        names: &Names,
        placed: &HashMap<u64, EntryId>,
        tables: &dyn Tables,
    ) -> Result<(), FillError> {
        for name in &names.0 {
            let Some(&above) = placed.get(&name.directory) else { continue };
            let Some(&id) = by_inode.get(&name.inode) else {
                self.filled.note(contradiction(tables, name, "an inode in use", "none"));
                continue;
            };
            if self.is_excluded(above, name, Filter::excludes_file) {
                continue;
            }
            if self.catalogue.get(id).parent == EntryId::NONE {
                self.catalogue.place(id, above, name.at, name.len);
                self.filled.entries.push(id);
            } else if !self.catalogue.add_link(id, above, name.at, name.len) {
                return Err(self.too_many());
            }
        }
        Ok(())
    }

    fn is_excluded(&self, directory: EntryId, name: &NameOf, excludes: fn(&Filter, &[u8]) -> bool) -> bool {
        if self.wishes.filter.is_empty() {
            return false;
        }
        let mut path = self.catalogue.path_bytes(directory);
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(self.text(name));
        excludes(self.wishes.filter, &path)
    }
}
