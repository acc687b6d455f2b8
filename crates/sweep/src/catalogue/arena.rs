//! Growing storage in chunks: nothing is ever copied to grow, so that memory never doubles.

const CHUNK_BYTES: usize = 256 << 10;

/// A vector in chunks of equal size.
#[derive(Debug)]
pub(crate) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T: Copy> Chunked<T> {
    const PER_CHUNK: usize = {
        let fitting = CHUNK_BYTES / size_of::<T>();
        assert!(fitting > 0);
        // A power of two, so that an index is a shift and a mask.
        1 << (usize::BITS - 1 - fitting.leading_zeros())
    };

    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, value: T) {
        if self.len.is_multiple_of(Self::PER_CHUNK) {
            self.chunks.push(Vec::with_capacity(Self::PER_CHUNK));
        }
        self.chunks[self.len / Self::PER_CHUNK].push(value);
        self.len += 1;
    }

    pub(crate) fn get(&self, index: usize) -> T {
        self.chunks[index / Self::PER_CHUNK][index % Self::PER_CHUNK]
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / Self::PER_CHUNK][index % Self::PER_CHUNK]
    }

    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.len = 0;
    }

    /// Keeps the first `len`, where there are more.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.chunks.truncate(self.len.div_ceil(Self::PER_CHUNK));
        let rest = self.len % Self::PER_CHUNK;
        if let Some(last) = self.chunks.last_mut().filter(|_| rest > 0) {
            last.truncate(rest);
        }
    }

    /// Bytes in use, not counting the unused end of the last chunk.
    pub(crate) fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

/// Byte strings, end to end.
#[derive(Debug, Default)]
pub(crate) struct Names {
    chunks: Vec<Vec<u8>>,
    bytes: u64,
}

/// How many names there were.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamesMark {
    chunks: usize,
    in_last: usize,
    bytes: u64,
}

/// Where a name lies: chunk number above, offset below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameAt(u32);

impl Names {
    const CHUNK: usize = 1 << 18;
    const CHUNK_BITS: u32 = 18;

    /// Keeps a name of at most 65,535 bytes; `None` when 4 GiB of names are kept already.
    pub(crate) fn push(&mut self, name: &[u8]) -> Option<NameAt> {
        let fits = self.chunks.last().is_some_and(|chunk| chunk.len() + name.len() <= Self::CHUNK);
        if !fits {
            if self.chunks.len() == 1 << (u32::BITS - Self::CHUNK_BITS) {
                return None;
            }
            self.chunks.push(Vec::with_capacity(Self::CHUNK));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let at = NameAt((number as u32) << Self::CHUNK_BITS | chunk.len() as u32);
        chunk.extend_from_slice(name);
        self.bytes += name.len() as u64;
        Some(at)
    }

    pub(crate) fn get(&self, at: NameAt, len: u16) -> &[u8] {
        let offset = at.0 as usize & (Self::CHUNK - 1);
        &self.chunks[(at.0 >> Self::CHUNK_BITS) as usize][offset..offset + usize::from(len)]
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn mark(&self) -> NamesMark {
        NamesMark { chunks: self.chunks.len(), in_last: self.chunks.last().map_or(0, Vec::len), bytes: self.bytes }
    }

    /// Forgets what was added since.
    pub(crate) fn return_to(&mut self, mark: NamesMark) {
        self.chunks.truncate(mark.chunks);
        if let Some(last) = self.chunks.last_mut() {
            last.truncate(mark.in_last);
        }
        self.bytes = mark.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_keep_what_was_pushed_over_many_borders() {
        let mut numbers = Chunked::<u64>::new();
        for n in 0..200_000_u64 {
            numbers.push(n * 3);
        }
        assert!((0..200_000).all(|n| numbers.get(n) == n as u64 * 3));
        *numbers.get_mut(70_000) = 7;
        assert_eq!((numbers.get(70_000), numbers.len(), numbers.bytes()), (7, 200_000, 1_600_000));
    }

    #[test]
    fn names_keep_their_bytes_over_many_borders() {
        let mut names = Names::default();
        let name = |n: usize| vec![n as u8; n * 37 % 256];
        let places: Vec<_> = (0..20_000).map(|n| names.push(&name(n)).unwrap()).collect();
        for (n, &at) in places.iter().enumerate() {
            assert_eq!(names.get(at, name(n).len() as u16), name(n));
        }
    }
}
