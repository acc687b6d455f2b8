//! Inodes of a mounted XFS, their names where it keeps parent pointers, and what it says of itself.
#![allow(unsafe_code)]

mod access_list;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::ioctl::{Opcode, opcode};

use crate::{
    files,
    handle::{Access, FileHandle, open_by_handle},
    retry::retry,
};

pub use access_list::AccessLists;

/// `XFS_IOC_BULKSTAT`; the size in it is that of the header alone.
const XFS_IOC_BULKSTAT: Opcode = opcode::read::<Header>(b'X', 127);
/// Only the inodes of one allocation group.
const XFS_BULK_IREQ_AGNO: u32 = 1;
/// One inode, that is known by what it is for.
const XFS_BULK_IREQ_SPECIAL: u32 = 2;
/// The root directory.
const XFS_BULK_IREQ_SPECIAL_ROOT: u64 = 1;
/// `XFS_FILEID_INO64GEN`: a file handle of XFS with an inode number of 64 bits.
const XFS_FILEID_INO64GEN: i32 = 0x81;

/// Inodes of one call: the kernel reads ahead as far as the call goes.
const BATCH: usize = 4096;

/// `struct xfs_bulk_ireq`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    ino: u64,
    flags: u32,
    icount: u32,
    ocount: u32,
    agno: u32,
    reserved: [u64; 5],
}

/// `struct xfs_bulkstat`, of which only some fields are told.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Answer {
    ino: u64,
    size: u64,
    blocks: u64,
    xflags: u64,
    times: [i64; 4],
    generation: u32,
    owners: [u32; 3],
    nanoseconds: [u32; 4],
    blksize: u32,
    rdev: u32,
    hints: [u32; 2],
    nlink: u32,
    extents: [u32; 2],
    version: u16,
    forkoff: u16,
    health: [u16; 2],
    mode: u16,
    pad2: u16,
    extents64: u64,
    pad: [u64; 6],
}

const _: () = assert!(size_of::<Header>() == 64);
const _: () = assert!(size_of::<Answer>() == 192);

/// Header and answers, as the kernel wants them in a row.
#[repr(C)]
struct Request {
    header: Header,
    answers: [Answer; BATCH],
}

/// An inode that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub ino: u64,
    /// Its generation, which a handle needs.
    pub generation: u32,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Its bytes.
    pub size: u64,
    /// Its names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Blocks of the file system that it takes.
    pub blocks: u64,
    /// For a device node: its major and minor number.
    pub device: (u32, u32),
    /// Last read, last change of the content, last change of the inode, birth: seconds since 1970 and nanoseconds.
    pub times: [(i64, u32); 4],
    /// Flags, as [`extended_flags`](crate::inode::extended_flags) tells them.
    pub xflags: u32,
}

impl Answer {
    fn counts_blocks(&self) -> bool {
        let [_, of_attributes] = self.extents;
        self.blocks > 0 || of_attributes == 0
    }

    fn told(&self, fd: BorrowedFd<'_>) -> Inode {
        let inode = self.inode();
        let blocks = if self.counts_blocks() { None } else { blocks_by_stat(fd, &inode).ok() };
        Inode { blocks: blocks.unwrap_or(inode.blocks), ..inode }
    }

    fn inode(&self) -> Inode {
        let time = |at: usize| (self.times[at], self.nanoseconds[at]);
        Inode {
            ino: self.ino,
            generation: self.generation,
            mode: self.mode.into(),
            size: self.size,
            nlink: self.nlink,
            uid: self.owners[0],
            gid: self.owners[1],
            blocks: self.blocks,
            // As of System V: 14 bits and 18 bits.
            device: (self.rdev >> 18 & 0x3fff, self.rdev & 0x3_ffff),
            times: [time(0), time(1), time(2), time(3)],
            xflags: self.xflags as u32,
        }
    }
}

/// Visits the inodes in use of one allocation group, by rising number, which is the order in which they lie on the disk.
/// `visit` returns false to stop.
///
/// `fd` may be any file of the file system. `EINVAL` beyond the last group, `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` on
/// other file systems. The kernel reads the blocks of inodes ahead, and keeps them in memory. Of an inode that holds its content
/// it counts no blocks, also where attributes have some: such an inode is opened by its handle and asked.
#[doc(alias = "XFS_IOC_BULKSTAT")]
pub fn bulkstat(fd: BorrowedFd<'_>, group: u32, visit: &mut dyn FnMut(Inode) -> bool) -> io::Result<()> {
    let header = Header { flags: XFS_BULK_IREQ_AGNO, icount: BATCH as u32, agno: group, ..Header::default() };
    let mut request = Box::new(Request { header, answers: [Answer::default(); BATCH] });
    loop {
        let found = request.answer(fd)?;
        if found.is_empty() {
            return Ok(());
        }
        for answer in found {
            if !visit(answer.told(fd)) {
                return Ok(());
            }
        }
    }
}

