//! One row of what has to come out: what is divided by what, the paper's figure, the goal, and what was measured.

use super::Case;
use crate::bench::page::{self, Table};
use crate::bench::results::{Outcome, Results};
use crate::bench::run::{Company, Run, Setting};
use crate::bench::statistics::{self, Rounds, Spread};
use crate::bench::work::{Tool, Work};

/// What a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
    /// Away from 1 by no more than that part.
    Within(f64),
}

impl Aim {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Within(part) => (value - 1.0).abs() <= part,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least}"),
            Self::AtMost(most) => format!("≤ {most}"),
            Self::Within(part) => format!("1 ± {part}"),
        }
    }
}

/// What is divided by what.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Measure {
    /// Disk time of GNU tar ÷ ours.
    GnuTar,
    /// Disk time of ours ÷ one perfect sweep.
    Sweep,
    /// Time to stream the useful bytes ÷ disk time of ours.
    Streaming,
    /// Disk time of ours ÷ that of another of ours.
    Other(Work),
    /// Disk time of the requests that touch content ÷ the time that the plan predicts.
    Plan(Work),
    /// Wall clock of GNU tar ÷ ours.
    WallFaster,
    /// Wall clock of ours ÷ GNU tar, in pairs.
    WallPaired,
    /// What ours says of itself, under that name.
    Own(&'static Figure),
}

/// A figure that a program of ours tells of itself.
#[derive(Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) key: &'static str,
    pub(super) text: &'static str,
    /// Whether more is better.
    pub(super) grows: bool,
}

impl Measure {
    fn text(&self) -> String {
        match self {
            Self::GnuTar => "GNU tar ÷ ours".into(),
            Self::Sweep => "ours ÷ one perfect sweep".into(),
            Self::Streaming => "streaming ÷ ours".into(),
            Self::Other(other) => format!("ours ÷ `{}`", other.name()),
            Self::Plan(_) => "measured ÷ planned, data phase".into(),
            Self::WallFaster => "GNU tar ÷ ours, wall clock".into(),
            Self::WallPaired => "ours ÷ GNU tar, wall clock, pairs".into(),
            Self::Own(figure) => figure.text.into(),
        }
    }

    /// Whether more is better.
    fn grows(&self) -> bool {
        matches!(self, Self::GnuTar | Self::Streaming | Self::WallFaster | Self::Own(Figure { grows: true, .. }))
    }
}

/// One row.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    case: String,
    what: String,
    /// The paper's own figure.
    paper: String,
    setting: Setting,
    ours: Work,
    measure: Measure,
    off: Option<Aim>,
    on: Option<Aim>,
    rounds: u32,
    /// Whether the other side is measured in one round only.
    once: bool,
    /// Whether the row has a column for the track buffer switched on.
    both: bool,
    /// How often ours is measured with the track buffer on; as often as off, unless something else is said.
    rounds_on: Option<u32>,
    /// How often the order of qtar is measured beside ours, if it is.
    rounds_by_extent: Option<u32>,
}

/// Even in virtual time no two runs are the same: the kernel's threads meet the disk in other orders.
const ROUNDS: u32 = 3;

impl Goal {
    pub(super) fn new(case: &str, what: &str, setting: Setting) -> Self {
        Self {
            case: case.into(),
            what: what.into(),
            paper: "–".into(),
            setting,
            ours: Work::of(Tool::Tar),
            measure: Measure::GnuTar,
            off: None,
            on: None,
            rounds: ROUNDS,
            once: false,
            both: true,
            rounds_on: None,
            rounds_by_extent: None,
        }
    }

    pub(super) fn paper(self, paper: &str) -> Self {
        Self { paper: paper.into(), ..self }
    }

    pub(super) fn ours(self, ours: Work) -> Self {
        Self { ours, ..self }
    }

    pub(super) fn measure(self, measure: Measure) -> Self {
        Self { measure, ..self }
    }

    pub(super) fn off(self, aim: Aim) -> Self {
        Self { off: Some(aim), ..self }
    }

    pub(super) fn on(self, aim: Aim) -> Self {
        Self { on: Some(aim), ..self }
    }

