//! What was measured, in one JSON file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use super::written::Written;
use crate::bench::images::Facts;
use crate::bench::measure::count;
use crate::bench::results::{Machine, Outcome};
use crate::bench::versioned::{self, VERSION};

const FILE: &str = "defrag.json";

/// The same packing once more, after the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Again {
    /// Files that lie elsewhere after it.
    pub(crate) moved_files: u64,
    /// How many the program says that it moved.
    pub(crate) said_files: u64,
    pub(crate) busy_ms: f64,
}

/// An image after its files were moved, and what reading it took then.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Packed {
    /// As it was aged.
    pub(crate) image: Facts,
    pub(crate) argv: Vec<String>,
    /// The program's words when it wouldn't; then there is nothing below.
    pub(crate) refused: Option<String>,
    /// The disk's time until all was written.
    pub(crate) busy_ms: f64,
    pub(crate) wall_s: f64,
    pub(crate) read_bytes: u64,
    pub(crate) written: Written,
    /// Of the names and bytes of all files; empty where they are held against those of before instead.
    pub(crate) contents_sha256: String,
    /// Files that lie elsewhere than before, and the bytes in their blocks.
    pub(crate) moved_files: u64,
    pub(crate) moved_bytes: u64,
    /// What `onesweep defrag --json` said.
    pub(crate) said: Value,
    pub(crate) again: Option<Again>,
    /// By the names of the readers.
    pub(crate) readers: BTreeMap<String, Outcome>,
}

impl Packed {
    /// What a reader took, when it came to its end.
    pub(crate) fn of(&self, reader: &str) -> Option<&Outcome> {
        self.readers.get(reader).filter(|outcome| outcome.missing.is_none() && outcome.busy_ms > 0.0)
    }

    /// How many times as much was written as lies in the blocks of the files that moved.
    pub(crate) fn written_over_own(&self) -> Option<f64> {
        (self.moved_bytes > 0).then(|| self.written.bytes as f64 / self.moved_bytes as f64)
    }

    /// The same of what was written where these files lie now.
    pub(crate) fn content_over_own(&self) -> Option<f64> {
        (self.moved_bytes > 0).then(|| self.written.content_bytes as f64 / self.moved_bytes as f64)
    }

    /// Requests for content, by the regions that the program says it packed.
    pub(crate) fn requests_for_a_region(&self) -> Option<f64> {
        let regions = count(&self.said, "moved_regions");
        (regions > 0).then(|| self.written.content_runs as f64 / regions as f64)
    }

    /// The same by regions of the paper's size, 16 blocks: of however many blocks ours are.
    pub(crate) fn requests_for_16_blocks(&self) -> Option<f64> {
        let regions = self.moved_bytes as f64 / f64::from(16 * 4096);
        (regions > 0.0).then(|| self.written.content_runs as f64 / regions)
    }
}

/// A packing, with what it was measured on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) scale: f64,
    pub(crate) seed: u64,
    pub(crate) commit: String,
    pub(crate) machine: Machine,
    pub(crate) outcome: Packed,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcomes {
    version: u32,
    /// By the names of the cases, then of the packings.
    pub(crate) cases: BTreeMap<String, BTreeMap<String, Measured>>,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { version: VERSION, cases: BTreeMap::new() }
    }
}

impl Outcomes {
    /// Those of a directory; none when it has no file.
    pub(crate) fn load(dir: &Path) -> Result<Self, String> {
        Ok(versioned::load(&dir.join(FILE), |outcomes: &Self| outcomes.version)?.unwrap_or_default())
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<(), String> {
        versioned::save(&dir.join(FILE), self)
    }

    pub(crate) fn has(&self, case: &str, packing: &str, scale: f64, seed: u64) -> bool {
        self.of(case, packing, scale, seed).is_some()
    }

    pub(crate) fn of(&self, case: &str, packing: &str, scale: f64, seed: u64) -> Option<&Packed> {
        let known = self.cases.get(case)?.get(packing)?;
        (known.scale == scale && known.seed == seed).then_some(&known.outcome)
    }

    pub(crate) fn enter(&mut self, case: &str, packing: &str, measured: Measured) {
        self.cases.entry(case.to_owned()).or_default().insert(packing.to_owned(), measured);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn outcomes_come_back_and_a_new_one_takes_the_place_of_the_old() {
        let dir = tempfile::tempdir().unwrap();
        let mut outcomes = Outcomes::load(dir.path()).unwrap();
        assert_eq!(outcomes, Outcomes::default());
        for (scale, moved_files) in [(0.5, 1), (1.0, 2)] {
            let outcome = Packed { moved_files, ..Packed::default() };
            let (commit, machine) = ("abc".to_owned(), Machine::default());
            outcomes.enter("a", "b", Measured { scale, seed: 1, commit, machine, outcome });
        }
        outcomes.save(dir.path()).unwrap();
        let outcomes = Outcomes::load(dir.path()).unwrap();
        assert_eq!(outcomes.cases["a"]["b"].outcome.moved_files, 2);
        let has = [(1.0, 1), (0.5, 1), (1.0, 2)].map(|(scale, seed)| outcomes.has("a", "b", scale, seed));
        assert_eq!((has, outcomes.has("a", "c", 1.0, 1)), ([true, false, false], false));
        fs::write(dir.path().join(FILE), "{\"version\":2,\"cases\":{}}").unwrap();
        assert!(Outcomes::load(dir.path()).unwrap_err().contains("version 2"));
    }

    #[test]
    fn figures_are_taken_from_what_was_counted() {
        let written = Written { bytes: 1100, content_bytes: 1050, content_runs: 30, ..Written::default() };
        let packed = Packed { moved_bytes: 1000, written, said: json!({"moved_regions": 20}), ..Packed::default() };
        assert_eq!(packed.content_over_own(), Some(1.05));
        assert_eq!((packed.written_over_own(), packed.requests_for_a_region()), (Some(1.1), Some(1.5)));
        let large = Packed { moved_bytes: 20 * 65_536, ..packed.clone() };
        assert_eq!(large.requests_for_16_blocks(), Some(1.5));
        let still = Packed { said: json!({"moved_regions": 0}), ..Packed::default() };
        assert_eq!((still.written_over_own(), still.requests_for_a_region()), (None, None));
        assert_eq!(still.requests_for_16_blocks(), None);
    }
}
