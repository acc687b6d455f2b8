//! The tree of directories in memory: who is in whom, and what has changed since it was harvested.
//!
//! Some 55 to 60 bytes a directory (49 in the table, and its place in the hash table by inodes): names and totals are in the store.

mod by_inode;
mod changes;
mod marks;
mod name_hash;
mod open;
mod restoring;
#[cfg(test)]
mod sample;
mod slots;
mod subvolumes;
mod table;
mod tree;
mod unsure;

use std::hash::BuildHasher;

use self::{by_inode::ByInode, marks::Mark, table::Table};
pub use self::{
    changes::Count,
    name_hash::NameHash,
    restoring::{Known, Unfit},
    slots::{Slot, SlotHasher, SlotMap},
};
use crate::{identity::NodeId, order::Order};

/// Directories by their numbers, and by their inodes.
#[derive(Debug)]
pub struct Nodes {
    table: Table,
    by_inode: ByInode,
    /// Directories that were restored and aren't in the table by inodes yet.
    unclaimed: Vec<(u64, Slot)>,
    names: NameHash,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes::new()
    }
}

impl Nodes {
    /// No directory.
    pub fn new() -> Nodes {
        Nodes::with_room(0)
    }

    /// The same with room for so many, so that the hash table needs not grow.
    pub(crate) fn with_room(directories: usize) -> Nodes {
        let hasher = Order::default();
        Nodes {
            table: Table::default(),
            by_inode: ByInode::with_room(directories, hasher.hash_one("inodes")),
            unclaimed: Vec::new(),
            names: NameHash(hasher),
        }
    }

    /// What names hash to here.
    pub fn name_hash(&self) -> &NameHash {
        &self.names
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The directory of an inode.
    pub fn find(&self, id: NodeId) -> Option<Slot> {
        self.by_inode.find(&self.table, id)
    }

    /// The directories that are known under a number, whatever their subvolume and generation.
    pub fn numbered(&self, ino: u64) -> impl Iterator<Item = Slot> + '_ {
        self.by_inode.numbered(&self.table, ino).into_iter()
    }

    /// True while the number stands for a directory.
    pub fn is_used(&self, slot: Slot) -> bool {
        self.table.is_used(slot)
    }

    /// Its inode.
    pub fn id(&self, slot: Slot) -> NodeId {
        self.table.id(slot)
    }

    /// A directory that was not known, never harvested and so dirty. `None` when there are more than 4 billion, or more than
    /// 65,535 subvolumes.
    pub fn add(&mut self, id: NodeId, parent: Option<Slot>) -> Option<Slot> {
        let subvolume = self.table.subvolumes.place(id.subvolume)?;
        let slot = self.table.take()?;
        self.table.put(slot, id, subvolume);
        self.by_inode.insert(&self.table, slot);
        if let Some(parent) = parent {
            self.attach(slot, parent);
        }
        Some(slot)
    }

    /// Forgets a directory that is in none and has none in it.
    pub fn remove(&mut self, slot: Slot) {
        debug_assert!(self.parent(slot).is_none() && self.children(slot).next().is_none());
        self.by_inode.remove(&self.table, slot);
        self.table.clear(slot);
    }

    /// A number that all directories have less than.
    pub fn bound(&self) -> usize {
        self.table.bound()
    }

    /// All directories.
    pub fn all(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.bound() as u32).map(Slot).filter(|&slot| self.is_used(slot))
    }

    /// All subvolumes of which there are directories.
    pub fn subvolumes(&self) -> &[u64] {
        self.table.subvolumes.known()
    }

    /// The stamp of its last reading; 0 where that says nothing.
    pub fn stamp(&self, slot: Slot) -> u64 {
        self.table.node(slot).stamp
    }

    /// Notes the stamp of its last reading.
    pub fn set_stamp(&mut self, slot: Slot, stamp: u64) {
        self.table.node_mut(slot).stamp = stamp;
    }

    /// Notes its name, and tells whether it had another before.
    pub fn set_name(&mut self, slot: Slot, name: &[u8]) -> bool {
        let hash = self.names.of(name);
        std::mem::replace(&mut self.table.node_mut(slot).name, hash) != hash
    }

    /// Whether it names inodes that have several names.
    pub fn has_links(&self, slot: Slot) -> bool {
        self.has_mark(slot, Mark::LINKS)
    }

    /// Notes whether it does.
    pub fn set_links(&mut self, slot: Slot, has: bool) {
        self.set_mark(slot, Mark::LINKS, has);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        sample::{id, small},
        *,
    };

    #[test]
    fn a_removed_one_is_unknown_and_its_number_free() {
        let (mut nodes, [root, a, b, c]) = small();
        nodes.detach(b);
        nodes.remove(b);
        assert_eq!((nodes.find(id(3)), nodes.len(), nodes.is_used(b)), (None, 3, false));
        let again = nodes.add(id(9), Some(a)).unwrap();
        assert_eq!((again, nodes.find(id(9))), (b, Some(b)));
        assert_eq!(nodes.children(root).collect::<Vec<_>>(), [c, a]);
    }

    #[test]
    fn a_number_alone_is_found() {
        let (mut nodes, [root, a, ..]) = small();
        let other = nodes.add(NodeId { subvolume: 300, ino: 2, generation: 9 }, Some(root)).unwrap();
        let again = nodes.add(NodeId { subvolume: 0, ino: 2, generation: 8 }, Some(root)).unwrap();
        assert_eq!(nodes.numbered(2).collect::<Vec<_>>(), [a, other, again]);
        assert_eq!(nodes.numbered(77).next(), None);
    }
}
