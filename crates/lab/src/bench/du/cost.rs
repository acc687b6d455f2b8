//! What a tracker costs others (FastDu, table 2).
//!
//! Each step runs with the server and without it, in turns, so that both meet the same machine: in memory, where the work of
//! the processor is left, and on an emulated disk in real time, from cold, where a step ends when all of it is on the disk. What the
//! mover of files costs by following what is written is measured apart, as a server that has one beside a server that has none. And so is
//! what it costs where the server knows much, and all that the steps before have made: else it knows little more than the top.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::ValueEnum as _;
use onesweep_sys::usage;

use super::outcomes::{Costs, Step, Times};
use super::served::Served;
use super::stage::{self, Stage};
use super::still::scaled;
use super::volume::{Files, Volume};
use crate::age::apply;
use crate::age::image::Fs;
use crate::age::recipe::{Amount, Recipe};
use crate::age::tree::Tree;
use crate::bench::calibration;
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

const ROUNDS: usize = 10;
/// So many of steps of which ten can't tell a few parts in a hundred, as far as those between them take their time.
const MANY_ROUNDS: usize = 40;
/// Sources that are compiled.
const SOURCES: u64 = 200;
/// The part of the source tree on the disk, where a round takes its time.
pub(super) const ON_DISK: f64 = 0.25;
const DISK_BYTES: u64 = 4 << 30;
/// Directories that the server knows beside the steps, with a file in each.
pub(super) const KNOWN: f64 = 100_000.0;

/// What is done with a source tree. `@` stands for the directory of the file system, `%` for what was made before.
struct Work {
    name: &'static str,
    script: &'static str,
    /// In its place where it isn't measured, for the sake of the steps behind it.
    instead: &'static str,
}

const STEPS: [Work; 6] = [
    Work { name: "untar", script: UNTAR, instead: UNTAR },
    Work { name: AGAIN, script: "tar -xf %/source.tar -C @/new", instead: "true" },
    Work { name: "tar", script: "tar -cf - -C @/new . | cat > /dev/null", instead: "true" },
    Work { name: "cp", script: COPY, instead: COPY },
    Work {
        name: "compile",
        script: "cp -a %/sources @/sources && cd @/sources && for f in *.c; do cc -O1 -c $f || exit 1; done",
        instead: "cp -a %/sources @/sources",
    },
    Work { name: "rm -r", script: REMOVE, instead: REMOVE },
];
/// Over what is there: tar removes each file before it makes it anew.
pub(super) const AGAIN: &str = "untar again";
const UNTAR: &str = "mkdir @/new && tar -xf %/source.tar -C @/new";
const COPY: &str = "cp -a @/new @/copy";
const REMOVE: &str = "rm -r @/new @/copy @/sources";

/// Two ways to have the steps done, one of which costs more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pair {
    /// With a server, and without.
    Tracker,
    /// With a server that follows what is written to move it, and with one that doesn't.
    Follower,
}

/// It looks at no directory while this is measured.
pub(super) const FOLLOWING: [&str; 4] = ["--relocate", "always", "--relocate-after", "1h"];

impl Pair {
    /// What a server is started with, if there is one.
    fn options(self, is_more: bool) -> Option<&'static [&'static str]> {
        match (self, is_more) {
            (Self::Tracker, false) => None,
            (Self::Tracker, true) | (Self::Follower, false) => Some(&[]),
            (Self::Follower, true) => Some(&FOLLOWING),
        }
    }

    fn name(self, is_more: bool) -> &'static str {
        match (self, is_more) {
            (Self::Tracker, false) => "alone",
            (Self::Tracker, true) | (Self::Follower, false) => "tracked",
            (Self::Follower, true) => "followed",
        }
    }
}

/// The server looks every 100 ms for what was done.
const TOLD: Duration = Duration::from_millis(250);

/// The compiler is brought into memory before a step that runs from cold: it lies on another disk.
const COMPILER: &str = "cc -O1 -c %/sources/s0.c -o %/s0.o";

/// A source tree in a tar file, and C files, beside the measured file system.
struct Material {
    dir: PathBuf,
    files: u64,
}

impl Material {
    fn make(dir: PathBuf, scale: f64, seed: u64, interrupt: &Interrupt) -> Result<Self, String> {
        let said = |error: std::io::Error| format!("{}: {error}", dir.display());
        mount::mount(Path::new("onesweep-lab"), &dir, Some("tmpfs"), None)?;
        let (tree, sources) = (dir.join("tree"), dir.join("sources"));
        fs::create_dir(&tree).and_then(|()| fs::create_dir(&sources)).map_err(said)?;
        let recipe = Recipe::from_str("source", false)?;
        let amount = Amount { seed, scale, steps: Some(0), image_bytes: recipe.image().0 };
        let mut made = Tree::default();
        apply::apply(recipe.ops(&amount), &tree, &mut made, interrupt)?;
        let tar = dir.join("source.tar");
        mount::run("tar", ["-cf".as_ref(), tar.as_os_str(), "-C".as_ref(), tree.as_os_str(), ".".as_ref()])?;
        fs::remove_dir_all(&tree).map_err(said)?;
        for number in 0..compiled(scale) {
            let functions = (0..40).map(|function| {
                format!("int f{number}_{function}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i * {function}; return s; }}\n")
            });
            let text = format!("#include <stdio.h>\n#include <stdlib.h>\n{}", functions.collect::<String>());
            fs::write(sources.join(format!("s{number}.c")), text).map_err(said)?;
        }
        Ok(Self { dir, files: made.files() })
    }
}

