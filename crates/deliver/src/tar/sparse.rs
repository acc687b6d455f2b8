//! The map of a file with holes, in the GNU sparse format 1.0: text in front of the data.
//!
//! The first line is the number of regions; each region has a line for its offset and one for its length. A file that
//! ends in a hole has an empty region at its end. Zeros fill the last block.

use std::ops::Range;

use super::{header::BLOCK, pax::decimal};

const STEP: u64 = BLOCK as u64;

/// The parts of a file that are stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Map {
    /// In rising order, not touching, within the file. All start on a block, and all but the last are whole blocks,
    /// because GNU tar reads each region from a block of its own.
    pub(super) regions: Vec<Range<u64>>,
    ends_in_hole: bool,
    size: u64,
}

impl Map {
    /// The map of a file of `size` bytes whose data lies in `data`; `None` when the plain form isn't longer,
    /// or when `data` makes no sense.
    pub(super) fn new(size: u64, data: &[Range<u64>]) -> Option<Self> {
        let mut regions: Vec<Range<u64>> = Vec::with_capacity(data.len());
        let mut before = 0;
        for range in data {
            if range.start < before || range.end < range.start {
                return None;
            }
            before = range.end;
            let start = range.start - range.start % STEP;
            let end = range.end.checked_next_multiple_of(STEP)?.min(size);
            match regions.last_mut() {
                _ if start >= end => {}
                Some(last) if last.end >= start => last.end = end,
                _ => regions.push(start..end),
            }
        }
        let ends_in_hole = regions.last().is_none_or(|last| last.end < size);
        let map = Self { regions, ends_in_hole, size };
        // Another two blocks may go into a pax header that the plain form doesn't have.
        let cost = (map.text().len() as u64).checked_add(map.data_len())?.checked_add(2 * STEP)?;
        (cost < size).then_some(map)
    }

    /// Bytes of the file that are stored.
    pub(super) fn data_len(&self) -> u64 {
        self.regions.iter().map(|region| region.end - region.start).sum()
    }

    /// The file's size, holes included.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The whole file in pieces, in order; true for those that are stored.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Range<u64>, bool)> {
        let starts = std::iter::once(0).chain(self.regions.iter().map(|region| region.end));
        let ends = self.regions.iter().map(|region| region.start).chain(std::iter::once(self.size));
        let holes = starts.zip(ends).map(|(start, end)| (start..end, false));
        let stored = self.regions.iter().map(|region| (region.clone(), true)).chain(std::iter::once((0..0, true)));
        holes.zip(stored).flat_map(|(hole, stored)| [hole, stored]).filter(|(piece, _)| !piece.is_empty())
    }

    /// The map as it stands in front of the data, padded to whole blocks.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(BLOCK);
        let mut line = |value| {
            text.extend_from_slice(decimal(value, &mut [0; 20]));
            text.push(b'\n');
        };
        line(self.regions.len() as u64 + u64::from(self.ends_in_hole));
        for region in &self.regions {
            line(region.start);
            line(region.end - region.start);
        }
        if self.ends_in_hole {
            line(self.size);
            line(0);
        }
        text.resize(text.len().next_multiple_of(BLOCK), 0);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one region is meant")]
    fn rounds_to_blocks_and_joins() {
        let map = Map::new(MB, &[4096..5000, 5000..5001, 600_000..600_001]).unwrap();
        assert_eq!(map.regions, [4096..5120, 599_552..600_064]);
        assert_eq!(map.data_len(), 1024 + 512);
        let holes: Vec<_> = map.pieces().filter(|(_, stored)| !stored).map(|(hole, _)| hole).collect();
        assert_eq!(holes, [0..4096, 5120..599_552, 600_064..MB]);
        assert_eq!(map.pieces().map(|(piece, _)| piece.end - piece.start).sum::<u64>(), MB);
        assert!(map.text().starts_with(b"3\n4096\n1024\n599552\n512\n1048576\n0\n\0"));

        let to_the_end = Map::new(MB - 1, &[MB - 700..MB - 1]).unwrap();
        assert_eq!(to_the_end.regions, [MB - 1024..MB - 1]);
        assert!(to_the_end.text().starts_with(b"1\n1047552\n1023\n\0"));
    }

    #[test]
    fn is_used_only_when_it_saves_space() {
        assert_eq!(Map::new(0, &[]), None);
        assert_eq!(Map::new(1024, &[]), None);
        assert!(Map::new(4096, &[]).is_some());
        assert_eq!(Map::new(MB, &[0..512, 1024..MB]), None);
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, clippy::single_range_in_vec_init, reason = "wrong on purpose")]
    fn refuses_ranges_out_of_order() {
        assert_eq!(Map::new(MB, &[8192..9000, 0..10]), None);
        assert_eq!(Map::new(MB, &[9000..8192]), None);
        assert_eq!(Map::new(MB, &[0..u64::MAX]), None);
        assert_eq!(Map::new(MB, &[2 * MB..3 * MB]).unwrap().regions, []);
    }
}
