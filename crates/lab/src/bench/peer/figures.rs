//! The paper's figures 3 and 4: files of many sizes, read from start to end, and at random.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::contents;
use super::gets;
use super::network::Host;
use super::outcomes::{Copied, OfSize, Random as Measured, Sequential};
use super::rig::{Mounted, Rig, Shown, disk, open_to_read, set_turns};
use super::scaled;
use super::series::{self, said};
use super::site::{PORT, Raced, Site};
use crate::age::image::{Fs, PlainMount};
use crate::bench::run::Disk;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;
use crate::scratch::Scratch;

/// Of figure 4.
const SIZES: [u64; 6] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30];
const SERIES: u64 = 3;
const READS: u64 = 1000;
/// Of figure 3, in powers of two. The paper begins at 64 KiB, where the disk is ahead of a server that it asks by 10 Mbit/s.
const LEAST: u64 = 4 << 10;
const MOST: u64 = 1 << 30;
const ROUNDS: usize = 5;
/// Of files up to here there are several, and they are read more often: their times depend on where the disk is turned to, and on
/// where they lie among the tracks.
const SHORT: u64 = 4 << 20;
const PLACES_OF_SHORT: u64 = 8;
const ROUNDS_OF_SHORT: usize = 32;
/// What takes longer is read once on either side.
const LONG: u64 = 64 << 20;
/// Of a disk of 7,200 rpm.
const TURN: Duration = Duration::from_micros(8333);
/// How often the server alone is asked.
const ROUNDS_ALONE: usize = 3;
/// By 10 Mbit/s the server alone isn't asked for more: by then the disk has long won.
const REMOTE_MOST_OF_SLOW: u64 = 16 << 20;

/// A file of known bytes, one of several of its size.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) bytes: u64,
    place: u64,
}

impl Known {
    /// The first one of its size.
    pub(super) fn of(bytes: u64) -> Self {
        Self { bytes, place: 0 }
    }

    pub(super) fn name(self) -> String {
        format!("f{}.{}", self.bytes, self.place)
    }

    /// No two files hold the same blocks: sizes are further apart than there are places.
    pub(super) fn content(self) -> u64 {
        self.bytes + self.place
    }
}

fn bytes_of(files: &[Known]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

/// An ext4 with these files.
pub(super) fn image(scratch: &Scratch, files: &[Known]) -> Result<PathBuf, String> {
    let image = scratch.file("image");
    let bytes = bytes_of(files);
    let room = (bytes + bytes / 16 + (64 << 20)).next_multiple_of(1 << 20);
    File::create(&image).and_then(|file| file.set_len(room)).map_err(said(&image))?;
    // Small ones would have smaller blocks.
    Fs::Ext4.make(&image, 4096, &["-b", "4096"].map(str::to_owned))?;
    let tree = scratch.dir("filled")?;
    let mut mounted = PlainMount::writable(&image, &tree, "ext4", "noatime,noinit_itable")?;
    for known in files {
        let path = tree.join(known.name());
        let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(&path).map_err(said(&path))?);
        contents::write(&mut file, known.content(), known.bytes).map_err(said(&path))?;
        let file = file.into_inner().map_err(|error| error.to_string())?;
        file.sync_all().map_err(said(&path))?;
    }
    mounted.end()?;
    fs::remove_dir(&tree).map_err(said(&tree))?;
    Ok(image)
}

/// With memory for all files.
fn site<'a>(files: &[Known], programs: &'a Programs, interrupt: &'a Interrupt) -> Result<Site<'a>, String> {
    let mib = bytes_of(files) >> 20;
    Site::new(mib + mib / 4 + 256, programs, interrupt)
}

/// Mounted twice: as it is, and raced.
pub(super) struct Both {
    alone: Mounted,
    at: PathBuf,
    pub(super) raced: Raced,
    /// The disks below: the one that is read as it is, and the raced one.
    disks: [Shown; 2],
}

impl Both {
    /// Empties the buffer of a disk, sends the arm to its other end, and waits for a part of a turn: else a round would begin at the place
    /// of the platter where the one before has ended.
    fn send_away(&self, is_raced: bool, turns: &mut Random) -> Result<(), String> {
        let shown = &self.disks[usize::from(is_raced)];
        shown.reset()?;
        let path = &shown.file;
        let disk = open_to_read(path)?;
        let end = disk.metadata().map_err(said(path))?.len();
        disk.read_exact_at(&mut vec![0; contents::BLOCK], end - contents::BLOCK as u64).map_err(said(path))?;
        thread::sleep(TURN.mul_f64(turns.below(1000) as f64 / 1000.0));
        Ok(())
    }

    pub(super) fn file(&self, known: Known, is_raced: bool) -> PathBuf {
        if is_raced { self.at.join(known.name()) } else { self.alone.file(&known.name()) }
    }
}

