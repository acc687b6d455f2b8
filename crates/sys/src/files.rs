//! Opening, looking at and listing files.
//!
//! Thin: each function is one system call, with the flags that a reader of strangers' trees wants (no symbolic link
//! is followed, no terminal taken over, no fifo waited for, no access time written).
//!
//! Paths are anything that [`PathArg`] takes: `&CStr` costs nothing, `&str`, `&[u8]`, `&Path` and `&OsStr` are copied.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::io::Errno;
pub use rustix::path::Arg as PathArg;

use crate::features::features;

/// The directory that relative paths start from (`AT_FDCWD`).
pub const CURRENT_DIR: BorrowedFd<'static> = CWD;

const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a directory below `dir` for listing, without following a symbolic link in any component.
///
/// `ELOOP` or `ENOTDIR` when there is one. An absolute path is only kept from a link in its last component.
pub fn open_dir_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    open_at(dir, path, FILE_FLAGS | OFlags::DIRECTORY)
}

/// Opens a file below `dir` for reading, without following a symbolic link in any component.
///
/// Access times stay as they are where the caller may ask for that (owner or `CAP_FOWNER`). A fifo opens at once; a
/// socket gives `ENXIO`. An absolute path is only kept from a link in its last component.
pub fn open_file_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    open_at(dir, path, FILE_FLAGS)
}

/// As [`open_file_at`], with `O_DIRECT`: reads go past the page cache, and their offset, length and memory must be
/// aligned (see [`Stat::dio_align`]). `EINVAL` where the file system cannot; `Unsupported` when it is hidden.
#[doc(alias = "O_DIRECT")]
pub fn open_direct_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    if !features().direct {
        return Err(io::ErrorKind::Unsupported.into());
    }
    open_at(dir, path, FILE_FLAGS | OFlags::DIRECT)
}

/// Opens what may be looked at but not read (`O_PATH`): symbolic links and files without read permission too.
#[doc(alias = "O_PATH")]
pub fn open_handle_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(path.into_with_c_str(|path| open_beneath(dir, path, flags))?)
}

/// Switches `O_DIRECT` of an open file on or off (`F_SETFL`). `EINVAL` where the file system cannot.
pub fn set_direct(fd: BorrowedFd<'_>, direct: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(fd)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// Opens with `O_NOATIME`, and without it where the file is another's.
fn open_at(dir: BorrowedFd<'_>, path: impl PathArg, flags: OFlags) -> io::Result<OwnedFd> {
    let opened = path.into_with_c_str(|path| match open_beneath(dir, path, flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open_beneath(dir, path, flags),
        opened => opened,
    });
    Ok(opened?)
}

/// Opens `path`; when it is relative and of several components, none of them may be a symbolic link.
fn open_beneath(dir: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let bytes = path.to_bytes();
    if !bytes.contains(&b'/') || bytes.starts_with(b"/") {
        return again(|| rustix::fs::openat(dir, path, flags, Mode::empty()));
    }
    if features().openat2 {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match again(|| rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)) {
            Err(Errno::NOSYS) => {}
            opened => return opened,
        }
    }
    open_by_component(dir, bytes, flags)
}

/// What `openat2` does with `RESOLVE_NO_SYMLINKS`, one directory at a time.
fn open_by_component(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mut components: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    let last = components.pop().unwrap_or(b".");
    let mut parent: Option<OwnedFd> = None;
    for component in components {
        let from = parent.as_ref().map_or(dir, AsFd::as_fd);
        // O_PATH with O_DIRECTORY and O_NOFOLLOW says ENOTDIR to a link, where openat2 says ELOOP.
        parent = Some(again(|| rustix::fs::openat(from, component, STEP, Mode::empty()))?);
    }
    let from = parent.as_ref().map_or(dir, AsFd::as_fd);
    again(|| rustix::fs::openat(from, last, flags, Mode::empty()))
}

/// Repeats a call that a signal or a racing rename has interrupted.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR | Errno::AGAIN) => {}
            answer => return answer,
        }
    }
}

/// A point in time as a file system keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds to add, below 1,000,000,000.
    pub nanos: u32,
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> SystemTime {
        let whole = Duration::from_secs(time.secs.unsigned_abs());
        let base = match time.secs {
            0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
            _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
        };
        base.unwrap_or(SystemTime::UNIX_EPOCH) + Duration::from_nanos(time.nanos.into())
    }
}

/// What `statx` says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The device of the file system, as `makedev` packs it.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Names of the inode.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated.
    pub blocks: u64,
    /// Bytes that the file system likes to be asked for; mostly its block size.
    pub blksize: u32,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last read.
    pub atime: Time,
    /// Birth, where the file system keeps it.
    pub btime: Option<Time>,
    /// For a device file: its device, as `makedev` packs it.
    pub rdev: u64,
    /// The mount, as in `/proc/self/mountinfo` (Linux 5.8).
    pub mnt_id: Option<u64>,
    /// Alignment that `O_DIRECT` wants of memory and of file offsets, in bytes (Linux 6.1; regular files and block
    /// devices). `None`: unknown, or `O_DIRECT` does not work on this file.
    pub dio_align: Option<(u32, u32)>,
}

