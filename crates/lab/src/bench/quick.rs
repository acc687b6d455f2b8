//! `onesweep-lab bench sweep --quick`: a small run whose ratios are held against those of a baseline.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exhibits::{self, Goal};
use super::results::Results;
use super::run::Run;
use super::sweep::{self, Again, Order};

/// The part of a baseline's ratio that must be left.
const LEAST: f64 = 0.8;

/// How often a case that fell is measured again. A busy machine can make all rounds of a case worse, by a fifth and
/// more: what our programs have in flight depends on when their threads run. What fell by noise comes back, what fell by
/// a change doesn't.
const AGAIN: u32 = 2;

/// Ratios by case, more being better.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Baseline {
    /// The commit that they were met at.
    commit: String,
    seed: u64,
    ratios: BTreeMap<String, f64>,
}

/// What is asked for.
pub(crate) struct Quick {
    pub(crate) order: Order,
    pub(crate) baseline: PathBuf,
    /// Write the baseline instead of holding the ratios against it.
    pub(crate) set: bool,
}

/// Measures, compares, and says what fell.
pub(crate) fn run(quick: Quick) -> Result<u8, String> {
    let goals = exhibits::quick(quick.order.seed);
    let order = Order { again: Again::All, ..quick.order };
    let measure = |goals: &[&Goal]| {
        let runs = sweep::in_order(goals.iter().flat_map(|goal| goal.case().runs));
        forget(&order.out, &runs)?;
        sweep::measure_all(&order, runs)?;
        let results = Results::load(&order.out)?;
        let ratios = goals.iter().filter_map(|goal| Some((goal.case().name, goal.score(&results)?))).collect();
        Ok::<Baseline, String>(Baseline { commit: sweep::commit(), seed: order.seed, ratios })
    };
    let all: Vec<&Goal> = goals.iter().collect();
    if quick.set {
        return measure(&all)?.save(&quick.baseline).map(|()| 0);
    }
    let baseline = Baseline::load(&quick.baseline)?;
    if baseline.seed != order.seed {
        return Err(format!("the baseline is of seed {}", baseline.seed));
    }
    let mut best = measure(&all)?.ratios;
    for _ in 0..AGAIN {
        let fallen = fallen(&best, &baseline.ratios);
        let fallen: Vec<&Goal> = goals.iter().filter(|goal| fallen.contains_key(&goal.case().name)).collect();
        if fallen.is_empty() {
            break;
        }
        keep_best(&mut best, measure(&fallen)?.ratios);
    }
    for (case, then) in &baseline.ratios {
        let now = best.get(case).map_or("missing".to_owned(), |ratio| format!("{ratio:.3}"));
        println!("{case:<24} {now:>8} {then:>8.3}");
    }
    let fallen = fallen(&best, &baseline.ratios);
    if fallen.is_empty() { Ok(0) } else { Err(fallen.into_values().collect::<Vec<_>>().join("\n")) }
}

/// Removes what came out of these runs before: it must not stand for what can't be measured today.
fn forget(out: &Path, runs: &[Run]) -> Result<(), String> {
    let mut results = Results::load(out)?;
    if results.runs.is_empty() {
        return Ok(());
    }
    runs.iter().for_each(|run| results.remove(run));
    results.save(out)
}

/// What is missing or below its part of the baseline: by case, a complaint.
fn fallen(measured: &BTreeMap<String, f64>, baseline: &BTreeMap<String, f64>) -> BTreeMap<String, String> {
    let said = |(case, then): (&String, &f64)| {
        let complaint = match measured.get(case) {
            None => format!("{case} wasn't measured"),
            Some(now) if *now < then * LEAST => format!("{case} fell to {now:.3}, below {LEAST} of {then:.3}"),
            Some(_) => return None,
        };
        Some((case.clone(), complaint))
    };
    baseline.iter().filter_map(said).collect()
}

/// Takes over what is better than before, or was missing.
fn keep_best(best: &mut BTreeMap<String, f64>, again: BTreeMap<String, f64>) {
    for (case, ratio) in again {
        let kept = best.entry(case).or_insert(ratio);
        *kept = kept.max(ratio);
    }
}

impl Baseline {
    fn load(path: &Path) -> Result<Self, String> {
        let said = |error: String| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| said(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| said(error.to_string()))
    }

    fn save(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::{on_its_image, record, setting};
    use crate::bench::work::{Threshold, Tool, Work};

    #[test]
    fn what_fell_or_vanished_is_named() {
        let ratios = |list: &[(&str, f64)]| list.iter().map(|&(case, ratio)| (case.to_owned(), ratio)).collect();
        let baseline: BTreeMap<String, f64> = ratios(&[("a", 10.0), ("b", 10.0), ("c", 1.0)]);
        let complaints = fallen(&ratios(&[("a", 8.0), ("b", 7.9), ("new", 0.1)]), &baseline);
        let complaints: Vec<_> = complaints.into_values().collect();
        assert_eq!(complaints, ["b fell to 7.900, below 0.8 of 10.000", "c wasn't measured"]);
        assert!(fallen(&baseline, &baseline).is_empty());
    }

    #[test]
    fn what_was_measured_before_stands_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let [tar, ours] = [Tool::GnuTar, Tool::Tar].map(|tool| setting().run(Work::of(tool)));
        forget(dir.path(), std::slice::from_ref(&tar)).unwrap();
        let mut results = on_its_image();
        for run in [&tar, &ours] {
            results.enter(record(run.clone(), 1.0));
        }
        results.save(dir.path()).unwrap();
        forget(dir.path(), std::slice::from_ref(&tar)).unwrap();
        let left = Results::load(dir.path()).unwrap().runs;
        assert_eq!(left.iter().map(|record| &record.run).collect::<Vec<_>>(), [&ours]);
    }

    /// What the default makes worse has to fall.
    #[test]
    fn the_budget_is_given_out_as_the_program_chooses() {
        let goals = exhibits::quick(1);
        let runs = goals.iter().flat_map(|goal| goal.case().runs);
        let budgets: Vec<_> = runs.filter_map(|run| run.work.budget).collect();
        assert!(!budgets.is_empty() && budgets.iter().all(|budget| budget.threshold == Threshold::Auto), "{budgets:?}");
    }

    #[test]
    fn measuring_again_makes_nothing_worse() {
        let ratios = |list: &[(&str, f64)]| list.iter().map(|&(case, ratio)| (case.to_owned(), ratio)).collect();
        let mut best: BTreeMap<String, f64> = ratios(&[("a", 1.0), ("b", 2.0)]);
        keep_best(&mut best, ratios(&[("a", 1.5), ("b", 1.5), ("c", 3.0)]));
        assert_eq!(best, ratios(&[("a", 1.5), ("b", 2.0), ("c", 3.0)]));
    }

    #[test]
    fn a_baseline_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("baseline.json");
        let baseline = Baseline { commit: "abc".into(), seed: 1, ratios: BTreeMap::from([("a".to_owned(), 2.5)]) };
        baseline.save(&path).unwrap();
        assert_eq!(Baseline::load(&path).unwrap(), baseline);
        assert!(Baseline::load(&dir.path().join("none")).is_err());
    }
}