/// Gives what stands on both disks to a function, with the race that is measured.
pub(super) fn on_both<T>(
    site: &mut Site,
    files: &[Known],
    mbit: u64,
    disk: Disk,
    measure: impl FnOnce(&Site, &Both) -> Result<T, String>,
) -> Result<T, String> {
    let image = image(&site.scratch, files)?;
    let turns = disk.emulated()?.has_head();
    let rig = Rig::new(site, image, disk)?;
    site.network.limit(mbit)?;
    let (alone, below) = (rig.shown(site, "alone")?, rig.shown(site, "raced")?);
    let at = site.scratch.dir("tree")?;
    let words = at.display().to_string();
    let raced = rig.raced(site, &below, "race", &["--mount", &words, "--type", "ext4", "--options", "noatime"])?;
    // A file that is shown tells nothing of its disk, so the mount takes each for one that turns.
    set_turns(&at, turns)?;
    let plain = Mounted::on(site, "plain", &alone, turns)?;
    let both = Both { alone: plain, at, raced, disks: [alone, below] };
    let measured = measure(site, &both);
    let Both { raced, disks: [alone, below], .. } = both;
    raced.end()?;
    below.end()?;
    alone.end()?;
    measured
}

/// Figure 4.
pub(super) fn random(mbit: u64, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Measured, String> {
    let files = SIZES.map(|size| Known::of(whole_blocks(size, scale)));
    let reads = scaled(READS, scale);
    let mut site = site(&files, programs, interrupt)?;
    on_both(&mut site, &files, mbit, disk().real(1.0), |_, both| {
        let mut all = Vec::new();
        for known in files {
            let bytes = known.bytes;
            let mut of_size = OfSize { bytes, ..OfSize::default() };
            for turn in 0..SERIES {
                for is_raced in [false, true] {
                    let path = both.file(known, is_raced);
                    series::forget(&path)?;
                    let file = File::open(&path).map_err(said(&path))?;
                    let mut places = Random::new(bytes + turn);
                    let series = series::random_reads(&file, bytes, reads, &mut places, known.content(), interrupt)?;
                    series.is_right()?;
                    let taken = if is_raced { &mut of_size.raced } else { &mut of_size.disk };
                    taken.push(series.taken());
                }
            }
            all.push(of_size);
        }
        Ok(Measured { mbit, reads, sizes: all })
    })
}

/// Figure 3.
pub(super) fn sequential(
    mbit: u64,
    scale: f64,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Sequential, String> {
    let most = whole_blocks(MOST, scale);
    let sizes: Vec<u64> =
        std::iter::successors(Some(LEAST), |size| Some(size * 2)).take_while(|&size| size <= most.max(LEAST)).collect();
    let all: Vec<Known> =
        sizes.iter().flat_map(|&bytes| (0..places_of(bytes)).map(move |place| Known { bytes, place })).collect();
    let mut site = site(&all, programs, interrupt)?;
    on_both(&mut site, &all, mbit, disk().real(1.0), |site, both| {
        let (mut files, mut turns) = (Vec::new(), Random::new(mbit));
        for &bytes in &sizes {
            let mut copied = Copied { bytes, ..Copied::default() };
            for round in 0..rounds_of(bytes) {
                let known = Known { bytes, place: round as u64 % places_of(bytes) };
                for is_raced in [false, true] {
                    let path = both.file(known, is_raced);
                    series::forget(&path)?;
                    both.send_away(is_raced, &mut turns)?;
                    let ms = series::copy(&path, known.content(), interrupt)?;
                    if is_raced { copied.raced_ms.push(ms) } else { copied.disk_ms.push(ms) }
                }
            }
            if mbit > 10 || bytes <= REMOTE_MOST_OF_SLOW {
                let server = format!("{}:{PORT}", Host::Server.address());
                let order = gets::Order::new(site, server, bytes, bytes / contents::BLOCK as u64);
                for _ in 0..ROUNDS_ALONE {
                    copied.remote_ms.push(order.run(site)?.seconds * 1e3);
                }
            }
            files.push(copied);
        }
        Ok(Sequential { mbit, files })
    })
}

fn places_of(bytes: u64) -> u64 {
    if bytes <= SHORT { PLACES_OF_SHORT } else { 1 }
}

fn rounds_of(bytes: u64) -> usize {
    if bytes <= SHORT {
        ROUNDS_OF_SHORT
    } else if bytes <= LONG {
        ROUNDS
    } else {
        1
    }
}

/// A size at that scale, at least 16 blocks.
fn whole_blocks(bytes: u64, scale: f64) -> u64 {
    let block = contents::BLOCK as u64;
    ((bytes as f64 * scale) as u64 / block * block).max(16 * block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_blocks() {
        assert_eq!([1.0, 0.5, 0.0001].map(|scale| whole_blocks(1 << 20, scale)), [1 << 20, 1 << 19, 64 << 10]);
    }
}
