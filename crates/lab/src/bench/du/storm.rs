//! More happens than anybody can follow: what a server takes of memory then, and whether it is right afterwards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::outcomes::{Memory, Storm};
use super::peers::{DU, first_word};
use super::served::Served;
use super::slab::{self, Slab};
use super::volume::{Files, Volume};
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const DIRECTORIES: f64 = 1_000_000.0;
/// Events a second: somewhat more than what has to be borne, for they never come quite so fast.
const RATE: f64 = 105_000.0;
const SECONDS: f64 = 60.0;
const WRITERS: usize = 4;
/// One file in so many stays.
const STAYS: usize = 16;
/// Directories are met in an order that has nothing to do with their places.
const STRIDE: usize = 7_919;
/// So many are met one after the other, then all of them again: nobody ignores one that is told of once. At the rate that takes more than
/// a second, and a server takes events ten times in it.
const BLOCK: usize = 20_000;
/// How often each directory is met that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visits {
    /// So that it is ignored by the last time, and told of no more.
    Three,
    /// None is ever ignored, and nothing is merged with what was told before.
    One,
}

impl Visits {
    fn number(self) -> usize {
        match self {
            Self::Three => 3,
            Self::One => 1,
        }
    }
}

const LOOK: Duration = Duration::from_millis(100);
/// The server says within a second when it couldn't be told all.
const SAYS: Duration = Duration::from_millis(2500);
const LOST: &str = "more happened than could be told";

/// A server of many directories, in many of which files are made, linked and removed.
pub(super) fn measure(visits: Visits, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Storm, String> {
    let directories = ((DIRECTORIES * scale) as u64).max(100);
    let volume = Volume::new("ext4", directories + directories / 4)?;
    let paths = volume.fill(directories, Files::Seldom, interrupt)?;
    let books = Path::new(slab::BOOKS);
    let at_rest = Slab::now(books);
    let mut served = Served::start(programs, &volume.scratch, &volume.tree)?;
    let slab_since = || Some(Slab::now(books)?.since(at_rest?));
    let memory = |slab: Option<Slab>, resident_kib| Memory {
        resident_kib,
        marks_bytes: slab.map(|slab| slab.marks),
        events_bytes: slab.map(|slab| slab.events),
    };
    // Until then it holds what the first harvest is about to write.
    served.stored()?;
    let before = memory(slab_since(), served.resident_kib()?);
    served.forget_peak()?;
    let work = Work::over(&paths, visits, Duration::from_secs_f64((SECONDS * scale).max(1.0)));
    let (elapsed, peak_slab) = work.run(&slab_since, interrupt)?;
    let during = memory(peak_slab, served.peak_kib()?);
    let asked = Instant::now();
    let ours = pipe::run(&served.question(&volume.tree), interrupt)?;
    let answered_s = asked.elapsed().as_secs_f64();
    let after = memory(slab_since(), served.resident_kib()?);
    let argv = DU.argv(programs, &volume.tree, Path::new("")).ok_or("no du")?;
    let du = pipe::run(&argv, interrupt)?;
    let (ours, du) = (first_word(&ours.output), first_word(&du.output));
    if ours != du {
        return Err(format!("after the storm onesweep says {ours}, du {du}"));
    }
    thread::sleep(SAYS);
    let at_rest = Some(memory(slab_since(), served.resident_kib()?));
    let overflowed = served.said(LOST);
    served.stop(interrupt)?;
    volume.end()?;
    let events = work.events.into_inner();
    Ok(Storm {
        directories,
        events,
        seconds: elapsed.as_secs_f64(),
        before,
        during,
        after,
        at_rest,
        answered_s,
        overflowed,
        caches: slab::described(books),
        visits: visits.number() as u64,
    })
}

/// What goes on in the storm.
struct Work<'a> {
    paths: &'a [PathBuf],
    visits: Visits,
    length: Duration,
    /// What the kernel has to tell of what was done.
    events: AtomicU64,
    ended: AtomicBool,
}

impl<'a> Work<'a> {
    fn over(paths: &'a [PathBuf], visits: Visits, length: Duration) -> Self {
        Self { paths, visits, length, events: AtomicU64::new(0), ended: AtomicBool::new(false) }
    }

