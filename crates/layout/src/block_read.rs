//! Bytes by their address: an image file, a block device, a part of either, or a faulty one in tests.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    sync::Arc,
};

use onesweep_sys::{block, cache, files};

/// Bytes by their address. Nothing can be written through it.
pub trait BlockRead: Send + Sync {
    /// Fills the buffer with the bytes from `at` on. `UnexpectedEof` when they reach beyond the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// Fills the buffer as [`read_at`](Self::read_at) does, where nobody has to wait for a disk; false where it may have to, or that isn't known.
    fn read_at_if_cached(&self, _buffer: &mut [u8], _at: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// How many bytes there are.
    fn len(&self) -> u64;

    /// These bytes will be read soon; whoever can begins to read them now.
    fn will_read(&self, _at: u64, _len: u64) {}

    /// Bytes of a sector, by which partition tables count; `None` for what is no device.
    fn sector_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: BlockRead + ?Sized> BlockRead for Arc<T> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_at(buffer, at)
    }

    fn read_at_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        (**self).read_at_if_cached(buffer, at)
    }

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn will_read(&self, at: u64, len: u64) {
        (**self).will_read(at, len);
    }

    fn sector_bytes(&self) -> Option<u64> {
        (**self).sector_bytes()
    }
}

impl BlockRead for [u8] {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let start = usize::try_from(at).ok();
        let bytes = start.and_then(|start| self.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_at_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        self.read_at(buffer, at).map(|()| true)
    }

    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }
}

impl<T: BlockRead + ?Sized> BlockRead for &T {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_at(buffer, at)
    }

    fn read_at_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        (**self).read_at_if_cached(buffer, at)
    }

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn will_read(&self, at: u64, len: u64) {
        (**self).will_read(at, len);
    }

    fn sector_bytes(&self) -> Option<u64> {
        (**self).sector_bytes()
    }
}

impl BlockRead for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.as_slice().read_at(buffer, at)
    }

    fn read_at_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        self.as_slice().read_at_if_cached(buffer, at)
    }

    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }
}

/// An image file or a block device, opened for reading alone.
#[derive(Debug)]
pub struct ImageFile {
    file: File,
    len: u64,
}

impl ImageFile {
    /// Opens a file or a device. Reads go through the page cache, so a device that is mounted shows what its file system
    /// has written.
    pub fn open(path: &Path) -> io::Result<ImageFile> {
        ImageFile::new(File::open(path)?)
    }

    /// Takes an open file or device over.
    pub fn new(mut file: File) -> io::Result<ImageFile> {
        // The size of a device is told by no stat.
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(ImageFile { file, len })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl BlockRead for ImageFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn read_at_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        Ok(files::read_at_if_cached(self.file.as_fd(), buffer, at)? == Some(buffer.len()))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn will_read(&self, at: u64, len: u64) {
        // Advice alone: the read that follows tells what is wrong.
        let _ = cache::prefetch(self.file.as_fd(), at, len);
    }

    fn sector_bytes(&self) -> Option<u64> {
        block::logical_block_bytes(self.file.as_fd()).ok().map(u64::from)
    }
}

/// A part of something larger, such as a partition. Its addresses begin at 0.
#[derive(Clone, Debug)]
pub struct Part<B> {
    whole: B,
    start: u64,
    len: u64,
}

impl<B: BlockRead> Part<B> {
    /// `len` bytes from `start` on; what lies beyond the end of the whole is cut off.
    pub fn new(whole: B, start: u64, len: u64) -> Part<B> {
        let start = start.min(whole.len());
        let len = len.min(whole.len() - start);
        Part { whole, start, len }
    }

    /// Where it begins in the whole.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl<B: BlockRead> BlockRead for Part<B> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buffer.len() as u64).filter(|&end| end <= self.len);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.whole.read_at(buffer, self.start + at)
    }

    fn read_at_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        let end = at.checked_add(buffer.len() as u64).filter(|&end| end <= self.len);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.whole.read_at_if_cached(buffer, self.start + at)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn will_read(&self, at: u64, len: u64) {
        let len = len.min(self.len.saturating_sub(at));
        if len > 0 {
            self.whole.will_read(self.start + at, len);
        }
    }

    fn sector_bytes(&self) -> Option<u64> {
        self.whole.sector_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &impl BlockRead, at: u64, len: usize) -> Result<Vec<u8>, io::ErrorKind> {
        let mut buffer = vec![0; len];
        from.read_at(&mut buffer, at).map(|()| buffer).map_err(|error| error.kind())
    }

    #[test]
    fn every_kind_gives_the_same_bytes() {
        let bytes: Vec<u8> = (0..=99).collect();
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &bytes).unwrap();
        let file = ImageFile::new(file).unwrap();
        let beyond = Err(io::ErrorKind::UnexpectedEof);
        for (at, len, expected) in [
            (0, 3, Ok(vec![0, 1, 2])),
            (98, 2, Ok(vec![98, 99])),
            (100, 0, Ok(vec![])),
            (98, 3, beyond.clone()),
            (u64::MAX, 1, beyond),
        ] {
            assert_eq!(read(&bytes, at, len), expected);
            assert_eq!(read(&Arc::new(bytes.clone()), at, len), expected);
            if at < i64::MAX as u64 {
                assert_eq!(read(&file, at, len), expected);
            }
        }
        assert_eq!((BlockRead::len(&bytes), file.len()), (100, 100));
    }

    #[test]
    fn a_part_has_an_end() {
        let bytes: Vec<u8> = (0..=99).collect();
        let part = Part::new(&bytes[..], 10, 20);
        assert_eq!(read(&part, 19, 1), Ok(vec![29]));
        assert_eq!(read(&part, 19, 2), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(&part, u64::MAX, 2), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(Part::new(&bytes[..], 90, 20).len(), 10);
        assert!(Part::new(&bytes[..], 200, 20).is_empty());
    }
}
