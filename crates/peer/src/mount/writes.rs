//! Writes, flushes, and writing again what could not be read.
//!
//! The order is what keeps old bytes from coming back: the index forgets the blocks, durably; then the disk is written; then
//! whoever wrote is told. A crash between any two of them leaves blocks unknown that could have been known, and no more.

use std::{
    io,
    sync::{Arc, PoisonError},
};

use onesweep_sys::buffer::FileBuffer;

use super::{Shared, counters::add, ground::whole_blocks, lock};
use crate::{id::Hash, index::Block};

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
            let written = shared.write_now(at, bytes);
            let is_written = written.is_ok();
            done(written);
            if is_written && shared.write_through {
                shared.engine.offer(whole_blocks(&shared.geometry, at, bytes));
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
                let buffer = FileBuffer::zeroed((to - from) as usize);
                let mut part = buffer.lend(0..(to - from) as usize);
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
        write: impl FnOnce(&dyn super::Storage) -> io::Result<()>,
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

    /// Writes blocks that the disk couldn't read over their bad places. The bytes begin with the first block.
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

    /// Whether it had to be, and holds now.
    fn reclaim_block(&self, block: u64, hash: &Hash, bytes: &[u8]) -> io::Result<bool> {
        let (at, len) = self.geometry.place(block);
        let buffer = FileBuffer::zeroed(len);
        let mut part = buffer.lend(0..len);
        {
            // Nobody writes meanwhile, and nobody has since the read: then the block would be unknown.
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            let known = lock(&self.index).as_ref().map(|index| index.block(block));
            if known != Some(Block::Valid(*hash)) || self.storage.read_at(part.as_mut_slice(), at).is_ok() {
                return Ok(false);
            }
            part.as_mut_slice().copy_from_slice(bytes);
            self.write_marked(at, bytes, |storage| storage.write_at(part.as_slice(), at))?;
        }
        self.flush_now()?;
        self.storage.read_at(part.as_mut_slice(), at)?;
        Ok(part.as_slice() == bytes)
    }
}
