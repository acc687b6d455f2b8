//! FastDu, figure 3: a file written, written again, read, and read again by records of one size, with less memory than it takes.
//!
//! The file lies on an ext4 in an image, past whose own cache its pages come from the disk below: this machine's, or an emulated one
//! that takes its time. In each round a file is made without a server, with one, and without one again: what the two without differ by
//! is what the machine itself does.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::outcomes::{Record, Records};
use super::served::Served;
use super::stage::{self, Stage, drop_caches};
use super::volume::Volume;
use crate::age::image::Fs;
use crate::bench::confined::Confined;
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

/// A file takes seconds each time.
const ROUNDS: usize = 3;
/// From one size of records to the next.
const STEP: u64 = 4;
const FILE_BYTES: f64 = (512_u64 << 20) as f64;
const LEAST_RECORD: u64 = 1 << 10;
const MOST_RECORD: u64 = 8 << 20;
/// The least memory in which a program runs.
const LEAST_MEMORY: u64 = 24 << 20;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Write,
    Rewrite,
    Read,
    Reread,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Write, Self::Rewrite, Self::Read, Self::Reread];

    /// What tables call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Rewrite => "rewrite",
            Self::Read => "read",
            Self::Reread => "re-read",
        }
    }

    /// As it is typed.
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Does it, in the group behind the door; the seconds from opening the file to its closing, after all is on the disk.
pub(crate) fn run(door: &Path, kind: Kind, path: &Path, (bytes, record): (u64, u64)) -> Result<f64, String> {
    fs::write(door, "0").map_err(|error| format!("{}: {error}", door.display()))?;
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let len = usize::try_from(record).map_err(|error| error.to_string())?;
    let mut buffer = vec![7; len];
    let began = Instant::now();
    match kind {
        Kind::Write | Kind::Rewrite => {
            let is_new = kind == Kind::Write;
            let mut file = OpenOptions::new().write(true).create(is_new).truncate(is_new).open(path).map_err(said)?;
            for _ in 0..bytes / record {
                file.write_all(&buffer).map_err(said)?;
            }
            file.sync_all().map_err(said)?;
        }
        Kind::Read | Kind::Reread => {
            let mut file = File::open(path).map_err(said)?;
            for _ in 0..bytes / record {
                file.read_exact(&mut buffer).map_err(said)?;
            }
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// By records of some sizes, on the disk that this machine has.
pub(super) fn measure(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Records, String> {
    let file_bytes = file_bytes(scale);
    let lay = |pass: &mut Pass<'_>| {
        let volume = Volume::direct("ext4", file_bytes * 2)?;
        let speeds = pass(&volume.tree, &volume.scratch);
        volume.end().and(speeds)
    };
    On { file_bytes, programs, interrupt, lay: &lay }.by_size(super::rounds(scale, ROUNDS), step(scale))
}

/// The same on an emulated disk of 7,200 turns a minute that takes its time.
pub(super) fn on_disk(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Records, String> {
    let (scratch, file_bytes, fs) = (Scratch::new("du")?, file_bytes(scale), Fs::Ext4);
    let made = scratch.file("made");
    let sized = File::create(&made).and_then(|file| file.set_len(file_bytes * 2 + (512 << 20)));
    sized.map_err(|error| format!("{}: {error}", made.display()))?;
    fs.make(&made, 4096, &["-b".to_owned(), "4096".to_owned()])?;
    let lay = |pass: &mut Pass<'_>| {
        let mut stage = Stage::on_a_copy(&stage::disk().real(1.0).buffered(true), &made, fs.mount_type())?;
        let speeds = pass(&stage.tree, &stage.scratch);
        stage.end().and(speeds)
    };
    On { file_bytes, programs, interrupt, lay: &lay }.by_size(super::rounds(scale, ROUNDS), step(scale))
}

fn file_bytes(scale: f64) -> u64 {
    ((FILE_BYTES * scale) as u64 / MOST_RECORD).max(1) * MOST_RECORD
}

/// The sizes of records, each so many times the one before; the largest is always there.
fn sizes(step: u64) -> Vec<u64> {
    let sizes = std::iter::successors(Some(LEAST_RECORD), |record| Some(record * step));
    sizes.take_while(|record| *record < MOST_RECORD).chain([MOST_RECORD]).collect()
}

/// How many times the one before each size of records is.
fn step(scale: f64) -> u64 {
    if scale < 0.1 { 16 } else { STEP }
}

/// Megabytes a second of each kind, in a directory; the server's own files lie beside it.
type Pass<'a> = dyn FnMut(&Path, &Scratch) -> Result<[f64; 4], String> + 'a;

/// Where the file is made.
struct On<'a> {
    file_bytes: u64,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
    /// Has a pass done on a file system of its own. ext4 goes on where the last large file ended, so that on one that goes through all
    /// of them each file lies further in on the disk, where it is slower: by a quarter, with a server or without.
    lay: &'a dyn Fn(&mut Pass<'_>) -> Result<[f64; 4], String>,
}

impl On<'_> {
    fn by_size(&self, rounds: usize, step: u64) -> Result<Records, String> {
        let memory_bytes = (self.file_bytes / 2).max(LEAST_MEMORY);
        let confined = Confined::to(memory_bytes)?;
        let mut records = Vec::new();
        for record_bytes in sizes(step) {
            let mut all = Kind::ALL.map(|kind| Record::new(kind, record_bytes));
            for _ in 0..rounds {
                let alone = || (self.lay)(&mut |tree, _| self.speeds(tree, record_bytes, &confined));
                let before = alone()?;
                let tracked = (self.lay)(&mut |tree, scratch| {
                    let served = Served::start(self.programs, scratch, tree)?;
                    let speeds = self.speeds(tree, record_bytes, &confined)?;
                    served.stop(self.interrupt)?;
                    Ok(speeds)
                })?;
                let after = alone()?;
                for (index, record) in all.iter_mut().enumerate() {
                    record.alone.push([before[index], after[index]]);
                    record.tracked.push(tracked[index]);
                }
            }
            eprintln!("  records of {} KiB", record_bytes >> 10);
            records.extend(all);
        }
        Ok(Records { file_bytes: self.file_bytes, memory_bytes, records })
    }

    /// Megabytes a second of each kind, one after the other on one file.
    fn speeds(&self, tree: &Path, record_bytes: u64, confined: &Confined) -> Result<[f64; 4], String> {
        let file = tree.join("file");
        let mut speeds = [0.0; 4];
        for (kind, speed) in Kind::ALL.into_iter().zip(&mut speeds) {
            mount::run("sync", ["-f".as_ref(), tree.as_os_str()])?;
            drop_caches()?;
            let [lab, door, path] =
                [&self.programs.lab, &confined.door(), &file].map(|path| path.display().to_string());
            let [bytes, record] = [self.file_bytes, record_bytes].map(|number| number.to_string());
            let ended = pipe::run(&[lab, "records".into(), door, kind.word(), path, bytes, record], self.interrupt)?;
            let seconds: f64 = match String::from_utf8_lossy(&ended.output).trim().parse() {
                Ok(seconds) if ended.code == 0 => seconds,
                _ => return Err(format!("{}: {}", kind.name(), ended.complaint)),
            };
            *speed = self.file_bytes as f64 / 1e6 / seconds.max(1e-9);
        }
        Ok(speeds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_and_the_largest_records_are_there() {
        assert_eq!(sizes(4).iter().map(|size| size >> 10).collect::<Vec<_>>(), [1, 4, 16, 64, 256, 1024, 4096, 8192]);
        assert_eq!((sizes(STEP).len(), sizes(STEP).last()), (8, Some(&MOST_RECORD)));
        assert_eq!(sizes(16).last(), Some(&MOST_RECORD));
    }
}
