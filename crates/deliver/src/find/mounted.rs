//! Files of a mounted ext4, by its tables, and by the kernel where these may have changed while they were read.
//!
//! The tables are read twice: inodes and names, then the inodes again. What is the same both times and older than the first
//! reading is quiet, and so are the names of a directory that is quiet. The kernel is asked for all else: it lists directories
//! that changed, and looks at files that did. Whatever is mounted below is the kernel's, too.
//!
//! What doesn't fit into memory goes by parts, each of which is read twice. A directory that holds still in all of them tells
//! each of its names in one of them; one that changes is listed once, in the first part that finds it changed.

use std::{
    collections::HashSet,
    io,
    ops::ControlFlow,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onesweep_layout::{
    Devices, ImageFile,
    mounts::MountTable,
    tables::{
        Found, Inode, InodeFlags, Name, Part, TableError, Timestamp, Tree, Wanted, Whole,
        ext4::{Ext4, Needs},
    },
};
use onesweep_sys::{
    files::{self, EntryType},
    memory,
};
use thiserror::Error;

use super::{
    Row,
    kernel::{Below, Kernel},
};

/// Times of a file system lag behind the clock by some milliseconds.
const LAG: Duration = Duration::from_secs(1);

const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// Why the tables below a directory can't be read.
#[derive(Debug, Error)]
pub enum MountedError {
    /// It lies on another file system.
    #[error(
        "is a directory of a mounted {0}; name one of ext2, ext3, ext4, XFS or btrfs, or an image or an unmounted device"
    )]
    Other(String),
    /// The device.
    #[error("cannot read the tables on {}: {source}{}", node.display(), advice(source))]
    Device {
        /// Its node.
        node: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The table of mounts, which the error names.
    #[error(transparent)]
    Mounts(io::Error),
    /// The directory itself.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The devices can't be known without it.
fn no_mounts(error: io::Error) -> MountedError {
    MountedError::Mounts(MountTable::read_or_say().err().unwrap_or(error))
}

fn advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { "; be root" } else { "" }
}

/// A directory of a mounted ext2, ext3 or ext4.
pub struct MountedDirectory {
    directory: OwnedFd,
    dev: u64,
    inode: u64,
    tables: Ext4<Arc<ImageFile>>,
    /// The same, to be read while the first ones are told of.
    again: Ext4<Arc<ImageFile>>,
    /// Paths below it where something is mounted.
    mounts: HashSet<Vec<u8>>,
}

/// How files are found.
#[derive(Debug, Clone, Copy)]
pub struct MountedOptions {
    /// What is mounted below is not entered.
    pub one_file_system: bool,
    /// Fragments and addresses are wanted.
    pub layout: bool,
    /// Bytes that names and inodes may take at a time, but for directories: see [`Whole::limit`].
    pub limit: u64,
}

impl MountedDirectory {
    /// Opens a directory and the device below it. Needs read access to the device, mostly root.
    pub fn open(path: &Path) -> Result<MountedDirectory, MountedError> {
        let directory = files::open_dir(path)?;
        let stat = files::statx_fd(directory.as_fd())?;
        let devices = Devices::of_system().map_err(no_mounts)?;
        let mounts = devices.mounts();
        let mount =
            stat.mnt_id.and_then(|id| mounts.by_id(id)).or_else(|| mounts.iter().find(|mount| mount.dev == stat.dev));
        let fs_type = mount.map_or("unknown file system", |mount| &mount.fs_type);
        let is_mapped = mount.is_some_and(|mount| mount.options.split(',').any(|option| option == "idmapped"));
        let stack = match devices.by_stat(&stat) {
            Ok(stack) if matches!(fs_type, "ext2" | "ext3" | "ext4") && !is_mapped => stack,
            _ => return Err(MountedError::Other(fs_type.to_owned())),
        };
        let open = || {
            let tables = Ext4::of_mounted(&stack.node, stat.dev);
            tables.map_err(|source| MountedError::Device { node: stack.node.clone(), source })
        };
        let (tables, again) = (open()?, open()?);
        let absolute = path.canonicalize()?;
        let below = |mount: &onesweep_layout::mounts::Mount| {
            let below = mount.mount_point.strip_prefix(&absolute).ok()?;
            Some(below.as_os_str().as_bytes().to_vec())
        };
        let mounts = mounts.below(&absolute).filter_map(below).collect();
        Ok(MountedDirectory { directory, dev: stat.dev, inode: stat.ino, tables, again, mounts })
    }

