//! The tree: which directory is in which.

use super::{
    Nodes,
    marks::Mark,
    slots::{NONE, Slot, some},
    table::Node,
};

impl Nodes {
    /// The directory that it is in; `None` of the root, and of one that was taken out.
    pub fn parent(&self, slot: Slot) -> Option<Slot> {
        some(self.table.node(slot).parent)
    }

    /// The directories in it.
    pub fn children(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(some(self.table.node(slot).first_child), |&child| some(self.table.node(child).next))
    }

    /// It, the one that it is in, and so on up to the root.
    pub fn upwards(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(Some(slot), |&at| self.parent(at))
    }

    /// True when `below` is `above` or lies in it.
    pub fn contains(&self, above: Slot, below: Slot) -> bool {
        self.upwards(below).any(|at| at == above)
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

    /// Puts a directory that is in none into another.
    pub fn attach(&mut self, slot: Slot, parent: Slot) {
        debug_assert!(self.parent(slot).is_none() && !self.contains(slot, parent));
        self.link(slot, parent);
        if self.may_be_outdated(slot) {
            self.mark_above(slot, Mark::BELOW);
        }
        if self.may_have_open(slot) {
            self.mark_above(slot, Mark::OPEN_BELOW);
        }
        if self.may_be_unsure(slot) {
            self.mark_above(slot, Mark::UNSURE_BELOW);
        }
    }

    pub(super) fn link(&mut self, slot: Slot, parent: Slot) {
        let first = self.table.node(parent).first_child;
        if let Some(first) = some(first) {
            self.table.node_mut(first).previous = slot.0;
        }
        self.table.node_mut(parent).first_child = slot.0;
        let node = self.table.node_mut(slot);
        (node.parent, node.next, node.previous) = (parent.0, first, NONE);
    }

    /// Takes a directory, with all below, out of the one that it is in.
    pub fn detach(&mut self, slot: Slot) {
        let Node { parent, next, previous, .. } = *self.table.node(slot);
        match (some(previous), some(parent)) {
            (Some(previous), _) => self.table.node_mut(previous).next = next,
            (None, Some(parent)) => self.table.node_mut(parent).first_child = next,
            (None, None) => {}
        }
        if let Some(next) = some(next) {
            self.table.node_mut(next).previous = previous;
        }
        let node = self.table.node_mut(slot);
        (node.parent, node.next, node.previous) = (NONE, NONE, NONE);
    }
}
