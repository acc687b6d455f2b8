//! Pieces that lie near each other, read by one request; and requests that a disk may choose among.

use std::collections::VecDeque;

use super::volume::Volume;
use crate::{block_read::BlockRead, tables::TableError};

/// The longest gap that is read through rather than skipped, in bytes: a disk that chooses among many passes it sooner than
/// it comes to another request.
const GAP_BYTES: u64 = 128 << 10;
/// The longest request, in bytes.
const REQUEST_BYTES: u64 = 4 << 20;
/// How many requests are announced ahead of the one that is read: four times what a disk chooses among, since the oldest is
/// not the first that it serves.
const ANNOUNCED: usize = 128;
/// How many bytes they may have together.
const ANNOUNCED_BYTES: u64 = 16 << 20;

/// Pieces with rising addresses, which fit into one request.
#[derive(Debug)]
pub(super) struct MergedRead<T> {
    start: u64,
    end: u64,
    /// Address, bytes, and what it is.
    pieces: Vec<(u64, usize, T)>,
}

impl<T> MergedRead<T> {
    /// Whether a piece can be read with those that are here already.
    fn takes(&self, at: u64, length: usize) -> bool {
        let end = at.saturating_add(length as u64);
        at >= self.end && at - self.end <= GAP_BYTES && end.saturating_sub(self.start) <= REQUEST_BYTES
    }

    fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Reads all pieces. Where the request fails, each piece is tried alone. The buffer grows to at most [`REQUEST_BYTES`],
    /// or to a single piece that is longer.
    pub(super) fn read<B: BlockRead>(
        self,
        volume: &Volume<B>,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(u64, Result<&[u8], TableError>, T),
    ) {
        buffer.resize(usize::try_from(self.bytes()).unwrap_or(0), 0);
        let whole = volume.read_into(buffer, self.start);
        for (at, length, piece) in self.pieces {
            let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
            let bytes = buffer.get_mut(from..).and_then(|rest| rest.get_mut(..length));
            // Never absent: the buffer reaches from the first piece to the end of the last.
            let bytes = bytes.unwrap_or_default();
            let read = if whole.is_ok() { Ok(()) } else { volume.read_into(bytes, at) };
            each(at, read.map(|()| &*bytes), piece);
        }
    }
}

/// Requests in the order in which they were made. The device is told of each as soon as it is complete, and it is read when
/// enough others were announced behind it: a disk that has many to choose among waits less for its platter to turn.
#[derive(Debug)]
pub(super) struct MergedReads<T> {
    announced: VecDeque<MergedRead<T>>,
    announced_bytes: u64,
    /// The one that still grows.
    last: Option<MergedRead<T>>,
}

impl<T> MergedReads<T> {
    pub(super) fn new() -> MergedReads<T> {
        MergedReads { announced: VecDeque::new(), announced_bytes: 0, last: None }
    }

    /// Adds a piece. Gives back the oldest request once enough others are behind it.
    #[must_use]
    pub(super) fn add<B: BlockRead>(
        &mut self,
        volume: &Volume<B>,
        at: u64,
        length: usize,
        piece: T,
    ) -> Option<MergedRead<T>> {
        let end = at.saturating_add(length as u64);
        match &mut self.last {
            Some(last) if last.takes(at, length) => {
                last.end = end;
                last.pieces.push((at, length, piece));
                None
            }
            _ => {
                self.announce(volume);
                self.last = Some(MergedRead { start: at, end, pieces: vec![(at, length, piece)] });
                let enough = self.announced.len() > ANNOUNCED || self.announced_bytes > ANNOUNCED_BYTES;
                enough.then(|| self.oldest()).flatten()
            }
        }
    }

    /// The oldest request, when no more pieces come.
    pub(super) fn next<B: BlockRead>(&mut self, volume: &Volume<B>) -> Option<MergedRead<T>> {
        self.announce(volume);
        self.oldest()
    }

    /// Tells the device of the request that was still growing.
    fn announce<B: BlockRead>(&mut self, volume: &Volume<B>) {
        if let Some(last) = self.last.take() {
            volume.will_read(last.start, last.bytes());
            self.announced_bytes += last.bytes();
            self.announced.push_back(last);
        }
    }

    fn oldest(&mut self) -> Option<MergedRead<T>> {
        let oldest = self.announced.pop_front()?;
        self.announced_bytes -= oldest.bytes();
        Some(oldest)
    }
}
