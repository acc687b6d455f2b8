//! What a sweep is told to do.

use std::{os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use onesweep_layout::{image::ImageOptions, tables::Indexes};

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

/// How files wait for their fragments (DAFT II.C). The paper's two algorithms are both ends of a batch threshold S.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reassembly {
    /// [`Deferred`](Self::Deferred) where the budget is a sixth or more of what a sweep without a limit would hold, else
    /// [`OnDemand`](Self::OnDemand).
    #[default]
    Auto,
    /// S = 0: dynamic bin packing; a file that doesn't fit waits for the next pass over the disk.
    FirstFit,
    /// S = the budget: when a file doesn't fit, all waiting files are completed first.
    OnDemand,
    /// S in bytes.
    Threshold(u64),
    /// Files that would hold much memory for long are left to a second pass, so that the others fit in the first. Not in the
    /// paper.
    Deferred,
}

/// How fragments become read requests, by the DAFT paper's names.
pub(crate) use crate::plan::Strategy;

/// A root that the caller has opened.
#[derive(Clone)]
pub(crate) struct OpenRoot {
    pub(crate) shown: PathBuf,
    pub(crate) fd: Arc<OwnedFd>,
}

/// All settings of a sweep; [`crate::BulkRead`] has a method for each.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) open_roots: Vec<OpenRoot>,
    pub(crate) metadata: MetadataSource,
    pub(crate) image_options: ImageOptions,
    pub(crate) lost: bool,
    pub(crate) base: Option<PathBuf>,
    pub(crate) budget: u64,
    pub(crate) large: Option<u64>,
    pub(crate) catalog_limit: Option<u64>,
    pub(crate) order: Order,
    pub(crate) strategy: Option<Strategy>,
    pub(crate) reassembly: Reassembly,
    pub(crate) device: bool,
    pub(crate) snapshot: bool,
    /// The longest that a file system is frozen.
    pub(crate) freeze_limit: Duration,
    /// What is written while the sweep runs.
    pub(crate) writes_to: Vec<PathBuf>,
    pub(crate) one_file_system: bool,
    pub(crate) follow_roots: bool,
    pub(crate) filter: Filter,
    pub(crate) gitignore: bool,
    pub(crate) no_recursion: bool,
    pub(crate) entries: Entries,
    pub(crate) xattrs: bool,
    pub(crate) content: bool,
    pub(crate) indexes: Indexes,
    pub(crate) ignore_cache: bool,
    pub(crate) addresses: bool,
    pub(crate) cache: CachePolicy,
    pub(crate) notes_cached: bool,
    pub(crate) bwlimit: Option<u64>,
    pub(crate) idle: bool,
    pub(crate) queue_depth: usize,
    pub(crate) one_at_a_time: bool,
    pub(crate) in_batches: bool,
    pub(crate) gap: Option<u64>,
    pub(crate) max_request: u64,
    pub(crate) disk_model: crate::plan::DiskModel,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) cancel: crate::progress::Cancel,
}

/// Where names and places of files come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MetadataSource {
    /// By a walk: a named image is a file like any other.
    #[default]
    Walk,
    /// From the tables, for images and for devices that aren't mounted; by a walk elsewhere.
    Auto,
    /// From the tables, or it is an error: as `Auto`; of a mounted ext2, ext3, ext4, XFS or btrfs they are read before it is
    /// walked, so that the walk finds all in memory. (Without this that is done where it gains: where the whole of one on a disk that
    /// seeks is swept and not in memory, by root.)
    Tables,
}

impl std::str::FromStr for MetadataSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "walk" => Ok(Self::Walk),
            "auto" => Ok(Self::Auto),
            "tables" => Ok(Self::Tables),
            _ => Err(format!("unknown source of metadata '{text}'; use auto, walk or tables")),
        }
    }
}

/// The longest that writers are held: beyond, programs take the file system for hung.
const FREEZE_LIMIT: Duration = Duration::from_secs(30);

/// Default budget.
pub(crate) const BUDGET: u64 = 256 << 20;

/// The smallest budget: a few files must fit side by side.
pub(crate) const BUDGET_MIN: u64 = 64 << 10;

