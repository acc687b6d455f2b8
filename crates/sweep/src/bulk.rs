//! [`BulkRead`]: walk, map, plan, show, run.

use std::{os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use onesweep_layout::tables::Indexes;

use crate::{
    catalogue::CatalogueSize,
    coordinator::{self, Prepared},
    directories::{LaidDirectory, ReaderOrder},
    error::{FileError, SweepError},
    files::Files,
    filter::Filter,
    item::{Marks, SweptFile},
    order::Order,
    plan::{DiskModel, Estimate},
    progress::{Cancel, Observer},
    settings::{CachePolicy, Entries, MetadataSource, OpenRoot, Reassembly, Settings, Strategy},
    summary::Summary,
};

/// A bulk read that is being described (DAFT's `BulkFileRead`).
///
/// Reading needs no privilege beyond those that opening the files needs; [`BulkRead::device`] does.
#[derive(Clone)]
pub struct BulkRead {
    settings: Settings,
}

impl BulkRead {
    /// The budget unless told otherwise: 256 MiB.
    pub const BUDGET: u64 = crate::settings::BUDGET;

    /// A bulk read of the named files and directories, with all that lies below them.
    pub fn new<P: Into<PathBuf>>(roots: impl IntoIterator<Item = P>) -> Self {
        Self { settings: Settings::new(roots.into_iter().map(Into::into).collect()) }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Other files and directories instead of those that were named before: one description serves several reads.
    pub fn roots<P: Into<PathBuf>>(self, roots: impl IntoIterator<Item = P>) -> Self {
        self.with(|settings| settings.roots = roots.into_iter().map(Into::into).collect())
    }

    /// Adds open files and directories, each with the path that it is shown by. A directory is read whatever it is called by
    /// now, or if it has no name any more; a file must be there by the name that the kernel knows of it. Images are files like
    /// all others here.
    ///
    /// Descriptors are kept until the sweep ends.
    pub fn open_roots<P: Into<PathBuf>>(self, roots: impl IntoIterator<Item = (P, OwnedFd)>) -> Self {
        let open = roots.into_iter().map(|(shown, fd)| OpenRoot { shown: shown.into(), fd: Arc::new(fd) });
        self.with(|settings| settings.open_roots.extend(open))
    }

    /// The directory that relative roots are looked up in (`tar -C`). Default: the current one.
    pub fn base(self, directory: impl Into<PathBuf>) -> Self {
        self.with(|settings| settings.base = Some(directory.into()))
    }

    /// Bytes that files in memory may hold, over all spindles. Default [`BulkRead::BUDGET`]; at least 64 KiB.
    pub fn budget(self, bytes: u64) -> Self {
        self.with(|settings| settings.budget = bytes)
    }

    /// Files over this size are streamed after the sweep. Default: a quarter of the budget.
    pub fn large(self, bytes: u64) -> Self {
        self.with(|settings| settings.large = Some(bytes))
    }

    /// Memory for names and fragments; a larger tree is swept by windows. Default: an eighth of the memory.
    pub fn catalog_limit(self, bytes: u64) -> Self {
        self.with(|settings| settings.catalog_limit = Some(bytes))
    }

    /// The order of reading.
    pub fn order(self, order: Order) -> Self {
        self.with(|settings| settings.order = order)
    }

    /// How fragments become requests. Default: `Merged` in device mode, else `Unmerged`.
    pub fn strategy(self, strategy: Strategy) -> Self {
        self.with(|settings| settings.strategy = Some(strategy))
    }

    /// How files wait for their fragments.
    pub fn reassembly(self, reassembly: Reassembly) -> Self {
        self.with(|settings| settings.reassembly = reassembly)
    }

    /// Reads the block device itself. Needs read access to it, and Linux 6.5.
    ///
    /// Each file is checked afterwards and read again through the file system when it might have changed.
    pub fn device(self, yes: bool) -> Self {
        self.with(|settings| settings.device = yes)
    }

    /// Sweeps everything as it is at one moment: by a snapshot (btrfs, LVM), which is removed in the end, or by holding all
    /// writers of a file system until the plan stands (at most [`BulkRead::freeze_limit`]). Names, attributes and places
    /// are those of that moment then; files that are written after it come as they are when they are read.
    ///
    /// Needs root. The observer is told of what can't be part of it ([`crate::Progress::Remark`]). A plan that is made holds
    /// its snapshots until it is dropped.
    pub fn snapshot(self, yes: bool) -> Self {
        self.with(|settings| settings.snapshot = yes)
    }

    /// The longest that writers are held. Default 30 s. A plan that takes longer is still carried out, with
    /// [`FileError::NotOneMoment`] among its items.
    pub fn freeze_limit(self, limit: Duration) -> Self {
        self.with(|settings| settings.freeze_limit = limit)
    }

    /// Adds paths that somebody writes to while the sweep runs, and who would wait for himself if their file system were
    /// frozen: that is refused then. They need not exist.
    pub fn writes_to<P: Into<PathBuf>>(self, paths: impl IntoIterator<Item = P>) -> Self {
        self.with(|settings| settings.writes_to.extend(paths.into_iter().map(Into::into)))
    }

    /// Stays on the file systems of the roots.
    pub fn one_file_system(self, yes: bool) -> Self {
        self.with(|settings| settings.one_file_system = yes)
    }

    /// Follows symbolic links that are named as roots.
    pub fn follow_roots(self, yes: bool) -> Self {
        self.with(|settings| settings.follow_roots = yes)
    }

    /// Leaves out what the filter excludes.
    pub fn filter(self, filter: Filter) -> Self {
        self.with(|settings| settings.filter = filter)
    }

    /// Leaves out what `.gitignore` and `.ignore` files name.
    pub fn gitignore(self, yes: bool) -> Self {
        self.with(|settings| settings.gitignore = yes)
    }

    /// Which entries are handed over.
    pub fn entries(self, entries: Entries) -> Self {
        self.with(|settings| settings.entries = entries)
    }

    /// Takes the roots as they are: a directory is one entry, without what lies below it (`tar --no-recursion`).
    pub fn no_recursion(self, yes: bool) -> Self {
        self.with(|settings| settings.no_recursion = yes)
    }

    /// Reads extended attributes at delivery.
    pub fn xattrs(self, yes: bool) -> Self {
        self.with(|settings| settings.xattrs = yes)
    }

    /// Reads content. Without it, files come with their metadata alone, in the order in which they would be read.
    pub fn content(self, yes: bool) -> Self {
        self.with(|settings| settings.content = yes)
    }

    /// Whether names in an image are held against indexes that nothing else needs; where that is cheap, unless it is said otherwise,
    /// and never without content.
    pub fn indexes(self, indexes: Indexes) -> Self {
        self.with(|settings| settings.indexes = indexes)
    }

    /// What happens to the page cache.
    pub fn cache(self, policy: CachePolicy) -> Self {
        self.with(|settings| settings.cache = policy)
    }

    /// Has each file tell whether all of it was in the page cache before it was read ([`crate::SweptFile::was_cached`]), with
    /// [`CachePolicy::Fill`]. Of files that the caller neither owns nor may write the kernel doesn't tell that: their bytes are tried, each when its turn
    /// comes, so that fewer reads go together.
    pub fn notes_cached(self, yes: bool) -> Self {
        self.with(|settings| settings.notes_cached = yes)
    }

    /// Plans as if nothing were cached: cached files are mapped and read from the disk like all others.
    pub fn ignore_cache(self, yes: bool) -> Self {
        self.with(|settings| settings.ignore_cache = yes)
    }

    /// Learns where files lie also for orders that don't need to know it.
    pub fn addresses(self, yes: bool) -> Self {
        self.with(|settings| settings.addresses = yes)
    }

    /// Where names and places of files come from. Default: from a walk. With [`MetadataSource::Auto`] a path may name an image
    /// or a device that isn't mounted (`disk.img`, `/dev/sdb1`), a partition of it (`disk.img@2`), or a directory or file
    /// inside (`disk.img:/home`): what is in it is swept then.
    pub fn metadata(self, source: MetadataSource) -> Self {
        self.with(|settings| settings.metadata = source)
    }

    /// Reads images of NTFS that were not closed, too: what was written last may be missing or half there, and
    /// [`SweptFile::marks`](crate::SweptFile::marks) says so of each file.
    pub fn force_dirty(self, yes: bool) -> Self {
        self.with(|settings| settings.image_options.force_dirty = yes)
    }

    /// Where an XFS among the images has its realtime device (`mkfs.xfs -r rtdev=`): another image or device, or a partition of
    /// one. Without it, the files there are told, and have no content that could be read. One for all images: those without such
    /// a device take no notice.
    pub fn rtdev(self, device: impl Into<PathBuf>) -> Self {
        self.with(|settings| settings.image_options.rtdev = Some(device.into()))
    }

    /// Where an XFS among the images has its log, when that is not in it (`mkfs.xfs -l logdev=`): another image or device, or a
    /// partition of one (`log.img@2`), as seen from the current directory. It is only asked whether the XFS was unmounted;
    /// images that have all of their log are read without.
    pub fn logdev(self, device: impl Into<PathBuf>) -> Self {
        self.with(|settings| settings.image_options.logdev = Some(device.into()))
    }

    /// Of images, what is in use but has no name (files that were open when the image was taken, what lay below a damaged
    /// directory) comes too, below `lost` by inode number.
    pub fn lost(self, yes: bool) -> Self {
        self.with(|settings| settings.lost = yes)
    }

    /// Reads at most so many bytes a second.
    pub fn bwlimit(self, bytes_per_second: u64) -> Self {
        self.with(|settings| settings.bwlimit = Some(bytes_per_second))
    }

    /// Reads in the idle I/O class. Needs no privilege; only BFQ and mq-deadline heed it. Files that are streamed are read
    /// by the consumer's thread, and in its class.
    pub fn idle(self, yes: bool) -> Self {
        self.with(|settings| settings.idle = yes)
    }

    /// Requests in flight for each disk. Default 16. On disks that seek, those that lie directly behind each other count as one, up to
    /// 512 KiB or 32 of them, and become one request of the disk; with a depth of 1, each is read alone.
    pub fn queue_depth(self, requests: usize) -> Self {
        self.with(|settings| settings.queue_depth = requests)
    }

    /// Keeps a single request in flight for each spindle, so that files are handed over in the very order of the plan; else
    /// what the disk has first comes first. With [`Order::Directory`] and a single root on one file system, the same tree
    /// then gives the same items in the same order each time.
    pub fn one_at_a_time(self, yes: bool) -> Self {
        self.with(|settings| settings.one_at_a_time = yes)
    }

    /// Hands requests to the kernel [`queue_depth`](Self::queue_depth) at a time, each batch when the last one is over, so that
    /// those of different files that lie side by side become one request of the disk. The disk may wait between two batches.
    pub fn in_batches(self, yes: bool) -> Self {
        self.with(|settings| settings.in_batches = yes)
    }

    /// Gaps up to so many bytes are read through (`Merged`). Default: the disk model's break-even gap.
    pub fn gap(self, bytes: u64) -> Self {
        self.with(|settings| settings.gap = Some(bytes))
    }

    /// The largest request in bytes. Default 4 MiB.
    pub fn max_request(self, bytes: u64) -> Self {
        self.with(|settings| settings.max_request = bytes)
    }

    /// The disk that times are predicted for.
    pub fn disk_model(self, model: DiskModel) -> Self {
        self.with(|settings| settings.disk_model = model)
    }

    /// Is told of progress.
    pub fn observer(self, observer: impl Observer + 'static) -> Self {
        self.with(|settings| settings.observer = Some(Arc::new(observer)))
    }

    /// Stops the sweep when thrown.
    pub fn cancel(self, cancel: Cancel) -> Self {
        self.with(|settings| settings.cancel = cancel)
    }

    /// Walks, maps and plans; reads no content. With a catalogue limit, the plan is that of the first window.
    ///
    /// # Errors
    ///
    /// No path was named or none is there; settings contradict each other; a named path can't be read from its device;
    /// the system refuses something. Everything else is an item of the sweep, see [`Sweep::errors`].
    pub fn plan(self) -> Result<Sweep, SweepError> {
        Ok(Sweep { prepared: coordinator::prepare(self.settings)? })
    }

    /// Walks, maps, plans and reads in one go. Cached files are handed over on their first open, so this is the
    /// quicker way when nobody wants to see the plan.
    ///
    /// # Errors
    ///
    /// As of [`BulkRead::plan`].
    pub fn start(self) -> Result<Files, SweepError> {
        coordinator::start(self.settings)
    }

    /// [`BulkRead::start`], with every item given to `each` on this thread: DAFT's `BulkFileRead` (II.A). `each` returns
    /// false to stop. A file that fails is an item, too.
    ///
    /// # Errors
    ///
    /// As of [`BulkRead::plan`].
    pub fn run(self, each: impl FnMut(Result<SweptFile, FileError>) -> bool) -> Result<Summary, SweepError> {
        Ok(self.start()?.run(each))
    }

    /// [`BulkRead::start`], with items given to `each` on `threads` threads, for consumers that need the CPU.
    ///
    /// # Errors
    ///
    /// As of [`BulkRead::plan`].
    pub fn run_parallel(
        self,
        threads: usize,
        each: impl Fn(Result<SweptFile, FileError>) -> bool + Send + Sync,
    ) -> Result<Summary, SweepError> {
        Ok(self.start()?.run_parallel(threads, each))
    }
}

/// A planned sweep: to be looked at, then run.
pub struct Sweep {
    prepared: Prepared,
}

/// The plan of one disk.
#[derive(Debug, Clone)]
pub struct DiskPlan {
    /// The disks below, by their kernel names, joined with `+`.
    pub disk: String,
    /// The order that was chosen (never `Auto`).
    pub order: Order,
    /// Why the order is not by fragment, when the addresses mean nothing or the disk has no seeks.
    pub remark: Option<String>,
    /// What the plan costs.
    pub estimate: Estimate,
}

/// One file of a plan, in the order of reading.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    /// The path.
    pub path: PathBuf,
    /// The disk, by its kernel name.
    pub disk: String,
    /// The device address that gives it its place, in bytes, if known: that of its first block in the orders by first
    /// extent, else the lowest of its data.
    pub address: Option<u64>,
    /// Fragments.
    pub fragments: u32,
    /// Bytes.
    pub size: u64,
    /// What is to be known of it before it is believed.
    pub marks: Marks,
}

impl Sweep {
    /// All disks together: they work side by side, so the time is that of the slowest.
    pub fn estimate(&self) -> Estimate {
        let each: Vec<Estimate> = self.disks().into_iter().map(|disk| disk.estimate).collect();
        coordinator::side_by_side(&each)
    }

    /// Disk by disk.
    pub fn disks(&self) -> Vec<DiskPlan> {
        self.prepared
            .sweeps
            .iter()
            .map(|sweep| DiskPlan {
                disk: sweep.name.clone(),
                order: sweep.order,
                remark: sweep.remark.clone(),
                estimate: sweep.estimate_planned(sweep.order, sweep.strategy()),
            })
            .collect()
    }

    /// What the same files would cost under another order and strategy.
    ///
    /// `Merged` is what device mode would cost, also where the sweep goes through the file system.
    pub fn estimate_with(&self, order: Order, strategy: Strategy) -> Estimate {
        let each: Vec<Estimate> =
            self.prepared.sweeps.iter().map(|sweep| sweep.estimate_planned(order, strategy)).collect();
        coordinator::side_by_side(&each)
    }

    /// Entries (files and, when asked for, all others) in the order in which they will be read.
    pub fn files(&self) -> impl Iterator<Item = PlannedFile> + '_ {
        self.prepared.sweeps.iter().flat_map(|sweep| sweep.planned_files())
    }

    /// The files of the plan directory by directory, each in the order in which another program would read it. Where files
    /// lie is known when the plan was made with [`BulkRead::addresses`], and of cached ones with [`BulkRead::ignore_cache`].
    ///
    /// Each inode comes once. Takes memory for the list of files, and for one directory at a time.
    pub fn directories(&self, order: ReaderOrder) -> impl Iterator<Item = LaidDirectory> + '_ {
        self.prepared.sweeps.iter().flat_map(move |sweep| sweep.laid_directories(order))
    }

    /// How much memory is kept of the tree, on all disks together.
    pub fn catalogue_size(&self) -> CatalogueSize {
        self.prepared.sweeps.iter().map(|sweep| sweep.catalogue.size()).fold(CatalogueSize::default(), |sum, size| {
            CatalogueSize {
                entries: sum.entries + size.entries,
                name_bytes: sum.name_bytes + size.name_bytes,
                fragments: sum.fragments + size.fragments,
                bytes: sum.bytes + size.bytes,
            }
        })
    }

    /// Errors met while walking and mapping, which [`Sweep::run`] will hand over too.
    pub fn errors(&self) -> impl Iterator<Item = &FileError> {
        self.prepared.errors.iter().chain(self.prepared.sweeps.iter().flat_map(|sweep| &sweep.held.errors))
    }

    /// True when the tree didn't fit the catalogue limit, so that this is its first window only.
    pub fn is_partial(&self) -> bool {
        self.prepared.sweeps.iter().any(|sweep| !sweep.is_finished())
    }

    /// Reads. One thread for each disk; the items come through the iterator.
    ///
    /// # Errors
    ///
    /// A thread can't be started.
    pub fn run(self) -> Result<Files, SweepError> {
        coordinator::run(self.prepared)
    }
}
