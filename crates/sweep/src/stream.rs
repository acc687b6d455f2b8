//! Files that don't pass through reassembly: read by the consumer, after the sweep (DAFT II.D).

use std::{
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use onesweep_sys::{cache, files};

use crate::{opener::Way, progress::Cancel, throttle::Throttle};

/// How much is read before what was brought into the page cache is dropped again.
const DROP_EVERY: u64 = 8 << 20;

/// The content of a large or special file, read in order through the file system.
///
/// It is opened at the first read. What the reads bring into the page cache is dropped again when nothing of the file
/// lay there before. A change of the file while it is read is an error at its end.
#[derive(Debug)]
pub struct FileStream {
    way: Way,
    keep_cached: bool,
    throttle: Arc<Throttle>,
    cancel: Cancel,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    fd: OwnedFd,
    before: files::Stat,
    at: u64,
    dropped: u64,
    drop_behind: bool,
    checked: bool,
}

impl FileStream {
    pub(crate) fn new(way: Way, keep_cached: bool, throttle: Arc<Throttle>, cancel: Cancel) -> Self {
        Self { way, keep_cached, throttle, cancel, open: None }
    }

    fn open(&mut self) -> io::Result<&mut Open> {
        if self.open.is_none() {
            let fd = self.way.open()?;
            let before = files::statx_fd(fd.as_fd())?;
            let untouched = cache::residency(fd.as_fd(), 0, before.size).is_ok_and(|pages| pages.cached == 0);
            let drop_behind = untouched && !self.keep_cached;
            self.open = Some(Open { fd, before, at: 0, dropped: 0, drop_behind, checked: false });
        }
        Ok(self.open.as_mut().expect("just opened"))
    }
}

impl Read for FileStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("the sweep was cancelled"));
        }
        self.throttle.pass(buffer.len() as u64, &self.cancel);
        let open = self.open()?;
        let read = files::read_at(open.fd.as_fd(), buffer, open.at)?;
        open.at += read as u64;
        if read == 0 && !buffer.is_empty() && !open.checked {
            open.checked = true;
            let after = files::statx_fd(open.fd.as_fd())?;
            if (after.size, after.mtime, after.ctime) != (open.before.size, open.before.mtime, open.before.ctime) {
                return Err(io::Error::other("it changed while it was read"));
            }
        }
        if open.drop_behind && (read == 0 || open.at - open.dropped >= DROP_EVERY) {
            // Read-ahead has brought more than was read: at the end everything goes.
            let length = if read == 0 { 0 } else { open.at };
            cache::drop_cached(open.fd.as_fd(), 0, length)?;
            open.dropped = open.at;
        }
        Ok(read)
    }
}

impl Drop for FileStream {
    fn drop(&mut self) {
        if let Some(open) = &self.open
            && open.drop_behind
        {
            // A consumer that stopped early; nothing depends on the outcome.
            let _ = cache::drop_cached(open.fd.as_fd(), 0, 0);
        }
    }
}
