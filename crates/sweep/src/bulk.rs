//! [`BulkRead`]: walk, map, plan, show, run.

use std::path::PathBuf;

use crate::{
    error::{FileError, SweepError},
    filter::Filter,
    item::SweptFile,
    order::Order,
    plan::{DiskModel, Estimate},
    progress::{Cancel, Observer},
    settings::{CachePolicy, Entries, Reassembly, Settings, Strategy},
};

/// A bulk read that is being described (DAFT's `BulkFileRead`).
#[derive(Clone)]
pub struct BulkRead {
    settings: Settings,
}

impl BulkRead {
    /// A bulk read of the named files and directories, with all that lies below them.
    pub fn new<P: Into<PathBuf>>(_roots: impl IntoIterator<Item = P>) -> Self {
        unimplemented!()
    }
    /// The directory that relative roots are looked up in (`tar -C`). Default: the current one.
    pub fn base(self, _dir: impl Into<PathBuf>) -> Self {
        unimplemented!()
    }
    /// Bytes that files in memory may hold, over all spindles. Default 256 MiB.
    pub fn budget(self, _bytes: u64) -> Self {
        unimplemented!()
    }
    /// Files over this size are streamed after the sweep. Default: a quarter of the budget.
    pub fn large(self, _bytes: u64) -> Self {
        unimplemented!()
    }
    /// Memory for names and fragments; a larger tree is swept by windows. Default: an eighth of the memory.
    pub fn catalog_limit(self, _bytes: u64) -> Self {
        unimplemented!()
    }
    /// The order of reading.
    pub fn order(self, _order: Order) -> Self {
        unimplemented!()
    }
    /// How fragments become requests. Default: `Merged` in device mode, else `Unmerged`.
    pub fn strategy(self, _strategy: Strategy) -> Self {
        unimplemented!()
    }
    /// How files wait for their fragments.
    pub fn reassembly(self, _reassembly: Reassembly) -> Self {
        unimplemented!()
    }
    /// Reads the block device itself (design decision 2). Needs read access to it.
    pub fn device(self, _yes: bool) -> Self {
        unimplemented!()
    }
    /// Stays on the file systems of the roots.
    pub fn one_file_system(self, _yes: bool) -> Self {
        unimplemented!()
    }
    /// Follows symbolic links that are named as roots.
    pub fn follow_roots(self, _yes: bool) -> Self {
        unimplemented!()
    }
    /// Leaves out what the filter excludes.
    pub fn filter(self, _filter: Filter) -> Self {
        unimplemented!()
    }
    /// Leaves out what `.gitignore` and `.ignore` files name.
    pub fn gitignore(self, _yes: bool) -> Self {
        unimplemented!()
    }
    /// Which entries are handed over.
    pub fn entries(self, _entries: Entries) -> Self {
        unimplemented!()
    }
    /// Reads extended attributes at delivery.
    pub fn xattrs(self, _yes: bool) -> Self {
        unimplemented!()
    }
    /// Reads content. Without it, files come with their metadata alone, in the planned order.
    pub fn content(self, _yes: bool) -> Self {
        unimplemented!()
    }
    /// What happens to the page cache.
    pub fn cache(self, _policy: CachePolicy) -> Self {
        unimplemented!()
    }
    /// Reads at most so many bytes a second.
    pub fn bwlimit(self, _bytes_per_second: u64) -> Self {
        unimplemented!()
    }
    /// Reads in the idle I/O class.
    pub fn idle(self, _yes: bool) -> Self {
        unimplemented!()
    }
    /// Requests in flight for each disk. Default 32.
    pub fn queue_depth(self, _requests: usize) -> Self {
        unimplemented!()
    }
    /// Gaps up to so many bytes are read through (`Merged`). Default: the disk model's break-even gap.
    pub fn gap(self, _bytes: u64) -> Self {
        unimplemented!()
    }
    /// The largest request in bytes. Default 4 MiB.
    pub fn max_request(self, _bytes: u64) -> Self {
        unimplemented!()
    }
    /// The disk that times are predicted for.
    pub fn disk_model(self, _model: DiskModel) -> Self {
        unimplemented!()
    }
    /// Is told of progress.
    pub fn observer(self, _observer: impl Observer + 'static) -> Self {
        unimplemented!()
    }
    /// Stops the sweep when thrown.
    pub fn cancel(self, _cancel: Cancel) -> Self {
        unimplemented!()
    }

