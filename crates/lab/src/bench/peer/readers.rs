//! Several readers at once, each at random places, one read of 4 KiB after the other: a drive that has a queue chooses among theirs.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::Figures;
use super::calm::add;
use super::contents::BLOCK;
use super::rig::{CONTENT, Rig, disk, open_to_read, plain_image};
use super::rounds;
use super::series::{Series, random_reads};
use super::site::Site;
use crate::bench::page::{NOT_MEASURED, Table, spread};
use crate::bench::statistics;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

/// So large that the track buffer holds little of it.
const IMAGE: u64 = 256 << 20;
const LEAST: u64 = 16 << 20;
const ROUNDS: usize = 3;
/// How long they read.
const SECONDS: f64 = 3.0;
const LEAST_SECONDS: f64 = 0.2;

/// By what link and policy how many read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) mbit: u64,
    pub(super) policy: &'static str,
    pub(super) readers: u64,
}

const LINKS: [u64; 2] = [10, 1000];
const POLICIES: [&str; 2] = ["race", "local-first"];
const READERS: [u64; 2] = [8, 32];
/// Whose reads a second, the disk's alone or through the race, and what figures call it.
pub(super) const SIDES: [&str; 2] = ["alone", "raced"];

impl Way {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        LINKS.into_iter().flat_map(|mbit| {
            POLICIES.into_iter().flat_map(move |policy| READERS.map(|readers| Self { mbit, policy, readers }))
        })
    }

    /// What the figure of a side is called.
    pub(super) fn named(self, side: &str) -> String {
        format!("{}_{}_{}_{side}", self.mbit, self.policy, self.readers)
    }
}

/// Reads a second of the disk alone and through the race, by turns.
pub(super) fn several(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(640, programs, interrupt)?;
    let bytes = ((IMAGE as f64 * scale) as u64).max(LEAST) / BLOCK as u64 * BLOCK as u64;
    let seconds = (SECONDS * scale).max(LEAST_SECONDS);
    let image = plain_image(&site, bytes)?;
    let rig = Rig::new(&mut site, image, disk().real(1.0))?;
    let (alone, below) = (rig.shown(&site, "alone")?, rig.shown(&site, "raced")?);
    let mut figures = Figures::new();
    for mbit in LINKS {
        site.network.limit(mbit)?;
        for policy in POLICIES {
            let raced = rig.raced(&site, &below, policy, &[])?;
            let paths = [alone.file.clone(), raced.block()];
            // It learns what disk and link take.
            at_once(&paths[1], (bytes, READERS[0], seconds), 1000, interrupt)?;
            for round in 0..rounds(scale, ROUNDS) as u64 {
                for readers in READERS {
                    for (side, path) in SIDES.iter().zip(&paths) {
                        let rate = at_once(path, (bytes, readers, seconds), round, interrupt)?;
                        add(&mut figures, &Way { mbit, policy, readers }.named(side), rate);
                    }
                }
            }
            raced.end()?;
        }
    }
    below.end()?;
    alone.end()?;
    Ok(figures)
}

/// Reads a second of so many readers. Each round has places of its own, the same on either side.
fn at_once(
    path: &Path,
    (bytes, readers, seconds): (u64, u64, f64),
    round: u64,
    interrupt: &Interrupt,
) -> Result<f64, String> {
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds);
    let read = |reader: u64| -> Result<Series, String> {
        let (file, mut places) = (open_to_read(path)?, Random::new(round << 8 | reader));
        let mut all = Series::default();
        while Instant::now() < until {
            all.add(random_reads(&file, bytes, 1, &mut places, CONTENT, interrupt)?);
        }
        Ok(all)
    };
    let all = thread::scope(|scope| {
        let reading: Vec<_> = (0..readers).map(|reader| scope.spawn(move || read(reader))).collect();
        let mut all = Series::default();
        for reading in reading {
            all.add(reading.join().map_err(|_| "who reads has failed".to_owned())??);
        }
        Ok::<_, String>(all)
    })?;
    // The last of them have ended a while after that.
    let took = began.elapsed().as_secs_f64();
    all.is_right().map(|()| all.us.len() as f64 / took)
}

/// Reads a second, by link, policy and readers.
pub(super) fn table(figures: &Figures) -> Table {
    let mut table = Table::new(&["link", "policy", "readers", "disk alone", "raced"]);
    for way in Way::all() {
        let of = |side: &str| {
            let rates = figures.get(&way.named(side)).cloned().unwrap_or_default();
            statistics::spread(rates).map_or(NOT_MEASURED.into(), spread)
        };
        let [alone, raced] = SIDES.map(of);
        let link = super::page::link(way.mbit);
        table.row(vec![link, format!("`{}`", way.policy), way.readers.to_string(), alone, raced]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::contents;
    use super::*;

    #[test]
    fn each_way_has_figures_of_its_own() {
        let names: std::collections::BTreeSet<String> =
            Way::all().flat_map(|way| SIDES.map(|side| way.named(side))).collect();
        assert_eq!(names.len(), 16);
        let figures =
            Figures::from([("10_race_8_alone".to_owned(), vec![150.0]), ("10_race_8_raced".into(), vec![75.0])]);
        let text = table(&figures).to_string();
        assert!(text.contains("| 10 Mbit/s | `race` | 8 | 150 | 75.0 |"), "{text}");
        assert!(text.contains("| 1 Gbit/s | `local-first` | 32 | not measured | not measured |"), "{text}");
    }

    #[test]
    fn all_readers_read_and_wrong_bytes_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        contents::write(&mut File::create(&path).unwrap(), CONTENT, 64 << 10).unwrap();
        let rate = |path: &Path| at_once(path, (64 << 10, 4, 0.02), 1, &Interrupt::default());
        assert!(rate(&path).unwrap() > 0.0);
        contents::write(&mut File::create(&path).unwrap(), CONTENT + 1, 64 << 10).unwrap();
        assert!(rate(&path).unwrap_err().contains("wrong bytes"));
    }
}
