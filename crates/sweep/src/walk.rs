//! The walk (qtar, listing 2): directories are read in C-SCAN order of their inodes over the whole tree.
//!
//! The next directory is the one with the lowest inode at or above the head's place, then around again. Types and inodes
//! come from the listing; nothing but the directories themselves is opened or looked at here.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    ffi::OsStr,
    io::{self, Read},
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_sys::files::{self, DirReader, EntryType};

use crate::{
    ahead::{Look, ReadAhead},
    catalogue::{Catalogue, EntryId, Flags, Volume},
    error::FileError,
    filter::Filter,
    footprint::Footprint,
    ignores::{self, Rules},
    moment::{Instead, Moment},
    opener::Opener,
    preload::Preload,
    settings::CachePolicy,
};

/// Bytes of the buffer for listings: some 8,000 names for each call.
const LISTING_BUFFER: usize = 256 << 10;

/// Directories that are looked at ahead of the walk.
const AHEAD: usize = 1024;

/// In which order directories are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkOrder {
    /// By inode, over the whole tree.
    CScan,
    /// One after the other, each before its children: listing 1 of the qtar paper.
    DepthFirst,
}

/// Where a file system belongs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// On the spindle of this walk.
    Here(Volume),
    /// On another one.
    Elsewhere,
}

/// What the walk is told.
pub(crate) struct Rule<'a> {
    pub(crate) order: WalkOrder,
    pub(crate) one_file_system: bool,
    /// Directories are entries like others: they are not listed.
    pub(crate) no_recursion: bool,
    pub(crate) filter: &'a Filter,
    pub(crate) gitignore: bool,
    /// What happens to the pages of ignore files.
    pub(crate) cache: CachePolicy,
    /// Bytes that the catalogue may hold.
    pub(crate) catalog_limit: u64,
    /// Directories of one window; without a limit the catalogue alone ends a window.
    pub(crate) directories_max: usize,
    pub(crate) place: &'a dyn Fn(BorrowedFd<'_>, &files::Stat) -> Place,
    /// Snapshots that are walked, which lack other file systems.
    pub(crate) moment: Option<&'a Moment>,
    pub(crate) cancelled: &'a dyn Fn() -> bool,
}

/// A directory of another spindle that the walk came to.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) shown: PathBuf,
    pub(crate) opened: PathBuf,
    /// Device and inode, by which it is known again.
    pub(crate) identity: (u64, u64),
}

/// A place in the C-SCAN order: where the volume begins, then the inode.
pub(crate) type Position = (u64, u64, EntryId);

#[derive(Debug)]
pub(crate) struct Walker {
    reader: DirReader,
    pending: BTreeSet<Position>,
    /// Once half of the catalogue is full: the directories of the one subtree that is finished first, so that a window
    /// stays whole subtrees where it can.
    focus: BTreeSet<Position>,
    /// Of the root that is being walked depth first.
    stack: Vec<EntryId>,
    /// Roots that will be walked depth first, in this order.
    roots: VecDeque<EntryId>,
    head: (u64, u64),
    /// What may be brought into memory at once below a root, when it is not there.
    preloads: Vec<(EntryId, Preload)>,
    /// Waiting directories that are being looked at, or were.
    ahead: HashSet<EntryId>,
    /// Those of them that were: they can be read without waiting for the disk.
    looked: BTreeSet<Position>,
    rules: HashMap<EntryId, Arc<Rules>>,
    /// Entries before this one were given out in a window.
    given: u32,
    /// Directories that were opened, in that order, and not given out yet.
    opened: Vec<EntryId>,
    foreign: Vec<Foreign>,
    errors: Vec<FileError>,
}

/// What one round of walking found.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The new entries.
    pub(crate) entries: Range<u32>,
    /// Directories that were read, parents before children.
    pub(crate) directories: Vec<EntryId>,
    pub(crate) errors: Vec<FileError>,
}

