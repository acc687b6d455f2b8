//! Writes, flushes, and writing again what could not be read.
//!
//! The order is what keeps old bytes from coming back: the index forgets the blocks, durably; then the disk is written; then
//! whoever wrote is told. A crash between any two of them leaves blocks unknown that could have been known, and no more.

use std::{
    io,
    ops::{Range, RangeInclusive},
    sync::{Arc, PoisonError},
};

use onesweep_sys::{block, buffer::FileBuffer};

use super::{
    Shared, Storage, Unsent,
    counters::add,
    ground::whole_blocks,
    lock,
    offers::{Debt, Debts, Seen},
};
use crate::{
    id::Hash,
    index::{Block, Geometry, REGION_BYTES},
};

pub(super) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

impl Shared {
    pub(super) fn write(self: &Arc<Self>, at: u64, bytes: &[u8], done: Done) {
        if self.read_only {
            return done(Err(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= self.geometry.device_bytes);
        if end.is_none() {
            return done(Err(io::ErrorKind::StorageFull.into()));
        }
        if bytes.is_empty() {
            return done(Ok(()));
        }
        let Some(buffer) = FileBuffer::try_zeroed(bytes.len()) else {
            return done(Err(io::ErrorKind::OutOfMemory.into()));
        };
        let mut part = buffer.lend(0..bytes.len());
        part.as_mut_slice().copy_from_slice(bytes);
        let shared = Arc::clone(self);
        self.writers.run(move || {
            let bytes = part.as_slice();
            let owing = shared.write_through.as_ref();
            // Before the index marks it: what is written counts as unsent from then on.
            let owed = owing.map(|owing| owing.begin(at, bytes.len() as u64));
            let written = shared.write_now(at, bytes);
            let is_written = written.is_ok();
            done(written);
            match owed {
                Some(owed) if is_written => {
                    shared.engine.offer_written(whole_blocks(&shared.geometry, at, bytes), Box::new(owed));
                }
                // What of it is on the disk is to be found out there.
                Some(owed) => Box::new(owed).lost(),
                None => {}
            }
        });
    }

    fn write_now(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let sector = self.storage.sector_bytes();
        let is_whole = at.is_multiple_of(sector) && (bytes.len() as u64).is_multiple_of(sector);
        let written = if is_whole {
            let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            self.write_marked(at, bytes, |storage| storage.write_at(bytes, at))
        } else {
            // Between the read and the write of a sector nobody else may write the rest of it.
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            self.write_marked(at, bytes, |storage| {
                let (from, to) = (at / sector * sector, (at + bytes.len() as u64).next_multiple_of(sector));
                let len = (to - from) as usize;
                let mut part = FileBuffer::try_zeroed(len).ok_or(io::ErrorKind::OutOfMemory)?.lend(0..len);
                storage.read_at(part.as_mut_slice(), from)?;
                part.as_mut_slice()[(at - from) as usize..][..bytes.len()].copy_from_slice(bytes);
                storage.write_at(part.as_slice(), from)
            })
        };
        add(&self.engine.counters.writes, 1);
        match &written {
            Ok(()) => add(&self.engine.counters.write_bytes, bytes.len() as u64),
            Err(_) => add(&self.engine.counters.write_failures, 1),
        }
        written
    }

    fn write_marked(
        &self,
        at: u64,
        bytes: &[u8],
        write: impl FnOnce(&dyn Storage) -> io::Result<()>,
    ) -> io::Result<()> {
        let ticket = lock(&self.index).as_mut().map(|index| index.begin_write(at, bytes.len() as u64));
        let written = write(&*self.storage);
        if let (Some(ticket), Some(index)) = (ticket, lock(&self.index).as_mut()) {
            index.end_write(ticket, written.is_ok().then_some(bytes));
        }
        written
    }

    pub(super) fn flush(self: &Arc<Self>, done: Done) {
        if self.read_only {
            return done(Ok(()));
        }
        let shared = Arc::clone(self);
        self.writers.run(move || done(shared.flush_now()));
    }

    pub(super) fn flush_now(&self) -> io::Result<()> {
        add(&self.engine.counters.flushes, 1);
        let ticket = lock(&self.index).as_mut().map(|index| index.begin_flush());
        self.storage.flush()?;
        if let (Some(ticket), Some(index)) = (ticket, lock(&self.index).as_mut()) {
            index.end_flush(ticket);
        }
        Ok(())
    }

    /// Writes what the disk couldn't read of blocks over the bad places. The bytes begin with the first block.
    pub(super) fn reclaim(&self, first: u64, hashes: &[Option<Hash>], bytes: &[u8]) {
        let blocks = bytes.chunks(self.geometry.block_bytes as usize);
        for ((block, hash), bytes) in (first..).zip(hashes).zip(blocks) {
            let Some(hash) = hash else { continue };
            match self.reclaim_block(block, hash, bytes) {
                Ok(true) => add(&self.engine.counters.reclaimed, 1),
                Ok(false) => {}
                Err(_) => add(&self.engine.counters.not_reclaimed, 1),
            }
        }
    }

    /// Whether it had to be, and holds now. Nothing is written but sectors that can't be read, and nothing at all where one that
    /// can be has other bytes: then somebody wrote past the file system, and the block isn't what the index says.
    fn reclaim_block(&self, block: u64, hash: &Hash, bytes: &[u8]) -> io::Result<bool> {
        let (at, len) = self.geometry.place(block);
        let mut part = FileBuffer::try_zeroed(len).ok_or(io::ErrorKind::OutOfMemory)?.lend(0..len);
        {
            // Nobody writes meanwhile, and nobody has since the read: then the block would be unknown.
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            let known = lock(&self.index).as_ref().map(|index| index.block(block));
            if known != Some(Block::Valid(*hash)) {
                return Ok(false);
            }
            let bad = match bad_places(&*self.storage, at, part.as_mut_slice(), bytes)? {
                Some(bad) if bad.is_empty() => return Ok(false),
                Some(bad) => bad,
                None => {
                    // To be learnt again by who can read it.
                    let ticket = lock(&self.index).as_mut().map(|index| index.begin_write(at, len as u64));
                    if let (Some(ticket), Some(index)) = (ticket, lock(&self.index).as_mut()) {
                        index.end_write(ticket, None);
                    }
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "what can be read of it has other bytes"));
                }
            };
            part.as_mut_slice().copy_from_slice(bytes);
            self.write_marked(at, bytes, |storage| {
                bad.iter().try_for_each(|bad| storage.write_at(&part.as_slice()[bad.clone()], at + bad.start as u64))
            })?;
        }
        self.flush_now()?;
        self.storage.read_at(part.as_mut_slice(), at)?;
        Ok(part.as_slice() == bytes)
    }
}

