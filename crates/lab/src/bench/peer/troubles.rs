//! A disk that can't read some of its places, and a link that goes and comes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::contents::{self, BLOCK};
use super::rig::{CONTENT, Rig, Shown, disk, open_to_read, plain_image};
use super::series::{Series, random_reads};
use super::site::{PORT, Raced, Site};
use super::{Figures, scaled};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

const IMAGE: u64 = 64 << 20;
const RANGES: u64 = 100;
const FLAPS: u64 = 100;
/// Seconds that the link stays down at some of these times, spread evenly among them: so long that requests are given up, that a
/// connection is taken for lost, and that one who tries again waits long between two times.
const LONG_S: [f64; 4] = [5.0, 11.0, 20.0, 30.0];
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
    let is_over = AtomicBool::new(false);
    let (flapped, load) = thread::scope(|scope| {
        let load = scope.spawn(|| read_until(&file, &is_over, interrupt));
        let flapped = flap(&site, &raced, scale, interrupt);
        is_over.store(true, Ordering::Release);
        (flapped, load.join())
    });
    drop(file);
    let load = load.map_err(|_| "who reads has failed".to_owned())??;
    let (first_s, first_of_long_s) = flapped?;
    raced.end()?;
    below.end()?;
    let figures = [
        ("flaps", vec![first_s.len() as f64]),
        ("first_s", first_s),
        ("long", vec![first_of_long_s.len() as f64]),
        ("first_of_long_s", first_of_long_s),
        ("reads", vec![load.us.len() as f64]),
        ("errors", vec![(load.wrong + load.failed) as f64]),
    ];
    Ok(figures.map(|(name, values)| (name.to_owned(), values)).into())
}

/// Reads at random places, one after the other, whatever the link does.
fn read_until(file: &File, is_over: &AtomicBool, interrupt: &Interrupt) -> Result<Series, String> {
    let (mut all, mut places) = (Series::default(), Random::new(1));
    while !is_over.load(Ordering::Acquire) {
        all.add(random_reads(file, IMAGE, 1, &mut places, CONTENT, interrupt)?);
    }
    Ok(all)
}

/// How long the link stays down at this of so many times, where that is long.
fn long(flap: u64, flaps: u64) -> Option<Duration> {
    let apart = (flaps / LONG_S.len() as u64).max(1);
    // In the middle of each part.
    let which = (flap % apart == apart / 2).then_some(flap / apart)?;
    LONG_S.get(usize::try_from(which).ok()?).map(|&seconds| Duration::from_secs_f64(seconds))
}

/// Takes the link down, for a moment or long, so often; the seconds that the first answer of the server took each time after it came
/// back, of all times and of the long ones.
fn flap(site: &Site, raced: &Raced, scale: f64, interrupt: &Interrupt) -> Result<(Vec<f64>, Vec<f64>), String> {
    let flaps = scaled(FLAPS, scale);
    let mut moments = Random::new(2);
    let (mut first_s, mut first_of_long_s) = (Vec::new(), Vec::new());
    for flap in 0..flaps {
        let mut moment = || Duration::from_millis(20 + moments.below(300));
        thread::sleep(moment());
        let (moment, long) = (moment(), long(flap, flaps));
        site.network.set_up(false)?;
        rest(long.map_or(moment, |long| long.mul_f64(scale)), interrupt)?;
        let before = raced.counted("reads_remote")?;
        site.network.set_up(true)?;
        let began = Instant::now();
        while raced.counted("reads_remote")? == before {
            interrupt.check()?;
            if began.elapsed() > PATIENCE {
                return Err("the server isn't asked any more".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        first_s.push(began.elapsed().as_secs_f64());
        if let Some(long) = long {
            first_of_long_s.push(began.elapsed().as_secs_f64());
            eprintln!("  down for {:.1} s: {:.3} s", long.mul_f64(scale).as_secs_f64(), began.elapsed().as_secs_f64());
        }
    }
    Ok((first_s, first_of_long_s))
}

/// Sleeps, and looks up now and then.
fn rest(time: Duration, interrupt: &Interrupt) -> Result<(), String> {
    let until = Instant::now() + time;
    loop {
        interrupt.check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_down_for_long_some_times_however_often_it_is_down() {
        for flaps in [100, 20, 7, 4] {
            let longs: Vec<f64> =
                (0..flaps).filter_map(|flap| long(flap, flaps)).map(|long| long.as_secs_f64()).collect();
            assert_eq!(longs, LONG_S, "{flaps}");
        }
        assert_eq!([12, 13, 37, 87, 99].map(|flap| long(flap, 100).is_some()), [true, false, true, true, false]);
    }
}
