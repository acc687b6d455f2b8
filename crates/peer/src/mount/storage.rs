//! Where the bytes of a device are: the device itself, or a faulty one in tests.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use onesweep_sys::{buffer::FileBuffer, image_lock::lock_image};

/// The smallest and the largest unit in which devices are read.
const SECTORS: [u64; 2] = [512, 4096];

/// The device below. Whatever is read and written begins and ends at a multiple of [`Self::sector_bytes`], in memory as well.
pub trait Storage: Send + Sync {
    /// How many bytes there are: a multiple of a sector.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The unit of reads and writes: 512 or 4096.
    fn sector_bytes(&self) -> u64;

    /// Fills the buffer with the bytes from `at` on.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all bytes.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes durable what was written.
    fn flush(&self) -> io::Result<()>;
}

/// A device or an image that is read and written past the page cache.
///
/// Not through it: a loop device may stand on what is shown, and its dirty pages would wait for memory that pages of the
/// device below hold.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    len: u64,
    sector_bytes: u64,
}

impl DirectFile {
    /// Takes a file over that was opened by `O_DIRECT`. Fails where its size is no multiple of what it can be read by.
    pub fn new(file: OwnedFd) -> io::Result<Self> {
        let mut file = File::from(file);
        // The size of a device is told by no stat.
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        let mut storage = Self { file, len, sector_bytes: SECTORS[1] };
        // What the kernel asks of O_DIRECT is told by no call for every file system; a read tells.
        let [small, large] = SECTORS;
        if len >= 2 * small && !is_refused(&storage.try_sector(small)) {
            storage.sector_bytes = small;
        } else if len >= large {
            let read = storage.try_sector(large);
            if is_refused(&read) {
                read?;
            }
        }
        if !len.is_multiple_of(storage.sector_bytes) {
            let what = format!("it has {len} bytes, which is no multiple of {}", storage.sector_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(storage)
    }

    /// What keeps a device that was opened for it alone, and a file that was locked, when this is gone.
    pub fn claim(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Locks an image by `flock`: for this alone, or against who locks it for itself alone. Fails where that is taken.
    pub fn lock(&self, alone: bool) -> io::Result<()> {
        if alone {
            self.file.try_lock()?
        } else {
            self.file.try_lock_shared()?
        };
        Ok(())
    }

    /// Locks a device or an image as QEMU does: for this alone, or against who writes it. False where another program has such a lock.
    pub fn lock_as_machines_do(&self, alone: bool) -> io::Result<bool> {
        lock_image(self.file.as_fd(), alone)
    }

    fn try_sector(&self, bytes: u64) -> io::Result<()> {
        let buffer = FileBuffer::zeroed(bytes as usize);
        // At an odd one, so that 4 KiB are no answer for 512 bytes.
        let at = self.len.saturating_sub(bytes).min(bytes);
        self.file.read_at(buffer.lend(0..bytes as usize).as_mut_slice(), at).map(drop)
    }
}

/// A sector that can't be read says nothing of its size.
fn is_refused(read: &io::Result<()>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
}

impl Storage for DirectFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn flush(&self) -> io::Result<()> {
        // The times of an image are among its marks; they become durable with the rest.
        self.file.sync_all()
    }
}
