//! What a sweep is told to do.

use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

use onesweep::{
    BulkRead, CachePolicy, Cancel as Switch, DiskModel, Entries, Filter, MetadataSource, Order, Reassembly, Strategy,
};

use crate::{
    cancel::Cancel,
    fault::{Code, Fault, guarded, look},
    ffi::{User, given, path, text},
    progress::{self, ProgressCallback},
};

/// Flag: reads the block device itself and checks each file afterwards. Needs read access to the device, and Linux 6.5.
pub const ONESWEEP_DEVICE: u32 = 1 << 0;
/// Flag: sweeps everything as it is at one moment, by a snapshot (btrfs, LVM) or by holding all writers until the plan stands.
/// Needs root.
pub const ONESWEEP_SNAPSHOT: u32 = 1 << 1;
/// Flag: stays on the file systems of the named paths.
pub const ONESWEEP_ONE_FILE_SYSTEM: u32 = 1 << 2;
/// Flag: follows symbolic links that are named. Those below are never followed.
pub const ONESWEEP_FOLLOW_ROOTS: u32 = 1 << 3;
/// Flag: leaves out what `.gitignore` and `.ignore` files name.
pub const ONESWEEP_GITIGNORE: u32 = 1 << 4;
/// Flag: takes named directories as they are, without what lies below.
pub const ONESWEEP_NO_RECURSION: u32 = 1 << 5;
/// Flag: reads extended attributes.
pub const ONESWEEP_XATTRS: u32 = 1 << 6;
/// Flag: plans as if nothing were cached.
pub const ONESWEEP_IGNORE_CACHE: u32 = 1 << 7;
/// Flag: learns where files lie also for orders that need not know.
pub const ONESWEEP_ADDRESSES: u32 = 1 << 8;
/// Flag: reads images of NTFS that were not closed, too; their files have ONESWEEP_FILE_DIRTY.
pub const ONESWEEP_FORCE_DIRTY: u32 = 1 << 9;
/// Flag: of images, what is in use but has no name comes too, below `lost`.
pub const ONESWEEP_LOST: u32 = 1 << 10;
/// Flag: reads in the idle I/O class.
pub const ONESWEEP_IDLE: u32 = 1 << 11;
/// Flag: keeps one request in flight, so that files come in the very order of the plan.
pub const ONESWEEP_ONE_AT_A_TIME: u32 = 1 << 12;
/// Flag: hands requests to the kernel a whole queue at a time.
pub const ONESWEEP_IN_BATCHES: u32 = 1 << 13;

const ALL_FLAGS: u32 = (1 << 14) - 1;

/// Order: by fragment, unless every disk below is known to have no seeks; the default.
pub const ONESWEEP_ORDER_AUTO: u32 = 0;
/// Order: all fragments of all files by their place on the device.
pub const ONESWEEP_ORDER_FRAGMENT: u32 = 1;
/// Order: whole files by their first block.
pub const ONESWEEP_ORDER_FIRST_EXTENT: u32 = 2;
/// Order: whole files by inode number.
pub const ONESWEEP_ORDER_INODE: u32 = 3;
/// Order: by inode number, one directory after the other.
pub const ONESWEEP_ORDER_INODE_PER_DIRECTORY: u32 = 4;
/// Order: by first block, one directory after the other.
pub const ONESWEEP_ORDER_FIRST_EXTENT_PER_DIRECTORY: u32 = 5;
/// Order: as the directories list them.
pub const ONESWEEP_ORDER_DIRECTORY: u32 = 6;

/// Strategy: that of the way of reading, the default: merged for devices and images, else unmerged.
pub const ONESWEEP_STRATEGY_AUTO: u32 = 0;
/// Strategy: each fragment is a request, bytes that files share are read once (the paper's DAFTNM).
pub const ONESWEEP_STRATEGY_UNMERGED: u32 = 1;
/// Strategy: near fragments are one request, and the gap is read through (the paper's DAFTM). For devices.
pub const ONESWEEP_STRATEGY_MERGED: u32 = 2;
/// Strategy: each fragment is a request, for each file that has it: as files are read without a plan.
pub const ONESWEEP_STRATEGY_VANILLA: u32 = 3;