/// Of a tree of that part of the whole one.
pub(super) fn compiled(scale: f64) -> u64 {
    ((SOURCES as f64 * scale) as u64).max(3)
}

impl Drop for Material {
    fn drop(&mut self) {
        if let Err(complaint) = mount::unmount(&self.dir) {
            eprintln!("onesweep-lab: {complaint}");
        }
    }
}

/// Where the steps are done.
struct Bed<'a> {
    tree: &'a Path,
    scratch: &'a Scratch,
    /// The emulated disk, if it is on one.
    stage: Option<&'a Stage>,
    /// Whether a server is asked for the whole after each step.
    asks: bool,
}

/// What each step took, if it was measured.
type Taken = Vec<Option<Times>>;

/// All steps on one bed.
type Round<'a> = dyn FnMut(&Bed<'_>) -> Result<Taken, String> + 'a;

/// How often everything is measured but what is left out, and how often `often`.
#[derive(Clone, Copy)]
struct Rounds {
    all: usize,
    often: &'static [&'static str],
    many: usize,
    left_out: &'static str,
}

impl Rounds {
    fn new(scale: f64, often: &'static [&'static str]) -> Self {
        Self { all: super::rounds(scale, ROUNDS), often, many: super::rounds(scale, MANY_ROUNDS), left_out: AGAIN }
    }

    fn leaving_out(self, left_out: &'static str) -> Self {
        Self { left_out, ..self }
    }

    fn measures(self, round: usize, step: &str) -> bool {
        step != self.left_out && round <= if self.often.contains(&step) { self.many } else { self.all }
    }
}

impl Bed<'_> {
    fn script(&self, script: &str, material: &Material) -> Vec<String> {
        let script = script.replace('@', &self.tree.display().to_string());
        let script = script.replace('%', &material.dir.display().to_string());
        ["sh".into(), "-c".into(), script].into()
    }

    /// Seconds by the clock.
    fn run(&self, script: &str, material: &Material, interrupt: &Interrupt) -> Result<f64, String> {
        let ended = pipe::run(&self.script(script, material), interrupt)?;
        if ended.code == 0 { Ok(ended.wall_s) } else { Err(ended.complaint) }
    }

    /// From cold, if it is on a disk; then until nothing is left to be written.
    fn step(&self, script: &str, material: &Material, interrupt: &Interrupt) -> Result<f64, String> {
        let run = |script: &str| self.run(script, material, interrupt);
        match self.stage {
            Some(stage) => {
                stage.cold()?;
                run(COMPILER)?;
                run(&format!("({script}) && sync -f @"))
            }
            None => run(script),
        }
    }

    /// All steps, with a server or without, and what those took that `measures` asks for.
    fn round(
        &self,
        served: Option<&Served>,
        measures: &dyn Fn(&str) -> bool,
        (material, interrupt): (&Material, &Interrupt),
    ) -> Result<Taken, String> {
        let cpu = || {
            let served_s = served.map_or(Ok(0.0), Served::processor_s)?;
            Ok::<_, String>((usage::of_children().as_secs_f64(), served_s))
        };
        let one = |work: &Work| {
            let said = |complaint| format!("{}: {complaint}", work.name);
            if !measures(work.name) {
                return self.run(work.instead, material, interrupt).map_err(said).map(|_| None);
            }
            let before = cpu()?;
            let wall_s = self.step(work.script, material, interrupt).map_err(said)?;
            thread::sleep(TOLD);
            let after = cpu()?;
            let served_s = after.1 - before.1;
            Ok(Some(Times { wall_s, cpu_s: after.0 - before.0 + served_s, served_s }))
        };
        let one_and_ask = |work: &Work| {
            let taken = one(work)?;
            served.filter(|_| self.asks).map_or(Ok(()), |served| self.ask(served, interrupt))?;
            Ok(taken)
        };
        STEPS.iter().map(one_and_ask).collect()
    }

    /// For the whole. It is no part of what a step takes.
    fn ask(&self, served: &Served, interrupt: &Interrupt) -> Result<(), String> {
        let ended = pipe::run(&served.question(self.tree), interrupt)?;
        if ended.code == 0 { Ok(()) } else { Err(ended.complaint) }
    }
}

