//! What has to come out where the file system's own tables are read, case by case.

use super::daft::{DISKS, SIZES, merged};
use super::goal::{self, Aim, Figure, Goal, Measure};
use super::goals::BARRACUDA;
use super::ntfs::CHOSEN;
use super::{Case, Exhibit};
use crate::bench::page;
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Disk, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

/// The part of `mail` that is measured on NTFS: through ntfs-3g, all of it would take the better part of an hour to make.
const MAIL_ON_NTFS: f64 = 0.1;

static INODES: Figure = Figure { key: "inodes_per_second", text: "inodes a second of one core", grows: true };
static SYSTEM_CALL: Figure = Figure { key: "getppid_ns", text: "beside it: ns for a getppid", grows: false };
static COPYING: Figure = Figure { key: "memcpy_gb_per_second", text: "beside it: GB/s of copying", grows: true };
static ENTRY: Figure = Figure { key: "entry_bytes", text: "catalogue bytes an entry, without its name", grows: false };
static PEAK: Figure = Figure { key: "peak_bytes", text: "bytes of memory an entry, all in all", grows: false };

/// The rows.
pub(crate) struct Tables {
    goals: Vec<Goal>,
}

impl Tables {
    pub(crate) fn new(seed: u64) -> Self {
        let mut goals = Self::metadata(seed);
        goals.extend(Self::against_one_sweep(seed));
        goals.extend(Self::against_ntfs_3g(seed));
        goals.extend(Self::in_memory(seed));
        Self { goals }
    }

    /// What finding the files costs.
    fn metadata(seed: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        let find = Measure::Other(Work::of(Tool::GnuFind));
        let pass = Measure::Other(Work::of(Tool::MetadataBound));
        let ways = [
            ("find", Work::of(Tool::Find)),
            ("plan", Work::of(Tool::Plan)),
            ("device", Work::of(Tool::Find).unmounted()),
        ];
        let mut images = vec![("tables-mail-ext4".to_owned(), "`mail`, ext4".to_owned(), mail("ext4", 1.0, seed), 0.1)];
        for (disk, model) in DISKS {
            let (recipe, scale, ..) = SIZES[0];
            let what = format!("`{recipe}` × {scale}, ext4, {disk} disk");
            images.push((format!("tables-{recipe}-{disk}"), what, daft(recipe, "ext4", scale, model, seed), 0.2));
        }
        for (case, what, setting, most) in images {
            for (way, ours) in &ways {
                let row = |case: &str, measure: &Measure, most| {
                    let goal = Goal::new(case, &what, setting.clone()).ours(ours.clone()).measure(measure.clone());
                    goal.off(Aim::AtMost(most)).off_only()
                };
                goals.push(row(&format!("{case}-{way}"), &find, most));
                goals.push(row(&format!("{case}-{way}-pass"), &pass, 1.3));
            }
        }
        let row = |case: &str, what: &str, setting: &Setting, ours: &Work, measure: &Measure| {
            Goal::new(&format!("tables-mail-{case}"), what, setting.clone()).ours(ours.clone()).measure(measure.clone())
        };
        let ntfs = (mail("ntfs", MAIL_ON_NTFS, seed), format!("`mail` × {MAIL_ON_NTFS}, NTFS, `find` through ntfs-3g"));
        let [mounted, plan, device] = ways.map(|way| way.1);
        goals.push(row("ntfs", &ntfs.1, &ntfs.0, &device, &find).off(Aim::AtMost(0.1)).off_only());
        goals.push(row("ntfs-pass", &ntfs.1, &ntfs.0, &device, &pass).off_only());
        let xfs = mail("xfs", 1.0, seed);
        for (case, ours) in [("xfs-find", mounted), ("xfs-plan", plan), ("xfs-device", device)] {
            goals.push(row(case, "`mail`, XFS", &xfs, &ours, &find).off(Aim::AtMost(0.33)).off_only());
            goals.push(row(&format!("{case}-pass"), "`mail`, XFS", &xfs, &ours, &pass).off_only());
        }
        goals
    }

    /// Reading everything.
    fn against_one_sweep(seed: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        let sweep = |case: &str, what: &str, setting: &Setting, ours: Work, most| {
            let goal = Goal::new(&format!("tables-{case}"), what, setting.clone()).ours(ours).measure(Measure::Sweep);
            goal.off(Aim::AtMost(most)).off_only()
        };
        for (disk, model) in DISKS {
            for (recipe, scale, ..) in SIZES {
                let (setting, case) = (daft(recipe, "ext4", scale, model, seed), format!("{recipe}-{disk}-sweep"));
                let what = format!("`{recipe}` × {scale}, ext4, {disk} disk");
                goals.push(sweep(&case, &what, &setting, merged(), 1.1));
                goals.push(sweep(&format!("{case}-device"), &what, &setting, device(), 1.1));
            }
        }
        let whole =
            |recipe, fs| Setting::new(Subject::new(recipe, fs, 1.0, seed), Disk::new(BARRACUDA, Stretch::Whole));
        let btrfs = whole("random", "btrfs");
        goals.push(sweep("random-btrfs-sweep", "`random`, btrfs", &btrfs, Work::of(Tool::Tar), 1.25));
        for recipe in ["random", "source"] {
            let what = format!("`{recipe}`, XFS");
            goals.push(sweep(&format!("{recipe}-xfs-sweep"), &what, &whole(recipe, "xfs"), device(), 1.4));
        }
        goals
    }

