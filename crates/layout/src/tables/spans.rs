//! Ranges of inode numbers whose entries fit into memory together.

use std::{collections::BTreeMap, ops::Range};

/// Spans that are kept; with more, neighbours are counted together.
const SPANS_MAX: usize = 1 << 16;

/// How much memory inodes will take, by their numbers.
#[derive(Debug, Default)]
pub struct Spans {
    /// A span has 2 to the power of this numbers.
    width: u32,
    bytes: BTreeMap<u64, u64>,
}

impl Spans {
    /// Counts so many bytes more for an inode.
    pub fn add(&mut self, inode: u64, bytes: u64) {
        *self.bytes.entry(inode >> self.width).or_default() += bytes;
        while self.bytes.len() > SPANS_MAX {
            self.width += 1;
            let mut wider = BTreeMap::new();
            for (span, bytes) in std::mem::take(&mut self.bytes) {
                *wider.entry(span >> 1).or_default() += bytes;
            }
            self.bytes = wider;
        }
    }

    /// Ranges that take at most `limit` bytes each, where one span alone does not take more. They hold every number.
    pub fn ranges(&self, limit: u64) -> Vec<Range<u64>> {
        let mut ends = Vec::new();
        let mut taken = 0_u64;
        for (&span, &bytes) in &self.bytes {
            if taken > 0 && taken.saturating_add(bytes) > limit {
                ends.push(span << self.width);
                taken = 0;
            }
            taken = taken.saturating_add(bytes);
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends.iter().copied().chain([u64::MAX])).map(|(start, end)| start..end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_everything_and_fit() {
        let mut spans = Spans::default();
        for inode in [5, 6, 900, 7, 1 << 60] {
            spans.add(inode, 100);
        }
        spans.add(901, 1000);
        assert_eq!(spans.ranges(250), [0..7, 7..901, 901..1 << 60, 1 << 60..u64::MAX]);
        assert_eq!(spans.ranges(u64::MAX).as_slice(), std::slice::from_ref(&(0..u64::MAX)));
        assert_eq!(Spans::default().ranges(1), spans.ranges(u64::MAX));
    }

    #[test]
    fn many_numbers_share_spans() {
        let mut spans = Spans::default();
        (0..300_000).for_each(|inode| spans.add(inode, 10));
        assert!(spans.bytes.len() <= SPANS_MAX);
        let ranges = spans.ranges(100_000);
        assert!((30..35).contains(&ranges.len()), "{}", ranges.len());
        assert_eq!((ranges[0].start, ranges[1].start, ranges[2].start), (0, ranges[0].end, 2 * ranges[0].end));
    }
}
