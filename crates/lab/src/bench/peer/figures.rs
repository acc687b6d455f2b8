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
use super::rig::{Mounted, Rig, disk, open_to_read};
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
/// Of figure 3, in powers of two.
const LEAST: u64 = 64 << 10;
const MOST: u64 = 1 << 30;
const ROUNDS: usize = 5;
/// Files up to here are read more often: their times depend on where the disk is turned to.
const SHORT: u64 = 4 << 20;
const ROUNDS_OF_SHORT: usize = 31;
/// What takes longer is read once on either side.
const LONG: u64 = 64 << 20;
/// Of a disk of 7,200 rpm.
const TURN: Duration = Duration::from_micros(8333);
/// How often the server alone is asked.
const ROUNDS_ALONE: usize = 3;
/// The server alone isn't asked for more: by then the disk has long won.
const REMOTE_MOST: u64 = 16 << 20;

fn name(bytes: u64) -> String {
    format!("f{bytes}")
}

/// An ext4 with a file of each size, all of the same known bytes.
pub(super) fn image(scratch: &Scratch, sizes: &[u64]) -> Result<PathBuf, String> {
    let image = scratch.file("image");
    let bytes = sizes.iter().sum::<u64>();
    let room = (bytes + bytes / 16 + (64 << 20)).next_multiple_of(1 << 20);
    File::create(&image).and_then(|file| file.set_len(room)).map_err(said(&image))?;
    // Small ones would have smaller blocks.
    Fs::Ext4.make(&image, 4096, &["-b", "4096"].map(str::to_owned))?;
    let tree = scratch.dir("filled")?;
    let mut mounted = PlainMount::writable(&image, &tree, "ext4", "noatime,noinit_itable")?;
    for &size in sizes {
        let path = tree.join(name(size));
        let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(&path).map_err(said(&path))?);
        // No two files hold the same blocks.
        contents::write(&mut file, size, size).map_err(said(&path))?;
        let file = file.into_inner().map_err(|error| error.to_string())?;
        file.sync_all().map_err(said(&path))?;
    }
    mounted.end()?;
    fs::remove_dir(&tree).map_err(said(&tree))?;
    Ok(image)
}

/// With memory for all files.
fn site<'a>(sizes: &[u64], programs: &'a Programs, interrupt: &'a Interrupt) -> Result<Site<'a>, String> {
    let mib = sizes.iter().sum::<u64>() >> 20;
    Site::new(mib + mib / 4 + 256, programs, interrupt)
}

/// Mounted twice: as it is, and raced.
pub(super) struct Both {
    alone: Mounted,
    at: PathBuf,
    pub(super) raced: Raced,
    /// The disks below.
    disks: [PathBuf; 2],
}

impl Both {
    /// Sends the arm to the other end of a disk, so that nothing of what is read next is in its buffer, and waits for a part of a turn:
    /// else a round would begin at the place of the platter where the one before has ended.
    fn send_away(&self, is_raced: bool, turns: &mut Random) -> Result<(), String> {
        let path = &self.disks[usize::from(is_raced)];
        let disk = open_to_read(path)?;
        let end = disk.metadata().map_err(said(path))?.len();
        disk.read_exact_at(&mut vec![0; contents::BLOCK], end - contents::BLOCK as u64).map_err(said(path))?;
        thread::sleep(TURN.mul_f64(turns.below(1000) as f64 / 1000.0));
        Ok(())
    }

    pub(super) fn file(&self, size: u64, is_raced: bool) -> PathBuf {
        if is_raced { self.at.join(name(size)) } else { self.alone.file(&name(size)) }
    }
}

/// Gives what stands on both disks to a function, with the race that is measured.
pub(super) fn on_both<T>(
    site: &mut Site,
    sizes: &[u64],
    mbit: u64,
    disk: Disk,
    measure: impl FnOnce(&Site, &Both) -> Result<T, String>,
) -> Result<T, String> {
    let image = image(&site.scratch, sizes)?;
    let rig = Rig::new(site, image, disk)?;
    site.network.limit(mbit)?;
    let (alone, below) = (rig.shown(site, "alone")?, rig.shown(site, "raced")?);
    let at = site.scratch.dir("tree")?;
    let words = at.display().to_string();
    let raced = rig.raced(site, &below, "race", &["--mount", &words, "--type", "ext4", "--options", "noatime"])?;
    let disks = [&alone, &below].map(|shown| shown.file.clone());
    let both = Both { alone: Mounted::new(site, "plain", &alone)?, at, raced, disks };
    let measured = measure(site, &both);
    both.raced.end()?;
    below.end()?;
    alone.end()?;
    measured
}

/// Figure 4.
pub(super) fn random(mbit: u64, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Measured, String> {
    let sizes: Vec<u64> = SIZES.map(|size| whole_blocks(size, scale)).into();
    let reads = scaled(READS, scale);
    let mut site = site(&sizes, programs, interrupt)?;
    on_both(&mut site, &sizes, mbit, disk().real(1.0), |_, both| {
        let mut all = Vec::new();
        for &bytes in &sizes {
            let mut of_size = OfSize { bytes, ..OfSize::default() };
            for turn in 0..SERIES {
                for is_raced in [false, true] {
                    let path = both.file(bytes, is_raced);
                    series::forget(&path)?;
                    let file = File::open(&path).map_err(said(&path))?;
                    let mut places = Random::new(bytes + turn);
                    let series = series::random_reads(&file, bytes, reads, &mut places, bytes, interrupt)?;
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
    let mut site = site(&sizes, programs, interrupt)?;
    on_both(&mut site, &sizes, mbit, disk().real(1.0), |site, both| {
        let (mut files, mut turns) = (Vec::new(), Random::new(mbit));
        for &bytes in &sizes {
            let mut copied = Copied { bytes, ..Copied::default() };
            for _ in 0..rounds_of(bytes) {
                for is_raced in [false, true] {
                    let path = both.file(bytes, is_raced);
                    series::forget(&path)?;
                    both.send_away(is_raced, &mut turns)?;
                    let ms = series::copy(&path, bytes, interrupt)?;
                    if is_raced { copied.raced_ms.push(ms) } else { copied.disk_ms.push(ms) }
                }
            }
            if bytes <= REMOTE_MOST {
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
