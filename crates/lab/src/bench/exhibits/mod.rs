//! What is shown: tables and figures. Each knows the runs that it needs, and what to make of them.

mod budgets;
mod daft;
mod daft_scale;
mod fragmented;
mod goal;
mod goals;
mod groups;
mod ntfs;
mod peers;
mod qtar;
mod settled;
mod shards;
mod tables;
mod unchanged;

pub(crate) use goal::{Aim, Goal};
pub(crate) use goals::{Goals, quick};

use std::collections::{BTreeSet, HashSet};

use super::page;
use super::plot::Pictures;
use super::results::{Record, Results};
use super::run::Run;
use super::statistics;

/// More images than these are told by the first and the last of their names.
const IMAGES_NAMED: usize = 6;

/// Milliseconds of the disk from which a run says how repeatable long ones are.
const LONG_MS: f64 = 10_000.0;

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
    records(exhibit, results).iter().filter(|record| !is_measured(**record)).count()
}

/// A run that failed, or whose program wasn't there, is not.
fn is_measured(record: Option<&Record>) -> bool {
    record.is_some_and(|record| record.outcome.missing.is_none())
}

/// Says which runs of an exhibit there are none of yet: a picture or a table of the others might look whole.
pub(crate) fn missing(exhibit: &dyn Exhibit, results: &Results) -> Option<String> {
    let cases = exhibit.cases();
    let lacks = |run: &&Run| !is_measured(results.of(run));
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

/// What to ask for to get the runs of an exhibit: how the names of all its cases begin. `None` where they have nothing in
/// common, and each row names its own.
fn asked_for(exhibit: &dyn Exhibit) -> Option<String> {
    let names: Vec<String> = exhibit.cases().into_iter().map(|case| case.name).collect();
    let common =
        |one: &str, other: &str| one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let first = names.first()?;
    let length = names.iter().map(|name| common(first, name)).min()?;
    (length > 0).then(|| first[..length].to_owned())
}

/// What stands behind the figures of an exhibit: its works with all their rounds, also those that another one asked for.
pub(crate) fn behind<'a>(exhibit: &dyn Exhibit, results: &'a Results) -> Vec<Vec<&'a Record>> {
    let runs = exhibit.cases().into_iter().flat_map(|case| case.runs);
    let own: HashSet<String> = runs.map(|run| run.without_round()).collect();
    let is_own = |rounds: &Vec<&Record>| rounds.first().is_some_and(|first| own.contains(&first.run.without_round()));
    results.by_work().into_iter().filter(is_own).collect()
}

/// How far apart rounds of the same run lie, for those that were measured but once: by those that were measured more often,
/// with the same track buffers, on the same file systems.
fn repeatability(behind: &[Vec<&Record>], results: &Results) -> Option<String> {
    let buffered = |record: &Record| record.run.setting.disk.track_buffer;
    let is_run = |record: &Record| !record.run.work.is_bound() && record.outcome.busy_ms > 0.0;
    let once = || behind.iter().filter(|rounds| rounds.len() == 1 && is_run(rounds[0])).map(|rounds| rounds[0]);
    let fs = |record: &Record| record.run.setting.image.fs.clone();
    let known: HashSet<(bool, String)> = once().map(|record| (buffered(record), fs(record))).collect();
    let once: HashSet<bool> = once().map(buffered).collect();
    let apart = |rounds: &Vec<&Record>| {
        let first = rounds.first()?;
        let compared = rounds.len() > 1 && is_run(first) && known.contains(&(buffered(first), fs(first)));
        let busy = statistics::spread(rounds.iter().map(|record| record.outcome.busy_ms).collect())?;
        (compared && busy.median >= LONG_MS && !first.run.setting.is_by_the_clock())
            .then(|| (busy.greatest - busy.least) * 100.0 / busy.median)
    };
    let apart: Vec<f64> = results.by_work().iter().filter_map(apart).collect();
    let quantile = |part| statistics::quantile(&apart, part).map(page::number);
    Some(format!(
        " How repeatable those of one round are is told by the {} runs of this page that have several, on the same file systems, {}, \
         and take {} s or more: their longest and shortest round are {} % of the median apart or less in half of them, {} % in nine of ten, {} % \
         in all.",
        page::count(apart.len() as u64),
        match (once.contains(&false), once.contains(&true)) {
            (true, true) => "with the track buffer on or off",
            (true, false) => "with the track buffer off",
            _ => "with the track buffer on",
        },
        LONG_MS / 1000.0,
        quantile(0.5)?,
        quantile(0.9)?,
        quantile(1.0)?,
    ))
}

