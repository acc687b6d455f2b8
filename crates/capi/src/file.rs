//! A file as the callback gets it: handles that are counted.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    io::{self, Read, Seek, SeekFrom},
    mem::MaybeUninit,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use onesweep::{Cancel as Switch, FileError, Kind, Route, SweptFile};

use crate::{
    buffer::Buffer,
    fault::{
        Code, Fault, ONESWEEP_ERROR_CANCELLED, ONESWEEP_ERROR_CHANGED, ONESWEEP_ERROR_IO, ONESWEEP_ERROR_NO_CONTENT,
        guarded, look,
    },
    ffi::{c_path, c_text, given, hand_out, pointer},
};

/// Kind: a regular file; the only kind with content.
pub const ONESWEEP_KIND_FILE: u32 = 1;
/// Kind: a directory.
pub const ONESWEEP_KIND_DIRECTORY: u32 = 2;
/// Kind: a symbolic link.
pub const ONESWEEP_KIND_SYMLINK: u32 = 3;
/// Kind: a named pipe.
pub const ONESWEEP_KIND_FIFO: u32 = 4;
/// Kind: a socket.
pub const ONESWEEP_KIND_SOCKET: u32 = 5;
/// Kind: a character device.
pub const ONESWEEP_KIND_CHAR_DEVICE: u32 = 6;
/// Kind: a block device.
pub const ONESWEEP_KIND_BLOCK_DEVICE: u32 = 7;

/// Route: there was nothing to read from a disk.
pub const ONESWEEP_ROUTE_NO_READ: u32 = 0;
/// Route: it lay in the page cache.
pub const ONESWEEP_ROUTE_CACHED: u32 = 1;
/// Route: its fragments were read in the order of the disk.
pub const ONESWEEP_ROUTE_SWEPT: u32 = 2;
/// Route: it was read again through the file system.
pub const ONESWEEP_ROUTE_REREAD: u32 = 3;
/// Route: it is not in memory; `onesweep_file_pread` reads it.
pub const ONESWEEP_ROUTE_STREAMED: u32 = 4;

/// Of a file: its file system was not closed; what was written last may be missing.
pub const ONESWEEP_FILE_DIRTY: u32 = 1 << 0;
/// Of a file: the content comes as it is encrypted on the disk.
pub const ONESWEEP_FILE_ENCRYPTED: u32 = 1 << 1;
/// Of a directory: its second delivery, after everything in it.
pub const ONESWEEP_FILE_CLOSING: u32 = 1 << 2;
/// Of a file: it is that of a snapshot (`onesweep_file_open_path`).
pub const ONESWEEP_FILE_IN_SNAPSHOT: u32 = 1 << 3;

/// A point in time: seconds since 1970, and nanoseconds counted forward from there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Time {
    /// Negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// The attributes of an entry when it was looked at.
#[repr(C)]
pub struct Stat {
    /// One of the ONESWEEP_KIND_ constants.
    pub kind: u32,
    /// As in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of the inode.
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Inode number.
    pub ino: u64,
    /// As in `st_dev`.
    pub dev: u64,
    /// As in `st_rdev`.
    pub rdev: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last read before.
    pub atime: Time,
}

/// Why something failed.
#[repr(C)]
pub struct Failure {
    /// One of the ONESWEEP_ERROR_ constants.
    pub code: Code,
    /// What the kernel said (errno); 0 where no system call failed.
    pub error_number: c_int,
    /// What it is about; NULL when it is about no file.
    pub path: *const c_char,
    /// The path, what was tried, and why it failed, in one line.
    pub text: *const c_char,
}

/// An extended attribute.
#[repr(C)]
pub struct Xattr {
    /// Its name with its namespace.
    pub name: *const c_char,
    /// Its value, without a zero at the end.
    pub value: *const c_void,
    /// Bytes of the value.
    pub size: usize,
}

/// A failure with the memory that it needs.
pub(crate) struct Told {
    failure: Failure,
    _path: Option<CString>,
    _text: CString,
}

impl Told {
    pub(crate) fn of(error: &FileError) -> Self {
        let fault = Fault::from(error);
        let path = error.path().map(c_path);
        let text = c_text(fault.text);
        // Strings stay where they are when what holds them is moved.
        let failure =
            Failure { code: fault.code, error_number: fault.number, path: pointer(path.as_ref()), text: text.as_ptr() };
        Self { failure, _path: path, _text: text }
    }

    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }
}

/// A file that was swept, another entry, or a failure. Not for several threads at a time.
pub struct File {
    path: Option<CString>,
    found: Option<Found>,
    told: Option<Told>,
    cancel: Switch,
}

