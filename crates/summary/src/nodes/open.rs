//! Open inodes: which directories may name some that change where nothing is told.

use super::{Nodes, marks::Mark, slots::Slot};

impl Nodes {
    /// It may name inodes that change where nothing is told. All above learn that something below may, as they do of changes.
    pub fn mark_open(&mut self, slot: Slot) {
        if self.is_used(slot) {
            self.set_mark(slot, Mark::OPEN, true);
            self.mark_above(slot, Mark::OPEN_BELOW);
        }
    }

    /// It doesn't any more.
    pub fn close(&mut self, slot: Slot) {
        self.set_mark(slot, Mark::OPEN, false);
    }

    /// Whether it or something below may name such inodes.
    pub fn may_have_open(&self, slot: Slot) -> bool {
        self.has_mark(slot, Mark::OPEN) || self.has_mark(slot, Mark::OPEN_BELOW)
    }

    /// The directories that may, it and those below. Marks that stand for nothing any more are taken away.
    pub fn open_below(&mut self, slot: Slot) -> Vec<Slot> {
        self.marked_below(slot, Mark::OPEN_BELOW, |nodes, at| nodes.has_mark(at, Mark::OPEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::sample::small;

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
}
