//! What clients say.

use super::{
    BATCH_MAX, Decoded, EngineName, FrameError, HEAD_BYTES, Lengths, MAGIC, Record, Told, VERDICT_BATCH_MAX, append,
    close,
    fields::Fields,
    frame,
    verdicts::{ENGINE_FIELDS_BYTES, Records, records_bytes},
};
use crate::id::{BLOCK_BYTES_MAX, DomainName, Hash};

const GREETING: u8 = 0x01;
const GET: u8 = 0x02;
const HAS: u8 = 0x03;
const PUT: u8 = 0x04;
const CANCEL: u8 = 0x05;
const STAT: u8 = 0x06;
const PING: u8 = 0x07;
const VERDICTS: u8 = 0x08;
const TELL: u8 = 0x09;

const GREETING_BYTES: usize = MAGIC.len() + 2 + 2 + DomainName::BYTES;

fn lengths(kind: u8) -> Option<Lengths> {
    const ONE: usize = Hash::BYTES;
    Some(match kind {
        GREETING => GREETING_BYTES..=GREETING_BYTES,
        GET => 7 + ONE..=7 + BATCH_MAX * ONE,
        HAS => 6 + ONE..=6 + BATCH_MAX * ONE,
        PUT => 4 + ONE + 1..=4 + ONE + BLOCK_BYTES_MAX,
        CANCEL => 6..=6,
        STAT | PING => 4..=4,
        VERDICTS => {
            let head = 4 + 2;
            head + ENGINE_FIELDS_BYTES.start() + ONE..=head + ENGINE_FIELDS_BYTES.end() + VERDICT_BATCH_MAX * ONE
        }
        TELL => {
            let told = records_bytes(ONE, 1, VERDICT_BATCH_MAX);
            4 + ENGINE_FIELDS_BYTES.start() + told.start()..=4 + ENGINE_FIELDS_BYTES.end() + told.end()
        }
        _ => return None,
    })
}

/// Who a client is. Has the same shape in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The lowest version that the client speaks.
    pub lowest: u16,
    /// The highest.
    pub highest: u16,
    /// The trust domain whose hashes it will name.
    pub domain: DomainName,
}

/// How much it matters that an answer comes soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Somebody waits for it.
    Waiting,
    /// Somebody may want it later.
    Prefetch,
}

/// Hashes, as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes<'a>(&'a [[u8; Hash::BYTES]]);

impl<'a> Hashes<'a> {
    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// None; what was decoded has one at least.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Hash> + use<'a> {
        self.0.iter().map(|bytes| Hash::from_bytes(*bytes))
    }
}

/// A frame of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first frame of a connection, and of no other place.
    Greeting(Greeting),
    /// Each of these blocks: the first under the number `first`, the next under the next. Each is answered for itself.
    Get {
        /// The number of the first.
        first: u32,
        /// When.
        priority: Priority,
        /// Which.
        hashes: Hashes<'a>,
    },
    /// Which of these are there; one answer.
    Has {
        /// The number.
        id: u32,
        /// Of which.
        hashes: Hashes<'a>,
    },
    /// Keep this block.
    Put {
        /// The number.
        id: u32,
        /// What its bytes hash to.
        hash: Hash,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Blocks asked for under these numbers are not wanted any more. Has no answer of its own: each of them is answered,
    /// with the block or with a word that it was cancelled.
    Cancel {
        /// The first number.
        first: u32,
        /// How many.
        count: u16,
    },
    /// What the server has counted.
    Stat {
        /// The number.
        id: u32,
    },
    /// An answer, as soon as can be.
    Ping {
        /// The number.
        id: u32,
    },
    /// What is known of these contents; one answer.
    Verdicts {
        /// The number.
        id: u32,
        /// By which engine.
        engine: EngineName<'a>,
        /// Of which, [`VERDICT_BATCH_MAX`] at most.
        hashes: Hashes<'a>,
    },
    /// Keep what I have found.
    Tell {
        /// The number.
        id: u32,
        /// By which engine.
        engine: EngineName<'a>,
        /// What, of which contents.
        told: Told<'a>,
    },
}