/// What is told of an entry that did not fail.
struct Found {
    stat: Stat,
    links: Vec<CString>,
    linked_to: Option<CString>,
    link_target: Option<CString>,
    open_path: Option<CString>,
    xattr_names: Vec<CString>,
    flags: u32,
    route: u32,
    swept: Mutex<SweptFile>,
}

/// What is swept may go to any thread, so that only our pointers are in question.
const fn may_go_to_any_thread<T: Send>() {}
const _: () = may_go_to_any_thread::<SweptFile>();

// SAFETY: pointers in it lead to strings that it owns and nobody changes.
unsafe impl Send for File {}
// SAFETY: as above; content is behind a lock.
unsafe impl Sync for File {}

impl File {
    pub(crate) fn of(item: Result<SweptFile, FileError>, cancel: &Switch) -> Self {
        let cancel = cancel.clone();
        match item {
            Ok(swept) => Self { path: Some(c_path(swept.path())), found: Some(Found::of(swept)), told: None, cancel },
            Err(error) => Self { path: error.path().map(c_path), found: None, told: Some(Told::of(&error)), cancel },
        }
    }

    /// Gives C a handle for as long as `call` runs, and for longer where C keeps it.
    pub(crate) fn lend<T>(self, call: impl FnOnce(*mut File) -> T) -> T {
        let ours = Arc::into_raw(Arc::new(self));
        let answer = call(ours.cast_mut());
        // SAFETY: the count that was taken above; those that C took are its own.
        drop(unsafe { Arc::from_raw(ours) });
        answer
    }

    fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }
}

impl Found {
    fn of(swept: SweptFile) -> Self {
        let marks = swept.marks();
        let flags = [
            (marks.dirty, ONESWEEP_FILE_DIRTY),
            (marks.encrypted, ONESWEEP_FILE_ENCRYPTED),
            (swept.is_closing(), ONESWEEP_FILE_CLOSING),
            (swept.is_in_snapshot(), ONESWEEP_FILE_IN_SNAPSHOT),
        ];
        Self {
            stat: stat_of(&swept),
            links: swept.links().iter().map(|link| c_path(link)).collect(),
            linked_to: swept.linked_to().map(c_path),
            link_target: swept.link_target().map(c_path),
            open_path: swept.is_in_snapshot().then(|| c_path(swept.open_path())),
            xattr_names: swept.xattrs().iter().map(|(name, _)| c_text(&name[..])).collect(),
            flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
            route: match swept.route() {
                Route::NoRead => ONESWEEP_ROUTE_NO_READ,
                Route::Cached => ONESWEEP_ROUTE_CACHED,
                Route::Swept => ONESWEEP_ROUTE_SWEPT,
                Route::Reread => ONESWEEP_ROUTE_REREAD,
                Route::Streamed => ONESWEEP_ROUTE_STREAMED,
            },
            swept: Mutex::new(swept),
        }
    }

    fn swept(&self) -> MutexGuard<'_, SweptFile> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stat_of(swept: &SweptFile) -> Stat {
    let metadata = swept.metadata();
    let time = |time: onesweep::Timestamp| Time { seconds: time.seconds, nanoseconds: time.nanoseconds };
    Stat {
        kind: match metadata.kind {
            Kind::File => ONESWEEP_KIND_FILE,
            Kind::Directory => ONESWEEP_KIND_DIRECTORY,
            Kind::Symlink => ONESWEEP_KIND_SYMLINK,
            Kind::Fifo => ONESWEEP_KIND_FIFO,
            Kind::Socket => ONESWEEP_KIND_SOCKET,
            Kind::CharDevice => ONESWEEP_KIND_CHAR_DEVICE,
            Kind::BlockDevice => ONESWEEP_KIND_BLOCK_DEVICE,
        },
        mode: metadata.mode,
        uid: metadata.uid,
        gid: metadata.gid,
        nlink: metadata.nlink,
        size: metadata.size,
        ino: metadata.ino,
        dev: metadata.dev,
        rdev: metadata.rdev,
        mtime: time(metadata.mtime),
        ctime: time(metadata.ctime),
        atime: time(metadata.atime),
    }
}

fn no_content(file: &File) -> Fault {
    let path = file.path.as_ref().map_or("it".into(), |path| path.to_string_lossy());
    Fault::new(ONESWEEP_ERROR_NO_CONTENT, format!("{path}: has no content that could be had"))
}

/// The path: the root as it was named, and the way from there. NULL for a failure that is about no file.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_path(file: Option<&File>) -> *const c_char {
    pointer(file.and_then(|file| file.path.as_ref()))
}

