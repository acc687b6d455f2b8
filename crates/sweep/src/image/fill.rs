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

use onesweep_layout::tables::{Indexes, Moved, TableError, Wanted, lost::LOST};

use super::{
    Image,
    gather::{Gathered, Gatherer, INODE_BYTES, On, Take, Traits},
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
    pub(crate) indexes: Indexes,
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
    NoSuchPath { problems: Vec<TableError> },
    #[error("it has no root directory; --lost gives what is left")]
    NoRoot { problems: Vec<TableError> },
    #[error(
        "its names take more than a catalogue can hold (the limit is {limit} bytes); name directories inside of it"
    )]
    TooMany { limit: u64 },
}

/// An image, until all of it is in a catalogue.
#[derive(Debug)]
pub(crate) struct Filling {
    volume: u16,
    realtime: Option<u16>,
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
    /// `realtime` is the number of the volume for what lies on the realtime device of the image, where that is here.
    pub(crate) fn new(volume: u16, realtime: Option<u16>, image: Image) -> Self {
        let moved = image.tables.moved();
        Self { volume, realtime, image, moved, state: State::Fresh, told: HashSet::new() }
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
        let elsewhere = self.realtime.zip(self.image.realtime.as_ref());
        let traits = Traits {
            own: On { volume: self.volume, start: self.image.device.start() },
            elsewhere: elsewhere.map(|(volume, device)| On { volume, start: device.start() }),
            block: facts.block_bytes.into(),
            unit: facts.compression_unit_bytes,
            moved: &self.moved,
            // ext4 needs its policy to make sense of what lies there; NTFS has the keys in an attribute that can be saved with it.
            is_encrypted_content_told: facts.fs_type == "ntfs",
        };
        let xattrs = wishes.xattrs && !matches!(take, Take::NamesOf(_) | Take::Named(..));
        let found = Gathered::default();
        // The first pass to the end tells what contradicts; in the others it would be the same.
        let is_to_tell = matches!(take, Take::All(_) | Take::Directories);
        let indexes = if is_to_tell { wishes.indexes } else { Indexes::Left };
        let mut gatherer = Gatherer { catalogue, traits, take, cancel: wishes.cancel, found };
        self.image.tables.scan(Wanted { xattrs, indexes, ..Wanted::default() }, &mut gatherer)?;
        Ok(gatherer.found)
    }

