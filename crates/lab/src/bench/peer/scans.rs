//! A second machine scans what a first one has scanned.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::clamd::{Clamd, INFECTED};
use super::contents;
use super::network::Host;
use super::rig::{Mounted, Shown, disk};
use super::series::said;
use super::site::{PORT, Site};
use super::{Figures, rounds, scaled};
use crate::age::image::{Fs, PlainMount};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const FILES: u64 = 10_000;
const FILE_BYTES: u64 = 20 << 10;
const ROUNDS: usize = 3;
/// A file that changed just before isn't indexed.
pub(super) const SETTLED: Duration = Duration::from_secs(4);

/// The engine is any program that reads all: what counts is whether it is asked.
const ENGINE: [&str; 4] = ["--command", "cat > /dev/null", "--epoch", "1"];
/// The code of both scanners when they found something.
const FOUND: i32 = 1;

fn figure(told: &str, names: &[&str]) -> Result<f64, String> {
    let line = told.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let told: serde_json::Value = serde_json::from_str(line).map_err(|error| format!("{told}: {error}"))?;
    let value = names.iter().fold(&told, |told, name| &told[name]);
    value.as_f64().ok_or_else(|| format!("no {} in {told}", names.join(".")))
}

/// An ext4 with so many files, and one of other bytes where they are given.
fn image(site: &Site, files: u64, other: Option<&str>) -> Result<PathBuf, String> {
    let image = site.scratch.file("image");
    let room = (files * FILE_BYTES * 5 / 4 + (64 << 20)).next_multiple_of(1 << 20);
    File::create(&image).and_then(|file| file.set_len(room)).map_err(said(&image))?;
    Fs::Ext4.make(&image, files + 4096, &["-b", "4096"].map(str::to_owned))?;
    let filled = site.scratch.dir("filled")?;
    let mut mounted = PlainMount::writable(&image, &filled, "ext4", "noatime,noinit_itable")?;
    for number in 0..files {
        site.interrupt.check()?;
        let path = filled.join(format!("{number}"));
        let mut bytes = Vec::new();
        contents::write(&mut bytes, number, FILE_BYTES).map_err(said(&path))?;
        fs::write(&path, bytes).map_err(said(&path))?;
    }
    if let Some(other) = other {
        let path = filled.join("other");
        fs::write(&path, other).map_err(said(&path))?;
    }
    mounted.end()?;
    thread::sleep(SETTLED);
    Ok(image)
}

/// Gives the tree of an image to a function, right after it was mounted; the books begin when it does.
fn on_cold<T>(site: &Site, image: &Path, work: impl FnOnce(&Shown, &str) -> Result<T, String>) -> Result<T, String> {
    let shown = Shown::new(site, "raced", image, &disk(), Vec::new(), true)?;
    let tree = Mounted::new(site, "plain", &shown)?.file("");
    shown.reset()?;
    let done = work(&shown, &tree.display().to_string())?;
    shown.end()?;
    Ok(done)
}