/// Says how what an exhibit shows was measured: the command, the images, the disks, and how often.
pub(crate) fn source(exhibit: &dyn Exhibit, results: &Results) -> Option<String> {
    let behind = behind(exhibit, results);
    let (fewest, most) = (behind.iter().map(Vec::len).min()?, behind.iter().map(Vec::len).max()?);
    let records: Vec<&Record> = behind.iter().flatten().copied().collect();
    let mut images: Vec<String> =
        records.iter().map(|record| page::image(&record.run.setting.image, results)).collect();
    images.sort();
    images.dedup();
    let models: BTreeSet<&str> = records.iter().map(|record| record.run.setting.disk.model.as_str()).collect();
    let quoted = |name: &str| format!("`{name}`");
    let case = asked_for(exhibit).unwrap_or_else(|| "CASE".into());
    let images = match images.as_slice() {
        many if many.len() > IMAGES_NAMED => {
            format!("{} images, {} to {}", many.len(), many[0], many[many.len() - 1])
        }
        few => few.join(", "),
    };
    let models = models.into_iter().map(quoted).collect::<Vec<_>>().join(", ");
    let rounds = match (fewest, most) {
        (1, 1) => "One round of each run.".to_owned(),
        (fewest, most) if fewest == most => {
            format!("{most} rounds of each run: the median, with the least and the greatest.")
        }
        _ => format!(
            "{fewest} to {most} rounds of each run: the median, with the least and the greatest where there are several."
        ),
    };
    let repeatability = repeatability(&behind, results).unwrap_or_default();
    Some(format!(
        "*By `onesweep-lab bench sweep --case {case}` on {models}; from {images} of the [images](#images). \
         {rounds}{repeatability}*\n"
    ))
}

/// Runs that are of no use without the way of the head.
pub(crate) fn with_the_way(seed: u64) -> Vec<Run> {
    qtar::Figure4::new(seed).runs().to_vec()
}

