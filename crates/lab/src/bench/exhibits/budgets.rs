//! Memory against time: both ways to reassemble, and the thresholds between them.

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Line, Lines, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::statistics::Spread;
use crate::bench::work::{Budget, Share, Threshold, Tool, Work};

/// Parts of what a sweep without a limit holds.
const SHARES: [Share; 5] = [
    Share { of: 1, parts: 25 },
    Share { of: 1, parts: 10 },
    Share { of: 1, parts: 5 },
    Share { of: 1, parts: 3 },
    Share { of: 2, parts: 3 },
];

const THRESHOLDS: [(&str, Threshold); 5] = [
    ("deferred", Threshold::Deferred),
    FIRST_FIT,
    ("S = 1/16", Threshold::Sixteenths(1)),
    ("S = 1/4", Threshold::Sixteenths(4)),
    ON_DEMAND,
];

const FIRST_FIT: (&str, Threshold) = ("first fit", Threshold::FirstFit);
const ON_DEMAND: (&str, Threshold) = ("on demand", Threshold::OnDemand);

/// How many times as long what the program chooses by itself may take under such a budget.
pub(super) const MOST: [(Share, f64); 3] =
    [(Share { of: 2, parts: 3 }, 1.5), (Share { of: 1, parts: 3 }, 1.8), (Share { of: 1, parts: 25 }, 2.7)];

/// What a simulation of the paper's two algorithms gave for the shares of [`MOST`], before either was built.
const SIMULATED: [((&str, Threshold), [f64; 3]); 2] = [(FIRST_FIT, [1.34, 1.82, 4.2]), (ON_DEMAND, [1.48, 1.75, 2.6])];

/// Rounds of what was simulated; one of everything else.
const ROUNDS: u32 = 3;

/// A budget that no recipe reaches.
pub(crate) fn unlimited() -> Work {
    Work::with(Tool::Tar, &["--budget", "4G"])
}

/// One curve for each recipe.
pub(crate) struct Budgets {
    settings: Vec<Setting>,
}

impl Budgets {
    pub(crate) fn new(seed: u64) -> Self {
        let disk = Disk::new("barracuda-7200.11", Stretch::Whole);
        let setting = |recipe| Setting::new(Subject::new(recipe, "ext4", 1.0, seed), disk.clone());
        Self { settings: ["random", "fragmented"].map(setting).to_vec() }
    }

    fn run(setting: &Setting, share: Share, threshold: Threshold) -> Run {
        setting.run(Work::of(Tool::Tar).budget(Budget { share, threshold }))
    }

    /// How many times as long as without a limit.
    fn times(setting: &Setting, share: Share, threshold: Threshold, results: &Results) -> Option<Spread> {
        results.times(&Self::run(setting, share, threshold), &setting.run(unlimited()))
    }

    fn lines(setting: &Setting, results: &Results) -> Lines {
        let line = |(name, threshold): (&str, Threshold)| {
            let point = |share: Share| {
                Some((share.of as f64 / share.parts as f64, Self::times(setting, share, threshold, results)?.median))
            };
            Line { name: name.to_owned(), points: SHARES.into_iter().filter_map(point).collect() }
        };
        Lines {
            title: format!("Less memory, recipe {}", setting.image.recipe),
            x_axis: "budget, as a part of what a sweep without a limit holds".into(),
            y_axis: "time ÷ that without a limit".into(),
            lines: THRESHOLDS.map(line).into_iter().collect(),
            log_x: true,
            log_y: false,
        }
    }

    fn table(setting: &Setting, results: &Results) -> Table {
        let mut heads = vec!["budget".to_owned()];
        heads.extend(THRESHOLDS.map(|threshold| threshold.0.to_owned()));
        heads.extend(SIMULATED.map(|((name, _), _)| format!("{name}, simulated")));
        let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        for share in SHARES.into_iter().rev() {
            let mut row = vec![format!("{}/{}", share.of, share.parts)];
            row.extend(
                THRESHOLDS.map(|(_, threshold)| page::measured(Self::times(setting, share, threshold, results))),
            );
            let place = MOST.iter().position(|most| most.0 == share);
            row.extend(SIMULATED.map(|(_, times)| place.map_or_else(String::new, |place| times[place].to_string())));
            table.row(row);
        }
        table
    }

    /// Which ways to reassemble take longer than what the program chooses may take.
    fn over(setting: &Setting, results: &Results) -> Option<String> {
        let mut over = Vec::new();
        for (share, most) in MOST {
            for (name, threshold) in THRESHOLDS {
                let times = Self::times(setting, share, threshold, results)?.median;
                if times > most {
                    over.push(format!("{name} at {}/{} ({}, not {most})", share.of, share.parts, page::number(times)));
                }
            }
        }
        let over = if over.is_empty() { "none".to_owned() } else { over.join(", ") };
        Some(format!("Above what the program's own choice is held to, at most {}: {over}.\n", Self::limits()))
    }

    fn limits() -> String {
        MOST.map(|(share, most)| format!("{most} at {}/{}", share.of, share.parts)).join(", ")
    }
}

impl Exhibit for Budgets {
    fn title(&self) -> &'static str {
        "Less memory"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |setting: &Setting| {
            let mut runs = setting.run(unlimited()).rounds(ROUNDS);
            for share in SHARES {
                for way in THRESHOLDS {
                    let simulated = MOST.iter().any(|most| most.0 == share) && SIMULATED.iter().any(|it| it.0 == way);
                    runs.extend(Self::run(setting, share, way.1).rounds(if simulated { ROUNDS } else { 1 }));
                }
            }
            Case { name: format!("budgets-{}", setting.image.recipe), runs }
        };
        self.settings.iter().map(case).collect()
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let mut text = String::from(
            "Disk time under a budget ÷ disk time without a limit, track buffer off. S is the batch \
             threshold as a part of the budget, between the paper's two algorithms; deferred is ours. By itself the program takes \
             that, and on demand below a sixth. The simulation, which was made before there was a program, counted bare seeks.\n",
        );
        for setting in &self.settings {
            let lines = Self::lines(setting, results);
            text += &format!("\n{}\n\n{}", page::subject(setting, results), Self::table(setting, results));
            text += &Self::over(setting, results).map(|over| format!("\n{over}")).unwrap_or_default();
            if lines.lines.iter().any(|line| !line.points.is_empty()) {
                let recipe = &setting.image.recipe;
                text += "\n";
                text += &pictures.add(&format!("budgets-{recipe}"), &format!("time by budget, {recipe}"), &lines)?;
            }
        }
        Ok(text)
    }
}
