//! Aligned memory, parts of which are lent out to reads in flight.
//!
//! A file is put together from many reads that finish in any order. [`FileBuffer`] is the memory of the whole file,
//! [`BufferPart`] an exclusive piece of it that goes into a read, and [`Bytes`] the file when all pieces are back.
//! Two parts never overlap: the buffer keeps the list of ranges that are lent, so the kernel and the program never
//! write to the same byte, and none of it needs `unsafe` outside.
//!
//! # Safety
//!
//! All access to the memory goes through a [`BufferPart`] (whose range is claimed, so it is alone there) or through
//! [`Bytes`] (which owns the memory, since no part can be left).
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Where a large buffer starts.
const PAGE_ALIGN: usize = 4096;
/// Where a smaller one starts: enough for `O_DIRECT` on devices with 4 KiB sectors too, which ask it of offsets and
/// lengths alone. Blocks at every page cost the allocator a second page each (288 against 180 MiB for 64 MiB of small
/// files).
const SECTOR_ALIGN: usize = 512;
/// What counts as large.
const PAGE_ALIGNED_FROM: usize = 64 << 10;

/// Zeroed heap memory, parts of which can be lent out to reads in flight.
///
/// The memory starts at a multiple of 512 bytes (of 4096 when it is 64 KiB or longer), so a part that starts at such a
/// multiple can take part in an `O_DIRECT` read. Bytes that no read has filled stay zero, as the holes of a file
/// need it.
pub struct FileBuffer(Arc<Memory>);

impl FileBuffer {
    /// Allocates `len` zeroed bytes. Ends the process when there is no memory; see [`FileBuffer::try_zeroed`].
    pub fn zeroed(len: usize) -> FileBuffer {
        FileBuffer::try_zeroed(len).unwrap_or_else(|| {
            handle_alloc_error(layout_for(len).unwrap_or_else(Layout::new::<u8>));
        })
    }

    /// Allocates `len` zeroed bytes, or gives `None` when there is no memory for them.
    pub fn try_zeroed(len: usize) -> Option<FileBuffer> {
        Some(FileBuffer(Arc::new(Memory::zeroed(len)?)))
    }

    /// Bytes of the buffer.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Lends `range` out. The part is given back by dropping it.
    ///
    /// # Panics
    ///
    /// When `range` does not lie in the buffer, or overlaps a part that is still lent.
    pub fn lend(&self, range: Range<usize>) -> BufferPart {
        match self.try_lend(range.clone()) {
            Some(part) => part,
            None => panic!("bytes {range:?} of a buffer of {} are outside it or still lent", self.len()),
        }
    }

    /// As [`FileBuffer::lend`], but `None` where that one panics.
    pub fn try_lend(&self, range: Range<usize>) -> Option<BufferPart> {
        if range.start > range.end || range.end > self.0.len {
            return None;
        }
        let mut claims = self.0.claims();
        let taken = |claim: &Range<usize>| claim.start < range.end && range.start < claim.end;
        if !range.is_empty() {
            if claims.iter().any(taken) {
                return None;
            }
            claims.push(range.clone());
        }
        drop(claims);
        Some(BufferPart { memory: Arc::clone(&self.0), range })
    }

    /// Bytes that are lent out just now.
    pub fn lent(&self) -> usize {
        self.0.claims().iter().map(Range::len).sum()
    }

    /// Gives the bytes for good, or the buffer back while a part of it is still lent.
    pub fn try_into_bytes(self) -> Result<Bytes, FileBuffer> {
        let memory = Arc::try_unwrap(self.0).map_err(FileBuffer)?;
        let len = memory.len;
        Ok(Bytes { memory, len })
    }
}

impl fmt::Debug for FileBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBuffer").field("len", &self.len()).field("lent", &self.lent()).finish()
    }
}

/// Copies `from` of `source` to the bytes of `target` that start at `to`, as files that share an extent need it.
///
/// Both ranges are claimed while the copy runs. `source` and `target` may be the same buffer.
///
/// # Panics
///
/// When a range lies outside its buffer, is still lent, or overlaps the other one.
pub fn copy_within_buffers(source: &FileBuffer, from: Range<usize>, target: &FileBuffer, to: usize) {
    let end = to.checked_add(from.len()).expect("the copy ends inside the target");
    let source = source.lend(from);
    let mut target = target.lend(to..end);
    target.as_mut_slice().copy_from_slice(source.as_slice());
}