    pub(super) fn rounds(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// The same under another name.
    pub(super) fn case_named(self, case: &str) -> Self {
        Self { case: case.into(), ..self }
    }

    /// With the other side measured in one round only.
    pub(super) fn once(self) -> Self {
        Self { once: true, ..self }
    }

    pub(super) fn off_only(self) -> Self {
        Self { both: false, ..self }
    }

    /// With one round where the track buffer is on.
    pub(super) fn once_on(self) -> Self {
        Self { rounds_on: Some(1), ..self }
    }

    /// With as many rounds of ours by first extent, as qtar sorts, beside the row.
    pub(super) fn by_extent(self, rounds: u32) -> Self {
        Self { rounds_by_extent: Some(rounds), ..self }
    }

    fn rounds_with(&self, track_buffer: bool) -> u32 {
        self.rounds_on.filter(|_| track_buffer).unwrap_or(self.rounds)
    }

    fn columns(&self) -> &'static [bool] {
        if self.both { &[false, true] } else { &[false] }
    }

    pub(super) fn our_run(&self, track_buffer: bool) -> Run {
        self.setting.buffered(track_buffer).run(self.ours.clone())
    }

    /// The same in the order of qtar, through the file system as qtar reads.
    fn by_extent_run(&self, track_buffer: bool) -> Run {
        let mut options = ["--order", "first-extent"].map(String::from).to_vec();
        let mut own = self.ours.options.iter();
        while let Some(option) = own.next() {
            match option.as_str() {
                "--device" => {}
                "--strategy" => drop(own.next()),
                _ => options.push(option.clone()),
            }
        }
        self.setting.buffered(track_buffer).run(Work { options, ..self.ours.clone() })
    }

    pub(super) fn bound_run(&self) -> Run {
        self.setting.of_bounds().run(Work { most_kib: self.ours.most_kib, ..Work::of(Tool::Bound) })
    }

    pub(super) fn other_run(&self, track_buffer: bool) -> Run {
        let setting = self.setting.buffered(track_buffer);
        match &self.measure {
            Measure::GnuTar | Measure::WallFaster | Measure::WallPaired => {
                setting.run(Work { most_kib: self.ours.most_kib, ..Work::of(Tool::GnuTar) })
            }
            Measure::Sweep | Measure::Streaming => self.bound_run(),
            Measure::Other(work) if work.is_bound() => self.setting.of_bounds().run(work.clone()),
            Measure::Other(work) => setting.run(work.clone()),
            Measure::Own(_) => self.our_run(track_buffer),
            Measure::Plan(work) => setting.buffered(false).run(work.clone()),
        }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for &track_buffer in self.columns() {
            let rounds = self.rounds_with(track_buffer);
            runs.extend(self.other_run(track_buffer).rounds(if self.is_other_once() { 1 } else { rounds }));
            runs.extend(self.our_run(track_buffer).rounds(rounds));
            if let Some(by_extent) = self.rounds_by_extent {
                runs.extend(self.by_extent_run(track_buffer).rounds(by_extent));
            }
        }
        runs.extend(self.has_sweep().then(|| self.bound_run()));
        runs
    }

    /// Whether the other side is measured, or computed, but once.
    fn is_other_once(&self) -> bool {
        match self.measure {
            Measure::Sweep | Measure::Streaming | Measure::Plan(_) => true,
            Measure::Other(ref work) => work.is_bound() || (self.once && !work.is_ours()),
            Measure::Own(_) => false,
            Measure::GnuTar | Measure::WallFaster | Measure::WallPaired => self.once,
        }
    }

    /// A bound or a plan is the same each time it is computed; a program is not.
    fn is_other_measured_once(&self) -> bool {
        let computed = matches!(self.measure, Measure::Plan(_)) || self.other_run(false).work.is_bound();
        self.is_other_once() && !computed
    }

    /// Whether the bound stands beside the row. It is made for a disk that nobody else uses.
    fn has_sweep(&self) -> bool {
        self.measure == Measure::GnuTar && self.setting.company == Company::Alone
    }

    /// How many times as fast as GNU tar the order of qtar is, by the track buffer: off / on.
    fn by_extent_cell(&self, results: &Results) -> String {
        if self.rounds_by_extent.is_none() {
            return String::new();
        }
        let tar = |on| {
            let work = Work { most_kib: self.ours.most_kib, ..Work::of(Tool::GnuTar) };
            self.setting.buffered(on).run(work)
        };
        let times = |&on: &bool| page::measured(results.times(&tar(on), &self.by_extent_run(on)));
        let mut cells: Vec<String> = self.columns().iter().map(times).collect();
        cells.dedup_by(|cell, other| cell == page::NOT_MEASURED && other == page::NOT_MEASURED);
        cells.join(" / ")
    }

