//! A write of a block that is in memory, into a directory that has changed already and is not harvested meanwhile.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use super::outcomes::Overwrite;
use super::served::Served;
use super::volume::{Files, Volume};
use crate::bench::calibration;
use crate::bench::statistics;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const ROUNDS: usize = 10;
const BATCHES: usize = 40;
/// Writes in one.
const WRITES: usize = 5000;
const BLOCK_BYTES: usize = 4096;
/// So many that one that has changed is no reason to harvest.
const DIRECTORIES: u64 = 1000;
/// The tracker looks every 100 ms; then the directory is ignored.
const NOTICED: Duration = Duration::from_millis(300);

/// Options of a server; `None` is without any.
const MODES: [Option<&[&str]>; 3] = [None, Some(&[]), Some(&["--sizes-follow", "close"])];

/// With a server, with one where sizes follow at close, and without, in turns.
pub(super) fn measure(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Overwrite, String> {
    let volume = Volume::in_memory("ext4", DIRECTORIES + 5000)?;
    volume.fill(DIRECTORIES, Files::Seldom, interrupt)?;
    let said = |error: std::io::Error| error.to_string();
    let path = volume.tree.join("dirty/file");
    fs::create_dir(volume.tree.join("dirty")).map_err(said)?;
    fs::write(&path, vec![1; 1 << 20]).map_err(said)?;
    let file = OpenOptions::new().write(true).open(&path).map_err(said)?;
    let mut overwrite = Overwrite::default();
    for round in 0..super::rounds(scale, ROUNDS) {
        for mode in (0..MODES.len()).map(|turn| (round + turn) % MODES.len()) {
            let start = |options| Served::start_with(programs, &volume.scratch, &volume.tree, options);
            let served = MODES[mode].map(start).transpose()?;
            fs::write(volume.tree.join("dirty/other"), "x").map_err(said)?;
            write(&file, WRITES).map_err(said)?;
            std::thread::sleep(NOTICED);
            let batches = (0..BATCHES).map(|_| write(&file, WRITES)).collect::<Result<Vec<_>, _>>().map_err(said)?;
            let micros = batches.iter().map(|batch| batch.as_secs_f64() * 1e6 / WRITES as f64).collect();
            let us = statistics::spread(micros).map_or(0.0, |spread| spread.median);
            let Overwrite { alone_us, tracked_us, at_close_us, .. } = &mut overwrite;
            [alone_us, tracked_us, at_close_us][mode].push(us);
            served.map_or(Ok(()), |served| served.stop(interrupt))?;
        }
        overwrite.getppid_us.push(calibration::getppid_ns() / 1e3);
    }
    drop(file);
    volume.end()?;
    Ok(overwrite)
}

fn write(file: &File, times: usize) -> std::io::Result<Duration> {
    let block = [7; BLOCK_BYTES];
    let began = Instant::now();
    for number in 0..times {
        file.write_all_at(&block, (number % 256 * BLOCK_BYTES) as u64)?;
    }
    Ok(began.elapsed())
}
