//! Where an index lies: a file, or a faulty one in tests.

use std::{fs::File, io, os::unix::fs::FileExt};

/// The file of an index.
///
/// It is read and written by position, not mapped: an error of the disk below a mapping ends the process by a signal, and
/// no test could put one there.
pub trait IndexFile: Send {
    /// Fills the buffer with the bytes from `at` on.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all bytes. What is written survives the process, but not a power cut before [`Self::sync`].
    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes durable what was written, in no order.
    fn sync(&mut self) -> io::Result<()>;

    /// How many bytes there are.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl IndexFile for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }
}
