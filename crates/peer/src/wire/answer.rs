//! What servers say.

use super::{
    BATCH_MAX, Decoded, Found, FrameError, HEAD_BYTES, Lengths, MAGIC, Record, TEXT_BYTES_MAX, VERDICT_BATCH_MAX,
    VERDICTS_OF_ONE_MAX, append, close,
    fields::Fields,
    frame,
    verdicts::{Records, records_bytes},
};
use crate::id::BLOCK_BYTES_MAX;

const WELCOME: u8 = 0x81;
const BLOCK: u8 = 0x82;
const HAS: u8 = 0x83;
const STORED: u8 = 0x84;
const FAILED: u8 = 0x85;
const STAT: u8 = 0x86;
const PONG: u8 = 0x87;
const CLOSING: u8 = 0x88;
const VERDICTS: u8 = 0x89;
const TOLD: u8 = 0x8a;

/// Verdicts of one answer, at most.
const RECORDS_MAX: usize = VERDICT_BATCH_MAX * VERDICTS_OF_ONE_MAX;

const WELCOME_BYTES: usize = MAGIC.len() + 2 + 4 * 4;

fn lengths(kind: u8) -> Option<Lengths> {
    Some(match kind {
        WELCOME => WELCOME_BYTES..=WELCOME_BYTES,
        BLOCK => 4 + 1..=4 + BLOCK_BYTES_MAX,
        HAS => 6 + 1..=6 + BATCH_MAX / 8,
        STORED | FAILED => 5..=5,
        STAT => 4..=4 + TEXT_BYTES_MAX,
        PONG => 4..=4,
        CLOSING => 1..=1,
        VERDICTS => {
            let found = records_bytes(2, 0, RECORDS_MAX);
            4 + found.start()..=4 + found.end()
        }
        TOLD => 6..=6,
        _ => return None,
    })
}

/// What a server takes. The first ten bytes have the same shape in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both speak from now on.
    pub version: u16,
    /// Requests without an answer that a connection may have; more are refused, each for itself.
    pub in_flight: u32,
    /// Hashes of one request.
    pub batch: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of blocks that were put and have no answer; a client that sends more waits.
    pub put_bytes: u32,
}

/// Why a request got nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum Refusal {
    /// Nobody has put this block, or it was dropped since.
    #[error("the server doesn't have it")]
    Absent = 0,
    /// The client didn't want it any more.
    #[error("it was cancelled")]
    Cancelled = 1,
    /// Too many requests without an answer.
    #[error("the server has too many requests of this client")]
    Busy = 2,
    /// The bytes are not those of the hash.
    #[error("the bytes are not those of the hash")]
    WrongHash = 3,
    /// The server's own store failed.
    #[error("the server's store failed")]
    Store = 4,
    /// The client's certificate doesn't allow it.
    #[error("the role of this client doesn't allow it")]
    Role = 5,
    /// A verdict that the client tells is not signed by the key of its certificate.
    #[error("the signature is not that of this client")]
    Signature = 6,
}

impl Refusal {
    const ALL: [Self; 7] =
        [Self::Absent, Self::Cancelled, Self::Busy, Self::WrongHash, Self::Store, Self::Role, Self::Signature];
}

/// Why a server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum Closing {
    /// There is no version that both speak.
    #[error("the server speaks other versions of the protocol")]
    Version = 0,
    /// The client has another key.
    #[error("the server belongs to another trust domain: its key is another one")]
    Domain = 1,
    /// What the client sent was no frame.
    #[error("the server could not understand what it was sent")]
    Frame = 2,
    /// There are too many connections.
    #[error("the server has too many connections")]
    Busy = 3,
    /// Nothing was said for too long.
    #[error("the server heard nothing for too long")]
    Idle = 4,
    /// The server ends.
    #[error("the server ends")]
    Stopping = 5,
    /// The client's certificate has no role that may ask here.
    #[error("the role of this client doesn't allow it to ask here")]
    Role = 6,
}

