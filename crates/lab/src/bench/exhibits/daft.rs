//! DAFT's figure 2 and table II: files of one size, each in one piece.

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Bars, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::statistics::Spread;
use crate::bench::work::{Tool, Work};

/// Recipe, scale, files' size, and the factors of table II on the fast and the slow disk.
pub(crate) const SIZES: [(&str, f64, &str, [f64; 2]); 3] = [
    ("daft-4k", 0.1, "4 KB", [15.5, 6.2]),
    ("daft-16k", 0.1, "16 KB", [5.5, 3.9]),
    ("daft-64k", 0.5, "64 KB", [2.1, 2.1]),
];

/// Name, model.
pub(crate) const DISKS: [(&str, &str); 2] = [("fast", "st373455lw"), ("slow", "6y160p0")];

pub(crate) fn merged() -> Work {
    Work::with(Tool::Tar, &["--device", "--strategy", "merged"])
}

pub(crate) fn unmerged() -> Work {
    Work::with(Tool::Tar, &["--device", "--strategy", "unmerged"])
}

/// Useful megabytes in a second of the disk.
pub(super) fn throughput(results: &Results, run: &Run) -> Option<Spread> {
    let bytes = results.images.get(&run.setting.image.name())?.file_bytes;
    results.figure(run, |outcome| (outcome.busy_ms > 0.0).then(|| bytes as f64 / 1e3 / outcome.busy_ms))
}

/// Figure 2 with table II.
pub(crate) struct Figure2 {
    seed: u64,
}

impl Figure2 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> [(&'static str, Work); 5] {
        [
            ("GNU tar (Vanilla)", Work::of(Tool::GnuTar)),
            ("unmerged (DAFTNM)", unmerged()),
            ("merged (DAFTM)", merged()),
            ("through the file system", Work::of(Tool::Tar)),
            ("one perfect sweep", Work::of(Tool::Bound)),
        ]
    }

    fn run(&self, size: usize, disk: usize, work: &Work) -> Run {
        let (recipe, scale, ..) = SIZES[size];
        let image = Subject::new(recipe, "ext4", scale, self.seed);
        Setting::new(image, Disk::new(DISKS[disk].1, Stretch::InProportion)).run(work.clone())
    }

    fn throughput(&self, results: &Results, size: usize, disk: usize, work: &Work) -> Option<Spread> {
        throughput(results, &self.run(size, disk, work))
    }

    fn bars(&self, results: &Results, disk: usize) -> Bars {
        let value = |work: &Work| {
            (0..SIZES.len()).map(|size| Some(self.throughput(results, size, disk, work)?.median)).collect()
        };
        Bars {
            title: format!("Throughput, {} disk ({})", DISKS[disk].0, DISKS[disk].1),
            axis: "throughput (MB/s)".into(),
            groups: SIZES.map(|size| size.2.to_owned()).to_vec(),
            series: Self::works().map(|(name, work)| (name.to_owned(), value(&work))).to_vec(),
        }
    }

    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["disk, files", "the paper", "merged", "unmerged", "through the file system"]);
        for (disk, (disk_name, _)) in DISKS.into_iter().enumerate() {
            for (size, (.., size_name, paper)) in SIZES.into_iter().enumerate() {
                let tar = self.run(size, disk, &Work::of(Tool::GnuTar));
                let times = |work: Work| page::measured(results.times(&tar, &self.run(size, disk, &work)));
                table.row(vec![
                    format!("{disk_name}, {size_name}"),
                    paper[disk].to_string(),
                    times(merged()),
                    times(unmerged()),
                    times(Work::of(Tool::Tar)),
                ]);
            }
        }
        table
    }

    /// The values of the pictures: useful megabytes in a second.
    fn values(&self, results: &Results) -> Table {
        let mut heads = vec!["disk, files"];
        heads.extend(Self::works().iter().map(|work| work.0));
        let mut table = Table::new(&heads);
        for (disk, (disk_name, _)) in DISKS.into_iter().enumerate() {
            for (size, (.., size_name, _)) in SIZES.into_iter().enumerate() {
                let cell = |(_, work): (&str, Work)| page::measured(self.throughput(results, size, disk, &work));
                let mut row = vec![format!("{disk_name}, {size_name}")];
                row.extend(Self::works().map(cell));
                table.row(row);
            }
        }
        table
    }
}

impl Exhibit for Figure2 {
    fn title(&self) -> &'static str {
        "DAFT, figure 2 and table II: files in one piece"
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (size, (recipe, ..)) in SIZES.into_iter().enumerate() {
            for (disk, (name, _)) in DISKS.into_iter().enumerate() {
                let runs = Self::works().map(|(_, work)| self.run(size, disk, &work)).to_vec();
                cases.push(Case { name: format!("figure-2-{recipe}-{name}"), runs });
            }
        }
        cases
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let mut text = String::from(
            "ext4 with dir_index, track buffer off, the image at \
             the outer edge of as large a part of the disk as it has bytes. The paper's disks hold ten times as many \
             files (twice as many of 64 KB) on NTFS, whose table of files lies far from them. Its programs list a directory in the \
             order in which its files lie (III.B), and seek between that table and each file. On ext4 inodes lie beside their files, \
             so nothing there makes a program seek in that order: with `-O ^dir_index` even one perfect sweep gains 1.0 to 3.5 (rows \
             `-plain` of *What has to come out*). With dir_index GNU tar gets the names in the order of their hashes, which costs it \
             a seek for each file, as the paper's table of files does. That stands for the paper's setting here, by another \
             cause; on NTFS itself it has a section of its own.\n\n",
        );
        for (disk, (name, _)) in DISKS.into_iter().enumerate() {
            let bars = self.bars(results, disk);
            if bars.series.iter().any(|series| series.1.iter().any(Option::is_some)) {
                text += &pictures.add(&format!("daft-2-{name}"), &format!("throughput on the {name} disk"), &bars)?;
            }
        }
        text += "\nUseful MB/s:\n\n";
        text += &self.values(results).to_string();
        text += "\nTimes as fast as GNU tar:\n\n";
        text += &self.table(results).to_string();
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::tests::record;

    #[test]
    fn throughput_is_shown_with_its_spread() {
        let (figure, mut results) = (Figure2::new(1), Results::default());
        let run = figure.run(0, 0, &merged());
        let facts = Facts { image_sha256: "abc".into(), file_bytes: 400_000_000, ..Facts::default() };
        results.images.insert(run.setting.image.name(), facts);
        for (run, busy_ms) in run.rounds(3).into_iter().zip([5000.0, 4000.0, 8000.0]) {
            results.enter(record(run, busy_ms));
        }
        let table = figure.values(&results).to_string();
        assert!(table.contains("| fast, 4 KB | not measured | not measured | 80.0 (50.0 to 100) | not"), "{table}");
    }
}
