//! Subvolumes of btrfs, and snapshots of them.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::FlockOperation;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

use crate::keeper::{Argument, Keeper, Step};

/// `BTRFS_IOC_SNAP_DESTROY`.
const BTRFS_IOC_SNAP_DESTROY: Opcode = opcode::write::<Names>(0x94, 15);
/// `BTRFS_IOC_SNAP_CREATE_V2`.
const BTRFS_IOC_SNAP_CREATE_V2: Opcode = opcode::write::<Create>(0x94, 23);
/// `BTRFS_IOC_SUBVOL_GETFLAGS`.
const BTRFS_IOC_SUBVOL_GETFLAGS: Opcode = opcode::read::<u64>(0x94, 25);
/// `BTRFS_SUBVOL_RDONLY`.
const BTRFS_SUBVOL_RDONLY: u64 = 1 << 1;

/// The inode of the root directory of each subvolume.
pub const ROOT_INODE: u64 = 256;
/// The inode of the empty directory that stands in a snapshot where the original has another subvolume.
pub const PLACEHOLDER_INODE: u64 = 2;

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct Names {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct Create {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

const _: () = assert!(size_of::<Names>() == 4096 && size_of::<Create>() == 4096);

const WORDS: usize = 4096 / 8;

/// A request of 4,096 bytes with a name at its end. The first word, a descriptor, is 0: the object itself.
fn request(name: &str, at: usize, flags: u64) -> io::Result<Argument> {
    if name.is_empty() || name.len() > 255 || name.bytes().any(|byte| byte == 0 || byte == b'/') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut words = vec![0_u64; WORDS];
    if at == offset_of!(Create, name) {
        words[offset_of!(Create, flags) / 8] = flags;
    }
    for (word, bytes) in words[at / 8..].iter_mut().zip(name.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    Ok(words.into())
}

/// A snapshot that is deleted when this is dropped, and when this process ends, however it ends.
#[derive(Debug)]
#[must_use = "it is deleted when this is dropped"]
pub struct Snapshot(Keeper);

/// Makes a read-only snapshot called `name` in a subvolume's own root directory, which must be open for listing (not with
/// `O_PATH`). What is dirty is written first. Needs write permission there and, to delete it, `CAP_SYS_ADMIN`.
///
/// Subvolumes below are empty directories in it ([`PLACEHOLDER_INODE`]).
#[doc(alias = "BTRFS_IOC_SNAP_CREATE_V2")]
pub fn snapshot(subvolume: OwnedFd, name: &str) -> io::Result<Snapshot> {
    let create = request(name, offset_of!(Create, name), BTRFS_SUBVOL_RDONLY)?;
    let change = Step::Ioctl { request: BTRFS_IOC_SNAP_CREATE_V2, argument: create };
    let undo = Step::Ioctl { request: BTRFS_IOC_SNAP_DESTROY, argument: request(name, offset_of!(Names, name), 0)? };
    Ok(Snapshot(Keeper::start(subvolume, change, undo, None)?))
}

impl Snapshot {
    /// Deletes it. Files that are open stay readable.
    #[doc(alias = "BTRFS_IOC_SNAP_DESTROY")]
    pub fn delete(mut self) -> io::Result<()> {
        self.0.undo().map(drop)
    }
}

/// Deletes the subvolume or snapshot called `name` in `directory`. Needs `CAP_SYS_ADMIN`.
pub fn delete(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut argument = request(name, offset_of!(Names, name), 0)?;
    // SAFETY: the request is a `struct btrfs_ioctl_vol_args`, which has the size of the argument.
    let status = unsafe { libc::ioctl(directory.as_raw_fd(), BTRFS_IOC_SNAP_DESTROY as _, argument.as_mut_ptr()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether nobody can write to a subvolume, as is usual for snapshots. `fd` is its root directory.
#[doc(alias = "BTRFS_IOC_SUBVOL_GETFLAGS")]
pub fn is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: BTRFS_IOC_SUBVOL_GETFLAGS is a getter that writes a u64.
    let flags = unsafe { ioctl(fd, Getter::<BTRFS_IOC_SUBVOL_GETFLAGS, u64>::new()) }?;
    Ok(flags & BTRFS_SUBVOL_RDONLY != 0)
}

/// Marks an open directory as in use by this process, as long as it is open. False when another one has marked it.
#[doc(alias = "flock")]
pub fn mark_in_use(directory: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_file_systems_have_none() {
        let directory = std::fs::File::open("/proc/self").unwrap();
        assert!(is_read_only(directory.as_fd()).is_err());
        assert!(delete(directory.as_fd(), "x").is_err());
        assert!(snapshot(directory.into(), "x").is_err());
    }

    #[test]
    fn a_name_has_its_place_and_nothing_else_is_set() {
        let of = |name| request(name, offset_of!(Create, name), BTRFS_SUBVOL_RDONLY);
        let words = of(".a-long-name").unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(&bytes[56..69], b".a-long-name\0");
        assert_eq!(words[2], BTRFS_SUBVOL_RDONLY);
        assert_eq!(words.iter().filter(|&&word| word != 0).count(), 3);
        for name in ["", "a/b", "a\0b", &"x".repeat(256)] {
            assert_eq!(of(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn one_mark_keeps_others_out() {
        let directory = tempfile::tempdir().unwrap();
        let open = || std::fs::File::open(directory.path()).unwrap();
        let (one, other) = (open(), open());
        assert!(mark_in_use(one.as_fd()).unwrap());
        assert!(!mark_in_use(other.as_fd()).unwrap());
        drop(one);
        assert!(mark_in_use(other.as_fd()).unwrap());
    }
}
