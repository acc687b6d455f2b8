//! What of an image is read, and what was announced before.

use std::{collections::BTreeSet, io, sync::Mutex};

use onesweep_layout::{BlockRead, ImageFile};

/// An image that notes which KiB of it were read, and of those that were announced first.
pub(crate) struct Noting {
    image: ImageFile,
    pub(crate) read: Mutex<BTreeSet<u64>>,
    pub(crate) announced: Mutex<BTreeSet<u64>>,
}

impl Noting {
    pub(crate) fn new(image: ImageFile) -> Noting {
        Noting { image, read: Mutex::default(), announced: Mutex::default() }
    }
}

impl BlockRead for Noting {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read.lock().unwrap().extend(at / 1024..(at + buffer.len() as u64).div_ceil(1024));
        self.image.read_at(buffer, at)
    }

    fn len(&self) -> u64 {
        self.image.len()
    }

    fn will_read(&self, at: u64, len: u64) {
        self.announced.lock().unwrap().extend(at / 1024..(at + len).div_ceil(1024));
    }
}
