//! Many positioned reads in flight.
//!
//! A plan is one long list of reads in device order. A [`ReadQueue`] keeps several of them in flight, hands them to
//! the kernel in the order in which they were pushed, and gives them back in the order in which they finish.
//! [`best_queue`] takes io_uring where it may be used and a small pool of threads elsewhere; both keep the same
//! promises, shown by one suite of tests.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::buffer::BufferPart;
use crate::features::features;

mod pieces;
mod pool;
#[cfg(test)]
mod tests;
mod uring;

pub use pieces::{PIECES_MAX, SKIP_PIECE_BYTES};
pub use pool::PoolQueue;
pub use uring::UringQueue;

/// Threads of the pool that [`best_queue`] falls back to: few, since in a plan that is sorted more only cost order.
const POOL_THREADS: usize = 4;

/// One read: where from, and where to.
#[derive(Debug)]
pub struct ReadOp {
    /// Given back in the [`Completion`]; the queue does not look at it.
    pub token: u64,
    /// The file or device to read.
    pub file: Arc<OwnedFd>,
    /// The byte of `file` to begin with.
    pub offset: u64,
    /// Where the bytes go, one part after the other.
    pub parts: Vec<ReadPart>,
    /// Leave the page cache alone (`RWF_DONTCACHE`, Linux 6.14). Where the file system or kernel cannot do that, the
    /// read fails with `EOPNOTSUPP` and the caller tries again without.
    pub dont_cache: bool,
    /// Which of several copies of the bytes is wanted, for [`copies_queue`]; others read whichever they come to.
    pub copy: Option<u16>,
}

/// Where a run of bytes of a read goes.
#[derive(Debug)]
pub enum ReadPart {
    /// Into this part of a buffer.
    Buffer(BufferPart),
    /// Nowhere: this many bytes lie between wanted ones and are read only since that is cheaper than a seek.
    Skip(usize),
}

impl ReadPart {
    /// Bytes of the part.
    pub fn len(&self) -> usize {
        match self {
            ReadPart::Buffer(part) => part.len(),
            ReadPart::Skip(len) => *len,
        }
    }

    /// Whether the part has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes the first `read` bytes off `parts`, so that the rest of a short read can be pushed again.
///
/// # Panics
///
/// When the parts are shorter than `read`.
pub fn advance_parts(parts: &mut Vec<ReadPart>, read: usize) {
    let mut left = read;
    let whole = parts
        .iter()
        .take_while(|part| {
            let done = part.len() <= left;
            if done {
                left -= part.len();
            }
            done
        })
        .count();
    parts.drain(..whole);
    match parts.first_mut() {
        Some(ReadPart::Buffer(part)) => part.advance(left),
        Some(ReadPart::Skip(len)) => *len -= left,
        None => assert_eq!(left, 0, "a read gave more bytes than were asked for"),
    }
}

/// A read that is over.
#[derive(Debug)]
pub struct Completion {
    /// The token of its [`ReadOp`].
    pub token: u64,
    /// Bytes read, counted over all parts; fewer than asked for at the end of the file and whenever the kernel likes.
    pub result: io::Result<usize>,
    /// The parts of the [`ReadOp`], given back.
    pub parts: Vec<ReadPart>,
}

/// Many positioned reads in flight.
///
/// Reads begin in the order in which they were pushed and end in any order. Dropping a queue waits for the reads that
/// the kernel has begun and forgets the others.
pub trait ReadQueue: Send {
    /// The most reads that may be in flight.
    fn capacity(&self) -> usize;

    /// Reads that were pushed and not yet given back.
    fn in_flight(&self) -> usize;

    /// Queues a read; it begins at the next [`submit`](ReadQueue::submit) or [`wait`](ReadQueue::wait).
    ///
    /// Fails with `WouldBlock` when [`capacity`](ReadQueue::capacity) reads are in flight; the read is then lost, so
    /// ask first; and with `InvalidInput` when the offset is above `i64::MAX`. An op of more than [`PIECES_MAX`] pieces is not refused: it is read as far as they go, a short read.
    fn push(&mut self, op: ReadOp) -> io::Result<()>;

    /// Lets the queued reads begin, in order.
    fn submit(&mut self) -> io::Result<()>;

    /// Waits until a read is over. Submits first.
    ///
    /// A failed read is an `Ok` with the error in [`Completion::result`]; `Err` means that the queue itself failed,
    /// or with `InvalidInput` that nothing is in flight.
    fn wait(&mut self) -> io::Result<Completion>;

    /// A read that is over, if there is one. Does not submit.
    fn try_wait(&mut self) -> Option<Completion>;
}

impl fmt::Debug for dyn ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadQueue({} of {})", self.in_flight(), self.capacity())
    }
}

/// The best queue that this kernel allows, for `depth` reads in flight: io_uring, else a pool of threads.
pub fn best_queue(depth: usize) -> Box<dyn ReadQueue> {
    if features().io_uring
        && let Ok(queue) = UringQueue::new(depth)
    {
        return Box::new(queue);
    }
    Box::new(PoolQueue::new(depth, POOL_THREADS))
}

/// Whether reads of a [`best_queue`] that begin at one [`submit`](ReadQueue::submit) and lie directly behind each other come to the disk as one
/// request: the kernel joins what one call hands over, and threads of a pool make a call for each.
pub fn joins_neighbours() -> bool {
    features().io_uring
}

/// A queue for `depth` reads in flight, of which each reads the copy that it wants, of so many.
///
/// btrfs reads the copy that the number of the reading thread leaves as the rest when it is divided by their number (see
/// [`btrfs::copies_go_by_thread`](crate::btrfs::copies_go_by_thread)). So each copy has threads of its own.
pub fn copies_queue(depth: usize, copies: u16) -> Box<dyn ReadQueue> {
    Box::new(PoolQueue::of_copies(depth, copies))
}

/// Refuses a read that the queue cannot take.
fn admit(queue: &impl ReadQueue, op: &ReadOp) -> io::Result<()> {
    if queue.in_flight() >= queue.capacity() {
        let full = "as many reads are in flight as the queue holds";
        return Err(io::Error::new(io::ErrorKind::WouldBlock, full));
    }
    // io_uring and preadv2 take -1 for "where the descriptor stands".
    if i64::try_from(op.offset).is_err() {
        let beyond = "the offset of a read is beyond what a file can have";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, beyond));
    }
    Ok(())
}

/// What `wait` says when it would wait for ever.
fn nothing_in_flight() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no read is in flight")
}