impl Walker {
    pub(crate) fn new() -> Self {
        Self {
            reader: DirReader::with_buffer(LISTING_BUFFER),
            pending: BTreeSet::new(),
            focus: BTreeSet::new(),
            stack: Vec::new(),
            roots: VecDeque::new(),
            head: (0, 0),
            preloads: Vec::new(),
            ahead: HashSet::new(),
            looked: BTreeSet::new(),
            rules: HashMap::new(),
            given: 0,
            opened: Vec::new(),
            foreign: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Takes a root directory, which is in the catalogue already.
    pub(crate) fn enter(&mut self, catalogue: &Catalogue, root: EntryId, order: WalkOrder) {
        match order {
            WalkOrder::CScan => {
                self.pending.insert(position(catalogue, root));
            }
            WalkOrder::DepthFirst => self.roots.push_back(root),
        }
    }

    /// Directories of other spindles that were met since the last call.
    pub(crate) fn take_foreign(&mut self) -> Vec<Foreign> {
        std::mem::take(&mut self.foreign)
    }

    /// True when every directory was read and everything was given out.
    pub(crate) fn is_finished(&self, catalogue: &Catalogue) -> bool {
        self.waiting().next().is_none() && self.given == catalogue.len()
    }

    /// Directories that are still to be read.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = EntryId> {
        let depth_first = self.stack.iter().chain(&self.roots).copied();
        self.pending.iter().chain(&self.focus).map(|&(_, _, id)| id).chain(depth_first)
    }

    /// Reads directories until the window is full or nothing is left.
    pub(crate) fn window(
        &mut self,
        catalogue: &mut Catalogue,
        opener: &mut Opener,
        ahead: &mut ReadAhead,
        rule: &Rule<'_>,
    ) -> Window {
        ahead.begin();
        let mut read = 0;
        while read < rule.directories_max
            && (catalogue.bytes() < rule.catalog_limit || read == 0)
            && !(rule.cancelled)()
        {
            let is_cold = rule.order == WalkOrder::CScan && !rule.no_recursion && ahead.is_worthwhile();
            let runs = |(_, preload): &mut (_, Preload)| is_cold || (!rule.no_recursion && preload.runs_at_once());
            for (root, preload) in self.preloads.extract_if(.., runs) {
                // A root that can't be opened is told of when it is read.
                if let Ok(fd) = opener.directory(catalogue, root) {
                    preload.run(fd.as_fd());
                }
            }
            if is_cold {
                self.look_ahead(catalogue, opener, ahead);
                self.wait_for_a_look(catalogue, ahead, rule);
            }
            let Some(directory) = self.next_directory(catalogue, rule, is_cold) else { break };
            if let Err(error) = self.read_directory(catalogue, opener, rule, directory) {
                catalogue.get_mut(directory).flags.set(Flags::DONE);
                self.errors.push(error);
            }
            read += 1;
        }
        self.pending.append(&mut self.focus);
        let entries = self.given..catalogue.len();
        self.given = catalogue.len();
        Window { entries, directories: std::mem::take(&mut self.opened), errors: std::mem::take(&mut self.errors) }
    }

    /// Lets a preload run before the walk, once metadata is seen to come from the disk.
    pub(crate) fn preload(&mut self, root: EntryId, preload: Preload) {
        self.preloads.push((root, preload));
    }

    /// The entries were moved to a new catalogue, in which nothing is waiting to be given out.
    pub(crate) fn renumber(&mut self, catalogue: &Catalogue, moved: &HashMap<EntryId, EntryId>) {
        let renumbered = |&(base, ino, id): &Position| (base, ino, moved[&id]);
        self.pending = self.pending.iter().map(renumbered).collect();
        for id in self.stack.iter_mut().chain(&mut self.roots) {
            *id = moved[id];
        }
        self.rules = self.rules.drain().filter_map(|(id, rules)| Some((*moved.get(&id)?, rules))).collect();
        self.given = catalogue.len();
        self.preloads.clear();
        self.forget_looks();
    }

    fn forget_looks(&mut self) {
        self.ahead.clear();
        self.looked.clear();
    }

    /// The next directory in C-SCAN order; with `is_cold`, of those that were looked at, if any.
    fn next_directory(&mut self, catalogue: &Catalogue, rule: &Rule<'_>, is_cold: bool) -> Option<EntryId> {
        if rule.order == WalkOrder::DepthFirst {
            return self.stack.pop().or_else(|| self.roots.pop_front());
        }
        let focused = catalogue.bytes() >= rule.catalog_limit / 2;
        if focused && self.focus.is_empty() {
            let root = next_from(&self.pending, self.head)?;
            self.pending.remove(&root);
            self.focus.insert(root);
            // What was looked at outside of the subtree is not read before it is finished.
            self.forget_looks();
        }
        let from = if self.focus.is_empty() { &mut self.pending } else { &mut self.focus };
        let next = match next_from(&self.looked, self.head) {
            Some(looked) if is_cold => looked,
            _ => next_from(from, self.head)?,
        };
        self.looked.remove(&next);
        from.remove(&next);
        self.head = (next.0, next.1);
        Some(next.2)
    }

    /// Has the directories that come next looked at.
    fn look_ahead(&mut self, catalogue: &Catalogue, opener: &mut Opener, ahead: &mut ReadAhead) {
        if self.ahead.len() > AHEAD / 2 {
            return;
        }
        let waiting = if self.focus.is_empty() { &self.pending } else { &self.focus };
        for id in upcoming(waiting, self.head).take(AHEAD) {
            if self.ahead.contains(&id) {
                continue;
            }
            if let Ok(Some(way)) = opener.short_way(catalogue, id) {
                let dev = catalogue.volume(catalogue.get(id).device).dev;
                if ahead.push(Look::Directory { at: position(catalogue, id), way, dev }) {
                    self.ahead.insert(id);
                }
            }
        }
    }

    /// Until a directory can be read without waiting for the disk. To wait for one certain directory, the next in order,
    /// would let the others run dry: what they hold is not known before they are read.
    fn wait_for_a_look(&mut self, catalogue: &Catalogue, ahead: &ReadAhead, rule: &Rule<'_>) {
        loop {
            let looked = ahead.take_looked().into_iter().filter(|id| self.ahead.contains(id));
            self.looked.extend(looked.map(|id| position(catalogue, id)));
            if self.ahead.is_empty() || !self.looked.is_empty() || (rule.cancelled)() {
                break;
            }
            ahead.wait_for_a_look();
        }
    }

    fn read_directory(
        &mut self,
        catalogue: &mut Catalogue,
        opener: &mut Opener,
        rule: &Rule<'_>,
        id: EntryId,
    ) -> Result<(), FileError> {
        self.ahead.remove(&id);
        let fail = |catalogue: &Catalogue, step: &str, error| FileError::io(catalogue.path(id), step, error);
        let fd = opener.directory(catalogue, id).map_err(|error| fail(catalogue, "open the directory", error))?;
        let stat = files::statx_fd(fd.as_fd()).map_err(|error| fail(catalogue, "stat the directory", error))?;
        let listed = catalogue.get(id);
        if self.is_elsewhere(catalogue, rule, id, &stat) {
            catalogue.get_mut(id).flags.set(Flags::DONE);
            return Ok(());
        }
        catalogue.get_mut(id).learn(&stat);

        let mut descend = !rule.no_recursion;
        if stat.dev != catalogue.volume(listed.device).dev {
            let volume = match catalogue.find_volume(stat.dev) {
                Some(known) => Some(known),
                None => match (rule.place)(fd.as_fd(), &stat) {
                    Place::Here(volume) => Some(catalogue.volume_number(volume)),
                    Place::Elsewhere => None,
                },
            };
            descend &= !rule.one_file_system;
            match volume {
                Some(number) => catalogue.get_mut(id).device = number,
                None if descend => {
                    catalogue.get_mut(id).flags.set(Flags::DONE);
                    let identity = (stat.dev, stat.ino);
                    self.foreign.push(Foreign {
                        shown: catalogue.path(id),
                        opened: catalogue.opened_path(id),
                        identity,
                    });
                    return Ok(());
                }
                None => {}
            }
        }
        if is_loop(catalogue, id) {
            return Err(FileError::Loop { path: catalogue.path(id) });
        }
        self.opened.push(id);
        if descend {
            self.list(catalogue, rule, id, &fd).map_err(|error| fail(catalogue, "read the directory", error))
        } else {
            Ok(())
        }
    }

    /// Whether a directory of a snapshot stands for another file system, which is read as it is now; a next round does that.
    fn is_elsewhere(&mut self, catalogue: &Catalogue, rule: &Rule<'_>, id: EntryId, stat: &files::Stat) -> bool {
        let is_root = catalogue.get(id).parent == EntryId::NONE;
        let Some(moment) = rule.moment.filter(|_| !is_root && !rule.one_file_system && !rule.no_recursion) else {
            return false;
        };
        match moment.instead(stat, || catalogue.opened_path(id)) {
            None => false,
            Some(Instead::Nothing) => true,
            Some(Instead::Live(opened)) => match files::statx_at(files::CURRENT_DIR, opened.as_path(), true) {
                Ok(live) if live.file_type() == EntryType::Dir => {
                    let identity = (live.dev, live.ino);
                    self.foreign.push(Foreign { shown: catalogue.path(id), opened, identity });
                    true
                }
                // It is gone by now: what the snapshot shows is all there is.
                _ => false,
            },
        }
    }

    fn list(&mut self, catalogue: &mut Catalogue, rule: &Rule<'_>, id: EntryId, fd: &impl AsFd) -> io::Result<()> {
        let volume = catalogue.get(id).device;
        let above = catalogue.get(id).parent.some().and_then(|parent| self.rules.get(&parent).cloned());
        let rules = match rule.gitignore {
            true => directory_rules(catalogue, id, fd, above, rule.cache, &mut self.errors),
            false => None,
        };
        let needs_path = !rule.filter.is_empty() || rules.is_some();
        let mut path = if needs_path { catalogue.path_bytes(id) } else { Vec::new() };
        if needs_path && path.last() != Some(&b'/') {
            path.push(b'/');
        }
        let stem = path.len();
        let children = self.stack.len();
        let focused = !self.focus.is_empty() || catalogue.bytes() >= rule.catalog_limit / 2;
        let mut full = false;
        let Self { reader, stack, pending, focus, .. } = self;
        // A directory may have millions of names, and each may come over a slow line.
        reader.read_while(fd.as_fd(), |entry| {
            if (rule.cancelled)() {
                return false;
            }
            let name = entry.name.to_bytes();
            let mode = match entry.kind {
                EntryType::Unknown => match files::statx_at(fd.as_fd(), entry.name, true) {
                    Ok(stat) => stat.mode & TYPE_BITS,
                    Err(_) => REGULAR,
                },
                known => type_bits(known),
            };
            if needs_path {
                path.truncate(stem);
                path.extend_from_slice(name);
                let ignored =
                    |rules: &Arc<Rules>| rules.ignores(Path::new(OsStr::from_bytes(&path)), mode == DIRECTORY);
                let excluded = match mode {
                    DIRECTORY => rule.filter.excludes(&path),
                    _ => rule.filter.excludes_file(&path),
                };
                if excluded || rules.as_ref().is_some_and(ignored) {
                    return true;
                }
            }
            let Some(child) = catalogue.add(id, name, entry.ino, volume, mode) else {
                full = true;
                return true;
            };
            if mode == DIRECTORY {
                match rule.order {
                    WalkOrder::DepthFirst => stack.push(child),
                    WalkOrder::CScan if focused => drop(focus.insert(position(catalogue, child))),
                    WalkOrder::CScan => drop(pending.insert(position(catalogue, child))),
                }
            }
            true
        })?;
        // The first child comes off the stack first.
        self.stack[children..].reverse();
        if let Some(rules) = rules {
            self.rules.insert(id, rules);
        }
        if full {
            Err(io::Error::other("the catalogue holds as many names as it can; name parts of the tree"))
        } else {
            Ok(())
        }
    }
}

const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

fn type_bits(kind: EntryType) -> u32 {
    match kind {
        EntryType::Dir => DIRECTORY,
        EntryType::Symlink => 0o120_000,
        EntryType::Fifo => 0o010_000,
        EntryType::Socket => 0o140_000,
        EntryType::CharDevice => 0o020_000,
        EntryType::BlockDevice => 0o060_000,
        EntryType::File | EntryType::Unknown => REGULAR,
    }
}

fn position(catalogue: &Catalogue, id: EntryId) -> Position {
    let entry = catalogue.get(id);
    (catalogue.volume(entry.device).base, entry.ino, id)
}

/// The next position at or above the head, then around again.
fn next_from(pending: &BTreeSet<Position>, (base, ino): (u64, u64)) -> Option<Position> {
    pending.range((base, ino, EntryId(0))..).next().or_else(|| pending.first()).copied()
}

/// The directories that come next, as far as they are known by now.
fn upcoming(pending: &BTreeSet<Position>, (base, ino): (u64, u64)) -> impl Iterator<Item = EntryId> {
    let head = (base, ino, EntryId(0));
    pending.range(head..).chain(pending.range(..head)).map(|&(_, _, id)| id)
}

/// True when an ancestor is the same directory: a bind mount of something above.
fn is_loop(catalogue: &Catalogue, id: EntryId) -> bool {
    let this = catalogue.get(id);
    catalogue
        .lineage(id)
        .skip(1)
        .map(|above| catalogue.get(above))
        .any(|above| (above.device, above.ino) == (this.device, this.ino))
}

/// The rules of a directory with those above it. An ignore file that can't be read is told of, since what it names is not
/// left out.
fn directory_rules(
    catalogue: &Catalogue,
    id: EntryId,
    fd: &impl AsFd,
    above: Option<Arc<Rules>>,
    cache: CachePolicy,
    errors: &mut Vec<FileError>,
) -> Option<Arc<Rules>> {
    let directory = catalogue.path(id);
    let mut files = Vec::new();
    for name in ignores::NAMES {
        let opened = files::open_file_at(fd.as_fd(), name);
        let path = directory.join(OsStr::from_bytes(name));
        match opened.and_then(|file| read_ignore_file(file, cache)) {
            Ok(Some(content)) => files.push((path, content)),
            Ok(None) => {}
            // As for git, one that is a symbolic link is none.
            Err(error) if files::is_no_file(&error) => {}
            Err(source) => {
                let step = "take patterns from it, so what it names is not left out".into();
                errors.push(FileError::Io { path, step, source });
            }
        }
    }
    if files.is_empty() { above } else { Some(Rules::read(&directory, &files, above)) }
}

/// Patterns are kept in memory, so there are only so many bytes of them.
const IGNORE_FILE_BYTES_MAX: u64 = 16 << 20;

/// The content of an ignore file; nothing for what is no regular file.
fn read_ignore_file(file: OwnedFd, cache: CachePolicy) -> io::Result<Option<Vec<u8>>> {
    let stat = files::statx_fd(file.as_fd())?;
    if stat.file_type() != EntryType::File {
        return Ok(None);
    }
    let too_large = || io::Error::other("it is larger than 16 MiB");
    if stat.size > IGNORE_FILE_BYTES_MAX {
        return Err(too_large());
    }
    let mut footprint = match cache {
        CachePolicy::Untouched => Footprint::of_file(file.as_fd(), stat.size),
        CachePolicy::Fill => Footprint::default(),
    };
    let mut content = Vec::new();
    let file = std::fs::File::from(file);
    let read = (&file).take(IGNORE_FILE_BYTES_MAX + 1).read_to_end(&mut content);
    footprint.wipe(file.as_fd());
    if read? as u64 > IGNORE_FILE_BYTES_MAX {
        return Err(too_large());
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_scan_goes_up_and_around_again() {
        let pending: BTreeSet<Position> = [10, 20, 30].map(|ino| (0, ino, EntryId(ino as u32))).into();
        let next = |head| next_from(&pending, (0, head)).unwrap().1;
        assert_eq!([next(0), next(10), next(11), next(30), next(31)], [10, 10, 20, 30, 10]);
    }

    /// Walks a tree window by window, as a sweep does that keeps nothing of a window but what is still to be read.
    fn each_window(root: &Path, catalog_limit: u64, mut see: impl FnMut(&Catalogue, Window)) {
        let mut catalogue = Catalogue::new();
        let stat = files::statx_at(files::CURRENT_DIR, root, true).unwrap();
        let volume = Volume { dev: stat.dev, shown_dev: stat.dev, block: 4096, base: 0, image: None };
        let number = catalogue.volume_number(volume);
        let id = catalogue.add_root(b"r", root.to_owned(), number, DIRECTORY, stat.ino).unwrap();
        let (mut walker, mut opener, mut ahead) = (Walker::new(), Opener::new(), ReadAhead::new(1, false));
        walker.enter(&catalogue, id, WalkOrder::CScan);
        while !walker.is_finished(&catalogue) {
            let rule = Rule {
                order: WalkOrder::CScan,
                one_file_system: false,
                no_recursion: false,
                filter: &Filter::new(),
                gitignore: false,
                cache: CachePolicy::Untouched,
                catalog_limit,
                directories_max: usize::MAX,
                place: &|_, _| Place::Here(volume),
                moment: None,
                cancelled: &|| false,
            };
            let window = walker.window(&mut catalogue, &mut opener, &mut ahead, &rule);
            assert!(window.errors.is_empty(), "{:?}", window.errors);
            see(&catalogue, window);
            let mut smaller = Catalogue::like(&catalogue);
            let mut moved = HashMap::new();
            for id in walker.waiting() {
                smaller.adopt(&catalogue, id, &mut moved);
            }
            walker.renumber(&smaller, &moved);
            opener.clear();
            catalogue = smaller;
        }
    }

    /// The subtree (directory below the root) of each file of each window.
    fn windows(root: &Path, catalog_limit: u64) -> Vec<Vec<String>> {
        let mut windows = Vec::new();
        each_window(root, catalog_limit, |catalogue, window| {
            let files = window.entries.map(EntryId).filter(|&id| catalogue.get(id).is_file());
            let subtree =
                |id| catalogue.path(id).components().nth(1).unwrap().as_os_str().to_string_lossy().into_owned();
            windows.push(files.map(subtree).collect());
        });
        windows
    }

    /// Makes directories, each of which has a higher inode than the one before it in the list, wherever it lies. No file
    /// system promises that inodes rise as directories are made, so they are made first and named afterwards.
    fn make_by_rising_inode(root: &Path, names: &[PathBuf]) {
        use std::os::unix::fs::MetadataExt;
        let mut made: Vec<PathBuf> = (0..names.len()).map(|number| root.join(format!("made-{number}"))).collect();
        made.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        made.sort_by_key(|path| path.metadata().unwrap().ino());
        let mut named: Vec<_> = made.into_iter().zip(names).collect();
        named.sort_by_key(|(_, name)| name.components().count());
        named.into_iter().for_each(|(path, name)| std::fs::rename(path, root.join(name)).unwrap());
    }

    /// Turn of the head and inode of each directory below: a child is met in the turn in which its parent is read, if it
    /// lies above, else in the next.
    fn turns(path: &Path, turn: u32, ino: u64, all: &mut Vec<(u32, u64)>) {
        use std::os::unix::fs::DirEntryExt;
        all.push((turn, ino));
        for child in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
            turns(&child.path(), turn + u32::from(child.ino() < ino), child.ino(), all);
        }
    }

    #[test]
    fn directories_rise_by_inode_and_wait_for_the_next_turn_only_below_the_head() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        // Three directories in each, and 37 has no common divisor with 60: up and down by no rule.
        let mut tree = vec![PathBuf::from("0")];
        (1..60).for_each(|number| tree.push(tree[(number - 1) / 3].join(number.to_string())));
        let mut names = tree.clone();
        (0..60).for_each(|number| names[(number * 37 + 30) % 60].clone_from(&tree[number]));
        make_by_rising_inode(folder.path(), &names);
        let root = folder.path().join("0");
        let mut expected = Vec::new();
        turns(&root, 0, root.metadata().unwrap().ino(), &mut expected);
        expected.sort_unstable();
        assert!(expected.last().unwrap().0 > 1, "the head turns round more than once: {expected:?}");
        let walk = || {
            let before = onesweep_sys::usage::blocks_read();
            let mut inodes = Vec::new();
            each_window(&root, 1 << 30, |catalogue, window| {
                inodes.push(window.directories.iter().map(|&id| catalogue.get(id).ino).collect::<Vec<_>>());
            });
            // From the disk, those come first that were looked at ahead.
            (onesweep_sys::usage::blocks_read() == before).then_some(inodes)
        };
        let walked = (0..10).find_map(|_| walk()).expect("what was just made lies in memory");
        assert_eq!(walked, [expected.into_iter().map(|(_, ino)| ino).collect::<Vec<_>>()]);
    }

