//! Which files have a policy of their own; and where they lie on a device, as the tables of its file system tell at the start.

use std::{
    fs::File,
    ops::{ControlFlow, Range},
    path::Path,
};

use onesweep::Filter;
use onesweep_layout::{
    ImageFile,
    tables::{self, Inode, Options, TableError, Tree, Wanted, Whole},
};
use onesweep_peer::{mount::Places, race::Policy};
use onesweep_sys::block;

use crate::{args::PolicyOf, message, report::Failure};

/// Names and inodes that are in memory at a time, in bytes.
const LIMIT: u64 = 256 << 20;

/// Where a file lies: of most, one range.
type Ranges = Box<[(u64, u64)]>;

/// The places of files that match; the first pattern that matches a file counts.
pub(super) fn places(device: &Path, policies_of: &[PolicyOf]) -> Result<Places, Failure> {
    if policies_of.is_empty() {
        return Ok(Places::new());
    }
    let opened = block::open_device(device).and_then(|fd| ImageFile::new(File::from(fd)));
    let image = opened.map_err(|error| Failure::io(device, "read its tables", &error))?;
    read(image, policies_of).map_err(|error| {
        let why = format!("{}; leave --policy-of out", message::of_error(&error));
        Failure::could_not_run(device, "look up the files of --policy-of", why)
    })
}

fn read(image: ImageFile, policies_of: &[PolicyOf]) -> Result<Places, TableError> {
    let patterns: Vec<(Filter, Policy)> = policies_of.iter().map(pattern).collect();
    let mut found: Vec<Vec<Range<u64>>> = vec![Vec::new(); patterns.len()];
    let mut tables = tables::open(image, Options::default())?;
    let root = tables.facts().root;
    let whole = Whole { limit: LIMIT, keep: &mut |inode| ranges(&inode), lost: None };
    Tree::read_in_parts(tables.as_mut(), Wanted::default(), whole, &mut |part| {
        part.walk(root, &mut |entry| {
            let is_file = !entry.is_directory && !entry.value.is_empty();
            if is_file && let Some(at) = patterns.iter().position(|(filter, _)| filter.excludes(entry.path)) {
                found[at].extend(entry.value.iter().map(|(start, end)| *start..*end));
            }
            ControlFlow::Continue(())
        })
    })?;
    let mut places = Places::new();
    for (ranges, (_, policy)) in found.into_iter().zip(patterns) {
        ranges.iter().for_each(|range| places.add(range, policy));
    }
    Ok(places)
}

/// The policies of files by their paths; the first pattern that matches counts.
pub(super) struct Policies(Vec<(Filter, Policy)>);

impl Policies {
    pub(super) fn new(policies_of: &[PolicyOf]) -> Self {
        Self(policies_of.iter().map(pattern).collect())
    }

    pub(super) fn of(&self, path: impl FnOnce() -> Option<Vec<u8>>) -> Option<Policy> {
        if self.0.is_empty() {
            return None;
        }
        let path = path()?;
        self.0.iter().find(|(filter, _)| filter.excludes(&path)).map(|(_, policy)| *policy)
    }
}

fn pattern(of: &PolicyOf) -> (Filter, Policy) {
    let mut filter = Filter::new();
    filter.exclude(of.pattern.as_bytes());
    (filter, of.policy.into())
}

/// Where the content of an inode lies on the device, as far as it lies there at all.
fn ranges(inode: &Inode) -> Ranges {
    let extents = inode.extents.iter().filter(|extent| !extent.is_zeros());
    extents.filter_map(|extent| Some((extent.physical?, extent.physical_end()?))).collect()
}