/// Both read the same tree, each right after it was mounted; the second one has an index of it.
pub(super) fn second_machine(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(64, programs, interrupt)?;
    let scanner = site.add_key("scanner")?;
    let files = scaled(FILES, scale);
    let image = image(&site, files, None)?;

    let mut figures = Figures::from([("files".to_owned(), vec![files as f64])]);
    let mut keep = |name: String, value| figures.entry(name).or_default().push(value);
    let (key, server) = (site.key(), format!("{}:{PORT}", Host::Server.address()));
    let trusted = format!("{scanner}.pem");
    let client = site.identity(Host::Client);
    for round in 0..rounds(scale, ROUNDS) {
        // One that knows nothing.
        site.serve()?;
        let index = site.scratch.file(&format!("index of round {round}")).display().to_string();
        for (name, identity, more) in
            [("first", &scanner, &[][..]), ("second", &client, &["--trust", &trusted, "--index", &index])]
        {
            on_cold(&site, &image, |shown, tree| {
                let verdicts = site.scratch.file(&format!("{name} of round {round}")).display().to_string();
                let words =
                    ["scan", "--json", "--key", &key, "--server", &server, "--tls", identity, "--verdicts", &verdicts];
                let told = site.run(Host::Client, &[&words[..], &ENGINE, more, &[tree]].concat())?;
                for (figure_name, names) in [
                    ("scanned", &["details", "scanned"][..]),
                    ("peer", &["details", "peer"]),
                    ("bytes", &["bytes_read"]),
                ] {
                    keep(format!("{name}_{figure_name}"), figure(&told, names)?);
                }
                keep(format!("{name}_ms"), shown.book("busy_ms")?);
                if name == "first" {
                    site.run(Host::Client, &["peer", "index", "--key", &key, "--index", &index, tree])?;
                }
                Ok(())
            })?;
        }
    }
    Ok(figures)
}

/// The same tree by clamdscan and by ours, each right after it was mounted, with one clamd for both. The server knows all
/// contents from another machine, and ours has an index. Both have to find the same one file.
pub(super) fn beside_clamdscan(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(64, programs, interrupt)?;
    let scanner = site.add_key("scanner")?;
    site.serve()?;
    let files = scaled(FILES, scale);
    let image = image(&site, files, Some(INFECTED))?;
    let clamd = Clamd::start(&site.scratch.dir("clamd")?, interrupt)?;

    let index = site.scratch.file("index").display().to_string();
    let (key, server, socket) = (site.key(), format!("{}:{PORT}", Host::Server.address()), clamd.socket());
    let scan = |identity: &str, verdicts: &str, more: &[&str], tree: &str| {
        let verdicts = site.scratch.file(verdicts).display().to_string();
        let words = ["scan", "--json", "--clamd", &socket, "--key", &key, "--server", &server, "--tls", identity];
        let words = [&words[..], &["--verdicts", &verdicts], more, &[tree]].concat();
        site.run_to(Host::Client, &site.words(&words), FOUND)
    };
    on_cold(&site, &image, |_, tree| {
        scan(&scanner, "verdicts of the scanner", &[], tree)?;
        site.run(Host::Client, &["peer", "index", "--key", &key, "--index", &index, tree]).map(drop)
    })?;

    let mut figures = Figures::from([("files".to_owned(), vec![files as f64])]);
    let mut keep = |name: &str, value| figures.entry(name.to_owned()).or_default().push(value);
    let (trusted, client) = (format!("{scanner}.pem"), site.identity(Host::Client));
    for round in 0..rounds(scale, ROUNDS) {
        on_cold(&site, &image, |shown, tree| {
            let config = format!("--config-file={}", clamd.config());
            let words = ["clamdscan", "--fdpass", "--multiscan", &config, tree].map(str::to_owned);
            let told = site.run_to(Host::Client, &words, FOUND)?;
            if !told.contains("other: Bench.UNOFFICIAL FOUND") || !told.contains("Infected files: 1\n") {
                return Err(format!("clamdscan should find one file, and said: {}", told.trim()));
            }
            keep("clamdscan_ms", shown.book("busy_ms")?);
            keep("clamdscan_bytes", shown.book("reads.bytes")?);
            Ok(())
        })?;
        on_cold(&site, &image, |shown, tree| {
            let verdicts = format!("verdicts of round {round}");
            let told = scan(&client, &verdicts, &["--trust", &trusted, "--index", &index], tree)?;
            for (name, names) in [("scanned", &["details", "scanned"][..]), ("peer", &["details", "peer"])] {
                keep(name, figure(&told, names)?);
            }
            keep("ours_ms", shown.book("busy_ms")?);
            keep("ours_bytes", shown.book("reads.bytes")?);
            Ok(())
        })?;
    }
    Ok(figures)
}
