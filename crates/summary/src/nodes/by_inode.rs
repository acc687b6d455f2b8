//! The hash table that finds a directory by its inode.

use hashbrown::{HashTable, hash_table::Entry};

use super::{slots::Slot, table::Table};
use crate::{identity::NodeId, mixing::mixed};

/// Numbers of directories; their inodes are in the table of directories.
#[derive(Debug)]
pub(super) struct ByInode {
    slots: HashTable<u32>,
    key: Key,
}

/// Nobody who makes directories knows it, so nobody can make many with the same hash.
#[derive(Clone, Copy, Debug)]
struct Key(u64);

impl Key {
    /// Without the generation, so that a number alone is found, too.
    fn hash(self, subvolume: u64, ino: u64) -> u64 {
        mixed(mixed(ino ^ self.0) ^ subvolume)
    }

    fn hash_of(self, id: NodeId) -> u64 {
        self.hash(id.subvolume, id.ino)
    }
}

impl ByInode {
    pub(super) fn with_room(directories: usize, key: u64) -> ByInode {
        ByInode { slots: HashTable::with_capacity(directories), key: Key(key) }
    }

    pub(super) fn find(&self, table: &Table, id: NodeId) -> Option<Slot> {
        self.slots.find(self.key.hash_of(id), |&slot| table.id(Slot(slot)) == id).map(|&slot| Slot(slot))
    }

    /// All with a number of inodes, in the order of their slots.
    pub(super) fn numbered(&self, table: &Table, ino: u64) -> Vec<Slot> {
        let hashes = table.subvolumes.known().iter().map(|&subvolume| self.key.hash(subvolume, ino));
        let mut found: Vec<Slot> = hashes.flat_map(|hash| self.slots.iter_hash(hash)).map(|&slot| Slot(slot)).collect();
        // Others may have the same hash, and so come more than once.
        found.retain(|&slot| table.id(slot).ino == ino);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// One of the table that wasn't found.
    pub(super) fn insert(&mut self, table: &Table, slot: Slot) {
        let Self { slots, key } = self;
        slots.insert_unique(key.hash_of(table.id(slot)), slot.0, |&slot| key.hash_of(table.id(Slot(slot))));
    }

    /// Many that are in the table, in the order of their places here, which are anywhere for those that come one after the other: so
    /// each piece of memory is waited for once. One whose inode is there already ends it.
    pub(super) fn claim_all(&mut self, table: &Table, wanted: &mut Vec<(u64, Slot)>) -> Result<(), Slot> {
        let Self { slots, key } = self;
        // As the hash table has it; in any other order it only takes longer.
        let last = (slots.num_buckets() as u64).wrapping_sub(1);
        wanted.sort_unstable_by_key(|(hash, _)| hash & last);
        for (hash, slot) in wanted.drain(..) {
            let is_it = |&known: &u32| table.id(Slot(known)) == table.id(slot);
            match slots.entry(hash, is_it, |&slot| key.hash_of(table.id(Slot(slot)))) {
                Entry::Vacant(entry) => _ = entry.insert(slot.0),
                Entry::Occupied(_) => return Err(slot),
            }
        }
        Ok(())
    }

    /// What the number of an inode hashes to here.
    pub(super) fn hash(&self, id: NodeId) -> u64 {
        self.key.hash_of(id)
    }

    /// One that is still in the table.
    pub(super) fn remove(&mut self, table: &Table, slot: Slot) {
        if let Ok(found) = self.slots.find_entry(self.key.hash_of(table.id(slot)), |&at| at == slot.0) {
            found.remove();
        }
    }
}
