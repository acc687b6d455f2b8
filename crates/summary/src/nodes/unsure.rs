//! Directories that may have been closed to somebody since they were read, or out of which one may have moved: whoever doesn't see all is
//! shown them by what they are now, until they are read again.

use super::{Nodes, marks::Mark, slots::Slot};

impl Nodes {
    /// Who may look into it may be others than stored, and directories in it may be elsewhere. All above learn that of something below.
    pub fn mark_unsure(&mut self, slot: Slot) {
        self.set_mark(slot, Mark::UNSURE, true);
        self.mark_above(slot, Mark::UNSURE_BELOW);
    }

    /// Both are as stored.
    pub fn be_sure(&mut self, slot: Slot) {
        self.set_mark(slot, Mark::UNSURE, false);
    }

    /// Whether that holds of it.
    pub fn is_unsure(&self, slot: Slot) -> bool {
        self.has_mark(slot, Mark::UNSURE)
    }

    /// Whether it may hold of it or of something below. As quick for a large tree as for a small.
    pub fn may_be_unsure(&self, slot: Slot) -> bool {
        self.is_unsure(slot) || self.has_mark(slot, Mark::UNSURE_BELOW)
    }

    /// Whether it may have moved out of the one that it is stored in.
    pub fn may_be_elsewhere(&self, slot: Slot) -> bool {
        self.parent(slot).is_some_and(|above| self.is_unsure(above))
    }

    /// The directories of which it holds, it and those below. Marks that stand for nothing any more are taken away.
    pub fn unsure_below(&mut self, slot: Slot) -> Vec<Slot> {
        if !self.may_be_unsure(slot) {
            return Vec::new();
        }
        self.marked_below(slot, Mark::UNSURE_BELOW, Nodes::is_unsure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::sample::small;

    #[test]
    fn what_is_unsure_is_known_above_until_it_is_sure() {
        let (mut nodes, [root, a, b, c]) = small();
        let which = |nodes: &Nodes| [root, a, b, c].map(|slot| nodes.may_be_unsure(slot));
        assert_eq!(which(&nodes), [false; 4], "of a new one nothing was told");
        nodes.mark_unsure(a);
        assert_eq!(which(&nodes), [true, true, false, false]);
        assert_eq!([root, a, b, c].map(|slot| nodes.may_be_elsewhere(slot)), [false, false, true, false]);
        nodes.mark_unsure(b);
        // They go along.
        nodes.detach(b);
        nodes.attach(b, c);
        assert_eq!(which(&nodes), [true; 4]);
        nodes.be_sure(a);
        assert_eq!(nodes.unsure_below(root), [b]);
        assert_eq!(which(&nodes), [true, false, true, true]);
        nodes.be_sure(b);
        assert_eq!(nodes.unsure_below(root), []);
        assert_eq!(which(&nodes), [false; 4]);
    }
}