    /// The figure of a column.
    pub(super) fn value(&self, results: &Results, track_buffer: bool) -> Option<Spread> {
        let (ours, other) = (self.our_run(track_buffer), self.other_run(track_buffer));
        let ours = |figure: fn(&Outcome) -> Option<f64>| results.by_round(&ours, figure);
        // What is there once is held against every round.
        let others = |figure: fn(&Outcome) -> Option<f64>| -> Rounds {
            let values = results.by_round(&other, figure);
            match values.first_key_value() {
                Some((_, &value)) if self.is_other_once() => (0..self.rounds).map(|round| (round, value)).collect(),
                _ => values,
            }
        };
        let busy = |outcome: &Outcome| Some(outcome.busy_ms);
        let wall = |outcome: &Outcome| Some(outcome.wall_s);
        let streaming = |outcome: &Outcome| outcome.detail["streaming_ms"].as_f64();
        let figure = match self.measure {
            Measure::Own(figure) => {
                let own = |outcome: &Outcome| outcome.detail[figure.key].as_f64();
                results.figure(&self.our_run(track_buffer), own)
            }
            Measure::GnuTar => statistics::ratios(&others(busy), &ours(busy)),
            Measure::Sweep | Measure::Other(_) => statistics::ratios(&ours(busy), &others(busy)),
            Measure::Streaming => statistics::ratios(&others(streaming), &ours(busy)),
            Measure::Plan(_) => statistics::ratios(&ours(|outcome| outcome.data_ms), &others(planned_ms)),
            Measure::WallFaster => statistics::ratios(&others(wall), &ours(wall)),
            Measure::WallPaired => statistics::ratios(&ours(wall), &others(wall)),
        };
        figure.map(|spread| spread.one_sided(self.is_other_measured_once()))
    }

    /// The best of all rounds, more being better: a busy machine can only make a round worse.
    pub(crate) fn score(&self, results: &Results) -> Option<f64> {
        let value = self.value(results, false)?;
        if self.measure.grows() { Some(value.greatest) } else { (value.least > 0.0).then(|| 1.0 / value.least) }
    }

    pub(crate) fn case(&self) -> Case {
        Case { name: self.case.clone(), runs: self.runs() }
    }

    /// How many times as long as one perfect sweep GNU tar takes, and ours.
    pub(super) fn over_sweep(&self, results: &Results, track_buffer: bool) -> Option<(f64, f64)> {
        if !self.has_sweep() {
            return None;
        }
        let sweep = results.busy_ms(&self.bound_run())?.median;
        let ours = results.busy_ms(&self.our_run(track_buffer))?.median;
        let tar = results.busy_ms(&self.other_run(track_buffer))?.median;
        Some((tar / sweep, ours / sweep))
    }

    pub(super) fn verdict(&self, results: &Results) -> String {
        let mut said = Vec::new();
        for (aim, track_buffer) in [(self.off, false), (self.on, true)] {
            let Some(aim) = aim else { continue };
            let Some(value) = self.value(results, track_buffer) else {
                said.push("not measured".to_owned());
                continue;
            };
            said.push(if aim.is_met(value.median) {
                "met".into()
            } else {
                match (aim, self.over_sweep(results, track_buffer)) {
                    (Aim::AtLeast(least), Some((possible, over))) => excuse(least, possible, over),
                    _ => "**not met**".into(),
                }
            });
        }
        said.dedup();
        said.join(" / ")
    }

