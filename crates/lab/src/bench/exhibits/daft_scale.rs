//! DAFT's files of one size at several scales: whether a part of the set says what the whole would.

use super::daft::{DISKS, SIZES, merged};
use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

/// Parts of the paper's set, each twice the one before.
const SCALES: [f64; 3] = [0.05, 0.1, 0.2];

/// The smallest files, which gain most, on the fast disk.
pub(crate) struct Scales {
    seed: u64,
}

impl Scales {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn runs(&self, scale: f64) -> [Run; 3] {
        let (recipe, ..) = SIZES[0];
        let image = Subject::new(recipe, "ext4", scale, self.seed);
        let setting = Setting::new(image, Disk::new(DISKS[0].1, Stretch::InProportion));
        [Work::of(Tool::GnuTar), merged(), Work::of(Tool::Bound)].map(|work| setting.run(work))
    }

    fn table(&self, results: &Results) -> Table {
        let heads = ["scale", "files", "GNU tar s", "merged s", "GNU tar ÷ merged", "GNU tar ÷ one perfect sweep"];
        let mut table = Table::new(&heads);
        for scale in SCALES {
            let [tar, merged, bound] = self.runs(scale);
            let facts = results.images.get(&tar.setting.image.name());
            table.row(vec![
                scale.to_string(),
                facts.map_or_else(|| page::NOT_MEASURED.to_owned(), |facts| page::count(facts.files)),
                page::measured(results.seconds(&tar)),
                page::measured(results.seconds(&merged)),
                page::measured(results.times(&tar, &merged)),
                page::measured(results.times(&tar, &bound)),
            ]);
        }
        table
    }
}

impl Exhibit for Scales {
    fn title(&self) -> &'static str {
        "DAFT, figure 2: whether the scale matters"
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case { name: "daft-scale".into(), runs: SCALES.iter().flat_map(|&scale| self.runs(scale)).collect() }]
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        Ok(format!(
            "`{}`, ext4 with dir_index, {} disk, track buffer off, the image at the outer edge of as large a part of the disk \
             as it has bytes. What is shown above of a tenth of the paper's files holds for all of them as far as the last two \
             columns stay from one scale to the next; those of a bound say how far.\n\n{}",
            SIZES[0].0,
            DISKS[0].0,
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
    fn each_scale_has_its_own_ratio() {
        let (exhibit, mut results) = (Scales::new(1), Results::default());
        for (scale, times) in [(0.05, [60.0, 2.0, 1.5]), (0.2, [280.0, 7.0, 7.0])] {
            for (run, seconds) in exhibit.runs(scale).into_iter().zip(times) {
                let facts = Facts { image_sha256: "abc".into(), files: (scale * 1e6) as u64, ..Facts::default() };
                results.images.insert(run.setting.image.name(), facts);
                results.enter(record(run, seconds * 1000.0));
            }
        }
        let table = exhibit.table(&results).to_string();
        assert!(table.contains("| 0.05 | 50,000 | 60.0 | 2.00 | 30.0 | 40.0 |"), "{table}");
        assert!(table.contains("| 0.1 | not measured |"), "{table}");
        assert!(table.contains("| 0.2 | 200,000 | 280 | 7.00 | 40.0 | 40.0 |"), "{table}");
    }
}
