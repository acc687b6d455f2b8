//! What was measured, in one JSON file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::records::Kind;
use crate::bench::results::Machine;
use crate::bench::versioned::{self, VERSION};

const FILE: &str = "du.json";

/// What a program took of the modelled disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) busy_ms: f64,
    pub(crate) requests: u64,
    pub(crate) wall_s: f64,
}

/// A day, or other changes, and a question after them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Day {
    pub(crate) day: u32,
    pub(crate) operations: u64,
    pub(crate) ours: Cost,
    pub(crate) du: Cost,
}

/// Days of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Days {
    pub(crate) image_sha256: String,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// The first harvest, with everything to be read.
    pub(crate) first: Cost,
    /// Others that read everything, by name.
    pub(crate) walks: BTreeMap<String, Cost>,
    pub(crate) days: Vec<Day>,
    /// A file made in every hundredth directory.
    pub(crate) scattered: Day,
    /// A start after that, with everything to be read, until all is known again.
    #[serde(default)]
    pub(crate) restart: Option<Cost>,
    /// One rising pass over the inode tables, on ext4.
    #[serde(default)]
    pub(crate) pass_ms: Option<f64>,
}

/// Questions right after a file was closed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Closed {
    pub(crate) asked: u64,
    /// Of them those whose answer was true to the byte.
    pub(crate) exact: u64,
    pub(crate) median_us: f64,
}

/// Questions where nothing has changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Still {
    pub(crate) directories: u64,
    pub(crate) questions: u64,
    pub(crate) median_us: f64,
    pub(crate) slowest_of_100_us: f64,
    /// By four connections at once.
    pub(crate) per_second: f64,
    /// A getppid in the same run, to compare machines.
    pub(crate) getppid_us: f64,
    #[serde(default)]
    pub(crate) after_close: Option<Closed>,
}

/// A user's question among homes that are closed to him.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Homes {
    pub(crate) homes: u64,
    pub(crate) median_ms: f64,
    pub(crate) du_ms: f64,
}

/// A server of many directories.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Many {
    pub(crate) directories: u64,
    pub(crate) inodes: u64,
    /// With everything in memory, until who asks is answered,
    pub(crate) first_s: f64,
    /// and until all of it is stored.
    #[serde(default)]
    pub(crate) first_stored_s: Option<f64>,
    /// Others that read everything, by name, in the same state.
    pub(crate) walks_s: BTreeMap<String, f64>,
    pub(crate) resident_kib: u64,
    /// The most that both processes had while they harvested all for the first time, and at the restart.
    #[serde(default)]
    pub(crate) first_peak_kib: Option<u64>,
    #[serde(default)]
    pub(crate) restart_peak_kib: Option<u64>,
    pub(crate) store_bytes: u64,
    /// Bytes of the store's index from inodes to directories, for each inode in it.
    #[serde(default)]
    pub(crate) index_bytes: Option<f64>,
    /// From the start to the first exact answer, after a pause in which a hundred directories have changed.
    pub(crate) restart_s: f64,
    /// Each of several, of which that is the median.
    #[serde(default)]
    pub(crate) restarts_s: Vec<f64>,
    /// Directories that it read.
    #[serde(default)]
    pub(crate) restart_read: u64,
    /// The same where the server before was killed.
    #[serde(default)]
    pub(crate) killed_restart_s: Option<f64>,
    #[serde(default)]
    pub(crate) killed_restart_read: u64,
    /// The root asked for while nothing changes.
    #[serde(default)]
    pub(crate) root_us: Option<f64>,
    /// The page's look at the root.
    #[serde(default)]
    pub(crate) page_ms: Option<f64>,
    /// A getppid in the same run, to compare machines.
    #[serde(default)]
    pub(crate) getppid_us: Option<f64>,
}

impl Many {
    /// Seconds of all restarts: before there were several there was one.
    pub(crate) fn restarts_s(&self) -> Vec<f64> {
        if self.restarts_s.is_empty() { vec![self.restart_s] } else { self.restarts_s.clone() }
    }

