//! Facts about a block device.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

use crate::features::features;
use crate::files::PathArg;

/// `BLKGETSIZE64`: declared with `size_t`, but always writes 64 bits.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
/// `BLKROGET`.
const BLKROGET: Opcode = opcode::none(0x12, 94);

/// Bytes of the device.
#[doc(alias = "BLKGETSIZE64")]
pub fn size_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: BLKGETSIZE64 is a getter that writes a u64.
    Ok(unsafe { ioctl(fd, Getter::<BLKGETSIZE64, u64>::new()) }?)
}

/// Bytes that a request must be a multiple of.
#[doc(alias = "BLKSSZGET")]
pub fn logical_block_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::fs::ioctl_blksszget(fd)?)
}

/// Bytes that the device writes at once.
#[doc(alias = "BLKPBSZGET")]
pub fn physical_block_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::fs::ioctl_blkpbszget(fd)?)
}

/// Whether the device refuses writes.
#[doc(alias = "BLKROGET")]
pub fn is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: BLKROGET is a getter that writes an int.
    let answer = unsafe { ioctl(fd, Getter::<BLKROGET, libc::c_int>::new()) }?;
    Ok(answer != 0)
}

/// Opens a device or image for reading past the page cache (`O_DIRECT`); needs read permission on it, mostly root.
///
/// `EINVAL` for an image on a file system without `O_DIRECT`; `Unsupported` when it is hidden. Follows links, since
/// `/dev/mapper` and `/dev/disk` are full of them.
#[doc(alias = "O_DIRECT")]
pub fn open_device_direct(path: impl PathArg) -> io::Result<OwnedFd> {
    if !features().direct {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(rustix::fs::open(path, DEVICE_FLAGS | OFlags::DIRECT, Mode::empty())?)
}

/// Opens a device or image for reading, and writing too where `writes` says so, past the page cache (`O_DIRECT`). A device
/// is opened as by [`open_device_alone`].
///
/// `EINVAL` for an image on a file system without `O_DIRECT`; `EROFS` or `EACCES` for what can't be written.
#[doc(alias = "O_DIRECT")]
pub fn open_device_for_io(path: impl PathArg, writes: bool) -> io::Result<OwnedFd> {
    let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::DIRECT | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a device or image for reading through the page cache.
pub fn open_device(path: impl PathArg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DEVICE_FLAGS, Mode::empty())?)
}

/// Opens a block device for reading through the page cache, unless somebody has it mounted or open for themselves (`EBUSY`);
/// until it is closed, nobody else gets it so (`O_EXCL`). Of an image, `O_EXCL` says nothing.
#[doc(alias = "O_EXCL")]
pub fn open_device_alone(path: impl PathArg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DEVICE_FLAGS | OFlags::EXCL, Mode::empty())?)
}

/// Bytes that a block device, or a part of one, has written since it is there.
///
/// Errors as of reading `/sys`; `NotFound` for what is no block device, as what btrfs calls one.
pub fn written_bytes(device: u64) -> io::Result<u64> {
    const SECTORS_WRITTEN: usize = 6;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let told = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    let sectors: Option<u64> = told.split_whitespace().nth(SECTORS_WRITTEN).and_then(|number| number.parse().ok());
    sectors.map(|sectors| sectors * 512).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

const DEVICE_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Whether a read failed for what the medium holds, so that writing there may mend it: not where the device is gone, or can't do
/// what it was asked for.
pub fn is_bad_place(error: &io::Error) -> bool {
    let of_mediums = [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::BADMSG];
    error.raw_os_error().is_some_and(|code| of_mediums.contains(&Errno::from_raw_os_error(code)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::files;
    use crate::testing::{on_xfs, skipped};

    /// A read-only loop device on a sparse image of 1 MiB, detached when dropped.
    struct Loop {
        device: PathBuf,
        _image: tempfile::NamedTempFile,
    }

    impl Loop {
        /// Skips with a reason where there are no loop devices.
        fn new() -> Option<Loop> {
            let image = tempfile::NamedTempFile::new().unwrap();
            image.as_file().set_len(1 << 20).unwrap();
            let output = Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(image.path()).output();
            match output {
                Ok(output) if output.status.success() => {
                    let device = String::from_utf8(output.stdout).unwrap().trim().into();
                    Some(Loop { device, _image: image })
                }
                output => {
                    skipped(&format!("no loop device: {output:?}"));
                    None
                }
            }
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            if let Err(error) = Command::new("losetup").arg("--detach").arg(&self.device).status() {
                eprintln!("{}: {error}", self.device.display());
            }
        }
    }

    #[test]
    fn facts_of_a_device() {
        let Some(device) = Loop::new() else { return };
        let fd = open_device(&device.device).unwrap();
        assert_eq!(size_bytes(fd.as_fd()).unwrap(), 1 << 20);
        assert!(is_read_only(fd.as_fd()).unwrap());
        let (logical, physical) = (logical_block_bytes(fd.as_fd()).unwrap(), physical_block_bytes(fd.as_fd()).unwrap());
        assert!(logical >= 512 && logical.is_power_of_two() && physical >= logical);
        if features().direct {
            open_device_direct(&device.device).unwrap();
        }
    }

    #[test]
    fn what_a_device_writes_is_counted() {
        on_xfs(|own| {
            let device = files::statx_fd(files::open_dir(own.root.as_path()).unwrap().as_fd()).unwrap().dev;
            let before = written_bytes(device).unwrap();
            let file = tempfile::tempfile_in(&own.root).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[7; 1 << 20], 0).unwrap();
            file.sync_all().unwrap();
            let written = written_bytes(device).unwrap() - before;
            assert!((1 << 20..1 << 24).contains(&written), "{written}");
        });
        assert_eq!(written_bytes(0).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_device_that_is_gone_has_no_bad_places() {
        assert!(is_bad_place(&Errno::IO.into()) && is_bad_place(&Errno::NODATA.into()));
        assert!(!is_bad_place(&Errno::NODEV.into()) && !is_bad_place(&io::ErrorKind::UnexpectedEof.into()));
    }

    #[test]
    fn files_have_no_such_facts() {
        let file = tempfile::tempfile().unwrap();
        assert!(size_bytes(file.as_fd()).is_err());
        assert!(logical_block_bytes(file.as_fd()).is_err());
        assert!(physical_block_bytes(file.as_fd()).is_err());
        assert!(is_read_only(file.as_fd()).is_err());
    }
}
