//! Programs that nobody changed, with a sweep ahead of them: under `onesweep run`, and through `onesweep view`.

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Pictures, Way, Ways};
use crate::bench::results::{Outcome, Results};
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::statistics::{self, Spread};
use crate::bench::work::{Tool, Work};

/// Memory for all that is read; and for an eighth of it.
const PARTS: [u64; 2] = [1, 8];

/// The programs, and how many times as fast they are to be with each of [`PARTS`]. Who reads little content, or none, has no goal.
const PROGRAMS: [(Tool, Option<[f64; 2]>); 15] = [
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
    (Tool::Picked, None),
    (Tool::GnuFind, None),
    (Tool::Du, None),
    (Tool::Ls, None),
    (Tool::Remove, None),
];
const CONTENT: Option<[f64; 2]> = Some([8.0, 3.0]);

/// Programs of an ordinary user.
const BY_USER: [Tool; 2] = [Tool::GnuTar, Tool::Grep];
/// The same with everything in memory: who reads all, who reads much and does little, who reads no content.
const CLOCKED_BY_USER: [Tool; 3] = [Tool::GnuTar, Tool::Grep, Tool::Ls];

/// Programs that run where there is nothing to gain.
const CLOCKED: [Tool; 13] = [
    Tool::GnuTar,
    Tool::Cp,
    Tool::Rsync,
    Tool::Grep,
    Tool::Sha256,
    Tool::Zip,
    Tool::Restic,
    Tool::Borg,
    Tool::Clamscan,
    Tool::GnuFind,
    Tool::Du,
    Tool::Ls,
    Tool::Remove,
];
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

    /// Whether a program runs twice: a view keeps what it has told the kernel.
    fn is_twice(self, help: Help) -> bool {
        matches!((self, help), (Self::Warm, Help::View | Help::ViewReadWrite | Help::Fuse))
    }

    /// What its columns are called.
    fn columns(self, help: Help) -> Vec<&'static str> {
        match (help, self.is_twice(help)) {
            (Help::Run, _) => vec!["`run` ÷ alone", "to reach", "`run`, its start with it, ÷ alone"],
            (Help::View, false) => vec!["`view` ÷ alone", "to reach"],
            (Help::View, true) => vec!["`view`, first ÷ alone", "to reach", "`view`, again ÷ alone", "to reach"],
            (Help::ViewReadWrite, false) => vec!["`view --read-write` ÷ alone"],
            (Help::ViewReadWrite, true) => {
                vec!["`view --read-write`, first ÷ alone", "`view --read-write`, again ÷ alone"]
            }
            (Help::Fuse, false) => vec!["`view --fuse` ÷ alone"],
            (Help::Fuse, true) => vec!["`view --fuse`, first ÷ alone", "`view --fuse`, again ÷ alone"],
        }
    }
}

/// What counts of an outcome, where it was measured.
type Seconds<'a> = &'a dyn Fn(&Outcome) -> Option<f64>;

/// What goes ahead of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Help {
    Run,
    View,
    /// On a copy of the image, since something may be written.
    ViewReadWrite,
    /// By root, who asks for it: a user's has neither fanotify nor processors that are kept awake.
    Fuse,
}

impl Help {
    const ALL: [Self; 4] = [Self::Run, Self::View, Self::ViewReadWrite, Self::Fuse];

    fn given(self, tool: Tool, parts: u64) -> Work {
        match self {
            Self::Run => Work::of(tool).ahead(parts),
            Self::View if tool == Tool::Remove => Work::of(tool).viewed(parts).read_write(),
            Self::View => Work::of(tool).viewed(parts),
            Self::ViewReadWrite => Work::of(tool).viewed(parts).read_write(),
            Self::Fuse => Self::View.given(tool, parts).by_fuse(),
        }
    }

    /// restic makes its system calls itself, as programs in Go do, so `run` sees none of them.
    fn is_for(self, tool: Tool) -> bool {
        !matches!((self, tool), (Self::Run, Tool::Restic))
    }

