//! Marks: a byte for each directory, with what holds of it, and what may hold of something below it.
//!
//! What holds of a directory is marked in all above it, up to the first that has the mark already (the paper's delayed
//! propagation). It stays there when it holds no more, until somebody looks for what it holds of.

use super::{Nodes, slots::Slot};

/// One of them: a bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u8);

impl Mark {
    /// In use.
    pub(super) const USED: Mark = Mark(1);
    /// Something below has changed, or may have.
    pub(super) const BELOW: Mark = Mark(1 << 1);
    /// It names inodes that have several names.
    pub(super) const LINKS: Mark = Mark(1 << 2);
    /// It may name inodes that change where nothing is told; something below may.
    pub(super) const OPEN: Mark = Mark(1 << 3);
    pub(super) const OPEN_BELOW: Mark = Mark(1 << 4);
    /// Who may look into it may be others than stored, and directories in it may be elsewhere; the same of something below.
    pub(super) const UNSURE: Mark = Mark(1 << 5);
    pub(super) const UNSURE_BELOW: Mark = Mark(1 << 6);
}

/// Those of all directories, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<u8>);

impl Marks {
    pub(super) fn resize(&mut self, directories: usize) {
        self.0.resize(directories, 0);
    }

    pub(super) fn has(&self, slot: Slot, mark: Mark) -> bool {
        self.0[slot.0 as usize] & mark.0 != 0
    }

    pub(super) fn set(&mut self, slot: Slot, mark: Mark, is_set: bool) {
        let marks = &mut self.0[slot.0 as usize];
        *marks = if is_set { *marks | mark.0 } else { *marks & !mark.0 };
    }

    /// In use, and nothing else.
    pub(super) fn start(&mut self, slot: Slot) {
        self.0[slot.0 as usize] = Mark::USED.0;
    }

    pub(super) fn clear(&mut self, slot: Slot) {
        self.0[slot.0 as usize] = 0;
    }
}

impl Nodes {
    pub(super) fn has_mark(&self, slot: Slot, mark: Mark) -> bool {
        self.table.marks.has(slot, mark)
    }

    pub(super) fn set_mark(&mut self, slot: Slot, mark: Mark, is_set: bool) {
        self.table.marks.set(slot, mark, is_set);
    }

    /// Sets it in all above, up to the first that has it.
    pub(super) fn mark_above(&mut self, slot: Slot, mark: Mark) {
        let mut at = self.parent(slot);
        while let Some(above) = at {
            if self.has_mark(above, mark) {
                break;
            }
            self.set_mark(above, mark, true);
            at = self.parent(above);
        }
    }

    /// The directories of which something holds, it and those below, found by the mark that all above them have. That is taken
    /// away where it stands for nothing any more.
    pub(super) fn marked_below(&mut self, slot: Slot, below: Mark, holds: impl Fn(&Nodes, Slot) -> bool) -> Vec<Slot> {
        let may_hold = |nodes: &Nodes, at: Slot| nodes.has_mark(at, below) || holds(nodes, at);
        let mut found = Vec::new();
        // A directory comes twice: before those in it, and after them.
        let mut path = vec![(slot, false)];
        while let Some((at, is_done)) = path.pop() {
            if is_done {
                let still = self.children(at).any(|child| may_hold(self, child));
                self.set_mark(at, below, still);
                continue;
            }
            found.extend(holds(self, at).then_some(at));
            if self.has_mark(at, below) {
                path.push((at, true));
                path.extend(self.children(at).filter(|&child| may_hold(self, child)).map(|child| (child, false)));
            }
        }
        found
    }
}
