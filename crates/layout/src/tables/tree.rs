//! Inodes and names put together to a tree with paths.

mod parts;

pub use parts::{Part, Whole};

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use super::{
    Found, Inode, Name, TableError, Tables, Wanted,
    lost::{LOST, tops},
    problems::Problems,
};

const DIRECTORY: u32 = 0o040_000;
const TYPE_BITS: u32 = 0o170_000;

/// The names of a file system, and of each inode what the caller keeps.
///
/// Takes 32 bytes and the name for each name, and some 32 bytes beside a `T` for each inode; twice as much while it grows.
#[derive(Debug)]
pub struct Tree<T> {
    root: u64,
    inodes: HashMap<u64, Kept<T>>,
    /// Sorted by directory once all are there.
    names: Vec<NameAt>,
    bytes: Vec<u8>,
    problems: Problems,
    /// Directories of which names may be missing; `None` stands for any.
    incomplete: HashSet<Option<u64>>,
    /// The root directory is made up.
    is_rootless: bool,
}

#[derive(Debug)]
struct Kept<T> {
    is_directory: bool,
    value: T,
}

#[derive(Clone, Copy, Debug)]
struct NameAt {
    directory: u64,
    inode: u64,
    start: usize,
    len: u16,
}

/// An entry of a tree.
#[derive(Debug)]
pub struct Entry<'a, T> {
    /// Its path below the directory where the walk began, without a slash at the front; empty for that directory itself.
    pub path: &'a [u8],
    /// Its inode.
    pub inode: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// What was kept of the inode.
    pub value: &'a T,
}

/// Why a path leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchPath {
    /// How much of it is there, in bytes.
    pub there: usize,
}

impl<T> Tree<T> {
    /// Reads all tables, and keeps of each inode what `keep` makes of it.
    pub fn read(tables: &mut dyn Tables, wanted: Wanted, keep: impl FnMut(Inode) -> T) -> Result<Tree<T>, TableError> {
        let mut collector = Collector { tree: Tree::empty(tables.facts().root), keep };
        tables.scan(wanted, &mut collector)?;
        let mut tree = collector.tree;
        tree.sort();
        Ok(tree)
    }

    fn empty(root: u64) -> Tree<T> {
        Tree {
            root,
            inodes: HashMap::new(),
            names: Vec::new(),
            bytes: Vec::new(),
            problems: Problems::default(),
            incomplete: HashSet::new(),
            is_rootless: false,
        }
    }

    /// Within a directory the order of the tables stays.
    fn sort(&mut self) {
        self.names.sort_by_key(|name| name.directory);
    }

    /// Lists inodes that are in use but can't be reached by a name in a directory `lost` of the root, by their numbers. Does
    /// nothing where there are none. `directory` makes what is kept of that directory, and of the root where there is none.
    pub fn list_lost(&mut self, directory: &dyn Fn() -> T) {
        if !self.has_root() {
            self.is_rootless = true;
            self.inodes.insert(self.root, Kept { is_directory: true, value: directory() });
        }
        let mut unreached: HashSet<u64> = self.inodes.keys().copied().collect();
        unreached.remove(&self.root);
        let mut pending = vec![self.root];
        while let Some(inode) = pending.pop() {
            let found = self.names_in(inode).iter().map(|name| name.inode);
            pending.extend(found.filter(|inode| unreached.remove(inode)));
        }
        let below = |inode| {
            let children = self.names_in(inode).iter().map(|name| name.inode);
            children.filter(|inode| unreached.contains(inode)).collect()
        };
        let tops = tops(unreached.iter().copied().collect(), below);
        if tops.is_empty() {
            return;
        }
        self.add_name(self.root, LOST, &self.free_name());
        tops.into_iter().for_each(|inode| self.add_name(LOST, inode, inode.to_string().as_bytes()));
        self.sort();
        self.inodes.insert(LOST, Kept { is_directory: true, value: directory() });
    }

    /// A name for the directory of the lost that the root has not given away.
    fn free_name(&self) -> Vec<u8> {
        let is_taken = |wanted: &str| self.names_in(self.root).iter().any(|name| self.name(name) == wanted.as_bytes());
        let names = std::iter::once("lost".to_owned()).chain((1_u32..).map(|number| format!("lost.{number}")));
        names.into_iter().find(|name| !is_taken(name)).unwrap_or_default().into_bytes()
    }

    fn add_name(&mut self, directory: u64, inode: u64, name: &[u8]) {
        // No file system has longer ones.
        let Ok(len) = u16::try_from(name.len()) else { return };
        self.names.push(NameAt { directory, inode, start: self.bytes.len(), len });
        self.bytes.extend_from_slice(name);
    }

