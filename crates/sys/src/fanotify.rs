//! What changes on a file system, as the kernel tells it (fanotify).
#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use bitflags::bitflags;

use crate::handle::FileHandle;

bitflags! {
    /// What happened. Events of one directory or inode may be merged, and their bits with them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Happened: u64 {
        /// Content was written or cut, or preallocated.
        const MODIFY = 0x2;
        /// Attributes were changed, among them the number of names.
        const ATTRIB = 0x4;
        /// A file that was open for writing was closed.
        const CLOSE_WRITE = 0x8;
        /// A name went away by a rename.
        const MOVED_FROM = 0x40;
        /// A name came by a rename.
        const MOVED_TO = 0x80;
        /// A name was made.
        const CREATE = 0x100;
        /// A name was removed.
        const DELETE = 0x200;
        /// The last name of an inode was removed.
        const DELETE_SELF = 0x400;
        /// The queue was full, and events were lost.
        const OVERFLOW = 0x4000;
        /// It happened to a directory; asked for, such events come as well.
        const ON_DIRECTORY = 0x4000_0000;
    }
}

/// Asked of a mark of a directory: what happens to its entries, too.
const ON_CHILD: u64 = 0x0800_0000;

const CLOEXEC: u32 = 0x1;
const NONBLOCK: u32 = 0x2;
const UNLIMITED_QUEUE: u32 = 0x10;
const UNLIMITED_MARKS: u32 = 0x20;
const REPORT_FID: u32 = 0x200;
const REPORT_DIR_FID: u32 = 0x400;
const REPORT_NAME: u32 = 0x800;

const MARK_ADD: u32 = 0x1;
const MARK_REMOVE: u32 = 0x2;
const MARK_ONLYDIR: u32 = 0x8;
const MARK_IGNORED_SURV_MODIFY: u32 = 0x40;
const MARK_FLUSH: u32 = 0x80;
const MARK_FILESYSTEM: u32 = 0x100;
const MARK_EVICTABLE: u32 = 0x200;
const MARK_IGNORE: u32 = 0x400;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub happened: Happened,
    /// The process that did it, as its namespace numbers it; 0 where that is hidden.
    pub pid: i32,
    /// The directory: the one of the name through which it was done, or the one that it was done to.
    pub directory: Option<FileHandle>,
    /// The inode that it was done to. Of names that came or went only the directory is told.
    pub object: Option<FileHandle>,
}

/// A group of marks, and the queue of what they report.
#[derive(Debug)]
pub struct Group(OwnedFd);

impl Group {
    /// A group whose events name directories and inodes by their handles (Linux 5.9).
    ///
    /// `unlimited` is for who drains it often: nothing is lost then, and the events count as memory of this process'
    /// control group. `EPERM` without `CAP_SYS_ADMIN`.
    #[doc(alias = "fanotify_init")]
    pub fn new(unlimited: bool) -> io::Result<Group> {
        let bounds = if unlimited { UNLIMITED_QUEUE | UNLIMITED_MARKS } else { 0 };
        Group::with(REPORT_FID | REPORT_DIR_FID | bounds)
    }

    /// A group whose events name directories alone, so that the kernel merges all that one process does in one of them. What finds no
    /// room in its queue is lost.
    #[doc(alias = "fanotify_init")]
    pub fn of_directories() -> io::Result<Group> {
        Group::with(REPORT_DIR_FID)
    }

    /// As [`Group::new`], and events tell names as well ([`Group::read_named`]): fewer of them are merged.
    #[doc(alias = "FAN_REPORT_DFID_NAME")]
    pub fn of_names() -> io::Result<Group> {
        Group::with(REPORT_FID | REPORT_DIR_FID | REPORT_NAME | UNLIMITED_QUEUE)
    }