/// Reassembly: what fits the budget, the default.
pub const ONESWEEP_REASSEMBLY_AUTO: u32 = 0;
/// Reassembly: dynamic bin packing; what doesn't fit waits for the next pass.
pub const ONESWEEP_REASSEMBLY_FIRST_FIT: u32 = 1;
/// Reassembly: when a file doesn't fit, all that wait are completed first.
pub const ONESWEEP_REASSEMBLY_ON_DEMAND: u32 = 2;
/// Reassembly: the batch threshold S between both, in bytes.
pub const ONESWEEP_REASSEMBLY_THRESHOLD: u32 = 3;
/// Reassembly: files that would hold much memory for long are left to a second pass.
pub const ONESWEEP_REASSEMBLY_DEFERRED: u32 = 4;

/// Entries: regular files, the default.
pub const ONESWEEP_ENTRIES_FILES: u32 = 0;
/// Entries: everything. Directories come before what is in them, and once more when they are complete
/// (ONESWEEP_FILE_CLOSING).
pub const ONESWEEP_ENTRIES_ALL: u32 = 1;

/// Page cache: left as it was found, the default.
pub const ONESWEEP_CACHE_UNTOUCHED: u32 = 0;
/// Page cache: files are brought in and stay.
pub const ONESWEEP_CACHE_FILL: u32 = 1;

/// Names and places: from a walk, the default; an image is a file like any other.
pub const ONESWEEP_METADATA_WALK: u32 = 0;
/// Names and places: from the tables, for images and devices that aren't mounted (`disk.img`, `disk.img@2`, `disk.img:/home`).
pub const ONESWEEP_METADATA_AUTO: u32 = 1;
/// Names and places: from the tables, or it is an error.
pub const ONESWEEP_METADATA_TABLES: u32 = 2;

/// Threads that call back, at most.
const THREADS_MAX: usize = 1024;

/// What sweeps are told to do. One of them serves any number of calls, in several threads too; it may be changed and freed when no
/// call that got it is left. A plan that was made with it has all it needs.
#[derive(Clone)]
pub struct Options {
    pub(crate) read: BulkRead,
    pub(crate) filter: Filter,
    pub(crate) disk: DiskModel,
    /// `None` is that of the way of reading.
    pub(crate) strategy: Option<Strategy>,
    pub(crate) threads: usize,
    pub(crate) cancel: Switch,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read: BulkRead::new(std::iter::empty::<&str>()),
            filter: Filter::new(),
            disk: DiskModel::default(),
            strategy: None,
            threads: 1,
            cancel: Switch::new(),
        }
    }
}

impl Options {
    fn change(&mut self, change: impl FnOnce(BulkRead) -> BulkRead) {
        self.read = change(self.read.clone());
    }

    /// A read of its own, with a switch of its own below that of the caller.
    pub(crate) fn begin(&self) -> (BulkRead, Switch) {
        let cancel = self.cancel.below();
        let read = self.read.clone().filter(self.filter.clone()).cancel(cancel.clone());
        (self.strategy.into_iter().fold(read, BulkRead::strategy), cancel)
    }
}

/// Changes options, which may not be NULL.
fn set(options: Option<&mut Options>, change: impl FnOnce(&mut Options) -> Result<(), Fault>) -> Code {
    guarded(|| change(given(options, "options")?))
}

fn set_read(options: Option<&mut Options>, change: impl FnOnce(BulkRead) -> BulkRead) -> Code {
    set(options, |options| {
        options.change(change);
        Ok(())
    })
}

fn unknown<T>(what: &str, value: u32) -> Result<T, Fault> {
    Err(Fault::argument(format!("{what} {value} is unknown")))
}

