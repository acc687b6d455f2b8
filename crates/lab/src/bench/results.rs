//! What was measured, in one JSON file that grows run by run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::images::Facts;
use super::run::Run;
use super::statistics::{self, Rounds, Spread};

const VERSION: u32 = 1;

/// What came out of a run. Times of the disk are modelled milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Outcome {
    pub(crate) argv: Vec<String>,
    /// Why there is nothing below: the program isn't installed, or failed.
    pub(crate) missing: Option<String>,
    pub(crate) busy_ms: f64,
    /// Of that, requests that touch the content of files; `None` where their places aren't known.
    pub(crate) data_ms: Option<f64>,
    pub(crate) data_requests: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
    pub(crate) seeks: u64,
    pub(crate) wall_s: f64,
    /// The same of a second time in one view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) again_s: Option<f64>,
    /// The commit of our code.
    pub(crate) commit: String,
    /// Lowest and highest address in each tenth of a second of modelled time: (seconds, from, to).
    pub(crate) head: Vec<(f64, u64, u64)>,
    /// How many commands waited when the drive chose one, half of the time and at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<(u64, u64)>,
    /// What a program of ours said of itself.
    pub(crate) detail: Value,
}

/// How it is said of a program that there is none here.
pub(crate) const NOT_INSTALLED: &str = "isn't installed";

impl Outcome {
    /// Whether a program failed. Where there is none, nothing did.
    pub(crate) fn is_failure(&self) -> bool {
        self.missing.as_ref().is_some_and(|missing| !missing.ends_with(NOT_INSTALLED))
    }
}

/// A run with what came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) run: Run,
    pub(crate) image_sha256: String,
    /// Which of the machines it was made on.
    #[serde(default)]
    pub(crate) machine: usize,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// What a run was made on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) processors: String,
    pub(crate) kernel: String,
    /// Versions of the programs, by name.
    pub(crate) programs: BTreeMap<String, String>,
}

/// The file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    version: u32,
    /// What there was in its place before each run said what it was made on: the machine of the last sweep.
    #[serde(default, skip_serializing)]
    machine: Option<Machine>,
    #[serde(default)]
    machines: Vec<Machine>,
    /// By the name of the image.
    pub(crate) images: BTreeMap<String, Facts>,
    pub(crate) runs: Vec<Record>,
}

/// Its place in a directory of results.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("runs.json")
}

