//! Keeping a mounted file system as it is, for a moment.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::ioctl::{Opcode, opcode};

use crate::keeper::{Keeper, Step};

/// `FIFREEZE`.
const FIFREEZE: Opcode = opcode::read_write::<libc::c_int>(b'X', 119);
/// `FITHAW`.
const FITHAW: Opcode = opcode::read_write::<libc::c_int>(b'X', 120);

/// A file system that nobody can write to: writers wait. It thaws when this is dropped, when this process ends, however it
/// ends, and when its time is up.
#[derive(Debug)]
#[must_use = "it thaws when this is dropped"]
pub struct Frozen(Keeper);

/// Freezes the file system of an open file or directory (not one opened with `O_PATH`) for `limit` at most.
///
/// Everything dirty is written first, so call [`sync_file_system`](crate::files::sync_file_system) before: writers wait
/// meanwhile. Needs `CAP_SYS_ADMIN`. `EOPNOTSUPP` where the file system can't, `EBUSY` when somebody has frozen it.
#[doc(alias = "FIFREEZE")]
pub fn freeze(fd: OwnedFd, limit: Duration) -> io::Result<Frozen> {
    let step = |request| Step::Ioctl { request, argument: Box::new([0]) };
    Ok(Frozen(Keeper::start(fd, step(FIFREEZE), step(FITHAW), Some(limit))?))
}

impl Frozen {
    /// Thaws it; false when its time was up before.
    #[doc(alias = "FITHAW")]
    pub fn thaw(mut self) -> io::Result<bool> {
        self.0.undo()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_frozen_says_so() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let error = freeze(file.into(), Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EPERM)), "{error}");
    }
}