    /// Those that go ahead of a program where the clock counts. What removes files needs a view that may be written.
    fn clocked(tool: Tool) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |help| help.is_for(tool) && (*help != Self::View || tool != Tool::Remove))
    }

    /// The clock's time beside that of the program alone, where there is nothing to gain; `None` where it is only told.
    fn most(self) -> Option<f64> {
        match self {
            Self::Run => Some(1.05),
            Self::View => Some(1.25),
            Self::ViewReadWrite | Self::Fuse => None,
        }
    }

    /// What starting may take beside that. A view stands already where everything is in memory; else mounting it counts.
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
            Help::Fuse => "`onesweep view --fuse` s",
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

    /// An ordinary user's program with each kind of help, with all the memory and with a part.
    fn by_user(&self, tool: Tool) -> impl Iterator<Item = Run> {
        let works =
            [Help::Run, Help::View].into_iter().flat_map(move |help| PARTS.map(|parts| help.given(tool, parts)));
        works.map(|work| self.run(work.by_user()))
    }

    fn user_table(&self, results: &Results) -> Table {
        let helped = ["`onesweep run` s", "times as fast", "with an eighth s", "times as fast"];
        let viewed = ["`onesweep view` s", "times as fast", "with an eighth s", "times as fast"];
        let mut table = Table::new(&[&["program", "alone s"], &helped[..], &viewed[..]].concat());
        for tool in BY_USER {
            let alone = self.run(Work::of(tool));
            let mut row = vec![Work::of(tool).name(), page::measured(results.seconds(&alone))];
            for helped in self.by_user(tool) {
                row.push(page::measured(results.seconds(&helped)));
                row.push(page::measured(results.times(&alone, &helped)));
            }
            table.row(row);
        }
        table
    }

    /// An ordinary user's program alone, and in a view of his, with everything in memory.
    fn warm_by_user(&self, tool: Tool) -> [Run; 2] {
        [Work::of(tool).twice(), Help::View.given(tool, 1)].map(|work| self.clocked(Idle::Warm).run(work.by_user()))
    }

    fn warm_user_case(&self, tool: Tool) -> Case {
        let sides = self.warm_by_user(tool).map(|run| run.rounds(REPORTED_ROUNDS));
        let in_turns =
            (0..REPORTED_ROUNDS as usize).flat_map(|round| sides.iter().filter_map(move |side| side.get(round)));
        Case { name: format!("unchanged-user-warm-{}", named(tool)), runs: in_turns.cloned().collect() }
    }

    fn warm_user_table(&self, results: &Results) -> Table {
        let mut table =
            Table::new(&["program", "alone, warm, not root s", "`view`, first ÷ alone", "`view`, again ÷ alone"]);
        for tool in CLOCKED_BY_USER {
            let [alone, viewed] = self.warm_by_user(tool);
            let mut row =
                vec![Work::of(tool).name(), page::measured(results.figure(&alone, |outcome| Some(outcome.wall_s)))];
            let times: [fn(&Outcome) -> Option<f64>; 2] = [|outcome| Some(outcome.wall_s), |outcome| outcome.again_s];
            for seconds in times {
                let [viewed, alone] = [&viewed, &alone].map(|run| results.by_round(run, seconds));
                row.push(page::measured(statistics::ratios(&viewed, &alone)));
            }
            table.row(row);
        }
        table
    }

    /// Where the head is for GNU tar, alone and with each of [`PARTS`] ahead of it.
    fn way(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let works = PARTS.map(|parts| Help::Run.given(Tool::GnuTar, parts));
        let mut panels = Vec::new();
        for work in std::iter::once(Work::of(Tool::GnuTar)).chain(works) {
            let run = self.run(work);
            let Some(record) = results.of(&run).filter(|record| !record.outcome.head.is_empty()) else { continue };
            let gigabytes = |address: u64| address as f64 / 1e9;
            let tenths = record.outcome.head.iter().map(|&(at, from, to)| (at, gigabytes(from), gigabytes(to)));
            panels.push(Way { title: run.work.name(), tenths: tenths.collect() });
        }
        if panels.is_empty() {
            return Ok(String::new());
        }
        let top = panels.iter().flat_map(|way| way.tenths.iter().map(|tenth| tenth.2)).fold(0.1, f64::max);
        let ways = Ways { axis: "place (GB)".into(), top, panels };
        let drawn = pictures.add("unchanged-way", "place of the head over time", &ways)?;
        Ok(format!("Where the head is for GNU tar, over the same time.\n\n{drawn}\n"))
    }

    /// Where the clock counts.
    fn clocked(&self, idle: Idle) -> Setting {
        match idle {
            Idle::Warm => self.setting().warm(),
            Idle::Ssd => Setting::new(self.setting().image, Disk::new("ssd", Stretch::Whole).real(1.0)),
        }
    }

    /// A program without help, where the clock counts: as often as through a view. What is removed can't be removed again.
    fn alone(&self, idle: Idle, tool: Tool) -> Run {
        let is_twice = idle.is_twice(Help::View) && tool != Tool::Remove;
        self.clocked(idle).run(if is_twice { Work::of(tool).twice() } else { Work::of(tool) })
    }

    fn clocked_case(&self, idle: Idle, tool: Tool) -> Case {
        let alone = self.alone(idle, tool).rounds(idle.rounds());
        let helped =
            Help::clocked(tool).map(|help| self.clocked(idle).run(help.given(tool, 1)).rounds(help.rounds(idle)));
        let sides: Vec<Vec<Run>> = std::iter::once(alone).chain(helped).collect();
        // In turns, so that a slow moment meets all sides.
        let runs = (0..idle.rounds() as usize).flat_map(|round| sides.iter().filter_map(move |side| side.get(round)));
        Case { name: format!("unchanged-{}-{}", idle.name(), named(tool)), runs: runs.cloned().collect() }
    }

    /// The clock's time with help, less what starting may take, beside that without, pair by pair.
    fn clock_ratio(&self, results: &Results, idle: Idle, help: Help, tool: Tool) -> Option<Spread> {
        let clock = |outcome: &Outcome| Some((outcome.wall_s - help.start_s()).max(0.0));
        self.ratio_to_alone(results, idle, help, tool, [&clock, &|outcome| Some(outcome.wall_s)])
    }

    /// The same with all that starting takes.
    fn whole_ratio(&self, results: &Results, idle: Idle, help: Help, tool: Tool) -> Option<Spread> {
        self.ratio_to_alone(results, idle, help, tool, [&|outcome: &Outcome| Some(outcome.wall_s); 2])
    }

    /// The same of the second time in one view, beside the second time alone: there are programs that have the kernel forget what they read.
    fn again_ratio(&self, results: &Results, idle: Idle, help: Help, tool: Tool) -> Option<Spread> {
        self.ratio_to_alone(results, idle, help, tool, [&|outcome: &Outcome| outcome.again_s; 2])
    }

    fn ratio_to_alone(
        &self,
        results: &Results,
        idle: Idle,
        help: Help,
        tool: Tool,
        [seconds, seconds_alone]: [Seconds<'_>; 2],
    ) -> Option<Spread> {
        let alone = results.by_round(&self.alone(idle, tool), seconds_alone);
        let helped = self.clocked(idle).run(help.given(tool, 1));
        statistics::ratios(&results.by_round(&helped, seconds), &alone)
    }

    fn clock_table(&self, results: &Results, idle: Idle) -> Table {
        let alone = match idle {
            Idle::Warm => "alone, warm s",
            Idle::Ssd => "alone, `ssd` s",
        };
        let mut heads = vec!["program", alone];
        for help in Help::ALL {
            heads.extend(idle.columns(help));
        }
        let mut table = Table::new(&heads);
        for tool in CLOCKED {
            let alone = self.alone(idle, tool);
            let seconds = results.figure(&alone, |outcome| Some(outcome.wall_s));
            let mut row = vec![Work::of(tool).name(), page::measured(seconds)];
            for help in Help::ALL {
                let columns = idle.columns(help).len();
                if !Help::clocked(tool).any(|of_tool| of_tool == help) {
                    row.extend(vec!["–".to_owned(); columns]);
                    continue;
                }
                let mut ratios = vec![self.clock_ratio(results, idle, help, tool)];
                let is_again = idle.is_twice(help) && tool != Tool::Remove;
                ratios.extend(is_again.then(|| self.again_ratio(results, idle, help, tool)));
                for ratio in ratios {
                    row.push(page::measured(ratio));
                    row.extend(help.most().map(|most| match ratio {
                        Some(ratio) if ratio.median > most => format!("≤ {most}, **not met**"),
                        Some(_) => format!("≤ {most}, met"),
                        None => format!("≤ {most}"),
                    }));
                }
                if help.start_s() > 0.0 {
                    row.push(page::measured(self.whole_ratio(results, idle, help, tool)));
                }
                row.extend((idle.is_twice(help) && !is_again).then(|| "–".to_owned()));
            }
            table.row(row);
        }
        table
    }
}

