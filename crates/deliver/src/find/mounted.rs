//! Files of a mounted ext4, by its tables, and by the kernel where these may have changed while they were read.
//!
//! The tables are read twice: inodes and names, then the inodes again. What is the same both times and older than the first
//! reading is quiet, and so are the names of a directory that is quiet. The kernel is asked for all else: it lists directories
//! that changed, and looks at files that did. Whatever is mounted below is the kernel's, too.

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
    tables::{
        Found, Inode, InodeFlags, Name, TableError, Timestamp, Tree, Wanted,
        ext4::{Ext4, Needs},
    },
};
use onesweep_sys::{files, memory};
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
    /// There are too many of them.
    #[error("its names and inodes take more than {limit} bytes; raise --catalog-limit, or use find(1)")]
    TooMany {
        /// What they may take.
        limit: u64,
    },
    /// The directory itself.
    #[error(transparent)]
    Io(#[from] io::Error),
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
    /// Bytes that names and inodes may take.
    pub limit: u64,
}

impl MountedDirectory {
    /// Opens a directory and the device below it. Needs read access to the device, mostly root.
    pub fn open(path: &Path) -> Result<MountedDirectory, MountedError> {
        let directory = files::open_dir(path)?;
        let stat = files::statx_fd(directory.as_fd())?;
        let devices = Devices::of_system()?;
        let mounts = devices.mounts();
        let mount =
            stat.mnt_id.and_then(|id| mounts.by_id(id)).or_else(|| mounts.iter().find(|mount| mount.dev == stat.dev));
        let fs_type = mount.map_or("unknown file system", |mount| &mount.fs_type);
        let is_mapped = mount.is_some_and(|mount| mount.options.split(',').any(|option| option == "idmapped"));
        let stack = match devices.by_stat(&stat) {
            Ok(stack) if matches!(fs_type, "ext2" | "ext3" | "ext4") && !is_mapped => stack,
            _ => return Err(MountedError::Other(fs_type.to_owned())),
        };
        let tables = Ext4::of_mounted(&stack.node, stat.dev);
        let tables = tables.map_err(|source| MountedError::Device { node: stack.node, source })?;
        let absolute = path.canonicalize()?;
        let below = |mount: &onesweep_layout::mounts::Mount| {
            let below = mount.mount_point.strip_prefix(&absolute).ok()?;
            Some(below.as_os_str().as_bytes().to_vec())
        };
        let mounts = mounts.below(&absolute).filter_map(below).collect();
        Ok(MountedDirectory { directory, dev: stat.dev, inode: stat.ino, tables, mounts })
    }

    /// Tells everything below the directory and the directory itself, as paths relative to it: `visit` what is there, `fail`
    /// what the kernel could not tell of, and why. What vanished meanwhile is left out. Entries come before what is in them.
    ///
    /// Counts 320 bytes for each inode of the file system, and 64 and twice the name for each name.
    pub fn find(
        mut self,
        options: MountedOptions,
        visit: &mut dyn FnMut(&[u8], &Row) -> ControlFlow<()>,
        fail: &mut dyn FnMut(&[u8], io::Error),
    ) -> Result<(), MountedError> {
        let since = SystemTime::now().checked_sub(LAG).unwrap_or(UNIX_EPOCH);
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() };
        // Sizes reach the tables when content gets its place.
        files::sync_file_system(self.directory.as_fd())?;
        let most = memory::available_bytes().unwrap_or(0) / 2;
        if self.tables.table_bytes() <= most {
            self.tables.bring_in(Needs { layout: true, xattrs: false }, most, &|| true);
        }
        let limit = options.limit;
        let tree = Tree::read_within(&mut self.tables, Wanted::default(), limit, &mut |inode| row(&inode));
        let tree = tree.map_err(io::Error::other)?.ok_or(MountedError::TooMany { limit })?;
        // Whatever was under way in a block that was read ends before the journal is written.
        files::sync_file_system(self.directory.as_fd())?;
        let mut second = Second { tree: &tree, changed: HashSet::new() };
        self.tables.scan_inodes(&mut second);
        let known = Known { tree: &tree, changed: second.changed, since };
        let mut kernel = Below::new(self.directory, options.layout);
        let here = Here { dev: self.dev, mounts: self.mounts, one_file_system: options.one_file_system };
        known.walk(self.inode, &here, &mut kernel, visit, fail);
        Ok(())
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
    tree: &'a Tree<Row>,
    changed: HashSet<u64>,
}