/// Why it failed, or NULL when it did not. What failed has no attributes and no content.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_failure(file: Option<&File>) -> *const Failure {
    let told = file.and_then(|file| file.told.as_ref());
    told.map_or(std::ptr::null(), |told| &raw const *told.failure())
}

/// The attributes, or NULL when it failed.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_stat(file: Option<&File>) -> *const Stat {
    file.and_then(File::found).map_or(std::ptr::null(), |found| &raw const found.stat)
}

/// The whole content, when it is in memory: that of every regular file but the streamed ones. NULL without; an empty file has a
/// pointer and 0 bytes. `size` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_data(file: Option<&File>, size: Option<&mut MaybeUninit<usize>>) -> *const c_void {
    look(std::ptr::null(), || {
        let swept = file.and_then(File::found).map(Found::swept);
        let bytes = swept.as_ref().and_then(|swept| swept.bytes());
        if let Some(size) = size {
            size.write(bytes.map_or(0, <[u8]>::len));
        }
        // Buffers stay where they are until they are freed.
        bytes.map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast())
    })
}

/// Reads content into the caller's memory, from memory or through the file system: up to `size` bytes from `offset` on, less at
/// the end alone. `got` is told how many.
///
/// Errors: ARGUMENT; NO_CONTENT; of streamed files IO, CHANGED when it is not what it was when it was looked at, CANCELLED.
///
/// # Safety
///
/// `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_file_pread(
    file: Option<&File>,
    buffer: *mut c_void,
    size: usize,
    offset: u64,
    got: Option<&mut MaybeUninit<usize>>,
) -> Code {
    guarded(|| {
        let (file, got) = (given(file, "the file")?, given(got, "the number of bytes read")?);
        got.write(0);
        if buffer.is_null() && size > 0 {
            return Err(Fault::argument("the buffer is NULL"));
        }
        let mut swept = file.found().ok_or_else(|| no_content(file))?.swept();
        if !swept.has_content() {
            return Err(no_content(file));
        }
        if size == 0 {
            return Ok(());
        }
        if size > isize::MAX as usize {
            return Err(Fault::argument(format!("{size} bytes are more than a buffer can have")));
        }
        // SAFETY: it isn't NULL, and the caller promises the room.
        let is_read = unsafe { read_at(&mut swept, buffer.cast::<u8>(), size, offset) };
        got.write(is_read.map_err(|error| not_read(file, &error))?);
        Ok(())
    })
}

/// Fills the memory in pieces, so that no more of a large buffer is touched than there is content for.
///
/// # Safety
///
/// `buffer` has room for `size` bytes, of which there are no more than `isize::MAX`.
unsafe fn read_at(swept: &mut SweptFile, buffer: *mut u8, size: usize, offset: u64) -> io::Result<usize> {
    const PIECE_BYTES: usize = 128 << 10;
    let mut reader = swept.reader();
    reader.seek(SeekFrom::Start(offset))?;
    let mut filled = 0;
    while filled < size {
        let length = PIECE_BYTES.min(size - filled);
        // SAFETY: it lies within the room, and zeros are written first, so that it holds bytes.
        let piece = unsafe {
            let start = buffer.add(filled);
            start.write_bytes(0, length);
            std::slice::from_raw_parts_mut(start, length)
        };
        let read = read_whole(&mut reader, piece)?;
        filled += read;
        if read < length {
            break;
        }
    }
    Ok(filled)
}

fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Why a stream could not be read.
fn not_read(file: &File, error: &io::Error) -> Fault {
    let path = file.path.as_ref().map_or("it".into(), |path| path.to_string_lossy());
    let has_changed = matches!(error.kind(), io::ErrorKind::Other | io::ErrorKind::UnexpectedEof);
    let code = match error.raw_os_error() {
        None if file.cancel.is_cancelled() => ONESWEEP_ERROR_CANCELLED,
        None if has_changed => ONESWEEP_ERROR_CHANGED,
        _ => ONESWEEP_ERROR_IO,
    };
    Fault::io(code, error, format!("{path}: cannot read: {error}"))
}

/// Takes the content over: it leaves the budget, and is the caller's until `onesweep_buffer_free`. Afterwards the file has
/// none. A pointer to the bytes that `onesweep_file_data` gave is good for as long as the buffer.
///
/// Errors: ARGUMENT; NO_CONTENT for what is not in memory.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_take(file: Option<&File>, buffer: Option<&mut MaybeUninit<*mut Buffer>>) -> Code {
    guarded(|| {
        hand_out(buffer, || {
            let file = given(file, "the file")?;
            let bytes = file.found().and_then(|found| found.swept().take_bytes());
            bytes.map(|bytes| Buffer { bytes }).ok_or_else(|| no_content(file))
        })
    })
}

