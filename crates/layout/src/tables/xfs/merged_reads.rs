//! Pieces that lie near each other, read by one request.

use super::volume::Volume;
use crate::{block_read::BlockRead, tables::TableError};

/// The longest gap that is read through rather than skipped, in bytes: a disk passes it sooner than it can seek.
const GAP_BYTES: u64 = 256 << 10;
/// The longest request, in bytes.
const REQUEST_BYTES: u64 = 4 << 20;

/// Pieces with rising addresses, which fit into one request. Takes [`REQUEST_BYTES`] of memory and what the pieces carry.
#[derive(Debug)]
pub(super) struct MergedRead<T> {
    start: u64,
    end: u64,
    /// Address, bytes, and what it is.
    pieces: Vec<(u64, usize, T)>,
    buffer: Vec<u8>,
}

impl<T> MergedRead<T> {
    pub(super) fn new() -> MergedRead<T> {
        MergedRead { start: 0, end: 0, pieces: Vec::new(), buffer: Vec::new() }
    }

    /// Whether a piece can be read with those that are here already.
    pub(super) fn takes(&self, at: u64, length: usize) -> bool {
        let end = at.saturating_add(length as u64);
        self.pieces.is_empty()
            || at >= self.end && at - self.end <= GAP_BYTES && end.saturating_sub(self.start) <= REQUEST_BYTES
    }

    /// Adds a piece that it takes.
    pub(super) fn add(&mut self, at: u64, length: usize, piece: T) {
        if self.pieces.is_empty() {
            self.start = at;
        }
        self.end = at.saturating_add(length as u64);
        self.pieces.push((at, length, piece));
    }

    /// Reads all pieces and leaves none. Where the request fails, each piece is tried alone.
    pub(super) fn read<B: BlockRead>(
        &mut self,
        volume: &Volume<B>,
        mut each: impl FnMut(u64, Result<&[u8], TableError>, T),
    ) {
        let length = usize::try_from(self.end - self.start).unwrap_or(0);
        self.buffer.resize(length, 0);
        let whole = volume.read_into(&mut self.buffer, self.start);
        for (at, length, piece) in self.pieces.drain(..) {
            let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
            let bytes = self.buffer.get_mut(from..).and_then(|rest| rest.get_mut(..length));
            // Never absent: the buffer reaches from the first piece to the end of the last.
            let bytes = bytes.unwrap_or_default();
            let read = if whole.is_ok() { Ok(()) } else { volume.read_into(bytes, at) };
            each(at, read.map(|()| &*bytes), piece);
        }
        (self.start, self.end) = (0, 0);
    }
}
