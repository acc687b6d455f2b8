//! What the index makes of blocks that are written through the race, as a whole and in parts, and read once.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::contents::{self, BLOCK};
use super::rig::{CONTENT, Rig, disk, open_to_write, plain_image};
use super::series::said;
use super::site::{PORT, Raced, Site};
use super::writes::{figure, writable};
use super::{Figures, rounds};
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::random::Random;

const IMAGE: u64 = 64 << 20;
const ROUNDS: usize = 3;
/// Seeds of what is written: another one in each round.
const NEW: u64 = 2;

/// How much of a block is written, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) block: u64,
    pub(super) written: usize,
}

/// Sectors of disks of both kinds.
pub(super) const PARTS: [Part; 4] = [
    Part { block: 64 << 10, written: 512 },
    Part { block: 64 << 10, written: 4096 },
    Part { block: 16 << 10, written: 512 },
    Part { block: 16 << 10, written: 4096 },
];

impl Part {
    /// Blocks of the index, as a whole.
    const WHOLE: Self = Self { block: BLOCK as u64, written: BLOCK };

    /// What a figure of it is called.
    pub(super) fn named(self, figure: &str) -> String {
        format!("{}_{}_{figure}", self.block, self.written)
    }
}

/// A tenth of the blocks is rewritten, and read once.
pub(super) fn whole(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut figures = Figures::new();
    for round in 0..rounds(scale, ROUNDS) {
        for (name, value) in round_of(Part::WHOLE, round as u64, scale, programs, interrupt)? {
            figures.entry(name.to_owned()).or_default().push(value);
        }
    }
    Ok(figures)
}

/// Of a tenth of the blocks a part is rewritten, and read once.
pub(super) fn parts(scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Figures, String> {
    let mut figures = Figures::new();
    for part in PARTS {
        for round in 0..rounds(scale, ROUNDS) {
            for (name, value) in round_of(part, round as u64, scale, programs, interrupt)? {
                figures.entry(part.named(name)).or_default().push(value);
            }
        }
    }
    Ok(figures)
}

fn round_of(
    part: Part,
    round: u64,
    scale: f64,
    programs: &Programs,
    interrupt: &Interrupt,
) -> Result<Vec<(&'static str, f64)>, String> {
    let mut site = Site::new(256, programs, interrupt)?;
    let bytes = (IMAGE as f64 * scale.max(0.05)) as u64 / part.block * part.block;
    let image = plain_image(&site, bytes)?;
    let block_size = part.block.to_string();
    let rig = Rig::with_blocks(&mut site, image, disk(), &["--block-size", &block_size])?;
    let shown = writable(&site, "raced", &rig)?;
    let raced = site.mount(PORT, &rig.index, &shown.file, &[])?;
    let mut places = Random::new(round + 1);
    let places: Vec<u64> = (0..bytes / part.block)
        .step_by(10)
        .map(|number| number * part.block + places.below(part.block / part.written as u64) * part.written as u64)
        .collect();
    rewrite(&raced, part, &places, NEW + round, interrupt)?;
    raced.end()?;
    // What isn't valid is new to it; what differs would be wrong.
    let told = site.index(&rig.index, &shown.file, &["--check"])?;
    shown.end()?;
    let mut figures = vec![("rewritten", places.len() as f64)];
    for (name, of) in [("unknown", "new"), ("suspect", "suspect"), ("stale", "stale"), ("differing", "differing")] {
        figures.push((name, figure(&told, of)?));
    }
    Ok(figures)
}

/// Writes these places, and then reads of each the 4 KiB around it.
fn rewrite(raced: &Raced, part: Part, places: &[u64], seed: u64, interrupt: &Interrupt) -> Result<(), String> {
    let path = raced.block();
    let file: File = open_to_write(&path)?;
    for &at in places {
        interrupt.check()?;
        let (number, within) = page_of(at);
        let new = contents::block(seed, number);
        file.write_all_at(&new[within..within + part.written], at).map_err(said(&path))?;
    }
    file.sync_all().map_err(said(&path))?;
    for &at in places {
        let (number, within) = page_of(at);
        let mut expected = contents::block(CONTENT, number);
        expected[within..within + part.written]
            .copy_from_slice(&contents::block(seed, number)[within..][..part.written]);
        let mut page = [0; BLOCK];
        file.read_exact_at(&mut page, number * BLOCK as u64).map_err(said(&path))?;
        if page != expected {
            return Err(format!("other bytes than were written at {at}"));
        }
    }
    Ok(())
}

/// The 4 KiB that hold a place, and where in them.
fn page_of(at: u64) -> (u64, usize) {
    (at / BLOCK as u64, (at % BLOCK as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_parts_have_names_of_their_own() {
        let names: std::collections::BTreeSet<String> = PARTS.map(|part| part.named("unknown")).into();
        assert_eq!(names.len(), PARTS.len());
        // No part crosses a page, by which it is read back.
        assert!(PARTS.iter().all(|part| BLOCK.is_multiple_of(part.written) && part.block > part.written as u64));
        assert_eq!(page_of(3 * 4096 + 512), (3, 512));
    }
}
