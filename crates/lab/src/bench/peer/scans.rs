//! A second machine scans what a first one has scanned.

use std::fs::{self, File};
use std::thread;
use std::time::Duration;

use super::contents;
use super::network::Host;
use super::rig::{Mounted, Shown, disk};
use super::series::said;
use super::site::{PORT, Site};
use super::{Figures, scaled};
use crate::age::image::{Fs, PlainMount};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const FILES: u64 = 10_000;
const FILE_BYTES: u64 = 20 << 10;
/// A file that changed just before isn't indexed.
const SETTLED: Duration = Duration::from_secs(4);

/// The engine is any program that reads all: what counts is whether it is asked.
const ENGINE: [&str; 4] = ["--command", "cat > /dev/null", "--epoch", "1"];

fn figure(told: &str, names: &[&str]) -> Result<f64, String> {
    let line = told.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let told: serde_json::Value = serde_json::from_str(line).map_err(|error| format!("{told}: {error}"))?;
    let value = names.iter().fold(&told, |told, name| &told[name]);
    value.as_f64().ok_or_else(|| format!("no {} in {told}", names.join(".")))
}

/// Both read the same tree, each right after it was mounted; the second one has an index of it.
pub(super) fn second_machine(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(64, programs, interrupt)?;
    let scanner = site.add_key("scanner")?;
    site.serve()?;
    let files = scaled(FILES, scale);
    let image = site.scratch.file("image");
    let room = files * FILE_BYTES * 5 / 4 + (64 << 20);
    File::create(&image).and_then(|file| file.set_len(room)).map_err(said(&image))?;
    Fs::Ext4.make(&image, files + 4096, &["-b", "4096"].map(str::to_owned))?;
    let filled = site.scratch.dir("filled")?;
    let mut mounted = PlainMount::writable(&image, &filled, "ext4", "noatime,noinit_itable")?;
    for number in 0..files {
        interrupt.check()?;
        let path = filled.join(format!("{number}"));
        let mut bytes = Vec::new();
        contents::write(&mut bytes, number, FILE_BYTES).map_err(said(&path))?;
        fs::write(&path, bytes).map_err(said(&path))?;
    }
    mounted.end()?;
    thread::sleep(SETTLED);

    let index = site.scratch.file("index").display().to_string();
    let mut figures = Figures::from([("files".to_owned(), vec![files as f64])]);
    let (key, server) = (site.key(), format!("{}:{PORT}", Host::Server.address()));
    let trusted = format!("{scanner}.pem");
    let client = site.identity(Host::Client);
    for (name, identity, more) in
        [("first", &scanner, &[][..]), ("second", &client, &["--trust", &trusted, "--index", &index])]
    {
        let shown = Shown::new(&site, "raced", &image, &disk(), Vec::new(), true)?;
        let tree = Mounted::new(&site, "plain", &shown)?.file("");
        let tree = tree.display().to_string();
        let verdicts = site.scratch.file(name).display().to_string();
        shown.reset()?;
        let words = ["scan", "--json", "--key", &key, "--server", &server, "--tls", identity, "--verdicts", &verdicts];
        let told = site.run(Host::Client, &[&words[..], &ENGINE, more, &[&tree]].concat())?;
        for (figure_name, names) in
            [("scanned", &["details", "scanned"][..]), ("peer", &["details", "peer"]), ("bytes", &["bytes_read"])]
        {
            figures.insert(format!("{name}_{figure_name}"), vec![figure(&told, names)?]);
        }
        figures.insert(format!("{name}_ms"), vec![shown.book("busy_ms")?]);
        if name == "first" {
            site.run(Host::Client, &["peer", "index", "--key", &key, "--index", &index, &tree])?;
        }
        shown.end()?;
    }
    Ok(figures)
}
