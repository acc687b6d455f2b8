//! Programs that nobody changed, with a sweep ahead of them: under `onesweep run`, and through `onesweep view`.

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::{Outcome, Results};
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::statistics::{self, Spread};
use crate::bench::work::{Tool, Work};

/// Memory for all that is read; and for an eighth of it.
const PARTS: [u64; 2] = [1, 8];

/// The programs, and how many times as fast they are to be with each of [`PARTS`]. Who reads no content has no goal.
const PROGRAMS: [(Tool, Option<[f64; 2]>); 13] = [
    (Tool::GnuTar, Some([15.0, 4.0])),
    (Tool::Cp, CONTENT),
    (Tool::Rsync, CONTENT),
    (Tool::FindCat, CONTENT),
    (Tool::Grep, CONTENT),
    (Tool::Sha256, CONTENT),
    (Tool::Zip, CONTENT),
    (Tool::Restic, CONTENT),
    (Tool::Borg, CONTENT),
    (Tool::Clamscan, CONTENT),
    (Tool::GnuFind, None),
    (Tool::Du, None),
    (Tool::Ls, None),
];
const CONTENT: Option<[f64; 2]> = Some([8.0, 3.0]);

/// Programs that run with everything in memory, where there is nothing to gain.
const WARM: [Tool; 4] = [Tool::GnuTar, Tool::Cp, Tool::Grep, Tool::GnuFind];
const WARM_ROUNDS: u32 = 7;
/// What starting may take.
const START_S: f64 = 0.1;
/// The clock's time beside that of the program alone, less [`START_S`]: under `run`, through `view`.
const WARM_MOST: [f64; 2] = [1.05, 1.25];

/// What goes ahead of a program.
#[derive(Clone, Copy)]
enum Help {
    Run,
    View,
}

impl Help {
    const ALL: [Self; 2] = [Self::Run, Self::View];

    fn given(self, tool: Tool, parts: u64) -> Work {
        match self {
            Self::Run => Work::of(tool).ahead(parts),
            Self::View => Work::of(tool).viewed(parts),
        }
    }

    /// restic makes its system calls itself, as programs in Go do, so `run` sees none of them.
    fn is_for(self, tool: Tool) -> bool {
        !matches!((self, tool), (Self::Run, Tool::Restic))
    }
}

/// Each program alone and ahead of it the sweep.
pub(crate) struct Unchanged {
    seed: u64,
}

impl Unchanged {
    /// On an image of its own: those of the other exhibits take long to measure again.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: seed + 16 }
    }

    fn setting(&self) -> Setting {
        let image = Subject::new("random", "ext4", 1.0, self.seed);
        Setting::new(image, Disk::new("barracuda-7200.11", Stretch::Whole))
    }

    fn run(&self, work: Work) -> Run {
        self.setting().run(work)
    }

    fn row(&self, results: &Results, help: Help, tool: Tool, goals: Option<[f64; 2]>) -> Vec<String> {
        let alone = self.run(Work::of(tool));
        let missing = results.of(&alone).and_then(|record| record.outcome.missing.clone());
        let mut row = vec![Work::of(tool).name()];
        if let Some(missing) = missing {
            row.push(format!("missing: {missing}"));
            return row;
        }
        row.push(page::measured(results.seconds(&alone)));
        for (index, parts) in PARTS.into_iter().enumerate() {
            let helped = self.run(help.given(tool, parts));
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

    fn table(&self, results: &Results, help: Help) -> Table {
        let mut table = Table::new(&[
            "program",
            "alone s",
            "helped s",
            "times as fast",
            "to reach",
            "with an eighth s",
            "times as fast",
            "to reach",
        ]);
        for (tool, goals) in PROGRAMS.into_iter().filter(|(tool, _)| help.is_for(*tool)) {
            table.row(self.row(results, help, tool, goals));
        }
        table
    }

    fn warm_runs(&self, work: Work) -> Vec<Run> {
        self.setting().warm().run(work).rounds(WARM_ROUNDS)
    }

    /// The clock's time with help, less what starting may take, beside that without, pair by pair.
    fn warm_ratio(&self, results: &Results, help: Help, tool: Tool) -> Option<Spread> {
        let clock = |work: Work, less: f64| {
            let run = self.setting().warm().run(work);
            results.by_round(&run, |outcome: &Outcome| Some(outcome.wall_s - less))
        };
        statistics::ratios(&clock(help.given(tool, 1), START_S), &clock(Work::of(tool), 0.0))
    }

    fn warm_table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["program", "alone s", "`run` ÷ alone", "to reach", "`view` ÷ alone", "to reach"]);
        for tool in WARM {
            let alone = self.setting().warm().run(Work::of(tool));
            let seconds = results.figure(&alone, |outcome| Some(outcome.wall_s));
            let mut row = vec![Work::of(tool).name(), page::measured(seconds)];
            for (help, most) in Help::ALL.into_iter().zip(WARM_MOST) {
                let ratio = self.warm_ratio(results, help, tool);
                row.push(page::measured(ratio));
                row.push(match ratio {
                    Some(ratio) if ratio.median > most => format!("≤ {most}, **not met**"),
                    Some(_) => format!("≤ {most}, met"),
                    None => format!("≤ {most}"),
                });
            }
            table.row(row);
        }
        table
    }
}

