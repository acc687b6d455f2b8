//! How much of what the order of qtar gains here is the order, and how much what ours does besides.

use super::{STEPS, by_first_extent, cell, disk};
use crate::bench::exhibits::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Run, Setting, Subject};
use crate::bench::work::{Tool, Work};

/// qtar reads one file after the other, each as the kernel reads ahead; ours has many requests in flight.
pub(crate) struct OwnOrder {
    seed: u64,
}

/// The file system, whether it was aged, and how many times as fast the paper's qtar is.
const IMAGES: [(&str, bool, &str); 3] = [("ext4", false, "3.95"), ("ext4", true, "4.75"), ("xfs", true, "about 3")];

impl OwnOrder {
    const ROUNDS: u32 = 3;

    /// On images of its own: those of the other exhibits take long to make.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: seed + 16 }
    }

    fn one_in_flight() -> Work {
        Work::with(Tool::Tar, &["--order", "first-extent", "--queue-depth", "1"])
    }

    fn works() -> [Work; 4] {
        [Work::of(Tool::GnuTar), Self::one_in_flight(), by_first_extent(), Work::of(Tool::Tar)]
    }

    fn run(&self, (fs, is_aged): (&str, bool), track_buffer: bool, work: &Work) -> Run {
        let steps = (!is_aged).then_some(0);
        let image = Subject { steps, ..Subject::new("source", fs, 1.0, self.seed) };
        Setting::new(image, disk().buffered(track_buffer)).run(work.clone())
    }

    fn table(&self, results: &Results) -> Table {
        let heads = [
            "image, track buffer",
            "GNU tar s",
            "first extent, one in flight",
            "16 in flight",
            "fragments, 16 in flight",
            "the paper",
        ];
        let mut table = Table::new(&heads);
        for (fs, is_aged, paper) in IMAGES {
            for (track_buffer, state, paper) in [(false, "off", ""), (true, "on", paper)] {
                let [tar, rest @ ..] = Self::works().map(|work| self.run((fs, is_aged), track_buffer, &work));
                let age = if is_aged { format!("{STEPS} versions") } else { "clean".into() };
                let mut row = vec![format!("{}, {age}, {state}", page::fs_name(fs)), cell(results, &tar)];
                row.extend(rest.iter().map(|ours| page::measured(results.times(&tar, ours))));
                row.push(paper.into());
                table.row(row);
            }
        }
        table
    }
}

impl Exhibit for OwnOrder {
    fn title(&self) -> &'static str {
        "qtar's order, and what ours does besides"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |(fs, is_aged, _): (&str, bool, &str)| Case {
            name: format!("own-order-{fs}-{}", if is_aged { "aged" } else { "clean" }),
            runs: [false, true]
                .into_iter()
                .flat_map(|on| Self::works().map(|work| self.run((fs, is_aged), on, &work)))
                .flat_map(|run| run.rounds(Self::ROUNDS))
                .collect(),
        };
        IMAGES.map(case).into()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        Ok(format!(
            "`source`: how many times as fast as GNU tar. qtar reads one file after the other in the order of \
             their first extents, after a walk as `readdir` goes. With the same order, ours has brought in the metadata in the \
             order of the disk before it walks, also with one request for content in flight; and by default it has 16. With the \
             track buffer on, what the drive reads on between one request and the next is free, so one in flight gains most from \
             it.\n\n{}",
            self.table(results)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::tests::record;

    #[test]
    fn each_way_of_reading_stands_against_gnu_tar_on_its_own_image() {
        let exhibit = OwnOrder::new(1);
        let mut results = Results::default();
        for (place, work) in OwnOrder::works().iter().enumerate() {
            let run = exhibit.run(("ext4", true), true, work);
            let image = run.setting.image.name();
            results.images.insert(image, Facts { image_sha256: "abc".into(), ..Facts::default() });
            results.enter(record(run, 60_000.0 / (place + 1) as f64));
        }
        let table = exhibit.table(&results).to_string();
        assert!(table.contains("| ext4, 24 versions, on | 60.0 | 2.00 | 3.00 | 4.00 | 4.75 |"), "{table}");
        assert!(table.contains("| XFS, 24 versions, off | not measured |"), "{table}");
    }
}
