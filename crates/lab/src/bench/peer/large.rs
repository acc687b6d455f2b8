//! Random writes that are scattered over a large device, so that hardly two fall into the same region of the index.

use std::fs::File;

use super::calm::add;
use super::contents::BLOCK;
use super::rig::{Shown, disk};
use super::series::said;
use super::site::{PORT, Site};
use super::writes::written;
use super::{Figures, rounds, scaled};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount::{self, Loop};

/// All of it a hole at first.
const LARGE: u64 = 64 << 30;
const LEAST: u64 = 1 << 30;
const WRITES: u64 = 2000;
const ROUNDS: usize = 3;

/// How writes pass: what figures call it, whether the index lies on the same disk, and words for the mount.
const WAYS: [(&str, bool, &[&str]); 4] = [
    ("elsewhere", false, &[]),
    ("elsewhere_through", false, &["--write-through"]),
    ("same", true, &[]),
    ("same_through", true, &["--write-through"]),
];

fn bytes(scale: f64) -> u64 {
    ((LARGE as f64 * scale) as u64).max(LEAST).next_multiple_of(LEAST)
}

/// Room for an index of so many bytes, in an ext4.
fn room(bytes: u64) -> u64 {
    (bytes / BLOCK as u64 * 40 + (64 << 20)).next_multiple_of(1 << 20)
}

/// Modelled milliseconds of the disk for the same writes without the race and with it, in each way. The index knows nothing yet: what
/// it marks before a write doesn't depend on what it knows.
pub(super) fn scattered(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    site.serve()?;
    let (bytes, writes) = (bytes(scale), scaled(WRITES, scale));
    let mut figures = Figures::new();
    for seed in 1..=rounds(scale, ROUNDS) as u64 {
        let shown = anew(&site, bytes)?;
        add(&mut figures, "alone_ms", written((&shown, &shown.file), bytes, writes, seed, interrupt)?);
        shown.end()?;
        for (name, is_same, more) in WAYS {
            let shown = anew(&site, bytes)?;
            let ms = if is_same {
                on_one_disk(&site, &shown, more, (bytes, writes, seed))?
            } else {
                let index = site.scratch.file("index");
                site.index(&index, &shown.file, &["--learn"])?;
                let race = site.mount(PORT, &index, &shown.file, more)?;
                let ms = written((&shown, &race.block()), bytes, writes, seed, interrupt)?;
                race.end()?;
                ms
            };
            shown.end()?;
            add(&mut figures, &format!("{name}_ms"), ms);
        }
    }
    Ok(figures)
}

/// A disk that was never written, with room for an index behind what is raced.
fn anew(site: &Site, bytes: u64) -> Result<Shown, String> {
    let image = site.scratch.file("image");
    File::create(&image).and_then(|file| file.set_len(bytes + room(bytes))).map_err(said(&image))?;
    Shown::new(site, "raced", &image, &disk(), Vec::new(), false)
}

/// The index in an ext4 behind what is raced. Devices and mounts go with the disk.
fn on_one_disk(
    site: &Site,
    shown: &Shown,
    more: &[&str],
    (bytes, writes, seed): (u64, u64, u64),
) -> Result<f64, String> {
    let part = |more: &[&str]| Loop::attach(&shown.file, &[&["--direct-io=on"], more].concat());
    let raced = part(&["--sizelimit", &bytes.to_string()])?;
    let store = part(&["--offset", &bytes.to_string()])?;
    let words = ["-q", "-F", "-b", "4096"].map(AsRef::as_ref);
    mount::run("mkfs.ext4", [&words[..], &[store.device.as_os_str()]].concat())?;
    let at = site.scratch.file("plain");
    if !at.exists() {
        site.scratch.dir("plain")?;
    }
    mount::mount(&store.device, &at, Some("ext4"), Some("noatime,noinit_itable"))?;
    let index = at.join("index");
    site.index(&index, &raced.device, &["--learn"])?;
    let race = site.mount(PORT, &index, &raced.device, more)?;
    let ms = written((shown, &race.block()), bytes, writes, seed, site.interrupt)?;
    race.end()?;
    Ok(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_large_at_each_scale_and_an_index_has_room() {
        assert_eq!([1.0, 0.05, 0.001].map(bytes), [64 << 30, 4 << 30, 1 << 30]);
        assert!(room(64 << 30) > 600 << 20 && room(LEAST) > 64 << 20);
        assert!([LEAST, LARGE].map(room).iter().all(|room| room.is_multiple_of(4096)));
    }
}
