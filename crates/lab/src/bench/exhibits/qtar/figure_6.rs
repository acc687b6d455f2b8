//! qtar, figure 6: as a file system ages.

use super::{PAPER_ROUNDS, STEPS, by_first_extent, cell, disk, drawn, seconds};
use crate::bench::exhibits::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Line, Lines, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Run, Setting, Subject};
use crate::bench::work::{Tool, Work};

/// As the file system ages.
pub(crate) struct Figure6 {
    seed: u64,
}

impl Figure6 {
    /// Of the versions for which the paper has no number.
    const ROUNDS: u32 = 2;

    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> [Work; 3] {
        [Work::of(Tool::GnuTar), by_first_extent(), Work::of(Tool::Tar)]
    }

    /// The values of the picture, and what the paper divides.
    fn table(&self, results: &Results) -> Table {
        let works = Self::works();
        let [tar, by_extent, ours] = works.each_ref().map(Work::name);
        let heads = ["versions", &tar, &by_extent, &ours, "GNU tar ÷ first extent", "the paper", "GNU tar ÷ ours"];
        let mut table = Table::new(&heads);
        for step in 0..=STEPS {
            let runs = works.each_ref().map(|work| self.run(step, work));
            let paper = match step {
                0 => "3.95",
                STEPS => "4.75",
                _ => "",
            };
            let times = |ours: usize| page::measured(results.times(&runs[0], &runs[ours]));
            let mut row = vec![step.to_string()];
            row.extend(runs.each_ref().map(|run| cell(results, run)));
            row.extend([times(1), paper.into(), times(2)]);
            table.row(row);
        }
        table
    }

    fn run(&self, step: u32, work: &Work) -> Run {
        let steps = (step < STEPS).then_some(step);
        let image = Subject { steps, ..Subject::new("source", "ext4", 1.0, self.seed) };
        Setting::new(image, disk()).run(work.clone())
    }
}

impl Exhibit for Figure6 {
    fn title(&self) -> &'static str {
        "qtar, figure 6: as the file system ages"
    }

    fn cases(&self) -> Vec<Case> {
        let runs = (0..=STEPS).flat_map(|step| {
            let rounds = if [0, STEPS].contains(&step) { PAPER_ROUNDS } else { Self::ROUNDS };
            Self::works().into_iter().flat_map(move |work| self.run(step, &work).rounds(rounds))
        });
        vec![Case { name: "figure-6".into(), runs: runs.collect() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let line = |work: Work| {
            let point = |step| Some((f64::from(step), seconds(results, &self.run(step, &work))?));
            Line { name: work.name(), points: (0..=STEPS).filter_map(point).collect() }
        };
        let lines: Vec<Line> = Self::works().map(line).into_iter().collect();
        let values = lines.iter().map(|line| line.points.len()).sum();
        let picture = Lines {
            title: "As the file system ages".into(),
            x_axis: "versions of the tree checked out".into(),
            y_axis: "modelled disk time (s)".into(),
            lines,
            log_x: false,
            log_y: false,
        };
        let drawn = drawn(pictures, ("qtar-6", "disk time by age"), &picture, (values, "figure-6"))?;
        Ok(format!(
            "`source`, ext4, track buffer on; versions 1, 2, 10 and 17 \
             change most. Seconds of disk time; the paper tells of the first and the last how many times as long as qtar GNU \
             tar took. Its points are means of {PAPER_ROUNDS} runs; here the first and the last have as many, those between them \
             {}. In the paper the factor grows with age. Here the clean tree is read nearly at the rate of the platter, which an aged \
             one can't be, so ours has more to lose.\n\n{drawn}\n{}",
            Self::ROUNDS,
            self.table(results)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::tests::record;

    /// Whoever can't measure a picture reads its values, beside the paper's.
    #[test]
    fn the_values_of_a_picture_stand_below_it() {
        let figure = Figure6::new(1);
        let mut results = Results::default();
        for (work, busy_ms) in Figure6::works().into_iter().zip([80_000.0, 20_000.0, 16_000.0]) {
            let run = figure.run(0, &work);
            results.images.insert(run.setting.image.name(), Facts { image_sha256: "abc".into(), ..Facts::default() });
            for run in run.rounds(2) {
                results.enter(record(run.clone(), busy_ms * f64::from(run.round + 1)));
            }
        }
        let text = figure.show(&results, &mut Pictures::none()).unwrap();
        let row =
            "| 0 | 120 (80.0 to 160) | 30.0 (20.0 to 40.0) | 24.0 (16.0 to 32.0) | 4.00 (4.00 to 4.00) | 3.95 | 5.00 (";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("| 24 | not measured | not measured | not measured | not measured | 4.75 | not"),
            "{text}"
        );
    }
}