pub(crate) fn order(value: u32) -> Result<Order, Fault> {
    Ok(match value {
        ONESWEEP_ORDER_AUTO => Order::Auto,
        ONESWEEP_ORDER_FRAGMENT => Order::Fragment,
        ONESWEEP_ORDER_FIRST_EXTENT => Order::FirstExtent,
        ONESWEEP_ORDER_INODE => Order::Inode,
        ONESWEEP_ORDER_INODE_PER_DIRECTORY => Order::InodePerDirectory,
        ONESWEEP_ORDER_FIRST_EXTENT_PER_DIRECTORY => Order::FirstExtentPerDirectory,
        ONESWEEP_ORDER_DIRECTORY => Order::Directory,
        _ => return unknown("order", value),
    })
}

pub(crate) fn number_of_order(order: Order) -> u32 {
    match order {
        Order::Auto => ONESWEEP_ORDER_AUTO,
        Order::Fragment => ONESWEEP_ORDER_FRAGMENT,
        Order::FirstExtent => ONESWEEP_ORDER_FIRST_EXTENT,
        Order::Inode => ONESWEEP_ORDER_INODE,
        Order::InodePerDirectory => ONESWEEP_ORDER_INODE_PER_DIRECTORY,
        Order::FirstExtentPerDirectory => ONESWEEP_ORDER_FIRST_EXTENT_PER_DIRECTORY,
        Order::Directory => ONESWEEP_ORDER_DIRECTORY,
    }
}

/// `None` is that of the way of reading.
pub(crate) fn strategy(value: u32) -> Result<Option<Strategy>, Fault> {
    Ok(match value {
        ONESWEEP_STRATEGY_AUTO => None,
        ONESWEEP_STRATEGY_UNMERGED => Some(Strategy::Unmerged),
        ONESWEEP_STRATEGY_MERGED => Some(Strategy::Merged),
        ONESWEEP_STRATEGY_VANILLA => Some(Strategy::Vanilla),
        _ => return unknown("strategy", value),
    })
}

/// Makes options with all defaults. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_new() -> *mut Options {
    look(std::ptr::null_mut(), || Box::into_raw(Box::new(Options::default())))
}

/// Frees options. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_free(options: Option<Box<Options>>) {
    look((), || drop(options));
}

/// Sets all flags: ONESWEEP_DEVICE and those after it, joined with `|`. Those left out are cleared. Default 0.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_flags(options: Option<&mut Options>, flags: u32) -> Code {
    set(options, |options| {
        if flags & !ALL_FLAGS != 0 {
            return unknown("flag", flags & !ALL_FLAGS);
        }
        let has = |flag: u32| flags & flag != 0;
        options.change(|read| {
            read.device(has(ONESWEEP_DEVICE))
                .snapshot(has(ONESWEEP_SNAPSHOT))
                .one_file_system(has(ONESWEEP_ONE_FILE_SYSTEM))
                .follow_roots(has(ONESWEEP_FOLLOW_ROOTS))
                .gitignore(has(ONESWEEP_GITIGNORE))
                .no_recursion(has(ONESWEEP_NO_RECURSION))
                .xattrs(has(ONESWEEP_XATTRS))
                .ignore_cache(has(ONESWEEP_IGNORE_CACHE))
                .addresses(has(ONESWEEP_ADDRESSES))
                .force_dirty(has(ONESWEEP_FORCE_DIRTY))
                .lost(has(ONESWEEP_LOST))
                .idle(has(ONESWEEP_IDLE))
                .one_at_a_time(has(ONESWEEP_ONE_AT_A_TIME))
                .in_batches(has(ONESWEEP_IN_BATCHES))
        });
        Ok(())
    })
}

/// Bytes that files in memory may hold, over all disks. Default 256 MiB, at least 64 KiB.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_budget(options: Option<&mut Options>, bytes: u64) -> Code {
    set_read(options, |read| read.budget(bytes))
}

/// Files over so many bytes are not put together in memory but streamed (`onesweep_file_pread`). Default: a quarter of the
/// budget.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_large(options: Option<&mut Options>, bytes: u64) -> Code {
    set_read(options, |read| read.large(bytes))
}

/// Bytes for names and places of files; a larger tree is swept part by part. Default: an eighth of the memory.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_catalog_limit(options: Option<&mut Options>, bytes: u64) -> Code {
    set_read(options, |read| read.catalog_limit(bytes))
}

