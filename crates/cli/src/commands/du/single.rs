//! The walk for what no total of a directory tells: single files, other sets of files, links across several paths.
//!
//! All directories of a path are read in the order of their inodes, then told in the order of their names. What counts once
//! counts where it is told first.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::ffi::OsStrExt,
    path::Path,
    time::Instant,
};

use onesweep::Filter;
use onesweep_summary::{service::protocol::Figures, walk::is_stub};
use onesweep_sys::files::{self, DirReader, EntryType, Stat};

use super::time::TimeOf;

/// The kernel takes shorter paths.
const PATH_MAX: usize = 4096;

/// A line of output.
#[derive(Default)]
pub(super) struct Line {
    pub(super) path: Vec<u8>,
    pub(super) total: Figures,
    /// Without the directories in it.
    pub(super) own: Figures,
    /// The latest time of what is in it.
    pub(super) time: Option<files::Time>,
    /// The same, without the directories in it.
    pub(super) own_time: Option<files::Time>,
}

/// How is walked.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// A line for each file, too.
    pub(super) all: bool,
    /// Lines so far below.
    pub(super) depth: u32,
    /// Symbolic links are what they lead to.
    pub(super) follow: bool,
    /// Symbolic links that are named as paths are.
    pub(super) follow_named: bool,
    /// What has several names counts for each.
    pub(super) count_links: bool,
    pub(super) one_file_system: bool,
    pub(super) filter: Filter,
    pub(super) time: Option<TimeOf>,
}

/// Inodes that were counted, over several paths.
pub(super) struct Walker<'a> {
    rules: &'a Rules,
    /// Also what has one name: paths may lie in each other, links may lead anywhere.
    counts_all_once: bool,
    counted: HashSet<(u64, u64)>,
    /// No directory is read after that.
    until: Option<Instant>,
}

/// An entry of a directory.
struct Entry {
    name: Vec<u8>,
    stat: Stat,
    /// One of those that all have the same number.
    is_stub: bool,
    /// Which directory it is.
    directory: Option<usize>,
}

/// A directory that is, or will be, read.
struct Directory {
    path: Vec<u8>,
    stat: Stat,
    entries: Vec<Entry>,
}

/// A directory that is told.
struct Told {
    directory: usize,
    next: usize,
    path: Vec<u8>,
    own: Figures,
    below: Figures,
    own_time: Option<files::Time>,
    time_below: Option<files::Time>,
}

impl<'a> Walker<'a> {
    /// For so many paths, within a time.
    pub(super) fn new(rules: &'a Rules, paths: usize, until: Option<Instant>) -> Self {
        Self { rules, counts_all_once: rules.follow || paths > 1, counted: HashSet::new(), until }
    }

    /// The lines of a path, the path itself last; none when it was counted before, or is left out. `complain` gets what can't
    /// be read. `None` when time is up.
    pub(super) fn walk(
        &mut self,
        path: &Path,
        complain: &mut dyn FnMut(&Path, &io::Error),
    ) -> io::Result<Option<Vec<Line>>> {
        let shown = path.as_os_str().as_bytes().to_vec();
        if self.rules.filter.excludes(&shown) {
            return Ok(Some(Vec::new()));
        }
        let follow = self.rules.follow || self.rules.follow_named;
        let stat = files::statx_at(files::CURRENT_DIR, path, !follow)?;
        if stat.file_type() != EntryType::Dir {
            let line = self.line_of_file(shown, &stat);
            return Ok(Some(Vec::from_iter(self.counts(&stat).then_some(line))));
        }
        Ok(self.read(shown, stat, complain).map(|directories| self.tell(&directories)))
    }

    /// Reads all directories, the next at or above the inode of the last, then around again; `None` when time is up.
    fn read(&self, top: Vec<u8>, stat: Stat, complain: &mut dyn FnMut(&Path, &io::Error)) -> Option<Vec<Directory>> {
        let mut known = HashMap::from([((stat.dev, stat.ino), 0)]);
        let mut waiting = BTreeSet::from([(stat.dev, stat.ino, 0)]);
        let dev = stat.dev;
        let mut directories = vec![Directory { path: top, stat, entries: Vec::new() }];
        let mut last = (0, 0, 0);
        while let Some(&next) = waiting.range(last..).next().or_else(|| waiting.first()) {
            if self.until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            waiting.remove(&next);
            last = next;
            let path = directories[next.2].path.clone();
            let shown = Path::new(std::ffi::OsStr::from_bytes(&path));
            let entries = match self.open(shown, next.2 == 0).and_then(|fd| self.list(&fd, &path, complain)) {
                Ok(entries) => entries,
                Err(error) => {
                    complain(shown, &error);
                    continue;
                }
            };
            for mut entry in entries {
                // Of a file, too: a link may lead to one elsewhere, and one may be mounted on another.
                if self.rules.one_file_system && entry.stat.dev != dev {
                    continue;
                }
                if entry.stat.file_type() == EntryType::Dir {
                    // Of those that have no number of their own each is another one.
                    let number = if entry.is_stub { u64::MAX - directories.len() as u64 } else { entry.stat.ino };
                    let identity = (entry.stat.dev, number);
                    entry.directory = Some(*known.entry(identity).or_insert_with(|| {
                        let stat = entry.stat;
                        directories.push(Directory { path: below(&path, &entry.name), stat, entries: Vec::new() });
                        waiting.insert((stat.dev, stat.ino, directories.len() - 1));
                        directories.len() - 1
                    }));
                }
                directories[next.2].entries.push(entry);
            }
            directories[next.2].entries.sort_by(|one, other| one.name.cmp(&other.name));
        }
        Some(directories)
    }