impl Results {
    /// The results of a directory; none when it has no file.
    pub(crate) fn load(dir: &Path) -> Result<Self, String> {
        let path = path(dir);
        let said = |error: String| format!("{}: {error}", path.display());
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { version: VERSION, ..Self::default() });
            }
            read => read.map_err(|error| said(error.to_string()))?,
        };
        let mut results: Self = serde_json::from_str(&text).map_err(|error| said(error.to_string()))?;
        let machine = results.machine.take();
        if results.machines.is_empty() {
            results.machines.extend(machine);
        }
        if results.version == VERSION { Ok(results) } else { Err(said(format!("version {}", results.version))) }
    }

    /// Writes the file beside the old one, then takes its place: a killed run loses nothing.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), String> {
        let (path, draft) = (path(dir), dir.join("runs.json.new"));
        let said = |error: std::io::Error| format!("{}: {error}", draft.display());
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let mut file = fs::File::create(&draft).map_err(said)?;
        file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(said)?;
        fs::rename(&draft, &path).map_err(said)
    }

    /// The number of a machine, for runs that are made on it.
    pub(crate) fn number_of(&mut self, machine: Machine) -> usize {
        let known = self.machines.iter().position(|known| *known == machine);
        known.unwrap_or_else(|| {
            self.machines.push(machine);
            self.machines.len() - 1
        })
    }

    /// The machines of the runs that are shown, each once.
    pub(crate) fn machines(&self) -> Vec<&Machine> {
        let used: BTreeSet<usize> =
            self.runs.iter().filter(|record| self.is_current(record)).map(|record| record.machine).collect();
        used.into_iter().filter_map(|machine| self.machines.get(machine)).collect()
    }

    /// What a run was made on.
    pub(crate) fn machine(&self, record: &Record) -> Option<&Machine> {
        self.machines.get(record.machine)
    }

    /// A run, if it was made on the image that is known under its name today.
    pub(crate) fn of(&self, run: &Run) -> Option<&Record> {
        self.runs.iter().find(|record| record.run == *run && self.is_current(record))
    }

    /// An image that is made anew lies differently: what was measured on the old one can't be held against the new.
    fn is_current(&self, record: &Record) -> bool {
        let image = self.images.get(&record.run.setting.image.name());
        image.is_some_and(|image| image.image_sha256 == record.image_sha256)
    }

    /// Forgets what came out of a run.
    pub(crate) fn remove(&mut self, run: &Run) {
        self.runs.retain(|record| record.run != *run);
    }

    /// Enters a run in the place of an equal one.
    pub(crate) fn enter(&mut self, record: Record) {
        self.remove(&record.run);
        self.runs.push(record);
    }

    /// All rounds of a run that came to an end.
    pub(crate) fn rounds<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = &'a Record> {
        let same = |record: &&Record| {
            record.run.setting == run.setting && record.run.work == run.work && self.is_current(record)
        };
        self.runs.iter().filter(same).filter(|record| record.outcome.missing.is_none())
    }

    /// Everything that came to an end on the images of today, each work in its setting with all its rounds.
    pub(crate) fn by_work(&self) -> Vec<Vec<&Record>> {
        let mut known: HashMap<String, Vec<&Record>> = HashMap::new();
        for record in self.runs.iter().filter(|record| record.outcome.missing.is_none() && self.is_current(record)) {
            known.entry(record.run.without_round()).or_default().push(record);
        }
        known.into_values().collect()
    }

    /// A figure of each round of a run.
    pub(crate) fn by_round(&self, run: &Run, figure: impl Fn(&Outcome) -> Option<f64>) -> Rounds {
        self.rounds(run).filter_map(|record| Some((record.run.round, figure(&record.outcome)?))).collect()
    }

    /// A figure over all rounds of a run.
    pub(crate) fn figure(&self, run: &Run, figure: impl Fn(&Outcome) -> Option<f64>) -> Option<Spread> {
        statistics::spread(self.by_round(run, figure).into_values().collect())
    }

    /// The disk's time for one run ÷ that for another, round by round. A bound is computed, so it has no rounds.
    pub(crate) fn times(&self, over: &Run, under: &Run) -> Option<Spread> {
        let busy = |run| self.by_round(run, |outcome| Some(outcome.busy_ms));
        let times = statistics::ratios_or_against_one(&busy(over), &busy(under))?;
        Some(times.one_sided(times.one_sided && !over.work.is_bound() && !under.work.is_bound()))
    }

    /// The disk's time.
    pub(crate) fn seconds(&self, run: &Run) -> Option<Spread> {
        self.figure(run, |outcome| Some(outcome.busy_ms / 1000.0))
    }

    /// The disk's time.
    pub(crate) fn busy_ms(&self, run: &Run) -> Option<Spread> {
        self.figure(run, |outcome| Some(outcome.busy_ms))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::run::{Disk, Setting, Stretch, Subject};
    use crate::bench::work::{Tool, Work};

    pub(crate) fn setting() -> Setting {
        Setting::new(Subject::new("random", "ext4", 1.0, 1), Disk::new("barracuda-7200.11", Stretch::Whole))
    }

    pub(crate) fn record(run: Run, busy_ms: f64) -> Record {
        Record { run, image_sha256: "abc".into(), machine: 0, outcome: Outcome { busy_ms, ..Outcome::default() } }
    }

    /// No runs yet, on the image of [`setting`].
    pub(crate) fn on_its_image() -> Results {
        let mut results = Results { version: VERSION, ..Results::default() };
        let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
        results.images.insert(setting().image.name(), facts);
        results
    }

    #[test]
    fn results_come_back_and_equal_runs_replace_each_other() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Results::load(dir.path()).unwrap().runs, []);
        let mut results = on_its_image();
        let runs = setting().run(Work::of(Tool::GnuTar)).rounds(3);
        for (run, busy_ms) in runs.iter().zip([5.0, 1.0, 3.0]) {
            results.enter(record(run.clone(), busy_ms));
        }
        results.enter(record(runs[0].clone(), 2.0));
        let failed = Outcome { missing: Some("no tar".into()), busy_ms: 99.0, ..Outcome::default() };
        let other = setting().run(Work::of(Tool::BsdTar));
        results.enter(Record { outcome: failed, ..record(other.clone(), 0.0) });
        results.save(dir.path()).unwrap();
        let results = Results::load(dir.path()).unwrap();
        assert_eq!(results.runs.len(), 4);
        let busy = results.busy_ms(&runs[1]).unwrap();
        assert_eq!((busy.least, busy.median, busy.greatest), (1.0, 2.0, 3.0));
        assert_eq!(results.busy_ms(&other), None);
        assert!(results.of(&other).is_some());
        fs::write(path(dir.path()), r#"{"version":2,"machine":{},"images":{},"runs":[]}"#).unwrap();
        assert!(Results::load(dir.path()).unwrap_err().contains("version 2"));
    }

    #[test]
    fn a_program_that_is_not_there_has_not_failed() {
        let missing = |why: &str| Outcome { missing: Some(why.into()), ..Outcome::default() };
        assert!(missing("ended with 2: no").is_failure());
        assert!(!missing(&format!("rsync {NOT_INSTALLED}")).is_failure() && !Outcome::default().is_failure());
    }

    /// Otherwise new runs would be divided by those on an image that lies differently.
    #[test]
    fn runs_on_an_image_that_was_made_anew_are_gone() {
        let mut results = on_its_image();
        let [tar, ours] = [Tool::GnuTar, Tool::Tar].map(|tool| setting().run(Work::of(tool)));
        results.enter(record(tar.clone(), 30.0));
        results.images.get_mut(&setting().image.name()).unwrap().image_sha256 = "def".into();
        results.enter(Record { image_sha256: "def".into(), ..record(ours.clone(), 2.0) });
        assert_eq!(results.busy_ms(&tar), None);
        assert_eq!(results.of(&tar), None);
        assert_eq!(results.busy_ms(&ours).unwrap().median, 2.0);
        results.enter(Record { image_sha256: "def".into(), ..record(tar.clone(), 20.0) });
        assert_eq!(results.busy_ms(&tar).unwrap().median, 20.0);
        assert_eq!(results.runs.len(), 2);
    }

    fn machine(kernel: &str) -> Machine {
        Machine { kernel: kernel.into(), ..Machine::default() }
    }

    #[test]
    fn each_run_keeps_the_machine_that_it_was_made_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = on_its_image();
        for (tool, kernel) in [(Tool::GnuTar, "6.1"), (Tool::Tar, "6.18"), (Tool::Sum, "6.1")] {
            let machine = results.number_of(machine(kernel));
            results.enter(Record { machine, ..record(setting().run(Work::of(tool)), 1.0) });
        }
        results.number_of(machine("never used"));
        results.save(dir.path()).unwrap();
        let results = Results::load(dir.path()).unwrap();
        assert_eq!(results.machines(), [&machine("6.1"), &machine("6.18")]);
    }

    /// They were all made on the machine that the file named.
    #[test]
    fn old_results_with_one_machine_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut old = on_its_image();
        old.enter(record(setting().run(Work::of(Tool::GnuTar)), 1.0));
        let mut old = serde_json::to_value(&old).unwrap();
        old.as_object_mut().unwrap().remove("machines");
        old["runs"][0].as_object_mut().unwrap().remove("machine");
        old["machine"] = serde_json::to_value(machine("6.1")).unwrap();
        fs::write(path(dir.path()), old.to_string()).unwrap();
        let mut results = Results::load(dir.path()).unwrap();
        assert_eq!(results.machines(), [&machine("6.1")]);
        assert_eq!(results.number_of(machine("6.18")), 1);
        results.save(dir.path()).unwrap();
        assert_eq!(Results::load(dir.path()).unwrap().machines(), [&machine("6.1")]);
    }
}
