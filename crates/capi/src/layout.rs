//! How files lie, directory by directory.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    mem::MaybeUninit,
};

use onesweep::{LaidDirectory, LaidFigures, LaidSide, Order, ReaderOrder, Strategy};

use crate::{
    bulk_read::{Roots, or_default},
    fault::{Code, Fault, guarded},
    ffi::{User, c_path, c_text, given},
    file::{Failure, Told},
    options::Options,
    plan::each,
};

/// Reader: as `readdir` lists a directory.
pub const ONESWEEP_READER_READDIR: u32 = 0;
/// Reader: by inode number.
pub const ONESWEEP_READER_INODE: u32 = 1;
/// Reader: by name.
pub const ONESWEEP_READER_NAME: u32 = 2;

/// Neighbouring blocks, and those of them that are neighbours on the device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Score {
    /// Pairs that are neighbours on the device.
    pub contiguous: u64,
    /// Pairs.
    pub pairs: u64,
    /// The first by the second, 0 to 1; -1 where there is no pair.
    pub ratio: f64,
}

/// As files lie, or as they would lie packed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LayoutSide {
    /// Runs of blocks.
    pub fragments: u64,
    /// The layout score: how much of each file lies in one piece.
    pub layout: Score,
    /// The dynamic score: how much of what is read one after the other lies side by side.
    pub dynamic: Score,
    /// Seeks of who reads file by file.
    pub seeks: u64,
    /// The time of the disk model for that.
    pub seconds: f64,
}

/// How the files of a directory lie, or those of several. From `blocks` on, files whose place is known count.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Layout {
    /// Files, each inode once.
    pub files: u64,
    /// Those with blocks whose place is known.
    pub placed_files: u64,
    /// Those of them in more than one piece.
    pub fragmented_files: u64,
    /// Compressed files.
    pub compressed_files: u64,
    /// Files whose place is not known.
    pub unknown_files: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// As they lie.
    pub before: LayoutSide,
    /// In one piece each, side by side.
    pub packed: LayoutSide,
    /// For later versions; 0.
    pub reserved: [u64; 4],
}

/// A directory with the files directly in it, or a failure; all valid during the callback.
#[repr(C)]
pub struct Directory {
    /// Its path.
    pub path: *const c_char,
    /// The disks below, by their kernel names. NULL for a failure.
    pub disk: *const c_char,
    /// The device of its file system, by its kernel name. NULL for a failure.
    pub device: *const c_char,
    /// The type of its file system. NULL for a failure.
    pub fs_type: *const c_char,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// How its files lie.
    pub layout: Layout,
    /// Why something could not be looked at; else NULL.
    pub failure: *const Failure,
}

/// Takes each directory, and each failure.
pub type DirectoryCallback = Option<unsafe extern "C" fn(user: *mut c_void, directory: *const Directory) -> c_int>;

impl Score {
    fn of(contiguous: u64, pairs: u64) -> Self {
        Self { contiguous, pairs, ratio: if pairs == 0 { -1.0 } else { contiguous as f64 / pairs as f64 } }
    }
}

impl LayoutSide {
    fn of(side: &LaidSide) -> Self {
        Self {
            fragments: side.fragments,
            layout: Score::of(side.layout.contiguous, side.layout.pairs),
            dynamic: Score::of(side.dynamic.contiguous, side.dynamic.pairs),
            seeks: side.seeks,
            seconds: side.seconds,
        }
    }
}

impl Layout {
    fn of(figures: &LaidFigures) -> Self {
        Self {
            files: figures.files,
            placed_files: figures.placed_files,
            fragmented_files: figures.fragmented_files,
            compressed_files: figures.compressed_files,
            unknown_files: figures.unknown_files,
            blocks: figures.blocks,
            bytes: figures.bytes,
            before: LayoutSide::of(&figures.before),
            packed: LayoutSide::of(&figures.after),
            reserved: [0; 4],
        }
    }
}

/// C's callback for directories.
struct Receiver {
    callback: unsafe extern "C" fn(*mut c_void, *const Directory) -> c_int,
    user: User,
}

impl Receiver {
    fn give(&self, directory: &Directory) -> c_int {
        // SAFETY: C's callback, with what C wants it to get; what the directory points to lives until it returns.
        unsafe { (self.callback)(self.user.get(), directory) }
    }

