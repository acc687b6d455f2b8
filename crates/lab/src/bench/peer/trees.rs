//! A tree on a local device that is quicker than the network: small files, which the daemon reads, and a large one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::calm::{add, opened};
use super::contents::{self, BLOCK};
use super::rig::{Mounted, Shown, ssd};
use super::series::{self, PORTION, Series, random_reads, said};
use super::site::{PORT, Raced, Site};
use super::warm::{self, Reads};
use super::{Figures, rounds, scaled};
use crate::age::image::{Fs, PlainMount};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

const FILES: u64 = 2000;
const FILE_BYTES: u64 = 19_000;
/// What the kernel reads by itself, where it can.
const LARGE: &str = "large";
const LARGE_BYTES: u64 = 64 << 20;
const READS: u64 = 2000;
/// Reads before extra requests are counted.
const LEARNING: u64 = 200;
const ROUNDS: usize = 5;
/// A file that changed just before isn't indexed.
const SETTLED: Duration = Duration::from_secs(4);

fn image(site: &Site, files: u64) -> Result<PathBuf, String> {
    let image = site.scratch.file("image");
    let room = (files * (FILE_BYTES + 8192) + LARGE_BYTES + (64 << 20)).next_multiple_of(1 << 20);
    File::create(&image).and_then(|file| file.set_len(room)).map_err(said(&image))?;
    Fs::Ext4.make(&image, files + 4096, &["-b", "4096"].map(str::to_owned))?;
    let filled = site.scratch.dir("filled")?;
    let mut mounted = PlainMount::writable(&image, &filled, "ext4", "noatime,noinit_itable")?;
    let write = |name: String, seed: u64, bytes: u64| {
        let path = filled.join(name);
        let mut whole = Vec::new();
        contents::write(&mut whole, seed, bytes.next_multiple_of(BLOCK as u64)).map_err(said(&path))?;
        fs::write(&path, &whole[..bytes as usize]).map_err(said(&path))
    };
    for number in 0..files {
        site.interrupt.check()?;
        write(number.to_string(), number, FILE_BYTES)?;
    }
    write(LARGE.into(), FILES, LARGE_BYTES)?;
    mounted.end()?;
    thread::sleep(SETTLED);
    Ok(image)
}

/// Where the same files are: on the device itself, or through the race and on what is below it.
struct Side<'a> {
    name: &'static str,
    at: PathBuf,
    below: Option<PathBuf>,
    interrupt: &'a Interrupt,
}

impl Side<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    fn forget(&self, name: &str) -> Result<(), String> {
        series::forget(&self.path(name))?;
        self.below.as_ref().map_or(Ok(()), |below| series::forget(&below.join(name)))
    }

    /// One block of each small file that isn't in memory, at a place of the seed; opening it doesn't count.
    fn small(&self, files: u64, seed: u64) -> Result<Series, String> {
        let (mut places, mut block, mut series) = (Random::new(seed), [0; BLOCK], Series::default());
        for number in 0..files {
            self.interrupt.check()?;
            let name = number.to_string();
            self.forget(&name)?;
            let path = self.path(&name);
            let file = File::open(&path).map_err(said(&path))?;
            let at = places.below(FILE_BYTES / BLOCK as u64) * BLOCK as u64;
            let began = Instant::now();
            file.read_exact_at(&mut block, at).map_err(said(&path))?;
            series.us.push(began.elapsed().as_secs_f64() * 1e6);
            series.wrong += u64::from(!contents::are_right(number, at, &block));
        }
        series.is_right().map(|()| series)
    }

    fn large(&self, reads: u64, seed: u64) -> Result<Series, String> {
        self.forget(LARGE)?;
        let path = self.path(LARGE);
        let file = File::open(&path).map_err(said(&path))?;
        let series = random_reads(&file, LARGE_BYTES, reads, &mut Random::new(seed), FILES, self.interrupt)?;
        series.is_right().map(|()| series)
    }
}