    /// Walks, maps and plans; reads no content. With a catalogue limit, the plan is that of the first window.
    pub fn plan(self) -> Result<Sweep, SweepError> {
        let _ = self.settings;
        unimplemented!()
    }

    /// Walks, maps, plans and reads in one go. Cached files are handed over on their first open, so this is the
    /// quicker way when nobody wants to see the plan.
    pub fn start(self) -> Result<Files, SweepError> {
        unimplemented!()
    }

    /// `start()`, with every item given to `each` on this thread. `each` returns false to stop.
    pub fn run(self, _each: impl FnMut(Result<SweptFile, FileError>) -> bool) -> Result<Summary, SweepError> {
        unimplemented!()
    }

    /// `start()`, with items given to `each` on `threads` threads, for consumers that need the CPU.
    pub fn run_parallel(
        self,
        _threads: usize,
        _each: impl Fn(Result<SweptFile, FileError>) -> bool + Send + Sync,
    ) -> Result<Summary, SweepError> {
        unimplemented!()
    }
}

/// A planned sweep: to be looked at, then run.
pub struct Sweep {}

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
    /// Device address of the first fragment in bytes, if known.
    pub address: Option<u64>,
    /// Fragments.
    pub fragments: u32,
    /// Bytes.
    pub size: u64,
}

impl Sweep {
    /// All disks together.
    pub fn estimate(&self) -> Estimate {
        unimplemented!()
    }
    /// Disk by disk.
    pub fn disks(&self) -> Vec<DiskPlan> {
        unimplemented!()
    }
    /// What the same files would cost under another order and strategy.
    pub fn estimate_with(&self, _order: Order, _strategy: Strategy) -> Estimate {
        unimplemented!()
    }
    /// Entries (files and, when asked for, all others) in the order in which they will be read.
    pub fn files(&self) -> Box<dyn Iterator<Item = PlannedFile> + '_> {
        unimplemented!()
    }
    /// Errors met while walking and mapping, which `run` will hand over too.
    pub fn errors(&self) -> Vec<String> {
        unimplemented!()
    }
    /// Entries of the catalogue, errors not counted.
    pub fn entries(&self) -> u64 {
        unimplemented!()
    }
    /// True when the tree didn't fit the catalogue limit, so that this is its first window only.
    pub fn is_partial(&self) -> bool {
        unimplemented!()
    }
    /// Reads. One thread for each disk; the items come through the iterator.
    pub fn run(self) -> Result<Files, SweepError> {
        unimplemented!()
    }
}

/// The items of a running sweep. Dropping it cancels the sweep within one request.
///
/// A slow consumer holds the sweep back: at most the budget is ever waiting here.
pub struct Files {}

impl Files {
    /// What was done so far; complete when the iterator has ended.
    pub fn summary(&self) -> Summary {
        unimplemented!()
    }
}

impl Iterator for Files {
    type Item = Result<SweptFile, FileError>;
    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Regular files delivered.
    pub files: u64,
    /// Entries of other kinds delivered.
    pub others: u64,
    /// Bytes of content delivered.
    pub bytes: u64,
    /// Files that failed, and other error items.
    pub errors: u64,
    /// Files served from the page cache.
    pub cached_files: u64,
    /// Their bytes.
    pub cached_bytes: u64,
    /// Files that were streamed (large, compressed, encrypted).
    pub streamed_files: u64,
    /// Their bytes.
    pub streamed_bytes: u64,
    /// Files read again through the file system because the device read failed its check.
    pub reread_files: u64,
    /// Their bytes.
    pub reread_bytes: u64,
    /// Files without an address, read in inode order.
    pub unmapped_files: u64,
    /// Read requests issued.
    pub requests: u64,
    /// Bytes read from disk for the sweep, gaps included.
    pub bytes_read: u64,
    /// The most that the budget ever held, in bytes.
    pub peak_budget: u64,
    /// Windows (1 unless the catalogue limit cut the tree).
    pub windows: u64,
    /// True when the sweep was cancelled.
    pub cancelled: bool,
}
