//! Blocks in memory, the least recently used first.

use onesweep_relocate::dfs::Block;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone)]
struct Slot<T> {
    block: Block,
    held: Option<T>,
    older: u32,
    newer: u32,
}

/// What is held of which block.
#[derive(Debug, Clone)]
pub(crate) struct Cache<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
    /// The slot of each block of the disk.
    index: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl<T> Cache<T> {
    /// For a disk of so many blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), index: vec![NONE; blocks as usize], oldest: NONE, newest: NONE }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn get(&self, block: Block) -> Option<&T> {
        self.slots.get(*self.index.get(block as usize)? as usize)?.held.as_ref()
    }

    pub(crate) fn get_mut(&mut self, block: Block) -> Option<&mut T> {
        self.slots.get_mut(self.index[block as usize] as usize)?.held.as_mut()
    }

    /// The block that was not used for longest.
    pub(crate) fn oldest(&self) -> Option<Block> {
        Some(self.slots.get(self.oldest as usize)?.block)
    }

    /// All blocks, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Block, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.block, slot.held.as_ref()?)))
    }

    /// It is the most recently used now.
    pub(crate) fn touch(&mut self, block: Block) {
        let slot = self.index[block as usize];
        if slot != NONE && slot != self.newest {
            self.unlink(slot);
            self.link(slot);
        }
    }

    /// Takes a block in, as the most recently used.
    pub(crate) fn insert(&mut self, block: Block, held: T) {
        debug_assert!(self.get(block).is_none(), "block {block} is here already");
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { block, held: None, older: NONE, newer: NONE });
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].block = block;
        self.slots[slot as usize].held = Some(held);
        self.index[block as usize] = slot;
        self.link(slot);
    }

    pub(crate) fn remove(&mut self, block: Block) -> Option<T> {
        let slot = std::mem::replace(&mut self.index[block as usize], NONE);
        let held = self.slots.get_mut(slot as usize)?.held.take();
        self.unlink(slot);
        self.vacant.push(slot);
        held
    }

    /// Blocks get other addresses, all at once; they are no more recently used for that.
    pub(crate) fn rename(&mut self, moves: &[(Block, Block)]) {
        let slots: Vec<u32> =
            moves.iter().map(|&(from, _)| std::mem::replace(&mut self.index[from as usize], NONE)).collect();
        for (&(_, to), slot) in moves.iter().zip(slots) {
            self.index[to as usize] = slot;
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                slot.block = to;
            }
        }
    }

    fn link(&mut self, slot: u32) {
        self.slots[slot as usize].older = self.newest;
        self.slots[slot as usize].newer = NONE;
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { older, newer, .. } = self.slots[slot as usize];
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(cache: &mut Cache<char>) -> Vec<(Block, char)> {
        std::iter::from_fn(|| cache.oldest().and_then(|block| Some((block, cache.remove(block)?)))).collect()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = Cache::new(10);
        for (block, held) in [(3, 'a'), (5, 'b'), (7, 'c'), (9, 'd')] {
            cache.insert(block, held);
        }
        cache.touch(5);
        cache.touch(3);
        cache.touch(3);
        assert_eq!((cache.len(), cache.get(7), cache.get(4)), (4, Some(&'c'), None));
        assert_eq!(cache.remove(9), Some('d'));
        assert_eq!(cache.remove(9), None);
        cache.insert(1, 'e');
        assert_eq!(drain(&mut cache), [(7, 'c'), (5, 'b'), (3, 'a'), (1, 'e')]);
        assert_eq!((cache.len(), cache.oldest()), (0, None));
    }

    #[test]
    fn blocks_change_places_all_at_once() {
        let mut cache = Cache::new(10);
        for (block, held) in [(1, 'a'), (2, 'b'), (3, 'c')] {
            cache.insert(block, held);
        }
        cache.rename(&[(1, 2), (2, 3), (3, 8)]);
        assert_eq!([1, 2, 3, 8].map(|block| cache.get(block).copied()), [None, Some('a'), Some('b'), Some('c')]);
        assert_eq!(drain(&mut cache), [(2, 'a'), (3, 'b'), (8, 'c')]);
    }
}
