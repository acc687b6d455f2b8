//! File handles: inodes named by what the file system keeps of them, not by a path.
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    fmt, io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// The longest handle that is kept. Those of ext4, XFS, btrfs, F2FS and tmpfs take 8 to 20 bytes, and up to 40 with their parent.
const BYTES_MAX: usize = 40;

/// What the kernel may give.
const MAX_HANDLE_SZ: usize = 128;

/// Names an inode of one file system, also after it was renamed, and no other one that gets its number later.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    kind: i32,
    length: u8,
    bytes: [u8; BYTES_MAX],
}

impl FileHandle {
    /// A handle of its type and bytes; `None` when it is longer than those of the file systems known here.
    pub fn new(kind: i32, identity: &[u8]) -> Option<FileHandle> {
        let mut bytes = [0; BYTES_MAX];
        bytes.get_mut(..identity.len())?.copy_from_slice(identity);
        Some(FileHandle { kind, length: identity.len() as u8, bytes })
    }

    /// What kind of handle it is, in the numbers of the kernel's `enum fid_type`.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The bytes in which the file system names the inode.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle({:#x}, {:02x?})", self.kind, self.bytes())
    }
}

/// `struct file_handle` with room for the longest one.
#[repr(C)]
struct Raw {
    bytes: u32,
    kind: i32,
    identity: [u8; MAX_HANDLE_SZ],
}

impl Raw {
    fn identity(&self) -> &[u8] {
        self.identity.get(..self.bytes as usize).unwrap_or(&[])
    }
}

/// The handle of `name` below `dir`; of `dir` itself where the name is empty. A symbolic link is not followed.
///
/// `EOPNOTSUPP` on file systems without handles, `EOVERFLOW` when it is longer than is kept.
#[doc(alias = "name_to_handle_at")]
pub fn handle_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<FileHandle> {
    handle_and_mount_at(dir, name).map(|(handle, _)| handle)
}

/// The same, with the mount that it was found on, as in `/proc/self/mountinfo`: of a mount point, what is mounted there.
#[doc(alias = "name_to_handle_at")]
pub fn handle_and_mount_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<(FileHandle, u64)> {
    let (raw, mount) = raw_at(dir, name)?;
    let handle =
        FileHandle::new(raw.kind, raw.identity()).ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    Ok((handle, u64::try_from(mount).unwrap_or(0)))
}

/// The bytes of the handle of an open file, also of a long one, behind those of its type: for being compared. `O_PATH` is enough, and no
/// privilege is needed.
///
/// `EOPNOTSUPP` on file systems without handles.
#[doc(alias = "name_to_handle_at")]
pub fn identity_of(file: BorrowedFd<'_>) -> io::Result<Box<[u8]>> {
    let (raw, _) = raw_at(file, c"")?;
    Ok([&raw.kind.to_ne_bytes(), raw.identity()].concat().into())
}

fn raw_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<(Raw, libc::c_int)> {
    let mut raw = Raw { bytes: MAX_HANDLE_SZ as u32, kind: 0, identity: [0; MAX_HANDLE_SZ] };
    let mut mount: libc::c_int = 0;
    // SAFETY: the handle says how many bytes it has room for, and the name ends with a zero.
    let status = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut raw,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((raw, mount))
}

/// How an inode is opened by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A directory, for listing. Its access time stays.
    List,
    /// Anything, for its facts alone.
    Facts,
    /// A file, for reading, without waiting for anybody.
    Read,
    /// A file, for reading and writing, without waiting for anybody.
    Write,
}

/// Opens an inode. `mount` is any open file of its file system, and what is opened belongs to that mount.
///
/// `ESTALE` when there is no such inode any more, `ENOTDIR` when it is no directory and is to be listed, `EPERM` without
/// `CAP_DAC_READ_SEARCH`. The kernel looks a directory's ancestors up, too, as far as they are not in memory.
#[doc(alias = "open_by_handle_at")]
pub fn open_by_handle(mount: BorrowedFd<'_>, handle: &FileHandle, access: Access) -> io::Result<OwnedFd> {
    let mut raw = Raw { bytes: handle.length.into(), kind: handle.kind, identity: [0; MAX_HANDLE_SZ] };
    raw.identity[..BYTES_MAX].copy_from_slice(&handle.bytes);
    let flags = libc::O_CLOEXEC
        | match access {
            Access::List => libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOATIME,
            Access::Facts => libc::O_PATH | libc::O_NOFOLLOW,
            Access::Read => libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOATIME,
            Access::Write => libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOATIME,
        };
    // SAFETY: the handle is as many bytes of identity as it says, behind their number and type.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut raw, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd};

    use super::*;
    use crate::files;

    #[test]
    fn a_handle_follows_its_inode() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("one")).unwrap();
        let dir = files::open_dir(tree.path()).unwrap();
        let handle = handle_at(dir.as_fd(), c"one").unwrap();
        let own = handle_at(files::open_dir(tree.path().join("one").as_path()).unwrap().as_fd(), c"").unwrap();
        assert_eq!(handle, own);
        let path = files::open_dir_handle(tree.path().join("one").as_path()).unwrap();
        let identity = [&handle.kind().to_ne_bytes(), handle.bytes()].concat();
        assert_eq!(*identity_of(path.as_fd()).unwrap(), *identity);
        drop(path);
        assert_ne!(handle, handle_at(dir.as_fd(), c"").unwrap());
        fs::rename(tree.path().join("one"), tree.path().join("two")).unwrap();
        assert_eq!(handle_at(dir.as_fd(), c"two").unwrap(), handle);
        assert_eq!(handle_at(dir.as_fd(), c"one").unwrap_err().kind(), io::ErrorKind::NotFound);
        // As an ordinary user the rest may not be asked.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let ino = files::statx_fd(dir.as_fd()).unwrap().ino;
        let whole = handle_at(dir.as_fd(), c"").unwrap();
        let opened = open_by_handle(dir.as_fd(), &whole, Access::List).unwrap();
        assert_eq!(files::statx_fd(opened.as_fd()).unwrap().ino, ino);
        fs::write(tree.path().join("file"), b"bytes").unwrap();
        let file = handle_at(dir.as_fd(), c"file").unwrap();
        fs::rename(tree.path().join("file"), tree.path().join("renamed")).unwrap();
        let opened = fs::File::from(open_by_handle(dir.as_fd(), &file, Access::Write).unwrap());
        std::os::unix::fs::FileExt::write_all_at(&opened, b"B", 0).unwrap();
        assert_eq!(fs::read(tree.path().join("renamed")).unwrap(), b"Bytes");
        fs::remove_dir(tree.path().join("two")).unwrap();
        let gone = open_by_handle(dir.as_fd(), &handle, Access::Facts).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESTALE));
    }

    #[test]
    fn long_handles_are_refused() {
        assert!(FileHandle::new(1, &[7; BYTES_MAX]).is_some_and(|handle| handle.bytes() == [7; BYTES_MAX]));
        assert_eq!(FileHandle::new(1, &[7; BYTES_MAX + 1]), None);
    }
}
