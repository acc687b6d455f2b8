//! Which inodes are used, and which group a directory gets.

use super::shape::Shape;

#[derive(Debug, Clone)]
pub(crate) struct Inodes {
    shape: Shape,
    used: Vec<bool>,
    free: Vec<u32>,
    directories: Vec<u32>,
    /// Where each group was searched last.
    rotors: Vec<u32>,
}

impl Inodes {
    pub(crate) fn new(shape: Shape) -> Self {
        let groups = shape.groups as usize;
        Self {
            used: vec![false; groups * shape.inodes_in_group() as usize],
            free: vec![shape.inodes_in_group(); groups],
            directories: vec![0; groups],
            rotors: vec![0; groups],
            shape,
        }
    }

    /// An inode for a directory: in the group with the fewest of them, among those with no fewer free inodes than the
    /// mean.
    pub(crate) fn take_for_directory(&mut self) -> Option<u32> {
        let mean = self.free.iter().sum::<u32>() / self.shape.groups;
        let roomy = (0..self.shape.groups).filter(|group| self.free[*group as usize] >= mean);
        let group = roomy.min_by_key(|group| self.directories[*group as usize])?;
        self.directories[group as usize] += 1;
        self.take(group)
    }

    /// An inode in this group, or else in another.
    pub(crate) fn take(&mut self, home: u32) -> Option<u32> {
        let group = self.shape.order_from(home).find(|group| self.free[*group as usize] > 0)?;
        let (each, rotor) = (self.shape.inodes_in_group(), self.rotors[group as usize]);
        let within = (rotor..each).chain(0..rotor).find(|within| !self.used[(group * each + within) as usize])?;
        self.rotors[group as usize] = within;
        self.free[group as usize] -= 1;
        let inode = group * each + within;
        self.used[inode as usize] = true;
        Some(inode)
    }

    pub(crate) fn release(&mut self, inode: u32) {
        let group = self.shape.group_of_inode(inode) as usize;
        assert!(std::mem::replace(&mut self.used[inode as usize], false), "inode {inode} is free already");
        self.free[group] += 1;
        self.rotors[group] = self.rotors[group].min(inode % self.shape.inodes_in_group());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 inodes in each group.
    fn inodes() -> Inodes {
        Inodes::new(Shape { groups: 3, group_blocks: 10, inode_blocks: 1 })
    }

    #[test]
    fn directories_spread_over_the_groups() {
        let mut inodes = inodes();
        let groups: Vec<u32> = (0..4).filter_map(|_| inodes.take_for_directory()).map(|inode| inode / 32).collect();
        assert_eq!(groups, [0, 1, 2, 0]);
    }

    #[test]
    fn files_lie_near_each_other() {
        let mut inodes = inodes();
        let taken: Vec<u32> = (0..33).filter_map(|_| inodes.take(1)).collect();
        assert_eq!(taken[..32], (32..64).collect::<Vec<_>>());
        assert_eq!(taken[32], 64, "the group is full");
        inodes.release(40);
        assert_eq!(inodes.take(1), Some(40));
    }
}