/// Keeps the file beyond the callback, until `onesweep_file_free`, once for each call; gives the same handle. Its content counts
/// against the budget on: who keeps too much gets ONESWEEP_ERROR_BUDGET_LENT. NULL for NULL.
///
/// # Safety
///
/// The handle is that of a callback that runs, or is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_file_keep(file: *mut File) -> *mut File {
    if !file.is_null() {
        // SAFETY: the handle was made from a count, which the caller promises to be there.
        unsafe { Arc::increment_strong_count(file.cast_const()) };
    }
    file
}

/// Frees a file that was kept, in any thread, also after the sweep. A file that was not kept frees itself. NULL is ignored.
///
/// # Safety
///
/// The handle was kept, and not freed since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_file_free(file: *mut File) {
    if !file.is_null() {
        // SAFETY: the count was taken when it was kept.
        look((), || drop(unsafe { Arc::from_raw(file.cast_const()) }));
    }
}

/// By which way the content came: one of the ONESWEEP_ROUTE_ constants.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_route(file: Option<&File>) -> u32 {
    file.and_then(File::found).map_or(ONESWEEP_ROUTE_NO_READ, |found| found.route)
}

/// What is to be known of it: ONESWEEP_FILE_ constants, joined with `|`.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_flags(file: Option<&File>) -> u32 {
    file.and_then(File::found).map_or(0, |found| found.flags)
}

/// Where it can be opened, as long as the sweep runs: its path, or its place in the snapshot. NULL when it failed.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_open_path(file: Option<&File>) -> *const c_char {
    let Some(file) = file.filter(|file| file.found.is_some()) else { return std::ptr::null() };
    pointer(file.found().and_then(|found| found.open_path.as_ref()).or(file.path.as_ref()))
}

/// Further names of the inode (hard links) that the sweep met: how many.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_link_count(file: Option<&File>) -> usize {
    file.and_then(File::found).map_or(0, |found| found.links.len())
}

/// One of them, counted from 0. NULL beyond.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_link(file: Option<&File>, index: usize) -> *const c_char {
    pointer(file.and_then(File::found).and_then(|found| found.links.get(index)))
}

/// The name by which the inode was handed over before, in an earlier part of a tree that is swept part by part; such a file
/// has no content. Else NULL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_linked_to(file: Option<&File>) -> *const c_char {
    pointer(file.and_then(File::found).and_then(|found| found.linked_to.as_ref()))
}

/// Where a symbolic link points. NULL for all else.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_link_target(file: Option<&File>) -> *const c_char {
    pointer(file.and_then(File::found).and_then(|found| found.link_target.as_ref()))
}

/// Ranges of the content that are no holes: how many. All of it is one where holes are not known.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_range_count(file: Option<&File>) -> usize {
    look(0, || file.and_then(File::found).map_or(0, |found| found.swept().data_ranges().len()))
}

/// One of them, counted from 0, in rising order: its first byte, and the first behind it.
///
/// Errors: ARGUMENT, also when there are not so many.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_range(
    file: Option<&File>,
    index: usize,
    start: Option<&mut MaybeUninit<u64>>,
    end: Option<&mut MaybeUninit<u64>>,
) -> Code {
    guarded(|| {
        let (file, start, end) = (given(file, "the file")?, given(start, "the start")?, given(end, "the end")?);
        let range = file.found().and_then(|found| found.swept().data_ranges().get(index).cloned());
        let range = range.ok_or_else(|| Fault::argument(format!("there is no range {index}")))?;
        start.write(range.start);
        end.write(range.end);
        Ok(())
    })
}

/// Extended attributes (ONESWEEP_XATTRS): how many.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_xattr_count(file: Option<&File>) -> usize {
    file.and_then(File::found).map_or(0, |found| found.xattr_names.len())
}

/// One of them, counted from 0, valid as long as the file.
///
/// Errors: ARGUMENT, also when there are not so many.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_file_xattr(
    file: Option<&File>,
    index: usize,
    xattr: Option<&mut MaybeUninit<Xattr>>,
) -> Code {
    guarded(|| {
        let (file, xattr) = (given(file, "the file")?, given(xattr, "the attribute")?);
        let beyond = || Fault::argument(format!("there is no extended attribute {index}"));
        let found = file.found().ok_or_else(beyond)?;
        let name = found.xattr_names.get(index).ok_or_else(beyond)?;
        let swept = found.swept();
        let (_, value) = swept.xattrs().get(index).ok_or_else(beyond)?;
        // Values are never changed, so they stay where they are.
        xattr.write(Xattr { name: name.as_ptr(), value: value.as_ptr().cast(), size: value.len() });
        Ok(())
    })
}
