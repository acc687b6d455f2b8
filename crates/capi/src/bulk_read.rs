//! Reading and walking: paths or descriptors in, files to a callback.

use std::{
    ffi::{c_char, c_int, c_void},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use onesweep::{BulkRead, Cancel as Switch, Files, Summary};

use crate::{
    fault::{Code, Fault, guarded},
    ffi::{User, descriptor, given, list, path},
    file::File,
    options::Options,
};

/// What a callback returns to get more.
pub const ONESWEEP_CONTINUE: c_int = 0;
/// What a callback returns to end the call, which then gives ONESWEEP_ERROR_CANCELLED. So does anything that isn't 0.
pub const ONESWEEP_STOP: c_int = 1;

/// Takes each file, and each failure: DAFT's CallBackFunction. The handle and all that it gives are valid until the callback
/// returns, unless it is kept (`onesweep_file_keep`) or its bytes are taken over (`onesweep_file_take`).
///
/// A callback may call any function of the library, also to begin another sweep. It must return: no `longjmp`, no exception,
/// no end of the thread.
pub type FileCallback = Option<unsafe extern "C" fn(user: *mut c_void, file: *mut File) -> c_int>;

/// What a sweep did. Whoever calls has the memory for it; it is written when the sweep has begun, also when it ended early.
#[repr(C)]
pub struct Counts {
    /// Regular files handed over.
    pub files: u64,
    /// Entries of other kinds handed over.
    pub others: u64,
    /// Bytes of the files handed over.
    pub bytes: u64,
    /// Failures handed over, but for those that are about memory that the caller keeps.
    pub errors: u64,
    /// Files that came from the page cache.
    pub cached_files: u64,
    /// Their bytes.
    pub cached_bytes: u64,
    /// Files that are streamed.
    pub streamed_files: u64,
    /// Their bytes.
    pub streamed_bytes: u64,
    /// Files read again through the file system.
    pub reread_files: u64,
    /// Their bytes.
    pub reread_bytes: u64,
    /// Of a device: files that went through the file system from the start.
    pub through_files: u64,
    /// Their bytes.
    pub through_bytes: u64,
    /// Files whose place is not known.
    pub unmapped_files: u64,
    /// Files of file systems that were not closed.
    pub dirty_files: u64,
    /// Files that came as they are encrypted on the disk.
    pub encrypted_files: u64,
    /// Read requests.
    pub requests: u64,
    /// Bytes read from disk, gaps included.
    pub bytes_read: u64,
    /// The most that the budget ever held, in bytes.
    pub peak_budget: u64,
    /// Bytes that were taken over.
    pub taken_over_bytes: u64,
    /// Parts that the tree was swept in.
    pub windows: u64,
    /// Whether it ended early.
    pub cancelled: bool,
    /// For later versions; 0.
    pub reserved: [u64; 8],
}

impl Counts {
    fn of(summary: &Summary) -> Self {
        Self {
            files: summary.files,
            others: summary.others,
            bytes: summary.bytes,
            errors: summary.errors,
            cached_files: summary.cached_files,
            cached_bytes: summary.cached_bytes,
            streamed_files: summary.streamed_files,
            streamed_bytes: summary.streamed_bytes,
            reread_files: summary.reread_files,
            reread_bytes: summary.reread_bytes,
            through_files: summary.through_files,
            through_bytes: summary.through_bytes,
            unmapped_files: summary.unmapped_files,
            dirty_files: summary.dirty_files,
            encrypted_files: summary.encrypted_files,
            requests: summary.requests,
            bytes_read: summary.bytes_read,
            peak_budget: summary.peak_budget,
            taken_over_bytes: summary.taken_over_bytes,
            windows: summary.windows,
            cancelled: summary.cancelled,
            reserved: [0; 8],
        }
    }
}

/// What is named by C to be swept.
pub(crate) enum Roots {
    Paths(Vec<PathBuf>),
    Open(Vec<(PathBuf, OwnedFd)>),
}

impl Roots {
    /// # Safety
    ///
    /// There are `count` strings, or none.
    pub(crate) unsafe fn of_paths(paths: *const *const c_char, count: usize) -> Result<Self, Fault> {
        // SAFETY: the caller promises it.
        let paths = unsafe { list(paths, count, "the list of paths") }?;
        // SAFETY: the caller promises it.
        let named = paths.iter().map(|&root| Ok(unsafe { path(root, "a path of the list") }?.to_owned()));
        Ok(Self::Paths(named.collect::<Result<_, Fault>>()?))
    }

    /// # Safety
    ///
    /// There are `count` numbers, or none.
    pub(crate) unsafe fn of_descriptors(fds: *const c_int, count: usize) -> Result<Self, Fault> {
        // SAFETY: the caller promises it.
        let fds = unsafe { list(fds, count, "the list of descriptors") }?;
        let open = fds.iter().map(|&fd| Ok((PathBuf::from(format!("/proc/self/fd/{fd}")), descriptor(fd)?)));
        Ok(Self::Open(open.collect::<Result<_, Fault>>()?))
    }

    /// Names them to a read.
    pub(crate) fn of(self, read: BulkRead) -> BulkRead {
        match self {
            Self::Paths(paths) => read.roots(paths),
            Self::Open(open) => read.open_roots(open),
        }
    }
}

/// C's callback for files, and what it wants to get.
#[derive(Clone, Copy)]
pub(crate) struct Receiver {
    callback: unsafe extern "C" fn(*mut c_void, *mut File) -> c_int,
    user: User,
}

impl Receiver {
    pub(crate) fn new(callback: FileCallback, user: *mut c_void) -> Result<Self, Fault> {
        Ok(Self { callback: given(callback, "the callback")?, user: User(user) })
    }

    /// Gives a file to C; whether C wants more.
    fn give(&self, file: File) -> bool {
        // SAFETY: C's callback, with what C wants it to get; the handle lives until it is back.
        file.lend(|file| unsafe { (self.callback)(self.user.get(), file) } == ONESWEEP_CONTINUE)
    }

    /// Gives everything to C.
    pub(crate) fn receive(
        &self,
        files: Files,
        threads: usize,
        cancel: &Switch,
        counts: Option<&mut MaybeUninit<Counts>>,
    ) -> Result<(), Fault> {
        let stopped = AtomicBool::new(false);
        let each = |item| {
            let goes_on = self.give(File::of(item, cancel));
            stopped.fetch_or(!goes_on, Ordering::Relaxed);
            goes_on
        };
        let summary = if threads == 1 { files.run(each) } else { files.run_parallel(threads, each) };
        if let Some(counts) = counts {
            counts.write(Counts::of(&summary));
        }
        if summary.cancelled || stopped.into_inner() { Err(Fault::cancelled()) } else { Ok(()) }
    }
}

/// Options of C, or the defaults.
pub(crate) fn or_default(options: Option<&Options>) -> std::borrow::Cow<'_, Options> {
    options.map_or_else(|| std::borrow::Cow::Owned(Options::default()), std::borrow::Cow::Borrowed)
}

