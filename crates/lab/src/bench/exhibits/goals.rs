//! What has to come out of reading trees, case by case.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::budgets::{self, unlimited};
use super::daft::{DISKS, SIZES, merged, unmerged};
use super::goal::{self, Aim, Goal, Measure};
use super::{Case, Exhibit, fragmented};
use crate::bench::company;
use crate::bench::page;
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Company, Disk, Setting, Stretch, Subject};
use crate::bench::work::{Budget, Share, Threshold, Tool, Work};

/// The rows of one table.
pub(crate) struct Goals {
    goals: Vec<Goal>,
}

pub(super) const BARRACUDA: &str = "barracuda-7200.11";

impl Goals {
    pub(crate) fn all(seed: u64) -> Self {
        let mut goals = Self::against_gnu_tar(seed);
        goals.extend(Self::daft(seed));
        goals.extend(Self::fragmented(seed));
        goals.extend(Self::against_bounds(seed));
        goals.extend(Self::under_a_budget(seed));
        goals.extend(Self::in_company(seed));
        goals.extend(Self::by_the_clock(seed));
        Self { goals }
    }

    fn against_gnu_tar(seed: u64) -> Vec<Goal> {
        let on = |recipe, fs| Setting::new(Subject::new(recipe, fs, 1.0, seed), Disk::new(BARRACUDA, Stretch::Whole));
        let clean = |fs| {
            let image = Subject::new("source", fs, 1.0, seed).steps(0);
            Setting::new(image, Disk::new(BARRACUDA, Stretch::Whole))
        };
        let goals = vec![
            Goal::new("source-ext4", "`source`, 24 versions, ext4", on("source", "ext4"))
                .paper("4.75")
                .off(Aim::AtLeast(10.0))
                .on(Aim::AtLeast(4.75)),
            Goal::new("source-clean-ext4", "`source`, clean, ext4", clean("ext4"))
                .paper("3.95")
                .off(Aim::AtLeast(20.0))
                .on(Aim::AtLeast(4.0)),
            Goal::new("source-xfs", "`source`, 24 versions, XFS", on("source", "xfs"))
                .paper("about 3")
                .off(Aim::AtLeast(4.0)),
            Goal::new("random-ext4", "`random`, ext4", on("random", "ext4")).off(Aim::AtLeast(25.0)),
            Goal::new("random-xfs", "`random`, XFS", on("random", "xfs")).off(Aim::AtLeast(15.0)),
            Goal::new("random-btrfs", "`random`, btrfs", on("random", "btrfs")).off(Aim::AtLeast(8.0)),
        ];
        goals.into_iter().map(|goal| goal.by_extent(3)).collect()
    }

    fn daft(seed: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (disk, (disk_name, model)) in DISKS.into_iter().enumerate() {
            for (recipe, scale, _, paper) in SIZES {
                let setting =
                    Setting::new(Subject::new(recipe, "ext4", scale, seed), Disk::new(model, Stretch::InProportion));
                let what = format!("`{recipe}` × {scale}, dir_index, {disk_name} disk");
                let row = |case: &str| Goal::new(&format!("{recipe}-{disk_name}{case}"), &what, setting.clone());
                let aim = Aim::AtLeast(paper[disk]);
                goals.push(row("").paper(&paper[disk].to_string()).ours(merged()).off(aim).by_extent(1));
                goals.push(row("-unmerged").ours(unmerged()).by_extent(1));
                goals.push(row("-files").by_extent(1));
            }
        }
        for (disk, (disk_name, model)) in DISKS.into_iter().enumerate() {
            for (recipe, scale, _, paper) in SIZES {
                let image = Subject::new(recipe, "ext4", scale, seed).mkfs(&["-O", "^dir_index"]);
                let setting = Setting::new(image, Disk::new(model, Stretch::InProportion));
                let what = format!("`{recipe}` × {scale}, ^dir_index, {disk_name} disk");
                let row = |case: &str| {
                    Goal::new(&format!("{recipe}-{disk_name}-{case}"), &what, setting.clone()).ours(merged()).once_on()
                };
                goals.push(row("plain-sweep").measure(Measure::Sweep).off(Aim::AtMost(1.1)));
                goals.push(row("plain").paper(&paper[disk].to_string()));
                goals.push(row("plain-unmerged").ours(unmerged()).rounds(1));
                goals.push(row("plain-files").ours(Work::of(Tool::Tar)).rounds(1));
            }
        }
        goals
    }