/// Reads the next frame of a client.
pub fn request(input: &[u8]) -> Decoded<Request<'_>> {
    let Some(((kind, body), used)) = frame(input, lengths)? else { return Ok(None) };
    let mut fields = Fields::new(kind, body);
    let request = match kind {
        GREETING => Request::Greeting(greeting(&mut fields)?),
        GET => {
            let (first, priority) = (fields.u32()?, priority(&mut fields)?);
            let hashes = hashes(&mut fields)?;
            in_range(&fields, first, hashes.len())?;
            Request::Get { first, priority, hashes }
        }
        HAS => Request::Has { id: fields.u32()?, hashes: hashes(&mut fields)? },
        PUT => Request::Put { id: fields.u32()?, hash: Hash::from_bytes(fields.array()?), bytes: fields.rest() },
        CANCEL => {
            let (first, count) = (fields.u32()?, fields.u16()?);
            in_range(&fields, first, count.into())?;
            Request::Cancel { first, count }
        }
        STAT => Request::Stat { id: fields.u32()? },
        PING => Request::Ping { id: fields.u32()? },
        VERDICTS => {
            let (id, engine) = (fields.u32()?, EngineName::decode(&mut fields)?);
            let hashes = hashes(&mut fields)?;
            if hashes.len() > VERDICT_BATCH_MAX {
                return Err(fields.wrong("a wrong number of hashes"));
            }
            Request::Verdicts { id, engine, hashes }
        }
        TELL => Request::Tell {
            id: fields.u32()?,
            engine: EngineName::decode(&mut fields)?,
            told: Records::decode(&mut fields, 1, VERDICT_BATCH_MAX)?,
        },
        _ => return Err(FrameError::Kind(kind)),
    };
    fields.end(Some((request, used)))
}

fn greeting(fields: &mut Fields<'_>) -> Result<Greeting, FrameError> {
    if fields.array()? != MAGIC {
        return Err(fields.wrong("another magic: this is no client of onesweep"));
    }
    let (lowest, highest, domain) = (fields.u16()?, fields.u16()?, DomainName(fields.array()?));
    if lowest > highest {
        return Err(fields.wrong("versions that end before they begin"));
    }
    Ok(Greeting { lowest, highest, domain })
}

fn priority(fields: &mut Fields<'_>) -> Result<Priority, FrameError> {
    match fields.byte()? {
        0 => Ok(Priority::Waiting),
        1 => Ok(Priority::Prefetch),
        _ => Err(fields.wrong("an unknown priority")),
    }
}

/// A count and as many hashes.
fn hashes<'a>(fields: &mut Fields<'a>) -> Result<Hashes<'a>, FrameError> {
    let count = usize::from(fields.u16()?);
    if !(1..=BATCH_MAX).contains(&count) {
        return Err(fields.wrong("a wrong number of hashes"));
    }
    Ok(Hashes(fields.bytes(count * Hash::BYTES)?.as_chunks().0))
}

/// Numbers don't begin anew within a request.
fn in_range(fields: &Fields<'_>, first: u32, count: usize) -> Result<(), FrameError> {
    let is_one = count >= 1 && u32::try_from(count - 1).is_ok_and(|more| first.checked_add(more).is_some());
    if is_one { Ok(()) } else { Err(fields.wrong("numbers out of range")) }
}

impl Greeting {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        append(out, GREETING, |out| {
            out.extend_from_slice(&MAGIC);
            out.extend_from_slice(&self.lowest.to_le_bytes());
            out.extend_from_slice(&self.highest.to_le_bytes());
            out.extend_from_slice(&self.domain.0);
        });
    }
}

/// A request for blocks that grows while it is written, until it is dropped.
#[derive(Debug)]
pub struct GetWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: u16,
}

impl<'a> GetWriter<'a> {
    /// Its first block.
    pub fn new(out: &'a mut Vec<u8>, first: u32, priority: Priority, hash: &Hash) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, GET]);
        out.extend_from_slice(&first.to_le_bytes());
        out.push(priority as u8);
        out.extend_from_slice(&[0, 0]);
        let mut writer = Self { out, start, count: 0 };
        writer.push(hash);
        writer
    }

    /// Whether no more fits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        usize::from(self.count) == BATCH_MAX
    }

    /// One block more, under the next number. Not when it is full.
    pub fn push(&mut self, hash: &Hash) {
        debug_assert!(!self.is_full(), "a batch has room");
        self.out.extend_from_slice(hash.as_bytes());
        self.count += 1;
    }
}

