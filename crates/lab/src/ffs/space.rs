//! Which blocks are used, and which comes next.

use onesweep_relocate::dfs::Block;

use super::shape::{ANGLES, Shape};

/// The maps of all groups.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    shape: Shape,
    used: Vec<bool>,
    free: Vec<u32>,
    /// Where each group was searched last.
    rotors: Vec<Block>,
    all_free: u64,
}

impl Space {
    pub(crate) fn new(shape: Shape) -> Self {
        let used: Vec<bool> = (0..shape.blocks()).map(|block| shape.is_fixed(block)).collect();
        let groups = used.chunks(shape.group_blocks as usize);
        let free: Vec<u32> = groups.map(|group| group.iter().filter(|used| !**used).count() as u32).collect();
        let all_free = free.iter().map(|free| u64::from(*free)).sum();
        Self { rotors: (0..shape.groups).map(|group| shape.start(group)).collect(), shape, used, free, all_free }
    }

    /// Whether it is in use, or not there at all.
    pub(crate) fn is_used(&self, block: Block) -> bool {
        self.used.get(block as usize).is_none_or(|used| *used)
    }

    pub(crate) fn take(&mut self, block: Block) {
        assert!(!std::mem::replace(&mut self.used[block as usize], true), "block {block} is taken twice");
        self.free[self.shape.group_of(block) as usize] -= 1;
        self.all_free -= 1;
    }

    pub(crate) fn release(&mut self, block: Block) {
        assert!(std::mem::replace(&mut self.used[block as usize], false), "block {block} is free already");
        self.free[self.shape.group_of(block) as usize] += 1;
        self.all_free += 1;
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.all_free
    }

    /// The first group from there on with no fewer free blocks than the mean.
    pub(crate) fn roomy_from(&self, group: u32) -> u32 {
        let mean = self.all_free / u64::from(self.shape.groups);
        let all = (0..self.shape.groups).map(|step| (group + step) % self.shape.groups);
        all.into_iter().find(|group| u64::from(self.free[*group as usize]) >= mean).unwrap_or(group)
    }

    /// A block that is at the wished place or not far behind it, else in another group; `None` when all are used.
    pub(crate) fn allocate(&mut self, wish: Block) -> Option<Block> {
        let home = self.shape.group_of(wish).min(self.shape.groups - 1);
        let found = self.shape.order_from(home).find_map(|group| self.next_in(group, wish))?;
        self.take(found);
        self.rotors[self.shape.group_of(found) as usize] = found;
        Some(found)
    }

    /// A free block of a group: the wished one, else the next on its cylinder, else the next behind it; or where no
    /// place of this group was wished for, the next behind the last one.
    fn next_in(&self, group: u32, wish: Block) -> Option<Block> {
        if self.free[group as usize] == 0 {
            return None;
        }
        let (start, end) = (self.shape.start(group), self.shape.start(group + 1));
        let is_free = |block: &Block| !self.is_used(*block);
        if !(start..end).contains(&wish) {
            let from = self.rotors[group as usize];
            return (from..end).chain(start..from).find(is_free);
        }
        if is_free(&wish) {
            return Some(wish);
        }
        self.on_cylinder(wish).or_else(|| (wish..end).chain(start..wish).find(is_free))
    }

    /// The free block of the same cylinder that comes under the head first, by classes of angles; in a class, the first.
    fn on_cylinder(&self, wish: Block) -> Option<Block> {
        let class = self.shape.angle(wish);
        let free = self.shape.cylinder(wish).filter(|block| !self.is_used(*block));
        free.min_by_key(|block| ((self.shape.angle(*block) + ANGLES - class) % ANGLES, *block))
    }

    /// So many free blocks in a row, in the group of the wished place or another.
    pub(crate) fn run(&self, wish: Block, blocks: u32) -> Option<Block> {
        let home = self.shape.group_of(wish).min(self.shape.groups - 1);
        self.shape.order_from(home).find_map(|group| self.run_in(group, blocks))
    }

    fn run_in(&self, group: u32, blocks: u32) -> Option<Block> {
        if self.free[group as usize] < blocks {
            return None;
        }
        let mut run = 0;
        for block in self.shape.start(group)..self.shape.start(group + 1) {
            run = if self.is_used(block) { 0 } else { run + 1 };
            if run == blocks {
                return Some(block + 1 - u64::from(blocks));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data from 4 to 9, 14 to 19 and so on.
    fn space() -> Space {
        Space::new(Shape { groups: 4, group_blocks: 10, inode_blocks: 2 })
    }

    /// The angles of 14 to 19 are 6, 7, 0, 1, 2 and 3.
    #[test]
    fn a_block_comes_to_its_wished_place_or_to_the_next_angle() {
        let mut space = space();
        assert_eq!(space.free_blocks(), 24);
        assert_eq!(space.allocate(10), Some(18), "the same angle, 2");
        assert_eq!(space.allocate(15), Some(15));
        assert_eq!(space.allocate(15), Some(16), "the next angle");
        assert_eq!(space.allocate(19), Some(19));
        assert_eq!(space.allocate(19), Some(14), "after 4 and 5, which no free block has");
    }

    #[test]
    fn a_full_cylinder_is_left_for_what_follows() {
        let mut space = Space::new(Shape { groups: 1, group_blocks: 300, inode_blocks: 2 });
        (4..119).for_each(|block| space.take(block));
        assert_eq!(space.allocate(50), Some(119));
    }

    #[test]
    fn another_group_gives_what_follows_its_last() {
        let mut space = space();
        (14..20).for_each(|block| space.take(block));
        assert_eq!(space.allocate(26), Some(26));
        assert_eq!(space.allocate(10), Some(27));
        space.release(14);
        assert_eq!(space.allocate(19), Some(14));
        while space.allocate(0).is_some() {}
        assert_eq!((space.free_blocks(), space.allocate(12)), (0, None));
        assert!(space.is_used(40), "what isn't there can't be had");
    }

    #[test]
    fn roomy_groups_and_runs_are_found() {
        let mut space = space();
        (14..18).for_each(|block| space.take(block));
        assert_eq!([0, 1, 2].map(|group| space.roomy_from(group)), [0, 2, 2]);
        assert_eq!(space.run(10, 2), Some(18));
        assert_eq!(space.run(10, 3), Some(24));
        assert_eq!(space.run(10, 7), None);
    }
}