impl Closing {
    const ALL: [Self; 7] =
        [Self::Version, Self::Domain, Self::Frame, Self::Busy, Self::Idle, Self::Stopping, Self::Role];
}

/// Which of the hashes of a question are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Bits<'a> {
    /// How many hashes were asked for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// None; what was decoded has one at least.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Of each, in the order of the question.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = bool> + use<'a> {
        let bytes = self.bytes;
        (0..self.count).map(move |at| bytes[at / 8] >> (at % 8) & 1 == 1)
    }
}

/// A frame of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The first frame of a connection that is taken.
    Welcome(Welcome),
    /// A block that was asked for; nobody has checked it yet.
    Block {
        /// The request's number.
        id: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Which blocks are there.
    Has {
        /// The request's number.
        id: u32,
        /// Of each hash.
        bits: Bits<'a>,
    },
    /// A block is kept.
    Stored {
        /// The request's number.
        id: u32,
        /// It was there before.
        was_known: bool,
    },
    /// A request got nothing.
    Failed {
        /// The request's number.
        id: u32,
        /// Why.
        why: Refusal,
    },
    /// What the server has counted, in the text form of OpenMetrics.
    Stat {
        /// The request's number.
        id: u32,
        /// The text.
        text: &'a str,
    },
    /// The answer to a ping.
    Pong {
        /// The request's number.
        id: u32,
    },
    /// The last frame of a connection.
    Closing(Closing),
    /// What is known of contents. Nobody has checked yet who says so.
    Verdicts {
        /// The request's number.
        id: u32,
        /// Of each content, [`VERDICTS_OF_ONE_MAX`] at most.
        found: Found<'a>,
    },
    /// What was told is kept.
    Told {
        /// The request's number.
        id: u32,
        /// How much of it was new.
        new: u16,
    },
}

/// Reads the next frame of a server.
pub fn answer(input: &[u8]) -> Decoded<Answer<'_>> {
    let Some(((kind, body), used)) = frame(input, lengths)? else { return Ok(None) };
    let mut fields = Fields::new(kind, body);
    let answer = match kind {
        WELCOME => Answer::Welcome(welcome(&mut fields)?),
        BLOCK => Answer::Block { id: fields.u32()?, bytes: fields.rest() },
        HAS => Answer::Has { id: fields.u32()?, bits: bits(&mut fields)? },
        STORED => Answer::Stored {
            id: fields.u32()?,
            was_known: match fields.byte()? {
                0 => false,
                1 => true,
                _ => return Err(fields.wrong("neither yes nor no")),
            },
        },
        FAILED => {
            let (id, code) = (fields.u32()?, usize::from(fields.byte()?));
            let why = *Refusal::ALL.get(code).ok_or_else(|| fields.wrong("an unknown reason"))?;
            Answer::Failed { id, why }
        }
        STAT => {
            let id = fields.u32()?;
            let text = str::from_utf8(fields.rest()).map_err(|_| fields.wrong("bytes that are no text"))?;
            Answer::Stat { id, text }
        }
        PONG => Answer::Pong { id: fields.u32()? },
        CLOSING => {
            let code = usize::from(fields.byte()?);
            Answer::Closing(*Closing::ALL.get(code).ok_or_else(|| fields.wrong("an unknown reason"))?)
        }
        VERDICTS => Answer::Verdicts { id: fields.u32()?, found: Records::decode(&mut fields, 0, RECORDS_MAX)? },
        TOLD => Answer::Told { id: fields.u32()?, new: fields.u16()? },
        _ => return Err(FrameError::Kind(kind)),
    };
    fields.end(Some((answer, used)))
}

fn welcome(fields: &mut Fields<'_>) -> Result<Welcome, FrameError> {
    if fields.array()? != MAGIC {
        return Err(fields.wrong("another magic: this is no server of onesweep"));
    }
    let welcome = Welcome {
        version: fields.u16()?,
        in_flight: fields.u32()?,
        batch: fields.u32()?,
        block_bytes: fields.u32()?,
        put_bytes: fields.u32()?,
    };
    let limits = [welcome.in_flight, welcome.batch, welcome.block_bytes, welcome.put_bytes];
    if limits.contains(&0) { Err(fields.wrong("a limit that allows nothing")) } else { Ok(welcome) }
}