    pub(super) fn row(&self, results: &Results) -> Vec<String> {
        let cell = |track_buffer: bool| match self.value(results, track_buffer) {
            _ if track_buffer && !self.both => String::new(),
            Some(spread) if spread.count == 1 => format!("{}, one round", page::number(spread.median)),
            Some(spread) => page::spread(spread),
            None => why_not(results, &[self.our_run(track_buffer), self.other_run(track_buffer)]),
        };
        let aims: Vec<String> = match (self.off, self.on) {
            (None, None) => vec!["–".into()],
            (Some(off), None) => vec![off.text()],
            (None, Some(on)) => vec![format!("on: {}", on.text())],
            (Some(off), Some(on)) => vec![off.text(), on.text()],
        };
        let sweep = self.over_sweep(results, false);
        let sweep = sweep.map_or_else(String::new, |(possible, _)| page::number(possible));
        let (name, measure) = (format!("`{}`", self.ours.name()), self.measure.text());
        let verdict = self.verdict(results);
        let paper = self.paper.clone();
        let by = [format!("`{}`", self.case), page::image(&self.setting.image, results)];
        let by_extent = self.by_extent_cell(results);
        let figures = [paper, aims.join(" / "), cell(false), cell(true), by_extent, sweep, verdict];
        [&[self.what.clone(), name, measure], &figures[..], &by].concat()
    }
}

/// A figure that even the perfect sweep doesn't allow is replaced by being within 1.25 of that sweep.
fn excuse(least: f64, possible: f64, over: f64) -> String {
    if possible < least && over <= 1.25 {
        format!("as near as can be: {over:.2} of the sweep, which itself would not reach it")
    } else {
        "**not met**".into()
    }
}

fn planned_ms(outcome: &Outcome) -> Option<f64> {
    let plans = outcome.detail["plans"].as_array()?;
    let seconds = plans.iter().find(|plan| plan["chosen"] == true)?["seconds"].as_f64()?;
    Some(seconds * 1000.0)
}

/// Why there is no figure.
fn why_not(results: &Results, runs: &[Run]) -> String {
    let missing = runs.iter().find_map(|run| results.of(run)?.outcome.missing.clone());
    missing.unwrap_or_else(|| "not measured".into())
}

/// The column for ours in the order of qtar.
const BY_EXTENT: &str = "by first extent, as qtar: off / on";

