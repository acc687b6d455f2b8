//! Changes: which directories have to be read again.
//!
//! A counter that only rises stands for the paper's `mtime` and `dutime` (FastDu, 1.3): a directory is clean when its last change
//! is before its last harvest, and dirty when both have the same number, for a change that comes after the harvest took its
//! number gets that number, too.

use super::{Nodes, marks::Mark, slots::Slot};

/// Rises with each harvest: one a second would do for 136 years.
pub type Count = u32;

impl Nodes {
    /// Its entries changed while the counter stood at `now`. All above learn that something below has, up to the first that
    /// knows it already (the paper's delayed propagation).
    pub fn mark_changed(&mut self, slot: Slot, now: Count) {
        let node = self.table.node_mut(slot);
        node.changed = node.changed.max(now);
        self.mark_above(slot, Mark::BELOW);
    }

    /// A harvest that took the number `count` has read it.
    pub fn mark_harvested(&mut self, slot: Slot, count: Count) {
        let node = self.table.node_mut(slot);
        node.harvested = node.harvested.max(count);
    }

    /// Whether its own entries have changed since they were harvested: only then they have to be read.
    pub fn is_dirty(&self, slot: Slot) -> bool {
        let node = self.table.node(slot);
        node.changed >= node.harvested
    }

    /// Whether it was ever harvested.
    pub fn is_harvested(&self, slot: Slot) -> bool {
        self.table.node(slot).harvested > 0
    }

    /// The numbers of its last change and of its last harvest.
    pub fn counts(&self, slot: Slot) -> (Count, Count) {
        (self.table.node(slot).changed, self.table.node(slot).harvested)
    }

    /// Whether it or something below has to be harvested before its totals are true. As quick for a large tree as for a small.
    pub fn may_be_outdated(&self, slot: Slot) -> bool {
        self.has_mark(slot, Mark::BELOW) || self.is_dirty(slot)
    }

    /// The dirty directories, it and those below. Marks that stand for nothing any more are taken away.
    pub fn dirty_below(&mut self, slot: Slot) -> Vec<Slot> {
        // Nearly all that were unsure are sure when they are clean.
        self.unsure_below(slot);
        self.marked_below(slot, Mark::BELOW, Nodes::is_dirty)
    }

    /// How many of these there are.
    pub fn count_dirty_below(&self, slot: Slot) -> usize {
        let (mut count, mut left) = (0, vec![slot]);
        while let Some(at) = left.pop() {
            count += usize::from(self.is_dirty(at));
            if self.has_mark(at, Mark::BELOW) {
                left.extend(self.children(at).filter(|&child| self.may_be_outdated(child)));
            }
        }
        count
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nodes::sample::{id, small};

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