fn bits<'a>(fields: &mut Fields<'a>) -> Result<Bits<'a>, FrameError> {
    let count = usize::from(fields.u16()?);
    if !(1..=BATCH_MAX).contains(&count) {
        return Err(fields.wrong("a wrong number of hashes"));
    }
    let bytes = fields.bytes(count.div_ceil(8))?;
    let beyond = if count % 8 == 0 { 0 } else { bytes[bytes.len() - 1] >> (count % 8) };
    if beyond == 0 { Ok(Bits { bytes, count }) } else { Err(fields.wrong("bits of no hash")) }
}

impl Answer<'_> {
    /// Appends a block, which `fill` appends; where that gives nothing, or more than a block may have, nothing is.
    pub fn block<E>(out: &mut Vec<u8>, id: u32, fill: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>) -> Result<bool, E> {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, BLOCK]);
        out.extend_from_slice(&id.to_le_bytes());
        let filled = fill(out);
        let bytes = out.len() - start - HEAD_BYTES - 4;
        if matches!(filled, Ok(true)) && (1..=BLOCK_BYTES_MAX).contains(&bytes) {
            close(out, start);
            return filled;
        }
        out.truncate(start);
        filled.map(|_| false)
    }

    /// Appends which are there; one at least, [`BATCH_MAX`] at most.
    pub fn has(out: &mut Vec<u8>, id: u32, are_there: &[bool]) {
        debug_assert!((1..=BATCH_MAX).contains(&are_there.len()), "a batch");
        append(out, HAS, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&(are_there.len() as u16).to_le_bytes());
            let byte = |eight: &[bool]| eight.iter().rev().fold(0, |byte, is| byte << 1 | u8::from(*is));
            out.extend(are_there.chunks(8).map(byte));
        });
    }

    /// Appends what is known of contents, each under its place in the question.
    pub fn verdicts(out: &mut Vec<u8>, id: u32, records: &[(u16, Record<'_>)]) {
        debug_assert!(records.len() <= RECORDS_MAX, "an answer");
        append(out, VERDICTS, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            Records::encode(out, records.iter().map(|(place, record)| (place.to_le_bytes(), *record)));
        });
    }

    /// Appends the frame that was read as this.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Welcome(welcome) => append(out, WELCOME, |out| {
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&welcome.version.to_le_bytes());
                for limit in [welcome.in_flight, welcome.batch, welcome.block_bytes, welcome.put_bytes] {
                    out.extend_from_slice(&limit.to_le_bytes());
                }
            }),
            Self::Block { id, bytes } => append(out, BLOCK, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(bytes);
            }),
            Self::Has { id, bits } => Self::has(out, id, &bits.iter().collect::<Vec<_>>()),
            Self::Stored { id, was_known } => append(out, STORED, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                out.push(was_known.into());
            }),
            Self::Failed { id, why } => append(out, FAILED, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                out.push(why as u8);
            }),
            Self::Stat { id, text } => append(out, STAT, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }),
            Self::Pong { id } => append(out, PONG, |out| out.extend_from_slice(&id.to_le_bytes())),
            Self::Closing(why) => append(out, CLOSING, |out| out.push(why as u8)),
            Self::Verdicts { id, found } => append(out, VERDICTS, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                found.encode_again(out);
            }),
            Self::Told { id, new } => append(out, TOLD, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&new.to_le_bytes());
            }),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::wire) fn refusal(at: usize) -> Refusal {
        Refusal::ALL[at]
    }

    pub(in crate::wire) fn closing(at: usize) -> Closing {
        Closing::ALL[at]
    }

    #[test]
    fn codes_are_places_in_their_lists() {
        assert!(Refusal::ALL.iter().enumerate().all(|(at, why)| *why as usize == at));
        assert!(Closing::ALL.iter().enumerate().all(|(at, why)| *why as usize == at));
    }
}
