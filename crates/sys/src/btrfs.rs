//! The trees of a mounted btrfs, item by item, and its devices.
//!
//! Searches need `CAP_SYS_ADMIN`. What items hold is for others to parse; here it is only made sure that each lies in the
//! memory that the kernel has written.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::ioctl::{Opcode, opcode};

use crate::features::features;
use crate::retry::retry;

/// The size in it is that of the arguments without the room behind them.
const BTRFS_IOC_TREE_SEARCH_V2: Opcode = opcode::read_write::<Search>(0x94, 17);
const BTRFS_IOC_INO_LOOKUP: Opcode = opcode::read_write::<InodeLookup>(0x94, 18);
const BTRFS_IOC_DEV_INFO: Opcode = opcode::read_write::<DeviceAnswer>(0x94, 30);
const BTRFS_IOC_FS_INFO: Opcode = opcode::read::<FsAnswer>(0x94, 31);

/// The inode number of the root directory of each subvolume.
pub const SUBVOLUME_ROOT: u64 = 256;

/// Room for the items of one search, which holds the largest item there can be.
const ROOM_MIN: usize = 64 << 10;
/// What the kernel takes at most.
const ROOM_MAX: usize = 16 << 20;

/// `struct btrfs_ioctl_search_key` and the size of the room behind it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Search {
    tree: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    items: u32,
    unused: u32,
    more_unused: [u64; 4],
    room: u64,
}

/// `struct btrfs_ioctl_search_header`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ItemHeader {
    transid: u64,
    objectid: u64,
    offset: u64,
    kind: u32,
    len: u32,
}

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct InodeLookup {
    tree: u64,
    objectid: u64,
    name: [u8; 4080],
}

/// `struct btrfs_ioctl_dev_info_args`.
#[repr(C)]
struct DeviceAnswer {
    devid: u64,
    uuid: [u8; 16],
    bytes_used: u64,
    total_bytes: u64,
    unused: [u64; 379],
    path: [u8; 1024],
}

/// `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct FsAnswer {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    nodesize: u32,
    sectorsize: u32,
    clone_alignment: u32,
    checksums: [u16; 2],
    /// In: what is asked for beside; out: what is told.
    flags: u64,
    generation: u64,
    rest: [u64; 120],
}

/// Asks for the generation (Linux 5.10).
const BTRFS_FS_INFO_FLAG_GENERATION: u64 = 1 << 1;

const _: () = assert!(size_of::<Search>() == 112);
const _: () = assert!(std::mem::offset_of!(Search, room) == 104);
const _: () = assert!(size_of::<ItemHeader>() == 32);
const _: () = assert!(size_of::<InodeLookup>() == 4096);
const _: () = assert!(size_of::<DeviceAnswer>() == 4096);
const _: () = assert!(size_of::<FsAnswer>() == 1024);

/// The key of an item; keys are in the order of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What the item belongs to: an inode, for one.
    pub objectid: u64,
    /// What kind of item it is.
    pub kind: u8,
    /// What tells it from others of its kind.
    pub offset: u64,
}

impl Key {
    /// The key right behind this one; `None` behind the last there can be.
    pub fn next(self) -> Option<Key> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Key { offset, ..self });
        }
        if let Some(kind) = self.kind.checked_add(1) {
            return Some(Key { kind, offset: 0, ..self });
        }
        Some(Key { objectid: self.objectid.checked_add(1)?, kind: 0, offset: 0 })
    }
}

/// An item of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Its key.
    pub key: Key,
    /// What it holds.
    pub data: &'a [u8],
}

/// Memory for the answers of [`search`], kept from search to search.
pub struct SearchBuffer {
    words: Vec<u64>,
}

const SEARCH_WORDS: usize = size_of::<Search>() / size_of::<u64>();

impl std::fmt::Debug for SearchBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SearchBuffer({} bytes)", self.room())
    }
}

impl Default for SearchBuffer {
    /// The least room: 64 KiB.
    fn default() -> SearchBuffer {
        SearchBuffer::new(ROOM_MIN)
    }
}

impl SearchBuffer {
    /// Room for so many bytes of items and their headers (64 KiB at least, 16 MiB at most).
    pub fn new(bytes: usize) -> SearchBuffer {
        SearchBuffer { words: vec![0; SEARCH_WORDS + bytes.clamp(ROOM_MIN, ROOM_MAX) / size_of::<u64>()] }
    }

    fn room(&self) -> usize {
        (self.words.len() - SEARCH_WORDS) * size_of::<u64>()
    }

