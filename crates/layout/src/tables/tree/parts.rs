//! A tree that may not fit into memory: all of it at once where it does, else part by part.
//!
//! A part has all directories, and of all else what has its inode number in a range, with all its names. Each part goes over
//! the tables once more, and two further passes come before the first: one for the directories, one for their names.

use std::ops::{ControlFlow, Range};

use super::{DIRECTORY, Entry, Kept, NameAt, NoSuchPath, TYPE_BITS, Tree};
use crate::tables::{Found, Inode, Name, TableError, Tables, Wanted, lost::LOST, spans::Spans};

/// How names begin that the directory of the lost could have.
const LOST_NAMES: &[u8] = b"lost";

/// A tree, or what of it is in memory together.
#[derive(Debug)]
pub struct Part<'a, T> {
    tree: &'a Tree<T>,
    /// What was visited in the parts before.
    told: Told,
    /// The numbers of what is here and no directory.
    range: Range<u64>,
    /// Whether there are parts behind this one.
    is_last: bool,
    /// Whether the directory of the lost is wanted.
    with_lost: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    directories: bool,
    lost: bool,
}

impl<T> Part<'_, T> {
    /// What was damaged in all parts, at most the first thousand.
    pub fn problems(&self) -> &[TableError] {
        self.tree.problems()
    }

    /// How much was damaged in all.
    pub fn problems_met(&self) -> u64 {
        self.tree.problems_met()
    }

    /// Whether this is the first part. Directories are visited in it.
    pub fn is_first(&self) -> bool {
        !self.told.directories
    }

    /// As [`Tree::has_root`].
    pub fn has_root(&self) -> bool {
        self.tree.has_root()
    }

    /// Names of inodes that aren't in use: their directories and the inodes. Of those whose numbers are of this part.
    pub fn names_of_nothing(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.tree.names_of_nothing().filter(|(_, inode)| self.range.contains(inode))
    }

    /// What was kept of an inode of this part.
    pub fn get(&self, inode: u64) -> Option<&T> {
        self.tree.get(inode)
    }

    /// As [`Tree::children`]: directories, and of all else what is of this part.
    pub fn children(&self, directory: u64) -> Option<impl Iterator<Item = (&[u8], u64)>> {
        self.tree.children(directory)
    }

    /// Whether an inode that is no directory was of a part before.
    pub fn is_behind(&self, inode: u64) -> bool {
        inode < self.range.start
    }

    /// As [`Tree::resolve`]; what is no directory is found in its own part.
    pub fn resolve(&self, path: &[u8]) -> Result<u64, NoSuchPath> {
        self.tree.resolve(path)
    }

    /// Whether a part to come may have more of what a path leads to: something below a directory, or a file that isn't here.
    pub fn has_more_to_come(&self, path: &[u8]) -> bool {
        if self.is_last {
            return false;
        }
        match self.tree.resolve(path) {
            // A name may be here without its inode.
            Ok(inode) => self.tree.inodes.get(&inode).is_none_or(|kept| kept.is_directory),
            Err(NoSuchPath { there }) => {
                let rest = path.get(there..).unwrap_or_default();
                let mut names = rest.split(|&byte| byte == b'/').filter(|name| !(name.is_empty() || *name == b"."));
                let missing = names.next().unwrap_or_default();
                // All directories are here, but for that of the lost, and what is none has nothing below.
                names.next().is_none() || self.with_lost && missing.starts_with(LOST_NAMES)
            }
        }
    }

    /// As [`Tree::walk`], without what was visited in the parts before.
    pub fn walk(&self, from: u64, visit: &mut dyn FnMut(Entry<'_, T>) -> ControlFlow<()>) -> ControlFlow<()> {
        self.tree.walk(from, &mut |entry| {
            let told = if entry.inode == LOST { self.told.lost } else { self.told.directories };
            if entry.is_directory && told { ControlFlow::Continue(()) } else { visit(entry) }
        })
    }
}

