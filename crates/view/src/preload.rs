//! The library that programs load, as a file in memory: there is nothing to install, and nothing to remove.

use std::{fs::File, io, os::fd::AsRawFd, path::PathBuf};

use onesweep_sys::memfd;

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ahead.so"));

/// The library, as long as this lives. Processes of the same user can load it.
#[derive(Debug)]
pub struct Library(File);

impl Library {
    /// Puts it into memory.
    pub fn new() -> io::Result<Self> {
        memfd::sealed(LIBRARY).map(Self)
    }

    /// What goes into `LD_PRELOAD`.
    pub fn path(&self) -> PathBuf {
        path_of(&self.0)
    }
}

/// How other processes open a file of this one.
pub(crate) fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}
