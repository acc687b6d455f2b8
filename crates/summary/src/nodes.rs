//! The tree of directories in memory: who is in whom, and what has changed since it was harvested.
//!
//! Some 55 to 60 bytes a directory (49, and its place in the hash table): names and totals are in the store. A counter that only rises stands for the paper's `mtime`
//! and `dutime` (FastDu, 1.3): a directory is clean when its last change is before its last harvest, and dirty when both have
//! the same number, for a change that comes after the harvest took its number gets that number, too.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState},
};

use hashbrown::{HashTable, hash_table::Entry};

use crate::{identity::NodeId, mixing::mixed};

/// The number of a directory in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Something of each of many directories.
pub type SlotMap<V> = HashMap<Slot, V, BuildHasherDefault<SlotHasher>>;

/// Numbers of directories are given out one after the other, so nobody can choose some that collide.
#[derive(Debug, Default)]
pub struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        // The golden ratio: neighbours come far from each other.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What the tree knows of a directory of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Its inode.
    pub id: NodeId,
    /// The directory that it is in.
    pub parent: Option<Slot>,
    /// What its name hashes to.
    pub name: u32,
    /// The number of its last harvest.
    pub harvested: Count,
    /// The stamp of that.
    pub stamp: u64,
    /// It names inodes that have several names.
    pub has_links: bool,
}

/// What names hash to in one tree.
#[derive(Clone, Debug)]
pub struct NameHash(RandomState);

impl NameHash {
    /// Of a name.
    pub fn of(&self, name: &[u8]) -> u32 {
        self.0.hash_one(name) as u32
    }
}

/// Rises with each harvest: one a second would do for 136 years.
pub type Count = u32;

const NONE: u32 = u32::MAX;
const CHUNK: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Node {
    ino: u64,
    /// Of its last reading, by which it can be told whether it is still the same.
    stamp: u64,
    generation: u32,
    /// Of its name, so that a rename is seen without a look into the store.
    name: u32,
    parent: u32,
    first_child: u32,
    next: u32,
    previous: u32,
    changed: Count,
    harvested: Count,
}

const _: () = assert!(size_of::<Node>() == 48);

/// In use.
const USED: u8 = 1;
/// Something below has changed, or may have.
const BELOW: u8 = 1 << 1;
/// It names inodes that have several names.
const LINKS: u8 = 1 << 2;
/// It may name inodes that change where nothing is told; something below may.
const OPEN: u8 = 1 << 3;
const OPEN_BELOW: u8 = 1 << 4;

/// Directories by their numbers, and by their inodes.
#[derive(Debug)]
pub struct Nodes {
    // A vector that doubles would hold a tree of a million directories twice.
    chunks: Vec<Box<[Node]>>,
    marks: Vec<u8>,
    subvolumes: Subvolumes,
    free: Vec<u32>,
    used: usize,
    by_id: HashTable<u32>,
    names: NameHash,
    /// Nobody who makes directories knows it, so nobody can make many with the same hash.
    key: u64,
}

/// Which subvolume each is in.
#[derive(Debug, Default)]
struct Subvolumes {
    known: Vec<u64>,
    /// Where that of each stands in the list; none while all are in the first.
    places: Vec<u16>,
}

impl Subvolumes {
    fn of(&self, slot: u32) -> u64 {
        let place = self.places.get(slot as usize).copied().unwrap_or(0);
        self.known.get(usize::from(place)).copied().unwrap_or(0)
    }

    fn place(&mut self, subvolume: u64) -> Option<u16> {
        let known = self.known.iter().position(|&known| known == subvolume);
        let place = known.unwrap_or_else(|| {
            self.known.push(subvolume);
            self.known.len() - 1
        });
        u16::try_from(place).ok()
    }

