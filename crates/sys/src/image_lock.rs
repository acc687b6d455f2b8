//! Locks of disk images by single bytes, as QEMU takes them.
//!
//! QEMU locks no image as a whole. Of each thing that may be done with one (read it, write it, change its size) two bytes tell: that
//! somebody does it, and that somebody wants nobody else to. Who has an image open holds shared locks of the bytes that are true of
//! him, of the open file (`F_OFD_SETLK`), and then looks whether others have the opposite ones (`F_OFD_GETLK`).
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// The first byte of those that are done, and of those that nobody else is to do (`block/file-posix.c` of QEMU).
const DONE: i64 = 100;
const DENIED: i64 = 200;

/// What may be done with an image, by the place of its byte: to read what is consistent, to write other bytes, to write the same again, to
/// change the size.
const ALL: u8 = 0b1111;
const READ: u8 = 0b0001;
const WRITE: u8 = 0b0010;
const WRITE_AGAIN: u8 = 0b0100;

/// Locks an image for who reads it, and writes it if he `writes`; nobody else is to change it meanwhile, and who writes it wants nobody to
/// read it either. False where somebody else has it open in a way that doesn't go with that: QEMU, whoever else locks these bytes, and
/// whoever has locked all of the file. Held by all descriptors of the open file, until the last one is closed.
///
/// Where the file system has no such locks, nobody else has any, and it is true. Who was refused keeps what he has locked by then: he is to
/// close the file.
#[doc(alias = "F_OFD_SETLK")]
pub fn lock_image(fd: BorrowedFd<'_>, writes: bool) -> io::Result<bool> {
    let (done, denied) = if writes { (READ | WRITE | WRITE_AGAIN, ALL) } else { (READ, ALL & !READ) };
    let places =
        |set: u8, first: i64| (0..4).filter(move |place| set >> place & 1 == 1).map(move |place| first + place);
    for at in places(done, DONE).chain(places(denied, DENIED)) {
        match lock_byte(fd, libc::F_OFD_SETLK, libc::F_RDLCK, at) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if has_none(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    // Behind one's own: of two who come at the same time, one at least sees the other.
    for at in places(denied, DONE).chain(places(done, DENIED)) {
        if lock_byte(fd, libc::F_OFD_GETLK, libc::F_WRLCK, at)? != libc::F_UNLCK {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_none(error: &io::Error) -> bool {
    let none = [libc::EINVAL, libc::ENOLCK, libc::EOPNOTSUPP, libc::ENOSYS];
    error.raw_os_error().is_some_and(|code| none.contains(&code))
}

/// What kind of lock the kernel tells of.
fn lock_byte(fd: BorrowedFd<'_>, command: libc::c_int, kind: libc::c_int, at: i64) -> io::Result<libc::c_int> {
    // SAFETY: all of its fields are numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    (lock.l_start, lock.l_len) = (at, 1);
    // SAFETY: both commands take a `flock`, which outlives the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock.l_type.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd};

    use super::*;

    /// One open file each.
    fn opened<const N: usize>() -> (tempfile::NamedTempFile, [File; N]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let files = std::array::from_fn(|_| again(&file));
        (file, files)
    }

    fn again(file: &tempfile::NamedTempFile) -> File {
        File::options().read(true).write(true).open(file.path()).unwrap()
    }

    #[test]
    fn writers_are_alone_and_readers_are_not() {
        let (kept, [writer]) = opened();
        assert!(
            lock_image(writer.as_fd(), true).unwrap() && lock_image(writer.as_fd(), true).unwrap(),
            "it is its own"
        );
        // Another descriptor of the same open file holds it, too.
        let same = writer.try_clone().unwrap();
        drop(writer);
        for writes in [true, false] {
            assert!(!lock_image(again(&kept).as_fd(), writes).unwrap());
        }
        drop(same);
        let (one, other) = (again(&kept), again(&kept));
        assert!(lock_image(one.as_fd(), false).unwrap() && lock_image(other.as_fd(), false).unwrap());
        assert!(!lock_image(again(&kept).as_fd(), true).unwrap(), "readers keep writers out");
        drop((one, other));
        assert!(lock_image(again(&kept).as_fd(), true).unwrap());
    }

    /// What QEMU 7.2 holds of a disk that its guest writes, and of one that it only reads, as `/proc/locks` shows it.
    #[test]
    fn a_machine_that_runs_from_the_image_is_seen() {
        for (done, denied, reads_beside) in [(0b0011, 0b0010, false), (0b0001, 0b0010, true)] {
            let (kept, [machine, own]) = opened();
            for place in 0..4 {
                for (set, first) in [(done, DONE), (denied, DENIED)] {
                    if set >> place & 1 == 1 {
                        lock_byte(machine.as_fd(), libc::F_OFD_SETLK, libc::F_RDLCK, first + place).unwrap();
                    }
                }
            }
            assert!(!lock_image(own.as_fd(), true).unwrap());
            drop(own);
            let own = File::open(kept.path()).unwrap();
            assert_eq!(lock_image(own.as_fd(), false).unwrap(), reads_beside);
        }
    }

    #[test]
    fn whoever_has_locked_all_of_it_is_seen() {
        let (_kept, [other, own]) = opened();
        // SAFETY: as above.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as _;
        // SAFETY: as above; a length of 0 is all of the file.
        assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) }, 0);
        for writes in [true, false] {
            assert!(!lock_image(own.as_fd(), writes).unwrap());
        }
        drop(other);
        assert!(lock_image(own.as_fd(), true).unwrap());
    }
}