    /// The inode of the root directory.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Whether the file system has a root directory.
    pub fn has_root(&self) -> bool {
        !self.is_rootless && self.inodes.get(&self.root).is_some_and(|kept| kept.is_directory)
    }

    /// Names of inodes that aren't in use: their directories and the inodes.
    fn names_of_nothing(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let names = self.names.iter().filter(|name| !self.inodes.contains_key(&name.inode));
        names.map(|name| (name.directory, name.inode))
    }

    /// What was damaged, at most the first thousand.
    pub fn problems(&self) -> &[TableError] {
        self.problems.kept()
    }

    /// How much was damaged in all.
    pub fn problems_met(&self) -> u64 {
        self.problems.met()
    }

    /// What was kept of an inode.
    pub fn get(&self, inode: u64) -> Option<&T> {
        self.inodes.get(&inode).map(|kept| &kept.value)
    }

    /// Names and inodes in a directory; `None` where some may be missing.
    pub fn children(&self, directory: u64) -> Option<impl Iterator<Item = (&[u8], u64)>> {
        let is_known = self.inodes.get(&directory).is_some_and(|kept| kept.is_directory);
        let is_whole = is_known && ![None, Some(directory)].iter().any(|place| self.incomplete.contains(place));
        is_whole.then(|| self.names_in(directory).iter().map(|name| (self.name(name), name.inode)))
    }

    fn names_in(&self, directory: u64) -> &[NameAt] {
        let start = self.names.partition_point(|name| name.directory < directory);
        let end = self.names.partition_point(|name| name.directory <= directory);
        &self.names[start..end]
    }

    fn note(&mut self, problem: TableError) {
        self.problems.push(problem);
    }

    fn name(&self, at: &NameAt) -> &[u8] {
        &self.bytes[at.start..][..at.len.into()]
    }

    /// The inode that a path from the root leads to. Symbolic links are not followed.
    pub fn resolve(&self, path: &[u8]) -> Result<u64, NoSuchPath> {
        let mut at = self.root;
        let mut there = 0;
        for part in path.split(|&byte| byte == b'/') {
            if !(part.is_empty() || part == b".") {
                let found = self.names_in(at).iter().find(|name| self.name(name) == part);
                at = found.ok_or(NoSuchPath { there })?.inode;
            }
            there += part.len() + 1;
        }
        Ok(at)
    }

    /// Visits the inode `from` and everything below it, directories before what is in them. A directory that damage has put
    /// into several places is entered once, so this ends.
    pub fn walk(&self, from: u64, visit: &mut dyn FnMut(Entry<'_, T>) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut entered = HashSet::new();
        let mut path = Vec::new();
        // What is still to be visited, with the length of the path above it.
        let mut pending = vec![(from, None, 0)];
        while let Some((inode, name, above)) = pending.pop() {
            path.truncate(above);
            if let Some(name) = name {
                if above > 0 {
                    path.push(b'/');
                }
                path.extend_from_slice(self.name(name));
            }
            let Some(kept) = self.inodes.get(&inode) else { continue };
            visit(Entry { path: &path, inode, is_directory: kept.is_directory, value: &kept.value })?;
            if kept.is_directory && entered.insert(inode) {
                pending.extend(self.names_in(inode).iter().rev().map(|name| (name.inode, Some(name), path.len())));
            }
        }
        ControlFlow::Continue(())
    }
}

struct Collector<T, F> {
    tree: Tree<T>,
    keep: F,
}

impl<T, F: FnMut(Inode) -> T> Found for Collector<T, F> {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let (number, is_directory) = (inode.number, inode.mode & TYPE_BITS == DIRECTORY);
        self.tree.inodes.insert(number, Kept { is_directory, value: (self.keep)(inode) });
        ControlFlow::Continue(())
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        self.tree.add_name(name.directory, name.inode, name.name);
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, directory: Option<u64>) {
        self.tree.incomplete.insert(directory);
    }

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        self.tree.note(problem);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tables::VolumeFacts;

    /// Tables of a few inodes and names, and one problem.
    pub(super) struct Few {
        facts: VolumeFacts,
        inodes: Vec<(u64, u32)>,
        names: Vec<(u64, u64, &'static str)>,
    }

    impl Tables for Few {
        fn facts(&self) -> &VolumeFacts {
            &self.facts
        }

        fn scan(&mut self, _wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
            let mut tell = || {
                // Names may come before their inodes.
                for &(directory, inode, name) in &self.names {
                    found.name(Name { directory, inode, name: name.as_bytes() })?;
                }
                for &(number, mode) in &self.inodes {
                    found.inode(Inode { number, mode, size: number * 100, ..Inode::default() })?;
                }
                found.problem(TableError::damaged("a thing", 7, 1, 2))
            };
            let _: ControlFlow<()> = tell();
            Ok(())
        }
    }