/// What is wanted of a file system.
pub struct Whole<'a, T> {
    /// Bytes that inodes and names may take. Directories can't be left out: where they alone take more, half as much again is
    /// taken beside them.
    pub limit: u64,
    /// What is kept of an inode.
    pub keep: &'a mut dyn FnMut(Inode) -> T,
    /// What is kept of the directory of what has no name; `None` where that isn't wanted. See [`Tree::list_lost`].
    pub lost: Option<&'a dyn Fn() -> T>,
}

impl<T> Tree<T> {
    /// Reads all tables, and gives the tree where it takes at most `limit` bytes. Stops when it would take more.
    pub fn read_within(
        tables: &mut dyn Tables,
        wanted: Wanted,
        limit: u64,
        keep: &mut dyn FnMut(Inode) -> T,
    ) -> Result<Option<Tree<T>>, TableError> {
        let tree = Tree::empty(tables.facts().root);
        let mut gathering = Gathering { tree, take: Take::Within(limit), keep, bytes: 0, spans: Spans::default() };
        tables.scan(wanted, &mut gathering)?;
        let Gathering { mut tree, bytes, .. } = gathering;
        tree.sort();
        Ok((bytes <= limit).then_some(tree))
    }

    /// Reads all tables and shows what they make: the whole tree where it fits, else one part after the other. The tables are
    /// told of as often as there are parts, and thrice more.
    pub fn read_in_parts(
        tables: &mut dyn Tables,
        wanted: Wanted,
        whole: Whole<'_, T>,
        show: &mut dyn FnMut(Part<'_, T>) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        let Whole { limit, keep, lost } = whole;
        let mut told = Told::default();
        if let Some(mut tree) = Tree::read_within(tables, wanted, limit, keep)? {
            if let Some(lost) = lost {
                tree.list_lost(lost);
            }
            let range = 0..u64::MAX;
            let _ = show(Part { tree: &tree, told, range, is_last: true, with_lost: lost.is_some() });
            return Ok(());
        }
        let tree = Tree::empty(tables.facts().root);
        let mut gathering = Gathering { tree, take: Take::Directories, keep, bytes: 0, spans: Spans::default() };
        // Nothing is kept of files meanwhile.
        let names = Wanted { extents: false, ..wanted };
        tables.scan(names, &mut gathering)?;
        gathering.take = Take::NamesOfDirectories;
        tables.scan(names, &mut gathering)?;
        let room = limit.saturating_sub(gathering.bytes).max(limit / 2);
        // Names of all directories lie before this.
        let names_end = gathering.tree.bytes.len();
        let mut ranges = gathering.spans.ranges(room).into_iter().peekable();
        while let Some(range) = ranges.next() {
            gathering.take = Take::Range(range.clone());
            tables.scan(wanted, &mut gathering)?;
            let tree = &mut gathering.tree;
            tree.sort();
            if let Some(lost) = lost {
                tree.list_lost(lost);
            }
            let is_last = ranges.peek().is_none();
            if show(Part { tree, told, range, is_last, with_lost: lost.is_some() }).is_break() {
                break;
            }
            told = Told { directories: true, lost: told.lost || tree.inodes.contains_key(&LOST) };
            tree.inodes.retain(|&inode, kept| kept.is_directory && inode != LOST);
            tree.names.retain(|name| name.start < names_end);
            tree.bytes.truncate(names_end);
        }
        Ok(())
    }
}

/// What is taken of what is told.
#[derive(Debug, PartialEq, Eq)]
enum Take {
    /// All, as long as it is no more than so many bytes.
    Within(u64),
    /// Directories. All else is weighed.
    Directories,
    /// Their names, and those that the directory of the lost can't have.
    NamesOfDirectories,
    /// What is no directory and has its number there, with all its names.
    Range(Range<u64>),
}

struct Gathering<'a, T> {
    tree: Tree<T>,
    take: Take,
    keep: &'a mut dyn FnMut(Inode) -> T,
    /// What the tree takes.
    bytes: u64,
    spans: Spans,
}