impl Stat {
    /// The type of the file.
    pub fn file_type(&self) -> EntryType {
        EntryType::from(FileType::from_raw_mode(self.mode))
    }
}

/// The facts of an open file.
#[doc(alias = "statx")]
pub fn statx_fd(fd: BorrowedFd<'_>) -> io::Result<Stat> {
    stat_with(fd, c"", AtFlags::EMPTY_PATH)
}

/// The facts of the file `path` below `dir`; of the link itself when `nofollow` and it is a symbolic link.
///
/// Triggers no automount. On network file systems the cached attributes are taken.
#[doc(alias = "statx")]
pub fn statx_at(dir: BorrowedFd<'_>, path: impl PathArg, nofollow: bool) -> io::Result<Stat> {
    let mut flags = AtFlags::NO_AUTOMOUNT;
    flags.set(AtFlags::SYMLINK_NOFOLLOW, nofollow);
    stat_with(dir, path, flags)
}

fn stat_with(dir: BorrowedFd<'_>, path: impl PathArg, flags: AtFlags) -> io::Result<Stat> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID | StatxFlags::DIOALIGN;
    let found = rustix::fs::statx(dir, path, flags, wanted)?;
    let has = |flag: StatxFlags| found.stx_mask & flag.bits() != 0;
    let time = |time: rustix::fs::StatxTimestamp| Time { secs: time.tv_sec, nanos: time.tv_nsec };
    let dio_align = (found.stx_dio_mem_align, found.stx_dio_offset_align);
    Ok(Stat {
        dev: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        ino: found.stx_ino,
        mode: found.stx_mode.into(),
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        blocks: found.stx_blocks,
        blksize: found.stx_blksize,
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        atime: time(found.stx_atime),
        btime: has(StatxFlags::BTIME).then(|| time(found.stx_btime)),
        rdev: rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        mnt_id: has(StatxFlags::MNT_ID).then_some(found.stx_mnt_id),
        dio_align: (has(StatxFlags::DIOALIGN) && dio_align.1 > 0).then_some(dio_align),
    })
}