/// Blocks of the file system that an inode takes.
fn blocks_by_stat(fd: BorrowedFd<'_>, inode: &Inode) -> io::Result<u64> {
    let open = open_by_handle(fd, &handle_of_inode(inode.ino, inode.generation), Access::Facts)?;
    let block = files::file_system(fd)?.block_size.max(512);
    Ok(files::statx_fd(open.as_fd())?.blocks / (block / 512))
}

/// Memory for the answers of [`bulkstat_from`], kept from call to call.
pub struct InodeBuffer(Vec<[u64; ANSWER_WORDS]>);

/// A header takes no more than an answer.
const ANSWER_WORDS: usize = size_of::<Answer>() / size_of::<u64>();
const _: () = assert!(size_of::<Answer>().is_multiple_of(size_of::<u64>()));
/// The header lies right before the first answer.
const HEADER_AT: usize = (size_of::<Answer>() - size_of::<Header>()) / size_of::<u64>();

impl std::fmt::Debug for InodeBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InodeBuffer({})", self.most())
    }
}

impl InodeBuffer {
    /// For so many inodes (1 at least).
    pub fn new(inodes: usize) -> InodeBuffer {
        InodeBuffer(vec![[0; ANSWER_WORDS]; 1 + inodes.max(1)])
    }

    /// For how many there is room.
    pub fn most(&self) -> usize {
        self.0.len() - 1
    }
}

/// Visits so many inodes in use by rising number, fewer where the buffer has room for fewer or there are no more, from the one of this
/// number on. Errors, and what is told, as of [`bulkstat`].
pub fn bulkstat_from(
    fd: BorrowedFd<'_>,
    buffer: &mut InodeBuffer,
    first: u64,
    count: usize,
    visit: &mut dyn FnMut(Inode),
) -> io::Result<()> {
    let count = count.clamp(1, buffer.most());
    let header = Header { ino: first, icount: count as u32, ..Header::default() };
    let memory = buffer.0.as_mut_ptr();
    // SAFETY: it lies in the words before the first answer, which are aligned for it.
    let place = unsafe { memory.cast::<u64>().add(HEADER_AT).cast::<Header>() };
    // SAFETY: as above.
    unsafe { place.write(header) };
    // SAFETY: the header says for how many answers there is room behind it, and that room is there.
    retry(|| unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_BULKSTAT as _, place) })?;
    // SAFETY: the kernel has filled it in.
    let found = (unsafe { place.read() }.ocount as usize).min(count);
    for at in 1..=found {
        // SAFETY: the answer is one of those that there is room for, and any bits are a valid one.
        let answer = unsafe { memory.add(at).cast::<Answer>().read() };
        visit(answer.told(fd));
    }
    Ok(())
}

/// The inode number of the root directory. Errors as of [`bulkstat`].
pub fn root_inode(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let header =
        Header { ino: XFS_BULK_IREQ_SPECIAL_ROOT, flags: XFS_BULK_IREQ_SPECIAL, icount: 1, ..Header::default() };
    let mut request = Box::new(Request { header, answers: [Answer::default(); BATCH] });
    request.answer(fd)?.first().map(|root| root.ino).ok_or(io::ErrorKind::NotFound.into())
}

impl Request {
    fn answer(&mut self, fd: BorrowedFd<'_>) -> io::Result<&[Answer]> {
        // SAFETY: the request is a header that says how many answers there is room for behind it, and that room.
        retry(|| unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_BULKSTAT as _, &raw mut *self) })?;
        Ok(&self.answers[..(self.header.ocount as usize).min(BATCH)])
    }
}

/// `XFS_IOC_FSGEOMETRY` (Linux 5.2).
const XFS_IOC_FSGEOMETRY: Opcode = opcode::read::<Geometry>(b'X', 126);
/// Blocks of metadata have checksums (version 5).
const XFS_FSOP_GEOM_FLAGS_V5SB: u32 = 1 << 15;
/// What each block is used for is kept by block, too.
const XFS_FSOP_GEOM_FLAGS_RMAPBT: u32 = 1 << 19;
/// Files can share blocks.
const XFS_FSOP_GEOM_FLAGS_REFLINK: u32 = 1 << 20;
/// Files can exchange blocks.
const XFS_FSOP_GEOM_FLAGS_EXCHANGE_RANGE: u32 = 1 << 24;

