//! From what tables tell to a catalogue: all at once where it fits, else window by window.
//!
//! A window is a range of inode numbers: all that is no directory in it, with all names, so no hard link goes over a border.
//! Directories stay in memory for all windows, since paths are made of them. Each window goes over the tables once more,
//! and two further passes come before the first.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::Range,
    path::{Path, PathBuf},
};

use onesweep_layout::tables::{Moved, TableError, Wanted, lost::LOST};

use super::{
    Image,
    gather::{Gathered, Gatherer, INODE_BYTES, Take, Traits},
    place::{Names, Placer, Way},
};
use crate::{
    catalogue::{Catalogue, EntryId, Mark},
    filter::Filter,
    progress::Cancel,
};

/// What is taken of an image.
pub(crate) struct Wishes<'a> {
    /// How its paths begin.
    pub(crate) shown: &'a Path,
    pub(crate) filter: &'a Filter,
    pub(crate) no_recursion: bool,
    pub(crate) xattrs: bool,
    /// What has no name too.
    pub(crate) lost: bool,
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

impl Filled {
    pub(super) fn note(&mut self, problem: TableError) {
        self.problems.push(problem);
    }
}

/// Why there is nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FillError {
    #[error(transparent)]
    Tables(#[from] TableError),
    #[error("no such file or directory inside; check the name")]
    NoSuchPath,
    #[error(
        "its names take more than a catalogue can hold (the limit is {limit} bytes); name directories inside of it"
    )]
    TooMany { limit: u64 },
}

/// An image, until all of it is in a catalogue.
#[derive(Debug)]
pub(crate) struct Filling {
    volume: u16,
    image: Image,
    moved: Vec<Moved>,
    state: State,
    /// Problems come again with each pass.
    told: HashSet<String>,
}

#[derive(Debug)]
enum State {
    Fresh,
    InWindows(Box<Windows>),
    Over,
}

/// What is known for all windows.
#[derive(Debug)]
struct Windows {
    mark: Mark,
    directories: HashMap<u64, EntryId>,
    /// Those below the place that is swept.
    placed: HashMap<u64, EntryId>,
    /// The directory of what is lost, until there is something in it.
    lost: Option<EntryId>,
    left: VecDeque<Range<u64>>,
}

impl Filling {
    pub(crate) fn new(volume: u16, image: Image) -> Self {
        let moved = image.tables.moved();
        Self { volume, image, moved, state: State::Fresh, told: HashSet::new() }
    }

    /// How its paths begin.
    pub(crate) fn shown(&self) -> PathBuf {
        self.image.shown.clone()
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Fills the catalogue with what comes next: with all, or with a window in place of the one before.
    pub(crate) fn next(&mut self, catalogue: &mut Catalogue, wishes: &Wishes<'_>) -> Result<Filled, FillError> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Fresh => self.first(catalogue, wishes),
            State::InWindows(windows) => self.window(catalogue, wishes, windows, Filled::default()),
            State::Over => Ok(Filled::default()),
        }
    }

    /// Goes over the tables once.
    fn gather(
        &mut self,
        catalogue: &mut Catalogue,
        wishes: &Wishes<'_>,
        take: Take<'_>,
    ) -> Result<Gathered, FillError> {
        let facts = self.image.tables.facts();
        let traits = Traits {
            volume: self.volume,
            block: facts.block_bytes.into(),
            unit: facts.compression_unit_bytes,
            start: self.image.device.start(),
            moved: &self.moved,
            // ext4 needs its policy to make sense of what lies there; NTFS keeps all that it takes in its own attributes.
            is_encrypted_content_told: facts.fs_type == "ntfs",
        };
        let xattrs = wishes.xattrs && !matches!(take, Take::NamesOf(_) | Take::Named(..));
        let found = Gathered::default();
        let mut gatherer = Gatherer { catalogue, traits, take, cancel: wishes.cancel, found };
        self.image.tables.scan(Wanted { xattrs }, &mut gatherer)?;
        Ok(gatherer.found)
    }

    /// Takes what was not told before.
    fn take_problems(&mut self, found: &mut Gathered, filled: &mut Filled) {
        if found.problems_met > found.problems.len() as u64 {
            let more = format!("{} further faults", found.problems_met - found.problems.len() as u64);
            found.problems.push(TableError::damaged("the file system", 0, "a sound one", more));
        }
        let told = &mut self.told;
        filled.problems.extend(found.problems.drain(..).filter(|problem| told.insert(problem.to_string())));
    }