/// A part of a [`FileBuffer`] that nobody else can touch until it is dropped.
pub struct BufferPart {
    memory: Arc<Memory>,
    range: Range<usize>,
}

impl BufferPart {
    /// Bytes of the part.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the part has no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Where the part lies in its buffer.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The bytes, to read.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the range lies in the memory (checked by `try_lend`), which lives as long as `self.memory`, was
        // initialised when it was allocated, and is claimed by this part alone.
        unsafe { std::slice::from_raw_parts(self.start(), self.len()) }
    }

    /// The bytes, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only slice of the claimed range.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) }
    }

    /// Gives the first `len` bytes back, so that the part begins after them; what a short read leaves to be read.
    ///
    /// # Panics
    ///
    /// When the part is shorter than `len`.
    pub fn advance(&mut self, len: usize) {
        assert!(len <= self.len(), "cannot advance {} bytes by {len}", self.len());
        self.resize(self.range.start + len..self.range.end);
    }

    /// Gives all but the first `len` bytes back.
    ///
    /// # Panics
    ///
    /// When the part is shorter than `len`.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len(), "cannot truncate {} bytes to {len}", self.len());
        self.resize(self.range.start..self.range.start + len);
    }

    /// Shrinks the claim to `range`, which lies in it.
    fn resize(&mut self, range: Range<usize>) {
        let mut claims = self.memory.claims();
        if let Some(at) = claims.iter().position(|claim| *claim == self.range) {
            if range.is_empty() {
                claims.swap_remove(at);
            } else {
                claims[at] = range.clone();
            }
        }
        drop(claims);
        self.range = range;
    }

    /// The first byte, for a system call that writes at most `len` bytes while this part is kept.
    pub(crate) fn start(&self) -> *mut u8 {
        // SAFETY: the start of the range is at most the length of the memory, so the result lies in it or one past.
        unsafe { self.memory.start.as_ptr().add(self.range.start) }
    }
}

impl Drop for BufferPart {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            self.resize(self.range.end..self.range.end);
        }
    }
}

impl fmt::Debug for BufferPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferPart").field(&self.range).finish()
    }
}

/// The bytes of a buffer of which no part is lent any more.
pub struct Bytes {
    memory: Memory,
    len: usize,
}

impl Bytes {
    /// No bytes.
    pub fn empty() -> Bytes {
        Bytes::copy_of(&[])
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Bytes {
        let buffer = FileBuffer::zeroed(bytes.len());
        buffer.lend(0..bytes.len()).as_mut_slice().copy_from_slice(bytes);
        buffer.try_into_bytes().expect("the only part was dropped")
    }

    /// Cuts the bytes behind `len` off; does nothing when there are none. The memory stays allocated.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is owned, initialised, and at least `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.len)
    }
}

/// Blocks of memory that are used again, since fresh memory of the system is slow: each of its pages is a fault, and
/// a file of 1 MiB in the cache takes several times as long to read into fresh memory as into used memory.
///
/// A block goes back to its pool when the [`FileBuffer`] or [`Bytes`] made of it is dropped, in whatever thread; to the
/// system when the pool keeps enough already, or is gone. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct BufferPool(Arc<Mutex<Kept>>);

/// Blocks from this length on are kept in one list, for buffers of about their length; shorter ones by their class.
const LARGE_FROM: usize = 64 << 10;

/// Lengths of small blocks: 1, 2 and 4 KiB, and then each multiple of 4 KiB below [`LARGE_FROM`], and itself.
const SMALL_CLASSES: usize = 18;

const SMALL_STEP: usize = 4096;

/// The class of a small block for `len` bytes, and how long it is.
fn small_class(len: usize) -> (usize, usize) {
    match len {
        0..=1024 => (0, 1024),
        1025..=2048 => (1, 2048),
        _ => (1 + len.div_ceil(SMALL_STEP), len.next_multiple_of(SMALL_STEP)),
    }
}

impl BufferPool {
    /// A pool that takes at most `spare_bytes` bytes of memory beyond what its buffers hold: blocks that nobody uses, and
    /// the unused ends of used ones.
    pub fn new(spare_bytes: usize) -> BufferPool {
        let (blocks, small) = (VecDeque::new(), Default::default());
        // The sanitizer sees who uses memory after it was given back, or beyond its end, where all of it comes from the system.
        let bytes_max = if cfg!(onesweep_fresh_memory) { 0 } else { spare_bytes };
        BufferPool(Arc::new(Mutex::new(Kept { blocks, small, bytes: 0, ends: 0, bytes_max })))
    }

