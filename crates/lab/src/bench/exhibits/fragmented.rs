//! DAFT's tables III and IV: files in several pieces, up to a size.

use super::daft::DISKS;
use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::{Outcome, Results};
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

/// The paper's figures for files up to a size.
pub(crate) struct Limit {
    pub(crate) kib: u64,
    files_percent: f64,
    fragments: f64,
    memory_mb: f64,
    /// On the fast and the slow disk.
    pub(crate) times: [f64; 2],
}

pub(crate) const LIMITS: [Limit; 3] = [
    Limit { kib: 128, files_percent: 87.9, fragments: 1.11, memory_mb: 84.0, times: [6.7, 7.0] },
    Limit { kib: 512, files_percent: 95.1, fragments: 1.21, memory_mb: 387.0, times: [5.3, 5.7] },
    Limit { kib: 1024, files_percent: 97.3, fragments: 1.28, memory_mb: 718.0, times: [4.4, 4.3] },
];

/// The volume stands for a full disk, as the paper's did.
pub(crate) fn setting(seed: u64, model: &str) -> Setting {
    Setting::new(Subject::new("fragmented", "ext4", 1.0, seed), Disk::new(model, Stretch::Whole))
}

/// More than the sweep needs for any class: the paper gives what it needed, 718 MB at most.
pub(super) const BUDGET: &str = "1G";

/// As DAFT reads, through its gaps.
pub(crate) fn by_device() -> Work {
    Work::with(Tool::Tar, &["--device", "--strategy", "merged", "--budget", BUDGET])
}

pub(crate) fn by_file() -> Work {
    Work::with(Tool::Tar, &["--budget", BUDGET])
}

/// Both tables.
pub(crate) struct Tables {
    seed: u64,
}

impl Tables {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn plan(&self, limit: &Limit) -> Run {
        let options = ["--order", "fragment", "--budget", "1T"];
        setting(self.seed, DISKS[0].1).run(Work::with(Tool::Plan, &options).at_most(limit.kib))
    }

    fn work(&self, disk: usize, work: Work, limit: &Limit) -> Run {
        setting(self.seed, DISKS[disk].1).run(work.at_most(limit.kib))
    }

    /// (part of all files in percent, fragments a file, megabytes that a sweep without a limit holds)
    fn characteristics(&self, limit: &Limit, results: &Results) -> Option<[f64; 3]> {
        let run = self.plan(limit);
        let plan = &results.of(&run)?.outcome.detail;
        let chosen = plan["plans"].as_array()?.iter().find(|plan| plan["chosen"] == true)?;
        let unmerged = plan["plans"]
            .as_array()?
            .iter()
            .find(|plan| plan["order"] == "fragment" && plan["strategy"] == "unmerged")?;
        let all = results.images.get(&run.setting.image.name())?.files as f64;
        let files = plan["files"].as_f64()?;
        let (requests, peak) = (unmerged["requests"].as_f64()?, chosen["peak_memory"].as_f64()?);
        Some([files * 100.0 / all, requests / files, peak / 1e6])
    }

    /// The content that was in memory at most, in megabytes. It doesn't depend on the disk.
    fn held(&self, work: Work, limit: &Limit, results: &Results) -> String {
        let peak = |outcome: &Outcome| Some(outcome.detail["peak_budget"].as_f64()? / 1e6);
        page::measured(results.figure(&self.work(0, work, limit), peak))
    }

    fn table_3(&self, results: &Results) -> Table {
        let mut table = Table::new(&[
            "files up to",
            "% of files, paper",
            "here",
            "fragments a file, paper",
            "here",
            "MB of memory, paper",
            "planned here",
            "held, through the file system",
            "held, merged",
        ]);
        for limit in &LIMITS {
            let here = match self.characteristics(limit, results) {
                Some(figures) => figures.map(page::number),
                None => ["not measured"; 3].map(String::from),
            };
            let paper = [limit.files_percent, limit.fragments, limit.memory_mb];
            let mut row = vec![format!("{} KB", limit.kib)];
            for (paper, here) in paper.into_iter().zip(here) {
                row.extend([paper.to_string(), here]);
            }
            row.extend([by_file(), by_device()].map(|work| self.held(work, limit, results)));
            table.row(row);
        }
        table
    }

    fn table_4(&self, results: &Results) -> Table {
        let heads = ["disk, files up to", "the paper", "merged", "through the file system", "one perfect sweep"];
        let mut table = Table::new(&heads);
        for (disk, (name, _)) in DISKS.into_iter().enumerate() {
            for limit in &LIMITS {
                let tar = self.work(disk, Work::of(Tool::GnuTar), limit);
                let times = |work: Work| page::measured(results.times(&tar, &self.work(disk, work, limit)));
                let paper = limit.times[disk].to_string();
                let name = format!("{name}, {} KB", limit.kib);
                table.row(vec![name, paper, times(by_device()), times(by_file()), times(Work::of(Tool::Bound))]);
            }
        }
        table
    }
}

impl Exhibit for Tables {
    fn title(&self) -> &'static str {
        "DAFT, tables III and IV: files in pieces"
    }

    fn cases(&self) -> Vec<Case> {
        let plans = LIMITS.iter().map(|limit| self.plan(limit)).collect();
        let mut tars = Vec::new();
        for disk in 0..DISKS.len() {
            for limit in &LIMITS {
                let works = [Work::of(Tool::GnuTar), by_device(), by_file(), Work::of(Tool::Bound)];
                tars.extend(works.map(|work| self.work(disk, work, limit)));
            }
        }
        vec![Case { name: "table-3".into(), runs: plans }, Case { name: "table-4".into(), runs: tars }]
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        Ok(format!(
            "`fragmented` stands for the paper's volume, of which it tells \
             no more than the sizes and the fragments of its files: these are the same here. Larger files are left out by \
             a list of names that both sides get (`-X`); a perfect sweep is over the others. The image stands for a full disk; track buffer off.\n\n{}\n\
             Memory is counted as the paper counts it: the sizes of all files of which some fragment, but not the last, was \
             read, where that sum is greatest. So it depends on how far a file's fragments lie apart, of which the table says \
             nothing. In the recipe (seed 1) the files up to 128 KB that are in pieces have 135 MB together, those up to 1,024 KB \
             1,054 MB. The paper's 84 MB would be 62 % of the former, its 718 MB 68 % of the latter: among small files, its \
             pieces lay farther apart than here, or larger files were in pieces.\n\nTimes as fast as GNU tar:\n\n{}",
            self.table_3(results),
            self.table_4(results)
        ))
    }
}