    fn open(&self, path: &Path, is_top: bool) -> io::Result<OwnedFd> {
        // What a link leads to is read only where links are followed.
        let leads = self.rules.follow || is_top && self.rules.follow_named;
        if leads && path.as_os_str().len() < PATH_MAX { Ok(File::open(path)?.into()) } else { files::open_dir(path) }
    }

    fn list(&self, fd: &OwnedFd, path: &[u8], complain: &mut dyn FnMut(&Path, &io::Error)) -> io::Result<Vec<Entry>> {
        let mut names = Vec::new();
        DirReader::with_buffer(32 << 10)
            .read(fd.as_fd(), |entry| names.push((entry.ino, entry.name.to_bytes().to_vec())))?;
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        for (_, name) in names {
            let shown = below(path, &name);
            if self.rules.filter.excludes(&shown) {
                continue;
            }
            let at = std::ffi::OsStr::from_bytes(&name);
            match files::statx_at(fd.as_fd(), at, !self.rules.follow) {
                Ok(stat) => {
                    let is_stub = stat.file_type() == EntryType::Dir
                        && CString::new(&*name).is_ok_and(|name| is_stub(fd.as_fd(), &name, stat.ino));
                    entries.push(Entry { name, stat, is_stub, directory: None });
                }
                // It vanished, if it isn't a link to nothing.
                Err(_)
                    if files::statx_at(fd.as_fd(), at, true)
                        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => {}
                Err(error) => complain(Path::new(std::ffi::OsStr::from_bytes(&shown)), &error),
            }
        }
        Ok(entries)
    }

    /// Whether it is counted here: what has several names only the first time.
    fn counts(&mut self, stat: &Stat) -> bool {
        let is_directory = stat.file_type() == EntryType::Dir;
        let once = self.counts_all_once || (!is_directory && stat.nlink > 1);
        self.rules.count_links || !once || self.counted.insert((stat.dev, stat.ino))
    }

    fn time(&self, stat: &Stat) -> Option<files::Time> {
        self.rules.time.map(|time| time.of(stat))
    }

    fn line_of_file(&self, path: Vec<u8>, stat: &Stat) -> Line {
        let (figures, time) = (Figures::of_inode(stat), self.time(stat));
        Line { path, total: figures, own: figures, time, own_time: time }
    }

    fn tell(&mut self, directories: &[Directory]) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut told: Vec<Told> = Vec::new();
        let mut is_told = vec![false; directories.len()];
        let enter = |walker: &mut Self, directory: usize, path: Vec<u8>, is_told: &mut [bool]| {
            let stat = &directories[directory].stat;
            // Whatever else is counted twice: a directory in itself would never end.
            if std::mem::replace(&mut is_told[directory], true) || !walker.counts(stat) {
                return None;
            }
            let (own, own_time) = (Figures::of_inode(stat), walker.time(stat));
            Some(Told { directory, next: 0, path, own, below: Figures::default(), own_time, time_below: None })
        };
        told.extend(enter(self, 0, directories[0].path.clone(), &mut is_told));
        while let Some(at) = told.last_mut() {
            let Some(entry) = directories[at.directory].entries.get(at.next) else {
                let Some(done) = told.pop() else { break };
                let mut total = done.own;
                total += &done.below;
                let time = done.own_time.max(done.time_below);
                if let Some(above) = told.last_mut() {
                    above.below += &total;
                    above.time_below = above.time_below.max(time);
                }
                if told.len() as u32 <= self.rules.depth {
                    lines.push(Line { path: done.path, total, own: done.own, time, own_time: done.own_time });
                }
                continue;
            };
            at.next += 1;
            let path = below(&at.path, &entry.name);
            if let Some(directory) = entry.directory {
                told.extend(enter(self, directory, path, &mut is_told));
            } else if self.counts(&entry.stat) {
                let line = self.line_of_file(path, &entry.stat);
                at.own += &line.own;
                at.own_time = at.own_time.max(line.time);
                if self.rules.all && told.len() as u32 <= self.rules.depth {
                    lines.push(line);
                }
            }
        }
        lines
    }
}

fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
}
