//! DAFT's figure 2 and tables II and IV on NTFS, the paper's own file system, by how far the device below ntfs-3g reads ahead.

use super::daft::{DISKS, SIZES, throughput};
use super::goal::{Aim, Goal};
use super::tables::{daft, device};
use super::{Case, Exhibit, fragmented};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Bars, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

/// In KiB: less than any Linux chooses, and what it does.
const READ_AHEADS: [u32; 4] = [16, 64, CHOSEN[0], CHOSEN[1]];

/// What Linux chooses for a disk with a head: up to 6.16, and twice the largest request since.
pub(super) const CHOSEN: [u32; 2] = [128, 2560];

/// What Linux chooses is held against the paper, the lesser ones are there to compare; GNU tar's rounds through ntfs-3g are up to twice
/// as long as one another.
const ROUNDS: u32 = 3;

/// GNU tar is drawn with the least, and with what most machines have.
const DRAWN: [u32; 2] = [READ_AHEADS[0], CHOSEN[0]];

/// One cell for each read-ahead, and what is said of all.
struct Row {
    case: String,
    name: String,
    paper: f64,
    /// In the order of [`READ_AHEADS`].
    goals: [Goal; READ_AHEADS.len()],
}

impl Row {
    fn new(case: String, name: String, paper: f64, setting: &Setting, ours: &Work) -> Self {
        let goals = READ_AHEADS.map(|kib| {
            let setting = Setting { disk: setting.disk.clone().read_ahead(kib), ..setting.clone() };
            let rounds = if CHOSEN.contains(&kib) { ROUNDS } else { 1 };
            let goal = Goal::new(&case, &name, setting).ours(ours.clone()).rounds(rounds);
            goal.off(Aim::AtLeast(paper)).off_only()
        });
        Self { case, name, paper, goals }
    }

    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for run in self.goals.iter().flat_map(Goal::runs) {
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        runs
    }

    /// How many times as fast as GNU tar, and how many times that one perfect sweep would be.
    fn cell(goal: &Goal, results: &Results) -> String {
        let ours = page::measured(goal.value(results, false));
        match goal.over_sweep(results, false) {
            Some((possible, _)) => format!("{ours} of {}", page::number(possible)),
            None => ours,
        }
    }

    /// For what Linux chooses; the lesser ones are there to compare.
    fn verdict(&self, results: &Results) -> String {
        let chosen = READ_AHEADS.iter().zip(&self.goals).filter(|(kib, _)| CHOSEN.contains(kib));
        let mut said: Vec<String> = chosen.map(|(_, goal)| goal.verdict(results)).collect();
        said.dedup();
        said.join(" / ")
    }
}

/// Figure 2, table II and table IV.
pub(crate) struct ByReadAhead {
    seed: u64,
    /// Table II, disk by disk.
    whole: Vec<Row>,
    /// Table IV, disk by disk.
    pieces: Vec<Row>,
}

impl ByReadAhead {
    pub(crate) fn new(seed: u64) -> Self {
        let (mut whole, mut pieces) = (Vec::new(), Vec::new());
        for (disk, (disk_name, model)) in DISKS.into_iter().enumerate() {
            for (recipe, scale, size, paper) in SIZES {
                let (case, name) = (format!("ntfs-{recipe}-{disk_name}"), format!("{disk_name}, {size}"));
                whole.push(Row::new(case, name, paper[disk], &daft(recipe, "ntfs", scale, model, seed), &device()));
            }
            for limit in fragmented::LIMITS {
                let image = Subject::new("fragmented", "ntfs", 1.0, seed);
                let setting = Setting::new(image, Disk::new(model, Stretch::Whole));
                let ours = Work::with(Tool::Tar, &["--budget", fragmented::BUDGET]).unmounted().at_most(limit.kib);
                let case = format!("ntfs-fragmented-{disk_name}-{}", limit.kib);
                let name = format!("{disk_name}, up to {} KB", limit.kib);
                pieces.push(Row::new(case, name, limit.times[disk], &setting, &ours));
            }
        }
        Self { seed, whole, pieces }
    }

    /// Ours doesn't depend on read-ahead, since it reads past the page cache: where it stands for all, it is this one's.
    fn setting(&self, size: usize, disk: usize, kib: u32) -> Setting {
        let (recipe, scale, ..) = SIZES[size];
        let setting = daft(recipe, "ntfs", scale, DISKS[disk].1, self.seed);
        Setting { disk: setting.disk.clone().read_ahead(kib), ..setting }
    }

    fn unmerged(&self, size: usize, disk: usize) -> Run {
        let work = Work::with(Tool::Tar, &["--strategy", "unmerged"]).unmounted();
        self.setting(size, disk, CHOSEN[0]).run(work)
    }

    /// What figure 2 has for a size and a disk.
    fn series(&self, size: usize, disk: usize) -> Vec<(String, Run)> {
        let tar = |kib| {
            let name = format!("GNU tar (Vanilla), {} KiB", page::count(u64::from(kib)));
            (name, self.setting(size, disk, kib).run(Work::of(Tool::GnuTar)))
        };
        let mut series: Vec<(String, Run)> = DRAWN.map(tar).into();
        series.push(("unmerged (DAFTNM)".into(), self.unmerged(size, disk)));
        series.push(("merged (DAFTM)".into(), self.setting(size, disk, CHOSEN[0]).run(device())));
        let bound = self.setting(size, disk, CHOSEN[0]).of_bounds().run(Work::of(Tool::Bound));
        series.push(("one perfect sweep".into(), bound));
        series
    }