    /// At the rate, or as fast as it goes; how long it took, and the most that the kernel kept at a time.
    fn run(
        &self,
        slab: &(dyn Fn() -> Option<Slab> + Sync),
        interrupt: &Interrupt,
    ) -> Result<(Duration, Option<Slab>), String> {
        let began = Instant::now();
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || self.write(writer, began))).collect();
            let watch = scope.spawn(|| {
                let mut most: Option<Slab> = None;
                // Once at least, however late it comes.
                loop {
                    if let Some(now) = slab() {
                        let so_far = most.get_or_insert_default();
                        so_far.marks = so_far.marks.max(now.marks);
                        so_far.events = so_far.events.max(now.events);
                    }
                    if interrupt.came() {
                        self.ended.store(true, Ordering::Relaxed);
                    }
                    if self.ended.load(Ordering::Relaxed) {
                        break most;
                    }
                    thread::sleep(LOOK);
                }
            });
            let written: Result<Vec<()>, String> =
                writers.into_iter().map(|writer| writer.join().map_err(|_| "a writer failed".to_owned())?).collect();
            let elapsed = began.elapsed();
            self.ended.store(true, Ordering::Relaxed);
            let most = watch.join().map_err(|_| "the watch failed")?;
            interrupt.check()?;
            written.map(|_| (elapsed, most))
        })
    }

    fn write(&self, writer: usize, began: Instant) -> Result<(), String> {
        let mut number = writer;
        loop {
            let Visit { place, is_ignored } = Visit::of(number, self.visits, self.paths.len());
            let directory = &self.paths[place];
            let events = step(directory, writer, number.is_multiple_of(STAYS), is_ignored)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
            let so_far = self.events.fetch_add(events, Ordering::Relaxed) + events;
            let due = Duration::from_secs_f64(so_far as f64 / RATE);
            thread::sleep(due.saturating_sub(began.elapsed()));
            number += WRITERS;
            if began.elapsed() >= self.length || self.ended.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
}

/// Where a step is done.
#[derive(Debug, PartialEq)]
struct Visit {
    place: usize,
    /// The server has heard of it so often by then that it ignores it, but for what is told of inodes alone.
    is_ignored: bool,
}

impl Visit {
    fn of(number: usize, visits: Visits, directories: usize) -> Self {
        let of_block = BLOCK * visits.number();
        let (block, within) = (number / of_block, number % of_block);
        let place = (block * BLOCK + within % BLOCK).wrapping_mul(STRIDE) % directories;
        Self { place, is_ignored: visits == Visits::Three && within / BLOCK + 1 == visits.number() }
    }
}

/// A file is made, linked and unlinked, and stays or goes. How many events the kernel makes of it, before it merges any:
/// a name that comes or goes is one of the directory and one of the inode. In a directory that is ignored those of the inode are left.
fn step(directory: &Path, writer: usize, stays: bool, is_ignored: bool) -> io::Result<u64> {
    let [file, other] = ["s", "t"].map(|name| directory.join(format!("{name}{writer}")));
    fs::write(&file, "storm")?; // made, written, closed
    fs::hard_link(&file, &other)?;
    fs::remove_file(&other)?;
    if !stays {
        fs::remove_file(&file)?;
    }
    Ok(match (is_ignored, stays) {
        (false, true) => 7,
        (false, false) => 9,
        (true, true) => 2,
        (true, false) => 3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_met_again_before_others_are() {
        let directories = 1_000_000;
        let mut met = vec![0; directories];
        for number in 0..3 * BLOCK * 3 {
            let Visit { place, is_ignored } = Visit::of(number, Visits::Three, directories);
            met[place] += 1;
            assert_eq!(is_ignored, met[place] == 3, "{number}");
        }
        assert_eq!(met.iter().filter(|times| **times == 3).count(), 3 * BLOCK);
        assert!(met.iter().all(|times| [0, 3].contains(times)));
        // Each directory of a block is a writer's own, so that they never meet in one.
        assert!(BLOCK.is_multiple_of(WRITERS));
    }

    #[test]
    fn who_comes_once_meets_others_each_time() {
        let visits = (0..100_000).map(|number| Visit::of(number, Visits::One, 1_000_000));
        let met: std::collections::HashSet<usize> =
            visits.inspect(|visit| assert!(!visit.is_ignored)).map(|visit| visit.place).collect();
        assert_eq!(met.len(), 100_000);
    }

    #[test]
    fn a_storm_leaves_some_files_and_counts_what_it_did() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(step(dir.path(), 0, true, false).unwrap(), 7);
        assert_eq!(step(dir.path(), 1, false, false).unwrap(), 9);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(step(dir.path(), 0, false, true).unwrap(), 3);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "what stayed goes");
        assert_eq!(step(dir.path(), 0, true, true).unwrap(), 2);
        let paths = [dir.path().to_owned()];
        let work = Work::over(&paths, Visits::Three, Duration::from_millis(30));
        let slab = || Some(Slab { marks: 3, events: 4 });
        let (elapsed, most) = work.run(&slab, &Interrupt::default()).unwrap();
        assert_eq!(most, Some(Slab { marks: 3, events: 4 }));
        let events = work.events.into_inner();
        assert!(events >= 7 && events as f64 <= RATE * elapsed.as_secs_f64() + 9.0 * WRITERS as f64, "{events}");
    }
}
