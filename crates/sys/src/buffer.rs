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
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a buffer of at least this length starts; enough for `O_DIRECT` on every device seen so far.
const PAGE_ALIGN: usize = 4096;
/// Where a smaller buffer starts.
const SECTOR_ALIGN: usize = 512;

/// Zeroed heap memory, parts of which can be lent out to reads in flight.
///
/// The memory starts at a multiple of 4096 bytes (of 512 when it is shorter than 4096), so a part that starts at such
/// a multiple can take part in an `O_DIRECT` read. Bytes that no read has filled stay zero, as the holes of a file
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

/// One allocation and the ranges of it that are lent.
struct Memory {
    start: NonNull<u8>,
    len: usize,
    claims: Mutex<Vec<Range<usize>>>,
}

// SAFETY: the memory is plain bytes owned by this value; who may touch which of them is settled by `claims`.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` gives out its bytes only through claimed ranges, which do not overlap.
unsafe impl Sync for Memory {}

impl Memory {
    fn zeroed(len: usize) -> Option<Memory> {
        let layout = layout_for(len)?;
        let start = if len == 0 {
            // Never read or written: all ranges of it are empty.
            NonNull::without_provenance(layout.align().try_into().ok()?)
        } else {
            // SAFETY: the layout is not empty.
            NonNull::new(unsafe { alloc_zeroed(layout) })?
        };
        Some(Memory { start, len, claims: Mutex::default() })
    }

    fn claims(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        // A panic cannot leave the list half changed: each change is one call.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let (Some(layout), true) = (layout_for(self.len), self.len > 0) {
            // SAFETY: allocated in `zeroed` with this very layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// How `len` bytes are allocated; `None` when no memory can be that long.
fn layout_for(len: usize) -> Option<Layout> {
    let align = if len < PAGE_ALIGN { SECTOR_ALIGN } else { PAGE_ALIGN };
    Layout::from_size_align(len, align).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for (len, align) in [(1, 512), (511, 512), (4095, 512), (4096, 4096), (1 << 20, 4096)] {
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
}
