//! Verdicts of contents, within requests and answers.

use super::{FrameError, fields::Fields};
use crate::id::Hash;

/// Contents of one request for verdicts, and verdicts of one request that tells them, at most.
pub const VERDICT_BATCH_MAX: usize = 64;
/// Verdicts of one content in an answer, at most.
pub const VERDICTS_OF_ONE_MAX: usize = 4;
/// Bytes of an engine's name, at most.
pub const ENGINE_BYTES_MAX: usize = 64;
/// Bytes of an epoch, at most.
pub const EPOCH_BYTES_MAX: usize = 255;
/// Bytes of what something bad is called, at most.
pub const INFECTION_BYTES_MAX: usize = 128;
/// Bytes of a signature, at most.
pub const SIGNATURE_BYTES_MAX: usize = 80;

const SIGNER_BYTES: usize = 32;
/// Signer, time, kind and length of the signature.
const RECORD_BYTES_MIN: usize = SIGNER_BYTES + 8 + 1 + 1;
const RECORD_BYTES_MAX: usize = RECORD_BYTES_MIN + 1 + INFECTION_BYTES_MAX + SIGNATURE_BYTES_MAX;
/// Lengths and texts of an engine.
pub(super) const ENGINE_FIELDS_BYTES: std::ops::RangeInclusive<usize> = 2 + 2..=2 + ENGINE_BYTES_MAX + EPOCH_BYTES_MAX;

/// Bytes of the count and of records with keys of `key` bytes each.
pub(super) const fn records_bytes(key: usize, least: usize, most: usize) -> std::ops::RangeInclusive<usize> {
    2 + least * (key + RECORD_BYTES_MIN)..=2 + most * (key + RECORD_BYTES_MAX)
}

/// An engine and the epoch of its signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineName<'a> {
    /// The engine, of 1 to [`ENGINE_BYTES_MAX`] bytes.
    pub name: &'a str,
    /// Its version and that of its signatures, of 1 to [`EPOCH_BYTES_MAX`] bytes.
    pub epoch: &'a str,
}

impl<'a> EngineName<'a> {
    pub(super) fn decode(fields: &mut Fields<'a>) -> Result<Self, FrameError> {
        let mut text = |most: usize| {
            let length = usize::from(fields.byte()?);
            if !(1..=most).contains(&length) {
                return Err(fields.wrong("a wrong length of a name"));
            }
            let bytes = fields.bytes(length)?;
            str::from_utf8(bytes).map_err(|_| fields.wrong("bytes that are no text"))
        };
        Ok(Self { name: text(ENGINE_BYTES_MAX)?, epoch: text(EPOCH_BYTES_MAX)? })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!((1..=ENGINE_BYTES_MAX).contains(&self.name.len()), "a name");
        debug_assert!((1..=EPOCH_BYTES_MAX).contains(&self.epoch.len()), "an epoch");
        for text in [self.name, self.epoch] {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// What somebody says of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Who: BLAKE3 of his certificate.
    pub signer: [u8; SIGNER_BYTES],
    /// When it was scanned, in seconds since 1970.
    pub time: u64,
    /// What was found; none where nothing was. 1 to [`INFECTION_BYTES_MAX`] bytes.
    pub infection: Option<&'a str>,
    /// His signature, of at most [`SIGNATURE_BYTES_MAX`] bytes.
    pub signature: &'a [u8],
}

impl<'a> Record<'a> {
    fn decode(fields: &mut Fields<'a>) -> Result<Self, FrameError> {
        let (signer, time) = (fields.array()?, u64::from_le_bytes(fields.array()?));
        let infection = match fields.byte()? {
            0 => None,
            1 => {
                let length = usize::from(fields.byte()?);
                if !(1..=INFECTION_BYTES_MAX).contains(&length) {
                    return Err(fields.wrong("a wrong length of a name"));
                }
                let bytes = fields.bytes(length)?;
                Some(str::from_utf8(bytes).map_err(|_| fields.wrong("bytes that are no text"))?)
            }
            _ => return Err(fields.wrong("an unknown verdict")),
        };
        let length = usize::from(fields.byte()?);
        if length > SIGNATURE_BYTES_MAX {
            return Err(fields.wrong("too long a signature"));
        }
        Ok(Self { signer, time, infection, signature: fields.bytes(length)? })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.signature.len() <= SIGNATURE_BYTES_MAX, "a signature");
        out.extend_from_slice(&self.signer);
        out.extend_from_slice(&self.time.to_le_bytes());
        match self.infection {
            None => out.push(0),
            Some(name) => {
                debug_assert!((1..=INFECTION_BYTES_MAX).contains(&name.len()), "a name");
                out.extend_from_slice(&[1, name.len() as u8]);
                out.extend_from_slice(name.as_bytes());
            }
        }
        out.push(self.signature.len() as u8);
        out.extend_from_slice(self.signature);
    }
}

/// Records, each with a key of `KEY` bytes: the hash of a content, or its place in the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a, const KEY: usize> {
    bytes: &'a [u8],
    count: usize,
}

/// What is told of contents.
pub type Told<'a> = Records<'a, { Hash::BYTES }>;
/// What is known of contents: the key is the place in the question, little-endian.
pub type Found<'a> = Records<'a, 2>;

impl<'a, const KEY: usize> Records<'a, KEY> {
    /// Takes a count, and as many records; all are looked at.
    pub(super) fn decode(fields: &mut Fields<'a>, least: usize, most: usize) -> Result<Self, FrameError> {
        let count = usize::from(fields.u16()?);
        if !(least..=most).contains(&count) {
            return Err(fields.wrong("a wrong number of verdicts"));
        }
        let records = Self { bytes: fields.all(), count };
        for _ in 0..count {
            fields.array::<KEY>()?;
            Record::decode(fields)?;
        }
        // What is behind them is too much, which the frame's end finds.
        let used = records.bytes.len() - fields.all().len();
        Ok(Self { bytes: &records.bytes[..used], count })
    }

    pub(super) fn encode<'b>(out: &mut Vec<u8>, records: impl ExactSizeIterator<Item = ([u8; KEY], Record<'b>)>) {
        out.extend_from_slice(&(records.len() as u16).to_le_bytes());
        for (key, record) in records {
            out.extend_from_slice(&key);
            record.encode(out);
        }
    }

    pub(super) fn encode_again(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.count as u16).to_le_bytes());
        out.extend_from_slice(self.bytes);
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// None.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each with its key.
    pub fn iter(&self) -> impl Iterator<Item = ([u8; KEY], Record<'a>)> + use<'a, KEY> {
        let mut fields = Fields::new(0, self.bytes);
        // They were looked at before: none fails.
        (0..self.count).map_while(move |_| Some((fields.array().ok()?, Record::decode(&mut fields).ok()?)))
    }
}