/// All rows under their heads. That column stands where a row has it.
pub(super) fn table(goals: &[Goal], results: &Results) -> Table {
    let mut heads = vec!["case", "ours", "figure", "the paper", "to reach", "track buffer off", "on"];
    heads.extend([BY_EXTENT, "a perfect sweep would give", "", "`--case`", "image"]);
    let by_extent = heads.iter().position(|head| *head == BY_EXTENT);
    let dropped = by_extent.filter(|_| goals.iter().all(|goal| goal.rounds_by_extent.is_none()));
    if let Some(column) = dropped {
        heads.remove(column);
    }
    let mut table = Table::new(&heads);
    for goal in goals {
        let mut row = goal.row(results);
        if let Some(column) = dropped {
            row.remove(column);
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::Record;
    use crate::bench::results::tests::{on_its_image, record, setting};

    fn goal() -> Goal {
        Goal::new("random", "`random`", setting()).off(Aim::AtLeast(25.0)).on(Aim::AtLeast(4.0))
    }

    fn results(tar: f64, ours: f64, sweep: f64) -> Results {
        let mut results = on_its_image();
        for track_buffer in [false, true] {
            results.enter(record(goal().other_run(track_buffer), tar));
            results.enter(record(goal().our_run(track_buffer), ours));
        }
        results.enter(record(goal().bound_run(), sweep));
        results
    }

    #[test]
    fn aims_are_met_or_not() {
        assert!(Aim::AtLeast(2.0).is_met(2.0) && !Aim::AtLeast(2.0).is_met(1.9));
        assert!(Aim::AtMost(1.1).is_met(1.1) && !Aim::AtMost(1.1).is_met(1.2));
        assert!(Aim::Within(0.1).is_met(0.91) && !Aim::Within(0.1).is_met(1.11));
    }

    #[test]
    fn a_row_says_what_came_out() {
        assert_eq!(goal().verdict(&results(300.0, 10.0, 9.0)), "met");
        assert_eq!(goal().verdict(&results(100.0, 10.0, 3.0)), "**not met** / met");
        // 100 ÷ 9 is all that could be had, and 10 is within 1.25 of 9.
        let excused = goal().verdict(&results(100.0, 10.0, 9.0));
        assert!(excused.starts_with("as near as can be: 1.11 of the sweep"), "{excused}");
        assert_eq!(goal().verdict(&Results::default()), "not measured");
        let row = goal().row(&results(100.0, 10.0, 8.0));
        assert_eq!(row[4..9], ["≥ 25 / ≥ 4", "10.0, one round", "10.0, one round", "", "12.5"]);
        assert_eq!(row[10..], ["`random`", "`random-ext4-1-all-1` (`abc…`)"]);
    }

    /// However far the kernel reads ahead, one sweep over the extents is the same.
    #[test]
    fn one_bound_serves_all_read_aheads() {
        let goals = [16, 128].map(|kib| {
            let disk = setting().disk.read_ahead(kib);
            Goal::new("random", "", Setting { disk, ..setting() }).off(Aim::AtLeast(25.0))
        });
        assert_eq!(goals[0].bound_run(), goals[1].bound_run());
        assert_eq!(goals[0].bound_run(), goal().bound_run());
        assert_ne!(goals[0].other_run(false), goals[1].other_run(false));
        assert_ne!(goals[0].our_run(false), goals[1].our_run(false));
    }

    /// What the sweep would give against a GNU tar that reads ahead is not what it would give against one that can't.
    #[test]
    fn each_goal_is_held_against_a_sweep_with_its_own_track_buffer() {
        let goal = goal().on(Aim::AtLeast(10.0));
        let mut results = results(300.0, 10.0, 9.0);
        results.enter(record(goal.other_run(true), 80.0));
        let verdict = goal.verdict(&results);
        assert!(verdict.starts_with("met / as near as can be: 1.11 of the sweep"), "{verdict}");
        results.enter(record(goal.our_run(true), 20.0));
        assert_eq!(goal.verdict(&results), "met / **not met**");
    }

    #[test]
    fn no_sweep_stands_beside_a_disk_that_is_shared() {
        let shared = |company| Goal::new("random", "", setting().beside(company)).off(Aim::AtLeast(25.0));
        for company in [Company::Reader, Company::Writer] {
            let goal = shared(company);
            let mut results = results(100.0, 10.0, 9.0);
            results.enter(record(goal.other_run(false), 100.0));
            results.enter(record(goal.our_run(false), 10.0));
            results.enter(record(goal.bound_run(), 9.0));
            assert_eq!(goal.row(&results)[8..10], ["", "**not met**"]);
            assert!(goal.runs().iter().all(|run| run.work.tool != Tool::Bound));
        }
        assert!(shared(Company::Alone).runs().iter().any(|run| run.work.tool == Tool::Bound));
    }

    /// A pass over the metadata is computed once, whatever the track buffer, and other programs are measured once where that
    /// is wanted; ours never.
    #[test]
    fn others_are_measured_once_where_that_says_enough() {
        let against = |tool| {
            let goal =
                Goal::new("find", "", setting()).ours(Work::of(Tool::Find)).measure(Measure::Other(Work::of(tool)));
            goal.rounds(3).once().off_only()
        };
        let others = |tool| against(tool).runs().iter().filter(|run| run.work.tool == tool).count();
        assert_eq!([Tool::MetadataBound, Tool::GnuFind, Tool::Plan].map(others), [1, 1, 3]);
        assert!(!against(Tool::MetadataBound).other_run(true).setting.disk.track_buffer);
    }

    #[test]
    fn a_spread_against_a_program_that_ran_once_is_marked() {
        let figure = |goal: Goal| {
            let mut results = on_its_image();
            results.enter(record(goal.other_run(false), 300.0));
            for round in 0..3 {
                results.enter(record(Run { round, ..goal.our_run(false) }, 10.0));
            }
            page::measured(goal.value(&results, false))
        };
        assert_eq!(figure(goal().once()), "30.0 (30.0 to 30.0)†");
        assert_eq!(figure(goal().measure(Measure::Sweep)), "0.03 (0.03 to 0.03)");
    }

    #[test]
    fn a_program_tells_of_itself() {
        static RATE: Figure = Figure { key: "rate", text: "things a second", grows: true };
        let goal = Goal::new("scan", "", setting().warm()).ours(Work::of(Tool::Scan)).measure(Measure::Own(&RATE));
        let goal = goal.off(Aim::AtLeast(2e6)).off_only();
        let mut results = on_its_image();
        let outcome = Outcome { detail: serde_json::json!({"rate": 3e6}), ..Outcome::default() };
        results.enter(Record { outcome, ..record(goal.our_run(false), 0.0) });
        assert_eq!((goal.verdict(&results).as_str(), goal.score(&results)), ("met", Some(3e6)));
        assert_eq!(goal.row(&results)[2..6], ["things a second", "–", "≥ 2000000", "3000000, one round"]);
    }

    #[test]
    fn scores_grow_with_quality() {
        let results = results(300.0, 10.0, 8.0);
        assert_eq!(goal().score(&results), Some(30.0));
        assert_eq!(goal().measure(Measure::Sweep).score(&results), Some(0.8));
        assert_eq!(goal().score(&Results::default()), None);
    }

    /// A run that is made again comes to the end of the results.
    #[test]
    fn pairs_are_of_the_same_round_wherever_they_stand() {
        let goal = Goal::new("warm", "", setting().warm()).measure(Measure::WallPaired).rounds(3).off_only();
        let mut results = on_its_image();
        for round in [1, 0, 2] {
            for (run, wall_s) in [(goal.our_run(false), 2.0), (goal.other_run(false), 4.0)] {
                let outcome = Outcome { wall_s: wall_s * f64::from(round + 1), ..Outcome::default() };
                results.enter(Record { outcome, ..record(Run { round, ..run }, 0.0) });
            }
        }
        let again = results.runs[0].clone();
        results.enter(again);
        let value = goal.value(&results, false).unwrap();
        assert_eq!((value.count, value.least, value.greatest), (3, 0.5, 0.5));
    }

    /// The paper's figure is that of its own order.
    #[test]
    fn the_order_of_qtar_stands_beside_ours() {
        let mut results = results(300.0, 10.0, 9.0);
        assert_eq!(goal().row(&results)[7], "");
        assert!(!table(&[goal()], &results).to_string().contains("by first extent"));
        let goal = goal().by_extent(2);
        let by_extent = Work::with(Tool::Tar, &["--order", "first-extent"]);
        let run = setting().run(by_extent.clone());
        results.enter(record(run.clone(), 60.0));
        assert_eq!(goal.row(&results)[7], "5.00 / not measured");
        results.enter(record(setting().buffered(true).run(by_extent.clone()), 100.0));
        assert_eq!(goal.row(&results)[7], "5.00 / 3.00");
        assert!(table(std::slice::from_ref(&goal), &results).to_string().contains("| 5.00 / 3.00 | 33.3 |"));
        let scheduled = goal.runs().into_iter().filter(|run| run.work == by_extent).count();
        assert_eq!(scheduled, 4, "two rounds each with the track buffer off and on");
        let merged = Work::with(Tool::Tar, &["--device", "--strategy", "merged"]);
        assert_eq!(goal.clone().ours(merged).by_extent_run(false), goal.by_extent_run(false));
    }

    #[test]
    fn the_other_column_may_have_one_round() {
        let count = |goal: &Goal, on| {
            goal.runs().iter().filter(|run| **run == Run { round: run.round, ..goal.our_run(on) }).count()
        };
        let goal = goal().once_on();
        assert_eq!([count(&goal, false), count(&goal, true)], [3, 1]);
        let mut results = results(300.0, 10.0, 9.0);
        results.enter(record(Run { round: 1, ..goal.other_run(false) }, 300.0));
        results.enter(record(Run { round: 1, ..goal.our_run(false) }, 20.0));
        assert_eq!(goal.row(&results)[5..7], ["22.5 (15.0 to 30.0)", "30.0, one round"]);
    }

    /// A sweep over all files is no bound for a part of them.
    #[test]
    fn the_sweep_beside_a_part_of_the_files_is_over_these() {
        let of = |kib| goal().ours(Work::of(Tool::Tar).at_most(kib));
        assert_eq!(of(128).bound_run().work.most_kib, Some(128));
        assert!(of(128).runs().contains(&of(128).bound_run()));
        assert_ne!(of(128).bound_run(), of(512).bound_run());
        let mut results = results(100.0, 10.0, 3.0);
        for (run, busy_ms) in [(of(128).other_run(false), 50.0), (of(128).our_run(false), 10.0)] {
            results.enter(record(run, busy_ms));
        }
        assert_eq!(of(128).over_sweep(&results, false), None);
        results.enter(record(of(128).bound_run(), 5.0));
        assert_eq!(of(128).over_sweep(&results, false), Some((10.0, 2.0)));
    }

    #[test]
    fn pairs_are_interleaved() {
        let runs = goal().rounds(2).off_only().runs();
        assert_eq!(runs.iter().filter(|run| run.round == 1).count(), 2);
    }
}