/// The places within these bytes, from `at` on, that the disk can't read, in sectors; `None` where one that it can has others than
/// `expected`. A bad sector may take seconds, so it is looked for in sixteenths. Fails where the device fails in another way.
fn bad_places(
    storage: &dyn Storage,
    at: u64,
    buffer: &mut [u8],
    expected: &[u8],
) -> io::Result<Option<Vec<Range<usize>>>> {
    let sector = storage.sector_bytes() as usize;
    let mut bad: Vec<Range<usize>> = Vec::new();
    let whole = 0..buffer.len();
    let mut to_read = vec![whole];
    while let Some(range) = to_read.pop() {
        match storage.read_at(&mut buffer[range.clone()], at + range.start as u64) {
            Ok(()) if buffer[range.clone()] != expected[range.clone()] => return Ok(None),
            Ok(()) => {}
            // A device that is gone, say, is not mended by writing to it.
            Err(error) if !block::is_bad_place(&error) => return Err(error),
            Err(_) if range.len() > sector => {
                let each = (range.len() / 16).next_multiple_of(sector);
                let parts = range.clone().step_by(each).map(|from| from..(from + each).min(range.end));
                to_read.extend(parts.rev());
            }
            Err(_) => match bad.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => bad.push(range),
            },
        }
    }
    Ok(Some(bad))
}

