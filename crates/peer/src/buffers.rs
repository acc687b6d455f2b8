//! Bytes that came and were not understood yet, and bytes that are to go.

use std::io;

use crate::wire::FRAME_BYTES_MAX;

/// Bytes that came. Holds any frame; its memory is taken once.
#[derive(Debug)]
pub(crate) struct Incoming {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// With room for so many frames of the largest size, one at least.
    pub(crate) fn new(frames: usize) -> Self {
        Self { bytes: vec![0; frames.max(1) * FRAME_BYTES_MAX].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What came.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// That much of it is done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Takes what `read` gives, once; 0 where nothing will come any more. Not when it is full.
    pub(crate) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        if self.bytes.len() - self.end < FRAME_BYTES_MAX / 2 && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let count = read(&mut self.bytes[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// Nothing more can come before something was consumed.
    pub(crate) fn is_full(&self) -> bool {
        self.end - self.start == self.bytes.len()
    }
}

/// Bytes that are to go.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    gone: usize,
}

impl Outgoing {
    /// How much is to go.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.gone
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where more is appended.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Lets go what `write` takes, once.
    pub(crate) fn drain(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        let count = write(&self.bytes[self.gone..])?;
        self.gone += count;
        if self.gone == self.bytes.len() {
            self.bytes.clear();
            self.gone = 0;
        } else if self.gone > self.bytes.len() / 2 {
            self.bytes.drain(..self.gone);
            self.gone = 0;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_their_order_however_they_are_cut() {
        let told: Vec<u8> = (0..4 * FRAME_BYTES_MAX).map(|at| (at % 251) as u8).collect();
        let (mut incoming, mut at, mut heard) = (Incoming::new(2), 0, Vec::new());
        while heard.len() < told.len() {
            if !incoming.is_full() {
                incoming
                    .fill(|room| {
                        assert!(!room.is_empty());
                        let count = room.len().min(30_011).min(told.len() - at);
                        room[..count].copy_from_slice(&told[at..at + count]);
                        at += count;
                        Ok(count)
                    })
                    .unwrap();
            }
            // Less than came, so that something stays.
            let taken = incoming.bytes().len().min(23_003);
            heard.extend_from_slice(&incoming.bytes()[..taken]);
            incoming.consume(taken);
        }
        assert_eq!(heard, told);
    }

    #[test]
    fn bytes_go_in_their_order_however_few_are_taken() {
        let (mut outgoing, mut gone) = (Outgoing::default(), Vec::new());
        for round in 0..50_u8 {
            outgoing.end().extend_from_slice(&[round; 100]);
            outgoing
                .drain(|bytes| {
                    gone.extend_from_slice(&bytes[..70]);
                    Ok(70)
                })
                .unwrap();
        }
        assert_eq!(outgoing.len(), 50 * 30);
        outgoing
            .drain(|bytes| {
                gone.extend_from_slice(bytes);
                Ok(bytes.len())
            })
            .unwrap();
        assert!(outgoing.is_empty());
        let expected: Vec<u8> = (0..50_u8).flat_map(|round| [round; 100]).collect();
        assert_eq!(gone, expected);
    }
}
