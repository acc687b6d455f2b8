//! What is shown: tables and figures. Each knows the runs that it needs, and what to make of them.

mod budgets;
mod daft;
mod fragmented;
mod goal;
mod goals;
mod peers;
mod qtar;
mod settled;
mod tables;

pub(crate) use goal::{Aim, Goal};
pub(crate) use goals::{Goals, quick};

use super::plot::Pictures;
use super::results::{Record, Results};
use super::run::Run;

/// A name that can be asked for alone, with the runs that it needs.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) runs: Vec<Run>,
}

/// A table or a figure.
pub(crate) trait Exhibit {
    fn title(&self) -> &'static str;

    fn cases(&self) -> Vec<Case>;

    /// Its part of the page below the title, with its pictures drawn.
    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String>;
}

/// What there is of each run of an exhibit.
pub(crate) fn records<'a>(exhibit: &dyn Exhibit, results: &'a Results) -> Vec<Option<&'a Record>> {
    let runs = exhibit.cases().into_iter().flat_map(|case| case.runs);
    runs.map(|run| results.of(&run)).collect()
}

/// How many runs of an exhibit there are none of yet.
pub(crate) fn lacking(exhibit: &dyn Exhibit, results: &Results) -> usize {
    records(exhibit, results).iter().filter(|record| record.is_none()).count()
}

/// Says which runs of an exhibit there are none of yet: a picture or a table of the others might look whole.
pub(crate) fn missing(exhibit: &dyn Exhibit, results: &Results) -> Option<String> {
    let cases = exhibit.cases();
    let lacks = |run: &&Run| results.of(run).is_none();
    let all: usize = cases.iter().map(|case| case.runs.len()).sum();
    let lacking: Vec<(&str, usize)> = cases
        .iter()
        .map(|case| (case.name.as_str(), case.runs.iter().filter(lacks).count()))
        .filter(|(_, lacking)| *lacking > 0)
        .collect();
    let (first, _) = lacking.first()?;
    let count: usize = lacking.iter().map(|(_, count)| count).sum();
    let others = if lacking.len() > 1 { format!(" and {} other cases", lacking.len() - 1) } else { String::new() };
    Some(format!("*Not yet measured: {count} of {all} runs (`onesweep-lab bench sweep`, case `{first}`{others}).*\n"))
}

/// All of them, in the order of the page.
pub(crate) fn all(seed: u64) -> Vec<Box<dyn Exhibit>> {
    vec![
        Box::new(Goals::all(seed)),
        Box::new(tables::Tables::new(seed)),
        Box::new(peers::Peers::new(seed)),
        Box::new(budgets::Budgets::new(seed)),
        Box::new(settled::Settled::new(seed)),
        Box::new(daft::Figure2::new(seed)),
        Box::new(fragmented::Tables::new(seed)),
        Box::new(qtar::Figure1::new(seed)),
        Box::new(qtar::Figure3::new(seed)),
        Box::new(qtar::Figure4::new(seed)),
        Box::new(qtar::Figure5::new(seed)),
        Box::new(qtar::Figure6::new(seed)),
        Box::new(qtar::Figure7::new(seed)),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::Outcome;
    use crate::random::Random;

    #[test]
    fn cases_have_names_of_their_own_and_runs() {
        let mut names = HashSet::new();
        for case in all(1).iter().flat_map(|exhibit| exhibit.cases()) {
            assert!(!case.runs.is_empty(), "{}", case.name);
            assert!(names.insert(case.name.clone()), "{} twice", case.name);
            for run in &case.runs {
                assert!(run.setting.image.recipe().is_ok() && run.setting.image.fs().is_ok(), "{}", case.name);
                assert!(run.setting.disk.emulated().is_ok(), "{}", case.name);
            }
        }
    }

    /// With every run there, nothing is said to be missing, and all pictures are drawn.
    #[test]
    fn a_page_with_all_results_shows_them() {
        let mut results = Results::default();
        let mut random = Random::new(1);
        let plan = |strategy: &str| {
            json!({"order": "fragment", "strategy": strategy, "chosen": strategy == "unmerged", "seconds": 4.0,
                   "requests": 24_000, "peak_memory": 90e6})
        };
        // `Results::enter` looks for an equal run each time, which takes long for so many.
        let mut known = HashSet::new();
        for case in all(1).iter().flat_map(|exhibit| exhibit.cases()) {
            for run in case.runs {
                if !known.insert(serde_json::to_string(&run).unwrap()) {
                    continue;
                }
                let slow = if run.work.is_ours() || run.work.is_bound() { 1.0 } else { 10.0 };
                let facts =
                    Facts { file_bytes: 400_000_000, files: 30_000, image_sha256: "0".repeat(64), ..Facts::default() };
                results.images.insert(run.setting.image.name(), facts);
                let outcome = Outcome {
                    busy_ms: slow * (8000.0 + 4000.0 * random.unit()),
                    data_ms: Some(4000.0),
                    wall_s: slow,
                    head: (0..90).map(|tenth| (tenth as f64 / 10.0, tenth << 24, (tenth << 24) + (9 << 20))).collect(),
                    detail: json!({"streaming_ms": 7000.0, "files": 29_000, "inodes_per_second": 3e6, "getppid_ns": 50.0,
                                   "memcpy_gb_per_second": 9.0, "peak_bytes": 200.0, "entry_bytes": 112.0, "plans": [plan("unmerged"), plan("merged")]}),
                    ..Outcome::default()
                };
                results.runs.push(Record { run, image_sha256: "0".repeat(64), machine: 0, outcome });
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(dir.path()).unwrap();
        for exhibit in all(1) {
            let page = exhibit.show(&results, &mut pictures).unwrap();
            assert!(!page.contains("not measured") && !page.contains("Not measured"), "{page}");
        }
        assert!(std::fs::read_dir(dir.path()).unwrap().count() >= 11);
    }

    /// Nothing measured yet is no reason to fail.
    #[test]
    fn a_page_without_results_says_so() {
        for exhibit in all(1) {
            let page = exhibit.show(&Results::default(), &mut Pictures::none()).unwrap();
            assert!(!page.is_empty());
        }
    }
}
