//! A file gets the places of a donor, if it still has the bytes that were written there.

use std::io;

use onesweep_sys::files::{read_at, statx_fd};
use onesweep_sys::sharing::{Part, share_equal};

use super::donor::Donor;
use crate::errno::{EINVAL, EOPNOTSUPP, EPERM, ETXTBSY};
use crate::file::MovableFile;
use crate::host::{Exchange, Failure, Moved, Stays, Trouble};

/// Gives blocks of a file places of a donor, as many as both have. `bytes` is memory that is used again.
pub(super) fn give(file: &MovableFile, donor: &Donor, exchange: Exchange, block: u64, bytes: &mut Vec<u8>) -> Moved {
    let mut shared = 0;
    let trouble = try_to_give(file, donor, exchange, block, bytes, &mut shared).err();
    Moved { blocks: shared, trouble }
}

fn try_to_give(
    file: &MovableFile,
    donor: &Donor,
    exchange: Exchange,
    block: u64,
    bytes: &mut Vec<u8>,
    shared: &mut u64,
) -> Result<(), Trouble> {
    let failed = |doing| move |source| Failure::new(doing, file.path(), source);
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
    let source = donor.fill(to, bytes, block).map_err(failed("write its bytes to its new place"))?;
    let part = Part { offset: source.offset(), bytes: length };
    let told = share_equal(source.fd(), part, file.fd(), from);
    if let Ok(Some(now)) = told {
        // Where the file has become longer, its last block is left out.
        *shared = if now == length { now.div_ceil(block) } else { now / block };
    }
    // The file alone has the places then, or nobody.
    source.give_up(length.next_multiple_of(block)).map_err(failed("let go of its new place"))?;
    match told {
        Ok(Some(_)) => Ok(()),
        // Somebody has written to it.
        Ok(None) => Err(Stays::Busy.into()),
        Err(error) => Err(match error.raw_os_error() {
            Some(EINVAL) => Stays::Changed.into(),
            Some(EPERM) => Stays::Immutable.into(),
            Some(ETXTBSY) => Stays::Swap.into(),
            Some(EOPNOTSUPP) => Stays::Unsupported.into(),
            _ => failed("move it")(error).into(),
        }),
    }
}

/// False when the file ends before.
fn read_all(file: &MovableFile, bytes: &mut [u8], offset: u64) -> io::Result<bool> {
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