/// `struct xfs_fsop_geom`, of which only some fields are told.
#[repr(C)]
struct Geometry {
    /// Bytes of a block, blocks of an extent of the realtime device, blocks of a group.
    block_sizes: [u32; 3],
    groups: u32,
    /// Blocks of the log, bytes of a sector, bytes of an inode, the share of inodes.
    sizes: [u32; 4],
    counts: [u64; 4],
    uuid: [u8; 16],
    stripe: [u32; 2],
    version: i32,
    flags: u32,
    more_sizes: [u32; 4],
    sick: u32,
    checked: u32,
    reserved: [u64; 17],
}

const _: () = assert!(size_of::<Geometry>() == 256 && XFS_IOC_FSGEOMETRY == 0x8100_587E);
const _: () = assert!(std::mem::offset_of!(Geometry, groups) == 12 && std::mem::offset_of!(Geometry, flags) == 92);
const _: () = assert!(std::mem::offset_of!(Geometry, sick) == 112);

/// What a mounted XFS says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Files can share blocks (`reflink=1`).
    pub has_reflinks: bool,
    /// Files can [exchange](crate::exchange_ranges) blocks (`exchange=1`).
    pub has_exchange: bool,
    /// The owners of all blocks are kept in the order of the disk (`rmapbt=1`).
    pub has_reverse_map: bool,
    /// The kernel has found damage that is not repaired.
    pub is_sick: bool,
    /// Allocation groups.
    pub groups: u32,
    /// Blocks of each of them; the last one may have fewer.
    pub group_blocks: u32,
    /// Bytes of an inode for the map of its places and its attributes.
    pub inode_room: u32,
    /// Bytes of a block of a directory.
    pub directory_block: u32,
    /// What tells it from others, but from copies that keep it.
    pub uuid: [u8; 16],
}

impl Facts {
    /// The place behind the last name, as `getdents64` tells it, of a directory whose size is that of a block or less. No name lies there,
    /// since each block begins with a head. (In a larger one a block that can't be read ends a call there, too.)
    pub fn end_of_directory(&self) -> u64 {
        u64::from(self.directory_block) / 8
    }
}

/// What the XFS of an open file says of itself. Needs no privilege. `ENOTTY` on other file systems and before Linux 5.2.
#[doc(alias = "XFS_IOC_FSGEOMETRY")]
pub fn facts(fd: BorrowedFd<'_>) -> io::Result<Facts> {
    // SAFETY: XFS_IOC_FSGEOMETRY is a getter that writes a `struct xfs_fsop_geom`, which this is (asserted above).
    let told = unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Getter::<XFS_IOC_FSGEOMETRY, Geometry>::new())? };
    let has = |flag: u32| told.flags & flag != 0;
    Ok(Facts {
        has_reflinks: has(XFS_FSOP_GEOM_FLAGS_REFLINK),
        has_exchange: has(XFS_FSOP_GEOM_FLAGS_EXCHANGE_RANGE),
        has_reverse_map: has(XFS_FSOP_GEOM_FLAGS_RMAPBT),
        is_sick: told.sick != 0,
        groups: told.groups,
        group_blocks: told.block_sizes[2],
        directory_block: told.more_sizes[2],
        uuid: told.uuid,
        inode_room: told.sizes[2].saturating_sub(if has(XFS_FSOP_GEOM_FLAGS_V5SB) { 176 } else { 100 }),
    })
}

/// What opens an inode by its number.
fn handle_of_inode(ino: u64, generation: u32) -> FileHandle {
    let mut identity = [0; 12];
    identity[..8].copy_from_slice(&ino.to_ne_bytes());
    identity[8..].copy_from_slice(&generation.to_ne_bytes());
    FileHandle::new(XFS_FILEID_INO64GEN, &identity).expect("12 bytes are few enough")
}

/// Opens a directory by its inode number, for listing. `mount` is any open file of the file system.
///
/// `ESTALE` when there is no such inode any more; `EPERM` without `CAP_DAC_READ_SEARCH`. The kernel looks the directory's
/// ancestors up, too, as far as they are not in memory.
#[doc(alias = "open_by_handle_at")]
pub fn open_directory(mount: BorrowedFd<'_>, ino: u64, generation: u32) -> io::Result<OwnedFd> {
    open_by_handle(mount, &handle_of_inode(ino, generation), Access::List)
}

