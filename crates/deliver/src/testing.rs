//! Items made by hand.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt, path::Path};

use onesweep::{Kind, Metadata, SweptFile, Timestamp, Xattr};
use onesweep_sys::files::{list_xattrs_path, xattr_path};

pub(crate) fn metadata(kind: Kind, size: u64) -> Metadata {
    let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 123_456_789 };
    let (mode, nlink) = match kind {
        Kind::File => (0o100_644, 2),
        Kind::Directory => (0o040_755, 2),
        Kind::Symlink => (0o120_777, 1),
        Kind::Fifo => (0o010_600, 1),
        Kind::Socket => (0o140_600, 1),
        Kind::CharDevice => (0o020_600, 1),
        Kind::BlockDevice => (0o060_600, 1),
    };
    Metadata { kind, mode, uid: 0, gid: 0, size, mtime: time, ctime: time, atime: time, nlink, ino: 1, dev: 1, rdev: 0 }
}

pub(crate) fn entry(path: &str, kind: Kind) -> SweptFile {
    SweptFile::new(path.into(), metadata(kind, 0))
}

pub(crate) fn regular(path: &str, content: &[u8]) -> SweptFile {
    let whole = std::iter::once(0..content.len() as u64).collect();
    SweptFile::new(path.into(), metadata(Kind::File, content.len() as u64)).with_bytes(content, whole)
}

/// All entries below `root`, as a sweep would hand them over: a directory first, and once more when it is complete.
pub(crate) fn walk(root: &Path) -> Vec<SweptFile> {
    let mut items = Vec::new();
    let mut inodes = HashMap::new();
    visit(root, &mut items, &mut inodes);
    items
}

fn visit(path: &Path, items: &mut Vec<SweptFile>, inodes: &mut HashMap<u64, usize>) {
    let metadata = metadata_of(path);
    let xattrs = xattrs_of(path);
    let new = || SweptFile::new(path.to_owned(), metadata).with_xattrs(xattrs.clone());
    match metadata.kind {
        Kind::Directory => {
            items.push(new());
            let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
            names.sort();
            names.iter().for_each(|name| visit(name, items, inodes));
            items.push(new().with_closing());
        }
        Kind::File if inodes.contains_key(&metadata.ino) => {
            let first = items[inodes[&metadata.ino]].path().to_owned();
            items.push(SweptFile::new(path.to_owned(), metadata).with_linked_to(first));
        }
        Kind::File => {
            inodes.insert(metadata.ino, items.len());
            let bytes = fs::read(path).unwrap();
            // One range from the first byte that is not zero: enough for files with a hole at their start.
            let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len()) as u64;
            let data = std::iter::once(start..bytes.len() as u64).filter(|range| !range.is_empty()).collect();
            items.push(new().with_bytes(&bytes, data));
        }
        Kind::Symlink => items.push(new().with_link_target(fs::read_link(path).unwrap())),
        _ => items.push(new()),
    }
}

/// The attributes of a path itself, as a sweep would give them.
pub(crate) fn metadata_of(path: &Path) -> Metadata {
    let stat = path.symlink_metadata().unwrap();
    let time = |seconds, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Metadata {
        kind: Kind::of_mode(stat.mode()).unwrap(),
        mode: stat.mode(),
        uid: stat.uid(),
        gid: stat.gid(),
        size: stat.size(),
        mtime: time(stat.mtime(), stat.mtime_nsec()),
        ctime: time(stat.ctime(), stat.ctime_nsec()),
        atime: time(stat.atime(), stat.atime_nsec()),
        nlink: stat.nlink() as u32,
        ino: stat.ino(),
        dev: stat.dev(),
        rdev: stat.rdev(),
    }
}

/// The extended attributes of a path itself.
pub(crate) fn xattrs_of(path: &Path) -> Vec<Xattr> {
    let names = list_xattrs_path(path).unwrap();
    let value = |name: &std::ffi::CStr| xattr_path(path, name).unwrap().map(|value| (name.to_bytes().to_vec(), value));
    names.iter().filter_map(|name| value(name)).collect()
}