    /// Seconds of a first harvest with its store: before it was told when that is durable, who asked was answered then.
    pub(crate) fn stored_s(&self) -> f64 {
        self.first_stored_s.unwrap_or(self.first_s)
    }
}

/// A directory with very many in it, as the page shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wide {
    pub(crate) directories: u64,
    /// Each look.
    pub(crate) looks_ms: Vec<f64>,
    /// Questions for another directory where nobody looks.
    pub(crate) alone_us: Vec<f64>,
    /// The same while somebody does.
    pub(crate) beside_us: Vec<f64>,
}

/// What a step took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) wall_s: f64,
    /// With the server's.
    pub(crate) cpu_s: f64,
    /// The server's.
    #[serde(default)]
    pub(crate) served_s: f64,
}

/// A step with a server and without one, round by round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) tracked: Vec<Times>,
    pub(crate) alone: Vec<Times>,
}

/// What others pay for a tracker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// Of the tree that the steps are about.
    pub(crate) files: u64,
    pub(crate) steps: Vec<Step>,
    /// A getppid in the same run, to compare machines.
    #[serde(default)]
    pub(crate) getppid_us: Option<f64>,
}

/// A harvest that nobody asked for, beside a reader or without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Harvest {
    /// Those that were read, but for the first portion.
    pub(crate) directories: u64,
    /// From the end of the first portion to that of the last.
    pub(crate) seconds: f64,
}

/// What a reader pays for a harvest that nobody asked for, round by round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Background {
    pub(crate) directories: u64,
    /// Those that had changed.
    pub(crate) dirty: u64,
    /// What the reader reads.
    pub(crate) files: u64,
    /// Directories a second that the server may read.
    pub(crate) budget: u64,
    pub(crate) scheduler: String,
    /// The reader without a server, and beside the harvest.
    pub(crate) alone_s: Vec<f64>,
    pub(crate) beside_s: Vec<f64>,
    /// The harvest beside which it was.
    pub(crate) harvests: Vec<Harvest>,
}

/// Snapshots by hard links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Linked {
    pub(crate) snapshots: u64,
    /// Of each snapshot.
    pub(crate) files: u64,
    /// Of all of them.
    pub(crate) directories: u64,
    /// With everything in memory, until who asks is answered,
    pub(crate) first_s: f64,
    /// and until all of it is stored.
    #[serde(default)]
    pub(crate) first_stored_s: Option<f64>,
    /// Others that read everything, by name, in the same state.
    pub(crate) walks_s: BTreeMap<String, f64>,
    pub(crate) resident_kib: u64,
    /// The most that both processes had until the first answer.
    pub(crate) first_peak_kib: u64,
    pub(crate) store_bytes: u64,
    /// Whether the store was made as small as what it holds before.
    #[serde(default)]
    pub(crate) compacted: bool,
    /// The root asked for while nothing changes.
    pub(crate) root_us: f64,
    /// The root asked for when a snapshot was removed just now, and what GNU du takes then.
    pub(crate) removed_s: f64,
    pub(crate) removed_du_s: f64,
    /// A getppid in the same run, to compare machines.
    pub(crate) getppid_us: f64,
}

impl Linked {
    /// Seconds of a first harvest with its store: before it was told when that is durable, who asked was answered then.
    pub(crate) fn stored_s(&self) -> f64 {
        self.first_stored_s.unwrap_or(self.first_s)
    }
}

/// Microseconds of a write of 4 KiB into a directory that has changed, round by round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overwrite {
    pub(crate) alone_us: Vec<f64>,
    pub(crate) tracked_us: Vec<f64>,
    /// With sizes that follow at close.
    #[serde(default)]
    pub(crate) at_close_us: Vec<f64>,
    /// A getppid beside each pair.
    #[serde(default)]
    pub(crate) getppid_us: Vec<f64>,
}

