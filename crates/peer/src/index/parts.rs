//! How the record of a file lies in the leaves of a database: in parts, each as long as there is room in a leaf.
//!
//! A leaf of redb is a page of 4 KiB. A pair that doesn't fit into the rest of one begins another, and one that is larger than a
//! page gets pages by powers of two: with a pair for each file up to a third of the leaves would stay empty.
//!
//! A record is the facts of a file and then its hashes. The first part begins with the facts.

use crate::id::Hash;

/// What pairs may take of a leaf: the page without its head.
const LEAF_BYTES: usize = 4096 - 4;
/// What a pair takes besides its value: inode, number of a block, and where the value ends.
const PAIR_BYTES: usize = 8 + 4 + 4;

/// The leaf that is being filled, as redb does it while keys come in order. In another order leaves are less full, and no more.
#[derive(Debug)]
pub(super) struct Leaf {
    left: usize,
}

impl Leaf {
    pub(super) const fn new() -> Leaf {
        Leaf { left: LEAF_BYTES }
    }

    /// How many hashes, of so many, are in the next part, behind so many bytes of facts.
    fn take(&mut self, facts: usize, hashes: usize) -> usize {
        let begin = PAIR_BYTES + facts;
        // One hash more in this leaf saves more than another pair takes.
        if self.left < begin + hashes.min(1) * Hash::BYTES {
            self.left = LEAF_BYTES;
        }
        let taken = hashes.min((self.left - begin) / Hash::BYTES);
        self.left -= begin + taken * Hash::BYTES;
        taken
    }
}

/// The parts of a record that begins with so many bytes of facts: the number of the first block of each, and the bytes.
pub(super) fn parts<'a>(
    record: &'a [u8],
    facts: usize,
    leaf: &'a mut Leaf,
) -> impl Iterator<Item = (u32, &'a [u8])> + 'a {
    let (mut at, mut block) = (0, 0);
    std::iter::from_fn(move || {
        let facts = if at == 0 { facts } else { 0 };
        let hashes = (record.len() - at - facts) / Hash::BYTES;
        if at > 0 && hashes == 0 {
            return None;
        }
        let (begin, first) = (at, u32::try_from(block).ok()?);
        let taken = leaf.take(facts, hashes);
        at += facts + taken * Hash::BYTES;
        block += taken;
        Some((first, &record[begin..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_record_once_more() {
        for facts in [14, 25, 42] {
            for hashes in [0, 1, 16, 125, 126, 127, 128, 1000] {
                for left in [0, 16, 60, 90, 100, 2000, LEAF_BYTES] {
                    let record: Vec<u8> = (0..facts + hashes * Hash::BYTES).map(|at| at as u8).collect();
                    let (mut leaf, mut together) = (Leaf { left }, Vec::<u8>::new());
                    for (block, part) in parts(&record, facts, &mut leaf) {
                        let before = together.len().saturating_sub(facts) / Hash::BYTES;
                        assert_eq!(block as usize, before, "{facts} {hashes} {left}");
                        assert!(PAIR_BYTES + part.len() <= LEAF_BYTES);
                        together.extend(part);
                    }
                    assert_eq!(together, record, "{facts} {hashes} {left}");
                }
            }
        }
    }

    /// Less than a hash, and what begins a part, stays free in each.
    #[test]
    fn leaves_are_filled() {
        let (mut leaf, facts) = (Leaf::new(), 25);
        let (mut used, mut leaves) = (0, vec![]);
        for hashes in (16..66).cycle().take(1000) {
            let record = vec![7; facts + hashes * Hash::BYTES];
            for (_, part) in parts(&record, facts, &mut leaf).collect::<Vec<_>>() {
                let bytes = PAIR_BYTES + part.len();
                if used + bytes > LEAF_BYTES {
                    leaves.push(std::mem::take(&mut used));
                }
                used += bytes;
            }
            assert_eq!(leaf.left, LEAF_BYTES - used, "it is the leaf that the database has");
        }
        assert!(leaves.len() > 300 && leaves.iter().all(|used| *used > LEAF_BYTES - PAIR_BYTES - facts - Hash::BYTES));
    }

    #[test]
    fn a_record_is_one_part_where_it_fits() {
        let record = vec![7; 25 + 16 * Hash::BYTES];
        let mut leaf = Leaf::new();
        for _ in 0..7 {
            assert_eq!(parts(&record, 25, &mut leaf).count(), 1);
        }
        assert_eq!(parts(&record, 25, &mut leaf).map(|(block, _)| block).collect::<Vec<_>>(), [0, 5]);
    }
}
