//! The orders in which a directory is listed.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use onesweep_sys::{
    cache,
    fiemap::{self, FIEMAP_EXTENT_UNKNOWN, FiemapBuffer},
    files::{DirReader, EntryType, open_file_at, statx_fd},
};

/// How the entries of a directory follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// As the file system gives them.
    #[default]
    Source,
    /// As the first blocks of the files lie on the device; what has none comes first, by inode number. By inode number alone where
    /// the files are in memory.
    Device,
    /// By inode number.
    Inode,
    /// By the bytes of the names.
    Name,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: CString,
    pub(crate) ino: u64,
    pub(crate) kind: EntryType,
}

/// Files of a directory that are looked at to find out whether all are in memory.
const SAMPLE: usize = 4;

/// Lists a directory that is open for reading. The order of the device costs an open and a look at the map for each file, unless
/// some that lie far apart are in memory; where the file system tells no addresses, it is that of inode numbers.
pub(crate) fn list(directory: BorrowedFd<'_>, order: Order) -> io::Result<Vec<Listed>> {
    let mut entries = read(directory)?;
    sort(directory, order, &mut entries);
    Ok(entries)
}

/// Reads a directory, in the order of the file system.
pub(crate) fn read(directory: BorrowedFd<'_>) -> io::Result<Vec<Listed>> {
    let mut entries = Vec::new();
    DirReader::default().read(directory, |entry| {
        entries.push(Listed { name: entry.name.to_owned(), ino: entry.ino, kind: entry.kind });
    })?;
    Ok(entries)
}

/// Brings what was read into an order, as of [`list`].
pub(crate) fn sort(directory: BorrowedFd<'_>, order: Order, entries: &mut [Listed]) {
    match order {
        Order::Source => {}
        Order::Name => entries.sort_by(|one, other| one.name.cmp(&other.name)),
        Order::Inode => entries.sort_by_key(|entry| entry.ino),
        Order::Device => {
            // Inodes, which hold the addresses, are met in their order.
            entries.sort_by_key(|entry| entry.ino);
            if !are_in_memory(directory, entries) {
                let mut buffer = FiemapBuffer::new(1);
                entries.sort_by_cached_key(|entry| address(directory, entry, &mut buffer));
            }
        }
    }
}

/// Whether the content of files that lie far apart is in memory. Then no order saves a seek.
fn are_in_memory(directory: BorrowedFd<'_>, entries: &[Listed]) -> bool {
    let files: Vec<&Listed> = entries.iter().filter(|entry| entry.kind == EntryType::File).collect();
    let step = files.len().div_ceil(SAMPLE).max(1);
    files.iter().rev().step_by(step).all(|entry| {
        let is_cached = || -> io::Result<bool> {
            let file = open_file_at(directory, entry.name.as_c_str())?;
            let bytes = statx_fd(file.as_fd())?.size;
            Ok(cache::residency(file.as_fd(), 0, bytes)?.has_all_of(bytes))
        };
        is_cached().unwrap_or(false)
    })
}

fn address(directory: BorrowedFd<'_>, entry: &Listed, buffer: &mut FiemapBuffer) -> Option<u64> {
    if entry.kind != EntryType::File {
        return None;
    }
    let file = open_file_at(directory, entry.name.as_c_str()).ok()?;
    let first = fiemap::first_extent(file.as_fd(), buffer).ok()??;
    (first.flags & FIEMAP_EXTENT_UNKNOWN == 0).then_some(first.physical)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use onesweep_sys::files::open_dir;

    use super::*;

    #[test]
    fn every_order_has_every_entry_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["c", "a", "b"] {
            fs::write(folder.path().join(name), [1; 5000]).unwrap();
        }
        fs::create_dir(folder.path().join("d")).unwrap();
        let names = |order| -> Vec<String> {
            let open = open_dir(folder.path()).unwrap();
            let listed = list(open.as_fd(), order).unwrap();
            listed.into_iter().map(|entry| entry.name.into_string().unwrap()).collect()
        };
        assert_eq!(names(Order::Name), ["a", "b", "c", "d"]);
        let inode = |name: &String| fs::metadata(folder.path().join(name)).unwrap().ino();
        assert!(names(Order::Inode).is_sorted_by_key(inode));
        for order in [Order::Source, Order::Device] {
            let mut names = names(order);
            names.sort();
            assert_eq!(names, ["a", "b", "c", "d"]);
        }
    }
}
