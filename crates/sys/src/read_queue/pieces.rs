//! The parts of a read as the kernel wants them.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::ReadPart;
use crate::buffer::{BufferPart, FileBuffer};

/// Pieces of memory that one read can fill; the kernel's `UIO_MAXIOV`.
pub const PIECES_MAX: usize = 1024;

/// A [`ReadPart::Skip`] counts as one piece for each begun run of this many bytes.
pub const SKIP_PIECE_BYTES: usize = 256 << 10;

/// `RWF_DONTCACHE` of `linux/fs.h`: read without leaving the pages in the cache (Linux 6.14).
pub(super) const RWF_DONTCACHE: i32 = 0x80;

/// Memory for bytes that nobody asked for, shared by all reads of a queue: the kernel may write to it from many of
/// them at once, and nobody ever reads it.
#[derive(Clone)]
pub(super) struct Scratch(Arc<BufferPart>);

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch(Arc::new(FileBuffer::zeroed(SKIP_PIECE_BYTES).lend(0..SKIP_PIECE_BYTES)))
    }
}

/// The addresses of the parts of one read, valid while the parts and the scratch are kept.
#[derive(Default)]
pub(super) struct Pieces(Vec<libc::iovec>);

// SAFETY: the addresses are only handed to the kernel; whoever sends them keeps the memory behind them (see the users
// of this type in `uring` and `pool`).
unsafe impl Send for Pieces {}

impl Pieces {
    /// Lists the pieces of `parts`, at most [`PIECES_MAX`] of them.
    pub(super) fn set(&mut self, parts: &[ReadPart], scratch: &Scratch) {
        self.0.clear();
        for part in parts {
            match part {
                ReadPart::Buffer(part) => self.add(part.start(), part.len()),
                ReadPart::Skip(len) => {
                    for at in (0..*len).step_by(SKIP_PIECE_BYTES) {
                        self.add(scratch.0.start(), SKIP_PIECE_BYTES.min(len - at));
                    }
                }
            }
        }
    }

    fn add(&mut self, start: *mut u8, len: usize) {
        if len > 0 && self.0.len() < PIECES_MAX {
            self.0.push(libc::iovec { iov_base: start.cast(), iov_len: len });
        }
    }

    pub(super) fn as_slice(&self) -> &[libc::iovec] {
        &self.0
    }
}
