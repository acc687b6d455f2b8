//! A setting of the kernel in `/sys` that is changed for a while.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::keeper::{Keeper, Step};

/// A number in a file of `/sys` that is what it was when this is dropped, and when this process ends, however it ends.
#[derive(Debug)]
#[must_use = "it is set back when this is dropped"]
pub struct Raised {
    keeper: Keeper,
    before: u64,
}

impl Raised {
    /// Sets the number to `value` where it is less; `None` where it isn't, so that there is nothing to do.
    ///
    /// Needs permission to write there: root. `WouldBlock` while another process has raised it by this: of two that set it
    /// back in the wrong order, the later one would leave it raised.
    pub fn to(path: &Path, value: u64) -> io::Result<Option<Raised>> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
            answer => answer?,
        }
        let before = number(&mut file)?;
        if before >= value {
            return Ok(None);
        }
        // The lock is that of the open file, which the process that sets the number back has too, and holds until then.
        let write = |value: u64| Step::Write(value.to_string().into_bytes().into());
        let keeper = Keeper::start(OwnedFd::from(file), write(value), write(before), None)?;
        Ok(Some(Raised { keeper, before }))
    }

    /// What it was, and will be.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Sets it back, and tells whether that could be done.
    pub fn set_back(mut self) -> io::Result<()> {
        self.keeper.undo().map(drop)
    }
}

fn number(file: &mut File) -> io::Result<u64> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no number"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    // A plain file takes what a file of /sys takes, but for its end, which is not cut off: numbers of the same length.
    #[test]
    fn a_number_is_raised_and_set_back() {
        let kept = tempfile::NamedTempFile::new().unwrap();
        let path = kept.path();
        fs::write(path, "16\n").unwrap();
        let raised = Raised::to(path, 64).unwrap().unwrap();
        assert_eq!((fs::read_to_string(path).unwrap().as_str(), raised.before()), ("64\n", 16));
        assert_eq!(Raised::to(path, 99).unwrap_err().kind(), io::ErrorKind::WouldBlock, "one at a time");
        raised.set_back().unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "16\n");
        assert!(Raised::to(path, 16).unwrap().is_none(), "what is high enough stays");
        drop(Raised::to(path, 20).unwrap().unwrap());
        assert_eq!(fs::read_to_string(path).unwrap(), "16\n");
        fs::write(path, "none").unwrap();
        assert_eq!(Raised::to(path, 20).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
