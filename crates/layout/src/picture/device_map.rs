//! A device as cells on a Hilbert curve: what is near on the device is near on the map.

use std::ops::Range;

/// What lies on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Free,
    /// Files that were looked at, each in one piece.
    Whole,
    /// The same in several pieces.
    Fragmented,
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shade {
    /// All of it is free.
    Free,
    /// Less than half is used, by others.
    Partly,
    /// Half or more is used, by others.
    Used,
    /// What else there is, is not known.
    Unknown,
    /// Files that were looked at, most of them in one piece.
    Whole,
    /// The same, most of them in several pieces.
    Fragmented,
}

/// Bytes of a cell, by kind.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    free: u64,
    whole: u64,
    fragmented: u64,
}

/// A map of a device. Takes 24 bytes a cell, whatever lies on the device.
#[derive(Clone, Debug)]
pub struct DeviceMap {
    side: u32,
    device_bytes: u64,
    cells: Vec<Cell>,
    /// Whether free space is known.
    has_free: bool,
}

impl DeviceMap {
    /// An empty map of 4 to the `order` cells (order 1 to 10), of a device that has at least as many bytes.
    pub fn new(device_bytes: u64, order: u32) -> DeviceMap {
        let side = 1 << order.clamp(1, 10);
        let cells = vec![Cell::default(); (side * side) as usize];
        DeviceMap { side, device_bytes: device_bytes.max(1), cells, has_free: false }
    }

    /// Cells of a row.
    pub fn side(&self) -> u32 {
        self.side
    }

    /// Bytes of the device.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// Free space is known from here on: what nobody takes is used by others.
    pub fn know_free(&mut self) {
        self.has_free = true;
    }

    /// Whether free space is known.
    pub fn knows_free(&self) -> bool {
        self.has_free
    }

    /// Where the cell with that number begins on the device.
    fn start(&self, cell: usize) -> u64 {
        (u128::from(self.device_bytes) * cell as u128 / self.cells.len() as u128) as u64
    }

    /// The cell of a byte.
    fn cell_of(&self, byte: u64) -> usize {
        let cell = (u128::from(byte) * self.cells.len() as u128 / u128::from(self.device_bytes)) as usize;
        // Where cells are no whole number of bytes, that may be one too low.
        let cell = cell.min(self.cells.len() - 1);
        if cell + 1 < self.cells.len() && self.start(cell + 1) <= byte { cell + 1 } else { cell }
    }

    /// Puts some bytes on the map; what lies beyond the end is left out.
    pub fn add(&mut self, kind: Kind, run: Range<u64>) {
        let end = run.end.min(self.device_bytes);
        let mut at = run.start;
        while at < end {
            let cell = self.cell_of(at);
            let next = if cell + 1 < self.cells.len() { self.start(cell + 1).max(at + 1) } else { end };
            let bytes = next.min(end) - at;
            let sum = &mut self.cells[cell];
            match kind {
                Kind::Free => sum.free += bytes,
                Kind::Whole => sum.whole += bytes,
                Kind::Fragmented => sum.fragmented += bytes,
            }
            at = next;
        }
    }

    /// What a cell shows, by its number along the curve. A cell with any bytes of the files that were looked at shows them.
    pub fn shade(&self, cell: usize) -> Shade {
        let Cell { free, whole, fragmented } = self.cells[cell];
        let bytes =
            if cell + 1 < self.cells.len() { self.start(cell + 1) } else { self.device_bytes } - self.start(cell);
        match () {
            () if fragmented > 0 && fragmented >= whole => Shade::Fragmented,
            () if whole > 0 => Shade::Whole,
            () if !self.has_free => Shade::Unknown,
            () if free >= bytes => Shade::Free,
            () if free > bytes / 2 => Shade::Partly,
            () => Shade::Used,
        }
    }

    /// What the cell of a column and a row shows.
    pub fn shade_at(&self, x: u32, y: u32) -> Shade {
        self.shade(distance(self.side, x, y) as usize)
    }
}

/// How far along the Hilbert curve over a square of `side` (a power of two) a place is; the curve begins at the top left and
/// ends at the top right.
pub fn distance(side: u32, x: u32, y: u32) -> u64 {
    let (mut x, mut y, mut sum) = (x, y, 0_u64);
    let mut half = side / 2;
    while half > 0 {
        let (right, below) = (u32::from(x & half > 0), u32::from(y & half > 0));
        sum += u64::from(half) * u64::from(half) * u64::from((3 * right) ^ below);
        // Each quarter is the whole curve, turned.
        if below == 0 {
            if right == 1 {
                (x, y) = (side - 1 - x, side - 1 - y);
            }
            (x, y) = (y, x);
        }
        half /= 2;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_the_curve_touch_and_none_comes_twice() {
        for side in [2_u32, 4, 32] {
            let mut places = vec![None; (side * side) as usize];
            for (x, y) in (0..side).flat_map(|y| (0..side).map(move |x| (x, y))) {
                assert!(places[distance(side, x, y) as usize].replace((x, y)).is_none());
            }
            let places: Vec<(u32, u32)> = places.into_iter().map(Option::unwrap).collect();
            let touch = |pair: &[(u32, u32)]| pair[0].0.abs_diff(pair[1].0) + pair[0].1.abs_diff(pair[1].1) == 1;
            assert!(places.windows(2).all(touch), "{places:?}");
            assert_eq!((places[0], places[places.len() - 1]), ((0, 0), (side - 1, 0)));
        }
    }

    #[test]
    fn the_smallest_curve_by_hand() {
        // Down, right, up.
        assert_eq!([(0, 0), (0, 1), (1, 1), (1, 0)].map(|(x, y)| distance(2, x, y)), [0, 1, 2, 3]);
    }

    #[test]
    fn cells_show_what_lies_in_them() {
        // Four cells of 100 bytes.
        let mut map = DeviceMap::new(400, 1);
        map.add(Kind::Whole, 90..110);
        map.add(Kind::Fragmented, 100..101);
        assert_eq!([0, 1, 2].map(|cell| map.shade(cell)), [Shade::Whole, Shade::Whole, Shade::Unknown]);
        map.know_free();
        map.add(Kind::Free, 200..300);
        map.add(Kind::Free, 300..360);
        assert_eq!([2, 3].map(|cell| map.shade(cell)), [Shade::Free, Shade::Partly]);
        map.add(Kind::Fragmented, 110..200);
        assert_eq!(map.shade(1), Shade::Fragmented);
        let mut used = DeviceMap::new(400, 1);
        used.know_free();
        used.add(Kind::Free, 0..50);
        used.add(Kind::Free, 390..5000);
        assert_eq!([0, 3].map(|cell| used.shade(cell)), [Shade::Used, Shade::Used]);
    }

    #[test]
    fn all_bytes_are_on_the_map_once() {
        for bytes in [64_u64, 65, 1000, 4097, 1 << 40, (1 << 44) + 12345] {
            let mut map = DeviceMap::new(bytes, 3);
            map.add(Kind::Free, 0..bytes);
            assert_eq!(map.cells.iter().map(|cell| cell.free).sum::<u64>(), bytes);
            map.know_free();
            assert!((0..64).all(|cell| map.shade(cell) == Shade::Free), "{bytes}");
        }
    }
}
