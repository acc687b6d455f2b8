//! Opening, looking at and listing files.
//!
//! Thin: each function is one system call, with the flags that a reader of strangers' trees wants (no symbolic link
//! is followed, no terminal taken over, no fifo waited for, no access time written).
//!
//! Paths are anything that [`PathArg`] takes: `&CStr` costs nothing, `&str`, `&[u8]`, `&Path` and `&OsStr` are copied.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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

/// True for errors by which a kernel or file system says that it has no such way of reading.
pub fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Reads at `offset`; fewer bytes than asked for at the end of the file, and whenever the kernel likes.
#[doc(alias = "pread")]
pub fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(fd, buffer, offset)?)
}

/// As [`read_at`], but what it brings into the page cache does not stay there (`RWF_DONTCACHE`, Linux 6.14). A
/// [refusal](is_refusal) where the kernel or the file system can't do that.
#[doc(alias = "RWF_DONTCACHE")]
pub fn read_at_uncached(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    const DONTCACHE: rustix::io::ReadWriteFlags = rustix::io::ReadWriteFlags::from_bits_retain(0x80);
    Ok(rustix::io::preadv2(fd, &mut [io::IoSliceMut::new(buffer)], offset, DONTCACHE)?)
}

/// Switches `O_DIRECT` of an open file on or off (`F_SETFL`). `EINVAL` where the file system cannot.
pub fn set_direct(fd: BorrowedFd<'_>, direct: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(fd)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// Opens with `O_NOATIME`, and without it where the file is another's. Waits for a lease to be given up.
fn open_at(dir: BorrowedFd<'_>, path: impl PathArg, flags: OFlags) -> io::Result<OwnedFd> {
    let opened = path.into_with_c_str(|path| match open_beneath(dir, path, flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open_beneath(dir, path, flags),
        Err(Errno::AGAIN) => open_leased(dir, path, flags),
        opened => opened,
    });
    Ok(opened?)
}

/// Opens a regular file that another process has a lease on (as Samba does), waiting until that has given it up.
///
/// With `O_NONBLOCK` such a file cannot be opened, and without it a fifo would be waited for: so the file is looked at
/// first, and the very same file opened again.
fn open_leased(dir: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let handle = open_beneath(dir, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode) != FileType::RegularFile {
        return Err(Errno::AGAIN);
    }
    let same_file = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = flags - OFlags::NONBLOCK - OFlags::NOFOLLOW;
    again(|| rustix::fs::open(same_file.as_str(), flags, Mode::empty()))
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

/// Repeats a call that a signal has interrupted.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// A directory with `dir/sub/file`, a link `dir/link` to `sub`, and a fifo.
    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("dir/sub")).unwrap();
        fs::write(tree.path().join("dir/sub/file"), b"hello").unwrap();
        symlink("sub", tree.path().join("dir/link")).unwrap();
        let fifo = tree.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let root = open_dir_at(CURRENT_DIR, tree.path()).unwrap();
        (tree, root)
    }

    fn code<T>(answer: io::Result<T>) -> Option<i32> {
        answer.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn links_are_not_followed_anywhere() {
        let (_kept, root) = tree();
        let root = root.as_fd();
        assert!(open_file_at(root, "dir/sub/file").is_ok());
        assert!(open_dir_at(root, "dir/sub").is_ok());
        assert!(open_dir_at(root, c"dir").is_ok());
        assert!(code(open_file_at(root, "dir/link/file")).is_some(), "a link in the middle");
        assert!(code(open_dir_at(root, "dir/link")).is_some(), "a link at the end");
        assert_eq!(code(open_file_at(root, "dir/sub/none")), Some(libc::ENOENT));
        assert_eq!(code(open_dir_at(root, "dir/sub/file")), Some(libc::ENOTDIR));
    }

    #[test]
    fn going_by_component_is_as_strict() {
        let (_kept, root) = tree();
        let open = |path: &[u8], flags| open_by_component(root.as_fd(), path, flags);
        assert!(open(b"dir/sub/file", FILE_FLAGS).is_ok());
        assert!(open(b"dir//sub/./file", FILE_FLAGS).is_ok());
        assert_eq!(open(b"dir/link/file", FILE_FLAGS).unwrap_err(), Errno::NOTDIR);
        assert_eq!(open(b"dir/link", FILE_FLAGS).unwrap_err(), Errno::LOOP);
        assert_eq!(open(b"none/file", FILE_FLAGS).unwrap_err(), Errno::NOENT);
        assert!(open(b"dir/sub/", FILE_FLAGS | OFlags::DIRECTORY).is_ok());
    }

    #[test]
    fn fifo_is_not_waited_for() {
        let (_kept, root) = tree();
        let fifo = open_file_at(root.as_fd(), "fifo").unwrap();
        assert_eq!(statx_fd(fifo.as_fd()).unwrap().file_type(), EntryType::Fifo);
    }

    #[test]
    fn reading_leaves_the_access_time() {
        let (tree, root) = tree();
        let before = fs::metadata(tree.path().join("dir/sub/file")).unwrap();
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        assert!(rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NOATIME), "the file is ours");
        rustix::io::pread(&file, &mut [0; 5], 0).unwrap();
        assert_eq!(fs::metadata(tree.path().join("dir/sub/file")).unwrap().atime_nsec(), before.atime_nsec());
    }

    #[test]
    fn strangers_files_open_too() {
        let (tree, root) = tree();
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let opened = crate::testing::as_stranger(|| open_file_at(root.as_fd(), "dir/sub/file"));
        if let Some(file) = opened {
            let flags = rustix::fs::fcntl_getfl(file.unwrap()).unwrap();
            assert!(!flags.contains(OFlags::NOATIME), "only the owner may leave the access time alone");
        }
    }

    #[test]
    fn lease_is_waited_for() {
        let (tree, root) = tree();
        let holder = fs::File::options().read(true).write(true).open(tree.path().join("dir/sub/file")).unwrap();
        if let Err(error) = crate::testing::take_lease(&holder) {
            return eprintln!("skipped: no leases here: {error}");
        }
        let given_up = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                given_up.store(true, std::sync::atomic::Ordering::SeqCst);
                drop(holder);
            });
            open_file_at(root.as_fd(), "dir/sub/file").unwrap();
            assert!(given_up.load(std::sync::atomic::Ordering::SeqCst));
        });
    }

    #[test]
    fn facts_agree_with_the_standard_library() {
        let (tree, root) = tree();
        let path = tree.path().join("dir/sub/file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let (theirs, ours) = (fs::metadata(&path).unwrap(), statx_at(root.as_fd(), "dir/sub/file", true).unwrap());
        assert_eq!((ours.dev, ours.ino, ours.mode), (theirs.dev(), theirs.ino(), theirs.mode()));
        assert_eq!((ours.uid, ours.gid, u64::from(ours.nlink)), (theirs.uid(), theirs.gid(), theirs.nlink()));
        assert_eq!((ours.size, ours.blocks), (theirs.size(), theirs.blocks()));
        assert_eq!((ours.mtime.secs, i64::from(ours.mtime.nanos)), (theirs.mtime(), theirs.mtime_nsec()));
        assert_eq!(SystemTime::from(ours.mtime), theirs.modified().unwrap());
        assert_eq!(ours.btime.map(SystemTime::from), theirs.created().ok());
        assert!(ours.mnt_id.is_some());
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        assert_eq!(statx_fd(file.as_fd()).unwrap(), ours);
    }

    #[test]
    fn facts_of_a_link_are_its_own_when_wanted() {
        let (_kept, root) = tree();
        let kind = |nofollow| statx_at(root.as_fd(), "dir/link", nofollow).unwrap().file_type();
        assert_eq!((kind(true), kind(false)), (EntryType::Symlink, EntryType::Dir));
        assert_eq!(read_link_at(root.as_fd(), "dir/link").unwrap(), "sub");
        let link = open_handle_at(root.as_fd(), "dir/link").unwrap();
        assert_eq!(read_link_at(link.as_fd(), "").unwrap(), "sub");
    }

    #[test]
    fn times_before_1970_are_times() {
        let second_before = Time { secs: -1, nanos: 500_000_000 };
        assert_eq!(SystemTime::from(second_before), SystemTime::UNIX_EPOCH - Duration::from_millis(500));
        assert!(second_before < Time::default());
    }

    #[test]
    fn device_numbers_pack_and_unpack() {
        for numbers in [(8, 1), (253, 0), (0, 45), (259, 70_000)] {
            assert_eq!(dev_numbers(makedev(numbers.0, numbers.1)), numbers);
        }
    }

    #[test]
    fn names_are_listed_with_any_buffer() {
        let tree = tempfile::tempdir().unwrap();
        for number in 0..300 {
            fs::write(tree.path().join(format!("file-{number}")), b"").unwrap();
        }
        fs::create_dir(tree.path().join("dir")).unwrap();
        for mut reader in [DirReader::with_buffer(0), DirReader::default()] {
            let mut seen = BTreeMap::new();
            let dir = open_dir_at(CURRENT_DIR, tree.path()).unwrap();
            reader
                .read(dir.as_fd(), |entry| {
                    seen.insert(entry.name.to_owned(), (entry.ino, entry.kind));
                })
                .unwrap();
            assert_eq!(seen.len(), 301);
            for (name, (ino, kind)) in seen {
                let stat = statx_at(dir.as_fd(), name.as_c_str(), true).unwrap();
                assert_eq!(ino, stat.ino);
                assert!(kind == stat.file_type() || kind == EntryType::Unknown);
            }
        }
    }

    #[test]
    fn attributes_come_back() {
        let (tree, root) = tree();
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        let long = vec![7; 2000];
        if let Err(error) = set_xattr_fd(file.as_fd(), "user.short", b"value") {
            return eprintln!("skipped: no extended attributes here: {error}");
        }
        set_xattr_path(tree.path().join("dir/sub/file"), "user.long", &long).unwrap();
        set_xattr_fd(file.as_fd(), "user.empty", b"").unwrap();
        let mut names = list_xattrs_fd(file.as_fd()).unwrap();
        names.retain(|name| name.as_bytes().starts_with(b"user."));
        names.sort();
        assert_eq!(names, [c"user.empty", c"user.long", c"user.short"].map(CString::from));
        assert_eq!(xattr_fd(file.as_fd(), "user.short").unwrap().unwrap(), b"value");
        assert_eq!(xattr_fd(file.as_fd(), "user.long").unwrap().unwrap(), long);
        assert_eq!(xattr_fd(file.as_fd(), "user.empty").unwrap().unwrap(), b"");
        assert_eq!(xattr_fd(file.as_fd(), "user.none").unwrap(), None);
        let through_proc = format!("/proc/self/fd/{}/dir/sub/file", root.as_raw_fd());
        assert_eq!(xattr_path(through_proc.as_str(), "user.short").unwrap().unwrap(), b"value");
        assert!(list_xattrs_path(through_proc.as_str()).unwrap().contains(&c"user.long".to_owned()));
        assert_eq!(xattr_path(tree.path().join("dir/link"), "user.short").unwrap(), None, "the link itself");
    }

    #[test]
    fn holes_are_found() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 1 << 20).unwrap();
        file.set_len(2 << 20).unwrap();
        assert_eq!(seek_data(file.as_fd(), 0).unwrap(), Some(1 << 20));
        assert_eq!(seek_hole(file.as_fd(), 0).unwrap(), Some(0));
        assert_eq!(seek_hole(file.as_fd(), 1 << 20).unwrap(), Some((1 << 20) + 4096));
        assert_eq!(seek_data(file.as_fd(), (1 << 20) + 4096).unwrap(), None);
        assert_eq!(seek_hole(file.as_fd(), 2 << 20).unwrap(), None);
    }

    #[test]
    fn ranges_are_copied_in_the_kernel() {
        let (source, target) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        std::os::unix::fs::FileExt::write_all_at(&source, b"0123456789", 0).unwrap();
        assert_eq!(copy_range(source.as_fd(), 4, target.as_fd(), 2, 100).unwrap(), 6);
        let mut bytes = [9; 8];
        std::os::unix::fs::FileExt::read_exact_at(&target, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\x00456789");
        assert_eq!(copy_range(source.as_fd(), 10, target.as_fd(), 0, 100).unwrap(), 0);
    }

    #[test]
    fn file_system_has_blocks() {
        let file = tempfile::tempfile().unwrap();
        let found = file_system(file.as_fd()).unwrap();
        assert!(found.block_size >= 512 && found.blocks_free <= found.blocks && found.magic != 0);
        sync_data(file.as_fd()).unwrap();
        sync_file_system(file.as_fd()).unwrap();
    }

    #[test]
    fn direct_can_be_switched() {
        let (_kept, root) = tree();
        let file = open_file_at(root.as_fd(), "dir/sub/file").unwrap();
        let is_direct = || rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::DIRECT);
        if let Err(error) = set_direct(file.as_fd(), true) {
            return eprintln!("skipped: no O_DIRECT here: {error}");
        }
        assert!(is_direct());
        set_direct(file.as_fd(), false).unwrap();
        assert!(!is_direct());
    }
}