/// Default queue depth for each disk. Drives take 32 (NCQ), but then leave stragglers behind when requests are sorted.
const QUEUE_DEPTH: usize = 16;

impl Settings {
    /// Whether it is to be learned where the data of each file lies.
    pub(crate) fn needs_layout(&self, order: Order) -> bool {
        self.addresses || self.device || order.needs_layout()
    }

    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        Self {
            roots,
            open_roots: Vec::new(),
            metadata: MetadataSource::Walk,
            image_options: ImageOptions::default(),
            lost: false,
            base: None,
            budget: BUDGET,
            large: None,
            catalog_limit: None,
            order: Order::Auto,
            strategy: None,
            reassembly: Reassembly::Auto,
            device: false,
            snapshot: false,
            freeze_limit: FREEZE_LIMIT,
            writes_to: Vec::new(),
            one_file_system: false,
            follow_roots: false,
            filter: Filter::new(),
            gitignore: false,
            no_recursion: false,
            entries: Entries::Files,
            xattrs: false,
            content: true,
            indexes: Indexes::WhereCheap,
            ignore_cache: false,
            addresses: false,
            cache: CachePolicy::Untouched,
            notes_cached: false,
            bwlimit: None,
            idle: false,
            queue_depth: QUEUE_DEPTH,
            one_at_a_time: false,
            in_batches: false,
            gap: None,
            max_request: crate::plan::request::MAX_REQUEST,
            disk_model: crate::plan::DiskModel::default(),
            observer: None,
            cancel: crate::progress::Cancel::new(),
        }
    }

    pub(crate) fn large(&self) -> u64 {
        self.large.unwrap_or(self.budget / 4)
    }

    /// An eighth of the memory, unless told otherwise.
    pub(crate) fn catalog_limit(&self) -> u64 {
        self.catalog_limit.unwrap_or_else(default_catalog_limit)
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy.unwrap_or(if self.device { Strategy::Merged } else { Strategy::Unmerged })
    }

    /// What contradicts itself, if anything does.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.budget < BUDGET_MIN {
            return Err(format!("a budget of {} bytes is too small; give at least {BUDGET_MIN}", self.budget));
        }
        if self.large() > self.budget {
            return Err(format!(
                "files of {} bytes can't wait in a budget of {}; lower --large or raise --budget",
                self.large(),
                self.budget
            ));
        }
        if self.queue_depth == 0 || self.queue_depth > QUEUE_DEPTH_MAX {
            return Err(format!("a queue depth of {} is out of range; give 1 to {QUEUE_DEPTH_MAX}", self.queue_depth));
        }
        if self.max_request < REQUEST_MIN || !self.max_request.is_multiple_of(REQUEST_MIN) {
            return Err(format!("the largest request must be a multiple of {REQUEST_MIN} bytes"));
        }
        if self.bwlimit == Some(0) {
            return Err("a bandwidth limit of 0 would never end; leave it out to read without one".into());
        }
        Ok(())
    }

    /// What contradicts the reading of mounted trees; images are read through their gaps without a word.
    pub(crate) fn check_for_trees(&self) -> Result<(), String> {
        if self.strategy == Some(Strategy::Merged) && !self.device {
            return Err(
                "only a device can be read through its gaps; add --device, or leave out --strategy merged".into()
            );
        }
        Ok(())
    }
}

/// Bytes that names and fragments may take unless told otherwise: an eighth of the memory.
pub fn default_catalog_limit() -> u64 {
    onesweep_sys::memory::total_bytes().map_or(CATALOG_FALLBACK, |bytes| bytes / 8)
}

/// Where the size of the memory can't be told.
const CATALOG_FALLBACK: u64 = 512 << 20;

const QUEUE_DEPTH_MAX: usize = 1024;

/// Requests are split at multiples of the largest block that direct reads are aligned to.
const REQUEST_MIN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The README and the manual say so.
    #[test]
    fn writers_are_held_for_half_a_minute_at_most() {
        assert_eq!(Settings::new(Vec::new()).freeze_limit.as_secs(), 30);
    }
}
