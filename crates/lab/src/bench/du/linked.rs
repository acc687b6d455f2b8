//! Snapshots by hard links, as `cp -al` makes them: each file has a name in each of them, so that nearly all that a server knows of
//! places is about inodes with several names.

use std::fs;
use std::path::Path;

use super::outcomes::Linked;
use super::peers::{DU, first_word};
use super::served::Served;
use super::still::{First, QUESTIONS_OF_MANY, ask, first, median, of_store, on_disk, scaled, walks};
use super::volume::{Files, Volume, fill};
use crate::bench::calibration;
use crate::bench::pipe;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;

const SNAPSHOTS: u64 = 10;
/// Directories of each, and files in each of them.
const DIRECTORIES: f64 = 10_000.0;
const FILES_EACH: u64 = 10;

/// Everything in memory: a first harvest, what is held, and a question after the oldest snapshot is removed.
pub(super) fn measure(fs: &str, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Linked, String> {
    let files = Files::Each(FILES_EACH);
    let each = scaled(DIRECTORIES, scale);
    let volume = Volume::holding(fs, each * SNAPSHOTS, files)?;
    let snapshot = |number: u64| volume.tree.join(format!("snapshot{number}"));
    let oldest = snapshot(0);
    fs::create_dir(&oldest).map_err(|error| format!("{}: {error}", oldest.display()))?;
    let each = fill(&oldest, each, files, interrupt)?.len() as u64;
    for number in 1..SNAPSHOTS {
        interrupt.check()?;
        mount::run("cp", ["-al".as_ref(), oldest.as_os_str(), snapshot(number).as_os_str()])?;
    }
    on_disk(&volume.tree)?;
    let walks_s = walks(&volume, programs, interrupt)?;
    let First { answered_s: first_s, stored_s, served } = first(&volume, programs, interrupt)?;
    let first_peak_kib = served.peak_kib()?;
    ask(served.socket(), &volume.tree, 1)?;
    let resident_kib = served.resident_kib()?;
    let root_us = median(ask(served.socket(), &volume.tree, QUESTIONS_OF_MANY)?).as_secs_f64() * 1e6;
    answered(&served, &volume, "after a first harvest", (programs, interrupt))?;
    served.stop(interrupt)?;
    let (store_bytes, _) = of_store(&volume.scratch.file("store"))?;
    let served = Served::start(programs, &volume.scratch, &volume.tree)?;
    mount::run("rm", ["-r".as_ref(), oldest.as_os_str()])?;
    let (removed_s, removed_du_s) = answered(&served, &volume, "after a snapshot is gone", (programs, interrupt))?;
    served.stop(interrupt)?;
    let getppid_us = calibration::getppid_ns() / 1e3;
    volume.end()?;
    Ok(Linked {
        snapshots: SNAPSHOTS,
        files: (each - 1) * FILES_EACH,
        directories: each * SNAPSHOTS + 1,
        first_s,
        first_stored_s: Some(stored_s),
        walks_s,
        resident_kib,
        first_peak_kib,
        store_bytes,
        compacted: true,
        root_us,
        removed_s,
        removed_du_s,
        getppid_us,
    })
}

/// Seconds of a question for the whole, and of GNU du's answer behind it, which has to be the same.
fn answered(
    served: &Served,
    volume: &Volume,
    when: &str,
    (programs, interrupt): (&Programs, &Interrupt),
) -> Result<(f64, f64), String> {
    let one = |argv: &[String]| {
        let ended = pipe::run(argv, interrupt)?;
        if ended.code == 0 { Ok((first_word(&ended.output), ended.wall_s)) } else { Err(ended.complaint) }
    };
    let (ours, ours_s) = one(&served.question(&volume.tree))?;
    let (du, du_s) = one(&DU.argv(programs, &volume.tree, Path::new("")).ok_or("no du")?)?;
    if ours == du { Ok((ours_s, du_s)) } else { Err(format!("{when} onesweep says {ours}, du {du}")) }
}
