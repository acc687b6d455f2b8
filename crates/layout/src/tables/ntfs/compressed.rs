//! The content of compressed files: units of 16 clusters, each a hole, plain, or packed by LZNT1 into fewer clusters.

use thiserror::Error;

use super::lznt1;
use crate::{
    block_read::BlockRead,
    extent::{Extent, ExtentFlags},
    tables::TableError,
};

/// A unit isn't what packing makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a compression unit is damaged: expected {expected}, found none at byte {at} of it")]
pub struct BadUnit {
    /// What would be right.
    pub expected: &'static str,
    /// Where, in bytes of what was packed.
    pub at: usize,
}

/// The content of one unit from the bytes that lie on the device: none of a hole, as many as the content has where it is
/// plain, fewer where it is packed.
pub fn unpack_unit(packed: &[u8], content: &mut [u8]) -> Result<(), BadUnit> {
    match packed.len() {
        0 => content.fill(0),
        full if full == content.len() => content.copy_from_slice(packed),
        _ => lznt1::decompress(packed, content).map_err(|bad| BadUnit { expected: bad.what, at: bad.offset })?,
    }
    Ok(())
}

/// Reads the content of a compressed file of NTFS from its extents. Memory: two compression units (2 × 64 KiB where clusters
/// have 4096 bytes; Windows compresses with none larger).
///
/// The extents are those of [`Inode::extents`](crate::tables::Inode::extents), with
/// [`ENCODED`](ExtentFlags::ENCODED); the size of a unit is told by
/// [`VolumeFacts::compression_unit_bytes`](crate::tables::VolumeFacts::compression_unit_bytes).
pub struct Decompressor<'a, B: ?Sized> {
    device: &'a B,
    extents: &'a [Extent],
    size: u64,
    unit_bytes: usize,
    /// Which unit is in `content`.
    unit: Option<u64>,
    content: Vec<u8>,
    packed: Vec<u8>,
}