impl Found for Second<'_> {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let (number, row) = (inode.number, row(&inode));
        // To be read is no change.
        if self.tree.get(number).is_none_or(|before| Row { atime: before.atime, ..row } != *before) {
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

/// What the tables told.
struct Known<'a> {
    tree: &'a Tree<Row>,
    changed: HashSet<u64>,
    since: Timestamp,
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
    /// Its inode, where the tables can be believed of that.
    inode: Option<u64>,
}

impl Known<'_> {
    /// What the tables told of an inode that held still.
    fn quiet(&self, inode: u64) -> Option<&Row> {
        self.tree.get(inode).filter(|row| row.ctime < self.since && !self.changed.contains(&inode))
    }

    /// The names in a directory that held still. The kernel may show encrypted ones in plain.
    fn children(&self, row: &Row) -> Option<impl Iterator<Item = (&[u8], u64)>> {
        let is_plain = !row.flags.contains(InodeFlags::ENCRYPTED_NAMES);
        self.tree.children(row.inode).filter(|_| is_plain)
    }

    fn walk(
        &self,
        root: u64,
        here: &Here,
        kernel: &mut dyn Kernel,
        visit: &mut dyn FnMut(&[u8], &Row) -> ControlFlow<()>,
        fail: &mut dyn FnMut(&[u8], io::Error),
    ) {
        let mut pending = vec![Next { path: Vec::new(), inode: Some(root) }];
        while let Some(Next { path, inode }) = pending.pop() {
            let is_mount = here.mounts.contains(&path);
            let known = inode.filter(|_| !is_mount).and_then(|inode| self.quiet(inode));
            let (row, is_here) = match known {
                Some(row) => (row.clone(), true),
                None => match kernel.look(&path) {
                    Ok(looked) => (looked.row, looked.dev == here.dev),
                    Err(error) => {
                        if !is_gone(&error) {
                            fail(&path, error);
                        }
                        continue;
                    }
                },
            };
            if visit(&path, &row).is_break() {
                return;
            }
            if row.mode & TYPE_BITS != DIRECTORY || here.one_file_system && !is_here {
                continue;
            }
            let start = pending.len();
            let below = |name: &[u8]| if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
            // One that the kernel was asked for is still that of the tables if it has the same times.
            let same = self.quiet(row.inode).filter(|quiet| is_here && quiet.ctime == row.ctime);
            match same.and_then(|quiet| self.children(quiet)) {
                Some(children) => {
                    pending.extend(children.map(|(name, inode)| Next { path: below(name), inode: Some(inode) }));
                }
                None => match kernel.list(&path) {
                    Ok(names) => pending.extend(names.iter().map(|name| Next { path: below(name), inode: None })),
                    Err(error) if is_gone(&error) => {}
                    Err(error) => fail(&path, error),
                },
            }
            pending[start..].reverse();
        }
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

        fn list(&mut self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
            let path = std::str::from_utf8(path).unwrap();
            self.asked.push(format!("list {path}"));
            let start = if path.is_empty() { String::new() } else { format!("{path}/") };
            let below = self.there.keys().filter_map(|name| name.strip_prefix(&start));
            Ok(below.filter(|name| !name.is_empty() && !name.contains('/')).map(|name| name.into()).collect())
        }
    }

    const QUIET: [(u64, bool, i64); 5] = [(2, true, 1), (3, true, 2), (4, false, 3), (5, true, 4), (6, false, 5)];
    const NAMES: [(u64, u64, &str); 4] = [(2, 3, "a"), (3, 4, "file"), (2, 5, "b"), (5, 6, "x")];

    /// Paths with their inodes, and what the kernel was asked.
    fn walked(
        inodes: &[(u64, bool, i64)],
        (changed, incomplete): (&[u64], u64),
        mounts: &[&str],
        one_file_system: bool,
        real: &[There],
    ) -> (Vec<(String, u64)>, Vec<String>) {
        let facts = VolumeFacts { root: 2, ..VolumeFacts::default() };
        let mut few = Few { facts, inodes: inodes.to_vec(), names: NAMES.to_vec(), incomplete };
        let tree = Tree::read(&mut few, Wanted::default(), |inode| Row::of(&inode)).unwrap();
        let known = Known { tree: &tree, changed: changed.iter().copied().collect(), since: SINCE };
        let mounts = mounts.iter().map(|path| path.as_bytes().to_vec()).collect();
        let mut real = Real { there: real.iter().copied().collect(), asked: Vec::new() };
        let mut found = Vec::new();
        let mut visit = |path: &[u8], row: &Row| {
            found.push((String::from_utf8(path.to_vec()).unwrap(), row.inode));
            ControlFlow::Continue(())
        };
        let here = Here { dev: 1, mounts, one_file_system };
        known.walk(2, &here, &mut real, &mut visit, &mut |path, error| panic!("{path:?}: {error}"));
        (found, real.asked)
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
}