/// All of them, in the order of the page.
pub(crate) fn all(seed: u64) -> Vec<Box<dyn Exhibit>> {
    vec![
        Box::new(Goals::all(seed)),
        Box::new(tables::Tables::new(seed)),
        Box::new(peers::Peers::new(seed)),
        Box::new(unchanged::Unchanged::new(seed)),
        Box::new(shards::Shards::new(seed)),
        Box::new(budgets::Budgets::new(seed)),
        Box::new(settled::Settled::new(seed)),
        Box::new(daft::Figure2::new(seed)),
        Box::new(daft_scale::Scales::new(seed)),
        Box::new(fragmented::Tables::new(seed)),
        Box::new(ntfs::ByReadAhead::new(seed)),
        Box::new(qtar::OwnOrder::new(seed)),
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
    use serde_json::json;

    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results;
    use crate::bench::results::Outcome;
    use crate::bench::results::tests::{on_its_image, record};
    use crate::bench::work::{Tool, Work};
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
                    again_s: Some(slow),
                    head: (0..90).map(|tenth| (tenth as f64 / 10.0, tenth << 24, (tenth << 24) + (9 << 20))).collect(),
                    detail: json!({"streaming_ms": 7000.0, "files": 29_000, "inodes_per_second": 3e6, "getppid_ns": 50.0,
                                   "memcpy_gb_per_second": 9.0, "peak_bytes": 200.0, "peak_budget": 80e6, "entry_bytes": 112.0, "plans": [plan("unmerged"), plan("merged")]}),
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

    /// Whoever types what a section says gets its runs and no others.
    #[test]
    fn a_section_names_its_own_cases() {
        let (exhibits, mut named) = (all(1), 0);
        for (index, exhibit) in exhibits.iter().enumerate() {
            let Some(asked) = asked_for(exhibit.as_ref()) else { continue };
            named += 1;
            for (other, exhibit) in exhibits.iter().enumerate() {
                let chosen = exhibit.cases().iter().filter(|case| case.name.starts_with(&asked)).count();
                let expected = if other == index { exhibit.cases().len() } else { 0 };
                assert_eq!(chosen, expected, "{asked}: {}", exhibit.title());
            }
        }
        assert_eq!(named, exhibits.len() - 1, "all but the goals, whose rows name their cases");
    }

    #[test]
    fn a_section_says_how_it_was_measured() {
        let exhibit = settled::Settled::new(1);
        let mut results = on_its_image();
        assert_eq!(source(&exhibit, &results), None);
        let runs = exhibit.cases().swap_remove(0).runs;
        results.enter(record(runs[0].clone(), 1.0));
        let text = source(&exhibit, &results).unwrap();
        assert_eq!(
            text,
            "*By `onesweep-lab bench sweep --case settled-` on `barracuda-7200.11`; from `random-ext4-1-all-1` \
             (`abc…`) of the [images](#images). One round of each run.*\n"
        );
        results.enter(record(runs[1].clone(), 2.0));
        let text = source(&exhibit, &results).unwrap();
        assert!(text.contains(" 2 rounds of each run: the median"), "{text}");
        results.enter(record(runs.iter().find(|run| run.work != runs[0].work).unwrap().clone(), 2.0));
        let text = source(&exhibit, &results).unwrap();
        assert!(text.contains(" 1 to 2 rounds of each run"), "{text}");
    }

    /// The median counts all rounds, so what is said of them has to, too.
    #[test]
    fn rounds_that_only_another_exhibit_asks_for_count() {
        let exhibit = qtar::Figure4::new(1);
        let [run, ..] = exhibit.runs();
        let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
        let mut results = Results::default();
        results.images.insert(run.setting.image.name(), facts);
        for (round, commit) in (0..4).zip(["one", "two", "two", "two"]) {
            let run = Run { round, ..run.clone() };
            let outcome = Outcome { busy_ms: 9000.0, commit: commit.into(), ..Outcome::default() };
            results.enter(Record { outcome, ..record(run, 0.0) });
        }
        assert_eq!(exhibit.cases()[0].runs.iter().filter(|own| own.work == run.work).count(), 1);
        let behind = behind(&exhibit, &results);
        let commits: Vec<&str> = behind.iter().flatten().map(|record| record.outcome.commit.as_str()).collect();
        assert_eq!(commits.iter().filter(|commit| **commit == "two").count(), 3);
        let text = source(&exhibit, &results).unwrap();
        assert!(text.contains(" 4 rounds of each run: the median"), "{text}");
    }

    #[test]
    fn what_was_measured_once_is_told_of_by_what_was_measured_often() {
        let exhibit = settled::Settled::new(1);
        let runs = exhibit.cases().swap_remove(0).runs;
        let mut results = on_its_image();
        results.enter(record(runs[0].clone(), 20_000.0));
        assert!(!source(&exhibit, &results).unwrap().contains("repeatable"), "nothing was measured often");
        let tar = |track_buffer| results::tests::setting().buffered(track_buffer).run(Work::of(Tool::GnuTar)).rounds(2);
        for (run, busy_ms) in tar(false).into_iter().zip([99_000.0, 101_000.0]) {
            results.enter(record(run, busy_ms));
        }
        for (run, busy_ms) in tar(true).into_iter().zip([50_000.0, 99_000.0]) {
            results.enter(record(run, busy_ms));
        }
        let text = source(&exhibit, &results).unwrap();
        assert!(
            text.contains(
                "by the 1 runs of this page that have several, on the same file systems, with the track buffer off, and take"
            ),
            "{text}"
        );
        assert!(text.contains("are 2.00 % of the median apart"), "{text}");
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