impl<'a, B: BlockRead + ?Sized> Decompressor<'a, B> {
    /// Of a file of `size` bytes with these extents on the device.
    pub fn new(device: &'a B, extents: &'a [Extent], size: u64, unit_bytes: u32) -> Decompressor<'a, B> {
        // Units of no size would never end.
        let unit_bytes = usize::try_from(unit_bytes).unwrap_or(usize::MAX).max(1);
        Decompressor { device, extents, size, unit_bytes, unit: None, content: Vec::new(), packed: Vec::new() }
    }

    /// Fills the buffer with the content from `at` on; what is behind the end of the file becomes zeros.
    ///
    /// [`TableError::Damaged`] where a unit can't be decompressed, [`TableError::Io`] where it can't be read.
    pub fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), TableError> {
        let unit_bytes = self.unit_bytes as u64;
        let mut done = 0;
        while done < to.len() {
            let Some(at) = at.checked_add(done as u64).filter(|at| *at < self.size) else {
                to[done..].fill(0);
                return Ok(());
            };
            let within = usize::try_from(at % unit_bytes).unwrap_or(0);
            self.load(at / unit_bytes)?;
            let rest = usize::try_from(self.size - at).unwrap_or(usize::MAX);
            let from = &self.content[within..];
            let length = from.len().min(to.len() - done).min(rest);
            to[done..done + length].copy_from_slice(&from[..length]);
            done += length;
        }
        Ok(())
    }

    /// Decompresses a unit, unless it was the last one.
    fn load(&mut self, unit: u64) -> Result<(), TableError> {
        if self.unit == Some(unit) {
            return Ok(());
        }
        self.unit = None;
        let start = unit * self.unit_bytes as u64;
        let end = start.saturating_add(self.unit_bytes as u64);
        let first = self.extents.partition_point(|extent| extent.logical_end() <= start);
        let within = self.extents[first..].iter().take_while(|extent| extent.logical < end);
        let mut written_end = end;
        self.packed.clear();
        let mut place = 0;
        for extent in within {
            let from = extent.logical.max(start);
            let length = usize::try_from(extent.logical_end().min(end) - from).unwrap_or(0);
            let at = extent.physical.map(|physical| physical + (from - extent.logical));
            // A unit has its holes at its end.
            let expected = start + self.packed.len() as u64;
            let Some(at) = at.filter(|_| from == expected && length <= self.unit_bytes - self.packed.len()) else {
                let what = format!("compression unit {unit}");
                return Err(TableError::damaged(what, place, format!("clusters from byte {expected} on"), from));
            };
            if extent.flags.contains(ExtentFlags::UNWRITTEN) {
                written_end = written_end.min(from);
            }
            place = if self.packed.is_empty() { at } else { place };
            let filled = self.packed.len();
            self.packed.resize(filled + length, 0);
            let to = &mut self.packed[filled..];
            self.device.read_at(to, at).map_err(|source| TableError::Io { at, length: length as u64, source })?;
        }
        self.content.resize(self.unit_bytes, 0);
        unpack_unit(&self.packed, &mut self.content).map_err(|bad| {
            let found = format!("none at byte {} of it", bad.at);
            TableError::damaged(format!("compression unit {unit}"), place, bad.expected, found)
        })?;
        let written = usize::try_from(written_end.saturating_sub(start)).unwrap_or(usize::MAX);
        if let Some(unwritten) = self.content.get_mut(written..) {
            unwritten.fill(0);
        }
        self.unit = Some(unit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, physical: u64, length: u64) -> Extent {
        Extent { logical, physical: Some(physical), length, flags: ExtentFlags::ENCODED }
    }

    /// A plain unit, a packed one that lies in two places, a hole, and half of one.
    #[test]
    fn units_of_every_kind() {
        let mut device = vec![0; 1 << 16];
        device[..8192].fill(b'p');
        // 4096 times 'x', and then 4096 times 'y': 6 bytes each, divided over two clusters of 8 bytes.
        let packed = [0x03, 0xb0, 0x02, b'x', 0xfc, 0x0f, 0x03, 0xb0, 0x02, b'y', 0xfc, 0x0f, 0, 0, 0, 0];
        device[10_000..10_008].copy_from_slice(&packed[..8]);
        device[20_000..20_008].copy_from_slice(&packed[8..]);
        let mut last = extent(24_576, 10_000, 8);
        let mut rest = extent(24_584, 20_000, 8);
        let extents = [extent(0, 0, 8192), extent(8192, 10_000, 8), extent(8200, 20_000, 8), last, rest];
        let mut decompressor = Decompressor::new(&device, &extents, 30_000, 8192);
        let mut content = vec![1; 32_768];
        decompressor.read(0, &mut content).unwrap();
        let expected =
            [vec![b'p'; 8192], vec![b'x'; 4096], vec![b'y'; 4096], vec![0; 8192], vec![b'x'; 4096], vec![b'y'; 4096]]
                .concat();
        assert_eq!(content[..30_000], expected[..30_000]);
        assert!(content[30_000..].iter().all(|byte| *byte == 0));
        for at in [0, 8191, 8192, 12_287, 16_383, 29_999] {
            let mut two = [0; 2];
            decompressor.read(at, &mut two).unwrap();
            assert_eq!(two[0], expected[at as usize]);
        }

        // What wasn't written reads as zeros, wherever in the unit that begins.
        rest.flags |= ExtentFlags::UNWRITTEN;
        last.length = 4;
        let between = Extent { logical: 24_580, physical: Some(10_004), length: 4, flags: rest.flags };
        let extents = [last, between, rest];
        Decompressor::new(&device, &extents, 30_000, 8192).read(24_576, &mut content[..8]).unwrap();
        assert_eq!(content[..8], *b"xxxx\0\0\0\0");
    }

    #[test]
    fn a_unit_that_cannot_be_is_told() {
        let device = vec![0x11; 1 << 16];
        for extents in [vec![extent(8, 0, 8)], vec![extent(0, 0, 8), extent(16, 0, 8)], vec![extent(0, 1 << 20, 8)]] {
            assert!(Decompressor::new(&device, &extents, 8192, 8192).read(0, &mut [0; 8]).is_err());
        }
    }
}
