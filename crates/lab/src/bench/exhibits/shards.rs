//! Shards for training runs beside what packs them else: GNU tar, in its order and in that of the names.

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

const ROUNDS: u32 = 3;

/// The one table.
pub(crate) struct Shards {
    seed: u64,
}

impl Shards {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Those that aren't ours first: each of ours is held against the first.
    fn works() -> [Work; 5] {
        [
            Work::of(Tool::GnuTar),
            Work::of(Tool::GnuTarByName),
            Work::of(Tool::Shard),
            Work::with(Tool::Shard, &["--shuffle", "0"]),
            Work::with(Tool::Shard, &["--max-count", "1000"]),
        ]
    }

    fn run(&self, work: Work) -> Run {
        let image = Subject::new("samples", "ext4", 1.0, self.seed);
        Setting::new(image, Disk::new("barracuda-7200.11", Stretch::Whole)).run(work)
    }

    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["program", "requests", "disk time s", "times as fast as GNU tar"]);
        let plain = self.run(Work::of(Tool::GnuTar));
        for work in Self::works() {
            let run = self.run(work);
            let requests = results.figure(&run, |outcome| Some(outcome.requests as f64));
            let times =
                if run.work.tool == Tool::GnuTar { String::new() } else { page::measured(results.times(&plain, &run)) };
            table.row(vec![
                run.work.name(),
                requests.map_or(String::new(), |requests| page::count(requests.median as u64)),
                page::measured(results.seconds(&run)),
                times,
            ]);
        }
        table
    }
}

impl Exhibit for Shards {
    fn title(&self) -> &'static str {
        "Shards for training runs"
    }

    fn cases(&self) -> Vec<Case> {
        let runs = Self::works().into_iter().flat_map(|work| self.run(work).rounds(ROUNDS)).collect();
        vec![Case { name: "shards".to_owned(), runs }]
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        Ok(format!(
            "`samples` (`random`, by names that have an extension), ext4, cold, track buffer off: each file of the tree packed into tar \
             archives, by GNU tar as it meets them and in the order of their names, as data sets are packed by hand, and by \
             `onesweep shard`. What is written goes to memory. A shuffle costs the disk that is read nothing: files are \
             written to their places as they come.\n\n{}",
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
    fn each_is_held_against_tar() {
        let exhibit = Shards::new(1);
        let mut results = Results::default();
        let facts = Facts { image_sha256: "abc".into(), ..Facts::default() };
        results.images.insert(exhibit.run(Work::of(Tool::GnuTar)).setting.image.name(), facts);
        results.enter(record(exhibit.run(Work::of(Tool::GnuTar)), 300_000.0));
        results.enter(record(exhibit.run(Work::with(Tool::Shard, &["--shuffle", "0"])), 15_000.0));
        let table = exhibit.table(&results).to_string();
        assert!(table.contains("| GNU tar | 0 | 300 |  |"), "{table}");
        assert!(table.contains("| onesweep shard --shuffle 0 | 0 | 15.0 | 20.0 |"), "{table}");
        assert!(table.contains("| GNU tar --sort=name |  | not measured | not measured |"), "{table}");
    }
}