/// Whether content is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Read,
    Walk,
}

fn sweep(
    task: Task,
    roots: Roots,
    options: Option<&Options>,
    receiver: Receiver,
    counts: Option<&mut MaybeUninit<Counts>>,
) -> Result<(), Fault> {
    let options = or_default(options);
    let (read, cancel) = options.begin();
    let files = roots.of(read).content(task == Task::Read).start()?;
    receiver.receive(files, options.threads, &cancel, counts)
}

/// Reads all named files, and all files below the named directories, in the order of the disk, and gives each to the callback,
/// whole: DAFT's BulkFileRead(FileList, CallBackFunction).
///
/// A file that fails is given to the callback too (`onesweep_file_failure`), and the sweep goes on: the call is ONESWEEP_OK when
/// everything was handed over, failures among it. `options` NULL: the defaults. `counts` may be NULL. Returns when all is
/// done; the callback is called by this thread (see `onesweep_options_set_threads`). Needs the privileges that opening the
/// files needs.
///
/// Errors: ARGUMENT, ROOT, NO_ROOTS, SETTING, DEVICE, SNAPSHOT, SYSTEM; CANCELLED when it ended early.
///
/// # Safety
///
/// `paths` has `path_count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_bulk_read(
    paths: *const *const c_char,
    path_count: usize,
    options: Option<&Options>,
    callback: FileCallback,
    user: *mut c_void,
    counts: Option<&mut MaybeUninit<Counts>>,
) -> Code {
    guarded(|| {
        let receiver = Receiver::new(callback, user)?;
        // SAFETY: the caller promises it.
        let roots = unsafe { Roots::of_paths(paths, path_count) }?;
        sweep(Task::Read, roots, options, receiver, counts)
    })
}

/// The same for open directories and files, which stay the caller's. A directory is read whatever it is called by now; a file
/// must be there by the name that it was opened by, or it fails with ESTALE or ENOENT. Paths begin with
/// `/proc/self/fd/N`, where N is the descriptor as it was given.
///
/// Errors: as of `onesweep_bulk_read`; ARGUMENT with EBADF for what isn't open.
///
/// # Safety
///
/// `fds` has `fd_count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_bulk_read_fd(
    fds: *const c_int,
    fd_count: usize,
    options: Option<&Options>,
    callback: FileCallback,
    user: *mut c_void,
    counts: Option<&mut MaybeUninit<Counts>>,
) -> Code {
    guarded(|| {
        let receiver = Receiver::new(callback, user)?;
        // SAFETY: the caller promises it.
        let roots = unsafe { Roots::of_descriptors(fds, fd_count) }?;
        sweep(Task::Read, roots, options, receiver, counts)
    })
}

/// As `onesweep_bulk_read`, without content: names and attributes, in the order in which files would be read.
/// ONESWEEP_ENTRIES_ALL gives directories and all else, too.
///
/// # Safety
///
/// `paths` has `path_count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_walk(
    paths: *const *const c_char,
    path_count: usize,
    options: Option<&Options>,
    callback: FileCallback,
    user: *mut c_void,
    counts: Option<&mut MaybeUninit<Counts>>,
) -> Code {
    guarded(|| {
        let receiver = Receiver::new(callback, user)?;
        // SAFETY: the caller promises it.
        let roots = unsafe { Roots::of_paths(paths, path_count) }?;
        sweep(Task::Walk, roots, options, receiver, counts)
    })
}

/// As `onesweep_bulk_read_fd`, without content.
///
/// # Safety
///
/// `fds` has `fd_count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_walk_fd(
    fds: *const c_int,
    fd_count: usize,
    options: Option<&Options>,
    callback: FileCallback,
    user: *mut c_void,
    counts: Option<&mut MaybeUninit<Counts>>,
) -> Code {
    guarded(|| {
        let receiver = Receiver::new(callback, user)?;
        // SAFETY: the caller promises it.
        let roots = unsafe { Roots::of_descriptors(fds, fd_count) }?;
        sweep(Task::Walk, roots, options, receiver, counts)
    })
}
