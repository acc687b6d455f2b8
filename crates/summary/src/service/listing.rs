//! A directory and those in it, as the page shows them: the largest by name, all others summed up.
//!
//! Each directory counts as if it were asked for alone. So what is shown before and after entering one is the same, and an
//! answer costs what its directory holds, whatever lies below; but an inode with names in several of them counts in each.
//!
//! Where a directory has very many in it, or very many have to be looked at because of what the asker may not see, others have their turn
//! while they are looked at: each is told as it was at its moment.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, HashMap},
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
};

use onesweep_sys::files;
use serde::{Deserialize, Serialize};

use super::{
    looking::{LOOKS_MAX, Look, Looking},
    protocol::{Figures, Name, Question, Refusal, Row},
    server::{Reached, Server},
};
use crate::{access::Asker, identity::NodeId, nodes::Slot, totals::Sums};

/// By what directories are the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Bytes that are allocated.
    #[default]
    Allocated,
    /// Bytes as sizes tell them.
    Bytes,
    /// Files, directories and all others.
    Inodes,
}

impl Measure {
    fn of(self, sums: &Sums) -> i64 {
        match self {
            Measure::Allocated => sums.blocks,
            Measure::Bytes => sums.bytes + sums.directory_bytes,
            Measure::Inodes => sums.inodes(),
        }
    }
}

/// Directories that are told of by name, at most.
pub const LARGEST_MAX: usize = 1000;

/// Which of the directories in one are told of by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Largest {
    /// So many, [`LARGEST_MAX`] at most.
    pub limit: usize,
    /// By what they are the largest.
    #[serde(default)]
    pub by: Measure,
}

/// A directory and those in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Where it is, from the root of all.
    pub path: Name,
    /// The same of the top of its file system.
    pub top: Name,
    /// The asker may not list it.
    pub denied: bool,
    /// Something in it was left out that the asker may not see.
    pub partial: bool,
    /// Nothing is known to have changed since it was counted.
    pub exact: bool,
    /// When files that are written silently were looked for last: as in [`Head`](super::protocol::Head).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<i64>,
    /// Nobody tells what changes there: all below was read again at `checked_at`, or later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
    /// When the directory itself was last read, in seconds since 1970.
    pub harvested_at: i64,
    /// Directories below that could not be read.
    pub unreadable: u64,
    /// Time was up: as in [`Head`](super::protocol::Head).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// So many seconds ago it was right: as in [`Head`](super::protocol::Head).
    #[serde(default)]
    pub age: u64,
    /// All that is in it.
    pub total: Figures,
    /// The same without the directories in it.
    pub own: Figures,
    /// The newest change of a content in it, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<i64>,
    /// The bytes of the largest file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<u64>,
    /// The largest directories in it, the largest first.
    pub children: Vec<Child>,
    /// All other directories in it.
    pub rest: Rest,
}

/// A directory in another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its name.
    pub name: Name,
    /// The asker may not list it.
    pub denied: bool,
    /// Something in it was left out.
    pub partial: bool,
    /// Directories in it that could not be read.
    pub unreadable: u64,
    /// All that is in it.
    pub total: Figures,
    /// The newest change of a content in it, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<i64>,
    /// The bytes of the largest file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<u64>,
}

/// Directories that aren't named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// How many.
    pub count: u64,
    /// All that is in them.
    pub total: Figures,
}

impl Server {
    /// The directory of a question (whose `depth` doesn't matter), and at most `limit` of those in it.
    pub fn list(&self, asker: &Asker, question: &Question, limit: usize, measure: Measure) -> Result<Listing, Refusal> {
        self.listing(asker, question, None, Some((limit, measure)))
    }

    /// The same without those in it.
    pub fn alone(&self, asker: &Asker, question: &Question) -> Result<Listing, Refusal> {
        self.listing(asker, question, None, None)
    }

    /// The same; the directory may have come open.
    pub(super) fn listing(
        &self,
        asker: &Asker,
        question: &Question,
        file: Option<OwnedFd>,
        children_by: Option<(usize, Measure)>,
    ) -> Result<Listing, Refusal> {
        let volumes = self.volumes();
        let reached = self.reach(&volumes, (asker, question), file)?;
        let is_open = reached.may_list(asker, reached.slot, &reached.record(reached.slot)?.access);
        let mut looks = LOOKS_MAX;
        let (reached, largest, rest) = match children_by {
            Some((limit, measure)) if is_open => largest(reached, asker, (limit, measure), &mut looks)?,
            _ => (reached, Vec::new(), Rest::default()),
        };
        let looking = Looking::at(&reached, reached.slot, true);
        let (reached, look) = looking.finish(reached, asker, &mut looks)?;
        let Look { line, is_partial, is_denied } = look.ok_or(Refusal::NotTracked)?;
        let record = reached.record(line.slot)?;
        let row = Row::of(&line, &record.name, is_partial);
        // It may have been closed meanwhile, also since it was looked at itself.
        let is_denied = is_denied || !reached.may_list(asker, line.slot, &record.access);
        let (children, rest) = if is_denied { Default::default() } else { (children(&reached, asker, largest)?, rest) };
        let head = reached.head(1, is_partial);
        let top = top_of(&reached)?;
        Ok(Listing {
            path: Name::of(&path(&reached, &top)?),
            top: Name::of(&top),
            denied: is_denied,
            partial: is_partial,
            exact: head.exact,
            checked_at: head.checked_at,
            timed: head.timed,
            harvested_at: head.harvested_at,
            unreadable: head.unreadable,
            late: head.late,
            age: head.age.unwrap_or(0),
            total: row.total,
            own: row.own,
            newest: row.newest,
            largest: row.largest,
            children,
            rest,
        })
    }

