//! qtar, figure 5: partial sorts.

use super::{cell, disk, drawn, files, seconds, thousandths};
use crate::bench::exhibits::{Case, Exhibit};
use crate::bench::page::Table;
use crate::bench::plot::{Bars, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Run, Setting, Subject};
use crate::bench::work::{Tool, Work};

/// Partial sorts.
pub(crate) struct Figure5 {
    seed: u64,
}

/// The order, its name in the picture, and what the paper calls it.
const ORDERS: [(&str, &str, &str); 6] = [
    ("directory", "directory\norder", ""),
    ("inode-per-directory", "inode, per\ndirectory", "inode sort, with 16 reads in flight"),
    ("inode", "inode", "full inode sort"),
    ("first-extent-per-directory", "first extent,\nper directory", "inode and block sort"),
    ("first-extent", "first extent\n(qtar)", "full inode and block sort (qtar)"),
    ("fragment", "fragment", ""),
];

impl Figure5 {
    const FILES: f64 = 1000.0;
    const ROUNDS: u32 = 3;

    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> Vec<(String, Work)> {
        let mut works = vec![
            ("GNU tar".to_owned(), Work::of(Tool::GnuTar)),
            ("GNU tar,\nby inode".to_owned(), Work::of(Tool::GnuTarByInode)),
        ];
        works.extend(ORDERS.map(|(order, name, _)| (name.to_owned(), Work::with(Tool::Tar, &["--order", order]))));
        works
    }

    /// The values of the picture.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["seconds of disk time", "track buffer off", "on", "in the paper"]);
        let named = ["unordered (GNU tar)", "inode sort"].into_iter().chain(ORDERS.iter().map(|order| order.2));
        for ((name, work), named) in Self::works().into_iter().zip(named) {
            let [off, on] = [false, true].map(|on| cell(results, &self.run(&work, on)));
            table.row(vec![name.replace('\n', " "), off, on, named.into()]);
        }
        table
    }

    pub(super) fn image(&self) -> Subject {
        Subject::new("source", "ext4", thousandths(Self::FILES), self.seed)
    }

    fn run(&self, work: &Work, track_buffer: bool) -> Run {
        Setting::new(self.image(), disk().buffered(track_buffer)).run(work.clone())
    }
}

impl Exhibit for Figure5 {
    fn title(&self) -> &'static str {
        "qtar, figure 5: partial sorts"
    }

    fn cases(&self) -> Vec<Case> {
        let runs = Self::works().into_iter().flat_map(|(_, work)| [false, true].map(|on| self.run(&work, on)));
        vec![Case { name: "figure-5".into(), runs: runs.flat_map(|run| run.rounds(Self::ROUNDS)).collect() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let works = Self::works();
        let series: Vec<_> = [("track buffer off", false), ("on", true)]
            .map(|(name, on)| {
                let value = |work: &(String, Work)| seconds(results, &self.run(&work.1, on));
                (name.to_owned(), works.iter().map(value).collect::<Vec<_>>())
            })
            .to_vec();
        let values = series.iter().flat_map(|series| series.1.iter().flatten()).count();
        let files = files(Self::FILES, &self.image(), results);
        let bars = Bars {
            title: format!("Partial sorts, {files}"),
            axis: "modelled disk time (s)".into(),
            groups: works.into_iter().map(|work| work.0).collect(),
            series,
        };
        let drawn = drawn(pictures, ("qtar-5", "disk time by order"), &bars, (values, "figure-5"))?;
        Ok(format!(
            "`source` of {files}, which are read; ext4. The paper's figure has no numbers in its text: *full inode and block \
             sort* is best there, and ordering a directory by inode alone helps a lot. Here that shows in GNU tar's own sort by inode; \
             ours in directory order has reads in flight and the metadata already, so there is less left for the inodes to \
             gain.\n\n{drawn}\n{}",
            self.table(results)
        ))
    }
}