impl<T> Gathering<'_, T> {
    /// What an inode takes, with room for tables that grow by doubling.
    fn weight_of(inode: &Inode) -> u64 {
        let beside: usize = inode.streams.iter().map(|stream| stream.0.len() + size_of_val(stream)).sum();
        let beside = beside + inode.inline.as_ref().map_or(0, Vec::len);
        (2 * size_of::<(u64, Kept<T>)>() + beside) as u64
    }

    fn weight_of_name(name: &Name<'_>) -> u64 {
        2 * (size_of::<NameAt>() + name.name.len()) as u64
    }

    fn is_of_the_lost(&self, name: &Name<'_>) -> bool {
        name.directory == self.tree.root && name.name.starts_with(LOST_NAMES)
    }

    fn is_directory(&self, inode: u64) -> bool {
        self.tree.inodes.get(&inode).is_some_and(|kept| kept.is_directory)
    }

    fn go_on(&self) -> ControlFlow<()> {
        let is_full = matches!(self.take, Take::Within(limit) if self.bytes > limit);
        if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<T> Found for Gathering<'_, T> {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let (number, is_directory) = (inode.number, inode.mode & TYPE_BITS == DIRECTORY);
        let is_taken = match &self.take {
            Take::Within(_) => true,
            Take::Directories => is_directory,
            Take::NamesOfDirectories => false,
            Take::Range(range) => !is_directory && range.contains(&number) && !self.is_directory(number),
        };
        let weight = Self::weight_of(&inode);
        if is_taken {
            self.bytes += if matches!(self.take, Take::Range(_)) { 0 } else { weight };
            self.tree.inodes.insert(number, Kept { is_directory, value: (self.keep)(inode) });
        } else if self.take == Take::Directories {
            self.spans.add(number, weight);
        }
        self.go_on()
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        let weight = Self::weight_of_name(&name);
        let is_taken = match &self.take {
            Take::Within(_) => true,
            Take::Directories => false,
            Take::NamesOfDirectories => self.is_directory(name.inode) || self.is_of_the_lost(&name),
            Take::Range(range) => {
                range.contains(&name.inode) && !self.is_directory(name.inode) && !self.is_of_the_lost(&name)
            }
        };
        if is_taken {
            self.bytes += if matches!(self.take, Take::Range(_)) { 0 } else { weight };
            self.tree.add_name(name.directory, name.inode, name.name);
        } else if self.take == Take::Directories {
            self.spans.add(name.inode, weight);
        }
        self.go_on()
    }

    fn incomplete(&mut self, directory: Option<u64>) {
        self.tree.incomplete.insert(directory);
    }

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        // They come again with each pass.
        if matches!(self.take, Take::Within(_) | Take::Directories) {
            self.tree.note(problem);
        }
        self.go_on()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::few, *};

    #[test]
    fn names_that_lead_nowhere_are_told_once() {
        let nothing = |limit| {
            let mut nothing = Vec::new();
            let whole = Whole { limit, keep: &mut |inode: Inode| inode.size, lost: None };
            let mut show = |part: Part<'_, u64>| {
                nothing.extend(part.names_of_nothing());
                ControlFlow::Continue(())
            };
            let names = [&NAMES[..], &[(2, 78, "lost and gone"), (3, 1, "of nothing, too")]].concat();
            Tree::read_in_parts(&mut few(&names), Wanted::default(), whole, &mut show).unwrap();
            nothing.sort_unstable();
            nothing
        };
        for limit in [u64::MAX, 0, 1, 200, 400, 600] {
            assert_eq!(nothing(limit), [(2, 78), (3, 1), (3, 77)], "{limit}");
        }
    }

    /// (path, what is kept) in the order of the visits, how many parts there were, and how much was damaged.
    fn told(names: &[(u64, u64, &'static str)], limit: u64, lost: bool, at: &str) -> (Vec<(String, u64)>, usize, u64) {
        let (mut paths, mut parts, mut damaged) = (Vec::new(), 0, 0);
        let of_lost = || 7;
        let whole = Whole { limit, keep: &mut |inode: Inode| inode.size, lost: lost.then_some(&of_lost) };
        let mut show = |part: Part<'_, u64>| {
            (parts, damaged) = (parts + 1, part.problems_met());
            if let Ok(from) = part.resolve(at.as_bytes()) {
                let _ = part.walk(from, &mut |entry| {
                    paths.push((String::from_utf8(entry.path.to_vec()).unwrap(), *entry.value));
                    ControlFlow::Continue(())
                });
            }
            if part.has_more_to_come(at.as_bytes()) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        Tree::read_in_parts(&mut few(names), Wanted::default(), whole, &mut show).unwrap();
        (paths, parts, damaged)
    }

    const NAMES: [(u64, u64, &str); 7] = [
        (3, 4, "below"),
        (2, 3, "dir"),
        (2, 5, "file"),
        (3, 5, "link"),
        (3, 77, "of nothing"),
        (2, 5, "lost"),
        (2, 9, "nine"),
    ];

    #[test]
    fn parts_make_what_the_whole_makes() {
        for (lost, at) in [(false, ""), (true, ""), (true, "dir"), (false, "dir"), (false, "none"), (true, "lost.1/9")]
        {
            let (mut whole, parts, damaged) = told(&NAMES, u64::MAX, lost, at);
            assert_eq!((parts, damaged), (1, 1));
            whole.sort();
            for limit in [0, 1, 200, 300, 400, 600] {
                let (mut found, parts, damaged) = told(&NAMES, limit, lost, at);
                found.sort();
                assert_eq!(found, whole, "{lost} {at:?} {limit}");
                assert!(parts > 1, "{limit}: {parts}");
                assert_eq!(damaged, 1, "each is told once");
            }
        }
    }

    /// The directory of the lost comes with the first part that has something in it, under a name that no part has given away.
    #[test]
    fn what_has_no_name_is_told_part_by_part() {
        for names in [&NAMES[..6], &NAMES[1..6], &NAMES[..1], &NAMES[5..6], &[]] {
            let (mut whole, ..) = told(names, u64::MAX, true, "");
            whole.sort();
            let (mut found, parts, _) = told(names, 0, true, "");
            found.sort();
            assert_eq!(found, whole, "{names:?}");
            assert!(parts > 1);
        }
    }

    #[test]
    fn no_more_is_kept_than_fits() {
        let most = |limit| {
            let mut most = 0;
            let whole = Whole { limit, keep: &mut |inode: Inode| inode.size, lost: None };
            let mut show = |part: Part<'_, u64>| {
                most = most.max(part.tree.inodes.len() + part.tree.names.len());
                ControlFlow::Continue(())
            };
            Tree::read_in_parts(&mut few(&NAMES), Wanted::default(), whole, &mut show).unwrap();
            most
        };
        assert_eq!(most(u64::MAX), 5 + 7);
        // Two directories, the name of one, the name that the lost can't have, and one file with two more names at most.
        assert_eq!(most(1), 3 + 4);
        let read = |limit| Tree::read_within(&mut few(&NAMES), Wanted::default(), limit, &mut |inode| inode.size);
        assert!(read(700).unwrap().is_none() && read(800).unwrap().is_some());
    }

    #[test]
    fn nothing_more_is_read_when_the_first_part_was_enough() {
        let mut parts = 0;
        let whole = Whole { limit: 0, keep: &mut |inode: Inode| inode.size, lost: None };
        let mut show = |_: Part<'_, u64>| {
            parts += 1;
            ControlFlow::Break(())
        };
        Tree::read_in_parts(&mut few(&NAMES), Wanted::default(), whole, &mut show).unwrap();
        assert_eq!(parts, 1);
    }

    #[test]
    fn one_name_is_enough_to_be_found() {
        for name in ["dir/link", "lost", "file"] {
            assert_eq!(told(&NAMES, 0, false, name).0, [(String::new(), 500)], "{name}");
        }
    }

    #[test]
    fn no_part_is_read_in_vain() {
        let parts = |at| told(&NAMES, 0, false, at).1;
        let all = parts("");
        assert!(all > 2, "{all}");
        assert_eq!(["dir", "none", "dir/none", "./none/"].map(parts), [all; 4]);
        assert_eq!(["none/below", "dir/none/below", "lost.1/9"].map(parts), [1; 3]);
        assert!(["dir/below", "dir/below/."].map(parts).iter().all(|&parts| parts < all));
        // It may be the directory of the lost.
        assert_eq!(told(&NAMES, 0, true, "lost.1/none").1, all);
    }
}
