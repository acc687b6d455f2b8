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
const PROGRAMS: [(Tool, Option<[f64; 2]>); 14] = [
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
    (Tool::Remove, None),
];
const CONTENT: Option<[f64; 2]> = Some([8.0, 3.0]);

/// Programs that run where there is nothing to gain.
const CLOCKED: [Tool; 9] =
    [Tool::GnuTar, Tool::Cp, Tool::Rsync, Tool::Grep, Tool::Sha256, Tool::Zip, Tool::GnuFind, Tool::Du, Tool::Ls];
/// How often what has no goal is measured.
const REPORTED_ROUNDS: u32 = 3;

/// Where there is nothing to gain, so that the clock counts.
#[derive(Clone, Copy)]
enum Idle {
    /// Everything is in memory.
    Warm,
    /// The disk has no head.
    Ssd,
}

impl Idle {
    const ALL: [Self; 2] = [Self::Warm, Self::Ssd];

    fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Ssd => "ssd",
        }
    }

    fn rounds(self) -> u32 {
        match self {
            Self::Warm => 7,
            Self::Ssd => 5,
        }
    }
}

/// What goes ahead of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Help {
    Run,
    View,
    /// On a copy of the image, since something may be written.
    ViewReadWrite,
}

impl Help {
    const ALL: [Self; 3] = [Self::Run, Self::View, Self::ViewReadWrite];

    fn given(self, tool: Tool, parts: u64) -> Work {
        match self {
            Self::Run => Work::of(tool).ahead(parts),
            Self::View if tool == Tool::Remove => Work::of(tool).viewed(parts).read_write(),
            Self::View => Work::of(tool).viewed(parts),
            Self::ViewReadWrite => Work::of(tool).viewed(parts).read_write(),
        }
    }

    /// restic makes its system calls itself, as programs in Go do, so `run` sees none of them.
    fn is_for(self, tool: Tool) -> bool {
        !matches!((self, tool), (Self::Run, Tool::Restic))
    }

    /// The clock's time beside that of the program alone, where there is nothing to gain; `None` where it is only told.
    fn most(self) -> Option<f64> {
        match self {
            Self::Run => Some(1.05),
            Self::View => Some(1.25),
            Self::ViewReadWrite => None,
        }
    }

    /// What starting may take beside that. Mounting a view counts.
    fn start_s(self) -> f64 {
        if self == Self::Run { 0.1 } else { 0.0 }
    }