/// How often it is measured from cold, where the disk's time is modelled. One of them tells how far such runs differ.
fn cold_rounds(tool: Tool) -> u32 {
    if tool == Tool::GnuTar { REPORTED_ROUNDS } else { 1 }
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
            let helps = [Help::Run, Help::View, Help::Fuse].into_iter().filter(|help| help.is_for(tool));
            let helped = helps.flat_map(|help| PARTS.map(|parts| help.given(tool, parts)));
            let works = std::iter::once(Work::of(tool)).chain(helped);
            let runs = works.flat_map(|work| self.run(work).rounds(cold_rounds(tool))).collect();
            Case { name: format!("unchanged-{}", named(tool)), runs }
        });
        let clocked = Idle::ALL.into_iter().flat_map(|idle| CLOCKED.map(|tool| self.clocked_case(idle, tool)));
        let by_user = BY_USER
            .map(|tool| Case { name: format!("unchanged-user-{}", named(tool)), runs: self.by_user(tool).collect() });
        let warm_by_user = CLOCKED_BY_USER.map(|tool| self.warm_user_case(tool));
        cold.into_iter().chain(by_user).chain(clocked).chain(warm_by_user).collect()
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let [warm, ssd] = Idle::ALL.map(|idle| (idle.rounds(), self.clock_table(results, idle)));
        Ok(format!(
            "`random`, ext4, cold, track buffer off: modelled disk time of a program alone, and under `onesweep run`, with what \
             the helper reads. By default it may fill what memory the machine has to spare, which holds the tree; an eighth is \
             `--limit` with an eighth of the content's bytes. restic, written in Go, makes its system calls itself, where `run` sees none. \
             `rm -r` works on a copy of the image, and its time is that until all is written. A second back-up is `find -type f -size +0`, and \
             `cat` of each hundredth file: it looks at all, and reads little.\n\n{}\n{}\
             Through a read-only `onesweep view` (`rm -r` through one that may be written):\n\n{}\n\
             The same by FUSE, which root can have, too. What was read through it lies in memory twice, and `--limit` counts it once, so an eighth takes the memory of two:\n\n{}\n\
             All of that as root. By an ordinary user, who may not read the tables of the disk, and whose view is by FUSE:\n\n{}\n\
             With everything in memory, the program among it, by the clock, in pairs: {} rounds. What `run` takes is less {} ms for starting, and 0.00 where that was all; one column has all of it. A view stands \
             already, and a program runs twice in it, as it does alone: first when the kernel knows nothing of the view, and again when it has kept what it was \
             told, which is held against the second time alone. Through `view --read-write`, on a copy of the image, and by FUSE, by root with `--fuse`, {REPORTED_ROUNDS} rounds. `rm -r` removes once, \
             and mounting its view counts.\n\n{}\n\
             The same by an ordinary user, beside his program alone, {REPORTED_ROUNDS} rounds; his view has neither fanotify nor processors that are kept awake \
             (`/dev/cpu_dma_latency`):\n\n{}\n\
             Cold, on the model `ssd`, which has no seeks to save, in real time: the clock in the same way, with mounting and unmounting the \
             view, {} rounds.\n\n{}",
            self.table(results, Help::Run),
            self.way(results, pictures)?,
            self.table(results, Help::View),
            self.table(results, Help::Fuse),
            self.user_table(results),
            warm.0,
            Help::Run.start_s() * 1000.0,
            warm.1,
            self.warm_user_table(results),
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

    /// GNU tar alone takes 300 seconds.
    fn tar_alone() -> (Unchanged, Results) {
        let (exhibit, mut results) = (Unchanged::new(1), Results::default());
        let alone = exhibit.run(Work::of(Tool::GnuTar));
        let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
        results.images.insert(alone.setting.image.name(), facts);
        results.enter(record(alone, 300_000.0));
        (exhibit, results)
    }

    #[test]
    fn a_program_is_held_against_itself_with_all_the_memory_and_with_an_eighth() {
        let (exhibit, mut results) = tar_alone();
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
            // Both are slower the second time, so that the view is as much slower.
            let again_s = |times: f64| idle.is_twice(Help::View).then_some(times);
            let sides = [
                (exhibit.alone(idle, Tool::GnuTar).work, 1.0, 0.0),
                (Help::Run.given(Tool::GnuTar, 1), 1.0, 0.1),
                (Help::View.given(Tool::GnuTar, 1), 1.5, 0.0),
            ];
            for (work, times, start_s) in sides {
                for run in setting.run(work).rounds(idle.rounds()) {
                    let wall_s = times * (1.0 + f64::from(run.round)) + start_s;
                    let record = record(run, 0.0);
                    let slower = if record.run.work.viewed.is_some() { 2.4 } else { 2.0 };
                    let again_s = again_s(slower * (1.0 + f64::from(record.run.round)));
                    results.enter(Record { outcome: Outcome { wall_s, again_s, ..record.outcome }, ..record });
                }
            }
            let table = exhibit.clock_table(&results, idle).to_string();
            let rounds = f64::from(idle.rounds());
            let whole = [1.0 + 2.0 * 0.1 / (1.0 + rounds), 1.0 + 0.1 / rounds, 1.1].map(page::number);
            let run_and_view = format!(
                "| 1.00 (1.00 to 1.00) | ≤ 1.05, met | {} ({} to {}) | 1.50 (1.50 to 1.50) | ≤ 1.25, **not met** |",
                whole[0], whole[1], whole[2]
            );
            let rest = match idle {
                Idle::Warm => {
                    " 1.20 (1.20 to 1.20) | ≤ 1.25, met | not measured | not measured | not measured | not measured |"
                }
                Idle::Ssd => " not measured | not measured |",
            };
            let row = format!("{run_and_view}{rest}");
            assert!(table.lines().any(|line| line.starts_with("| GNU tar |") && line.ends_with(&row)), "{table}");
        }
    }

    #[test]
    fn users_are_held_against_the_program_alone() {
        let (exhibit, mut results) = tar_alone();
        results.enter(record(exhibit.run(Work::of(Tool::GnuTar).ahead(1).by_user()), 20_000.0));
        results.enter(record(exhibit.run(Work::of(Tool::GnuTar).viewed(8).by_user()), 100_000.0));
        // That of root is another one.
        results.enter(record(exhibit.run(Work::of(Tool::GnuTar).ahead(8)), 10_000.0));
        let table = exhibit.user_table(&results).to_string();
        let none = "not measured | not measured";
        assert!(table.contains(&format!("| GNU tar | 300 | 20.0 | 15.0 | {none} | {none} | 100 | 3.00 |")), "{table}");
        let case = |case: &Case| case.name == "unchanged-user-gnu-tar" && case.runs.len() == 4;
        assert!(exhibit.cases().iter().any(case));
    }

    #[test]
    fn a_users_view_is_held_against_his_own_program() {
        let (exhibit, mut results) = (Unchanged::new(1), Results::default());
        let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
        results.images.insert(exhibit.setting().image.name(), facts);
        let case = exhibit.cases().into_iter().find(|case| case.name == "unchanged-user-warm-ls--lr").unwrap();
        assert_eq!(case.runs.len(), 2 * REPORTED_ROUNDS as usize);
        assert!(case.runs.iter().all(|run| run.work.by_user && run.setting.is_by_the_clock()));
        for run in case.runs {
            let alone_s = 1.0 + f64::from(run.round);
            let (wall_s, again_s) = if run.work.viewed.is_some() { (6.0, Some(6.0)) } else { (1.0, Some(2.0)) };
            let record = record(run, 0.0);
            let outcome = Outcome { wall_s: wall_s * alone_s, again_s: again_s.map(|s| s * alone_s), ..record.outcome };
            results.enter(Record { outcome, ..record });
        }
        // Root's alone and root's view by FUSE are other ones.
        let setting = exhibit.clocked(Idle::Warm);
        results.enter(record(setting.run(Work::of(Tool::Ls)), 0.0));
        results.enter(record(setting.run(Help::Fuse.given(Tool::Ls, 1)), 0.0));
        let table = exhibit.warm_user_table(&results).to_string();
        let row = "| ls -lR | 2.00 (1.00 to 3.00) | 6.00 (6.00 to 6.00) | 3.00 (3.00 to 3.00) |";
        assert!(table.contains(row), "{table}");
        assert!(table.contains("| GNU tar | not measured | not measured | not measured |"), "{table}");
    }

    #[test]
    fn the_way_of_the_head_is_drawn_of_what_was_kept() {
        let (exhibit, mut results) = tar_alone();
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(dir.path()).unwrap();
        assert_eq!(exhibit.way(&results, &mut pictures), Ok(String::new()));
        let helped = record(exhibit.run(Work::of(Tool::GnuTar).ahead(8)), 50_000.0);
        let head = vec![(0.0, 0, 9 << 20), (0.1, 0, 1 << 30)];
        results.enter(Record { outcome: Outcome { head, ..helped.outcome.clone() }, ..helped });
        assert!(exhibit.way(&results, &mut pictures).unwrap().contains("unchanged-way.svg"));
        let drawn = std::fs::read_to_string(dir.path().join("unchanged-way.svg")).unwrap();
        assert!(drawn.contains("onesweep run --limit 1/8 GNU tar"), "{drawn}");
    }

    #[test]
    fn what_is_written_to_is_a_copy() {
        let cases = Unchanged::new(1).cases();
        let written = |case: &Case| case.runs.iter().filter(|run| run.work.writes()).count();
        let of = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
        assert_eq!(["unchanged-rm--r", "unchanged-cp--a"].map(|name| written(of(name))), [7, 0]);
        assert_eq!(written(of("unchanged-ssd-cp--a")), REPORTED_ROUNDS as usize);
    }

    #[test]
    fn who_calls_the_kernel_itself_is_helped_by_a_view_alone() {
        let exhibit = Unchanged::new(1);
        let cases = exhibit.cases();
        let runs = |name: &str| cases.iter().find(|case| case.name == name).unwrap().runs.len();
        assert_eq!([runs("unchanged-gnu-tar"), runs("unchanged-grep--r"), runs("unchanged-restic-backup")], [21, 7, 5]);
        let clocked = |rounds: u32| (3 * rounds + 2 * REPORTED_ROUNDS) as usize;
        assert_eq!(runs("unchanged-warm-gnu-tar"), clocked(Idle::Warm.rounds()));
        assert_eq!(runs("unchanged-ssd-du--s"), clocked(Idle::Ssd.rounds()));
        assert_eq!(runs("unchanged-ssd-restic-backup"), clocked(Idle::Ssd.rounds()) - Idle::Ssd.rounds() as usize);
        let removing = cases.iter().find(|case| case.name == "unchanged-warm-rm--r").unwrap();
        assert!(removing.runs.iter().all(|run| run.work.writes()) && removing.runs.len() == clocked(7) - 7);
    }
}
