//! Reads of what is in memory, of the same files in several places: by turns, one read each, so that whatever else the machine does
//! and however its memory lies disturbs all alike.
//!
//! Files are open before: what an opening costs is told apart, and a daemon that has just answered takes a while to come to rest.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::contents;
use super::series::{PORTION, said, taken};
use crate::interrupt::Interrupt;
use crate::random::Random;

/// Files that are open at once in each place.
const OPEN: usize = 200;
/// After files were opened.
const REST: Duration = Duration::from_millis(100);

/// What is read: so many bytes at once, of files of so many.
#[derive(Clone, Copy)]
pub(super) struct Reads {
    pub(super) portion: u64,
    pub(super) file_bytes: u64,
    pub(super) count: u64,
}

/// All of it is in memory afterwards.
fn bring_in(path: &Path, file: &File, bytes: u64, interrupt: &Interrupt) -> Result<(), String> {
    let mut portion = vec![0; PORTION];
    for at in (0..bytes).step_by(PORTION) {
        interrupt.check()?;
        file.read_at(&mut portion, at).map_err(said(path))?;
    }
    Ok(())
}

/// What one read of each place took, the times by place.
struct Turns<'a> {
    us: Vec<Vec<f64>>,
    block: Vec<u8>,
    random: Random,
    interrupt: &'a Interrupt,
}

impl<'a> Turns<'a> {
    fn new(places: usize, portion: u64, seed: u64, interrupt: &'a Interrupt) -> Self {
        Self { us: vec![Vec::new(); places], block: vec![0; portion as usize], random: Random::new(seed), interrupt }
    }

    /// Reads each of these files once, each elsewhere, in any order; `is_twice`: what was just read, so that all of it is in the
    /// processor's own memory.
    fn take(&mut self, files: &[(&Path, &File)], reads: Reads, content: u64, is_twice: bool) -> Result<(), String> {
        self.interrupt.check()?;
        let mut places: Vec<usize> = (0..files.len()).collect();
        while !places.is_empty() {
            let place = places.swap_remove(self.random.below(places.len() as u64) as usize);
            let (path, file) = files[place];
            let at = self.random.below(reads.file_bytes / reads.portion) * reads.portion;
            if is_twice {
                file.read_exact_at(&mut self.block, at).map_err(said(path))?;
            }
            let began = Instant::now();
            file.read_exact_at(&mut self.block, at).map_err(said(path))?;
            self.us[place].push(began.elapsed().as_secs_f64() * 1e6);
            if !contents::are_right(content, at, &self.block) {
                return Err(format!("{}: wrong bytes at {at}", path.display()));
            }
        }
        Ok(())
    }

    fn medians(self) -> Vec<f64> {
        self.us.iter().map(|us| taken(us).median).collect()
    }
}

/// Reads at random places of a file that is in several places; the median of each.
pub(super) fn of_one(
    paths: &[PathBuf],
    reads: Reads,
    content: u64,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Vec<f64>, String> {
    let files = paths.iter().map(|path| File::open(path).map_err(said(path))).collect::<Result<Vec<_>, _>>()?;
    for (path, file) in paths.iter().zip(&files) {
        bring_in(path, file, reads.file_bytes, interrupt)?;
    }
    thread::sleep(REST);
    let mut turns = Turns::new(files.len(), reads.portion, seed, interrupt);
    let pairs: Vec<(&Path, &File)> = paths.iter().map(PathBuf::as_path).zip(&files).collect();
    for _ in 0..reads.count {
        turns.take(&pairs, reads, content, false)?;
    }
    Ok(turns.medians())
}

/// One read of each of the files `0..count` of several directories, which hold that number as their content; the median of each.
pub(super) fn of_many(
    directories: &[PathBuf],
    reads: Reads,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Vec<f64>, String> {
    let mut turns = Turns::new(directories.len(), reads.portion, seed, interrupt);
    let numbers: Vec<u64> = (0..reads.count).collect();
    for numbers in numbers.chunks(OPEN) {
        let mut opened = Vec::new();
        for number in numbers {
            for directory in directories {
                let path = directory.join(number.to_string());
                let file = File::open(&path).map_err(said(&path))?;
                // Opening may have dropped it.
                bring_in(&path, &file, reads.file_bytes, interrupt)?;
                opened.push((path, file));
            }
        }
        thread::sleep(REST);
        for (number, files) in numbers.iter().zip(opened.chunks(directories.len())) {
            let files: Vec<(&Path, &File)> = files.iter().map(|(path, file)| (path.as_path(), file)).collect();
            turns.take(&files, reads, *number, true)?;
        }
    }
    Ok(turns.medians())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_place_is_read_and_wrong_bytes_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let directories = ["a", "b"].map(|name| dir.path().join(name));
        for directory in &directories {
            fs::create_dir(directory).unwrap();
            for number in 0..3 {
                let mut bytes = Vec::new();
                contents::write(&mut bytes, number, 16 << 10).unwrap();
                fs::write(directory.join(number.to_string()), bytes).unwrap();
            }
        }
        let interrupt = Interrupt::default();
        let reads = Reads { portion: 4096, file_bytes: 16 << 10, count: 3 };
        assert_eq!(of_many(&directories, reads, 1, &interrupt).unwrap().len(), 2);
        let files = directories.clone().map(|directory| directory.join("2"));
        let times = of_one(&files, Reads { count: 50, ..reads }, 2, 1, &interrupt).unwrap();
        assert!(times.len() == 2 && times.iter().all(|us| *us > 0.0), "{times:?}");
        assert!(of_one(&files, Reads { count: 50, ..reads }, 1, 1, &interrupt).is_err());
        fs::write(directories[1].join("1"), vec![7; 16 << 10]).unwrap();
        let failure = of_many(&directories, reads, 1, &interrupt).unwrap_err();
        assert!(failure.contains("b/1: wrong bytes"), "{failure}");
    }
}
