//! What tables say of an image must be what the kernel says of it when it is mounted: every name, attribute and extent.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    ops::ControlFlow,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_layout::{
    Extent, ExtentFlags, Fiemap, LayoutSource,
    tables::{Found, Indexes, Inode, InodeFlags, Name, TableError, Tables, Timestamp, Wanted},
};
use onesweep_sys::files::{list_xattrs_path, xattr_path};

/// All that is compared of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) size: u64,
    pub(crate) links: u32,
    pub(crate) rdev: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) atime: Timestamp,
    /// `None` where it isn't kept. Not compared where the kernel doesn't show it.
    pub(crate) btime: Option<Timestamp>,
    /// Of regular files. Not compared where content lies among the metadata, which each file system counts in its own way.
    pub(crate) allocated: Option<u64>,
    pub(crate) link_target: Option<Vec<u8>>,
    /// Of regular files; joined where they go on without a gap, and cut off at the size, for each side joins by rules of
    /// its own. `None` where the content isn't on the device as it is.
    pub(crate) extents: Option<Vec<Run>>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A run of blocks: logical, physical, bytes, and whether it reads as zeros.
pub(crate) type Run = (u64, u64, u64, bool);

/// By path below the root, which itself is the empty path.
pub(crate) type Tree = BTreeMap<Vec<u8>, Facts>;

/// What the kernel says of everything below a mount point; `leave_out` names entries of the root that tables don't tell of.
pub(crate) fn by_kernel(root: &Path, leave_out: &[&str]) -> Tree {
    let mut tree = Tree::new();
    let mut pending = vec![(Vec::new(), root.to_path_buf())];
    while let Some((shown, path)) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).expect("metadata");
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).expect("a listing") {
                let name = entry.expect("an entry").file_name();
                if shown.is_empty() && leave_out.iter().any(|left_out| name == *left_out) {
                    continue;
                }
                let mut below = shown.clone();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name.as_bytes());
                pending.push((below, path.join(name)));
            }
        }
        let link_target =
            metadata.is_symlink().then(|| fs::read_link(&path).expect("a target").as_os_str().as_bytes().to_vec());
        let extents = if metadata.is_file() { mapped(&path, metadata.len()) } else { Some(Vec::new()) };
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        let facts = Facts {
            inode: metadata.ino(),
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            size: metadata.len(),
            links: metadata.nlink() as u32,
            rdev: metadata.rdev(),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
            ctime: time(metadata.ctime(), metadata.ctime_nsec()),
            atime: time(metadata.atime(), metadata.atime_nsec()),
            btime: metadata.created().ok().map(since_1970),
            allocated: metadata.is_file().then(|| metadata.blocks() * 512),
            link_target,
            extents,
            xattrs: xattrs(&path),
        };
        tree.insert(shown, facts);
    }
    tree
}

fn since_1970(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
        Err(before) => panic!("a birth before 1970: {before}"),
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let names = list_xattrs_path(path).unwrap_or_default();
    let value = |name: &std::ffi::CString| xattr_path(path, name).ok().flatten();
    names.iter().filter_map(|name| Some((name.to_bytes().to_vec(), value(name)?))).collect()
}

fn mapped(path: &Path, size: u64) -> Option<Vec<Run>> {
    // Without its key, an encrypted file can't be opened.
    let file = File::open(path).ok()?;
    let mut extents = Vec::new();
    Fiemap::default().map(file.as_fd(), size, &mut |extent| extents.push(extent)).ok()?;
    runs(&extents, size)
}

/// The runs of a file; `None` where one of them doesn't hold the bytes of the file.
pub(crate) fn runs(extents: &[Extent], size: u64) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for extent in extents {
        let plain =
            extent.physical.filter(|_| !extent.flags.intersects(ExtentFlags::NOT_PLAIN - ExtentFlags::UNWRITTEN));
        let length = extent.length.min(size.saturating_sub(extent.logical));
        if length == 0 {
            continue;
        }
        let run = (extent.logical, plain?, length, extent.is_zeros());
        match runs.last_mut() {
            Some(last) if last.0 + last.2 == run.0 && last.1 + last.2 == run.1 && last.3 == run.3 => last.2 += length,
            _ => runs.push(run),
        }
    }
    Some(runs)
}

/// Keeps what tables tell.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) inodes: HashMap<u64, Inode>,
    pub(crate) names: Vec<(u64, u64, Vec<u8>)>,
    pub(crate) problems: Vec<TableError>,
    pub(crate) incomplete: HashSet<Option<u64>>,
}

impl Found for Kept {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let number = inode.number;
        assert!(self.inodes.insert(number, inode).is_none(), "inode {number} was told twice");
        ControlFlow::Continue(())
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        self.names.push((name.directory, name.inode, name.name.to_vec()));
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, directory: Option<u64>) {
        self.incomplete.insert(directory);
    }

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        self.problems.push(problem);
        ControlFlow::Continue(())
    }
}

/// Ends after so many inodes or names.
pub(crate) struct Until(pub(crate) u32);