    /// NTFS, which is mounted for GNU tar by ntfs-3g and read by ours from the device. How far Linux reads ahead there decides what GNU
    /// tar gets at once.
    fn against_ntfs_3g(seed: u64) -> Vec<Goal> {
        let image = Subject::new("random", "ntfs", 1.0, seed);
        let random = Setting::new(image, Disk::new(BARRACUDA, Stretch::Whole));
        let older = Setting { disk: random.disk.clone().read_ahead(CHOSEN[0]), ..random.clone() };
        let goal = |case, what: &str, setting| {
            Goal::new(case, what, setting).ours(device()).off(Aim::AtLeast(20.0)).off_only()
        };
        let of_older = format!("`random`, NTFS, read-ahead {} KiB", CHOSEN[0]);
        vec![goal("tables-random-ntfs", "`random`, NTFS", random), goal("tables-random-ntfs-older", &of_older, older)]
    }

    /// What the tables cost besides the disk.
    fn in_memory(seed: u64) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (fs, scale) in [("ext4", 1.0), ("xfs", 1.0), ("ntfs", MAIL_ON_NTFS)] {
            let files = page::count((1e6 * scale) as u64);
            let what = format!("`mail`, {files} files, {}", page::fs_name(fs));
            let row = |case: &str, tool, figure| {
                let goal = Goal::new(&format!("tables-{case}-{fs}"), &what, mail(fs, scale, seed).warm());
                goal.ours(Work::of(tool)).measure(Measure::Own(figure)).off_only()
            };
            let inodes = row("cpu", Tool::Scan, &INODES);
            goals.push(if fs == "ext4" { inodes.off(Aim::AtLeast(2e6)) } else { inodes });
            goals.push(row("cpu-call", Tool::Scan, &SYSTEM_CALL));
            goals.push(row("cpu-copy", Tool::Scan, &COPYING));
            goals.push(row("memory", Tool::Memory, &ENTRY).off(Aim::AtMost(120.0)));
            goals.push(row("memory-peak", Tool::Memory, &PEAK));
        }
        goals
    }
}

pub(super) fn device() -> Work {
    Work::of(Tool::Tar).unmounted()
}

fn mail(fs: &str, scale: f64, seed: u64) -> Setting {
    Setting::new(Subject::new("mail", fs, scale, seed), Disk::new(BARRACUDA, Stretch::Whole))
}

pub(super) fn daft(recipe: &str, fs: &str, scale: f64, model: &str, seed: u64) -> Setting {
    Setting::new(Subject::new(recipe, fs, scale, seed), Disk::new(model, Stretch::InProportion))
}

impl Exhibit for Tables {
    fn title(&self) -> &'static str {
        "File systems read from their own tables"
    }

    fn cases(&self) -> Vec<Case> {
        self.goals.iter().map(Goal::case).collect()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        Ok(format!(
            "Modelled disk time, cold, track buffer off, on the Barracuda \
             model unless another disk is named. `DEVICE` is the emulated disk with nothing mounted; what ours is held \
             against has the file system mounted, NTFS by ntfs-3g. One pass over the metadata is computed from the sectors \
             that `find -size +0` and a map of each file made the disk read, each once, in rising order. On NTFS the extents \
             of a perfect sweep are those that ntfs-3g tells block by block; DAFT's own figures on NTFS have a section of \
             their own. One of three rounds of `plan` on `daft-4k` and the slow disk took 1,252 ms where the others took 512 \
             (fast: 325 for 228 and 236), and one on `mail`, XFS, 237.8 s where the others took 69.6 and 69.9: it read its metadata \
             twice. Other measurements on the machine emptied its page cache at times, which would do that; that it was so in \
             these rounds is not proven, and the median is what counts. `mail` is a tenth on NTFS: ntfs-3g would take the \
             better part of an hour to make all of it. From `DEVICE`, XFS is held to what `--device` is held to where it is mounted, 1.4. Inodes a second are of the processor's time, with the tables in memory; a getppid and copying stand \
             beside, to compare machines by. An entry's bytes are \
             those of the catalogue less names and 16 for each fragment.\n\n{}",
            goal::table(&self.goals, results)
        ))
    }
}