impl Exhibit for Unchanged {
    fn title(&self) -> &'static str {
        "Programs that nobody changed"
    }

    fn cases(&self) -> Vec<Case> {
        let named = |tool: Tool| Work::of(tool).name().to_lowercase().replace(' ', "-");
        let cold = PROGRAMS.map(|(tool, _)| {
            let helps = Help::ALL.into_iter().filter(|help| help.is_for(tool));
            let helped = helps.flat_map(|help| PARTS.map(|parts| help.given(tool, parts)));
            let works = std::iter::once(Work::of(tool)).chain(helped);
            Case { name: format!("unchanged-{}", named(tool)), runs: works.map(|work| self.run(work)).collect() }
        });
        let warm = WARM.map(|tool| {
            let works = std::iter::once(Work::of(tool)).chain(Help::ALL.map(|help| help.given(tool, 1)));
            let sides: Vec<_> = works.map(|work| self.warm_runs(work)).collect();
            // In turns, so that a slow moment meets all sides.
            let runs = (0..WARM_ROUNDS as usize).flat_map(|round| sides.iter().map(move |side| side[round].clone()));
            Case { name: format!("unchanged-warm-{}", named(tool)), runs: runs.collect() }
        });
        cold.into_iter().chain(warm).collect()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        Ok(format!(
            "`random`, ext4, cold, track buffer off: modelled disk time of a program alone, and under `onesweep run`, with what \
             the helper reads. By default it may fill what memory the machine has to spare, which holds the tree; an eighth is \
             `--limit` with an eighth of the content's bytes. restic, written in Go, makes its system calls itself, where `run` sees none.\n\n{}\n\
             Through a read-only `onesweep view`:\n\n{}\n\
             With everything in memory, by the clock, in pairs: {WARM_ROUNDS} rounds, less {} ms for starting, which for `view` \
             is mounting and unmounting, too.\n\n{}",
            self.table(results, Help::Run),
            self.table(results, Help::View),
            START_S * 1000.0,
            self.warm_table(results),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::{Record, tests::record};

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
        let table = exhibit.table(&results, Help::Run).to_string();
        let row = "| GNU tar | 300 | 15.0 | 20.0 | ≥ 15, met | 100 | 3.00 | ≥ 4, **not met** |";
        assert!(table.contains(row), "{table}");
        assert!(table.contains("| cp -a | not measured | not measured | not measured | ≥ 8 |"), "{table}");
    }

    #[test]
    fn starting_is_not_counted_where_all_is_in_memory() {
        let exhibit = Unchanged::new(1);
        let mut results = Results::default();
        let alone = exhibit.warm_runs(Work::of(Tool::GnuTar));
        let viewed = exhibit.warm_runs(Help::View.given(Tool::GnuTar, 1));
        let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
        results.images.insert(alone[0].setting.image.name(), facts);
        for (round, (alone, viewed)) in alone.into_iter().zip(viewed).enumerate() {
            let wall_s = 1.0 + round as f64;
            let of = |run, wall_s| {
                let record = record(run, 0.0);
                Record { outcome: Outcome { wall_s, ..record.outcome }, ..record }
            };
            results.enter(of(alone, wall_s));
            results.enter(of(viewed, 1.5 * wall_s + START_S));
        }
        let row =
            "| GNU tar | 4.00 (1.00 to 7.00) | not measured | ≤ 1.05 | 1.50 (1.50 to 1.50) | ≤ 1.25, **not met** |";
        let table = exhibit.warm_table(&results).to_string();
        assert!(table.contains(row), "{table}");
    }

    #[test]
    fn who_calls_the_kernel_itself_is_helped_by_a_view_alone() {
        let exhibit = Unchanged::new(1);
        let cases = exhibit.cases();
        let runs = |name: &str| cases.iter().find(|case| case.name == name).unwrap().runs.len();
        assert_eq!([runs("unchanged-gnu-tar"), runs("unchanged-restic-backup")], [5, 3]);
        assert_eq!(runs("unchanged-warm-gnu-tar"), 3 * WARM_ROUNDS as usize);
    }
}
