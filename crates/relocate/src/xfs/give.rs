//! A file gets the places of a donor, with the bytes that it has.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use onesweep_sys::files::{read_at, statx_fd};
use onesweep_sys::sharing::Part;

use super::donor::Donor;
use super::{Way, share, swap};
use crate::file::MovableFile;
use crate::host::{Exchange, Failure, Moved, Stays, Trouble};

/// Memory that is used again, and what became of times.
#[derive(Debug, Default)]
pub(super) struct Giving {
    bytes: Vec<u8>,
    /// Files that have a new time of the last change of the inode (ctime).
    pub(super) new_ctime: HashSet<PathBuf>,
}

/// Gives blocks of a file places of a donor, as many as both have.
pub(super) fn give(
    file: &MovableFile,
    donor: &Donor,
    exchange: Exchange,
    (way, block): (Way, u64),
    giving: &mut Giving,
) -> Moved {
    let mut given = 0;
    let trouble = try_to_give(file, donor, exchange, (way, block), giving, &mut given).err();
    Moved { blocks: given, trouble }
}

fn try_to_give(
    file: &MovableFile,
    donor: &Donor,
    exchange: Exchange,
    (way, block): (Way, u64),
    giving: &mut Giving,
    given: &mut u64,
) -> Result<(), Trouble> {
    let bytes = &mut giving.bytes;
    let failed = |doing| move |source| Failure::new(doing, file.path(), source);
    let begun = match way {
        Way::Share => None,
        Way::Exchange => Some(swap::begin(file)?),
    };
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
    let told = match begun {
        None => share::share(file, from, &source, part),
        Some(begun) => begun.swap(file, from, &source, part, donor.directory()).map(|keeps_times| {
            if !keeps_times {
                giving.new_ctime.insert(file.path().to_owned());
            }
            length
        }),
    };
    if let Ok(now) = told {
        // Where the file has become longer, its last block is left out.
        *given = if now == length { now.div_ceil(block) } else { now / block };
    }
    // The file alone has the places then, or nobody.
    source.give_up(length.next_multiple_of(block)).map_err(failed("let go of its new place"))?;
    told.map(|_| ())
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