impl Drop for GetWriter<'_> {
    fn drop(&mut self) {
        let at = self.start + HEAD_BYTES + 5;
        self.out[at..at + 2].copy_from_slice(&self.count.to_le_bytes());
        close(self.out, self.start);
    }
}

impl Request<'_> {
    /// Appends a request for blocks; one at least, [`BATCH_MAX`] at most.
    pub fn get(out: &mut Vec<u8>, first: u32, priority: Priority, hashes: &[Hash]) {
        if let Some((one, more)) = hashes.split_first() {
            let mut writer = GetWriter::new(out, first, priority, one);
            more.iter().for_each(|hash| writer.push(hash));
        }
    }

    /// Appends a question which of these are there; one at least, [`BATCH_MAX`] at most.
    pub fn has(out: &mut Vec<u8>, id: u32, hashes: &[Hash]) {
        debug_assert!((1..=BATCH_MAX).contains(&hashes.len()), "a batch");
        append(out, HAS, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&(hashes.len() as u16).to_le_bytes());
            hashes.iter().for_each(|hash| out.extend_from_slice(hash.as_bytes()));
        });
    }

    /// Appends a block to be kept, of 1 to [`BLOCK_BYTES_MAX`] bytes.
    pub fn put(out: &mut Vec<u8>, id: u32, hash: &Hash, bytes: &[u8]) {
        debug_assert!((1..=BLOCK_BYTES_MAX).contains(&bytes.len()), "a block");
        append(out, PUT, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(hash.as_bytes());
            out.extend_from_slice(bytes);
        });
    }

    /// Appends a word that these are not wanted any more.
    pub fn cancel(out: &mut Vec<u8>, first: u32, count: u16) {
        append(out, CANCEL, |out| {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        });
    }

    /// Appends a question for what was counted.
    pub fn stat(out: &mut Vec<u8>, id: u32) {
        append(out, STAT, |out| out.extend_from_slice(&id.to_le_bytes()));
    }

    /// Appends a question that only wants an answer.
    pub fn ping(out: &mut Vec<u8>, id: u32) {
        append(out, PING, |out| out.extend_from_slice(&id.to_le_bytes()));
    }

    /// Appends a question for what is known of contents; one at least, [`VERDICT_BATCH_MAX`] at most.
    pub fn verdicts(out: &mut Vec<u8>, id: u32, engine: EngineName<'_>, hashes: &[Hash]) {
        debug_assert!((1..=VERDICT_BATCH_MAX).contains(&hashes.len()), "a batch");
        append(out, VERDICTS, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            engine.encode(out);
            out.extend_from_slice(&(hashes.len() as u16).to_le_bytes());
            hashes.iter().for_each(|hash| out.extend_from_slice(hash.as_bytes()));
        });
    }

    /// Appends what was found; one record at least, [`VERDICT_BATCH_MAX`] at most.
    pub fn tell(out: &mut Vec<u8>, id: u32, engine: EngineName<'_>, records: &[(Hash, Record<'_>)]) {
        debug_assert!((1..=VERDICT_BATCH_MAX).contains(&records.len()), "a batch");
        append(out, TELL, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            engine.encode(out);
            Records::encode(out, records.iter().map(|(hash, record)| (*hash.as_bytes(), *record)));
        });
    }

    /// Appends the frame that was read as this.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Greeting(greeting) => greeting.encode(out),
            Self::Get { first, priority, hashes } => {
                Self::get(out, first, priority, &hashes.iter().collect::<Vec<_>>());
            }
            Self::Has { id, hashes } => Self::has(out, id, &hashes.iter().collect::<Vec<_>>()),
            Self::Put { id, hash, bytes } => Self::put(out, id, &hash, bytes),
            Self::Cancel { first, count } => Self::cancel(out, first, count),
            Self::Stat { id } => Self::stat(out, id),
            Self::Ping { id } => Self::ping(out, id),
            Self::Verdicts { id, engine, hashes } => {
                Self::verdicts(out, id, engine, &hashes.iter().collect::<Vec<_>>());
            }
            Self::Tell { id, engine, told } => append(out, TELL, |out| {
                out.extend_from_slice(&id.to_le_bytes());
                engine.encode(out);
                told.encode_again(out);
            }),
        }
    }
}
