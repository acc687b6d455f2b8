//! Reads as an engine issues them.
//!
//! # What an engine does with a request
//!
//! Requests come in the order of the plan. For each, in turn:
//!
//! 1. **Reserve** the cost of every file in [`Request::admits`]. If the memory isn't there yet, wait for earlier requests
//!    to complete and for their files to be let go; never let a later request reserve first. The plan sees to it that
//!    this wait ends: the files admitted up to and including this request, without those completed by *earlier*
//!    requests, never cost more than the budget. So memory may be freed as late as that, but what frees it must not wait
//!    for later requests.
//! 2. **Read.** On a device: one vectored read at [`Request::address`], [`Request::length`] bytes long, with one buffer
//!    for each [`Part::Read`] and [`Part::Gap`] in turn ([`Request::tiles`]); they cover the range exactly, and what lands
//!    in a gap's buffer is thrown away. Through the file system: one `pread` at the file offset for each [`Part::Read`];
//!    there, use a shape without gaps ([`RequestShape::unmerged`], [`RequestShape::vanilla`]).
//! 3. **Copy**, once all reads of the request have arrived: each [`Part::Copy`] takes bytes that a read *of the same
//!    request* brought. If that read failed, or its file turns out to have changed, read the copy's own piece instead.
//! 4. **Complete** the files in [`Request::completes`], once this request and all earlier ones that brought bytes of them
//!    are done. Requests may be in flight together and may end in any order.
//!
//! A file that is admitted is completed by the same or a later request, and each byte of its pieces is delivered by
//! exactly one read or copy.

use std::{fmt, str::FromStr};

use super::fragment::{NO_ADDRESS, Piece};

/// How pieces become requests, by the DAFT paper's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// Every piece is a request of its own: how files are read without a plan.
    Vanilla,
    /// DAFTNM: every piece is a request of its own, but bytes that files share are read once.
    #[default]
    Unmerged,
    /// DAFTM: pieces near each other become one request, and the gap between them is read through. For reading the
    /// device itself; the addresses of the pieces must be those of their bytes, as they lie there.
    Merged,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 3] = [Self::Vanilla, Self::Unmerged, Self::Merged];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Unmerged => "unmerged",
            Self::Merged => "merged",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.name() == text);
        found.ok_or_else(|| format!("unknown strategy '{text}'; use one of vanilla, unmerged, merged"))
    }
}

/// The longest request unless told otherwise: 4 MiB.
pub const MAX_REQUEST: u64 = 4 << 20;

/// How requests are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestShape {
    /// How pieces become requests.
    pub strategy: Strategy,
    /// The widest gap in bytes that is read through; counts for [`Strategy::Merged`] alone.
    pub gap: u64,
    /// The longest request in bytes; longer pieces are split. For direct I/O it must be a multiple of the block size.
    /// Zero counts as 1.
    pub max_request: u64,
}

impl RequestShape {
    /// One piece, one request.
    #[must_use]
    pub const fn vanilla() -> Self {
        Self { strategy: Strategy::Vanilla, gap: 0, max_request: MAX_REQUEST }
    }

    /// One piece, one request; shared bytes are read once.
    #[must_use]
    pub const fn unmerged() -> Self {
        Self { strategy: Strategy::Unmerged, gap: 0, max_request: MAX_REQUEST }
    }

    /// Pieces with at most `gap` bytes between them become one request.
    /// [`DiskModel::break_even_gap`](super::DiskModel::break_even_gap) is a good gap.
    #[must_use]
    pub const fn merged(gap: u64) -> Self {
        Self { strategy: Strategy::Merged, gap, max_request: MAX_REQUEST }
    }

    /// The same with another longest request.
    #[must_use]
    pub const fn max_request(self, max_request: u64) -> Self {
        Self { max_request, ..self }
    }
}

/// One run of bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Bytes that go to their file.
    Read(Piece),
    /// Bytes that nobody asked for.
    Gap {
        /// How many.
        length: u64,
    },
    /// Bytes of a file that a read of this request brought for another file, or for another place of the same.
    Copy {
        /// The file that has them.
        from_file: u32,
        /// Where they begin in that file.
        from_offset: u64,
        /// Where they go, and how many; its address is that of the bytes copied.
        to: Piece,
    },
}

/// One read.
///
/// The module tells [how it is carried out](self#what-an-engine-does-with-a-request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where it begins on the device, in bytes, or [`NO_ADDRESS`] when it has one single read without an address.
    pub address: u64,
    /// How many bytes are read, gaps included.
    pub length: u64,
    /// What the bytes are: reads and gaps by rising address, without a hole between them; each copy somewhere behind
    /// the read that it copies from.
    pub parts: Vec<Part>,
    /// The files whose cost is reserved before the read, in the order of their first pieces.
    pub admits: Vec<u32>,
    /// The files that have all their bytes when this request and all earlier ones are done.
    pub completes: Vec<u32>,
    /// The bin of its steps.
    pub bin: u32,
    /// The clean-ups that the bin has begun, at its last step.
    pub epoch: u32,
}

impl Default for Request {
    /// A request that reads nothing, for [`Requests::next_into`](super::Requests::next_into) to fill.
    fn default() -> Self {
        Self {
            address: NO_ADDRESS,
            length: 0,
            parts: Vec::new(),
            admits: Vec::new(),
            completes: Vec::new(),
            bin: 0,
            epoch: 0,
        }
    }
}

impl Request {
    /// True when its place on the device is known.
    #[must_use]
    pub fn has_address(&self) -> bool {
        self.address != NO_ADDRESS
    }

    /// The device address behind its last byte, or [`NO_ADDRESS`].
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.length)
    }

    /// Its reads, by rising address.
    pub fn reads(&self) -> impl Iterator<Item = &Piece> {
        self.parts.iter().filter_map(|part| match part {
            Part::Read(piece) => Some(piece),
            Part::Gap { .. } | Part::Copy { .. } => None,
        })
    }

    /// What a vectored read of it is made of: for each buffer in turn, its length, and the piece that goes there unless
    /// it is a gap.
    pub fn tiles(&self) -> impl Iterator<Item = (u64, Option<&Piece>)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Read(piece) => Some((piece.length, Some(piece))),
            Part::Gap { length } => Some((*length, None)),
            Part::Copy { .. } => None,
        })
    }

    /// Its copies, as (file, offset in that file, where the bytes go).
    pub fn copies(&self) -> impl Iterator<Item = (u32, u64, &Piece)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Copy { from_file, from_offset, to } => Some((*from_file, *from_offset, to)),
            Part::Read(_) | Part::Gap { .. } => None,
        })
    }

    pub(super) fn clear(&mut self) {
        self.address = NO_ADDRESS;
        self.length = 0;
        self.parts.clear();
        self.admits.clear();
        self.completes.clear();
        self.bin = 0;
        self.epoch = 0;
    }
}
