//! Inodes that are written through names that they don't have any more, or never had.

use std::collections::{BTreeSet, hash_map::Entry};

use crate::{identity::NodeId, links::LinkKey, order::Map, reading::LinkedName};

/// All of them, and the directories that aren't ignored on their account: they tell when one is written, and don't name it.
#[derive(Debug, Default)]
pub(super) struct Aliens {
    by_inode: Map<LinkKey, Alien>,
    /// For how many each directory is heeded.
    heeded: Map<NodeId, usize>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Alien {
    pub(super) id: NodeId,
    pub(super) heeded: BTreeSet<NodeId>,
    /// What it added when it was looked at last.
    pub(super) seen: Option<LinkedName>,
}

impl Alien {
    fn of(id: NodeId) -> Alien {
        Alien { id, heeded: BTreeSet::new(), seen: None }
    }
}

impl Aliens {
    pub(super) fn is_empty(&self) -> bool {
        self.by_inode.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_inode.len()
    }

    pub(super) fn contains(&self, key: LinkKey) -> bool {
        self.by_inode.contains_key(&key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = LinkKey> + '_ {
        self.by_inode.keys().copied()
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (LinkKey, &Alien)> {
        self.by_inode.iter().map(|(&key, alien)| (key, alien))
    }

    pub(super) fn get(&self, key: LinkKey) -> Option<&Alien> {
        self.by_inode.get(&key)
    }

    pub(super) fn add(&mut self, key: LinkKey, id: NodeId) {
        self.by_inode.entry(key).or_insert_with(|| Alien::of(id));
    }

    /// It is written through a directory. True when that was heeded for none until now.
    pub(super) fn add_through(&mut self, key: LinkKey, id: NodeId, directory: NodeId) -> bool {
        let alien = self.by_inode.entry(key).or_insert_with(|| Alien::of(id));
        if !alien.heeded.insert(directory) {
            return false;
        }
        let count = self.heeded.entry(directory).or_default();
        *count += 1;
        *count == 1
    }

    /// It adds this now.
    pub(super) fn note(&mut self, key: LinkKey, seen: LinkedName) {
        if let Some(alien) = self.by_inode.get_mut(&key) {
            alien.seen = Some(seen);
        }
    }

    /// Gives the directories that are heeded for none any more.
    pub(super) fn remove(&mut self, key: LinkKey) -> Vec<NodeId> {
        let alien = self.by_inode.remove(&key);
        let mut ended = Vec::new();
        for directory in alien.into_iter().flat_map(|alien| alien.heeded) {
            if let Entry::Occupied(mut count) = self.heeded.entry(directory) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                    ended.push(directory);
                }
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ino: u64) -> NodeId {
        NodeId { ino, ..NodeId::default() }
    }

    fn key(ino: u64) -> LinkKey {
        LinkKey { subvolume: 0, ino }
    }

    #[test]
    fn a_directory_is_heeded_as_long_as_one_is_written_through_it() {
        let mut aliens = Aliens::default();
        assert!(aliens.add_through(key(1), id(1), id(10)));
        assert!(!aliens.add_through(key(1), id(1), id(10)), "it is heeded already");
        assert!(!aliens.add_through(key(2), id(2), id(10)));
        assert!(aliens.add_through(key(2), id(2), id(11)));
        aliens.add(key(3), id(3));
        assert_eq!(aliens.len(), 3);
        assert_eq!(aliens.remove(key(1)), []);
        assert_eq!(aliens.remove(key(1)), [], "it is gone");
        assert_eq!(aliens.remove(key(2)), [id(10), id(11)]);
        assert_eq!(aliens.remove(key(3)), []);
        assert!(aliens.is_empty() && aliens.heeded.is_empty());
    }
}
