//! What is written through the race: what it costs, and kills.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::contents::{self, BLOCK};
use super::rig::{CONTENT, Rig, Shown, disk, open_to_read, open_to_write, plain_image};
use super::series::said;
use super::site::{PORT, Raced, Site};
use super::{Figures, scaled};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount::{self, Loop};
use crate::random::Random;

const IMAGE: u64 = 64 << 20;
const WRITES: u64 = 2000;
const KILLS: u64 = 200;

/// A disk in virtual time that may be written.
pub(super) fn writable(site: &Site, name: &str, rig: &Rig) -> Result<Shown, String> {
    Shown::new(site, name, &rig.image, &disk(), Vec::new(), false)
}

pub(super) fn figure(told: &str, name: &str) -> Result<f64, String> {
    let line = told.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let told: serde_json::Value = serde_json::from_str(line).map_err(|error| format!("{told}: {error}"))?;
    told["details"][name].as_f64().ok_or_else(|| format!("no {name} in {told}"))
}

/// The same random writes with the race and without it, in modelled milliseconds of the disk. The index lies elsewhere.
pub(super) fn random(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let image = plain_image(&site, IMAGE)?;
    let rig = Rig::new(&mut site, image, disk())?;
    let writes = scaled(WRITES, scale);
    let mut figures = Figures::new();
    for (name, is_raced) in [("alone_ms", false), ("raced_ms", true)] {
        let shown = writable(&site, "raced", &rig)?;
        let raced = is_raced.then(|| site.mount(PORT, &rig.index, &shown.file, &[])).transpose()?;
        let path = raced.as_ref().map_or(shown.file.clone(), Raced::block);
        figures.entry(name.into()).or_default().push(written((&shown, &path), IMAGE, writes, 1, interrupt)?);
        raced.map_or(Ok(()), Raced::end)?;
        shown.end()?;
    }
    Ok(figures)
}

/// Modelled milliseconds of the disk for random writes to the first `bytes` of what is shown of it at a path.
pub(super) fn written(
    (shown, path): (&Shown, &Path),
    bytes: u64,
    writes: u64,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<f64, String> {
    let file = open_to_write(path)?;
    shown.reset()?;
    let mut places = Random::new(seed);
    for _ in 0..writes {
        interrupt.check()?;
        let number = places.below(bytes / BLOCK as u64);
        file.write_all_at(&contents::block(2, number), number * BLOCK as u64).map_err(said(path))?;
    }
    file.sync_all().map_err(said(path))?;
    shown.book("busy_ms")
}

/// The same where the index lies on the same disk, in an ext4 behind what is raced.
pub(super) fn random_on_one_disk(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    const STORE: u64 = 64 << 20;
    let mut site = Site::new(256, programs, interrupt)?;
    let image = plain_image(&site, IMAGE)?;
    File::options().write(true).open(&image).and_then(|file| file.set_len(IMAGE + STORE)).map_err(said(&image))?;
    site.serve()?;
    let writes = scaled(WRITES, scale);
    let mut figures = Figures::new();
    let shown = || Shown::new(&site, "raced", &image, &disk(), Vec::new(), false);
    let alone = shown()?;
    figures.insert("alone_ms".into(), vec![written((&alone, &alone.file), IMAGE, writes, 1, interrupt)?]);
    alone.end()?;
    let shown = shown()?;
    // Both go with the disk.
    let part = |more: &[&str]| Loop::attach(&shown.file, &[&["--direct-io=on"], more].concat());
    let raced = part(&["--sizelimit", &IMAGE.to_string()])?;
    let store = part(&["--offset", &IMAGE.to_string()])?;
    mount::run(
        "mkfs.ext4",
        [&["-q", "-F", "-b", "4096"].map(AsRef::as_ref)[..], &[store.device.as_os_str()]].concat(),
    )?;
    let at = site.scratch.dir("plain")?;
    mount::mount(&store.device, &at, Some("ext4"), Some("noatime,noinit_itable"))?;
    let index = at.join("index");
    site.index(&index, &raced.device, &[])?;
    let race = site.mount(PORT, &index, &raced.device, &[])?;
    figures.insert("raced_ms".into(), vec![written((&shown, &race.block()), IMAGE, writes, 1, interrupt)?]);
    race.end()?;
    shown.end()?;
    Ok(figures)
}

/// Which content each block has: what was acknowledged, and what was begun after it.
#[derive(Default)]
struct Written {
    acknowledged: BTreeMap<u64, u64>,
    begun: Option<(u64, u64)>,
}

/// Writes one block after the other, each with a new content, until the mount is gone.
fn write_until_killed(file: &File, mut seed: u64, places: &mut Random, blocks: u64, written: &Mutex<Written>) -> u64 {
    let lock = || written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        seed += 1;
        let number = places.below(blocks);
        lock().begun = Some((number, seed));
        if file.write_all_at(&contents::block(seed, number), number * BLOCK as u64).is_err() {
            return seed;
        }
        let mut written = lock();
        written.acknowledged.insert(number, seed);
        written.begun = None;
    }
}