/// `XFS_IOC_GETPARENTS_BY_HANDLE` (Linux 6.10).
const XFS_IOC_GETPARENTS_BY_HANDLE: Opcode = opcode::read_write::<ParentsRequest>(b'X', 63);
/// `XFS_IOC_FD_TO_HANDLE`.
const XFS_IOC_FD_TO_HANDLE: Opcode = opcode::read_write::<HandleRequest>(b'X', 106);
/// `XFS_IOC_OPEN_BY_HANDLE`.
const XFS_IOC_OPEN_BY_HANDLE: Opcode = opcode::read_write::<HandleRequest>(b'X', 107);
/// It is the root directory, which has no name.
const XFS_GETPARENTS_OFLAG_ROOT: u16 = 1;
/// There are no further names.
const XFS_GETPARENTS_OFLAG_DONE: u16 = 2;

/// Bytes for the names of an inode that one call tells. A name takes at most 256 and what is before it.
const NAMES_BYTES: usize = 16 << 10;
/// What is before the name in a `struct xfs_getparents_rec`.
const NAME_AT: usize = 32;

/// `struct xfs_handle`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct XfsHandle {
    file_system: [u32; 2],
    length: u16,
    pad: u16,
    generation: u32,
    ino: u64,
}

/// `struct xfs_fsop_handlereq`.
#[repr(C)]
struct HandleRequest {
    fd: u32,
    path: *const libc::c_char,
    flags: u32,
    given: *const libc::c_void,
    given_length: u32,
    told: *mut XfsHandle,
    told_length: *mut u32,
}

/// `struct xfs_getparents_by_handle`.
#[repr(C)]
struct ParentsRequest {
    handle: XfsHandle,
    cursor: [u32; 4],
    flags_in: u16,
    flags_out: u16,
    bytes: u32,
    reserved: u64,
    buffer: u64,
}

const _: () = assert!(size_of::<XfsHandle>() == 24 && size_of::<ParentsRequest>() == 64);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(XFS_IOC_FD_TO_HANDLE == 0xC038_586A && XFS_IOC_OPEN_BY_HANDLE == 0xC038_586B);

fn handle_of(fd: BorrowedFd<'_>) -> io::Result<XfsHandle> {
    let (mut handle, mut length) = (XfsHandle::default(), 0_u32);
    let mut request = HandleRequest {
        fd: fd.as_raw_fd() as u32,
        path: std::ptr::null(),
        flags: 0,
        given: std::ptr::null(),
        given_length: 0,
        told: &raw mut handle,
        told_length: &raw mut length,
    };
    // SAFETY: the kernel writes a handle, which is no larger than `struct xfs_handle`, and its length.
    match unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_FD_TO_HANDLE as _, &raw mut request) } {
        0 => Ok(handle),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens an open file again for reading and writing so that its times stay, whatever is done to it by that descriptor; by the mount of
/// `directory`, any one of that file system.
///
/// `EPERM` without `CAP_SYS_ADMIN`, `ETXTBSY` for a program that runs, `EAGAIN` for a file that another process has a lease on, which is
/// asked to give it up; `ENOTTY` on other file systems.
#[doc(alias = "XFS_IOC_OPEN_BY_HANDLE")]
pub fn open_timeless(directory: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let handle = handle_of(file)?;
    let mut request = HandleRequest {
        fd: 0,
        path: std::ptr::null(),
        flags: (libc::O_RDWR | libc::O_NONBLOCK) as u32,
        given: (&raw const handle).cast(),
        given_length: size_of::<XfsHandle>() as u32,
        told: std::ptr::null_mut(),
        told_length: std::ptr::null_mut(),
    };
    // SAFETY: the request names a handle and its size.
    let fd = unsafe { libc::ioctl(directory.as_raw_fd(), XFS_IOC_OPEN_BY_HANDLE as _, &raw mut request) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given this descriptor, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // It can't be asked to be closed for other programs from the start.
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Asks for the names of inodes, which an XFS with parent pointers keeps with them.
#[derive(Debug)]
pub struct Parents<'a> {
    fd: BorrowedFd<'a>,
    handle: XfsHandle,
    /// Words, for the records are aligned.
    buffer: Box<[u64]>,
}

impl<'a> Parents<'a> {
    /// For the file system of an open file. `Unsupported` where it keeps no parent pointers, or the kernel is older than
    /// 6.10; `EPERM` without `CAP_SYS_ADMIN`; `ENOTTY` on other file systems.
    #[doc(alias = "XFS_IOC_GETPARENTS_BY_HANDLE")]
    pub fn of(fd: BorrowedFd<'a>) -> io::Result<Self> {
        let handle = handle_of(fd)?;
        let mut parents = Self { fd, handle, buffer: vec![0; NAMES_BYTES / 8].into() };
        // The file itself, to see whether there is such a thing.
        match parents.visit(handle.ino, handle.generation, &mut |_, _| {}) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Err(io::ErrorKind::Unsupported.into()),
            other => other.map(|()| parents),
        }
    }

    /// Visits the names of an inode: of each the inode number of its directory, and the name. The root directory has none.
    ///
    /// `ESTALE` when there is no such inode any more. What an inode holds itself costs no read from the disk when the inode
    /// is in memory, as it is after [`bulkstat`].
    pub fn visit(&mut self, ino: u64, generation: u32, visit: &mut dyn FnMut(u64, &[u8])) -> io::Result<()> {
        let handle = XfsHandle { ino, generation, ..self.handle };
        let buffer = self.buffer.as_mut_ptr() as u64;
        let (bytes, none) = (NAMES_BYTES as u32, [0; 4]);
        let mut request =
            ParentsRequest { handle, cursor: none, flags_in: 0, flags_out: 0, bytes, reserved: 0, buffer };
        loop {
            // SAFETY: the request names a buffer and its size.
            let status =
                unsafe { libc::ioctl(self.fd.as_raw_fd(), XFS_IOC_GETPARENTS_BY_HANDLE as _, &raw mut request) };
            if status < 0 {
                match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                }
            }
            if request.flags_out & XFS_GETPARENTS_OFLAG_ROOT != 0 {
                return Ok(());
            }
            let odd = || io::Error::new(io::ErrorKind::InvalidData, "the kernel told names that make no sense");
            let told = parse_parents(&self.buffer, visit).ok_or_else(odd)?;
            // A call that tells nothing would never end.
            if request.flags_out & XFS_GETPARENTS_OFLAG_DONE != 0 || told == 0 {
                return Ok(());
            }
        }
    }
}

