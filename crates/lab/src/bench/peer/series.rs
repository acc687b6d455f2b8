//! Reads, one at a time, by the clock.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use onesweep_sys::cache;

use super::contents::{self, BLOCK};
use super::outcomes::Taken;
use crate::interrupt::Interrupt;
use crate::random::Random;

/// What a program that copies asks for at once.
pub(super) const PORTION: usize = 128 << 10;

/// What reads took, and which went wrong.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) us: Vec<f64>,
    pub(super) wrong: u64,
    pub(super) failed: u64,
}

impl Series {
    pub(super) fn taken(&self) -> Taken {
        taken(&self.us)
    }

    /// What came after it.
    pub(super) fn add(&mut self, more: Self) {
        self.us.extend(more.us);
        self.wrong += more.wrong;
        self.failed += more.failed;
    }

    /// Nothing else than the right bytes has come.
    pub(super) fn is_right(&self) -> Result<(), String> {
        match (self.wrong, self.failed) {
            (0, 0) => Ok(()),
            (wrong, failed) => Err(format!("{wrong} reads gave wrong bytes, {failed} failed")),
        }
    }
}

pub(super) fn taken(us: &[f64]) -> Taken {
    if us.is_empty() {
        return Taken::default();
    }
    let count = us.len() as f64;
    let mean = us.iter().sum::<f64>() / count;
    let deviation = (us.iter().map(|us| (us - mean).powi(2)).sum::<f64>() / count).sqrt();
    let mut sorted = us.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| sorted[((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1];
    Taken { mean, deviation, median: at(0.5), p99: at(0.99), most: at(1.0) }
}

pub(super) fn said(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Reads of one block each at random places of the first `bytes` of a file; the same places for the same numbers.
pub(super) fn random_reads(
    file: &File,
    bytes: u64,
    reads: u64,
    places: &mut Random,
    content: u64,
    interrupt: &Interrupt,
) -> Result<Series, String> {
    let mut series = Series::default();
    let mut block = vec![0; BLOCK];
    for _ in 0..reads {
        interrupt.check()?;
        let at = places.below(bytes / BLOCK as u64) * BLOCK as u64;
        let began = Instant::now();
        let read = file.read_exact_at(&mut block, at);
        series.us.push(began.elapsed().as_secs_f64() * 1e6);
        match read {
            Err(_) => series.failed += 1,
            Ok(()) => series.wrong += u64::from(!contents::are_right(content, at, &block)),
        }
    }
    Ok(series)
}

/// Reads that are done on one side before it is the other's turn: few, so that what changes on the machine meanwhile meets both, and
/// enough that each runs as it does by itself.
const TURN: u64 = 20;

/// The same random reads of copies of a file in several places, some of each by turns, in an order that changes: what each copy took.
pub(super) fn by_turns(
    paths: &[PathBuf],
    (bytes, content): (u64, u64),
    reads: u64,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Vec<Series>, String> {
    let open = |path: &PathBuf| File::open(path).map_err(said(path));
    let files = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut all: Vec<Series> = files.iter().map(|_| Series::default()).collect();
    // The same places for each.
    let mut places = vec![Random::new(seed); files.len()];
    for turn in 0..reads.div_ceil(TURN) {
        let count = TURN.min(reads - turn * TURN);
        for step in 0..files.len() {
            let which = (step + turn as usize) % files.len();
            all[which].add(random_reads(&files[which], bytes, count, &mut places[which], content, interrupt)?);
        }
    }
    all.iter().try_for_each(Series::is_right).map(|()| all)
}

/// Nothing of it is in memory any more.
pub(super) fn forget(path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(said(path))?;
    let bytes = file.metadata().map_err(said(path))?.len();
    cache::drop_cached(file.as_fd(), 0, bytes).map_err(said(path))
}

/// Milliseconds that a whole file takes, opening it included.
///
/// Its bytes are held against what was written afterwards, from memory: the kernel reads ahead while they are.
pub(super) fn copy(path: &Path, content: u64, interrupt: &Interrupt) -> Result<f64, String> {
    let mut portion = vec![0; PORTION];
    let began = Instant::now();
    let mut file = File::open(path).map_err(said(path))?;
    while file.read(&mut portion).map_err(said(path))? > 0 {
        interrupt.check()?;
    }
    let ms = began.elapsed().as_secs_f64() * 1e3;
    let mut at = 0;
    loop {
        let count = file.read_at(&mut portion, at).map_err(said(path))?;
        interrupt.check()?;
        if count == 0 {
            return Ok(ms);
        }
        if !contents::are_right(content, at, &portion[..count]) {
            return Err(format!("{}: wrong bytes from {at} on", path.display()));
        }
        at += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_took_is_summed_up() {
        let us: Vec<f64> = (1..=100).map(f64::from).collect();
        let taken = taken(&us);
        assert_eq!((taken.mean, taken.median, taken.p99, taken.most), (50.5, 50.0, 99.0, 100.0));
        assert!((taken.deviation - 28.87).abs() < 0.01, "{taken:?}");
    }

    #[test]
    fn wrong_bytes_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = File::create(&path).unwrap();
        contents::write(&mut file, 5, 64 << 10).unwrap();
        let (file, interrupt) = (File::open(&path).unwrap(), Interrupt::default());
        let read = |content| random_reads(&file, 64 << 10, 20, &mut Random::new(1), content, &interrupt).unwrap();
        assert!(read(5).is_right().is_ok());
        assert_eq!((read(6).wrong, read(6).us.len()), (20, 20));
        let short = random_reads(&file, 128 << 10, 50, &mut Random::new(1), 5, &interrupt).unwrap();
        assert!(short.failed > 0 && short.is_right().is_err());
        assert!(copy(&path, 5, &interrupt).is_ok() && copy(&path, 6, &interrupt).is_err());
    }
    #[test]
    fn copies_are_read_at_the_same_places_by_turns_and_wrong_bytes_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for path in &paths {
            contents::write(&mut File::create(path).unwrap(), 5, 64 << 10).unwrap();
        }
        let interrupt = Interrupt::default();
        let read = |bytes| by_turns(&paths, (bytes, 5), 50, 1, &interrupt);
        let counts: Vec<usize> = read(64 << 10).unwrap().iter().map(|series| series.us.len()).collect();
        assert_eq!(counts, [50, 50]);
        // One of them only.
        contents::write(&mut File::create(&paths[1]).unwrap(), 6, 64 << 10).unwrap();
        assert_eq!(read(64 << 10).unwrap_err(), "50 reads gave wrong bytes, 0 failed");
    }
}
