//! What is kept of blocks: by a server, and by an index.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use super::calm::add;
use super::contents::{self, BLOCK};
use super::network::Host;
use super::rig::{CONTENT, plain_image};
use super::scans::SETTLED;
use super::series::said;
use super::site::{self, PORT, Site};
use super::writes::figure;
use super::{Figures, rounds, scaled};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;

const IMAGE: u64 = 64 << 20;
const CLIENTS: u64 = 10;
const ROUNDS: usize = 3;
/// Small files, of a block each.
const FILES: u64 = 10_000;
/// Sizes of blocks that an index may have; what is around its hashes counts most where there are few.
const SIZES: [&str; 3] = ["4K", "16K", "64K"];

/// What a server keeps of ten images that share nine of ten blocks, when ten clients fill it at the same time, each by a connection
/// and a certificate of its own.
pub(super) fn shared(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut site = Site::new(512, programs, interrupt)?;
    let blocks = scaled(IMAGE / BLOCK as u64, scale);
    let mut clients: Vec<(String, PathBuf)> = Vec::new();
    for client in 0..CLIENTS {
        interrupt.check()?;
        let name = format!("client-{client}");
        site.add_key_of(&name, Host::Client.identity())?;
        let image = site.scratch.file(&format!("image-{client}"));
        let mut file = BufWriter::new(File::create(&image).map_err(said(&image))?);
        for number in 0..blocks {
            let seed = if number % 10 == 0 { 100 + client } else { CONTENT };
            file.write_all(&contents::block(seed, number)).map_err(said(&image))?;
        }
        file.into_inner().map_err(|error| error.to_string())?.sync_all().map_err(said(&image))?;
        clients.push((name, image));
    }
    let mut figures = Figures::new();
    for _ in 0..rounds(scale, ROUNDS) {
        // With nothing.
        site.serve()?;
        let fill = |(name, image): &(String, PathBuf)| site.push_as(name, image, &[]).map(drop);
        let failed = |_| "who fills the server has failed".to_owned();
        thread::scope(|scope| {
            let filling: Vec<_> = clients.iter().map(|client| scope.spawn(|| fill(client))).collect();
            filling.into_iter().try_for_each(|filling| filling.join().map_err(failed)?)
        })?;
        add(&mut figures, "times_one_image", kept(&site)? / (blocks * BLOCK as u64) as f64);
    }
    Ok(figures)
}

/// Bytes of the blocks that the server has.
fn kept(site: &Site) -> Result<f64, String> {
    let (key, identity) = (site.key(), site.identity(Host::Client));
    let server = format!("{}:{PORT}", Host::Server.address());
    let words = ["peer", "stat", "--metrics", "--server", &server, "--key", &key, "--tls", &identity];
    let told = site.run(Host::Client, &words)?;
    let bytes = told.lines().find_map(|line| line.strip_prefix("onesweep_peer_block_bytes "));
    bytes.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| "the server doesn't say what it has".to_owned())
}

/// Bytes of an index for each block that it has: of a device, and of a tree of small files, whose keys take more than their hashes.
pub(super) fn index(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let site = Site::new(64, programs, interrupt)?;
    let mut figures = Figures::new();
    // At a small scale what every index has would count for more than blocks do.
    let image = plain_image(&site, IMAGE)?;
    for size in SIZES {
        add(&mut figures, "device", a_block(&site, &format!("of {size}"), &image, &["--block-size", size])?);
    }
    let tree = site.scratch.dir(site::FILES)?;
    for number in 0..scaled(FILES, scale) {
        interrupt.check()?;
        let path = tree.join(number.to_string());
        fs::write(&path, &contents::block(number, 0)[..3000]).map_err(said(&path))?;
    }
    thread::sleep(SETTLED);
    add(&mut figures, "tree", a_block(&site, "of files", &tree, &[])?);
    Ok(figures)
}

fn a_block(site: &Site, name: &str, of: &Path, more: &[&str]) -> Result<f64, String> {
    let index = site.scratch.file(name);
    let blocks = figure(&site.index(&index, of, more)?, "blocks")?;
    let file = fs::metadata(&index).map_err(said(&index))?;
    Ok(file.len().max(file.blocks() * 512) as f64 / blocks)
}