    fn first(&mut self, catalogue: &mut Catalogue, wishes: &Wishes<'_>) -> Result<Filled, FillError> {
        let before = catalogue.mark();
        let mut filled = Filled::default();
        let mut found = self.gather(catalogue, wishes, Take::All(wishes.catalog_limit))?;
        self.take_problems(&mut found, &mut filled);
        if found.full {
            catalogue.return_to(&before);
            drop(found);
            return self.begin_windows(catalogue, wishes, filled);
        }
        let (root, volume) = (self.image.tables.facts().root, self.volume);
        let mut placer = Placer { catalogue, wishes, filled };
        if wishes.lost {
            placer.lost_files(&mut found)?;
        }
        let has_lost_files = found.names.iter().any(|name| name.directory == LOST);
        let mut by_inode = found.by_inode;
        let is_directory = |id: &EntryId| placer.catalogue.get(*id).is_directory();
        let mut directories: HashMap<u64, EntryId> =
            by_inode.iter().filter(|(_, id)| is_directory(id)).map(|(&inode, &id)| (inode, id)).collect();
        by_inode.retain(|inode, _| !directories.contains_key(inode));
        let (above, others) = found.names.into_iter().partition(|name| directories.contains_key(&name.inode));
        let (mut above, others) = (Names::new(above), Names::new(others));
        if wishes.lost {
            let is_taken = |catalogue: &mut Catalogue, name: &[u8]| Ok(others.has(catalogue, root, name));
            above = placer.lost_directories(volume, root, above, &mut directories, is_taken)?;
            if !has_lost_files && above.is_empty(LOST) {
                above.forget(LOST);
            }
        }
        match placer.way(root, &self.image.inside, &[&above, &others]) {
            Way::To(from) if directories.contains_key(&from) => {
                let placed = placer.directories(from, &directories, &above)?;
                placer.files(&by_inode, &others, &placed)?;
            }
            Way::To(from) => {
                let file = *by_inode.get(&from).ok_or(FillError::NoSuchPath)?;
                placer.root(file)?;
                placer.filled.entries.push(file);
            }
            Way::Last(..) | Way::Nowhere => return Err(FillError::NoSuchPath),
        }
        Ok(placer.filled)
    }

    fn begin_windows(
        &mut self,
        catalogue: &mut Catalogue,
        wishes: &Wishes<'_>,
        mut filled: Filled,
    ) -> Result<Filled, FillError> {
        let mut found = self.gather(catalogue, wishes, Take::Directories)?;
        self.take_problems(&mut found, &mut filled);
        let Gathered { by_inode: mut directories, spans, .. } = found;
        let names = self.gather(catalogue, wishes, Take::NamesOf(&directories))?;
        let mut names = Names::new(names.names);
        let (root, volume) = (self.image.tables.facts().root, self.volume);
        let mut placer = Placer { catalogue, wishes, filled };
        if wishes.lost {
            let is_taken = |catalogue: &mut Catalogue, name: &[u8]| {
                self.gather(catalogue, wishes, Take::Named(root, name)).map(|found| found.named.is_some())
            };
            names = placer.lost_directories(volume, root, names, &mut directories, is_taken)?;
        }
        let inside = self.image.inside.clone();
        let from = match placer.way(root, &inside, &[&names]) {
            Way::To(from) => from,
            Way::Nowhere => return Err(FillError::NoSuchPath),
            Way::Last(directory, name) => {
                let found = self.gather(placer.catalogue, wishes, Take::Named(directory, name))?;
                return self.one_file(placer, found.named.ok_or(FillError::NoSuchPath)?);
            }
        };
        let placed = placer.directories(from, &directories, &names)?;
        if wishes.no_recursion {
            return Ok(placer.filled);
        }
        let lost = directories.get(&LOST).copied().filter(|_| from != LOST && names.is_empty(LOST));
        placer.filled.directories.retain(|id| Some(*id) != lost);
        let floor = placer.catalogue.bytes() + 2 * INODE_BYTES * directories.len() as u64;
        // Directories can't be left out; where they alone are near the limit, a window still has room of its own.
        let room = wishes.catalog_limit.saturating_sub(floor).max(wishes.catalog_limit / 2);
        let left = spans.ranges(room).into();
        let windows = Windows { mark: placer.catalogue.mark(), directories, placed, lost, left };
        let Placer { catalogue, filled, .. } = placer;
        self.window(catalogue, wishes, Box::new(windows), filled)
    }

    fn one_file(&mut self, mut placer: Placer<'_>, inode: u64) -> Result<Filled, FillError> {
        let (range, none) = (inode..inode.saturating_add(1), HashMap::new());
        let found = self.gather(placer.catalogue, placer.wishes, Take::Range(&range, &none))?;
        let file = *found.by_inode.get(&inode).ok_or(FillError::NoSuchPath)?;
        placer.root(file)?;
        placer.filled.entries.push(file);
        Ok(placer.filled)
    }

    /// The next window, with what was found already.
    fn window(
        &mut self,
        catalogue: &mut Catalogue,
        wishes: &Wishes<'_>,
        mut windows: Box<Windows>,
        filled: Filled,
    ) -> Result<Filled, FillError> {
        let Some(range) = windows.left.pop_front() else { return Ok(filled) };
        catalogue.return_to(&windows.mark);
        let mut found = self.gather(catalogue, wishes, Take::Range(&range, &windows.directories))?;
        if found.full {
            return Err(FillError::TooMany { limit: wishes.catalog_limit });
        }
        let mut placer = Placer { catalogue, wishes, filled };
        self.take_problems(&mut found, &mut placer.filled);
        if wishes.lost {
            placer.lost_files(&mut found)?;
            if windows.placed.contains_key(&LOST) && found.names.iter().any(|name| name.directory == LOST) {
                placer.filled.directories.extend(windows.lost.take());
            }
        }
        placer.files(&found.by_inode, &Names::new(found.names), &windows.placed)?;
        let filled = placer.filled;
        if !windows.left.is_empty() {
            self.state = State::InWindows(windows);
        }
        Ok(filled)
    }
}
