//! What a harvest costs a reader that nobody asked for: of more directories than the server lets be dirty, on an emulated disk in real
//! time.
//!
//! A round with such a harvest and one without it have the same server do the same up to the reader, so that both find the same on
//! the disk and nothing in memory; in the one without the server ends before. While the disk is made cold the server stands still:
//! writing what has changed takes longer than it waits with a harvest.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;

use super::days;
use super::outcomes::{Background, Harvest};
use super::served::Served;
use super::stage::{self, Stage};
use super::still::scaled;
use super::volume::{Files, Volume};
use crate::age::apply;
use crate::age::image::Fs;
use crate::age::recipe::{Amount, Recipe};
use crate::age::tree::Tree;
use crate::bench::pipe;
use crate::bench::run::Disk;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

const ROUNDS: usize = 5;
const DIRECTORIES: f64 = 100_000.0;
/// One directory in so many changes.
const PART: u64 = 10;
/// With fewer than 4,096 a server waits half an hour.
const LEAST_DIRTY: u64 = 4200;
const FILES: Files = Files::Each(1);
/// The part of a source tree that is read.
const READ: f64 = 0.25;
/// The server's own default.
const BUDGET: u64 = 1000;
/// One that heeds what the harvest asks for, as many systems have on a disk that turns.
const SCHEDULER: &str = "mq-deadline";
/// Portions are told of.
const TELLING: [&str; 2] = ["--log", "debug"];
const PORTION: &str = " directories harvested in the background";
const ALL: &str = "all that had changed was harvested in the background, ";
const LOOK: Duration = Duration::from_millis(5);
/// Much longer than it takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// A reader beside a harvest, and alone, in turns.
pub(super) fn measure(scale: f64, seed: u64, programs: &Programs, interrupt: &Interrupt) -> Result<Background, String> {
    let directories = scaled(DIRECTORIES, scale).max(LEAST_DIRTY);
    let mut volume = Volume::holding("ext4", directories + 5000, FILES)?;
    let changing = changing(&volume, volume.fill(directories, FILES, interrupt)?, seed);
    let files = to_be_read(&volume.tree, (scale, seed), interrupt)?;
    // Small ones are there to try.
    if scale >= 1.0 {
        days::settle(&volume.tree, interrupt)?;
    }
    let image = volume.unmounted()?;
    let disk = stage::disk().real(1.0).buffered(true).scheduler(SCHEDULER);
    let on = On { image, disk, changing: &changing, programs, interrupt };
    let mut measured = Background {
        directories,
        dirty: changing.len() as u64,
        files,
        budget: BUDGET,
        scheduler: SCHEDULER.into(),
        ..Background::default()
    };
    for round in 0..super::rounds(scale, ROUNDS) {
        for is_beside in [round % 2 == 0, round % 2 != 0] {
            let (wall_s, harvest) = on.round(is_beside)?;
            match harvest {
                Some(harvest) => {
                    let Harvest { directories, seconds } = harvest;
                    eprintln!("  round {round}: {wall_s:.1} s beside {directories} directories in {seconds:.1} s");
                    measured.beside_s.push(wall_s);
                    measured.harvests.push(harvest);
                }
                None => {
                    eprintln!("  round {round}: {wall_s:.1} s alone");
                    measured.alone_s.push(wall_s);
                }
            }
        }
    }
    Ok(measured)
}

/// Those that will change, in order, from the top.
fn changing(volume: &Volume, mut paths: Vec<PathBuf>, seed: u64) -> Vec<PathBuf> {
    let mut random = Random::new(seed);
    let number = (paths.len() as u64 / PART).max(LEAST_DIRTY).min(paths.len() as u64);
    let mut one = || paths.swap_remove(random.below(paths.len() as u64) as usize);
    let mut all: Vec<PathBuf> = (0..number).map(|_| one()).collect();
    all.sort();
    all.iter().filter_map(|path| path.strip_prefix(&volume.tree).ok()).map(Path::to_owned).collect()
}

/// Makes a source tree beside them; how many files it has.
fn to_be_read(tree: &Path, (scale, seed): (f64, u64), interrupt: &Interrupt) -> Result<u64, String> {
    let read = tree.join("read");
    fs::create_dir(&read).map_err(|error| format!("{}: {error}", read.display()))?;
    let recipe = Recipe::from_str("source", false)?;
    let amount = Amount { seed, scale: READ * scale, steps: Some(0), image_bytes: recipe.image().0 };
    let mut made = Tree::default();
    apply::apply(recipe.ops(&amount), &read, &mut made, interrupt)?;
    Ok(made.files())
}

