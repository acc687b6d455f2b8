//! A disk that can't read some of its places, and a link that goes and comes.

use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use super::contents::{self, BLOCK};
use super::rig::{CONTENT, Rig, Shown, disk, open_to_read, plain_image};
use super::series::{random_reads, said};
use super::site::{PORT, Raced, Site};
use super::{Figures, scaled};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

const IMAGE: u64 = 64 << 20;
const RANGES: u64 = 100;
const FLAPS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks that the disk can't read and the server has; then the same, to be mended.
pub(super) fn unreadable(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let image = plain_image(&site, IMAGE)?;
    let rig = Rig::new(&mut site, image, disk())?;
    let ranges = scaled(RANGES, scale);
    let apart = IMAGE / BLOCK as u64 / ranges;
    let numbers: Vec<u64> = (0..ranges).map(|range| range * apart + range % apart.min(7)).collect();
    // Some in the middle of a block, and some of more than one sector.
    let fault = |number: &u64| format!("unreadable {}+{}", number * BLOCK as u64 + number % 8 * 512, 512);
    let faults: Vec<String> = numbers.iter().map(fault).collect();
    let mut figures = Figures::new();
    for (name, more) in [("served", &[][..]), ("mended", &["--reclaim"])] {
        let shown = Shown::new(&site, "raced", &rig.image, &disk(), faults.clone(), false)?;
        let below = open_to_read(&shown.file)?;
        let mut block = [0; BLOCK];
        let unreadable = numbers.iter().filter(|&&number| below.read_exact_at(&mut block, number * 4096).is_err());
        if unreadable.count() as u64 != ranges {
            return Err("the disk reads what it can't".into());
        }
        let raced = site.mount(PORT, &rig.index, &shown.file, &[&["--policy", "local-first"], more].concat())?;
        raced.wait_for_server(interrupt)?;
        let path = raced.block();
        let file = open_to_read(&path)?;
        let mut served = 0;
        for &number in &numbers {
            let read = file.read_exact_at(&mut block, number * BLOCK as u64);
            served += u64::from(read.is_ok() && block == contents::block(CONTENT, number));
        }
        if more.is_empty() {
            figures.insert(name.into(), vec![served as f64]);
        } else {
            mend(&raced, &numbers, interrupt)?;
            let is_right = |number: &&u64| {
                let read = below.read_exact_at(&mut block, **number * BLOCK as u64);
                read.is_ok() && block == contents::block(CONTENT, **number)
            };
            figures.insert(name.into(), vec![numbers.iter().filter(is_right).count() as f64]);
        }
        figures.insert("ranges".into(), vec![ranges as f64]);
        drop((file, below));
        raced.end()?;
        if !more.is_empty() {
            let told = site.index(&rig.index, &shown.file, &["--check"])?;
            for name in ["stale", "new"] {
                figures.insert(name.into(), vec![super::writes::figure(&told, name)?]);
            }
        }
        shown.end()?;
    }
    Ok(figures)
}

/// The server may have been quicker than the disk, which then wasn't seen to fail: so they are read until all are mended.
fn mend(raced: &Raced, numbers: &[u64], interrupt: &Interrupt) -> Result<(), String> {
    let path = raced.block();
    let (file, mut block, until) = (open_to_read(&path)?, [0; BLOCK], Instant::now() + PATIENCE);
    while raced.counted("reclaimed")? < numbers.len() as u64 && Instant::now() < until {
        interrupt.check()?;
        for number in numbers {
            file.read_exact_at(&mut block, number * BLOCK as u64).map_err(said(&path))?;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The link goes and comes under load.
pub(super) fn links(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let image = plain_image(&site, IMAGE)?;
    let rig = Rig::new(&mut site, image, disk().real(1.0))?;
    site.network.limit(1000)?;
    let below = rig.shown(&site, "raced")?;
    let raced = rig.raced(&site, &below, "race", &[])?;
    let file = open_to_read(&raced.block())?;
    let mut places = Random::new(1);
    let (mut first_s, mut errors) = (Vec::new(), 0);
    for _ in 0..scaled(FLAPS, scale) {
        let mut read = |reads| random_reads(&file, IMAGE, reads, &mut places, CONTENT, interrupt);
        for is_up in [true, false] {
            site.network.set_up(is_up)?;
            let series = read(10)?;
            errors += series.wrong + series.failed;
        }
        let before = raced.counted("reads_remote")?;
        site.network.set_up(true)?;
        let began = Instant::now();
        while raced.counted("reads_remote")? == before {
            let series = read(1)?;
            errors += series.wrong + series.failed;
            if began.elapsed() > PATIENCE {
                return Err("the server isn't asked any more".into());
            }
        }
        first_s.push(began.elapsed().as_secs_f64());
    }
    drop(file);
    raced.end()?;
    below.end()?;
    Ok([("first_s".into(), first_s), ("errors".into(), vec![errors as f64])].into())
}
