//! Where a file would like its next block.

use onesweep_relocate::dfs::Block;

use super::shape::Shape;
use super::space::Space;

/// Blocks that the inode itself points to. Behind them stands an indirect block.
pub(crate) const DIRECT: usize = 12;

/// Behind the last block; the first in the group of the inode; and the first that an indirect block points to, as the
/// indirect block itself, in a group with room, so that large files don't fill the groups of small ones.
pub(crate) fn wish(shape: Shape, space: &Space, inode: u32, places: &[Block]) -> Block {
    let home = shape.group_of_inode(inode);
    match places.last() {
        None => shape.start(home),
        Some(_) if places.len() == DIRECT => shape.start(space.roomy_from(home)),
        Some(last) => last + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_on_behind_its_last_block_but_a_large_one_elsewhere() {
        let shape = Shape { groups: 3, group_blocks: 50, inode_blocks: 1 };
        let mut space = Space::new(shape);
        (53..80).for_each(|block| space.take(block));
        let inode = 33; // of group 1
        assert_eq!(wish(shape, &space, inode, &[]), 50);
        assert_eq!(wish(shape, &space, inode, &[60]), 61);
        assert_eq!(wish(shape, &space, inode, &[60; 11]), 61);
        assert_eq!(wish(shape, &space, inode, &[60; 12]), 100);
        assert_eq!(wish(shape, &space, inode, &[60; 13]), 61);
    }
}