/// Requests without use, in percent of cold reads after those of learning.
fn extra(raced: &Raced, reads: u64, mut pass: impl FnMut(u64) -> Result<Series, String>) -> Result<f64, String> {
    let mut read = |least: u64, mut seed: u64| {
        let mut done = 0;
        while done < least {
            done += pass(seed)?.us.len() as u64;
            seed += 1;
        }
        Ok::<_, String>(done)
    };
    read(LEARNING, 1000)?;
    let before = raced.counted("requests_extra")?;
    let done = read(reads, 2000)?;
    Ok((raced.counted("requests_extra")? - before) as f64 * 100.0 / done as f64)
}

pub(super) fn quick(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let (files, reads) = (scaled(FILES, scale), scaled(READS, scale));
    let image = image(&site, files)?;
    site.serve()?;
    let index = site.scratch.file("index");
    let shown = |name: &str, real: Option<f64>| {
        let disk = real.map_or_else(ssd, |factor| ssd().real(factor));
        Shown::new(&site, name, &image, &disk, Vec::new(), true)
    };
    // The times that it takes count for nothing here.
    let once = shown("raced", None)?;
    let tree = Mounted::on(&site, "plain", &once, false)?.file("");
    site.index(&index, &tree, &[])?;
    site.push(&tree)?;
    once.end()?;
    site.network.limit(1000)?;

    let (alone, below) = (shown("alone", Some(1.0))?, shown("raced", Some(1.0))?);
    let plain = Mounted::on(&site, "plain", &alone, false)?.file("");
    let source = Mounted::on(&site, "tree", &below, false)?.file("");
    let raced = site.mount_tree(PORT, &index, &source, &["--policy", "race"])?;
    raced.wait_for_server(interrupt)?;
    let sides = [
        Side { name: "alone", at: plain, below: None, interrupt },
        Side { name: "raced", at: raced.file(""), below: Some(source.clone()), interrupt },
    ];
    // What is below the mount, without it, is where what it leaves to the kernel comes from: the same memory.
    let warm = [("alone", sides[0].at.clone()), ("raced", sides[1].at.clone()), ("below", source)];
    let mut figures = Figures::new();
    add(&mut figures, "small_extra_percent", extra(&raced, reads, |seed| sides[1].small(files, seed))?);
    add(&mut figures, "large_extra_percent", extra(&raced, reads, |seed| sides[1].large(reads, seed))?);
    add(&mut figures, "over_budget", raced.over_budget()? as f64);
    for round in 0..rounds(scale, ROUNDS) as u64 {
        for side in &sides {
            let mut keep = |what: &str, value| add(&mut figures, &format!("{what}_{}_us", side.name), value);
            keep("small_cold", side.small(files, round)?.taken().mean);
            keep("small_open", opened(&small_paths(&side.at, files))?);
            keep("large_cold", side.large(reads, round)?.taken().mean);
            keep("large_open", opened(&[side.path(LARGE)])?);
        }
        for (what, times) in warm_reads(&warm, (files, reads), round, interrupt)? {
            for (place, us) in warm.iter().zip(times) {
                add(&mut figures, &format!("{what}_{}_us", place.0), us);
            }
        }
    }
    raced.end()?;
    below.end()?;
    alone.end()?;
    Ok(figures)
}

/// Medians of reads from memory, by place: of blocks of small files, and of the large one by blocks and by what a program that copies
/// asks for.
fn warm_reads(
    places: &[(&str, PathBuf)],
    (files, reads): (u64, u64),
    seed: u64,
    interrupt: &Interrupt,
) -> Result<[(&'static str, Vec<f64>); 3], String> {
    let block = BLOCK as u64;
    let directories: Vec<PathBuf> = places.iter().map(|(_, at)| at.clone()).collect();
    let large: Vec<PathBuf> = directories.iter().map(|at| at.join(LARGE)).collect();
    let small = Reads { portion: block, file_bytes: FILE_BYTES / block * block, count: files };
    let blocks = Reads { portion: block, file_bytes: LARGE_BYTES, count: reads };
    let portions = Reads { portion: PORTION as u64, ..blocks };
    Ok([
        ("small_warm", warm::of_many(&directories, small, seed, interrupt)?),
        ("large_warm", warm::of_one(&large, blocks, FILES, seed, interrupt)?),
        ("large_portions", warm::of_one(&large, portions, FILES, seed, interrupt)?),
    ])
}

fn small_paths(at: &Path, files: u64) -> Vec<PathBuf> {
    (0..files).map(|number| at.join(number.to_string())).collect()
}
