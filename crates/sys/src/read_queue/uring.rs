//! Reads in flight by io_uring.
//!
//! # Safety
//!
//! The kernel writes to the parts of a read until its completion has been taken from the ring. Each begun read sits in
//! a [`Slot`] that owns its parts, its pieces and its file for that long; when the ring is given up although reads may
//! still run, the slots are leaked rather than freed.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::pieces::{Pieces, RWF_DONTCACHE, Scratch};
use super::{Completion, ReadOp, ReadQueue, admit, nothing_in_flight};

/// The most entries that the kernel gives to a ring.
const DEPTH_MAX: usize = 4096;

/// A [`ReadQueue`] on io_uring.
pub struct UringQueue {
    ring: IoUring,
    capacity: usize,
    /// Pushed, not yet in the ring.
    queued: VecDeque<ReadOp>,
    /// In the ring, by the `user_data` of the read.
    slots: Vec<Slot>,
    /// Slots without a read.
    free: Vec<usize>,
    scratch: Scratch,
}

/// Place of one read that the kernel may be working on.
#[derive(Default)]
struct Slot {
    op: Option<ReadOp>,
    pieces: Pieces,
}

impl UringQueue {
    /// A ring for `depth` reads in flight (at least 1, at most 4096). Fails where io_uring is missing or forbidden.
    pub fn new(depth: usize) -> io::Result<UringQueue> {
        let capacity = depth.clamp(1, DEPTH_MAX);
        let ring = IoUring::new(capacity as u32)?;
        Ok(UringQueue {
            ring,
            capacity,
            queued: VecDeque::with_capacity(capacity),
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            free: (0..capacity).rev().collect(),
            scratch: Scratch::new(),
        })
    }

    /// Reads that are in the ring.
    fn begun(&self) -> usize {
        self.capacity - self.free.len()
    }

    /// Puts the queued reads into the ring, which has room for all that may be in flight.
    fn fill_ring(&mut self) {
        while let Some(op) = self.queued.pop_front() {
            let number = self.free.pop().expect("push refuses reads beyond the capacity");
            let slot = &mut self.slots[number];
            slot.pieces.set(&op.parts, &self.scratch);
            let entry = entry_for(&op, &slot.pieces).user_data(number as u64);
            slot.op = Some(op);
            // SAFETY: the slot keeps the file, the pieces and the memory they point to until the completion is taken.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the ring has an entry for each slot");
        }
    }

    /// Tells the kernel of all entries of the ring and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Short of memory for more reads at once: go on when one of those that run is over.
                    Some(libc::EAGAIN | libc::EBUSY) if self.finished() => return Ok(()),
                    Some(libc::EAGAIN | libc::EBUSY) if self.running() > 0 => std::thread::yield_now(),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Whether a completion waits in the ring.
    fn finished(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Reads of which the kernel knows and has not said that they are over.
    fn running(&mut self) -> usize {
        let untold = self.ring.submission().len();
        let over = self.ring.completion().len();
        self.begun().saturating_sub(untold + over)
    }

    /// Takes one completion from the ring.
    fn take(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let number = entry.user_data() as usize;
        let op = self.slots[number].op.take().expect("a completion belongs to a begun read");
        self.free.push(number);
        let result = match entry.result() {
            status @ ..0 => Err(io::Error::from_raw_os_error(-status)),
            read => Ok(read as usize),
        };
        Some(Completion { token: op.token, result, parts: op.parts })
    }
}

/// The ring entry of a read.
fn entry_for(op: &ReadOp, pieces: &Pieces) -> squeue::Entry {
    let file = types::Fd(op.file.as_raw_fd());
    let flags = if op.dont_cache { RWF_DONTCACHE } else { 0 };
    match pieces.as_slice() {
        [piece] => opcode::Read::new(file, piece.iov_base.cast(), clamp_len(piece.iov_len))
            .offset(op.offset)
            .rw_flags(flags)
            .build(),
        pieces => {
            opcode::Readv::new(file, pieces.as_ptr(), pieces.len() as u32).offset(op.offset).rw_flags(flags).build()
        }
    }
}

/// The kernel's own bound on one read (`MAX_RW_COUNT`), which makes a longer one a short read.
fn clamp_len(len: usize) -> u32 {
    len.min(0x7fff_f000) as u32
}

impl ReadQueue for UringQueue {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.begun()
    }

    fn push(&mut self, op: ReadOp) -> io::Result<()> {
        admit(self, &op)?;
        self.queued.push_back(op);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.fill_ring();
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.enter(0)
    }

    fn wait(&mut self) -> io::Result<Completion> {
        self.fill_ring();
        if self.begun() == 0 {
            return Err(nothing_in_flight());
        }
        // One system call at most, whether it has to submit, to wait, or both.
        let over = self.finished();
        if !over || !self.ring.submission().is_empty() {
            self.enter(usize::from(!over))?;
        }
        loop {
            match self.take() {
                Some(completion) => return Ok(completion),
                None => self.enter(1)?,
            }
        }
    }

    fn try_wait(&mut self) -> Option<Completion> {
        self.take()
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        self.queued.clear();
        while self.begun() > 0 {
            if self.take().is_none() && self.enter(1).is_err() {
                // The kernel may still write to this memory: better lost than freed.
                std::mem::forget(std::mem::take(&mut self.slots));
                std::mem::forget(self.scratch.clone());
                return;
            }
        }
    }
}

impl std::fmt::Debug for UringQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UringQueue({} of {})", self.in_flight(), self.capacity)
    }
}