/// The order of reading: one of the ONESWEEP_ORDER_ constants.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_order(options: Option<&mut Options>, order: u32) -> Code {
    set(options, |options| {
        let order = self::order(order)?;
        options.change(|read| read.order(order));
        Ok(())
    })
}

/// How fragments become requests: one of the ONESWEEP_STRATEGY_ constants.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_strategy(options: Option<&mut Options>, strategy: u32) -> Code {
    set(options, |options| {
        options.strategy = self::strategy(strategy)?;
        Ok(())
    })
}

/// How files wait for their fragments: one of the ONESWEEP_REASSEMBLY_ constants. `threshold` is for
/// ONESWEEP_REASSEMBLY_THRESHOLD alone.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_reassembly(
    options: Option<&mut Options>,
    reassembly: u32,
    threshold: u64,
) -> Code {
    set(options, |options| {
        let reassembly = match reassembly {
            ONESWEEP_REASSEMBLY_AUTO => Reassembly::Auto,
            ONESWEEP_REASSEMBLY_FIRST_FIT => Reassembly::FirstFit,
            ONESWEEP_REASSEMBLY_ON_DEMAND => Reassembly::OnDemand,
            ONESWEEP_REASSEMBLY_THRESHOLD => Reassembly::Threshold(threshold),
            ONESWEEP_REASSEMBLY_DEFERRED => Reassembly::Deferred,
            _ => return unknown("reassembly", reassembly),
        };
        options.change(|read| read.reassembly(reassembly));
        Ok(())
    })
}

/// The longest that writers are held by ONESWEEP_SNAPSHOT, in milliseconds. Default 30 s.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_freeze_limit(options: Option<&mut Options>, milliseconds: u64) -> Code {
    set_read(options, |read| read.freeze_limit(Duration::from_millis(milliseconds)))
}

/// Leaves out what matches a pattern, in GNU tar's meaning of `--exclude`. Adds to those before.
///
/// # Safety
///
/// `pattern` is a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_options_add_exclude(options: Option<&mut Options>, pattern: *const c_char) -> Code {
    set(options, |options| {
        // SAFETY: the caller promises it.
        options.filter.exclude(unsafe { text(pattern, "the pattern") }?.to_bytes());
        Ok(())
    })
}

/// Which entries are handed over: ONESWEEP_ENTRIES_FILES or ONESWEEP_ENTRIES_ALL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_entries(options: Option<&mut Options>, entries: u32) -> Code {
    set(options, |options| {
        let entries = match entries {
            ONESWEEP_ENTRIES_FILES => Entries::Files,
            ONESWEEP_ENTRIES_ALL => Entries::All,
            _ => return unknown("choice of entries", entries),
        };
        options.change(|read| read.entries(entries));
        Ok(())
    })
}

/// What happens to the page cache: ONESWEEP_CACHE_UNTOUCHED or ONESWEEP_CACHE_FILL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_cache(options: Option<&mut Options>, policy: u32) -> Code {
    set(options, |options| {
        let policy = match policy {
            ONESWEEP_CACHE_UNTOUCHED => CachePolicy::Untouched,
            ONESWEEP_CACHE_FILL => CachePolicy::Fill,
            _ => return unknown("policy for the page cache", policy),
        };
        options.change(|read| read.cache(policy));
        Ok(())
    })
}

/// Where names and places come from: one of the ONESWEEP_METADATA_ constants.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_metadata(options: Option<&mut Options>, source: u32) -> Code {
    set(options, |options| {
        let source = match source {
            ONESWEEP_METADATA_WALK => MetadataSource::Walk,
            ONESWEEP_METADATA_AUTO => MetadataSource::Auto,
            ONESWEEP_METADATA_TABLES => MetadataSource::Tables,
            _ => return unknown("source of metadata", source),
        };
        options.change(|read| read.metadata(source));
        Ok(())
    })
}

/// Reads at most so many bytes a second. Default: no limit.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_bandwidth_limit(options: Option<&mut Options>, bytes_per_second: u64) -> Code {
    set_read(options, |read| read.bwlimit(bytes_per_second))
}