/// What all rounds have.
struct On<'a> {
    image: &'a Path,
    disk: Disk,
    changing: &'a [PathBuf],
    programs: &'a Programs,
    interrupt: &'a Interrupt,
}

impl On<'_> {
    /// Seconds of the reader, and the harvest beside it.
    fn round(&self, is_beside: bool) -> Result<(f64, Option<Harvest>), String> {
        let mut stage = Stage::on_a_copy(&self.disk, self.image, Fs::Ext4.mount_type())?;
        let served = Served::start_with(self.programs, &stage.scratch, &stage.tree, &TELLING)?;
        let measured = self.read(&stage, served, is_beside);
        stage.end().and(measured)
    }

    fn read(&self, stage: &Stage, served: Served, is_beside: bool) -> Result<(f64, Option<Harvest>), String> {
        let held = served.held()?;
        self.change(&stage.tree)?;
        if !is_beside {
            drop(held);
            served.stop(self.interrupt)?;
            stage.cold()?;
            return self.reader(&stage.tree).map(|wall_s| (wall_s, None));
        }
        stage.cold()?;
        drop(held);
        let has_failed = AtomicBool::new(false);
        let first = self.told(&served, first_portion, &has_failed)?;
        let began = Instant::now();
        let (wall_s, harvest) = thread::scope(|scope| {
            let harvest = scope.spawn(|| self.told(&served, all, &has_failed).map(|all| (all, began.elapsed())));
            let wall_s = self.reader(&stage.tree);
            has_failed.store(wall_s.is_err(), Ordering::Relaxed);
            Ok::<_, String>((wall_s?, harvest.join().map_err(|_| "a thread failed")??))
        })?;
        served.stop(self.interrupt)?;
        let (all, took) = harvest;
        Ok((wall_s, Some(Harvest { directories: all.saturating_sub(first), seconds: took.as_secs_f64() })))
    }

    /// Seconds until all of the source tree is read.
    fn reader(&self, tree: &Path) -> Result<f64, String> {
        let script = format!("tar -cf - -C '{}' read | cat > /dev/null", tree.display());
        let ended = pipe::run(&["sh".into(), "-c".into(), script], self.interrupt)?;
        if ended.code == 0 { Ok(ended.wall_s) } else { Err(ended.complaint) }
    }

    /// Makes a file in each of these.
    fn change(&self, tree: &Path) -> Result<(), String> {
        for path in self.changing {
            self.interrupt.check()?;
            let path = tree.join(path).join("changed");
            fs::write(&path, "x").map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// The number that the server tells, when it does; or that what is beside it has failed.
    fn told(&self, served: &Served, number: Number, has_failed: &AtomicBool) -> Result<u64, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(number) = number(&served.told()) {
                return Ok(number);
            }
            self.interrupt.check()?;
            if has_failed.load(Ordering::Relaxed) || Instant::now() > until {
                return Err("the server doesn't tell of a harvest in the background".into());
            }
            thread::sleep(LOOK);
        }
    }
}

/// A number that a log tells.
type Number = fn(&str) -> Option<u64>;

/// Directories of the first portion.
fn first_portion(log: &str) -> Option<u64> {
    log.lines().find_map(|line| line.strip_suffix(PORTION)?.rsplit(' ').next()?.parse().ok().filter(|read| *read > 0))
}

/// Directories of all portions, when the last is read.
fn all(log: &str) -> Option<u64> {
    log.lines().find_map(|line| line.split_once(ALL)?.1.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_where_a_harvest_begins_and_ends() {
        let begun = "time INFO  /a: b: 9 of 9 directories harvested in 0.1 s\n\
            time DEBUG /a: b: 0 directories harvested in the background\n\
            time DEBUG /a: b: 100 directories harvested in the background\n\
            time DEBUG /a: b: 90 directories harvested in the background\n";
        assert_eq!((first_portion(begun), all(begun)), (Some(100), None));
        let ended =
            format!("{begun}time INFO  /a: b: all that had changed was harvested in the background, 230 directories\n");
        assert_eq!((first_portion(&ended), all(&ended)), (Some(100), Some(230)));
        assert_eq!(first_portion("nothing"), None);
    }
}
