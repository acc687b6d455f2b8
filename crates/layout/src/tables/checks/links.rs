//! Link counts held against the names that were told.
//!
//! Each inode has as many names as it says, and those say its type where names tell one. A directory has one name, and links for
//! that, for its own `.` and for the `..` of each directory in it.

use std::collections::HashMap;

use super::balance::{Balance, mixed};
use crate::tables::TableError;

/// Inodes that are looked at one by one, at most; 64 bytes each.
const ACCOUNTS_MAX: usize = 1 << 19;

/// What an inode says of itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::tables) struct Said {
    pub(in crate::tables) links: u64,
    pub(in crate::tables) is_directory: bool,
    /// Its type as names tell it; 0 where they don't.
    pub(in crate::tables) kind: u8,
}

/// What names and directories say of an inode.
#[derive(Debug, Default)]
struct Account {
    said: Option<Said>,
    names: u64,
    /// Directories that have it above them.
    below: u64,
    /// A type that a name tells and that isn't that of the others.
    kinds: [Option<u8>; 2],
}

/// What was told of all inodes and names.
#[derive(Debug)]
pub(in crate::tables) struct Links {
    root: u64,
    /// A directory may have more links than can be counted, and one then.
    may_be_uncounted: bool,
    names: Balance,
    below: Balance,
    /// In the second look, those whose sums were not even.
    accounts: Option<(Balance, Balance, HashMap<u64, Account>)>,
}

impl Links {
    pub(in crate::tables) fn new(root: u64, may_be_uncounted: bool) -> Links {
        let (names, below) = (Balance::default(), Balance::default());
        Links { root, may_be_uncounted, names, below, accounts: None }
    }

    /// Whether nothing contradicts.
    pub(in crate::tables) fn is_even(&self) -> bool {
        self.names.is_even() && self.below.is_even()
    }

    /// For a second look at what isn't even.
    pub(in crate::tables) fn again(&self) -> Links {
        let uneven = (self.names.clone(), self.below.clone(), HashMap::new());
        Links { accounts: Some(uneven), ..Links::new(self.root, self.may_be_uncounted) }
    }

    fn account(&mut self, inode: u64) -> Option<&mut Account> {
        let (names, below, accounts) = self.accounts.as_mut()?;
        if names.is_even_for(inode) && below.is_even_for(inode) {
            return None;
        }
        // What isn't there when they are full has none of its names here, and is not judged.
        if accounts.len() >= ACCOUNTS_MAX && !accounts.contains_key(&inode) {
            return None;
        }
        Some(accounts.entry(inode).or_default())
    }

    fn names_of(&self, inode: u64, said: &Said) -> u64 {
        match said.is_directory {
            true => u64::from(inode != self.root && said.links > 0),
            false => said.links,
        }
    }

    /// An inode in use.
    pub(in crate::tables) fn inode(&mut self, inode: u64, said: Said) {
        if self.accounts.is_some() {
            if let Some(account) = self.account(inode) {
                account.said = Some(said);
            }
            return;
        }
        let names = self.names_of(inode, &said);
        self.names.add(inode, mixed(inode, said.kind.into()), names);
        if said.is_directory {
            self.below.add(inode, mixed(inode, 0), said.links.saturating_sub(2));
        }
    }

    /// A name of an inode, which tells a type; 0 where it tells none.
    pub(in crate::tables) fn name(&mut self, inode: u64, kind: u8) {
        if self.accounts.is_some() {
            if let Some(account) = self.account(inode) {
                account.names += 1;
                match account.kinds {
                    [None, _] => account.kinds[0] = Some(kind),
                    [Some(first), None] if first != kind => account.kinds[1] = Some(kind),
                    _ => {}
                }
            }
            return;
        }
        self.names.take(inode, mixed(inode, kind.into()));
    }

    /// The directory that another one has above it.
    pub(in crate::tables) fn above(&mut self, directory: u64, above: u64) {
        if directory == self.root {
            return;
        }
        if self.accounts.is_some() {
            if let Some(account) = self.account(above) {
                account.below += 1;
            }
            return;
        }
        self.below.take(above, mixed(above, 0));
    }

    /// What contradicts, after a second look. `at` gives the bytes of an inode's link count and of its type.
    pub(in crate::tables) fn contradictions(&self, at: &dyn Fn(u64) -> (u64, u64)) -> Vec<TableError> {
        let Some((.., accounts)) = &self.accounts else { return Vec::new() };
        let mut inodes: Vec<_> = accounts.iter().collect();
        inodes.sort_unstable_by_key(|(inode, _)| **inode);
        let told = inodes.into_iter().flat_map(|(&inode, account)| self.contradiction(inode, account, at));
        told.collect()
    }

