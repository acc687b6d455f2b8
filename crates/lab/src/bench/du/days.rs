//! FastDu 3.2: a question for the whole after each day's changes, with everything on the disk and nothing in memory.
//!
//! The server runs all the time, and its store lies elsewhere: what is measured is the disk that is asked about. GNU du runs
//! on the same mount after the same preparation, and both must say the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::outcomes::{Cost, Day, Days};
use super::served::Served;
use crate::age::day;
use crate::age::recipe::Amount;
use crate::bench::images::{Facts, Images};
use crate::bench::pipe;
use crate::bench::run::{Disk, Stretch, Subject};
use crate::bench::work::Programs;
use crate::emulate::{Emulation, MountSpec, Spec};
use crate::interrupt::Interrupt;
use crate::mount;
use crate::random::Random;
use crate::scratch::Scratch;

const MODEL: &str = "barracuda-7200.11";
const DAYS: u32 = 13;
/// One directory in so many gets a file.
const SCATTERED: u64 = 100;
/// Others that read everything: what a quick walk by many threads comes to.
pub(super) const WALKS: [(&str, &[&str]); 4] =
    [("du", &["-s", "-B1"]), ("gdu", &["-n", "-s", "-c"]), ("dua", &["aggregate", "-x"]), ("diskus", &[])];

/// A file system on a disk of virtual time.
struct Stage {
    emulation: Emulation,
    tree: PathBuf,
}

impl Stage {
    fn up(image: &Path, facts: &Facts, subject: &Subject, scratch: &Scratch) -> Result<Self, String> {
        let disk = Disk::new(MODEL, Stretch::Whole);
        let model = disk.emulated()?;
        let spec = Spec {
            image: image.to_owned(),
            dir: scratch.dir("disk")?,
            span: disk.span.span(facts.image_bytes, &model),
            model,
            real: None,
            trace: None,
            faults: Vec::new(),
            read_only: false,
        };
        let tree = scratch.dir("tree")?;
        let options = if subject.fs == "xfs" { "noatime,nouuid" } else { "noatime" };
        let mount = MountSpec {
            target: tree.clone(),
            fs: Some(subject.fs()?.mount_type().to_owned()),
            options: Some(options.to_owned()),
            scheduler: Some(disk.scheduler),
            ..MountSpec::default()
        };
        Ok(Self { emulation: Emulation::start(&spec, Some(&mount))?, tree })
    }

    /// Everything on the disk, nothing in memory, books at zero. A file system that is frozen has no log that waits.
    fn cold(&self) -> Result<(), String> {
        for option in ["-f", "-u"] {
            mount::run("fsfreeze", [option.as_ref(), self.tree.as_os_str()])?;
        }
        fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("drop_caches: {error}"))?;
        self.emulation.reset()
    }

    fn books(&self, wall_s: f64) -> Result<Cost, String> {
        let books: serde_json::Value =
            serde_json::from_str(&self.emulation.stats()?).map_err(|error| error.to_string())?;
        let busy_ms = books["busy_ms"].as_f64().unwrap_or_default();
        Ok(Cost { busy_ms, requests: books["reads"]["requests"].as_u64().unwrap_or_default(), wall_s })
    }

    /// What a program costs the disk, and the first word that it prints.
    fn cost(&self, argv: &[String], interrupt: &Interrupt) -> Result<(Cost, String), String> {
        self.cold()?;
        let ended = pipe::run(argv, interrupt)?;
        let cost = self.books(ended.wall_s)?;
        if ended.code != 0 {
            return Err(format!("{} ended with {}: {}", argv.join(" "), ended.code, ended.complaint));
        }
        let output = String::from_utf8_lossy(&ended.output);
        Ok((cost, output.split_whitespace().next().unwrap_or_default().to_owned()))
    }

    /// Asks the server and du, who must agree.
    fn both(&self, served: &Served, (day, operations): (u32, u64), interrupt: &Interrupt) -> Result<Day, String> {
        let (ours, our_total) = self.cost(&served.question(&self.tree), interrupt)?;
        let (du, total) = self.cost(&walk("du".as_ref(), WALKS[0].1, &self.tree), interrupt)?;
        if our_total != total {
            return Err(format!("onesweep says {our_total}, du {total}"));
        }
        eprintln!("  day {day}: {:.2} s of disk, du {:.2} s", ours.busy_ms / 1000.0, du.busy_ms / 1000.0);
        Ok(Day { day, operations, ours, du })
    }
}

pub(super) fn walk(program: &Path, options: &[&str], tree: &Path) -> Vec<String> {
    let options = options.iter().map(|&option| option.to_owned());
    [program.display().to_string()].into_iter().chain(options).chain([tree.display().to_string()]).collect()
}

/// Measures all days of a server of the paper.
pub(super) fn measure(
    subject: &Subject,
    images: &mut Images,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Days, String> {
    let (image, facts) = images.take(subject, interrupt)?;
    let copy = Images::copy(&image)?;
    let scratch = Scratch::new("du")?;
    let mut stage = Stage::up(&copy.0, &facts, subject, &scratch)?;
    let measured = on(&stage, subject, &facts, &scratch, programs, interrupt);
    let complaints = stage.emulation.stop();
    let _ = fs::remove_dir_all(scratch.file("store"));
    match complaints.is_empty() {
        true => measured,
        false => Err(complaints.join("\n")),
    }
}

fn on(
    stage: &Stage,
    subject: &Subject,
    facts: &Facts,
    scratch: &Scratch,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Days, String> {
    stage.cold()?;
    let served = Served::start(programs, scratch, &stage.tree)?;
    let first = stage.books(served.started_in.as_secs_f64())?;
    eprintln!("  first harvest: {:.2} s of disk", first.busy_ms / 1000.0);
    let mut walks = BTreeMap::new();
    for (name, options) in WALKS {
        if let Some(program) = programs.find(name) {
            walks.insert(name.to_owned(), stage.cost(&walk(&program, options, &stage.tree), interrupt)?.0);
        }
    }
    let amount = Amount { seed: subject.seed, scale: subject.scale, steps: None, image_bytes: facts.image_bytes };
    let mut days = Vec::new();
    for number in 1..=DAYS {
        let done = day::apply(subject.recipe()?, &amount, number, &stage.tree, interrupt)?;
        days.push(stage.both(&served, (number, done.operations), interrupt)?);
    }
    let directories = directories(&stage.tree)?;
    let operations = scatter(&directories, subject.seed)?;
    let scattered = stage.both(&served, (DAYS + 1, operations), interrupt)?;
    served.stop(interrupt)?;
    let (directories, image_sha256) = (directories.len() as u64, facts.image_sha256.clone());
    Ok(Days { image_sha256, files: facts.files, directories, first, walks, days, scattered })
}

fn directories(tree: &Path) -> Result<Vec<PathBuf>, String> {
    let found = mount::run("find", [tree.as_os_str(), "-type".as_ref(), "d".as_ref()])?.stdout;
    let mut paths: Vec<PathBuf> = String::from_utf8_lossy(&found).lines().map(PathBuf::from).collect();
    paths.sort();
    Ok(paths)
}

/// Makes a file in every hundredth directory, of those in random order.
fn scatter(directories: &[PathBuf], seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let mut made = 0;
    for directory in directories {
        if random.below(SCATTERED) == 0 {
            let path = directory.join("scattered");
            fs::write(&path, "x").map_err(|error| format!("{}: {error}", path.display()))?;
            made += 1;
        }
    }
    Ok(made)
}
