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
    ("first fit", Threshold::FirstFit),
    ("S = 1/16", Threshold::Sixteenths(1)),
    ("S = 1/4", Threshold::Sixteenths(4)),
    ("on demand", Threshold::OnDemand),
];

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
        let mut heads = vec!["budget"];
        heads.extend(THRESHOLDS.map(|threshold| threshold.0));
        let mut table = Table::new(&heads);
        for share in SHARES.into_iter().rev() {
            let mut row = vec![format!("{}/{}", share.of, share.parts)];
            row.extend(
                THRESHOLDS.map(|(_, threshold)| page::measured(Self::times(setting, share, threshold, results))),
            );
            table.row(row);
        }
        table
    }
}

impl Exhibit for Budgets {
    fn title(&self) -> &'static str {
        "Less memory"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |setting: &Setting| {
            let mut runs = vec![setting.run(unlimited())];
            for share in SHARES {
                runs.extend(THRESHOLDS.map(|(_, threshold)| Self::run(setting, share, threshold)));
            }
            Case { name: format!("budgets-{}", setting.image.recipe), runs }
        };
        self.settings.iter().map(case).collect()
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let mut text = String::from(
            "Disk time under a budget ÷ disk time without a limit, track buffer off. S is the batch \
             threshold as a part of the budget, between the paper's two algorithms; deferred is ours.\n",
        );
        for setting in &self.settings {
            let lines = Self::lines(setting, results);
            text += &format!("\n{}\n\n{}", page::subject(setting, results), Self::table(setting, results));
            if lines.lines.iter().any(|line| !line.points.is_empty()) {
                let recipe = &setting.image.recipe;
                text += "\n";
                text += &pictures.add(&format!("budgets-{recipe}"), &format!("time by budget, {recipe}"), &lines)?;
            }
        }
        Ok(text)
    }
}