    fn contradiction(&self, inode: u64, account: &Account, at: &dyn Fn(u64) -> (u64, u64)) -> Option<TableError> {
        let (links_at, kind_at) = at(inode);
        let links = |expected: String, found: u64| {
            Some(TableError::damaged(format!("the link count of inode {inode}"), links_at, expected, found))
        };
        let names = |count: u64| if count == 1 { "1 name".to_owned() } else { format!("{count} names") };
        let Some(said) = account.said else {
            let found = match (account.names, account.below) {
                (0, 0) => return None,
                (0, below) => format!("{below} directories that say to lie in it"),
                (count, _) => names(count),
            };
            return Some(TableError::damaged(
                format!("inode {inode}"),
                links_at,
                "an inode in use",
                format!("none, but {found}"),
            ));
        };
        if said.is_directory {
            if account.names != self.names_of(inode, &said) {
                let what = format!("the directory of inode {inode}");
                return Some(TableError::damaged(what, links_at, "1 name", names(account.names)));
            }
            let is_uncounted = self.may_be_uncounted && said.links == 1;
            let expected = account.below + 2;
            if said.links > 0 && said.links != expected && !is_uncounted {
                return links(format!("{expected}, for {} directories in it", account.below), said.links);
            }
        } else if account.names != said.links {
            return links(format!("{}, as there are names", account.names), said.links);
        } else if account.below > 0 {
            let found = format!("{} directories that say to lie in it", account.below);
            return Some(TableError::damaged(format!("inode {inode}"), kind_at, "no directory", found));
        }
        let other = account.kinds.iter().flatten().find(|kind| ![said.kind, 0].contains(*kind))?;
        let what = format!("the type of inode {inode}");
        Some(TableError::damaged(what, kind_at, format!("{other}, as a name says"), said.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u64 = 2;

    #[derive(Clone)]
    struct Tree {
        inodes: Vec<(u64, Said)>,
        names: Vec<(u64, u8)>,
        above: Vec<(u64, u64)>,
    }

    fn directory(links: u64) -> Said {
        Said { links, is_directory: true, kind: 2 }
    }

    fn file(links: u64) -> Said {
        Said { links, is_directory: false, kind: 1 }
    }

    /// The root with two directories, one of which has another; a file with two names, and one without any.
    fn sound() -> Tree {
        Tree {
            inodes: vec![
                (ROOT, directory(4)),
                (5, directory(3)),
                (6, directory(2)),
                (7, directory(2)),
                (8, file(2)),
                (9, file(0)),
            ],
            names: vec![(5, 2), (6, 2), (7, 2), (8, 1), (8, 1)],
            above: vec![(ROOT, ROOT), (5, ROOT), (6, ROOT), (7, 5)],
        }
    }

    fn told(tree: &Tree) -> Vec<String> {
        let tell = |links: &mut Links| {
            tree.above.iter().for_each(|(directory, above)| links.above(*directory, *above));
            tree.inodes.iter().for_each(|(inode, said)| links.inode(*inode, *said));
            tree.names.iter().for_each(|(inode, kind)| links.name(*inode, *kind));
        };
        let mut links = Links::new(ROOT, true);
        tell(&mut links);
        let mut again = links.again();
        tell(&mut again);
        let told = again.contradictions(&|inode| (inode * 256 + 2, inode * 256));
        assert!(told.is_empty() || !links.is_even());
        told.iter().map(ToString::to_string).collect()
    }

    /// A change, and how what is told then begins.
    type Case<'a> = (&'a dyn Fn(&mut Tree), &'a [&'a str]);

    #[test]
    fn sound_counts_are_even() {
        let tree = sound();
        assert_eq!(told(&tree), [""; 0]);
        let mut uncounted = tree.clone();
        uncounted.inodes[1].1.links = 1;
        assert_eq!(told(&uncounted), [""; 0], "too many to be counted");
        let mut without_type = tree;
        without_type.names[4].1 = 0;
        assert_eq!(told(&without_type), [""; 0], "a name may tell no type");
    }

    #[test]
    fn each_contradiction_is_told() {
        let cases: [Case<'_>; 8] = [
            (&|tree| tree.inodes[4].1.links = 3, &["the link count of inode 8 at byte 2050 is damaged: expected 2"]),
            (&|tree| tree.inodes[1].1.links = 4, &["the link count of inode 5 at byte 1282 is damaged: expected 3"]),
            (&|tree| tree.inodes[5].1.links = 1, &["the link count of inode 9"]),
            (&|tree| tree.names[3] = (77, 1), &["the link count of inode 8", "inode 77 at byte 19714"]),
            (&|tree| tree.names[2] = (6, 2), &["the directory of inode 6", "the directory of inode 7"]),
            (
                &|tree| tree.names[3].1 = 7,
                &["the type of inode 8 at byte 2048 is damaged: expected 7, as a name says, found 1"],
            ),
            (&|tree| tree.above[3].1 = 6, &["the link count of inode 5", "the link count of inode 6"]),
            (&|tree| tree.above[3].1 = 8, &["the link count of inode 5", "inode 8 at byte 2048"]),
        ];
        for (change, expected) in cases {
            let mut tree = sound();
            change(&mut tree);
            let told = told(&tree);
            assert_eq!(told.len(), expected.len(), "{told:?}");
            expected.iter().zip(&told).for_each(|(expected, told)| assert!(told.starts_with(expected), "{told}"));
        }
    }
}
