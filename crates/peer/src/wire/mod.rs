//! What is said between client and server (docs/FORMATS.md): bytes in, bytes out; no I/O, no clock.
//!
//! A frame is a length (u32, of what follows it), a kind (u8) and a body. All numbers are little-endian. The length is held
//! against what its kind may have as soon as both are there, so that nobody waits for, or makes room for, what can't be valid.
//! What is decoded borrows from the bytes that came.
//!
//! The client greets, the server welcomes. Then each request has a number that the client chooses, and exactly one answer
//! with the same number; answers come in any order.

mod answer;
mod fields;
mod request;
#[cfg(test)]
mod tests;
mod verdicts;

pub use answer::{Answer, Bits, Closing, Refusal, Welcome, answer};
pub use request::{GetWriter, Greeting, Hashes, Priority, Request, request};
pub use verdicts::{
    ENGINE_BYTES_MAX, EPOCH_BYTES_MAX, EngineName, Found, INFECTION_BYTES_MAX, Record, SIGNATURE_BYTES_MAX, Told,
    VERDICT_BATCH_MAX, VERDICTS_OF_ONE_MAX,
};

use crate::id::{BLOCK_BYTES_MAX, Hash};

/// The first bytes of both greetings.
pub const MAGIC: [u8; 8] = *b"1SWPPEER";
/// The version that is spoken here.
pub const VERSION: u16 = 1;
/// Bytes of the length and the kind.
pub const HEAD_BYTES: usize = 5;
/// Bytes of the largest frame, its length included: a block that is put.
pub const FRAME_BYTES_MAX: usize = HEAD_BYTES + 4 + Hash::BYTES + BLOCK_BYTES_MAX;
/// Hashes of one request, at most.
pub const BATCH_MAX: usize = 1024;
/// Bytes of a text, at most.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// Why bytes are no frame. The connection can't go on after it: nobody knows where the next frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No frame that this side receives.
    #[error("a frame of kind {0:#04x}, which is not expected here")]
    Kind(u8),
    /// More or fewer bytes than frames of its kind have.
    #[error("a frame of kind {kind:#04x} of {length} bytes; it has {least} to {most}")]
    Length {
        /// The kind.
        kind: u8,
        /// What the length says.
        length: u32,
        /// The shortest.
        least: usize,
        /// The longest.
        most: usize,
    },
    /// The bytes of the body make no sense.
    #[error("a frame of kind {kind:#04x} with {what}")]
    Body {
        /// The kind.
        kind: u8,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// A frame, and how many bytes it took; none where more have to come.
pub type Decoded<T> = Result<Option<(T, usize)>, FrameError>;

/// The range of lengths of a kind's body.
type Lengths = std::ops::RangeInclusive<usize>;

/// The next frame's kind and body.
fn frame(input: &[u8], lengths: impl Fn(u8) -> Option<Lengths>) -> Decoded<(u8, &[u8])> {
    let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [a, b, c, d, kind] = *head;
    let length = u32::from_le_bytes([a, b, c, d]);
    let lengths = lengths(kind).ok_or(FrameError::Kind(kind))?;
    let body = (length as usize).checked_sub(1).filter(|body| lengths.contains(body)).ok_or(FrameError::Length {
        kind,
        length,
        least: lengths.start() + 1,
        most: lengths.end() + 1,
    })?;
    Ok(rest.get(..body).map(|bytes| ((kind, bytes), HEAD_BYTES + body)))
}

/// Appends a frame; `body` appends what it holds.
fn append(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    body(out);
    close(out, start);
}

/// Writes the length of the frame that begins at `start` and ends here.
fn close(out: &mut [u8], start: usize) {
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}