    fn fragmented(seed: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (disk, (disk_name, model)) in DISKS.into_iter().enumerate() {
            for limit in fragmented::LIMITS {
                let setting = fragmented::setting(seed, model);
                let what = format!("`fragmented`, files up to {} KB, {disk_name} disk", limit.kib);
                let row = |case: &str| {
                    Goal::new(&format!("fragmented-{disk_name}-{}{case}", limit.kib), &what, setting.clone())
                };
                let aim = limit.times[disk];
                let ours = fragmented::by_device().at_most(limit.kib);
                goals.push(row("").paper(&aim.to_string()).ours(ours).off(Aim::AtLeast(aim)).by_extent(1));
                goals.push(row("-files").ours(fragmented::by_file().at_most(limit.kib)).by_extent(1));
            }
        }
        goals
    }

    fn against_bounds(seed: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (recipe, fs, most) in
            [("random", "ext4", 1.25), ("source", "ext4", 1.25), ("random", "xfs", 1.4), ("source", "xfs", 1.4)]
        {
            let setting = Setting::new(Subject::new(recipe, fs, 1.0, seed), Disk::new(BARRACUDA, Stretch::Whole));
            let goal =
                Goal::new(&format!("{recipe}-{fs}-sweep"), &format!("`{recipe}`, {}", page::fs_name(fs)), setting);
            let goal = goal.measure(Measure::Sweep).by_extent(3);
            if fs == "xfs" {
                goals.push(goal.clone().ours(merged()).off(Aim::AtMost(most)));
                goals.push(goal.case_named(&format!("{recipe}-{fs}-sweep-files")));
            } else {
                goals.push(goal.off(Aim::AtMost(most)));
            }
        }
        for (disk, model) in DISKS {
            for (recipe, scale, ..) in SIZES {
                let setting =
                    Setting::new(Subject::new(recipe, "ext4", scale, seed), Disk::new(model, Stretch::InProportion));
                let what = format!("`{recipe}` × {scale}, dir_index, {disk} disk");
                let goal =
                    Goal::new(&format!("{recipe}-{disk}-sweep"), &what, setting.clone()).ours(merged()).by_extent(1);
                goals.push(goal.clone().measure(Measure::Sweep).off(Aim::AtMost(1.5)));
                if recipe == "daft-16k" {
                    let least = if disk == "fast" { 0.85 } else { 0.75 };
                    let goal = goal.case_named(&format!("{recipe}-{disk}-streaming"));
                    goals.push(goal.measure(Measure::Streaming).paper("close to raw").off(Aim::AtLeast(least)));
                }
            }
        }
        goals
    }

    fn under_a_budget(seed: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        for recipe in ["random", "fragmented"] {
            let setting = Setting::new(Subject::new(recipe, "ext4", 1.0, seed), Disk::new(BARRACUDA, Stretch::Whole));
            for &(share, most) in &budgets::MOST {
                let Share { of, parts } = share;
                let budget = Budget { share, threshold: Threshold::Auto };
                let case = format!("{recipe}-budget-{of}-{parts}");
                let what = format!("`{recipe}`, ext4, {of}/{parts} of the memory");
                let goal = Goal::new(&case, &what, setting.clone()).measure(Measure::Other(unlimited()));
                let ours = Work::of(Tool::Tar).budget(budget);
                let goal = goal.ours(ours).off(Aim::AtMost(most));
                goals.push(if recipe == "fragmented" { goal.once_on() } else { goal });
            }
        }
        goals
    }

    fn in_company(seed: u64) -> Vec<Goal> {
        let setting = Setting::new(Subject::new("random", "ext4", 1.0, seed), Disk::new(BARRACUDA, Stretch::Whole));
        [(Company::Reader, "reader", "a second reader"), (Company::Writer, "writer", "a writer")]
            .map(|(company, case, what)| {
                let what = format!("`random`, ext4, beside {what}");
                let goal = Goal::new(&format!("random-{case}"), &what, setting.clone().beside(company));
                goal.paper("“still much better”").off(Aim::AtLeast(10.0)).by_extent(3)
            })
            .to_vec()
    }