    pub(super) fn few(names: &[(u64, u64, &'static str)]) -> Few {
        let facts = VolumeFacts { root: 2, ..VolumeFacts::default() };
        let inodes = vec![(2, 0o040_755), (3, 0o040_755), (4, 0o100_644), (5, 0o100_644), (9, 0o100_644)];
        Few { facts, inodes, names: names.to_vec() }
    }

    fn tree(names: &[(u64, u64, &'static str)]) -> Tree<u64> {
        Tree::read(&mut few(names), Wanted::default(), |inode| inode.size).unwrap()
    }

    fn paths(tree: &Tree<u64>, from: u64) -> Vec<(String, u64)> {
        let mut paths = Vec::new();
        let _ = tree.walk(from, &mut |entry| {
            paths.push((String::from_utf8(entry.path.to_vec()).unwrap(), *entry.value));
            ControlFlow::Continue(())
        });
        paths
    }

    #[test]
    fn names_and_inodes_make_paths() {
        let tree = tree(&[(3, 4, "below"), (2, 3, "dir"), (2, 5, "file"), (3, 5, "link"), (3, 77, "of nothing")]);
        let shown = |list: &[(&str, u64)]| list.iter().map(|&(path, size)| (path.to_owned(), size)).collect::<Vec<_>>();
        let all = [("", 200), ("dir", 300), ("dir/below", 400), ("dir/link", 500), ("file", 500)];
        assert_eq!(paths(&tree, 2), shown(&all));
        assert_eq!(paths(&tree, 3), shown(&[("", 300), ("below", 400), ("link", 500)]));
        assert_eq!((tree.problems().len(), tree.problems_met()), (1, 1));
    }

    #[test]
    fn paths_are_resolved() {
        let tree = tree(&[(2, 3, "dir"), (3, 4, "below")]);
        for (path, inode) in [("", 2), ("/", 2), ("dir", 3), ("/dir/", 3), ("./dir//below", 4)] {
            assert_eq!(tree.resolve(path.as_bytes()), Ok(inode), "{path}");
        }
        assert_eq!(tree.resolve(b"dir/none"), Err(NoSuchPath { there: 4 }));
        assert_eq!(tree.resolve(b"dir/below/x"), Err(NoSuchPath { there: 10 }));
    }

    #[test]
    fn what_no_name_leads_to_is_listed_by_number() {
        let mut tree = tree(&[(2, 5, "lost"), (3, 4, "below"), (3, 5, "link")]);
        tree.list_lost(&|| 0);
        let all: Vec<String> = paths(&tree, 2).into_iter().map(|(path, _)| path).collect();
        assert_eq!(all, ["", "lost", "lost.1", "lost.1/3", "lost.1/3/below", "lost.1/3/link", "lost.1/9"]);
        assert_eq!(tree.resolve(b"lost.1/9"), Ok(9));
        let mut whole = self::tree(&[(2, 3, "a"), (3, 4, "b"), (2, 5, "c"), (2, 9, "d")]);
        whole.list_lost(&|| 0);
        assert_eq!(paths(&whole, 2).len(), 5);
    }

    #[test]
    fn what_is_left_without_a_root_is_lost() {
        let mut tables = few(&[(2, 3, "dir"), (3, 4, "below")]);
        tables.inodes.retain(|(number, _)| *number != 2);
        for mode in [None, Some(0o100_644)] {
            tables.inodes.extend(mode.map(|mode| (2, mode)));
            let mut tree = Tree::read(&mut tables, Wanted::default(), |inode| inode.size).unwrap();
            assert!(!tree.has_root());
            tree.list_lost(&|| 0);
            assert!(!tree.has_root());
            let all: Vec<String> = paths(&tree, 2).into_iter().map(|(path, _)| path).collect();
            // What the tables still say of names of the root counts.
            assert_eq!(all, ["", "dir", "dir/below", "lost", "lost/5", "lost/9"], "{mode:?}");
        }
    }

    #[test]
    fn a_directory_within_itself_ends() {
        let tree = tree(&[(2, 3, "dir"), (3, 2, "up"), (3, 3, "self")]);
        assert_eq!(paths(&tree, 2).len(), 4);
    }

    #[test]
    fn a_walk_ends_when_it_is_told_to() {
        let tree = tree(&[(2, 3, "dir"), (2, 4, "file")]);
        let mut seen = 0;
        let ended = tree.walk(2, &mut |_| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert_eq!((seen, ended), (1, ControlFlow::Break(())));
    }
}
