//! A file gets the places of a donor, with the bytes that it has: they are written there, and then become the file's.

mod donor;
mod share;

use std::fs::File;
use std::io;

use onesweep_sys::files::{read_at, statx_fd};
use onesweep_sys::sharing::Part;

pub use self::donor::Donor;
pub(crate) use self::donor::{Source, capture};
pub(crate) use self::share::share;
use crate::errno::{EBUSY, EINVAL, ENOTTY, EOPNOTSUPP, EPERM, ETXTBSY, EXDEV};
use crate::file::MovableFile;
use crate::host::{Exchange, Failure, Moved, Stays, Trouble};

/// How what was written for a file becomes the file's.
pub(crate) trait Way {
    /// A file as it was before it was read.
    type Begun;

    /// Looks at a file that is about to be read.
    fn begin(&self, file: &MovableFile) -> Result<Self::Begun, Trouble>;

    /// Gives these bytes a file of their own that ends with them, at the places that a donor has for whole blocks. What the donor has
    /// written lies also behind them.
    fn stage(&self, donor: &Donor, whole: Part, bytes: &[u8]) -> io::Result<File>;

    /// Has a file take this part of the source from an offset on, if it has not changed; tells how many bytes it took.
    fn pass(
        &mut self,
        begun: &Self::Begun,
        file: &MovableFile,
        from: u64,
        source: &Source<'_>,
        part: Part,
        donor: &Donor,
    ) -> Result<u64, Trouble>;
}

/// Gives blocks of a file places of a donor, as many as both have. `bytes` is memory that is used again.
pub(crate) fn give<W: Way>(
    file: &MovableFile,
    donor: &Donor,
    exchange: Exchange,
    block: u64,
    way: &mut W,
    bytes: &mut Vec<u8>,
) -> Moved {
    let mut given = 0;
    let trouble = try_to_give(file, donor, exchange, block, way, bytes, &mut given).err();
    Moved { blocks: given, trouble }
}

fn try_to_give<W: Way>(
    file: &MovableFile,
    donor: &Donor,
    exchange: Exchange,
    block: u64,
    way: &mut W,
    bytes: &mut Vec<u8>,
    given: &mut u64,
) -> Result<(), Trouble> {
    let failed = |doing| move |source| Failure::new(doing, file.path(), source);
    let begun = way.begin(file)?;
    let size = statx_fd(file.fd()).map_err(failed("look at it"))?.size;
    let (from, to) = (exchange.from.saturating_mul(block), exchange.to.saturating_mul(block));
    let room = donor.bytes().saturating_sub(to);
    let length = size.saturating_sub(from).min(room).min(exchange.blocks.saturating_mul(block));
    if length == 0 {
        return Ok(());
    }
    // The bytes are in memory: what can't be held there was not opened.
    bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
    if !read_all(file, bytes, from).map_err(failed("read it"))? {
        return Err(Stays::Changed.into());
    }
    let source = donor.fill(to, bytes, block, way).map_err(failed("write its bytes to its new place"))?;
    let part = Part { offset: source.offset(), bytes: length };
    let told = way.pass(&begun, file, from, &source, part, donor);
    if let Ok(now) = told {
        // Where the file has become longer, its last block is left out.
        *given = if now == length { now.div_ceil(block) } else { now / block };
    }
    // The file alone has the places then, or nobody.
    source.give_up(length.next_multiple_of(block)).map_err(failed("let go of its new place"))?;
    told.map(|_| ())
}

/// False when the file ends before.
pub(crate) fn read_all(file: &MovableFile, bytes: &mut [u8], offset: u64) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes.len() {
        match read_at(file.fd(), &mut bytes[done..], offset + done as u64) {
            Ok(0) => return Ok(false),
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// What an error means for a file alone.
pub(crate) fn stays_by_error(error: &io::Error) -> Option<Stays> {
    match error.raw_os_error()? {
        EBUSY => Some(Stays::Busy),
        EINVAL => Some(Stays::Changed),
        EPERM => Some(Stays::Immutable),
        ETXTBSY => Some(Stays::Swap),
        EOPNOTSUPP | ENOTTY | EXDEV => Some(Stays::Unsupported),
        _ => None,
    }
}
