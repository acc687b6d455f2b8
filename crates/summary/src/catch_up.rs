//! What has changed while nobody was told: since the store was written, or since events were lost.

use std::{
    fmt, io,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    identity::NodeId,
    ledger::Ledger,
    links::LinkKey,
    moment::Moment,
    nodes::{Count, Slot},
    order::Map,
    places::{Block, INODES_PER_BLOCK},
    reading::Directories,
    store::{Facts, StoreError},
    survey::{Method, Seen, stamp_of_sum},
};

/// Why everything has to be harvested again.
#[derive(Debug)]
#[non_exhaustive]
pub enum Doubt {
    /// The file system has no way to tell what has changed.
    NoWay,
    /// The clock was set back.
    ClockSetBack,
    /// The file system's own count was set back: it is an older copy.
    GenerationSetBack,
    /// Summaries are declared that were not kept until now.
    OtherSummaries,
    /// A harvest was broken off in a way that left directories out, or an earlier version of the program made the store.
    Unfinished,
    /// It could not be asked.
    Failed(io::Error),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::NoWay => f.write_str("this file system tells its inodes by a walk alone"),
            Doubt::ClockSetBack => f.write_str("the clock was set back"),
            Doubt::GenerationSetBack => f.write_str("the file system is an older copy of itself"),
            Doubt::OtherSummaries => f.write_str("other summaries are declared"),
            Doubt::Unfinished => f.write_str("the last harvest was broken off, or an earlier version made it"),
            Doubt::Failed(error) => write!(f, "its inodes can't be told: {error}"),
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Directories that aren't as they were read, as far as one can tell.
    pub(crate) changed: Vec<Slot>,
    /// Directories in which blocks may change and nobody tells, and until when.
    pub(crate) unsettled: Map<Slot, i64>,
}

impl Changes {
    fn unsettle(&mut self, slot: Slot, until: i64) {
        let known = self.unsettled.entry(slot).or_insert(until);
        *known = until.max(*known);
    }
}

/// Finds what has changed; the inner error is why that isn't known. Changes after the call's beginning may be missing.
///
/// With `after`, the file system may have lost what wasn't on its disk (a power cut): where it counts its changes, directories that
/// harvests with higher numbers have read may have been read with changes that are in no tree now. Where sums are compared these
/// differ by themselves.
pub(crate) fn changes<D: Directories>(
    ledger: &Ledger,
    directories: &D,
    (facts, after): (&Facts, Option<Count>),
    now: &Moment,
) -> Result<Result<Changes, Doubt>, StoreError> {
    let Some(method) = directories.method() else { return Ok(Err(Doubt::NoWay)) };
    if facts.moment.is_set_back(now) {
        return Ok(Err(Doubt::ClockSetBack));
    }
    if facts.is_partial {
        return Ok(Err(Doubt::Unfinished));
    }
    let settling = directories.settling_seconds();
    let survey = Survey { ledger, settling, now: now.seconds, found: Mutex::default() };
    let asked = match method {
        Method::Sums => survey.by_sums(directories),
        Method::Generations => survey.by_generations(directories, facts.generation, after),
    };
    let found = survey.found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    match (found.failed, asked) {
        (Some(error), _) => Err(error),
        (None, Err(doubt)) => Ok(Err(doubt)),
        (None, Ok(())) => Ok(Ok(found.changes)),
    }
}

struct Survey<'a> {
    ledger: &'a Ledger,
    settling: i64,
    now: i64,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    changes: Changes,
    failed: Option<StoreError>,
}

impl Survey<'_> {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds up what all directories come to now. An inode counts where the store has it: one that has gone elsewhere has
    /// changed the directory that it came from, and the one that it went to.
    fn by_sums(&self, directories: &impl Directories) -> Result<(), Doubt> {
        let nodes = &self.ledger.nodes;
        let mut sums = Vec::new();
        sums.resize_with(nodes.bound(), || AtomicU64::new(0));
        let tell = |some: &[Seen]| {
            if let Err(error) = self.add(some, &sums) {
                self.found().failed.get_or_insert(error);
            }
        };
        directories.survey(0, &[], &tell).map_err(Doubt::Failed)?;
        let is_the_same = |slot: &Slot| {
            let sum = sums.get(slot.0 as usize).map_or(0, |sum| sum.load(Ordering::Relaxed));
            nodes.stamp(*slot) == stamp_of_sum(sum)
        };
        self.found().changes.changed.extend(nodes.all().filter(|slot| !is_the_same(slot)));
        Ok(())
    }

    fn add(&self, some: &[Seen], sums: &[AtomicU64]) -> Result<(), StoreError> {
        let nodes = &self.ledger.nodes;
        // Of 64 numbers in a row, which mostly come together.
        let mut last: Option<((u64, u64), Block)> = None;
        for seen in some {
            let add = |slot: Slot| {
                if let Some(sum) = sums.get(slot.0 as usize) {
                    sum.fetch_add(seen.stamp, Ordering::Relaxed);
                }
                let settled_at = seen.changed_at.saturating_add(self.settling);
                if !seen.is_directory && settled_at > self.now && nodes.is_used(slot) {
                    self.found().changes.unsettle(slot, settled_at);
                }
            };
            let NodeId { subvolume, ino, .. } = seen.id;
            if seen.is_directory {
                nodes.find(seen.id).into_iter().for_each(add);
            } else if seen.links == 1 {
                let key = (subvolume, ino / INODES_PER_BLOCK);
                let (_, block) = match last.take() {
                    Some(known) if known.0 == key => last.insert(known),
                    _ => last.insert((key, self.ledger.block(subvolume, ino)?)),
                };
                block.get(ino).into_iter().for_each(add);
            } else if let Some(linked) = self.ledger.linked(LinkKey { subvolume, ino })? {
                linked.places.into_iter().for_each(add);
            }
        }
        Ok(())
    }

    /// Compares the counts of changes with those of the readings. A change that has the count of the reading may have come after.
    fn by_generations(&self, directories: &impl Directories, since: u64, after: Option<Count>) -> Result<(), Doubt> {
        let nodes = &self.ledger.nodes;
        if directories.generation().map_err(Doubt::Failed)? < since {
            return Err(Doubt::GenerationSetBack);
        }
        let tell = |some: &[Seen]| {
            for seen in some {
                let Some(slot) = nodes.find(seen.id) else { continue };
                let changes = &mut self.found().changes;
                let settled_at = seen.changed_at.saturating_add(self.settling);
                if seen.stamp >= nodes.stamp(slot) {
                    changes.changed.push(slot);
                } else if settled_at > self.now {
                    changes.unsettle(slot, settled_at);
                }
            }
        };
        directories.survey(since, nodes.subvolumes(), &tell).map_err(Doubt::Failed)?;
        // What could not be read, or not as a whole, and what may be gone that was read.
        let is_doubtful =
            |slot: &Slot| nodes.stamp(*slot) == 0 || after.is_some_and(|synced| nodes.counts(*slot).1 > synced);
        self.found().changes.changed.extend(nodes.all().filter(is_doubtful));
        Ok(())
    }
}