    /// As [`FileBuffer::try_zeroed`], from used memory where some is kept, which is cleared first.
    pub fn try_zeroed(&self, len: usize) -> Option<FileBuffer> {
        let (memory, used) = self.take(len)?;
        if used {
            // SAFETY: the block is at least `len` bytes long, and nobody else has it.
            unsafe { memory.start.as_ptr().write_bytes(0, len) };
        }
        Some(FileBuffer(Arc::new(memory)))
    }

    /// `len` bytes that hold zeros or what was read into them before, for a caller that will fill all of them or cut
    /// off the rest: clearing takes about as long as reading from the cache. `None` when there is no memory.
    pub fn try_uncleared(&self, len: usize) -> Option<FileBuffer> {
        let (memory, _) = self.take(len)?;
        Some(FileBuffer(Arc::new(memory)))
    }

    /// As [`BufferPool::try_uncleared`], for one who fills them alone: no part of them can be lent.
    pub fn try_bytes(&self, len: usize) -> Option<Bytes> {
        let (memory, _) = self.take(len)?;
        Some(Bytes { memory, len })
    }

    /// Bytes that are kept and not in use.
    pub fn kept_bytes(&self) -> usize {
        self.kept().bytes
    }

    /// Memory for `len` bytes, and whether it has been used before.
    fn take(&self, len: usize) -> Option<(Memory, bool)> {
        if len == 0 {
            return Some((Memory::zeroed(0)?, false));
        }
        let (kept, fresh) = self.kept().take(len);
        let used = kept.is_some();
        let block = match kept {
            Some(block) => block,
            None => Block::zeroed(fresh)?,
        };
        let home = Some(Arc::downgrade(&self.0));
        Some((Memory { len, claims: Mutex::default(), start: block.start, block: Some(block), home }, used))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0)
    }
}

/// The memory that a pool keeps.
#[derive(Debug)]
struct Kept {
    /// Large blocks, oldest first.
    blocks: VecDeque<Block>,
    /// Small ones by their class. The youngest is taken first: it may be in the processor's caches still.
    small: [Vec<Block>; SMALL_CLASSES],
    /// Of these blocks.
    bytes: usize,
    /// Of blocks in use, beyond what their buffers hold.
    ends: usize,
    bytes_max: usize,
}

impl Kept {
    /// A kept block for `len` bytes, or how long a fresh one is to be.
    fn take(&mut self, len: usize) -> (Option<Block>, usize) {
        let block = if len < LARGE_FROM { self.small[small_class(len).0].pop() } else { self.take_large(len) };
        if let Some(block) = block {
            self.bytes -= block.len();
            self.ends += block.len() - len;
            return (Some(block), len);
        }
        let whole = if len < LARGE_FROM { small_class(len).1 } else { len };
        // What is not as long as its class is not used again.
        let fresh = if self.bytes + self.ends + (whole - len) <= self.bytes_max { whole } else { len };
        self.ends += fresh - len;
        (None, fresh)
    }

    /// The smallest kept block of at least `len` bytes, unless it would waste more than a quarter.
    fn take_large(&mut self, len: usize) -> Option<Block> {
        // Taking a block turns its length into an end, which never is the longer.
        let fits = |block: &Block| block.len() >= len && block.len() <= len + len / 4 + LARGE_FROM;
        let candidates = self.blocks.iter().enumerate().filter(|(_, block)| fits(block));
        let (at, _) = candidates.min_by_key(|(at, block)| (block.len(), usize::MAX - at))?;
        self.blocks.remove(at)
    }

    /// Keeps a block of which `used` bytes were in use, and lets blocks of the other kind, then older ones, go where that is too
    /// much. What is not kept comes back, to be given to the system outside of the lock.
    fn keep(&mut self, block: Block, used: usize) -> Vec<Block> {
        self.ends -= block.len() - used;
        let mut too_much = Vec::new();
        let (class, class_len) = small_class(used.min(LARGE_FROM));
        let is_small = used < LARGE_FROM;
        if is_small && block.len() != class_len {
            return vec![block];
        }
        self.bytes += block.len();
        if is_small {
            self.small[class].push(block);
        } else {
            self.blocks.push_back(block);
        }
        while self.bytes + self.ends > self.bytes_max {
            let next = match is_small {
                true => self.blocks.pop_front().or_else(|| self.small[class].pop()),
                false => self.small.iter_mut().rev().find_map(Vec::pop).or_else(|| self.blocks.pop_front()),
            };
            let Some(next) = next else { break };
            self.bytes -= next.len();
            too_much.push(next);
        }
        too_much
    }
}

