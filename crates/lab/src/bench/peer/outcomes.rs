//! What was measured, in one JSON file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bench::results::Machine;
use crate::bench::versioned::{self, VERSION};

const FILE: &str = "peer.json";

/// What the reads of a series took, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub(crate) mean: f64,
    /// The standard deviation.
    pub(crate) deviation: f64,
    pub(crate) median: f64,
    /// 99 of 100 took no longer.
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

/// Random reads of one file, series by series.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OfSize {
    pub(crate) bytes: u64,
    pub(crate) disk: Vec<Taken>,
    pub(crate) raced: Vec<Taken>,
}

/// Random reads of files of many sizes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Random {
    pub(crate) mbit: u64,
    pub(crate) reads: u64,
    pub(crate) sizes: Vec<OfSize>,
}

/// A file that is read from its start to its end, round by round, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Copied {
    pub(crate) bytes: u64,
    pub(crate) disk_ms: Vec<f64>,
    pub(crate) raced_ms: Vec<f64>,
    /// Its blocks from the server alone, by the client library; where it was measured.
    pub(crate) remote_ms: Vec<f64>,
}

/// Sequential reads of files of many sizes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sequential {
    pub(crate) mbit: u64,
    pub(crate) files: Vec<Copied>,
}

/// What a fault of the server did to reads, round by round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Faulty {
    pub(crate) fault: String,
    pub(crate) policy: String,
    pub(crate) disk: Vec<Taken>,
    pub(crate) raced: Vec<Taken>,
    /// The first read after the fault.
    pub(crate) first_us: Vec<f64>,
    /// Reads with other bytes than the disk's.
    pub(crate) wrong: u64,
    /// Reads that failed.
    pub(crate) failed: u64,
    /// Requests without use, of a hundred reads, once 200 have met the fault; nothing where the server may help again, and in records
    /// of before this was counted.
    #[serde(default)]
    pub(crate) extra_percent: Vec<f64>,
    /// Of a hundred of those reads, what a server that is back with its blocks has answered.
    #[serde(default)]
    pub(crate) helped_percent: Vec<f64>,
}

/// What came out of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Random(Random),
    Sequential(Sequential),
    Faults(Vec<Faulty>),
    /// Figures by name, of each round.
    Figures(BTreeMap<String, Vec<f64>>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) scale: f64,
    pub(crate) commit: String,
    pub(crate) machine: Machine,
    /// The machine's load when it began and when it ended: others may have been at work.
    pub(crate) load: [f64; 2],
    /// Microseconds of a getppid, to compare machines.
    pub(crate) getppid_us: f64,
    /// Whether the programs are those of a release.
    pub(crate) is_release: bool,
    pub(crate) outcome: Outcome,
}

/// All of them, by case.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcomes {
    version: u32,
    pub(crate) cases: BTreeMap<String, Measured>,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { version: VERSION, cases: BTreeMap::new() }
    }
}

impl Outcomes {
    pub(crate) fn load(dir: &Path) -> Result<Self, String> {
        Ok(versioned::load(&dir.join(FILE), |outcomes: &Self| outcomes.version)?.unwrap_or_default())
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<(), String> {
        versioned::save(&dir.join(FILE), self)
    }

    /// Programs of a release measure again what others have measured.
    pub(crate) fn has(&self, case: &str, scale: f64, by_release: bool) -> bool {
        let is_as_good = |measured: &Measured| measured.scale == scale && (measured.is_release || !by_release);
        self.cases.get(case).is_some_and(is_as_good)
    }

    pub(crate) fn enter(&mut self, case: String, measured: Measured) {
        self.cases.insert(case, measured);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A record of before extra requests were counted.
    #[test]
    fn faults_that_lack_a_figure_are_read() {
        let old = r#"{"faults":[{"fault":"killed","policy":"race","disk":[],"raced":[],"first_us":[1.0],"wrong":0,"failed":2}]}"#;
        let faulty = Faulty {
            fault: "killed".into(),
            policy: "race".into(),
            first_us: vec![1.0],
            failed: 2,
            ..Faulty::default()
        };
        assert_eq!(serde_json::from_str::<Outcome>(old).unwrap(), Outcome::Faults(vec![faulty]));
    }

    #[test]
    fn outcomes_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut outcomes = Outcomes::load(dir.path()).unwrap();
        let (machine, load) = (Machine::default(), [0.5, 1.0]);
        let outcome = Outcome::Figures([("wrong".to_owned(), vec![0.0])].into());
        let (scale, commit) = (0.5, "abc".into());
        let measured = Measured { scale, commit, machine, load, getppid_us: 0.1, is_release: true, outcome };
        outcomes.enter("links".into(), measured);
        outcomes.save(dir.path()).unwrap();
        let mut back = Outcomes::load(dir.path()).unwrap();
        assert_eq!(back, outcomes);
        assert!(back.has("links", 0.5, true) && !back.has("links", 1.0, true) && !back.has("ssd", 0.5, true));
        back.cases.values_mut().for_each(|measured| measured.is_release = false);
        assert!(back.has("links", 0.5, false) && !back.has("links", 0.5, true));
        fs::write(dir.path().join(FILE), r#"{"version":2,"cases":{}}"#).unwrap();
        assert!(Outcomes::load(dir.path()).unwrap_err().contains("version 2"));
    }
}