    /// Tells everything below the directory and the directory itself, as paths relative to it: `visit` what is there, `fail`
    /// what the kernel could not tell of, and why. What vanished meanwhile is left out. Entries come before what is in them.
    ///
    /// Counts 336 bytes for each inode of the file system, and 64 and twice the name for each name. Where that passes the limit,
    /// directories come first and the rest by parts; then a file that is replaced by another meanwhile may come twice.
    pub fn find(
        self,
        options: MountedOptions,
        visit: &mut dyn FnMut(&[u8], &Row) -> ControlFlow<()>,
        fail: &mut dyn FnMut(&[u8], io::Error),
    ) -> Result<(), MountedError> {
        let MountedDirectory { directory, dev, inode, mut tables, again, mounts } = self;
        let since = SystemTime::now().checked_sub(LAG).unwrap_or(UNIX_EPOCH);
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() };
        // Sizes reach the tables when content gets its place.
        files::sync_file_system(directory.as_fd())?;
        let most = memory::available_bytes().unwrap_or(0) / 2;
        if tables.table_bytes() <= most {
            tables.bring_in(Needs { layout: true, xattrs: false }, most, &|| true);
        }
        let mut kernel = Below::new(directory.try_clone()?, options.layout);
        let here = Here { dev, mounts, one_file_system: options.one_file_system };
        let (mut asked, mut synced) = (Asked::default(), Ok(()));
        let mut show = |part: Part<'_, Row>| {
            // Whatever was under way in a block that was read ends before the journal is written.
            synced = files::sync_file_system(directory.as_fd());
            if synced.is_err() {
                return ControlFlow::Break(());
            }
            let mut second = Second { part: &part, changed: HashSet::new() };
            again.scan_inodes(&mut second);
            let known = Known { part: &part, changed: second.changed, since };
            known.walk(inode, &here, &mut asked, &mut kernel, visit, fail)
        };
        let whole = Whole { limit: options.limit, keep: &mut |inode| row(&inode), lost: None };
        Tree::read_in_parts(&mut tables, Wanted::default(), whole, &mut show).map_err(io::Error::other)?;
        Ok(synced?)
    }
}

/// What the kernel would say of an inode.
fn row(inode: &Inode) -> Row {
    let mut row = Row::of(inode);
    if row.mode & TYPE_BITS == FILE && inode.inline.is_some() {
        // Or programs would take what lies in an inode for a hole.
        row.allocated += row.size.div_ceil(512) * 512;
    }
    row
}

/// The second reading.
struct Second<'a> {
    part: &'a Part<'a, Row>,
    changed: HashSet<u64>,
}

impl Found for Second<'_> {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let (number, row) = (inode.number, row(&inode));
        // To be read is no change.
        if self.part.get(number).is_some_and(|before| Row { atime: before.atime, ..row } != *before) {
            self.changed.insert(number);
        }
        ControlFlow::Continue(())
    }

    fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, _: TableError) -> ControlFlow<()> {
        // What is damaged for good the kernel tells of.
        ControlFlow::Continue(())
    }
}

/// What the tables told of a part.
struct Known<'a> {
    part: &'a Part<'a, Row>,
    changed: HashSet<u64>,
    since: Timestamp,
}

/// What the kernel was asked for, so that no later part tells it again.
#[derive(Default)]
struct Asked {
    /// Directories whose files were all told, by their paths: one that is mounted elsewhere, too, has two.
    listed: HashSet<Vec<u8>>,
    /// Directories that the tables did not know.
    directories: HashSet<u64>,
    /// Paths of which the kernel could not tell.
    failed: HashSet<Vec<u8>>,
}

/// Where the walk is.
struct Here {
    dev: u64,
    mounts: HashSet<Vec<u8>>,
    one_file_system: bool,
}

/// Something that is to be visited.
struct Next {
    path: Vec<u8>,
    told_by: ToldBy,
}

/// Who told a name.
#[derive(Clone, Copy)]
enum ToldBy {
    /// The tables, with its inode.
    Tables(u64),
    /// The kernel, which listed a directory.
    Kernel {
        /// Whether files of that directory are told now, not only directories.
        with_files: bool,
    },
}