    #[test]
    fn ignore_files_are_regular_and_not_too_large() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".gitignore");
        let read = || {
            let file = files::open_file_at(files::CURRENT_DIR, path.as_path()).unwrap();
            read_ignore_file(file, CachePolicy::Untouched)
        };
        std::fs::write(&path, "*.o").unwrap();
        assert_eq!(read().unwrap().unwrap(), b"*.o");
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read().unwrap_err().to_string().contains("larger than 16 MiB"));
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // A writer that never writes.
        let _writer = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        assert!(read().unwrap().is_none());
        let zeros = files::open_file_at(files::CURRENT_DIR, "/dev/zero").unwrap();
        assert!(read_ignore_file(zeros, CachePolicy::Untouched).unwrap().is_none());
    }

    #[test]
    fn roots_are_walked_in_the_order_in_which_they_were_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut catalogue = Catalogue::new();
        let dev = files::statx_at(files::CURRENT_DIR, directory.path(), true).unwrap().dev;
        let number = catalogue.volume_number(Volume { dev, shown_dev: dev, block: 4096, base: 0, image: None });
        let mut walker = Walker::new();
        // Far too many for a way in whose time grows with the square.
        let roots: Vec<EntryId> = (0..300_000)
            .map(|_| catalogue.add_root(b"r", directory.path().to_owned(), number, DIRECTORY, 1).unwrap())
            .collect();
        for &root in &roots {
            walker.enter(&catalogue, root, WalkOrder::DepthFirst);
        }
        assert!(walker.waiting().eq(roots));
    }

    #[test]
    fn a_window_is_made_of_whole_subtrees() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("r");
        // Level by level and across the subtrees, so that the order of inodes keeps no subtree together.
        let mut names = vec![PathBuf::from("r")];
        for directory in 0..5 {
            for subtree in 0..20 {
                let path = PathBuf::from(format!("r/s{subtree}"));
                names.extend((directory == 0).then(|| path.clone()));
                names.extend([path.join(format!("d{directory}")), path.join(format!("d{directory}/e"))]);
            }
        }
        make_by_rising_inode(folder.path(), &names);
        for path in names.iter().filter(|path| path.ends_with("e")) {
            (0..10).for_each(|file| std::fs::write(folder.path().join(path).join(format!("f{file}")), b"").unwrap());
        }
        let all = windows(&root, 1 << 30);
        assert_eq!((all.len(), all[0].len()), (1, 1000), "a tree that fits is one window");
        let cut = windows(&root, 30_000);
        assert_eq!(cut.iter().map(Vec::len).sum::<usize>(), 1000, "nothing is lost, nothing comes twice");
        assert!(cut.len() > 3);
        let seen_in = |subtree: &str| cut.iter().filter(|window| window.iter().any(|name| name == subtree)).count();
        let whole = (0..20).filter(|subtree| seen_in(&format!("s{subtree}")) == 1).count();
        assert!(whole >= 4, "{whole} of 20 subtrees lie in one window");
    }
}
