//! The device with what its superblock says: where everything is read from.

use super::superblock::{SUPERBLOCK_BYTES, Superblock};
use crate::{block_read::BlockRead, tables::TableError};

#[derive(Debug)]
pub(super) struct Volume<B> {
    device: B,
    pub(super) superblock: Superblock,
    /// Whether somebody has the realtime device, so that places on it are of use.
    pub(super) is_realtime_here: bool,
}

impl<B: BlockRead> Volume<B> {
    pub(super) fn open(device: B) -> Result<Volume<B>, TableError> {
        if device.len() < SUPERBLOCK_BYTES as u64 {
            let found = format!("a device of {} bytes", device.len());
            return Err(TableError::NotHere { fs_type: "xfs", what: "magic number \"XFSB\"", at: 0, found });
        }
        let first = read(&device, 0, SUPERBLOCK_BYTES)?;
        let superblock = Superblock::parse(&first, device.len(), |length| read(&device, 0, length))?;
        Ok(Volume { device, superblock, is_realtime_here: false })
    }

    /// The device itself.
    pub(super) fn device(&self) -> &B {
        &self.device
    }

    /// Bytes from an address on. Callers ask for no more than a block, or a request of merged reads.
    pub(super) fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, TableError> {
        read(&self.device, at, length)
    }

    /// Tells the device what will be read soon.
    pub(super) fn will_read(&self, at: u64, length: u64) {
        self.device.will_read(at, length);
    }

    /// Fills a buffer from an address on.
    pub(super) fn read_into(&self, buffer: &mut [u8], at: u64) -> Result<(), TableError> {
        let length = buffer.len() as u64;
        self.device.read_at(buffer, at).map_err(|source| TableError::Io { at, length, source })
    }
}

fn read(device: &impl BlockRead, at: u64, length: usize) -> Result<Vec<u8>, TableError> {
    let mut bytes = vec![0; length];
    let error = |source| TableError::Io { at, length: length as u64, source };
    device.read_at(&mut bytes, at).map_err(error)?;
    Ok(bytes)
}
