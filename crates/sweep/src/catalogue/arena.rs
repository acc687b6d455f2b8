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
