//! The content of one file of an image, read where its fragments lie.

use std::{fmt, io, sync::Arc};

use onesweep_layout::{
    BlockRead, Extent, ExtentFlags,
    tables::ntfs::{Decompressor, unpack_unit},
};

use super::ImageDevice;
use crate::{
    catalogue::{Amends, Catalogue, EntryId},
    plan::{NO_ADDRESS, Piece},
};

/// So much of a packed file is unpacked at once, and at least a unit.
const UNPACKED_AT_ONCE: u64 = 1 << 20;

/// Where a file lies, and how to read it there.
#[derive(Debug)]
pub(crate) struct ImageContent {
    device: Arc<ImageDevice>,
    /// By rising place in the file.
    extents: Vec<Extent>,
    packed: Option<Packed>,
    amends: Amends,
}

/// What reading a packed file needs.
struct Packed {
    size: u64,
    unit: u64,
    /// Some of the content, and where it begins in the file.
    unpacked: Vec<u8>,
    at: u64,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("size", &self.size).field("unit", &self.unit).finish_non_exhaustive()
    }
}

impl ImageContent {
    pub(crate) fn of(catalogue: &Catalogue, id: EntryId, device: &Arc<ImageDevice>) -> Self {
        let entry = catalogue.get(id);
        let base = catalogue.volume(entry.device).base + device.start();
        let packed =
            catalogue.packed_unit(id).map(|unit| Packed { size: entry.size, unit, unpacked: Vec::new(), at: 0 });
        let flags = if packed.is_some() { ExtentFlags::ENCODED } else { ExtentFlags::empty() };
        let extent = |piece: Piece| {
            let Piece { offset: logical, address, length, .. } = piece;
            Extent { logical, physical: Some(address - base), length, flags }
        };
        let extents = catalogue.pieces(id, 0).filter(|piece| piece.address != NO_ADDRESS).map(extent).collect();
        let amends = catalogue.extra(id).map(|extra| extra.amends.clone()).unwrap_or_default();
        Self { device: Arc::clone(device), extents, packed, amends }
    }

    /// Reads from `at` on, as far as is convenient; what lies between fragments reads as zeros.
    pub(crate) fn read(&mut self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let read = match &mut self.packed {
            Some(packed) => packed.read(&self.extents, &self.device, buffer, at)?,
            None => self.read_plain(buffer, at)?,
        };
        self.amends.apply(&mut buffer[..read], at);
        Ok(read)
    }

    fn read_plain(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let next = self.extents.partition_point(|extent| extent.logical_end() <= at);
        let (wanted, address) = match self.extents.get(next) {
            Some(extent) if extent.logical <= at => {
                let within = at - extent.logical;
                (extent.length - within, extent.physical.map(|physical| physical + within))
            }
            Some(extent) => (extent.logical - at, None),
            None => (buffer.len() as u64, None),
        };
        let length = buffer.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
        match address {
            Some(address) => {
                self.device.bytes().read_at(&mut buffer[..length], address).map_err(|error| {
                    io::Error::new(error.kind(), format!("byte {address} of the file system: {error}"))
                })?
            }
            None => buffer[..length].fill(0),
        }
        Ok(length)
    }

    /// Fills the buffer with the start of the file.
    pub(crate) fn read_all(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < buffer.len() {
            at += self.read(&mut buffer[at..], at as u64)?;
        }
        Ok(())
    }
}

impl Packed {
    fn read(&mut self, extents: &[Extent], device: &ImageDevice, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let held = |at: u64, begin: u64, length: usize| at.checked_sub(begin).filter(|&within| within < length as u64);
        let within = match held(at, self.at, self.unpacked.len()) {
            Some(within) => within,
            None => {
                let begin = at / self.unit * self.unit;
                let length = UNPACKED_AT_ONCE.next_multiple_of(self.unit).min(self.size.saturating_sub(begin));
                self.unpacked.resize(usize::try_from(length).unwrap_or(0), 0);
                let unit = u32::try_from(self.unit).unwrap_or(u32::MAX);
                let mut decompressor = Decompressor::new(device.bytes(), extents, self.size, unit);
                if let Err(error) = decompressor.read(begin, &mut self.unpacked) {
                    self.unpacked.clear();
                    return Err(io::Error::other(error));
                }
                self.at = begin;
                at - begin
            }
        };
        let from = self.unpacked.get(usize::try_from(within).unwrap_or(usize::MAX)..).unwrap_or_default();
        let length = buffer.len().min(from.len());
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }
}

/// Unpacks a file in place. Each of its units holds, from its start, what lies on the device: `pieces` tell where in the
/// file that is. What follows behind must be zeros.
pub(crate) fn unpack(bytes: &mut [u8], unit: u64, pieces: impl Iterator<Item = Piece>) -> io::Result<()> {
    let unit = usize::try_from(unit).map_err(io::Error::other)?;
    let mut filled = vec![0; bytes.len().div_ceil(unit)];
    for piece in pieces {
        let place = |at: u64| usize::try_from(at).map_err(io::Error::other);
        let (mut at, end) = (place(piece.offset)?, place(piece.offset.saturating_add(piece.length))?);
        while at < end {
            let number = at / unit;
            let stop = end.min((number + 1) * unit);
            // A unit has its hole at its end.
            if filled.get(number) != Some(&(at - number * unit)) {
                return Err(io::Error::other(format!("compression unit {number} is damaged: it has a hole")));
            }
            filled[number] += stop - at;
            at = stop;
        }
    }
    let mut packed = Vec::new();
    for (number, (content, filled)) in bytes.chunks_mut(unit).zip(filled).enumerate() {
        if filled == 0 || filled >= content.len() {
            continue;
        }
        packed.clear();
        packed.extend_from_slice(&content[..filled]);
        unpack_unit(&packed, content).map_err(|error| io::Error::other(format!("unit {number}: {error}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_unpacked_where_they_are() {
        const UNIT: usize = 8192;
        // 4096 times 'x', and then as often 'y'.
        let packed = [0x03, 0xb0, 0x02, b'x', 0xfc, 0x0f, 0x03, 0xb0, 0x02, b'y', 0xfc, 0x0f];
        let piece = |offset, length| Piece { address: 7, file: 0, offset, length, shared: false };
        let mut bytes = vec![0; 4 * UNIT];
        bytes[..UNIT].fill(b'p');
        bytes[UNIT..UNIT + 12].copy_from_slice(&packed);
        bytes[3 * UNIT..3 * UNIT + 12].copy_from_slice(&packed);
        // A plain unit and the start of a packed one in one piece, its rest in another, a hole, and a packed one.
        let pieces = [piece(0, 8192 + 8), piece(8200, 8), piece(3 * 8192, 16)];
        unpack(&mut bytes, UNIT as u64, pieces.into_iter()).unwrap();
        let unpacked = [[b'x'; UNIT / 2], [b'y'; UNIT / 2]].concat();
        assert!(bytes == [&[b'p'; UNIT][..], &unpacked, &[0; UNIT], &unpacked].concat());
        let error = unpack(&mut bytes, UNIT as u64, [piece(16, 8)].into_iter()).unwrap_err();
        assert!(error.to_string().contains("it has a hole"), "{error}");
        bytes[..2].copy_from_slice(&[0x03, 0xb0]);
        bytes[2..10].fill(0xff);
        let error = unpack(&mut bytes, UNIT as u64, [piece(0, 8)].into_iter()).unwrap_err();
        assert!(error.to_string().contains("unit 0: a compression unit is damaged"), "{error}");
    }
}