    fn rounds(self, idle: Idle) -> u32 {
        if self.most().is_some() { idle.rounds() } else { REPORTED_ROUNDS }
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
        let helped = match help {
            Help::Run => "`onesweep run` s",
            Help::View | Help::ViewReadWrite => "`onesweep view` s",
        };
        let mut table = Table::new(&[
            "program",
            "alone s",
            helped,
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

    /// Where the clock counts.
    fn clocked(&self, idle: Idle) -> Setting {
        match idle {
            Idle::Warm => self.setting().warm(),
            Idle::Ssd => Setting::new(self.setting().image, Disk::new("ssd", Stretch::Whole).real(1.0)),
        }
    }

    fn clocked_case(&self, idle: Idle, tool: Tool) -> Case {
        let alone = self.clocked(idle).run(Work::of(tool)).rounds(idle.rounds());
        let helped = Help::ALL.map(|help| self.clocked(idle).run(help.given(tool, 1)).rounds(help.rounds(idle)));
        let sides: Vec<Vec<Run>> = std::iter::once(alone).chain(helped).collect();
        // In turns, so that a slow moment meets all sides.
        let runs = (0..idle.rounds() as usize).flat_map(|round| sides.iter().filter_map(move |side| side.get(round)));
        Case { name: format!("unchanged-{}-{}", idle.name(), named(tool)), runs: runs.cloned().collect() }
    }

    /// The clock's time with help, less what starting may take, beside that without, pair by pair.
    fn clock_ratio(&self, results: &Results, idle: Idle, help: Help, tool: Tool) -> Option<Spread> {
        let clock = |work: Work, less: f64| {
            let run = self.clocked(idle).run(work);
            results.by_round(&run, |outcome: &Outcome| Some((outcome.wall_s - less).max(0.0)))
        };
        statistics::ratios(&clock(help.given(tool, 1), help.start_s()), &clock(Work::of(tool), 0.0))
    }

    fn clock_table(&self, results: &Results, idle: Idle) -> Table {
        let alone = match idle {
            Idle::Warm => "alone, warm s",
            Idle::Ssd => "alone, `ssd` s",
        };
        let mut table = Table::new(&[
            "program",
            alone,
            "`run` ÷ alone",
            "to reach",
            "`view` ÷ alone",
            "to reach",
            "`view --read-write` ÷ alone",
        ]);
        for tool in CLOCKED {
            let alone = self.clocked(idle).run(Work::of(tool));
            let seconds = results.figure(&alone, |outcome| Some(outcome.wall_s));
            let mut row = vec![Work::of(tool).name(), page::measured(seconds)];
            for help in Help::ALL {
                let ratio = self.clock_ratio(results, idle, help, tool);
                row.push(page::measured(ratio));
                row.extend(help.most().map(|most| match ratio {
                    Some(ratio) if ratio.median > most => format!("≤ {most}, **not met**"),
                    Some(_) => format!("≤ {most}, met"),
                    None => format!("≤ {most}"),
                }));
            }
            table.row(row);
        }
        table
    }
}

/// What cases call it.
fn named(tool: Tool) -> String {
    Work::of(tool).name().to_lowercase().replace(' ', "-")
}

impl Exhibit for Unchanged {
    fn title(&self) -> &'static str {
        "Programs that nobody changed"
    }

    fn cases(&self) -> Vec<Case> {
        let cold = PROGRAMS.map(|(tool, _)| {
            let helps = [Help::Run, Help::View].into_iter().filter(|help| help.is_for(tool));
            let helped = helps.flat_map(|help| PARTS.map(|parts| help.given(tool, parts)));
            let works = std::iter::once(Work::of(tool)).chain(helped);
            Case { name: format!("unchanged-{}", named(tool)), runs: works.map(|work| self.run(work)).collect() }
        });
        let clocked = Idle::ALL.into_iter().flat_map(|idle| CLOCKED.map(|tool| self.clocked_case(idle, tool)));
        cold.into_iter().chain(clocked).collect()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        let [warm, ssd] = Idle::ALL.map(|idle| (idle.rounds(), self.clock_table(results, idle)));
        Ok(format!(
            "`random`, ext4, cold, track buffer off: modelled disk time of a program alone, and under `onesweep run`, with what \
             the helper reads. By default it may fill what memory the machine has to spare, which holds the tree; an eighth is \
             `--limit` with an eighth of the content's bytes. restic, written in Go, makes its system calls itself, where `run` sees none. \
             `rm -r` works on a copy of the image, and its time is that until all is written.\n\n{}\n\
             Through a read-only `onesweep view` (`rm -r` through one that may be written):\n\n{}\n\
             With everything in memory, by the clock, in pairs: {} rounds. What `run` takes is less {} ms for starting; that of `view` is \
             all, with mounting and unmounting. Through `view --read-write`, on a copy of the image, {REPORTED_ROUNDS} rounds.\n\n{}\n\
             Cold, on the model `ssd`, which has no seeks to save, in real time: the clock in the same way, {} rounds.\n\n{}",
            self.table(results, Help::Run),
            self.table(results, Help::View),
            warm.0,
            Help::Run.start_s() * 1000.0,
            warm.1,
            ssd.0,
            ssd.1,
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
    fn starting_is_granted_to_run_alone_where_there_is_nothing_to_gain() {
        let exhibit = Unchanged::new(1);
        for idle in Idle::ALL {
            let mut results = Results::default();
            let setting = exhibit.clocked(idle);
            let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
            results.images.insert(setting.image.name(), facts);
            let sides = [
                (Work::of(Tool::GnuTar), 1.0, 0.0),
                (Help::Run.given(Tool::GnuTar, 1), 1.0, 0.1),
                (Help::View.given(Tool::GnuTar, 1), 1.5, 0.0),
            ];
            for (work, times, start_s) in sides {
                for run in setting.run(work).rounds(idle.rounds()) {
                    let wall_s = times * (1.0 + f64::from(run.round)) + start_s;
                    let record = record(run, 0.0);
                    results.enter(Record { outcome: Outcome { wall_s, ..record.outcome }, ..record });
                }
            }
            let table = exhibit.clock_table(&results, idle).to_string();
            let row =
                "| 1.00 (1.00 to 1.00) | ≤ 1.05, met | 1.50 (1.50 to 1.50) | ≤ 1.25, **not met** | not measured |";
            assert!(table.lines().any(|line| line.starts_with("| GNU tar |") && line.ends_with(row)), "{table}");
        }
    }

    #[test]
    fn what_is_written_to_is_a_copy() {
        let cases = Unchanged::new(1).cases();
        let written = |case: &Case| case.runs.iter().filter(|run| run.work.writes()).count();
        let of = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
        assert_eq!(["unchanged-rm--r", "unchanged-cp--a"].map(|name| written(of(name))), [5, 0]);
        assert_eq!(written(of("unchanged-ssd-cp--a")), REPORTED_ROUNDS as usize);
    }

    #[test]
    fn who_calls_the_kernel_itself_is_helped_by_a_view_alone() {
        let exhibit = Unchanged::new(1);
        let cases = exhibit.cases();
        let runs = |name: &str| cases.iter().find(|case| case.name == name).unwrap().runs.len();
        assert_eq!([runs("unchanged-gnu-tar"), runs("unchanged-restic-backup")], [5, 3]);
        let clocked = |rounds: u32| (3 * rounds + REPORTED_ROUNDS) as usize;
        assert_eq!(runs("unchanged-warm-gnu-tar"), clocked(Idle::Warm.rounds()));
        assert_eq!(runs("unchanged-ssd-du--s"), clocked(Idle::Ssd.rounds()));
    }
}
