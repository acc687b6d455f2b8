//! FastDu, figure 3: a file written, written again, read, and read again by records of one size, with less memory than it takes.
//!
//! The file lies on an ext4 in an image, past whose own cache its pages come from the disk below. In each round a file is made
//! without a server, with one, and without one again: what the two without differ by is what the machine itself does.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::outcomes::{Record, Records};
use super::served::Served;
use super::stage::drop_caches;
use super::volume::Volume;
use crate::bench::confined::Confined;
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;

const ROUNDS: usize = 5;
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

/// By records of all sizes.
pub(super) fn measure(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Records, String> {
    let file_bytes = ((FILE_BYTES * scale) as u64 / MOST_RECORD).max(1) * MOST_RECORD;
    let memory_bytes = (file_bytes / 2).max(LEAST_MEMORY);
    let confined = Confined::to(memory_bytes)?;
    let volume = Volume::direct("ext4", file_bytes * 2)?;
    let on = On { volume: &volume, confined: &confined, file_bytes, programs, interrupt };
    let (rounds, step) = (super::rounds(scale, ROUNDS), if scale < 0.1 { 16 } else { 2 });
    let sizes = std::iter::successors(Some(LEAST_RECORD), |record| Some(record * step));
    let mut records = Vec::new();
    for record_bytes in sizes.take_while(|record| *record <= MOST_RECORD) {
        let mut all = Kind::ALL.map(|kind| Record::new(kind, record_bytes));
        for _ in 0..rounds {
            let before = on.speeds(record_bytes)?;
            let served = Served::start(programs, &volume.scratch, &volume.tree)?;
            let tracked = on.speeds(record_bytes)?;
            served.stop(interrupt)?;
            let after = on.speeds(record_bytes)?;
            for (index, record) in all.iter_mut().enumerate() {
                record.alone.push([before[index], after[index]]);
                record.tracked.push(tracked[index]);
            }
        }
        eprintln!("  records of {} KiB", record_bytes >> 10);
        records.extend(all);
    }
    volume.end()?;
    Ok(Records { file_bytes, memory_bytes, records })
}

struct On<'a> {
    volume: &'a Volume,
    confined: &'a Confined,
    file_bytes: u64,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
}

impl On<'_> {
    /// Megabytes a second of each kind, one after the other on one file.
    fn speeds(&self, record_bytes: u64) -> Result<[f64; 4], String> {
        let file = self.volume.tree.join("file");
        let mut speeds = [0.0; 4];
        for (kind, speed) in Kind::ALL.into_iter().zip(&mut speeds) {
            mount::run("sync", ["-f".as_ref(), self.volume.tree.as_os_str()])?;
            drop_caches()?;
            let [lab, door, path] =
                [&self.programs.lab, &self.confined.door(), &file].map(|path| path.display().to_string());
            let [bytes, record] = [self.file_bytes, record_bytes].map(|number| number.to_string());
            let ended = pipe::run(&[lab, "records".into(), door, kind.word(), path, bytes, record], self.interrupt)?;
            let seconds: f64 = match String::from_utf8_lossy(&ended.output).trim().parse() {
                Ok(seconds) if ended.code == 0 => seconds,
                _ => return Err(format!("{}: {}", kind.name(), ended.complaint)),
            };
            *speed = self.file_bytes as f64 / 1e6 / seconds.max(1e-9);
        }
        fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(speeds)
    }
}
