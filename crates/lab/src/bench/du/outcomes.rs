//! What was measured, in one JSON file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::partial::Partial;

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
    /// With everything in memory.
    pub(crate) first_s: f64,
    /// Others that read everything, by name, in the same state.
    pub(crate) walks_s: BTreeMap<String, f64>,
    pub(crate) resident_kib: u64,
    pub(crate) store_bytes: u64,
    /// From the start to the first exact answer, after a pause in which nothing has changed.
    pub(crate) restart_s: f64,
}

/// What a step took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) wall_s: f64,
    /// With the server's.
    pub(crate) cpu_s: f64,
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
}

/// Microseconds of a write of 4 KiB into a directory that has changed, round by round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overwrite {
    pub(crate) alone_us: Vec<f64>,
    pub(crate) tracked_us: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Costs(Costs),
    Overwrite(Overwrite),
    Days(Days),
    Still(Still),
    Homes(Homes),
    Many(Many),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) scale: f64,
    pub(crate) commit: String,
    pub(crate) outcome: Outcome,
}

/// All of them, by case.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcomes {
    pub(crate) cases: BTreeMap<String, Measured>,
}

impl Outcomes {
    pub(crate) fn load(dir: &Path) -> Result<Self, String> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
            Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        }
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<(), String> {
        let path = dir.join(FILE);
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = serde_json::to_string_pretty(self).map_err(|error| said(&error))?;
        let partial = Partial::new(&path)?;
        fs::write(partial.path(), text + "\n").map_err(|error| said(&error))?;
        partial.finish()
    }

    pub(crate) fn has(&self, case: &str, scale: f64) -> bool {
        self.cases.get(case).is_some_and(|measured| measured.scale == scale)
    }

    pub(crate) fn enter(&mut self, case: String, scale: f64, commit: String, outcome: Outcome) {
        self.cases.insert(case, Measured { scale, commit, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut outcomes = Outcomes::load(dir.path()).unwrap();
        outcomes.enter("still".into(), 0.5, "abc".into(), Outcome::Still(Still::default()));
        outcomes.save(dir.path()).unwrap();
        let back = Outcomes::load(dir.path()).unwrap();
        assert_eq!(back, outcomes);
        assert!(back.has("still", 0.5) && !back.has("still", 1.0) && !back.has("homes", 0.5));
    }
}