    fn put(&mut self, slot: u32, place: u16) {
        let at = slot as usize;
        if place != 0 && self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        if let Some(there) = self.places.get_mut(at) {
            *there = place;
        }
    }
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
        let hasher = RandomState::new();
        Nodes {
            chunks: Vec::new(),
            marks: Vec::new(),
            subvolumes: Subvolumes::default(),
            free: Vec::new(),
            used: 0,
            by_id: HashTable::with_capacity(directories),
            key: hasher.hash_one("inodes"),
            names: NameHash(hasher),
        }
    }

    /// What names hash to here.
    pub fn name_hash(&self) -> &NameHash {
        &self.names
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.used
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn node(&self, slot: Slot) -> &Node {
        &self.chunks[slot.0 as usize / CHUNK][slot.0 as usize % CHUNK]
    }

    fn node_mut(&mut self, slot: Slot) -> &mut Node {
        &mut self.chunks[slot.0 as usize / CHUNK][slot.0 as usize % CHUNK]
    }

    /// The directory of an inode.
    pub fn find(&self, id: NodeId) -> Option<Slot> {
        self.by_id.find(self.hash(id), |&slot| self.id(Slot(slot)) == id).map(|&slot| Slot(slot))
    }

    /// The directories that are known under a number, whatever their subvolume and generation.
    pub fn numbered(&self, ino: u64) -> impl Iterator<Item = Slot> + '_ {
        let hashes = self.subvolumes.known.iter().map(move |&subvolume| hash(self.key, subvolume, ino));
        let mut found: Vec<Slot> = hashes.flat_map(|hash| self.by_id.iter_hash(hash)).map(|&slot| Slot(slot)).collect();
        // Others may have the same hash, and so come more than once.
        found.retain(|&slot| self.id(slot).ino == ino);
        found.sort_unstable();
        found.dedup();
        found.into_iter()
    }

    fn hash(&self, id: NodeId) -> u64 {
        hash(self.key, id.subvolume, id.ino)
    }

    fn has_mark(&self, slot: Slot, mark: u8) -> bool {
        self.marks[slot.0 as usize] & mark != 0
    }

    fn set_mark(&mut self, slot: Slot, mark: u8, is_set: bool) {
        let marks = &mut self.marks[slot.0 as usize];
        *marks = if is_set { *marks | mark } else { *marks & !mark };
    }

    /// True while the number stands for a directory.
    pub fn is_used(&self, slot: Slot) -> bool {
        self.marks.get(slot.0 as usize).is_some_and(|marks| marks & USED != 0)
    }

    /// Its inode.
    pub fn id(&self, slot: Slot) -> NodeId {
        id_of(&self.chunks, &self.subvolumes, slot.0)
    }

    /// The directory that it is in; `None` of the root, and of one that was taken out.
    pub fn parent(&self, slot: Slot) -> Option<Slot> {
        some(self.node(slot).parent)
    }

    /// The directories in it.
    pub fn children(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(some(self.node(slot).first_child), |&child| some(self.node(child).next))
    }

    /// It, the one that it is in, and so on up to the root.
    pub fn upwards(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(Some(slot), |&at| self.parent(at))
    }

    /// True when `below` is `above` or lies in it.
    pub fn contains(&self, above: Slot, below: Slot) -> bool {
        self.upwards(below).any(|at| at == above)
    }

    /// Directories above `below` that are dirty, up to and with `above`.
    pub fn dirty_between(&self, below: Slot, above: Slot) -> Vec<Slot> {
        let mut found = Vec::new();
        for at in self.upwards(below).skip(1) {
            found.extend(self.is_dirty(at).then_some(at));
            if at == above {
                break;
            }
        }
        found
    }

    /// It and all below, each before those in it.
    pub fn subtree(&self, slot: Slot) -> Vec<Slot> {
        let mut found = vec![slot];
        let mut at = 0;
        while let Some(&next) = found.get(at) {
            found.extend(self.children(next));
            at += 1;
        }
        found
    }

    /// A directory that was not known, never harvested and so dirty. `None` when there are more than 4 billion, or more than
    /// 65,535 subvolumes.
    pub fn add(&mut self, id: NodeId, parent: Option<Slot>) -> Option<Slot> {
        let subvolume = self.subvolumes.place(id.subvolume)?;
        let slot = match self.free.pop() {
            Some(slot) => Slot(slot),
            None => {
                let next = u32::try_from(self.chunks.len() * CHUNK).ok().filter(|&next| next < NONE - CHUNK as u32)?;
                self.add_chunk();
                self.free.extend((next + 1..next + CHUNK as u32).rev());
                Slot(next)
            }
        };
        let hashed = self.hash(id);
        self.put(slot, id, subvolume);
        let Self { chunks, subvolumes, by_id, key, .. } = self;
        by_id.insert_unique(hashed, slot.0, |&slot| hash_of(chunks, subvolumes, *key, slot));
        if let Some(parent) = parent {
            self.attach(slot, parent);
        }
        Some(slot)
    }

    fn add_chunk(&mut self) {
        self.chunks.push(vec![Node::unused(); CHUNK].into());
        self.marks.resize(self.chunks.len() * CHUNK, 0);
    }

    /// A directory of the store, under the number that it has there. False when the number or the inode is there already.
    /// [`restored`](Self::restored) comes after the last one.
    pub fn restore(&mut self, slot: Slot, known: &Known) -> bool {
        let Known { id, parent, name, harvested, stamp, has_links } = *known;
        while self.bound() <= slot.0 as usize {
            self.add_chunk();
        }
        let Some(subvolume) = self.subvolumes.place(id.subvolume) else { return false };
        let (is_used, hashed) = (self.is_used(slot), self.hash(id));
        let Self { chunks, subvolumes, by_id, key, .. } = self;
        let is_it = |&known: &u32| id_of(chunks, subvolumes, known) == id;
        match by_id.entry(hashed, is_it, |&slot| hash_of(chunks, subvolumes, *key, slot)) {
            Entry::Vacant(entry) if !is_used => _ = entry.insert(slot.0),
            _ => return false,
        }
        self.put(slot, id, subvolume);
        let node = self.node_mut(slot);
        (node.harvested, node.stamp, node.name) = (harvested, stamp, name);
        node.parent = parent.map_or(NONE, |parent| parent.0);
        self.set_links(slot, has_links);
        true
    }

    /// Puts all that were restored into those that they are in; numbers that are free may be given out from now on. The error is
    /// one that is in none that is known, or in itself.
    pub fn restored(&mut self) -> Result<(), Slot> {
        let numbers = (0..self.bound() as u32).rev();
        self.free = numbers.filter(|&slot| !self.is_used(Slot(slot))).collect();
        let mut dirty = Vec::new();
        for number in 0..self.bound() as u32 {
            let slot = Slot(number);
            let Some(parent) = self.is_used(slot).then(|| self.parent(slot)).flatten() else { continue };
            if !self.is_used(parent) {
                return Err(slot);
            }
            self.link(slot, parent);
            dirty.extend(self.is_dirty(slot).then_some(slot));
        }
        // Whoever lies in itself is below none that is in none.
        let tops: Vec<Slot> = self.all().filter(|&slot| self.parent(slot).is_none()).collect();
        let (mut left, mut reached) = (tops, 0);
        while let Some(at) = left.pop() {
            reached += 1;
            left.extend(self.children(at));
        }
        if reached < self.used {
            let is_endless = |slot: &Slot| self.upwards(*slot).nth(self.used).is_some();
            return self.all().find(is_endless).map_or(Ok(()), Err);
        }
        dirty.into_iter().for_each(|slot| self.mark_above(slot, BELOW));
        Ok(())
    }

    fn put(&mut self, slot: Slot, id: NodeId, subvolume: u16) {
        let NodeId { ino, generation, .. } = id;
        *self.node_mut(slot) = Node { ino, generation, ..Node::unused() };
        self.subvolumes.put(slot.0, subvolume);
        self.marks[slot.0 as usize] = USED;
        self.used += 1;
    }

    /// Puts a directory that is in none into another.
    pub fn attach(&mut self, slot: Slot, parent: Slot) {
        debug_assert!(self.parent(slot).is_none() && !self.contains(slot, parent));
        self.link(slot, parent);
        if self.may_be_outdated(slot) {
            self.mark_above(slot, BELOW);
        }
        if self.may_have_open(slot) {
            self.mark_above(slot, OPEN_BELOW);
        }
    }

    fn link(&mut self, slot: Slot, parent: Slot) {
        let first = self.node(parent).first_child;
        if let Some(first) = some(first) {
            self.node_mut(first).previous = slot.0;
        }
        self.node_mut(parent).first_child = slot.0;
        let node = self.node_mut(slot);
        (node.parent, node.next, node.previous) = (parent.0, first, NONE);
    }

    /// Takes a directory, with all below, out of the one that it is in.
    pub fn detach(&mut self, slot: Slot) {
        let Node { parent, next, previous, .. } = *self.node(slot);
        match (some(previous), some(parent)) {
            (Some(previous), _) => self.node_mut(previous).next = next,
            (None, Some(parent)) => self.node_mut(parent).first_child = next,
            (None, None) => {}
        }
        if let Some(next) = some(next) {
            self.node_mut(next).previous = previous;
        }
        let node = self.node_mut(slot);
        (node.parent, node.next, node.previous) = (NONE, NONE, NONE);
    }

    /// Forgets a directory that is in none and has none in it.
    pub fn remove(&mut self, slot: Slot) {
        debug_assert!(self.parent(slot).is_none() && self.children(slot).next().is_none());
        let hash = self.hash(self.id(slot));
        if let Ok(found) = self.by_id.find_entry(hash, |&at| at == slot.0) {
            found.remove();
        }
        *self.node_mut(slot) = Node::unused();
        self.marks[slot.0 as usize] = 0;
        self.free.push(slot.0);
        self.used -= 1;
    }

    /// Its entries changed while the counter stood at `now`. All above learn that something below has, up to the first that
    /// knows it already (the paper's delayed propagation).
    pub fn mark_changed(&mut self, slot: Slot, now: Count) {
        let node = self.node_mut(slot);
        node.changed = node.changed.max(now);
        self.mark_above(slot, BELOW);
    }

    fn mark_above(&mut self, slot: Slot, mark: u8) {
        let mut at = self.parent(slot);
        while let Some(above) = at {
            if self.has_mark(above, mark) {
                break;
            }
            self.set_mark(above, mark, true);
            at = self.parent(above);
        }
    }

    /// It may name inodes that change where nothing is told. All above learn that something below may, as they do of changes.
    pub fn mark_open(&mut self, slot: Slot) {
        if self.is_used(slot) {
            self.set_mark(slot, OPEN, true);
            self.mark_above(slot, OPEN_BELOW);
        }
    }

    /// It doesn't any more.
    pub fn close(&mut self, slot: Slot) {
        self.set_mark(slot, OPEN, false);
    }

    /// Whether it or something below may name such inodes.
    pub fn may_have_open(&self, slot: Slot) -> bool {
        self.has_mark(slot, OPEN | OPEN_BELOW)
    }

    /// The directories that may, it and those below. Marks that stand for nothing any more are taken away.
    pub fn open_below(&mut self, slot: Slot) -> Vec<Slot> {
        let mut open = Vec::new();
        // A directory comes twice: before those in it, and after them.
        let mut path = vec![(slot, false)];
        while let Some((at, is_done)) = path.pop() {
            if is_done {
                let still = self.children(at).any(|child| self.may_have_open(child));
                self.set_mark(at, OPEN_BELOW, still);
                continue;
            }
            open.extend(self.has_mark(at, OPEN).then_some(at));
            if self.has_mark(at, OPEN_BELOW) {
                path.push((at, true));
                path.extend(self.children(at).filter(|&child| self.may_have_open(child)).map(|child| (child, false)));
            }
        }
        open
    }

    /// A harvest that took the number `count` has read it.
    pub fn mark_harvested(&mut self, slot: Slot, count: Count) {
        let node = self.node_mut(slot);
        node.harvested = node.harvested.max(count);
    }

    /// The stamp of its last reading; 0 where that says nothing.
    pub fn stamp(&self, slot: Slot) -> u64 {
        self.node(slot).stamp
    }

    /// Notes the stamp of its last reading.
    pub fn set_stamp(&mut self, slot: Slot, stamp: u64) {
        self.node_mut(slot).stamp = stamp;
    }

    /// A number that all directories have less than.
    pub fn bound(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// All subvolumes of which there are directories.
    pub fn subvolumes(&self) -> &[u64] {
        &self.subvolumes.known
    }

    /// Whether its own entries have changed since they were harvested: only then they have to be read.
    pub fn is_dirty(&self, slot: Slot) -> bool {
        let node = self.node(slot);
        node.changed >= node.harvested
    }

    /// Whether it was ever harvested.
    pub fn is_harvested(&self, slot: Slot) -> bool {
        self.node(slot).harvested > 0
    }

    /// The numbers of its last change and of its last harvest.
    pub fn counts(&self, slot: Slot) -> (Count, Count) {
        (self.node(slot).changed, self.node(slot).harvested)
    }

    /// Whether it or something below has to be harvested before its totals are true. As quick for a large tree as for a small.
    pub fn may_be_outdated(&self, slot: Slot) -> bool {
        self.has_mark(slot, BELOW) || self.is_dirty(slot)
    }

    /// All directories.
    pub fn all(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.bound() as u32).map(Slot).filter(|&slot| self.is_used(slot))
    }

    /// The dirty directories, it and those below. Marks that stand for nothing any more are taken away.
    pub fn dirty_below(&mut self, slot: Slot) -> Vec<Slot> {
        let mut dirty = Vec::new();
        // A directory comes twice: before those in it, and after them.
        let mut path = vec![(slot, false)];
        while let Some((at, is_done)) = path.pop() {
            if is_done {
                let still = self.children(at).any(|child| self.may_be_outdated(child));
                if !still {
                    self.set_mark(at, BELOW, false);
                }
                continue;
            }
            if self.is_dirty(at) {
                dirty.push(at);
            }
            if self.has_mark(at, BELOW) {
                path.push((at, true));
                path.extend(self.children(at).filter(|&child| self.may_be_outdated(child)).map(|child| (child, false)));
            }
        }
        dirty
    }

    /// How many of these there are.
    pub fn count_dirty_below(&self, slot: Slot) -> usize {
        let (mut count, mut left) = (0, vec![slot]);
        while let Some(at) = left.pop() {
            count += usize::from(self.is_dirty(at));
            if self.has_mark(at, BELOW) {
                left.extend(self.children(at).filter(|&child| self.may_be_outdated(child)));
            }
        }
        count
    }

    /// Notes its name, and tells whether it had another before.
    pub fn set_name(&mut self, slot: Slot, name: &[u8]) -> bool {
        let hash = self.names.of(name);
        std::mem::replace(&mut self.node_mut(slot).name, hash) != hash
    }

    /// Whether it names inodes that have several names.
    pub fn has_links(&self, slot: Slot) -> bool {
        self.has_mark(slot, LINKS)
    }

    /// Notes whether it does.
    pub fn set_links(&mut self, slot: Slot, has: bool) {
        self.set_mark(slot, LINKS, has);
    }
}

