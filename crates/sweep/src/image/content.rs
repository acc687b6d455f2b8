//! The content of one file of an image, read where its fragments lie.

use std::{io, ops::Range, sync::Arc};

use onesweep_layout::BlockRead;

use super::ImageDevice;
use crate::{
    catalogue::{Catalogue, EntryId},
    plan::NO_ADDRESS,
};

/// Where a file lies, and how to read it there.
#[derive(Debug)]
pub(crate) struct ImageContent {
    device: Arc<ImageDevice>,
    /// Place in the file, place in the file system, bytes; by rising place in the file.
    runs: Vec<(u64, u64, u64)>,
    zeros: Vec<Range<u64>>,
}

impl ImageContent {
    pub(crate) fn of(catalogue: &Catalogue, id: EntryId, device: &Arc<ImageDevice>) -> Self {
        let base = catalogue.volume(catalogue.get(id).device).base + device.start();
        let pieces = catalogue.pieces(id, 0).filter(|piece| piece.address != NO_ADDRESS);
        let runs = pieces.map(|piece| (piece.offset, piece.address - base, piece.length)).collect();
        Self { device: Arc::clone(device), runs, zeros: catalogue.zeros(id).to_vec() }
    }

    /// Reads from `at` on, as far as one fragment goes; what lies between fragments reads as zeros.
    pub(crate) fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let next = self.runs.partition_point(|(offset, _, length)| offset + length <= at);
        let (wanted, address) = match self.runs.get(next) {
            Some(&(offset, address, length)) if offset <= at => (offset + length - at, Some(address + (at - offset))),
            Some(&(offset, ..)) => (offset - at, None),
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
        clear(&mut buffer[..length], at, &self.zeros);
        Ok(length)
    }

    /// Fills the buffer with the start of the file.
    pub(crate) fn read_all(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < buffer.len() {
            at += self.read(&mut buffer[at..], at as u64)?;
        }
        Ok(())
    }
}

/// Zeroes what of `bytes`, which begin at `at` of their file, lies in any of the ranges.
pub(crate) fn clear(bytes: &mut [u8], at: u64, zeros: &[Range<u64>]) {
    let end = at + bytes.len() as u64;
    for range in zeros {
        let (from, to) = (range.start.clamp(at, end), range.end.clamp(at, end));
        bytes[(from - at) as usize..(to - at) as usize].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_the_ranges_is_cleared() {
        for (at, expected) in [(0, [1, 1, 0, 0, 1, 1]), (3, [0, 1, 1, 1, 0, 0]), (20, [1; 6])] {
            let mut bytes = [1; 6];
            clear(&mut bytes, at, &[2..4, 7..100]);
            let expected = if at == 20 { [0; 6] } else { expected };
            assert_eq!(bytes, expected, "{at}");
        }
    }
}