impl Known<'_> {
    /// What the tables told of an inode that held still.
    fn quiet(&self, inode: u64) -> Option<&Row> {
        self.part.get(inode).filter(|row| row.ctime < self.since && !self.changed.contains(&inode))
    }

    /// The names in a directory that held still. The kernel may show encrypted ones in plain.
    fn children(&self, row: &Row) -> Option<impl Iterator<Item = (&[u8], u64)>> {
        let is_plain = !row.flags.contains(InodeFlags::ENCRYPTED_NAMES);
        self.part.children(row.inode).filter(|_| is_plain)
    }

    /// Whether no part before has told what was found, as far as that can be known.
    fn is_news(&self, row: &Row, told_by: ToldBy, is_here: bool, asked: &mut Asked) -> bool {
        if row.mode & TYPE_BITS == DIRECTORY {
            let is_unknown = is_here && self.part.get(row.inode).is_none() && asked.directories.insert(row.inode);
            return is_unknown || self.part.is_first();
        }
        match told_by {
            ToldBy::Tables(_) => true,
            // One that has come to this name since the beginning was not told under it, whatever its number.
            ToldBy::Kernel { with_files } => {
                with_files && (!is_here || !self.part.is_behind(row.inode) || row.ctime >= self.since)
            }
        }
    }

    fn walk(
        &self,
        root: u64,
        here: &Here,
        asked: &mut Asked,
        kernel: &mut dyn Kernel,
        visit: &mut dyn FnMut(&[u8], &Row) -> ControlFlow<()>,
        fail: &mut dyn FnMut(&[u8], io::Error),
    ) -> ControlFlow<()> {
        let is_first = self.part.is_first();
        let mut failed = |asked: &mut Asked, path: Vec<u8>, error: io::Error| {
            if !is_gone(&error) && !asked.failed.contains(&path) {
                fail(&path, error);
                asked.failed.insert(path);
            }
        };
        let mut pending = vec![Next { path: Vec::new(), told_by: ToldBy::Tables(root) }];
        while let Some(Next { path, told_by }) = pending.pop() {
            let is_mount = here.mounts.contains(&path);
            let known = match told_by {
                ToldBy::Tables(inode) if !is_mount => self.quiet(inode),
                _ => None,
            };
            let (row, is_here) = match known {
                Some(row) => (row.clone(), true),
                None => match kernel.look(&path) {
                    Ok(looked) => (looked.row, looked.dev == here.dev),
                    Err(error) => {
                        failed(asked, path, error);
                        continue;
                    }
                },
            };
            // What is mounted below is told in the first part, all of it.
            if !is_here && !is_first && row.mode & TYPE_BITS == DIRECTORY {
                continue;
            }
            if self.is_news(&row, told_by, is_here, asked) {
                visit(&path, &row)?;
            }
            if row.mode & TYPE_BITS != DIRECTORY || here.one_file_system && !is_here {
                continue;
            }
            let start = pending.len();
            let below = |name: &[u8]| if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
            // One that the kernel was asked for is still that of the tables if it has the same times.
            let same = self.quiet(row.inode).filter(|quiet| is_here && quiet.ctime == row.ctime);
            let same = same.filter(|_| !asked.listed.contains(&path));
            match same.and_then(|quiet| self.children(quiet)) {
                Some(children) => {
                    let next = |(name, inode): (&[u8], u64)| Next { path: below(name), told_by: ToldBy::Tables(inode) };
                    pending.extend(children.map(next));
                }
                None => match kernel.list(&path) {
                    Ok(names) => {
                        let with_files = !is_here || asked.listed.insert(path.clone());
                        let may_be_one = |kind: EntryType| matches!(kind, EntryType::Dir | EntryType::Unknown);
                        let names = names.iter().filter(|(_, kind)| with_files || may_be_one(*kind));
                        let told_by = ToldBy::Kernel { with_files };
                        pending.extend(names.map(|(name, _)| Next { path: below(name), told_by }));
                    }
                    Err(error) => failed(asked, path, error),
                },
            }
            pending[start..].reverse();
        }
        ControlFlow::Continue(())
    }
}