/// Each round is done on a bed that `lay` makes.
fn rounds(
    pair: Pair,
    measured: Rounds,
    (material, programs, interrupt): (&Material, &Programs, &Interrupt),
    lay: &mut dyn FnMut(&mut Round<'_>) -> Result<Taken, String>,
) -> Result<Costs, String> {
    let mut steps: Vec<Step> =
        STEPS.iter().map(|work| Step { name: work.name.to_owned(), ..Step::default() }).collect();
    for round in 0..=measured.many {
        let measures = |step: &str| measured.measures(round, step);
        for is_more in [round % 2 == 0, round % 2 != 0] {
            let times = lay(&mut |bed| {
                let start = |options| Served::start_with(programs, bed.scratch, bed.tree, options);
                let served = pair.options(is_more).map(start).transpose()?;
                let times = bed.round(served.as_ref(), &measures, (material, interrupt))?;
                served.map_or(Ok(()), |served| served.stop(interrupt))?;
                Ok(times)
            })?;
            let all_s: f64 = times.iter().flatten().map(|times| times.wall_s).sum();
            eprintln!("  round {round}, {}: {all_s:.1} s", pair.name(is_more));
            // The first round, which finds nothing in memory, doesn't count.
            for (step, times) in steps.iter_mut().zip(times).filter(|_| round > 0) {
                if is_more { &mut step.tracked } else { &mut step.alone }.extend(times);
            }
        }
    }
    steps.retain(|step| !step.tracked.is_empty());
    Ok(Costs { files: material.files, steps, getppid_us: Some(calibration::getppid_ns() / 1e3) })
}

/// On a file system in memory: what is left is the work of the processor.
pub(super) fn in_memory(scale: f64, seed: u64, programs: &Programs, interrupt: &Interrupt) -> Result<Costs, String> {
    pairs_in_memory(Pair::Tracker, scale, seed, programs, interrupt)
}

/// The same, of following what is written to move it.
pub(super) fn of_following(scale: f64, seed: u64, programs: &Programs, interrupt: &Interrupt) -> Result<Costs, String> {
    pairs_in_memory(Pair::Follower, scale, seed, programs, interrupt)
}

fn pairs_in_memory(
    pair: Pair,
    scale: f64,
    seed: u64,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Costs, String> {
    let scratch = Scratch::new("du")?;
    let material = Material::make(scratch.dir("material")?, scale, seed, interrupt)?;
    let volume = Volume::in_memory("ext4", (100_000.0 * scale) as u64 + 5000)?;
    let bed = Bed { tree: &volume.tree, scratch: &volume.scratch, stage: None, asks: false };
    let costs =
        rounds(pair, Rounds::new(scale, &["untar", "tar", "cp"]), (&material, programs, interrupt), &mut |round| {
            round(&bed)
        })?;
    volume.end()?;
    Ok(costs)
}

/// The same beside many directories that the server knows, and where it knows all that was made when the next step begins: its places,
/// and no directory is ignored. A compile has its own time, of which ten rounds tell nothing of a file.
pub(super) fn where_all_is_known(
    scale: f64,
    seed: u64,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Costs, String> {
    let scratch = Scratch::new("du")?;
    let material = Material::make(scratch.dir("material")?, scale, seed, interrupt)?;
    let (known, files) = (scaled(KNOWN, scale), Files::Each(1));
    let volume = Volume::holding_in_memory("ext4", known + (100_000.0 * scale) as u64 + 5000, files)?;
    volume.fill(known, files, interrupt)?;
    let bed = Bed { tree: &volume.tree, scratch: &volume.scratch, stage: None, asks: true };
    let measured = Rounds::new(scale, &["untar", AGAIN, "tar", "cp"]).leaving_out("compile");
    let costs = rounds(Pair::Tracker, measured, (&material, programs, interrupt), &mut |round| round(&bed))?;
    volume.end()?;
    Ok(costs)
}

/// On an emulated disk of 7,200 turns a minute that takes its time. Each round begins on a copy of one file system, so that all find
/// the same free space and the same place for a new directory: on one that goes through all rounds they differ by a third.
pub(super) fn on_disk(scale: f64, seed: u64, programs: &Programs, interrupt: &Interrupt) -> Result<Costs, String> {
    let scratch = Scratch::new("du")?;
    let material = Material::make(scratch.dir("material")?, ON_DISK * scale, seed, interrupt)?;
    let (made, fs) = (scratch.file("made"), Fs::Ext4);
    let said = |error: std::io::Error| format!("{}: {error}", made.display());
    File::create(&made).and_then(|file| file.set_len(DISK_BYTES)).map_err(said)?;
    fs.make(&made, 200_000, &["-b".to_owned(), "4096".to_owned()])?;
    rounds(
        Pair::Tracker,
        Rounds::new(scale, &["untar", "compile", "rm -r"]),
        (&material, programs, interrupt),
        &mut |round| {
            let mut stage = Stage::on_a_copy(&stage::disk().real(1.0).buffered(true), &made, fs.mount_type())?;
            let times = round(&Bed { tree: &stage.tree, scratch: &stage.scratch, stage: Some(&stage), asks: false });
            stage.end().and(times)
        },
    )
}
