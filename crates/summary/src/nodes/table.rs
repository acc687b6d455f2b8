//! The table of directories: what is kept of each, 49 bytes, and which numbers are free.

use super::{
    changes::Count,
    marks::{Mark, Marks},
    slots::{NONE, Slot},
    subvolumes::Subvolumes,
};
use crate::identity::NodeId;

const CHUNK: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    ino: u64,
    /// Of its last reading, by which it can be told whether it is still the same.
    pub(super) stamp: u64,
    generation: u32,
    /// Of its name, so that a rename is seen without a look into the store.
    pub(super) name: u32,
    pub(super) parent: u32,
    pub(super) first_child: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
    pub(super) changed: Count,
    pub(super) harvested: Count,
}

const _: () = assert!(size_of::<Node>() == 48);

impl Node {
    const UNUSED: Node = Node {
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
    };
}

#[derive(Debug, Default)]
pub(super) struct Table {
    // A vector that doubles would hold a tree of a million directories twice.
    chunks: Vec<Box<[Node]>>,
    pub(super) marks: Marks,
    pub(super) subvolumes: Subvolumes,
    free: Vec<u32>,
    used: usize,
}

impl Table {
    /// How many directories there are.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// A number that all directories have less than.
    pub(super) fn bound(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    pub(super) fn node(&self, slot: Slot) -> &Node {
        &self.chunks[slot.0 as usize / CHUNK][slot.0 as usize % CHUNK]
    }

    pub(super) fn node_mut(&mut self, slot: Slot) -> &mut Node {
        &mut self.chunks[slot.0 as usize / CHUNK][slot.0 as usize % CHUNK]
    }

    pub(super) fn is_used(&self, slot: Slot) -> bool {
        (slot.0 as usize) < self.bound() && self.marks.has(slot, Mark::USED)
    }

    pub(super) fn id(&self, slot: Slot) -> NodeId {
        let Node { ino, generation, .. } = *self.node(slot);
        NodeId { subvolume: self.subvolumes.of(slot.0), ino, generation }
    }

    /// A number that is free; `None` when there is no more.
    pub(super) fn take(&mut self) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            return Some(Slot(slot));
        }
        let next = u32::try_from(self.bound()).ok().filter(|&next| next < NONE - CHUNK as u32)?;
        self.add_chunk();
        self.free.extend((next + 1..next + CHUNK as u32).rev());
        Some(Slot(next))
    }

    /// Makes the table so long that it has this number.
    pub(super) fn reach(&mut self, slot: Slot) {
        while self.bound() <= slot.0 as usize {
            self.add_chunk();
        }
    }

    fn add_chunk(&mut self) {
        self.chunks.push(vec![Node::UNUSED; CHUNK].into());
        self.marks.resize(self.bound());
    }

    /// A number that is free stands for a directory, in none and with none in it, of the subvolume that has this place.
    pub(super) fn put(&mut self, slot: Slot, id: NodeId, subvolume: u16) {
        let NodeId { ino, generation, .. } = id;
        *self.node_mut(slot) = Node { ino, generation, ..Node::UNUSED };
        self.subvolumes.put(slot.0, subvolume);
        self.marks.start(slot);
        self.used += 1;
    }

    /// Its number is free again.
    pub(super) fn clear(&mut self, slot: Slot) {
        *self.node_mut(slot) = Node::UNUSED;
        self.marks.clear(slot);
        self.free.push(slot.0);
        self.used -= 1;
    }

    /// Every number that stands for nothing may be given out, the least first.
    pub(super) fn list_free(&mut self) {
        let numbers = (0..self.bound() as u32).rev();
        self.free = numbers.filter(|&slot| !self.is_used(Slot(slot))).collect();
    }
}