    fn give_directory(&self, laid: &LaidDirectory, figures: &LaidFigures) -> c_int {
        let path = c_path(&laid.path);
        let [disk, device, fs_type]: [CString; 3] =
            [&laid.disk, &laid.device, &laid.fs_type].map(|name| c_text(name.as_str()));
        self.give(&Directory {
            path: path.as_ptr(),
            disk: disk.as_ptr(),
            device: device.as_ptr(),
            fs_type: fs_type.as_ptr(),
            block_bytes: laid.block_bytes,
            layout: Layout::of(figures),
            failure: std::ptr::null(),
        })
    }

    fn give_failure(&self, told: &Told) -> c_int {
        self.give(&Directory {
            path: told.failure().path,
            disk: std::ptr::null(),
            device: std::ptr::null(),
            fs_type: std::ptr::null(),
            block_bytes: 0,
            layout: Layout::of(&LaidFigures::default()),
            failure: told.failure(),
        })
    }
}

fn look_at(
    roots: Roots,
    options: Option<&Options>,
    reader: u32,
    receiver: &Receiver,
    total: Option<&mut MaybeUninit<Layout>>,
) -> Result<(), Fault> {
    let reader = match reader {
        ONESWEEP_READER_READDIR => ReaderOrder::Readdir,
        ONESWEEP_READER_INODE => ReaderOrder::Inode,
        ONESWEEP_READER_NAME => ReaderOrder::Name,
        _ => return Err(Fault::argument(format!("reader {reader} is unknown"))),
    };
    let options = or_default(options);
    let (read, cancel) = options.begin();
    // What lies in the cache now has its place on the disk all the same. How content would be read doesn't matter.
    let read = read.order(Order::Fragment).strategy(Strategy::Unmerged).device(false);
    let read = read.ignore_cache(true).addresses(true);
    let sweep = roots.of(read).plan()?;
    let mut sum = LaidFigures::default();
    each(sweep.errors(), |error| receiver.give_failure(&Told::of(error)))?;
    each(sweep.directories(reader).take_while(|_| !cancel.is_cancelled()), |laid| {
        let figures = laid.figures(&options.disk);
        sum += &figures;
        receiver.give_directory(&laid, &figures)
    })?;
    if cancel.is_cancelled() {
        return Err(Fault::cancelled());
    }
    if let Some(total) = total {
        total.write(Layout::of(&sum));
    }
    Ok(())
}

/// Tells of each directory of the named paths how the files directly in it lie for who reads them one by one, and how they
/// would lie packed; reads no content. `reader`, one of the ONESWEEP_READER_ constants, is the order in which that one reads.
/// Failures come first. `total` may be NULL; else it gets the sum, unless the call fails. Of the options, those that tell where
/// to look count, and the disk model; a tree larger than the limit of names is looked at in its first part.
///
/// Errors: ARGUMENT, ROOT, NO_ROOTS, SETTING, SNAPSHOT, SYSTEM, CANCELLED.
///
/// # Safety
///
/// `paths` has `path_count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_layout(
    paths: *const *const c_char,
    path_count: usize,
    options: Option<&Options>,
    reader: u32,
    callback: DirectoryCallback,
    user: *mut c_void,
    total: Option<&mut MaybeUninit<Layout>>,
) -> Code {
    guarded(|| {
        let receiver = Receiver { callback: given(callback, "the callback")?, user: User(user) };
        // SAFETY: the caller promises it.
        look_at(unsafe { Roots::of_paths(paths, path_count) }?, options, reader, &receiver, total)
    })
}

/// The same for open directories and files, as of `onesweep_bulk_read_fd`.
///
/// # Safety
///
/// `fds` has `fd_count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_layout_fd(
    fds: *const c_int,
    fd_count: usize,
    options: Option<&Options>,
    reader: u32,
    callback: DirectoryCallback,
    user: *mut c_void,
    total: Option<&mut MaybeUninit<Layout>>,
) -> Code {
    guarded(|| {
        let receiver = Receiver { callback: given(callback, "the callback")?, user: User(user) };
        // SAFETY: the caller promises it.
        look_at(unsafe { Roots::of_descriptors(fds, fd_count) }?, options, reader, &receiver, total)
    })
}