    /// The paths of the file systems that are tracked.
    pub fn paths(&self) -> io::Result<Vec<Name>> {
        self.volumes().iter().map(|served| Ok(Name::of(&path_of(served.file_system().top())?))).collect()
    }
}

/// One of the largest directories.
struct Kept {
    measured: i64,
    /// Its number may be another's when it is told of.
    id: NodeId,
    look: Look,
}

impl Kept {
    fn key(&self) -> (Reverse<i64>, Slot, NodeId) {
        (Reverse(self.measured), self.look.line.slot, self.id)
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Kept {}

/// The largest directories in one, the largest first, and what all others come to.
fn largest<'a>(
    mut reached: Reached<'a>,
    asker: &Asker,
    (limit, measure): (usize, Measure),
    looks: &mut usize,
) -> Result<(Reached<'a>, Vec<Kept>, Rest), Refusal> {
    let (mut kept, mut rest, mut count) = (BinaryHeap::new(), Sums::default(), 0);
    let nodes = &reached.tracked.ledger().nodes;
    let all: Vec<NodeId> = nodes.children(reached.slot).map(|child| nodes.id(child)).collect();
    for id in all {
        if *looks == 0 {
            reached = reached.give_way().ok_or(Refusal::NotTracked)?;
            *looks = LOOKS_MAX;
        }
        let Some(child) = child(&reached, id) else { continue };
        let look;
        (reached, look) = Looking::at(&reached, child, false).finish(reached, asker, looks)?;
        // It may be gone by now.
        let Some(look) = look else { continue };
        kept.push(Kept { measured: measure.of(&look.line.totals.sums), id, look });
        if kept.len() > limit
            && let Some(Kept { look, .. }) = kept.pop()
        {
            let freed_blocks = if look.is_partial { 0 } else { look.line.totals.sums.freed_blocks };
            rest += Sums { freed_blocks, ..look.line.totals.sums };
            count += 1;
        }
    }
    Ok((reached, kept.into_sorted_vec(), Rest { count, total: Figures::of(&rest) }))
}

/// A directory, where it is one of those in the one that was asked for.
fn child(reached: &Reached<'_>, id: NodeId) -> Option<Slot> {
    let nodes = &reached.tracked.ledger().nodes;
    nodes.find(id).filter(|&slot| nodes.parent(slot) == Some(reached.slot))
}

/// They are told of by name.
fn children(reached: &Reached<'_>, asker: &Asker, largest: Vec<Kept>) -> Result<Vec<Child>, Refusal> {
    let nodes = &reached.tracked.ledger().nodes;
    let mut unreadable: HashMap<Slot, u64> = HashMap::new();
    for below in reached.unreadable(asker)? {
        let child = nodes.upwards(below).take_while(|&at| at != reached.slot).last();
        child.into_iter().for_each(|child| *unreadable.entry(child).or_default() += 1);
    }
    let mut children = Vec::with_capacity(largest.len());
    for Kept { id, look: Look { line, is_partial: partial, is_denied: denied }, .. } in largest {
        let Some(slot) = child(reached, id) else { continue };
        let row = Row::of(&line, &reached.record(slot)?.name, partial);
        children.push(Child {
            name: row.name,
            denied,
            partial,
            unreadable: unreadable.get(&slot).copied().unwrap_or(0),
            total: row.total,
            newest: row.newest,
            largest: row.largest,
        });
    }
    Ok(children)
}

/// The path of an open directory, as the kernel tells it.
fn path_of(directory: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    Ok(files::path_of(directory)?.into_os_string().into_vec())
}

fn top_of(reached: &Reached<'_>) -> Result<Vec<u8>, Refusal> {
    path_of(reached.top()).map_err(|error| Refusal::Failed(error.to_string()))
}

/// The path of the directory that was asked for, from the root of all.
pub(super) fn path_in(reached: &Reached<'_>) -> Result<Name, Refusal> {
    Ok(Name::of(&path(reached, &top_of(reached)?)?))
}

fn path(reached: &Reached<'_>, top: &[u8]) -> Result<Vec<u8>, Refusal> {
    let root = reached.tracked.root();
    let names = reached.tracked.path(root, reached.slot).map_err(|error| Refusal::Failed(error.to_string()))?;
    let mut path = std::path::PathBuf::from(std::ffi::OsString::from_vec(top.to_vec()));
    names.iter().for_each(|name| path.push(std::ffi::OsStr::from_bytes(name)));
    Ok(path.into_os_string().into_vec())
}