/// Requests in flight for each disk, 1 to 1024. Default 16.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_queue_depth(options: Option<&mut Options>, requests: usize) -> Code {
    set_read(options, |read| read.queue_depth(requests))
}

/// Gaps of up to so many bytes are read through (ONESWEEP_STRATEGY_MERGED). Default: what costs as much as a seek.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_gap(options: Option<&mut Options>, bytes: u64) -> Code {
    set_read(options, |read| read.gap(bytes))
}

/// The largest request in bytes, a multiple of 64 KiB. Default 4 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_max_request(options: Option<&mut Options>, bytes: u64) -> Code {
    set_read(options, |read| read.max_request(bytes))
}

/// The disk that times are predicted for, by its name (`onesweep plan --help` lists them). Default barracuda-7200.11.
///
/// # Safety
///
/// `name` is a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_options_set_disk_model(options: Option<&mut Options>, name: *const c_char) -> Code {
    set(options, |options| {
        // SAFETY: the caller promises it.
        let name = unsafe { text(name, "the name of the disk model") }?.to_string_lossy();
        let model = DiskModel::named(&name).ok_or_else(|| {
            let names: Vec<_> = DiskModel::names().collect();
            Fault::argument(format!("unknown disk model '{name}'; use one of {}", names.join(", ")))
        })?;
        options.disk = model.clone();
        options.change(|read| read.disk_model(model));
        Ok(())
    })
}

/// The directory that relative paths are looked up in. Default: the current one.
///
/// # Safety
///
/// `directory` is a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_options_set_base(options: Option<&mut Options>, directory: *const c_char) -> Code {
    set(options, |options| {
        // SAFETY: the caller promises it.
        let directory = unsafe { path(directory, "the directory") }?;
        options.change(|read| read.base(directory));
        Ok(())
    })
}

/// Where an XFS among the images has its realtime device (`mkfs.xfs -r rtdev=`): an image, a device, or a partition of one.
/// Default: none; files there have no content that could be read.
///
/// # Safety
///
/// `device` is a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_options_set_rtdev(options: Option<&mut Options>, device: *const c_char) -> Code {
    set(options, |options| {
        // SAFETY: the caller promises it.
        let device = unsafe { path(device, "the realtime device") }?;
        options.change(|read| read.rtdev(device));
        Ok(())
    })
}

/// Where an XFS among the images has its log, when that is not in it (`mkfs.xfs -l logdev=`): an image, a device, or a partition of
/// one. Default: none; such an XFS can't be read.
///
/// # Safety
///
/// `device` is a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onesweep_options_set_logdev(options: Option<&mut Options>, device: *const c_char) -> Code {
    set(options, |options| {
        // SAFETY: the caller promises it.
        let device = unsafe { path(device, "the device with the log") }?;
        options.change(|read| read.logdev(device));
        Ok(())
    })
}

/// How many threads call back, 1 to 1024, for callbacks that need the CPU. With 1, the default, that is the thread that called
/// the library; with more, none of them is.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_threads(options: Option<&mut Options>, threads: usize) -> Code {
    set(options, |options| {
        if threads == 0 || threads > THREADS_MAX {
            return Err(Fault::argument(format!("{threads} threads are out of range; give 1 to {THREADS_MAX}")));
        }
        options.threads = threads;
        Ok(())
    })
}

/// The handle that stops what is called with these options. It may be freed before the options. NULL: none any more.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_cancel(options: Option<&mut Options>, cancel: Option<&Cancel>) -> Code {
    set(options, |options| {
        options.cancel = cancel.map_or_else(Switch::new, |cancel| cancel.switch.clone());
        Ok(())
    })
}

/// Who is told of progress, with `user` for its own use. NULL: nobody any more.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_options_set_progress(
    options: Option<&mut Options>,
    callback: ProgressCallback,
    user: *mut c_void,
) -> Code {
    let user = User(user);
    set(options, |options| {
        options.change(|read| match callback {
            Some(callback) => read.observer(move |event| progress::tell(callback, user, event)),
            None => read.observer(|_| {}),
        });
        Ok(())
    })
}