    fn by_the_clock(seed: u64) -> Vec<Goal> {
        let image = || Subject::new("random", "ext4", 1.0, seed);
        let planned = |options: &[&str]| Measure::Plan(Work::with(Tool::Plan, options));
        let whole = || Disk::new(BARRACUDA, Stretch::Whole);
        let ssd = Disk::new("ssd", Stretch::Whole).real(1.0);
        // On an image of its own, so that no other row has to be measured again with it.
        let slowed = || Subject::new("random", "ext4", 1.0, seed + 16);
        let ssd_slowed = Disk::new("ssd", Stretch::Whole).real(20.0);
        vec![
            Goal::new("plan-files", "`random`, ext4", Setting::new(image(), whole()))
                .measure(planned(&["--disk", BARRACUDA]))
                .off(Aim::Within(0.1))
                .off_only(),
            Goal::new("plan-device", "`random`, ext4", Setting::new(image(), whole()))
                .ours(merged())
                .measure(planned(&["--disk", BARRACUDA, "--device", "--strategy", "merged"]))
                .off(Aim::Within(0.1))
                .off_only(),
            Goal::new("real-time", "`random`, ext4, real time", Setting::new(image(), whole().real(1.0)))
                .measure(Measure::WallFaster)
                .off(Aim::AtLeast(20.0))
                .once()
                .off_only(),
            Goal::new("ssd", "`random`, ext4, model `ssd`, real time", Setting::new(image(), ssd))
                .measure(Measure::WallPaired)
                .off(Aim::AtMost(1.1))
                .rounds(10)
                .off_only(),
            Goal::new("ssd-slowed", "`random`, ext4, model `ssd`, real time × 20", Setting::new(slowed(), ssd_slowed))
                .measure(Measure::WallPaired)
                .off(Aim::AtMost(1.1))
                .rounds(5)
                .off_only(),
            Goal::new("warm", "`random`, ext4, everything cached", Setting::new(image(), whole()).warm())
                .measure(Measure::WallPaired)
                .off(Aim::AtMost(1.1))
                .rounds(10)
                .off_only(),
        ]
    }
}

impl Exhibit for Goals {
    fn title(&self) -> &'static str {
        "What has to come out"
    }

    fn cases(&self) -> Vec<Case> {
        self.goals.iter().map(Goal::case).collect()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        let table = goal::table(&self.goals, results);
        let mut text = String::from(
            "Modelled disk time, cold, metadata and data together, on the Barracuda model \
             unless another disk is named. With the track buffer on and off; where two goals are given, the first is \
             for off. A median has its least and greatest beside it. A goal that even one perfect sweep would not \
             reach is replaced by 1.25 times that sweep, and the verdict says so. Ours by first extent (`--order first-extent`, GNU tar ÷ it) has \
             qtar's order, so the paper's 4.75, 3.95 and 3, which were measured on a disk with a track buffer, belong beside that \
             column. It gains more than they tell, since ours brings in the metadata first, and keeps 16 requests in flight where \
             qtar reads one file after the other: what they are worth has a [table](#qtars-order-and-what-ours-does-besides) of its \
             own.\n\n",
        );
        let _ = writeln!(text, "{table}");
        text += "On XFS `--device` is held to 1.4 of one perfect sweep; the default beside it, which goes through the file \
                 system, misses that and has no goal of its own. Both read the metadata first, which alone takes more than one sweep would (`onesweep-lab bound`); \
                 but a file's content comes through its own pages there, so a gap between two files can't be read through, \
                 and each costs the turn that it takes to pass, or a seek (the gap of 0 under *What was settled* is what that costs \
                 by device). That is what stands between the two rows, on ext4 as \
                 on XFS ([ARCHITECTURE.md](ARCHITECTURE.md)).\n\n";
        text += "In real time every request goes through a loop device, FUSE and a thread of the lab, 0.2 to 0.7 ms of it, where \
                 the model `ssd` takes 0.03 ms: GNU tar waits for that once for each of its requests, ours for 16 at a time, so \
                 the row says that ours isn't slower, not how much quicker it is on such a disk. Slowed 20 times, the disk's own \
                 time is the greater part.\n\n";
        text += &in_company(results);
        text += "The second reader reads 4 KiB at random places of the device, 8 times in each second that the disk is \
                 at work; the writer writes 8 files of 16 KiB in such a second and then waits for the disk. Their \
                 requests are in the figures of both sides. `daft` is read at the scale shown, with fewer directories \
                 of as many files each, on as large a part of the disk as its image has bytes: from file to file and \
                 from directory to directory the head goes as far as in the whole set, only the rare long ways become \
                 shorter. With the track buffer on, what the drive reads ahead while nobody waits takes no time in the books: \
                 a program that reads in the order of the disk and thinks between two reads (GNU tar on `^dir_index`) comes \
                 below what streaming takes, and ours, which always has requests waiting, can't.\n";
        Ok(text)
    }
}

