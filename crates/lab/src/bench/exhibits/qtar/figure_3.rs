//! qtar, figure 3: the whole tree beside one sweep.

use super::{FILES, PAPER_ROUNDS, by_first_extent, cell, disk, drawn, files, seconds};
use crate::bench::exhibits::{Case, Exhibit};
use crate::bench::page::Table;
use crate::bench::plot::{Bars, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Run, Setting, Subject};
use crate::bench::work::{Tool, Work};

/// The whole tree, beside one sweep.
pub(crate) struct Figure3 {
    seed: u64,
}

impl Figure3 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> Vec<(&'static str, Work)> {
        vec![
            ("GNU tar", Work::of(Tool::GnuTar)),
            ("onesweep tar by\nfirst extent, as qtar", by_first_extent()),
            ("onesweep tar", Work::of(Tool::Tar)),
            ("one perfect\nsweep", Work::of(Tool::Bound)),
        ]
    }

    /// The values of the picture.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["seconds of disk time", "clean", "after 24 versions", "the paper"]);
        for (name, work) in Self::works() {
            let paper = match work {
                ref work if *work == Work::of(Tool::GnuTar) => "82.5",
                ref work if *work == by_first_extent() => "17.9",
                _ => "",
            };
            let [clean, aged] = [Some(0), None].map(|steps| cell(results, &self.run(steps, &work)));
            table.row(vec![name.replace('\n', " "), clean, aged, paper.into()]);
        }
        table
    }

    pub(super) fn image(&self, steps: Option<u32>) -> Subject {
        Subject { steps, ..Subject::new("source", "ext4", 1.0, self.seed) }
    }

    fn run(&self, steps: Option<u32>, work: &Work) -> Run {
        let image = self.image(steps);
        let track_buffer = work.tool != Tool::Bound;
        Setting::new(image, disk().buffered(track_buffer)).run(work.clone())
    }
}

impl Exhibit for Figure3 {
    fn title(&self) -> &'static str {
        "qtar, figure 3: time to archive a source tree"
    }

    fn cases(&self) -> Vec<Case> {
        let runs = Self::works().into_iter().flat_map(|(_, work)| [self.run(Some(0), &work), self.run(None, &work)]);
        let rounds = |run: Run| run.rounds(if run.work.is_bound() { 1 } else { PAPER_ROUNDS });
        vec![Case { name: "figure-3".into(), runs: runs.flat_map(rounds).collect() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let works = Self::works();
        let series: Vec<_> = [("clean", Some(0)), ("after 24 versions", None)]
            .map(|(name, steps)| {
                let value = |work: &(&str, Work)| seconds(results, &self.run(steps, &work.1));
                (name.to_owned(), works.iter().map(value).collect::<Vec<_>>())
            })
            .to_vec();
        let values = series.iter().flat_map(|series| series.1.iter().flatten()).count();
        let files = files(FILES, &self.image(None), results);
        let bars = Bars {
            title: format!("Time to archive a source tree of {files}"),
            axis: "modelled disk time (s)".into(),
            groups: works.iter().map(|work| work.0.to_owned()).collect(),
            series,
        };
        let drawn = drawn(pictures, ("qtar-3", "disk time to archive a source tree"), &bars, (values, "figure-3"))?;
        Ok(format!(
            "`source` of {files}, ext4, track buffer on. The paper's times are those of its figure, for GNU tar and for \
             qtar, on an aged ext4 of as many files as the clean tree.\n\n{drawn}\n{}",
            self.table(results)
        ))
    }
}