    /// Takes what was not told before.
    fn take_problems(&mut self, found: &mut Gathered, filled: &mut Filled) {
        if found.problems_met > found.problems.len() as u64 {
            let problems = found.problems_met - found.problems.len() as u64;
            found.problems.push(TableError::Further { problems });
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
            placer.lost_files(&mut found, root)?;
        }
        let has_lost_files = found.names.iter().any(|name| name.directory == LOST);
        let mut by_inode = found.by_inode;
        let is_directory = |id: &EntryId| placer.catalogue.get(*id).is_directory();
        let mut directories: HashMap<u64, EntryId> =
            by_inode.iter().filter(|(_, id)| is_directory(id)).map(|(&inode, &id)| (inode, id)).collect();
        placer.see_to_root(volume, &mut directories, &*self.image.tables)?;
        by_inode.retain(|inode, _| !directories.contains_key(inode));
        // There may be millions, so in place.
        let (mut above, mut others) = (Vec::new(), found.names);
        others.retain(|name| {
            let is_directory = directories.contains_key(&name.inode);
            above.extend(is_directory.then_some(*name));
            !is_directory
        });
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
                let placed = placer.directories(from, &directories, &above, &*self.image.tables)?;
                placer.files(&by_inode, &others, &placed, &*self.image.tables)?;
            }
            Way::To(from) => {
                let file = *by_inode.get(&from).ok_or_else(|| placer.nowhere())?;
                placer.root(file)?;
                placer.filled.entries.push(file);
            }
            Way::Last(..) | Way::Nowhere => return Err(placer.nowhere()),
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
        placer.see_to_root(volume, &mut directories, &*self.image.tables)?;
        if wishes.lost {
            let is_taken = |catalogue: &mut Catalogue, name: &[u8]| {
                self.gather(catalogue, wishes, Take::Named(root, name)).map(|found| found.named.is_some())
            };
            names = placer.lost_directories(volume, root, names, &mut directories, is_taken)?;
        }
        let inside = self.image.inside.clone();
        let from = match placer.way(root, &inside, &[&names]) {
            Way::To(from) => from,
            Way::Nowhere => return Err(placer.nowhere()),
            Way::Last(directory, name) => {
                let found = self.gather(placer.catalogue, wishes, Take::Named(directory, name))?;
                let named = found.named.ok_or_else(|| placer.nowhere())?;
                return self.one_file(placer, named);
            }
        };
        let placed = placer.directories(from, &directories, &names, &*self.image.tables)?;
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
        let file = *found.by_inode.get(&inode).ok_or_else(|| placer.nowhere())?;
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
            placer.lost_files(&mut found, self.image.tables.facts().root)?;
            if windows.placed.contains_key(&LOST) && found.names.iter().any(|name| name.directory == LOST) {
                placer.filled.directories.extend(windows.lost.take());
            }
        }
        placer.files(&found.by_inode, &Names::new(found.names), &windows.placed, &*self.image.tables)?;
        let filled = placer.filled;
        if !windows.left.is_empty() {
            self.state = State::InWindows(windows);
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, os::unix::ffi::OsStrExt, sync::Arc};

    use onesweep_layout::{
        Extent, ExtentFlags, ImageFile, Part,
        tables::{Found, Inode, Name, Tables, VolumeFacts},
    };

    use super::*;
    use crate::{
        catalogue::{ImageFacts, Volume},
        image::ImageDevice,
    };

    /// Tables that tell names before inodes, as those of a large XFS may.
    struct Made {
        facts: VolumeFacts,
        inodes: Vec<Inode>,
        names: Vec<(u64, u64, String)>,
        moved: Vec<Moved>,
    }

    impl Tables for Made {
        fn facts(&self) -> &VolumeFacts {
            &self.facts
        }

        fn moved(&self) -> Vec<Moved> {
            self.moved.clone()
        }

        fn inode_at(&self, number: u64) -> Option<u64> {
            (number < 9000).then_some(number * 256)
        }

        fn scan(&mut self, _: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
            let mut tell = || {
                for (directory, inode, name) in &self.names {
                    found.name(Name { directory: *directory, inode: *inode, name: name.as_bytes() })?;
                }
                self.inodes.iter().try_for_each(|inode| found.inode(inode.clone()))?;
                found.problem(TableError::damaged("a thing", 7, 1, 2))
            };
            let _: ControlFlow<()> = tell();
            Ok(())
        }
    }

    const ROOT: u64 = 2;

    fn inode(number: u64, mode: u32) -> Inode {
        Inode { number, mode, links: 1, ..Inode::default() }
    }

    /// 20 directories of 30 files, a few of which have names in two directories, and some that have none.
    fn made() -> Made {
        let directory = |number| inode(number, 0o040_755);
        let mut inodes = vec![directory(ROOT)];
        let mut names = Vec::new();
        for folder in 0..20 {
            inodes.push(directory(1000 + folder));
            // The last is in the first, and one is nowhere.
            let above = if folder == 19 { 1000 } else { ROOT };
            if folder != 7 {
                names.push((above, 1000 + folder, format!("folder {folder}")));
            }
            for file in 0..30 {
                let number = 5000 - (folder * 30 + file);
                inodes.push(inode(number, 0o100_644));
                if file != 29 || folder != 3 {
                    names.push((1000 + folder, number, format!("file {file}")));
                }
                if file == 5 {
                    names.push((ROOT, number, format!("link {folder}")));
                }
            }
        }
        let facts = VolumeFacts { root: ROOT, block_bytes: 4096, ..VolumeFacts::default() };
        Made { facts, inodes, names, moved: Vec::new() }
    }

    struct Swept {
        paths: Vec<String>,
        windows: usize,
        problems: Vec<TableError>,
        files: usize,
        peak: u64,
    }

    fn swept(tables: Made, inside: &str, catalog_limit: u64, lost: bool) -> Result<Swept, FillError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = Arc::new(ImageFile::open(file.path()).unwrap());
        let device = ImageDevice { part: Part::new(device, 0, 0), path: file.path().to_owned() };
        let shown = PathBuf::from(format!("i:/{inside}"));
        let image = Image {
            shown: shown.clone(),
            inside: inside.as_bytes().to_vec(),
            tables: Box::new(tables),
            device: Arc::new(device),
            realtime: None,
        };
        let mut catalogue = Catalogue::new();
        let facts = ImageFacts { unit: 0, is_dirty: false };
        let volume = catalogue.volume_number(Volume { dev: 1, shown_dev: 1, block: 4096, base: 0, image: Some(facts) });
        let (filter, cancel) = (Filter::new(), Cancel::new());
        let wishes = Wishes {
            shown: &shown,
            filter: &filter,
            no_recursion: false,
            xattrs: false,
            indexes: Indexes::All,
            lost,
            catalog_limit,
            cancel: &cancel,
        };
        let mut filling = Filling::new(volume, None, image);
        let mut swept = Swept { paths: Vec::new(), windows: 0, problems: Vec::new(), files: 0, peak: 0 };
        while !filling.is_over() {
            let filled = filling.next(&mut catalogue, &wishes)?;
            swept.windows += 1;
            swept.problems.extend(filled.problems);
            swept.files += filled.entries.len();
            swept.peak = swept.peak.max(catalogue.bytes());
            for id in filled.directories.iter().chain(&filled.entries) {
                let names = catalogue.links(*id).map(|name| catalogue.path(name));
                swept.paths.extend(names.map(|path| String::from_utf8(path.as_os_str().as_bytes().to_vec()).unwrap()));
            }
        }
        swept.paths.sort();
        Ok(swept)
    }

    #[test]
    fn windows_hold_what_one_does() {
        for (inside, lost, files) in [("", false, 600 - 1 - 29), ("", true, 600), ("folder 0", true, 60)] {
            let whole = swept(made(), inside, u64::MAX, lost).ok().unwrap();
            assert_eq!((whole.windows, whole.problems.len(), whole.files), (1, 1, files), "{inside} {lost}");
            let mut paths = whole.paths.clone();
            paths.dedup();
            assert_eq!(paths.len(), whole.paths.len(), "a name comes twice");
            for limit in [30_000, 10_000, 1] {
                let parts = swept(made(), inside, limit, lost).ok().unwrap();
                assert_eq!(parts.paths, whole.paths, "{inside} {lost} {limit}");
                assert_eq!((parts.files, parts.problems.len()), (files, 1));
                assert!(parts.windows > if limit == 1 { 100 } else { 2 }, "{} windows", parts.windows);
                assert!(parts.peak < limit + 10_000, "{limit}: {}", parts.peak);
            }
        }
        let lost = swept(made(), "", u64::MAX, true).ok().unwrap().paths;
        assert!(
            lost.contains(&"i:/lost/1007/file 3".to_owned()) && lost.contains(&"i:/lost/4881".to_owned()),
            "{lost:?}"
        );
    }

    #[test]
    fn names_that_contradict_inodes_are_told_with_a_place() {
        for limit in [u64::MAX, 1] {
            let mut tables = made();
            let wrong = [(ROOT, 8000, "of nothing"), (1001, 9000, "beyond all"), (1001, 1002, "a second one")];
            tables.names.extend(wrong.map(|(directory, inode, name)| (directory, inode, name.to_owned())));
            let swept = swept(tables, "", limit, false).ok().unwrap();
            let mut told: Vec<_> = swept.problems.iter().filter_map(TableError::at).collect();
            told.sort_unstable();
            assert_eq!(told, [7, 1001 * 256, 1002 * 256, 8000 * 256], "{:?}", swept.problems);
        }
    }

    #[test]
    fn one_file_may_be_named() {
        for limit in [u64::MAX, 1] {
            let one = swept(made(), "folder 0/folder 19/file 4", limit, false).ok().unwrap();
            assert_eq!(one.paths, ["i:/folder 0/folder 19/file 4"]);
            for none in ["folder 0/none", "none", "folder 0/file 4/below", "folder 7"] {
                let error = swept(made(), none, limit, false).err().unwrap();
                assert!(matches!(error, FillError::NoSuchPath { .. }), "{none}: {error}");
            }
        }
    }

    /// Bytes that a journal has newer come from there, block by block.
    #[test]
    fn fragments_lead_to_the_journal() {
        let mut tables = made();
        let extent = |logical, block: u64, length| Extent {
            logical,
            physical: Some(block * 4096),
            length,
            flags: ExtentFlags::empty(),
        };
        let file = Inode {
            size: 30_000,
            extents: vec![extent(0, 100, 20_480), extent(24_576, 300, 4096)],
            ..inode(5, 0o100_644)
        };
        tables.inodes.push(file);
        tables.names.push((ROOT, 5, "moved".into()));
        let moved =
            |from: u64, to: u64, first_bytes| Moved { from: from * 4096, to: to * 4096, length: 4096, first_bytes };
        tables.moved = vec![
            moved(99, 900, None),
            moved(101, 901, Some([1, 2, 3, 4])),
            moved(104, 902, None),
            moved(105, 903, None),
            moved(300, 904, Some([5; 4])),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = Arc::new(ImageFile::open(file.path()).unwrap());
        let device = Arc::new(ImageDevice { part: Part::new(device, 0, 0), path: file.path().to_owned() });
        let (shown, tables) = (PathBuf::from("i:/moved"), Box::new(tables));
        let image = Image { shown: shown.clone(), inside: b"moved".to_vec(), tables, device, realtime: None };
        let mut catalogue = Catalogue::new();
        let volume = catalogue.volume_number(Volume { dev: 1, shown_dev: 1, block: 4096, base: 0, image: None });
        let wishes = Wishes {
            shown: &shown,
            filter: &Filter::new(),
            no_recursion: false,
            xattrs: false,
            indexes: Indexes::All,
            lost: false,
            catalog_limit: u64::MAX,
            cancel: &Cancel::new(),
        };
        let filled = Filling::new(volume, None, image).next(&mut catalogue, &wishes).ok().unwrap();
        let id = filled.entries[0];
        let fragments: Vec<(u64, u32, u32)> = catalogue
            .fragments(id)
            .map(|fragment| (fragment.address() / 4096, fragment.offset(), fragment.length()))
            .collect();
        assert_eq!(fragments, [(100, 0, 1), (901, 1, 1), (102, 2, 2), (902, 4, 1), (904, 6, 1)]);
        assert_eq!(catalogue.extra(id).unwrap().amends.stamps, [(4096, [1, 2, 3, 4]), (24_576, [5; 4])]);
    }
}