/// How much company each program had: what waits for the disk acts less often beside one that keeps its queue full.
fn in_company(results: &Results) -> String {
    let mut counts: BTreeMap<(&str, String), (u64, u64)> = BTreeMap::new();
    for record in results.by_work().into_iter().flatten() {
        let who = match record.run.setting.company {
            Company::Alone => continue,
            Company::Reader => "the second reader",
            Company::Writer => "the writer",
        };
        let Some(acted) = record.outcome.detail["companion"].as_u64() else { continue };
        let count = counts.entry((who, record.run.work.name())).or_default();
        *count = (count.0 + acted, count.1 + company::due(record.outcome.busy_ms));
    }
    let share = |((who, program), (acted, due)): (&(&str, String), &(u64, u64))| {
        format!("{who} beside {program} {:.0} %", *acted as f64 * 100.0 / (*due).max(1) as f64)
    };
    let shares: Vec<String> = counts.iter().map(share).collect();
    if shares.is_empty() {
        return String::new();
    }
    format!(
        "Of the times that were due, all rounds together, there acted: {}. What was left out beside ours would have cost it a \
         random read each.\n\n",
        shares.join(", ")
    )
}

/// The small run: the same figures on images that are made in seconds.
pub(crate) fn quick(seed: u64) -> Vec<Goal> {
    let setting =
        |recipe, fs, scale, model, span| Setting::new(Subject::new(recipe, fs, scale, seed), Disk::new(model, span));
    let random = setting("random", "ext4", 0.05, BARRACUDA, Stretch::Whole);
    let source = setting("source", "ext4", 0.1, BARRACUDA, Stretch::Whole);
    let daft = setting("daft-4k", "ext4", 0.005, DISKS[0].1, Stretch::InProportion);
    let budget = Budget { share: Share { of: 1, parts: 3 }, threshold: Threshold::Auto };
    let under_budget = Goal::new("random-budget", "", random.clone()).measure(Measure::Other(unlimited()));
    let goals = [
        Goal::new("random-ext4", "", random.clone()),
        Goal::new("random-ext4-device", "", random.clone()).ours(merged()),
        Goal::new("random-run", "", random.clone()).ours(Work::of(Tool::GnuTar).ahead(1)),
        Goal::new("random-view", "", random.clone()).ours(Work::of(Tool::GnuTar).viewed(1)),
        Goal::new("random-view-fuse", "", random.clone()).ours(Work::of(Tool::GnuTar).viewed(1).by_fuse()),
        Goal::new("random-ext4-sweep", "", random).measure(Measure::Sweep),
        under_budget.ours(Work::of(Tool::Tar).budget(budget)),
        Goal::new("random-xfs", "", setting("random", "xfs", 0.05, BARRACUDA, Stretch::Whole)),
        Goal::new("source-ext4", "", source.clone()),
        Goal::new("source-ext4-sweep", "", source).measure(Measure::Sweep),
        Goal::new("daft-4k", "", daft.clone()).ours(merged()),
        Goal::new("daft-4k-sweep", "", daft).ours(merged()).measure(Measure::Sweep),
        Goal::new("random-ntfs", "", setting("random", "ntfs", 0.02, BARRACUDA, Stretch::Whole))
            .ours(Work::of(Tool::Tar).unmounted()),
        Goal::new("mail-find", "", setting("mail", "ext4", 0.01, BARRACUDA, Stretch::Whole))
            .ours(Work::of(Tool::Find).unmounted())
            .measure(Measure::Other(Work::of(Tool::GnuFind))),
    ];
    goals.into_iter().map(|goal| goal.rounds(5).once().off_only()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::{on_its_image, record, setting};
    use crate::bench::results::{Outcome, Record};
    use crate::bench::run::Run;

    /// A program that leaves the others little of the disk has less company than one that doesn't.
    #[test]
    fn a_page_tells_how_much_company_there_was() {
        let mut results = on_its_image();
        assert_eq!(in_company(&results), "");
        let beside = setting().beside(Company::Reader);
        for (tool, round, acted, busy_ms) in
            [(Tool::GnuTar, 0, 800, 100_000.0), (Tool::Tar, 0, 40, 10_000.0), (Tool::Tar, 1, 120, 20_000.0)]
        {
            let run = Run { round, ..beside.run(Work::of(tool)) };
            let detail = serde_json::json!({"companion": acted});
            results.enter(Record { outcome: Outcome { busy_ms, detail, ..Outcome::default() }, ..record(run, 0.0) });
        }
        let told = in_company(&results);
        assert!(told.contains("the second reader beside GNU tar 100 %"), "{told}");
        assert!(told.contains("the second reader beside onesweep tar 67 %"), "160 of 240: {told}");
    }
}
