//! What a tracker costs others (FastDu, table 2, and a write into a directory that has changed).
//!
//! Each step runs with the server and without it, in turns, so that both meet the same machine.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onesweep_sys::usage;

use super::outcomes::{Costs, Overwrite, Step, Times};
use super::served::Served;
use super::volume::Volume;
use crate::age::apply;
use crate::age::recipe::{Amount, Recipe};
use crate::age::tree::Tree;
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

const ROUNDS: usize = 10;
/// Sources that are compiled.
const SOURCES: u64 = 200;
const OVERWRITES: usize = 200_000;
const BLOCK_BYTES: usize = 4096;

/// What is done with a source tree. `@` stands for the directory of the file system, `%` for what was made before.
const STEPS: [(&str, &str); 5] = [
    ("untar", "mkdir @/new && tar -xf %/source.tar -C @/new"),
    ("tar", "tar -cf - -C @/new . | cat > /dev/null"),
    ("cp", "cp -a @/new @/copy"),
    ("compile", "cp -a %/sources @/sources && cd @/sources && for f in *.c; do cc -O1 -c $f || exit 1; done"),
    ("rm -r", "rm -r @/new @/copy @/sources"),
];

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
        let recipe = <Recipe as clap::ValueEnum>::from_str("source", false)?;
        let amount = Amount { seed, scale, steps: Some(0), image_bytes: recipe.image().0 };
        let mut made = Tree::default();
        apply::apply(recipe.ops(&amount), &tree, &mut made, interrupt)?;
        let tar = dir.join("source.tar");
        mount::run("tar", ["-cf".as_ref(), tar.as_os_str(), "-C".as_ref(), tree.as_os_str(), ".".as_ref()])?;
        fs::remove_dir_all(&tree).map_err(said)?;
        for number in 0..((SOURCES as f64 * scale) as u64).max(3) {
            let functions = (0..40).map(|function| {
                format!("int f{number}_{function}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i * {function}; return s; }}\n")
            });
            let text = format!("#include <stdio.h>\n#include <stdlib.h>\n{}", functions.collect::<String>());
            fs::write(sources.join(format!("s{number}.c")), text).map_err(said)?;
        }
        Ok(Self { dir, files: made.files() })
    }
}

impl Drop for Material {
    fn drop(&mut self) {
        if let Err(complaint) = mount::unmount(&self.dir) {
            eprintln!("onesweep-lab: {complaint}");
        }
    }
}

/// Steps on a file system in memory: what is left is the work of the processor.
pub(super) fn steps(scale: f64, seed: u64, programs: &Programs, interrupt: &Interrupt) -> Result<Costs, String> {
    let scratch = Scratch::new("du")?;
    let material = Material::make(scratch.dir("material")?, scale, seed, interrupt)?;
    let volume = Volume::in_memory("ext4", (100_000.0 * scale) as u64 + 5000)?;
    let mut steps: Vec<Step> =
        STEPS.iter().map(|(name, _)| Step { name: (*name).to_owned(), ..Step::default() }).collect();
    // The first round, which finds nothing in memory, doesn't count.
    for round in 0..=ROUNDS {
        for tracked in [round % 2 == 0, round % 2 != 0] {
            let served = match tracked {
                true => Some(Served::start(programs, &volume.scratch, &volume.tree)?),
                false => None,
            };
            for (step, (name, script)) in steps.iter_mut().zip(STEPS) {
                let script = script.replace('@', &volume.tree.display().to_string());
                let script = script.replace('%', &material.dir.display().to_string());
                let cpu = || {
                    let served_s = served.as_ref().map_or(Ok(0.0), Served::processor_s)?;
                    Ok::<f64, String>(usage::of_children().as_secs_f64() + served_s)
                };
                let before = cpu()?;
                let ended = pipe::run(&["sh".into(), "-c".into(), script], interrupt)?;
                if ended.code != 0 {
                    return Err(format!("{name}: {}", ended.complaint));
                }
                let cpu_s = cpu()? - before;
                let times = if tracked { &mut step.tracked } else { &mut step.alone };
                if round > 0 {
                    times.push(Times { wall_s: ended.wall_s, cpu_s });
                }
            }
            served.map_or(Ok(()), |served| served.stop(interrupt))?;
        }
    }
    let files = material.files;
    volume.end()?;
    Ok(Costs { files, steps })
}

/// A write of a block that is in memory, into a directory that has changed already.
pub(super) fn overwrite(programs: &Programs, interrupt: &Interrupt) -> Result<Overwrite, String> {
    let volume = Volume::in_memory("ext4", 5000)?;
    let said = |error: std::io::Error| error.to_string();
    let path = volume.tree.join("dirty/file");
    fs::create_dir(volume.tree.join("dirty")).map_err(said)?;
    fs::write(&path, vec![1; 1 << 20]).map_err(said)?;
    let file = OpenOptions::new().write(true).open(&path).map_err(said)?;
    let (mut alone_us, mut tracked_us) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for tracked in [round % 2 == 0, round % 2 != 0] {
            let served = tracked.then(|| Served::start(programs, &volume.scratch, &volume.tree)).transpose()?;
            fs::write(volume.tree.join("dirty/other"), "x").map_err(said)?;
            write(&file, OVERWRITES / 10).map_err(said)?;
            // The tracker looks every 100 ms; then the directory is ignored.
            std::thread::sleep(Duration::from_millis(300));
            let us = write(&file, OVERWRITES).map_err(said)?.as_secs_f64() * 1e6 / OVERWRITES as f64;
            if tracked { &mut tracked_us } else { &mut alone_us }.push(us);
            served.map_or(Ok(()), |served| served.stop(interrupt))?;
        }
    }
    drop(file);
    volume.end()?;
    Ok(Overwrite { alone_us, tracked_us })
}

fn write(file: &File, times: usize) -> std::io::Result<Duration> {
    let block = [7; BLOCK_BYTES];
    let began = Instant::now();
    for number in 0..times {
        file.write_all_at(&block, (number % 256 * BLOCK_BYTES) as u64)?;
    }
    Ok(began.elapsed())
}
