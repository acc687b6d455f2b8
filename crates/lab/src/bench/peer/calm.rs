//! What the race costs where it can't gain, and what else can be had of a server.

use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::contents::BLOCK;
use super::figures::{Known, image, on_both};
use super::gets;
use super::network::Host;
use super::rig::{CONTENT, Rig, Shown, disk, open_to_read, plain_image, ssd, turns};
use super::series::{self, by_turns, random_reads, said};
use super::site::Site;
use super::{Figures, rounds, scaled};
use crate::bench::run::Disk;
use crate::bench::work::Programs;
use crate::emulate::Spec;
use crate::interrupt::Interrupt;
use crate::random::Random;

const IMAGE: u64 = 64 << 20;
const ROUNDS: usize = 5;
/// Reads before extra requests are counted.
const LEARNING: u64 = 200;
/// Which is raced, and what figures call it.
const SIDES: [(bool, &str); 2] = [(false, "alone"), (true, "raced")];

pub(super) fn add(figures: &mut Figures, name: &str, value: f64) {
    figures.entry(name.to_owned()).or_default().push(value);
}

/// Requests without use, in percent of the reads of one series after the first 200.
fn extra(raced: &super::site::Raced, read: impl Fn(u64, u64) -> Result<(), String>, count: u64) -> Result<f64, String> {
    read(LEARNING, 1)?;
    let before = raced.counted("requests_extra")?;
    read(count, 2)?;
    Ok((raced.counted("requests_extra")? - before) as f64 * 100.0 / count as f64)
}

/// A local device that is quicker than the network: cold and warm reads of a file, and opens.
pub(super) fn quick_device(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let (reads, rounds) = (scaled(2000, scale), rounds(scale, ROUNDS));
    let mut figures = Figures::new();
    let known = Known::of(IMAGE);
    on_both(&mut site, &[known], 1000, ssd().real(1.0), |_, both| {
        let raced = |reads: u64, seed: u64| {
            let path = both.file(known, true);
            let file = File::open(&path).map_err(said(&path))?;
            random_reads(&file, IMAGE, reads, &mut Random::new(seed), IMAGE, interrupt)?.is_right()
        };
        for (is_raced, name) in SIDES {
            add(&mut figures, &format!("turns_{name}"), turns(&both.file(known, is_raced))?.into());
        }
        let forget = |is_raced| series::forget(&both.file(known, is_raced));
        forget(true)?;
        let share = extra(&both.raced, raced, reads)?;
        add(&mut figures, "extra_percent", share);
        add(&mut figures, "over_budget", both.raced.over_budget()? as f64);
        for round in 0..rounds as u64 {
            SIDES.iter().try_for_each(|(is_raced, _)| forget(*is_raced))?;
            let paths = SIDES.map(|(is_raced, _)| both.file(known, is_raced));
            let read = || by_turns(&paths, (IMAGE, IMAGE), reads, round, interrupt);
            let cold = read()?;
            // Of these places all are in memory now.
            let warm = read()?;
            for ((path, (_, name)), (cold, warm)) in paths.iter().zip(SIDES).zip(cold.iter().zip(&warm)) {
                add(&mut figures, &format!("cold_{name}_us"), cold.taken().mean);
                add(&mut figures, &format!("warm_{name}_us"), warm.taken().median);
                add(&mut figures, &format!("open_{name}_us"), opened(std::slice::from_ref(path))?);
            }
        }
        Ok(())
    })?;
    Ok(figures)
}

/// Microseconds that it takes to open one of these files, with its inode in memory.
pub(super) fn opened(paths: &[PathBuf]) -> Result<f64, String> {
    const OPENS: u32 = 200;
    let mut paths = paths.iter().cycle().take(OPENS as usize);
    let began = Instant::now();
    paths.try_for_each(|path| File::open(path).map(drop).map_err(said(path)))?;
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(OPENS))
}