/// Megabytes a second by records of one size, round by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) record_bytes: u64,
    pub(crate) kind: Kind,
    /// Before the one with a server, and after it.
    pub(crate) alone: Vec<[f64; 2]>,
    pub(crate) tracked: Vec<f64>,
}

impl Record {
    pub(crate) fn new(kind: Kind, record_bytes: u64) -> Self {
        Self { record_bytes, kind, alone: Vec::new(), tracked: Vec::new() }
    }
}

/// FastDu's figure 3.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Records {
    pub(crate) file_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) records: Vec<Record>,
}

/// What a server takes. What the kernel takes for it isn't told everywhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) resident_kib: u64,
    pub(crate) marks_bytes: Option<u64>,
    pub(crate) events_bytes: Option<u64>,
}

/// Very many events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Storm {
    pub(crate) directories: u64,
    /// Before the kernel merges any.
    pub(crate) events: u64,
    pub(crate) seconds: f64,
    pub(crate) before: Memory,
    /// The most of each.
    pub(crate) during: Memory,
    /// After an answer, which was GNU du's.
    pub(crate) after: Memory,
    /// Some seconds later.
    #[serde(default)]
    pub(crate) at_rest: Option<Memory>,
    pub(crate) answered_s: f64,
    /// The tracker couldn't tell all, and the server had to look for what has changed.
    pub(crate) overflowed: bool,
    /// What is counted of the kernel.
    pub(crate) caches: Vec<String>,
    /// How often each directory is met that is; 0 where it wasn't told.
    #[serde(default)]
    pub(crate) visits: u64,
}

/// What is stored, asked for while its directories change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ages {
    pub(crate) directories: u64,
    /// Each of another directory than the one before.
    pub(crate) changes: u64,
    pub(crate) seconds: f64,
    /// After so long all that has changed is harvested.
    pub(crate) timeout_s: u64,
    pub(crate) asked: u64,
    /// The greatest age that an answer told.
    pub(crate) greatest_s: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Costs(Costs),
    Background(Background),
    Linked(Linked),
    Overwrite(Overwrite),
    Days(Days),
    Still(Still),
    Homes(Homes),
    Many(Many),
    Wide(Wide),
    Records(Records),
    Storm(Storm),
    Ages(Ages),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) scale: f64,
    pub(crate) commit: String,
    #[serde(default)]
    pub(crate) machine: Machine,
    pub(crate) outcome: Outcome,
}

/// All of them, by case.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcomes {
    #[serde(default = "version")]
    version: u32,
    pub(crate) cases: BTreeMap<String, Measured>,
}

/// Of the file. The first ones didn't say theirs.
fn version() -> u32 {
    VERSION
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { version: version(), cases: BTreeMap::new() }
    }
}

impl Outcomes {
    pub(crate) fn load(dir: &Path) -> Result<Self, String> {
        Ok(versioned::load(&dir.join(FILE), |outcomes: &Self| outcomes.version)?.unwrap_or_default())
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<(), String> {
        versioned::save(&dir.join(FILE), self)
    }

    pub(crate) fn has(&self, case: &str, scale: f64) -> bool {
        self.cases.get(case).is_some_and(|measured| measured.scale == scale)
    }

    pub(crate) fn enter(&mut self, case: String, measured: Measured) {
        self.cases.insert(case, measured);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn outcomes_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut outcomes = Outcomes::load(dir.path()).unwrap();
        let outcome = Outcome::Still(Still::default());
        let machine = Machine::default();
        outcomes.enter("still".into(), Measured { scale: 0.5, commit: "abc".into(), machine, outcome });
        outcomes.save(dir.path()).unwrap();
        let back = Outcomes::load(dir.path()).unwrap();
        assert_eq!(back, outcomes);
        fs::write(dir.path().join(FILE), r#"{"version":2,"cases":{}}"#).unwrap();
        assert!(Outcomes::load(dir.path()).unwrap_err().contains("version 2"));
        assert!(back.has("still", 0.5) && !back.has("still", 1.0) && !back.has("homes", 0.5));
    }
}