/// What servers are owed of a device that is written through.
pub(super) struct Owing {
    pub(super) unsent: Unsent,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) geometry: Geometry,
}

impl Owing {
    /// These bytes are about to be written.
    fn begin(self: &Arc<Self>, at: u64, len: u64) -> Owed {
        let regions = at / REGION_BYTES..=(at + len - 1) / REGION_BYTES;
        self.unsent.begin(regions.clone());
        let (each, end) = (u64::from(self.geometry.block_bytes), at + len);
        let (first, last) = (at / each, (end - 1) / each);
        let is_cut = |block: &u64| {
            let (begin, len) = self.geometry.place(*block);
            begin < at || begin + len as u64 > end
        };
        // Others are written whole, and their bytes are at hand.
        let cut = if first == last { vec![first] } else { vec![first, last] }.into_iter().filter(is_cut);
        Owed { owing: Arc::clone(self), regions, blocks: cut.map(|block| block..block + 1).collect() }
    }
}

/// Something that was written to a device.
pub(super) struct Owed {
    owing: Arc<Owing>,
    regions: RangeInclusive<u64>,
    /// Those that have to be read.
    blocks: Vec<Range<u64>>,
}

impl Owed {
    /// The bytes of some blocks that follow each other, from the disk.
    fn read_blocks(&self, blocks: Range<u64>) -> io::Result<Vec<u8>> {
        let Owing { storage, geometry, .. } = &*self.owing;
        let (begin, (last, last_len)) = (geometry.place(blocks.start).0, geometry.place(blocks.end - 1));
        let len = (last - begin) as usize + last_len;
        let mut part = FileBuffer::try_zeroed(len).ok_or(io::ErrorKind::OutOfMemory)?.lend(0..len);
        storage.read_at(part.as_mut_slice(), begin)?;
        Ok(part.as_slice().to_vec())
    }
}

impl Debt for Owed {
    fn read(&self, seen: &mut Seen, take: &mut dyn FnMut(&[u8]) -> bool) {
        let block_bytes = self.owing.geometry.block_bytes as usize;
        for blocks in
            self.blocks.iter().filter(|blocks| seen.insert((0, blocks.start)) || blocks.end - blocks.start > 1)
        {
            match self.read_blocks(blocks.clone()) {
                Ok(bytes) => {
                    if !bytes.chunks(block_bytes).all(&mut *take) {
                        return;
                    }
                }
                // Bad places cost their own blocks.
                Err(_) => {
                    for block in blocks.clone() {
                        if self.read_blocks(block..block + 1).is_ok_and(|bytes| !take(&bytes)) {
                            return;
                        }
                    }
                }
            }
        }
    }

    fn paid(self: Box<Self>) {
        self.owing.unsent.sent(self.regions);
    }

    fn lost(self: Box<Self>) {
        self.owing.unsent.lost(self.regions);
    }
}

/// Regions of a device that servers could not be sent.
pub(super) struct Lost(pub(super) Arc<Owing>);

impl Debts for Lost {
    fn next(&self) -> Option<Box<dyn Debt>> {
        let region = self.0.unsent.take()?;
        let each = u64::from(self.0.geometry.block_bytes);
        let blocks = region * REGION_BYTES / each..((region + 1) * REGION_BYTES / each).min(self.0.geometry.blocks());
        // A region beyond the end has none.
        let blocks = if blocks.is_empty() { Vec::new() } else { vec![blocks] };
        Some(Box::new(Owed { owing: Arc::clone(&self.0), regions: region..=region, blocks }))
    }
}