/// Whether a name is no more, or a directory on the way to it.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) || files::is_link_refused(error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use onesweep_layout::tables::{Tables, VolumeFacts};

    use super::*;
    use crate::find::kernel::Looked;

    const SINCE: Timestamp = Timestamp { seconds: 1000, nanoseconds: 0 };

    /// Inodes (number, is a directory, time) and names (directory, inode, name).
    struct Few {
        facts: VolumeFacts,
        inodes: Vec<(u64, bool, i64)>,
        names: Vec<(u64, u64, &'static str)>,
        incomplete: u64,
    }

    fn mode(is_directory: bool) -> u32 {
        if is_directory { DIRECTORY | 0o755 } else { 0o100_644 }
    }

    impl Tables for Few {
        fn facts(&self) -> &VolumeFacts {
            &self.facts
        }

        fn scan(&mut self, _: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
            for &(number, is_directory, seconds) in &self.inodes {
                let ctime = Timestamp { seconds, nanoseconds: 0 };
                let _ = found.inode(Inode { number, mode: mode(is_directory), ctime, ..Inode::default() });
            }
            for &(directory, inode, name) in &self.names {
                let _ = found.name(Name { directory, inode, name: name.as_bytes() });
            }
            found.incomplete(Some(self.incomplete));
            Ok(())
        }
    }

    /// A path, and what is there: inode, whether it is a directory, time, device.
    type There = (&'static str, (u64, bool, i64, u64));

    /// What is really there, and what was asked.
    #[derive(Default)]
    struct Real {
        there: BTreeMap<&'static str, (u64, bool, i64, u64)>,
        asked: Vec<String>,
    }

    impl Kernel for Real {
        fn look(&mut self, path: &[u8]) -> io::Result<Looked> {
            let path = std::str::from_utf8(path).unwrap();
            self.asked.push(format!("look {path}"));
            let &(inode, is_directory, seconds, dev) = self.there.get(path).ok_or(io::ErrorKind::NotFound)?;
            let ctime = Timestamp { seconds, nanoseconds: 0 };
            Ok(Looked { row: Row { inode, mode: mode(is_directory), ctime, ..Row::default() }, dev })
        }

        fn list(&mut self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, EntryType)>> {
            let path = std::str::from_utf8(path).unwrap();
            self.asked.push(format!("list {path}"));
            let start = if path.is_empty() { String::new() } else { format!("{path}/") };
            let below = self.there.iter().filter_map(|(name, there)| Some((name.strip_prefix(&start)?, there.1)));
            let kind = |is_directory| if is_directory { EntryType::Dir } else { EntryType::File };
            let below = below.filter(|(name, _)| !name.is_empty() && !name.contains('/'));
            Ok(below.map(|(name, is_directory)| (name.into(), kind(is_directory))).collect())
        }
    }

    const QUIET: [(u64, bool, i64); 5] = [(2, true, 1), (3, true, 2), (4, false, 3), (5, true, 4), (6, false, 5)];
    const NAMES: [(u64, u64, &str); 4] = [(2, 3, "a"), (3, 4, "file"), (2, 5, "b"), (5, 6, "x")];

    /// Paths with their inodes, what the kernel was asked, and how many parts there were. `change` tells for each part what has
    /// changed since the tables were read, and may change what is really there.
    fn walked_within(
        limit: u64,
        few: &mut Few,
        here: &Here,
        real: &mut Real,
        change: &mut dyn FnMut(usize, &mut Real) -> Vec<u64>,
    ) -> (Vec<(String, u64)>, usize) {
        let (mut found, mut parts, mut asked) = (Vec::new(), 0, Asked::default());
        let mut show = |part: Part<'_, Row>| {
            let known = Known { part: &part, changed: change(parts, real).into_iter().collect(), since: SINCE };
            parts += 1;
            let mut visit = |path: &[u8], row: &Row| {
                found.push((String::from_utf8(path.to_vec()).unwrap(), row.inode));
                ControlFlow::Continue(())
            };
            known.walk(2, here, &mut asked, real, &mut visit, &mut |path, error| panic!("{path:?}: {error}"))
        };
        let whole = Whole { limit, keep: &mut |inode| Row::of(&inode), lost: None };
        Tree::read_in_parts(few, Wanted::default(), whole, &mut show).unwrap();
        (found, parts)
    }

    fn few(inodes: &[(u64, bool, i64)], names: &[(u64, u64, &'static str)], incomplete: u64) -> Few {
        let facts = VolumeFacts { root: 2, ..VolumeFacts::default() };
        Few { facts, inodes: inodes.to_vec(), names: names.to_vec(), incomplete }
    }

    /// Paths with their inodes, and what the kernel was asked.
    fn walked(
        inodes: &[(u64, bool, i64)],
        (changed, incomplete): (&[u64], u64),
        mounts: &[&str],
        one_file_system: bool,
        there: &[There],
    ) -> (Vec<(String, u64)>, Vec<String>) {
        let mounts = mounts.iter().map(|path| path.as_bytes().to_vec()).collect();
        let here = Here { dev: 1, mounts, one_file_system };
        let within = |limit| {
            let mut real = Real { there: there.iter().copied().collect(), asked: Vec::new() };
            let few = &mut few(inodes, &NAMES, incomplete);
            let (found, parts) = walked_within(limit, few, &here, &mut real, &mut |_, _| changed.to_vec());
            (found, parts, real.asked)
        };
        let (found, parts, asked) = within(u64::MAX);
        assert_eq!(parts, 1);
        let mut sorted = found.clone();
        sorted.sort();
        let (mut by_parts, parts, _) = within(0);
        by_parts.sort();
        assert!(parts > 1);
        assert_eq!(by_parts, sorted, "what comes by parts is what comes at once");
        (found, asked)
    }

    fn shown(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter().map(|&(path, inode)| (path.to_owned(), inode)).collect()
    }

    #[test]
    fn what_is_quiet_is_never_asked_for() {
        let (found, asked) = walked(&QUIET, (&[], 0), &[], false, &[]);
        assert_eq!(found, shown(&[("", 2), ("a", 3), ("a/file", 4), ("b", 5), ("b/x", 6)]));
        assert!(asked.is_empty(), "{asked:?}");
    }

    #[test]
    fn a_directory_that_changed_is_listed_anew_and_what_is_quiet_below_is_not() {
        let mut inodes = QUIET;
        inodes[0].2 = 1000;
        // `a` moved after the second reading, `b` is as it was, `c` is new.
        let real = [
            ("", (2, true, 1001, 1)),
            ("a", (3, true, 1001, 1)),
            ("a/new", (9, false, 1001, 1)),
            ("b", (5, true, 4, 1)),
            ("c", (8, false, 1001, 1)),
        ];
        let (found, asked) = walked(&inodes, (&[], 0), &[], false, &real);
        assert_eq!(found, shown(&[("", 2), ("a", 3), ("a/new", 9), ("b", 5), ("b/x", 6), ("c", 8)]));
        assert_eq!(asked, ["look ", "list ", "look a", "list a", "look a/new", "look b", "look c"]);
    }

    #[test]
    fn what_changed_or_is_damaged_is_asked_for_and_what_vanished_left_out() {
        let real = [("a/file", (4, false, 7, 1)), ("b/y", (9, false, 7, 1))];
        let (found, asked) = walked(&QUIET, (&[4], 5), &[], false, &real);
        assert_eq!(found, shown(&[("", 2), ("a", 3), ("a/file", 4), ("b", 5), ("b/y", 9)]));
        assert_eq!(asked, ["look a/file", "list b", "look b/y"]);
        let (found, _) = walked(&QUIET, (&[4], 0), &[], false, &[]);
        assert_eq!(found, shown(&[("", 2), ("a", 3), ("b", 5), ("b/x", 6)]));
    }

    #[test]
    fn mounts_are_what_the_kernel_shows() {
        // The same numbers on another file system mean other files.
        let real = [("b", (3, true, 2, 7)), ("b/z", (4, false, 3, 7))];
        let (found, _) = walked(&QUIET, (&[], 0), &["b"], false, &real);
        assert_eq!(found, shown(&[("", 2), ("a", 3), ("a/file", 4), ("b", 3), ("b/z", 4)]));
        let (found, _) = walked(&QUIET, (&[], 0), &["b"], true, &real);
        assert_eq!(found, shown(&[("", 2), ("a", 3), ("a/file", 4), ("b", 3)]));
    }

    /// A directory changes between two parts: what it had is told once, and what has come in the place of something under a
    /// number that is behind already is told, too.
    #[test]
    fn what_changes_between_parts_is_told_in_the_first_that_finds_it() {
        let inodes = [QUIET.as_slice(), &[(7, false, 6), (8, false, 6)]].concat();
        let names = [NAMES.as_slice(), &[(5, 7, "y"), (5, 8, "z")]].concat();
        let here = Here { dev: 1, mounts: HashSet::new(), one_file_system: false };
        let mut real = Real::default();
        // Files 4 and 6 were told before; then a new file 4 takes the name of 7, and a directory comes.
        let change = &mut |part: usize, real: &mut Real| {
            // Each number that has a name has a part of its own here, that of 7 is the fifth.
            if part < 4 {
                return Vec::new();
            }
            real.there = [
                ("b", (5, true, 1001, 1)),
                ("b/new", (9, true, 1001, 1)),
                ("b/new/file", (10, false, 1001, 1)),
                ("b/x", (6, false, 5, 1)),
                ("b/y", (4, false, 1001, 1)),
                ("b/z", (8, false, 6, 1)),
            ]
            .into();
            vec![5]
        };
        let (mut found, parts) = walked_within(0, &mut few(&inodes, &names, 0), &here, &mut real, change);
        found.sort();
        let files = [("b/new", 9), ("b/new/file", 10), ("b/x", 6), ("b/y", 4), ("b/z", 8)];
        let expected = [&[("", 2), ("a", 3), ("a/file", 4), ("b", 5)], files.as_slice()].concat();
        assert_eq!((found, parts), (shown(&expected), 6));
    }
}