/// Requests of no use: where the server has nothing of it, and where its link is slower than the disk.
pub(super) fn no_help(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut figures = Figures::new();
    let cases = [("empty_percent", disk().real(0.2), 1000, true), ("slow_link_percent", ssd().real(1.0), 10, false)];
    for (name, disk, mbit, is_empty) in cases {
        let mut site = Site::new(256, programs, interrupt)?;
        let image = plain_image(&site, IMAGE)?;
        let rig = Rig::new(&mut site, image, disk)?;
        if is_empty {
            site.kill_server();
            site.serve()?;
        }
        site.network.limit(mbit)?;
        let below = rig.shown(&site, "raced")?;
        for policy in ["race", "local-first"] {
            let raced = rig.raced(&site, &below, policy, &[])?;
            let file = open_to_read(&raced.block())?;
            let read =
                |reads, seed| random_reads(&file, IMAGE, reads, &mut Random::new(seed), CONTENT, interrupt)?.is_right();
            let share = extra(&raced, read, scaled(2000, scale))?;
            add(&mut figures, name, share);
            add(&mut figures, "over_budget", raced.over_budget()? as f64);
            drop(file);
            raced.end()?;
        }
        below.end()?;
    }
    Ok(figures)
}

/// Blocks of 4 KiB from the server's memory over the loopback, by the client library, a processor each.
pub(super) fn library(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    const ADDRESS: &str = "127.0.0.1:7500";
    let site = Site::new(512, programs, interrupt)?;
    let image = plain_image(&site, IMAGE)?;
    let (program, key) = (programs.onesweep.display().to_string(), site.key());
    let serve = ["taskset", "--cpu-list", "0", &program, "peer", "serve", "--disk", "0", "--memory", "512M"];
    let words: Vec<String> =
        serve.iter().chain(&["--listen", ADDRESS, "--key", &key]).map(|&word| word.to_owned()).collect();
    let _server = site.process(Host::Client, &words, "listening at ")?;
    site.run(Host::Client, &["peer", "push", "--server", ADDRESS, "--key", &key, &image.display().to_string()])?;
    let mut figures = Figures::new();
    let reads = scaled(300_000, scale);
    let blocks = IMAGE / BLOCK as u64;
    for _ in 0..rounds(scale, ROUNDS) {
        let order = gets::Order::new(&site, ADDRESS.into(), CONTENT, blocks).plain(reads, 256);
        let got = order.run_under(&site, &["taskset", "--cpu-list", "1"])?;
        add(&mut figures, "per_second", reads as f64 / got.seconds);
    }
    Ok(figures)
}

/// Reads of what the server has, while the disk is in standby.
pub(super) fn quiet(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let known = Known::of(16 << 20);
    let image = image(&site.scratch, &[known])?;
    let real = disk().real(1.0);
    let rig = Rig::new(&mut site, image, real.clone())?;
    let below = with_standby(&site, &rig, &real)?;
    let at = site.scratch.dir("tree")?;
    let words = at.display().to_string();
    let more = ["--mount", &words, "--type", "ext4", "--options", "noatime"];
    let raced = rig.raced(&site, &below, "quiet-disk", &more)?;
    let late = raced.counted("requests_extra")?;
    below.reset()?;
    let path = at.join(known.name());
    let (mut places, mut reads) = (Random::new(1), 0);
    let until = Instant::now() + Duration::from_secs_f64(600.0 * scale);
    while Instant::now() < until {
        series::forget(&path)?;
        let file = File::open(&path).map_err(said(&path))?;
        let series = random_reads(&file, known.bytes, 10, &mut places, known.content(), interrupt)?;
        series.is_right()?;
        reads += series.us.len();
        thread::sleep(Duration::from_millis(500));
    }
    let figures = [
        ("seconds".to_owned(), vec![600.0 * scale]),
        ("reads".to_owned(), vec![reads as f64]),
        // Reads that the server did not answer in time.
        ("late".to_owned(), vec![(raced.counted("requests_extra")? - late) as f64]),
        ("requests".to_owned(), vec![below.book("reads.requests")? + below.book("writes.requests")?]),
        ("spin_ups".to_owned(), vec![below.book("spin_ups")?]),
    ];
    raced.end()?;
    below.end()?;
    Ok(figures.into())
}

/// The spindle stops after two seconds.
fn with_standby(site: &Site, rig: &Rig, disk: &Disk) -> Result<Shown, String> {
    let mut model = disk.emulated()?;
    model.standby_after_s = 2.0;
    let bytes = fs::metadata(&rig.image).map_err(said(&rig.image))?.len();
    let span = disk.span.span(bytes, &model);
    let (image, dir, real) = (rig.image.clone(), PathBuf::new(), disk.real);
    Shown::of(site, "raced", Spec { image, dir, model, span, real, trace: None, faults: Vec::new(), read_only: true })
}