    fn bars(&self, results: &Results, disk: usize) -> Bars {
        let names = self.series(0, disk).into_iter().map(|(name, _)| name);
        let value = |index: usize, size| Some(throughput(results, &self.series(size, disk)[index].1)?.median);
        Bars {
            title: format!("Throughput on NTFS, {} disk ({})", DISKS[disk].0, DISKS[disk].1),
            axis: "throughput (MB/s)".into(),
            groups: SIZES.map(|size| size.2.to_owned()).to_vec(),
            series: names
                .enumerate()
                .map(|(index, name)| (name, (0..SIZES.len()).map(|size| value(index, size)).collect()))
                .collect(),
        }
    }

    /// The values of the pictures.
    fn values(&self, results: &Results) -> Table {
        let names: Vec<String> = self.series(0, 0).into_iter().map(|(name, _)| name).collect();
        let mut heads = vec!["disk, files"];
        heads.extend(names.iter().map(String::as_str));
        let mut table = Table::new(&heads);
        for (disk, (disk_name, _)) in DISKS.into_iter().enumerate() {
            for (size, (.., size_name, _)) in SIZES.into_iter().enumerate() {
                let mut row = vec![format!("{disk_name}, {size_name}")];
                row.extend(self.series(size, disk).iter().map(|(_, run)| page::measured(throughput(results, run))));
                table.row(row);
            }
        }
        table
    }

    fn factors(rows: &[Row], results: &Results) -> Table {
        let read_aheads = READ_AHEADS.map(|kib| format!("{} KiB", page::count(u64::from(kib))));
        let mut heads = vec!["disk, files", "the paper"];
        heads.extend(read_aheads.iter().map(String::as_str));
        heads.extend(["", "`--case`"]);
        let mut table = Table::new(&heads);
        for row in rows {
            let mut cells = vec![row.name.clone(), row.paper.to_string()];
            cells.extend(row.goals.iter().map(|goal| Row::cell(goal, results)));
            cells.extend([row.verdict(results), format!("`{}`", row.case)]);
            table.row(cells);
        }
        table
    }
}

impl Exhibit for ByReadAhead {
    fn title(&self) -> &'static str {
        "DAFT, figure 2 and tables II and IV on NTFS"
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = self
            .whole
            .iter()
            .chain(&self.pieces)
            .map(|row| Case { name: row.case.clone(), runs: row.runs() })
            .collect();
        for (index, case) in cases[..self.whole.len()].iter_mut().enumerate() {
            case.runs.extend(self.unmerged(index % SIZES.len(), index / SIZES.len()).rounds(ROUNDS));
        }
        cases
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let mut text = String::from(
            "The paper's own file system, for GNU tar through ntfs-3g and for ours as `onesweep tar DEVICE`, which mounts \
             nothing. Track buffer off; files of one size at the outer edge of as large a part of the disk as the image has \
             bytes, `fragmented` on all of it. ntfs-3g reads the device, so how far the kernel reads ahead there decides what \
             GNU tar gets at once: docs/lab.md. Linux chooses 128 KiB up to 6.16, and twice the largest request since, 2,560 KiB \
             for most disks; less is there to compare. Ours reads past the page cache.\n\n",
        );
        for (disk, (name, _)) in DISKS.into_iter().enumerate() {
            let bars = self.bars(results, disk);
            if bars.series.iter().any(|series| series.1.iter().any(Option::is_some)) {
                let words = format!("throughput on NTFS on the {name} disk");
                text += &pictures.add(&format!("daft-2-ntfs-{name}"), &words, &bars)?;
            }
        }
        text += "\nUseful MB/s, GNU tar by read-ahead:\n\n";
        text += &self.values(results).to_string();
        text += "\nTimes as fast as GNU tar, by read-ahead; *of* what one perfect sweep would be. What Linux chooses has to \
                 reach the paper's figure, or come within 1.25 of that sweep where it would not reach it either. Table II:\n\n";
        text += &Self::factors(&self.whole, results).to_string();
        text += "\nTable IV:\n\n";
        text += &Self::factors(&self.pieces, results).to_string();
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::tests::record;

    /// Each read-ahead is held against its own GNU tar; the paper's figure counts for what Linux chooses.
    #[test]
    fn a_row_tells_each_read_ahead_apart() {
        let exhibit = ByReadAhead::new(1);
        let row = &exhibit.whole[0];
        let mut results = Results::default();
        let image = row.goals[0].our_run(false).setting.image.name();
        results.images.insert(image, Facts { image_sha256: "abc".into(), ..Facts::default() });
        for (goal, tar) in row.goals.iter().zip([200.0, 90.0, 50.0, 15.0]) {
            results.enter(record(goal.other_run(false), tar));
            results.enter(record(goal.our_run(false), 10.0));
        }
        results.enter(record(row.goals[0].bound_run(), 8.0));
        let text = ByReadAhead::factors(&exhibit.whole[..1], &results).to_string();
        let cells =
            "| 20.0 of 25.0 | 9.00 of 11.2 | 5.00 of 6.25 | 1.50 of 1.88 | as near as can be: 1.25 of the sweep, ";
        assert!(text.lines().last().unwrap().starts_with(&format!("| fast, 4 KB | 15.5 {cells}")), "{text}");
        // A sweep that GNU tar is so far behind of, and that ours isn't.
        results.enter(record(row.goals[2].our_run(false), 40.0));
        assert!(row.verdict(&results).starts_with("**not met** / as near as can be: "), "{}", row.verdict(&results));
    }

    #[test]
    fn no_run_stands_twice_in_a_case() {
        for case in ByReadAhead::new(1).cases() {
            for (index, run) in case.runs.iter().enumerate() {
                assert!(!case.runs[..index].contains(run), "{}: {}", case.name, run.describe());
            }
        }
    }
}