/// Writes through to the server, and kills in the middle of them.
pub(super) fn through(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(512, programs, interrupt)?;
    let bytes = 8 << 20;
    let image = plain_image(&site, bytes)?;
    let rig = Rig::new(&mut site, image, disk())?;
    let shown = writable(&site, "raced", &rig)?;
    let blocks = bytes / BLOCK as u64;
    let (mut places, mut seed) = (Random::new(3), 1000);
    let mut contents_of: BTreeMap<u64, u64> = (0..blocks).map(|number| (number, CONTENT)).collect();
    let (mut old, mut writes, mut hits) = (0_u64, 0_u64, 0_u64);
    let kills = scaled(KILLS, scale);
    for kill in 0..=kills {
        interrupt.check()?;
        let mut raced = site.mount(PORT, &rig.index, &shown.file, &["--write-through", "--policy", "remote-first"])?;
        let path = raced.block();
        // What was written before the kill, and some of the rest.
        let file = open_to_read(&path)?;
        let mut block = [0; BLOCK];
        // Each block is suspect, until the first read has confirmed it; the second one may be the server's.
        for (&number, &content) in contents_of.iter().chain(&contents_of) {
            if content == CONTENT && number % 16 != kill % 16 {
                continue;
            }
            file.read_exact_at(&mut block, number * BLOCK as u64).map_err(said(&path))?;
            old += u64::from(block != contents::block(content, number));
        }
        hits += raced.counted("reads_remote")?;
        drop(file);
        if kill == kills {
            raced.end()?;
            break;
        }
        let file = open_to_write(&path)?;
        let written = Mutex::new(Written::default());
        seed = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_killed(&file, seed, &mut places, blocks, &written));
            thread::sleep(Duration::from_millis(5 + kill % 23 * 5));
            raced.kill();
            writer.join().map_err(|_| "a thread failed".to_owned())
        })?;
        drop(file);
        let written = written.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        writes += written.acknowledged.len() as u64;
        contents_of.extend(written.acknowledged);
        // What was begun is there or not.
        if let Some((number, content)) = written.begun {
            let disk = open_to_read(&shown.file)?;
            disk.read_exact_at(&mut block, number * BLOCK as u64).map_err(said(&shown.file))?;
            if block == contents::block(content, number) {
                contents_of.insert(number, content);
            }
        }
    }
    let told = site.index(&rig.index, &shown.file, &["--check"])?;
    // What the server lacks is sent now, and counted.
    let pushed = site.push(&shown.file)?;
    let pushed: serde_json::Value = serde_json::from_str(&pushed).map_err(|error| format!("{pushed}: {error}"))?;
    let lacking = pushed["sent_blocks"].as_f64().ok_or_else(|| format!("no blocks sent in {pushed}"))?;
    shown.end()?;
    let mut figures = Figures::new();
    for (name, value) in [
        ("kills", kills as f64),
        ("writes", writes as f64),
        ("old", old as f64),
        ("remote", hits as f64),
        ("stale", figure(&told, "stale")?),
        ("lacking", lacking),
    ] {
        figures.insert(name.into(), vec![value]);
    }
    Ok(figures)
}
