//! Programs that nobody changed, with `onesweep run` sweeping ahead of them.

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

/// Memory for all that is read; and for an eighth of it.
const PARTS: [u64; 2] = [1, 8];

/// The programs, and how many times as fast they are to be with each of [`PARTS`]. Who reads no content has no goal.
const PROGRAMS: [(Tool, Option<[f64; 2]>); 10] = [
    (Tool::GnuTar, Some([15.0, 4.0])),
    (Tool::Cp, CONTENT),
    (Tool::Rsync, CONTENT),
    (Tool::FindCat, CONTENT),
    (Tool::Grep, CONTENT),
    (Tool::Sha256, CONTENT),
    (Tool::Zip, CONTENT),
    (Tool::GnuFind, None),
    (Tool::Du, None),
    (Tool::Ls, None),
];
const CONTENT: Option<[f64; 2]> = Some([8.0, 3.0]);

/// Each program alone and ahead of it the sweep.
pub(crate) struct Unchanged {
    seed: u64,
}

impl Unchanged {
    /// On an image of its own: those of the other exhibits take long to measure again.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: seed + 16 }
    }

    fn run(&self, work: Work) -> Run {
        let image = Subject::new("random", "ext4", 1.0, self.seed);
        Setting::new(image, Disk::new("barracuda-7200.11", Stretch::Whole)).run(work)
    }

    fn row(&self, results: &Results, tool: Tool, goals: Option<[f64; 2]>) -> Vec<String> {
        let alone = self.run(Work::of(tool));
        let missing = results.of(&alone).and_then(|record| record.outcome.missing.clone());
        let mut row = vec![Work::of(tool).name()];
        if let Some(missing) = missing {
            row.push(format!("missing: {missing}"));
            return row;
        }
        row.push(page::measured(results.seconds(&alone)));
        for (index, parts) in PARTS.into_iter().enumerate() {
            let helped = self.run(Work::of(tool).ahead(parts));
            let times = results.times(&alone, &helped);
            row.extend([page::measured(results.seconds(&helped)), page::measured(times)]);
            row.push(match (goals, times) {
                (Some(goals), Some(times)) if times.median < goals[index] => format!("≥ {}, **not met**", goals[index]),
                (Some(goals), Some(_)) => format!("≥ {}, met", goals[index]),
                (Some(goals), None) => format!("≥ {}", goals[index]),
                (None, _) => String::new(),
            });
        }
        row
    }

    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&[
            "program",
            "alone s",
            "`onesweep run` s",
            "times as fast",
            "to reach",
            "with an eighth s",
            "times as fast",
            "to reach",
        ]);
        for (tool, goals) in PROGRAMS {
            table.row(self.row(results, tool, goals));
        }
        table
    }
}

impl Exhibit for Unchanged {
    fn title(&self) -> &'static str {
        "Programs that nobody changed"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |(tool, _): (Tool, Option<[f64; 2]>)| {
            let works = std::iter::once(Work::of(tool)).chain(PARTS.map(|parts| Work::of(tool).ahead(parts)));
            let name = Work::of(tool).name().to_lowercase().replace(' ', "-");
            Case { name: format!("unchanged-{name}"), runs: works.map(|work| self.run(work)).collect() }
        };
        PROGRAMS.map(case).into()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        Ok(format!(
            "`random`, ext4, cold, track buffer off: modelled disk time of a program alone, and under `onesweep run`, with what \
             the helper reads. By default it may fill what memory the machine has to spare, which holds the tree; an eighth is \
             `--limit` with an eighth of the content's bytes.\n\n{}",
            self.table(results)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::tests::record;

    #[test]
    fn a_program_is_held_against_itself_with_all_the_memory_and_with_an_eighth() {
        let exhibit = Unchanged::new(1);
        let mut results = Results::default();
        let alone = exhibit.run(Work::of(Tool::GnuTar));
        let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
        results.images.insert(alone.setting.image.name(), facts);
        results.enter(record(alone, 300_000.0));
        results.enter(record(exhibit.run(Work::of(Tool::GnuTar).ahead(1)), 15_000.0));
        results.enter(record(exhibit.run(Work::of(Tool::GnuTar).ahead(8)), 100_000.0));
        let table = exhibit.table(&results).to_string();
        let row = "| GNU tar | 300 | 15.0 | 20.0 | ≥ 15, met | 100 | 3.00 | ≥ 4, **not met** |";
        assert!(table.contains(row), "{table}");
        assert!(table.contains("| cp -a | not measured | not measured | not measured | ≥ 8 |"), "{table}");
    }
}