    /// One search for at most so many items of leaves that the transaction `since` or a later one wrote; gives how many were
    /// found.
    fn ask(
        &mut self,
        fd: BorrowedFd<'_>,
        tree: u64,
        (from, to): (Key, Key),
        since: u64,
        items: u32,
    ) -> io::Result<usize> {
        let search = Search {
            tree,
            min_transid: since,
            min_objectid: from.objectid,
            max_objectid: to.objectid,
            min_offset: from.offset,
            max_offset: to.offset,
            max_transid: u64::MAX,
            min_type: from.kind.into(),
            max_type: to.kind.into(),
            items,
            room: self.room() as u64,
            ..Search::default()
        };
        let memory = self.words.as_mut_ptr();
        // SAFETY: the words are aligned for `Search` and longer than one.
        unsafe { memory.cast::<Search>().write(search) };
        retry(|| {
            // SAFETY: the kernel writes the arguments and behind them at most `room` bytes, for which the words are made.
            unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_IOC_TREE_SEARCH_V2 as _, memory) }
        })?;
        // SAFETY: as above; the kernel has filled the arguments in.
        let search = unsafe { memory.cast::<Search>().read() };
        Ok(search.items as usize)
    }

    /// The bytes behind the arguments.
    fn answer(&self) -> &[u8] {
        let words = &self.words[SEARCH_WORDS..];
        // SAFETY: any bytes of whole words are bytes.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }
}

/// Calls `visit` for each item of a tree with a key from `from` to `to`, in their order, until it returns false.
///
/// Tree 0 is that of the subvolume that `fd` lies in. `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` on other file systems,
/// `ENOENT` when there is no such tree. Nodes of the tree come into the kernel's memory as they are needed.
#[doc(alias = "BTRFS_IOC_TREE_SEARCH_V2")]
pub fn search(
    fd: BorrowedFd<'_>,
    buffer: &mut SearchBuffer,
    tree: u64,
    keys: (Key, Key),
    visit: &mut dyn FnMut(Item<'_>) -> bool,
) -> io::Result<()> {
    search_since(fd, buffer, tree, keys, 0, visit)
}

/// The same of the leaves alone that the transaction `since` or a later one wrote. All other leaves cost nothing. What a
/// transaction has changed in memory alone isn't there before it is written ([`sync_file_system`]).
///
/// [`sync_file_system`]: crate::files::sync_file_system
pub fn search_since(
    fd: BorrowedFd<'_>,
    buffer: &mut SearchBuffer,
    tree: u64,
    (from, to): (Key, Key),
    since: u64,
    visit: &mut dyn FnMut(Item<'_>) -> bool,
) -> io::Result<()> {
    let (mut next, mut goes_on) = (Some(from), true);
    while let Some(from) = next.filter(|_| goes_on) {
        next = answer(fd, buffer, tree, (from, to), since, &mut |item| {
            goes_on = visit(item);
            goes_on
        })?;
    }
    Ok(())
}

/// The items of one answer of the kernel alone, as many as find room in the buffer: where to go on, or `None` where these were all.
/// That is told without another question where 64 KiB of the buffer are left.
pub fn search_some(
    fd: BorrowedFd<'_>,
    buffer: &mut SearchBuffer,
    tree: u64,
    keys: (Key, Key),
    visit: &mut dyn FnMut(Item<'_>),
) -> io::Result<Option<Key>> {
    answer(fd, buffer, tree, keys, 0, &mut |item| {
        visit(item);
        true
    })
}

/// One answer; `visit` returns false to pass over the rest of it.
fn answer(
    fd: BorrowedFd<'_>,
    buffer: &mut SearchBuffer,
    tree: u64,
    (from, to): (Key, Key),
    since: u64,
    visit: &mut dyn FnMut(Item<'_>) -> bool,
) -> io::Result<Option<Key>> {
    if from > to {
        return Ok(None);
    }
    let found = buffer.ask(fd, tree, (from, to), since, u32::MAX)?;
    let (mut last, mut used) = (None, 0);
    for item in items(buffer.answer(), found) {
        let item = item?;
        if item.key < from || item.key > to {
            return Err(malformed());
        }
        last = Some(item.key);
        used += size_of::<ItemHeader>() + item.data.len();
        if !visit(item) {
            break;
        }
    }
    // It ends where an item finds no room, and there is room for any.
    let is_whole = used + ROOM_MIN <= buffer.room();
    Ok(last.filter(|_| !is_whole).and_then(Key::next).filter(|next| *next <= to))
}

/// Has the kernel bring the leaf of a tree that holds `key` into its memory. Errors as of [`search`].
pub fn touch(fd: BorrowedFd<'_>, buffer: &mut SearchBuffer, tree: u64, key: Key) -> io::Result<()> {
    buffer.ask(fd, tree, (key, key), 0, 1).map(drop)
}

/// The items of an answer that says that it has so many.
fn items(answer: &[u8], count: usize) -> impl Iterator<Item = io::Result<Item<'_>>> {
    let mut rest = answer;
    let mut left = count;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        left -= 1;
        let item = split_item(rest);
        match item {
            Some((item, behind)) => {
                rest = behind;
                Some(Ok(item))
            }
            None => {
                left = 0;
                Some(Err(malformed()))
            }
        }
    })
}

/// The first item of what is left of an answer, and what lies behind it.
fn split_item(answer: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (header, rest) = answer.split_at_checked(size_of::<ItemHeader>())?;
    // SAFETY: the bytes are as many as a header has, any bits are a valid one, and the read asks for no alignment.
    let header = unsafe { header.as_ptr().cast::<ItemHeader>().read_unaligned() };
    let (data, behind) = rest.split_at_checked(header.len as usize)?;
    let kind = u8::try_from(header.kind).ok()?;
    Some((Item { key: Key { objectid: header.objectid, kind, offset: header.offset }, data }, behind))
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "btrfs gave an answer that makes no sense")
}

