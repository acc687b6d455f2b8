//! A disk that can't read some of its places, and a link that goes and comes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use super::contents::{self, BLOCK};
use super::rig::{CONTENT, Rig, Shown, disk, open_to_read, plain_image};
use super::series::random_reads;
use super::site::{PORT, Site};
use super::{Figures, scaled};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

const IMAGE: u64 = 64 << 20;
const RANGES: u64 = 100;
const FLAPS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// Ranges that the disk can't read and the server has; then the same, to be mended.
pub(super) fn unreadable(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let image = plain_image(&site, IMAGE)?;
    let rig = Rig::new(&mut site, image, disk())?;
    let ranges = scaled(RANGES, scale);
    let apart = IMAGE / BLOCK as u64 / ranges;
    // From one sector to 64 KiB; some begin in the middle of a block.
    let bad: Vec<Range<u64>> = (0..ranges)
        .map(|range| (range * apart + range % 7) * BLOCK as u64 + range / 8 % 8 * 512)
        .zip((0..8).map(|power| 512 << power).cycle())
        .map(|(from, bytes)| from..from + bytes)
        .collect();
    let faults: Vec<String> =
        bad.iter().map(|bad| format!("unreadable {}+{}", bad.start, bad.end - bad.start)).collect();
    let mut figures = Figures::new();
    for (name, more) in [("served", &[][..]), ("mended", &["--reclaim"])] {
        let shown = Shown::new(&site, "raced", &rig.image, &disk(), faults.clone(), false)?;
        let below = open_to_read(&shown.file)?;
        if let Some(bad) = bad.iter().find(|&bad| blocks(bad).any(|number| is_right(&below, number))) {
            return Err(format!("the disk reads {bad:?}, which it can't"));
        }
        let raced = site.mount(PORT, &rig.index, &shown.file, &[&["--policy", "local-first"], more].concat())?;
        raced.wait_for_server(interrupt)?;
        let path = raced.block();
        let file = open_to_read(&path)?;
        let are_right =
            |file: &File| bad.iter().filter(|&bad| blocks(bad).all(|number| is_right(file, number))).count() as u64;
        let of = if more.is_empty() {
            are_right(&file)
        } else {
            // The server may have been quicker than the disk, which then wasn't seen to fail: so all are read until all are mended.
            let until = Instant::now() + PATIENCE;
            while are_right(&file) == ranges && are_right(&below) < ranges && Instant::now() < until {
                interrupt.check()?;
                thread::sleep(Duration::from_millis(10));
            }
            are_right(&below)
        };
        figures.insert(name.into(), vec![of as f64]);
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

/// The blocks that a range touches.
fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64)
}

fn is_right(file: &File, number: u64) -> bool {
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, number * BLOCK as u64).is_ok() && block == contents::block(CONTENT, number)
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