/// Visits a row of `struct xfs_getparents_rec`; gives their number, `None` when they make no sense.
fn parse_parents(words: &[u64], visit: &mut dyn FnMut(u64, &[u8])) -> Option<usize> {
    let (mut at, mut told) = (0, 0);
    loop {
        let record = words.get(at..)?;
        let Some(&[_, _, ino, lengths]) = record.first_chunk() else { return Some(told) };
        let length = u32::from_ne_bytes(*lengths.to_ne_bytes().first_chunk()?) as usize;
        // The last one is told to reach to the end of the buffer.
        if length < NAME_AT || !length.is_multiple_of(8) || length > record.len() * 8 {
            return None;
        }
        let name: Vec<u8> = record[NAME_AT / 8..length / 8]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .take_while(|&byte| byte != 0)
            .collect();
        if name.is_empty() {
            return Some(told);
        }
        visit(ino, &name);
        told += 1;
        at += length / 8;
        if at >= words.len() {
            return Some(told);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_file_systems_have_none() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let error = bulkstat(file.as_fd(), 0, &mut |_| true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        let error = bulkstat_from(file.as_fd(), &mut InodeBuffer::new(0), 1, 9, &mut |_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(facts(file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert!(root_inode(file.as_fd()).is_err());
        assert!(open_directory(file.as_fd(), 1, 0).is_err());
        assert!(Parents::of(file.as_fd()).is_err());
        assert!(AccessLists::of(file.as_fd()).is_err());
        assert_eq!(open_timeless(file.as_fd(), file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }

    /// A record as Linux 6.18 lays it: the handle of the directory, the length, the name.
    fn record(ino: u64, length: u32, name: &[u8]) -> Vec<u64> {
        let mut bytes = vec![0_u8; 8];
        bytes.extend([14, 0, 0, 0]);
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(ino.to_ne_bytes());
        bytes.extend(length.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn parsed(words: &[u64]) -> Option<Vec<(u64, String)>> {
        let mut found = Vec::new();
        let told = parse_parents(words, &mut |ino, name| found.push((ino, String::from_utf8_lossy(name).into())))?;
        assert_eq!(told, found.len());
        Some(found)
    }

    #[test]
    fn names_are_read_to_the_end_of_the_buffer() {
        let mut words = record(131, 40, b"a\0");
        let rest = (NAMES_BYTES - 40) as u32;
        words.extend(record(128, rest, b"a-longer-name\0"));
        words.resize(NAMES_BYTES / 8, 0);
        assert_eq!(parsed(&words).unwrap(), [(131, "a".into()), (128, "a-longer-name".into())]);
        // A file that nothing names.
        assert_eq!(parsed(&[0; 8]), None);
        assert_eq!(parsed(&record(131, 40, b"\0")), Some(Vec::new()));
        assert_eq!(parsed(&[]), Some(Vec::new()));
        for odd in [0, 8, 31, 36, 48, u32::MAX] {
            assert_eq!(parsed(&record(131, odd, b"a\0")), None, "{odd}");
        }
    }
}