/// The number of the subvolume that an open file or directory lies in. `ENOTTY` on other file systems; needs no
/// privilege.
#[doc(alias = "BTRFS_IOC_INO_LOOKUP")]
pub fn subvolume(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut lookup = InodeLookup { tree: 0, objectid: SUBVOLUME_ROOT, name: [0; 4080] };
    // SAFETY: the kernel reads and writes the arguments, which are as large as it says.
    retry(|| unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_IOC_INO_LOOKUP as _, &raw mut lookup) })?;
    Ok(lookup.tree)
}

/// What a btrfs says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInfo {
    /// The highest number of a device.
    pub max_device: u64,
    /// Its devices.
    pub devices: u64,
    /// Its name.
    pub fsid: [u8; 16],
    /// Bytes of a node of a tree.
    pub node_bytes: u32,
    /// Bytes of a block of data.
    pub sector_bytes: u32,
    /// The number of the transaction that runs or, when none does, of the last one: what changes from now on gets this number
    /// or a higher one (Linux 5.10).
    pub generation: Option<u64>,
}

/// Facts about the btrfs of an open file. `ENOTTY` on other file systems; needs no privilege.
#[doc(alias = "BTRFS_IOC_FS_INFO")]
pub fn fs_info(fd: BorrowedFd<'_>) -> io::Result<FsInfo> {
    let mut answer = FsAnswer {
        max_id: 0,
        num_devices: 0,
        fsid: [0; 16],
        nodesize: 0,
        sectorsize: 0,
        clone_alignment: 0,
        checksums: [0; 2],
        flags: BTRFS_FS_INFO_FLAG_GENERATION,
        generation: 0,
        rest: [0; 120],
    };
    // SAFETY: the kernel reads and writes the arguments, which are as large as it says.
    retry(|| unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_IOC_FS_INFO as _, &raw mut answer) })?;
    Ok(FsInfo {
        max_device: answer.max_id,
        devices: answer.num_devices,
        fsid: answer.fsid,
        node_bytes: answer.nodesize,
        sector_bytes: answer.sectorsize,
        generation: (answer.flags & BTRFS_FS_INFO_FLAG_GENERATION != 0).then_some(answer.generation),
    })
}

/// Whether the copy that this btrfs reads (RAID 1, 1c3, 1c4, 10) is told by the number of the reading thread: the rest when
/// it is divided by how many there are. So it is unless the `read_policy` of the file system says otherwise. In a namespace
/// of process numbers nobody knows the kernel's number of a thread.
pub fn copies_go_by_thread(fsid: &[u8; 16]) -> bool {
    /// What the kernel calls the first namespace of process numbers.
    const FIRST_NAMESPACE: &str = "pid:[4026531836]";
    let knows_numbers = fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name == Path::new(FIRST_NAMESPACE));
    knows_numbers && features().copies && is_by_thread(fs::read_to_string(read_policy(fsid)))
}

/// Where the kernel tells how a copy is chosen.
fn read_policy(fsid: &[u8; 16]) -> PathBuf {
    let digits: String = fsid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    Path::new("/sys/fs/btrfs").join(parts.join("-")).join("read_policy")
}

