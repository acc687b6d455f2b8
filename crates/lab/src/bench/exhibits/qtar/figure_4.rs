//! qtar, figure 4: the way of the head.

use super::{by_first_extent, cell, disk, drawn};
use crate::bench::exhibits::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Pictures, Way, Ways};
use crate::bench::results::Results;
use crate::bench::run::{Run, Setting, Subject};
use crate::bench::work::{Tool, Work};

/// Where the head was.
pub(crate) struct Figure4 {
    seed: u64,
}

impl Figure4 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// These are kept with the way of the head.
    pub(crate) fn runs(&self) -> [Run; 3] {
        let setting = Setting::new(Subject::new("source", "ext4", 1.0, self.seed), disk());
        [Work::of(Tool::GnuTar), by_first_extent(), Work::of(Tool::Tar)].map(|work| setting.run(work))
    }

    /// What the picture shows, in figures.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["program", "requests", "seeks", "disk time s", "the paper: s"]);
        for (run, paper) in self.runs().iter().zip(["82.5", "17.9 (qtar)", ""]) {
            let mut row = vec![run.work.name()];
            row.extend(results.of(run).map_or_else(
                || [String::new(), String::new()],
                |record| [record.outcome.requests, record.outcome.seeks].map(page::count),
            ));
            row.extend([cell(results, run), paper.into()]);
            table.row(row);
        }
        table
    }
}

impl Exhibit for Figure4 {
    fn title(&self) -> &'static str {
        "qtar, figure 4: the way of the head"
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case { name: "figure-4".into(), runs: self.runs().to_vec() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let gigabytes = |address: u64| address as f64 / 1e9;
        let mut panels = Vec::new();
        for run in self.runs() {
            let Some(record) = results.of(&run).filter(|record| !record.outcome.head.is_empty()) else { continue };
            let tenths = record.outcome.head.iter();
            let tenths = tenths.map(|&(at, from, to)| (at, gigabytes(from), gigabytes(to))).collect();
            panels.push(Way { title: run.work.name(), tenths });
        }
        let top = panels.iter().flat_map(|way| way.tenths.iter().map(|tenth| tenth.2)).fold(0.1, f64::max);
        let (values, ways) = (panels.len(), Ways { axis: "place (GB)".into(), top, panels });
        let drawn = drawn(pictures, ("qtar-4", "place of the head over time"), &ways, (values, "figure-4"))?;
        Ok(format!(
            "Lowest and highest place in each tenth of a second, `source` \
             after 24 versions, ext4, track buffer on. All over the same time. The paper's times are those of its figure 3. \
             Requests and seeks are of the round that is drawn.\n\n{drawn}\n{}",
            self.table(results)
        ))
    }
}
