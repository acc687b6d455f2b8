//! Cylinder groups, and what stands at fixed places of them.

use onesweep_relocate::dfs::Block;

pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Inodes of 128 bytes.
const INODES_IN_BLOCK: u32 = 32;

/// A copy of the superblock, and the maps of the group.
const HEAD: u32 = 2;

const BLOCK_SECTORS: u64 = 8;
const TRACK_SECTORS: u64 = 63;
const CYLINDER_SECTORS: u64 = 15 * TRACK_SECTORS;

/// Classes of angles that FFS tells apart.
pub(crate) const ANGLES: u64 = 8;

/// How large a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) groups: u32,
    /// All of a group's blocks.
    pub(crate) group_blocks: u32,
    /// Those of them that hold inodes.
    pub(crate) inode_blocks: u32,
}

impl Shape {
    /// The paper's table 1: 283 groups of 16 cylinders with 15 tracks of 63 sectors, and an inode for each 4 KiB, which
    /// is what newfs gives where a fragment has 1 KiB.
    pub(crate) const PAPER: Self = Self { groups: 283, group_blocks: 16 * 15 * 63 / 8, inode_blocks: 59 };

    pub(crate) fn blocks(self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_blocks)
    }

    pub(crate) fn bytes(self) -> u64 {
        self.blocks() * BLOCK_BYTES
    }

    pub(crate) fn group_of(self, block: Block) -> u32 {
        (block / u64::from(self.group_blocks)) as u32
    }

    /// The first block of a group.
    pub(crate) fn start(self, group: u32) -> Block {
        u64::from(group) * u64::from(self.group_blocks)
    }

    /// The block with the maps of a group.
    pub(crate) fn maps(self, group: u32) -> Block {
        self.start(group) + 1
    }

    /// Whether it holds no data of a file, whatever happens.
    pub(crate) fn is_fixed(self, block: Block) -> bool {
        block % u64::from(self.group_blocks) < u64::from(HEAD + self.inode_blocks)
    }

    /// The blocks of a group that begin on the cylinder of this one.
    pub(crate) fn cylinder(self, block: Block) -> std::ops::Range<Block> {
        let first = block * BLOCK_SECTORS / CYLINDER_SECTORS;
        let [from, to] = [first, first + 1].map(|cylinder| (cylinder * CYLINDER_SECTORS).div_ceil(BLOCK_SECTORS));
        let group = self.group_of(block);
        from.max(self.start(group))..to.min(self.start(group + 1))
    }

    /// The class of the angle at which a block begins.
    pub(crate) fn angle(self, block: Block) -> u64 {
        block * BLOCK_SECTORS % TRACK_SECTORS * ANGLES / TRACK_SECTORS
    }

    pub(crate) fn inodes_in_group(self) -> u32 {
        self.inode_blocks * INODES_IN_BLOCK
    }

    pub(crate) fn group_of_inode(self, inode: u32) -> u32 {
        inode / self.inodes_in_group()
    }

    /// The block that holds an inode.
    pub(crate) fn block_of_inode(self, inode: u32) -> Block {
        let within = inode % self.inodes_in_group() / INODES_IN_BLOCK;
        self.start(self.group_of_inode(inode)) + u64::from(HEAD + within)
    }

    /// The order in which groups are asked when one is full: quadratic rehash, then all of them.
    pub(crate) fn order_from(self, home: u32) -> impl Iterator<Item = u32> {
        let steps = std::iter::successors(Some(1_u32), |step| step.checked_mul(2));
        let rehash = steps.take_while(move |step| *step < self.groups).scan(home, move |group, step| {
            *group = (*group + step) % self.groups;
            Some(*group)
        });
        let all = (2..self.groups).map(move |step| (home + step) % self.groups);
        std::iter::once(home).chain(rehash).chain(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Shape = Shape { groups: 10, group_blocks: 100, inode_blocks: 2 };

    #[test]
    fn the_papers_file_system_has_two_gigabytes() {
        let gigabytes = Shape::PAPER.bytes() as f64 / f64::from(1 << 30);
        assert!((2.0..2.1).contains(&gigabytes), "{gigabytes}");
    }

    #[test]
    fn everything_has_its_place() {
        assert_eq!([SMALL.group_of(99), SMALL.group_of(100)], [0, 1]);
        assert_eq!((SMALL.start(3), SMALL.maps(3)), (300, 301));
        assert_eq!(
            (300..306).map(|block| SMALL.is_fixed(block)).collect::<Vec<_>>(),
            [true, true, true, true, false, false]
        );
        assert_eq!([0, 31, 32, 63, 64].map(|inode| SMALL.block_of_inode(inode)), [2, 2, 3, 3, 102]);
    }

    #[test]
    fn blocks_have_cylinders_and_angles() {
        assert_eq!([0, 118, 119, 237].map(|block| Shape::PAPER.cylinder(block)), [0..119, 0..119, 119..237, 237..355]);
        assert_eq!(Shape::PAPER.cylinder(1889).end, 1890, "a group ends with a cylinder");
        assert_eq!([0, 1, 7, 8, 14].map(|block| Shape::PAPER.angle(block)), [0, 1, 7, 0, 6]);
    }

    #[test]
    fn full_groups_are_passed_by_quadratic_rehash_then_one_by_one() {
        let order: Vec<u32> = SMALL.order_from(1).collect();
        assert_eq!(order[..5], [1, 2, 4, 8, 6]);
        assert_eq!(order[5..], [3, 4, 5, 6, 7, 8, 9, 0]);
    }
}