/// Packs the two numbers of a device as [`Stat::dev`] has them.
pub fn makedev(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

/// The two numbers of a device: major, minor.
pub fn dev_numbers(dev: u64) -> (u32, u32) {
    (rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// Where the symbolic link `path` below `dir` points; an empty path means that `dir` is the link itself (`O_PATH`).
pub fn read_link_at(dir: BorrowedFd<'_>, path: impl PathArg) -> io::Result<OsString> {
    let target = rustix::fs::readlinkat(dir, path, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// The type of a directory entry or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// The directory does not say; ask [`statx_at`].
    Unknown,
}

impl From<FileType> for EntryType {
    fn from(kind: FileType) -> EntryType {
        match kind {
            FileType::RegularFile => EntryType::File,
            FileType::Directory => EntryType::Dir,
            FileType::Symlink => EntryType::Symlink,
            FileType::Fifo => EntryType::Fifo,
            FileType::Socket => EntryType::Socket,
            FileType::CharacterDevice => EntryType::CharDevice,
            FileType::BlockDevice => EntryType::BlockDevice,
            FileType::Unknown => EntryType::Unknown,
        }
    }
}

/// One name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name, without the directory.
    pub name: &'a CStr,
    /// The inode; for a mount point, the one below the mount.
    pub ino: u64,
    /// The type, where the directory keeps it.
    pub kind: EntryType,
}

/// Reads directories with one buffer for all of them.
#[doc(alias = "getdents64")]
pub struct DirReader {
    buffer: Vec<MaybeUninit<u8>>,
}

impl Default for DirReader {
    /// 64 KiB: some 2000 names for each call.
    fn default() -> DirReader {
        DirReader::with_buffer(64 << 10)
    }
}

impl DirReader {
    /// A reader with a buffer of `len` bytes (at least 1024).
    pub fn with_buffer(len: usize) -> DirReader {
        DirReader { buffer: vec![MaybeUninit::uninit(); len.max(1024)] }
    }

    /// Calls `visit` for each name of the directory but `.` and `..`, in the order of the file system.
    ///
    /// Goes on from where the descriptor stands, which is the beginning after opening. An error ends the listing;
    /// names that were visited before it are good.
    pub fn read(&mut self, dir: BorrowedFd<'_>, mut visit: impl FnMut(DirEntry<'_>)) -> io::Result<()> {
        let mut entries = rustix::fs::RawDir::new(dir, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                visit(DirEntry { name, ino: entry.ino(), kind: entry.file_type().into() });
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for DirReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirReader({})", self.buffer.len())
    }
}

/// The names of the extended attributes of an open file. Empty where the file system has none.
///
/// `security.capability` and `trusted.*` are listed for the privileged only.
pub fn list_xattrs_fd(fd: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    xattr_names(|buffer| rustix::fs::flistxattr(fd, buffer))
}

/// As [`list_xattrs_fd`], of the file `path`, or of the link itself when it is a symbolic link.
///
/// There is no such call relative to a directory; `/proc/self/fd/N/name` is the way.
pub fn list_xattrs_path(path: impl PathArg) -> io::Result<Vec<CString>> {
    path.into_with_c_str(|path| Ok(xattr_names(|buffer| rustix::fs::llistxattr(path, buffer))))?
}

/// The value of one extended attribute of an open file; `None` when it has no such attribute.
pub fn xattr_fd(fd: BorrowedFd<'_>, name: impl PathArg) -> io::Result<Option<Vec<u8>>> {
    let name = name.into_c_str()?;
    xattr_value(|buffer| rustix::fs::fgetxattr(fd, name.as_ref(), buffer))
}

/// As [`xattr_fd`], of the file `path`, or of the link itself when it is a symbolic link.
pub fn xattr_path(path: impl PathArg, name: impl PathArg) -> io::Result<Option<Vec<u8>>> {
    let (path, name) = (path.into_c_str()?, name.into_c_str()?);
    xattr_value(|buffer| rustix::fs::lgetxattr(path.as_ref(), name.as_ref(), buffer))
}

/// Sets one extended attribute of an open file, whether it is there or not.
pub fn set_xattr_fd(fd: BorrowedFd<'_>, name: impl PathArg, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())?)
}

/// As [`set_xattr_fd`], of the file `path`, or of the link itself when it is a symbolic link.
pub fn set_xattr_path(path: impl PathArg, name: impl PathArg, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?)
}

/// Reads a list of names that end with a zero byte.
fn xattr_names(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<CString>> {
    match grown(call) {
        Ok(list) => Ok(list
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty())
            .filter_map(|name| CString::new(name).ok())
            .collect()),
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a value that may not be there.
fn xattr_value(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Option<Vec<u8>>> {
    match grown(call) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Calls with a bigger buffer until the answer fits. 64 KiB is the most that Linux keeps.
fn grown(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    const XATTR_BYTES_MAX: usize = 64 << 10;
    let mut small = [0; 256];
    match call(&mut small) {
        Ok(len) => return Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(error) => return Err(error),
    }
    let mut buffer = vec![0; XATTR_BYTES_MAX];
    let len = call(&mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}

/// Writes everything dirty of the file system of `fd` to its device.
#[doc(alias = "syncfs")]
pub fn sync_file_system(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fd)?)
}

/// Writes the dirty bytes of one file to its device, with its size but without its times.
#[doc(alias = "fdatasync")]
pub fn sync_data(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(fd)?)
}

/// The file system of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its magic number (`EXT4_SUPER_MAGIC` and so on), as in `statfs`.
    pub magic: u32,
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that hold nothing.
    pub blocks_free: u64,
    /// Inodes; 0 where they are made as needed.
    pub inodes: u64,
}

/// The file system of an open file.
#[doc(alias = "fstatfs")]
pub fn file_system(fd: BorrowedFd<'_>) -> io::Result<FileSystem> {
    let found = rustix::fs::fstatfs(fd)?;
    Ok(FileSystem {
        magic: found.f_type as u32,
        block_size: found.f_bsize as u64,
        blocks: found.f_blocks,
        blocks_free: found.f_bfree,
        inodes: found.f_files,
    })
}

/// The first byte at or behind `offset` that is not in a hole; `None` when only a hole is left. Moves the descriptor.
#[doc(alias = "SEEK_DATA")]
pub fn seek_data(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The first byte at or behind `offset` that is in a hole, at the latest the end of the file; `None` behind the end.
/// Moves the descriptor.
#[doc(alias = "SEEK_HOLE")]
pub fn seek_hole(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(fd, SeekFrom::Hole(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Copies inside the kernel; gives the bytes copied, 0 at the end of `source`. `EXDEV` across most file systems.
#[doc(alias = "copy_file_range")]
pub fn copy_range(
    source: BorrowedFd<'_>,
    source_offset: u64,
    target: BorrowedFd<'_>,
    target_offset: u64,
    len: usize,
) -> io::Result<usize> {
    let (mut from, mut to) = (source_offset, target_offset);
    Ok(rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), len)?)
}

/// Makes `target` share all bytes of `source`. `EOPNOTSUPP` where the file system cannot, `EXDEV` across two of them.
#[doc(alias = "FICLONE")]
pub fn clone_file(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(target, source)?)
}