impl Node {
    fn unused() -> Node {
        Node {
            ino: 0,
            stamp: 0,
            generation: 0,
            name: 0,
            parent: NONE,
            first_child: NONE,
            next: NONE,
            previous: NONE,
            changed: 0,
            harvested: 0,
        }
    }
}

fn id_of(chunks: &[Box<[Node]>], subvolumes: &Subvolumes, slot: u32) -> NodeId {
    let Node { ino, generation, .. } = chunks[slot as usize / CHUNK][slot as usize % CHUNK];
    NodeId { subvolume: subvolumes.of(slot), ino, generation }
}

fn hash_of(chunks: &[Box<[Node]>], subvolumes: &Subvolumes, key: u64, slot: u32) -> u64 {
    let NodeId { subvolume, ino, .. } = id_of(chunks, subvolumes, slot);
    hash(key, subvolume, ino)
}

/// Without the generation, so that a number alone is found, too.
fn hash(key: u64, subvolume: u64, ino: u64) -> u64 {
    mixed(mixed(ino ^ key) ^ subvolume)
}

fn some(slot: u32) -> Option<Slot> {
    (slot != NONE).then_some(Slot(slot))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(ino: u64) -> NodeId {
        NodeId { subvolume: 0, ino, generation: 7 }
    }

    /// root(1) ┬ a(2) ─ b(3)
    ///         └ c(4)
    fn small() -> (Nodes, [Slot; 4]) {
        let mut nodes = Nodes::new();
        let root = nodes.add(id(1), None).unwrap();
        let a = nodes.add(id(2), Some(root)).unwrap();
        let b = nodes.add(id(3), Some(a)).unwrap();
        let c = nodes.add(id(4), Some(root)).unwrap();
        (nodes, [root, a, b, c])
    }

    #[test]
    fn open_inodes_are_known_above_until_they_are_closed() {
        let (mut nodes, [root, a, b, c]) = small();
        let which = |nodes: &Nodes| [root, a, b, c].map(|slot| nodes.may_have_open(slot));
        nodes.mark_open(b);
        assert_eq!(which(&nodes), [true, true, true, false]);
        assert_eq!(nodes.open_below(root), [b]);
        assert_eq!(nodes.open_below(c), []);
        // They go along.
        nodes.detach(b);
        nodes.attach(b, c);
        assert_eq!(nodes.open_below(root), [b]);
        assert_eq!(which(&nodes), [true, false, true, true]);
        nodes.close(b);
        assert_eq!(nodes.open_below(root), []);
        assert_eq!(which(&nodes), [false; 4]);
    }

    fn harvest(nodes: &mut Nodes, slots: &[Slot], count: Count) {
        slots.iter().for_each(|&slot| nodes.mark_harvested(slot, count));
    }

    #[test]
    fn new_directories_are_dirty_and_harvested_ones_clean() {
        let (mut nodes, all @ [root, a, b, c]) = small();
        let mut dirty = nodes.dirty_below(root);
        dirty.sort();
        assert_eq!(dirty, all);
        harvest(&mut nodes, &all, 1);
        assert_eq!(nodes.dirty_below(root), []);
        assert!(!nodes.may_be_outdated(root));
        nodes.mark_changed(b, 1);
        assert!([root, a, b].iter().all(|&slot| nodes.may_be_outdated(slot)) && !nodes.may_be_outdated(c));
        assert!(!nodes.is_dirty(root) && !nodes.is_dirty(a), "their own entries are as they were");
        assert_eq!(nodes.dirty_below(a), [b]);
        nodes.mark_harvested(b, 2);
        assert_eq!(nodes.dirty_below(root), []);
        assert!(!nodes.may_be_outdated(root));
    }

    #[test]
    fn a_change_while_it_is_harvested_leaves_it_dirty() {
        let (mut nodes, all @ [root, _, b, _]) = small();
        harvest(&mut nodes, &all, 1);
        nodes.dirty_below(root);
        // The harvest takes its number, then something changes, then the harvest ends.
        nodes.mark_changed(b, 2);
        nodes.mark_harvested(b, 2);
        assert_eq!(nodes.dirty_below(root), [b]);
        nodes.mark_harvested(b, 3);
        assert_eq!(nodes.dirty_below(root), []);
    }

    #[test]
    fn a_dirty_directory_makes_known_where_it_goes() {
        let (mut nodes, all @ [root, a, b, c]) = small();
        harvest(&mut nodes, &all, 1);
        nodes.dirty_below(root);
        nodes.mark_changed(b, 1);
        nodes.detach(b);
        nodes.attach(b, c);
        assert_eq!(nodes.upwards(b).collect::<Vec<_>>(), [b, c, root]);
        assert!(nodes.contains(c, b) && !nodes.contains(a, b));
        assert!(nodes.may_be_outdated(c));
        assert_eq!(nodes.dirty_below(c), [b]);
        assert_eq!(nodes.dirty_below(a), []);
        assert!(!nodes.may_be_outdated(a));
    }

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

    #[test]
    fn a_store_is_read_back_in_any_order() {
        let mut nodes = Nodes::new();
        let known = |ino, parent| Known { id: id(ino), parent, harvested: 4, ..Known::default() };
        assert!(nodes.restore(Slot(5000), &known(2, Some(Slot(1)))));
        assert!(nodes.restore(Slot(1), &known(1, None)));
        assert!(!nodes.restore(Slot(1), &known(8, None)), "taken");
        assert!(!nodes.restore(Slot(7), &known(2, None)), "there under another number");
        assert!(!nodes.is_used(Slot(7)));
        assert!(nodes.restore(Slot(9), &Known { harvested: 0, ..known(5, Some(Slot(5000))) }));
        assert_eq!(nodes.restored(), Ok(()));
        assert_eq!(nodes.upwards(Slot(9)).collect::<Vec<_>>(), [Slot(9), Slot(5000), Slot(1)]);
        assert_eq!(nodes.dirty_below(Slot(1)), [Slot(9)], "it was never harvested");
        nodes.mark_harvested(Slot(9), 5);
        assert_eq!(nodes.dirty_below(Slot(1)), []);
        assert_eq!(nodes.add(id(3), Some(Slot(1))), Some(Slot(0)));
        assert_eq!(nodes.add(id(4), Some(Slot(1))), Some(Slot(2)));
    }

    #[test]
    fn a_store_that_makes_no_tree_is_refused() {
        let known = |ino, parent| Known { id: id(ino), parent: Some(Slot(parent)), harvested: 1, ..Known::default() };
        let tree = |places: &[(u32, u32)]| {
            let mut nodes = Nodes::new();
            assert!(nodes.restore(Slot(0), &Known { parent: None, ..known(0, 0) }));
            for &(slot, parent) in places {
                assert!(nodes.restore(Slot(slot), &known(slot.into(), parent)));
            }
            nodes.restored()
        };
        assert_eq!(tree(&[(1, 0), (2, 1)]), Ok(()));
        assert_eq!(tree(&[(1, 0), (2, 3)]), Err(Slot(2)), "in none that is known");
        assert_eq!(tree(&[(1, 0), (5000, 1), (2, 9000)]), Err(Slot(2)));
        assert_eq!(tree(&[(1, 0), (2, 2)]), Err(Slot(2)), "in itself");
        assert!(tree(&[(1, 0), (2, 4), (3, 2), (4, 3)]).is_err(), "one in the other, all around");
    }

    proptest! {
        /// Whatever is added, moved, changed and harvested: the marks find just what is dirty, as a search of everything does.
        #[test]
        fn marks_find_what_is_dirty(steps in proptest::collection::vec((0..6_u8, any::<u16>(), any::<u16>()), 1..200)) {
            let mut nodes = Nodes::new();
            let root = nodes.add(id(0), None).unwrap();
            let (mut all, mut now) = (vec![root], 1);
            for (number, (step, one, other)) in steps.into_iter().enumerate() {
                let pick = |of: u16| all[of as usize % all.len()];
                match step {
                    0 => all.push(nodes.add(id(number as u64 + 1), Some(pick(one))).unwrap()),
                    1 => nodes.mark_changed(pick(one), now),
                    2 => {
                        now += 1;
                        for slot in nodes.dirty_below(pick(one)) {
                            nodes.mark_harvested(slot, now);
                        }
                    }
                    3 => {
                        now += 1;
                        nodes.mark_harvested(pick(one), now);
                    }
                    4 if pick(one) != root && !nodes.contains(pick(one), pick(other)) => {
                        nodes.detach(pick(one));
                        nodes.attach(pick(one), pick(other));
                    }
                    5 if pick(one) != root => {
                        let gone = nodes.subtree(pick(one));
                        nodes.detach(pick(one));
                        for &slot in gone.iter().rev() {
                            if nodes.parent(slot).is_some() {
                                nodes.detach(slot);
                            }
                            nodes.remove(slot);
                        }
                        all.retain(|slot| !gone.contains(slot));
                    }
                    _ => {}
                }
                for &slot in &all {
                    let below = nodes.subtree(slot);
                    let is_outdated = below.iter().any(|&at| nodes.is_dirty(at));
                    prop_assert!(nodes.may_be_outdated(slot) || !is_outdated, "a change below is never missed");
                    prop_assert_eq!(nodes.find(nodes.id(slot)), Some(slot));
                }
            }
            let mut expected: Vec<Slot> = all.iter().copied().filter(|&slot| nodes.is_dirty(slot)).collect();
            prop_assert_eq!(nodes.count_dirty_below(root), expected.len());
            let mut found = nodes.dirty_below(root);
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
            for &slot in &all {
                let is_outdated = nodes.subtree(slot).iter().any(|&at| nodes.is_dirty(at));
                prop_assert_eq!(nodes.may_be_outdated(slot), is_outdated, "no mark is left over");
            }
        }
    }
}
