//! What a sweep is told to do.

use std::{path::PathBuf, sync::Arc};

use crate::{filter::Filter, order::Order, progress::Observer};

/// Which entries of a tree are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Entries {
    /// Regular files alone.
    #[default]
    Files,
    /// Everything: directories (before what is in them, and once more when they are complete), links, special files.
    All,
}

/// What happens to the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CachePolicy {
    /// It is left as it was found: what was cached stays, what the sweep brings in is dropped.
    #[default]
    Untouched,
    /// The files are brought in and stay.
    Fill,
}

/// How files wait for their fragments (DAFT II.C): the batch threshold S in bytes, between the paper's two algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reassembly {
    /// S = 0: dynamic bin packing; a file that doesn't fit waits for the next pass over the disk.
    FirstFit,
    /// S = the budget: when a file doesn't fit, all waiting files are completed first.
    #[default]
    OnDemand,
    /// S in bytes.
    Threshold(u64),
}

/// How fragments become read requests, by the DAFT paper's names.
pub use crate::plan::Strategy;

/// All settings of a sweep; [`crate::BulkRead`] has a method for each.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) base: Option<PathBuf>,
    pub(crate) budget: u64,
    pub(crate) large: Option<u64>,
    pub(crate) catalog_limit: Option<u64>,
    pub(crate) order: Order,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) reassembly: Reassembly,
    pub(crate) device: bool,
    pub(crate) one_file_system: bool,
    pub(crate) follow_roots: bool,
    pub(crate) filter: Filter,
    pub(crate) gitignore: bool,
    pub(crate) entries: Entries,
    pub(crate) xattrs: bool,
    pub(crate) content: bool,
    pub(crate) cache: CachePolicy,
    pub(crate) bwlimit: Option<u64>,
    pub(crate) idle: bool,
    pub(crate) queue_depth: usize,
    pub(crate) gap: Option<u64>,
    pub(crate) max_request: u64,
    pub(crate) disk_model: crate::plan::DiskModel,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) cancel: crate::progress::Cancel,
}
