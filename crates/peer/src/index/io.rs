//! Where an index lies: a file, or a faulty one in tests.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
};

use onesweep_sys::files::{is_refusal, write_all_durably_at};

/// The file of an index.
///
/// It is read and written by position, not mapped: an error of the disk below a mapping ends the process by a signal, and
/// no test could put one there.
pub trait IndexFile: Send {
    /// Fills the buffer with the bytes from `at` on.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all bytes. What is written survives the process, but not a power cut before [`Self::sync`].
    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Writes all bytes, durably. Others that were written before need not be durable then.
    fn write_durably_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_at(bytes, at)?;
        self.sync()
    }

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

    fn write_durably_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match write_all_durably_at(self.as_fd(), bytes, at) {
            Err(error) if is_refusal(&error) => {
                self.write_all_at(bytes, at)?;
                self.sync_data()
            }
            written => written,
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }
}
