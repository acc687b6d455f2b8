//! qtar, figure 1: programs under schedulers.

use super::{DIAMONDMAX, by_first_extent, drawn};
use crate::bench::exhibits::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Bars, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::statistics::Spread;
use crate::bench::work::{Tool, Work};

/// Programs under schedulers, clean and aged, on two file systems.
pub(crate) struct Figure1 {
    seed: u64,
}

const SCHEDULERS: [&str; 3] = ["none", "mq-deadline", "bfq"];

/// The file system, how it writes itself, the name of its picture, and the rounds of its runs: through ntfs-3g they are long.
const FILE_SYSTEMS_1: [(&str, &str, &str, u32); 2] =
    [("ext4", "ext4", "qtar-1", 3), ("ntfs", "NTFS", "qtar-1-ntfs", 1)];

/// What stands over one name of figure 1: a bar for each scheduler.
struct Bar {
    name: &'static str,
    age: &'static str,
    image: Subject,
    work: Work,
    /// Of a bound, the streaming instead of the sweep.
    streaming: bool,
}

impl Bar {
    /// Bounds are computed: they know no scheduler.
    fn run(&self, scheduler: &str) -> Run {
        let disk = Disk::new(DIAMONDMAX, Stretch::Whole).buffered(true).scheduler(scheduler);
        let setting = Setting::new(self.image.clone(), disk);
        if self.work.is_bound() {
            return setting.with_scheduler("none").of_bounds().run(self.work.clone());
        }
        setting.run(self.work.clone())
    }

    fn seconds(&self, results: &Results, scheduler: &str) -> Option<Spread> {
        let run = self.run(scheduler);
        if self.streaming {
            return results.figure(&run, |outcome| Some(outcome.detail["streaming_ms"].as_f64()? / 1000.0));
        }
        results.seconds(&run)
    }
}

impl Figure1 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn bars(&self, fs: &str) -> Vec<Bar> {
        let mut kinds = vec![
            ("GNU tar", Work::of(Tool::GnuTar), false),
            ("bsdtar", Work::of(Tool::BsdTar), false),
            ("first extent", by_first_extent(), false),
            ("onesweep tar", Work::of(Tool::Tar), false),
        ];
        if fs == "ntfs" {
            kinds.push(("tar DEVICE", Work::of(Tool::Tar).unmounted(), false));
        }
        kinds.extend([("one sweep", Work::of(Tool::Bound), false), ("without seeks", Work::of(Tool::Bound), true)]);
        let mut bars = Vec::new();
        for (steps, age) in [(Some(0), "clean"), (None, "aged")] {
            bars.extend(kinds.iter().map(|(name, work, streaming)| {
                let image = Subject { steps, ..Subject::new("source", fs, 1.0, self.seed) };
                Bar { name, age, image, work: work.clone(), streaming: *streaming }
            }));
        }
        bars
    }

    /// The values of the pictures. The paper tells neither the scheduler nor the age of its two.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&[&["seconds of disk time"], &SCHEDULERS[..], &["the paper"]].concat());
        for (fs, fs_name, ..) in FILE_SYSTEMS_1 {
            for bar in self.bars(fs) {
                let mut row = vec![format!("{}, {fs_name}, {}", bar.name, bar.age)];
                row.extend(SCHEDULERS.map(|scheduler| page::measured(bar.seconds(results, scheduler))));
                table.row(row);
            }
        }
        for (name, seconds) in [("GNU tar, ext4, the paper's", "48.3"), ("qtar, ext4, the paper's", "11.6")] {
            let mut row = vec![name.to_owned()];
            row.extend(SCHEDULERS.map(|_| String::new()));
            row.push(seconds.into());
            table.row(row);
        }
        table
    }

    fn picture(&self, fs: &str, fs_name: &str, results: &Results) -> Bars {
        let bars = self.bars(fs);
        let values = |scheduler| bars.iter().map(|bar| Some(bar.seconds(results, scheduler)?.median)).collect();
        Bars {
            title: format!("Programs and schedulers, {fs_name}"),
            axis: "modelled disk time (s)".into(),
            series: SCHEDULERS.map(|scheduler| (scheduler.to_owned(), values(scheduler))).to_vec(),
            groups: bars.iter().map(|bar| format!("{}\n{}", bar.name, bar.age)).collect(),
        }
    }
}

impl Exhibit for Figure1 {
    fn title(&self) -> &'static str {
        "qtar, figure 1: programs and schedulers"
    }

    fn cases(&self) -> Vec<Case> {
        let mut runs: Vec<Run> = Vec::new();
        for (fs, _, _, rounds) in FILE_SYSTEMS_1 {
            for bar in self.bars(fs) {
                let rounds = if bar.work.is_bound() { 1 } else { rounds };
                for run in SCHEDULERS.iter().flat_map(|scheduler| bar.run(scheduler).rounds(rounds)) {
                    if !runs.contains(&run) {
                        runs.push(run);
                    }
                }
            }
        }
        vec![Case { name: "figure-1".into(), runs }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let mut text = format!(
            "`source`, clean and after 24 versions, on `{DIAMONDMAX}`, the \
             paper's disk for this figure, track buffer on. NTFS by ntfs-3g, `DEVICE` without it. First extent is ours in the \
             order of qtar. The paper's tree has as many files as the clean one; it tells neither the age nor the scheduler of \
             its two times. What it calls *dirty* was aged by checking out 24 versions of the Linux source one after the other \
             (5.3): `source` replays such changes by a generator, on a file system that holds nothing else. Both sides of each \
             ratio read the same image, and the clean one stands beside it: [lab.md](lab.md#aged-file-systems) tells how far \
             it is from the paper's. One sweep is every sector that is needed in rising order, and without seeks the bytes of the files in \
             one piece: they are computed, and know no scheduler.\n\n"
        );
        for (fs, fs_name, picture, _) in FILE_SYSTEMS_1 {
            let bars = self.picture(fs, fs_name, results);
            let values = bars.series.iter().flat_map(|series| series.1.iter().flatten()).count();
            let words = format!("disk time by program and scheduler, {fs_name}");
            text += &drawn(pictures, (picture, &words), &bars, (values, "figure-1"))?;
        }
        Ok(format!("{text}\n{}", self.table(results)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::tests::record;

    #[test]
    fn bounds_are_the_same_under_every_scheduler() {
        let figure = Figure1::new(1);
        let bars = figure.bars("ntfs");
        let bar = |name| bars.iter().find(|bar| bar.name == name).unwrap();
        assert_eq!(bar("one sweep").run("bfq"), bar("without seeks").run("none"));
        assert_ne!(bar("GNU tar").run("bfq"), bar("GNU tar").run("none"));
        let run = bar("one sweep").run("none");
        let mut results = Results::default();
        results.images.insert(run.setting.image.name(), Facts { image_sha256: "abc".into(), ..Facts::default() });
        let mut swept = record(run, 9000.0);
        swept.outcome.detail = serde_json::json!({"streaming_ms": 7000.0});
        results.enter(swept);
        let table = figure.table(&results).to_string();
        assert!(table.contains("| one sweep, NTFS, clean | 9.00 | 9.00 | 9.00 |"), "{table}");
        assert!(table.contains("| without seeks, NTFS, clean | 7.00 | 7.00 | 7.00 |"), "{table}");
        let bounds = figure.cases()[0].runs.iter().filter(|run| run.work.is_bound()).count();
        assert_eq!(bounds, 4, "one of each image");
        assert!(table.contains("| tar DEVICE, NTFS, aged |") && !table.contains("| tar DEVICE, ext4"), "{table}");
    }
}