    fn with(flags: u32) -> io::Result<Group> {
        let flags = CLOEXEC | NONBLOCK | flags;
        // SAFETY: two numbers, no pointers.
        let fd = unsafe { libc::fanotify_init(flags, libc::O_CLOEXEC as u32) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just given this descriptor, and nobody else knows it.
        Ok(Group(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Reports what happens anywhere on the file system of `root`, through whatever mount.
    ///
    /// `EXDEV` in a subvolume of btrfs that isn't the topmost, `EOPNOTSUPP` or `ENODEV` where inodes have no handles,
    /// `EPERM` without `CAP_SYS_ADMIN`.
    #[doc(alias = "fanotify_mark")]
    pub fn watch_file_system(&self, root: BorrowedFd<'_>, what: Happened) -> io::Result<()> {
        self.mark(MARK_ADD | MARK_FILESYSTEM, what.bits(), root)
    }

    /// From now on nothing of this kind that happens in a directory is reported, but what happens in those below it. With
    /// [`Happened::ON_DIRECTORY`] among it neither is what happens to the directories in it (`chmod`), nor that they come and go. Ends
    /// by itself when the kernel forgets the inode (Linux 6.0).
    pub fn ignore_directory(&self, directory: BorrowedFd<'_>, what: Happened) -> io::Result<()> {
        let flags = MARK_ADD | MARK_ONLYDIR | MARK_IGNORE | MARK_IGNORED_SURV_MODIFY | MARK_EVICTABLE;
        self.mark(flags, what.bits() | ON_CHILD, directory)
    }

    /// What happens in a directory that was ignored is reported again. One that wasn't is no error.
    pub fn heed_directory(&self, directory: BorrowedFd<'_>, what: Happened) -> io::Result<()> {
        let flags = MARK_REMOVE | MARK_ONLYDIR | MARK_IGNORE | MARK_IGNORED_SURV_MODIFY;
        match self.mark(flags, what.bits() | ON_CHILD, directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// The same of all directories that were ignored. Needs no privilege.
    pub fn heed_all(&self) -> io::Result<()> {
        self.mark(MARK_FLUSH, 0, self.as_fd())
    }

    fn mark(&self, flags: u32, mask: u64, inode: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: without a path the mark goes to the descriptor itself.
        let status =
            unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, mask, inode.as_raw_fd(), std::ptr::null()) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes what waits in the queue, as far as the buffer goes; false when there was nothing. Never waits.
    ///
    /// A buffer of 64 KiB takes some 900 events. Errors of kind `InvalidData` when the kernel says what can't be read.
    pub fn read(&self, buffer: &mut [u8], mut each: impl FnMut(Event)) -> io::Result<bool> {
        self.read_named(buffer, |event, _| each(event))
    }

    /// The same, with the name in the directory that was meant; `.` is the directory itself.
    pub fn read_named(&self, buffer: &mut [u8], each: impl FnMut(Event, Option<&CStr>)) -> io::Result<bool> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Ok(length) => {
                    let told = buffer.get(..length).unwrap_or_default();
                    return parse(told, each).map(|()| true).ok_or_else(|| io::ErrorKind::InvalidData.into());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl From<OwnedFd> for Group {
    /// One that another process has made.
    fn from(fd: OwnedFd) -> Group {
        Group(fd)
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const INFO_FID: u8 = 1;
const INFO_DIRECTORY_AND_NAME: u8 = 2;
const INFO_DIRECTORY: u8 = 3;

/// `struct fanotify_event_metadata`.
const EVENT_BYTES: usize = 24;
/// `struct fanotify_event_info_header`, then the two words of the file system's number.
const INFO_BYTES: usize = 4 + 8;
/// The head of `struct file_handle`.
const HANDLE_BYTES: usize = 8;

/// Reads events as the kernel lays them out (fanotify(7)); `None` when they aren't.
fn parse(mut told: &[u8], mut each: impl FnMut(Event, Option<&CStr>)) -> Option<()> {
    while !told.is_empty() {
        let length = u32::from_ne_bytes(field(told, 0)?) as usize;
        if length < EVENT_BYTES || length > told.len() {
            return None;
        }
        let (event, rest) = told.split_at(length);
        told = rest;
        let [version, _] = field(event, 4)?;
        if version != 3 {
            return None;
        }
        let infos_at = usize::from(u16::from_ne_bytes(field(event, 6)?));
        let mut found = Event {
            happened: Happened::from_bits_truncate(u64::from_ne_bytes(field(event, 8)?)),
            pid: i32::from_ne_bytes(field(event, 20)?),
            directory: None,
            object: None,
        };
        let mut infos = event.get(infos_at..)?;
        let mut name = None;
        while !infos.is_empty() {
            let [kind, _] = field(infos, 0)?;
            let length = usize::from(u16::from_ne_bytes(field(infos, 2)?));
            if length < 4 || length > infos.len() {
                return None;
            }
            let (info, rest) = infos.split_at(length);
            infos = rest;
            match kind {
                INFO_FID => found.object = Some(handle(info)?),
                INFO_DIRECTORY => found.directory = Some(handle(info)?),
                INFO_DIRECTORY_AND_NAME => {
                    found.directory = Some(handle(info)?);
                    name = name_behind_handle(info);
                }
                // What later kernels add.
                _ => {}
            }
        }
        each(found, name);
    }
    Some(())
}

fn name_behind_handle(info: &[u8]) -> Option<&CStr> {
    let length = u32::from_ne_bytes(field(info, INFO_BYTES)?) as usize;
    let start = (INFO_BYTES + HANDLE_BYTES).checked_add(length)?;
    CStr::from_bytes_until_nul(info.get(start..)?).ok()
}

fn handle(info: &[u8]) -> Option<FileHandle> {
    let length = u32::from_ne_bytes(field(info, INFO_BYTES)?) as usize;
    let kind = i32::from_ne_bytes(field(info, INFO_BYTES + 4)?);
    let start = INFO_BYTES + HANDLE_BYTES;
    FileHandle::new(kind, info.get(start..start.checked_add(length)?)?)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: u8, identity: &[u8]) -> Vec<u8> {
        let length = (INFO_BYTES + HANDLE_BYTES + identity.len()).next_multiple_of(4);
        let mut bytes = vec![kind, 0];
        bytes.extend((length as u16).to_ne_bytes());
        bytes.extend([9; 8]);
        bytes.extend((identity.len() as u32).to_ne_bytes());
        bytes.extend(0x81_i32.to_ne_bytes());
        bytes.extend(identity);
        bytes.resize(length, 0);
        bytes
    }

    fn event(mask: u64, infos: &[Vec<u8>]) -> Vec<u8> {
        let infos = infos.concat();
        let mut bytes = ((EVENT_BYTES + infos.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([3, 0]);
        bytes.extend((EVENT_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(77_i32.to_ne_bytes());
        bytes.extend(infos);
        bytes
    }

    fn parsed(told: &[u8]) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        parse(told, |event, _| events.push(event)).map(|()| events)
    }

    #[test]
    fn records_are_told_apart() {
        let told = [
            event(0x2, &[info(INFO_DIRECTORY, &[1; 12]), info(INFO_FID, &[2; 12])]),
            event(0x4000_0100, &[info(INFO_DIRECTORY, &[3; 8])]),
            event(0x4, &[info(INFO_FID, &[4; 20]), info(99, &[0; 3])]),
            event(0x4000, &[]),
        ]
        .concat();
        let handle = |bytes: &[u8]| FileHandle::new(0x81, bytes);
        let expected = [
            (Happened::MODIFY, handle(&[1; 12]), handle(&[2; 12])),
            (Happened::CREATE | Happened::ON_DIRECTORY, handle(&[3; 8]), None),
            (Happened::ATTRIB, None, handle(&[4; 20])),
            (Happened::OVERFLOW, None, None),
        ];
        let expected = expected.map(|(happened, directory, object)| Event { happened, pid: 77, directory, object });
        assert_eq!(parsed(&told).unwrap(), expected);
    }

    #[test]
    fn names_stand_behind_the_handle() {
        let named = |name: &[u8]| {
            let mut bytes = info(INFO_DIRECTORY_AND_NAME, &[1; 8]);
            bytes.extend(name);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            let length = (bytes.len() as u16).to_ne_bytes();
            bytes[2..4].copy_from_slice(&length);
            event(0x100, &[bytes])
        };
        let mut names = Vec::new();
        let told = [named(b"a name\0"), named(b".\0"), event(0x2, &[info(INFO_FID, &[2; 12])])].concat();
        parse(&told, |_, name| names.push(name.map(CStr::to_owned))).unwrap();
        assert_eq!(names, [Some(c"a name".to_owned()), Some(c".".to_owned()), None]);
    }

    #[test]
    fn what_is_cut_or_wrong_is_refused() {
        let whole = event(0x2, &[info(INFO_DIRECTORY, &[1; 12]), info(INFO_FID, &[2; 8])]);
        assert!(parsed(&whole).is_some());
        for length in 1..whole.len() {
            assert_eq!(parsed(&whole[..length]), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = whole.clone();
                bad[at] = value;
                // Whatever it says: it ends.
                let _ = parsed(&bad);
            }
        }
        let long = event(0x2, &[info(INFO_FID, &[1; 60])]);
        assert_eq!(parsed(&long), None);
    }
}
