//! Leases on files: whether one is open for writing anywhere, and how long a lease is waited for.
#![allow(unsafe_code)]

use std::{
    fs, io,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

/// Of `linux/fcntl.h`; not in libc.
const F_SETSIG: libc::c_int = 10;

/// Whether some process has a regular file open for writing, or mapped so. `fd` is open for reading.
///
/// Asks for a read lease, which the kernel refuses then, and gives it back at once: whoever opens the file for writing
/// in these microseconds waits so long, or gets `EWOULDBLOCK` with `O_NONBLOCK`. Needs `CAP_LEASE` for files of others;
/// `EINVAL` where the file system has no leases.
#[doc(alias = "F_SETLEASE")]
pub fn is_open_for_writing(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let set = |command, value: libc::c_int| {
        // SAFETY: both commands take a plain number.
        match unsafe { libc::fcntl(fd.as_raw_fd(), command, value) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // The signal that asks for the lease back would end the process; this one is ignored by default.
    set(F_SETSIG, libc::SIGURG)?;
    match set(libc::F_SETLEASE, libc::F_RDLCK as libc::c_int) {
        Ok(()) => set(libc::F_SETLEASE, libc::F_UNLCK as libc::c_int).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// How long the kernel waits at most for a lease that somebody is to give back, before it takes it away.
#[doc(alias = "lease-break-time")]
pub fn longest_wait() -> Duration {
    let seconds = fs::read_to_string("/proc/sys/fs/lease-break-time").ok().and_then(|text| text.trim().parse().ok());
    // As the kernel has it where nobody has set it.
    Duration::from_secs(seconds.unwrap_or(45))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, OpenOptions},
        os::fd::AsFd,
    };

    use super::*;

    #[test]
    fn writers_are_seen_and_readers_are_not() {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let reader = File::open(&file).unwrap();
        let other = File::open(&file).unwrap();
        assert!(!is_open_for_writing(reader.as_fd()).unwrap());
        assert!(!is_open_for_writing(other.as_fd()).unwrap(), "the lease was given back");
        let writer = OpenOptions::new().append(true).open(&file).unwrap();
        assert!(is_open_for_writing(reader.as_fd()).unwrap());
        drop(writer);
        assert!(!is_open_for_writing(reader.as_fd()).unwrap());
    }
}
