//! The regular files of trees, and the orders in which programs walk over them.

use std::{
    ffi::{CString, OsStr},
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use onesweep_sys::files::{EntryType, open_dir, statx_at};

use crate::{
    course::ORDERS,
    order::{self, Order},
};

/// A file by the first of its names that was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeFile {
    pub(crate) directory: u32,
    pub(crate) name: CString,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) bytes: u64,
}

/// Trees, looked at without reading content.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<TreeFile>,
    directories: Vec<PathBuf>,
    /// The files of each walk: as they are listed, by inode number, by name; of each first that with directories where their entries
    /// stand, then that with files first.
    pub(crate) walks: [Vec<u32>; ORDERS],
    order: Order,
}

enum Child {
    File(u32),
    Directory(u32),
}

/// An entry as it stands in its directory.
struct Entry {
    ino: u64,
    name: CString,
    child: Child,
}

impl Tree {
    /// Looks at the trees below `roots`, on their own file systems. What can't be looked at is left out: the program that is
    /// helped will tell of it. `order` is how programs see directories listed. No further directory is looked at once `is_over`.
    pub(crate) fn look(roots: &[PathBuf], order: Order, is_over: impl Fn() -> bool) -> Self {
        let mut tree = Self { order, ..Self::default() };
        let mut entries: Vec<Vec<Entry>> = Vec::new();
        let mut tops = Vec::new();
        for root in roots {
            tops.push(tree.directories.len() as u32);
            tree.directories.push(root.clone());
            let device = std::fs::metadata(root).map_or(0, |facts| std::os::unix::fs::MetadataExt::dev(&facts));
            // Directories are looked at in the order in which they were found.
            while entries.len() < tree.directories.len() {
                let listed = match is_over() {
                    true => Vec::new(),
                    false => tree.list(entries.len() as u32, device).unwrap_or_default(),
                };
                entries.push(listed);
            }
        }
        tree.walks = std::array::from_fn(|order| {
            let is_first_of_its_kind = order % 2 == 0;
            if is_first_of_its_kind {
                sort(&mut entries, order / 2);
            }
            walk(&entries, &tops, !is_first_of_its_kind)
        });
        tree
    }

    fn list(&mut self, directory: u32, device: u64) -> io::Result<Vec<Entry>> {
        let path = self.directories[directory as usize].clone();
        let open = open_dir(path.as_path())?;
        let mut entries = Vec::new();
        for listed in order::list(open.as_fd(), self.order)? {
            if !matches!(listed.kind, EntryType::File | EntryType::Dir | EntryType::Unknown) {
                continue;
            }
            let name = listed.name;
            let Ok(stat) = statx_at(open.as_fd(), name.as_c_str(), true) else { continue };
            let child = match stat.file_type() {
                EntryType::File => {
                    let (dev, ino, bytes) = (stat.dev, stat.ino, stat.size);
                    self.files.push(TreeFile { directory, name: name.clone(), dev, ino, bytes });
                    Child::File(self.files.len() as u32 - 1)
                }
                EntryType::Dir if stat.dev == device => {
                    self.directories.push(path.join(OsStr::from_bytes(name.to_bytes())));
                    Child::Directory(self.directories.len() as u32 - 1)
                }
                _ => continue,
            };
            entries.push(Entry { ino: stat.ino, name, child });
        }
        Ok(entries)
    }

    /// The path of a file, as the root begins it.
    pub(crate) fn path(&self, file: u32) -> PathBuf {
        let TreeFile { directory, name, .. } = &self.files[file as usize];
        self.directory(*directory).join(OsStr::from_bytes(name.to_bytes()))
    }

    fn directory(&self, directory: u32) -> &Path {
        &self.directories[directory as usize]
    }
}

/// The entries of each directory; before they are sorted for the first time they are as they were listed.
fn sort(entries: &mut [Vec<Entry>], kind: usize) {
    for listed in entries.iter_mut() {
        match kind {
            0 => {}
            1 => listed.sort_by_key(|entry| entry.ino),
            _ => listed.sort_by(|one, other| one.name.cmp(&other.name)),
        }
    }
}

/// Depth first: each directory where its entry stands, or behind the files beside it.
fn walk(entries: &[Vec<Entry>], tops: &[u32], are_files_first: bool) -> Vec<u32> {
    let file = |entry: &Entry| match entry.child {
        Child::File(file) => Some(file),
        Child::Directory(_) => None,
    };
    let mut files = Vec::new();
    for &top in tops {
        let mut open = vec![(top, 0)];
        while let Some((directory, at)) = open.last_mut() {
            let listed = &entries[*directory as usize];
            if are_files_first && *at == 0 {
                files.extend(listed.iter().filter_map(file));
            }
            let Some(entry) = listed.get(*at) else {
                open.pop();
                continue;
            };
            *at += 1;
            match entry.child {
                Child::File(_) if are_files_first => {}
                Child::File(file) => files.push(file),
                Child::Directory(below) => open.push((below, 0)),
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    #[test]
    fn each_order_walks_over_every_file_once() {
        let root = tempfile::tempdir().unwrap();
        for path in ["b/y", "b/x", "a", "c/deep/z", "d"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, path.as_os_str().as_encoded_bytes()).unwrap();
        }
        std::os::unix::fs::symlink("a", root.path().join("link")).unwrap();
        let tree = Tree::look(&[root.path().to_owned(), root.path().join("none")], Order::Source, || false);
        assert_eq!(tree.files.len(), 5);
        let names = |order: usize| -> Vec<String> {
            let below = |file: &u32| tree.path(*file).strip_prefix(root.path()).unwrap().display().to_string();
            tree.walks[order].iter().map(below).collect()
        };
        assert_eq!(names(4), ["a", "b/x", "b/y", "c/deep/z", "d"]);
        assert_eq!(names(5), ["a", "d", "b/x", "b/y", "c/deep/z"], "files first");
        for order in 0..ORDERS {
            let mut names = names(order);
            names.sort();
            assert_eq!(names, ["a", "b/x", "b/y", "c/deep/z", "d"]);
        }
        let inode = |name: &str| fs::metadata(root.path().join(name)).unwrap().ino();
        let mut tops = ["a", "b", "c", "d"];
        tops.sort_by_key(|name| inode(name));
        let mut met: Vec<String> = names(2).iter().map(|name| name[..1].to_owned()).collect();
        met.dedup();
        assert_eq!(met, tops);
        let facts = fs::metadata(root.path().join("d")).unwrap();
        let file = tree.files.iter().find(|file| file.ino == facts.ino()).unwrap();
        assert_eq!((file.dev, file.bytes), (facts.dev(), facts.len()));
    }
    #[test]
    fn nothing_is_looked_at_after_the_end() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "bytes").unwrap();
        let tree = Tree::look(&[root.path().to_owned()], Order::Source, || true);
        assert_eq!((tree.files.len(), tree.walks), (0, Default::default()));
    }
}
