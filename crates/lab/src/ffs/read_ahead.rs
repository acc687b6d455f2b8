//! What OpenBSD's FFS reads before it is asked for, as the paper tells it (section 4).

use std::ops::Range;

use onesweep_relocate::dfs::Block;

/// The largest request: 64 KiB.
pub(crate) const REQUEST_MOST: u32 = 16;

/// How long blocks of a file have been asked for one after the other.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sequence {
    last: Option<u32>,
    count: u32,
}

impl Sequence {
    /// A block is asked for; the sequential count then. Blocks 0, 2, 3 and 4 give 0, 0, 1 and 2.
    pub(crate) fn access(&mut self, logical: u32) -> u32 {
        let goes_on = logical > 0 && self.last == Some(logical - 1);
        self.count = if goes_on { self.count + 1 } else { 0 };
        self.last = Some(logical);
        self.count
    }
}

/// The blocks of the file that are read beside the one that is asked for: none until the access is sequential, else from
/// `first` on, the first one behind that is not in memory, as many as the greatest of 2^count, what is left of the cluster
/// there, and 1.
pub(crate) fn ahead(places: &[Block], first: u32, count: u32) -> Range<u32> {
    let end = places.len() as u32;
    if count == 0 || first >= end {
        return first..first;
    }
    let power = 1_u32.checked_shl(count).unwrap_or(REQUEST_MOST);
    let length = power.max(cluster(places, first)).clamp(1, REQUEST_MOST);
    first..(first + length).min(end)
}

/// How many blocks lie one behind the other from there on.
fn cluster(places: &[Block], first: u32) -> u32 {
    1 + places[first as usize..].windows(2).take_while(|pair| pair[1] == pair[0] + 1).count() as u32
}

/// The requests that bring these blocks: one for each run that lies in one piece and is not in memory.
pub(crate) fn requests(places: &[Block], blocks: Range<u32>, is_cached: impl Fn(u32) -> bool) -> Vec<Range<u32>> {
    let mut requests: Vec<Range<u32>> = Vec::new();
    for logical in blocks.filter(|logical| !is_cached(*logical)) {
        let goes_on = |last: &&mut Range<u32>| {
            last.end == logical && places[logical as usize] == places[logical as usize - 1] + 1
        };
        match requests.last_mut().filter(goes_on) {
            Some(last) => last.end += 1,
            None => requests.push(logical..logical + 1),
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The requests when a file is read from its beginning to its end.
    fn reading(places: &[Block]) -> Vec<Range<u32>> {
        let (mut cached, mut all, mut sequence) = (BTreeSet::new(), Vec::new(), Sequence::default());
        for logical in 0..places.len() as u32 {
            let mut wanted = requests(places, logical..logical + 1, |block| cached.contains(&block));
            cached.insert(logical);
            let count = sequence.access(logical);
            let first = (logical + 1..).find(|block| !cached.contains(block)).unwrap();
            wanted.extend(requests(places, ahead(places, first, count), |block| cached.contains(&block)));
            cached.extend(wanted.iter().cloned().flatten());
            all.extend(wanted);
        }
        all
    }

    #[test]
    fn the_sequential_count_is_the_papers() {
        let mut sequence = Sequence::default();
        assert_eq!([0, 2, 3, 4].map(|logical| sequence.access(logical)), [0, 0, 1, 2]);
    }

    /// "FFS prefetches the other two blocks in a single disk read."
    #[test]
    fn a_clustered_file_of_four_blocks_takes_three_requests() {
        assert_eq!(reading(&[10, 11, 12, 13]), [0..1, 1..2, 2..4]);
    }

    /// "For this file, FFS will perform as many disk accesses as the number of blocks of the file."
    #[test]
    fn a_clustered_file_of_three_blocks_takes_three_requests() {
        assert_eq!(reading(&[10, 11, 12]), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn the_rest_of_a_cluster_comes_at_once() {
        let clustered: Vec<Block> = (10..22).collect();
        assert_eq!(reading(&clustered), [0..1, 1..2, 2..12]);
        assert_eq!(reading(&(10..40).collect::<Vec<_>>())[2..], [2..18, 18..30]);
    }

    #[test]
    fn a_file_in_pieces_takes_a_request_for_each() {
        assert_eq!(reading(&[10, 20, 30, 40, 50]), [0..1, 1..2, 2..3, 3..4, 4..5]);
        assert_eq!(reading(&[10, 11, 30, 31, 32, 50]), [0..1, 1..2, 2..5, 5..6]);
    }
}