impl Found for Until {
    fn inode(&mut self, _: Inode) -> ControlFlow<()> {
        self.0 -= 1;
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
        self.inode(Inode::default())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        panic!("{problem}")
    }
}

/// Everything that tables tell.
pub(crate) fn scan(tables: &mut dyn Tables) -> Kept {
    let mut kept = Kept::default();
    tables
        .scan(Wanted { xattrs: true, extents: true, indexes: Indexes::All }, &mut kept)
        .expect("tables that can be read");
    kept
}

/// What the tables of a sound image say; `leave_out` as for [`by_kernel`].
pub(crate) fn by_tables(tables: &mut dyn Tables, leave_out: &[&str]) -> Tree {
    let root = tables.facts().root;
    let kept = scan(tables);
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    let mut below: HashMap<u64, Vec<(&[u8], u64)>> = HashMap::new();
    for (directory, inode, name) in &kept.names {
        below.entry(*directory).or_default().push((name, *inode));
    }
    let mut tree = Tree::new();
    let mut pending = vec![(Vec::new(), root)];
    while let Some((path, number)) = pending.pop() {
        let inode = kept.inodes.get(&number).unwrap_or_else(|| panic!("no inode {number}, but a name of it"));
        let kind = inode.mode & 0o170_000;
        if kind == 0o040_000 {
            for (name, inode) in below.get(&number).into_iter().flatten() {
                if path.is_empty() && leave_out.iter().any(|left_out| left_out.as_bytes() == *name) {
                    continue;
                }
                let mut shown = path.clone();
                if !shown.is_empty() {
                    shown.push(b'/');
                }
                shown.extend_from_slice(name);
                pending.push((shown, *inode));
            }
        }
        assert!(tree.insert(path, facts(inode)).is_none(), "a name was told twice");
    }
    tree
}

fn facts(inode: &Inode) -> Facts {
    let kind = inode.mode & 0o170_000;
    let (is_file, is_link) = (kind == 0o100_000, kind == 0o120_000);
    let extents = match (is_file, &inode.inline) {
        (true, Some(inline)) => {
            assert_eq!(inline.len() as u64, inode.size, "content among the metadata of inode {}", inode.number);
            None
        }
        (true, None) if inode.flags.contains(InodeFlags::ENCRYPTED) => None,
        (true, None) => runs(&inode.extents, inode.size),
        (false, _) => Some(Vec::new()),
    };
    Facts {
        inode: inode.number,
        mode: inode.mode,
        owner: (inode.uid, inode.gid),
        size: inode.size,
        links: inode.links,
        rdev: inode.rdev,
        mtime: inode.mtime,
        ctime: inode.ctime,
        atime: inode.atime,
        btime: inode.btime,
        allocated: (is_file && inode.inline.is_none()).then_some(inode.allocated),
        link_target: if is_link { inode.inline.clone() } else { None },
        extents,
        xattrs: inode.xattrs.iter().cloned().collect(),
    }
}

/// Fails unless an error names what is wrong with its byte, and with what was expected and found where bytes could be read.
pub(crate) fn names_its_place(error: &TableError) {
    if matches!(error, TableError::Further { .. }) {
        return;
    }
    let is_told = match error {
        TableError::Damaged { what, expected, found, .. } => {
            ![what, expected, found].iter().any(|text| text.is_empty())
        }
        TableError::NotHere { what, found, .. } => !what.is_empty() && !found.is_empty(),
        TableError::Unsupported { sign, .. } => {
            sign.as_ref().is_some_and(|sign| !sign.expected.is_empty() && !sign.found.is_empty())
        }
        TableError::Dirty { sign, .. } | TableError::LogElsewhere { sign } => {
            !sign.expected.is_empty() && !sign.found.is_empty()
        }
        TableError::Io { .. } => true,
        _ => false,
    };
    let message = error.to_string();
    assert!(is_told && message.contains("byte "), "{message}");
    assert!(matches!(error, TableError::Io { .. }) || message.contains("found "), "{message}");
}

/// Fails where the two differ, with the first differences.
pub(crate) fn compare(kernel: &Tree, tables: &Tree) {
    let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let mut differences = Vec::new();
    for (path, facts) in kernel {
        match tables.get(path) {
            None => differences.push(format!("{:?} is missing", shown(path))),
            Some(other) => {
                let btime = other.btime.filter(|_| facts.btime.is_some());
                let allocated = facts.allocated.filter(|_| other.allocated.is_some());
                let (facts, other) = (Facts { allocated, ..facts.clone() }, Facts { btime, ..other.clone() });
                if facts != other {
                    differences.push(format!("{:?}:\n  kernel {facts:?}\n  tables {other:?}", shown(path)));
                }
            }
        }
    }
    for path in tables.keys().filter(|path| !kernel.contains_key(*path)) {
        differences.push(format!("{:?} is not there", shown(path)));
    }
    let count = differences.len();
    differences.truncate(8);
    assert!(count == 0, "{count} of {} differ:\n{}", kernel.len(), differences.join("\n"));
}
