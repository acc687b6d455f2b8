//! A tree is made again of what the store knows of each directory, told in any order.

use super::{
    Nodes,
    changes::Count,
    marks::Mark,
    slots::{NONE, Slot},
};
use crate::identity::NodeId;

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

/// So many are put into the table by inodes at a time: 2 MiB, and so few times that table is gone through.
const CLAIMED_AT_A_TIME: usize = 1 << 17;

/// Why a store makes no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The number of a directory, or its inode, is there already, or there are too many subvolumes.
    Twice(Slot),
    /// One is in none that is known, or in itself.
    Nowhere(Slot),
}

impl Nodes {
    /// A directory of the store, under the number that it has there. Whether its inode is there already may be told later.
    /// [`restored`](Self::restored) comes after the last one.
    pub fn restore(&mut self, slot: Slot, known: &Known) -> Result<(), Unfit> {
        let Known { id, parent, name, harvested, stamp, has_links } = *known;
        self.table.reach(slot);
        let subvolume = self.table.subvolumes.place(id.subvolume).ok_or(Unfit::Twice(slot))?;
        if self.is_used(slot) {
            return Err(Unfit::Twice(slot));
        }
        self.table.put(slot, id, subvolume);
        let node = self.table.node_mut(slot);
        (node.harvested, node.stamp, node.name) = (harvested, stamp, name);
        node.parent = parent.map_or(NONE, |parent| parent.0);
        self.set_links(slot, has_links);
        self.unclaimed.push((self.by_inode.hash(id), slot));
        if self.unclaimed.len() < CLAIMED_AT_A_TIME { Ok(()) } else { self.claim() }
    }

    /// Puts those into the table by inodes that aren't in it yet.
    fn claim(&mut self) -> Result<(), Unfit> {
        self.by_inode.claim_all(&self.table, &mut self.unclaimed).map_err(Unfit::Twice)
    }

    /// Puts all that were restored into those that they are in; numbers that are free may be given out from now on.
    pub fn restored(&mut self) -> Result<(), Unfit> {
        self.claim()?;
        self.unclaimed = Vec::new();
        self.table.list_free();
        let mut dirty = Vec::new();
        for number in 0..self.bound() as u32 {
            let slot = Slot(number);
            let Some(parent) = self.is_used(slot).then(|| self.parent(slot)).flatten() else { continue };
            if !self.is_used(parent) {
                return Err(Unfit::Nowhere(slot));
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
        if reached < self.len() {
            let is_endless = |slot: &Slot| self.upwards(*slot).nth(self.len()).is_some();
            return self.all().find(is_endless).map_or(Ok(()), |slot| Err(Unfit::Nowhere(slot)));
        }
        dirty.into_iter().for_each(|slot| self.mark_above(slot, Mark::BELOW));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::sample::id;

    #[test]
    fn a_store_is_read_back_in_any_order() {
        let mut nodes = Nodes::new();
        let known = |ino, parent| Known { id: id(ino), parent, harvested: 4, ..Known::default() };
        assert_eq!(nodes.restore(Slot(5000), &known(2, Some(Slot(1)))), Ok(()));
        assert_eq!(nodes.restore(Slot(1), &known(1, None)), Ok(()));
        assert_eq!(nodes.restore(Slot(1), &known(8, None)), Err(Unfit::Twice(Slot(1))), "taken");
        assert_eq!(nodes.restore(Slot(9), &Known { harvested: 0, ..known(5, Some(Slot(5000))) }), Ok(()));
        assert_eq!(nodes.restored(), Ok(()));
        assert_eq!(nodes.upwards(Slot(9)).collect::<Vec<_>>(), [Slot(9), Slot(5000), Slot(1)]);
        assert_eq!(nodes.dirty_below(Slot(1)), [Slot(9)], "it was never harvested");
        nodes.mark_harvested(Slot(9), 5);
        assert_eq!(nodes.dirty_below(Slot(1)), []);
        assert_eq!(nodes.add(id(3), Some(Slot(1))), Some(Slot(0)));
        assert_eq!(nodes.add(id(4), Some(Slot(1))), Some(Slot(2)));
    }

    /// Also where they come together with others, and long after each other.
    #[test]
    fn an_inode_with_two_numbers_is_refused() {
        for others in [1, CLAIMED_AT_A_TIME as u32 + 1] {
            let mut nodes = Nodes::new();
            let known = |ino: u32| Known { id: id(ino.into()), harvested: 1, ..Known::default() };
            for number in 0..others {
                assert_eq!(nodes.restore(Slot(number), &known(number)), Ok(()));
            }
            let last = others + 6;
            assert_eq!(nodes.restore(Slot(last), &known(0)), Ok(()));
            // One of both is named.
            let told = nodes.restored();
            assert!([0, last].map(|slot| Err(Unfit::Twice(Slot(slot)))).contains(&told), "{others} others: {told:?}");
        }
    }

    #[test]
    fn a_store_that_makes_no_tree_is_refused() {
        let known = |ino, parent| Known { id: id(ino), parent: Some(Slot(parent)), harvested: 1, ..Known::default() };
        let tree = |places: &[(u32, u32)]| {
            let mut nodes = Nodes::new();
            assert_eq!(nodes.restore(Slot(0), &Known { parent: None, ..known(0, 0) }), Ok(()));
            for &(slot, parent) in places {
                assert_eq!(nodes.restore(Slot(slot), &known(slot.into(), parent)), Ok(()));
            }
            nodes.restored()
        };
        assert_eq!(tree(&[(1, 0), (2, 1)]), Ok(()));
        assert_eq!(tree(&[(1, 0), (2, 3)]), Err(Unfit::Nowhere(Slot(2))), "in none that is known");
        assert_eq!(tree(&[(1, 0), (5000, 1), (2, 9000)]), Err(Unfit::Nowhere(Slot(2))));
        assert_eq!(tree(&[(1, 0), (2, 2)]), Err(Unfit::Nowhere(Slot(2))), "in itself");
        assert!(tree(&[(1, 0), (2, 4), (3, 2), (4, 3)]).is_err(), "one in the other, all around");
    }
}
