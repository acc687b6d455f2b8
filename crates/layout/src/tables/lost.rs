//! Inodes that are in use, and that no name leads to from the root: files that were open without a name when the file system
//! was, and what lies below directories that are damaged.

use std::collections::HashSet;

/// Stands for the directory that they are listed in. No file system has such an inode.
pub const LOST: u64 = u64::MAX;

/// Those of `unreached` that nothing else unreached leads to, rising; of directories that name each other in a circle, one.
///
/// `below` gives the inodes that a directory names.
pub fn tops(mut unreached: Vec<u64>, below: impl Fn(u64) -> Vec<u64>) -> Vec<u64> {
    unreached.sort_unstable();
    let mut named = HashSet::new();
    for &inode in &unreached {
        named.extend(below(inode).into_iter().filter(|&child| child != inode));
    }
    let (in_circles, alone): (Vec<u64>, Vec<u64>) = unreached.into_iter().partition(|inode| named.contains(inode));
    let mut led_to = HashSet::new();
    let mut tops = Vec::new();
    for top in alone.into_iter().chain(in_circles) {
        if !led_to.insert(top) {
            continue;
        }
        tops.push(top);
        let mut pending = vec![top];
        while let Some(inode) = pending.pop() {
            pending.extend(below(inode).into_iter().filter(|&child| led_to.insert(child)));
        }
    }
    tops.sort_unstable();
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_another_is_no_top() {
        let names: [(u64, &[u64]); 6] = [(3, &[4, 5]), (5, &[6]), (7, &[8]), (8, &[7, 9]), (10, &[10]), (11, &[4])];
        let below = |inode| {
            let named = names.iter().find(|(directory, _)| *directory == inode);
            named.map(|(_, below)| below.to_vec()).unwrap_or_default()
        };
        assert_eq!(tops(vec![11, 9, 8, 7, 6, 5, 4, 3, 12, 10], below), [3, 7, 10, 11, 12]);
        assert_eq!(tops(Vec::new(), below), [0; 0]);
    }
}