fn is_by_thread(policies: io::Result<String>) -> bool {
    match policies {
        // The one in force stands in brackets.
        Ok(policies) => policies.split_whitespace().any(|policy| policy == "[pid]"),
        // Before Linux 5.11 there was no other.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// One device of a btrfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its bytes.
    pub bytes: u64,
    /// Its node in `/dev`, as btrfs has it; empty when the device is missing.
    pub path: PathBuf,
}

/// Facts about a device of the btrfs of an open file, by its number there. `ENODEV` when there is none of that number;
/// needs no privilege.
#[doc(alias = "BTRFS_IOC_DEV_INFO")]
pub fn device_info(fd: BorrowedFd<'_>, devid: u64) -> io::Result<DeviceInfo> {
    let mut answer = Box::new(DeviceAnswer {
        devid,
        uuid: [0; 16],
        bytes_used: 0,
        total_bytes: 0,
        unused: [0; 379],
        path: [0; 1024],
    });
    // SAFETY: the kernel reads and writes the arguments, which are as large as it says.
    retry(|| unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_IOC_DEV_INFO as _, &raw mut *answer) })?;
    let path = answer.path.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(DeviceInfo { bytes: answer.total_bytes, path: OsStr::from_bytes(path).into() })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_file_systems_have_none() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let fd = file.as_fd();
        let whole = (Key::default(), Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX });
        let errors = [
            search(fd, &mut SearchBuffer::default(), 1, whole, &mut |_| true).unwrap_err(),
            subvolume(fd).unwrap_err(),
            fs_info(fd).unwrap_err(),
            device_info(fd, 1).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        }
    }

    #[test]
    fn the_policy_in_force_stands_in_brackets() {
        let said = |text: &str| is_by_thread(Ok(text.to_owned()));
        assert!(said("[pid]\n") && said("[pid] round-robin:262144 devid:1\n"));
        assert!(!said("pid [round-robin:262144] devid:1\n") && !said(""));
        assert!(is_by_thread(Err(io::ErrorKind::NotFound.into())));
        assert!(!is_by_thread(Err(io::ErrorKind::PermissionDenied.into())));
        let fsid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
        let named = "/sys/fs/btrfs/12345678-9abc-def0-0102-030405060708/read_policy";
        assert_eq!(read_policy(&fsid), Path::new(named));
    }

    #[test]
    fn keys_follow_one_another() {
        let key = |objectid, kind, offset| Key { objectid, kind, offset };
        assert_eq!(key(1, 2, 3).next(), Some(key(1, 2, 4)));
        assert_eq!(key(1, 2, u64::MAX).next(), Some(key(1, 3, 0)));
        assert_eq!(key(1, u8::MAX, u64::MAX).next(), Some(key(2, 0, 0)));
        assert_eq!(key(u64::MAX, u8::MAX, u64::MAX).next(), None);
        assert!(key(1, 9, 9) < key(2, 0, 0) && key(1, 1, 9) < key(1, 2, 0));
    }

    fn header(kind: u32, len: u32) -> Vec<u8> {
        let words = [7_u64, 256, 4096].map(u64::to_ne_bytes).concat();
        [words, kind.to_ne_bytes().into(), len.to_ne_bytes().into()].concat()
    }

    #[test]
    fn items_of_an_answer_are_taken_apart() {
        let answer = [header(108, 3), b"abc".to_vec(), header(1, 0), vec![0; 40]].concat();
        let found: Vec<(Key, Vec<u8>)> =
            items(&answer, 2).map(|item| item.map(|item| (item.key, item.data.to_vec())).unwrap()).collect();
        let key = |kind| Key { objectid: 256, kind, offset: 4096 };
        assert_eq!(found, [(key(108), b"abc".to_vec()), (key(1), Vec::new())]);
    }

    /// Whatever an answer claims, nothing behind it is touched, and the list ends.
    #[test]
    fn answers_that_claim_too_much_are_refused() {
        let lies = [
            (header(108, 4), 1),
            (header(108, u32::MAX), 1),
            (header(256, 0), 1),
            (header(1, 0), 2),
            (vec![0; 31], 1),
            (Vec::new(), usize::MAX),
        ];
        for (answer, count) in lies {
            let all: Vec<io::Result<Item<'_>>> = items(&answer, count).collect();
            assert!(all.last().unwrap().is_err(), "{answer:?}");
            assert!(all.len() <= 2);
        }
    }
}