/// One allocation that is not empty.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is plain bytes owned by this value.
unsafe impl Send for Block {}
// SAFETY: a shared block gives access to nothing.
unsafe impl Sync for Block {}

impl Block {
    /// `None` for no bytes, and when there is no memory.
    fn zeroed(len: usize) -> Option<Block> {
        let layout = layout_for(len).filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { start, layout })
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A block in use and the ranges of it that are lent.
struct Memory {
    /// Where the block starts; not to be read or written when there is none.
    start: NonNull<u8>,
    /// Bytes in use, at most those of the block.
    len: usize,
    claims: Mutex<Vec<Range<usize>>>,
    /// `None` when `len` is 0.
    block: Option<Block>,
    /// The pool that the block goes back to.
    home: Option<Weak<Mutex<Kept>>>,
}

// SAFETY: the memory is plain bytes owned by this value; who may touch which of them is settled by `claims`.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` gives out its bytes only through claimed ranges, which do not overlap.
unsafe impl Sync for Memory {}

impl Memory {
    fn zeroed(len: usize) -> Option<Memory> {
        let block = match len {
            0 => None,
            _ => Some(Block::zeroed(len)?),
        };
        let start = block.as_ref().map_or(NonNull::dangling(), |block| block.start);
        Some(Memory { start, len, claims: Mutex::default(), block, home: None })
    }

    fn claims(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        lock(&self.claims)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let pool = self.home.as_ref().and_then(Weak::upgrade);
        if let (Some(pool), Some(block)) = (pool, self.block.take()) {
            let too_much = lock(&pool).keep(block, self.len);
            drop(too_much);
        }
    }
}

/// Locks what a panic cannot leave half changed: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How `len` bytes are allocated; `None` when no memory can be that long.
fn layout_for(len: usize) -> Option<Layout> {
    let align = if len < PAGE_ALIGNED_FROM { SECTOR_ALIGN } else { PAGE_ALIGN };
    Layout::from_size_align(len, align).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for (len, align) in [(1, 512), (511, 512), (4095, 512), (4096, 512), (64 << 10, 4096), (1 << 20, 4096)] {
            let buffer = FileBuffer::zeroed(len);
            let part = buffer.lend(0..len);
            assert_eq!(part.start() as usize % align, 0, "{len}");
            assert!(part.as_slice().iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn no_memory_is_none() {
        assert!(FileBuffer::try_zeroed(usize::MAX).is_none());
        assert!(FileBuffer::try_zeroed(isize::MAX as usize).is_none());
    }

    #[test]
    fn parts_do_not_overlap() {
        let buffer = FileBuffer::zeroed(100);
        let first = buffer.lend(0..50);
        assert!(buffer.try_lend(49..51).is_none());
        assert!(buffer.try_lend(0..100).is_none());
        assert!(buffer.try_lend(10..20).is_none());
        assert!(buffer.try_lend(90..101).is_none());
        let second = buffer.lend(50..100);
        assert!(buffer.try_lend(50..50).is_some(), "an empty part touches nothing");
        drop(first);
        assert_eq!(buffer.lend(0..50).len(), 50);
        assert_eq!(buffer.lent(), 50);
        drop(second);
        assert_eq!(buffer.lent(), 0);
    }

    #[test]
    #[should_panic(expected = "still lent")]
    fn overlapping_lend_panics() {
        let buffer = FileBuffer::zeroed(10);
        let _part = buffer.lend(0..5);
        let _other = buffer.lend(4..6);
    }

    #[test]
    fn advance_and_truncate_give_bytes_back() {
        let buffer = FileBuffer::zeroed(100);
        let mut part = buffer.lend(10..90);
        part.advance(20);
        part.truncate(30);
        assert_eq!(part.range(), 30..60);
        assert_eq!(buffer.lent(), 30);
        let (before, after) = (buffer.lend(0..30), buffer.lend(60..100));
        part.advance(30);
        assert!(part.is_empty());
        drop((before, after));
        assert_eq!(buffer.lent(), 0);
        drop(part);
        buffer.try_into_bytes().unwrap();
    }

    #[test]
    fn bytes_come_when_all_parts_are_back() {
        let buffer = FileBuffer::zeroed(8);
        let mut part = buffer.lend(2..4);
        part.as_mut_slice().copy_from_slice(b"ab");
        let buffer = buffer.try_into_bytes().unwrap_err();
        drop(part);
        let mut bytes = buffer.try_into_bytes().unwrap();
        assert_eq!(&bytes[..], b"\0\0ab\0\0\0\0");
        bytes.truncate(4);
        bytes[0] = b'x';
        assert_eq!(&bytes[..], b"x\0ab");
        bytes.truncate(9);
        assert_eq!(bytes.len(), 4);
    }

    #[test]
    fn empty_buffer_is_fine() {
        let buffer = FileBuffer::zeroed(0);
        assert!(buffer.lend(0..0).as_mut_slice().is_empty());
        assert!(buffer.try_into_bytes().unwrap().is_empty());
        assert!(Bytes::empty().is_empty());
    }

    #[test]
    fn shared_bytes_are_copied() {
        let source = FileBuffer::zeroed(8);
        source.lend(0..4).as_mut_slice().copy_from_slice(b"data");
        let target = FileBuffer::zeroed(6);
        copy_within_buffers(&source, 0..4, &target, 2);
        copy_within_buffers(&source, 1..3, &source, 5);
        assert_eq!(&target.try_into_bytes().unwrap()[..], b"\0\0data");
        assert_eq!(&source.try_into_bytes().unwrap()[..], b"data\0at\0");
    }

    #[test]
    fn threads_fill_their_parts() {
        let buffer = FileBuffer::zeroed(8 * 1000);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let mut part = buffer.lend(number * 1000..(number + 1) * 1000);
                scope.spawn(move || part.as_mut_slice().fill(number as u8));
            }
        });
        let bytes = buffer.try_into_bytes().unwrap();
        assert!(
            bytes.chunks(1000).enumerate().all(|(number, chunk)| { chunk.iter().all(|&byte| byte == number as u8) })
        );
    }

