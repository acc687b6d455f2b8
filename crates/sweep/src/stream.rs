//! Files that don't pass through reassembly: read by the consumer, after the sweep (DAFT II.D).

use std::{
    fs::File,
    io::{self, Read},
};

/// The content of a large or special file, read in order through the file system.
///
/// What a read brought into the page cache is dropped again unless the file lay there before.
#[derive(Debug)]
pub struct FileStream {
    pub(crate) file: File,
}

impl Read for FileStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}
