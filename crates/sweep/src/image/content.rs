//! The content of one file of an image, read where its fragments lie.

use std::{io, sync::Arc};

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
}

impl ImageContent {
    pub(crate) fn of(catalogue: &Catalogue, id: EntryId, device: &Arc<ImageDevice>) -> Self {
        let base = catalogue.volume(catalogue.get(id).device).base + device.start();
        let pieces = catalogue.pieces(id, 0).filter(|piece| piece.address != NO_ADDRESS);
        let runs = pieces.map(|piece| (piece.offset, piece.address - base, piece.length)).collect();
        Self { device: Arc::clone(device), runs }
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