    #[test]
    fn pool_gives_the_same_memory_again() {
        let pool = BufferPool::new(1 << 20);
        let first = pool.try_zeroed(128 << 10).unwrap();
        first.lend(0..128 << 10).as_mut_slice().fill(7);
        let address = first.lend(0..1).start();
        drop(first.try_into_bytes().unwrap());
        assert_eq!(pool.kept_bytes(), 128 << 10);
        let again = pool.try_uncleared(90_000).unwrap();
        assert_eq!((again.lend(0..1).start(), again.len(), pool.kept_bytes()), (address, 90_000, 0));
        assert!(again.lend(0..90_000).as_slice().iter().all(|&byte| byte == 7));
        drop(again);
        let cleared = pool.try_zeroed(110_000).unwrap();
        assert_eq!(cleared.lend(0..1).start(), address);
        assert!(cleared.try_into_bytes().unwrap().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn pool_keeps_no_more_than_it_may() {
        let pool = BufferPool::new(300 << 10);
        let buffers: Vec<_> = (0..4).map(|_| pool.try_zeroed(128 << 10).unwrap()).collect();
        assert_eq!(pool.kept_bytes(), 0);
        drop(buffers);
        assert_eq!(pool.kept_bytes(), 256 << 10);
        drop(pool.try_zeroed(1 << 20).unwrap());
        assert!(pool.kept_bytes() <= 300 << 10, "a block above the limit is not kept");
        let nothing = BufferPool::new(0);
        drop(nothing.try_zeroed(128 << 10).unwrap());
        assert_eq!(nothing.kept_bytes(), 0);
    }

    /// A block is as long as its buffer, or the difference is a part of what the pool may take.
    #[test]
    fn pool_takes_no_more_than_it_may() {
        let pool = BufferPool::new(300 << 10);
        let taken = || {
            let kept = pool.kept();
            kept.bytes + kept.ends
        };
        let fresh: Vec<_> = (0..3).map(|_| pool.try_zeroed(66 << 10).unwrap()).collect();
        assert_eq!(taken(), 0, "fresh memory is as long as it has to be");
        drop(fresh);
        drop(pool.try_zeroed(100 << 10).unwrap());
        assert_eq!(taken(), 298 << 10);
        let shorter: Vec<_> = (0..4).map(|_| pool.try_zeroed(64 << 10).unwrap()).collect();
        assert_eq!(taken(), (2 + 2 + 2 + 36) << 10);
        let more: Vec<_> = (0..4).map(|_| pool.try_zeroed(100 << 10).unwrap()).collect();
        drop(more);
        assert!(taken() <= 300 << 10, "{}", taken());
        drop(shorter);
        assert!(taken() <= 300 << 10, "{}", taken());
        assert_eq!(pool.kept().ends, 0);
    }

    #[test]
    fn pool_wastes_little() {
        let pool = BufferPool::new(64 << 20);
        drop(pool.try_zeroed(32 << 20).unwrap());
        let small = pool.try_zeroed(1 << 20).unwrap();
        assert_eq!(pool.kept_bytes(), 32 << 20, "a large block does not go to a small file");
        drop(small);
        drop(pool.try_zeroed(100).unwrap());
        assert_eq!(pool.kept_bytes(), (33 << 20) + 1024, "a small buffer does not take a large block");
        assert!(pool.try_zeroed(usize::MAX).is_none());
    }

    #[test]
    fn pool_gives_small_memory_again_too() {
        for (len, class_len) in [(1, 1 << 10), (1025, 2 << 10), (4096, 4 << 10), (4097, 8 << 10), (65_535, 64 << 10)] {
            let pool = BufferPool::new(1 << 20);
            let mut first = pool.try_bytes(len).unwrap();
            first.fill(7);
            let address = first.as_ptr();
            drop(first);
            assert_eq!(pool.kept_bytes(), class_len, "{len}");
            let again = pool.try_bytes(class_len.min(LARGE_FROM - 1)).unwrap();
            assert_eq!((again.as_ptr(), pool.kept_bytes()), (address, 0));
            assert!(again[..len].iter().all(|&byte| byte == 7));
            drop(again);
            let cleared = pool.try_zeroed(len).unwrap();
            assert_eq!(cleared.lend(0..1).start().cast_const(), address);
            assert!(cleared.try_into_bytes().unwrap().iter().all(|&byte| byte == 0));
        }
        assert!(BufferPool::new(1 << 20).try_bytes(0).unwrap().is_empty());
    }

    /// Whatever lengths come: never more than it may, and all of it comes back in the end.
    #[test]
    fn small_and_large_blocks_share_what_the_pool_may_take() {
        const MAX: usize = 256 << 10;
        let pool = BufferPool::new(MAX);
        let taken = || {
            let kept = pool.kept();
            let lists: usize = kept.blocks.iter().chain(kept.small.iter().flatten()).map(Block::len).sum();
            assert_eq!(lists, kept.bytes);
            kept.bytes + kept.ends
        };
        let mut random = 1_u64;
        let mut held = VecDeque::new();
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let len = (random >> 33) as usize % (1 << ((random >> 58) % 19));
            held.push_back(pool.try_bytes(len).unwrap());
            if held.len() > (random >> 40) as usize % 64 {
                held.pop_front();
            }
            assert!(taken() <= MAX, "{}", taken());
        }
        held.clear();
        assert_eq!(pool.kept().ends, 0);
    }

    #[test]
    fn blocks_make_room_for_the_other_kind() {
        let pool = BufferPool::new(256 << 10);
        let fill_with_small = || drop((0..64).map(|_| pool.try_bytes(4096).unwrap()).collect::<Vec<_>>());
        fill_with_small();
        assert_eq!((pool.kept_bytes(), pool.kept().blocks.len()), (256 << 10, 0));
        drop(pool.try_bytes(128 << 10).unwrap());
        assert_eq!((pool.kept_bytes(), pool.kept().blocks.len()), (256 << 10, 1));
        fill_with_small();
        assert_eq!((pool.kept_bytes(), pool.kept().blocks.len()), (256 << 10, 0));
    }

    #[test]
    fn buffers_outlive_their_pool() {
        let pool = BufferPool::new(1 << 20);
        let buffer = pool.clone().try_zeroed(100_000).unwrap();
        drop(pool);
        assert_eq!(buffer.try_into_bytes().unwrap().len(), 100_000);
    }
}
